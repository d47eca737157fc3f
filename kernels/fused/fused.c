/* Steps of FUSED_ELEMENTWISE. */
#include "kernels/fused/fused.h"

#include <stdio.h>

#if TRM_HAVE_CUDA
#include "kernels/fused/cuda.h"
#endif

#define ELEMENTWISE_NAME(value, name) [TRM_FUSED_ELEMENTWISE + (value)] = name,
#define UNARY_NAME(value, name)       [TRM_FUSED_UNARY + (value)] = name,
#define ACTIVATION_NAME(value, name)  [TRM_FUSED_ACTIVATION + (value)] = name,
static const char *const names[TRM_FUSED_OP_COUNT] = {[TRM_FUSED_CAST] = "cast",
                                                      [TRM_FUSED_SELECT] = "select",
                                                      [TRM_FUSED_VALUE] = "value",
                                                      TRM_ELEMENTWISE_OPS(ELEMENTWISE_NAME) TRM_UNARY_OPS(UNARY_NAME)
                                                          TRM_ACTIVATIONS(ACTIVATION_NAME)};

const char *trm_fused_op_name(trm_fused_op op)
{
    return (unsigned)op < TRM_FUSED_OP_COUNT ? names[op] : NULL;
}

int32_t trm_fused_operands(trm_fused_op op)
{
    if (op == TRM_FUSED_SELECT) {
        return 3;
    }
    return op < TRM_FUSED_UNARY ? 2 : op == TRM_FUSED_VALUE ? 0 : 1;
}

trm_layer_desc trm_fused_step_layer(const trm_fused_step *step)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_KIND_COUNT};
    if ((unsigned)step->op < TRM_FUSED_UNARY) {
        desc.kind = TRM_LAYER_ELEMENTWISE;
        desc.elementwise.op = (trm_elementwise_op)(step->op - TRM_FUSED_ELEMENTWISE);
    } else if (step->op > TRM_FUSED_UNARY && step->op < TRM_FUSED_ACTIVATION) { /* UNARY + ACTIVATION is none */
        desc.kind = TRM_LAYER_UNARY;
        desc.unary = (trm_unary_params){
            .op = (trm_unary_op)(step->op - TRM_FUSED_UNARY), .alpha = step->alpha, .beta = step->beta};
    } else if (step->op >= TRM_FUSED_ACTIVATION && step->op < TRM_FUSED_CAST) {
        desc.kind = TRM_LAYER_UNARY;
        desc.unary.activation = (trm_activation)(step->op - TRM_FUSED_ACTIVATION);
    } else if (step->op == TRM_FUSED_CAST) {
        desc.kind = TRM_LAYER_CAST;
        desc.cast.to = step->type;
    } else if (step->op == TRM_FUSED_SELECT) {
        desc.kind = TRM_LAYER_SELECT;
    }
    return desc;
}

bool trm_fused_can_hold(trm_dtype dtype)
{
    return dtype > TRM_DTYPE_NONE && dtype <= TRM_BOOL;
}

static bool is_float(trm_dtype dtype)
{
    return dtype >= TRM_F32 && dtype <= TRM_F64;
}

bool trm_fused_can_cast(trm_dtype from, trm_dtype to)
{
    if (!trm_fused_can_hold(from) || !trm_fused_can_hold(to)) {
        return false;
    }
    if (is_float(from) && is_float(to)) {
        return from != TRM_F64 || (to != TRM_F16 && to != TRM_BF16); /* would be rounded twice through f32 */
    }
    if (is_float(from)) {
        return to == TRM_BOOL;
    }
    return !is_float(to) || to == TRM_F32 || to == TRM_F64 || trm_dtype_size(from) <= 2;
}

bool trm_fused_available(trm_backend backend, char *why, size_t why_size)
{
    if (backend == TRM_BACKEND_HOST) {
        return true;
    }
#if TRM_HAVE_CUDA
    return trm_cuda_fused_available(why, why_size);
#else
    if (why != NULL && why_size > 0) {
        snprintf(why, why_size, "this build has no CUDA");
    }
    return false;
#endif
}

trm_status trm_fused_prepare(trm_device *device, const trm_layer_desc *layer, const trm_dtype *inputs, int32_t n_inputs)
{
#if TRM_HAVE_CUDA
    if (trm_device_backend(device) == TRM_BACKEND_CUDA) {
        return trm_cuda_fused_prepare(device, &layer->fused_elementwise, inputs, n_inputs);
    }
#endif
    (void)device;
    (void)layer;
    (void)inputs;
    (void)n_inputs;
    return TRM_OK;
}
