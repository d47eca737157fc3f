/*
 * Fusion: patterns of layers that one layer does with less memory traffic.
 *
 * The last layer of a pattern is rewritten in place, so its output keeps its name; dead code removes what only it read.
 * A tensor may vanish if it has no other reader, is not an output of the network and is not pinned.
 */
#include "graph/network.h"

#include <stdlib.h>

#include "base/error.h"
#include "graph/passes/pattern.h"

static void mark_touched(trm_analysis *analysis, const trm_layer *layer)
{
    analysis->touched[layer->index] = true;
}

static bool is_constant(const trm_tensor *tensor)
{
    return tensor != NULL && tensor->role == TRM_TENSOR_CONSTANT;
}

/* The private activation layer that makes `tensor`, or NULL. */
static trm_layer *private_activation(const trm_analysis *analysis, const trm_tensor *tensor)
{
    trm_layer *layer = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_UNARY);
    return layer != NULL && layer->desc.unary.op == TRM_UNARY_ACTIVATION ? layer : NULL;
}

/* activation(gate) * up -> glu(gate, up) */
static bool fuse_glu(trm_analysis *analysis, trm_layer *layer)
{
    for (int32_t i = 0; trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_MUL) && i < 2; i++) {
        trm_layer *activation = private_activation(analysis, layer->inputs[i]);
        trm_tensor *up = layer->inputs[1 - i];
        if (activation != NULL && activation->inputs[0] != up && up->dims.n > 0 && /* a GLU has rows */
            trm_analysis_same_dims(analysis, activation->inputs[0], up)) {
            trm_layer_desc desc = {
                .kind = TRM_LAYER_GLU,
                .glu = {.activation = activation->desc.unary.activation},
            };
            trm_tensor *inputs[] = {activation->inputs[0], up};
            mark_touched(analysis, activation);
            trm_pattern_rewrite(analysis, layer, &desc, 2, inputs);
            return true;
        }
    }
    return false;
}

static bool is_absent_or_constant(const trm_layer *layer, int32_t input)
{
    return input >= layer->n_inputs || layer->inputs[input] == NULL || is_constant(layer->inputs[input]);
}

/* norm(a + b) -> norm with residual, which also makes the sum */
static bool fuse_residual(trm_analysis *analysis, trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_NORM || layer->desc.norm.residual) {
        return false;
    }
    trm_layer *add = layer->inputs[0]->producer;
    if (add == NULL || !trm_pattern_is_elementwise(add, TRM_ELEMENTWISE_ADD) || analysis->touched[add->index] ||
        !trm_analysis_same_dims(analysis, add->inputs[0], add->inputs[1]) || !is_absent_or_constant(layer, 1) ||
        !is_absent_or_constant(layer, 2)) {
        return false;
    }
    /* The operand computed last is the branch that rejoins the residual stream. */
    const trm_layer *first = add->inputs[0]->producer, *second = add->inputs[1]->producer;
    bool first_is_later = first != NULL && (second == NULL || first->index > second->index);
    trm_tensor *sum = add->outputs[0];
    trm_tensor *inputs[4] = {add->inputs[first_is_later ? 0 : 1], add->inputs[first_is_later ? 1 : 0],
                             layer->n_inputs > 1 ? layer->inputs[1] : NULL,
                             layer->n_inputs > 2 ? layer->inputs[2] : NULL};
    trm_layer_desc desc = layer->desc;
    desc.norm.residual = true;
    trm_pattern_rewrite(analysis, layer, &desc, layer->n_inputs + 1, inputs);
    layer->outputs[1] = sum;
    layer->n_outputs = 2;
    sum->producer = layer;
    add->n_outputs = 0; /* for dead code */
    mark_touched(analysis, add);
    return true;
}

/* Whether a product stores sums of its inputs' type with nothing after them. */
static bool is_plain_product(const trm_layer *matmul)
{
    return matmul->desc.matmul.activation == TRM_ACTIVATION_NONE &&
           matmul->outputs[0]->dtype == matmul->inputs[0]->dtype;
}

/* a @ b + bias -> product with bias */
static bool fuse_bias(trm_analysis *analysis, trm_layer *layer)
{
    for (int32_t i = 0; trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_ADD) && i < 2; i++) {
        trm_layer *matmul = trm_analysis_private_producer(analysis, layer->inputs[i], TRM_LAYER_MATMUL);
        trm_tensor *bias = layer->inputs[1 - i];
        if (matmul == NULL || matmul->n_inputs > 2 || !is_plain_product(matmul) || !is_constant(bias)) {
            continue;
        }
        const trm_dims *dims = &matmul->outputs[0]->dims;
        if (bias->dims.n == 1 && bias->dims.d[0] == dims->d[dims->n - 1]) {
            trm_tensor *inputs[] = {matmul->inputs[0], matmul->inputs[1], bias};
            mark_touched(analysis, matmul);
            trm_pattern_rewrite(analysis, layer, &matmul->desc, 3, inputs);
            return true;
        }
    }
    return false;
}

/* activation(a @ b) -> product with an epilogue */
static bool fuse_epilogue(trm_analysis *analysis, trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_UNARY || layer->desc.unary.op != TRM_UNARY_ACTIVATION) {
        return false;
    }
    trm_layer *matmul = trm_analysis_private_producer(analysis, layer->inputs[0], TRM_LAYER_MATMUL);
    if (matmul == NULL || matmul->desc.matmul.activation != TRM_ACTIVATION_NONE) {
        return false;
    }
    trm_layer_desc desc = matmul->desc;
    desc.matmul.activation = layer->desc.unary.activation;
    mark_touched(analysis, matmul);
    trm_pattern_rewrite(analysis, layer, &desc, matmul->n_inputs, matmul->inputs);
    return true;
}

/* A transpose that only moves axes of size 1 moves no elements: a reshape. After partitioning, which knows transposes
 * better, as patterns do. */
static bool fuse_transpose(trm_analysis *analysis, trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_TRANSPOSE) {
        return false;
    }
    const trm_tensor *x = layer->inputs[0], *y = layer->outputs[0];
    trm_dims dims = y->dims;
    int32_t before = -1, open = 0;
    for (int32_t i = 0; i < dims.n; i++) {
        int32_t from = layer->desc.transpose.perm[i];
        if (x->dims.d[from] == 0 || (x->dims.d[from] != 1 && from < before)) {
            return false;
        }
        before = x->dims.d[from] == 1 ? before : from;
        dims.d[i] = dims.d[i] < 0 && from == i ? 0 : dims.d[i];
        open += dims.d[i] == -1;
    }
    if (open > 1) {
        return false;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = dims}};
    trm_tensor *input = layer->inputs[0];
    trm_pattern_rewrite(analysis, layer, &desc, 1, &input);
    return true;
}

/* glu(x @ gate_up^T) -> one layer */
static bool fuse_gated_product(trm_analysis *analysis, trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_GLU || layer->n_inputs != 1) {
        return false;
    }
    trm_layer *matmul = trm_analysis_private_producer(analysis, layer->inputs[0], TRM_LAYER_MATMUL);
    if (matmul == NULL || matmul->n_inputs != 2 || !is_plain_product(matmul) || !matmul->desc.matmul.transpose_b ||
        matmul->desc.matmul.transpose_a || matmul->inputs[1]->dims.n != 2) {
        return false;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL_GLU, .glu = layer->desc.glu};
    mark_touched(analysis, matmul);
    trm_pattern_rewrite(analysis, layer, &desc, 2, matmul->inputs);
    return true;
}

trm_status trm_pass_fuse(trm_network *network, trm_pass_stage stage, int32_t *changes)
{
    /* GLU before epilogues: the activation of a gate belongs to it. */
    static const trm_fusion fusions[] = {
        trm_fuse_decomposed_activation,
        trm_fuse_decomposed_norm,
        trm_fuse_norm_constants,
        trm_fuse_norm_casts,
        trm_fuse_decomposed_rotation,
        trm_fuse_decomposed_attention,
        fuse_glu,
        fuse_residual,
        fuse_bias,
        fuse_epilogue,
        fuse_transpose,
        fuse_gated_product,
    };
    int32_t n = (int32_t)(sizeof(fusions) / sizeof(fusions[0])) - (stage == TRM_PASSES_BEFORE_PARTITION ? 3 : 0);
    for (int32_t i = 0; i < n; i++) {
        TRM_TRY(trm_pattern_apply(network, fusions[i], changes));
    }
    return TRM_OK;
}
