/* Operators of the domain com.microsoft: attention, rotary positions, activations and products in one. */
#include "graph/import/onnx/ops/nn/attention_parts.h"
#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

/* ---- activations, products -----------------------------------------------------------------------------------------
 */

/* Of input 0, or the sum of both inputs; data: the activation. */
static void import_bias_activation(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    x = node->inputs[1] == NULL ? x : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, x, node->inputs[1]);
    trm_onnx_set(node, 0, trm_onnx_activation(node, (trm_activation)node->row->data, x));
}

static void import_quick_gelu(trm_onnx_node *node)
{
    const float alpha = trm_onnx_float(node, "alpha", 1.702f);
    trm_onnx_set(node, 0, trm_onnx_unary_with(node, TRM_UNARY_SWISH, node->inputs[0], alpha, 0.0f));
}

/* The first axis behind the batch. */
static trm_tensor *turn_batch(trm_onnx_node *node, trm_tensor *x, const char *attribute)
{
    int32_t perm[TRM_MAX_DIMS];
    const int32_t rank = x->dims.n;
    if (!trm_onnx_flag(node, attribute, false) || rank < 3) {
        return x;
    }
    for (int32_t i = 0; i < rank; i++) {
        perm[i] = i < rank - 2 ? i + 1 : i == rank - 2 ? 0 : i;
    }
    return trm_onnx_transpose(node, x, perm);
}

/* data: whether an activation follows. */
static void import_fused_matmul(trm_onnx_node *node)
{
    const float alpha = trm_onnx_float(node, "alpha", 1.0f);
    trm_tensor *a = turn_batch(node, node->inputs[0], "transBatchA");
    trm_tensor *b = turn_batch(node, node->inputs[1], "transBatchB");
    if (a->dims.n < 2 || b->dims.n < 2) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "an input has %d dimensions, expected at least 2",
                      (int)(a->dims.n < 2 ? a->dims.n : b->dims.n));
        return;
    }
    trm_tensor *y =
        trm_onnx_matmul(node, a, b, trm_onnx_flag(node, "transA", false), trm_onnx_flag(node, "transB", false));
    y = alpha == 1.0f ? y : trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, y, (double)alpha);
    trm_onnx_set(node, 0, node->row->data != 0 ? trm_onnx_fused_activation(node, y) : y);
}

/* ---- masks
 * ----------------------------------------------------------------------------------------------------------- */

/* A padding mask: i32 [B] lengths, or 0 for padding in [B, M] or [B, N, M]. What is not seen gets `low` added. */
static trm_tensor *padding_mask(trm_onnx_node *node, trm_tensor *mask, trm_tensor *k, trm_dtype dtype, double low)
{
    static const int64_t batch[4] = {-1, 1, 1, 1}, keys[4] = {1, 1, 1, -1};
    static const int32_t middle[2] = {1, 2};
    trm_tensor *seen;
    if (mask->dims.n == 1) {
        trm_tensor *key = trm_onnx_reshape(node, trm_onnx_positions(node, trm_onnx_dim_of(node, k, 2)), keys, 4);
        trm_tensor *lengths = trm_onnx_reshape(node, trm_onnx_cast(node, mask, TRM_I64), batch, 4);
        if (mask->dims.d[0] >= 0 && k->dims.d[0] >= 0 && mask->dims.d[0] != k->dims.d[0]) {
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the padding mask has %lld values for a batch of %lld",
                          (long long)mask->dims.d[0], (long long)k->dims.d[0]);
        }
        seen = trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS, key, lengths);
    } else if (mask->dims.n == 2 || mask->dims.n == 3) {
        seen = trm_onnx_unsqueeze(node, trm_onnx_cast(node, mask, TRM_BOOL), middle, 4 - mask->dims.n);
    } else {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the padding mask has %d dimensions, expected 1 to 3",
                      (int)mask->dims.n);
        return mask;
    }
    return trm_onnx_select(node, seen, trm_onnx_scalar(node, dtype, 0.0), trm_onnx_scalar(node, dtype, low));
}

static trm_tensor *add_masks(trm_onnx_node *node, trm_tensor *a, trm_tensor *b)
{
    return a == NULL ? b : b == NULL ? a : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, a, b);
}

/* Keys before the first query, where all but the last ones are. */
static trm_tensor *rest_of_keys(trm_onnx_node *node, const trm_onnx_attention *at)
{
    static const int64_t batch[4] = {-1, 1, 1, 1};
    const trm_onnx_dim rest = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_SUB, trm_onnx_dim_of(node, at->k, 2),
                                                   trm_onnx_dim_of(node, at->q, 2));
    return trm_onnx_reshape(node, trm_onnx_shape(node, &rest, 1), batch, 4);
}

/* ---- attention of several heads
 * -------------------------------------------------------------------------------------- */

/* Item i along `axis` of [B, N, H, items, D], as [B, H, N, D]. */
static trm_tensor *packed_item(trm_onnx_node *node, trm_tensor *x, int64_t i)
{
    static const int32_t swap[4] = {0, 2, 1, 3}, items = 3;
    trm_tensor *item = trm_onnx_slice(node, x, 3, i, i + 1, 1);
    return trm_onnx_failed(node) ? x : trm_onnx_transpose(node, trm_onnx_squeeze(node, item, &items, 1), swap);
}

/* Elements first .. first + n - 1 of the bias added to x [B, N, n]. */
static trm_tensor *add_part(trm_onnx_node *node, trm_tensor *x, trm_tensor *bias, int64_t first)
{
    if (bias == NULL || trm_onnx_failed(node)) {
        return x;
    }
    const int64_t n = x->dims.d[x->dims.n - 1];
    if (n < 0) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the width of the inputs must be known to add the bias");
        return x;
    }
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, x, trm_onnx_slice(node, bias, 0, first, first + n, 1));
}

static bool take_heads(trm_onnx_node *node, trm_onnx_attention *at, trm_tensor *bias)
{
    trm_tensor *q = node->inputs[0], *k = node->inputs[1], *v = node->inputs[2];
    const int64_t heads = trm_onnx_int(node, "num_heads", 0);
    if (q->dims.n == 5 && bias == NULL) {
        at->q = packed_item(node, q, 0);
        at->k = packed_item(node, q, 1);
        at->v = packed_item(node, q, 2);
        return true;
    }
    if (q->dims.n != 3 || k == NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the query has %d dimensions%s, expected 3 and a key",
                      (int)q->dims.n, k == NULL ? " without a key" : "");
        return false;
    }
    const int64_t width = q->dims.d[2];
    at->q = trm_onnx_split_heads(node, add_part(node, q, bias, 0), heads);
    if (k->dims.n == 5 && bias == NULL) {
        at->k = packed_item(node, k, 0);
        at->v = packed_item(node, k, 1);
    } else if (k->dims.n == 4 && v != NULL && v->dims.n == 4) {
        at->k = k;
        at->v = v;
    } else if (k->dims.n == 3 && v != NULL) {
        at->k = trm_onnx_split_heads(node, add_part(node, k, bias, width), heads);
        at->v = trm_onnx_split_heads(node, add_part(node, v, bias, 2 * width), heads);
    } else {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the key has %d dimensions, expected 3 to 5, and a value of as many",
                      (int)k->dims.n);
    }
    return !trm_onnx_failed(node);
}

static trm_tensor *behind(trm_onnx_node *node, trm_tensor *past, trm_tensor *x)
{
    trm_tensor *parts[2] = {past, x};
    return past == NULL ? x : trm_onnx_concat(node, parts, 2, 2);
}

static trm_onnx_attention plain_attention(trm_onnx_node *node)
{
    return (trm_onnx_attention){.left = -1, .right = -1, .scale = trm_onnx_float(node, "scale", 0.0f)};
}

/* (query, key, value, bias, key padding mask, added mask, past key, past value) */
static void import_multi_head(trm_onnx_node *node)
{
    trm_onnx_attention at = plain_attention(node);
    trm_tensor *scores = NULL;
    const double low = (double)trm_onnx_float(node, "mask_filter_value", -10000.0f);
    at.causal = trm_onnx_flag(node, "unidirectional", false);
    at.wants_scores = trm_onnx_wants(node, 3);
    if (node->inputs[8] != NULL || node->inputs[9] != NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "a cache that is shared with the output is not supported");
    }
    if (trm_onnx_failed(node) || !take_heads(node, &at, node->inputs[3])) {
        return;
    }
    at.k = behind(node, node->inputs[6], at.k);
    at.v = behind(node, node->inputs[7], at.v);
    if (node->inputs[4] != NULL) {
        at.mask = padding_mask(node, node->inputs[4], at.k, at.q->dtype, low);
    }
    at.mask = add_masks(node, at.mask, node->inputs[5]);
    at.offset = at.causal ? rest_of_keys(node, &at) : NULL;
    at.offset_is_rest = true;
    trm_tensor *y = trm_onnx_attend(node, &at, &scores);
    trm_onnx_set(node, 0, trm_onnx_join_heads(node, y));
    trm_onnx_set(node, 1, at.k);
    trm_onnx_set(node, 2, at.v);
    if (scores != NULL) {
        trm_onnx_set(node, 3, scores);
    }
}

/* Attention of x [B, N, q + k + v]; mask: which keys are padding, past [2, B, H, P, D], added: to the scores. */
static void attend_joined(trm_onnx_node *node, trm_tensor *x, trm_tensor *mask, trm_tensor *past, trm_tensor *added)
{
    static const int32_t first = 0;
    trm_onnx_attention at = plain_attention(node);
    const int64_t heads = trm_onnx_int(node, "num_heads", 0);
    const double low = (double)trm_onnx_float(node, "mask_filter_value", -10000.0f);
    int64_t sizes[3];
    if (trm_onnx_failed(node) || x->dims.n != 3 || x->dims.d[2] < 0) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "the input does not have 3 dimensions, or the width of the weights is unknown");
        return;
    }
    if (trm_onnx_ints(node, "qkv_hidden_sizes", sizes, 3) != 3) {
        sizes[0] = sizes[1] = sizes[2] = x->dims.d[2] / 3;
    }
    at.q = trm_onnx_split_heads(node, trm_onnx_slice(node, x, 2, 0, sizes[0], 1), heads);
    at.k = trm_onnx_split_heads(node, trm_onnx_slice(node, x, 2, sizes[0], sizes[0] + sizes[1], 1), heads);
    at.v = trm_onnx_split_heads(node, trm_onnx_slice(node, x, 2, sizes[0] + sizes[1], INT64_MAX, 1), heads);
    if (past != NULL) {
        at.k = behind(node, trm_onnx_squeeze(node, trm_onnx_slice(node, past, 0, 0, 1, 1), &first, 1), at.k);
        at.v = behind(node, trm_onnx_squeeze(node, trm_onnx_slice(node, past, 0, 1, 2, 1), &first, 1), at.v);
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    at.causal = trm_onnx_flag(node, "unidirectional", false);
    at.offset = at.causal ? rest_of_keys(node, &at) : NULL;
    at.offset_is_rest = true;
    if (mask != NULL) {
        at.mask = padding_mask(node, mask, at.k, at.q->dtype, low);
    }
    at.mask = add_masks(node, at.mask, added);
    trm_onnx_set(node, 0, trm_onnx_join_heads(node, trm_onnx_attend(node, &at, NULL)));
    if (trm_onnx_wants(node, 1)) {
        trm_tensor *parts[2] = {trm_onnx_unsqueeze(node, at.k, &first, 1), trm_onnx_unsqueeze(node, at.v, &first, 1)};
        trm_onnx_set(node, 1, trm_onnx_concat(node, parts, 2, 0));
    }
}

/* (input [B, N, I], weights [I, q + k + v], bias, mask, past, added mask) */
static void import_attention(trm_onnx_node *node)
{
    trm_tensor **in = node->inputs, *x = trm_onnx_matmul(node, in[0], in[1], false, false);
    x = in[2] == NULL ? x : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, x, in[2]);
    attend_joined(node, x, in[3], in[4], in[5]);
}

/* (input, weights, bias, scale of the input, of the weights, mask, zero point of the input, of the weights, past) */
static void import_quantized_attention(trm_onnx_node *node)
{
    trm_tensor **in = node->inputs;
    trm_tensor *x = trm_onnx_integer_product(node, in[0], in[6], in[1], in[7]);
    x = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, trm_onnx_cast(node, x, in[3]->dtype),
                             trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, in[3], in[4]));
    attend_joined(node, trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, x, in[2]), in[5], in[8], NULL);
}

/* ---- grouped queries
 * ------------------------------------------------------------------------------------------------- */

/* The cache with x [B, H, N, D] put in from position start [B] of each sequence on; length: keys the cache can hold. */
static trm_tensor *put_into_cache(trm_onnx_node *node, trm_tensor *cache, trm_tensor *x, trm_tensor *start,
                                  trm_onnx_dim length)
{
    static const int64_t batch[4] = {-1, 1, 1, 1}, along[4] = {1, 1, -1, 1};
    trm_onnx_dim dims[TRM_MAX_DIMS], missing = length;
    trm_onnx_dims_of(node, x, dims);
    if (cache != NULL) {
        missing = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_SUB, length, trm_onnx_dim_of(node, cache, 2));
    }
    if (cache == NULL || missing.tensor != NULL || missing.value > 0) { /* room for what is new */
        trm_onnx_dim room[4] = {dims[0], dims[1], missing, dims[3]};
        trm_tensor *empty = trm_onnx_expand(node, trm_onnx_scalar(node, x->dtype, 0.0), room, 4);
        trm_tensor *parts[2] = {cache, empty};
        cache = cache == NULL ? empty : trm_onnx_concat(node, parts, 2, 2);
    }
    trm_tensor *at = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD,
                                          trm_onnx_reshape(node, trm_onnx_positions(node, dims[2]), along, 4),
                                          trm_onnx_reshape(node, start, batch, 4));
    const trm_layer_desc desc = {.kind = TRM_LAYER_SCATTER, .scatter = {.form = TRM_SCATTER_ELEMENTS, .axis = 2}};
    return trm_onnx_add(node, &desc, cache, trm_onnx_expand(node, at, dims, 4), x, NULL);
}

/* Keys of the longest sequence, with those of this step. */
static trm_onnx_dim total_length(trm_onnx_node *node)
{
    static const int64_t flat[1] = {-1};
    int64_t known;
    int32_t count = 0;
    if (trm_onnx_known_ints(node, node->inputs[6], &known, 1, &count) && count == 1) {
        return trm_onnx_dim_known(known);
    }
    return (trm_onnx_dim){.value = -1,
                          .tensor = trm_onnx_reshape(node, trm_onnx_cast(node, node->inputs[6], TRM_I64), flat, 1)};
}

/* Keys that the cache can hold behind this step: it may be longer than that already. */
static trm_onnx_dim cache_length(trm_onnx_node *node, trm_onnx_dim total)
{
    if (node->inputs[3] == NULL) {
        return total;
    }
    const trm_onnx_dim past = trm_onnx_dim_of(node, node->inputs[3], 2);
    if (past.tensor == NULL && total.tensor == NULL) {
        return past.value > total.value ? past : total;
    }
    return (trm_onnx_dim){.value = -1,
                          .tensor = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MAX, trm_onnx_shape(node, &past, 1),
                                                         trm_onnx_shape(node, &total, 1))};
}

/* What output 3 is to be. */
static int32_t grouped_scores(trm_onnx_node *node)
{
    static const int32_t modes[] = {0, TRM_ONNX_SCORES_SEEN, TRM_ONNX_SCORES_WEIGHTS};
    const int64_t asked = trm_onnx_int(node, "qk_output", 0);
    if (asked < 0 || asked > 2 || (asked == 0 && trm_onnx_wants(node, 3))) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "qk_output is %lld, expected 1 or 2%s", (long long)asked,
                      asked == 0 ? " with an output of scores" : ", or 0 for no scores");
        return 0;
    }
    return modes[asked];
}

/* Scores [B, Hq, N, length of the cache] of the keys that there are. */
static trm_tensor *scores_of(trm_onnx_node *node, trm_tensor *scores, trm_onnx_dim total)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_SLICE, .slice = {.axis = 3, .end = INT64_MAX, .step = 1}};
    if (total.tensor != NULL) {
        return trm_onnx_add(node, &desc, scores, NULL, total.tensor, NULL);
    }
    return scores->dims.d[3] == total.value ? scores : trm_onnx_slice(node, scores, 3, 0, total.value, 1);
}

/* Each head's sink, or one of all of them; NULL: none. */
static trm_tensor *grouped_sink(trm_onnx_node *node, int64_t heads, trm_dtype dtype)
{
    trm_tensor *sink = node->inputs[11];
    if (sink == NULL) {
        return trm_onnx_int(node, "smooth_softmax", 0) == 1 ? trm_onnx_scalar(node, dtype, 0.0) : NULL;
    }
    if (sink->dims.n != 1 || (sink->dims.d[0] >= 0 && sink->dims.d[0] != heads)) {
        char dims[TRM_DIMS_TEXT_SIZE];
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "head_sink has shape %s, expected [%lld]",
                      trm_dims_format(&sink->dims, dims), (long long)heads);
        return NULL;
    }
    return sink;
}

/* (query, key, value, past key, past value, lengths less 1 [B], total length, cos cache, sin cache, positions, added
 * mask, sinks, scale of keys, of values, norm of queries, of keys) */
static void import_grouped_query(trm_onnx_node *node)
{
    static const int64_t column[2] = {-1, 1};
    trm_onnx_attention at = plain_attention(node);
    trm_tensor *q = node->inputs[0], *k = node->inputs[1], *v = node->inputs[2], *scores = NULL;
    const int64_t heads = trm_onnx_int(node, "num_heads", 0), kv_heads = trm_onnx_int(node, "kv_num_heads", 0);
    const int64_t window = trm_onnx_int(node, "local_window_size", -1);
    if (node->inputs[5] == NULL || node->inputs[6] == NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "a cache without lengths is not supported");
        return;
    }
    if (node->inputs[12] != NULL || node->inputs[13] != NULL || trm_onnx_flag(node, "sliding_window_cache", false)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "a cache that is %s is not supported",
                      node->inputs[12] != NULL || node->inputs[13] != NULL ? "quantized" : "no longer than the window");
        return;
    }
    if (k == NULL) { /* all three in one */
        const int64_t width = q->dims.d[q->dims.n - 1] / (heads + 2 * kv_heads > 0 ? heads + 2 * kv_heads : 1);
        k = trm_onnx_slice(node, q, 2, heads * width, (heads + kv_heads) * width, 1);
        v = trm_onnx_slice(node, q, 2, (heads + kv_heads) * width, INT64_MAX, 1);
        q = trm_onnx_slice(node, q, 2, 0, heads * width, 1);
    }
    at.q = trm_onnx_split_heads(node, q, heads);
    k = trm_onnx_split_heads(node, k, kv_heads);
    v = trm_onnx_split_heads(node, v, kv_heads);
    if (trm_onnx_failed(node)) {
        return;
    }
    const float norm_eps = trm_onnx_float(node, "qk_norm_epsilon", 1e-6f);
    if (node->inputs[14] != NULL) {
        at.q = trm_onnx_norm(node, TRM_NORM_RMS, norm_eps, at.q, 3, node->inputs[14], NULL);
    }
    if (node->inputs[15] != NULL) {
        k = trm_onnx_norm(node, TRM_NORM_RMS, norm_eps, k, 3, node->inputs[15], NULL);
    }
    const trm_onnx_dim queries = trm_onnx_dim_of(node, at.q, 2);
    trm_tensor *last = trm_onnx_cast(node, node->inputs[5], TRM_I64), *zero = trm_onnx_i64(node, 0);
    static const int64_t flat[1] = {-1};
    at.lengths = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, trm_onnx_reshape(node, last, flat, 1), 1.0);
    /* The new keys come last; of a prompt that is padded they are the first. */
    trm_tensor *start = trm_onnx_elementwise(
        node, TRM_ELEMENTWISE_MAX,
        trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, at.lengths, trm_onnx_shape(node, &queries, 1)), zero);
    if (trm_onnx_flag(node, "do_rotary", false)) {
        trm_tensor *ids = node->inputs[9];
        if (node->inputs[7] == NULL || node->inputs[8] == NULL || node->inputs[7]->dims.n != 2 ||
            node->inputs[7]->dims.d[1] < 1) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has no cos and sin caches of a known width");
            return;
        }
        ids = ids != NULL ? ids
                          : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, trm_onnx_reshape(node, start, column, 2),
                                                 trm_onnx_positions(node, queries));
        trm_tensor *c = trm_onnx_gather(node, trm_onnx_cast(node, node->inputs[7], at.q->dtype), ids, 0);
        trm_tensor *s = trm_onnx_gather(node, trm_onnx_cast(node, node->inputs[8], at.q->dtype), ids, 0);
        const int64_t rotary_dim = 2 * node->inputs[7]->dims.d[1];
        const bool interleaved = trm_onnx_flag(node, "rotary_interleaved", false);
        at.q = trm_onnx_rotate(node, at.q, c, s, rotary_dim, interleaved);
        k = trm_onnx_rotate(node, k, c, s, rotary_dim, interleaved);
    }
    const trm_onnx_dim total = total_length(node), length = cache_length(node, total);
    at.k = put_into_cache(node, node->inputs[3], k, start, length);
    at.v = put_into_cache(node, node->inputs[4], v, start, length);
    static const int64_t batch[4] = {-1, 1, 1, 1};
    at.offset = trm_onnx_reshape(node, start, batch, 4);
    at.causal = trm_onnx_flag(node, "causal", true);
    at.left = window > 0 ? window - 1 : -1;
    at.softcap = trm_onnx_float(node, "softcap", 0.0f);
    at.mask = node->inputs[10];
    at.sink = grouped_sink(node, heads, at.q->dtype);
    at.scores_mode = grouped_scores(node);
    at.wants_scores = trm_onnx_wants(node, 3);
    trm_onnx_set(node, 0, trm_onnx_join_heads(node, trm_onnx_attend(node, &at, &scores)));
    trm_onnx_set(node, 1, at.k);
    trm_onnx_set(node, 2, at.v);
    if (scores != NULL) {
        trm_onnx_set(node, 3, scores_of(node, scores, total));
    }
}

/* ---- one token
 * ------------------------------------------------------------------------------------------------------------- */

/* Keys and values before the token: concatenated, or with those of the token in a cache of fixed length. */
static void add_past(trm_onnx_node *node, trm_onnx_attention *at)
{
    static const int64_t flat[1] = {-1};
    trm_tensor **in = node->inputs;
    if (!trm_onnx_flag(node, "past_present_share_buffer", false)) {
        at->k = behind(node, in[5], at->k);
        at->v = behind(node, in[6], at->v);
        return;
    }
    if (in[5] == NULL || in[6] == NULL || in[7] == NULL || in[3] != NULL || in[4] != NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "a cache that is shared with the output, without its length or with a mask, is not supported");
        return;
    }
    trm_tensor *start = trm_onnx_reshape(node, trm_onnx_cast(node, in[7], TRM_I64), flat, 1);
    at->k = put_into_cache(node, in[5], at->k, start, trm_onnx_dim_of(node, in[5], 2));
    at->v = put_into_cache(node, in[6], at->v, start, trm_onnx_dim_of(node, in[6], 2));
    at->lengths = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, start, 1.0);
}

/* (query [B, 1, W], key, value, padding mask, added mask, past key, past value, length of the past, beams, which beam a
 * token is of, bias). Keys [B, H, M, D] are those of cross attention. */
static void import_one_token(trm_onnx_node *node)
{
    trm_onnx_attention at = plain_attention(node);
    trm_tensor **in = node->inputs;
    const double low = (double)trm_onnx_float(node, "mask_filter_value", -10000.0f);
    int64_t beams = 1;
    int32_t count = 0;
    const bool one = in[8] == NULL || (trm_onnx_known_ints(node, in[8], &beams, 1, &count) && beams == 1);
    if (!one || in[9] != NULL || trm_onnx_wants(node, 3)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "several beams, or scores as an output, are not supported");
    }
    if (trm_onnx_failed(node) || !take_heads(node, &at, in[10])) {
        return;
    }
    if (in[1]->dims.n == 3) {
        add_past(node, &at);
    }
    if (in[3] != NULL && !trm_onnx_failed(node)) {
        at.mask = padding_mask(node, in[3], at.k, at.q->dtype, low);
    }
    at.mask = add_masks(node, at.mask, in[4]);
    trm_onnx_set(node, 0, trm_onnx_join_heads(node, trm_onnx_attend(node, &at, NULL)));
    trm_onnx_set(node, 1, at.k);
    trm_onnx_set(node, 2, at.v);
}

/* ---- rotary positions
 * ------------------------------------------------------------------------------------------------ */

/* (x [B, N, H * D] or [B, H, N, D], positions [1], the first of them, or [B, N], cos cache, sin cache) */
static void import_rotary(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *ids = node->inputs[1], *cosines = node->inputs[2], *sines = node->inputs[3];
    const bool joined = x->dims.n == 3;
    int64_t heads = trm_onnx_int(node, "num_heads", 0);
    if (cosines->dims.n != 2 || cosines->dims.d[1] < 1 || (joined && heads == 0 && x->dims.d[2] < 1)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the width of caches or inputs is unknown");
        return;
    }
    const int64_t rotary_dim = 2 * cosines->dims.d[1];
    heads = heads > 0 || !joined ? heads : x->dims.d[2] / rotary_dim;
    trm_tensor *split = joined ? trm_onnx_split_heads(node, x, heads) : x;
    if (trm_onnx_failed(node)) {
        return;
    }
    ids = trm_onnx_cast(node, ids, TRM_I64);
    if (ids->dims.n == 1) {
        static const int64_t row[2] = {1, -1};
        trm_tensor *positions = trm_onnx_positions(node, trm_onnx_dim_of(node, split, 2));
        ids = trm_onnx_reshape(node, trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, positions, ids), row, 2);
    }
    trm_tensor *c = trm_onnx_gather(node, trm_onnx_cast(node, cosines, x->dtype), ids, 0);
    trm_tensor *s = trm_onnx_gather(node, trm_onnx_cast(node, sines, x->dtype), ids, 0);
    trm_tensor *y = trm_onnx_rotate(node, split, c, s, rotary_dim, trm_onnx_flag(node, "interleaved", false));
    trm_onnx_set(node, 0, joined ? trm_onnx_join_heads(node, y) : y);
}

const trm_onnx_operator trm_onnx_ops_contrib[] = {
    {"com.microsoft", "FastGelu", 1, 1, import_bias_activation, TRM_ACTIVATION_GELU_TANH},
    {"com.microsoft", "BiasGelu", 1, 2, import_bias_activation, TRM_ACTIVATION_GELU},
    {"com.microsoft", "Gelu", 1, 1, import_bias_activation, TRM_ACTIVATION_GELU},
    {"com.microsoft", "QuickGelu", 1, 1, import_quick_gelu, 0},
    {"com.microsoft", "FusedMatMul", 1, 2, import_fused_matmul, 0},
    {"com.microsoft", "TransposeMatMul", 1, 2, import_fused_matmul, 0}, /* its first name */
    {"com.microsoft", "FusedMatMulActivation", 1, 2, import_fused_matmul, 1},
    {"com.microsoft", "MultiHeadAttention", 1, 1, import_multi_head, 0},
    {"com.microsoft", "Attention", 1, 2, import_attention, 0},
    {"com.microsoft", "QAttention", 1, 5, import_quantized_attention, 0},
    {"com.microsoft", "GroupQueryAttention", 1, 1, import_grouped_query, 0},
    {"com.microsoft", "DecoderMaskedMultiHeadAttention", 1, 2, import_one_token, 0},
    {"com.microsoft", "RotaryEmbedding", 1, 4, import_rotary, 0},
    {0},
};
