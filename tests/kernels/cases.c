/* The cases: usual sizes, odd sizes, empty tensors, limits, every type. */
#include "kernels/cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/case_support.h"

/* ---- cast --------------------------------------------------------------------------------------- */

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

/* ---- movement ----------------------------------------------------------------------------------- */

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

/* ---- matmul ------------------------------------------------------------------------------------- */

typedef struct matmul_options {
    bool ta, tb, bias, biases; /* biases: with the leading dims of b */
    trm_activation activation;
    trm_dtype out;
} matmul_options;

static void matmul_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims a, trm_dims b, trm_dims out,
                        matmul_options o)
{
    kernel_case test =
        new_case(TRM_LAYER_MATMUL, "%s%s%s%s%s -> %s m %lld n %lld k %lld", trm_dtype_name(dtype), o.ta ? " ta" : "",
                 o.tb ? " tb" : "",
                 o.bias     ? " bias"
                 : o.biases ? " biases"
                            : "",
                 o.activation != TRM_ACTIVATION_NONE ? " activation" : "", trm_dtype_name(o.out),
                 (long long)out.d[out.n - 2], (long long)out.d[out.n - 1], (long long)a.d[a.n - (o.ta ? 2 : 1)]);
    test.layer.matmul =
        (trm_matmul_params){.transpose_a = o.ta, .transpose_b = o.tb, .activation = o.activation, .out = o.out};
    /* Half precision products may round their sums once more before bias and activation. */
    test.tolerance = 2.0;
    const double high = is_floating(dtype) ? 1.0 : 100.0, low = is_unsigned(dtype) ? 0.0 : -high;
    add_input(&test, dtype, a, low, high);
    add_input(&test, dtype, b, low, high);
    if (o.bias) {
        add_input(&test, dtype, DIMS(out.d[out.n - 1]), low, high);
    }
    if (o.biases) {
        trm_dims dims = b;
        dims.d[dims.n - 2] = 1;
        dims.d[dims.n - 1] = out.d[out.n - 1];
        add_input(&test, dtype, dims, low, high);
    }
    add_output(&test, o.out == TRM_DTYPE_NONE ? dtype : o.out, out);
    kernel_case_run(bench, &test, meaning_matmul);
}

static void linear_case(kernel_case_bench *bench, trm_dtype dtype, int64_t m, int64_t n, int64_t k, matmul_options o)
{
    matmul_case(bench, dtype, o.ta ? DIMS(k, m) : DIMS(m, k), o.tb ? DIMS(n, k) : DIMS(k, n), DIMS(m, n), o);
}

/* Its parts, the product rounded. */
static void meaning_matmul_glu(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dtype dtype = test->inputs[0].dtype;
    const int64_t k = test->inputs[1].dims.d[1], n = test->inputs[1].dims.d[0] / 2;
    for (int64_t i = 0; i < trm_dims_count(&test->outputs[0].dims); i++) {
        double sums[2] = {0.0, 0.0};
        for (int64_t j = 0; j < k; j++) {
            sums[0] += inputs[0][i / n * k + j] * inputs[1][i % n * k + j];
            sums[1] += inputs[0][i / n * k + j] * inputs[1][(n + i % n) * k + j];
        }
        outputs[0][i] = meaning_activation(test->layer.glu.activation, kernel_case_round(dtype, sums[0])) *
                        kernel_case_round(dtype, sums[1]);
    }
}

static void matmul_glu_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, int64_t n, trm_activation activation)
{
    const int64_t k = x.d[x.n - 1];
    trm_dims out = x;
    out.d[out.n - 1] = n;
    kernel_case test = new_case(TRM_LAYER_MATMUL_GLU, "%s activation %d n %lld k %lld", trm_dtype_name(dtype),
                                (int)activation, (long long)n, (long long)k);
    test.layer.glu.activation = activation;
    test.tolerance = 3.0; /* a sum may be rounded to either side of where the exact one is */
    add_input(&test, dtype, x, -1.0, 1.0);
    add_input(&test, dtype, DIMS(2 * n, k), -1.0, 1.0);
    add_output(&test, dtype, out);
    kernel_case_run(bench, &test, meaning_matmul_glu);
}

void kernel_cases_matmul_glu(kernel_case_bench *bench)
{
    for (int32_t t = 0; t < COUNT(floats); t++) {
        static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 9, 33};
        for (int32_t i = 0; i < COUNT(rows); i++) {
            matmul_glu_case(bench, floats[t], DIMS(rows[i], 64), 24, TRM_ACTIVATION_SILU);
            matmul_glu_case(bench, floats[t], DIMS(rows[i], 4104), 13, TRM_ACTIVATION_SILU);
            matmul_glu_case(bench, floats[t], DIMS(rows[i], 30), 7, TRM_ACTIVATION_GELU_TANH);
        }
        matmul_glu_case(bench, floats[t], DIMS(2, 3, 72), 9, TRM_ACTIVATION_GELU);
        matmul_glu_case(bench, floats[t], DIMS(0, 72), 9, TRM_ACTIVATION_SILU);
        matmul_glu_case(bench, floats[t], DIMS(3, 72), 0, TRM_ACTIVATION_SILU);
    }
    kernel_cases_matmul_glu_rows(bench);
}

void kernel_cases_matmul_glu_rows(kernel_case_bench *bench)
{
    static const trm_dtype types[] = {TRM_F16, TRM_BF16};
    static const int64_t rows[] = {1, 9, 16, 17, 63, 64, 65, 100, 128, 129, 200};
    for (int32_t t = 0; t < COUNT(types); t++) {
        for (int32_t i = 0; i < COUNT(rows); i++) { /* widths and depths that fill tiles and that do not */
            matmul_glu_case(bench, types[t], DIMS(rows[i], 264), 136, TRM_ACTIVATION_SILU);
            matmul_glu_case(bench, types[t], DIMS(rows[i], 64), 72, TRM_ACTIVATION_GELU_TANH);
            matmul_glu_case(bench, types[t], DIMS(rows[i], 640), 8, TRM_ACTIVATION_GELU_TANH);
        }
        matmul_glu_case(bench, types[t], DIMS(80, 64), 14336, TRM_ACTIVATION_SILU); /* each width of a tile */
        matmul_glu_case(bench, types[t], DIMS(40, 64), 8448, TRM_ACTIVATION_SILU);
        matmul_glu_case(bench, types[t], DIMS(70, 64), 10560, TRM_ACTIVATION_SILU);
        matmul_glu_case(bench, types[t], DIMS(20, 64), 12672, TRM_ACTIVATION_SILU);
        matmul_glu_case(bench, types[t], DIMS(130, 64), 16896, TRM_ACTIVATION_SILU);
    }
}

void kernel_cases_matmul(kernel_case_bench *bench)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 7, 5},      {2, 33, 17}, {3, 64, 64},
                                       {4, 100, 96}, {5, 31, 129},   {7, 48, 80}, {8, 256, 64},
                                       {9, 257, 65}, {65, 130, 300}, {17, 1, 40}, {1, 300, 513}};
    static const trm_dtype others[] = {TRM_F64, TRM_I8, TRM_U8, TRM_I16, TRM_U16, TRM_I32, TRM_U32, TRM_I64, TRM_U64};
    for (int32_t t = 0; t < COUNT(others); t++) {
        for (int32_t transposes = 0; transposes < 4; transposes++) {
            const matmul_options o = {
                .ta = (transposes & 1) != 0, .tb = (transposes & 2) != 0, .bias = transposes % 2 == 0};
            linear_case(bench, others[t], 5, 31, 40, o);
            linear_case(bench, others[t], 65, 130, 33, o);
            linear_case(bench, others[t], 1, 300, 17, o);
        }
        matmul_case(bench, others[t], DIMS(2, 1, 9, 16), DIMS(3, 10, 16), DIMS(2, 3, 9, 10),
                    (matmul_options){.tb = true});
        matmul_case(bench, others[t], DIMS(2, 1, 9, 16), DIMS(3, 16, 10), DIMS(2, 3, 9, 10),
                    (matmul_options){.biases = true});
        linear_case(bench, others[t], 3, 5, 0, (matmul_options){.tb = true, .bias = true});
        linear_case(bench, others[t], 0, 5, 3, (matmul_options){.tb = true});
    }
    for (int32_t activation = TRM_ACTIVATION_NONE; activation <= TRM_ACTIVATION_SOFTSIGN; activation++) {
        linear_case(bench, TRM_F64, 3, 40, 24,
                    (matmul_options){.tb = true, .bias = true, .activation = (trm_activation)activation});
    }
    for (int32_t t = 0; t < COUNT(floats); t++) {
        const trm_dtype dtype = floats[t];
        for (int32_t s = 0; s < COUNT(sizes); s++) {
            for (int32_t transposes = 0; transposes < 4; transposes++) {
                linear_case(bench, dtype, sizes[s][0], sizes[s][1], sizes[s][2],
                            (matmul_options){.ta = (transposes & 1) != 0, .tb = (transposes & 2) != 0});
            }
        }
        for (int32_t activation = TRM_ACTIVATION_NONE; activation <= TRM_ACTIVATION_SOFTSIGN; activation++) {
            const matmul_options o = {.tb = true, .bias = true, .activation = (trm_activation)activation};
            linear_case(bench, dtype, 3, 40, 24, o);
            linear_case(bench, dtype, 20, 40, 24, o);
        }
        linear_case(bench, dtype, 2, 50, 32, (matmul_options){.tb = true, .out = TRM_F32});
        /* Columns in 16 and more, K in 32, in 64 and in neither. */
        linear_case(bench, dtype, 1, 45, 96, (matmul_options){.tb = true});
        linear_case(bench, dtype, 4, 64, 1000, (matmul_options){.tb = true});
        linear_case(bench, dtype, 7, 33, 1056, (matmul_options){.tb = true, .bias = true});
        linear_case(bench, dtype, 11, 16, 64, (matmul_options){.tb = true});
        linear_case(bench, dtype, 16, 130, 1024, (matmul_options){.tb = true, .bias = true});
        linear_case(bench, dtype, 17, 45, 96, (matmul_options){.tb = true});
        linear_case(bench, dtype, 30, 50, 32, (matmul_options){.tb = true, .bias = true, .out = TRM_F32});
        /* A linear layer over leading dims; batches; both sides repeated. */
        matmul_case(bench, dtype, DIMS(2, 3, 16), DIMS(24, 16), DIMS(2, 3, 24), (matmul_options){.tb = true});
        matmul_case(bench, dtype, DIMS(5, 4, 16), DIMS(16, 24), DIMS(5, 4, 24), (matmul_options){.bias = true});
        matmul_case(bench, dtype, DIMS(2, 3, 9, 16), DIMS(2, 3, 16, 10), DIMS(2, 3, 9, 10),
                    (matmul_options){.ta = false});
        matmul_case(bench, dtype, DIMS(2, 1, 9, 16), DIMS(3, 10, 16), DIMS(2, 3, 9, 10), (matmul_options){.tb = true});
        matmul_case(bench, dtype, DIMS(2, 1, 9, 16), DIMS(3, 10, 16), DIMS(2, 3, 9, 10), /* the second is not aligned */
                    (matmul_options){.tb = true, .activation = TRM_ACTIVATION_SILU});
        matmul_case(bench, dtype, DIMS(9, 16), DIMS(4, 16, 10), DIMS(4, 9, 10), (matmul_options){.ta = false});
        matmul_case(bench, dtype, DIMS(4, 16, 9), DIMS(16, 10), DIMS(4, 9, 10), (matmul_options){.ta = true});
        /* Large enough for kernels that are planned, with an activation that cuBLASLt has not. */
        linear_case(bench, dtype, 130, 256, 512,
                    (matmul_options){.tb = true, .bias = true, .activation = TRM_ACTIVATION_GELU});
        linear_case(bench, dtype, 130, 256, 512, (matmul_options){.tb = true, .activation = TRM_ACTIVATION_SILU});
        /* Several weights for the same rows, each with its bias; a bias for all of them. */
        const trm_activation gelu = TRM_ACTIVATION_GELU;
        matmul_case(bench, dtype, DIMS(70, 64), DIMS(3, 64, 128), DIMS(3, 70, 128), (matmul_options){.biases = true});
        matmul_case(bench, dtype, DIMS(70, 64), DIMS(3, 64, 128), DIMS(3, 70, 128), (matmul_options){.bias = true});
        matmul_case(bench, dtype, DIMS(70, 64), DIMS(3, 128, 64), DIMS(3, 70, 128),
                    (matmul_options){.tb = true, .biases = true, .activation = gelu});
        matmul_case(bench, dtype, DIMS(2, 1, 9, 16), DIMS(3, 16, 10), DIMS(2, 3, 9, 10),
                    (matmul_options){.biases = true, .out = TRM_F32});
        matmul_case(bench, dtype, DIMS(5, 4, 16), DIMS(16, 24), DIMS(5, 4, 24), (matmul_options){.biases = true});
        matmul_case(bench, dtype, DIMS(3, 0), DIMS(2, 0, 8), DIMS(2, 3, 8), (matmul_options){.biases = true});
        linear_case(bench, dtype, 0, 8, 8, (matmul_options){.tb = true});
        linear_case(bench, dtype, 8, 0, 8, (matmul_options){.tb = true});
        linear_case(bench, dtype, 3, 5, 0, (matmul_options){.tb = true, .bias = true});
    }
}

/* ---- norm --------------------------------------------------------------------------------------- */

static void norm_case_of(kernel_case_bench *bench, trm_dtype dtype, trm_norm_params p, bool weighted, bool bias,
                         trm_dims dims, double low, double high)
{
    kernel_case test = new_case(TRM_LAYER_NORM, "%s%s%s%s offset %g %s, rows of %lld, %g .. %g",
                                p.op == TRM_NORM_RMS ? "rms" : "layer", p.residual ? " residual" : "",
                                bias ? " bias" : "", weighted ? "" : " no weight", (double)p.weight_offset,
                                trm_dtype_name(dtype), (long long)dims.d[dims.n - 1], low, high);
    test.layer.norm = p;
    const trm_dims row = DIMS(dims.d[dims.n - 1]);
    add_input(&test, dtype, dims, low, high);
    if (p.residual) {
        add_input(&test, dtype, dims, -1.0, 1.0);
    }
    add_input(&test, weighted ? dtype : TRM_DTYPE_NONE, row, -2.0, 2.0);
    if (bias) {
        add_input(&test, dtype, row, -1.0, 1.0);
    }
    add_output(&test, dtype, dims);
    if (p.residual) {
        add_output(&test, dtype, dims);
    }
    kernel_case_run(bench, &test, meaning_norm);
    if (p.residual) {
        test.unread = 1u << 1;
        kernel_case_run(bench, &test, meaning_norm);
    }
}

static void norm_case(kernel_case_bench *bench, trm_dtype dtype, trm_norm_params p, bool bias, trm_dims dims,
                      double low, double high)
{
    norm_case_of(bench, dtype, p, true, bias, dims, low, high);
}

void kernel_cases_norm(kernel_case_bench *bench)
{
    static const int64_t widths[] = {1, 7, 64, 96, 129, 512, 1000, 4096, 8200};
    static const trm_dtype types[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64};
    for (int32_t t = 0; t < COUNT(types); t++) {
        for (int32_t residual = 0; residual < 2; residual++) {
            const trm_norm_params rms = {.op = TRM_NORM_RMS, .residual = residual != 0, .eps = 1e-5f};
            const trm_norm_params layer = {.op = TRM_NORM_LAYER, .residual = residual != 0, .eps = 1e-5f};
            norm_case_of(bench, types[t], rms, false, false, DIMS(3, 64), -2.0, 2.0);
            norm_case_of(bench, types[t], rms, false, false, DIMS(5, 33), -2.0, 2.0);
            norm_case_of(bench, types[t], layer, false, false, DIMS(3, 5, 4096), -2.0, 2.0);
            norm_case_of(bench, types[t], layer, false, true, DIMS(3, 77), -2.0, 2.0);
            norm_case_of(bench, types[t], layer, true, true, DIMS(3, 1000), -2.0, 2.0);
        }
    }
    for (int32_t t = 0; t < COUNT(floats); t++) {
        for (int32_t w = 0; w < COUNT(widths); w++) {
            for (int32_t residual = 0; residual < 2; residual++) {
                const trm_norm_params rms = {.op = TRM_NORM_RMS, .residual = residual != 0, .eps = 1e-5f};
                const trm_norm_params layer = {.op = TRM_NORM_LAYER, .residual = residual != 0, .eps = 1e-5f};
                norm_case(bench, floats[t], rms, false, DIMS(3, widths[w]), -2.0, 2.0);
                if (widths[w] > 1) { /* the variance of one value is noise */
                    norm_case(bench, floats[t], layer, true, DIMS(3, widths[w]), -2.0, 2.0);
                    norm_case(bench, floats[t], layer, false, DIMS(3, widths[w]), -2.0, 2.0);
                }
            }
        }
        norm_case(bench, floats[t], (trm_norm_params){.op = TRM_NORM_RMS, .eps = 1e-6f, .weight_offset = 1.0f}, false,
                  DIMS(2, 3, 5, 64), -2.0, 2.0);
        /* Small and large values, and a mean far from zero. */
        norm_case(bench, floats[t], (trm_norm_params){.op = TRM_NORM_RMS, .eps = 1e-6f}, false, DIMS(4, 256), -1e-3,
                  1e-3);
        norm_case(bench, floats[t], (trm_norm_params){.op = TRM_NORM_RMS, .eps = 1e-6f}, false, DIMS(4, 256), -6e4,
                  6e4);
        norm_case(bench, floats[t], (trm_norm_params){.op = TRM_NORM_LAYER, .eps = 1e-6f}, true, DIMS(4, 256), 50.0,
                  60.0);
        norm_case(bench, floats[t], (trm_norm_params){.op = TRM_NORM_LAYER, .eps = 1e-6f, .residual = true}, true,
                  DIMS(1030, 768), -2.0, 2.0);
        norm_case(bench, floats[t], (trm_norm_params){.op = TRM_NORM_RMS, .eps = 1e-6f}, false, DIMS(1025, 520), -2.0,
                  2.0);
        norm_case(bench, floats[t], (trm_norm_params){.op = TRM_NORM_RMS, .eps = 1e-6f}, false, DIMS(0, 64), -1.0, 1.0);
        norm_case(bench, floats[t], (trm_norm_params){.op = TRM_NORM_RMS, .eps = 1e-6f}, false, DIMS(64), -1.0, 1.0);
    }
}

/* ---- softmax and reduce ------------------------------------------------------------------------- */

static void softmax_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims dims, int32_t axis, double range)
{
    kernel_case test = new_case(TRM_LAYER_SOFTMAX, "%s axis %d of %d-d, %lld, +-%g", trm_dtype_name(dtype), (int)axis,
                                (int)dims.n, (long long)trm_dims_count(&dims), range);
    test.layer.softmax.axis = axis;
    add_input(&test, dtype, dims, -range, range);
    add_output(&test, dtype, dims);
    kernel_case_run(bench, &test, meaning_softmax);
}

static void reduce_case(kernel_case_bench *bench, trm_dtype dtype, trm_reduce_op op, trm_dims dims, int32_t axis,
                        bool keep)
{
    kernel_case test = new_case(TRM_LAYER_REDUCE, "op %d %s axis %d of %d-d, %lld%s", (int)op, trm_dtype_name(dtype),
                                (int)axis, (int)dims.n, (long long)trm_dims_count(&dims), keep ? " keep" : "");
    test.layer.reduce = (trm_reduce_params){.op = op, .axis = axis, .keep_dims = keep};
    const int32_t at = axis < 0 ? axis + dims.n : axis;
    trm_dims out = {.n = 0};
    for (int32_t i = 0; i < dims.n; i++) {
        if (i != at || keep) {
            out.d[out.n++] = i == at ? 1 : dims.d[i];
        }
    }
    if (op == TRM_REDUCE_PROD) { /* neither overflow nor vanish */
        add_input(&test, dtype, dims,
                  is_floating(dtype)   ? 0.8
                  : is_unsigned(dtype) ? 1.0
                                       : -2.0,
                  is_floating(dtype) ? 1.25 : 2.0);
    } else {
        add_data(&test, dtype, dims);
    }
    add_output(&test, dtype, out);
    kernel_case_run(bench, &test, meaning_reduce);
}

void kernel_cases_fold(kernel_case_bench *bench)
{
    static const trm_dtype softmaxes[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64};
    for (int32_t t = 0; t < COUNT(softmaxes); t++) {
        const trm_dtype dtype = softmaxes[t];
        softmax_case(bench, dtype, DIMS(5, 33), -1, 4.0);
        softmax_case(bench, dtype, DIMS(5, 33), 0, 4.0);
        softmax_case(bench, dtype, DIMS(3, 17, 130), 1, 4.0);
        softmax_case(bench, dtype, DIMS(3, 5000), 1, 10.0);
        softmax_case(bench, dtype, DIMS(3, 64), 1, 5000.0);
        softmax_case(bench, dtype, DIMS(4, 1), 1, 4.0);
        softmax_case(bench, dtype, DIMS(0, 4), 1, 4.0);
        softmax_case(bench, dtype, DIMS(4, 0), 1, 4.0);
    }
    for (int32_t t = 0; t < COUNT(numbers); t++) {
        for (int32_t op = TRM_REDUCE_SUM; op <= TRM_REDUCE_AVG; op++) {
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(3, 9, 7), 1, true);
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(3, 9, 7), -1, false);
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(9), 0, false);
        }
        for (int32_t op = TRM_REDUCE_SUM; op <= TRM_REDUCE_AVG; op++) {
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(2, 0, 3), 1, true);
            reduce_case(bench, numbers[t], (trm_reduce_op)op, DIMS(2, 0), 1, false);
        }
        reduce_case(bench, numbers[t], TRM_REDUCE_MAX, DIMS(33, 257), 0, false);
        reduce_case(bench, numbers[t], TRM_REDUCE_MIN, DIMS(2, 3, 1, 4), 2, false);
        reduce_case(bench, numbers[t], TRM_REDUCE_MAX, DIMS(0, 3), 1, true);
    }
    reduce_case(bench, TRM_BOOL, TRM_REDUCE_MAX, DIMS(30, 2, 3), 1, true);
    reduce_case(bench, TRM_BOOL, TRM_REDUCE_MIN, DIMS(30, 2), 1, false);
    reduce_case(bench, TRM_BOOL, TRM_REDUCE_MIN, DIMS(3, 0), 1, false);
    reduce_case(bench, TRM_F32, TRM_REDUCE_AVG, DIMS(3, 20001), 1, false);
    reduce_case(bench, TRM_BF16, TRM_REDUCE_MAX, DIMS(3, 20001), 1, true);
}

/* ---- rope --------------------------------------------------------------------------------------- */

static void rope_case(kernel_case_bench *bench, trm_dtype dtype, trm_rope_params p, int64_t tokens, int64_t heads,
                      int64_t head_dim, double last_position)
{
    kernel_case test = new_case(TRM_LAYER_ROPE, "scaling %d %s rotary %d of %lld%s, %lld tokens to %g", (int)p.scaling,
                                trm_dtype_name(dtype), (int)p.rotary_dim, (long long)head_dim,
                                p.interleaved ? " interleaved" : "", (long long)tokens, last_position);
    double frequencies[1024];
    const int32_t pairs = p.rotary_dim / 2;
    for (int32_t i = 0; i < pairs; i++) {
        frequencies[i] = pow(10000.0, -2.0 * i / p.rotary_dim);
        frequencies[pairs + i] = frequencies[i] / (1.0 + i);
    }
    test.layer.rope = p;
    add_input(&test, dtype, DIMS(tokens, heads, head_dim), -2.0, 2.0);
    add_input(&test, TRM_I32, DIMS(tokens), 0.0, last_position);
    add_input(&test, TRM_F32, p.scaling == TRM_ROPE_LONG ? DIMS(2, pairs) : DIMS(pairs), 0, 0)->values = frequencies;
    if (p.scaling != TRM_ROPE_PLAIN) {
        add_input(&test, TRM_I32, DIMS(tokens), 1.0, 3.0 * (double)p.original_length);
    }
    /* A frequency of dynamic scaling may be one unit off, which grows with the position. */
    test.tolerance = p.scaling == TRM_ROPE_DYNAMIC ? 1.0 + last_position / 20.0 : 1.0;
    add_output(&test, dtype, DIMS(tokens, heads, head_dim));
    kernel_case_run(bench, &test, meaning_rope);
}

/* Of all elements, against the definition: pairs of an element and its partner. */
static void meaning_rotate(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[0].dims, *angles = &test->inputs[1].dims;
    const trm_rotate_params *p = &test->layer.rotate;
    const int32_t last = x->n - 1, half = p->rotary_dim / 2;
    for (int64_t i = 0; i < count_of_output(test); i++) {
        place at = place_of(x, i), angle = {{0}};
        const int64_t column = at.i[last];
        outputs[0][i] = inputs[0][i];
        if (column >= p->rotary_dim) {
            continue;
        }
        const bool is_a = p->interleaved ? column % 2 == 0 : column < half;
        const int64_t pair = p->interleaved ? column / 2 : column % half;
        for (int32_t k = 0; k < angles->n - 1; k++) {
            angle.i[k] = angles->d[k] == 1 ? 0 : at.i[k + x->n - angles->n];
        }
        angle.i[angles->n - 1] = angles->d[angles->n - 1] == half ? pair : column;
        at.i[last] = p->interleaved ? 2 * pair + is_a : pair + (is_a ? half : 0);
        const double c = inputs[1][index_of(angles, angle.i)], s = inputs[2][index_of(angles, angle.i)];
        const double other = inputs[0][index_of(x, at.i)];
        outputs[0][i] = inputs[0][i] * c + (is_a ? -other : other) * s;
    }
}

static void rotate_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, trm_dims angles, int32_t rotary,
                        bool interleaved)
{
    kernel_case test = new_case(TRM_LAYER_ROTATE, "%s %d of %lld, %s, %lld angles", trm_dtype_name(dtype), (int)rotary,
                                (long long)trm_dims_count(&x), interleaved ? "interleaved" : "halves",
                                (long long)trm_dims_count(&angles));
    test.layer.rotate = (trm_rotate_params){rotary, interleaved};
    add_data(&test, dtype, x);
    add_data(&test, dtype, angles);
    add_data(&test, dtype, angles);
    add_output(&test, dtype, x);
    kernel_case_run(bench, &test, meaning_rotate);
}

static void rotate_cases(kernel_case_bench *bench)
{
    static const trm_dtype dtypes[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64};
    for (int32_t i = 0; i < 4; i++) {
        for (int32_t interleaved = 0; interleaved < 2; interleaved++) {
            rotate_case(bench, dtypes[i], DIMS(2, 3, 5, 8), DIMS(5, 8), 8, interleaved);
            rotate_case(bench, dtypes[i], DIMS(2, 3, 5, 8), DIMS(2, 1, 5, 3), 6, interleaved);
            rotate_case(bench, dtypes[i], DIMS(7, 10), DIMS(1, 2), 2, interleaved);
            rotate_case(bench, dtypes[i], DIMS(0, 10), DIMS(1, 4), 8, interleaved);
        }
    }
}

void kernel_cases_rope(kernel_case_bench *bench)
{
    rotate_cases(bench);
    for (int32_t t = 0; t < COUNT(floats); t++) {
        for (int32_t interleaved = 0; interleaved < 2; interleaved++) {
            trm_rope_params p = {.rotary_dim = 64, .interleaved = interleaved != 0, .magnitude = 1.0f};
            rope_case(bench, floats[t], p, 5, 3, 64, 100.0);
            rope_case(bench, floats[t], p, 1, 1, 64, 8191.0);
            rope_case(bench, floats[t], p, 4, 8, 80, 100000.0);
            rope_case(bench, floats[t], p, 0, 3, 64, 10.0);
            p.rotary_dim = 10;
            p.magnitude = 1.25f;
            rope_case(bench, floats[t], p, 33, 2, 12, 50.0);
            p.rotary_dim = 128;
            rope_case(bench, floats[t], p, 3, 5, 128, 4000.0);
            p.rotary_dim = 64;
            p.base = 10000.0f;
            p.factor = 4.0f;
            p.original_length = 100;
            p.scaling = TRM_ROPE_DYNAMIC;
            rope_case(bench, floats[t], p, 9, 2, 64, 90.0);
            p.scaling = TRM_ROPE_LONG;
            rope_case(bench, floats[t], p, 9, 2, 64, 299.0);
        }
    }
}
