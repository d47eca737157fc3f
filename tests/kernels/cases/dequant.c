/*
 * Cases of DEQUANT_MATMUL: every type of weight, scales by row, by group and by block, rows and sizes of all kinds, and
 * of what passes make of it with a norm or a GLU.
 */
#include <stdlib.h>

#include "kernels/cases/support.h"
#include "kernels/cases/cases.h"

/* The whole weight as what it stands for, [n, k]; the caller frees it. */
static double *dequantize(const kernel_case *test, const trm_dequant_matmul_params *p, double *const *inputs, int64_t n,
                          int64_t k)
{
    static const double f4[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    const kernel_case_input *input = &test->inputs[TRM_DEQUANT_MATMUL_WEIGHT];
    const bool packed = input->dtype == TRM_U8;
    const double *bits = inputs[TRM_DEQUANT_MATMUL_WEIGHT], *zeros = inputs[TRM_DEQUANT_MATMUL_ZERO_POINT];
    const int64_t blocks = test->inputs[TRM_DEQUANT_MATMUL_SCALE].dims.d[1];
    double *weight = malloc((size_t)(n * k + 1) * sizeof(*weight));
    for (int64_t i = 0; i < n * k; i++) {
        const int64_t block = i / k / p->block_n * blocks + (p->block_k > 0 ? i % k / p->block_k : 0);
        double number = packed ? (double)((int)bits[i / 2] >> (i % 2 == 0 ? 0 : 4) & 15) : bits[i];
        number = input->is_f4 ? f4[(int)number] : number;
        number -= !packed || input->is_f4 ? 0.0 : zeros != NULL ? zeros[block] : 8.0;
        weight[i] = number * inputs[TRM_DEQUANT_MATMUL_SCALE][block];
    }
    return weight;
}

/* What stands for x once `count` columns of it are quantized by one scale; scale and its inverse are f32. */
static void quantize(const trm_dequant_matmul_params *p, trm_dtype type, const double *x, int64_t count, double *to)
{
    const bool is_i8 = type == TRM_I8;
    double largest = 0x1p-100;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(x[i]));
    }
    float scale = (float)largest / (is_i8 ? 127.5f : 448.0f);
    if (p->x_quantization == TRM_X_STATIC || (p->x_scale > 0.0f && p->x_scale < scale)) {
        scale = p->x_scale;
    }
    const float inverse = 1.0f / scale;
    for (int64_t i = 0; i < count; i++) {
        const double number = (double)(is_i8 ? (float)x[i] / scale : (float)x[i] * inverse);
        to[i] = (is_i8 ? fmin(fmax(rint(number), -128.0), 127.0) : kernel_case_round(type, number)) * (double)scale;
    }
}

/* The product of rows [count, k], which are what it reads. */
static void multiply(const kernel_case *test, const trm_dequant_matmul_params *p, const double *rows, int64_t k,
                     double *const *inputs, double *output)
{
    const int64_t n = test->inputs[TRM_DEQUANT_MATMUL_WEIGHT].dims.d[0], step = p->block_k > 0 ? p->block_k : k;
    const double *bias = inputs[TRM_DEQUANT_MATMUL_BIAS];
    const int64_t count = n > 0 ? count_of_output(test) / n * k : 0;
    double *weight = dequantize(test, p, inputs, n, k), *x = malloc((size_t)(count + 1) * sizeof(*x));
    for (int64_t at = 0, next; at < count; at = next) {
        next = (at + step < at / k * k + k ? at + step : at / k * k + k);
        if (p->x_quantization != TRM_X_AS_IS) {
            quantize(p, test->inputs[TRM_DEQUANT_MATMUL_WEIGHT].dtype, rows + at, next - at, x + at);
        } else {
            memcpy(x + at, rows + at, (size_t)(next - at) * sizeof(*x));
        }
    }
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double *row = x + i / n * k, *column = weight + i % n * k;
        double sum = 0.0;
        for (int64_t j = 0; j < k; j++) {
            sum += row[j] * column[j];
        }
        output[i] = sum + (bias != NULL ? bias[i % n] : 0.0);
    }
    free(weight);
    free(x);
}

static void meaning_dequant_matmul(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_dims *x = &test->inputs[TRM_DEQUANT_MATMUL_X].dims;
    multiply(test, &test->layer.dequant_matmul, inputs[TRM_DEQUANT_MATMUL_X], x->d[x->n - 1], inputs, outputs[0]);
}

static void meaning_norm_dequant_matmul(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_norm_dequant_matmul_params *p = &test->layer.norm_dequant_matmul;
    const trm_dims *dims = &test->inputs[TRM_DEQUANT_MATMUL_X].dims;
    const trm_dtype dtype = test->inputs[TRM_DEQUANT_MATMUL_X].dtype;
    const int64_t count = trm_dims_count(dims), k = dims->d[dims->n - 1];
    const double *norm = inputs[TRM_NORM_DEQUANT_MATMUL_NORM_WEIGHT];
    const double *residual = inputs[TRM_NORM_DEQUANT_MATMUL_RESIDUAL];
    double *rows = malloc((size_t)(count + 1) * sizeof(*rows)), square = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double *x = &inputs[TRM_DEQUANT_MATMUL_X][i];
        rows[i] = residual != NULL ? kernel_case_round(dtype, *x + residual[i]) : *x;
        if (residual != NULL) {
            outputs[1][i] = rows[i];
        }
    }
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; i % k == 0 && j < k; j++) {
            square = (j > 0 ? square : 0.0) + rows[i + j] * rows[i + j];
        }
        const double factor = norm != NULL ? norm[i % k] + (double)p->weight_offset : 1.0;
        rows[i] = kernel_case_round(dtype, rows[i] / sqrt(square / (double)k + (double)p->eps) * factor);
    }
    multiply(test, &p->product, rows, k, inputs, outputs[0]);
    free(rows);
}

static void meaning_glu_dequant_matmul(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_glu_dequant_matmul_params *p = &test->layer.glu_dequant_matmul;
    const trm_dims *dims = &test->inputs[TRM_DEQUANT_MATMUL_X].dims;
    const trm_dtype dtype = test->inputs[TRM_DEQUANT_MATMUL_X].dtype;
    const int64_t count = trm_dims_count(dims) / 2, k = dims->d[dims->n - 1] / 2;
    double *rows = malloc((size_t)(count + 1) * sizeof(*rows));
    for (int64_t i = 0; i < count; i++) {
        const double *gate = inputs[TRM_DEQUANT_MATMUL_X] + i / k * 2 * k + i % k;
        rows[i] = kernel_case_round(dtype, meaning_activation(p->activation, gate[0]) * gate[k]);
    }
    multiply(test, &p->product, rows, k, inputs, outputs[0]);
    free(rows);
}

/* What a quantized x is made of. */
typedef enum x_content {
    ANY,    /* numbers that are rounded; kernels may leave them as they are */
    TIGHT,  /* the same, and kernels may not */
    NUMBERS /* of e4m3, times a power of two for every scale: nothing is rounded */
} x_content;

typedef struct form {
    trm_dtype x, weight, scale;
    trm_dequant_matmul_params params;
    bool bias, zero_point;
    double high; /* of the weights' numbers; 0: all that the type has */
    x_content content;
} form;

static int64_t blocks(int64_t size, int32_t block)
{
    return block == 0 ? 1 : (size + block - 1) / block;
}

static const char *const x_names[] = {"", " x static", " x dynamic"};

/* What a kernel may be off by that leaves a quantized x as it is, or makes it of numbers that are rounded otherwise:
 * rounding to e4m3 changes a number by up to 1/16, by 2.6 % in the mean square, and so a sum of k of them; their own is
 * `size`, that of weights, whose scales are at most 1, at most 0.6. */
static double spread_of(const form *f, const trm_dequant_matmul_params *p, int64_t k, double size)
{
    return p->x_quantization != TRM_X_AS_IS && f->content == ANY ? 0.03 * 0.6 * size * sqrt((double)k) : 0.0;
}

/* Numbers of e4m3 times 2^(-5 - scale), the largest of which is 448 for every dynamic scale; the caller frees them. */
static double *make_numbers(const trm_dims *x, const trm_dequant_matmul_params *p)
{
    const int64_t count = trm_dims_count(x), k = x->d[x->n - 1], step = p->block_k > 0 ? p->block_k : k;
    const bool is_static = p->x_quantization == TRM_X_STATIC;
    double *values = malloc((size_t)(count + 1) * sizeof(*values));
    uint64_t seed = 5;
    for (int64_t i = 0; i < count; i++) {
        const int64_t block = i % k / step;
        const double number = kernel_case_round(TRM_F8E4M3, 448.0 * (double)test_random_float(&seed));
        const double unit = is_static ? (double)p->x_scale : ldexp(1.0, (int)(-5 - (i / k + 3 * block) % 7));
        values[i] = (i % k % step == (i / k) % 2 ? 448.0 : number) * unit;
    }
    return values;
}

/* x of a case: what a scale is of has a last column of its own. */
static void add_x(kernel_case *test, trm_dims x, const trm_dequant_matmul_params *p, const form *f, double **values)
{
    kernel_case_input *input = add_input(test, f->x, x, -2.0, 2.0);
    *values = p->x_quantization != TRM_X_AS_IS && f->content == NUMBERS ? make_numbers(&x, p) : NULL;
    input->values = *values;
}

static void dequant_matmul_case(kernel_case_bench *bench, trm_dims x, int64_t n, form f)
{
    const int64_t k = x.d[x.n - 1];
    const bool is_f4 = f.weight == TRM_F4E2M1, packed = f.weight == TRM_U8 || is_f4;
    const double most = packed ? 255.0 : f.weight == TRM_I8 ? 128.0 : 448.0, high = f.high > 0 ? f.high : most;
    const double unit = packed ? 8.0 : high;
    const trm_dtype to = f.params.out == TRM_DTYPE_NONE ? f.x : f.params.out;
    kernel_case test =
        new_case(TRM_LAYER_DEQUANT_MATMUL, "%s to %s weight %s scale %s rows %lld n %lld k %lld blocks %d %d%s%s%s%s",
                 trm_dtype_name(f.x), trm_dtype_name(to), f.weight == TRM_U8 ? "i4" : trm_dtype_name(f.weight),
                 trm_dtype_name(f.scale), (long long)x.d[0], (long long)n, (long long)k, (int)f.params.block_n,
                 (int)f.params.block_k, f.bias ? " bias" : "", f.zero_point ? " zero points" : "",
                 x_names[f.params.x_quantization], f.content == NUMBERS ? " of numbers" : "");
    test.layer.dequant_matmul = f.params;
    test.tolerance = 2.0;
    if (to == TRM_F32 && f.x != TRM_F32) { /* kernels may round the weight to the type of x */
        test.tolerance *= f.x == TRM_BF16 ? 2000.0 : 300.0;
    }
    trm_dims out = x;
    out.d[out.n - 1] = n;
    const trm_dims scale = DIMS(blocks(n, f.params.block_n), blocks(k, f.params.block_k));
    double *values;
    add_x(&test, x, &f.params, &f, &values);
    test.spread = spread_of(&f, &f.params, k, 1.16);
    add_input(&test, packed ? TRM_U8 : f.weight, DIMS(n, packed ? k / 2 : k), packed ? 0.0 : -high, high)->is_f4 =
        is_f4;
    add_input(&test, f.scale, scale, 0.25 / unit, 1.0 / unit);
    if (f.bias || f.zero_point) {
        add_input(&test, f.bias ? f.x : TRM_DTYPE_NONE, DIMS(n), -2.0, 2.0);
    }
    if (f.zero_point) {
        add_input(&test, TRM_U8, scale, 0.0, 16.0);
    }
    add_output(&test, to, out);
    kernel_case_run(bench, &test, meaning_dequant_matmul);
    free(values);
}

/* Blocks of published checkpoints, and odd ones. */
static const int32_t block_sizes[][2] = {{1, 0}, {1, 16}, {1, 32}, {1, 64}, {1, 128}, {128, 128}, {3, 14}};

static void common_forms(kernel_case_bench *bench, trm_dtype x, trm_dtype weight)
{
    static const int64_t rows[] = {1, 2, 3, 4, 7, 8, 9, 16, 33};
    static const int64_t sizes[][2] = {{24, 256}, {130, 512}, {13, 30}, {41, 1000}, {7, 2}, {300, 264}};
    for (int32_t b = 0; b < COUNT(block_sizes); b++) {
        for (int32_t s = 0; s < COUNT(sizes); s++) {
            form f = {x, weight, TRM_BF16, .params = {.block_n = block_sizes[b][0], .block_k = block_sizes[b][1]}};
            f.scale = floats[(b + s) % COUNT(floats)];
            f.bias = s % 2 == 1;
            f.zero_point = weight == TRM_U8 && (b + s) % 2 == 0;
            for (int32_t r = (b + s) % 3; r < COUNT(rows); r += 3) {
                dequant_matmul_case(bench, DIMS(rows[r], sizes[s][1]), sizes[s][0], f);
            }
        }
        form f = {x, weight, TRM_F32,
                  .params = {.block_n = block_sizes[b][0], .block_k = block_sizes[b][1], .out = TRM_F32},
                  .bias = b % 2 == 0};
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
        form f = {x, weight, floats[b % COUNT(floats)], .params = {.block_n = 1, .block_k = blocks_k[b]},
                  .bias = b == 1};
        for (int32_t zeros = 0; zeros < (weight == TRM_U8 ? 2 : 1); zeros++) {
            f.zero_point = zeros == 1;
            dequant_matmul_case(bench, DIMS(rows[b], 4224), 264, f);
            dequant_matmul_case(bench, DIMS(rows[(b + zeros + 1) % 4], 640), 523, f);
            dequant_matmul_case(bench, DIMS(rows[2], 1408), 72, f);
        }
    }
}

/* NVFP4 and MXFP4, of few tiles and of many. */
static void small_floats(kernel_case_bench *bench, trm_dtype x)
{
    static const int64_t rows[] = {1, 7, 16, 33};
    static const int64_t sizes[][2] = {{24, 128}, {264, 4224}, {4237, 384}};
    for (int32_t b = 0; b < 2; b++) {
        for (int32_t s = 0; s < COUNT(sizes); s++) {
            for (int32_t r = 0; r < COUNT(rows); r++) {
                const form f = {x, TRM_F4E2M1, floats[(b + s + r) % COUNT(floats)],
                                .params = {.block_n = 1, .block_k = 16 << b}, .bias = r == 1};
                dequant_matmul_case(bench, DIMS(rows[r], sizes[s][1]), sizes[s][0], f);
            }
        }
    }
}

static bool on_host(const kernel_case_bench *bench)
{
    return trm_device_backend(bench->device) == TRM_BACKEND_HOST;
}

static const trm_dequant_matmul_params quantized_forms[] = {
    /* The fourth limits its scales: some of x is out of their range. */
    {1, 0, TRM_DTYPE_NONE, TRM_X_DYNAMIC, 0.0f},       {1, 0, TRM_DTYPE_NONE, TRM_X_STATIC, 0.03125f},
    {128, 128, TRM_DTYPE_NONE, TRM_X_DYNAMIC, 0.0f},   {1, 0, TRM_DTYPE_NONE, TRM_X_DYNAMIC, 0.004f},
    {128, 128, TRM_DTYPE_NONE, TRM_X_STATIC, 0.0625f}, {1, 0, TRM_F32, TRM_X_DYNAMIC, 0.0f},
};

/* A quantized x, of sizes that the library's products of e4m3 take, and of others. */
static void quantized_rows(kernel_case_bench *bench, trm_dtype type, x_content content)
{
    static const int64_t rows[] = {1, 3, 16, 17, 18, 19, 20, 33, 64, 130};
    static const int64_t sizes[][2] = {{48, 64}, {272, 384}, {160, 1040}, {144, 4224}, {21, 100}};
    for (int32_t i = 0; i < COUNT(quantized_forms); i++) {
        for (int32_t s = 0; s < COUNT(sizes) && (content != NUMBERS || i != 3); s++) {
            form f = {type, TRM_F8E4M3, TRM_F32, quantized_forms[i], (i + s) % 3 == 1, false, 0.0, content};
            for (int32_t r = (i + s) % 3; r < COUNT(rows); r += 3) {
                dequant_matmul_case(bench, DIMS(rows[r], sizes[s][1]), sizes[s][0], f);
            }
            if (s == 0) {
                f.scale = TRM_BF16;
                dequant_matmul_case(bench, DIMS(20, 64), 48, f);
            }
        }
    }
}

/* x of integers, which no kernel of CUDA rounds or clips; so a static scale clips on the host alone. */
static void integer_rows(kernel_case_bench *bench, trm_dtype type)
{
    const trm_dequant_matmul_params forms[] = {
        {1, 0, TRM_DTYPE_NONE, TRM_X_DYNAMIC, 0.0f},
        {1, 0, TRM_DTYPE_NONE, TRM_X_STATIC, on_host(bench) ? 0.0125f : 0.03125f},
        {1, 16, TRM_F32, TRM_X_DYNAMIC, 0.0f},
    };
    static const int64_t rows[] = {1, 3, 20, 33};
    static const int64_t sizes[][2] = {{48, 64}, {272, 384}, {21, 100}};
    for (int32_t i = 0; i < COUNT(forms); i++) {
        for (int32_t s = 0; s < COUNT(sizes); s++) {
            for (int32_t r = 0; r < COUNT(rows); r++) {
                const form f = {type, TRM_I8, TRM_F32, forms[i], r == 1, false, 0.0, on_host(bench) ? TIGHT : ANY};
                dequant_matmul_case(bench, DIMS(rows[r], sizes[s][1]), sizes[s][0], f);
            }
        }
    }
}

/* As quantize_rows, but only what the library takes, in sizes of models, too. */
void kernel_cases_dequant_quantized(kernel_case_bench *bench)
{
    static const trm_dtype types[] = {TRM_BF16, TRM_F16};
    static const int64_t rows[] = {4, 5, 17, 18, 19, 20, 64, 127, 131};
    static const int64_t sizes[][2] = {{16, 16},    {48, 64},     {128, 128},   {272, 384},
                                       {160, 1040}, {1024, 4096}, {256, 14336}, {6144, 512}};
    for (int32_t t = 0; t < COUNT(types); t++) {
        for (int32_t i = 0; i < COUNT(quantized_forms); i++) {
            for (int32_t s = 0; s < COUNT(sizes) - (on_host(bench) ? 3 : 0); s++) {
                for (int32_t r = (t + i + s) % 3; r < COUNT(rows); r += 3) {
                    form f = {types[t],
                              TRM_F8E4M3,
                              TRM_F32,
                              quantized_forms[i],
                              (i + s + r) % 4 == 1,
                              false,
                              0.0,
                              r % 2 == 0 || i == 3 ? TIGHT : NUMBERS};
                    f.bias = f.bias && !(types[t] == TRM_F16 && f.params.out == TRM_F32); /* that has none there */
                    dequant_matmul_case(bench, DIMS(rows[r], sizes[s][1]), sizes[s][0], f);
                }
            }
        }
    }
}

/* ---- with a norm or a GLU before the product ---------------------------------------------------- */

/* Inputs of the product behind x. */
static void add_weights(kernel_case *test, const trm_dequant_matmul_params *p, trm_dtype type, int64_t n, int64_t k,
                        bool bias)
{
    add_input(test, TRM_F8E4M3, DIMS(n, k), -448.0, 448.0);
    add_input(test, TRM_F32, DIMS(blocks(n, p->block_n), blocks(k, p->block_k)), 0.25 / 448.0, 1.0 / 448.0);
    add_input(test, bias ? type : TRM_DTYPE_NONE, DIMS(n), -2.0, 2.0);
}

static void fused_case(kernel_case_bench *bench, trm_layer_kind kind, const form *f, trm_dims x, int64_t n,
                       bool residual)
{
    const trm_dequant_matmul_params *p = &f->params;
    const bool norm = kind == TRM_LAYER_NORM_DEQUANT_MATMUL;
    const int64_t k = x.d[x.n - 1] / (norm ? 1 : 2);
    const trm_dtype to = p->out == TRM_DTYPE_NONE ? f->x : p->out;
    kernel_case test =
        new_case(kind, "%s to %s rows %lld n %lld k %lld blocks %d %d%s%s%s", trm_dtype_name(f->x), trm_dtype_name(to),
                 (long long)x.d[0], (long long)n, (long long)k, (int)p->block_n, (int)p->block_k,
                 f->bias ? " bias" : "", x_names[p->x_quantization], residual ? " residual" : "");
    trm_dims out = x;
    out.d[out.n - 1] = n;
    test.tolerance = to == TRM_F32 && f->x != TRM_F32 ? 4000.0 : 3.0;
    test.spread = spread_of(f, p, k, norm ? 1.4 : 0.8);
    add_input(&test, f->x, x, -2.0, 2.0);
    add_weights(&test, p, f->x, n, k, f->bias);
    if (norm) {
        test.layer.norm_dequant_matmul = (trm_norm_dequant_matmul_params){*p, residual, 1e-5f, 0.0f};
        add_input(&test, TRM_DTYPE_NONE, SCALAR, 0.0, 0.0);
        add_input(&test, f->x, DIMS(k), 0.5, 1.5);
        if (residual) {
            add_input(&test, f->x, x, -2.0, 2.0);
        }
    } else {
        test.layer.glu_dequant_matmul = (trm_glu_dequant_matmul_params){*p, TRM_ACTIVATION_SILU};
    }
    add_output(&test, to, out);
    if (residual) {
        add_output(&test, f->x, x);
    }
    kernel_case_run(bench, &test, norm ? meaning_norm_dequant_matmul : meaning_glu_dequant_matmul);
}

/* Rows that are quantized with the norm or the GLU, and rows for which that is not done. */
void kernel_cases_fused_dequant_matmul(kernel_case_bench *bench)
{
    static const int64_t rows[] = {1, 7, 17, 19, 20, 66};
    static const int64_t sizes[][2] = {{48, 9216}, {80, 16640}, {48, 64}, {272, 384}, {160, 2064}, {21, 100}};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        for (int32_t i = 0; i < COUNT(quantized_forms); i++) {
            for (int32_t s = on_host(bench) ? 2 : 0; s < COUNT(sizes) && i != 3; s++) {
                for (int32_t r = (t + i + s) % 2; r < COUNT(rows); r += 2) {
                    const form f = {floats[t],        TRM_F8E4M3, TRM_F32, quantized_forms[i],
                                    (s + r) % 3 == 0, false,      0.0,     ANY};
                    fused_case(bench, TRM_LAYER_NORM_DEQUANT_MATMUL, &f, DIMS(rows[r], sizes[s][1]), sizes[s][0],
                               (i + s) % 2 == 0);
                    fused_case(bench, TRM_LAYER_GLU_DEQUANT_MATMUL, &f, DIMS(rows[r], 2 * sizes[s][1]), sizes[s][0],
                               false);
                }
            }
        }
        const form f = {floats[t], TRM_F8E4M3, TRM_F32, quantized_forms[0], true, false, 0.0, ANY};
        fused_case(bench, TRM_LAYER_NORM_DEQUANT_MATMUL, &f, DIMS(0, 64), 48, true);
        fused_case(bench, TRM_LAYER_GLU_DEQUANT_MATMUL, &f, DIMS(2, 9, 128), 48, false);
    }
}

void kernel_cases_dequant_matmul(kernel_case_bench *bench)
{
    static const int64_t tens[] = {17, 33, 64, 10};
    static const trm_dtype weights[] = {TRM_F8E4M3, TRM_I8, TRM_U8, TRM_F4E2M1};
    for (int32_t w = 0; w < COUNT(weights); w++) {
        for (int32_t t = 0; t < COUNT(floats); t++) {
            common_forms(bench, floats[t], weights[w]);
            if (floats[t] != TRM_F32) {
                long_sums(bench, floats[t], weights[w], tens);
            }
        }
        /* Columns that no number of bytes or lanes divides. */
        if (weights[w] == TRM_F8E4M3 || weights[w] == TRM_I8) {
            const form odd = {TRM_BF16, weights[w], TRM_F32, .params = {.block_n = 1, .block_k = 7}, .bias = true};
            dequant_matmul_case(bench, DIMS(1, 1001), 5, odd);
            dequant_matmul_case(bench, DIMS(11, 1001), 5, odd);
        }
        for (int32_t t = 0; weights[w] == TRM_F8E4M3 && t < COUNT(floats); t++) {
            quantized_rows(bench, floats[t], ANY);
            quantized_rows(bench, floats[t], NUMBERS);
            integer_rows(bench, floats[t]);
        }
        if (weights[w] == TRM_F8E4M3) { /* many without a leading bit, many zeros */
            const form small = {TRM_BF16, weights[w], TRM_F32, .params = {.block_n = 1}, .high = 0.03};
            dequant_matmul_case(bench, DIMS(3, 320), 40, small);
            dequant_matmul_case(bench, DIMS(3, 310), 40, small);
        }
        const form large = {TRM_BF16, weights[w], TRM_BF16, .params = {.block_n = 1, .block_k = 128}};
        dequant_matmul_case(bench, DIMS(1, 4096), 1030, large);
        dequant_matmul_case(bench, DIMS(20, 4096), 264, large);
    }
}

/* Weights with enough rows, and rows long enough, that kernels for few rows of x take another form. */
static void large_weights(kernel_case_bench *bench, trm_dtype x)
{
    static const int32_t blocks_k[] = {0, 32, 128};
    static const int64_t rows[] = {1, 8, 11};
    for (int32_t b = 0; b < COUNT(blocks_k); b++) {
        for (int32_t r = 0; r < COUNT(rows); r++) {
            form f = {x, TRM_U8, floats[(b + r) % COUNT(floats)], .params = {.block_n = 1, .block_k = blocks_k[b]},
                      .bias = r == 1};
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
        const form f = {x, i % 2 == 0 ? TRM_F8E4M3 : TRM_I8, TRM_F32, .params = {.block_n = 1, .block_k = i / 2 * 128},
                        .bias = i == 1};
        dequant_matmul_case(bench, DIMS(1, 7168), 51, f);
        dequant_matmul_case(bench, DIMS(1, 256), 6001, f);
    }
}

/* More tiles than a GPU works on at a time, in rows of x or of the weight. */
static void many_tiles(kernel_case_bench *bench, trm_dtype weight, int32_t which)
{
    static const int64_t sizes[][3] = {{20, 33801, 256}, {100, 17000, 128}, {600, 3001, 256}, {2500, 1104, 128}};
    static const int32_t blocks_k[] = {128, 64, 0};
    for (int32_t i = 0; i < COUNT(sizes); i++) {
        form f = {TRM_BF16, weight, floats[(which + i) % COUNT(floats)],
                  .params = {.block_n = 1, .block_k = blocks_k[(which + i) % COUNT(blocks_k)]}, .bias = i == 1};
        f.zero_point = weight == TRM_U8 && i % 2 == 1;
        f.params.out = i == 0 ? TRM_F32 : TRM_DTYPE_NONE;
        dequant_matmul_case(bench, DIMS(sizes[i][0], sizes[i][2]), sizes[i][1], f);
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
        many_tiles(bench, weights[w], w);
        many_tiles(bench, weights[w], w + 1);
    }
    for (int32_t i = 0; i < COUNT(types); i++) {
        large_weights(bench, types[i]);
        small_floats(bench, types[i]);
    }
}
