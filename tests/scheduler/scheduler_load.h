/* A load of requests for schedulers: what each gives alone, and running them under all sorts of pressure. */
#ifndef TESTS_DIST_SCHEDULER_LOAD_H
#define TESTS_DIST_SCHEDULER_LOAD_H

#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/llm/scheduler/scheduler.h"
#include "kernels/host/host.h"
#include "support/support.h"

/* A library's product may round otherwise for another number of rows, and a draw that falls between two tokens shows
 * it. These are linked in the place of the host's products in f32: the same sum whatever is beside it. */
bool __wrap_trm_host_gemv_accepts(const trm_kernel_call *call);
bool __wrap_trm_host_gemv_accepts(const trm_kernel_call *call)
{
    (void)call;
    return false;
}

/* The product of `n` neighbouring elements, always by the same sums. */
TRM_VECTOR_CLONES static float dot(const float *x, const float *y, int n)
{
    enum { LANES = 16 };
    typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
    lanes sums = {0};
    float parts[LANES];
    int l = 0;
    for (; l + LANES <= n; l += LANES) {
        lanes some_x, some_y;
        memcpy(&some_x, x + l, sizeof(lanes));
        memcpy(&some_y, y + l, sizeof(lanes));
        sums += some_x * some_y;
    }
    memcpy(parts, &sums, sizeof(parts));
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            parts[i] += parts[i + half];
        }
    }
    for (; l < n; l++) {
        parts[0] += x[l] * y[l];
    }
    return parts[0];
}

void __wrap_trm_host_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float *a,
                          int64_t lda, const float *b, int64_t ldb, bool add, float *c, int64_t ldc);
void __wrap_trm_host_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float *a,
                          int64_t lda, const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    const int64_t a_row = transpose_a ? 1 : lda, a_step = transpose_a ? lda : 1;
    const int64_t b_row = transpose_b ? ldb : 1, b_step = transpose_b ? 1 : ldb;
    for (int64_t j = 0; j < n; j++) { /* a column of b is read once */
        for (int64_t i = 0; i < m; i++) {
            const float *x = a + i * a_row, *y = b + j * b_row;
            const bool neighbours = a_step == 1 && b_step == 1;
            float sum = neighbours ? dot(x, y, (int)k) : 0.0f;
            for (int64_t l = 0; !neighbours && l < k; l++) {
                sum += x[l * a_step] * y[l * b_step];
            }
            float *to = &c[i * ldc + j];
            *to = add ? sum + *to : sum;
        }
    }
}

#define LOAD_REQUESTS 24
#define LOAD_TOKENS   96 /* of prompt and of output, each */

typedef struct load_request {
    trm_serving_request request;
    trm_logit_bias bias[2];
    int32_t prompt[LOAD_TOKENS];
    /* what came */
    int32_t tokens[LOAD_TOKENS];
    float logprobs[LOAD_TOKENS];
    trm_token_logprob top[LOAD_TOKENS]; /* the most probable of each */
    float prompt_logprobs[LOAD_TOKENS];
    int64_t n_prompt_logprobs;
    int64_t n_tokens;
    bool finished;
    trm_finish finish;
} load_request;

typedef struct load {
    load_request requests[LOAD_REQUESTS];
    int32_t n;
    int64_t words; /* of a mask */
    bool rounds;   /* where the device's products depend on the number of rows, tokens are not compared */
} load;

/* Allows what depends on the tokens so far; every other request has one token in turn, and two in every fifth, and
 * so repeats itself. */
static inline trm_status load_mask(void *user, uint64_t id, const int32_t *tokens, int64_t n_tokens, uint32_t *mask)
{
    const load *l = user;
    uint64_t state = id;
    if (id % 2 == 0) {
        memset(mask, 0, (size_t)l->words * sizeof(*mask));
        mask[0] = (n_tokens % 5 == 0 ? 3u : 1u) << (id % 7 + (uint64_t)(n_tokens % 5) * 4);
        return TRM_OK;
    }
    for (int64_t i = 0; i < n_tokens; i++) {
        state = state * 31 + (uint64_t)tokens[i];
    }
    mask[0] = (uint32_t)test_random(&state) | 1u;
    mask[1] = 0;
    return TRM_OK;
}

/* Prompts that begin with one of three texts, and go on by themselves. */
static inline void load_make(load *l, int32_t n, uint64_t *random, const int32_t *text, int32_t n_text, int32_t vocab,
                             int32_t longest, int32_t tokens)
{
    *l = (load){.n = n, .words = (vocab + 31) / 32};
    for (int32_t i = 0; i < n; i++) {
        load_request *r = &l->requests[i];
        *r = (load_request){.request = TRM_SERVING_REQUEST_INIT};
        int32_t shared = (int32_t)test_random_below(random, longest);
        int32_t own = 1 + (int32_t)test_random_below(random, longest - shared);
        int32_t from = 7 * (int32_t)test_random_below(random, 3);
        for (int32_t k = 0; k < shared + own; k++) {
            r->prompt[k] = k < shared && from + k < n_text ? text[from + k] : (int32_t)test_random_below(random, vocab);
        }
        r->request.id = 1000 + (uint64_t)i;
        r->request.prompt = r->prompt;
        r->request.n_prompt = shared + own;
        r->request.max_tokens = 1 + test_random_below(random, tokens);
        r->request.priority = (int32_t)test_random_below(random, 3);
        r->request.client = (uint64_t)test_random_below(random, 4);
        r->request.ignore_eos = true;
        r->request.sampling.base.temperature = 1.0f;
        r->request.sampling.base.seed = test_random(random);
        switch (test_random_below(random, 4)) {
        case 0:
            r->request.sampling.base.temperature = 0.0f;
            break;
        case 1:
            r->request.sampling.base = (trm_sampling){0.9f, 20, 0.9f, 0.01f, 1.3f, test_random(random)};
            break;
        case 2:
            r->request.sampling.base.temperature = 0.0f;
            r->request.sampling.base.repetition_penalty = 1.5f;
            break;
        default:
            r->request.sampling.typical_p = 0.8f;
            r->request.sampling.presence_penalty = 0.5f;
            r->request.sampling.frequency_penalty = 0.25f;
            break;
        }
        r->bias[0] = (trm_logit_bias){(int32_t)test_random_below(random, vocab), 2.0f};
        r->bias[1] = (trm_logit_bias){(int32_t)test_random_below(random, vocab), -1000.0f};
        r->request.sampling.bias = r->bias;
        r->request.sampling.n_bias = (int32_t)test_random_below(random, 3);
        r->request.logprobs = (int32_t)test_random_below(random, 4) - 1;
        r->request.prompt_logprobs = test_random_below(random, 4) == 0;
        r->request.mask = test_random_below(random, 2) == 0 ? load_mask : NULL;
        r->request.mask_user = l;
    }
}

/* The same without what keeps steps from being async: biases, penalties, masks and logprobs. */
static inline void load_make_plain(load *l)
{
    for (int32_t i = 0; i < l->n; i++) {
        trm_serving_request *r = &l->requests[i].request;
        const float temperature = i % 2 == 0 ? 0.0f : 1.0f;
        r->sampling = (trm_serving_sampling){.base = {.temperature = temperature, .seed = r->sampling.base.seed}};
        r->logprobs = r->prompt_logprobs = 0;
        r->mask = NULL;
    }
}

static inline load_request *load_find(load *l, uint64_t id)
{
    assert_true(id >= 1000 && id < 1000 + (uint64_t)l->n);
    return &l->requests[id - 1000];
}

static inline void load_take(load *l, const trm_serving_event *events, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const trm_serving_event *e = &events[i];
        load_request *r = load_find(l, e->id);
        assert_false(r->finished);
        if (e->kind == TRM_EVENT_TOKEN) {
            assert_int_equal(e->index, r->n_tokens);
            assert_true(r->n_tokens < r->request.max_tokens);
            r->logprobs[r->n_tokens] = e->logprob;
            r->top[r->n_tokens] = (trm_token_logprob){-1, 0.0f};
            assert_int_equal(e->n_top, r->request.logprobs < 0 ? 0 : r->request.logprobs);
            if (e->n_top > 0) {
                r->top[r->n_tokens] = e->top[0];
                assert_true(e->logprob <= e->top[0].logprob && e->logprob <= 0.0f);
            }
            r->tokens[r->n_tokens++] = e->token;
        } else if (e->kind == TRM_EVENT_PROMPT_TOKEN) {
            assert_int_equal(e->index, ++r->n_prompt_logprobs);
            assert_int_equal(e->token, r->prompt[e->index]);
            assert_int_equal(e->n_top, 1);
            assert_true(e->logprob <= e->top[0].logprob && e->logprob < 0.0f);
            r->prompt_logprobs[e->index] = e->logprob;
        } else if (e->kind == TRM_EVENT_FINISHED) {
            r->finished = true;
            r->finish = e->finish;
            assert_int_equal(e->n_output, r->n_tokens);
            assert_int_equal(e->n_prompt, r->request.n_prompt);
        }
    }
}

/* Whether the pool agrees with who holds what. */
static inline void load_check_blocks(const trm_scheduler *s)
{
    int32_t *holders = calloc((size_t)s->blocks.n, sizeof(*holders));
    assert_non_null(holders);
    for (int32_t i = 0; i < s->n_running; i++) {
        const trm_sequence *sequence = s->running[i];
        const int32_t *row = s->table + (size_t)sequence->slot * (size_t)s->g->blocks_per_sequence;
        for (int32_t k = 0; k < sequence->n_blocks; k++) {
            holders[row[k]]++;
        }
        assert_true(sequence->n_cached <= (int64_t)sequence->n_blocks * s->g->block_tokens);
    }
    int32_t free_blocks = 0, cached = 0, listed = 0;
    for (int32_t i = 0; i < s->blocks.n; i++) {
        assert_int_equal(holders[i], s->blocks.blocks[i].holders);
        free_blocks += holders[i] == 0;
        cached += holders[i] == 0 && s->blocks.blocks[i].serial != 0;
    }
    for (int32_t i = s->blocks.oldest; i >= 0; i = s->blocks.blocks[i].newer) {
        listed++;
    }
    assert_int_equal(free_blocks, s->blocks.n_free);
    assert_int_equal(listed, s->blocks.n_free);
    assert_int_equal(cached, s->blocks.n_cached);
    free(holders);
}

/* Runs what is live to the end. */
static inline void load_drain(trm_scheduler *s, load *l)
{
    while (trm_scheduler_has_work(s)) {
        const trm_serving_event *events;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
        load_take(l, events, n);
        load_check_blocks(s);
    }
}

/* Each request by itself. */
static inline void load_run_alone(trm_scheduler *s, load *l)
{
    for (int32_t i = 0; i < l->n; i++) {
        assert_ok(trm_scheduler_submit(s, &l->requests[i].request));
        load_drain(s, l);
        assert_int_equal(l->requests[i].finish, TRM_FINISH_LENGTH);
        assert_int_equal(l->requests[i].n_tokens, l->requests[i].request.max_tokens);
    }
}

static inline void load_forget(load *l)
{
    for (int32_t i = 0; i < l->n; i++) {
        l->requests[i].n_tokens = 0;
        l->requests[i].n_prompt_logprobs = 0;
        l->requests[i].finished = false;
    }
}

/* Those that were not cancelled are as `alone` has them; of the others what came is. */
static inline void load_compare(const load *l, const load *alone, bool cancels)
{
    for (int32_t i = 0; i < l->n; i++) {
        const load_request *r = &l->requests[i], *expected = &alone->requests[i];
        assert_true(r->finished);
        if (!cancels || r->finish != TRM_FINISH_CANCELLED) {
            assert_int_equal(r->finish, TRM_FINISH_LENGTH);
            assert_int_equal(r->n_tokens, expected->n_tokens);
            assert_int_equal(r->n_prompt_logprobs, r->request.prompt_logprobs == 0 ? 0 : r->request.n_prompt - 1);
        }
        if (!l->rounds) {
            assert_memory_equal(r->prompt_logprobs + 1, expected->prompt_logprobs + 1,
                                (size_t)r->n_prompt_logprobs * sizeof(float));
        }
        for (int64_t k = 0; k < r->n_tokens && !l->rounds; k++) {
            if (r->tokens[k] != expected->tokens[k]) {
                fail_msg("request %d: token %d is %d, alone it is %d", i, (int)k, r->tokens[k], expected->tokens[k]);
            }
            assert_memory_equal(&r->logprobs[k], &expected->logprobs[k], sizeof(float));
            assert_memory_equal(&r->top[k], &expected->top[k], sizeof(r->top[k]));
        }
    }
}

/* All of them, arriving at random, some cancelled on the way. */
static inline void load_run_together(trm_scheduler *s, load *l, const load *alone, uint64_t *random, bool cancels)
{
    int32_t next = 0;
    load_forget(l);
    while (next < l->n || trm_scheduler_has_work(s)) {
        for (int64_t arrivals = test_random_below(random, 5); arrivals > 0 && next < l->n; arrivals--) {
            assert_ok(trm_scheduler_submit(s, &l->requests[next++].request));
        }
        if (cancels && next > 0 && test_random_below(random, 8) == 0) {
            load_request *r = &l->requests[test_random_below(random, next)];
            assert_int_equal(trm_scheduler_cancel(s, r->request.id), !r->finished);
        }
        const trm_serving_event *events;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
        load_take(l, events, n);
        load_check_blocks(s);
    }
    load_compare(l, alone, cancels);
    assert_int_equal(s->n_running + s->n_waiting, 0);
    assert_int_equal(s->blocks.n_free, s->blocks.n); /* no block is lost */
}

#endif
