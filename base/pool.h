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
/* How long the pool's threads poll for the next loop before they sleep: 20 us at first. Longer for loops with gaps that
 * must begin within a few microseconds on all threads. Where the process has fewer CPUs than threads they never poll.
 * From any thread, at any time; it holds from the next wait on. */
void trm_pool_set_spin(trm_pool *pool, int32_t microseconds);

/* Calls fn(user, begin, end) over disjoint ranges that cover 0 .. count - 1, each at least `grain` long but
 * for the last, on the pool's threads and the caller's; returns when all are done. While another thread's loop is
 * running, or from within one, the caller does its loop alone. NULL pool: the caller alone. */
typedef void (*trm_pool_fn)(void *user, int64_t begin, int64_t end);
void trm_pool_for(trm_pool *pool, int64_t count, int64_t grain, trm_pool_fn fn, void *user);

#endif
