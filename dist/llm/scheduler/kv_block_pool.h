/*
 * The KV block pool: reference counts of cache blocks, and the index of the prefix cache.
 *
 * A block holds the keys and values of `block_tokens` tokens. A full block can be published: it can then be found by
 * its tokens and the block before it, which are compared in full, so that a hash collision is harmless. A published
 * block without holders keeps its content until memory is needed and it is the least recently released. Nothing is
 * allocated after init. The pool knows nothing of requests or the device.
 */
#ifndef TRM_DIST_LLM_SCHEDULER_KV_BLOCK_POOL_H
#define TRM_DIST_LLM_SCHEDULER_KV_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/model.h>

typedef struct trm_block {
    int32_t *tokens; /* [block_tokens] tokens of a published block */
    uint64_t serial; /* serial of its content, never reused; 0: not published */
    uint64_t parent; /* serial of the block before it in its sequence; 0: it is the first */
    int32_t holders;
    int32_t next;         /* next in its bucket, if published; -1: last */
    int32_t older, newer; /* neighbours in the free list; -1: none */
} trm_block;

typedef struct trm_kv_block_pool {
    trm_block *blocks; /* [n] */
    int32_t *buckets;  /* [n_buckets], a power of two */
    int32_t *tokens;   /* [n, block_tokens] */
    int32_t n, n_buckets, block_tokens;
    int32_t oldest, newest; /* ends of the free list, taken from the oldest */
    int32_t n_free;         /* in that list */
    int32_t n_cached;       /* published ones among them */
    uint64_t last_serial;
} trm_kv_block_pool;

trm_status trm_kv_block_pool_init(trm_kv_block_pool *blocks, int32_t n, int32_t block_tokens);
void trm_kv_block_pool_fini(trm_kv_block_pool *blocks);

/* Takes a block for new tokens, held once; needs n_free > 0. */
int32_t trm_kv_block_pool_take(trm_kv_block_pool *blocks);
/* The published block with these tokens [block_tokens] after the block with serial `parent` (0: at the start); -1
 * if there is none. */
int32_t trm_kv_block_pool_find(const trm_kv_block_pool *blocks, uint64_t parent, const int32_t *tokens);
void trm_kv_block_pool_retain(trm_kv_block_pool *blocks, int32_t block);
/* Releases a block. Release the last block of a sequence first, so that shared prefixes are kept longer. */
void trm_kv_block_pool_release(trm_kv_block_pool *blocks, int32_t block);
/* Publishes a held, full block. Returns the serial of its content; if another block has the same content, that one's.
 */
uint64_t trm_kv_block_pool_publish(trm_kv_block_pool *blocks, int32_t block, uint64_t parent, const int32_t *tokens);

#endif
