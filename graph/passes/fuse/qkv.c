/*
 * Fuses everything between the joined product of q, k and v and the output of attention over a cache: slices, norms of
 * heads, rotary embeddings, attention. After partitioning and after joining products.
 */
#include "graph/network.h"

#include <stdlib.h>

#include "graph/params.h"
#include "graph/passes/pattern.h"

/* One of q, k, v on its way from the joined product: a slice, then heads, and of q and k a norm and a rotation. */
typedef struct branch {
    const trm_layer *slice, *norm, *rope; /* norm and rope may be NULL */
} branch;

/* [T, heads * dim] -> [T, heads, dim] */
static bool cuts_heads(const trm_layer *reshape)
{
    const trm_dims *from = &reshape->inputs[0]->dims, *to = &reshape->outputs[0]->dims;
    const trm_dims *dims = &reshape->desc.reshape.dims;
    return reshape->n_inputs == 1 && from->n == 2 && to->n == 3 && from->d[1] > 0 && to->d[1] > 0 && to->d[2] > 0 &&
           from->d[1] == to->d[1] * to->d[2] && (dims->d[0] == -1 || dims->d[0] == 0);
}

static bool find_branch(const trm_analysis *analysis, const trm_tensor *tensor, branch *found)
{
    *found = (branch){0};
    const trm_layer *layer = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_ROPE);
    if (layer != NULL) {
        if (layer->desc.rope.first != 0) {
            return false;
        }
        found->rope = layer;
        tensor = layer->inputs[0];
    }
    layer = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_NORM);
    if (layer != NULL) {
        const trm_norm_params *norm = &layer->desc.norm;
        if (norm->op != TRM_NORM_RMS || norm->residual || layer->n_inputs != 2 || layer->inputs[1] == NULL ||
            layer->inputs[1]->dtype != tensor->dtype) {
            return false;
        }
        found->norm = layer;
        tensor = layer->inputs[0];
    }
    layer = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_RESHAPE);
    if (layer == NULL || !cuts_heads(layer)) {
        return false;
    }
    layer = trm_analysis_private_producer(analysis, layer->inputs[0], TRM_LAYER_SLICE);
    if (layer == NULL || layer->n_inputs != 1 || layer->desc.slice.axis != 1 || layer->desc.slice.step != 1 ||
        layer->inputs[0]->pin != NULL) {
        return false;
    }
    found->slice = layer;
    return true;
}

static bool same_rope(const trm_layer *a, const trm_layer *b)
{
    if (a == NULL || b == NULL || a->n_inputs != b->n_inputs || !trm_layer_desc_equal(&a->desc, &b->desc, 3)) {
        return false;
    }
    for (int32_t i = 1; i < a->n_inputs; i++) {
        if (a->inputs[i] != b->inputs[i]) {
            return false;
        }
    }
    return true;
}

static bool same_norm(const trm_layer *a, const trm_layer *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || (a->desc.norm.eps == b->desc.norm.eps &&
                                                        a->desc.norm.weight_offset == b->desc.norm.weight_offset));
}

/* Whether q, k and v are the beginning of one tensor, one after the other. */
static bool joined(const branch *parts, const trm_dims *const *heads)
{
    const trm_tensor *whole = parts[0].slice->inputs[0];
    int64_t start = 0;
    for (int32_t i = 0; i < 3; i++) {
        const trm_slice_params *slice = &parts[i].slice->desc.slice;
        int64_t width = heads[i]->d[1] * heads[i]->d[2];
        if (parts[i].slice->inputs[0] != whole || slice->start != start || slice->end != start + width ||
            heads[i]->d[2] != heads[0]->d[2]) {
            return false;
        }
        start += width;
    }
    return whole->dims.n == 2 && whole->dims.d[1] >= start;
}

static bool fuse(trm_analysis *analysis, trm_layer *layer)
{
    branch parts[3];
    const trm_dims *heads[3];
    if (layer->desc.kind != TRM_LAYER_ATTENTION || layer->desc.attention.form != TRM_ATTENTION_PACKED_NHD ||
        layer->n_inputs <= TRM_ATTENTION_VALUE_CACHE || layer->inputs[TRM_ATTENTION_KEY_CACHE] == NULL ||
        layer->desc.attention.cache_ranks > 1) {
        return false;
    }
    for (int32_t i = 0; i < 3; i++) {
        if (!find_branch(analysis, layer->inputs[TRM_ATTENTION_Q + i], &parts[i])) {
            return false;
        }
        heads[i] = &layer->inputs[TRM_ATTENTION_Q + i]->dims;
    }
    const branch *q = &parts[0], *k = &parts[1], *v = &parts[2];
    if (!same_rope(q->rope, k->rope) || !same_norm(q->norm, k->norm) || v->rope != NULL || v->norm != NULL ||
        !joined(parts, heads)) {
        return false;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_QKV_ATTENTION,
                           .qkv_attention = {.attention = layer->desc.attention,
                                             .rope = q->rope->desc.rope,
                                             .query_heads = (int32_t)heads[0]->d[1],
                                             .kv_heads = (int32_t)heads[1]->d[1]}};
    if (q->slice->inputs[0]->dims.d[1] > v->slice->desc.slice.end) {
        desc.qkv_attention.head_dim = (int32_t)heads[0]->d[2];
    }
    trm_tensor *inputs[TRM_QKV_ATTENTION_INPUT_COUNT] = {q->slice->inputs[0]};
    int32_t n = TRM_QKV_ATTENTION_INV_FREQ + 1;
    for (int32_t i = 0; i < 5; i++) {
        inputs[TRM_QKV_ATTENTION_SEQUENCE_STARTS + i] = layer->inputs[TRM_ATTENTION_SEQUENCE_STARTS + i];
    }
    for (int32_t i = 1; i < q->rope->n_inputs; i++) {
        inputs[TRM_QKV_ATTENTION_POSITIONS + i - 1] = q->rope->inputs[i];
        n = i == 3 && q->rope->inputs[i] != NULL ? TRM_QKV_ATTENTION_LENGTHS + 1 : n;
    }
    if (q->norm != NULL) {
        desc.qkv_attention.eps = q->norm->desc.norm.eps;
        desc.qkv_attention.weight_offset = q->norm->desc.norm.weight_offset;
        inputs[TRM_QKV_ATTENTION_Q_NORM] = q->norm->inputs[1];
        inputs[TRM_QKV_ATTENTION_K_NORM] = k->norm->inputs[1];
        n = TRM_QKV_ATTENTION_K_NORM + 1;
    }
    if (layer->n_inputs > TRM_ATTENTION_SINKS) {
        inputs[TRM_QKV_ATTENTION_SINKS] = layer->inputs[TRM_ATTENTION_SINKS];
        n = TRM_QKV_ATTENTION_SINKS + 1;
    }
    trm_pattern_rewrite(analysis, layer, &desc, n, inputs);
    return true;
}

trm_status trm_pass_fuse_qkv(trm_network *network, int32_t *changes)
{
    return trm_pattern_apply(network, fuse, changes);
}
