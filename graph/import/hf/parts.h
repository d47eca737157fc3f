/*
 * What the decoder is built of: decoder.c makes blocks and ends, linear.c linear layers, attention.c and mlp.c the two
 * halves of a block. For these files alone.
 *
 * Every function adds layers to d->network under names that begin with d->prefix, as the checkpoint names its weights.
 * T is tokens of a step.
 */
#ifndef TRM_GRAPH_IMPORT_HF_PARTS_H
#define TRM_GRAPH_IMPORT_HF_PARTS_H

#include "graph/import/hf/checkpoint.h"
#include "graph/import/hf/config.h"
#include "graph/import/hf/draft_head.h"
#include "graph/network.h"

typedef struct trm_hf_decoder {
    const trm_hf_config *config;
    const trm_hf_names *names;
    trm_hf_checkpoint *checkpoint;
    trm_network *network;
    trm_dtype dtype, cache_dtype;
    const char *root, *head;
    int64_t first_layer; /* number of the first one among the stored */
    char prefix[128];    /* "model.layers.3." */
    char text[512];      /* the name made last */
    trm_tensor *token_ids, *positions, *starts, *lengths, *block_table, *logit_rows, *rope_lengths;
    trm_tensor *slots;         /* of sequences in states, where there are such */
    trm_tensor *inv_freq[2];   /* of full and of sliding layers */
    trm_tensor *query_scale;   /* [T, 1, 1] */
    trm_tensor *embedding;     /* [vocab, hidden] */
    trm_tensor *by_layer;      /* [T, layers, layer_width] */
    trm_tensor *lent[2][2];    /* keys and values of the last full and sliding layer with their own */
    const trm_hf_draft *draft; /* what a draft head wants, or NULL */
    trm_tensor *taps[TRM_HF_EAGLE_TAPS];
    /* With room for adapters: the slot of each token at hand, [T] or of those that are wanted, and where to note what
     * takes one. */
    trm_tensor *adapter_slots;
    int32_t adapters, adapter_rank;
    struct trm_hf_targets *targets;
} trm_hf_decoder;

/* Key-value heads of a layer, and elements of a head. */
static inline int64_t trm_hf_kv_heads(const trm_hf_config *c, int64_t layer)
{
    return c->full_kv_heads > 0 && !c->sliding[layer] ? c->full_kv_heads : c->kv_heads;
}
static inline int64_t trm_hf_head_dim(const trm_hf_config *c, int64_t layer)
{
    return c->full_head_dim > 0 && !c->sliding[layer] ? c->full_head_dim : c->head_dim;
}

/* Whether a layer has the gated delta rule, or a selective scan, in place of attention. */
static inline bool trm_hf_is_delta(const trm_hf_config *c, int64_t layer)
{
    return c->delta.layers != NULL && c->delta.layers[layer];
}

static inline bool trm_hf_is_scan(const trm_hf_config *c, int64_t layer)
{
    return c->scan.layers != NULL && c->scan.layers[layer];
}

/* Whether a layer has the keys and values of another one. */
static inline bool trm_hf_borrows(const trm_hf_config *c, int64_t layer)
{
    return layer >= c->layers - c->borrowing;
}

/* ---- decoder.c: names, weights, layers ------------------------------------------------------------ */

/* <prefix><part><suffix>, valid until the next call. */
const char *trm_hf_name(trm_hf_decoder *d, const char *part, const char *suffix);
/* Takes the whole weight <prefix><part><suffix> into the network. */
trm_status trm_hf_add_weight(trm_hf_decoder *d, const char *part, const char *suffix, trm_hf_weight_use use,
                             trm_dims dims, trm_tensor **tensor);
/* The same in a type of its own, for what is small and exact. */
trm_status trm_hf_add_exact(trm_hf_decoder *d, const char *part, const char *suffix, trm_hf_weight_use use,
                            trm_dims dims, trm_dtype dtype, trm_tensor **tensor);
/* The layer <prefix><part><suffix> with one output. */
trm_status trm_hf_add_layer(trm_hf_decoder *d, const char *part, const char *suffix, const trm_layer_desc *desc,
                            trm_tensor *const *inputs, int32_t n_inputs, trm_tensor **output);
/* `value` as the compute type holds it, where transformers has scalars of the model's type. */
float trm_hf_round(trm_dtype dtype, double value);
trm_status trm_hf_add_sum(trm_hf_decoder *d, const char *part, trm_tensor *a, trm_tensor *b, trm_tensor **sum);
/* Element by element. */
trm_status trm_hf_add_product(trm_hf_decoder *d, const char *part, trm_tensor *a, trm_tensor *b, trm_tensor **product);
/* x * factor */
trm_status trm_hf_add_scale(trm_hf_decoder *d, const char *part, const char *suffix, double factor, trm_tensor *x,
                            trm_tensor **output);
trm_status trm_hf_add_reshape(trm_hf_decoder *d, const char *part, const char *suffix, trm_tensor *x, trm_dims dims,
                              trm_tensor **output);
/* The family's norm over the last axis of x, `width` elements. */
trm_status trm_hf_add_norm(trm_hf_decoder *d, const char *part, int64_t width, trm_tensor *x, trm_tensor **output);

/* ---- decoder.c: inputs, blocks, ends, for draft heads ---------------------------------------------- */

trm_status trm_hf_add_inputs(trm_hf_decoder *d);
/* token_ids -> [T, hidden] */
trm_status trm_hf_add_embedding(trm_hf_decoder *d, trm_tensor **x);
/* x [T, n] -> [R, n], the tokens whose logits are wanted. */
trm_status trm_hf_add_wanted(trm_hf_decoder *d, const char *part, trm_tensor *x, trm_tensor **output);
/* x [T, hidden] -> [T, hidden], through one block. The last one goes on with the tokens that are wanted behind its
 * attention, [R, hidden]: of the others only keys and values are needed, unless a draft head wants them all. */
trm_status trm_hf_add_block(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output);
/* x [R, hidden], normed -> the output logits f32 [R, vocab] */
trm_status trm_hf_add_logits(trm_hf_decoder *d, trm_tensor *x);

/* ---- draft_head.c ------------------------------------------------------------------------------------ */

/* Notes what goes into a layer, x [T, hidden], if a draft head wants it. */
void trm_hf_draft_tap(trm_hf_decoder *d, int64_t layer, trm_tensor *x);
/* The output that a draft head begins with; `hidden` [T, hidden] is behind the final norm. */
trm_status trm_hf_add_draft_hidden(trm_hf_decoder *d, trm_tensor *hidden);

/* ---- linear.c ---------------------------------------------------------------------------------------- */

/* Which rows of a stored linear layer to use. A weight [rows, in] is seen as [outer, parts, inner, in]; rows
 * first .. first + count - 1 of axis `axis` are taken. */
typedef struct trm_hf_rows {
    const char *suffix; /* of the part's name; "" for the whole */
    trm_dims view;      /* dims of the rows, n == 0: the whole */
    int32_t axis;
    int64_t first, count;
    /* pairs > 0: of each head, `head_dim` of those rows, 2 * pairs are stored as (0, 1), (2, 3), ... and read as 0, 2,
     * ..., 1, 3, ..., so that one kind of rope does for all. They begin at row first_pair of the head. */
    int64_t head_dim, pairs, first_pair;
} trm_hf_rows;

extern const trm_hf_rows trm_hf_whole;

/* x [T, in] -> [T, rows of `rows`]: those rows of the linear layer `part` [out, in]. */
trm_status trm_hf_add_linear(trm_hf_decoder *d, const char *part, const trm_hf_rows *rows, bool bias, int64_t out,
                             int64_t in, trm_tensor *x, trm_tensor **output);
/* weight [rows, rest...] -> the rows of `rows`, in the order that it says. Takes the weight over. */
trm_status trm_hf_take_rows(trm_weight *weight, const trm_hf_rows *rows, trm_weight **taken);
bool trm_hf_part_is_quantized(trm_hf_decoder *d, const char *part);
/* The weights of the quantized layer `part` [out, in], in their places among the inputs of the DEQUANT_MATMUL `desc`.
 */
trm_status trm_hf_add_quantized(trm_hf_decoder *d, const char *part, const trm_hf_rows *rows, int64_t out, int64_t in,
                                trm_tensor **inputs, trm_layer_desc *desc);

/* ---- attention.c, latent.c, delta.c, scan.c, short_convolution.c, mlp.c, moe.c, experts.c
 * -------------------------------------------------------
 */

/* x [T, hidden], normalized -> [T, heads * head_dim], before the output projection */
trm_status trm_hf_add_attention(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output);
trm_status trm_hf_add_latent_attention(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output);
/* The gated delta rule in place of attention: [T, value_heads * value_dim]. */
trm_status trm_hf_add_delta(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output);
/* A selective scan in place of attention: [T, heads * head_dim] of the scan. */
trm_status trm_hf_add_scan(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output);
/* Part of the channels of a stored short convolution: from `first` on, of `all`. */
typedef struct trm_hf_convolution {
    const char *name;   /* of its weight, [all, 1, taps] */
    const char *suffix; /* of the part's tensors, such as ".q" */
    int64_t all, first, taps;
    bool bias;
} trm_hf_convolution;
/* x [T, channels] -> silu of the convolution, [T, heads, dim] as `heads` says; the state is layers.<n><suffix>_inputs
 */
trm_status trm_hf_add_convolution(trm_hf_decoder *d, const trm_hf_convolution *c, int64_t layer, trm_tensor *x,
                                  trm_dims heads, trm_tensor **output);
/* Rotates the heads of x [T, heads, width] from element `first` on; `sliding`: as sliding layers do. */
trm_status trm_hf_add_rope(trm_hf_decoder *d, const char *part, bool sliding, int64_t first, trm_tensor *x,
                           trm_tensor **output);
/* x [T, hidden], normalized -> [T, hidden]: the MLP of a block, or its mixture of experts. */
trm_status trm_hf_add_mlp(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output);
trm_status trm_hf_add_moe(trm_hf_decoder *d, trm_tensor *x, trm_tensor **output);
/* The mixture beside an MLP: x [T, hidden], not normalized, and what the MLP makes of it -> both. */
trm_status trm_hf_add_moe_beside(trm_hf_decoder *d, trm_tensor *x, trm_tensor *mlp, trm_tensor **output);
/* The weights of all experts of a block, in their places among the inputs of an EXPERTS layer. */
trm_status trm_hf_add_expert_weights(trm_hf_decoder *d, trm_tensor **inputs);
/* The activation of MLPs. */
trm_status trm_hf_add_activation(trm_hf_decoder *d, const char *part, trm_tensor *x, trm_tensor **output);
/* An MLP of this width, of linear layers of these names: gate may be NULL. */
trm_status trm_hf_add_plain_mlp(trm_hf_decoder *d, const char *gate, const char *up, const char *down, int64_t width,
                                trm_tensor *x, trm_tensor **output);
/* The same with gate and up in one weight, the gate first. */
trm_status trm_hf_add_joined_mlp(trm_hf_decoder *d, const char *gate_up, const char *down, int64_t width, trm_tensor *x,
                                 trm_tensor **output);

#endif
