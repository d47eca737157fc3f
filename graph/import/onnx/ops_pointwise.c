/* Operators that take elements one by one. */
#include "graph/import/onnx/ops.h"

static void import_elementwise(trm_onnx_node *node)
{
    trm_elementwise_op op = (trm_elementwise_op)node->row->data;
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, op, node->inputs[0], node->inputs[1]));
}

static void import_activation(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, trm_onnx_activation(node, (trm_activation)node->row->data, node->inputs[0]));
}

const trm_onnx_operator trm_onnx_ops_pointwise[] = {
    {"", "Add", 7, 2, import_elementwise, TRM_ELEMENTWISE_ADD},
    {"", "Mul", 7, 2, import_elementwise, TRM_ELEMENTWISE_MUL},
    {"", "Relu", 6, 1, import_activation, TRM_ACTIVATION_RELU},
    {0},
};
