/* Weights that are computed from others: against plain loops, whole, in parts, under views, and as forms. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "weight_stream/weight_internal.h"

enum { M = 24, C = 7, K = 9, COUNT = M * C * K }; /* more than are computed at a time */

static trm_weight_file *file;

/* Numbers of f32 from 0.5 to 2. */
static int open_file(void **state)
{
    (void)state;
    char path[4096];
    float *numbers = malloc(COUNT * sizeof(float));
    uint64_t seed = 3;
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = 1.25f + 0.75f * test_random_float(&seed);
    }
    snprintf(path, sizeof(path), "%s/weights", test_temporary_folder());
    test_write_file(path, numbers, COUNT * sizeof(float));
    free(numbers);
    assert_ok(trm_weight_file_open(path, "weights", &file));
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    trm_weight_file_release(file);
    return 0;
}

static float number_at(int64_t i)
{
    float number;
    memcpy(&number, trm_weight_file_bytes(file).bytes + 4 * i, 4);
    return number;
}

static trm_weight *stored(const char *name, int64_t first, trm_dims dims)
{
    trm_weight *weight = NULL;
    assert_ok(trm_weight_from_file(file, (size_t)first * 4, name, TRM_F32, &dims, &weight));
    return weight;
}

typedef void (*read_fn)(void *call, const trm_weight *part, size_t first, size_t count, float *to);
typedef void (*read_apart_fn)(void *call, const trm_weight *part, const size_t *elements, size_t count, float *to);
void __real_trm_weight_read_computed(const trm_weight_base *base, size_t start, size_t count, unsigned char *to,
                                     read_fn read, void *call);
void __wrap_trm_weight_read_computed(const trm_weight_base *base, size_t start, size_t count, unsigned char *to,
                                     read_fn read, void *call);
void __real_trm_weight_compute_apart(const trm_weight_base *base, const size_t *places, size_t count, unsigned char *to,
                                     read_apart_fn read, void *call);
void __wrap_trm_weight_compute_apart(const trm_weight_base *base, const size_t *places, size_t count, unsigned char *to,
                                     read_apart_fn read, void *call);

static size_t computed, computing; /* elements, and how often some were asked for */

void __wrap_trm_weight_read_computed(const trm_weight_base *base, size_t start, size_t count, unsigned char *to,
                                     read_fn read, void *call)
{
    computed += count;
    computing++;
    __real_trm_weight_read_computed(base, start, count, to, read, call);
}

void __wrap_trm_weight_compute_apart(const trm_weight_base *base, const size_t *places, size_t count, unsigned char *to,
                                     read_apart_fn read, void *call)
{
    computed += count;
    computing++;
    __real_trm_weight_compute_apart(base, places, count, to, read, call);
}

/* w [M, C, K] times factors [M, 1, 1], elements 10 and on. */
static trm_weight *scaled(trm_dtype dtype)
{
    trm_weight *w = stored("w", 0, (trm_dims){3, {M, C, K}}), *f = stored("f", 10, (trm_dims){3, {M, 1, 1}}), *made;
    assert_ok(trm_weight_compute(TRM_WEIGHT_MULTIPLY, dtype, w, f, &made));
    trm_weight_destroy(w);
    trm_weight_destroy(f);
    return made;
}

static float scaled_at(int64_t i)
{
    return number_at(i) * number_at(10 + i / (C * K));
}

static void operations_are_those_of_loops(void **state)
{
    (void)state;
    for (int op = 0; op < TRM_WEIGHT_QUANTIZE; op++) {
        const bool one = op == TRM_WEIGHT_CAST || op == TRM_WEIGHT_ROOT;
        trm_weight *a = stored("a", 0, (trm_dims){2, {M, C}}), *b = stored("b", 300, (trm_dims){1, {C}}), *made;
        float found[M * C];
        assert_ok(trm_weight_compute((trm_weight_op)op, TRM_F32, a, one ? NULL : b, &made));
        assert_ok(trm_weight_read(made, TRM_F32, 0, M * C, found));
        for (int i = 0; i < M * C; i++) {
            const float x = number_at(i), y = number_at(300 + i % C);
            const float expected[] = {x, x + y, x - y, x * y, x / y, sqrtf(x)};
            assert_true(found[i] == expected[op]);
        }
        trm_weight_destroy(a);
        trm_weight_destroy(b);
        trm_weight_destroy(made);
    }
}

static void one_element_meets_all(void **state)
{
    (void)state;
    const trm_dims ones[] = {{1, {1}}, {2, {1, 1}}, {3, {1, 1, 1}}};
    for (int k = 0; k < 3; k++) {
        trm_weight *w = stored("w", 0, (trm_dims){3, {M, C, K}}), *one = stored("one", 7, ones[k]), *left, *right;
        float found[COUNT];
        assert_ok(trm_weight_compute(TRM_WEIGHT_SUBTRACT, TRM_F32, w, one, &left));
        assert_ok(trm_weight_compute(TRM_WEIGHT_SUBTRACT, TRM_F32, one, w, &right));
        assert_ok(trm_weight_read(left, TRM_F32, 0, COUNT, found));
        for (int i = 0; i < COUNT; i++) {
            assert_true(found[i] == number_at(i) - number_at(7));
        }
        assert_ok(trm_weight_read(right, TRM_F32, 5, COUNT - 5, found));
        for (int i = 5; i < COUNT; i++) {
            assert_true(found[i - 5] == number_at(7) - number_at(i));
        }
        trm_weight_destroy(w);
        trm_weight_destroy(one);
        trm_weight_destroy(left);
        trm_weight_destroy(right);
    }
}

static void results_are_rounded_once(void **state)
{
    (void)state;
    trm_weight *half = scaled(TRM_F16), *brain = scaled(TRM_BF16);
    uint16_t *found = malloc(COUNT * 2);
    float *wide = malloc(COUNT * 4);
    assert_int_equal(trm_weight_dtype(half), TRM_F16);
    assert_ok(trm_weight_read(half, TRM_F16, 0, COUNT, found));
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(found[i], trm_f32_to_f16(scaled_at(i)));
    }
    assert_ok(trm_weight_read(half, TRM_F32, 0, COUNT, wide)); /* rounded all the same */
    for (int i = 0; i < COUNT; i++) {
        assert_true(wide[i] == trm_f16_to_f32(trm_f32_to_f16(scaled_at(i))));
    }
    assert_ok(trm_weight_read(brain, TRM_BF16, 0, COUNT, found));
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(found[i], trm_f32_to_bf16(scaled_at(i)));
    }
    free(found);
    free(wide);
    trm_weight_destroy(half);
    trm_weight_destroy(brain);
}

static void parts_and_views_are_those_of_the_whole(void **state)
{
    (void)state;
    trm_weight *whole = scaled(TRM_F32), *turned, *part, *flat;
    float found[COUNT];
    uint64_t seed = test_seed();
    for (int i = 0; i < 100; i++) {
        const size_t first = test_random(&seed) % COUNT, count = 1 + test_random(&seed) % (COUNT - first);
        assert_ok(trm_weight_read(whole, TRM_F32, first, count, found));
        for (size_t k = 0; k < count; k++) {
            assert_true(found[k] == scaled_at((int64_t)(first + k)));
        }
    }
    assert_ok(trm_weight_transpose(whole, (int32_t[]){0, 2, 1}, &turned)); /* [M, K, C] */
    assert_ok(trm_weight_slice(turned, 0, 5, 13, &part));
    for (int i = 0; i < 50; i++) {
        const size_t most = 13 * K * C, first = test_random(&seed) % most,
                     count = 1 + test_random(&seed) % (most - first);
        assert_ok(trm_weight_read(part, TRM_F32, first, count, found));
        for (size_t k = 0; k < count; k++) {
            const int64_t at = (int64_t)(first + k), m = at / (K * C) + 5, y = at / C % K, c = at % C;
            assert_true(found[k] == scaled_at((m * C + c) * K + y));
        }
    }
    trm_weight_destroy(turned);
    trm_weight_destroy(part);
    assert_ok(trm_weight_reshape(whole, &(trm_dims){2, {M, C * K}}, &flat));
    assert_ok(trm_weight_transpose(flat, (int32_t[]){1, 0}, &turned)); /* [C * K, M] */
    assert_ok(trm_weight_slice(turned, 1, 3, 20, &part));
    assert_ok(trm_weight_read(part, TRM_F32, 0, C * K * 20, found));
    for (int64_t i = 0; i < C * K * 20; i++) {
        assert_true(found[i] == scaled_at((3 + i % 20) * C * K + i / 20));
    }
    for (int64_t i = 0; i < C * K * 20; i++) { /* one by one */
        assert_ok(trm_weight_read(part, TRM_F32, (size_t)i, 1, found));
        assert_true(found[0] == scaled_at((3 + i % 20) * C * K + i / 20));
    }
    trm_weight_destroy(flat);
    trm_weight_destroy(turned);
    trm_weight_destroy(part);
    trm_weight_destroy(whole);
}

/* Element i of a view of scaled() whose axes [3] are in another order. */
static float turned_at(const int32_t *perm, int64_t i)
{
    const int64_t dims[3] = {M, C, K};
    int64_t at[3];
    for (int axis = 2; axis >= 0; axis--) {
        at[perm[axis]] = i % dims[perm[axis]];
        i /= dims[perm[axis]];
    }
    return scaled_at((at[0] * C + at[1]) * K + at[2]);
}

static void no_element_is_computed_twice(void **state)
{
    (void)state;
    static const int32_t perms[5][3] = {{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const size_t pieces[] = {1, 7, 64, 500, COUNT};
    trm_weight *wide = scaled(TRM_F32), *half = scaled(TRM_F16), *turned;
    float found[COUNT];
    for (int32_t k = 0; k < 10; k++) {
        const int32_t *perm = perms[k % 5];
        assert_ok(trm_weight_transpose(k < 5 ? wide : half, perm, &turned));
        for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
            computed = computing = 0;
            for (size_t first = 0; first < COUNT; first += pieces[p]) {
                const size_t count = pieces[p] < COUNT - first ? pieces[p] : COUNT - first;
                assert_ok(trm_weight_read(turned, TRM_F32, first, count, found + first));
            }
            assert_int_equal(computed, COUNT);
            assert_true(pieces[p] < COUNT || computing <= COUNT / 7); /* some at a time */
            for (int64_t i = 0; i < COUNT; i++) {
                const float number = turned_at(perm, i);
                assert_true(found[i] == (k < 5 ? number : trm_f16_to_f32(trm_f32_to_f16(number))));
            }
        }
        trm_weight_destroy(turned);
    }
    trm_weight_destroy(wide);
    trm_weight_destroy(half);
}

/* Of a matrix much wider than a piece: the columns of few rows, and what is computed of a transpose that is computed.
 */
static void long_columns_are_computed_once(void **state)
{
    (void)state;
    enum { ROWS = 300, COLUMNS = 5 };
    trm_weight *a = stored("a", 0, (trm_dims){2, {ROWS, COLUMNS}}), *b = stored("b", 2, (trm_dims){1, {1}}), *sum;
    trm_weight *c = stored("c", 11, (trm_dims){2, {COLUMNS, ROWS}}), *turned, *product, *back;
    float found[ROWS * COLUMNS];
    assert_ok(trm_weight_compute(TRM_WEIGHT_ADD, TRM_F32, a, b, &sum));
    assert_ok(trm_weight_transpose(sum, (int32_t[]){1, 0}, &turned)); /* [COLUMNS, ROWS] */
    assert_ok(trm_weight_compute(TRM_WEIGHT_MULTIPLY, TRM_F32, turned, c, &product));
    assert_ok(trm_weight_transpose(product, (int32_t[]){1, 0}, &back));
    trm_weight *const read[] = {turned, product, back};
    for (int k = 0; k < 3; k++) {
        computed = 0;
        for (size_t first = 0; first < ROWS * COLUMNS; first += 500) {
            assert_ok(trm_weight_read(read[k], TRM_F32, first, 500, found + first));
        }
        assert_int_equal(computed, (k == 0 ? 1 : 2) * ROWS * COLUMNS);
        for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
            const int64_t row = k == 2 ? i / COLUMNS : i % ROWS, column = k == 2 ? i % COLUMNS : i / ROWS;
            const float value = number_at(row * COLUMNS + column) + number_at(2);
            assert_true(found[i] == (k == 0 ? value : value * number_at(11 + column * ROWS + row)));
        }
    }
    trm_weight *const made[] = {a, b, c, sum, turned, product, back};
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        trm_weight_destroy(made[i]);
    }
}

static trm_status other_base(void *user, const trm_weight_form *form, trm_weight **found)
{
    (void)user;
    *found = NULL;
    return strcmp(form->name, "f") != 0 ? TRM_OK
                                        : trm_weight_from_file(file, 4 * 100, "f", TRM_F32, &form->dims, found);
}

static void forms_give_the_weight_back(void **state)
{
    (void)state;
    trm_weight *whole = scaled(TRM_F16), *part, *back, *other;
    trm_weight_form form;
    uint16_t found[C * K];
    char text[256];
    assert_ok(trm_weight_slice(whole, 0, 2, 1, &part));
    trm_weight_get_form(part, &form);
    assert_true(form.kind == TRM_WEIGHT_COMPUTED && form.op == TRM_WEIGHT_MULTIPLY && form.n_parts == 2);
    assert_ok(trm_weight_from_form(&form, &back));
    assert_true(trm_weight_equal(part, back));
    trm_weight_describe(back, text, sizeof(text));
    assert_string_equal(text, "multiply(weights:w, weights:f)[2:3]");
    form.op = TRM_WEIGHT_ADD;
    assert_ok(trm_weight_from_form(&form, &other));
    assert_false(trm_weight_equal(part, other));
    trm_weight_destroy(other);
    assert_ok(trm_weight_rebase(part, other_base, NULL, &other));
    assert_ok(trm_weight_read(other, TRM_F16, 0, C * K, found));
    for (int i = 0; i < C * K; i++) {
        assert_int_equal(found[i], trm_f32_to_f16(number_at(2 * C * K + i) * number_at(102)));
    }
    form.op = TRM_WEIGHT_OP_COUNT;
    assert_fails(trm_weight_from_form(&form, &(trm_weight *){NULL}), TRM_ERROR_INVALID_MODEL,
                 "cannot unknown 2 weights");
    form.op = TRM_WEIGHT_ADD;
    form.n_parts = 3;
    assert_fails(trm_weight_from_form(&form, &(trm_weight *){NULL}), TRM_ERROR_INVALID_MODEL,
                 "3 parts, expected 1 or 2");
    form.n_parts = 2;
    form.dtype = TRM_I32;
    assert_fails(trm_weight_from_form(&form, &(trm_weight *){NULL}), TRM_ERROR_INVALID_MODEL, "to i32");
    form.dtype = TRM_F16;
    form.view.offset = COUNT;
    assert_fails(trm_weight_from_form(&form, &(trm_weight *){NULL}), TRM_ERROR_INVALID_MODEL, "its view does not fit");
    trm_weight_destroy(whole);
    trm_weight_destroy(part);
    trm_weight_destroy(back);
    trm_weight_destroy(other);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    trm_weight *w = stored("w", 0, (trm_dims){3, {M, C, K}}), *wrong = stored("v", 0, (trm_dims){1, {K + 1}});
    trm_weight *apart = stored("u", 0, (trm_dims){3, {M, 1, K}}), *whole, *made;
    assert_fails(trm_weight_compute(TRM_WEIGHT_ADD, TRM_F32, w, wrong, &made), TRM_ERROR_INVALID_ARGUMENT,
                 "its dims are not those of the other");
    assert_fails(trm_weight_compute(TRM_WEIGHT_ADD, TRM_F32, w, apart, &made), TRM_ERROR_INVALID_ARGUMENT,
                 "it is not repeated in rows");
    assert_fails(trm_weight_compute(TRM_WEIGHT_ADD, TRM_F32, w, NULL, &made), TRM_ERROR_INVALID_ARGUMENT,
                 "cannot add 1 weights to f32");
    trm_weight_destroy(wrong);
    assert_ok(trm_weight_random(TRM_I8, &(trm_dims){1, {K}}, 1, 0, 3, &wrong));
    assert_fails(trm_weight_compute(TRM_WEIGHT_ADD, TRM_F32, w, wrong, &made), TRM_ERROR_INVALID_ARGUMENT,
                 "its type is not f32, f16, bf16 or f8e4m3");
    /* Twice itself, again and again: a few levels name thousands of weights. */
    assert_ok(trm_weight_clone(w, &whole));
    for (int i = 0; i < 8; i++) {
        assert_ok(trm_weight_compute(TRM_WEIGHT_ADD, TRM_F32, whole, whole, &made));
        trm_weight_destroy(whole);
        whole = made;
    }
    float sum;
    assert_ok(trm_weight_read(whole, TRM_F32, 7, 1, &sum));
    assert_true(sum == 256 * number_at(7));
    assert_fails(trm_weight_compute(TRM_WEIGHT_ADD, TRM_F32, whole, whole, &made), TRM_ERROR_UNSUPPORTED,
                 "computed from 512 others, expected at most 256");
    trm_weight_destroy(whole);
    trm_weight_destroy(w);
    trm_weight_destroy(wrong);
    trm_weight_destroy(apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_those_of_loops), cmocka_unit_test(one_element_meets_all),
        cmocka_unit_test(results_are_rounded_once),      cmocka_unit_test(parts_and_views_are_those_of_the_whole),
        cmocka_unit_test(no_element_is_computed_twice),  cmocka_unit_test(long_columns_are_computed_once),
        cmocka_unit_test(forms_give_the_weight_back),    cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
