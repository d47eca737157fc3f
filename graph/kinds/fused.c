/*
 * FUSED_ELEMENTWISE: the rules of the layers that its steps stand for, one after the other.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"
#include "kernels/fused/fused.h"

typedef struct values {
    const trm_infer_call *call;
    const trm_fused_elementwise_params *params;
    trm_dims dims[TRM_MAX_FUSED_STEPS];
} values;

/* Dims and type of what a step reads. */
static trm_status get_operand(const values *self, int32_t step, int32_t operand, const trm_dims **dims, trm_dtype *type)
{
    if (operand >= 0 && operand < TRM_MAX_LAYER_INPUTS && trm_infer_has(self->call, operand)) {
        *dims = self->call->dims[operand];
        *type = self->call->dtypes[operand];
        return TRM_OK;
    }
    if (operand >= TRM_MAX_LAYER_INPUTS && operand - TRM_MAX_LAYER_INPUTS < step) {
        int32_t earlier = operand - TRM_MAX_LAYER_INPUTS;
        *dims = &self->dims[earlier];
        *type = self->params->steps[earlier].type;
        return TRM_OK;
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
             "step %" PRId32 " reads value %" PRId32 ", which is neither an input nor an earlier step", step, operand);
}

static trm_status infer_step(values *self, int32_t i)
{
    const trm_fused_step *step = &self->params->steps[i];
    const trm_dims *dims[3];
    trm_dtype types[3], type;
    if (!trm_fused_can_hold(step->type)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "step %" PRId32 " has type %s, expected a type for arithmetic", i,
                 trm_dtype_name(step->type));
    }
    if (step->op == TRM_FUSED_VALUE) {
        self->dims[i].n = 0;
        return TRM_OK;
    }
    trm_layer_desc desc = trm_fused_step_layer(step);
    if (desc.kind == TRM_LAYER_KIND_COUNT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "step %" PRId32 " has operation %d, which does not exist", i,
                 (int)step->op);
    }
    const int32_t operands[3] = {step->a, step->b, step->c}, n = trm_fused_operands(step->op);
    for (int32_t k = 0; k < n; k++) {
        TRM_TRY(get_operand(self, i, operands[k], &dims[k], &types[k]));
    }
    if (step->op == TRM_FUSED_CAST && !trm_fused_can_cast(types[0], step->type)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "step %" PRId32 " casts %s to %s, which a step cannot do", i,
                 trm_dtype_name(types[0]), trm_dtype_name(step->type));
    }
    trm_status status = trm_infer_layer(&desc, n, dims, types, NULL, 1, &self->dims[i], &type);
    if (status != TRM_OK) {
        return trm_fail_in(status, "step %" PRId32, i);
    }
    if (type != step->type) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "step %" PRId32 " has type %s, expected %s", i, trm_dtype_name(step->type),
                 trm_dtype_name(type));
    }
    return TRM_OK;
}

/* What all inputs broadcast to. */
static trm_status infer_common(const trm_infer_call *call, trm_dims *common)
{
    common->n = 0;
    for (int32_t i = 0; i < call->n_inputs; i++) {
        trm_dims joined;
        TRM_TRY(trm_infer_broadcast(common, call->dims[i], 0, &joined));
        *common = joined;
    }
    return TRM_OK;
}

static trm_status infer_fused_elementwise(const trm_infer_call *call)
{
    const trm_fused_elementwise_params *p = &call->desc->fused_elementwise;
    values self = {.call = call, .params = p};
    if (p->n_steps < 1 || p->n_steps > TRM_MAX_FUSED_STEPS || p->n_outputs < 1 ||
        p->n_outputs > TRM_MAX_LAYER_OUTPUTS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId32 " steps and %" PRId32 " outputs, expected 1 to %d and 1 to %d", p->n_steps,
                 p->n_outputs, TRM_MAX_FUSED_STEPS, TRM_MAX_LAYER_OUTPUTS);
    }
    TRM_TRY(trm_infer_require_inputs(call, call->n_inputs < 1 ? 1 : call->n_inputs, TRM_MAX_LAYER_INPUTS));
    for (int32_t i = 0; i < call->n_inputs; i++) {
        if (!trm_fused_can_hold(call->dtypes[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %" PRId32 " has type %s, expected a type for arithmetic", i,
                     trm_dtype_name(call->dtypes[i]));
        }
    }
    for (int32_t i = 0; i < p->n_steps; i++) {
        TRM_TRY(infer_step(&self, i));
    }
    trm_dims common;
    TRM_TRY(infer_common(call, &common));
    for (int32_t i = 0; i < p->n_outputs; i++) {
        const int32_t step = p->outputs[i];
        bool fits = step >= 0 && step < p->n_steps && self.dims[step].n == common.n;
        for (int32_t k = 0; fits && k < common.n; k++) {
            fits = trm_dim_fits(self.dims[step].d[k], common.d[k]);
            common.d[k] = trm_dim_known(common.d[k], self.dims[step].d[k]);
        }
        if (!fits) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "output %" PRId32 " is step %" PRId32 ", expected a step with the broadcast dims of all inputs", i,
                     step);
        }
    }
    for (int32_t i = 0; i < p->n_outputs; i++) {
        call->output_dims[i] = common;
        call->output_dtypes[i] = p->steps[p->outputs[i]].type;
    }
    return TRM_OK;
}

/* The rule refuses other counts. */
static int32_t count_outputs(const trm_layer_desc *desc)
{
    const int32_t n = desc->fused_elementwise.n_outputs;
    return n >= 1 && n <= TRM_MAX_LAYER_OUTPUTS ? n : 1;
}

static void sizes_of_fused(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_linked_to(walk, layer, trm_link_broadcast, layer->n_inputs);
    for (int32_t i = 1; i < layer->n_outputs; i++) {
        trm_sizes_follow(walk, layer->outputs[i], layer->outputs[0], layer->outputs[0]->dims.n);
    }
}

const trm_kind trm_kind_fused_elementwise = {
    TRM_FIELDS({.name = "steps", .type = TRM_FIELD_PROGRAM, .offset = TRM_AT(fused_elementwise), .always = true}),
    .infer = infer_fused_elementwise,
    .output_count = count_outputs,
    .sizes = sizes_of_fused,
};
