/*
 * The pool of cache blocks: who holds which, and which hold tokens that may be found again.
 *
 * A block holds the keys and values of TRM_KV_BLOCK_SIZE tokens. Full ones can be published: they are then found by
 * their tokens and the block before them, compared as they are, so that no hash decides what is equal. A published
 * block that nobody holds keeps its content until it is the one that was given back the longest ago and memory is
 * needed. Nothing is allocated after init. Knows nothing of requests or the device.
 */
#ifndef TRM_DIST_LLM_SCHEDULER_KV_BLOCK_POOL_H
#define TRM_DIST_LLM_SCHEDULER_KV_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/model.h>

typedef struct trm_block {
    int32_t tokens[TRM_KV_BLOCK_SIZE]; /* of a published block */
    uint64_t serial;                   /* of its content, never used twice; 0: not published */
    uint64_t parent;                   /* serial of the block before it in its sequence; 0: it is the first */
    int32_t holders;
    int32_t next;         /* in its bucket, while published; -1: last */
    int32_t older, newer; /* in the list of blocks that nobody holds; -1: none */
} trm_block;

typedef struct trm_kv_block_pool {
    trm_block *blocks; /* [n] */
    int32_t *buckets;  /* [n_buckets], a power of two */
    int32_t n, n_buckets;
    int32_t oldest, newest; /* ends of the list of blocks that nobody holds: taken from the oldest on */
    int32_t n_free;         /* in that list */
    int32_t n_cached;       /* of them published */
    uint64_t last_serial;
} trm_kv_block_pool;

trm_status trm_kv_block_pool_init(trm_kv_block_pool *blocks, int32_t n);
void trm_kv_block_pool_fini(trm_kv_block_pool *blocks);

/* A block for new tokens, held once; there must be a free one (n_free > 0). */
int32_t trm_kv_block_pool_take(trm_kv_block_pool *blocks);
/* The published block with these tokens [TRM_KV_BLOCK_SIZE] after the block with serial `parent` (0: at the start); -1
 * if there is none. */
int32_t trm_kv_block_pool_find(const trm_kv_block_pool *blocks, uint64_t parent, const int32_t *tokens);
void trm_kv_block_pool_retain(trm_kv_block_pool *blocks, int32_t block);
/* Give back the last block of a sequence first: what comes first in more sequences is then kept longer. */
void trm_kv_block_pool_release(trm_kv_block_pool *blocks, int32_t block);
/* Lets a held, full block be found. Returns the serial of its content: if it is published already in another block,
 * that one's. */
uint64_t trm_kv_block_pool_publish(trm_kv_block_pool *blocks, int32_t block, uint64_t parent, const int32_t *tokens);

#endif
