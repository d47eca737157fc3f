/* Cases and meaning of ROUTER and EXPERTS as layers; moe_cases.c has those of their kernels by themselves. */
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

static void meaning_router(const kernel_case *test, double *const *inputs, double *const *outputs)
{
    const trm_router_params *p = &test->layer.router;
    const int64_t hidden = test->inputs[0].dims.d[1], experts = test->inputs[1].dims.d[0];
    double *logits = calloc((size_t)experts * 2, sizeof(*logits)), *keys = logits + experts;
    for (int64_t t = 0; t < test->inputs[0].dims.d[0]; t++) {
        double most = -INFINITY, sum = 0.0, chosen_sum = 0.0;
        for (int64_t e = 0; e < experts; e++) {
            logits[e] = inputs[TRM_ROUTER_BIAS] != NULL ? inputs[TRM_ROUTER_BIAS][e] : 0.0;
            for (int64_t i = 0; i < hidden; i++) {
                logits[e] += inputs[0][t * hidden + i] * inputs[1][e * hidden + i];
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
