/*
 * Steps with prompts, launched layer by layer at first and captured once their forms come up again: the same tokens and
 * logprobs. On the host, where nothing is captured, steps are padded all the same.
 */
#include "support/support.h"

#include "dist/chapters.h"
#include "dist/scheduler.h"
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
    const int32_t requests = test_is_brief() ? 4 : REQUESTS, runs = test_is_brief() ? 4 : RUNS;
    for (int32_t full = test_is_brief() ? 1 : 0; full < 2; full++) {
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator *g;
        options.max_context = 96;
        options.max_sequences = 9;
        options.max_step_tokens = 80;
        options.tune = false;
        assert_ok(trm_mesh_parse(NULL, trm_world_size(test_world), &options.mesh));
        assert_ok(trm_generator_create(test_model, test_world, &options, &g));
        g->pads = true;
        memset(results, 0, sizeof(results));
        for (int32_t i = 0; i < runs; i++) {
            trm_scheduler_options scheduler_options = TRM_SCHEDULER_OPTIONS_INIT;
            trm_scheduler *s;
            scheduler_options.prefix_cache = false;
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

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_steps_give_the_same),
    };
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
