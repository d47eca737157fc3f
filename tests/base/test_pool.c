/* The thread pool: every index once, at every size, and again after threads have gone to sleep. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "support/support.h"

#include "base/pool.h"

#define MAX_COUNT 100000

static _Atomic int visits[MAX_COUNT];

typedef struct loop {
    int64_t count, grain;
    _Atomic int bad_ranges;
} loop;

static void visit(void *user, int64_t begin, int64_t end)
{
    loop *l = user;
    if (begin >= end || end > l->count || (end - begin < l->grain && end != l->count)) {
        l->bad_ranges++;
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        visits[i]++;
    }
}

static void run_loop(trm_pool *pool, int64_t count, int64_t grain)
{
    loop l = {.count = count, .grain = grain};
    for (int64_t i = 0; i < count; i++) {
        visits[i] = 0;
    }
    trm_pool_for(pool, count, grain, visit, &l);
    assert_int_equal(l.bad_ranges, 0);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(visits[i], 1);
    }
}

static void covers_every_index_once(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 65, 1000, 4097, MAX_COUNT};
    static const int64_t grains[] = {0, 1, 2, 100, 5000, MAX_COUNT * 2};
    for (int32_t threads = 0; threads <= 5; threads++) {
        trm_pool *pool = NULL;
        if (threads > 0) {
            assert_ok(trm_pool_create(threads, &pool));
        }
        assert_int_equal(trm_pool_threads(pool), threads > 0 ? threads : 1);
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            for (size_t g = 0; g < sizeof(grains) / sizeof(grains[0]); g++) {
                run_loop(pool, counts[c], grains[g]);
            }
        }
        trm_pool_destroy(pool);
    }
}

static void many_short_loops(void **state)
{
    (void)state;
    for (int32_t threads = 2; threads <= 4; threads++) {
        trm_pool *pool = NULL;
        assert_ok(trm_pool_create(threads, &pool));
        for (int i = 0; i < 5000; i++) {
            run_loop(pool, 1 + i % 17, 1);
            if (i % 1000 == 0) {
                usleep(2000); /* lets the workers fall asleep */
            }
        }
        trm_pool_destroy(pool);
    }
}

/* Threads that poll for long, that never do, and that change in between. */
static void polls_as_told(void **state)
{
    (void)state;
    trm_pool *pool = NULL;
    assert_ok(trm_pool_create(2, &pool));
    for (int i = 0; i < 60; i++) {
        trm_pool_set_spin(pool, i % 3 == 0 ? 0 : i % 3 == 1 ? 300 : 100000);
        run_loop(pool, 1 + i % 17, 1);
        usleep(i % 2 == 0 ? 0 : 200);
        run_loop(pool, 1 + i % 17, 1);
    }
    trm_pool_destroy(pool);
}

static void wait_for_other(void *user, int64_t begin, int64_t end)
{
    _Atomic int *arrived = user;
    *arrived += (int)(end - begin);
    /* Each range waits for the other: only two threads at once can get through. */
    for (int64_t i = 0; i < 600000 && *arrived < 2; i++) {
        usleep(100);
    }
}

static void runs_at_the_same_time(void **state)
{
    (void)state;
    trm_pool *pool = NULL;
    assert_ok(trm_pool_create(2, &pool));
    _Atomic int arrived = 0;
    trm_pool_for(pool, 2, 1, wait_for_other, &arrived);
    assert_int_equal(arrived, 2);
    trm_pool_destroy(pool);
}

typedef struct shared {
    trm_pool *pool;
    _Atomic int64_t sum;
    bool nested;
} shared;

static void add_range(void *user, int64_t begin, int64_t end)
{
    shared *s = user;
    for (int64_t i = begin; i < end; i++) {
        if (s->nested) {
            shared inner = {.pool = s->pool};
            trm_pool_for(s->pool, 10, 1, add_range, &inner);
            s->sum += inner.sum;
        } else {
            s->sum += i;
        }
    }
}

static void *loop_many_times(void *user)
{
    shared *mine = user;
    for (int i = 0; i < 5000; i++) {
        trm_pool_for(mine->pool, 100, 1, add_range, mine);
    }
    return NULL;
}

/* Loops of two threads, and loops within loops, are each complete. */
static void is_shared(void **state)
{
    (void)state;
    shared a = {.sum = 0}, b = {.sum = 0}, nested = {.nested = true};
    assert_ok(trm_pool_create(3, &a.pool));
    b.pool = nested.pool = a.pool;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, loop_many_times, &b), 0);
    loop_many_times(&a);
    pthread_join(thread, NULL);
    assert_int_equal(a.sum, 5000 * 4950);
    assert_int_equal(b.sum, 5000 * 4950);
    trm_pool_for(a.pool, 100, 1, add_range, &nested);
    assert_int_equal(nested.sum, 100 * 45);
    trm_pool_destroy(a.pool);
}

static void refuses_no_threads(void **state)
{
    (void)state;
    trm_pool *pool = NULL;
    assert_fails(trm_pool_create(0, &pool), TRM_ERROR_INVALID_ARGUMENT, "has 0 threads");
    assert_null(pool);
    trm_pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers_every_index_once),
        cmocka_unit_test(many_short_loops),
        cmocka_unit_test(polls_as_told),
        cmocka_unit_test(runs_at_the_same_time),
        cmocka_unit_test(is_shared),
        cmocka_unit_test(refuses_no_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
