/* Cases and meaning of norms over the last axis. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cases/cases.h"
#include "kernels/cases/support.h"

static void meaning_norm(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_norm_params *p = &test->layer.norm;
    const trm_dims *out = &test->outputs[0].dims;
    const int64_t n = out->d[out->n - 1], count = count_of_output(test);
    const int32_t weight = p->residual ? 2 : 1;
    const double *bias = test->n_inputs > weight + 1 ? inputs[weight + 1] : NULL;
    const double *x = inputs[0];
    if (p->residual) {
        for (int64_t i = 0; i < count; i++) {
            outputs[1][i] = kernel_case_round(test->outputs[1].dtype, inputs[0][i] + inputs[1][i]);
        }
        x = outputs[1];
    }
    for (int64_t row = 0; row < count; row += n) {
        double mean = 0.0, square = 0.0;
        for (int64_t i = 0; i < n && p->op == TRM_NORM_LAYER; i++) {
            mean += x[row + i] / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            square += (x[row + i] - mean) * (x[row + i] - mean) / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            const bool weighted = test->n_inputs > weight && inputs[weight] != NULL;
            const double w = weighted ? inputs[weight][i] + (double)p->weight_offset : 1.0;
            outputs[0][row + i] =
                (x[row + i] - mean) / sqrt(square + (double)p->eps) * w + (bias != NULL ? bias[i] : 0.0);
        }
    }
}

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

static void meaning_norm_quantize(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const int32_t last = test->n_outputs - 1;
    meaning_norm(test, inputs, outputs); /* the layer begins with the norm's parameters */
    for (int64_t i = 0; i < count_of_output(test); i++) {
        const double y = kernel_case_round(test->outputs[0].dtype, outputs[0][i]);
        outputs[last][i] = fmin(fmax(nearbyint(y / (double)test->layer.norm_quantize.scale), -128.0), 127.0);
    }
}

/* As many of 1 as of -1 in a row, by halves with a residual, and a weight and a bias of eighths: nothing lies near the
 * middle of two multiples of these scales. */
static void norm_quantize_case(kernel_case_bench *bench, trm_dtype dtype, trm_norm_op op, bool residual, bool bias,
                               int64_t rows, int64_t width, float scale)
{
    kernel_case test = new_case(TRM_LAYER_NORM_QUANTIZE, "%s%s%s %s, %lld rows of %lld, scale %g",
                                op == TRM_NORM_RMS ? "rms" : "layer", residual ? " residual" : "", bias ? " bias" : "",
                                trm_dtype_name(dtype), (long long)rows, (long long)width, (double)scale);
    double *x = malloc((size_t)(rows * width) * sizeof(*x)), *terms = malloc((size_t)(2 * width) * sizeof(*terms));
    assert_non_null(x);
    assert_non_null(terms);
    test.layer.norm_quantize = (trm_norm_quantize_params){{.op = op, .residual = residual, .eps = 1e-6f}, scale};
    for (int64_t i = 0; i < rows * width; i++) {
        x[i] = ((i / width * 5 + i % width) % 2 == 0 ? 1.0 : -1.0) * (residual ? 0.5 : 1.0);
    }
    for (int64_t i = 0; i < 2 * width; i++) {
        terms[i] = (double)(i * 7 % 17 - 8) / (i < width ? 4.0 : 8.0);
    }
    add_input(&test, dtype, DIMS(rows, width), 0.0, 0.0)->values = x;
    if (residual) {
        add_input(&test, dtype, DIMS(rows, width), 0.0, 0.0)->values = x;
    }
    add_input(&test, dtype, DIMS(width), 0.0, 0.0)->values = terms;
    if (bias) {
        add_input(&test, dtype, DIMS(width), 0.0, 0.0)->values = terms + width;
    }
    for (int32_t i = 0; i < (residual ? 2 : 1); i++) {
        add_output(&test, dtype, DIMS(rows, width));
    }
    add_output(&test, TRM_I8, DIMS(rows, width));
    kernel_case_run(bench, &test, meaning_norm_quantize);
    free(x);
    free(terms);
}

static void norm_quantize_cases(kernel_case_bench *bench)
{
    static const int64_t widths[] = {2, 64, 78, 768, 1000, 4100, 9000};
    for (int32_t t = 0; t < COUNT(floats); t++) {
        for (int32_t w = 0; w < COUNT(widths); w++) {
            norm_quantize_case(bench, floats[t], TRM_NORM_LAYER, true, true, 5, widths[w], 0.29f);
            norm_quantize_case(bench, floats[t], TRM_NORM_RMS, false, false, 3, widths[w], 0.013f);
        }
        norm_quantize_case(bench, floats[t], TRM_NORM_LAYER, false, true, 0, 64, 0.29f);
    }
}

void kernel_cases_norm(kernel_case_bench *bench)
{
    norm_quantize_cases(bench);
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
