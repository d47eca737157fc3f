/* Layer and RMS normalization over the last axes, with what may come before it, and the embeddings that end in one. */
#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

/* Whether a weight has exactly the dims of x from `axis` on. Dims that are not known are taken to be the same. */
static bool fits(const trm_tensor *weight, const trm_tensor *x, int32_t axis)
{
    bool same = weight->dims.n == x->dims.n - axis;
    for (int32_t i = 0; same && i < weight->dims.n; i++) {
        const int64_t a = weight->dims.d[i], b = x->dims.d[axis + i];
        same = a == b || (a == -1 && b != 1) || (b == -1 && a != 1);
    }
    return same;
}

/* Vector of all elements; NULL stays. */
static trm_tensor *as_vector(trm_onnx_node *node, trm_tensor *x)
{
    static const int64_t all[1] = {-1};
    return x == NULL || x->dims.n == 1 ? x : trm_onnx_reshape(node, x, all, 1);
}

trm_tensor *trm_onnx_norm(trm_onnx_node *node, trm_norm_op op, float eps, trm_tensor *x, int32_t axis,
                          trm_tensor *weight, trm_tensor *bias)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_NORM, .norm = {.op = op, .eps = eps}};
    const int32_t rank = x->dims.n;
    if (trm_onnx_failed(node)) {
        return x;
    }
    const bool inside =
        (weight == NULL || fits(weight, x, axis)) && (bias == NULL || (op == TRM_NORM_LAYER && fits(bias, x, axis)));
    trm_tensor *flat = x;
    if (axis < rank - 1) {
        int64_t dims[TRM_MAX_DIMS] = {0};
        dims[axis] = -1;
        flat = trm_onnx_reshape(node, x, dims, axis + 1);
    }
    trm_tensor *inputs[] = {flat, inside ? as_vector(node, weight) : NULL, inside ? as_vector(node, bias) : NULL};
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
    trm_onnx_layer(node, &desc, inputs, inputs[2] != NULL ? 3 : inputs[1] != NULL ? 2 : 1, outputs);
    trm_tensor *y = outputs[0];
    if (axis < rank - 1) {
        trm_onnx_dim dims[TRM_MAX_DIMS];
        trm_onnx_dims_of(node, x, dims);
        y = trm_onnx_reshape_to(node, y, dims, rank);
    }
    if (!inside && weight != NULL) {
        y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, y, weight);
    }
    return inside || bias == NULL ? y : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, bias);
}

/* ---- ONNX ------------------------------------------------------------------------------------------------------ */

/* Mean, and 1 / sqrt(variance + eps), in f32, axes from `axis` on kept as 1. */
static void set_statistics(trm_onnx_node *node, trm_tensor *x, int32_t axis, float eps, int32_t mean_output)
{
    if (!trm_onnx_wants(node, mean_output) && !trm_onnx_wants(node, mean_output + 1)) {
        return;
    }
    int32_t axes[TRM_MAX_DIMS], n = 0;
    for (int32_t i = axis; i < x->dims.n; i++) {
        axes[n++] = i;
    }
    trm_tensor *wide = trm_onnx_cast(node, x, TRM_F32);
    trm_tensor *mean = trm_onnx_reduce(node, TRM_REDUCE_AVG, wide, axes, n, true);
    trm_tensor *d = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, wide, mean);
    trm_tensor *variance =
        trm_onnx_reduce(node, TRM_REDUCE_AVG, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, d, d), axes, n, true);
    trm_tensor *shifted = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, variance, (double)eps);
    trm_onnx_set(node, mean_output, mean);
    trm_onnx_set(node, mean_output + 1,
                 trm_onnx_unary(node, TRM_UNARY_RECIPROCAL, trm_onnx_unary(node, TRM_UNARY_SQRT, shifted)));
}

/* data: the trm_norm_op. A scale of another type decides the output's. */
static void import_norm(trm_onnx_node *node)
{
    const trm_norm_op op = (trm_norm_op)node->row->data;
    trm_tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = op == TRM_NORM_LAYER ? node->inputs[2] : NULL;
    const float eps = trm_onnx_float(node, "epsilon", 1e-5f);
    const int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", -1), x->dims.n);
    if (trm_onnx_failed(node)) {
        return;
    }
    const trm_dtype out = weight->dtype, type = x->dtype == out ? out : TRM_F32;
    trm_tensor *y = trm_onnx_norm(node, op, eps, trm_onnx_cast(node, x, type), axis, trm_onnx_cast(node, weight, type),
                                  bias == NULL ? NULL : trm_onnx_cast(node, bias, type));
    trm_onnx_set(node, 0, trm_onnx_cast(node, y, out));
    if (op == TRM_NORM_LAYER) {
        set_statistics(node, x, axis, eps, 1);
    }
}

/* ---- com.microsoft --------------------------------------------------------------------------------------------- */

/* (input, skip, gamma, beta of LAYER only, bias) -> (norm of their sum, mean, 1 / deviation, the sum); data: the op. */
static void import_skip_norm(trm_onnx_node *node)
{
    const trm_norm_op op = (trm_norm_op)node->row->data;
    const bool layer = op == TRM_NORM_LAYER;
    trm_tensor *x = node->inputs[0], *skip = node->inputs[1], *weight = node->inputs[2];
    trm_tensor *beta = layer ? node->inputs[3] : NULL, *bias = node->inputs[layer ? 4 : 3];
    const float eps = trm_onnx_float(node, "epsilon", layer ? 1e-12f : 1e-5f);
    x = bias == NULL ? x : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, x, bias);
    if (skip->dims.n != x->dims.n || !fits(skip, x, 0)) { /* a skip without the batch is repeated */
        trm_onnx_dim dims[TRM_MAX_DIMS];
        skip = trm_onnx_expand(node, skip, dims, trm_onnx_dims_of(node, x, dims));
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_NORM, .norm = {.op = op, .residual = true, .eps = eps}};
    trm_tensor *inputs[] = {x, skip, weight, beta}, *outputs[TRM_MAX_LAYER_OUTPUTS];
    trm_onnx_layer(node, &desc, inputs, beta == NULL ? 3 : 4, outputs);
    if (trm_onnx_failed(node)) {
        return;
    }
    trm_onnx_set(node, 0, outputs[0]);
    trm_onnx_set(node, 3, outputs[1]);
    if (layer) {
        set_statistics(node, outputs[1], outputs[1]->dims.n - 1, eps, 1);
    }
}

/* The rows of a table of embeddings. */
static trm_tensor *rows_of(trm_onnx_node *node, trm_tensor *table, trm_tensor *ids)
{
    return trm_onnx_gather(node, table, ids, 0);
}

static void import_embed_layer_norm(trm_onnx_node *node)
{
    trm_tensor *ids = node->inputs[0], *segments = node->inputs[1], *positions = node->inputs[8];
    trm_tensor *mask = node->inputs[7];
    if (ids->dims.n != 2) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "input 0 has %d dimensions, expected 2", (int)ids->dims.n);
        return;
    }
    positions = positions != NULL ? positions : trm_onnx_positions(node, trm_onnx_dim_of(node, ids, 1));
    trm_tensor *sum = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, rows_of(node, node->inputs[2], ids),
                                           rows_of(node, node->inputs[3], positions));
    if (segments != NULL && node->inputs[4] != NULL) {
        sum = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, sum, rows_of(node, node->inputs[4], segments));
    }
    if (node->inputs[5] == NULL || node->inputs[6] == NULL) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has no gamma or beta");
        return;
    }
    trm_onnx_set(node, 0,
                 trm_onnx_norm(node, TRM_NORM_LAYER, trm_onnx_float(node, "epsilon", 1e-12f), sum, 2, node->inputs[5],
                               node->inputs[6]));
    if (trm_onnx_wants(node, 1)) { /* tokens that are no padding, of each row */
        const int32_t last = 1;
        const trm_onnx_dim batch = trm_onnx_dim_of(node, ids, 0);
        trm_tensor *none = trm_onnx_expand(node, trm_onnx_scalar(node, TRM_I32, 0), &batch, 1);
        trm_onnx_set(node, 1,
                     mask == NULL
                         ? none
                         : trm_onnx_reduce(node, TRM_REDUCE_SUM, trm_onnx_cast(node, mask, TRM_I32), &last, 1, false));
    }
    trm_onnx_set(node, 2, sum);
}

const trm_onnx_operator trm_onnx_ops_norm[] = {
    {"", "LayerNormalization", 1, 2, import_norm, TRM_NORM_LAYER},
    {"", "RMSNormalization", 23, 2, import_norm, TRM_NORM_RMS},
    {"", "SimplifiedLayerNormalization", 1, 2, import_norm, TRM_NORM_RMS},
    {"com.microsoft", "SimplifiedLayerNormalization", 1, 2, import_norm, TRM_NORM_RMS},
    {"com.microsoft", "SkipLayerNormalization", 1, 3, import_skip_norm, TRM_NORM_LAYER},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, 3, import_skip_norm, TRM_NORM_RMS},
    {"com.microsoft", "EmbedLayerNormalization", 1, 1, import_embed_layer_norm, 0},
    {0},
};
