/* Weights stored in other ways than kernels read them: every code against plain loops, parts of them, and as forms. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>

#include "kernels/small_types.h"
#include "weight_stream/weight_form.h"

#define ROWS    24
#define COLUMNS 518 /* more than are read at a time */

static trm_weight_file *file;

static int open_file(void **state)
{
    (void)state;
    char path[4096];
    const size_t size = (size_t)ROWS * COLUMNS * 4;
    unsigned char *bytes = malloc(size);
    uint64_t seed = 11;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(test_random(&seed) >> 24);
    }
    snprintf(path, sizeof(path), "%s/weights", test_temporary_folder());
    test_write_file(path, bytes, size);
    free(bytes);
    assert_ok(trm_weight_file_open(path, "weights", &file));
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    trm_weight_file_release(file);
    return 0;
}

static trm_weight *stored(trm_dtype dtype, int64_t rows, int64_t columns)
{
    trm_weight *weight = NULL;
    assert_ok(trm_weight_from_file(file, 0, "w", dtype, &(trm_dims){2, {rows, columns}}, &weight));
    return weight;
}

static unsigned char *elements(const trm_weight *weight)
{
    const trm_dims dims = trm_weight_dims(weight);
    const size_t count = (size_t)(dims.d[0] * dims.d[1]), size = trm_dtype_size(trm_weight_dtype(weight));
    unsigned char *read = malloc(count * size + 1);
    assert_ok(trm_weight_read(weight, trm_weight_dtype(weight), 0, count, read));
    return read;
}

static uint32_t word_at(const unsigned char *bytes, int64_t i)
{
    uint32_t word;
    memcpy(&word, bytes + 4 * i, 4);
    return word;
}

/* Element (r, c) of what a code makes of elements `from` with `columns`. */
static unsigned char expected(trm_weight_code code, const unsigned char *from, int64_t columns, int64_t r, int64_t c)
{
    static const int awq[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    switch (code) {
    case TRM_WEIGHT_CODE_BYTES:
        return from[4 * r * columns + c];
    case TRM_WEIGHT_CODE_SIGNED:
        return (unsigned char)(int8_t)((int)from[r * columns + c] - 128);
    case TRM_WEIGHT_CODE_NEXT: /* reads the bytes of its words */
        return (unsigned char)((word_at(from, r * columns + c / 4) + 0x11111111u) >> (c % 4 * 8));
    case TRM_WEIGHT_CODE_HALVES:
        return from[r * columns + c / 2] >> (c % 2 * 4) & 15;
    case TRM_WEIGHT_CODE_PAIRS:
        return (unsigned char)((from[r * columns + 2 * c] & 15) + (from[r * columns + 2 * c + 1] & 15) * 16);
    case TRM_WEIGHT_CODE_WORDS:
        return word_at(from, r / 8 * columns + c) >> (4 * (r % 8)) & 15;
    default:
        return word_at(from, r / 8 * columns + c) >> (4 * awq[r % 8]) & 15;
    }
}

static void check_form(const trm_weight *weight)
{
    trm_weight_form form;
    trm_weight *made = NULL;
    trm_weight_get_form(weight, &form);
    assert_int_equal(form.kind, TRM_WEIGHT_RECODED);
    assert_ok(trm_weight_from_form(&form, &made));
    assert_true(trm_weight_equal(made, weight));
    trm_weight_destroy(made);
}

/* Parts of it, cut across and along, are the elements of the whole; joined they are it. */
static void check_parts(const trm_weight *whole, const unsigned char *all)
{
    const trm_dims dims = trm_weight_dims(whole);
    const size_t size = trm_dtype_size(trm_weight_dtype(whole));
    for (int32_t axis = 0; axis < 2; axis++) {
        const int64_t first = dims.d[axis] / 2 - 1;
        trm_weight *a = NULL, *b = NULL, *joined = NULL, *turned = NULL;
        assert_ok(trm_weight_slice(whole, axis, 0, first, &a));
        assert_ok(trm_weight_slice(whole, axis, first, dims.d[axis] - first, &b));
        check_form(b);
        unsigned char *part = elements(b);
        const trm_dims cut = trm_weight_dims(b);
        for (int64_t i = 0; i < cut.d[0] * cut.d[1]; i++) {
            const int64_t r = i / cut.d[1] + (axis == 0 ? first : 0), c = i % cut.d[1] + (axis == 1 ? first : 0);
            assert_memory_equal(part + (size_t)i * size, all + (size_t)(r * dims.d[1] + c) * size, size);
        }
        assert_ok(trm_weight_concat((const trm_weight *[]){a, b}, 2, axis, &joined));
        assert_true(trm_weight_equal(joined, whole));
        assert_ok(trm_weight_transpose(b, (const int32_t[]){1, 0}, &turned));
        unsigned char *columns = elements(turned);
        for (int64_t i = 0; i < cut.d[0] * cut.d[1]; i++) {
            const int64_t at = i % cut.d[1] * cut.d[0] + i / cut.d[1];
            assert_memory_equal(columns + (size_t)at * size, part + (size_t)i * size, size);
        }
        free(part);
        free(columns);
        trm_weight_destroy(a);
        trm_weight_destroy(b);
        trm_weight_destroy(joined);
        trm_weight_destroy(turned);
    }
}

static void codes_are_what_they_say(void **state)
{
    (void)state;
    for (int code = 0; code < TRM_WEIGHT_CODE_REPEAT; code++) {
        const bool words =
            code == TRM_WEIGHT_CODE_BYTES || code == TRM_WEIGHT_CODE_NEXT || code >= TRM_WEIGHT_CODE_WORDS;
        trm_weight *weight = stored(words ? TRM_I32 : TRM_U8, ROWS, COLUMNS), *recoded = NULL;
        assert_ok(trm_weight_recode(weight, (trm_weight_code)code, &recoded));
        unsigned char *from = elements(weight), *to = elements(recoded);
        const trm_dims dims = trm_weight_dims(recoded);
        const size_t size = trm_dtype_size(trm_weight_dtype(recoded));
        const int64_t row = dims.d[1] * (int64_t)size;
        for (int64_t i = 0; i < dims.d[0] * row; i++) {
            const unsigned char want = expected((trm_weight_code)code, from, COLUMNS, i / row, i % row);
            if (to[i] != want) {
                fail_msg("code %d, byte %lld is %d, expected %d", code, (long long)i, to[i], want);
            }
        }
        check_form(recoded);
        check_parts(recoded, to);
        for (size_t first = 0; first < 9; first++) { /* from any element on, any number */
            unsigned char some[4 * 2600];
            assert_ok(trm_weight_read(recoded, trm_weight_dtype(recoded), first, 2590 + first, some));
            assert_memory_equal(some, to + first * size, (2590 + first) * size);
        }
        free(from);
        free(to);
        trm_weight_destroy(weight);
        trm_weight_destroy(recoded);
    }
}

static void floats_of_four_bits_are_read(void **state)
{
    (void)state;
    trm_weight *weight = stored(TRM_U8, ROWS, COLUMNS), *pairs = NULL, *twice = NULL, *powers = NULL;
    assert_ok(trm_weight_recode(weight, TRM_WEIGHT_CODE_E2M1, &pairs));
    assert_ok(trm_weight_recode(pairs, TRM_WEIGHT_CODE_TWICE, &twice));
    assert_ok(trm_weight_recode(weight, TRM_WEIGHT_CODE_POWERS, &powers));
    assert_int_equal(trm_weight_dtype(pairs), TRM_F4E2M1);
    unsigned char *from = elements(weight), *same = elements(pairs), *integers = elements(twice);
    unsigned char *floats = elements(powers);
    assert_memory_equal(same, from, ROWS * COLUMNS);
    for (size_t i = 0; i < (size_t)2 * ROWS * COLUMNS; i++) {
        const uint8_t bits = from[i / 2] >> (i % 2 * 4) & 15;
        assert_int_equal((int8_t)integers[i], (int)(2.0 * trm_small_float_decode(TRM_F4E2M1, bits)));
    }
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        float power;
        memcpy(&power, floats + 4 * i, sizeof(power));
        const float want = (float)trm_small_float_decode(TRM_F8E8M0, from[i]);
        assert_true(isnan(want) ? isnan(power) : power == want);
    }
    check_parts(pairs, same);
    check_parts(twice, integers);
    check_parts(powers, floats);
    free(from);
    free(same);
    free(integers);
    free(floats);
    trm_weight_destroy(weight);
    trm_weight_destroy(pairs);
    trm_weight_destroy(twice);
    trm_weight_destroy(powers);
}

/* Zero points as GPTQ stores them: a word of eight, from which 1 of each was taken as a number of 32 bits, so that a
 * zero point of 0 has borrowed from the next. */
static void borrowed_ones_come_back(void **state)
{
    (void)state;
    enum { WORDS = 512 };
    uint32_t zeros[WORDS], words[WORDS];
    uint64_t seed = 3;
    for (size_t i = 0; i < WORDS; i++) {
        zeros[i] = i < 16 ? (uint32_t)i * 0x11111111u : (uint32_t)(test_random(&seed) >> 32);
        words[i] = zeros[i] - 0x11111111u;
    }
    trm_weight_file *bytes;
    trm_weight *weight = NULL, *next = NULL, *read = NULL;
    assert_ok(trm_weight_file_from_bytes(words, sizeof(words), "qzeros", &bytes));
    assert_ok(trm_weight_from_file(bytes, 0, "qzeros", TRM_I32, &(trm_dims){2, {1, WORDS}}, &weight));
    trm_weight_file_release(bytes);
    assert_ok(trm_weight_recode(weight, TRM_WEIGHT_CODE_NEXT, &next));
    assert_ok(trm_weight_recode(next, TRM_WEIGHT_CODE_WORDS, &read));
    unsigned char *found = elements(read);
    for (size_t i = 0; i < (size_t)8 * WORDS; i++) {
        assert_int_equal(found[i], zeros[i % WORDS] >> (4 * (i / WORDS)) & 15);
    }
    free(found);
    trm_weight_destroy(weight);
    trm_weight_destroy(next);
    trm_weight_destroy(read);
}

/* Stored as AWQ does, [k, n / 8] words: a view and three codes make rows of pairs along k. */
static void codes_follow_each_other(void **state)
{
    (void)state;
    enum { K = ROWS, N = COLUMNS * 8 };
    trm_weight *weight = stored(TRM_I32, K, N / 8), *turned = NULL, *halves = NULL, *pairs = NULL;
    unsigned char *from = elements(weight);
    assert_ok(trm_weight_transpose(weight, (const int32_t[]){1, 0}, &turned));
    assert_ok(trm_weight_recode(turned, TRM_WEIGHT_CODE_AWQ_WORDS, &halves));
    assert_ok(trm_weight_recode(halves, TRM_WEIGHT_CODE_PAIRS, &pairs));
    unsigned char *to = elements(pairs);
    static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int64_t k = 0; k < K; k++) {
        for (int64_t word = 0; word < N / 8; word++) {
            for (int i = 0; i < 8; i++) {
                const int64_t n = 8 * word + order[i];
                const int found = to[n * (K / 2) + k / 2] >> (k % 2 * 4) & 15;
                assert_int_equal(found, word_at(from, k * (N / 8) + word) >> (4 * i) & 15);
            }
        }
    }
    check_parts(pairs, to);
    free(from);
    free(to);
    trm_weight_destroy(weight);
    trm_weight_destroy(turned);
    trm_weight_destroy(halves);
    trm_weight_destroy(pairs);
}

static void one_element_repeats(void **state)
{
    (void)state;
    trm_weight *scales = stored(TRM_F16, 2, 3), *one = NULL, *repeated = NULL, *part = NULL, *row = NULL, *made = NULL;
    float numbers[7];
    assert_ok(trm_weight_slice(scales, 0, 1, 1, &row));
    assert_ok(trm_weight_slice(row, 1, 2, 1, &one));
    assert_ok(trm_weight_repeat(one, 7, &repeated));
    assert_ok(trm_weight_slice(repeated, 0, 3, 4, &part));
    check_form(part);
    float number;
    assert_ok(trm_weight_read(one, TRM_F32, 0, 1, &number));
    assert_ok(trm_weight_read(repeated, TRM_F32, 0, 7, numbers));
    for (int i = 0; i < 7; i++) {
        assert_memory_equal(&numbers[i], &number, sizeof(number));
    }
    assert_int_equal(trm_weight_repeat(scales, 7, &made), TRM_ERROR_INVALID_ARGUMENT);
    assert_int_equal(trm_weight_repeat(one, 0, &made), TRM_ERROR_INVALID_ARGUMENT);
    trm_weight_destroy(scales);
    trm_weight_destroy(row);
    trm_weight_destroy(one);
    trm_weight_destroy(repeated);
    trm_weight_destroy(part);
}

/* For a stored weight the one `user` points to, if there is one. */
static trm_status find_other(void *user, const trm_weight_form *form, trm_weight **found)
{
    (void)form;
    const trm_weight *other = user;
    return other != NULL ? trm_weight_clone(other, found) : TRM_OK;
}

/* Over the weights of another checkpoint they are what the codes make of those. */
static void codes_stay_over_other_bases(void **state)
{
    (void)state;
    trm_weight *first = stored(TRM_I32, 8, 6), *second = NULL, *turned = NULL, *halves = NULL, *pairs = NULL;
    trm_weight *part = NULL, *rebased = NULL, *expected[4] = {NULL};
    assert_ok(trm_weight_from_file(file, 400, "w", TRM_I32, &(trm_dims){2, {8, 6}}, &second));
    assert_ok(trm_weight_transpose(first, (const int32_t[]){1, 0}, &turned));
    assert_ok(trm_weight_recode(turned, TRM_WEIGHT_CODE_AWQ_WORDS, &halves));
    assert_ok(trm_weight_recode(halves, TRM_WEIGHT_CODE_PAIRS, &pairs));
    assert_ok(trm_weight_slice(pairs, 0, 5, 11, &part));
    assert_ok(trm_weight_rebase(part, find_other, NULL, &rebased));
    assert_null(rebased);
    assert_ok(trm_weight_rebase(part, find_other, second, &rebased));
    assert_false(trm_weight_equal(rebased, part));
    assert_ok(trm_weight_transpose(second, (const int32_t[]){1, 0}, &expected[0]));
    assert_ok(trm_weight_recode(expected[0], TRM_WEIGHT_CODE_AWQ_WORDS, &expected[1]));
    assert_ok(trm_weight_recode(expected[1], TRM_WEIGHT_CODE_PAIRS, &expected[2]));
    assert_ok(trm_weight_slice(expected[2], 0, 5, 11, &expected[3]));
    assert_true(trm_weight_equal(rebased, expected[3]));
    for (int i = 0; i < 4; i++) {
        trm_weight_destroy(expected[i]);
    }
    trm_weight *const all[] = {first, second, turned, halves, pairs, part, rebased};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        trm_weight_destroy(all[i]);
    }
}

static void what_a_code_is_not_for_is_refused(void **state)
{
    (void)state;
    trm_weight *bytes = stored(TRM_U8, 3, 5), *words = stored(TRM_I32, 3, 4), *flat = NULL, *made = NULL;
    assert_ok(trm_weight_reshape(bytes, &(trm_dims){1, {15}}, &flat));
    assert_int_equal(trm_weight_recode(bytes, TRM_WEIGHT_CODE_BYTES, &made), TRM_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(trm_last_error(), "cannot be read as bytes, which are of i32 with 2 dimensions"));
    assert_int_equal(trm_weight_recode(words, TRM_WEIGHT_CODE_HALVES, &made), TRM_ERROR_INVALID_ARGUMENT);
    assert_int_equal(trm_weight_recode(bytes, TRM_WEIGHT_CODE_PAIRS, &made), TRM_ERROR_INVALID_ARGUMENT);
    assert_int_equal(trm_weight_recode(flat, TRM_WEIGHT_CODE_HALVES, &made), TRM_ERROR_INVALID_ARGUMENT);
    assert_int_equal(trm_weight_recode(bytes, TRM_WEIGHT_CODE_COUNT, &made), TRM_ERROR_INVALID_ARGUMENT);
    trm_weight *halves = NULL;
    trm_weight_form form;
    assert_ok(trm_weight_recode(bytes, TRM_WEIGHT_CODE_HALVES, &halves));
    trm_weight_get_form(halves, &form);
    form.code = TRM_WEIGHT_CODE_WORDS;
    assert_int_equal(trm_weight_from_form(&form, &made), TRM_ERROR_INVALID_MODEL);
    form.code = TRM_WEIGHT_CODE_SIGNED; /* half as many elements as the view shows */
    assert_int_equal(trm_weight_from_form(&form, &made), TRM_ERROR_INVALID_MODEL);
    form.n_parts = 0;
    assert_int_equal(trm_weight_from_form(&form, &made), TRM_ERROR_INVALID_MODEL);
    trm_weight_destroy(halves);
    trm_weight_destroy(flat);
    trm_weight_destroy(bytes);
    trm_weight_destroy(words);
}

/* As a file could name them; whoever walks through a weight recurses. */
static void nesting_ends(void **state)
{
    (void)state;
    trm_weight *weight = stored(TRM_I32, 4, 8), *next = NULL;
    int32_t depth = 0;
    while (depth < 1000 && trm_weight_recode(weight, TRM_WEIGHT_CODE_NEXT, &next) == TRM_OK) {
        trm_weight_destroy(weight);
        weight = next;
        next = NULL;
        depth++;
    }
    assert_in_range(depth, 8, 100);
    assert_fails(trm_weight_recode(weight, TRM_WEIGHT_CODE_NEXT, &next), TRM_ERROR_UNSUPPORTED, "32 deep");
    trm_weight_destroy(weight);
}

static void random_bytes_are_rounded(void **state)
{
    (void)state;
    static const trm_dtype types[] = {TRM_F8E4M3, TRM_I8, TRM_U8};
    static const float spreads[] = {500.0f, 140.0f, 140.0f, 0.5f};
    for (int i = 0; i < 4; i++) {
        trm_weight *rounded = NULL, *exact = NULL;
        const trm_dims dims = {2, {40, 300}};
        const trm_dtype type = types[i % 3];
        const float mean = type == TRM_U8 ? 127.5f : 0.0f;
        assert_ok(trm_weight_random(type, &dims, 3, mean, spreads[i], &rounded));
        assert_ok(trm_weight_random(TRM_F32, &dims, 3, mean, spreads[i], &exact));
        unsigned char *found = elements(rounded);
        float *numbers = (float *)(void *)elements(exact);
        for (int64_t k = 0; k < 40 * 300; k++) {
            const double v = (double)numbers[k], low = type == TRM_I8 ? -128.0 : 0.0,
                         high = type == TRM_I8 ? 127.0 : 255.0;
            const int want = type == TRM_F8E4M3 ? trm_small_float_encode(type, v, false, TRM_CAST_ROUND_NEAREST)
                                                : (uint8_t)(int)nearbyint(v < low    ? low
                                                                          : v > high ? high
                                                                                     : v);
            if (found[k] != want) {
                fail_msg("%g as %s is %d, expected %d", v, trm_dtype_name(type), found[k], want);
            }
        }
        free(found);
        free(numbers);
        trm_weight_destroy(rounded);
        trm_weight_destroy(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_what_they_say),
        cmocka_unit_test(floats_of_four_bits_are_read),
        cmocka_unit_test(borrowed_ones_come_back),
        cmocka_unit_test(codes_follow_each_other),
        cmocka_unit_test(one_element_repeats),
        cmocka_unit_test(codes_stay_over_other_bases),
        cmocka_unit_test(what_a_code_is_not_for_is_refused),
        cmocka_unit_test(nesting_ends),
        cmocka_unit_test(random_bytes_are_rounded),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
