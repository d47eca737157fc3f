/*
 * The CUDA attention kernels' common arguments and entry points.
 */
#ifndef TRM_ATTENTION_CUDA_ATTENTION_H
#define TRM_ATTENTION_CUDA_ATTENTION_H

#include <cuda_runtime_api.h>

#include "attention/attention_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call as every kernel sees it. Addresses are device memory; nothing is read on the host. */
typedef struct trm_cuda_attention {
    const void *q, *k, *v; /* the step's tokens */
    void *out;
    const int32_t *starts;   /* [sequences + 1], packed */
    const int32_t *lengths;  /* [sequences], cached */
    const int32_t *table;    /* [sequences, table_blocks], cached */
    void *key_cache;         /* [blocks, block_size, kv_heads, dim], cached: of dtype, or of cache_f8 */
    void *value_cache;       /* [blocks, block_size, kv_heads, value_dim] */
    const void *mask;        /* padded form, or NULL */
    const float *sinks;      /* [query_heads], or NULL */
    int64_t mask_strides[4]; /* of [B, Hq, N, M] */
    trm_dtype dtype, mask_type;
    int64_t tokens;                       /* of all sequences */
    int32_t sequences, queries, keys;     /* queries and keys of the padded form */
    int32_t query_heads, kv_heads, group; /* group: query heads per key-value head */
    int32_t dim, value_dim;
    int32_t table_blocks, block_size;
    int64_t cache_rows; /* blocks * block_size, cached */
    trm_causal causal;
    int32_t window; /* negative: chunks of -window keys */
    float scale, softcap;
    float key_inverse, value_inverse, value_scale; /* as in trm_attention_shape */
    bool packed, cached;
    bool cache_f8;      /* the cache is e4m3 */
    bool rows_first;    /* padded form with a row's heads together */
    bool shared_values; /* a value is the beginning of its key, in the key cache; plain.cu alone: q and out are f32 */
    int32_t skipped;    /* another kernel takes sequences of up to this many queries */
    int32_t splits;     /* of the keys of a sequence, in the decode kernel */
    float *logs; /* [tokens, query_heads]: log2 of a row's sum of weights; of shares and latent attention, else NULL */
    uint32_t *next_tile; /* which tile hopper.cu's kernel takes next, for the others NULL; store sets it to 0 */
    float *partial; /* [splits, sequences, query_heads, value_dim + 2] f32: sums of weighted values, maximum, sum */
    trm_cache_share share;    /* of the keys that the cache has; ranks of 0 or 1: all */
    const void *number_scale; /* short.cu: out is i8, numbers in units of this; else NULL */
    trm_dtype number_scale_type;
} trm_cuda_attention;

/* A call with addresses as the kernels see it, and whether its form, type and sizes are those of tensor cores. */
trm_cuda_attention trm_cuda_attention_of(const trm_kernel_call *call, const trm_attention_shape *shape);
bool trm_cuda_attention_uses_tensor_cores(const trm_kernel_call *call);
/* attention.c: whether the tensor core kernels run a call, the rest being the plain kernel's;
 * and a call whose keys and values are in the cache already and whose workspace begins with 4 bytes of 0, of which
 * sequences of one query are `decoded` perhaps. */
#define TRM_CUDA_COUNTER_BYTES ((size_t)256) /* of the workspace that they take */
bool trm_cuda_attention_is_fast(const trm_attention_shape *shape, trm_dtype dtype);
trm_status trm_cuda_attention_prepare_stored(const trm_kernel_call *call, bool decoded, trm_program *program);

/* cache.cu: the step's keys and values into the cache. */
trm_status trm_cuda_attention_store(const trm_cuda_attention *attention, cudaStream_t stream);

/* Whether few of a step's sequences have several queries, if any: ranks that share keys pad its tokens to a multiple of
 * their number. */
static inline bool trm_cuda_attention_is_sparse(int64_t tokens, int64_t sequences, trm_cache_share share)
{
    return tokens < sequences + (share.ranks > 1 ? share.ranks : 1);
}

/* Shares of keys are for cache.cu, plain.cu, prefill.cu, decode.cu and hopper.cu; the others take none. */

/* Sinks are for plain.cu, prefill.cu, decode.cu, hopper.cu and invariant.cu; the others take none. */

/* plain.cu: every form, type and size up to 576 per key and 512 per value. */
#define TRM_ATTENTION_PLAIN_MAX_DIM   576
#define TRM_ATTENTION_PLAIN_MAX_VALUE 512
trm_status trm_cuda_attention_plain(const trm_cuda_attention *attention, cudaStream_t stream);

/* masked_softmax.cu: weights [pairs, group * queries, keys] of the query heads of `pairs` pairs of sequence and
 * key-value head from `first` on, from their scores q k^T, which may lie in the same memory if the weights are f32.
 * Padded form. */
trm_status trm_cuda_attention_softmax(const trm_cuda_attention *attention, int64_t first, int64_t pairs,
                                      const float *scores, void *weights, cudaStream_t stream);

/* prefill.cu and decode.cu: 16-bit floats, dim == value_dim a multiple of 8 up to 256, addresses aligned to 16 bytes;
 * decode packed only. */
trm_status trm_cuda_attention_prefill(const trm_cuda_attention *attention, cudaStream_t stream);
/* hopper.cu: the same as prefill on a GPU that trm_cuda_attention_hopper_ready(), scale > 0, blocks of a multiple of 8
 * keys; padded only with rows first, as many keys as queries and no mask. */
bool trm_cuda_attention_hopper_ready(void);
trm_status trm_cuda_attention_hopper(const trm_cuda_attention *attention, cudaStream_t stream);
/* cuda/hopper/f8.cu: what hopper.cu does where the cache is e4m3. */
trm_status trm_cuda_attention_hopper_f8(const trm_cuda_attention *attention, cudaStream_t stream);
/* short.cu: the same as prefill for calls that are short: padded, up to 64 per head and 256 keys, a mask at most by
 * key. */
bool trm_cuda_attention_is_short(const trm_cuda_attention *attention);
trm_status trm_cuda_attention_short(const trm_cuda_attention *attention, cudaStream_t stream);
/* tf32.cu: f32 whose products may round their factors to TF32: padded, up to 64 per head, a multiple of 4, a mask at
 * most by key, addresses aligned to 16 bytes. */
bool trm_cuda_attention_takes_tf32(const trm_cuda_attention *attention);
trm_status trm_cuda_attention_tf32(const trm_cuda_attention *attention, cudaStream_t stream);
/* f32.cu: f32 without a cache, dim == value_dim a multiple of 4 up to 128, addresses aligned to 16 bytes. */
trm_status trm_cuda_attention_f32(const trm_cuda_attention *attention, cudaStream_t stream);
/* Sequences of exactly one query. */
trm_status trm_cuda_attention_decode(const trm_cuda_attention *attention, cudaStream_t stream);
/* Splits for these dims, the same at every length a sequence may reach. */
int32_t trm_cuda_attention_splits(const trm_attention_shape *shape);

#ifdef __cplusplus
}
#endif
#endif
