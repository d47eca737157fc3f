/*
 * Rotary positions written out with the cosines and sines as tensors: x * cos + turned(x) * sin, where turned(x) is the
 * halves (or neighbours) of x in the other order, one of them negated; or both halves computed apart and joined; of a
 * part of x with the rest joined behind it, or of all of it.
 */
#include "graph/passes/pattern.h"
#include "kernels/movement/slice.h"

/* x where the tensor is every `step`th element of its last axis from `first` on, `count` of them, and is read `uses`
 * times, all of them by the pattern. */
static trm_tensor *part_of(const trm_analysis *analysis, const trm_tensor *tensor, int64_t first, int64_t count,
                           int64_t step, int32_t uses)
{
    const trm_layer *slice = tensor->producer;
    if (slice == NULL || slice->desc.kind != TRM_LAYER_SLICE || slice->n_inputs > 1 || tensor->pin != NULL ||
        tensor->is_output || analysis->touched[slice->index] || analysis->use_count[tensor->index] != uses) {
        return NULL;
    }
    trm_tensor *x = slice->inputs[0];
    const int32_t last = x->dims.n - 1;
    int64_t begin = 0;
    if (slice->desc.slice.axis != last || x->dims.d[last] < 0 || slice->desc.slice.step != step) {
        return NULL;
    }
    return trm_slice_range(&slice->desc.slice, x->dims.d[last], &begin) == count && begin == first ? x : NULL;
}

static int64_t width_of(const trm_tensor *x)
{
    return x->dims.n > 0 ? x->dims.d[x->dims.n - 1] : -1;
}

/* The two tensors that a private layer joins along its last axis. */
static bool joined(const trm_analysis *analysis, const trm_tensor *tensor, trm_tensor **a, trm_tensor **b)
{
    const trm_layer *concat = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_CONCAT);
    if (concat == NULL || concat->n_inputs != 2 || concat->desc.concat.axis != tensor->dims.n - 1) {
        return false;
    }
    *a = concat->inputs[0];
    *b = concat->inputs[1];
    return true;
}

/* x where the tensor is x with an axis of 1 behind the others; else NULL. */
static trm_tensor *without_last(const trm_analysis *analysis, const trm_tensor *tensor)
{
    const trm_layer *reshape = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_RESHAPE);
    trm_tensor *x = reshape == NULL ? NULL : reshape->inputs[0];
    bool fits = x != NULL && reshape->n_inputs == 1 && tensor->dims.n == x->dims.n + 1 && width_of(tensor) == 1 &&
                width_of(x) == tensor->dims.d[x->dims.n - 1];
    return fits ? x : NULL;
}

/* Both parts of what is made of pairs: joined as halves, or as neighbours. */
static bool parts_of_pairs(const trm_analysis *analysis, const trm_tensor *tensor, trm_tensor **a, trm_tensor **b,
                           bool *interleaved)
{
    *interleaved = false;
    if (joined(analysis, tensor, a, b)) {
        return true;
    }
    const trm_layer *reshape = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_RESHAPE);
    *interleaved = true;
    if (reshape == NULL || reshape->n_inputs > 1 || !joined(analysis, reshape->inputs[0], a, b) ||
        tensor->dims.n + 1 != reshape->inputs[0]->dims.n) {
        return false;
    }
    *a = without_last(analysis, *a);
    *b = without_last(analysis, *b);
    return *a != NULL && *b != NULL && width_of(tensor) == 2 * width_of(*a);
}

/* x where the tensor is -b, a of its pairs a, b; else NULL. */
static trm_tensor *turned(const trm_analysis *analysis, const trm_tensor *tensor, bool *interleaved)
{
    trm_tensor *negated, *kept;
    trm_pattern_product product;
    if (!parts_of_pairs(analysis, tensor, &negated, &kept, interleaved)) {
        return NULL;
    }
    trm_pattern_product_of(analysis, negated, &product);
    const int64_t half = width_of(kept), step = *interleaved ? 2 : 1;
    if (product.n != 1 || product.factor != -1 || half < 1) {
        return NULL;
    }
    trm_tensor *x = part_of(analysis, kept, 0, half, step, 1);
    trm_tensor *same = part_of(analysis, product.terms[0], *interleaved ? 1 : half, half, step, 1);
    return x != NULL && x == same && width_of(x) == 2 * half ? x : NULL;
}

static bool rotate(trm_analysis *analysis, trm_layer *layer, trm_tensor *x, trm_tensor *cosines, trm_tensor *sines,
                   bool interleaved)
{
    trm_layer_desc desc = {
        .kind = TRM_LAYER_ROTATE,
        .rotate = {.rotary_dim = (int32_t)width_of(x), .interleaved = interleaved},
    };
    const int64_t columns = width_of(cosines);
    bool fits = trm_dtype_is_float(x->dtype) && trm_analysis_same_dims(analysis, x, layer->outputs[0]) &&
                trm_analysis_same_dims(analysis, cosines, sines) && cosines->dims.n <= x->dims.n &&
                (columns == width_of(x) || columns == width_of(x) / 2);
    if (fits) {
        trm_tensor *inputs[3] = {x, cosines, sines};
        trm_pattern_rewrite(analysis, layer, &desc, 3, inputs);
    }
    return fits;
}

/* x * cos + turned(x) * sin */
static bool fuse_sum(trm_analysis *analysis, trm_layer *layer)
{
    for (int32_t i = 0; i < 4 && trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_ADD); i++) {
        const trm_layer *plain = trm_pattern_elementwise(analysis, layer->inputs[i % 2], TRM_ELEMENTWISE_MUL);
        const trm_layer *other = trm_pattern_elementwise(analysis, layer->inputs[1 - i % 2], TRM_ELEMENTWISE_MUL);
        bool interleaved;
        trm_tensor *x = plain == NULL || other == NULL ? NULL : turned(analysis, other->inputs[i / 2], &interleaved);
        for (int32_t k = 0; x != NULL && k < 2; k++) {
            if (plain->inputs[k] == x && width_of(plain->inputs[1 - k]) == width_of(x)) {
                return rotate(analysis, layer, x, plain->inputs[1 - k], other->inputs[1 - i / 2], interleaved);
            }
        }
    }
    return false;
}

/* The factor that is not `x`, of a product inside the pattern. */
static trm_tensor *factor_of(const trm_analysis *analysis, const trm_tensor *tensor, const trm_tensor *x)
{
    const trm_layer *product = trm_pattern_elementwise(analysis, tensor, TRM_ELEMENTWISE_MUL);
    return product == NULL           ? NULL
           : product->inputs[0] == x ? product->inputs[1]
           : product->inputs[1] == x ? product->inputs[0]
                                     : NULL;
}

/* a cos - b sin and a sin + b cos, of the halves or neighbours a, b of x, joined by `layer`. */
static bool fuse_halves(trm_analysis *analysis, trm_layer *layer)
{
    trm_tensor *p, *q;
    bool interleaved = layer->desc.kind == TRM_LAYER_RESHAPE;
    if (interleaved) {
        if (layer->n_inputs > 1 || !joined(analysis, layer->inputs[0], &p, &q) ||
            layer->outputs[0]->dims.n + 1 != layer->inputs[0]->dims.n) {
            return false;
        }
        p = without_last(analysis, p);
        q = without_last(analysis, q);
    } else if (layer->desc.kind == TRM_LAYER_CONCAT && layer->n_inputs == 2 &&
               layer->desc.concat.axis == layer->outputs[0]->dims.n - 1) {
        p = layer->inputs[0];
        q = layer->inputs[1];
    } else {
        return false;
    }
    const trm_layer *less = p == NULL ? NULL : trm_pattern_elementwise(analysis, p, TRM_ELEMENTWISE_SUB);
    const trm_layer *more = q == NULL ? NULL : trm_pattern_elementwise(analysis, q, TRM_ELEMENTWISE_ADD);
    const trm_layer *ac = less == NULL ? NULL : trm_pattern_elementwise(analysis, less->inputs[0], TRM_ELEMENTWISE_MUL);
    const trm_layer *bs = less == NULL ? NULL : trm_pattern_elementwise(analysis, less->inputs[1], TRM_ELEMENTWISE_MUL);
    const int64_t half = p == NULL ? -1 : width_of(p), step = interleaved ? 2 : 1;
    for (int32_t i = 0; ac != NULL && bs != NULL && more != NULL && half > 0 && i < 4; i++) {
        trm_tensor *a = ac->inputs[i % 2], *b = bs->inputs[i / 2];
        trm_tensor *c = ac->inputs[1 - i % 2], *s = bs->inputs[1 - i / 2];
        trm_tensor *x = part_of(analysis, a, 0, half, step, 2);
        if (x == NULL || x != part_of(analysis, b, interleaved ? 1 : half, half, step, 2) || width_of(c) != half) {
            continue;
        }
        bool fits = (factor_of(analysis, more->inputs[0], a) == s && factor_of(analysis, more->inputs[1], b) == c) ||
                    (factor_of(analysis, more->inputs[1], a) == s && factor_of(analysis, more->inputs[0], b) == c);
        return fits && rotate(analysis, layer, x, c, s, interleaved);
    }
    return false;
}

/* The rotated first part of x with the rest of it behind */
static bool fuse_rest(trm_analysis *analysis, trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_CONCAT || layer->n_inputs != 2 ||
        layer->desc.concat.axis != layer->outputs[0]->dims.n - 1) {
        return false;
    }
    const trm_layer *part = trm_analysis_private_producer(analysis, layer->inputs[0], TRM_LAYER_ROTATE);
    const int64_t width = part == NULL ? -1 : part->desc.rotate.rotary_dim, rest = width_of(layer->inputs[1]);
    if (part == NULL || width != width_of(layer->inputs[0]) || rest < 1) {
        return false;
    }
    trm_tensor *x = part_of(analysis, part->inputs[0], 0, width, 1, 1);
    if (x == NULL || width_of(x) != width + rest || x != part_of(analysis, layer->inputs[1], width, rest, 1, 1)) {
        return false;
    }
    trm_layer_desc desc = part->desc;
    trm_tensor *inputs[3] = {x, part->inputs[1], part->inputs[2]};
    trm_pattern_rewrite(analysis, layer, &desc, 3, inputs);
    return true;
}

bool trm_fuse_decomposed_rotation(trm_analysis *analysis, trm_layer *layer)
{
    return fuse_sum(analysis, layer) || fuse_halves(analysis, layer) || fuse_rest(analysis, layer);
}
