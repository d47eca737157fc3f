/* The layers of a mixture of experts on the host, which define them: plain loops, sums in f64. */
#include "kernels/moe/element.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/small_types.h"

/* ---- router --------------------------------------------------------------------------------------- */

static bool is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

trm_status trm_moe_router_check(const trm_moe_router *p)
{
    if (p->tokens < 0 || p->hidden < 0 || p->experts < 1 || p->experts > TRM_MOE_MOST_EXPERTS || p->k < 1 ||
        p->k > TRM_MOE_MOST_CHOSEN || p->k > p->experts) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "router of %d experts chooses %d, expected 1 to %d of up to %d experts, and no more than there are",
                 (int)p->experts, (int)p->k, TRM_MOE_MOST_CHOSEN, TRM_MOE_MOST_EXPERTS);
    }
    if (p->groups > 1) {
        const int32_t members = p->experts / p->groups;
        if (p->experts % p->groups != 0 || p->top_groups < 1 || p->top_groups > p->groups ||
            p->top_groups * members < p->k || (p->group_sum && members < 2)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "router cannot choose %d of %d experts from %d of %d groups",
                     (int)p->k, (int)p->experts, (int)p->top_groups, (int)p->groups);
        }
    }
    if (p->logits == NULL && (!is_float(p->x_type) || !is_float(p->weight_type))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "router of %s by %s, expected f32, f16 or bf16", trm_dtype_name(p->x_type),
                 trm_dtype_name(p->weight_type));
    }
    return TRM_OK;
}

trm_status trm_moe_router_host(const trm_moe_router *p)
{
    TRM_TRY(trm_moe_router_check(p));
    float logits[TRM_MOE_MOST_EXPERTS];
    for (int64_t t = 0; t < p->tokens; t++) {
        for (int32_t e = 0; e < p->experts; e++) {
            double sum = p->logits != NULL ? (double)p->logits[t * p->experts + e] : 0.0;
            for (int64_t i = 0; p->logits == NULL && i < p->hidden; i++) {
                sum += (double)trm_element_load_f32(p->x_type, p->x, t * p->hidden + i) *
                       (double)trm_element_load_f32(p->weight_type, p->weight, e * (int64_t)p->hidden + i);
            }
            logits[e] = (float)(sum + (p->bias != NULL ? (double)p->bias[e] : 0.0));
        }
        trm_moe_route(p, logits, p->ids + t * p->k, p->weights + t * p->k);
    }
    return TRM_OK;
}

/* ---- experts -------------------------------------------------------------------------------------- */

trm_status trm_moe_experts_check(const trm_moe_experts *p)
{
    if (p->tokens < 0 || p->hidden < 1 || p->width < 1 || p->experts < 1 || p->first < 0 || p->k < 1 ||
        p->k > TRM_MOE_MOST_CHOSEN) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "experts layer of %d experts of width %d, %d of them per token",
                 (int)p->experts, (int)p->width, (int)p->k);
    }
    if (!is_float(p->type)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "experts layer of %s, expected f32, f16 or bf16", trm_dtype_name(p->type));
    }
    if (p->format == TRM_MOE_MXFP4 && (p->hidden % 32 != 0 || p->width % 32 != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "experts of MXFP4 of %d columns and %d, expected multiples of 32",
                 (int)p->hidden, (int)p->width);
    }
    if (p->format == TRM_MOE_INT4 || p->format == TRM_MOE_INT8) {
        const int32_t whole = p->format == TRM_MOE_INT4 ? 2 : 1; /* columns of a byte */
        if (p->up_group < 1 || p->down_group < 1 || p->hidden % p->up_group != 0 || p->width % p->down_group != 0 ||
            p->up_group % whole != 0 || p->down_group % whole != 0 || !is_float(p->scale_type)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "experts of integers in groups of %d of %d columns and %d of %d, expected groups that divide them",
                     (int)p->up_group, (int)p->hidden, (int)p->down_group, (int)p->width);
        }
    }
    return TRM_OK;
}

static float dot(const trm_moe_matrix *m, int64_t expert, int64_t row, const float *x)
{
    double sum = 0.0;
    for (int64_t i = 0; i < m->columns; i++) {
        sum += trm_moe_number(m, expert, row, i) * (double)x[i];
    }
    return (float)sum;
}

static float bias_at(const trm_moe_experts *p, const void *bias, int64_t i)
{
    return bias != NULL ? trm_element_load_f32(p->type, bias, i) : 0.0f;
}

/* h of one token and one expert, as the layer's type holds it. */
static void find_hidden(const trm_moe_experts *p, int64_t expert, float weight, const float *x, float *h)
{
    const int64_t first = expert * trm_moe_up_rows(p);
    const trm_moe_matrix m = trm_moe_up_matrix(p);
    const float scale = p->weighted_input ? weight : 1.0f;
    for (int64_t i = 0; i < p->width; i++) {
        const int64_t gate = trm_moe_gate_row(p, i), up = trm_moe_up_row(p, i);
        const float u = scale * dot(&m, expert, up, x) + bias_at(p, p->gate_up_bias, first + up);
        const float g = p->activation == TRM_EXPERT_RELU2
                            ? 0.0f
                            : scale * dot(&m, expert, gate, x) + bias_at(p, p->gate_up_bias, first + gate);
        const float exact = trm_moe_gated(p, g, u);
        h[i] = p->type == TRM_F32   ? exact
               : p->type == TRM_F16 ? trm_f16_to_f32(trm_f32_to_f16(exact))
                                    : trm_bf16_to_f32(trm_f32_to_bf16(exact));
    }
}

trm_status trm_moe_experts_host(const trm_moe_experts *p)
{
    TRM_TRY(trm_moe_experts_check(p));
    const trm_moe_matrix down = trm_moe_down_matrix(p);
    float *x = malloc(sizeof(float) * ((size_t)p->hidden * 2 + (size_t)p->width));
    if (x == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a row of %d elements", (int)p->hidden);
    }
    float *sum = x + p->hidden, *h = sum + p->hidden;
    for (int64_t t = 0; t < p->tokens; t++) {
        for (int64_t i = 0; i < p->hidden; i++) {
            x[i] = trm_element_load_f32(p->type, p->x, t * p->hidden + i);
            sum[i] = 0.0f;
        }
        for (int64_t s = t * p->k; s < (t + 1) * p->k; s++) {
            const int64_t expert = trm_moe_local(p, p->ids[s]);
            if (expert < 0) {
                continue;
            }
            find_hidden(p, expert, p->weights[s], x, h);
            for (int64_t i = 0; i < p->hidden; i++) {
                const float out = dot(&down, expert, i, h) + bias_at(p, p->down_bias, expert * p->hidden + i);
                sum[i] += (p->weighted_input ? 1.0f : p->weights[s]) * out;
            }
        }
        for (int64_t i = 0; i < p->hidden; i++) {
            const int64_t at = t * p->hidden + i;
            trm_element_store_f32(p->type, p->y, at,
                                  sum[i] +
                                      (p->residual != NULL ? trm_element_load_f32(p->type, p->residual, at) : 0.0f));
        }
    }
    free(x);
    return TRM_OK;
}
