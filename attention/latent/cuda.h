/*
 * Latent attention on CUDA: the arguments that its kernels share, and their entry points. All run the absorbed form for
 * some of the heads at a time: queries times the weights of keys, attention over latents, sums times the weights of
 * values.
 */
#ifndef TRM_ATTENTION_LATENT_CUDA_H
#define TRM_ATTENTION_LATENT_CUDA_H

#include "attention/cuda/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks of a sequence's rows and keys in cuda_hopper.cu. */
#define TRM_LATENT_ROWS 64
#define TRM_LATENT_KEYS 64
/* What that kernel is for: latents of 512 and rope keys of 64. */
#define TRM_LATENT_RANK    512
#define TRM_LATENT_ROTATED 64
/* What cuda_prefill.cu is for besides: other elements of a key, elements of a value, and sequences of more queries. */
#define TRM_LATENT_PLAIN  128
#define TRM_LATENT_VALUES 128
#define TRM_LATENT_FEW    32

/* One call for `a.query_heads` heads from `first_head` on. */
typedef struct trm_cuda_latent {
    /* The absorbed form: q [tokens, query_heads, dim] and out [tokens, query_heads, value_dim] in the workspace, f32
     * for the plain kernels, else of dtype; k: latents, v: rope keys; dim = rank + rotated, value_dim = rank. */
    trm_cuda_attention a;
    const void *q;      /* the layer's, [tokens, heads, plain + rotated] */
    const void *weight; /* [heads, plain + values, rank] */
    void *out;          /* the layer's, [tokens, heads, values] */
    int32_t heads, first_head, plain, rotated, values;
    bool constant; /* the weight may be read before the kernels before have ended */
    /* Where sequences of more than TRM_LATENT_FEW queries attend to the step's tokens in the expanded form, and to the
     * ones before in the absorbed one; else NULL: keys without their rope key and values of the step's tokens, [tokens,
     * heads, plain + values]; logs of sums of weights, [tokens, heads] and of the absorbed form [tokens, query_heads].
     */
    void *expanded;
    float *expanded_logs, *logs;
    int32_t *plan; /* [trm_cuda_latent_plan_ints(sequences)], or NULL */
    int32_t width; /* blocks that have the same keys and other rows */
    int32_t shares;
} trm_cuda_latent;

/* Of the plan: tiles of keys before each sequence's, [sequences + 1]; units in all; tiles of the longest unit. */
static inline int32_t trm_cuda_latent_plan_ints(int32_t sequences)
{
    return sequences + 3;
}
/* Blocks at most, one a multiprocessor, and bytes of the sums of units that several of them share. */
#define TRM_LATENT_BLOCKS        132
#define TRM_LATENT_PARTIAL_BYTES (sizeof(float) * TRM_LATENT_BLOCKS * 2 * TRM_LATENT_ROWS * (TRM_LATENT_RANK + 2))

#ifdef __CUDACC__
/* Whether a sequence is one of those whose queries attend to the step's tokens in the expanded form. */
static __device__ __forceinline__ bool trm_cuda_latent_is_split(const trm_cuda_latent &l, int32_t queries)
{
    return l.expanded != NULL && queries > TRM_LATENT_FEW;
}
/* The keys that a sequence has in the absorbed form. */
static __device__ __forceinline__ int32_t trm_cuda_latent_keys(const trm_cuda_latent &l, int32_t sequence,
                                                               int32_t queries)
{
    return l.a.lengths[sequence] - (trm_cuda_latent_is_split(l, queries) ? queries : 0);
}
#endif

/* cuda_store.cu: the step's latents and rope keys into the cache, and the plan if there is one. */
trm_status trm_cuda_latent_store(const trm_cuda_latent *latent, cudaStream_t stream);

/* cuda_plain.cu: any size and float type; absorbed queries and sums are f32. */
trm_status trm_cuda_latent_plain_queries(const trm_cuda_latent *latent, cudaStream_t stream);
trm_status trm_cuda_latent_plain_values(const trm_cuda_latent *latent, cudaStream_t stream);

/* cuda_product.cu: 16-bit floats; plain, rank and values multiples of 64, rotated at most 64 and a multiple of 8,
 * addresses aligned to 16 bytes. Values are joined with those of the expanded form. */
trm_status trm_cuda_latent_queries(const trm_cuda_latent *latent, cudaStream_t stream);
trm_status trm_cuda_latent_values(const trm_cuda_latent *latent, cudaStream_t stream);

/* cuda_prefill.cu: plain TRM_LATENT_PLAIN and values TRM_LATENT_VALUES, on a Hopper. */
trm_status trm_cuda_latent_prefill(const trm_cuda_latent *latent, cudaStream_t stream);

/* cuda_hopper.cu: attention over latents on a Hopper, 16-bit floats, rank TRM_LATENT_RANK, rotated TRM_LATENT_ROTATED,
 * scale > 0, blocks of a multiple of 8 keys. The first leaves units that several blocks share to the second. */
trm_status trm_cuda_latent_attention(const trm_cuda_latent *latent, cudaStream_t stream);
trm_status trm_cuda_latent_join(const trm_cuda_latent *latent, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
