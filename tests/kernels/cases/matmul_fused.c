/* Cases and meanings of products with a GLU behind them or a norm before them: MATMUL_GLU, NORM_MATMUL. */
#include <math.h>

#include "kernels/cases/cases.h"
#include "kernels/cases/support.h"
#include "support/support.h"

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

/* Rounded are the sum and what a GLU takes, nothing else. */
static void meaning_norm_matmul(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_norm_matmul_params *p = &test->layer.norm_matmul;
    const trm_dtype dtype = test->inputs[0].dtype;
    const int64_t k = test->inputs[1].dims.d[1], n = test->outputs[0].dims.d[test->outputs[0].dims.n - 1];
    const double *bias = inputs[TRM_NORM_MATMUL_BIAS], *norm = inputs[TRM_NORM_MATMUL_NORM_WEIGHT];
    for (int64_t i = 0; p->residual && i < trm_dims_count(&test->outputs[1].dims); i++) {
        outputs[1][i] = kernel_case_round(dtype, inputs[0][i] + inputs[TRM_NORM_MATMUL_RESIDUAL][i]);
    }
    for (int64_t i = 0; i < trm_dims_count(&test->outputs[0].dims); i++) {
        const double *x = (p->residual ? outputs[1] : inputs[0]) + i / n * k;
        double sums[2] = {0.0, 0.0}, square = 0.0;
        for (int64_t j = 0; j < k; j++) {
            const double factor = norm != NULL ? norm[j] + (double)p->weight_offset : 1.0;
            sums[0] += x[j] * factor * inputs[1][i % n * k + j];
            sums[1] += p->gated ? x[j] * factor * inputs[1][(n + i % n) * k + j] : 0.0;
            square += x[j] * x[j];
        }
        const double scale = 1.0 / sqrt(square / (double)k + (double)p->eps);
        const double y = scale * sums[0] + (bias != NULL ? bias[i % n] : 0.0);
        outputs[0][i] = p->gated ? meaning_activation(p->activation, kernel_case_round(dtype, y)) *
                                       kernel_case_round(dtype, scale * sums[1])
                                 : meaning_activation(p->activation, y);
    }
}

typedef struct form {
    trm_norm_matmul_params params;
    bool bias, norm_weight;
} form;

/* What is normalized may be rounded to its type, which moves a sum by about a unit roundoff of its size: 0.72 *
 * sqrt(k), as weights have a mean square of 1/3, the norm's of 1.55. A few results may all be far smaller: gates are
 * negative, or what they open is small. */
static double rounded_sum_spread(trm_dtype dtype, int64_t k, bool gated)
{
    const double size = 0.72 * sqrt((double)k), roundoff = dtype == TRM_F16    ? 0x1p-11
                                                           : dtype == TRM_BF16 ? 0x1p-8
                                                           : dtype == TRM_F32  ? 0x1p-24
                                                                               : 0x1p-53;
    return roundoff * size * (gated ? size : 1.0);
}

static void norm_matmul_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, int64_t n, form f)
{
    const int64_t k = x.d[x.n - 1];
    const trm_dtype to = f.params.out == TRM_DTYPE_NONE ? dtype : f.params.out;
    trm_dims out = x;
    out.d[out.n - 1] = n;
    kernel_case test = new_case(TRM_LAYER_NORM_MATMUL, "%s to %s rows %lld n %lld k %lld%s%s%s%s activation %d",
                                trm_dtype_name(dtype), trm_dtype_name(to), (long long)x.d[0], (long long)n,
                                (long long)k, f.params.residual ? " residual" : "", f.params.gated ? " gated" : "",
                                f.bias ? " bias" : "", f.norm_weight ? " norm weight" : "", (int)f.params.activation);
    test.layer.norm_matmul = f.params;
    test.tolerance = 3.0; /* what is normalized may be rounded, or not */
    if (f.params.activation != TRM_ACTIVATION_NONE) {
        test.tolerance = 2.0;
        test.spread = rounded_sum_spread(dtype, k, f.params.gated);
    }
    if (to != dtype) {
        test.tolerance *= dtype == TRM_BF16 ? 2000.0 : 300.0; /* of the output's type, but the input's roundings */
    }
    add_input(&test, dtype, x, -2.0, 2.0);
    add_input(&test, dtype, DIMS(f.params.gated ? 2 * n : n, k), -1.0, 1.0);
    add_input(&test, f.bias ? dtype : TRM_DTYPE_NONE, DIMS(n), -2.0, 2.0);
    add_input(&test, f.norm_weight ? dtype : TRM_DTYPE_NONE, DIMS(k), 0.25, 2.0);
    if (f.params.residual) {
        add_input(&test, dtype, x, -4.0, 4.0);
    }
    add_output(&test, to, out);
    if (f.params.residual) {
        add_output(&test, dtype, x);
    }
    kernel_case_run(bench, &test, meaning_norm_matmul);
}

void kernel_cases_norm_matmul(kernel_case_bench *bench)
{
    const form forms[] = {
        {{.eps = 1e-5f}, false, true},
        {{.eps = 1e-5f}, false, false},
        {{.eps = 1e-5f, .residual = true}, false, true},
        {{.eps = 1e-5f, .residual = true}, true, false},
        {{.eps = 1e-2f, .weight_offset = 1.0f}, true, true},
        {{.eps = 1e-5f, .gated = true, .activation = TRM_ACTIVATION_SILU}, false, true},
        {{.eps = 1e-5f, .gated = true, .residual = true, .activation = TRM_ACTIVATION_GELU_TANH}, false, true},
        {{.eps = 1e-5f, .residual = true, .activation = TRM_ACTIVATION_GELU_TANH}, true, true},
    };
    const int64_t many =
        trm_device_backend(bench->device) == TRM_BACKEND_HOST ? 1001 : 9001; /* for every block of a GPU */
    const int64_t rows[] = {1, 2, 3, 9}, sizes[][2] = {{24, 64}, {13, 4104}, {7, 30}, {41, 1000}, {many, 2056}};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        for (int32_t i = 0; i < COUNT(forms); i++) {
            if (test_is_brief() && i % COUNT(floats) != t) {
                continue; /* each form in one type */
            }
            for (int32_t s = 0; s < COUNT(sizes); s++) {
                for (int32_t r = 0; r < (sizes[s][0] > 1000 ? 1 : COUNT(rows)); r++) {
                    if (test_is_brief() && (s > 2 || r % 2 != 0 || (s == 1 && r > 0))) {
                        continue;
                    }
                    norm_matmul_case(bench, floats[t], DIMS(rows[r], sizes[s][1]), sizes[s][0], forms[i]);
                }
            }
            form wide = forms[i];
            wide.params.out = wide.params.gated ? TRM_DTYPE_NONE : TRM_F32;
            norm_matmul_case(bench, floats[t], DIMS(1, 264), 51, wide);
            norm_matmul_case(bench, floats[t], DIMS(6, 264), 51, wide);
            norm_matmul_case(bench, floats[t], DIMS(2, 3, 72), 9, forms[i]);
            norm_matmul_case(bench, floats[t], DIMS(0, 72), 9, forms[i]);
            norm_matmul_case(bench, floats[t], DIMS(1, 72), 0, forms[i]);
        }
    }
    norm_matmul_case(bench, TRM_F64, DIMS(3, 40), 5, forms[2]);
}
