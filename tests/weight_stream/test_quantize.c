/* Weights that are quantized as they are read: against searches of the nearest number, whole, in parts, turned, and as
 * forms. */
#include "support/support.h"

#include <math.h>

#include "base/half.h"
#include "kernels/small_types.h"
#include "weight_stream/weight_internal.h"

enum { ROWS = 37, COLUMNS = 1300, COUNT = ROWS * COLUMNS }; /* more than are computed at a time */

/* Random numbers, and a last row of zeros. */
static trm_weight *make_weight(trm_dtype dtype)
{
    const trm_dims dims = {2, {ROWS - 1, COLUMNS}};
    trm_weight *numbers, *weight;
    assert_ok(trm_weight_random(dtype, &dims, 5, 0.01f, 0.3f, &numbers));
    assert_ok(trm_weight_pad(numbers, 0, ROWS, &weight));
    trm_weight_destroy(numbers);
    return weight;
}

static trm_weight *make_scales(const trm_weight *weight, float range)
{
    const trm_dims one = {1, {1}};
    trm_weight *largest, *most, *scale;
    assert_ok(trm_weight_recode(weight, TRM_WEIGHT_CODE_LARGEST, &largest));
    assert_ok(trm_weight_random(TRM_F32, &one, 0, range, 0.0f, &most));
    assert_ok(trm_weight_compute(TRM_WEIGHT_DIVIDE, trm_weight_dtype(weight), largest, most, &scale));
    trm_weight_destroy(largest);
    trm_weight_destroy(most);
    return scale;
}

static float number_of(trm_dtype dtype, unsigned char code)
{
    return dtype == TRM_F4E2M1   ? (float)trm_small_float_decode(TRM_F4E2M1, code)
           : dtype == TRM_F8E4M3 ? trm_f8e4m3_to_f32(code)
           : dtype == TRM_I8     ? (float)(int8_t)code
                                 : (float)code - 8.0f;
}

/* The distance to the nearest number that the type has. */
static float nearest(trm_dtype dtype, float value)
{
    float least = INFINITY;
    for (int code = 0; code < (dtype == TRM_U8 || dtype == TRM_F4E2M1 ? 16 : 256); code++) {
        const float distance = fabsf(number_of(dtype, (unsigned char)code) - value);
        least = distance < least ? distance : least; /* false for NaN */
    }
    return least;
}

static const struct {
    trm_dtype type;
    float range;
} forms[] = {{TRM_F8E4M3, 448.0f}, {TRM_I8, 127.5f}, {TRM_U8, 7.5f}, {TRM_F4E2M1, 6.0f}};
static const trm_dtype types[] = {TRM_F32, TRM_F16, TRM_BF16};

static void largest_are_those_of_loops(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        trm_weight *weight = make_weight(types[t]), *largest, *part, *turned;
        float *numbers = malloc(COUNT * sizeof(float)), found[ROWS], again[ROWS];
        assert_ok(trm_weight_read(weight, TRM_F32, 0, COUNT, numbers));
        assert_ok(trm_weight_recode(weight, TRM_WEIGHT_CODE_LARGEST, &largest));
        assert_ok(trm_weight_slice(largest, 0, 3, 4, &part));
        assert_ok(trm_weight_read(part, TRM_F32, 0, 4, again));
        assert_ok(trm_weight_read(largest, TRM_F32, 0, ROWS, found));
        assert_memory_equal(again, found + 3, 4 * sizeof(float));
        for (int r = 0; r < ROWS; r++) {
            float expected = 0.0f;
            for (int c = 0; c < COLUMNS; c++) {
                expected = fmaxf(expected, fabsf(numbers[r * COLUMNS + c]));
            }
            assert_true(r < ROWS - 1 ? found[r] == expected : expected == 0.0f && found[r] > 0.0f && found[r] < 1e-4f);
        }
        assert_ok(trm_weight_transpose(weight, (const int32_t[]){1, 0}, &turned));
        trm_weight_destroy(largest);
        assert_ok(trm_weight_recode(turned, TRM_WEIGHT_CODE_LARGEST, &largest));
        assert_ok(trm_weight_read(largest, TRM_F32, 7, 1, found));
        float expected = 0.0f;
        for (int r = 0; r < ROWS; r++) {
            expected = fmaxf(expected, fabsf(numbers[r * COLUMNS + 7]));
        }
        assert_true(found[0] == expected);
        free(numbers);
        trm_weight_destroy(turned);
        trm_weight_destroy(part);
        trm_weight_destroy(largest);
        trm_weight_destroy(weight);
    }
}

static void numbers_are_the_nearest(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3 * sizeof(forms) / sizeof(forms[0]); i++) {
        const trm_dtype type = forms[i / 3].type;
        trm_weight *weight = make_weight(types[i % 3]), *scale = make_scales(weight, forms[i / 3].range), *made;
        float *numbers = malloc(COUNT * sizeof(float)), scales[ROWS];
        unsigned char *codes = malloc(COUNT);
        assert_ok(trm_weight_compute(TRM_WEIGHT_QUANTIZE, type, weight, scale, &made));
        assert_int_equal(trm_weight_dtype(made), type);
        assert_ok(trm_weight_read(weight, TRM_F32, 0, COUNT, numbers));
        assert_ok(trm_weight_read(scale, TRM_F32, 0, ROWS, scales));
        assert_ok(trm_weight_read(made, type, 0, COUNT, codes));
        for (int k = 0; k < COUNT; k++) {
            const float exact = numbers[k] / scales[k / COLUMNS];
            assert_true(fabsf(number_of(type, codes[k]) - exact) == nearest(type, exact));
        }
        free(numbers);
        free(codes);
        trm_weight_destroy(made);
        trm_weight_destroy(scale);
        trm_weight_destroy(weight);
    }
}

/* Whoever reads a part has the bits of the whole. */
static void parts_are_those_of_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const trm_dtype type = forms[i].type;
        trm_weight *weight = make_weight(TRM_BF16), *scale = make_scales(weight, forms[i].range), *made, *part, *turned;
        trm_weight *back;
        trm_weight_form form;
        unsigned char *codes = malloc(COUNT), *some = malloc(COUNT);
        assert_ok(trm_weight_compute(TRM_WEIGHT_QUANTIZE, type, weight, scale, &made));
        assert_ok(trm_weight_slice(made, 1, 500, 300, &part));
        assert_ok(trm_weight_read(part, type, 0, ROWS * 300, some));
        assert_ok(trm_weight_read(made, type, 0, COUNT, codes));
        for (int k = 0; k < ROWS * 300; k++) {
            assert_int_equal(some[k], codes[k / 300 * COLUMNS + 500 + k % 300]);
        }
        assert_ok(trm_weight_transpose(made, (const int32_t[]){1, 0}, &turned));
        assert_ok(trm_weight_read(turned, type, 0, COUNT, some));
        for (int k = 0; k < COUNT; k++) {
            assert_int_equal(some[k], codes[k % ROWS * COLUMNS + k / ROWS]);
        }
        trm_weight_get_form(part, &form);
        assert_ok(trm_weight_from_form(&form, &back));
        assert_true(trm_weight_equal(back, part));
        free(codes);
        free(some);
        trm_weight_destroy(back);
        trm_weight_destroy(turned);
        trm_weight_destroy(part);
        trm_weight_destroy(made);
        trm_weight_destroy(scale);
        trm_weight_destroy(weight);
    }
}

static void others_are_refused(void **state)
{
    (void)state;
    const trm_dims line = {1, {8}}, square = {2, {8, 8}};
    trm_weight *a, *b, *made;
    assert_ok(trm_weight_random(TRM_F32, &line, 1, 0.0f, 1.0f, &a));
    assert_ok(trm_weight_random(TRM_I8, &square, 1, 0.0f, 100.0f, &b));
    assert_fails(trm_weight_recode(a, TRM_WEIGHT_CODE_LARGEST, &made), TRM_ERROR_INVALID_ARGUMENT,
                 "has no largest magnitudes of rows");
    assert_fails(trm_weight_recode(b, TRM_WEIGHT_CODE_LARGEST, &made), TRM_ERROR_INVALID_ARGUMENT,
                 "has no largest magnitudes of rows");
    assert_fails(trm_weight_compute(TRM_WEIGHT_QUANTIZE, TRM_BF16, a, a, &made), TRM_ERROR_INVALID_ARGUMENT,
                 "cannot quantize 2 weights to bf16");
    assert_fails(trm_weight_compute(TRM_WEIGHT_DIVIDE, TRM_I8, a, a, &made), TRM_ERROR_INVALID_ARGUMENT,
                 "cannot divide 2 weights to i8");
    trm_weight_destroy(a);
    trm_weight_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_are_those_of_loops),
        cmocka_unit_test(numbers_are_the_nearest),
        cmocka_unit_test(parts_are_those_of_the_whole),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
