/* Attention and rotary positions as ONNX defines them. */
#include <math.h>

#include "graph/import/onnx/ops/nn/attention_parts.h"
#include "graph/import/onnx/import.h"
#include "graph/import/onnx/ops/ops.h"

/* ---- attention ------------------------------------------------------------------------------------------------- */

static trm_tensor *as_heads(trm_onnx_node *node, trm_tensor *x, const char *attribute)
{
    if (x->dims.n == 4) {
        return x;
    }
    return trm_onnx_split_heads(node, x, trm_onnx_int(node, attribute, 0));
}

/* The keys or values of past steps, then those of this one. */
static trm_tensor *behind(trm_onnx_node *node, trm_tensor *past, trm_tensor *x)
{
    trm_tensor *parts[2] = {past, x};
    return past == NULL ? x : trm_onnx_concat(node, parts, 2, 2);
}

/* A mask for the first of the keys: the rest is not seen. */
static trm_tensor *lengthen_mask(trm_onnx_node *node, trm_tensor *mask, trm_tensor *k)
{
    if (mask == NULL || mask->dims.n < 1 || trm_onnx_failed(node)) {
        return mask;
    }
    const int32_t last = mask->dims.n - 1;
    const int64_t have = mask->dims.d[last], want = k->dims.d[2];
    if ((have >= 0 && have == want) || (node->opset < 24 && (have < 0 || want < 0))) {
        return mask;
    }
    const trm_onnx_dim missing =
        trm_onnx_dim_combine(node, TRM_ELEMENTWISE_SUB, trm_onnx_dim_of(node, k, 2), trm_onnx_dim_of(node, mask, last));
    trm_layer_desc desc = {.kind = TRM_LAYER_PAD};
    trm_tensor *pads = NULL;
    if (missing.tensor == NULL) {
        if (missing.value <= 0 || missing.value > INT32_MAX) {
            return mask;
        }
        desc.pad.after[last] = (int32_t)missing.value;
    } else {
        trm_onnx_dim all[2 * TRM_MAX_DIMS];
        for (int32_t i = 0; i < 2 * mask->dims.n; i++) {
            all[i] = trm_onnx_dim_known(0);
        }
        all[2 * mask->dims.n - 1] = missing;
        trm_tensor *halves[2] = {trm_onnx_shape(node, all, mask->dims.n),
                                 trm_onnx_shape(node, all + mask->dims.n, mask->dims.n)};
        pads = trm_onnx_concat(node, halves, 2, 0);
    }
    const double unseen = mask->dtype == TRM_BOOL ? 0.0 : (double)-INFINITY;
    return trm_onnx_add(node, &desc, mask, pads, trm_onnx_scalar(node, mask->dtype, unseen), NULL);
}

/* The keys before the first query: those of past steps, or, where only lengths are given, all but the last ones. */
static void find_offset(trm_onnx_node *node, trm_onnx_attention *at, trm_tensor *past, trm_tensor *step)
{
    static const int64_t batch[4] = {-1, 1, 1, 1};
    if (past != NULL) {
        const trm_onnx_dim before = trm_onnx_dim_of(node, past, 2);
        at->offset = trm_onnx_reshape(node, trm_onnx_shape(node, &before, 1), batch, 4);
        at->offset_is_rest = step->dims.d[2] >= 0 && step->dims.d[2] == at->q->dims.d[2];
    } else if (at->lengths != NULL) {
        const trm_onnx_dim queries = trm_onnx_dim_of(node, at->q, 2);
        trm_tensor *rest =
            trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, at->lengths, trm_onnx_shape(node, &queries, 1));
        at->offset = trm_onnx_reshape(node, rest, batch, 4);
    }
}

/* Ranks that have rows each, as sharding tools write it. */
static int32_t read_ranks(trm_onnx_node *node)
{
    const int64_t n = trm_onnx_int(node, "nb_rank", 1);
    if (n < 1 || n > TRM_MAX_RANKS) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "nb_rank is %lld, expected 1 to %d", (long long)n, TRM_MAX_RANKS);
        return 1;
    }
    return (int32_t)n;
}

static int32_t read_scores_mode(trm_onnx_node *node)
{
    const int64_t mode = trm_onnx_int(node, "qk_matmul_output_mode", TRM_ONNX_SCORES_PRODUCT);
    if (mode < TRM_ONNX_SCORES_PRODUCT || mode > TRM_ONNX_SCORES_WEIGHTS) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "qk_matmul_output_mode is %lld, expected 0 to 3", (long long)mode);
        return TRM_ONNX_SCORES_PRODUCT;
    }
    return (int32_t)mode;
}

static void import_attention(trm_onnx_node *node)
{
    trm_tensor *past_k = node->inputs[4], *past_v = node->inputs[5], *scores = NULL;
    const bool joined = node->inputs[0]->dims.n == 3;
    if ((past_k == NULL) != (past_v == NULL)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "only one of past_key and past_value is given");
    }
    trm_onnx_attention at = {.q = as_heads(node, node->inputs[0], "q_num_heads"),
                             .causal = trm_onnx_flag(node, "is_causal", false),
                             .left = trm_onnx_int(node, "left_window_size", -1),
                             .right = trm_onnx_int(node, "right_window_size", -1),
                             .scale = trm_onnx_float(node, "scale", 0.0f),
                             .softcap = trm_onnx_float(node, "softcap", 0.0f),
                             .precision = trm_onnx_type(node, "softmax_precision", TRM_DTYPE_NONE),
                             .scores_mode = read_scores_mode(node),
                             .wants_scores = trm_onnx_wants(node, 3),
                             .n_ranks = read_ranks(node)};
    trm_tensor *k = as_heads(node, node->inputs[1], "kv_num_heads");
    trm_tensor *v = as_heads(node, node->inputs[2], "kv_num_heads");
    at.k = behind(node, past_k, k);
    at.v = behind(node, past_v, v);
    if (trm_onnx_failed(node) || at.q->dims.n != 4 || at.k->dims.n != 4 || at.v->dims.n != 4) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "q, k and v do not have 3 or 4 dimensions");
        return;
    }
    trm_onnx_set(node, 1, at.k);
    trm_onnx_set(node, 2, at.v);
    at.mask = at.n_ranks > 1 ? node->inputs[3] : lengthen_mask(node, node->inputs[3], at.k);
    at.lengths = node->inputs[6];
    find_offset(node, &at, past_k, k);
    at.k = trm_onnx_cast(node, at.k, at.q->dtype);
    at.v = trm_onnx_cast(node, at.v, at.q->dtype);
    trm_tensor *y = trm_onnx_attend(node, &at, &scores);
    trm_onnx_set(node, 0, joined ? trm_onnx_join_heads(node, y) : y);
    if (scores != NULL) {
        trm_onnx_set(node, 3, scores);
    }
}

/* ---- attention with parts of its own ------------------------------------------------------------------------------
 */

static trm_tensor *run_part(trm_onnx_node *node, const char *name, trm_tensor *x)
{
    const Onnx__GraphProto *graph = trm_onnx_graph(node, name);
    trm_onnx_value *input = trm_onnx_value_tensor(node, x), *output = NULL;
    if (!trm_onnx_failed(node)) {
        trm_onnx_run_body(node, graph, name, &input, 1, &output, 1);
    }
    if (!trm_onnx_failed(node) && (output == NULL || output->tensor == NULL)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "%s is not a tensor", name);
    }
    return trm_onnx_failed(node) ? x : output->tensor;
}

static trm_tensor *change_scores(trm_onnx_node *node, trm_tensor *scores)
{
    return run_part(node, "score_mod", scores);
}

static trm_tensor *change_weights(trm_onnx_node *node, trm_tensor *weights)
{
    return run_part(node, "prob_mod", weights);
}

static void import_flex_attention(trm_onnx_node *node)
{
    trm_onnx_attention at = {.q = node->inputs[0],
                             .k = node->inputs[1],
                             .left = -1,
                             .right = -1,
                             .scale = trm_onnx_float(node, "scale", 0.0f),
                             .precision = trm_onnx_type(node, "softmax_precision", TRM_DTYPE_NONE),
                             .change_scores = trm_onnx_has(node, "score_mod") ? change_scores : NULL,
                             .change_weights = trm_onnx_has(node, "prob_mod") ? change_weights : NULL};
    at.v = trm_onnx_cast(node, node->inputs[2], at.q->dtype);
    if (at.q->dims.n != 4 || at.k->dims.n != 4 || at.v->dims.n != 4) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "q, k and v do not have 4 dimensions");
        return;
    }
    trm_onnx_set(node, 0, trm_onnx_attend(node, &at, NULL));
}

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

/* Rows of a cache [positions, pairs] for ids [B, N], or [B, N, pairs] as it is. */
static trm_tensor *turns(trm_onnx_node *node, trm_tensor *cache, trm_tensor *ids, trm_dtype dtype)
{
    cache = trm_onnx_cast(node, cache, dtype);
    return ids == NULL ? cache : trm_onnx_gather(node, cache, ids, 0);
}

static void import_rotary(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *ids = node->inputs[3];
    const bool joined = x->dims.n == 3;
    trm_tensor *heads = joined ? trm_onnx_split_heads(node, x, trm_onnx_int(node, "num_heads", 0)) : x;
    trm_tensor *c = turns(node, node->inputs[1], ids, x->dtype), *s = turns(node, node->inputs[2], ids, x->dtype);
    if (trm_onnx_failed(node) || heads->dims.n != 4 || c->dims.n != 3 || s->dims.n != 3) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                      "the input has %d dimensions, cos_cache for its positions %d, expected 3 or 4, and 3",
                      (int)x->dims.n, (int)c->dims.n);
        return;
    }
    int64_t width = trm_onnx_int(node, "rotary_embedding_dim", 0);
    width = width > 0 ? width : heads->dims.d[3];
    trm_tensor *y = trm_onnx_rotate(node, heads, c, s, width, trm_onnx_flag(node, "interleaved", false));
    trm_onnx_set(node, 0, joined ? trm_onnx_join_heads(node, y) : y);
}

const trm_onnx_operator trm_onnx_ops_attention[] = {
    {"", "Attention", 23, 3, import_attention, 0},
    {"ai.onnx.preview", "FlexAttention", 1, 3, import_flex_attention, 0},
    {"", "RotaryEmbedding", 23, 3, import_rotary, 0},
    {0},
};
