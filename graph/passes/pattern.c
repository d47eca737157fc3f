/* Constants, products and sums in patterns. */
#include "graph/passes/pattern.h"

#include <math.h>

#include "base/element.h"
#include "base/error.h"
#include "kernels/kernel.h"

bool trm_pattern_scalar(const trm_tensor *tensor, double *value)
{
    if (tensor == NULL || tensor->role != TRM_TENSOR_CONSTANT || tensor->value == NULL ||
        trm_dims_count(&tensor->dims) != 1) {
        return false;
    }
    *value = trm_element_as_double(tensor->dtype, tensor->value, 0);
    switch (tensor->dtype) {
    case TRM_F32:
    case TRM_F16:
    case TRM_BF16:
    case TRM_F64:
    case TRM_I32:
        return true;
    case TRM_I64:
        return *value == 0 || *value == 1;
    default:
        return false;
    }
}

bool trm_pattern_near(double value, double expected, trm_dtype dtype)
{
    double tolerance = dtype == TRM_F16 ? 1e-3 : dtype == TRM_BF16 ? 8e-3 : 1e-6;
    return fabs(value - expected) <= tolerance * fabs(expected);
}

bool trm_pattern_is_elementwise(const trm_layer *layer, trm_elementwise_op op)
{
    return layer->desc.kind == TRM_LAYER_ELEMENTWISE && layer->desc.elementwise.op == op;
}

trm_layer *trm_pattern_elementwise(const trm_analysis *analysis, const trm_tensor *tensor, trm_elementwise_op op)
{
    trm_layer *layer = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_ELEMENTWISE);
    return layer != NULL && layer->desc.elementwise.op == op ? layer : NULL;
}

trm_layer *trm_pattern_unary(const trm_analysis *analysis, const trm_tensor *tensor, trm_unary_op op)
{
    trm_layer *layer = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_UNARY);
    return layer != NULL && layer->desc.unary.op == op ? layer : NULL;
}

trm_layer *trm_pattern_activation(const trm_analysis *analysis, const trm_tensor *tensor, trm_activation activation)
{
    trm_layer *layer = trm_pattern_unary(analysis, tensor, TRM_UNARY_ACTIVATION);
    return layer != NULL && layer->desc.unary.activation == activation ? layer : NULL;
}

/* Whether a scalar leaves the dims of the other input as they are. */
static bool keeps_dims(const trm_tensor *scalar, const trm_tensor *other)
{
    return scalar->dims.n <= other->dims.n;
}

trm_tensor *trm_pattern_add_scalar(const trm_analysis *analysis, const trm_tensor *tensor, double *added)
{
    const trm_layer *layer = trm_pattern_elementwise(analysis, tensor, TRM_ELEMENTWISE_ADD);
    for (int32_t i = 0; layer != NULL && i < 2; i++) {
        if (trm_pattern_scalar(layer->inputs[i], added) && keeps_dims(layer->inputs[i], layer->inputs[1 - i])) {
            return layer->inputs[1 - i];
        }
    }
    return NULL;
}

/* ---- products ---------------------------------------------------------------------------------- */

static void add_term(trm_pattern_product *product, trm_tensor *tensor)
{
    if (product->n >= 0 && product->n < TRM_PATTERN_TERMS) {
        product->terms[product->n++] = tensor;
    } else {
        product->n = -1;
    }
}

static void add_tensor(const trm_analysis *analysis, trm_tensor *tensor, int32_t depth, trm_pattern_product *product);

/* False if the layer is no product. */
static bool add_layer(const trm_analysis *analysis, const trm_layer *layer, int32_t depth, trm_pattern_product *product)
{
    double value;
    if (layer->desc.kind == TRM_LAYER_UNARY && layer->desc.unary.op == TRM_UNARY_NEG) {
        product->factor = -product->factor;
        add_tensor(analysis, layer->inputs[0], depth + 1, product);
        return true;
    }
    if (layer->desc.kind != TRM_LAYER_ELEMENTWISE || depth > 8) {
        return false;
    }
    trm_tensor *a = layer->inputs[0], *b = layer->inputs[1];
    bool by_scalar = trm_pattern_scalar(b, &value) && keeps_dims(b, a);
    switch (layer->desc.elementwise.op) {
    case TRM_ELEMENTWISE_MUL:
        if (!by_scalar && trm_pattern_scalar(a, &value) && keeps_dims(a, b)) {
            trm_tensor *other = a;
            a = b;
            b = other;
            by_scalar = true;
        }
        add_tensor(analysis, a, depth + 1, product);
        if (by_scalar) {
            product->factor *= value;
        } else {
            add_tensor(analysis, b, depth + 1, product);
        }
        return true;
    case TRM_ELEMENTWISE_DIV:
        if (by_scalar && value != 0) {
            product->factor /= value;
            add_tensor(analysis, a, depth + 1, product);
        }
        return by_scalar && value != 0;
    case TRM_ELEMENTWISE_POW:
        if (by_scalar && (value == 2 || value == 3)) {
            for (int32_t i = 0; i < (int32_t)value; i++) {
                add_term(product, a);
            }
            return true;
        }
        return false;
    default:
        return false;
    }
}

static void add_tensor(const trm_analysis *analysis, trm_tensor *tensor, int32_t depth, trm_pattern_product *product)
{
    const trm_layer *layer = tensor->producer;
    bool inside = layer != NULL && trm_analysis_private_producer(analysis, tensor, layer->desc.kind) != NULL;
    if (!inside || !add_layer(analysis, layer, depth, product)) {
        add_term(product, tensor);
    }
}

void trm_pattern_product_of(const trm_analysis *analysis, trm_tensor *tensor, trm_pattern_product *product)
{
    *product = (trm_pattern_product){.factor = 1};
    add_tensor(analysis, tensor, 0, product);
}

void trm_pattern_product_of_layer(const trm_analysis *analysis, const trm_layer *layer, trm_pattern_product *product)
{
    *product = (trm_pattern_product){.factor = 1};
    if (!add_layer(analysis, layer, 0, product)) {
        product->n = -1;
    }
}

bool trm_pattern_is_power(const trm_pattern_product *product, const trm_tensor *x, int32_t n, double factor)
{
    bool is = product->n == n && trm_pattern_near(product->factor, factor, x->dtype);
    for (int32_t i = 0; is && i < n; i++) {
        is = product->terms[i] == x;
    }
    return is;
}

/* ---- rewriting --------------------------------------------------------------------------------- */

void trm_pattern_rewrite(trm_analysis *analysis, trm_layer *layer, const trm_layer_desc *desc, int32_t n_inputs,
                         trm_tensor *const *inputs)
{
    layer->desc = *desc;
    for (int32_t i = 0; i < TRM_MAX_LAYER_INPUTS; i++) {
        layer->inputs[i] = i < n_inputs ? inputs[i] : NULL;
    }
    layer->n_inputs = n_inputs;
    analysis->touched[layer->index] = true;
}

/* One walk over the network; stale layers wait for the next. */
static trm_status sweep(trm_network *network, trm_fusion fuse, int32_t *n_fused)
{
    trm_analysis analysis;
    TRM_TRY(trm_analysis_init(network, &analysis));
    *n_fused = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        if (!analysis.touched[layer->index] && fuse(&analysis, layer)) {
            (*n_fused)++;
        }
    }
    trm_analysis_fini(&analysis);
    if (*n_fused > 0) {
        TRM_TRY(trm_network_sort(network)); /* readers of a norm's sum may precede the layer that now makes it */
        TRM_TRY(trm_pass_dead_code(network, NULL));
    }
    return TRM_OK;
}

trm_status trm_pattern_apply(trm_network *network, trm_fusion fuse, int32_t *changes)
{
    int32_t n_fused;
    do {
        TRM_TRY(sweep(network, fuse, &n_fused));
        if (changes != NULL) {
            *changes += n_fused;
        }
    } while (n_fused > 0);
    return TRM_OK;
}
