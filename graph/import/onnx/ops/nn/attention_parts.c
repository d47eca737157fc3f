/* Attention as one layer, or as products, mask and softmax where one layer cannot do what is asked. */
#include "graph/import/onnx/ops/nn/attention_parts.h"

#include <math.h>

#include "graph/import/onnx/ops/ops.h"

trm_tensor *trm_onnx_split_heads(trm_onnx_node *node, trm_tensor *x, int64_t heads)
{
    static const int32_t swap[4] = {0, 2, 1, 3};
    if (trm_onnx_failed(node) || x->dims.n != 3 || heads < 1) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                      "the input has %d dimensions and %lld heads, expected 3 and at least 1", (int)x->dims.n,
                      (long long)heads);
        return x;
    }
    const int64_t dims[4] = {0, 0, heads, -1};
    trm_tensor *split;
    if (x->dims.d[2] > 0) { /* known, so that it also is if there are no tokens */
        const trm_onnx_dim known[4] = {trm_onnx_dim_of(node, x, 0), trm_onnx_dim_of(node, x, 1),
                                       trm_onnx_dim_known(heads), trm_onnx_dim_known(x->dims.d[2] / heads)};
        const int64_t copied[4] = {0, 0, heads, x->dims.d[2] / heads};
        split = x->dims.d[0] < 0 || x->dims.d[1] < 0 ? trm_onnx_reshape(node, x, copied, 4)
                                                     : trm_onnx_reshape_to(node, x, known, 4);
    } else {
        split = trm_onnx_reshape(node, x, dims, 4);
    }
    return trm_onnx_failed(node) ? x : trm_onnx_transpose(node, split, swap);
}

trm_tensor *trm_onnx_join_heads(trm_onnx_node *node, trm_tensor *x)
{
    static const int32_t swap[4] = {0, 2, 1, 3};
    if (trm_onnx_failed(node)) {
        return x;
    }
    const int64_t heads = x->dims.d[1], width = x->dims.d[3];
    const int64_t dims[3] = {0, 0, heads > 0 && width > 0 ? heads * width : -1};
    return trm_onnx_reshape(node, trm_onnx_transpose(node, x, swap), dims, 3);
}

trm_tensor *trm_onnx_rotate(trm_onnx_node *node, trm_tensor *x, trm_tensor *cosines, trm_tensor *sines,
                            int64_t rotary_dim, bool interleaved)
{
    static const int32_t heads_axis = 1;
    if (trm_onnx_failed(node) || x->dims.n != 4 || x->dims.d[3] < 2) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the width of the heads must be known to rotate them");
        return x;
    }
    const int64_t width = x->dims.d[3], pairs = rotary_dim / 2;
    const int32_t last = 4;
    trm_tensor *rest = rotary_dim < width ? trm_onnx_slice(node, x, 3, rotary_dim, INT64_MAX, 1) : NULL;
    trm_tensor *turned = rest == NULL ? x : trm_onnx_slice(node, x, 3, 0, rotary_dim, 1);
    trm_tensor *c = trm_onnx_unsqueeze(node, cosines, &heads_axis, 1);
    trm_tensor *s = trm_onnx_unsqueeze(node, sines, &heads_axis, 1);
    trm_tensor *a = trm_onnx_slice(node, turned, 3, 0, interleaved ? INT64_MAX : pairs, interleaved ? 2 : 1);
    trm_tensor *b = trm_onnx_slice(node, turned, 3, interleaved ? 1 : pairs, INT64_MAX, interleaved ? 2 : 1);
    trm_tensor *parts[2] = {
        trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, a, c),
                             trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, b, s)),
        trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, a, s),
                             trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, b, c))};
    trm_tensor *y;
    if (interleaved) {
        trm_onnx_dim dims[TRM_MAX_DIMS];
        trm_onnx_dims_of(node, turned, dims);
        parts[0] = trm_onnx_unsqueeze(node, parts[0], &last, 1);
        parts[1] = trm_onnx_unsqueeze(node, parts[1], &last, 1);
        y = trm_onnx_reshape_to(node, trm_onnx_concat(node, parts, 2, 4), dims, 4);
    } else {
        y = trm_onnx_concat(node, parts, 2, 3);
    }
    trm_tensor *whole[2] = {y, rest};
    return rest == NULL ? y : trm_onnx_concat(node, whole, 2, 3);
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static trm_tensor *both(trm_onnx_node *node, trm_tensor *a, trm_tensor *b)
{
    return a == NULL ? b : b == NULL ? a : trm_onnx_elementwise(node, TRM_ELEMENTWISE_AND, a, b);
}

/* Positions 0 .. n - 1 along axis 2 or 3 of [1, 1, N, M]. */
static trm_tensor *along(trm_onnx_node *node, trm_onnx_dim size, int32_t axis)
{
    int64_t dims[4] = {1, 1, 1, 1};
    dims[axis] = -1;
    return trm_onnx_reshape(node, trm_onnx_positions(node, size), dims, 4);
}

/* What the layer cannot say by itself: keys that are seen by position, bool [B or 1, 1, N, M]; NULL: all of them. */
static trm_tensor *seen_by_position(trm_onnx_node *node, const trm_onnx_attention *at, bool causal, int64_t left,
                                    int64_t right)
{
    static const int64_t batch[4] = {-1, 1, 1, 1};
    trm_tensor *seen = NULL, *key = NULL;
    if (causal || left >= 0 || right >= 0 || at->lengths != NULL) {
        key = along(node, trm_onnx_dim_of(node, at->k, 2), 3);
    }
    if (causal || left >= 0 || right >= 0) {
        trm_tensor *query = along(node, trm_onnx_dim_of(node, at->q, 2), 2);
        query = at->offset == NULL ? query : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, query, at->offset);
        right = causal ? 0 : right; /* both bounds: the nearer one */
        if (right >= 0) {
            trm_tensor *end =
                right == 0 ? query : trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, query, (double)right);
            seen = trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS_EQUAL, key, end);
        }
        if (left >= 0) {
            trm_tensor *start =
                left == 0 ? query : trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_SUB, query, (double)left);
            seen = both(node, seen, trm_onnx_elementwise(node, TRM_ELEMENTWISE_GREATER_EQUAL, key, start));
        }
    }
    if (at->lengths != NULL) {
        trm_tensor *lengths = trm_onnx_reshape(node, at->lengths, batch, 4);
        seen = both(node, seen, trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS, key, lengths));
    }
    return seen;
}

/* Both masks as one: bool if the given one is bool or none, else float. */
static trm_tensor *join_masks(trm_onnx_node *node, trm_tensor *mask, trm_tensor *seen)
{
    if (mask == NULL || seen == NULL || mask->dtype == TRM_BOOL) {
        return both(node, mask, seen);
    }
    return trm_onnx_select(node, seen, mask, trm_onnx_scalar(node, mask->dtype, -INFINITY));
}

/* ---- the two ways -------------------------------------------------------------------------------------------------
 */

static bool is_short_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

static bool layer_can(const trm_onnx_attention *at)
{
    const int64_t most = 512; /* width of heads that every backend's kernels take */
    return !at->wants_scores && at->change_scores == NULL && at->change_weights == NULL &&
           is_short_float(at->q->dtype) && at->precision != TRM_F64 && at->q->dims.d[3] <= most &&
           at->v->dims.d[3] <= most &&
           (at->mask == NULL || at->mask->dtype == TRM_BOOL || is_short_float(at->mask->dtype));
}

static trm_tensor *attend_by_layer(trm_onnx_node *node, const trm_onnx_attention *at)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                           .attention = {.form = TRM_ATTENTION_PADDED_BHND,
                                         .scale = at->scale,
                                         .softcap = at->softcap,
                                         .n_ranks = at->n_ranks > 1 ? at->n_ranks : 1}};
    bool causal = at->causal;
    int64_t left = at->left;
    if (causal && (at->offset == NULL || at->offset_is_rest)) { /* the layer's own */
        desc.attention.causal = at->offset == NULL ? TRM_CAUSAL_UPPER_LEFT : TRM_CAUSAL_LOWER_RIGHT;
        if (left >= 0 && left < INT32_MAX) {
            desc.attention.window = (int32_t)left + 1;
            left = -1;
        }
        causal = false;
    }
    const int64_t right = at->causal ? -1 : at->right;
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {at->q, at->k, at->v}, *outputs[TRM_MAX_LAYER_OUTPUTS];
    trm_tensor *mask = join_masks(node, at->mask, seen_by_position(node, at, causal, left, right));
    inputs[TRM_ATTENTION_MASK] = mask;
    if (at->sink != NULL) {
        const trm_onnx_dim heads = trm_onnx_dim_of(node, at->q, 1);
        inputs[TRM_ATTENTION_SINKS] = trm_onnx_expand(node, trm_onnx_cast(node, at->sink, TRM_F32), &heads, 1);
    }
    trm_onnx_layer(node, &desc, inputs,
                   at->sink != NULL ? TRM_ATTENTION_INPUT_COUNT
                   : mask != NULL   ? TRM_ATTENTION_MASK + 1
                                    : TRM_ATTENTION_V + 1,
                   outputs);
    return outputs[0];
}

trm_tensor *trm_onnx_grouped_product(trm_onnx_node *node, trm_tensor *a, trm_tensor *b, bool transpose_b)
{
    static const int32_t group = 2;
    const int64_t heads = a->dims.d[1], kv_heads = b->dims.d[1];
    if (trm_onnx_failed(node) || (heads == kv_heads && heads >= 0) || kv_heads == 0 ||
        (heads >= 0 && kv_heads > 0 && heads % kv_heads != 0)) {
        return trm_onnx_matmul(node, a, b, false, transpose_b);
    }
    trm_onnx_dim dims[TRM_MAX_DIMS], grouped[5];
    trm_onnx_dims_of(node, a, dims);
    grouped[0] = dims[0];
    grouped[1] = trm_onnx_dim_of(node, b, 1);
    grouped[2] = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_DIV, dims[1], grouped[1]);
    grouped[3] = dims[2];
    grouped[4] = dims[3];
    trm_tensor *y = trm_onnx_matmul(node, trm_onnx_reshape_to(node, a, grouped, 5),
                                    trm_onnx_unsqueeze(node, b, &group, 1), false, transpose_b);
    if (trm_onnx_failed(node)) {
        return y;
    }
    dims[3] = trm_onnx_dim_of(node, y, 4);
    return trm_onnx_reshape_to(node, y, dims, 4);
}

/* The mask as numbers to add. */
static trm_tensor *added_mask(trm_onnx_node *node, trm_tensor *mask, trm_dtype dtype)
{
    if (mask->dtype != TRM_BOOL) {
        return trm_onnx_cast(node, mask, dtype);
    }
    return trm_onnx_select(node, mask, trm_onnx_scalar(node, dtype, 0.0), trm_onnx_scalar(node, dtype, -INFINITY));
}

/* Softmax of scores [B, Hq, N, M] in whose sum each head's sink takes part. */
static trm_tensor *softmax_with_sink(trm_onnx_node *node, trm_tensor *scores, trm_tensor *sink)
{
    static const int64_t heads[4] = {1, -1, 1, 1};
    const int32_t last = 3;
    trm_onnx_dim dims[TRM_MAX_DIMS];
    if (trm_onnx_failed(node)) {
        return scores;
    }
    trm_onnx_dims_of(node, scores, dims);
    dims[last] = trm_onnx_dim_known(1);
    trm_tensor *columns[2] = {scores, trm_onnx_expand(node, trm_onnx_reshape(node, sink, heads, 4), dims, 4)};
    trm_tensor *p = trm_onnx_softmax(node, trm_onnx_concat(node, columns, 2, last), last);
    return trm_onnx_slice(node, p, last, 0, -1, 1);
}

static trm_tensor *attend_by_parts(trm_onnx_node *node, const trm_onnx_attention *at, trm_tensor **scores)
{
    const trm_dtype dtype = at->q->dtype;
    const int32_t last = 3;
    if (at->scale == 0.0f && at->q->dims.d[3] < 1) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the width of the heads must be known");
        return at->q;
    }
    const double scale = at->scale != 0.0f ? (double)at->scale : 1.0 / sqrt((double)at->q->dims.d[3]);
    trm_tensor *q, *k = at->k;
    if (at->sink != NULL) { /* keys are a cache, of which no copy is made */
        q = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, at->q, scale);
    } else {
        q = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, at->q, sqrt(fabs(scale)));
        k = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, at->k, copysign(sqrt(fabs(scale)), scale));
    }
    trm_tensor *s = trm_onnx_grouped_product(node, q, k, true), *wanted = s;
    if (at->softcap > 0.0f) {
        s = trm_onnx_unary_with(node, TRM_UNARY_SOFTCAP, s, at->softcap, 0.0f);
        wanted = at->scores_mode == TRM_ONNX_SCORES_CAPPED ? s : wanted;
    }
    s = at->change_scores != NULL ? at->change_scores(node, s) : s;
    trm_tensor *seen = seen_by_position(node, at, at->causal, at->left, at->causal ? -1 : at->right);
    trm_tensor *mask = join_masks(node, at->mask, seen);
    mask = mask == NULL ? NULL : added_mask(node, mask, dtype);
    if (mask != NULL) {
        s = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, s, mask);
    }
    wanted = at->scores_mode == TRM_ONNX_SCORES_MASKED || at->scores_mode == TRM_ONNX_SCORES_SEEN ? s : wanted;
    if (at->scores_mode == TRM_ONNX_SCORES_SEEN && seen != NULL) {
        wanted = trm_onnx_select(node, seen, s, trm_onnx_scalar(node, dtype, 0.0));
    }
    const trm_dtype precision = at->precision == TRM_DTYPE_NONE ? dtype : at->precision;
    s = trm_onnx_cast(node, s, precision);
    trm_tensor *p = at->sink == NULL ? trm_onnx_softmax(node, s, last)
                                     : softmax_with_sink(node, s, trm_onnx_cast(node, at->sink, precision));
    if (mask != NULL && mask->dims.n > 0) { /* a row without a key has no weights */
        const int32_t axis = mask->dims.n - 1;
        trm_tensor *most = trm_onnx_reduce(node, TRM_REDUCE_MAX, mask, &axis, 1, true);
        trm_tensor *none =
            trm_onnx_elementwise(node, TRM_ELEMENTWISE_EQUAL, most, trm_onnx_scalar(node, dtype, -INFINITY));
        p = trm_onnx_select(node, none, trm_onnx_scalar(node, precision, 0.0), p);
    }
    p = trm_onnx_cast(node, p, dtype);
    p = at->change_weights != NULL ? at->change_weights(node, p) : p;
    wanted = at->scores_mode == TRM_ONNX_SCORES_WEIGHTS ? p : wanted;
    if (scores != NULL) {
        *scores = wanted;
    }
    return trm_onnx_grouped_product(node, p, at->v, false);
}

/* Whether something other than the layer itself uses positions within a rank's rows, which would be wrong. */
static bool needs_whole_rows(const trm_onnx_attention *at)
{
    const bool window = at->causal ? at->left >= INT32_MAX : at->left >= 0 || at->right >= 0;
    return window || at->offset != NULL || at->lengths != NULL || !layer_can(at);
}

trm_tensor *trm_onnx_attend(trm_onnx_node *node, const trm_onnx_attention *attention, trm_tensor **scores)
{
    if (trm_onnx_failed(node)) {
        return attention->q;
    }
    if (attention->n_ranks > 1 && needs_whole_rows(attention)) {
        trm_onnx_fail(
            node, TRM_ERROR_UNSUPPORTED,
            "nb_rank is %d with keys of past steps, lengths, a window that is not causal, scores as an output "
            "or a softmax in f64, expected none of them",
            (int)attention->n_ranks);
        return attention->q;
    }
    return layer_can(attention) ? attend_by_layer(node, attention) : attend_by_parts(node, attention, scores);
}
