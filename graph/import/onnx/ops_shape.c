/* Operators about dims. */
#include "graph/import/onnx/ops.h"

static void import_flatten(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    int64_t axis = trm_onnx_int(node, "axis", 1);
    if (axis < -x->dims.n || axis > x->dims.n) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %lld, expected one of %d dimensions", (long long)axis,
                      (int)x->dims.n);
        return;
    }
    trm_onnx_set(node, 0, trm_onnx_flatten(node, x, (int32_t)(axis < 0 ? axis + x->dims.n : axis)));
}

const trm_onnx_operator trm_onnx_ops_shape[] = {
    {"", "Flatten", 1, 1, import_flatten, 0},
    {0},
};
