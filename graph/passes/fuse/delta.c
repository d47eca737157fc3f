/*
 * Fuses everything between the joined product of a gated DeltaNet and the GLU that ends it: slices, short convolutions,
 * the gated delta rule, the norm of its heads. After partitioning and after joining products.
 */
#include "graph/network.h"

#include "graph/passes/pattern.h"

/* A slice of columns inside the pattern; NULL if `tensor` is none. */
static const trm_layer *find_slice(const trm_analysis *analysis, const trm_tensor *tensor)
{
    const trm_layer *slice = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_SLICE);
    return slice != NULL && slice->n_inputs == 1 && slice->desc.slice.axis == 1 && slice->desc.slice.step == 1 &&
                   slice->inputs[0]->dims.n == 2 && slice->inputs[0]->pin == NULL
               ? slice
               : NULL;
}

/* Whether a reshape is between [T, heads * dim] and [T, heads, dim]. */
static bool cuts_heads(const trm_layer *reshape, const trm_dims *flat, const trm_dims *heads)
{
    const int64_t tokens = reshape->desc.reshape.dims.d[0];
    return reshape->n_inputs == 1 && flat->n == 2 && heads->n == 3 && flat->d[1] > 0 && heads->d[1] > 0 &&
           flat->d[1] == heads->d[1] * heads->d[2] && (tokens == 0 || tokens == -1);
}

/* Of q, k or v: a slice, its convolution, and the heads cut out of that. */
typedef struct branch {
    const trm_layer *slice;
    trm_layer *convolution;
} branch;

static bool find_branch(const trm_analysis *analysis, const trm_layer *delta, int32_t input, branch *found)
{
    const trm_layer *heads = trm_analysis_private_producer(analysis, delta->inputs[input], TRM_LAYER_RESHAPE);
    if (heads == NULL || !cuts_heads(heads, &heads->inputs[0]->dims, &heads->outputs[0]->dims)) {
        return false;
    }
    found->convolution = trm_analysis_private_producer(analysis, heads->inputs[0], TRM_LAYER_SHORT_CONVOLUTION);
    if (found->convolution == NULL || found->convolution->n_inputs > TRM_SHORT_CONVOLUTION_BIAS) {
        return false;
    }
    found->slice = find_slice(analysis, found->convolution->inputs[TRM_SHORT_CONVOLUTION_X]);
    for (int32_t i = 0; i < 3; i++) { /* starts, lengths, slots */
        if (found->convolution->inputs[TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS + i] !=
            delta->inputs[TRM_GATED_DELTA_SEQUENCE_STARTS + i]) {
            return false;
        }
    }
    return found->slice != NULL;
}

/* Whether q, k and v are the beginning of one tensor, one after the other, and have the same activation. */
static bool joined(const branch *parts)
{
    int64_t start = 0;
    for (int32_t i = 0; i < 3; i++) {
        const trm_slice_params *slice = &parts[i].slice->desc.slice;
        if (parts[i].slice->inputs[0] != parts[0].slice->inputs[0] || slice->start != start ||
            parts[i].convolution->desc.short_convolution.activation !=
                parts[0].convolution->desc.short_convolution.activation) {
            return false;
        }
        start = slice->end;
    }
    return true;
}

/* The layer before a GLU of two inputs, through a reshape: the norm of heads. */
static trm_layer *find_norm(const trm_analysis *analysis, const trm_layer *glu)
{
    const trm_layer *flat = trm_analysis_private_producer(analysis, glu->inputs[1], TRM_LAYER_RESHAPE);
    trm_layer *norm = flat == NULL || !cuts_heads(flat, &flat->outputs[0]->dims, &flat->inputs[0]->dims)
                          ? NULL
                          : trm_analysis_private_producer(analysis, flat->inputs[0], TRM_LAYER_NORM);
    return norm != NULL && norm->desc.norm.op == TRM_NORM_RMS && !norm->desc.norm.residual && norm->n_inputs == 2 &&
                   norm->inputs[1] != NULL
               ? norm
               : NULL;
}

/* Layers with a state are not removed as dead code: they become views of something of their dims. */
static void make_view(trm_analysis *analysis, trm_layer *layer, trm_tensor *of)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = of->dims}};
    trm_layer_desc view = desc;
    view.reshape.dims.d[0] = 0;
    trm_pattern_rewrite(analysis, layer, &view, 1, &of);
}

static bool fuse(trm_analysis *analysis, trm_layer *layer)
{
    branch parts[3];
    if (layer->desc.kind != TRM_LAYER_GLU || layer->n_inputs != 2 || layer->outputs[0]->dims.n != 2) {
        return false;
    }
    const trm_layer *z = find_slice(analysis, layer->inputs[0]), *norm = find_norm(analysis, layer);
    trm_layer *delta =
        norm == NULL ? NULL : trm_analysis_private_producer(analysis, norm->inputs[0], TRM_LAYER_GATED_DELTA);
    if (z == NULL || delta == NULL) {
        return false;
    }
    const trm_layer *a = find_slice(analysis, delta->inputs[TRM_GATED_DELTA_A]);
    const trm_layer *b = find_slice(analysis, delta->inputs[TRM_GATED_DELTA_B]);
    for (int32_t i = 0; i < 3; i++) {
        if (!find_branch(analysis, delta, TRM_GATED_DELTA_Q + i, &parts[i])) {
            return false;
        }
    }
    if (a == NULL || b == NULL || a->inputs[0] != b->inputs[0] || !joined(parts) ||
        z->inputs[0] != parts[0].slice->inputs[0] || z->desc.slice.start < parts[2].slice->desc.slice.end) {
        return false;
    }
    const trm_dims *k = &delta->inputs[TRM_GATED_DELTA_K]->dims, *v = &delta->inputs[TRM_GATED_DELTA_V]->dims;
    const trm_layer_desc desc = {.kind = TRM_LAYER_DELTA_NET,
                                 .delta_net = {.key_heads = (int32_t)k->d[1],
                                               .heads = (int32_t)v->d[1],
                                               .key_dim = (int32_t)k->d[2],
                                               .value_dim = (int32_t)v->d[2],
                                               .z = (int32_t)z->desc.slice.start,
                                               .a = (int32_t)a->desc.slice.start,
                                               .b = (int32_t)b->desc.slice.start,
                                               .activation = parts[0].convolution->desc.short_convolution.activation,
                                               .gate = layer->desc.glu.activation,
                                               .eps = delta->desc.gated_delta.eps,
                                               .norm_eps = norm->desc.norm.eps,
                                               .weight_offset = norm->desc.norm.weight_offset}};
    trm_tensor *inputs[TRM_DELTA_NET_INPUT_COUNT] = {z->inputs[0], a->inputs[0]};
    for (int32_t i = 0; i < 3; i++) {
        inputs[TRM_DELTA_NET_Q_TAPS + i] = parts[i].convolution->inputs[TRM_SHORT_CONVOLUTION_WEIGHT];
        inputs[TRM_DELTA_NET_Q_CACHE + i] = parts[i].convolution->inputs[TRM_SHORT_CONVOLUTION_CACHE];
    }
    for (int32_t i = 0; i < 6; i++) {
        inputs[TRM_DELTA_NET_A_LOG + i] = delta->inputs[TRM_GATED_DELTA_A_LOG + i];
    }
    inputs[TRM_DELTA_NET_NORM] = norm->inputs[1];
    make_view(analysis, delta, delta->inputs[TRM_GATED_DELTA_V]);
    for (int32_t i = 0; i < 3; i++) {
        make_view(analysis, parts[i].convolution, parts[i].convolution->inputs[TRM_SHORT_CONVOLUTION_X]);
    }
    trm_pattern_rewrite(analysis, layer, &desc, TRM_DELTA_NET_INPUT_COUNT, inputs);
    return true;
}

trm_status trm_pass_fuse_delta(trm_network *network, int32_t *changes)
{
    return trm_pattern_apply(network, fuse, changes);
}
