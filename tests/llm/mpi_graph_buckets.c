/*
 * Steps with prompts, launched layer by layer at first and captured once their forms come up again: the same tokens and
 * logprobs. Decode steps that are ahead of the host: the same tokens as without. On the host, where nothing is
 * captured, steps are padded all the same.
 */
#include "support/support.h"

#include "support/test_prompts.h"
#include "dist/llm/scheduler/scheduler.h"
#include "support/split.h"
#include "support/world.h"

enum { REQUESTS = 20, OUTPUT = 12, RUNS = 5, MOST_PROMPT = 60 };

typedef struct result {
    int32_t tokens[REQUESTS][OUTPUT];
    float logprobs[REQUESTS][OUTPUT];
    int32_t n[REQUESTS];
    int32_t mixed, captured; /* steps */
} result;

static trm_serving_request request_of(int32_t i, bool full)
{
    trm_serving_request r = TRM_SERVING_REQUEST_INIT;
    r.id = (uint64_t)i;
    r.prompt = genesis_1;
    r.n_prompt = 1 + i * 37 % MOST_PROMPT;
    r.max_tokens = 1 + i * 5 % (test_is_brief() ? 4 : OUTPUT);
    r.ignore_eos = true;
    r.sampling.base.temperature = i % 3 == 0 ? 0.0f : 0.9f;
    r.sampling.base.seed = (uint64_t)i;
    if (full) {
        r.sampling.frequency_penalty = 0.5f;
        r.logprobs = 1;
    }
    return r;
}

static void take(result *to, const trm_serving_event *events, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (events[i].kind == TRM_EVENT_TOKEN) {
            int32_t *at = &to->n[events[i].id];
            to->tokens[events[i].id][*at] = events[i].token;
            to->logprobs[events[i].id][(*at)++] = events[i].logprob;
        }
    }
}

/* All requests in the same order, so that the steps of every run are the same. */
static void run(trm_scheduler *s, bool full, int32_t requests, result *to)
{
    trm_scheduler_stats stats, before;
    for (int32_t i = 0; i < requests; i++) {
        const trm_serving_request r = request_of(i, full);
        assert_ok(trm_scheduler_submit(s, &r));
    }
    trm_scheduler_get_stats(s, &before);
    while (trm_scheduler_has_work(s)) {
        const trm_serving_event *events;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
        take(to, events, n);
        trm_scheduler_get_stats(s, &stats);
        if (stats.steps > before.steps && stats.decode_steps == before.decode_steps) {
            to->mixed++;
            to->captured += stats.last_step_captured;
        }
        before = stats;
    }
}

static void captured_steps_give_the_same(void **state)
{
    (void)state;
    static result results[RUNS];
    bool leads = trm_world_rank(test_world) == 0, cuda = test_backend() == TRM_BACKEND_CUDA;
    const int32_t requests = test_is_brief() ? 3 : REQUESTS, runs = test_is_brief() ? 3 : RUNS;
    for (int32_t full = test_is_brief() ? 1 : 0; full < 2; full++) {
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator *g;
        options.max_context = 96;
        options.max_sequences = 9;
        options.max_step_tokens = test_is_brief() ? 40 : 80;
        options.no_tune = true;
        options.pad_steps = true;
        options.mesh = test_mesh();
        assert_ok(trm_generator_create(test_model, test_world, &options, &g));
        test_assert_split(g->engine->plan);
        memset(results, 0, sizeof(results));
        for (int32_t i = 0; i < runs; i++) {
            trm_scheduler_options scheduler_options = TRM_SCHEDULER_OPTIONS_INIT;
            trm_scheduler *s;
            scheduler_options.no_prefix_cache = true;
            assert_ok(trm_scheduler_create(g, &scheduler_options, &s));
            if (leads) {
                run(s, full == 1, requests, &results[i]);
                assert_ok(trm_scheduler_end(s));
                assert_memory_equal(results[i].tokens, results[0].tokens, sizeof(results[0].tokens));
                assert_memory_equal(results[i].logprobs, results[0].logprobs, sizeof(results[0].logprobs));
                assert_int_equal(results[i].mixed, results[0].mixed);
            } else {
                assert_ok(trm_scheduler_follow(s));
            }
            trm_scheduler_destroy(s);
        }
        if (leads) {
            assert_true(results[0].mixed > (test_is_brief() ? 1 : 5));
            assert_int_equal(results[runs - 1].captured, cuda ? results[runs - 1].mixed : 0);
        }
        trm_generator_destroy(g);
    }
}

/* ---- steps ahead of the host ---- */

enum { AHEAD_REQUESTS = 5, AHEAD_TOKENS = 30 };

typedef struct ahead_result {
    int32_t tokens[AHEAD_REQUESTS][AHEAD_TOKENS], n[AHEAD_REQUESTS];
    int32_t declines[AHEAD_REQUESTS]; /* at this number of tokens; 0: never */
} ahead_result;

static bool take_ahead(void *user, int32_t request, int32_t token)
{
    ahead_result *r = user;
    assert_true(r->n[request] < AHEAD_TOKENS);
    r->tokens[request][r->n[request]++] = token;
    return r->n[request] != r->declines[request];
}

/* More requests than run at a time, of different lengths; some draw. With `declines` some end unforeseen. */
static int32_t make_ahead(trm_request requests[AHEAD_REQUESTS], bool draws, bool declines, ahead_result *to)
{
    const int32_t n = test_is_brief() ? 3 : AHEAD_REQUESTS;
    memset(to, 0, sizeof(*to));
    for (int32_t i = 0; i < n; i++) {
        requests[i] = (trm_request){.prompt = genesis_1 + i,
                                    .n_prompt = 1 + i * 11 % 40,
                                    .max_tokens = (test_is_brief() ? 18 : AHEAD_TOKENS) - i * 7 % 10,
                                    .sampling = TRM_SAMPLING_INIT,
                                    .ignore_eos = !declines || i % 2 == 0};
        requests[i].sampling.temperature = draws && i % 3 > 0 ? 0.8f : 0.0f;
        requests[i].sampling.seed = (uint64_t)i;
        requests[i].sampling.repetition_penalty = draws && i == 3 ? 1.1f : 1.0f; /* which no step ahead does */
        to->declines[i] = declines && i % 3 == 1 ? 9 + i : 0;
    }
    return n;
}

static void run_ahead(trm_generator *g, bool draws, bool declines, ahead_result *to)
{
    trm_request requests[AHEAD_REQUESTS];
    const int32_t n = make_ahead(requests, draws, declines, to);
    assert_ok(trm_generate(g, requests, n, take_ahead, to, NULL));
    assert_null(g->ahead.step);
}

/* The same requests through a scheduler that waits for each step, as it does where logprobs are wanted. Of rank 0. */
static void lead_waiting(trm_scheduler *s, const trm_request *requests, int32_t n, ahead_result *to)
{
    for (int32_t i = 0; i < n; i++) {
        trm_serving_request r = TRM_SERVING_REQUEST_INIT;
        r.id = (uint64_t)i;
        r.prompt = requests[i].prompt;
        r.n_prompt = requests[i].n_prompt;
        r.max_tokens = requests[i].max_tokens;
        r.sampling.base = requests[i].sampling;
        r.ignore_eos = requests[i].ignore_eos;
        r.logprobs = TRM_LOGPROBS_CHOSEN;
        assert_ok(trm_scheduler_submit(s, &r));
    }
    while (trm_scheduler_has_work(s)) {
        const trm_serving_event *events;
        uint64_t declined[AHEAD_REQUESTS];
        int32_t n_events, n_declined = 0;
        assert_ok(trm_scheduler_step(s, &events, &n_events));
        for (int32_t i = 0; i < n_events; i++) {
            if (events[i].kind == TRM_EVENT_TOKEN && !take_ahead(to, (int32_t)events[i].id, events[i].token)) {
                declined[n_declined++] = events[i].id;
            }
        }
        for (int32_t i = 0; i < n_declined; i++) {
            trm_scheduler_cancel(s, declined[i]);
        }
    }
    assert_ok(trm_scheduler_end(s));
}

static void run_waiting(trm_generator *g, bool draws, bool declines, ahead_result *to)
{
    trm_request requests[AHEAD_REQUESTS];
    const int32_t n = make_ahead(requests, draws, declines, to);
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    trm_scheduler *s;
    options.no_prefix_cache = true;
    options.prefill_chunk = INT32_MAX;
    assert_ok(trm_scheduler_create(g, &options, &s));
    if (trm_world_rank(test_world) == 0) {
        lead_waiting(s, requests, n, to);
    } else {
        assert_ok(trm_scheduler_follow(s));
    }
    trm_scheduler_destroy(s);
    assert_ok(trm_world_broadcast(test_world, to, sizeof(*to), 0));
}

/* Ranks along cp have TRM_KV_BLOCK_SIZE tokens each of a block. */
static int32_t ranks_of_a_block(void)
{
    const int32_t cp = test_mesh().size[TRM_AXIS_CP];
    return cp > 1 ? cp : 1;
}

static void steps_ahead_give_the_same(void **state)
{
    (void)state;
    const int32_t sharing = ranks_of_a_block();
    static ahead_result with, without;
    for (int32_t slots = test_is_brief() ? 3 : 1; slots <= 3; slots += 2) {
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator *g;
        options.max_context = 96;
        options.max_sequences = slots;
        options.max_step_tokens = 80;
        options.cache_tokens = slots * 64 * sharing; /* without cp not for all to their ends: some give way */
        options.no_tune = true;
        options.pad_steps = true;
        options.mesh = test_mesh();
        assert_ok(trm_generator_create(test_model, test_world, &options, &g));
        test_assert_split(g->engine->plan);
        for (int32_t i = test_is_brief() ? 1 : 0; i < 2; i++) { /* also draws, and ends nobody foresees */
            int64_t taken = g->ahead.n_taken, vain = g->ahead.n_vain;
            run_waiting(g, i == 1, i == 1, &without);
            assert_true(g->ahead.n_taken == taken && g->ahead.n_vain == vain);
            run_ahead(g, i == 1, i == 1, &with);
            assert_memory_equal(&with, &without, sizeof(with));
            assert_true(g->ahead.n_taken >= taken + 8);
            /* who ends unforeseen leaves the others of a step; in a brief run none waits to come instead */
            assert_true(i == 0 ? g->ahead.n_vain < vain + 4 : test_is_brief() || g->ahead.n_vain > vain);
        }
        trm_generator_destroy(g);
    }
}

/* A step of one sequence; what it chose. */
static int32_t step_of(trm_generator *g, const int32_t *tokens, int32_t n_tokens, int64_t n_cached,
                       const int32_t *blocks, float temperature, bool goes_on)
{
    const trm_serving_sampling sampling = {
        .base = {.temperature = temperature, .top_p = 1.0f, .repetition_penalty = 1.0f, .seed = 5}, .typical_p = 1.0f};
    const trm_sampling_row choice = {.sampling = &sampling, .logprobs = -1, .counter = (uint64_t)n_cached};
    const trm_step_sequence sequence = {.tokens = tokens,
                                        .n_tokens = n_tokens,
                                        .n_cached = n_cached,
                                        .n_prompt = 14,
                                        .blocks = blocks,
                                        .choices = &choice,
                                        .n_choices = 1};
    int32_t chosen = -1;
    g->goes_on = goes_on;
    assert_ok(trm_generator_step(g, &sequence, 1, &chosen));
    return chosen;
}

enum { OTHERS = 12 };

/* Steps that are what is ahead of the host and some that are almost that. None reads a place of the cache that a step
 * ahead has written and no other. */
static void run_others(trm_generator *g, bool ahead, int32_t chosen[OTHERS])
{
    const int32_t blocks[] = {2, 0, 1}, moved[] = {2, 1, 0};
    int32_t n = 0, token;
    token = chosen[n++] = step_of(g, genesis_1, 14, 0, blocks, 0.0f, ahead);
    token = chosen[n++] = step_of(g, &token, 1, 14, blocks, 0.0f, ahead);
    token = chosen[n++] = step_of(g, &token, 1, 15, blocks, 0.0f, ahead);
    token = (token + 1) % 100;
    token = chosen[n++] = step_of(g, &token, 1, 16, blocks, 0.0f, ahead); /* another token */
    token = chosen[n++] = step_of(g, &token, 1, 16, blocks, 0.0f, ahead); /* the same place again */
    token = chosen[n++] = step_of(g, &token, 1, 17, moved, 0.0f, ahead);  /* another block */
    token = chosen[n++] = step_of(g, &token, 1, 18, moved, 0.9f, ahead);  /* another way to choose */
    token = chosen[n++] = step_of(g, &token, 1, 19, moved, 0.9f, ahead);
    token = chosen[n++] = step_of(g, &token, 1, 20, moved, 0.9f, ahead);
    token = chosen[n++] = step_of(g, &token, 1, 21, moved, 0.0f, ahead);
    token = chosen[n++] = step_of(g, genesis_1, 14, 0, blocks, 0.0f, ahead); /* a prompt */
    chosen[n++] = step_of(g, &token, 1, 14, blocks, 0.0f, ahead);
    assert_int_equal(n, OTHERS);
    assert_ok(trm_async_step_settle(g));
    assert_null(g->ahead.step);
    g->goes_on = false;
}

static void other_steps_than_expected(void **state)
{
    (void)state;
    int32_t with[OTHERS], without[OTHERS];
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *g;
    const int32_t sharing = ranks_of_a_block();
    options.max_context = 3 * TRM_KV_BLOCK_SIZE * sharing; /* three blocks */
    options.max_sequences = 1;
    options.max_step_tokens = 20;
    options.no_tune = true;
    options.pad_steps = true;
    options.mesh = test_mesh();
    assert_ok(trm_generator_create(test_model, test_world, &options, &g));
    test_assert_split(g->engine->plan);
    run_others(g, false, without);
    assert_int_equal(g->ahead.n_taken + g->ahead.n_vain, 0);
    run_others(g, true, with);
    assert_memory_equal(with, without, sizeof(with));
    const int32_t moves = sharing == 1 ? 1 : 0; /* blocks of several ranks hold all tokens in the first one */
    assert_int_equal(g->ahead.n_taken, 4 - moves);
    assert_int_equal(g->ahead.n_vain, 6 + moves);
    trm_generator_destroy(g);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_steps_give_the_same),
        cmocka_unit_test(steps_ahead_give_the_same),
        cmocka_unit_test(other_steps_than_expected),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
