/* Cases and meanings of windows that slide over images: convolutions and pools. */
#include "kernels/cases/support.h"
#include "kernels/cases/cases.h"

#include "graph/network.h"
#include "kernels/convolution/window.h"
#include "support/support.h"

static const trm_dtype real_types[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64};

/* Outputs as the rule says. */
static void infer_outputs(kernel_case *test)
{
    const trm_dims *dims[TRM_MAX_LAYER_INPUTS] = {NULL};
    trm_dtype types[TRM_MAX_LAYER_INPUTS] = {TRM_DTYPE_NONE}, out_types[TRM_MAX_LAYER_OUTPUTS];
    int64_t whole[TRM_MAX_DIMS];
    const void *values[TRM_MAX_LAYER_INPUTS] = {NULL};
    trm_dims out[TRM_MAX_LAYER_OUTPUTS];
    for (int32_t i = 0; i < test->n_inputs; i++) {
        const kernel_case_input *input = &test->inputs[i];
        types[i] = input->dtype;
        dims[i] = input->dtype == TRM_DTYPE_NONE ? NULL : &input->dims;
        if (input->values != NULL && input->dtype == TRM_I64) {
            for (int32_t j = 0; j < (int32_t)input->dims.d[0]; j++) {
                whole[j] = (int64_t)input->values[j];
            }
            values[i] = whole;
        }
    }
    test->n_outputs = trm_layer_output_count(&test->layer);
    trm_status status =
        trm_infer_layer(&test->layer, test->n_inputs, dims, types, values, test->n_outputs, out, out_types);
    if (status != TRM_OK) {
        fail_msg("%s: %s", test->name, trm_last_error());
    }
    for (int32_t i = 0; i < test->n_outputs; i++) {
        test->outputs[i] = (kernel_case_output){.dtype = out_types[i], .dims = out[i]};
    }
}

static void add_nothing(kernel_case *test)
{
    test->inputs[test->n_inputs++] = (kernel_case_input){.dtype = TRM_DTYPE_NONE};
}

static bool has_input(const kernel_case *test, int32_t i)
{
    return i < test->n_inputs && test->inputs[i].dtype != TRM_DTYPE_NONE;
}

/* Half of the padding that SAME needs. */
static int64_t same_pad(trm_auto_pad auto_pad, int64_t needed)
{
    const int64_t total = needed > 0 ? needed : 0;
    return auto_pad == TRM_AUTO_PAD_SAME_UPPER ? total / 2 : (total + 1) / 2;
}

/* ---- convolution -------------------------------------------------------------------------------- */

static int64_t pad_before(const trm_convolution_params *p, const kernel_case *test, int32_t axis)
{
    const int64_t in = test->inputs[0].dims.d[2 + axis], out = test->outputs[0].dims.d[2 + axis];
    const int64_t kernel = test->inputs[1].dims.d[2 + axis];
    if (p->auto_pad == TRM_AUTO_PAD_NONE) {
        return p->before[axis];
    }
    return same_pad(p->auto_pad, (out - 1) * p->stride[axis] + p->dilation[axis] * (kernel - 1) + 1 - in);
}

TEST_UNCHECKED static void meaning_convolution(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_convolution_params *p = &test->layer.convolution;
    const trm_dims *x = &test->inputs[0].dims, *w = &test->inputs[1].dims, *y = &test->outputs[0].dims;
    const int64_t taps = trm_dims_count(w) / w->d[0];
    place *places = malloc((size_t)taps * sizeof(*places) + 1); /* of the first output channel's taps */
    assert_non_null(places);
    for (int64_t t = 0; t < taps; t++) {
        places[t] = place_of(w, t);
    }
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        const place at = place_of(y, i);
        const int64_t group = at.i[1] / (y->d[1] / p->groups);
        int64_t before[TRM_MAX_SPATIAL];
        for (int32_t axis = 0; axis < x->n - 2; axis++) {
            before[axis] = pad_before(p, test, axis);
        }
        double sum = has_input(test, 2) ? inputs[2][at.i[1]] : 0.0;
        for (int64_t t = 0; t < taps; t++) {
            const place *tap = &places[t];
            place from = {{at.i[0], group * w->d[1] + tap->i[1]}};
            bool inside = true;
            for (int32_t axis = 0; axis < x->n - 2; axis++) {
                from.i[2 + axis] =
                    at.i[2 + axis] * p->stride[axis] + tap->i[2 + axis] * p->dilation[axis] - before[axis];
                inside = inside && from.i[2 + axis] >= 0 && from.i[2 + axis] < x->d[2 + axis];
            }
            sum += inside ? inputs[0][index_of(x, from.i)] * inputs[1][at.i[1] * taps + t] : 0.0;
        }
        sum += has_input(test, 3) ? inputs[3][i] : 0.0;
        outputs[0][i] = meaning_activation(p->activation, sum);
    }
    free(places);
}

/* Elements of a tensor with channels last, [N, d1 .., C], in the order of `first`, [N, C, d1 ..]; or the other way. */
static void move_channels(const trm_dims *first, const double *from, double *to, bool to_last)
{
    const trm_dims last = trm_channels_last(first, true);
    for (int64_t i = 0; i < trm_dims_count(first); i++) {
        const place at = place_of(first, i);
        place other = {{at.i[0]}};
        for (int32_t k = 1; k < first->n; k++) {
            other.i[k] = at.i[k == first->n - 1 ? 1 : k + 1];
        }
        const int64_t j = index_of(&last, other.i);
        to[to_last ? j : i] = from[to_last ? i : j];
    }
}

/* What a layer with channels last means, by the meaning of the same one with channels first. */
static void meaning_last(const kernel_case *test, double *const *inputs, double *const *outputs,
                         kernel_case_meaning meaning)
{
    kernel_case first = *test;
    double *moved[TRM_MAX_LAYER_INPUTS] = {NULL};
    for (int32_t i = 0; i < test->n_inputs; i++) {
        if (has_input(test, i) && i != 2) {
            first.inputs[i].dims = trm_channels_first(&test->inputs[i].dims, true);
            moved[i] = calloc((size_t)trm_dims_count(&first.inputs[i].dims) + 1, sizeof(double));
            assert_non_null(moved[i]);
            move_channels(&first.inputs[i].dims, inputs[i], moved[i], false);
        } else {
            moved[i] = inputs[i];
        }
    }
    first.outputs[0].dims = trm_channels_first(&test->outputs[0].dims, true);
    double *result = calloc((size_t)trm_dims_count(&first.outputs[0].dims) + 1, sizeof(double));
    assert_non_null(result);
    meaning(&first, moved, &result);
    move_channels(&first.outputs[0].dims, result, outputs[0], true);
    free(result);
    for (int32_t i = 0; i < test->n_inputs; i++) {
        if (moved[i] != inputs[i]) {
            free(moved[i]);
        }
    }
}

static void meaning_convolution_last(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    meaning_last(test, inputs, outputs, meaning_convolution);
}

typedef struct window_case {
    trm_dims x, w;
    int32_t groups, stride, dilation, before, after;
    trm_auto_pad auto_pad;
    trm_activation activation;
    bool bias, residual;
    bool even; /* the same stride on every axis */
} window_case;

/*
 * How far sums of k products of factors that were rounded to TF32 are off, as root mean square. A factor keeps 10 bits
 * behind its first; cut off, it loses an even share of 2^-10 of its leading power of 2, 0.42 * 2^-10 of itself as root
 * mean square, two of them 0.6 * 2^-10 of their product. Products of numbers in -2 .. 2 are 4/3 as root mean square.
 * An activation such as tanh makes sums smaller but not what they are off by where they are near 0.
 */
static double tf32_spread(int64_t k)
{
    return 0.6 * 0x1p-10 * (4.0 / 3.0) * sqrt((double)k);
}

static void convolution_case(kernel_case_bench *bench, trm_dtype dtype, const window_case *c, bool last, bool tf32)
{
    kernel_case test =
        new_case(TRM_LAYER_CONVOLUTION, "%s%s%s %lld x %lld -> %lld of %lldd, groups %d stride %d dilation %d",
                 trm_dtype_name(dtype), tf32 ? " tf32" : "", last ? " channels last" : "",
                 (long long)c->x.d[c->x.n - 1], (long long)c->x.d[1], (long long)c->w.d[0], (long long)c->x.n - 2,
                 (int)c->groups, (int)c->stride, (int)c->dilation);
    trm_convolution_params *p = &test.layer.convolution;
    p->groups = c->groups;
    p->channels_last = last;
    p->auto_pad = c->auto_pad;
    p->activation = c->activation;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        p->stride[i] = i == 1 && c->stride > 1 && !c->even ? c->stride - 1 : c->stride;
        p->dilation[i] = c->dilation;
        p->before[i] = i == 0 && c->before > 0 ? c->before - 1 : c->before;
        p->after[i] = c->after;
    }
    test.tolerance = 4.0;
    test.tf32 = tf32;
    test.spread = tf32 ? tf32_spread(trm_dims_count(&c->w) / (c->w.d[0] > 0 ? c->w.d[0] : 1)) : 0;
    add_data(&test, dtype, trm_channels_last(&c->x, last));
    add_data(&test, dtype, trm_channels_last(&c->w, last));
    if (c->bias) {
        add_data(&test, dtype, DIMS(c->w.d[0]));
    } else {
        add_nothing(&test);
    }
    infer_outputs(&test);
    if (c->residual) {
        add_data(&test, dtype, test.outputs[0].dims);
    }
    kernel_case_run(bench, &test, last ? meaning_convolution_last : meaning_convolution);
}

/* Whole numbers up to 255 by up to `most`, the absolute values of whose products add up to less than 2^24: no bit may
 * be lost. Half of them are extremes. */
static void whole_case(kernel_case_bench *bench, const window_case *c, bool last, int32_t most)
{
    const int32_t limits[] = {255, most};
    double *values[2];
    uint64_t random = test_seed();
    kernel_case test = new_case(TRM_LAYER_CONVOLUTION, "f32%s whole numbers %lld x %lld -> %lld of %lldd, groups %d",
                                last ? " channels last" : "", (long long)c->x.d[c->x.n - 1], (long long)c->x.d[1],
                                (long long)c->w.d[0], (long long)c->x.n - 2, (int)c->groups);
    trm_convolution_params *p = &test.layer.convolution;
    p->groups = c->groups;
    p->channels_last = last;
    p->auto_pad = c->auto_pad;
    p->whole_numbers = true;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        p->stride[i] = c->stride;
        p->dilation[i] = c->dilation;
        p->before[i] = c->before;
        p->after[i] = c->after;
    }
    test.tolerance = 0.0;
    add_data(&test, TRM_F32, trm_channels_last(&c->x, last));
    add_data(&test, TRM_F32, trm_channels_last(&c->w, last));
    for (int32_t i = 0; i < 2; i++) {
        const int64_t n = trm_dims_count(&test.inputs[i].dims);
        values[i] = malloc((size_t)(n + 1) * sizeof(double));
        assert_non_null(values[i]);
        for (int64_t k = 0; k < n; k++) {
            const bool extreme = test_random(&random) % 2 == 0;
            values[i][k] = (double)(extreme ? limits[i] : test_random_below(&random, 2 * limits[i] + 1) - limits[i]);
        }
        test.inputs[i].values = values[i];
    }
    infer_outputs(&test);
    kernel_case_run(bench, &test, last ? meaning_convolution_last : meaning_convolution);
    free(values[0]);
    free(values[1]);
}

static void whole_number_cases(kernel_case_bench *bench)
{
    static const trm_auto_pad none = TRM_AUTO_PAD_NONE;
    const window_case cases[] = {
        {DIMS(2, 64, 28, 28), DIMS(96, 64, 3, 3), 1, 1, 1, 1, 1, none, TRM_ACTIVATION_NONE, false, false, true},
        {DIMS(1, 128, 14, 14), DIMS(128, 128, 3, 3), 1, 1, 1, 1, 1, none, TRM_ACTIVATION_NONE, false, false, true},
        {DIMS(1, 64, 15, 17), DIMS(72, 64, 5, 5), 1, 1, 1, 2, 2, none, TRM_ACTIVATION_NONE, false, false, true},
        {DIMS(1, 3, 41, 37), DIMS(16, 3, 7, 7), 1, 2, 1, 3, 3, none, TRM_ACTIVATION_NONE, false, false, true},
        {DIMS(1, 257, 9, 9), DIMS(33, 257, 1, 1), 1, 1, 1, 0, 0, none, TRM_ACTIVATION_NONE, false, false, true},
        {DIMS(1, 24, 19, 23), DIMS(24, 1, 3, 3), 24, 1, 1, 1, 1, none, TRM_ACTIVATION_NONE, false, false, true},
        {DIMS(2, 12, 13, 11), DIMS(18, 4, 3, 3), 3, 1, 2, 2, 1, none, TRM_ACTIVATION_NONE, false, false, true},
        {DIMS(2, 10, 61), DIMS(7, 10, 9), 1, 3, 2, 4, 3, none, TRM_ACTIVATION_NONE, false, false, true},
        {DIMS(1, 6, 7, 8, 9), DIMS(8, 6, 3, 3, 3), 1, 1, 1, 1, 1, none, TRM_ACTIVATION_NONE, false, false, true},
    };
    for (int32_t i = 0; i < COUNT(cases); i++) {
        const int64_t products = trm_dims_count(&cases[i].w) / cases[i].w.d[0];
        const int32_t most = (int32_t)(((1 << 24) - 1) / (255 * products));
        whole_case(bench, &cases[i], false, most < 255 ? most : 255);
        whole_case(bench, &cases[i], true, most < 255 ? most : 255);
    }
}

void kernel_cases_convolution(kernel_case_bench *bench)
{
    whole_number_cases(bench);
    static const trm_auto_pad none = TRM_AUTO_PAD_NONE;
    const window_case every_type[] = {
        {DIMS(2, 5, 9, 11), DIMS(7, 5, 3, 3), 1, 1, 1, 1, 1, none, TRM_ACTIVATION_NONE, true, false, false},
        {DIMS(1, 8, 10, 13), DIMS(8, 1, 3, 3), 8, 2, 1, 1, 1, none, TRM_ACTIVATION_RELU, true, true, false},
        {DIMS(2, 6, 17), DIMS(4, 3, 5), 2, 1, 2, 3, 2, none, TRM_ACTIVATION_NONE, false, false, false},
        {DIMS(1, 3, 6, 7, 8), DIMS(4, 3, 3, 2, 3), 1, 2, 1, 1, 0, none, TRM_ACTIVATION_RELU, true, false, false},
        {DIMS(1, 16, 7, 7), DIMS(32, 16, 1, 1), 1, 1, 1, 0, 0, none, TRM_ACTIVATION_NONE, true, true, false},
    };
    const window_case single[] = {
        {DIMS(1, 70, 20, 19), DIMS(130, 70, 3, 3), 1, 1, 1, 1, 1, none, TRM_ACTIVATION_SILU, true, true, false},
        {DIMS(1, 64, 30, 30), DIMS(64, 64, 1, 1), 1, 1, 1, 0, 0, none, TRM_ACTIVATION_RELU, true, false, false},
        {DIMS(2, 64, 14, 14), DIMS(32, 64, 1, 1), 1, 2, 1, 0, 0, none, TRM_ACTIVATION_NONE, false, false, false},
        {DIMS(1, 3, 40, 37), DIMS(16, 3, 7, 7), 1, 2, 1, 3, 3, none, TRM_ACTIVATION_RELU, true, false, false},
        {DIMS(2, 3, 40, 37), DIMS(16, 3, 7, 7), 1, 2, 1, 3, 3, none, TRM_ACTIVATION_RELU, true, false, true},
        {DIMS(1, 3, 21, 20), DIMS(8, 3, 3, 4), 1, 2, 1, 1, 1, none, TRM_ACTIVATION_NONE, true, true, true},
        {DIMS(2, 2, 18, 19), DIMS(8, 2, 4, 5), 1, 2, 1, 0, 0, none, TRM_ACTIVATION_NONE, false, false, true},
        {DIMS(1, 12, 11, 12), DIMS(24, 1, 5, 5), 12, 1, 1, 2, 2, none, TRM_ACTIVATION_SILU, true, false, false},
        {DIMS(1, 4, 9, 600), DIMS(2, 4, 3, 3), 1, 1, 3, 3, 3, none, TRM_ACTIVATION_TANH, true, false, false},
        {DIMS(3, 6, 8, 8), DIMS(12, 2, 3, 3), 3, 1, 1, 1, 1, none, TRM_ACTIVATION_NONE, true, true, false},
        {DIMS(1, 4, 9, 10), DIMS(5, 4, 3, 4), 1, 2, 1, 0, 0, TRM_AUTO_PAD_SAME_UPPER, TRM_ACTIVATION_NONE, true, false,
         false},
        {DIMS(1, 4, 9, 10), DIMS(5, 4, 4, 3), 1, 3, 2, 0, 0, TRM_AUTO_PAD_SAME_LOWER, TRM_ACTIVATION_NONE, false, true,
         false},
        {DIMS(1, 2, 4, 4), DIMS(4, 2, 3, 3), 1, 1, 1, 6, 5, none, TRM_ACTIVATION_NONE, true, false, false},
        {DIMS(1, 2, 1, 1), DIMS(6, 2, 3, 3), 1, 1, 1, 2, 1, none, TRM_ACTIVATION_NONE, true, false, false},
        {DIMS(1, 5, 333), DIMS(9, 5, 1), 1, 1, 1, 0, 0, none, TRM_ACTIVATION_NONE, true, false, false},
        {DIMS(0, 3, 8, 8), DIMS(4, 3, 3, 3), 1, 1, 1, 1, 1, none, TRM_ACTIVATION_NONE, true, false, false},
        {DIMS(2, 0, 8, 8), DIMS(4, 0, 3, 3), 1, 1, 1, 1, 1, none, TRM_ACTIVATION_NONE, true, false, false},
    };
    for (int32_t t = 0; t < COUNT(real_types); t++) {
        for (int32_t i = 0; i < COUNT(every_type); i++) {
            convolution_case(bench, real_types[t], &every_type[i], false, false);
            convolution_case(bench, real_types[t], &every_type[i], true, false);
        }
    }
    for (int32_t i = 0; i < COUNT(single); i++) {
        convolution_case(bench, TRM_F32, &single[i], false, false);
        convolution_case(bench, TRM_F16, &single[i], false, false);
        convolution_case(bench, TRM_F32, &single[i], true, false);
        convolution_case(bench, TRM_F16, &single[i], true, false);
        convolution_case(bench, TRM_F32, &single[i], false, true);
        convolution_case(bench, TRM_F32, &single[i], true, true);
        window_case more = single[i]; /* another batch of what was tuned: its first run goes by that */
        more.x.d[0]++;
        convolution_case(bench, TRM_F16, &more, true, false);
        convolution_case(bench, TRM_F32, &more, true, true);
    }
}

/* ---- pool --------------------------------------------------------------------------------------- */

static int64_t pool_before(const trm_pool_params *p, int64_t in, int64_t out, int32_t axis)
{
    if (p->auto_pad == TRM_AUTO_PAD_NONE) {
        return p->before[axis];
    }
    return same_pad(p->auto_pad, (out - 1) * p->stride[axis] + p->dilation[axis] * (p->kernel[axis] - 1) + 1 - in);
}

static int64_t pool_end(const trm_pool_params *p, int64_t in, int64_t out, int32_t axis)
{
    if (p->auto_pad == TRM_AUTO_PAD_NONE) {
        return in + p->after[axis];
    }
    return (out - 1) * p->stride[axis] + p->dilation[axis] * (p->kernel[axis] - 1) + 1 - pool_before(p, in, out, axis);
}

static void meaning_pool(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_pool_params *p = &test->layer.pool;
    const trm_dims *x = &test->inputs[0].dims, *y = &test->outputs[0].dims;
    trm_dims window = {.n = x->n - 2};
    for (int32_t axis = 0; axis < window.n; axis++) {
        window.d[axis] = p->kernel[axis];
    }
    for (int64_t i = 0; i < trm_dims_count(y); i++) {
        const place at = place_of(y, i);
        double best = -INFINITY, sum = 0.0;
        int64_t counted = 0, best_at = -1;
        for (int64_t t = 0; t < trm_dims_count(&window); t++) {
            const place tap = place_of(&window, t);
            place from = {{at.i[0], at.i[1]}};
            bool inside = true, padded = true;
            for (int32_t axis = 0; axis < window.n; axis++) {
                const int64_t in = x->d[2 + axis], out = y->d[2 + axis];
                const int64_t k =
                    at.i[2 + axis] * p->stride[axis] + tap.i[axis] * p->dilation[axis] - pool_before(p, in, out, axis);
                from.i[2 + axis] = k;
                inside = inside && k >= 0 && k < in;
                padded = padded && k < pool_end(p, in, out, axis);
            }
            counted += inside || (p->count_padding && padded);
            if (inside) {
                const double v = inputs[0][index_of(x, from.i)];
                sum += p->op == TRM_POOL_LP ? pow(fabs(v), (double)p->p) : v;
                if (v > best) {
                    best = v;
                    best_at = index_of(x, from.i);
                    if (p->indices_by_column) {
                        best_at = at.i[0] * x->d[1] + at.i[1];
                        for (int32_t axis = window.n - 1; axis >= 0; axis--) {
                            best_at = best_at * x->d[2 + axis] + from.i[2 + axis];
                        }
                    }
                }
            }
        }
        outputs[0][i] = p->op == TRM_POOL_MAX       ? best
                        : p->op == TRM_POOL_AVERAGE ? sum / (double)counted
                                                    : pow(sum, 1.0 / (double)p->p);
        if (p->indices) {
            outputs[1][i] = (double)best_at;
        }
    }
}

static void meaning_pool_last(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    meaning_last(test, inputs, outputs, meaning_pool);
}

static void pool_case(kernel_case_bench *bench, trm_dtype dtype, trm_dims x, trm_pool_params p)
{
    if (!p.indices && !p.channels_last) {
        trm_pool_params last = p;
        last.channels_last = true;
        pool_case(bench, dtype, x, last);
    }
    kernel_case test =
        new_case(TRM_LAYER_POOL, "%s%s %d of %lldd kernel %d stride %d dilation %d%s%s", trm_dtype_name(dtype),
                 p.channels_last ? " channels last" : "", (int)p.op, (long long)x.n - 2, (int)p.kernel[0],
                 (int)p.stride[0], (int)p.dilation[0], p.ceil ? " ceil" : "", p.indices ? " indices" : "");
    test.layer.pool = p;
    test.tolerance = is_floating(dtype) && p.op != TRM_POOL_MAX ? 1.0 : 0.0;
    add_data(&test, dtype, trm_channels_last(&x, p.channels_last));
    infer_outputs(&test);
    kernel_case_run(bench, &test, p.channels_last ? meaning_pool_last : meaning_pool);
}

#define WINDOW(op_, k_, s_, d_, b_, a_)                                                                                \
    .op = (op_), .kernel = {k_, k_ + 1, k_}, .stride = {s_, s_, s_ + 1}, .dilation = {d_, d_, d_},                     \
    .before = {b_, b_, b_}, .after = {a_, a_, a_}

void kernel_cases_pool(kernel_case_bench *bench)
{
    static const trm_dtype types[] = {TRM_F32, TRM_F16, TRM_BF16, TRM_F64, TRM_I8, TRM_U8, TRM_I32, TRM_U64};
    for (int32_t t = 0; t < COUNT(real_types); t++) { /* whole runs of channels */
        pool_case(bench, real_types[t], DIMS(2, 16, 13, 10), (trm_pool_params){WINDOW(TRM_POOL_MAX, 3, 2, 1, 1, 1)});
        pool_case(bench, real_types[t], DIMS(2, 24, 9, 10), (trm_pool_params){WINDOW(TRM_POOL_AVERAGE, 3, 2, 1, 1, 1)});
        pool_case(bench, real_types[t], DIMS(1, 8, 5, 6, 7), (trm_pool_params){WINDOW(TRM_POOL_MAX, 2, 1, 2, 1, 1)});
    }
    pool_case(bench, TRM_I8, DIMS(2, 48, 13, 10), (trm_pool_params){WINDOW(TRM_POOL_MAX, 3, 2, 1, 1, 1)});
    for (int32_t t = 0; t < COUNT(types); t++) {
        pool_case(bench, types[t], DIMS(2, 3, 12, 11), (trm_pool_params){WINDOW(TRM_POOL_MAX, 3, 2, 1, 1, 1)});
    }
    for (int32_t t = 0; t < COUNT(real_types); t++) {
        const trm_dtype type = real_types[t];
        pool_case(bench, type, DIMS(2, 3, 12, 11), (trm_pool_params){WINDOW(TRM_POOL_AVERAGE, 3, 2, 1, 1, 1)});
        pool_case(bench, type, DIMS(2, 3, 12, 11), (trm_pool_params){WINDOW(TRM_POOL_LP, 3, 2, 1, 1, 0), .p = 3.0f});
    }
    for (int32_t op = TRM_POOL_MAX; op <= TRM_POOL_LP; op++) {
        const trm_pool_params shapes[] = {
            {WINDOW((trm_pool_op)op, 2, 2, 1, 0, 0), .p = 2.0f, .ceil = true},
            {WINDOW((trm_pool_op)op, 3, 3, 1, 1, 2), .p = 2.0f, .ceil = true, .count_padding = true},
            {WINDOW((trm_pool_op)op, 2, 1, 2, 1, 1), .p = 1.0f, .count_padding = true},
            {WINDOW((trm_pool_op)op, 3, 2, 1, 0, 0), .p = 2.0f, .auto_pad = TRM_AUTO_PAD_SAME_UPPER},
            {WINDOW((trm_pool_op)op, 3, 2, 2, 0, 0), .p = 2.0f, .auto_pad = TRM_AUTO_PAD_SAME_LOWER,
             .count_padding = true},
        };
        for (int32_t i = 0; i < COUNT(shapes); i++) {
            pool_case(bench, TRM_F32, DIMS(2, 3, 13), shapes[i]);
            pool_case(bench, TRM_F32, DIMS(1, 2, 9, 10), shapes[i]);
            pool_case(bench, TRM_F32, DIMS(1, 2, 7, 9, 8), shapes[i]);
        }
    }
    for (int32_t by_column = 0; by_column < 2; by_column++) {
        const trm_pool_params p = {WINDOW(TRM_POOL_MAX, 3, 2, 1, 1, 1), .indices = true,
                                   .indices_by_column = by_column == 1};
        pool_case(bench, TRM_F32, DIMS(2, 3, 13), p);
        pool_case(bench, TRM_F32, DIMS(2, 3, 9, 10), p);
        pool_case(bench, TRM_F16, DIMS(2, 2, 6, 7, 5), p);
        pool_case(bench, TRM_I8, DIMS(2, 3, 9, 10), p);
    }
    pool_case(bench, TRM_F32, DIMS(0, 3, 9, 9), (trm_pool_params){WINDOW(TRM_POOL_MAX, 3, 2, 1, 1, 1)});
}
