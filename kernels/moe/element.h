/* What host and CUDA kernels of a mixture of experts share: how keys compare, scores, activations, numbers of 4 bits.
 */
#ifndef TRM_KERNELS_MOE_ELEMENT_H
#define TRM_KERNELS_MOE_ELEMENT_H

#include "kernels/pointwise/element.h"
#include "kernels/moe/moe.h"

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
TRM_ELEMENT float trm_moe_score(trm_moe_scoring scoring, float logit)
{
    return scoring == TRM_MOE_SIGMOID ? trm_activate_f32(TRM_ACTIVATION_SIGMOID, logit)
                                      : sqrtf(trm_activate_f32(TRM_ACTIVATION_SOFTPLUS, logit));
}

TRM_ELEMENT bool trm_moe_is_softmax(trm_moe_scoring scoring)
{
    return scoring == TRM_MOE_SOFTMAX || scoring == TRM_MOE_SOFTMAX_CHOSEN;
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
    case TRM_MOE_SILU:
        return trm_activate_f32(TRM_ACTIVATION_SILU, g) * u;
    case TRM_MOE_GELU:
        return trm_activate_f32(TRM_ACTIVATION_GELU, g) * u;
    case TRM_MOE_GELU_TANH:
        return trm_activate_f32(TRM_ACTIVATION_GELU_TANH, g) * u;
    case TRM_MOE_SWIGLU_OAI:
        return g / (1.0f + expf(-p->alpha * g)) * (u + 1.0f);
    default:
        return u < 0.0f ? 0.0f : u * u;
    }
}

/* Rows of gate_up of an expert, and which of them the gate and the up of output i are. */
TRM_ELEMENT int64_t trm_moe_up_rows(const trm_moe_experts *p)
{
    return p->activation == TRM_MOE_RELU2 ? p->width : 2 * (int64_t)p->width;
}
TRM_ELEMENT int64_t trm_moe_gate_row(const trm_moe_experts *p, int64_t i)
{
    return p->interleaved ? 2 * i : i;
}
TRM_ELEMENT int64_t trm_moe_up_row(const trm_moe_experts *p, int64_t i)
{
    return p->activation == TRM_MOE_RELU2 ? i : p->interleaved ? 2 * i + 1 : p->width + i;
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

#endif
