/*
 * The thread pool. One word, `state`, holds the open loop and the number of workers inside, so that a worker that
 * sleeps through a short loop never delays the caller.
 */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

/* state = loop number << 32 | CLOSED | workers inside. */
#define CLOSED         0x80000000u
#define INSIDE(state)  ((uint32_t)(state) & (CLOSED - 1))
#define NUMBER(state)  ((uint32_t)((state) >> 32))
#define IS_OPEN(state) (((state)&CLOSED) == 0)

/* How long an idle thread polls before it sleeps, by default: about the gap between two kernels of a step. It reads the
 * clock once in this many polls: a pause takes 10 to 60 ns. */
#define SPIN_MICROSECONDS 20
#define LOOKS             16
/* Pauses of a caller that waits for the last range, before it yields. */
#define SPINS 1000
/* A range is a part of what is left, so that the first are long and the last even out threads of unequal speed; at most
 * this many per thread. */
#define PART              2
#define RANGES_PER_THREAD 16

/* Words that threads poll, words that they take ranges from, and words that they only read lie in different pairs of
 * cache lines, since processors fetch two lines at a time. */
#define LINE _Alignas(128)

struct trm_pool {
    int32_t threads;      /* including the caller */
    bool may_spin;        /* every thread has a CPU */
    _Atomic int64_t spin; /* ns */
    pthread_t *workers;   /* [threads - 1] */
    int32_t n_workers;

    /* The open loop; written by the caller while no worker is inside. */
    trm_pool_fn fn;
    void *user;
    int64_t count, smallest;

    LINE _Atomic uint64_t state;
    _Atomic bool stop;
    LINE _Atomic int64_t next;
    LINE _Atomic bool taken; /* a caller is in its loop */
    _Atomic int32_t sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ns of a clock that never runs backward. */
static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void run_ranges(trm_pool *pool)
{
    int64_t begin = atomic_load_explicit(&pool->next, memory_order_relaxed);
    while (begin < pool->count) {
        const int64_t left = pool->count - begin, part = left / (PART * (int64_t)pool->threads);
        const int64_t range = part > pool->smallest ? part : pool->smallest;
        const int64_t end = left > range ? begin + range : pool->count;
        if (atomic_compare_exchange_weak_explicit(&pool->next, &begin, end, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            pool->fn(pool->user, begin, end);
            begin = atomic_load_explicit(&pool->next, memory_order_relaxed);
        }
    }
}

/* Whether there is work for a worker that last saw loop `seen`. */
static bool is_due(trm_pool *pool, uint32_t seen)
{
    uint64_t state = atomic_load(&pool->state);
    return (IS_OPEN(state) && NUMBER(state) != seen) || atomic_load(&pool->stop);
}

static void wait_until_due(trm_pool *pool, uint32_t seen)
{
    const int64_t spin = atomic_load(&pool->spin);
    for (int64_t from = spin > 0 ? now() : 0; spin > 0 && now() - from < spin;) {
        for (int32_t i = 0; i < LOOKS; i++) {
            if (is_due(pool, seen)) {
                return;
            }
            relax();
        }
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!is_due(pool, seen)) {
        pthread_cond_wait(&pool->wake, &pool->mutex);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *argument)
{
    trm_pool *pool = argument;
    uint32_t seen = 0;
    for (;;) {
        wait_until_due(pool, seen);
        if (atomic_load(&pool->stop)) {
            return NULL;
        }
        uint64_t state = atomic_load(&pool->state);
        if (!IS_OPEN(state) || NUMBER(state) == seen) {
            continue;
        }
        if (atomic_compare_exchange_strong(&pool->state, &state, state + 1)) {
            seen = NUMBER(state);
            run_ranges(pool);
            atomic_fetch_sub(&pool->state, 1);
        }
    }
}

static void wake_all(trm_pool *pool)
{
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static int32_t usable_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

trm_status trm_pool_create(int32_t threads, trm_pool **pool)
{
    if (threads < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "thread pool has %d threads, expected at least 1", threads);
    }
    trm_pool *made = aligned_alloc(_Alignof(trm_pool), sizeof(*made));
    pthread_t *workers = calloc((size_t)threads, sizeof(*workers));
    if (made == NULL || workers == NULL) {
        free(made);
        free(workers);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "thread pool of %d threads: out of host memory", threads);
    }
    memset(made, 0, sizeof(*made));
    made->threads = threads;
    made->may_spin = threads <= usable_cpus();
    trm_pool_set_spin(made, SPIN_MICROSECONDS);
    made->workers = workers;
    atomic_init(&made->state, CLOSED);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->wake, NULL);
    for (int32_t i = 0; i < threads - 1; i++) {
        int error = pthread_create(&made->workers[i], NULL, worker_main, made);
        if (error != 0) {
            trm_pool_destroy(made);
            TRM_FAIL(TRM_ERROR_INTERNAL, "thread pool: cannot start thread %d of %d (error %d)", i + 2, threads, error);
        }
        made->n_workers++;
    }
    *pool = made;
    return TRM_OK;
}

void trm_pool_destroy(trm_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    atomic_store(&pool->stop, true);
    wake_all(pool);
    for (int32_t i = 0; i < pool->n_workers; i++) {
        pthread_join(pool->workers[i], NULL);
    }
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->workers);
    free(pool);
}

int32_t trm_pool_threads(const trm_pool *pool)
{
    return pool != NULL ? pool->threads : 1;
}

void trm_pool_set_spin(trm_pool *pool, int32_t microseconds)
{
    atomic_store(&pool->spin, pool->may_spin ? (int64_t)microseconds * 1000 : 0);
}

void trm_pool_for(trm_pool *pool, int64_t count, int64_t grain, trm_pool_fn fn, void *user)
{
    if (count <= 0) {
        return;
    }
    grain = grain > 1 ? grain : 1;
    if (pool == NULL || pool->threads == 1 || count <= grain || atomic_exchange(&pool->taken, true)) {
        fn(user, 0, count);
        return;
    }
    int64_t ranges = (int64_t)pool->threads * RANGES_PER_THREAD;
    int64_t smallest = count / ranges + (count % ranges != 0);
    pool->fn = fn;
    pool->user = user;
    pool->count = count;
    pool->smallest = smallest > grain ? smallest : grain;
    atomic_store(&pool->next, 0);
    /* 0 marks "no loop seen yet", so the number skips it when it wraps. */
    uint32_t number = NUMBER(atomic_load(&pool->state)) + 1;
    number += number == 0;
    atomic_store(&pool->state, (uint64_t)number << 32);
    wake_all(pool);
    run_ranges(pool);
    uint64_t state = atomic_fetch_or(&pool->state, CLOSED);
    for (int32_t i = 0; INSIDE(state) != 0; i++) {
        if (pool->may_spin && i < SPINS) {
            relax();
        } else {
            sched_yield();
        }
        state = atomic_load(&pool->state);
    }
    atomic_store(&pool->taken, false);
}
