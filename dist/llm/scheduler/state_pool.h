/*
 * The pool of slots of states by sequence. A running sequence has a slot. A slot that nobody holds may keep the state
 * behind a prefix, which is named by the serial of the prefix's last block, until the slot is needed and its state was
 * found or kept longest ago. Nothing is allocated after init.
 */
#ifndef TRM_DIST_LLM_SCHEDULER_STATE_POOL_H
#define TRM_DIST_LLM_SCHEDULER_STATE_POOL_H

#include <stdint.h>

#include <trireme/status.h>

typedef struct trm_state_slot {
    uint64_t chain; /* serial of the last block of the prefix behind which the state is; 0: of none */
    uint64_t used;  /* the larger, the later it was kept or found */
    int32_t holders;
} trm_state_slot;

typedef struct trm_state_pool {
    trm_state_slot *slots; /* [n] */
    int32_t n, n_free;     /* n_free: that nobody holds */
    uint64_t clock;
} trm_state_pool;

/* n may be 0: there are no states. */
trm_status trm_state_pool_init(trm_state_pool *pool, int32_t n);
void trm_state_pool_fini(trm_state_pool *pool);

/* Takes a slot for a state of its own, held once; needs n_free > 0. */
int32_t trm_state_pool_take(trm_state_pool *pool);
void trm_state_pool_retain(trm_state_pool *pool, int32_t slot);
void trm_state_pool_release(trm_state_pool *pool, int32_t slot);
/* The slot with the state behind a prefix, or -1. */
int32_t trm_state_pool_find(const trm_state_pool *pool, uint64_t chain);
/* Names the state of a held slot, which is not written from now on. */
void trm_state_pool_keep(trm_state_pool *pool, int32_t slot, uint64_t chain);
/* Forgets the state behind a prefix, unless somebody holds it. */
void trm_state_pool_drop(trm_state_pool *pool, uint64_t chain);

#endif
