/* Attention for the operators of all domains. */
#ifndef TRM_GRAPH_IMPORT_ONNX_OPS_NN_ATTENTION_PARTS_H
#define TRM_GRAPH_IMPORT_ONNX_OPS_NN_ATTENTION_PARTS_H

#include "graph/import/onnx/ops/common.h"

/* Which scores to output; the first four as in ONNX's Attention. */
enum {
    TRM_ONNX_SCORES_PRODUCT,
    TRM_ONNX_SCORES_CAPPED,
    TRM_ONNX_SCORES_MASKED,
    TRM_ONNX_SCORES_WEIGHTS, /* behind the softmax */
    TRM_ONNX_SCORES_SEEN     /* masked, but 0 where a position or length hides the key */
};

/* One attention, [B, heads, length, width] all of it. */
typedef struct trm_onnx_attention {
    trm_tensor *q, *k, *v; /* k and v with what is in the cache before them */
    trm_tensor *mask;      /* bool (true: seen) or float added, broadcast to the scores [B, Hq, N, M]; or NULL */
    trm_tensor *offset;    /* i64 [B, 1, 1, 1] or [1, 1, 1, 1]: keys before the first query; NULL: 0 */
    trm_tensor *lengths;   /* i64 [B]: keys that are there; NULL: all */
    trm_tensor *sink;      /* [Hq], or of one element: a logit in each softmax that has no key and no value; or NULL */
    bool offset_is_rest;   /* offset is the number of keys less that of queries, for certain */
    bool causal;
    int64_t left, right; /* a query sees keys from `left` before it to `right` behind it; -1: no bound */
    float scale;         /* 0: 1 / sqrt(width) */
    float softcap;       /* 0: none */
    trm_dtype precision; /* of the softmax; NONE: any */
    int32_t scores_mode; /* TRM_ONNX_SCORES_.. that `scores` is to be */
    bool wants_scores;
    int32_t n_ranks; /* ATTENTION's: q, k and v are one rank's rows; 0 is 1 */
    /* Given the scores and the weights of a modified attention, return what is to be taken instead; may be NULL. */
    trm_tensor *(*change_scores)(trm_onnx_node *node, trm_tensor *scores);
    trm_tensor *(*change_weights)(trm_onnx_node *node, trm_tensor *weights);
} trm_onnx_attention;

/* One ATTENTION layer where that can do it, else several layers. *scores (may be NULL) if they are wanted. */
trm_tensor *trm_onnx_attend(trm_onnx_node *node, const trm_onnx_attention *attention, trm_tensor **scores);

/* a [B, Ha, N, K] times b [B, Hb, K, M] (or transposed), where Ha / Hb heads of a share one of b. */
trm_tensor *trm_onnx_grouped_product(trm_onnx_node *node, trm_tensor *a, trm_tensor *b, bool transpose_b);

#endif
