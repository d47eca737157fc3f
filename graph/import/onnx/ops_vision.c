/* Operators over images other than windows: normalisations by channel. */
#include "graph/import/onnx/ops.h"

/* ---- normalisations ---------------------------------------------------------------------------- */

/* A vector [C] as [C, 1, ...] so that it broadcasts over x [N, C, ...]. */
static trm_tensor *by_channel(trm_onnx_node *node, trm_tensor *vector, const trm_tensor *x)
{
    const int64_t dims[TRM_MAX_DIMS] = {-1, 1, 1, 1, 1, 1, 1, 1};
    return x->dims.n < 3 ? vector : trm_onnx_reshape(node, vector, dims, x->dims.n - 1);
}

/* x * factor + offset, channel by channel: what is left of (x - mean) / sqrt(variance + epsilon) * scale + bias. */
static trm_tensor *scale_channels(trm_onnx_node *node, trm_tensor *x, trm_tensor *mean, trm_tensor *variance,
                                  float epsilon)
{
    const trm_dtype work = x->dtype == TRM_F64 ? TRM_F64 : TRM_F32;
    trm_tensor *scale = trm_onnx_cast(node, node->inputs[1], work), *bias = trm_onnx_cast(node, node->inputs[2], work);
    mean = trm_onnx_cast(node, mean, work);
    variance = trm_onnx_cast(node, variance, work);
    trm_tensor *deviation = trm_onnx_unary(
        node, TRM_UNARY_SQRT, trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, variance, (double)epsilon));
    trm_tensor *factor = trm_onnx_elementwise(node, TRM_ELEMENTWISE_DIV, scale, deviation);
    trm_tensor *offset = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, bias,
                                              trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, mean, factor));
    factor = trm_onnx_cast(node, by_channel(node, factor, x), x->dtype);
    offset = trm_onnx_cast(node, by_channel(node, offset, x), x->dtype);
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, x, factor),
                                offset);
}

/* known * momentum + now * (1 - momentum), in the type of `known`. */
static trm_tensor *running(trm_onnx_node *node, trm_tensor *known, trm_tensor *now, float momentum)
{
    now = trm_onnx_cast(node, now, known->dtype);
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD,
                                trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, known, (double)momentum),
                                trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, now, 1.0 - (double)momentum));
}

static void import_batch_normalization(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    const float epsilon = trm_onnx_float(node, "epsilon", 1e-5f), momentum = trm_onnx_float(node, "momentum", 0.9f);
    if (x->dims.n < 2 && !trm_onnx_failed(node)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "input 0 has %d dimensions, expected at least 2", (int)x->dims.n);
        return;
    }
    if (!trm_onnx_flag(node, "spatial", true)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "statistics of every element (spatial 0) are not supported");
        return;
    }
    if (node->opset < 14 || !trm_onnx_flag(node, "training_mode", false)) {
        trm_onnx_set(node, 0, scale_channels(node, x, node->inputs[3], node->inputs[4], epsilon));
        return;
    }
    int32_t axes[TRM_MAX_DIMS] = {0};
    for (int32_t i = 2; i < x->dims.n; i++) {
        axes[i - 1] = i;
    }
    trm_tensor *wide = x->dtype == TRM_F64 ? x : trm_onnx_cast(node, x, TRM_F32);
    trm_tensor *mean = trm_onnx_reduce(node, TRM_REDUCE_AVG, wide, axes, x->dims.n - 1, false);
    trm_tensor *distance = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, wide, by_channel(node, mean, x));
    trm_tensor *variance =
        trm_onnx_reduce(node, TRM_REDUCE_AVG, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, distance, distance), axes,
                        x->dims.n - 1, false);
    trm_onnx_set(node, 0, scale_channels(node, x, mean, variance, epsilon));
    if (trm_onnx_wants(node, 1)) {
        trm_onnx_set(node, 1, running(node, node->inputs[3], mean, momentum));
    }
    if (trm_onnx_wants(node, 2)) {
        trm_onnx_set(node, 2, running(node, node->inputs[4], variance, momentum));
    }
}

const trm_onnx_operator trm_onnx_ops_vision[] = {
    {"", "BatchNormalization", 7, 5, import_batch_normalization, 0},
    {0},
};
