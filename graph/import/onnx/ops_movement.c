/* Operators that move elements, and products and sums of them. */
#include "graph/import/onnx/ops.h"

static void import_matmul(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, trm_onnx_matmul(node, node->inputs[0], node->inputs[1], false, false));
}

static void import_transpose(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    int64_t perm[TRM_MAX_DIMS];
    int32_t order[TRM_MAX_DIMS] = {0}, rank = x->dims.n;
    int32_t n = trm_onnx_ints(node, "perm", perm, TRM_MAX_DIMS);
    if (n >= 0 && n != rank) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute perm has %d values, expected %d", (int)n, (int)rank);
        return;
    }
    for (int32_t i = 0; i < rank; i++) {
        order[i] = n < 0 ? rank - 1 - i : trm_onnx_axis(node, perm[i], rank);
    }
    trm_onnx_set(node, 0, trm_onnx_transpose(node, x, order));
}

const trm_onnx_operator trm_onnx_ops_movement[] = {
    {"", "MatMul", 1, 2, import_matmul, 0},
    {"", "Transpose", 1, 1, import_transpose, 0},
    {0},
};
