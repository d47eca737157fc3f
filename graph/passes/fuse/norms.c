/*
 * Norms over the last axis written out as means, squares and roots: first the norm without weight and bias, then what
 * it is multiplied by and what is added, then casts around it.
 */
#include "graph/passes/pattern.h"

/* The input of a mean over the last axis, which stays as 1; NULL if the tensor, inside a pattern, is none. */
static trm_tensor *mean_of(const trm_analysis *analysis, const trm_tensor *tensor)
{
    const trm_layer *layer = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_REDUCE);
    bool fits = layer != NULL && layer->desc.reduce.op == TRM_REDUCE_AVG && layer->desc.reduce.keep_dims &&
                layer->desc.reduce.axis == layer->inputs[0]->dims.n - 1;
    return fits ? layer->inputs[0] : NULL;
}

/* v where the layer is numerator / sqrt(v), in any of its forms; NULL if it is none. */
static trm_tensor *divided_by_root(const trm_analysis *analysis, const trm_layer *layer, trm_tensor **numerator)
{
    double value;
    const trm_layer *root;
    if (trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_DIV)) {
        root = trm_pattern_unary(analysis, layer->inputs[1], TRM_UNARY_SQRT);
        *numerator = layer->inputs[0];
        return root == NULL ? NULL : root->inputs[0];
    }
    for (int32_t i = 0; trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_MUL) && i < 2; i++) {
        const trm_tensor *factor = layer->inputs[i];
        const trm_layer *inverse = trm_pattern_unary(analysis, factor, TRM_UNARY_RECIPROCAL);
        const trm_layer *quotient = trm_pattern_elementwise(analysis, factor, TRM_ELEMENTWISE_DIV);
        const trm_layer *power = trm_pattern_elementwise(analysis, factor, TRM_ELEMENTWISE_POW);
        *numerator = layer->inputs[1 - i];
        if (power != NULL && trm_pattern_scalar(power->inputs[1], &value) && value == -0.5) {
            return power->inputs[0];
        }
        if (inverse == NULL && quotient != NULL && trm_pattern_scalar(quotient->inputs[0], &value) && value == 1) {
            root = trm_pattern_unary(analysis, quotient->inputs[1], TRM_UNARY_SQRT);
        } else {
            root = inverse == NULL ? NULL : trm_pattern_unary(analysis, inverse->inputs[0], TRM_UNARY_SQRT);
        }
        if (root != NULL) {
            return root->inputs[0];
        }
    }
    return NULL;
}

/* x where d is x less its mean and only the pattern reads d, `uses` times; else NULL. */
static trm_tensor *centred(const trm_analysis *analysis, const trm_tensor *d, int32_t uses)
{
    const trm_layer *sub = d->producer;
    bool fits = sub != NULL && trm_pattern_is_elementwise(sub, TRM_ELEMENTWISE_SUB) && d->pin == NULL &&
                !d->is_output && !analysis->touched[sub->index] && analysis->use_count[d->index] == uses;
    return fits && mean_of(analysis, sub->inputs[1]) == sub->inputs[0] ? sub->inputs[0] : NULL;
}

/* x / sqrt(mean(x^2) + eps), of x or of x less its mean */
bool trm_fuse_decomposed_norm(trm_analysis *analysis, trm_layer *layer)
{
    trm_tensor *d = NULL, *shifted = divided_by_root(analysis, layer, &d);
    double eps;
    const trm_tensor *variance = shifted == NULL ? NULL : trm_pattern_add_scalar(analysis, shifted, &eps);
    trm_tensor *square = variance == NULL ? NULL : mean_of(analysis, variance);
    if (square == NULL || eps < 0 || !trm_dtype_is_float(d->dtype) || d->dims.n < 1 ||
        !trm_analysis_same_dims(analysis, d, layer->outputs[0])) {
        return false;
    }
    trm_pattern_product product;
    trm_pattern_product_of(analysis, square, &product);
    if (product.n != 2 || product.factor != 1 || product.terms[0] != d || product.terms[1] != d) {
        return false;
    }
    const trm_layer *squaring = square->producer;
    int32_t uses = trm_pattern_is_elementwise(squaring, TRM_ELEMENTWISE_POW) ? 2 : 3;
    trm_tensor *x = centred(analysis, d, uses);
    trm_layer_desc desc = {
        .kind = TRM_LAYER_NORM,
        .norm = {.op = x == NULL ? TRM_NORM_RMS : TRM_NORM_LAYER, .eps = (float)eps},
    };
    x = x == NULL ? d : x;
    if (!trm_analysis_same_dims(analysis, x, layer->outputs[0])) {
        return false;
    }
    trm_pattern_rewrite(analysis, layer, &desc, 1, &x);
    return true;
}

/* Whether a constant has one element for each of the last axis of x. */
static bool is_vector_of(const trm_tensor *constant, const trm_tensor *x)
{
    return constant->role == TRM_TENSOR_CONSTANT && constant->dims.n == 1 && x->dims.n > 0 &&
           constant->dims.d[0] == x->dims.d[x->dims.n - 1];
}

static bool is_given(const trm_layer *layer, int32_t input)
{
    return input < layer->n_inputs && layer->inputs[input] != NULL;
}

/* norm(x) * weight and norm(x) + bias, constants */
bool trm_fuse_norm_constants(trm_analysis *analysis, trm_layer *layer)
{
    bool times = trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_MUL);
    bool plus = trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_ADD);
    for (int32_t i = 0; (times || plus) && i < 2; i++) {
        const trm_layer *norm = trm_analysis_private_producer(analysis, layer->inputs[i], TRM_LAYER_NORM);
        trm_tensor *constant = layer->inputs[1 - i];
        if (norm == NULL || norm->desc.norm.residual || norm->desc.norm.weight_offset != 0 || is_given(norm, 2) ||
            (times && is_given(norm, 1)) || (plus && norm->desc.norm.op != TRM_NORM_LAYER) ||
            !is_vector_of(constant, layer->inputs[i])) {
            continue;
        }
        trm_tensor *inputs[3] = {norm->inputs[0],
                                 times               ? constant
                                 : is_given(norm, 1) ? norm->inputs[1]
                                                     : NULL,
                                 times ? NULL : constant};
        trm_layer_desc desc = norm->desc;
        trm_pattern_rewrite(analysis, layer, &desc, times ? 2 : 3, inputs);
        return true;
    }
    return false;
}

/* A norm without weight that is computed in f32 between casts: it does so by itself. */
bool trm_fuse_norm_casts(trm_analysis *analysis, trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_CAST) {
        return false;
    }
    const trm_layer *norm = trm_analysis_private_producer(analysis, layer->inputs[0], TRM_LAYER_NORM);
    const trm_layer *widened = norm == NULL ? NULL : norm->inputs[0]->producer;
    if (widened == NULL || widened->desc.kind != TRM_LAYER_CAST || analysis->touched[widened->index] ||
        norm->n_inputs != 1 || norm->inputs[0]->dtype != TRM_F32 || norm->inputs[0]->pin != NULL) {
        return false;
    }
    trm_tensor *x = widened->inputs[0];
    if ((x->dtype != TRM_F16 && x->dtype != TRM_BF16) || layer->desc.cast.to != x->dtype) {
        return false;
    }
    trm_layer_desc desc = norm->desc;
    trm_pattern_rewrite(analysis, layer, &desc, 1, &x);
    return true;
}
