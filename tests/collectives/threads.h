/* Ranks as threads: runs a function on every communicator of a local group. */
#ifndef TESTS_COLLECTIVES_THREADS_H
#define TESTS_COLLECTIVES_THREADS_H

#include <pthread.h>

#include "collectives/communicator.h"
#include "support/support.h"

typedef void (*rank_fn)(trm_communicator *communicator, void *user);

typedef struct rank_thread {
    pthread_t thread;
    rank_fn fn;
    trm_communicator *communicator;
    void *user;
} rank_thread;

static inline void *run_rank(void *argument)
{
    rank_thread *rank = argument;
    rank->fn(rank->communicator, rank->user);
    return NULL;
}

/* user of rank r is users + r * stride. */
static inline void run_ranks(int32_t n, double deadline, rank_fn fn, void *users, size_t stride)
{
    trm_communicator *communicators[TRM_MAX_RANKS];
    rank_thread ranks[TRM_MAX_RANKS];
    assert_ok(trm_communicator_local_create(n, deadline, communicators));
    for (int32_t r = 0; r < n; r++) {
        ranks[r] = (rank_thread){0, fn, communicators[r], (char *)users + (size_t)r * stride};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < n; r++) {
        pthread_join(ranks[r].thread, NULL);
    }
    for (int32_t r = 0; r < n; r++) {
        trm_communicator_destroy(communicators[r]);
    }
}

#endif
