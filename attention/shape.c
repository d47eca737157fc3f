/* The description of an attention call that every implementation starts from. */
#include <math.h>

#include "attention/attention_impl.h"
#include "kernels/kernel.h"

static bool has_dims(const trm_view *view, int32_t n, const int64_t *d)
{
    if (view->dims.n != n) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        if (view->dims.d[i] != d[i]) {
            return false;
        }
    }
    return true;
}

static bool describe_cache(const trm_kernel_call *call, trm_attention_shape *s)
{
    if (!trm_kernel_call_has(call, TRM_ATTENTION_SEQUENCE_LENGTHS) ||
        !trm_kernel_call_has(call, TRM_ATTENTION_BLOCK_TABLE) ||
        !trm_kernel_call_has(call, TRM_ATTENTION_VALUE_CACHE)) {
        return false;
    }
    const trm_view *lengths = &call->inputs[TRM_ATTENTION_SEQUENCE_LENGTHS];
    const trm_view *table = &call->inputs[TRM_ATTENTION_BLOCK_TABLE];
    const trm_view *keys = &call->inputs[TRM_ATTENTION_KEY_CACHE], *values = &call->inputs[TRM_ATTENTION_VALUE_CACHE];
    if (keys->dims.n != 4 || table->dims.n != 2 || keys->dims.d[1] < 1 || lengths->dtype != TRM_I32 ||
        table->dtype != TRM_I32 || keys->dtype != values->dtype) {
        return false;
    }
    s->cached = true;
    s->cache_dtype = keys->dtype;
    s->block_size = keys->dims.d[1];
    s->table_blocks = table->dims.d[1];
    return has_dims(lengths, 1, (const int64_t[]){s->sequences}) && table->dims.d[0] == s->sequences &&
           has_dims(keys, 4, (const int64_t[]){keys->dims.d[0], s->block_size, s->kv_heads, s->dim}) &&
           has_dims(values, 4, (const int64_t[]){keys->dims.d[0], s->block_size, s->kv_heads, s->value_dim});
}

static bool describe_packed(const trm_kernel_call *call, trm_attention_shape *s)
{
    const trm_view *q = &call->inputs[TRM_ATTENTION_Q], *k = &call->inputs[TRM_ATTENTION_K];
    const trm_view *v = &call->inputs[TRM_ATTENTION_V], *starts = &call->inputs[TRM_ATTENTION_SEQUENCE_STARTS];
    if (q->dims.n != 3 || k->dims.n != 3 || v->dims.n != 3 ||
        !trm_kernel_call_has(call, TRM_ATTENTION_SEQUENCE_STARTS) || trm_kernel_call_has(call, TRM_ATTENTION_MASK) ||
        starts->dtype != TRM_I32 || starts->dims.n != 1 || starts->dims.d[0] < 1) {
        return false;
    }
    s->packed = true;
    s->sequences = starts->dims.d[0] - 1;
    s->tokens = q->dims.d[0];
    s->query_heads = q->dims.d[1];
    s->kv_heads = k->dims.d[1];
    s->dim = q->dims.d[2];
    s->value_dim = v->dims.d[2];
    return has_dims(k, 3, (const int64_t[]){s->tokens, s->kv_heads, s->dim}) &&
           has_dims(v, 3, (const int64_t[]){s->tokens, s->kv_heads, s->value_dim}) &&
           has_dims(&call->outputs[0], 3, (const int64_t[]){s->tokens, s->query_heads, s->value_dim}) &&
           (trm_kernel_call_has(call, TRM_ATTENTION_KEY_CACHE)
                ? describe_cache(call, s)
                : !trm_kernel_call_has(call, TRM_ATTENTION_SEQUENCE_LENGTHS) &&
                      !trm_kernel_call_has(call, TRM_ATTENTION_BLOCK_TABLE) &&
                      !trm_kernel_call_has(call, TRM_ATTENTION_VALUE_CACHE));
}

static bool describe_mask(const trm_dims *mask, const int64_t *scores, int64_t *strides)
{
    const int32_t shift = 4 - mask->n;
    if (shift < 0) {
        return false;
    }
    int64_t stride = 1;
    for (int32_t i = 3; i >= 0; i--) {
        const int64_t d = i >= shift ? mask->d[i - shift] : 1;
        if (d != 1 && d != scores[i]) {
            return false;
        }
        strides[i] = d == 1 ? 0 : stride;
        stride *= d;
    }
    return true;
}

static bool describe_padded(const trm_kernel_call *call, trm_attention_shape *s)
{
    const trm_view *q = &call->inputs[TRM_ATTENTION_Q], *k = &call->inputs[TRM_ATTENTION_K];
    const trm_view *v = &call->inputs[TRM_ATTENTION_V];
    if (q->dims.n != 4 || k->dims.n != 4 || v->dims.n != 4) {
        return false;
    }
    for (int32_t i = TRM_ATTENTION_SEQUENCE_STARTS; i <= TRM_ATTENTION_VALUE_CACHE; i++) {
        if (trm_kernel_call_has(call, i)) {
            return false;
        }
    }
    const int32_t heads = call->layer->attention.form == TRM_ATTENTION_PADDED_BNHD ? 2 : 1, rows = 3 - heads;
    s->rows_first = rows == 1;
    s->sequences = q->dims.d[0];
    s->query_heads = q->dims.d[heads];
    s->queries = q->dims.d[rows];
    s->dim = q->dims.d[3];
    s->kv_heads = k->dims.d[heads];
    s->keys = k->dims.d[rows];
    s->value_dim = v->dims.d[3];
    if (trm_kernel_call_has(call, TRM_ATTENTION_MASK)) {
        s->masked = true;
        if (!describe_mask(&call->inputs[TRM_ATTENTION_MASK].dims,
                           (const int64_t[]){s->sequences, s->query_heads, s->queries, s->keys}, s->mask_strides)) {
            return false;
        }
    }
    return has_dims(k, 4, (const int64_t[]){s->sequences, k->dims.d[1], k->dims.d[2], s->dim}) &&
           has_dims(v, 4, (const int64_t[]){s->sequences, k->dims.d[1], k->dims.d[2], s->value_dim}) &&
           has_dims(&call->outputs[0], 4, (const int64_t[]){s->sequences, q->dims.d[1], q->dims.d[2], s->value_dim});
}

bool trm_attention_describe(const trm_kernel_call *call, trm_attention_shape *shape)
{
    const trm_attention_params *p = &call->layer->attention;
    const bool shares = p->cache_ranks > 1;
    if (call->n_inputs < 3 || call->n_inputs > TRM_ATTENTION_INPUT_COUNT || call->n_outputs != (shares ? 2 : 1) ||
        p->causal < TRM_CAUSAL_NONE || p->causal > TRM_CAUSAL_LOWER_RIGHT || p->window < 0 ||
        (p->window > 0 && p->causal == TRM_CAUSAL_NONE) || (p->chunked && p->window == 0)) {
        return false;
    }
    trm_attention_shape s = {.packed = false};
    if (!(p->form == TRM_ATTENTION_PACKED_NHD ? describe_packed(call, &s) : describe_padded(call, &s)) ||
        s.kv_heads < 1 || s.query_heads % s.kv_heads != 0) {
        return false;
    }
    s.sinks = trm_kernel_call_has(call, TRM_ATTENTION_SINKS);
    if (s.sinks && (call->inputs[TRM_ATTENTION_SINKS].dtype != TRM_F32 ||
                    !has_dims(&call->inputs[TRM_ATTENTION_SINKS], 1, &s.query_heads))) {
        return false;
    }
    s.share = (trm_cache_share){shares ? p->cache_ranks : 1, p->cache_rank, (int32_t)s.block_size};
    if (shares &&
        (!s.cached || s.sinks || call->outputs[1].dtype != TRM_F32 || s.block_size > INT32_MAX / TRM_MAX_RANKS ||
         !has_dims(&call->outputs[1], 2, (const int64_t[]){s.tokens, s.query_heads}))) {
        return false;
    }
    s.scale = p->scale != 0.0f ? p->scale : s.dim > 0 ? (float)(1.0 / sqrt((double)s.dim)) : 1.0f;
    s.key_inverse = s.value_inverse = s.value_scale = 1.0f;
    if (s.cached && s.cache_dtype == TRM_F8E4M3) {
        const float k_scale = p->k_scale != 0.0f ? p->k_scale : 1.0f;
        s.value_scale = p->v_scale != 0.0f ? p->v_scale : 1.0f;
        s.scale *= k_scale;
        s.key_inverse = 1.0f / k_scale;
        s.value_inverse = 1.0f / s.value_scale;
    }
    *shape = s;
    return true;
}

bool trm_attention_join_describe(const trm_kernel_call *call, trm_attention_join_shape *shape)
{
    const int32_t n = call->layer->attention_join.n_ranks;
    const trm_view *out = &call->outputs[0];
    if (call->n_inputs < TRM_ATTENTION_JOIN_SINKS || call->n_inputs > TRM_ATTENTION_JOIN_INPUT_COUNT ||
        call->n_outputs != 1 || out->dims.n != 3 || n < 1 || call->inputs[TRM_ATTENTION_JOIN_LOGS].dtype != TRM_F32 ||
        call->inputs[TRM_ATTENTION_JOIN_RESULTS].dtype != out->dtype) {
        return false;
    }
    const int64_t results = n * out->dims.d[0], heads = out->dims.d[1];
    *shape = (trm_attention_join_shape){out->dims.d[0], heads, out->dims.d[2], n};
    return has_dims(&call->inputs[TRM_ATTENTION_JOIN_RESULTS], 3, (const int64_t[]){results, heads, out->dims.d[2]}) &&
           has_dims(&call->inputs[TRM_ATTENTION_JOIN_LOGS], 2, (const int64_t[]){results, heads}) &&
           (!trm_kernel_call_has(call, TRM_ATTENTION_JOIN_SINKS) ||
            (call->inputs[TRM_ATTENTION_JOIN_SINKS].dtype == TRM_F32 &&
             has_dims(&call->inputs[TRM_ATTENTION_JOIN_SINKS], 1, &heads)));
}
