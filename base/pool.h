/*
 * A pool of worker threads for the host backend: one parallel loop at a time.
 */
#ifndef TRM_BASE_POOL_H
#define TRM_BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

typedef struct trm_pool trm_pool;

/* `threads` includes the caller, >= 1. */
trm_status trm_pool_create(int32_t threads, trm_pool **pool);
void trm_pool_destroy(trm_pool *pool);
int32_t trm_pool_threads(const trm_pool *pool);
/* Sets how long the pool's threads poll for the next loop before they sleep; 20 us at first. Set more for loops with
 * gaps that must start within a few microseconds on all threads. If the process has fewer CPUs than threads, they never
 * poll. From any thread, at any time; takes effect at the next wait. */
void trm_pool_set_spin(trm_pool *pool, int32_t microseconds);

/* Calls fn(user, begin, end) for disjoint ranges that cover 0 .. count - 1, each at least `grain` long except the last,
 * on the pool's threads and the caller; returns when all are done. The caller runs its loop alone if another thread's
 * loop is running, from within a loop, or if the pool is NULL. */
typedef void (*trm_pool_fn)(void *user, int64_t begin, int64_t end);
void trm_pool_for(trm_pool *pool, int64_t count, int64_t grain, trm_pool_fn fn, void *user);

#endif
