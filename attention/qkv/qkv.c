/*
 * QKV_ATTENTION as the layers it stands for: slices, norms, rotary embeddings, attention, one kernel after the other.
 * On the host the reference, on CUDA for what attention/qkv/cuda.c does not take.
 */
#include "attention/attention_impl.h"

#include "base/error.h"

static bool has(const trm_kernel_call *call, int32_t i)
{
    return i < call->n_inputs && call->inputs[i].dtype != TRM_DTYPE_NONE;
}

bool trm_qkv_attention_describe(const trm_kernel_call *call, trm_layer_desc *desc, trm_kernel_call *attention,
                                trm_attention_shape *shape)
{
    const trm_qkv_attention_params *p = &call->layer->qkv_attention;
    const trm_view *qkv = &call->inputs[TRM_QKV_ATTENTION_QKV];
    const int64_t heads = (int64_t)p->query_heads + 2 * (int64_t)p->kv_heads;
    if (call->n_inputs <= TRM_QKV_ATTENTION_INV_FREQ || qkv->dims.n != 2 || heads < 3 || qkv->dims.d[1] % heads != 0 ||
        p->attention.n_ranks > 1 || p->attention.form != TRM_ATTENTION_PACKED_NHD) {
        return false;
    }
    const int64_t tokens = qkv->dims.d[0], dim = qkv->dims.d[1] / heads;
    *desc = (trm_layer_desc){.kind = TRM_LAYER_ATTENTION, .attention = p->attention};
    *attention = (trm_kernel_call){.layer = desc,
                                   .n_inputs = TRM_ATTENTION_VALUE_CACHE + 1,
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
    return trm_attention_describe(attention, shape);
}

/* ---- the layers, and what each needs ------------------------------------------------------------ */

enum { SLICES = 0, NORMS = 3, ROPES = 5, ATTENTION = 7, PARTS = 8 };

typedef struct parts {
    trm_layer_desc desc[PARTS];
    trm_kernel_call calls[PARTS];
    const trm_kernel *kernels[PARTS]; /* NULL: nothing to do */
    size_t room;                      /* for q, k and v, twice at the beginning of the workspace */
    size_t workspace;                 /* of the layer that needs most, behind it */
} parts;

#define ROOM_ALIGNMENT ((size_t)256)

static size_t room_of(const trm_view *view)
{
    size_t bytes = (size_t)trm_dims_count(&view->dims) * trm_dtype_size(view->dtype);
    return (bytes + ROOM_ALIGNMENT - 1) / ROOM_ALIGNMENT * ROOM_ALIGNMENT;
}

static trm_kernel_call call_of(const trm_kernel_call *call, const trm_layer_desc *desc, trm_view x, trm_view y)
{
    return (trm_kernel_call){.layer = desc,
                             .n_inputs = 1,
                             .n_outputs = 1,
                             .inputs = {x},
                             .outputs = {y},
                             .stream = call->stream,
                             .communicator = call->communicator,
                             .batch_invariant = call->batch_invariant};
}

/* Calls in their order. A vector goes back and forth between the two rooms. */
static void add_branch(const trm_kernel_call *call, parts *made, int32_t i, int64_t start, trm_view vector, char *rooms)
{
    const trm_qkv_attention_params *p = &call->layer->qkv_attention;
    const int64_t width = vector.dims.d[1] * vector.dims.d[2];
    const bool normed = i < 2 && has(call, TRM_QKV_ATTENTION_Q_NORM);
    trm_view next = vector;
    vector.data = rooms;
    next.data = rooms == NULL ? NULL : rooms + made->room;
    trm_view flat = {vector.data, vector.dtype, {2, {vector.dims.d[0], width}}};
    made->desc[SLICES + i] = (trm_layer_desc){.kind = TRM_LAYER_SLICE,
                                              .slice = {.axis = 1, .start = start, .end = start + width, .step = 1}};
    made->calls[SLICES + i] = call_of(call, &made->desc[SLICES + i], call->inputs[TRM_QKV_ATTENTION_QKV], flat);
    if (normed) {
        made->desc[NORMS + i] =
            (trm_layer_desc){.kind = TRM_LAYER_NORM, .norm = {.eps = p->eps, .weight_offset = p->weight_offset}};
        trm_kernel_call *norm = &made->calls[NORMS + i];
        *norm = call_of(call, &made->desc[NORMS + i], vector, next);
        norm->inputs[norm->n_inputs++] = call->inputs[TRM_QKV_ATTENTION_Q_NORM + i];
    }
    if (i < 2) {
        made->desc[ROPES + i] = (trm_layer_desc){.kind = TRM_LAYER_ROPE, .rope = p->rope};
        trm_kernel_call *rope = &made->calls[ROPES + i];
        *rope = call_of(call, &made->desc[ROPES + i], normed ? next : vector, normed ? vector : next);
        for (int32_t k = 0; k < (p->rope.scaling == TRM_ROPE_PLAIN ? 2 : 3); k++) {
            rope->inputs[rope->n_inputs++] = call->inputs[TRM_QKV_ATTENTION_POSITIONS + k];
        }
        vector = rope->outputs[0];
    }
    made->calls[ATTENTION].inputs[TRM_ATTENTION_Q + i].data = vector.data;
}

/* False if the call does not fit, or a layer has no kernel. */
static bool take_apart(const trm_kernel_call *call, trm_backend backend, parts *made)
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels, &trm_attention_kernels};
    trm_attention_shape shape;
    *made = (parts){0};
    trm_kernel_call *attention = &made->calls[ATTENTION];
    if (!trm_qkv_attention_describe(call, &made->desc[ATTENTION], attention, &shape)) {
        return false;
    }
    for (int32_t i = 0; i < 3; i++) {
        made->room += room_of(&attention->inputs[TRM_ATTENTION_Q + i]);
    }
    int64_t start = 0;
    size_t at = 0;
    for (int32_t i = 0; i < 3; i++) {
        const trm_view *vector = &attention->inputs[TRM_ATTENTION_Q + i];
        add_branch(call, made, i, start, *vector, call->workspace == NULL ? NULL : (char *)call->workspace + at);
        start += vector->dims.d[1] * vector->dims.d[2];
        at += room_of(vector);
    }
    for (int32_t i = 0; i < PARTS; i++) {
        if (made->calls[i].layer == NULL) {
            continue;
        }
        made->kernels[i] = trm_kernel_find(tables, 3, backend, &made->calls[i]);
        if (made->kernels[i] == NULL) {
            return false;
        }
        size_t needed = made->kernels[i]->workspace == NULL ? 0 : made->kernels[i]->workspace(&made->calls[i]);
        made->workspace = needed > made->workspace ? needed : made->workspace;
    }
    return true;
}

static size_t workspace_of(const trm_kernel_call *call, trm_backend backend)
{
    parts made;
    return take_apart(call, backend, &made) ? 2 * made.room + made.workspace : 0;
}

static trm_status run_apart(const trm_kernel_call *call, trm_backend backend)
{
    parts made;
    if (!take_apart(call, backend, &made) || 2 * made.room + made.workspace > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a qkv_attention call does not fit the layer it was accepted for");
    }
    for (int32_t i = 0; i < PARTS; i++) {
        if (made.kernels[i] != NULL) {
            made.calls[i].workspace = (char *)call->workspace + 2 * made.room;
            made.calls[i].workspace_size = call->workspace_size - 2 * made.room;
            TRM_TRY(made.kernels[i]->run(&made.calls[i]));
        }
    }
    return TRM_OK;
}

bool trm_host_qkv_attention_accepts(const trm_kernel_call *call)
{
    parts made;
    return take_apart(call, TRM_BACKEND_HOST, &made);
}

size_t trm_host_qkv_attention_workspace(const trm_kernel_call *call)
{
    return workspace_of(call, TRM_BACKEND_HOST);
}

trm_status trm_host_qkv_attention_run(const trm_kernel_call *call)
{
    return run_apart(call, TRM_BACKEND_HOST);
}

#if TRM_HAVE_CUDA
bool trm_cuda_qkv_attention_apart_accepts(const trm_kernel_call *call)
{
    parts made;
    return take_apart(call, TRM_BACKEND_CUDA, &made);
}

size_t trm_cuda_qkv_attention_apart_workspace(const trm_kernel_call *call)
{
    return workspace_of(call, TRM_BACKEND_CUDA);
}

trm_status trm_cuda_qkv_attention_apart_run(const trm_kernel_call *call)
{
    return run_apart(call, TRM_BACKEND_CUDA);
}
#endif
