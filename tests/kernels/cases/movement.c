/* Cases and meanings of what moves elements: cast, reshape, transpose, slice, concat, gather, embedding. */
#include <math.h>

#include "kernels/cases/cases.h"
#include "kernels/cases/support.h"

static void meaning_cast(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dtype from = test->inputs[0].dtype, to = test->layer.cast.to;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double v = inputs[0][i];
        if (to >= TRM_I4 && to <= TRM_U2) {
            outputs[0][i] = isfinite(v) ? wrap(to, trunc(v)) : 0.0; /* keeps low bits */
        } else {
            outputs[0][i] = is_integer(from) && is_integer(to) ? wrap(to, v) : v; /* the rest by rounding to the type */
        }
    }
}

static void cast_case(kernel_case_bench *bench, trm_dtype from, trm_dtype to, trm_dims dims, const char *what,
                      const double *values, double low, double high)
{
    kernel_case test = new_case(TRM_LAYER_CAST, "%s %s -> %s", what, trm_dtype_name(from), trm_dtype_name(to));
    test.layer.cast.to = to;
    test.tolerance = 0.0;
    add_input(&test, from, dims, low, high)->values = values;
    add_output(&test, to, dims);
    kernel_case_run(bench, &test, meaning_cast);
}

static const double *f8e8m0_expected;

static void meaning_f8e8m0(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    (void)inputs;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        outputs[0][i] = f8e8m0_expected[i];
    }
}

/* Types that are only stored. */
static void small_cast_cases(kernel_case_bench *bench)
{
    static const trm_dtype small[] = {TRM_F8E4M3, TRM_F8E4M3FNUZ, TRM_F8E5M2, TRM_F8E5M2FNUZ, TRM_F4E2M1, TRM_F6E2M3,
                                      TRM_F6E3M2, TRM_I4,         TRM_U4,     TRM_I2,         TRM_U2};
    static const double values[] = {0.0,     -0.0,  0.25,   0.26,  0.75,   1.25,   1.75,  2.5,  3.5,   5.0,
                                    -5.0,    1e-9,  -1e-9,  464.0, 465,    17.0,   19.0,  -1e6, 1e30,  0.1,
                                    6e-8,    2e-3,  7.6e-6, 3e-5,  448,    NAN,    57344, 6e4,  65536, 240,
                                    61440.0, 253.0, 7.5,    29.0,  0.0625, 0.1875, 30.0,  1e39};
    for (int32_t s = 0; s < COUNT(small); s++) {
        const bool is_float = trm_dtype_name(small[s])[0] == 'f';
        for (int32_t t = 0; t < COUNT(all_types); t++) {
            const double low = is_unsigned(all_types[t]) ? 0.0 : -9.0, high = all_types[t] == TRM_BOOL ? 1.0 : 20.0;
            cast_case(bench, all_types[t], small[s], DIMS(7, 61), "random", NULL, low, high);
            cast_case(bench, small[s], all_types[t], DIMS(7, 61), "random", NULL, low, high);
        }
        cast_case(bench, TRM_F32, small[s], DIMS(COUNT(values) - (is_float ? 0 : 1)), "special", values, 0, 0);
        cast_case(bench, TRM_F64, small[s], DIMS(3, 999), "random", NULL, -500, 500);
    }
    cast_case(bench, TRM_F8E8M0, TRM_F32, DIMS(200), "random", NULL, 0.0, 1000.0);
    static const double powers[] = {0.0, 0.124, 0.25, 1.1, 1.5, 1.6, 3.0, 4.0, 3.3e38, 1e-39};
    static const double expected[3][COUNT(powers)] = {{0x1p-127, 0.125, 0.25, 2, 2, 2, 4, 4, 0x1p127, 0x1p-126},
                                                      {0x1p-127, 0.0625, 0.25, 1, 1, 1, 2, 4, 0x1p127, 0x1p-127},
                                                      {0x1p-127, 0.125, 0.25, 1, 2, 2, 4, 4, 0x1p127, 0x1p-127}};
    for (int32_t round = 0; round < 3; round++) {
        kernel_case test = new_case(TRM_LAYER_CAST, "to f8e8m0, round %d", (int)round);
        test.layer.cast = (trm_cast_params){.to = TRM_F8E8M0, .round = (trm_cast_round)round};
        test.tolerance = 0.0;
        add_input(&test, TRM_F32, DIMS(COUNT(powers)), 0, 0)->values = powers;
        add_output(&test, TRM_F8E8M0, DIMS(COUNT(powers)));
        f8e8m0_expected = expected[round];
        kernel_case_run(bench, &test, meaning_f8e8m0);
    }
}

void kernel_cases_cast(kernel_case_bench *bench)
{
    static const double special[] = {
        0.0,           -0.0,      0.49999997, 0.5,        1.5,          -1.5,         2.5,           126.9,
        127.5,         -128.5,    255.9,      256.0,      -1.0,         32767.9,      65535.5,       65504.0,
        65519.99,      65520.0,   -70000.0,   1e-8,       5.96e-8,      2.98e-8,      6e-8,          3.0e38,
        -3.0e38,       1e39,      INFINITY,   -INFINITY,  2147483647.5, 4294967296.0, -2147483649.0, 1.0009766,
        1.00048828125, 1.0004883, 1.00390625, 1.01171875, 1e19,         -1e19,        1e30};
    const double nan_values[] = {NAN, 1.0, NAN};
    for (int32_t f = 0; f < COUNT(all_types); f++) {
        for (int32_t t = 0; t < COUNT(all_types); t++) {
            const trm_dtype from = all_types[f], to = all_types[t];
            const double high = is_floating(from) ? 300.0 : from == TRM_BOOL ? 1.0 : 1000.0;
            cast_case(bench, from, to, DIMS(3, 7, 61), "random", NULL, is_unsigned(from) ? 0.0 : -high, high);
            if (is_floating(from)) {
                cast_case(bench, from, to, DIMS(COUNT(special)), "special", special, 0, 0);
                if (to != TRM_BOOL) {
                    cast_case(bench, from, to, DIMS(3), "nan", nan_values, 0, 0);
                }
            }
        }
    }
    small_cast_cases(bench);
    cast_case(bench, TRM_F32, TRM_BF16, DIMS(50001), "long", NULL, -4.0, 4.0);
    cast_case(bench, TRM_F32, TRM_F16, SCALAR, "scalar", NULL, -4.0, 4.0);
    cast_case(bench, TRM_BF16, TRM_F32, DIMS(4, 0, 3), "empty", NULL, -4.0, 4.0);
}

static void meaning_reshape(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    for (int64_t i = 0; i < count_of_output(test); i++) {
        outputs[0][i] = inputs[0][i];
    }
}

static void meaning_transpose(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place out = place_of(&test->outputs[0].dims, i);
        place in = {{0}};
        for (int32_t axis = 0; axis < test->outputs[0].dims.n; axis++) {
            in.i[test->layer.transpose.perm[axis]] = out.i[axis];
        }
        outputs[0][i] = inputs[0][index_of(&test->inputs[0].dims, in.i)];
    }
}

static void meaning_slice(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims;
    const int32_t axis = axis_of(test->layer.slice.axis, x);
    int64_t start = test->layer.slice.start + (test->layer.slice.start < 0 ? x->d[axis] : 0);
    start = start < 0 ? 0 : start;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place p = place_of(&test->outputs[0].dims, i);
        p.i[axis] = start + p.i[axis] * test->layer.slice.step;
        outputs[0][i] = inputs[0][index_of(x, p.i)];
    }
}

static void meaning_concat(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const int32_t axis = axis_of(test->layer.concat.axis, &test->outputs[0].dims);
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place p = place_of(&test->outputs[0].dims, i);
        int32_t input = 0;
        while (p.i[axis] >= test->inputs[input].dims.d[axis]) {
            p.i[axis] -= test->inputs[input].dims.d[axis];
            input++;
        }
        outputs[0][i] = inputs[input][index_of(&test->inputs[input].dims, p.i)];
    }
}

static void meaning_gather(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims, *indices = &test->inputs[1].dims;
    const int32_t axis = axis_of(test->layer.gather.axis, x);
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const place out = place_of(&test->outputs[0].dims, i);
        place in = {{0}};
        for (int32_t j = 0; j < x->n; j++) {
            in.i[j] = j == axis ? 0 : out.i[j < axis ? j : j + indices->n - 1];
        }
        double index = inputs[1][index_of(indices, out.i + axis)];
        index += index < 0.0 ? (double)x->d[axis] : 0.0;
        const bool inside = index >= 0.0 && index < (double)x->d[axis];
        in.i[axis] = inside ? (int64_t)index : 0;
        outputs[0][i] = inside ? inputs[0][index_of(x, in.i)] : 0.0;
    }
}

static void meaning_embedding(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const int64_t rows = test->inputs[0].dims.d[0], width = test->inputs[0].dims.d[1];
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double row = inputs[1][i / width] - (double)test->layer.embedding.first_row;
        outputs[0][i] = row >= 0.0 && row < (double)rows ? inputs[0][(int64_t)row * width + i % width] : 0.0;
    }
}

static void reshape_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims from, trm_dims to, bool in_place)
{
    kernel_case test = new_case(TRM_LAYER_RESHAPE, "%s of %lld%s", trm_dtype_name(dtype),
                                (long long)trm_dims_count(&from), in_place ? " in place" : "");
    test.layer.reshape.dims = to;
    test.tolerance = 0.0;
    test.in_place = in_place;
    add_data(&test, dtype, from);
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_reshape);
}

static void transpose_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims from, const char *perm)
{
    kernel_case test = new_case(TRM_LAYER_TRANSPOSE, "%s of %lld by %s", trm_dtype_name(dtype),
                                (long long)trm_dims_count(&from), perm);
    test.tolerance = 0.0;
    trm_dims to = from;
    for (int32_t i = 0; i < from.n; i++) {
        test.layer.transpose.perm[i] = perm[i] - '0';
        to.d[i] = from.d[perm[i] - '0'];
    }
    add_data(&test, dtype, from);
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_transpose);
}

static void slice_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims from, int32_t axis, int64_t start,
                       int64_t end, int64_t step, int64_t taken)
{
    kernel_case test = new_case(TRM_LAYER_SLICE, "%s axis %d %lld:%lld:%lld", trm_dtype_name(dtype), (int)axis,
                                (long long)start, (long long)end, (long long)step);
    test.layer.slice = (trm_slice_params){.axis = axis, .start = start, .end = end, .step = step};
    test.tolerance = 0.0;
    trm_dims to = from;
    to.d[axis < 0 ? axis + from.n : axis] = taken;
    add_data(&test, dtype, from);
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_slice);
}

static void concat_case(kernel_case_bench *bench, trm_dtype dtype, int32_t axis, int32_t n, const trm_dims *parts)
{
    kernel_case test = new_case(TRM_LAYER_CONCAT, "%s of %d on axis %d", trm_dtype_name(dtype), (int)n, (int)axis);
    test.layer.concat.axis = axis;
    test.tolerance = 0.0;
    trm_dims to = parts[0];
    int64_t *joined = &to.d[axis < 0 ? axis + to.n : axis];
    *joined = 0;
    for (int32_t i = 0; i < n; i++) {
        add_data(&test, dtype, parts[i]);
        *joined += parts[i].d[joined - to.d];
    }
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_concat);
}

static void gather_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims from, int32_t axis, trm_dtype index,
                        trm_dims indices)
{
    kernel_case test = new_case(TRM_LAYER_GATHER, "%s axis %d by %d-d %s", trm_dtype_name(dtype), (int)axis,
                                (int)indices.n, trm_dtype_name(index));
    test.layer.gather.axis = axis;
    test.tolerance = 0.0;
    const int32_t at = axis < 0 ? axis + from.n : axis;
    trm_dims to = {.n = 0};
    for (int32_t i = 0; i < from.n; i++) {
        if (i != at) {
            to.d[to.n++] = from.d[i];
        }
        for (int32_t j = 0; i == at && j < indices.n; j++) {
            to.d[to.n++] = indices.d[j];
        }
    }
    add_data(&test, dtype, from);
    /* Some of them out of range on either side. */
    add_input(&test, index, indices, (double)(-from.d[at] - 2), (double)(from.d[at] + 1));
    add_output(&test, dtype, to);
    kernel_case_run(bench, &test, meaning_gather);
}

static void embedding_case(kernel_case_bench *bench, trm_dtype dtype, int64_t rows, int64_t width, int64_t tokens,
                           int64_t first_row)
{
    kernel_case test = new_case(TRM_LAYER_EMBEDDING, "%s [%lld, %lld] for %lld from row %lld", trm_dtype_name(dtype),
                                (long long)rows, (long long)width, (long long)tokens, (long long)first_row);
    test.layer.embedding.first_row = first_row;
    test.tolerance = 0.0;
    add_data(&test, dtype, DIMS(rows, width));
    add_input(&test, TRM_I32, DIMS(tokens), -2.0, (double)(first_row + rows + 2));
    add_output(&test, dtype, DIMS(tokens, width));
    kernel_case_run(bench, &test, meaning_embedding);
}

void kernel_cases_movement(kernel_case_bench *bench)
{
    for (int32_t t = 0; t < COUNT(all_types); t++) {
        const trm_dtype dtype = all_types[t];
        reshape_case(bench, dtype, DIMS(6, 5, 7), DIMS(2, 3, 35), false);
        reshape_case(bench, dtype, DIMS(6, 5), DIMS(30), true);
        transpose_case(bench, dtype, DIMS(33, 65), "10");
        transpose_case(bench, dtype, DIMS(3, 5, 7, 8), "0213");
        slice_case(bench, dtype, DIMS(3, 10, 5), 1, 2, 9, 3, 3);
        concat_case(bench, dtype, 1, 3, (const trm_dims[]){DIMS(3, 2, 5), DIMS(3, 1, 5), DIMS(3, 7, 5)});
        gather_case(bench, dtype, DIMS(4, 9, 3), 1, TRM_I32, DIMS(2, 5));
        embedding_case(bench, dtype, 17, 24, 9, 0);
    }
    reshape_case(bench, TRM_F32, SCALAR, DIMS(1, 1), false);
    reshape_case(bench, TRM_BF16, DIMS(0, 4), DIMS(2, 0), false);
    reshape_case(bench, TRM_BF16, DIMS(300, 301), DIMS(90300), false);
    transpose_case(bench, TRM_F32, SCALAR, "");
    transpose_case(bench, TRM_F32, DIMS(11), "0");
    transpose_case(bench, TRM_F16, DIMS(1, 4, 1, 6), "3120");
    transpose_case(bench, TRM_F32, DIMS(2, 3, 2, 3, 2, 3, 2, 3), "76543210");
    transpose_case(bench, TRM_BF16, DIMS(2, 3, 4, 5), "2301");
    transpose_case(bench, TRM_F16, DIMS(3, 3, 17, 21), "0231");
    transpose_case(bench, TRM_F32, DIMS(2, 3, 5, 6, 7), "02341");
    transpose_case(bench, TRM_BF16, DIMS(2, 3, 300), "021");
    transpose_case(bench, TRM_I8, DIMS(3, 3, 18, 20), "0231");
    transpose_case(bench, TRM_U8, DIMS(2, 3, 7, 11), "0231");
    transpose_case(bench, TRM_BF16, DIMS(4, 0, 3), "201");
    transpose_case(bench, TRM_BF16, DIMS(257, 2, 130), "120");
    slice_case(bench, TRM_F32, DIMS(10), 0, 0, INT64_MAX, 1, 10);
    slice_case(bench, TRM_F32, DIMS(10), -1, -3, INT64_MAX, 1, 3);
    slice_case(bench, TRM_F32, DIMS(10, 3), 0, -100, -1, 2, 5);
    slice_case(bench, TRM_F32, DIMS(10, 3), 0, 7, 3, 1, 0);
    slice_case(bench, TRM_F32, DIMS(10, 3), 0, 8, 100, 1, 2);
    slice_case(bench, TRM_BF16, DIMS(5, 300), 1, 1, 300, 2, 150);
    slice_case(bench, TRM_BF16, DIMS(0, 3), 1, 1, 3, 1, 2);
    concat_case(bench, TRM_F32, 0, 1, (const trm_dims[]){DIMS(3)});
    concat_case(bench, TRM_BF16, -1, 2, (const trm_dims[]){DIMS(100, 33), DIMS(100, 7)});
    concat_case(bench, TRM_F16, 0, 3, (const trm_dims[]){DIMS(2, 3), DIMS(0, 3), DIMS(1, 3)});
    gather_case(bench, TRM_F32, DIMS(9), 0, TRM_I64, SCALAR);
    gather_case(bench, TRM_F32, DIMS(4, 9), -1, TRM_I64, DIMS(30));
    gather_case(bench, TRM_BF16, DIMS(64, 100), 0, TRM_I64, DIMS(5, 1, 2));
    gather_case(bench, TRM_BF16, DIMS(4, 9), 0, TRM_I32, DIMS(0));
    gather_case(bench, TRM_BF16, DIMS(0, 9), 0, TRM_I32, DIMS(3));
    embedding_case(bench, TRM_BF16, 100, 512, 40, 300);
    embedding_case(bench, TRM_F16, 7, 1, 33, 5);
    embedding_case(bench, TRM_F32, 7, 5, 0, 0);
}
