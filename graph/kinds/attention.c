/*
 * Rotary positions and attention: rope, rotate, attention, latent_attention, qkv_attention.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"

static trm_status check_rope_params(const trm_rope_params *rope, int64_t head_dim)
{
    if ((unsigned)rope->scaling > TRM_ROPE_LONG) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found rope scaling %d, expected 0 to %d", (int)rope->scaling,
                 (int)TRM_ROPE_LONG);
    }
    if (rope->rotary_dim <= 0 || rope->rotary_dim % 2 != 0 || (head_dim != -1 && rope->rotary_dim > head_dim)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "rotary_dim is %" PRId32 ", expected an even number of 2 to the head dimension %" PRId64,
                 rope->rotary_dim, head_dim);
    }
    if (rope->first < 0 || (head_dim != -1 && rope->first > head_dim - rope->rotary_dim)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%" PRId32 " elements are rotated from element %" PRId32 " on, expected them in a head of %" PRId64,
                 rope->rotary_dim, rope->first, head_dim);
    }
    if (rope->scaling != TRM_ROPE_PLAIN && rope->original_length < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "original_length is %" PRId64 ", expected at least 1",
                 rope->original_length);
    }
    if (rope->scaling == TRM_ROPE_DYNAMIC && !(rope->base > 0 && rope->factor >= 1)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "base is %g and factor %g, expected more than 0 and at least 1",
                 (double)rope->base, (double)rope->factor);
    }
    return TRM_OK;
}

static trm_status infer_rope(const trm_infer_call *call)
{
    const trm_rope_params *rope = &call->desc->rope;
    TRM_TRY(trm_infer_require_inputs(call, rope->scaling == TRM_ROPE_PLAIN ? 3 : 4, 4));
    TRM_TRY(trm_infer_require_rank(call, 0, "x", 3));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    const trm_dims *x = call->dims[0];
    TRM_TRY(check_rope_params(rope, x->d[2]));
    TRM_TRY(trm_infer_require_dims(call, 1, "positions", trm_dims1(x->d[0])));
    TRM_TRY(trm_infer_require_dtype(call, 1, "positions", TRM_I32));
    int64_t pairs = rope->rotary_dim / 2;
    TRM_TRY(trm_infer_require_dims(call, 2, "inv_freq",
                                   rope->scaling == TRM_ROPE_LONG ? trm_dims2(2, pairs) : trm_dims1(pairs)));
    TRM_TRY(trm_infer_require_dtype(call, 2, "inv_freq", TRM_F32));
    if (trm_infer_has(call, 3)) {
        TRM_TRY(trm_infer_require_dims(call, 3, "lengths", trm_dims1(x->d[0])));
        TRM_TRY(trm_infer_require_dtype(call, 3, "lengths", TRM_I32));
    }
    call->output_dims[0] = *x;
    call->output_dims[0].d[0] = trm_dim_known(x->d[0], call->dims[1]->d[0]);
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

static int32_t link_rope(const trm_layer *layer, int32_t k, int32_t i)
{
    enum { ROPE_X = 0, ROPE_FREQUENCIES = 2 };
    (void)layer;
    switch (k) {
    case 0:
        return i == ROPE_FREQUENCIES ? TRM_LINK_WHOLE : 0;
    case 1:
        return i == ROPE_X ? 1 : TRM_LINK_WHOLE;
    default:
        return TRM_LINK_NEVER;
    }
}

const trm_kind trm_kind_rope = {
    TRM_FIELDS(TRM_FIELD(ENUM, rope, scaling, .values = TRM_NAMES(TRM_ROPE_SCALINGS)),
               TRM_FIELD(INT32, rope, rotary_dim, .always = true), TRM_FIELD(BOOL, rope, interleaved),
               TRM_FIELD(FLOAT, rope, magnitude, .normal = 1), TRM_FIELD(FLOAT, rope, base),
               TRM_FIELD(FLOAT, rope, factor), TRM_FIELD(INT64, rope, original_length), TRM_FIELD(INT32, rope, first)),
    .infer = infer_rope,
    .link = link_rope,
    .sizes = trm_sizes_same,
    .keeps_zero = trm_keeps_zero,
};

static trm_status infer_rotate(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 3, 3));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    const trm_dims *x = call->dims[0], *angles = call->dims[1];
    const int32_t rotary = call->desc->rotate.rotary_dim;
    const int64_t width = x->n > 0 ? x->d[x->n - 1] : 0, columns = angles->n > 0 ? angles->d[angles->n - 1] : 0;
    if (rotary < 2 || rotary % 2 != 0 || (width != -1 && rotary > width)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "rotary_dim is %" PRId32 ", expected an even number of 2 to the last dimension %" PRId64, rotary,
                 width);
    }
    bool fits = angles->n <= x->n && (columns == -1 || columns == rotary || columns == rotary / 2);
    for (int32_t i = 0; fits && i < angles->n - 1; i++) {
        fits = angles->d[i] == 1 || trm_dim_fits(angles->d[i], x->d[i + x->n - angles->n]);
    }
    if (!fits) {
        char text[TRM_DIMS_TEXT_SIZE], other[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "cos has dims %s, expected %" PRId32 " or %" PRId32
                 " columns and dims that broadcast to those of x %s",
                 trm_dims_format(angles, text), rotary, rotary / 2, trm_dims_format(x, other));
    }
    TRM_TRY(trm_infer_require_dtype(call, 1, "cos", call->dtypes[0]));
    TRM_TRY(trm_infer_require_dims(call, 2, "sin", *angles));
    TRM_TRY(trm_infer_require_dtype(call, 2, "sin", call->dtypes[0]));
    call->output_dims[0] = *x;
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

static int32_t link_rotate(const trm_layer *layer, int32_t k, int32_t i)
{
    return k == layer->outputs[0]->dims.n - 1 ? TRM_LINK_NEVER : trm_link_broadcast(layer, k, i);
}

const trm_kind trm_kind_rotate = {
    TRM_FIELDS(TRM_FIELD(INT32, rotate, rotary_dim, .always = true), TRM_FIELD(BOOL, rotate, interleaved)),
    .infer = infer_rotate,
    .link = link_rotate,
    .sizes = trm_sizes_same,
    .linear = {1},
};

/* ---- attention --------------------------------------------------------------------------------- */

/* A normal number, so that its reciprocal is one, too. */
static bool is_cache_scale(float scale)
{
    return scale == 0 || (scale >= 0x1p-126f && scale <= 0x1p126f);
}

static trm_status check_attention_params(const trm_attention_params *attention)
{
    if ((unsigned)attention->form > TRM_ATTENTION_PADDED_BNHD) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found attention form %d, expected 0 to %d", (int)attention->form,
                 (int)TRM_ATTENTION_PADDED_BNHD);
    }
    if ((unsigned)attention->causal > TRM_CAUSAL_LOWER_RIGHT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found causal kind %d, expected 0 to %d", (int)attention->causal,
                 (int)TRM_CAUSAL_LOWER_RIGHT);
    }
    if (attention->window < 0 || (attention->window > 0 && attention->causal == TRM_CAUSAL_NONE)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "window is %" PRId32 ", expected 0, or more with a causal kind",
                 attention->window);
    }
    if (attention->chunked && attention->window == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "window is 0, expected the length of chunks, as chunked is true");
    }
    if (!(attention->softcap >= 0) || !(attention->scale == attention->scale)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "softcap is %g and scale %g, expected numbers of at least 0",
                 (double)attention->softcap, (double)attention->scale);
    }
    if (!is_cache_scale(attention->k_scale) || !is_cache_scale(attention->v_scale)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "k_scale is %g and v_scale %g, expected positive numbers, or 0 for 1",
                 (double)attention->k_scale, (double)attention->v_scale);
    }
    if (attention->n_ranks < 0 || attention->n_ranks > TRM_MAX_RANKS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "n_ranks is %" PRId32 ", expected 0 to %d", attention->n_ranks,
                 TRM_MAX_RANKS);
    }
    if (attention->n_ranks > 1 && attention->form == TRM_ATTENTION_PACKED_NHD) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "n_ranks is %" PRId32 " in the packed form, expected 1: rows of packed sequences, and of a cache, are "
                 "not cut over ranks; the padded forms can be",
                 attention->n_ranks);
    }
    if (attention->cache_ranks < 0 || attention->cache_ranks > TRM_MAX_RANKS || attention->cache_rank < 0 ||
        attention->cache_rank > (attention->cache_ranks > 1 ? attention->cache_ranks - 1 : 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "the cache is that of rank %" PRId32 " of %" PRId32 ", expected one of at most %d",
                 attention->cache_rank, attention->cache_ranks, TRM_MAX_RANKS);
    }
    return TRM_OK;
}

static trm_status check_head_counts(int64_t queries, int64_t keys)
{
    if (queries != -1 && keys != -1 && (keys == 0 || queries % keys != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId64 " query heads and %" PRId64 " key-value heads, expected a multiple of them", queries,
                 keys);
    }
    return TRM_OK;
}

static trm_status check_not_given(const trm_infer_call *call, int32_t first, int32_t last, const char *why)
{
    static const char *const names[TRM_ATTENTION_INPUT_COUNT] = {
        "q",         "k",           "v",    "sequence_starts", "sequence_lengths", "block_table",
        "key_cache", "value_cache", "mask", "sinks",
    };
    for (int32_t i = first; i <= last; i++) {
        if (trm_infer_has(call, i)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is given, expected none %s", names[i], why);
        }
    }
    return TRM_OK;
}

/* The cache and what names its blocks: all four or none. */
static trm_status check_cache(const trm_infer_call *call, int64_t sequences)
{
    const trm_dims *k = call->dims[TRM_ATTENTION_K], *v = call->dims[TRM_ATTENTION_V];
    if (!trm_infer_has(call, TRM_ATTENTION_KEY_CACHE)) {
        return check_not_given(call, TRM_ATTENTION_SEQUENCE_LENGTHS, TRM_ATTENTION_VALUE_CACHE, "without a key_cache");
    }
    if (!trm_infer_has(call, TRM_ATTENTION_SEQUENCE_LENGTHS) || !trm_infer_has(call, TRM_ATTENTION_BLOCK_TABLE) ||
        !trm_infer_has(call, TRM_ATTENTION_VALUE_CACHE)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "a key_cache is given, expected sequence_lengths, block_table and value_cache with it");
    }
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_SEQUENCE_LENGTHS, "sequence_lengths", trm_dims1(sequences)));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_SEQUENCE_LENGTHS, "sequence_lengths", TRM_I32));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_BLOCK_TABLE, "block_table", trm_dims2(sequences, -1)));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_BLOCK_TABLE, "block_table", TRM_I32));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_KEY_CACHE, "key_cache", trm_dims4(-1, -1, k->d[1], k->d[2])));
    const bool is_f8 = call->dtypes[TRM_ATTENTION_KEY_CACHE] == TRM_F8E4M3;
    const trm_dtype dtype = is_f8 ? TRM_F8E4M3 : call->dtypes[TRM_ATTENTION_K];
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_KEY_CACHE, "key_cache", dtype));
    const trm_dims *cache = call->dims[TRM_ATTENTION_KEY_CACHE];
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_VALUE_CACHE, "value_cache",
                                   trm_dims4(cache->d[0], cache->d[1], v->d[1], v->d[2])));
    return trm_infer_require_dtype(call, TRM_ATTENTION_VALUE_CACHE, "value_cache", dtype);
}

static trm_status infer_packed(const trm_infer_call *call)
{
    const trm_dims *q = call->dims[TRM_ATTENTION_Q], *k = call->dims[TRM_ATTENTION_K];
    TRM_TRY(trm_infer_require_rank(call, TRM_ATTENTION_Q, "q", 3));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_K, "k", trm_dims3(q->d[0], -1, q->d[2])));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_V, "v", trm_dims3(q->d[0], k->d[1], -1)));
    TRM_TRY(check_head_counts(q->d[1], k->d[1]));
    TRM_TRY(check_not_given(call, TRM_ATTENTION_MASK, TRM_ATTENTION_MASK, "in the packed form"));
    if (!trm_infer_has(call, TRM_ATTENTION_SEQUENCE_STARTS)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "sequence_starts is not given");
    }
    TRM_TRY(trm_infer_require_rank(call, TRM_ATTENTION_SEQUENCE_STARTS, "sequence_starts", 1));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_SEQUENCE_STARTS, "sequence_starts", TRM_I32));
    int64_t starts = call->dims[TRM_ATTENTION_SEQUENCE_STARTS]->d[0];
    if (starts == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "sequence_starts has dims [0], expected one more than sequences");
    }
    TRM_TRY(check_cache(call, starts == -1 ? -1 : starts - 1));
    call->output_dims[0] = trm_dims3(q->d[0], q->d[1], call->dims[TRM_ATTENTION_V]->d[2]);
    return TRM_OK;
}

static trm_status check_mask(const trm_infer_call *call, trm_dims scores)
{
    if (call->dtypes[TRM_ATTENTION_MASK] != TRM_BOOL) {
        TRM_TRY(trm_infer_require_float(call, TRM_ATTENTION_MASK, "mask"));
    }
    const trm_dims *mask = call->dims[TRM_ATTENTION_MASK];
    bool fits = mask->n <= scores.n;
    for (int32_t i = 0; fits && i < mask->n; i++) {
        fits = mask->d[i] == 1 || trm_dim_fits(mask->d[i], scores.d[scores.n - mask->n + i]);
    }
    if (!fits) {
        char found[TRM_DIMS_TEXT_SIZE], expected[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "mask has dims %s, expected dims that broadcast to %s",
                 trm_dims_format(mask, found), trm_dims_format(&scores, expected));
    }
    return TRM_OK;
}

static trm_status infer_padded(const trm_infer_call *call)
{
    const trm_dims *q = call->dims[TRM_ATTENTION_Q], *k = call->dims[TRM_ATTENTION_K];
    const int32_t heads = call->desc->attention.form == TRM_ATTENTION_PADDED_BNHD ? 2 : 1, rows = 3 - heads;
    TRM_TRY(trm_infer_require_rank(call, TRM_ATTENTION_Q, "q", 4));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_K, "k", trm_dims4(q->d[0], -1, -1, q->d[3])));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_V, "v", trm_dims4(q->d[0], k->d[1], k->d[2], -1)));
    TRM_TRY(check_head_counts(q->d[heads], k->d[heads]));
    TRM_TRY(check_not_given(call, TRM_ATTENTION_SEQUENCE_STARTS, TRM_ATTENTION_VALUE_CACHE, "in the padded form"));
    if (trm_infer_has(call, TRM_ATTENTION_MASK)) {
        const int64_t ranks = call->desc->attention.n_ranks > 1 ? call->desc->attention.n_ranks : 1;
        int64_t keys = k->d[rows];
        if (keys != -1 && __builtin_mul_overflow(keys, ranks, &keys)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the keys of %" PRId64 " ranks overflow", ranks);
        }
        TRM_TRY(check_mask(call, trm_dims4(q->d[0], q->d[heads], q->d[rows], keys)));
    }
    call->output_dims[0] = trm_dims4(q->d[0], q->d[1], q->d[2], call->dims[TRM_ATTENTION_V]->d[3]);
    return TRM_OK;
}

static trm_status infer_attention(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 3, TRM_ATTENTION_INPUT_COUNT));
    const trm_attention_params *attention = &call->desc->attention;
    TRM_TRY(check_attention_params(attention));
    TRM_TRY(trm_infer_require_float(call, TRM_ATTENTION_Q, "q"));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_K, "k", call->dtypes[TRM_ATTENTION_Q]));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_V, "v", call->dtypes[TRM_ATTENTION_Q]));
    TRM_TRY(attention->form == TRM_ATTENTION_PACKED_NHD ? infer_packed(call) : infer_padded(call));
    if (attention->cache_ranks > 1) {
        if (!trm_infer_has(call, TRM_ATTENTION_KEY_CACHE)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cache_ranks is %" PRId32 ", expected 1 without a key_cache",
                     attention->cache_ranks);
        }
        TRM_TRY(check_not_given(call, TRM_ATTENTION_SINKS, TRM_ATTENTION_SINKS, "with a share of the keys"));
        call->output_dims[1] = trm_dims2(call->output_dims[0].d[0], call->output_dims[0].d[1]);
        call->output_dtypes[1] = TRM_F32;
    }
    if (trm_infer_has(call, TRM_ATTENTION_SINKS)) {
        const int32_t heads = attention->form == TRM_ATTENTION_PADDED_BNHD ? 2 : 1;
        TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_SINKS, "sinks", TRM_F32));
        TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_SINKS, "sinks", trm_dims1(call->output_dims[0].d[heads])));
    }
    call->output_dtypes[0] = call->dtypes[TRM_ATTENTION_Q];
    return TRM_OK;
}

/* Sequences of a padded batch are independent. Heads are dealt with apart: query and kv heads may be cut differently.
 */
static int32_t link_attention(const trm_layer *layer, int32_t k, int32_t i)
{
    if (layer->desc.attention.form == TRM_ATTENTION_PACKED_NHD || k != 0) {
        return TRM_LINK_NEVER;
    }
    return i == TRM_ATTENTION_MASK    ? trm_broadcast_axis_link(&layer->inputs[i]->dims, &layer->outputs[0]->dims, 0)
           : i == TRM_ATTENTION_SINKS ? TRM_LINK_WHOLE
                                      : 0;
}

static void sizes_of_attention(trm_size_walk *walk, const trm_layer *layer)
{
    const trm_tensor *out = layer->outputs[0];
    trm_sizes_follow(walk, out, layer->inputs[TRM_ATTENTION_Q], out->dims.n - 1);
    trm_size_set(walk, out, out->dims.n - 1, layer->inputs[TRM_ATTENTION_V], out->dims.n - 1);
    if (layer->n_outputs > 1) {
        trm_sizes_follow(walk, layer->outputs[1], layer->inputs[TRM_ATTENTION_Q], 2);
    }
}

static int32_t count_attention_outputs(const trm_layer_desc *desc)
{
    return desc->attention.cache_ranks > 1 ? 2 : 1;
}

/* Axis of the heads in q, k, v and the output. */
static int32_t heads_axis(const trm_layer *attention)
{
    return attention->desc.attention.form == TRM_ATTENTION_PADDED_BNHD ? 2 : 1;
}

/* Whether the query heads can be cut into `parts`, and into how many parts the kv heads then are: as many if they
 * divide, one head each where several ranks' queries share it. */
static bool cut_heads(int64_t query_heads, int64_t kv_heads, int32_t parts, int32_t *kv_parts)
{
    if (query_heads <= 0 || kv_heads <= 0 || query_heads % parts != 0) {
        return false;
    }
    if (kv_heads % parts == 0) {
        *kv_parts = parts;
        return true;
    }
    *kv_parts = (int32_t)kv_heads;
    return kv_heads < parts && parts % kv_heads == 0;
}

/* Heads of queries and of keys and values, in layers that are split by heads: of the gated delta rule value heads and
 * key heads, of a selective scan heads and groups. */
static bool find_heads(const trm_layer *layer, int64_t *query_heads, int64_t *kv_heads)
{
    switch (layer->desc.kind) {
    case TRM_LAYER_ATTENTION:
        *query_heads = layer->inputs[TRM_ATTENTION_Q]->dims.d[heads_axis(layer)];
        *kv_heads = layer->inputs[TRM_ATTENTION_K]->dims.d[heads_axis(layer)];
        return true;
    case TRM_LAYER_LATENT_ATTENTION:
        *query_heads = *kv_heads = layer->inputs[TRM_LATENT_ATTENTION_Q]->dims.d[1];
        return true;
    case TRM_LAYER_GATED_DELTA:
        *query_heads = layer->inputs[TRM_GATED_DELTA_V]->dims.d[1];
        *kv_heads = layer->inputs[TRM_GATED_DELTA_K]->dims.d[1];
        return true;
    case TRM_LAYER_SELECTIVE_SCAN:
        *query_heads = layer->inputs[TRM_SELECTIVE_SCAN_X]->dims.d[1];
        *kv_heads = layer->inputs[TRM_SELECTIVE_SCAN_B]->dims.d[1];
        return true;
    default:
        return false;
    }
}

int32_t trm_attention_head_parts(const trm_layer *attention, int32_t n, int32_t *kv_parts)
{
    int64_t query_heads, kv_heads;
    for (int32_t parts = n; parts > 1 && find_heads(attention, &query_heads, &kv_heads); parts--) {
        if (n % parts == 0 && cut_heads(query_heads, kv_heads, parts, kv_parts)) {
            return parts;
        }
    }
    *kv_parts = 1;
    return 1;
}

/* Axis of the rows in q, k, v and the output. */
static int32_t rows_axis(const trm_layer *attention)
{
    return 3 - heads_axis(attention);
}

bool trm_attention_rows_divide(const trm_layer *attention, int32_t n)
{
    const trm_attention_params *p = &attention->desc.attention;
    if (p->form == TRM_ATTENTION_PACKED_NHD) {
        return false;
    }
    const int64_t queries = attention->inputs[TRM_ATTENTION_Q]->dims.d[rows_axis(attention)];
    const int64_t keys = attention->inputs[TRM_ATTENTION_K]->dims.d[rows_axis(attention)];
    bool sees_known = p->causal == TRM_CAUSAL_NONE || (p->causal == TRM_CAUSAL_LOWER_RIGHT && keys >= 0) ||
                      (p->causal == TRM_CAUSAL_UPPER_LEFT && keys >= queries);
    return queries > 0 && queries % n == 0 && sees_known;
}

static bool has_mask(const trm_layer *attention)
{
    return attention->n_inputs > TRM_ATTENTION_MASK && attention->inputs[TRM_ATTENTION_MASK] != NULL;
}

/* Rows of queries against all keys. */
static trm_status shard_query_rows(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    const int32_t rows = rows_axis(layer);
    if (!trm_attention_rows_divide(layer, parts)) {
        return TRM_OK;
    }
    const int64_t queries = layer->inputs[TRM_ATTENTION_Q]->dims.d[rows];
    trm_way way = trm_way_whole();
    way.in[TRM_ATTENTION_Q] = way.out[0] = trm_split(rows, parts);
    if (has_mask(layer)) {
        const trm_dims scores = {4, {-1, -1, queries, -1}}, *mask = &layer->inputs[TRM_ATTENTION_MASK]->dims;
        const int32_t axis = trm_broadcast_axis_link(mask, &scores, 2);
        if (axis != TRM_LINK_WHOLE && mask->d[axis] != queries) {
            return TRM_OK;
        }
        way.in[TRM_ATTENTION_MASK] = axis == TRM_LINK_WHOLE ? trm_replicated() : trm_split(axis, parts);
    }
    return taker->take(taker, layer, &way);
}

static trm_status shard_attention(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    int32_t kv_parts, heads = heads_axis(layer);
    if (taker->shares_rows) {
        return shard_query_rows(layer, parts, taker);
    }
    if (!cut_heads(layer->inputs[TRM_ATTENTION_Q]->dims.d[heads], layer->inputs[TRM_ATTENTION_K]->dims.d[heads], parts,
                   &kv_parts)) {
        return TRM_OK;
    }
    trm_way way = trm_way_whole();
    way.in[TRM_ATTENTION_Q] = trm_split(heads, parts);
    way.in[TRM_ATTENTION_K] = way.in[TRM_ATTENTION_V] = trm_split(heads, kv_parts);
    way.in[TRM_ATTENTION_KEY_CACHE] = way.in[TRM_ATTENTION_VALUE_CACHE] = trm_split(2, kv_parts);
    way.in[TRM_ATTENTION_SINKS] = trm_split(0, parts);
    way.out[0] = way.out[1] = trm_split(heads, parts);
    if (has_mask(layer)) {
        const trm_dims scores = {4,
                                 {-1, layer->outputs[0]->dims.d[heads], -1, -1}}; /* the mask is always heads first */
        int32_t axis = trm_broadcast_axis_link(&layer->inputs[TRM_ATTENTION_MASK]->dims, &scores, 1);
        way.in[TRM_ATTENTION_MASK] = axis == TRM_LINK_WHOLE ? trm_replicated() : trm_split(axis, parts);
    }
    return taker->take(taker, layer, &way);
}

/* Scores and values of every key. */
static double attention_multiplications(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    const bool packed = layer->desc.attention.form == TRM_ATTENTION_PACKED_NHD;
    return 2.0 * trm_known_dim(in[TRM_ATTENTION_K].d[packed ? 0 : rows_axis(layer)], unknown);
}

static const trm_field attention_fields[] = {
    TRM_FIELD(ENUM, attention, form, .always = true, .values = TRM_NAMES(TRM_ATTENTION_FORMS)),
    TRM_FIELD(ENUM, attention, causal, .values = TRM_NAMES(TRM_CAUSALS)),
    TRM_FIELD(INT32, attention, window),
    TRM_FIELD(BOOL, attention, chunked),
    TRM_FIELD(FLOAT, attention, scale),
    TRM_FIELD(FLOAT, attention, softcap),
    TRM_FIELD(INT32, attention, n_ranks),
    TRM_FIELD(FLOAT, attention, k_scale),
    TRM_FIELD(FLOAT, attention, v_scale),
    TRM_FIELD(INT32, attention, cache_ranks),
    TRM_FIELD(INT32, attention, cache_rank),
};

const trm_kind trm_kind_attention = {
    TRM_FIELDS_OF(attention_fields), .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_attention,        .output_count = count_attention_outputs,
    .link = link_attention,          .sizes = sizes_of_attention,
    .shard = shard_attention,        .multiplications = attention_multiplications,
};

static trm_status infer_attention_quantize(const trm_infer_call *call)
{
    trm_infer_call inner = *call;
    const int32_t scale = TRM_ATTENTION_QUANTIZE_SCALE;
    TRM_TRY(trm_infer_require_inputs(call, 3, TRM_ATTENTION_QUANTIZE_INPUT_COUNT));
    if (!trm_infer_has(call, scale)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "scale is not given");
    }
    inner.n_inputs = TRM_ATTENTION_INPUT_COUNT;
    TRM_TRY(infer_attention(&inner));
    TRM_TRY(trm_infer_require_float(call, scale, "scale"));
    if (call->dims[scale]->n > 1 || (call->dims[scale]->n == 1 && call->dims[scale]->d[0] != 1) ||
        trm_infer_has(call, TRM_ATTENTION_KEY_CACHE)) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "scale has dims %s, expected one number and no key_cache",
                 trm_dims_format(call->dims[scale], text));
    }
    call->output_dtypes[0] = TRM_I8;
    return TRM_OK;
}

const trm_kind trm_kind_attention_quantize = {
    TRM_FIELDS_OF(attention_fields),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_attention_quantize,
    .sizes = sizes_of_attention,
};

/* ---- shares of the keys ------------------------------------------------------------------------ */

static trm_status infer_attention_join(const trm_infer_call *call)
{
    const int32_t n = call->desc->attention_join.n_ranks;
    TRM_TRY(trm_infer_require_inputs(call, TRM_ATTENTION_JOIN_SINKS, TRM_ATTENTION_JOIN_INPUT_COUNT));
    TRM_TRY(trm_infer_require_rank(call, TRM_ATTENTION_JOIN_RESULTS, "results", 3));
    TRM_TRY(trm_infer_require_float(call, TRM_ATTENTION_JOIN_RESULTS, "results"));
    const trm_dims *results = call->dims[TRM_ATTENTION_JOIN_RESULTS];
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_JOIN_LOGS, "logs", trm_dims2(results->d[0], results->d[1])));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_JOIN_LOGS, "logs", TRM_F32));
    if (trm_infer_has(call, TRM_ATTENTION_JOIN_SINKS)) {
        TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_JOIN_SINKS, "sinks", trm_dims1(results->d[1])));
        TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_JOIN_SINKS, "sinks", TRM_F32));
    }
    if (n < 1 || n > TRM_MAX_RANKS || (results->d[0] != -1 && results->d[0] % n != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "n_ranks is %" PRId32 " and there are %" PRId64
                 " results, expected as many of each of at most %d ranks",
                 n, results->d[0], TRM_MAX_RANKS);
    }
    call->output_dims[0] = trm_dims3(results->d[0] == -1 ? -1 : results->d[0] / n, results->d[1], results->d[2]);
    call->output_dtypes[0] = call->dtypes[TRM_ATTENTION_JOIN_RESULTS];
    return TRM_OK;
}

static int32_t link_attention_join(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)layer;
    return k == 0                            ? TRM_LINK_NEVER
           : i == TRM_ATTENTION_JOIN_RESULTS ? k
           : k == 2                          ? TRM_LINK_WHOLE
           : i == TRM_ATTENTION_JOIN_LOGS    ? 1
                                             : 0;
}

static void sizes_of_attention_join(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_same(walk, layer);
    trm_size_set(walk, layer->outputs[0], 0, NULL, 0);
}

const trm_kind trm_kind_attention_join = {
    TRM_FIELDS(TRM_FIELD(INT32, attention_join, n_ranks, .always = true)),
    .infer = infer_attention_join,
    .link = link_attention_join,
    .sizes = sizes_of_attention_join,
};

/* ---- latent attention -------------------------------------------------------------------------- */

static trm_status infer_latent_attention(const trm_infer_call *call)
{
    static const char *const names[TRM_LATENT_ATTENTION_INPUT_COUNT] = {
        "q", "latent", "rope_key", "weight", "sequence_starts", "sequence_lengths", "block_table", "cache",
    };
    static const int32_t ranks[TRM_LATENT_ATTENTION_INPUT_COUNT] = {3, 2, 3, 3, 1, 1, 2, 3};
    const float scale = call->desc->latent_attention.scale;
    TRM_TRY(trm_infer_require_inputs(call, TRM_LATENT_ATTENTION_INPUT_COUNT, TRM_LATENT_ATTENTION_INPUT_COUNT));
    TRM_TRY(trm_infer_require_float(call, TRM_LATENT_ATTENTION_Q, names[0]));
    for (int32_t i = 0; i < TRM_LATENT_ATTENTION_INPUT_COUNT; i++) {
        const bool index = i >= TRM_LATENT_ATTENTION_SEQUENCE_STARTS && i <= TRM_LATENT_ATTENTION_BLOCK_TABLE;
        TRM_TRY(trm_infer_require_rank(call, i, names[i], ranks[i]));
        TRM_TRY(trm_infer_require_dtype(call, i, names[i], index ? TRM_I32 : call->dtypes[TRM_LATENT_ATTENTION_Q]));
    }
    const trm_dims *q = call->dims[TRM_LATENT_ATTENTION_Q], *weight = call->dims[TRM_LATENT_ATTENTION_WEIGHT];
    const int64_t starts = call->dims[TRM_LATENT_ATTENTION_SEQUENCE_STARTS]->d[0];
    const int64_t rank = trm_dim_known(call->dims[TRM_LATENT_ATTENTION_LATENT]->d[1], weight->d[2]);
    const int64_t rotated = call->dims[TRM_LATENT_ATTENTION_ROPE_KEY]->d[2];
    const int64_t sequences = starts == -1 ? -1 : starts - 1;
    const trm_dims expected[TRM_LATENT_ATTENTION_INPUT_COUNT] = {
        trm_dims3(-1, weight->d[0], -1),
        trm_dims2(q->d[0], rank),
        trm_dims3(q->d[0], 1, -1),
        trm_dims3(q->d[1], -1, rank),
        trm_dims1(-1),
        trm_dims1(sequences),
        trm_dims2(sequences, -1),
        trm_dims3(-1, -1, rank == -1 || rotated == -1 ? -1 : rank + rotated),
    };
    for (int32_t i = 0; i < TRM_LATENT_ATTENTION_INPUT_COUNT; i++) {
        TRM_TRY(trm_infer_require_dims(call, i, names[i], expected[i]));
    }
    const int64_t plain = q->d[2] == -1 || rotated == -1 ? -1 : q->d[2] - rotated;
    if (starts == 0 || (plain != -1 && (plain < 0 || (weight->d[1] != -1 && plain >= weight->d[1]))) ||
        !(scale == scale)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId64 " sequence starts, queries of %" PRId64 " elements, rope keys of %" PRId64
                 ", %" PRId64 " rows of the weight a head and scale %g; expected a start at least, and rows for all "
                 "elements that are not rotated and for values",
                 starts, q->d[2], rotated, weight->d[1], (double)scale);
    }
    call->output_dims[0] = trm_dims3(q->d[0], trm_dim_known(q->d[1], weight->d[0]),
                                     plain == -1 || weight->d[1] == -1 ? -1 : weight->d[1] - plain);
    call->output_dtypes[0] = call->dtypes[TRM_LATENT_ATTENTION_Q];
    return TRM_OK;
}

static void sizes_of_latent_attention(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_follow(walk, layer->outputs[0], layer->inputs[TRM_LATENT_ATTENTION_Q], 2);
}

/* Heads. Latents are for all of them, so that every rank has the whole cache. */
static trm_status shard_latent_attention(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    const int64_t heads = layer->inputs[TRM_LATENT_ATTENTION_Q]->dims.d[1];
    if (taker->shares_rows || heads <= 0 || heads % parts != 0) {
        return TRM_OK;
    }
    trm_way way = trm_way_whole();
    way.in[TRM_LATENT_ATTENTION_Q] = way.out[0] = trm_split(1, parts);
    way.in[TRM_LATENT_ATTENTION_WEIGHT] = trm_split(0, parts);
    return taker->take(taker, layer, &way);
}

/* Scores and values of every key, as in ATTENTION, and what makes them of latents. */
static double latent_multiplications(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    (void)layer;
    return 2.0 * (trm_known_dim(in[TRM_LATENT_ATTENTION_Q].d[0], unknown) +
                  trm_known_dim(in[TRM_LATENT_ATTENTION_WEIGHT].d[2], unknown));
}

const trm_kind trm_kind_latent_attention = {
    TRM_FIELDS(TRM_FIELD(FLOAT, latent_attention, scale)),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_latent_attention,
    .sizes = sizes_of_latent_attention,
    .shard = shard_latent_attention,
    .multiplications = latent_multiplications,
};

/* ---- from the joined product on ---------------------------------------------------------------- */

/* Checks what only this kind has; gives the dims of a head. */
static trm_status check_qkv(const trm_infer_call *call, int64_t *dim)
{
    const trm_qkv_attention_params *params = &call->desc->qkv_attention;
    const trm_dtype dtype = call->dtypes[TRM_QKV_ATTENTION_QKV];
    TRM_TRY(trm_infer_require_rank(call, TRM_QKV_ATTENTION_QKV, "qkv", 2));
    if (params->query_heads < 1 || params->kv_heads < 1 || params->attention.form != TRM_ATTENTION_PACKED_NHD ||
        params->attention.n_ranks > 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId32 " query heads, %" PRId32 " key-value heads, form %d and n_ranks %" PRId32
                 ", expected heads, the packed form and one rank",
                 params->query_heads, params->kv_heads, (int)params->attention.form, params->attention.n_ranks);
    }
    int64_t heads = (int64_t)params->query_heads + 2 * (int64_t)params->kv_heads, width = call->dims[0]->d[1];
    if (params->head_dim < 0 || (width != -1 && width < heads * params->head_dim)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "qkv has %" PRId64 " elements per token and head_dim is %" PRId32 ", expected %" PRId64
                 " heads at least",
                 width, params->head_dim, heads);
    }
    if (params->head_dim == 0 && width != -1 && (width == 0 || width % heads != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "qkv has %" PRId64 " elements per token, expected a multiple of %" PRId64,
                 width, heads);
    }
    *dim = params->head_dim > 0 ? params->head_dim : width == -1 ? -1 : width / heads;
    if (params->rope.scaling != TRM_ROPE_PLAIN && !trm_infer_has(call, TRM_QKV_ATTENTION_LENGTHS)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "lengths is not given, expected it with a scaling that depends on it");
    }
    bool normed = trm_infer_has(call, TRM_QKV_ATTENTION_Q_NORM);
    if (normed != trm_infer_has(call, TRM_QKV_ATTENTION_K_NORM)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "one of q_norm and k_norm is given, expected both or neither");
    }
    for (int32_t i = TRM_QKV_ATTENTION_Q_NORM; normed && i <= TRM_QKV_ATTENTION_K_NORM; i++) {
        const char *name = i == TRM_QKV_ATTENTION_Q_NORM ? "q_norm" : "k_norm";
        TRM_TRY(trm_infer_require_dims(call, i, name, trm_dims1(*dim)));
        TRM_TRY(trm_infer_require_dtype(call, i, name, dtype));
    }
    return TRM_OK;
}

/* What is cut out of qkv goes through the rules of the layers that this one stands for. */
static trm_status infer_qkv_attention(const trm_infer_call *call)
{
    const trm_qkv_attention_params *params = &call->desc->qkv_attention;
    int64_t dim = -1;
    TRM_TRY(trm_infer_require_inputs(call, TRM_QKV_ATTENTION_INV_FREQ + 1, TRM_QKV_ATTENTION_INPUT_COUNT));
    TRM_TRY(check_qkv(call, &dim));
    const trm_dims q = trm_dims3(call->dims[0]->d[0], params->query_heads, dim);
    const trm_dims k = trm_dims3(call->dims[0]->d[0], params->kv_heads, dim);
    const trm_dims *dims[TRM_ATTENTION_INPUT_COUNT] = {&q};
    trm_dtype dtypes[TRM_ATTENTION_INPUT_COUNT] = {call->dtypes[TRM_QKV_ATTENTION_QKV]};
    const int32_t lengths = trm_infer_has(call, TRM_QKV_ATTENTION_LENGTHS) ? 1 : 0;
    for (int32_t i = 0; i < 2 + lengths; i++) { /* of ROPE: positions, inv_freq, lengths */
        dims[1 + i] = call->dims[TRM_QKV_ATTENTION_POSITIONS + i];
        dtypes[1 + i] = call->dtypes[TRM_QKV_ATTENTION_POSITIONS + i];
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_ROPE, .rope = params->rope};
    trm_infer_call inner = *call;
    inner.desc = &desc;
    inner.dims = dims;
    inner.dtypes = dtypes;
    inner.values = NULL;
    inner.n_inputs = 3 + lengths;
    TRM_TRY(infer_rope(&inner));
    dims[TRM_ATTENTION_K] = dims[TRM_ATTENTION_V] = &k;
    dtypes[TRM_ATTENTION_K] = dtypes[TRM_ATTENTION_V] = dtypes[TRM_ATTENTION_Q];
    if (trm_infer_has(call, TRM_QKV_ATTENTION_SINKS)) {
        dims[TRM_ATTENTION_SINKS] = call->dims[TRM_QKV_ATTENTION_SINKS];
        dtypes[TRM_ATTENTION_SINKS] = call->dtypes[TRM_QKV_ATTENTION_SINKS];
    }
    for (int32_t i = 0; i < 5; i++) { /* of ATTENTION: starts, lengths, table, caches */
        dims[TRM_ATTENTION_SEQUENCE_STARTS + i] = call->dims[TRM_QKV_ATTENTION_SEQUENCE_STARTS + i];
        dtypes[TRM_ATTENTION_SEQUENCE_STARTS + i] = call->dtypes[TRM_QKV_ATTENTION_SEQUENCE_STARTS + i];
    }
    desc = (trm_layer_desc){.kind = TRM_LAYER_ATTENTION, .attention = params->attention};
    inner.n_inputs = TRM_ATTENTION_INPUT_COUNT;
    return infer_attention(&inner);
}

static void sizes_of_qkv(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_follow(walk, layer->outputs[0], layer->inputs[0], 1);
}

const trm_kind trm_kind_qkv_attention = {
    TRM_FIELDS(TRM_FIELD(INT32, qkv_attention, query_heads, .always = true),
               TRM_FIELD(INT32, qkv_attention, kv_heads, .always = true), TRM_FIELD(INT32, qkv_attention, head_dim),
               TRM_FIELD(ENUM, qkv_attention.attention, form, .values = TRM_NAMES(TRM_ATTENTION_FORMS)),
               TRM_FIELD(ENUM, qkv_attention.attention, causal, .values = TRM_NAMES(TRM_CAUSALS)),
               TRM_FIELD(INT32, qkv_attention.attention, window), TRM_FIELD(BOOL, qkv_attention.attention, chunked),
               TRM_FIELD(FLOAT, qkv_attention.attention, scale), TRM_FIELD(FLOAT, qkv_attention.attention, softcap),
               TRM_FIELD(INT32, qkv_attention.attention, n_ranks), TRM_FIELD(FLOAT, qkv_attention.attention, k_scale),
               TRM_FIELD(FLOAT, qkv_attention.attention, v_scale),
               TRM_FIELD(ENUM, qkv_attention.rope, scaling, .values = TRM_NAMES(TRM_ROPE_SCALINGS)),
               TRM_FIELD(INT32, qkv_attention.rope, rotary_dim, .always = true),
               TRM_FIELD(BOOL, qkv_attention.rope, interleaved),
               TRM_FIELD(FLOAT, qkv_attention.rope, magnitude, .normal = 1), TRM_FIELD(FLOAT, qkv_attention.rope, base),
               TRM_FIELD(FLOAT, qkv_attention.rope, factor), TRM_FIELD(INT64, qkv_attention.rope, original_length),
               TRM_FIELD(FLOAT, qkv_attention, eps), TRM_FIELD(FLOAT, qkv_attention, weight_offset)),
    .infer = infer_qkv_attention,
    .sizes = sizes_of_qkv,
};
