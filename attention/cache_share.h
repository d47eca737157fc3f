/*
 * The share of a sequence's keys that a cache over ranks has: of every `ranks` blocks in a row, block number `rank`.
 * Plain functions for kernels and host alike.
 */
#ifndef TRM_ATTENTION_CACHE_SHARE_H
#define TRM_ATTENTION_CACHE_SHARE_H

#include <stdint.h>

#ifdef __CUDACC__
#define TRM_CACHE_SHARE_INLINE __host__ __device__ static __forceinline__
#else
#define TRM_CACHE_SHARE_INLINE static inline
#endif

typedef struct trm_cache_share {
    int32_t ranks, rank; /* ranks: 1, all keys, or more */
    int32_t block_size;
} trm_cache_share;

/* How many of the first `keys` keys of a sequence are in the share. */
TRM_CACHE_SHARE_INLINE int32_t trm_cache_share_count(trm_cache_share share, int32_t keys)
{
    int32_t run = share.ranks * share.block_size, rest = keys % run - share.rank * share.block_size;
    return keys / run * share.block_size + (rest < 0 ? 0 : rest < share.block_size ? rest : share.block_size);
}

/* The place of key `key` among those of the share, or -1 if it is in another. */
TRM_CACHE_SHARE_INLINE int32_t trm_cache_share_place(trm_cache_share share, int32_t key)
{
    int32_t run = share.ranks * share.block_size, rest = key % run - share.rank * share.block_size;
    return rest < 0 || rest >= share.block_size ? -1 : key / run * share.block_size + rest;
}

#endif
