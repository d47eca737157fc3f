/*
 * Cases of INT8_PRODUCT. Scales are powers of two and biases multiples of 1/8, so that nothing is rounded but to i8,
 * and ties are ties everywhere.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cases/support.h"
#include "kernels/cases/cases.h"

static double to_i8(double v)
{
    return fmin(fmax(nearbyint(v), -128.0), 127.0);
}

/* What a sum becomes, for element i of the output, in channel m. */
static double finish(const kernel_case *test, double *const *inputs, int64_t m, int64_t i, double sum)
{
    const trm_int8_product_params *p = &test->layer.int8_product;
    const double *bias = inputs[TRM_INT8_PRODUCT_BIAS], *residual = inputs[TRM_INT8_PRODUCT_RESIDUAL];
    const bool one = trm_dims_count(&test->inputs[TRM_INT8_PRODUCT_SCALE].dims) == 1;
    double v = sum * inputs[TRM_INT8_PRODUCT_SCALE][one ? 0 : m] + (bias != NULL ? bias[m] : 0.0);
    if (p->product_scale > 0.0f) {
        v = to_i8(v / (double)p->product_scale) * (double)p->product_scale;
    }
    if (residual != NULL) {
        const bool whole = test->inputs[TRM_INT8_PRODUCT_RESIDUAL].dtype == TRM_I8;
        v += residual[i] * (whole ? (double)p->residual_scale : 1.0);
    }
    v = meaning_activation(p->activation, v);
    return p->out == TRM_I8 ? to_i8(v / (double)p->out_scale) : v;
}

/* Outputs one after another; of each, taps one after another. */
TEST_UNCHECKED static void meaning_int8_product(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_int8_product_params *p = &test->layer.int8_product;
    const trm_dims *x = &test->inputs[TRM_INT8_PRODUCT_X].dims, *y = &test->outputs[0].dims;
    const trm_dims *w = &test->inputs[TRM_INT8_PRODUCT_WEIGHT].dims;
    const int64_t channels = w->d[w->n - 1], size = trm_dims_count(w) / w->d[0];
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        place at = place_of(y, i);
        int64_t m = at.i[y->n - 1];
        if (p->parts > 0) {
            m += at.i[0] * y->d[y->n - 1];
            memmove(at.i, at.i + 1, (size_t)x->n * sizeof(at.i[0]));
        }
        double sum = 0.0;
        for (int64_t k = 0; k < size; k++) {
            const place tap = place_of(w, m * size + k);
            place from = at;
            bool inside = true;
            for (int32_t axis = 0; axis < w->n - 2; axis++) {
                from.i[1 + axis] =
                    at.i[1 + axis] * p->stride[axis] - p->before[axis] + tap.i[1 + axis] * p->dilation[axis];
                inside = inside && from.i[1 + axis] >= 0 && from.i[1 + axis] < x->d[1 + axis];
            }
            from.i[x->n - 1] = k % channels;
            sum += inside ? inputs[0][index_of(x, from.i)] * inputs[1][m * size + k] : 0.0;
        }
        outputs[0][i] = finish(test, inputs, m, i, sum);
    }
}

/* Powers of two from 2^first on, or multiples of 1/8 around 0; the caller frees them. */
static double *make_values(int64_t n, int first, bool powers)
{
    uint64_t random = test_seed() + (uint64_t)n;
    double *values = malloc((size_t)(n + 1) * sizeof(*values));
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++) {
        values[i] = powers ? ldexp(1.0, first + (int)test_random_below(&random, 3))
                           : (double)test_random_below(&random, 161) / 8.0 - 10.0;
    }
    return values;
}

typedef struct int8_case {
    trm_dims x, w;
    int32_t stride, dilation, before, after;
    trm_dtype out, residual; /* NONE: no residual */
    trm_activation activation;
    bool no_bias, one_scale, rounds;
    int32_t parts;
} int8_case;

static void int8_product_case(kernel_case_bench *bench, const int8_case *c)
{
    const bool product = c->w.n == 2;
    kernel_case test =
        new_case(TRM_LAYER_INT8_PRODUCT, "%s%s%s%s%s %lld x %lld of %lld -> %lld, stride %d dilation %d",
                 trm_dtype_name(c->out), c->residual != TRM_DTYPE_NONE ? " residual " : "",
                 c->residual != TRM_DTYPE_NONE ? trm_dtype_name(c->residual) : "", c->rounds ? " rounded before" : "",
                 product ? "" : " convolution", (long long)c->x.d[0], (long long)c->x.d[c->x.n - 2],
                 (long long)c->x.d[c->x.n - 1], (long long)c->w.d[0], (int)c->stride, (int)c->dilation);
    const int64_t k = trm_dims_count(&c->w) / c->w.d[0];
    trm_int8_product_params *p = &test.layer.int8_product;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        p->stride[i] = product ? 1 : c->stride;
        p->dilation[i] = product ? 1 : c->dilation;
        p->before[i] = i == 1 && c->before > 0 ? c->before - 1 : c->before;
        p->after[i] = c->after;
    }
    p->activation = c->activation;
    p->parts = c->parts;
    p->out = c->out;
    p->out_scale = c->out == TRM_I8 ? 0.5f : 0.0f;
    p->product_scale = c->rounds ? 0.25f : 0.0f;
    p->residual_scale = c->residual == TRM_I8 ? 0.125f : 0.0f;
    test.tolerance = 2.0;
    trm_dims out = c->x;
    out.d[out.n - 1] = c->w.d[0];
    for (int32_t i = 0; i < c->w.n - 2; i++) {
        out.d[1 + i] =
            (c->x.d[1 + i] + p->before[i] + p->after[i] - c->dilation * (c->w.d[1 + i] - 1) - 1) / c->stride + 1;
    }
    /* Sums of k products of numbers up to 100 are 3300 sqrt(k) in the root mean square; outputs shall be about 30. */
    const int first = -7 - (int)(log2((double)(k > 0 ? k : 1)) / 2.0);
    const int64_t n_scales = c->one_scale ? 1 : c->w.d[0];
    double *scales = make_values(n_scales, first, true), *biases = make_values(c->w.d[0], 0, false), *added = NULL;
    add_data(&test, TRM_I8, c->x);
    add_data(&test, TRM_I8, c->w);
    add_input(&test, TRM_F32, DIMS(n_scales), 0.0, 0.0)->values = scales;
    if (!c->no_bias) {
        add_input(&test, TRM_F32, DIMS(c->w.d[0]), 0.0, 0.0)->values = biases;
    } else if (c->residual != TRM_DTYPE_NONE) {
        test.inputs[test.n_inputs++] = (kernel_case_input){.dtype = TRM_DTYPE_NONE};
    }
    if (c->residual == TRM_I8) {
        add_data(&test, TRM_I8, out);
    } else if (c->residual != TRM_DTYPE_NONE) {
        added = make_values(trm_dims_count(&out), 0, false);
        add_input(&test, c->residual, out, 0.0, 0.0)->values = added;
    }
    if (c->parts > 0) {
        memmove(out.d + 1, out.d, (size_t)out.n * sizeof(out.d[0]));
        out.d[0] = c->parts;
        out.d[out.n++] /= c->parts;
    }
    add_output(&test, c->out, out);
    kernel_case_run(bench, &test, meaning_int8_product);
    free(scales);
    free(biases);
    free(added);
}

void kernel_cases_int8_product(kernel_case_bench *bench)
{
    static const int8_case cases[] = {
        /* products */
        {DIMS(1, 16), DIMS(8, 16), .out = TRM_I8},
        {DIMS(3, 5), DIMS(7, 5), .out = TRM_F32, .no_bias = true},
        {DIMS(130, 768), DIMS(200, 768), .out = TRM_I8, .activation = TRM_ACTIVATION_RELU},
        {DIMS(2, 65, 768), DIMS(132, 768), .out = TRM_F16, .residual = TRM_F16},
        {DIMS(257, 1024), DIMS(260, 1024), .out = TRM_BF16, .activation = TRM_ACTIVATION_GELU, .one_scale = true},
        {DIMS(64, 208), DIMS(33, 208), .out = TRM_F32, .activation = TRM_ACTIVATION_SILU},
        {DIMS(70, 96), DIMS(66, 96), .out = TRM_I8, .residual = TRM_I8, .rounds = true,
         .activation = TRM_ACTIVATION_RELU},
        {DIMS(33, 3072), DIMS(64, 3072), .out = TRM_I8, .residual = TRM_BF16, .no_bias = true},
        {DIMS(0, 32), DIMS(8, 32), .out = TRM_I8},
        /* each residual and activation in columns by 32, more tiles than blocks, a long k, columns of no group */
        {DIMS(67, 64), DIMS(96, 64), .out = TRM_F32, .residual = TRM_F32, .activation = TRM_ACTIVATION_TANH},
        {DIMS(67, 64), DIMS(160, 64), .out = TRM_F16, .residual = TRM_BF16, .activation = TRM_ACTIVATION_GELU_TANH},
        {DIMS(67, 80), DIMS(192, 80), .out = TRM_BF16, .residual = TRM_I8, .activation = TRM_ACTIVATION_SIGMOID},
        {DIMS(67, 144), DIMS(288, 144), .out = TRM_F16, .residual = TRM_F16, .activation = TRM_ACTIVATION_GELU,
         .rounds = true},
        {DIMS(52001, 16), DIMS(64, 16), .out = TRM_I8, .residual = TRM_I8, .activation = TRM_ACTIVATION_RELU},
        {DIMS(2001, 32), DIMS(128, 32), .out = TRM_F16, .no_bias = true, .one_scale = true},
        {DIMS(49, 4608), DIMS(96, 4608), .out = TRM_I8, .residual = TRM_I8, .activation = TRM_ACTIVATION_RELU},
        {DIMS(65, 1168), DIMS(100, 1168), .out = TRM_I8, .residual = TRM_I8},
        {DIMS(67, 208), DIMS(192, 208), .out = TRM_F16, .residual = TRM_I8, .activation = TRM_ACTIVATION_RELU},
        {DIMS(130, 64), DIMS(64, 64), .out = TRM_F32, .residual = TRM_I8},
        {DIMS(200, 1024), DIMS(160, 1024), .out = TRM_BF16, .activation = TRM_ACTIVATION_RELU, .no_bias = true},
        /* in parts: of whole groups of columns, of eights, of any */
        {DIMS(3, 43, 64), DIMS(192, 64), .out = TRM_F16, .parts = 3},
        {DIMS(129, 768), DIMS(288, 768), .out = TRM_I8, .activation = TRM_ACTIVATION_RELU, .parts = 4},
        {DIMS(70, 48), DIMS(30, 48), .out = TRM_F32, .no_bias = true, .parts = 2},
        {DIMS(2, 0), DIMS(8, 0), .out = TRM_I8},
        /* convolutions: of one position, with borders, strides, gaps, more channels than a stage has, few channels */
        {DIMS(2, 9, 11, 64), DIMS(96, 1, 1, 64), .stride = 1, .dilation = 1, .before = 0, .after = 0, .out = TRM_I8,
         .residual = TRM_I8, .activation = TRM_ACTIVATION_RELU},
        {DIMS(2, 9, 11, 64), DIMS(40, 3, 3, 64), .stride = 1, .dilation = 1, .before = 1, .after = 1, .out = TRM_I8,
         .activation = TRM_ACTIVATION_RELU},
        {DIMS(1, 28, 29, 128), DIMS(128, 3, 3, 128), .stride = 2, .dilation = 1, .before = 1, .after = 1, .out = TRM_I8,
         .residual = TRM_I8, .activation = TRM_ACTIVATION_RELU, .rounds = true},
        {DIMS(3, 13, 15, 32), DIMS(64, 1, 1, 32), .stride = 2, .dilation = 1, .before = 0, .after = 0, .out = TRM_F16,
         .residual = TRM_F16},
        {DIMS(1, 14, 17, 192), DIMS(24, 5, 3, 192), .stride = 1, .dilation = 2, .before = 3, .after = 2, .out = TRM_F32,
         .residual = TRM_F32, .activation = TRM_ACTIVATION_SIGMOID},
        {DIMS(3, 7, 7, 256), DIMS(260, 3, 3, 256), .stride = 1, .dilation = 1, .before = 1, .after = 1, .out = TRM_I8,
         .activation = TRM_ACTIVATION_RELU, .one_scale = true},
        {DIMS(2, 41, 37, 3), DIMS(32, 7, 7, 3), .stride = 2, .dilation = 1, .before = 3, .after = 3, .out = TRM_I8,
         .activation = TRM_ACTIVATION_RELU},
        {DIMS(1, 20, 22, 4), DIMS(16, 4, 5, 4), .stride = 2, .dilation = 1, .before = 0, .after = 1, .out = TRM_F32,
         .no_bias = true},
        {DIMS(2, 12, 9, 1), DIMS(20, 3, 3, 1), .stride = 2, .dilation = 1, .before = 1, .after = 1, .out = TRM_BF16,
         .residual = TRM_I8},
        {DIMS(1, 8, 9, 3), DIMS(5, 3, 3, 3), .stride = 1, .dilation = 1, .before = 1, .after = 1, .out = TRM_I8,
         .activation = TRM_ACTIVATION_RELU},
        {DIMS(2, 33, 48), DIMS(24, 5, 48), .stride = 2, .dilation = 1, .before = 2, .after = 2, .out = TRM_I8,
         .activation = TRM_ACTIVATION_RELU},
        {DIMS(1, 5, 6, 7, 16), DIMS(8, 3, 2, 3, 16), .stride = 1, .dilation = 1, .before = 1, .after = 1, .out = TRM_I8,
         .activation = TRM_ACTIVATION_RELU},
    };
    for (int32_t i = 0; i < COUNT(cases); i++) {
        int8_product_case(bench, &cases[i]);
    }
}
