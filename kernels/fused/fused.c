/* Steps of FUSED_ELEMENTWISE. */
#include "kernels/fused/fused.h"

#include <stdio.h>

#if TRM_HAVE_CUDA
#include "kernels/fused/cuda.h"
#endif

static const char *const names[TRM_FUSED_OP_COUNT] = {
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_ADD] = "add",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_SUB] = "sub",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_MUL] = "mul",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_DIV] = "div",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_MIN] = "min",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_MAX] = "max",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_POW] = "pow",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_MOD] = "mod",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_FMOD] = "fmod",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_EQUAL] = "equal",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_LESS] = "less",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_LESS_EQUAL] = "less_equal",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_GREATER] = "greater",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_GREATER_EQUAL] = "greater_equal",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_AND] = "and",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_OR] = "or",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_XOR] = "xor",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_SHIFT_LEFT] = "shift_left",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_SHIFT_RIGHT] = "shift_right",
    [TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_PRELU] = "prelu",
    [TRM_FUSED_UNARY + TRM_UNARY_ACTIVATION] = "unknown", /* activations have operations of their own */
    [TRM_FUSED_UNARY + TRM_UNARY_NEG] = "neg",
    [TRM_FUSED_UNARY + TRM_UNARY_ABS] = "abs",
    [TRM_FUSED_UNARY + TRM_UNARY_EXP] = "exp",
    [TRM_FUSED_UNARY + TRM_UNARY_LOG] = "log",
    [TRM_FUSED_UNARY + TRM_UNARY_SQRT] = "sqrt",
    [TRM_FUSED_UNARY + TRM_UNARY_RECIPROCAL] = "reciprocal",
    [TRM_FUSED_UNARY + TRM_UNARY_ERF] = "erf",
    [TRM_FUSED_UNARY + TRM_UNARY_LINEAR] = "linear",
    [TRM_FUSED_UNARY + TRM_UNARY_SOFTCAP] = "softcap",
    [TRM_FUSED_UNARY + TRM_UNARY_SIGN] = "sign",
    [TRM_FUSED_UNARY + TRM_UNARY_CEIL] = "ceil",
    [TRM_FUSED_UNARY + TRM_UNARY_FLOOR] = "floor",
    [TRM_FUSED_UNARY + TRM_UNARY_ROUND] = "round",
    [TRM_FUSED_UNARY + TRM_UNARY_SIN] = "sin",
    [TRM_FUSED_UNARY + TRM_UNARY_COS] = "cos",
    [TRM_FUSED_UNARY + TRM_UNARY_TAN] = "tan",
    [TRM_FUSED_UNARY + TRM_UNARY_ASIN] = "asin",
    [TRM_FUSED_UNARY + TRM_UNARY_ACOS] = "acos",
    [TRM_FUSED_UNARY + TRM_UNARY_ATAN] = "atan",
    [TRM_FUSED_UNARY + TRM_UNARY_SINH] = "sinh",
    [TRM_FUSED_UNARY + TRM_UNARY_COSH] = "cosh",
    [TRM_FUSED_UNARY + TRM_UNARY_ASINH] = "asinh",
    [TRM_FUSED_UNARY + TRM_UNARY_ACOSH] = "acosh",
    [TRM_FUSED_UNARY + TRM_UNARY_ATANH] = "atanh",
    [TRM_FUSED_UNARY + TRM_UNARY_NOT] = "not",
    [TRM_FUSED_UNARY + TRM_UNARY_IS_NAN] = "is_nan",
    [TRM_FUSED_UNARY + TRM_UNARY_IS_INF] = "is_inf",
    [TRM_FUSED_UNARY + TRM_UNARY_CLIP] = "clip",
    [TRM_FUSED_UNARY + TRM_UNARY_ELU] = "elu",
    [TRM_FUSED_UNARY + TRM_UNARY_SELU] = "selu",
    [TRM_FUSED_UNARY + TRM_UNARY_CELU] = "celu",
    [TRM_FUSED_UNARY + TRM_UNARY_LEAKY_RELU] = "leaky_relu",
    [TRM_FUSED_UNARY + TRM_UNARY_HARD_SIGMOID] = "hard_sigmoid",
    [TRM_FUSED_UNARY + TRM_UNARY_THRESHOLDED_RELU] = "thresholded_relu",
    [TRM_FUSED_UNARY + TRM_UNARY_SHRINK] = "shrink",
    [TRM_FUSED_UNARY + TRM_UNARY_SWISH] = "swish",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_NONE] = "none",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_RELU] = "relu",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_SILU] = "silu",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_GELU] = "gelu",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_GELU_TANH] = "gelu_tanh",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_SIGMOID] = "sigmoid",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_TANH] = "tanh",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_QUICK_GELU] = "quick_gelu",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_HARD_SWISH] = "hard_swish",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_MISH] = "mish",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_SOFTPLUS] = "softplus",
    [TRM_FUSED_ACTIVATION + TRM_ACTIVATION_SOFTSIGN] = "softsign",
    [TRM_FUSED_CAST] = "cast",
    [TRM_FUSED_SELECT] = "select",
    [TRM_FUSED_VALUE] = "value",
};

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
        return from != TRM_F64 || (to != TRM_F16 && to != TRM_BF16); /* would be rounded twice by way of f32 */
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
