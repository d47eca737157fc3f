/* Cases of DEQUANT_MATMUL: every type of weight, scales by row, by group and by block, rows and sizes of all kinds. */
#include <stdlib.h>

#include "kernels/cases/support.h"
#include "kernels/cases/cases.h"

/* The whole weight as what it stands for, [n, k]; the caller frees it. */
static double *dequantize(const kernel_case *test, double *const *inputs, int64_t n, int64_t k)
{
    const trm_dequant_matmul_params *p = &test->layer.dequant_matmul;
    const bool packed = test->inputs[TRM_DEQUANT_MATMUL_WEIGHT].dtype == TRM_U8;
    const double *bits = inputs[TRM_DEQUANT_MATMUL_WEIGHT], *zeros = inputs[TRM_DEQUANT_MATMUL_ZERO_POINT];
    const int64_t blocks = test->inputs[TRM_DEQUANT_MATMUL_SCALE].dims.d[1];
    double *weight = malloc((size_t)(n * k + 1) * sizeof(*weight));
    for (int64_t i = 0; i < n * k; i++) {
        const int64_t block = i / k / p->block_n * blocks + (p->block_k > 0 ? i % k / p->block_k : 0);
        double number = packed ? (double)((int)bits[i / 2] >> (i % 2 == 0 ? 0 : 4) & 15) : bits[i];
        number -= !packed ? 0.0 : zeros != NULL ? zeros[block] : 8.0;
        weight[i] = number * inputs[TRM_DEQUANT_MATMUL_SCALE][block];
    }
    return weight;
}

static void meaning_dequant_matmul(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[TRM_DEQUANT_MATMUL_X].dims;
    const int64_t k = x->d[x->n - 1], n = test->inputs[TRM_DEQUANT_MATMUL_WEIGHT].dims.d[0];
    const double *bias = inputs[TRM_DEQUANT_MATMUL_BIAS];
    double *weight = dequantize(test, inputs, n, k);
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double *row = inputs[TRM_DEQUANT_MATMUL_X] + i / n * k, *column = weight + i % n * k;
        double sum = 0.0;
        for (int64_t j = 0; j < k; j++) {
            sum += row[j] * column[j];
        }
        outputs[0][i] = sum + (bias != NULL ? bias[i % n] : 0.0);
    }
    free(weight);
}

typedef struct form {
    trm_dtype x, weight, scale;
    trm_dequant_matmul_params params;
    bool bias, zero_point;
    double high; /* of the weights' numbers; 0: all that the type has */
} form;

static int64_t blocks(int64_t size, int32_t block)
{
    return block == 0 ? 1 : (size + block - 1) / block;
}

static void dequant_matmul_case(kernel_case_bench *bench, trm_dims x, int64_t n, form f)
{
    const int64_t k = x.d[x.n - 1];
    const bool packed = f.weight == TRM_U8;
    const double most = packed ? 255.0 : f.weight == TRM_I8 ? 128.0 : 448.0, high = f.high > 0 ? f.high : most;
    const double unit = packed ? 8.0 : high;
    const trm_dtype to = f.params.out == TRM_DTYPE_NONE ? f.x : f.params.out;
    kernel_case test =
        new_case(TRM_LAYER_DEQUANT_MATMUL, "%s to %s weight %s scale %s rows %lld n %lld k %lld blocks %d %d%s%s",
                 trm_dtype_name(f.x), trm_dtype_name(to), packed ? "i4" : trm_dtype_name(f.weight),
                 trm_dtype_name(f.scale), (long long)x.d[0], (long long)n, (long long)k, (int)f.params.block_n,
                 (int)f.params.block_k, f.bias ? " bias" : "", f.zero_point ? " zero points" : "");
    test.layer.dequant_matmul = f.params;
    test.tolerance = 2.0;
    if (to == TRM_F32 && f.x != TRM_F32) { /* kernels may round the weight to the type of x */
        test.tolerance *= f.x == TRM_BF16 ? 2000.0 : 300.0;
    }
    trm_dims out = x;
    out.d[out.n - 1] = n;
    const trm_dims scale = DIMS(blocks(n, f.params.block_n), blocks(k, f.params.block_k));
    add_input(&test, f.x, x, -2.0, 2.0);
    add_input(&test, f.weight, DIMS(n, packed ? k / 2 : k), f.weight == TRM_U8 ? 0.0 : -high, high);
    add_input(&test, f.scale, scale, 0.25 / unit, 1.0 / unit);
    if (f.bias || f.zero_point) {
        add_input(&test, f.bias ? f.x : TRM_DTYPE_NONE, DIMS(n), -2.0, 2.0);
    }
    if (f.zero_point) {
        add_input(&test, TRM_U8, scale, 0.0, 16.0);
    }
    add_output(&test, to, out);
    kernel_case_run(bench, &test, meaning_dequant_matmul);
}

/* Blocks of published checkpoints, and odd ones. */
static const int32_t block_sizes[][2] = {{1, 0}, {1, 32}, {1, 64}, {1, 128}, {128, 128}, {3, 14}};

static void common_forms(kernel_case_bench *bench, trm_dtype x, trm_dtype weight)
{
    static const int64_t rows[] = {1, 2, 3, 4, 7, 8, 9, 16, 33};
    static const int64_t sizes[][2] = {{24, 256}, {130, 512}, {13, 30}, {41, 1000}, {7, 2}, {300, 264}};
    for (int32_t b = 0; b < COUNT(block_sizes); b++) {
        for (int32_t s = 0; s < COUNT(sizes); s++) {
            form f = {x, weight, TRM_BF16, {block_sizes[b][0], block_sizes[b][1], TRM_DTYPE_NONE}, false, false, 0.0};
            f.scale = floats[(b + s) % COUNT(floats)];
            f.bias = s % 2 == 1;
            f.zero_point = weight == TRM_U8 && (b + s) % 2 == 0;
            for (int32_t r = (b + s) % 3; r < COUNT(rows); r += 3) {
                dequant_matmul_case(bench, DIMS(rows[r], sizes[s][1]), sizes[s][0], f);
            }
        }
        form f = {x, weight, TRM_F32, {block_sizes[b][0], block_sizes[b][1], TRM_F32}, b % 2 == 0, false, 0.0};
        dequant_matmul_case(bench, DIMS(1, 264), 51, f);
        dequant_matmul_case(bench, DIMS(6, 264), 51, f);
        f.params.out = TRM_DTYPE_NONE;
        f.zero_point = weight == TRM_U8;
        dequant_matmul_case(bench, DIMS(2, 3, 72), 9, f);
        dequant_matmul_case(bench, DIMS(72), 9, f);
        dequant_matmul_case(bench, DIMS(0, 72), 9, f);
        dequant_matmul_case(bench, DIMS(2, 72), 0, f);
    }
}

/* So much of k that it goes through rings of loads more than once. */
static void long_sums(kernel_case_bench *bench, trm_dtype x, trm_dtype weight, const int64_t rows[4])
{
    static const int32_t blocks_k[] = {0, 32, 64, 128};
    for (int32_t b = 0; b < COUNT(blocks_k); b++) {
        form f = {x, weight, floats[b % COUNT(floats)], {1, blocks_k[b], TRM_DTYPE_NONE}, b == 1, false, 0.0};
        for (int32_t zeros = 0; zeros < (weight == TRM_U8 ? 2 : 1); zeros++) {
            f.zero_point = zeros == 1;
            dequant_matmul_case(bench, DIMS(rows[b], 4224), 264, f);
            dequant_matmul_case(bench, DIMS(rows[(b + zeros + 1) % 4], 640), 523, f);
            dequant_matmul_case(bench, DIMS(rows[2], 1408), 72, f);
        }
    }
}

void kernel_cases_dequant_matmul(kernel_case_bench *bench)
{
    static const int64_t tens[] = {17, 33, 64, 10};
    static const trm_dtype weights[] = {TRM_F8E4M3, TRM_I8, TRM_U8};
    for (int32_t w = 0; w < COUNT(weights); w++) {
        for (int32_t t = 0; t < COUNT(floats); t++) {
            common_forms(bench, floats[t], weights[w]);
            if (floats[t] != TRM_F32) {
                long_sums(bench, floats[t], weights[w], tens);
            }
        }
        /* Columns that no number of bytes or lanes divides. */
        if (weights[w] != TRM_U8) {
            const form odd = {TRM_BF16, weights[w], TRM_F32, {1, 7, TRM_DTYPE_NONE}, true, false, 0.0};
            dequant_matmul_case(bench, DIMS(1, 1001), 5, odd);
            dequant_matmul_case(bench, DIMS(11, 1001), 5, odd);
        }
        if (weights[w] == TRM_F8E4M3) { /* many without a leading bit, many zeros */
            const form small = {TRM_BF16, weights[w], TRM_F32, {1, 0, TRM_DTYPE_NONE}, false, false, 0.03};
            dequant_matmul_case(bench, DIMS(3, 320), 40, small);
            dequant_matmul_case(bench, DIMS(3, 310), 40, small);
        }
        const form large = {TRM_BF16, weights[w], TRM_BF16, {1, 128, TRM_DTYPE_NONE}, false, false, 0.0};
        dequant_matmul_case(bench, DIMS(1, 4096), 1030, large);
        dequant_matmul_case(bench, DIMS(20, 4096), 264, large);
    }
}

/* Weights of so many rows, and rows so long, that kernels for few rows of x take another form. */
static void large_weights(kernel_case_bench *bench, trm_dtype x)
{
    static const int32_t blocks_k[] = {0, 32, 128};
    static const int64_t rows[] = {1, 8, 11};
    for (int32_t b = 0; b < COUNT(blocks_k); b++) {
        for (int32_t r = 0; r < COUNT(rows); r++) {
            form f = {x, TRM_U8, floats[(b + r) % COUNT(floats)], {1, blocks_k[b], TRM_DTYPE_NONE}, r == 1, false, 0.0};
            f.zero_point = (b + r) % 2 == 1;
            dequant_matmul_case(bench, DIMS(rows[r], 1408), 4237, f);
            f.zero_point = !f.zero_point;
            dequant_matmul_case(bench, DIMS(rows[r], 256), 4237, f);
            dequant_matmul_case(bench, DIMS(rows[r], 640), 12793, f);
            f.zero_point = !f.zero_point;
            dequant_matmul_case(bench, DIMS(rows[r], 1408), 12793, f);
        }
    }
    for (int32_t i = 0; i < 4; i++) {
        const form f = {x,  i % 2 == 0 ? TRM_F8E4M3 : TRM_I8, TRM_F32, {1, i / 2 * 128, TRM_DTYPE_NONE}, i == 1, false,
                        0.0};
        dequant_matmul_case(bench, DIMS(1, 7168), 51, f);
        dequant_matmul_case(bench, DIMS(1, 256), 6001, f);
    }
}

void kernel_cases_dequant_rows(kernel_case_bench *bench)
{
    static const trm_dtype weights[] = {TRM_F8E4M3, TRM_I8, TRM_U8}, types[] = {TRM_BF16, TRM_F16};
    static const int64_t rows[][4] = {{9, 16, 65, 130}, {1, 48, 32, 200}};
    for (int32_t w = 0; w < COUNT(weights); w++) {
        for (int32_t i = 0; i < 4; i++) {
            long_sums(bench, types[i % 2], weights[w], rows[i / 2]);
        }
    }
    large_weights(bench, TRM_BF16);
    large_weights(bench, TRM_F16);
}
