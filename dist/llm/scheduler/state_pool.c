/* The pool of slots of states by sequence. */
#include "dist/llm/scheduler/state_pool.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"

trm_status trm_state_pool_init(trm_state_pool *pool, int32_t n)
{
    *pool = (trm_state_pool){.n = n, .n_free = n};
    pool->slots = calloc((size_t)n + 1, sizeof(*pool->slots));
    if (pool->slots == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the list of %d states", n);
    }
    return TRM_OK;
}

void trm_state_pool_fini(trm_state_pool *pool)
{
    free(pool->slots);
    *pool = (trm_state_pool){0};
}

int32_t trm_state_pool_take(trm_state_pool *pool)
{
    int32_t best = -1;
    for (int32_t i = 0; i < pool->n; i++) {
        const trm_state_slot *slot = &pool->slots[i]; /* used is 0 where nothing is kept */
        if (slot->holders == 0 && (best < 0 || slot->used < pool->slots[best].used)) {
            best = i;
        }
    }
    assert(best >= 0);
    pool->slots[best] = (trm_state_slot){.holders = 1};
    pool->n_free--;
    return best;
}

void trm_state_pool_retain(trm_state_pool *pool, int32_t slot)
{
    pool->n_free -= pool->slots[slot].holders++ == 0;
    pool->slots[slot].used = ++pool->clock;
}

void trm_state_pool_release(trm_state_pool *pool, int32_t slot)
{
    assert(pool->slots[slot].holders > 0);
    pool->n_free += --pool->slots[slot].holders == 0;
}

int32_t trm_state_pool_find(const trm_state_pool *pool, uint64_t chain)
{
    for (int32_t i = 0; i < pool->n; i++) {
        if (pool->slots[i].chain == chain) {
            return i;
        }
    }
    return -1;
}

void trm_state_pool_keep(trm_state_pool *pool, int32_t slot, uint64_t chain)
{
    assert(pool->slots[slot].holders > 0 && pool->slots[slot].chain == 0);
    pool->slots[slot].chain = chain;
    pool->slots[slot].used = ++pool->clock;
}

void trm_state_pool_drop(trm_state_pool *pool, uint64_t chain)
{
    const int32_t slot = trm_state_pool_find(pool, chain);
    if (slot >= 0 && pool->slots[slot].holders == 0) {
        pool->slots[slot].chain = pool->slots[slot].used = 0;
    }
}
