#include "kernels/expert_table_cases.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/element.h"
#include "kernels/moe/expert_table.h"
#include "kernels/moe/moe.h"
#include "support/device.h"
#include "support/support.h"

#define GUARD  64
#define FILLED 0xa5
#define N      3 /* tensors */
/* A mailbox's rows and answers. */
#define X_BYTES 80
#define ANSWER  1030
#define WORDS   (TRM_EXPERT_MOST_PAIRS * X_BYTES / 4)

/* What a table should be, by the definition: which expert each slot holds, and the last step that used it. */
typedef struct model {
    int32_t experts, first, slots, step;
    int32_t expert_of[TRM_MOE_MOST_EXPERTS], used[TRM_MOE_MOST_EXPERTS]; /* -1: empty */
    int32_t last[TRM_MOE_MOST_EXPERTS];                                  /* step that used an expert */
    int64_t uses[TRM_MOE_MOST_EXPERTS];                                  /* steps that did */
    bool hosted[TRM_MOE_MOST_EXPERTS];                                   /* by the last step */
    const int32_t *shares;                                               /* NULL: nothing is for the CPU */
    int64_t hits, misses, n_hosted;
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

static int32_t find_oldest(const model *m)
{
    int32_t oldest = -1;
    for (int32_t s = m->slots - 1; s >= 0; s--) {
        oldest = m->used[s] < m->step && (oldest < 0 || m->used[s] <= m->used[oldest]) ? s : oldest;
    }
    return oldest;
}

static void bring(model *m, int32_t expert)
{
    const int32_t oldest = find_oldest(m);
    assert_true(oldest >= 0);
    m->expert_of[oldest] = expert;
    m->used[oldest] = m->step;
    m->misses++;
}

static bool is_held(const model *m, int32_t id)
{
    return id >= m->first && id - m->first < m->experts;
}

/* Gives the CPU its share of the missing experts: those that were used least recently, the highest first, except what
 * comes back soon. */
static void leave_to_cpu(model *m, const bool *missing)
{
    int32_t left = 0;
    const int32_t oldest = find_oldest(m);
    for (int32_t e = 0; e < m->experts; e++) {
        left += missing[e];
    }
    bool seen[TRM_MOE_MOST_EXPERTS] = {false};
    for (int32_t n = m->shares[left]; n > 0; n--) {
        int32_t least = -1;
        for (int32_t e = m->experts - 1; e >= 0; e--) {
            least = missing[e] && !seen[e] && (least < 0 || m->last[e] < m->last[least]) ? e : least;
        }
        seen[least] = true;
        m->hosted[least] = oldest < 0 || 16 * (m->step - m->last[least]) >= m->step - m->used[oldest];
        m->n_hosted += m->hosted[least];
    }
}

static void step(model *m, const int32_t *ids, int32_t pairs, int32_t *slot_ids)
{
    bool missing[TRM_MOE_MOST_EXPERTS] = {false};
    m->step++;
    memset(m->hosted, 0, sizeof(m->hosted));
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
        missing[e] = is_used && slot_of(m, e) < 0;
        m->uses[e] += is_used;
    }
    if (m->shares != NULL) {
        leave_to_cpu(m, missing);
    }
    for (int32_t e = 0; e < m->experts; e++) {
        if (missing[e] && !m->hosted[e]) {
            bring(m, e);
        }
    }
    for (int32_t i = 0; i < pairs; i++) {
        const int32_t slot = is_held(m, ids[i]) ? slot_of(m, ids[i] - m->first) : -1;
        slot_ids[i] = slot >= 0 ? m->first + slot : -1;
        m->last[is_held(m, ids[i]) ? ids[i] - m->first : 0] = is_held(m, ids[i]) ? m->step : m->last[0];
    }
}

/* The table and its tensors on the device. */
typedef struct fixture {
    trm_expert_table table;
    trm_expert_tensor tensors[N];
    unsigned char *expected[N]; /* [experts] of bytes */
    trm_expert_mailbox box;
    int32_t *ids, *slot_ids;
    float *weights;           /* [slots] of the router */
    void *x, *y;              /* rows of X_BYTES, and what is added to */
    trm_expert_supply supply; /* demand NULL: all experts lie in host memory */
    void *supplied;           /* [experts] in host memory, in the order of a demand, from the last on */
    size_t supplied_bytes;    /* of each */
    int32_t lost;             /* expert that cannot be read; -1: none */
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
    const size_t all_bytes = (experts * 3 + 8 * slots + 64) * 16 + 8192 + WORDS * 4 + ANSWER * 4;
    assert_ok(trm_device_alloc(test_device, all_bytes, &memory));
    assert_ok(trm_stream_fill_zero(test_stream, memory, all_bytes));
    assert_ok(trm_device_alloc_host(test_device, TRM_EXPERT_CLOCKS * sizeof(int64_t), &f->counts));
    unsigned char *at = f->memory = memory;
    f->table = (trm_expert_table){.experts = m->experts, .first = m->first, .slots = m->slots, .counts = f->counts};
    f->table.slot_of = take(&at, experts * sizeof(int32_t));
    f->table.expert_of = take(&at, slots * sizeof(int32_t));
    f->table.used = take(&at, slots * sizeof(int64_t));
    f->table.clock = take(&at, TRM_EXPERT_CLOCKS * sizeof(int64_t));
    f->table.missing = take(&at, (1 + 2 * slots) * sizeof(int32_t));
    f->table.last = take(&at, experts * sizeof(int64_t));
    f->table.uses = take(&at, experts * sizeof(int64_t));
    if (m->shares != NULL) {
        int32_t *shares = take(&at, (1 + slots) * sizeof(int32_t));
        assert_ok(trm_stream_upload(test_stream, shares, m->shares, (1 + slots) * sizeof(int32_t)));
        f->table.shares = shares;
    }
    f->weights = take(&at, slots * sizeof(float));
    f->x = take(&at, WORDS * 4);
    f->y = take(&at, ANSWER * 4);
    f->box.sent = take(&at, 3 * sizeof(int64_t));
    void *shared;
    assert_ok(trm_device_alloc_host(test_device, sizeof(trm_expert_mail), &shared));
    f->box.mail = memset(shared, 0, sizeof(trm_expert_mail));
    assert_ok(trm_device_alloc_host(test_device, WORDS * 4, &f->box.x));
    assert_ok(trm_device_alloc_host(test_device, ANSWER * 4, &shared));
    f->box.y = shared;
    f->box.limit = 20000000;
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
        f->tensors[i] = (trm_expert_tensor){f->host[i], slots_at, bytes[i], 0};
        if (i == N - 1) { /* the last one stays on the device */
            unsigned char *copy = slots_at + slots * bytes[i] + GUARD;
            assert_ok(trm_stream_upload(test_stream, copy, f->expected[i], all));
            f->tensors[i].from = copy;
        }
    }
}

/* Answers a demand: brings its experts to other places than the last time, the last one first. */
static void serve(void *user)
{
    fixture *f = user;
    trm_expert_demand *demand = f->supply.demand;
    const int64_t number = __atomic_load_n(&demand->posted, __ATOMIC_ACQUIRE);
    for (int32_t j = demand->n - 1; j >= 0; j--) {
        const int32_t expert = demand->experts[j], place = (int32_t)((j + number) % f->table.experts);
        unsigned char *at = (unsigned char *)f->supplied + (size_t)place * f->supplied_bytes;
        for (int32_t i = 0; i < N - 1; i++) {
            memcpy(at + f->tensors[i].offset, f->expected[i] + (size_t)expert * f->tensors[i].bytes,
                   f->tensors[i].bytes);
        }
        demand->found[j].at = expert == f->lost ? NULL : at;
        __atomic_store_n(&demand->found[j].number, number, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&demand->done, number, __ATOMIC_RELEASE);
}

static atomic_bool stops;

static void *serve_all(void *user)
{
    const fixture *f = user;
    int64_t served = 0;
    while (!atomic_load(&stops)) {
        if (__atomic_load_n(&f->supply.demand->posted, __ATOMIC_ACQUIRE) != served) {
            served = f->supply.demand->posted;
            serve(user);
        }
    }
    return NULL;
}

/* Lets the host supply all tensors but the last one, which stays on the device. */
static void open_supply(fixture *f)
{
    void *memory;
    f->lost = -1;
    for (int32_t i = 0; i < N - 1; i++) {
        f->tensors[i].from = NULL;
        f->tensors[i].offset = f->supplied_bytes;
        f->supplied_bytes += (f->tensors[i].bytes + 15) / 16 * 16;
    }
    assert_ok(trm_device_alloc_host(test_device, (size_t)f->table.experts * f->supplied_bytes, &f->supplied));
    assert_ok(trm_device_alloc_host(test_device, sizeof(trm_expert_demand), &memory));
    f->supply = (trm_expert_supply){
        .demand = memset(memory, 0, sizeof(trm_expert_demand)), .sent = f->box.sent, .limit = (int64_t)20000000000};
}

static void close_table(fixture *f)
{
    trm_device_free_host(test_device, f->supplied);
    trm_device_free_host(test_device, f->supply.demand);
    trm_device_free(test_device, f->memory);
    trm_device_free_host(test_device, f->counts);
    trm_device_free_host(test_device, f->box.mail);
    trm_device_free_host(test_device, f->box.x);
    trm_device_free_host(test_device, f->box.y);
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

/* Chooses k different experts of `ids` for each token, more often those of low numbers. */
static void choose(int32_t tokens, int32_t k, int32_t ids, uint64_t *random, int32_t *chosen)
{
    for (int32_t i = 0; i < tokens * k; i++) {
        bool again = true;
        while (again) {
            const uint64_t below = 1 + test_random_below(random, (uint64_t)ids);
            chosen[i] = (int32_t)test_random_below(random, below);
            again = false;
            for (int32_t j = i / k * k; j < i; j++) {
                again = again || chosen[j] == chosen[i];
            }
        }
    }
}

/* The request of a step has what the model says; answers it, and checks what is added. */
static void answer(const model *m, const fixture *f, const int32_t *chosen, int32_t tokens, int32_t k,
                   const float *weights, const uint32_t *x, trm_dtype type)
{
    trm_expert_mail *mail = f->box.mail;
    bool any = false;
    const int64_t before = mail->done;
    for (int32_t i = 0; i < tokens * k; i++) {
        const bool is_hosted = is_held(m, chosen[i]) && m->hosted[chosen[i] - m->first];
        any = any || is_hosted;
        if (mail->posted > before) {
            assert_int_equal(mail->ids[i], is_hosted ? chosen[i] : -1);
            assert_memory_equal(&mail->weights[i], &weights[i], sizeof(float));
        }
    }
    assert_int_equal(mail->posted, before + any);
    float expected[ANSWER];
    if (any) {
        assert_int_equal(mail->layer, 5);
        assert_int_equal(mail->tokens, tokens);
        assert_int_equal(mail->k, k);
        assert_memory_equal(f->box.x, x, (size_t)tokens * X_BYTES);
        mail->done = mail->posted;
    }
    assert_ok(trm_stream_fill_zero(test_stream, f->y, ANSWER * 4));
    for (int32_t i = 0; i < ANSWER; i++) {
        f->box.y[i] = (float)(i % 100 - 50);
        expected[i] = 0;
        trm_element_store_f32(type, expected, i, any && i < ANSWER - 4 ? f->box.y[i] : 0.0f);
    }
    assert_ok(trm_expert_table_add(test_stream, &f->box, type, f->y, ANSWER - 4));
    float found[ANSWER];
    const size_t bytes = ANSWER * trm_dtype_size(type);
    assert_ok(trm_stream_download(test_stream, found, f->y, bytes));
    assert_ok(trm_stream_synchronize(test_stream));
    assert_memory_equal(found, expected, bytes);
    assert_int_equal(mail->late, 0);
}

/* Steps of tokens. With shares [1 + slots], the CPU gets as many of the missing experts. */
static void run_shared_steps(int32_t experts, int32_t first, int32_t slots, int32_t ids, int32_t k, const size_t *bytes,
                             int32_t steps, const int32_t *shares)
{
    static model m;
    static uint32_t x[WORDS];
    static float weights[TRM_MOE_MOST_EXPERTS];
    fixture f = {0};
    uint64_t random = test_seed() + (uint64_t)experts * 7919 + (uint64_t)slots;
    m = (model){.experts = experts, .first = first, .slots = slots, .shares = shares};
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
        choose(tokens, k, ids, &random, chosen);
        step(&m, chosen, pairs, expected);
        for (int32_t i = 0; i < (shares != NULL ? tokens * X_BYTES / 4 : 0); i++) {
            x[i] = (uint32_t)test_random(&random);
        }
        for (int32_t i = 0; i < pairs; i++) {
            weights[i] = test_random_float(&random);
        }
        assert_ok(trm_stream_upload(test_stream, f.ids, chosen, (size_t)pairs * sizeof(*chosen)));
        assert_ok(trm_stream_upload(test_stream, f.weights, weights, (size_t)pairs * sizeof(*weights)));
        assert_ok(trm_stream_upload(test_stream, f.x, x, shares != NULL ? (size_t)tokens * X_BYTES : 4));
        const trm_expert_post post = {&f.box, 5, tokens, k, f.weights, f.x, (size_t)tokens * X_BYTES};
        assert_ok(
            trm_expert_table_select(test_stream, &f.table, f.ids, pairs, f.slot_ids, shares != NULL ? &post : NULL));
        assert_ok(trm_expert_table_fetch(test_stream, &f.table, f.tensors, N, NULL, 0));
        assert_ok(trm_stream_download(test_stream, found, f.slot_ids, (size_t)pairs * sizeof(*found)));
        assert_ok(trm_stream_synchronize(test_stream));
        assert_memory_equal(found, expected, (size_t)pairs * sizeof(*found));
        assert_int_equal(f.table.counts[TRM_EXPERT_STEPS], m.step);
        assert_int_equal(f.table.counts[TRM_EXPERT_HITS], m.hits);
        assert_int_equal(f.table.counts[TRM_EXPERT_MISSES], m.misses);
        assert_int_equal(f.table.counts[TRM_EXPERT_HOSTED], m.n_hosted);
        check_slots(&m, &f);
        if (shares != NULL) {
            answer(&m, &f, chosen, tokens, k, weights, x, (const trm_dtype[]){TRM_F32, TRM_F16, TRM_BF16}[n % 3]);
        }
    }
    assert_true(shares == NULL || m.n_hosted > 0);
    int64_t uses[TRM_MOE_MOST_EXPERTS];
    assert_ok(trm_stream_download(test_stream, uses, f.table.uses, (size_t)experts * sizeof(*uses)));
    assert_ok(trm_stream_synchronize(test_stream));
    assert_memory_equal(uses, m.uses, (size_t)experts * sizeof(*uses));
    close_table(&f);
}

static void run_steps(int32_t experts, int32_t first, int32_t slots, int32_t ids, int32_t k, const size_t *bytes,
                      int32_t steps)
{
    run_shared_steps(experts, first, slots, ids, k, bytes, steps, NULL);
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

void experts_for_the_cpu(void **state)
{
    (void)state;
    int32_t shares[TRM_EXPERT_MOST_PAIRS + 1];
    for (int32_t i = 0; i <= TRM_EXPERT_MOST_PAIRS; i++) {
        shares[i] = i * 2 / 3;
    }
    run_shared_steps(8, 0, 4, 8, 2, (const size_t[N]){4096, 100, 16}, 60, shares);
    run_shared_steps(128, 0, 29, 128, 4, (const size_t[N]){96, 16, 5}, 200, shares);
    run_shared_steps(40, 16, 24, 64, 8, (const size_t[N]){512, 64, 8}, 100, shares);
    run_shared_steps(TRM_MOE_MOST_EXPERTS, 0, 256, TRM_MOE_MOST_EXPERTS, 32, (const size_t[N]){48, 16, 5}, 20, shares);
    for (int32_t i = 0; i <= TRM_EXPERT_MOST_PAIRS; i++) {
        shares[i] = i; /* all, but what comes back */
    }
    run_shared_steps(24, 0, 8, 24, 4, (const size_t[N]){96, 16, 5}, 300, shares);
}

/* The device waits no longer than the limit, and leaves nothing to the CPU before that has answered. */
void late_answers(void **state)
{
    (void)state;
    const int32_t shares[] = {0, 1, 2, 3, 4};
    model m = {.experts = 32, .slots = 4, .shares = shares};
    fixture f = {0};
    uint64_t random = test_seed();
    open_table(&m, (const size_t[N]){64, 16, 4}, &random, &f);
    const trm_expert_post post = {&f.box, 5, 1, 2, f.weights, f.x, X_BYTES};
    assert_ok(trm_stream_fill_zero(test_stream, f.y, ANSWER * 4));
    for (int32_t n = 0; n < 3; n++) { /* is late, is still late, has answered */
        const int32_t chosen[] = {10 + 2 * n, 11 + 2 * n};
        if (n == 2) {
            f.box.mail->done = f.box.mail->posted;
            f.box.mail->late = 0;
        }
        assert_ok(trm_stream_upload(test_stream, f.ids, chosen, sizeof(chosen)));
        assert_ok(trm_expert_table_select(test_stream, &f.table, f.ids, 2, f.slot_ids, &post));
        assert_ok(trm_expert_table_fetch(test_stream, &f.table, f.tensors, N, NULL, 0));
        assert_ok(trm_stream_synchronize(test_stream));
        assert_int_equal(f.box.mail->posted, n < 2 ? 1 : 2);
        assert_int_equal(f.table.counts[TRM_EXPERT_MISSES], n == 0 ? 0 : 2);
        f.box.y[0] = 1.0f;
        f.box.mail->done = n == 2 ? f.box.mail->posted : f.box.mail->done;
        assert_ok(trm_expert_table_add(test_stream, &f.box, TRM_F32, f.y, 1));
        float y;
        assert_ok(trm_stream_download(test_stream, &y, f.y, sizeof(y)));
        assert_ok(trm_stream_synchronize(test_stream));
        assert_true(y == (n == 2 ? 1.0f : 0.0f));
        assert_int_equal(f.box.mail->late, n < 2);
    }
    close_table(&f);
}

/* Experts that the host supplies; one that it cannot read leaves its slot empty. */
void supplied_experts(void **state)
{
    (void)state;
    static const int32_t sizes[][4] = {{8, 3, 2, 40}, {128, 24, 8, 60}, {TRM_MOE_MOST_EXPERTS, 512, 32, 10}};
    uint64_t random = test_seed();
    for (size_t c = 0; c < sizeof(sizes) / sizeof(sizes[0]); c++) {
        const int32_t experts = sizes[c][0], slots = sizes[c][1], k = sizes[c][2];
        static model m;
        fixture f = {0};
        pthread_t thread;
        m = (model){.experts = experts, .slots = slots};
        memset(m.expert_of, -1, sizeof(m.expert_of));
        open_table(&m, (const size_t[N]){c == 1 ? 40000 : 48, 100, 5}, &random, &f);
        unsigned char guard[GUARD];
        memset(guard, FILLED, GUARD);
        for (int32_t i = 0; i < N; i++) {
            unsigned char *behind = (unsigned char *)f.tensors[i].to + (size_t)slots * f.tensors[i].bytes;
            assert_ok(trm_stream_upload(test_stream, behind, guard, GUARD));
        }
        open_supply(&f);
        const bool at_once = trm_device_backend(test_device) == TRM_BACKEND_HOST;
        f.supply.serve = at_once ? serve : NULL;
        f.supply.server = &f;
        atomic_store(&stops, false);
        assert_int_equal(at_once ? 0 : pthread_create(&thread, NULL, serve_all, &f), 0);
        for (int32_t n = 0; n < sizes[c][3]; n++) {
            int32_t chosen[TRM_MOE_MOST_EXPERTS], expected[TRM_MOE_MOST_EXPERTS], found[TRM_MOE_MOST_EXPERTS];
            const int32_t tokens = 1 + (int32_t)test_random_below(&random, (uint64_t)(slots / k)), pairs = tokens * k;
            choose(tokens, k, experts, &random, chosen);
            f.lost = n % 4 == 3 ? chosen[0] : -1;
            const int64_t before = f.supply.demand->posted, misses = m.misses;
            const bool was_lost = f.lost >= 0 && slot_of(&m, f.lost) < 0;
            step(&m, chosen, pairs, expected);
            assert_ok(trm_stream_upload(test_stream, f.ids, chosen, (size_t)pairs * sizeof(*chosen)));
            assert_ok(trm_expert_table_select(test_stream, &f.table, f.ids, pairs, f.slot_ids, NULL));
            assert_ok(trm_expert_table_fetch(test_stream, &f.table, f.tensors, N, &f.supply, 7));
            assert_ok(trm_stream_download(test_stream, found, f.slot_ids, (size_t)pairs * sizeof(*found)));
            assert_ok(trm_stream_synchronize(test_stream));
            assert_memory_equal(found, expected, (size_t)pairs * sizeof(*found));
            assert_int_equal(f.supply.demand->posted, before + (m.misses > misses));
            assert_int_equal(f.supply.demand->late, 0);
            if (was_lost) {
                const int32_t slot = slot_of(&m, f.lost);
                m.expert_of[slot] = -1;
                m.used[slot] = 0;
            }
            if (m.misses > misses) {
                assert_int_equal(f.supply.demand->n, m.misses - misses);
                assert_int_equal(f.supply.demand->layer, 7);
            }
            check_slots(&m, &f);
        }
        atomic_store(&stops, true);
        assert_int_equal(at_once ? 0 : pthread_join(thread, NULL), 0);
        close_table(&f);
    }
}

/* The device waits no longer than the limit for an expert; its slot stays empty, and nothing is demanded before the
 * host has answered. */
void late_experts(void **state)
{
    (void)state;
    model m = {.experts = 32, .slots = 4};
    fixture f = {0};
    uint64_t random = test_seed();
    open_table(&m, (const size_t[N]){64, 16, 4}, &random, &f);
    open_supply(&f);
    f.supply.limit = 20000000;
    for (int32_t n = 0; n < 4; n++) { /* is late, is still late, is asked again and late, and answered */
        const int32_t chosen[] = {10 + n / 3, 20};
        int32_t slot[2] = {0};
        if (n >= 2) {
            f.supply.demand->done = f.supply.demand->posted;
        }
        f.supply.serve = n == 3 && trm_device_backend(test_device) == TRM_BACKEND_HOST ? serve : NULL;
        f.supply.server = &f;
        f.supply.demand->late = 0;
        assert_ok(trm_stream_upload(test_stream, f.ids, chosen, sizeof(chosen)));
        assert_ok(trm_expert_table_select(test_stream, &f.table, f.ids, 2, f.slot_ids, NULL));
        f.supply.limit = n == 3 ? (int64_t)20000000000 : f.supply.limit;
        assert_ok(trm_expert_table_fetch(test_stream, &f.table, f.tensors, N, &f.supply, 0));
        while (n == 3 && f.supply.serve == NULL && __atomic_load_n(&f.supply.demand->posted, __ATOMIC_ACQUIRE) != 3) {
        }
        if (n == 3 && f.supply.serve == NULL) {
            serve(&f);
        }
        assert_ok(trm_stream_download(test_stream, slot, f.table.slot_of + 10, sizeof(slot)));
        assert_ok(trm_stream_synchronize(test_stream));
        assert_int_equal(f.supply.demand->posted, n < 2 ? 1 : n);
        assert_int_equal(f.supply.demand->late, n < 3);
        assert_int_equal(f.table.counts[TRM_EXPERT_HITS], 0);
        assert_int_equal(slot[0], 0);
        assert_int_equal(slot[1] > 0, n == 3);
    }
    close_table(&f);
}
