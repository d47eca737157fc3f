/* Losses, which training graphs end in: made of smaller layers. */
#include "graph/import/onnx/ops/ops.h"

/* The weight of each target: that of its class, 0 where the target is to be ignored; NULL: all 1. */
static trm_tensor *weights_of(trm_onnx_node *node, trm_tensor *target, trm_tensor *ignored, trm_tensor *classes,
                              trm_dtype dtype)
{
    trm_tensor *weights = NULL;
    if (classes != NULL) {
        weights = trm_onnx_gather(node, classes, target, 0);
    } else if (ignored != NULL) {
        weights = trm_onnx_scalar(node, dtype, 1.0);
    }
    return ignored == NULL ? weights : trm_onnx_select(node, ignored, trm_onnx_scalar(node, dtype, 0.0), weights);
}

/* The mean, sum or all of -log_prob[n, target[n], ...] by weight. */
static trm_tensor *likelihood_loss(trm_onnx_node *node, trm_tensor *log_prob, trm_tensor *target, trm_tensor *classes)
{
    static const char *const reductions[] = {"none", "mean", "sum", NULL};
    const int32_t reduction = trm_onnx_choice(node, "reduction", "mean", reductions);
    trm_tensor *ignored = NULL;
    if (trm_onnx_has(node, "ignore_index")) {
        const double index = (double)trm_onnx_int(node, "ignore_index", 0);
        ignored = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_EQUAL, target, index);
        target = trm_onnx_select(node, ignored, trm_onnx_scalar(node, target->dtype, 0.0), target);
    }
    const int32_t axis = 1;
    const trm_layer_desc gather = {.kind = TRM_LAYER_GATHER_ELEMENTS, .gather_elements = {.axis = 1}};
    trm_tensor *loss = trm_onnx_add(node, &gather, log_prob, trm_onnx_unsqueeze(node, target, &axis, 1), NULL, NULL);
    loss = trm_onnx_unary(node, TRM_UNARY_NEG, trm_onnx_squeeze(node, loss, &axis, 1));
    trm_tensor *weights = weights_of(node, target, ignored, classes, log_prob->dtype);
    if (weights != NULL) {
        loss = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, loss, weights);
    }
    if (reduction == 0) {
        return loss;
    }
    if (reduction == 2 || weights == NULL) {
        return trm_onnx_reduce(node, reduction == 2 ? TRM_REDUCE_SUM : TRM_REDUCE_AVG, loss, NULL, -1, false);
    }
    trm_tensor *sum = trm_onnx_reduce(node, TRM_REDUCE_SUM, loss, NULL, -1, false);
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_DIV, sum,
                                trm_onnx_reduce(node, TRM_REDUCE_SUM, weights, NULL, -1, false));
}

static void import_likelihood(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, likelihood_loss(node, node->inputs[0], node->inputs[1], node->inputs[2]));
}

static void import_cross_entropy(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    const int32_t axis = 1;
    trm_tensor *centred =
        trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, x, trm_onnx_reduce(node, TRM_REDUCE_MAX, x, &axis, 1, true));
    trm_tensor *sum =
        trm_onnx_reduce(node, TRM_REDUCE_SUM, trm_onnx_unary(node, TRM_UNARY_EXP, centred), &axis, 1, true);
    trm_tensor *log_prob =
        trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, centred, trm_onnx_unary(node, TRM_UNARY_LOG, sum));
    trm_onnx_set(node, 0, likelihood_loss(node, log_prob, node->inputs[1], node->inputs[2]));
    trm_onnx_set(node, 1, log_prob);
}

const trm_onnx_operator trm_onnx_ops_loss[] = {
    {"", "NegativeLogLikelihoodLoss", 12, 2, import_likelihood, 0},
    {"", "SoftmaxCrossEntropyLoss", 12, 2, import_cross_entropy, 0},
    {0},
};
