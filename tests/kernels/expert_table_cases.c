#include "kernels/expert_table_cases.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/moe/expert_table.h"
#include "kernels/moe/moe.h"
#include "support/device.h"
#include "support/support.h"

#define GUARD  64
#define FILLED 0xa5
#define N      3 /* tensors */

/* What a table should be, by the definition: which expert each slot holds, and the last step that used it. */
typedef struct model {
    int32_t experts, first, slots, step;
    int32_t expert_of[TRM_MOE_MOST_EXPERTS], used[TRM_MOE_MOST_EXPERTS]; /* -1: empty */
    int64_t hits, misses;
} model;

static int32_t slot_of(const model *m, int32_t expert)
{
    int32_t s = 0;
    while (s < m->slots && m->expert_of[s] != expert) {
        s++;
    }
    return s < m->slots ? s : -1;
}

static void use(model *m, int32_t expert)
{
    const int32_t slot = slot_of(m, expert);
    m->hits += m->used[slot] != m->step;
    m->used[slot] = m->step;
}

static void bring(model *m, int32_t expert)
{
    int32_t oldest = -1;
    for (int32_t s = m->slots - 1; s >= 0; s--) {
        oldest = m->used[s] < m->step && (oldest < 0 || m->used[s] <= m->used[oldest]) ? s : oldest;
    }
    assert_true(oldest >= 0);
    m->expert_of[oldest] = expert;
    m->used[oldest] = m->step;
    m->misses++;
}

static bool is_held(const model *m, int32_t id)
{
    return id >= m->first && id - m->first < m->experts;
}

static void step(model *m, const int32_t *ids, int32_t pairs, int32_t *slot_ids)
{
    m->step++;
    for (int32_t i = 0; i < pairs; i++) {
        if (is_held(m, ids[i]) && slot_of(m, ids[i] - m->first) >= 0) {
            use(m, ids[i] - m->first);
        }
    }
    for (int32_t e = 0; e < m->experts; e++) {
        bool is_used = false;
        for (int32_t i = 0; i < pairs; i++) {
            is_used = is_used || ids[i] == m->first + e;
        }
        if (is_used && slot_of(m, e) < 0) {
            bring(m, e);
        }
    }
    for (int32_t i = 0; i < pairs; i++) {
        slot_ids[i] = is_held(m, ids[i]) ? m->first + slot_of(m, ids[i] - m->first) : -1;
    }
}

/* The table and its tensors on the device. */
typedef struct fixture {
    trm_expert_table table;
    trm_expert_tensor tensors[N];
    unsigned char *expected[N]; /* [experts] of bytes */
    int32_t *ids, *slot_ids;
    void *memory, *counts, *host[N], *device[N];
} fixture;

static void *take(unsigned char **at, size_t bytes)
{
    void *taken = *at;
    *at += (bytes + 255) / 256 * 256;
    return taken;
}

static void open_table(const model *m, const size_t *bytes, uint64_t *random, fixture *f)
{
    const size_t experts = (size_t)m->experts, slots = (size_t)m->slots;
    void *memory;
    assert_ok(trm_device_alloc(test_device, (experts + 8 * slots + 64) * 16 + 4096, &memory));
    assert_ok(trm_stream_fill_zero(test_stream, memory, (experts + 8 * slots + 64) * 16 + 4096));
    assert_ok(trm_device_alloc_host(test_device, TRM_EXPERT_CLOCKS * sizeof(int64_t), &f->counts));
    unsigned char *at = f->memory = memory;
    f->table = (trm_expert_table){.experts = m->experts, .first = m->first, .slots = m->slots, .counts = f->counts};
    f->table.slot_of = take(&at, experts * sizeof(int32_t));
    f->table.expert_of = take(&at, slots * sizeof(int32_t));
    f->table.used = take(&at, slots * sizeof(int64_t));
    f->table.clock = take(&at, TRM_EXPERT_CLOCKS * sizeof(int64_t));
    f->table.missing = take(&at, (1 + 2 * slots) * sizeof(int32_t));
    f->ids = take(&at, slots * sizeof(int32_t));
    f->slot_ids = take(&at, slots * sizeof(int32_t));
    for (int32_t i = 0; i < N; i++) {
        const size_t all = experts * bytes[i];
        f->expected[i] = malloc(all);
        assert_non_null(f->expected[i]);
        for (size_t k = 0; k < all; k++) {
            f->expected[i][k] = (unsigned char)test_random_below(random, 256);
        }
        assert_ok(trm_device_alloc_host(test_device, all, &f->host[i]));
        memcpy(f->host[i], f->expected[i], all);
        assert_ok(trm_device_alloc(test_device, slots * bytes[i] + GUARD + all, &f->device[i]));
        unsigned char *slots_at = f->device[i];
        f->tensors[i] = (trm_expert_tensor){f->host[i], slots_at, bytes[i]};
        if (i == N - 1) { /* the last one stays on the device */
            unsigned char *copy = slots_at + slots * bytes[i] + GUARD;
            assert_ok(trm_stream_upload(test_stream, copy, f->expected[i], all));
            f->tensors[i].from = copy;
        }
    }
}

static void close_table(fixture *f)
{
    trm_device_free(test_device, f->memory);
    trm_device_free_host(test_device, f->counts);
    for (int32_t i = 0; i < N; i++) {
        free(f->expected[i]);
        trm_device_free_host(test_device, f->host[i]);
        trm_device_free(test_device, f->device[i]);
    }
}

/* The slots hold what the model says, and nothing behind them was written. */
static void check_slots(const model *m, const fixture *f)
{
    for (int32_t i = 0; i < N; i++) {
        const size_t bytes = f->tensors[i].bytes, all = (size_t)m->slots * bytes + GUARD;
        unsigned char *found = malloc(all);
        assert_non_null(found);
        assert_ok(trm_stream_download(test_stream, found, f->tensors[i].to, all));
        assert_ok(trm_stream_synchronize(test_stream));
        for (int32_t s = 0; s < m->slots; s++) {
            if (m->expert_of[s] >= 0) {
                assert_memory_equal(found + (size_t)s * bytes, f->expected[i] + (size_t)m->expert_of[s] * bytes, bytes);
            }
        }
        for (size_t k = all - GUARD; k < all; k++) {
            assert_int_equal(found[k], FILLED);
        }
        free(found);
    }
}

/* Steps of tokens that each choose k different experts of `ids`, more often those of low numbers. */
static void run_steps(int32_t experts, int32_t first, int32_t slots, int32_t ids, int32_t k, const size_t *bytes,
                      int32_t steps)
{
    static model m;
    fixture f;
    uint64_t random = test_seed() + (uint64_t)experts * 7919 + (uint64_t)slots;
    m = (model){.experts = experts, .first = first, .slots = slots};
    memset(m.expert_of, -1, sizeof(m.expert_of));
    open_table(&m, bytes, &random, &f);
    unsigned char guard[GUARD];
    memset(guard, FILLED, GUARD);
    for (int32_t i = 0; i < N; i++) {
        assert_ok(
            trm_stream_upload(test_stream, (unsigned char *)f.tensors[i].to + (size_t)slots * bytes[i], guard, GUARD));
    }
    for (int32_t n = 0; n < steps; n++) {
        int32_t chosen[TRM_MOE_MOST_EXPERTS], expected[TRM_MOE_MOST_EXPERTS], found[TRM_MOE_MOST_EXPERTS];
        const int32_t tokens = 1 + (int32_t)test_random_below(&random, (uint64_t)(slots / k)), pairs = tokens * k;
        for (int32_t i = 0; i < pairs; i++) {
            bool again = true;
            while (again) {
                const uint64_t below = 1 + test_random_below(&random, (uint64_t)ids);
                chosen[i] = (int32_t)test_random_below(&random, below);
                again = false;
                for (int32_t j = i / k * k; j < i; j++) {
                    again = again || chosen[j] == chosen[i];
                }
            }
        }
        step(&m, chosen, pairs, expected);
        assert_ok(trm_stream_upload(test_stream, f.ids, chosen, (size_t)pairs * sizeof(*chosen)));
        assert_ok(trm_expert_table_select(test_stream, &f.table, f.ids, pairs, f.slot_ids));
        assert_ok(trm_expert_table_fetch(test_stream, &f.table, f.tensors, N));
        assert_ok(trm_stream_download(test_stream, found, f.slot_ids, (size_t)pairs * sizeof(*found)));
        assert_ok(trm_stream_synchronize(test_stream));
        assert_memory_equal(found, expected, (size_t)pairs * sizeof(*found));
        assert_int_equal(f.table.counts[TRM_EXPERT_STEPS], m.step);
        assert_int_equal(f.table.counts[TRM_EXPERT_HITS], m.hits);
        assert_int_equal(f.table.counts[TRM_EXPERT_MISSES], m.misses);
        check_slots(&m, &f);
    }
    close_table(&f);
}

void few_experts(void **state)
{
    (void)state;
    run_steps(8, 0, 3, 8, 2, (const size_t[N]){4096, 100, 16}, 40);
    run_steps(4, 0, 1, 4, 1, (const size_t[N]){1, 3, 16384 + 16}, 20);
}

void all_slots_in_use(void **state)
{
    (void)state;
    run_steps(16, 0, 4, 16, 4, (const size_t[N]){65536 + 48, 17, 2}, 40);
    run_steps(5, 0, 5, 5, 5, (const size_t[N]){32, 32, 32}, 10);
}

void most_experts(void **state)
{
    (void)state;
    run_steps(TRM_MOE_MOST_EXPERTS, 0, 1000, TRM_MOE_MOST_EXPERTS, 8, (const size_t[N]){48, 16, 5}, 12);
    run_steps(TRM_MOE_MOST_EXPERTS, 0, 64, TRM_MOE_MOST_EXPERTS, 32, (const size_t[N]){160, 16, 5}, 12);
}

void experts_of_other_ranks(void **state)
{
    (void)state;
    run_steps(8, 16, 4, 32, 4, (const size_t[N]){512, 64, 8}, 40);
    run_steps(300, 100, 128, 512, 8, (const size_t[N]){64, 64, 8}, 20);
}

void any_table(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int32_t n = 0; n < 20; n++) {
        const int32_t experts = 2 + (int32_t)test_random_below(&random, 200);
        const int32_t slots = 1 + (int32_t)test_random_below(&random, (uint64_t)experts);
        const int32_t most = slots < TRM_MOE_MOST_CHOSEN ? slots : TRM_MOE_MOST_CHOSEN;
        const int32_t k = 1 + (int32_t)test_random_below(&random, (uint64_t)most);
        const size_t bytes[N] = {1 + test_random_below(&random, 40000), 16 * (1 + test_random_below(&random, 100)),
                                 1 + test_random_below(&random, 100)};
        run_steps(experts, 0, slots, experts, k, bytes, 8);
    }
}
