/* The KV block pool. */
#include "dist/llm/scheduler/kv_block_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- blocks that nobody holds ------------------------------------------------------------------ */

static void unlink_free(trm_kv_block_pool *b, int32_t i)
{
    trm_block *block = &b->blocks[i];
    *(block->older >= 0 ? &b->blocks[block->older].newer : &b->oldest) = block->newer;
    *(block->newer >= 0 ? &b->blocks[block->newer].older : &b->newest) = block->older;
    b->n_free--;
    b->n_cached -= block->serial != 0;
}

/* Blocks without useful content go to the end that allocation takes from. */
static void link_free(trm_kv_block_pool *b, int32_t i)
{
    trm_block *block = &b->blocks[i];
    bool cached = block->serial != 0;
    block->older = cached ? b->newest : -1;
    block->newer = cached ? -1 : b->oldest;
    *(block->older >= 0 ? &b->blocks[block->older].newer : &b->oldest) = i;
    *(block->newer >= 0 ? &b->blocks[block->newer].older : &b->newest) = i;
    b->n_free++;
    b->n_cached += cached;
}

/* ---- published blocks -------------------------------------------------------------------------- */

static int32_t *bucket_of(const trm_kv_block_pool *b, uint64_t parent, const int32_t *tokens)
{
    uint64_t h = parent * 0x9e3779b97f4a7c15ull;
    for (int32_t i = 0; i < b->block_tokens; i++) {
        h = (h ^ (uint32_t)tokens[i]) * 0xbf58476d1ce4e5b9ull;
        h ^= h >> 29;
    }
    return &b->buckets[h & (uint64_t)(b->n_buckets - 1)];
}

static void unpublish(trm_kv_block_pool *b, int32_t i)
{
    trm_block *block = &b->blocks[i];
    int32_t *at = bucket_of(b, block->parent, block->tokens);
    while (*at != i) {
        at = &b->blocks[*at].next;
    }
    *at = block->next;
    block->serial = 0;
}

int32_t trm_kv_block_pool_find(const trm_kv_block_pool *b, uint64_t parent, const int32_t *tokens)
{
    int32_t i = *bucket_of(b, parent, tokens);
    const size_t bytes = (size_t)b->block_tokens * sizeof(*tokens);
    while (i >= 0 && (b->blocks[i].parent != parent || memcmp(b->blocks[i].tokens, tokens, bytes) != 0)) {
        i = b->blocks[i].next;
    }
    return i;
}

uint64_t trm_kv_block_pool_publish(trm_kv_block_pool *b, int32_t i, uint64_t parent, const int32_t *tokens)
{
    trm_block *block = &b->blocks[i];
    assert(block->holders > 0 && block->serial == 0);
    int32_t equal = trm_kv_block_pool_find(b, parent, tokens);
    if (equal >= 0) {
        return b->blocks[equal].serial;
    }
    memcpy(block->tokens, tokens, (size_t)b->block_tokens * sizeof(*tokens));
    block->parent = parent;
    block->serial = ++b->last_serial;
    int32_t *bucket = bucket_of(b, parent, tokens);
    block->next = *bucket;
    *bucket = i;
    return block->serial;
}

/* ---- holding ----------------------------------------------------------------------------------- */

int32_t trm_kv_block_pool_take(trm_kv_block_pool *b)
{
    int32_t i = b->oldest;
    assert(i >= 0);
    unlink_free(b, i);
    if (b->blocks[i].serial != 0) {
        unpublish(b, i);
    }
    b->blocks[i].holders = 1;
    return i;
}

void trm_kv_block_pool_retain(trm_kv_block_pool *b, int32_t i)
{
    if (b->blocks[i].holders++ == 0) {
        unlink_free(b, i);
    }
}

void trm_kv_block_pool_release(trm_kv_block_pool *b, int32_t i)
{
    assert(b->blocks[i].holders > 0);
    if (--b->blocks[i].holders == 0) {
        link_free(b, i);
    }
}

trm_status trm_kv_block_pool_init(trm_kv_block_pool *b, int32_t n, int32_t block_tokens)
{
    *b = (trm_kv_block_pool){.n = n, .oldest = -1, .newest = -1, .n_buckets = 1, .block_tokens = block_tokens};
    while (b->n_buckets < n && b->n_buckets < 1 << 30) {
        b->n_buckets *= 2;
    }
    b->blocks = calloc((size_t)n + 1, sizeof(*b->blocks));
    b->buckets = malloc((size_t)b->n_buckets * sizeof(*b->buckets));
    b->tokens = calloc((size_t)n + 1, (size_t)block_tokens * sizeof(*b->tokens));
    if (b->blocks == NULL || b->buckets == NULL || b->tokens == NULL) {
        trm_kv_block_pool_fini(b);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the list of %d cache blocks", n);
    }
    memset(b->buckets, -1, (size_t)b->n_buckets * sizeof(*b->buckets));
    for (int32_t i = n - 1; i >= 0; i--) { /* so that block 0 is taken first, then its neighbours */
        b->blocks[i].tokens = b->tokens + (size_t)i * (size_t)block_tokens;
        link_free(b, i);
    }
    return TRM_OK;
}

void trm_kv_block_pool_fini(trm_kv_block_pool *b)
{
    free(b->blocks);
    free(b->buckets);
    free(b->tokens);
    *b = (trm_kv_block_pool){0};
}
