/*
 * QKV_ATTENTION as the layers it stands for: slices, norms, rotary embeddings, attention, one kernel after the other.
 * On the host the reference, on CUDA for what attention/qkv/cuda.c does not take.
 */
#include "attention/attention_impl.h"
#include "kernels/parts.h"

bool trm_qkv_attention_describe(const trm_kernel_call *call, trm_layer_desc *desc, trm_kernel_call *attention,
                                trm_attention_shape *shape)
{
    const trm_qkv_attention_params *p = &call->layer->qkv_attention;
    const trm_view *qkv = &call->inputs[TRM_QKV_ATTENTION_QKV];
    const int64_t heads = (int64_t)p->query_heads + 2 * (int64_t)p->kv_heads;
    if (call->n_inputs <= TRM_QKV_ATTENTION_INV_FREQ || qkv->dims.n != 2 || heads < 3 ||
        (p->head_dim == 0 && qkv->dims.d[1] % heads != 0) || qkv->dims.d[1] < heads * p->head_dim ||
        p->attention.n_ranks > 1 || p->attention.form != TRM_ATTENTION_PACKED_NHD) {
        return false;
    }
    const int64_t tokens = qkv->dims.d[0], dim = p->head_dim > 0 ? p->head_dim : qkv->dims.d[1] / heads;
    *desc = (trm_layer_desc){.kind = TRM_LAYER_ATTENTION, .attention = p->attention};
    *attention = (trm_kernel_call){.layer = desc,
                                   .n_inputs = TRM_ATTENTION_INPUT_COUNT,
                                   .n_outputs = 1,
                                   .outputs = {call->outputs[0]},
                                   .workspace = call->workspace,
                                   .workspace_size = call->workspace_size,
                                   .stream = call->stream,
                                   .communicator = call->communicator,
                                   .batch_invariant = call->batch_invariant};
    for (int32_t i = 0; i < 3; i++) {
        attention->inputs[TRM_ATTENTION_Q + i] =
            (trm_view){NULL, qkv->dtype, {3, {tokens, i == 0 ? p->query_heads : p->kv_heads, dim}}};
    }
    for (int32_t i = 0; i < 5; i++) {
        attention->inputs[TRM_ATTENTION_SEQUENCE_STARTS + i] = call->inputs[TRM_QKV_ATTENTION_SEQUENCE_STARTS + i];
    }
    if (trm_kernel_call_has(call, TRM_QKV_ATTENTION_SINKS)) {
        attention->inputs[TRM_ATTENTION_SINKS] = call->inputs[TRM_QKV_ATTENTION_SINKS];
    }
    return trm_attention_describe(attention, shape);
}

/* ---- the layers ---------------------------------------------------------------------------------- */

enum { QUERIES, KEYS, VALUES, BRANCHES };

static trm_kernel_call *add(const trm_kernel_call *call, trm_kernel_parts *parts, trm_layer_kind kind, trm_view x,
                            trm_view y)
{
    trm_kernel_call *part = trm_kernel_parts_add(parts, call, kind);
    part->allow_tf32 = false;
    part->inputs[part->n_inputs++] = x;
    part->outputs[0] = y;
    return part;
}

/* Slices of q, k and v. */
static void add_slices(const trm_kernel_call *call, trm_kernel_parts *parts, const trm_view *vectors)
{
    for (int64_t i = 0, start = 0; i < BRANCHES; i++) {
        const int64_t width = vectors[i].dims.d[1] * vectors[i].dims.d[2];
        const trm_view flat = {vectors[i].data, vectors[i].dtype, {2, {vectors[i].dims.d[0], width}}};
        add(call, parts, TRM_LAYER_SLICE, call->inputs[TRM_QKV_ATTENTION_QKV], flat);
        parts->layers[parts->n - 1].slice =
            (trm_slice_params){.axis = 1, .start = start, .end = start + width, .step = 1};
        start += width;
    }
}

/* A vector goes back and forth between two rooms. */
static void swap(trm_view *vector, trm_view *other)
{
    const trm_view from = *vector;
    *vector = *other;
    *other = from;
}

bool trm_qkv_attention_parts(const trm_kernel_call *call, trm_kernel_parts *parts)
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels, &trm_attention_kernels};
    const trm_qkv_attention_params *p = &call->layer->qkv_attention;
    trm_attention_shape shape;
    trm_layer_desc layer;
    trm_kernel_call attention;
    trm_view vectors[BRANCHES], others[BRANCHES];
    if (!trm_qkv_attention_describe(call, &layer, &attention, &shape)) {
        return false;
    }
    parts->tables = tables;
    parts->n_tables = 3;
    char *rooms = call->workspace;
    for (int32_t i = 0; i < 2 * BRANCHES; i++) {
        trm_view *vector = i < BRANCHES ? &vectors[i] : &others[i - BRANCHES];
        *vector = attention.inputs[TRM_ATTENTION_Q + i % BRANCHES];
        vector->data = rooms == NULL ? NULL : rooms + parts->between;
        parts->between += trm_kernel_parts_room(vector);
    }
    add_slices(call, parts, vectors);
    for (int32_t i = QUERIES; i <= KEYS && trm_kernel_call_has(call, TRM_QKV_ATTENTION_Q_NORM); i++) {
        trm_kernel_call *norm = add(call, parts, TRM_LAYER_NORM, vectors[i], others[i]);
        parts->layers[parts->n - 1].norm = (trm_norm_params){.eps = p->eps, .weight_offset = p->weight_offset};
        norm->inputs[norm->n_inputs++] = call->inputs[TRM_QKV_ATTENTION_Q_NORM + i];
        swap(&vectors[i], &others[i]);
    }
    for (int32_t i = QUERIES; i <= KEYS; i++) {
        trm_kernel_call *rope = add(call, parts, TRM_LAYER_ROPE, vectors[i], others[i]);
        parts->layers[parts->n - 1].rope = p->rope;
        for (int32_t k = 0; k < (p->rope.scaling == TRM_ROPE_PLAIN ? 2 : 3); k++) {
            rope->inputs[rope->n_inputs++] = call->inputs[TRM_QKV_ATTENTION_POSITIONS + k];
        }
        swap(&vectors[i], &others[i]);
    }
    trm_kernel_call *part = trm_kernel_parts_add(parts, call, TRM_LAYER_ATTENTION);
    parts->layers[parts->n - 1] = layer;
    attention.layer = part->layer;
    *part = attention;
    for (int32_t i = 0; i < BRANCHES; i++) {
        part->inputs[TRM_ATTENTION_Q + i] = vectors[i];
    }
    return true;
}
