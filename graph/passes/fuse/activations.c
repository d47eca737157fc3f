/*
 * Activations written out as products, sums and simpler functions: gelu by erf and by tanh, quick gelu and swish, hard
 * swish, mish. Exporters write the factors in any order and a factor as a division.
 */
#include "graph/passes/pattern.h"

#define HALF_ROOT     0.70710678118654752440 /* 1 / sqrt(2) */
#define ROOT_OF_2_PI  0.79788456080286535588 /* sqrt(2 / pi) */
#define GELU_CUBIC    0.044715
#define QUICK_SIGMOID 1.702

/* sqrt(2 / pi) * (x + 0.044715 x^3), factored in either way. */
static bool is_gelu_polynomial(const trm_analysis *analysis, trm_tensor *tensor, const trm_tensor *x)
{
    trm_pattern_product outer, inner;
    double one;
    trm_pattern_product_of(analysis, tensor, &outer);
    if (outer.n < 1 || outer.n > 2 || !trm_pattern_near(outer.factor, ROOT_OF_2_PI, x->dtype)) {
        return false;
    }
    if (outer.n == 1) {
        const trm_layer *sum = trm_pattern_elementwise(analysis, outer.terms[0], TRM_ELEMENTWISE_ADD);
        for (int32_t i = 0; sum != NULL && i < 2; i++) {
            trm_pattern_product_of(analysis, sum->inputs[1 - i], &inner);
            if (sum->inputs[i] == x && trm_pattern_is_power(&inner, x, 3, GELU_CUBIC)) {
                return true;
            }
        }
        return false;
    }
    for (int32_t i = 0; i < 2; i++) {
        trm_tensor *square = trm_pattern_add_scalar(analysis, outer.terms[1 - i], &one);
        if (outer.terms[i] != x || square == NULL || one != 1) {
            continue;
        }
        trm_pattern_product_of(analysis, square, &inner);
        if (trm_pattern_is_power(&inner, x, 2, GELU_CUBIC)) {
            return true;
        }
    }
    return false;
}

/* 1 + erf(x / sqrt(2)) and 1 + tanh(...) */
static trm_activation gelu_gate(const trm_analysis *analysis, const trm_tensor *gate, const trm_tensor *x)
{
    double one;
    const trm_tensor *bent = trm_pattern_add_scalar(analysis, gate, &one);
    if (bent == NULL || one != 1) {
        return TRM_ACTIVATION_NONE;
    }
    const trm_layer *erf = trm_pattern_unary(analysis, bent, TRM_UNARY_ERF);
    if (erf != NULL) {
        trm_pattern_product inner;
        trm_pattern_product_of(analysis, erf->inputs[0], &inner);
        return trm_pattern_is_power(&inner, x, 1, HALF_ROOT) ? TRM_ACTIVATION_GELU : TRM_ACTIVATION_NONE;
    }
    const trm_layer *tanh = trm_pattern_activation(analysis, bent, TRM_ACTIVATION_TANH);
    return tanh != NULL && is_gelu_polynomial(analysis, tanh->inputs[0], x) ? TRM_ACTIVATION_GELU_TANH
                                                                            : TRM_ACTIVATION_NONE;
}

static bool near(double value, double expected, const trm_tensor *x)
{
    return trm_pattern_near(value, expected, x->dtype);
}

/* What x * gate * factor is. */
static trm_unary_params activation_of(const trm_analysis *analysis, const trm_tensor *x, trm_tensor *gate,
                                      double factor)
{
    trm_unary_params unary = {.op = TRM_UNARY_ACTIVATION, .activation = TRM_ACTIVATION_NONE};
    const trm_layer *layer;
    if (near(factor, 0.5, x)) {
        unary.activation = gelu_gate(analysis, gate, x);
        return unary;
    }
    layer = trm_pattern_unary(analysis, gate, TRM_UNARY_CLIP);
    if (near(factor, 1.0 / 6, x) && layer != NULL && layer->desc.unary.alpha == 0 && layer->desc.unary.beta == 6) {
        double three;
        bool fits = trm_pattern_add_scalar(analysis, layer->inputs[0], &three) == x && three == 3;
        unary.activation = fits ? TRM_ACTIVATION_HARD_SWISH : TRM_ACTIVATION_NONE;
        return unary;
    }
    if (!near(factor, 1, x)) {
        return unary;
    }
    if ((layer = trm_pattern_activation(analysis, gate, TRM_ACTIVATION_SIGMOID)) != NULL) {
        trm_pattern_product inner;
        trm_pattern_product_of(analysis, layer->inputs[0], &inner);
        if (inner.n == 1 && inner.terms[0] == x) {
            if (inner.factor == 1) {
                unary.activation = TRM_ACTIVATION_SILU;
            } else if (near(inner.factor, QUICK_SIGMOID, x)) {
                unary.activation = TRM_ACTIVATION_QUICK_GELU;
            } else {
                unary = (trm_unary_params){.op = TRM_UNARY_SWISH, .alpha = (float)inner.factor};
            }
        }
    } else if ((layer = trm_pattern_unary(analysis, gate, TRM_UNARY_HARD_SIGMOID)) != NULL) {
        bool fits = layer->inputs[0] == x && near((double)layer->desc.unary.alpha, 1.0 / 6, x) &&
                    layer->desc.unary.beta == 0.5f;
        unary.activation = fits ? TRM_ACTIVATION_HARD_SWISH : TRM_ACTIVATION_NONE;
    } else if ((layer = trm_pattern_activation(analysis, gate, TRM_ACTIVATION_TANH)) != NULL) {
        const trm_layer *soft = trm_pattern_activation(analysis, layer->inputs[0], TRM_ACTIVATION_SOFTPLUS);
        unary.activation = soft != NULL && soft->inputs[0] == x ? TRM_ACTIVATION_MISH : TRM_ACTIVATION_NONE;
    }
    return unary;
}

bool trm_fuse_decomposed_activation(trm_analysis *analysis, trm_layer *layer)
{
    trm_pattern_product product;
    if (!trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_MUL) &&
        !trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_DIV)) {
        return false;
    }
    trm_pattern_product_of_layer(analysis, layer, &product);
    for (int32_t i = 0; product.n == 2 && i < 2; i++) {
        trm_tensor *x = product.terms[i];
        trm_layer_desc desc = {
            .kind = TRM_LAYER_UNARY,
            .unary = activation_of(analysis, x, product.terms[1 - i], product.factor),
        };
        bool is = desc.unary.op != TRM_UNARY_ACTIVATION || desc.unary.activation != TRM_ACTIVATION_NONE;
        if (is && trm_analysis_same_dims(analysis, x, layer->outputs[0])) {
            trm_pattern_rewrite(analysis, layer, &desc, 1, &x);
            return true;
        }
    }
    return false;
}
