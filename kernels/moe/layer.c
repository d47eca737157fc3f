/* ROUTER and EXPERTS layers as calls of their kernels, NORM_ROUTER as a NORM and a ROUTER. */
#include "kernels/moe/layer.h"

#include <math.h>

static const trm_view *view_of(const trm_kernel_call *call, int32_t i)
{
    return i < call->n_inputs ? &call->inputs[i] : NULL;
}

static bool is_vector(const trm_view *view, int64_t size)
{
    return view == NULL || view->dtype == TRM_DTYPE_NONE ||
           (view->dtype == TRM_F32 && view->dims.n == 1 && view->dims.d[0] == size);
}

bool trm_moe_router_of(const trm_kernel_call *call, trm_moe_router *router)
{
    const trm_router_params *p = &call->layer->router;
    const trm_view *x = &call->inputs[TRM_ROUTER_X], *weight = &call->inputs[TRM_ROUTER_WEIGHT];
    if (call->n_inputs < 2 || call->n_outputs != 2 || x->dims.n != 2 || weight->dims.n != 2 ||
        weight->dims.d[1] != x->dims.d[1] || weight->dims.d[0] > TRM_MOE_MOST_EXPERTS || p->k > TRM_MOE_MOST_CHOSEN ||
        !is_vector(view_of(call, TRM_ROUTER_BIAS), weight->dims.d[0]) ||
        !is_vector(view_of(call, TRM_ROUTER_CORRECTION), weight->dims.d[0]) ||
        !is_vector(view_of(call, TRM_ROUTER_EXPERT_SCALE), weight->dims.d[0])) {
        return false;
    }
    *router = (trm_moe_router){.tokens = x->dims.d[0],
                               .hidden = (int32_t)x->dims.d[1],
                               .experts = (int32_t)weight->dims.d[0],
                               .k = p->k,
                               .x_type = x->dtype,
                               .weight_type = weight->dtype,
                               .scoring = p->scoring,
                               .groups = p->groups,
                               .top_groups = p->top_groups,
                               .group_sum = p->group_sum,
                               .renormalize = p->renormalize,
                               .epsilon = p->epsilon,
                               .scale = p->scale == 0.0f ? 1.0f : p->scale,
                               .x = x->data,
                               .weight = weight->data,
                               .bias = trm_kernel_call_input(call, TRM_ROUTER_BIAS),
                               .correction = trm_kernel_call_input(call, TRM_ROUTER_CORRECTION),
                               .expert_scale = trm_kernel_call_input(call, TRM_ROUTER_EXPERT_SCALE),
                               .ids = call->outputs[0].data,
                               .weights = call->outputs[1].data};
    return true;
}

static bool format_of(const trm_kernel_call *call, trm_moe_format *format)
{
    const trm_view *down = &call->inputs[TRM_EXPERTS_DOWN], *scale = view_of(call, TRM_EXPERTS_DOWN_SCALE);
    switch (down->dtype) {
    case TRM_U8:
        *format = scale->dtype == TRM_U8 ? TRM_MOE_MXFP4 : TRM_MOE_INT4;
        return true;
    case TRM_I8:
        *format = TRM_MOE_INT8;
        return true;
    case TRM_F8E4M3:
        *format = scale->dims.d[1] == down->dims.d[1] && scale->dims.d[2] == 1 ? TRM_MOE_F8_ROWS : TRM_MOE_F8_BLOCKS;
        return true;
    default:
        *format = TRM_MOE_HALVES;
        return down->dtype == call->inputs[TRM_EXPERTS_X].dtype;
    }
}

bool trm_moe_experts_of(const trm_kernel_call *call, trm_moe_experts *experts)
{
    const trm_experts_params *p = &call->layer->experts;
    const trm_view *x = &call->inputs[TRM_EXPERTS_X], *ids = &call->inputs[TRM_EXPERTS_IDS];
    const trm_view *gate_up = &call->inputs[TRM_EXPERTS_GATE_UP], *down = &call->inputs[TRM_EXPERTS_DOWN];
    trm_moe_format format;
    if (call->n_inputs < 5 || call->n_outputs != 1 || x->dims.n != 2 || ids->dims.n != 2 || gate_up->dims.n != 4 ||
        down->dims.n != 3 || ids->dims.d[1] > TRM_MOE_MOST_CHOSEN || !format_of(call, &format)) {
        return false;
    }
    const bool integers = format == TRM_MOE_INT4 || format == TRM_MOE_INT8;
    const int64_t width = down->dims.d[2] * (format == TRM_MOE_MXFP4 || format == TRM_MOE_INT4 ? 2 : 1);
    const trm_view *up_scale = view_of(call, TRM_EXPERTS_GATE_UP_SCALE);
    const trm_view *down_scale = view_of(call, TRM_EXPERTS_DOWN_SCALE);
    const uint32_t weights = 1u << TRM_EXPERTS_GATE_UP | 1u << TRM_EXPERTS_DOWN;
    *experts = (trm_moe_experts){.tokens = x->dims.d[0],
                                 .hidden = (int32_t)x->dims.d[1],
                                 .width = (int32_t)width,
                                 .experts = (int32_t)down->dims.d[0],
                                 .first = (int32_t)p->first,
                                 .k = (int32_t)ids->dims.d[1],
                                 .type = x->dtype,
                                 .format = format,
                                 .activation = p->activation,
                                 .limit = p->limit > 0.0f ? p->limit : INFINITY,
                                 .alpha = p->alpha,
                                 .scale_type = integers ? down_scale->dtype : TRM_DTYPE_NONE,
                                 .up_group = integers ? (int32_t)(x->dims.d[1] / up_scale->dims.d[3]) : 0,
                                 .down_group = integers ? (int32_t)(width / down_scale->dims.d[2]) : 0,
                                 .interleaved = p->interleaved,
                                 .weighted_input = p->weighted_input,
                                 .batch_invariant = call->batch_invariant,
                                 .constant_weights = (call->constants & weights) == weights,
                                 .x = x->data,
                                 .ids = ids->data,
                                 .weights = call->inputs[TRM_EXPERTS_WEIGHTS].data,
                                 .gate_up = gate_up->data,
                                 .gate_up_scale = trm_kernel_call_input(call, TRM_EXPERTS_GATE_UP_SCALE),
                                 .gate_up_zero = trm_kernel_call_input(call, TRM_EXPERTS_GATE_UP_ZERO_POINT),
                                 .gate_up_bias = trm_kernel_call_input(call, TRM_EXPERTS_GATE_UP_BIAS),
                                 .down = down->data,
                                 .down_scale = trm_kernel_call_input(call, TRM_EXPERTS_DOWN_SCALE),
                                 .down_zero = trm_kernel_call_input(call, TRM_EXPERTS_DOWN_ZERO_POINT),
                                 .down_bias = trm_kernel_call_input(call, TRM_EXPERTS_DOWN_BIAS),
                                 .y = call->outputs[0].data};
    return true;
}

/* ---- a norm before the router ----------------------------------------------------------------------- */

static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels};

bool trm_norm_router_parts(const trm_kernel_call *call, trm_kernel_parts *parts)
{
    const trm_norm_router_params *p = &call->layer->norm_router;
    if (call->n_inputs < 2 || call->n_outputs != (p->residual ? TRM_NORM_ROUTER_SUM : TRM_NORM_ROUTER_NORM) + 1) {
        return false;
    }
    parts->tables = tables;
    parts->n_tables = 2;
    trm_kernel_call *norm = trm_kernel_parts_add(parts, call, TRM_LAYER_NORM);
    parts->layers[0].norm =
        (trm_norm_params){.residual = p->residual, .eps = p->eps, .weight_offset = p->weight_offset};
    trm_kernel_parts_pass(norm, call, TRM_ROUTER_X);
    if (p->residual) {
        trm_kernel_parts_pass(norm, call, TRM_NORM_ROUTER_RESIDUAL);
    }
    if (trm_kernel_call_has(call, TRM_NORM_ROUTER_NORM_WEIGHT)) {
        trm_kernel_parts_pass(norm, call, TRM_NORM_ROUTER_NORM_WEIGHT);
    }
    norm->n_outputs = call->n_outputs - TRM_NORM_ROUTER_NORM;
    for (int32_t i = 0; i < norm->n_outputs; i++) {
        norm->outputs[i] = call->outputs[TRM_NORM_ROUTER_NORM + i];
    }
    norm->unread = call->unread >> TRM_NORM_ROUTER_NORM & ~1u; /* the router reads the norm */
    trm_kernel_call *router = trm_kernel_parts_add(parts, call, TRM_LAYER_ROUTER);
    parts->layers[1].router = p->router;
    router->inputs[router->n_inputs++] = call->outputs[TRM_NORM_ROUTER_NORM];
    for (int32_t i = TRM_ROUTER_WEIGHT; i < TRM_ROUTER_INPUT_COUNT && i < call->n_inputs; i++) {
        trm_kernel_parts_pass(router, call, i);
    }
    router->n_outputs = TRM_NORM_ROUTER_NORM;
    for (int32_t i = 0; i < router->n_outputs; i++) {
        router->outputs[i] = call->outputs[i];
    }
    return true;
}

TRM_KERNEL_OF_PARTS(, trm_host_norm_router, TRM_BACKEND_HOST, trm_norm_router_parts)

/* ---- host ------------------------------------------------------------------------------------------- */

bool trm_host_router_accepts(const trm_kernel_call *call)
{
    trm_moe_router router;
    return trm_moe_router_of(call, &router);
}

trm_status trm_host_router_run(const trm_kernel_call *call)
{
    trm_moe_router router;
    return trm_moe_router_of(call, &router) && router.tokens > 0 ? trm_moe_router_host(&router) : TRM_OK;
}

bool trm_host_experts_accepts(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    return trm_moe_experts_of(call, &experts);
}

trm_status trm_host_experts_run(const trm_kernel_call *call)
{
    trm_moe_experts experts;
    return trm_moe_experts_of(call, &experts) && experts.tokens > 0 ? trm_moe_experts_host(&experts) : TRM_OK;
}
