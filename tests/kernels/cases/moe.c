/* Cases and meaning of ROUTER, NORM_ROUTER and EXPERTS as layers; moe_cases.c has those of their kernels by themselves.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/cases/cases.h"
#include "kernels/cases/support.h"

/* ---- router ---- */

static double score_of(trm_router_scoring scoring, double logit, double most, double sum)
{
    switch (scoring) {
    case TRM_ROUTER_SIGMOID:
        return 1.0 / (1.0 + exp(-logit));
    case TRM_ROUTER_SQRT_SOFTPLUS:
        return sqrt(log1p(exp(logit)));
    default:
        return exp(logit - most) / sum;
    }
}

/* Of ROUTER, and of the part of NORM_ROUTER behind the norm. */
static void choose(const kernel_case *test, const trm_router_params *p, const double *x, double *const *inputs,
                   double *const *outputs)
{
    const int64_t hidden = test->inputs[0].dims.d[1], experts = test->inputs[1].dims.d[0];
    double *logits = calloc((size_t)experts * 2, sizeof(*logits)), *keys = logits + experts;
    for (int64_t t = 0; t < test->inputs[0].dims.d[0]; t++) {
        double most = -INFINITY, sum = 0.0, chosen_sum = 0.0;
        for (int64_t e = 0; e < experts; e++) {
            logits[e] = inputs[TRM_ROUTER_BIAS] != NULL ? inputs[TRM_ROUTER_BIAS][e] : 0.0;
            for (int64_t i = 0; i < hidden; i++) {
                logits[e] += x[t * hidden + i] * inputs[1][e * hidden + i];
            }
            most = fmax(most, logits[e]);
        }
        for (int64_t e = 0; e < experts; e++) {
            sum += exp(logits[e] - most);
        }
        for (int64_t e = 0; e < experts; e++) {
            keys[e] = score_of(p->scoring, logits[e], most, sum) +
                      (inputs[TRM_ROUTER_CORRECTION] != NULL ? inputs[TRM_ROUTER_CORRECTION][e] : 0.0);
        }
        double *ids = outputs[0] + t * p->k, *weights = outputs[1] + t * p->k;
        for (int32_t i = 0; i < p->k; i++) {
            int64_t best = 0;
            for (int64_t e = 1; e < experts; e++) {
                best = keys[e] > keys[best] ? e : best;
            }
            keys[best] = -INFINITY;
            ids[i] = (double)best;
            weights[i] = score_of(p->scoring, logits[best], most, sum);
            chosen_sum += weights[i];
        }
        for (int32_t i = 0; i < p->k; i++) {
            weights[i] /= p->renormalize || p->scoring == TRM_ROUTER_SOFTMAX_CHOSEN ? chosen_sum : 1.0;
            weights[i] *= p->scale == 0.0f ? 1.0 : (double)p->scale;
        }
    }
    free(logits);
}

static void meaning_router(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    choose(test, &test->layer.router, inputs[0], inputs, outputs);
}

static void router_case(kernel_case_bench *bench, trm_dtype x, trm_dtype weight, int64_t tokens, int64_t hidden,
                        int64_t experts, trm_router_params params, bool corrected)
{
    kernel_case test = new_case(TRM_LAYER_ROUTER, "%s by %s, %lld tokens, %d of %lld experts, scoring %d%s",
                                trm_dtype_name(x), trm_dtype_name(weight), (long long)tokens, (int)params.k,
                                (long long)experts, (int)params.scoring, corrected ? ", bias and correction" : "");
    test.layer.router = params;
    test.tolerance = 8.0; /* sums of `hidden` products in f32 */
    add_input(&test, x, DIMS(tokens, hidden), -1.0, 1.0);
    add_input(&test, weight, DIMS(experts, hidden), -0.3, 0.3);
    add_input(&test, corrected ? TRM_F32 : TRM_DTYPE_NONE, DIMS(experts), -0.5, 0.5);
    add_input(&test, corrected ? TRM_F32 : TRM_DTYPE_NONE, DIMS(experts), -0.1, 0.1);
    add_output(&test, TRM_I32, DIMS(tokens, params.k));
    add_output(&test, TRM_F32, DIMS(tokens, params.k));
    kernel_case_run(bench, &test, meaning_router);
}

/* ---- router of a norm ---- */

static void meaning_norm_router(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_norm_router_params *p = &test->layer.norm_router;
    const int64_t hidden = test->inputs[0].dims.d[1], n = trm_dims_count(&test->inputs[0].dims);
    const double *weight = inputs[TRM_NORM_ROUTER_NORM_WEIGHT];
    double *norm = outputs[TRM_NORM_ROUTER_NORM];
    for (int64_t t = 0; t < n / hidden; t++) {
        double square = 0.0;
        for (int64_t i = t * hidden; i < (t + 1) * hidden; i++) {
            norm[i] = inputs[0][i];
            if (p->residual) {
                norm[i] = kernel_case_round(test->inputs[0].dtype, norm[i] + inputs[TRM_NORM_ROUTER_RESIDUAL][i]);
                outputs[TRM_NORM_ROUTER_SUM][i] = norm[i];
            }
            square += norm[i] * norm[i];
        }
        for (int64_t i = 0; i < hidden; i++) {
            norm[t * hidden + i] *= (weight != NULL ? weight[i] + (double)p->weight_offset : 1.0) /
                                    sqrt(square / (double)hidden + (double)p->eps);
        }
    }
    choose(test, &p->router, norm, inputs, outputs);
}

/* x, or the sum of x and a residual, is the same power of two, except for signs, in a whole row, and so are the norm's
 * factors: then rounding the norm changes nothing that is chosen. In f32 numbers are any. */
typedef struct norm_router_values {
    double *x, *residual, *weight;
} norm_router_values;

static norm_router_values values_of(int64_t tokens, int64_t hidden, bool residual)
{
    norm_router_values v = {calloc((size_t)(tokens * hidden) + 1, sizeof(double)),
                            calloc((size_t)(tokens * hidden) + 1, sizeof(double)),
                            calloc((size_t)hidden, sizeof(double))};
    for (int64_t i = 0; i < tokens * hidden; i++) {
        const double size = exp2((double)(i / hidden % 3)), sum = i * 7 % 11 < 5 ? size : -size;
        v.residual[i] = residual ? (i * 5 % 13 < 6 ? 0.5 : -0.5) * size : 0.0;
        v.x[i] = sum - v.residual[i];
    }
    for (int64_t i = 0; i < hidden; i++) {
        v.weight[i] = exp2((double)(i * 3 % 7 % 3) - 1.0);
    }
    return v;
}

static void norm_router_case(kernel_case_bench *bench, trm_dtype x, trm_dtype weight, int64_t tokens, int64_t hidden,
                             int64_t experts, trm_norm_router_params params, bool norm_weight)
{
    kernel_case test = new_case(
        TRM_LAYER_NORM_ROUTER, "%s by %s, %lld tokens of %lld, %d of %lld experts, scoring %d%s%s", trm_dtype_name(x),
        trm_dtype_name(weight), (long long)tokens, (long long)hidden, (int)params.router.k, (long long)experts,
        (int)params.router.scoring, params.residual ? ", residual" : "", norm_weight ? ", norm weight" : "");
    const bool corrected = params.router.scoring == TRM_ROUTER_SIGMOID;
    norm_router_values values = values_of(tokens, hidden, params.residual);
    test.layer.norm_router = params;
    test.tolerance = 8.0; /* sums of `hidden` products in f32 */
    add_input(&test, x, DIMS(tokens, hidden), -2.0, 2.0);
    add_input(&test, weight, DIMS(experts, hidden), -0.3, 0.3);
    add_input(&test, corrected ? TRM_F32 : TRM_DTYPE_NONE, DIMS(experts), -0.5, 0.5);
    add_input(&test, corrected ? TRM_F32 : TRM_DTYPE_NONE, DIMS(experts), -0.1, 0.1);
    add_input(&test, TRM_DTYPE_NONE, DIMS(experts), 0.0, 0.0);
    add_input(&test, norm_weight ? x : TRM_DTYPE_NONE, DIMS(hidden), 0.25, 2.0);
    if (params.residual) {
        add_input(&test, x, DIMS(tokens, hidden), -4.0, 4.0);
    }
    if (x != TRM_F32) {
        test.inputs[TRM_ROUTER_X].values = values.x;
        test.inputs[TRM_NORM_ROUTER_NORM_WEIGHT].values = norm_weight ? values.weight : NULL;
        test.inputs[TRM_NORM_ROUTER_RESIDUAL].values = values.residual;
    }
    add_output(&test, TRM_I32, DIMS(tokens, params.router.k));
    add_output(&test, TRM_F32, DIMS(tokens, params.router.k));
    add_output(&test, x, DIMS(tokens, hidden));
    if (params.residual) {
        add_output(&test, x, DIMS(tokens, hidden));
    }
    kernel_case_run(bench, &test, meaning_norm_router);
    if (params.residual) {
        test.unread = 1u << TRM_NORM_ROUTER_SUM;
        kernel_case_run(bench, &test, meaning_norm_router);
    }
    free(values.x);
    free(values.residual);
    free(values.weight);
}

static void norm_router_cases(kernel_case_bench *bench)
{
    const trm_router_params softmax = {.k = 4, .scoring = TRM_ROUTER_SOFTMAX, .renormalize = true};
    const trm_router_params chosen = {.k = 3, .scoring = TRM_ROUTER_SOFTMAX_CHOSEN};
    const trm_router_params sigmoid = {.k = 8, .scoring = TRM_ROUTER_SIGMOID, .renormalize = true, .scale = 2.5f};
    const int64_t tokens[] = {1, 2, 16, 17, 45, 257}; /* the last by the layers one after the other */
    for (int32_t t = 0; t < COUNT(floats); t++) {
        for (int32_t i = 0; i < COUNT(tokens); i++) {
            norm_router_case(bench, floats[t], floats[t], tokens[i], 264, 21,
                             (trm_norm_router_params){.router = softmax}, true);
            norm_router_case(bench, floats[t], floats[t], tokens[i], 2880, 32,
                             (trm_norm_router_params){.router = chosen, .residual = true}, true);
        }
        norm_router_case(bench, floats[t], floats[t], 1, 2048, 128,
                         (trm_norm_router_params){.router = softmax, .residual = true}, false);
        norm_router_case(bench, floats[t], TRM_F32, 3, 520, 256,
                         (trm_norm_router_params){.router = sigmoid, .residual = true}, true);
        norm_router_case(bench, floats[t], floats[t], 33, 7168, 256,
                         (trm_norm_router_params){.router = sigmoid, .residual = true}, false);
        norm_router_case(bench, floats[t], floats[t], 2, 64, 1000, (trm_norm_router_params){.router = softmax}, true);
        norm_router_case(bench, floats[t], floats[t], 2, 30, 9, (trm_norm_router_params){.router = softmax}, true);
    }
    norm_router_case(bench, TRM_F32, TRM_F32, 2, 264, 21,
                     (trm_norm_router_params){.router = softmax, .eps = 1e-2f, .weight_offset = 1.0f}, true);
    norm_router_case(bench, TRM_F32, TRM_BF16, 2, 264, 21,
                     (trm_norm_router_params){.router = softmax, .residual = true, .eps = 1e-2f}, true);
}

/* ---- experts ---- */

static double gated(trm_expert_activation activation, double g, double u)
{
    return activation == TRM_EXPERT_RELU2       ? fmax(u, 0.0) * fmax(u, 0.0)
           : activation == TRM_EXPERT_GELU_TANH ? meaning_activation(TRM_ACTIVATION_GELU_TANH, g) * u
                                                : meaning_activation(TRM_ACTIVATION_SILU, g) * u;
}

static double product(const double *row, const double *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += row[i] * x[i];
    }
    return sum;
}

static void meaning_experts(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_experts_params *p = &test->layer.experts;
    const trm_dims *ids = &test->inputs[TRM_EXPERTS_IDS].dims, *down = &test->inputs[TRM_EXPERTS_DOWN].dims;
    const int64_t experts = down->d[0], hidden = down->d[1], width = down->d[2], k = ids->d[1];
    const int64_t halves = p->activation == TRM_EXPERT_RELU2 ? 1 : 2;
    double *h = calloc((size_t)width, sizeof(*h));
    for (int64_t t = 0; t < ids->d[0]; t++) {
        const double *x = inputs[TRM_EXPERTS_X] + t * hidden;
        double *y = outputs[0] + t * hidden;
        for (int64_t i = 0; i < hidden; i++) {
            y[i] = 0.0;
        }
        for (int64_t s = 0; s < k; s++) {
            const int64_t expert = (int64_t)inputs[TRM_EXPERTS_IDS][t * k + s] - p->first;
            if (expert < 0 || expert >= experts) {
                continue;
            }
            const double *gate_up = inputs[TRM_EXPERTS_GATE_UP] + expert * halves * width * hidden;
            for (int64_t i = 0; i < width; i++) {
                const double up = product(gate_up + ((halves - 1) * width + i) * hidden, x, hidden);
                h[i] = kernel_case_round(test->outputs[0].dtype,
                                         gated(p->activation, product(gate_up + i * hidden, x, hidden), up));
            }
            for (int64_t i = 0; i < hidden; i++) {
                y[i] += inputs[TRM_EXPERTS_WEIGHTS][t * k + s] *
                        product(inputs[TRM_EXPERTS_DOWN] + (expert * hidden + i) * width, h, width);
            }
        }
    }
    free(h);
}

static void experts_case(kernel_case_bench *bench, trm_dtype type, int64_t tokens, int64_t hidden, int64_t width,
                         int64_t experts, int64_t first, trm_expert_activation activation)
{
    enum { K = 3 };
    const int64_t all = first + experts + 2;
    double *ids = calloc((size_t)tokens * K, sizeof(*ids));
    for (int64_t i = 0; i < tokens * K; i++) {
        ids[i] = (double)((i / K * 5 + i % K * 7 + i / (K * 4)) % all); /* those of a token differ */
    }
    kernel_case test = new_case(TRM_LAYER_EXPERTS, "%s, %lld tokens, %lld experts from %lld on, %lld by %lld, %d",
                                trm_dtype_name(type), (long long)tokens, (long long)experts, (long long)first,
                                (long long)hidden, (long long)width, (int)activation);
    test.layer.experts = (trm_experts_params){.activation = activation, .first = first};
    test.tolerance = 4.0;
    test.spread = type == TRM_F32 ? 1e-6 : type == TRM_F16 ? 1e-3 : 8e-3; /* of h, which is rounded */
    add_input(&test, type, DIMS(tokens, hidden), -1.0, 1.0);
    add_input(&test, TRM_I32, DIMS(tokens, K), 0.0, 0.0)->values = ids;
    add_input(&test, TRM_F32, DIMS(tokens, K), 0.1, 0.6);
    add_input(&test, type, (trm_dims){4, {experts, activation == TRM_EXPERT_RELU2 ? 1 : 2, width, hidden}}, -0.3, 0.3);
    add_input(&test, type, DIMS(experts, hidden, width), -0.3, 0.3);
    add_output(&test, type, DIMS(tokens, hidden));
    kernel_case_run(bench, &test, meaning_experts);
    free(ids);
}

void kernel_cases_moe(kernel_case_bench *bench)
{
    static const int64_t tokens[] = {1, 5, 40};
    norm_router_cases(bench);
    for (int32_t t = 0; t < COUNT(tokens); t++) {
        for (int32_t i = 0; i < COUNT(floats); i++) {
            router_case(bench, floats[i], floats[i], tokens[t], 256, 16, (trm_router_params){.k = 4}, false);
            experts_case(bench, floats[i], tokens[t], 64, 128, 7, 0, TRM_EXPERT_SILU);
            experts_case(bench, floats[i], tokens[t], 136, 72, 4, 3, TRM_EXPERT_RELU2);
        }
        router_case(bench, TRM_BF16, TRM_F32, tokens[t], 128, 24,
                    (trm_router_params){
                        .k = 6, .scoring = TRM_ROUTER_SIGMOID, .renormalize = true, .epsilon = 1e-20f, .scale = 2.5f},
                    true);
        router_case(bench, TRM_BF16, TRM_BF16, tokens[t], 320, 32,
                    (trm_router_params){.k = 2, .scoring = TRM_ROUTER_SOFTMAX_CHOSEN}, false);
        router_case(bench, TRM_F32, TRM_F32, tokens[t], 77, 5,
                    (trm_router_params){.k = 5, .scoring = TRM_ROUTER_SQRT_SOFTPLUS}, true);
        experts_case(bench, TRM_BF16, tokens[t], 50, 30, 6, 0, TRM_EXPERT_GELU_TANH);
    }
    router_case(bench, TRM_BF16, TRM_BF16, 0, 64, 8, (trm_router_params){.k = 2}, false);
    experts_case(bench, TRM_BF16, 0, 64, 64, 4, 0, TRM_EXPERT_SILU);
}
