/* Attention and rotary position embeddings. */
#ifndef TRIREME_LAYERS_ATTENTION_H
#define TRIREME_LAYERS_ATTENTION_H

#include <trireme/layers/common.h>

#define TRM_ROPE_SCALINGS(X)                                                                                           \
    X(TRM_ROPE_PLAIN, "plain")     /* inv_freq [rotary_dim / 2]: default, linear, llama3 and yarn fold into it */      \
    X(TRM_ROPE_DYNAMIC, "dynamic") /* base rescaled where lengths[t] > original_length (NTK) */                        \
    X(TRM_ROPE_LONG, "long")       /* inv_freq [2, rotary_dim / 2]: row 1 where lengths[t] > original_length */
typedef enum trm_rope_scaling { TRM_ROPE_SCALINGS(TRM_ENUMERATOR) } trm_rope_scaling;

/* (x [T, heads, head_dim], positions i32 [T], inv_freq f32, lengths i32 [T] unless PLAIN) -> same.
 * Rotates rotary_dim elements of each head, from element `first` on, by positions[t] * inv_freq[i]; pairs are
 * (i, i + rotary_dim/2), or (2i, 2i+1) if interleaved. cos and sin are multiplied by `magnitude`.
 * lengths[t]: tokens in t's sequence after this step. */
typedef struct trm_rope_params {
    trm_rope_scaling scaling;
    int32_t rotary_dim;
    bool interleaved;
    float magnitude;         /* yarn and longrope attention factor; 1 otherwise */
    float base, factor;      /* DYNAMIC */
    int64_t original_length; /* DYNAMIC, LONG */
    int32_t first;
} trm_rope_params;

#define TRM_CAUSALS(X)                                                                                                 \
    X(TRM_CAUSAL_NONE, "none")                                                                                         \
    X(TRM_CAUSAL_UPPER_LEFT, "upper_left")   /* query i sees keys 0..i */                                              \
    X(TRM_CAUSAL_LOWER_RIGHT, "lower_right") /* query i sees keys 0..i + (keys - queries): right for decoding */
typedef enum trm_causal { TRM_CAUSALS(TRM_ENUMERATOR) } trm_causal;

#define TRM_ATTENTION_FORMS(X)                                                                                         \
    X(TRM_ATTENTION_PACKED_NHD, "packed_nhd") /* q [T, Hq, D], k [T, Hkv, D], v [T, Hkv, Dv] -> [T, Hq, Dv] */         \
    X(TRM_ATTENTION_PADDED_BHND,                                                                                       \
      "padded_bhnd") /* q [B, Hq, N, D], k [B, Hkv, M, D], v [B, Hkv, M, Dv] -> [B, Hq, N, Dv] */                      \
    X(TRM_ATTENTION_PADDED_BNHD,                                                                                       \
      "padded_bnhd") /* q [B, N, Hq, D], k [B, M, Hkv, D], v [B, M, Hkv, Dv] -> [B, N, Hq, Dv] */
typedef enum trm_attention_form { TRM_ATTENTION_FORMS(TRM_ENUMERATOR) } trm_attention_form;

/* Positions of a layer's inputs; absent trailing inputs are left out, absent inner ones are NULL. */
enum {
    TRM_ATTENTION_Q = 0,
    TRM_ATTENTION_K,
    TRM_ATTENTION_V,
    TRM_ATTENTION_SEQUENCE_STARTS,  /* i32 [S + 1]: first token of each sequence in q, PACKED_NHD */
    TRM_ATTENTION_SEQUENCE_LENGTHS, /* i32 [S]: keys of each sequence after this step; with a cache */
    TRM_ATTENTION_BLOCK_TABLE,      /* i32 [S, blocks]: block of the cache for each run of block_size keys */
    TRM_ATTENTION_KEY_CACHE,        /* state [blocks, block_size, Hkv, D], of q's type or F8E4M3 */
    TRM_ATTENTION_VALUE_CACHE,      /* state [blocks, block_size, Hkv, Dv], of the same */
    TRM_ATTENTION_MASK,             /* PADDED forms: bool (true = attend) or float added, broadcast to [B, Hq, N, M] */
    TRM_ATTENTION_SINKS,            /* f32 [Hq]: of each head a score that takes part in the softmax, without a value */
    TRM_ATTENTION_INPUT_COUNT
};

/* Scaled dot-product attention, query head h reading key-value head h * Hkv / Hq. With a cache the layer first stores k
 * and v of the step's tokens at positions sequence_lengths[s] - queries .. sequence_lengths[s] - 1 of each sequence,
 * then attends to all sequence_lengths[s] cached keys. Without one, PACKED_NHD sequences attend to themselves. A
 * sequence with no queries is skipped. Entries of the block table past the sequence are not read. Of an F8E4M3 cache: a
 * key is stored as k * (1 / k_scale), computed in f32 and rounded to the nearest e4m3, at most +-448, and stands for
 * what is stored times k_scale, also in the step that stores it; values with v_scale likewise. A sink is compared with
 * scores as they enter the softmax: scaled, capped and masked. With n_ranks > 1: query i and key j of rank r are query
 * r N + i and key r M + j of one layer over n_ranks N and n_ranks M of them. With cache_ranks > 1 the cache has a share
 * of the keys: a block of the table is a run of cache_ranks * block_size keys, of which the cache has block_size, those
 * from cache_rank * block_size on. Only these are stored and attended to, and a second output, f32 [T, Hq], has the
 * log2 of each query's sum of weights, -infinity for a query that sees none of them; PACKED_NHD with a cache and
 * without sinks. */
typedef struct trm_attention_params {
    trm_attention_form form;
    trm_causal causal;
    int32_t window;         /* a query sees at most the last `window` keys, itself included; 0 = all */
    bool chunked;           /* keys lie in chunks of `window`, and a query sees only those of its own chunk */
    float scale;            /* scores = scale * q.k; 0 means 1/sqrt(D) */
    float softcap;          /* scores = softcap * tanh(scores / softcap); 0 = off */
    int32_t n_ranks;        /* > 1: q, k, v and the result are this rank's rows, PADDED forms only; a mask has its
                               queries and all keys. Of all ranks or the mesh's axis cp; 0 is 1 */
    float k_scale, v_scale; /* of an F8E4M3 cache, else unused: what one unit of what is stored stands for; positive,
                               with a finite reciprocal; 0 means 1 */
    int32_t cache_ranks, cache_rank; /* the share of the keys that the cache has; 0 is 1, all of them */
} trm_attention_params;

enum {
    TRM_LATENT_ATTENTION_Q = 0,
    TRM_LATENT_ATTENTION_LATENT,          /* [T, R] */
    TRM_LATENT_ATTENTION_ROPE_KEY,        /* [T, 1, P] */
    TRM_LATENT_ATTENTION_WEIGHT,          /* [H, N + Dv, R]: rows that make keys, then those that make values */
    TRM_LATENT_ATTENTION_SEQUENCE_STARTS, /* this and the next two as for ATTENTION */
    TRM_LATENT_ATTENTION_SEQUENCE_LENGTHS,
    TRM_LATENT_ATTENTION_BLOCK_TABLE,
    TRM_LATENT_ATTENTION_CACHE, /* state [blocks, block_size, R + P], of q's type */
    TRM_LATENT_ATTENTION_INPUT_COUNT
};

/* Multi-head latent attention (arXiv 2405.04434): q [T, H, N + P] and the inputs above -> [T, H, Dv]. A token's key of
 * head h is weight[h, :N] times its latent, then its rope key; its value is weight[h, N:] times its latent. The cache
 * holds latents and rope keys, which all heads share. Otherwise ATTENTION over packed sequences with a cache, causal.
 */
typedef struct trm_latent_attention_params {
    float scale; /* scores = scale * q.k; 0 means 1/sqrt(N + P) */
} trm_latent_attention_params;

#endif
