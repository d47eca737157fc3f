/* What host and CUDA kernels of a mixture of experts share: how keys compare, scores, activations, numbers of 4 bits.
 */
#ifndef TRM_KERNELS_MOE_ELEMENT_H
#define TRM_KERNELS_MOE_ELEMENT_H

#include "kernels/pointwise/element.h"
#include "kernels/moe/moe.h"
#include "kernels/small_types.h"

/* Keys in the order of floats; what is no number is 1, and 0 is below every key. */
TRM_ELEMENT uint32_t trm_moe_key(float value)
{
    union {
        float f;
        uint32_t u;
    } bits;
    bits.f = value == 0.0f ? 0.0f : value; /* -0 and 0 are equal */
    return value != value ? 1u : (bits.u >> 31) != 0 ? ~bits.u + 2u : (bits.u | 0x80000000u) + 1u;
}

/* Of one logit by itself: all scorings but the softmaxes. */
TRM_ELEMENT float trm_moe_score(trm_router_scoring scoring, float logit)
{
    return scoring == TRM_ROUTER_SIGMOID ? trm_activate_f32(TRM_ACTIVATION_SIGMOID, logit)
                                         : sqrtf(trm_activate_f32(TRM_ACTIVATION_SOFTPLUS, logit));
}

TRM_ELEMENT bool trm_moe_is_softmax(trm_router_scoring scoring)
{
    return scoring == TRM_ROUTER_SOFTMAX || scoring == TRM_ROUTER_SOFTMAX_CHOSEN;
}

/* Whether experts are chosen by their scores and not by their logits. */
TRM_ELEMENT bool trm_moe_keys_are_scores(const trm_moe_router *router)
{
    return router->correction != NULL || (router->groups > 1 && router->group_sum);
}

TRM_ELEMENT float trm_moe_limited(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x; /* keeps NaN */
}

/* h of gate g and up u. */
TRM_ELEMENT float trm_moe_gated(const trm_moe_experts *p, float g, float u)
{
    g = trm_moe_limited(g, -INFINITY, p->limit);
    u = trm_moe_limited(u, -p->limit, p->limit);
    switch (p->activation) {
    case TRM_EXPERT_SILU:
        return trm_activate_f32(TRM_ACTIVATION_SILU, g) * u;
    case TRM_EXPERT_GELU:
        return trm_activate_f32(TRM_ACTIVATION_GELU, g) * u;
    case TRM_EXPERT_GELU_TANH:
        return trm_activate_f32(TRM_ACTIVATION_GELU_TANH, g) * u;
    case TRM_EXPERT_SWIGLU_OAI:
        return g / (1.0f + expf(-p->alpha * g)) * (u + 1.0f);
    default:
        return u < 0.0f ? 0.0f : u * u;
    }
}

/* Rows of gate_up of an expert, and which of them the gate and the up of output i are. */
TRM_ELEMENT int64_t trm_moe_up_rows(const trm_moe_experts *p)
{
    return p->activation == TRM_EXPERT_RELU2 ? p->width : 2 * (int64_t)p->width;
}
TRM_ELEMENT int64_t trm_moe_gate_row(const trm_moe_experts *p, int64_t i)
{
    return p->interleaved ? 2 * i : i;
}
TRM_ELEMENT int64_t trm_moe_up_row(const trm_moe_experts *p, int64_t i)
{
    return p->activation == TRM_EXPERT_RELU2 ? i : p->interleaved ? 2 * i + 1 : p->width + i;
}

/* Where a token's expert lies among those held here; negative if it does not. */
TRM_ELEMENT int32_t trm_moe_local(const trm_moe_experts *p, int32_t id)
{
    const int64_t local = (int64_t)id - p->first;
    return id >= 0 && local >= 0 && local < p->experts ? (int32_t)local : -1;
}

/* A number of 4 bits, e2m1. */
TRM_ELEMENT float trm_moe_f4(uint32_t bits)
{
    const uint32_t exponent = bits >> 1 & 3, mantissa = bits & 1;
    const float size = exponent == 0 ? 0.5f * (float)mantissa : (float)((2 + mantissa) << exponent) * 0.25f;
    return (bits & 8) != 0 ? -size : size;
}

/* ---- choice ---- */

/* Scores of all experts from their logits; of SOFTMAX_CHOSEN those of a softmax over all. */
TRM_ELEMENT void trm_moe_score_all(const trm_moe_router *p, const float *logits, float *scores)
{
    float most = -INFINITY;
    double sum = 0.0;
    for (int32_t e = 0; e < p->experts; e++) {
        most = logits[e] > most ? logits[e] : most;
    }
    for (int32_t e = 0; e < p->experts; e++) {
        scores[e] = trm_moe_is_softmax(p->scoring) ? expf(logits[e] - most) : trm_moe_score(p->scoring, logits[e]);
        sum += (double)scores[e];
    }
    for (int32_t e = 0; e < p->experts && trm_moe_is_softmax(p->scoring); e++) {
        scores[e] = (float)((double)scores[e] / sum);
    }
}

/* Takes away all keys that are not in the best groups. */
TRM_ELEMENT void trm_moe_keep_groups(const trm_moe_router *p, const float *values, uint32_t *keys)
{
    const int32_t members = p->experts / p->groups;
    uint32_t group_keys[TRM_MOE_MOST_EXPERTS];
    bool kept[TRM_MOE_MOST_EXPERTS];
    for (int32_t g = 0; g < p->groups; g++) {
        kept[g] = false;
        float best = -INFINITY, second = -INFINITY;
        for (int32_t e = g * members; e < (g + 1) * members; e++) {
            const float v = values[e];
            second = v > best ? best : v > second ? v : second;
            best = v > best ? v : best;
        }
        group_keys[g] = trm_moe_key(p->group_sum ? best + second : best);
    }
    for (int32_t i = 0; i < p->top_groups; i++) {
        int32_t best = 0;
        for (int32_t g = 1; g < p->groups; g++) {
            best = group_keys[g] > group_keys[best] ? g : best;
        }
        kept[best] = true;
        group_keys[best] = 0;
    }
    for (int32_t e = 0; e < p->experts; e++) {
        keys[e] = kept[e / members] ? keys[e] : 0;
    }
}

/* SPARSE_MIXER: each expert is the best of those left, its weight its part among those near it. */
TRM_ELEMENT void trm_moe_mix(const trm_moe_router *p, const float *logits, int32_t *ids, float *weights)
{
    uint32_t keys[TRM_MOE_MOST_EXPERTS]; /* 0: taken */
    for (int32_t e = 0; e < p->experts; e++) {
        keys[e] = trm_moe_key(logits[e]);
    }
    for (int32_t i = 0; i < p->k; i++) {
        int32_t best = 0;
        for (int32_t e = 1; e < p->experts; e++) {
            best = keys[e] > keys[best] ? e : best;
        }
        const float most = logits[best];
        double sum = 0.0;
        for (int32_t e = 0; e < p->experts; e++) {
            const float size = fabsf(logits[e]) > most ? fabsf(logits[e]) : most;
            const bool is_far = (most - logits[e]) / size > 2.0f * p->epsilon;
            sum += keys[e] != 0 && !is_far ? (double)expf(logits[e] - most) : 0.0;
        }
        keys[best] = 0;
        ids[i] = best;
        weights[i] = (float)(1.0 / sum) * p->scale * (p->expert_scale != NULL ? p->expert_scale[best] : 1.0f);
    }
}

/* Experts of a token and their weights, from its logits [experts]. */
TRM_ELEMENT void trm_moe_route(const trm_moe_router *p, const float *logits, int32_t *ids, float *weights)
{
    if (p->scoring == TRM_ROUTER_SPARSE_MIXER) {
        trm_moe_mix(p, logits, ids, weights);
        return;
    }
    float scores[TRM_MOE_MOST_EXPERTS], values[TRM_MOE_MOST_EXPERTS];
    uint32_t keys[TRM_MOE_MOST_EXPERTS];
    double sum = 0.0;
    trm_moe_score_all(p, logits, scores);
    for (int32_t e = 0; e < p->experts; e++) {
        values[e] =
            trm_moe_keys_are_scores(p) ? scores[e] + (p->correction != NULL ? p->correction[e] : 0.0f) : logits[e];
        keys[e] = trm_moe_key(values[e]);
    }
    if (p->groups > 1) {
        trm_moe_keep_groups(p, values, keys);
    }
    for (int32_t i = 0; i < p->k; i++) {
        int32_t best = 0;
        for (int32_t e = 1; e < p->experts; e++) {
            best = keys[e] > keys[best] ? e : best;
        }
        keys[best] = 0;
        ids[i] = best;
        weights[i] = p->scoring == TRM_ROUTER_SOFTMAX_CHOSEN ? expf(logits[best] - logits[ids[0]]) : scores[best];
        sum += (double)weights[i];
    }
    for (int32_t i = 0; i < p->k; i++) {
        if (p->scoring == TRM_ROUTER_SOFTMAX_CHOSEN) {
            weights[i] = (float)((double)weights[i] / sum);
        } else if (p->renormalize) {
            weights[i] = (float)((double)weights[i] / (sum + (double)p->epsilon));
        }
        weights[i] *= p->scale * (p->expert_scale != NULL ? p->expert_scale[ids[i]] : 1.0f);
    }
}

/* ---- weights ---- */

/* A matrix of each expert. */
typedef struct trm_moe_matrix {
    trm_moe_format format;
    trm_dtype type, scale_type;
    const void *data, *scale, *zero;
    int64_t rows, columns, group;
} trm_moe_matrix;

TRM_ELEMENT trm_moe_matrix trm_moe_up_matrix(const trm_moe_experts *p)
{
    const trm_moe_matrix m = {p->format,          p->type,          p->scale_type,
                              p->gate_up,         p->gate_up_scale, p->gate_up_zero,
                              trm_moe_up_rows(p), p->hidden,        p->up_group};
    return m;
}
TRM_ELEMENT trm_moe_matrix trm_moe_down_matrix(const trm_moe_experts *p)
{
    const trm_moe_matrix m = {p->format,    p->type,   p->scale_type, p->down,      p->down_scale,
                              p->down_zero, p->hidden, p->width,      p->down_group};
    return m;
}

TRM_ELEMENT int64_t trm_moe_divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

TRM_ELEMENT double trm_moe_number(const trm_moe_matrix *m, int64_t expert, int64_t row, int64_t column)
{
    const int64_t r = expert * m->rows + row, at = r * m->columns + column;
    switch (m->format) {
    case TRM_MOE_HALVES:
        return (double)trm_element_load_f32(m->type, m->data, at);
    case TRM_MOE_MXFP4:
        return (double)trm_moe_f4(((const uint8_t *)m->data)[at / 2] >> (at % 2 * 4) & 15u) *
               trm_small_float_decode(TRM_F8E8M0, ((const uint8_t *)m->scale)[at / 32]);
    case TRM_MOE_F8_BLOCKS: {
        const int64_t down = trm_moe_divide_up(m->rows, 128), across = trm_moe_divide_up(m->columns, 128);
        return trm_small_float_decode(TRM_F8E4M3, ((const uint8_t *)m->data)[at]) *
               (double)((const float *)m->scale)[(expert * down + row / 128) * across + column / 128];
    }
    case TRM_MOE_INT4:
    case TRM_MOE_INT8: {
        const int64_t group = at / m->group; /* groups divide a row */
        const int32_t zero = m->zero != NULL ? ((const uint8_t *)m->zero)[group] : 8;
        const int32_t number = m->format == TRM_MOE_INT8
                                   ? ((const int8_t *)m->data)[at]
                                   : (int32_t)(((const uint8_t *)m->data)[at / 2] >> (at % 2 * 4) & 15u) - zero;
        return (double)number * (double)trm_element_load_f32(m->scale_type, m->scale, group);
    }
    default:
        return trm_small_float_decode(TRM_F8E4M3, ((const uint8_t *)m->data)[at]) *
               (double)((const float *)m->scale)[r];
    }
}

#endif
