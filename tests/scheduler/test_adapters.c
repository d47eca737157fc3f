/* Adapters of requests under load: the same output alone and beside others, and prefixes of their own. */
#include "support/support.h"

#include <stdio.h>

#include "scheduler/scheduler_fixture.h"

static const char *const folders[] = {"all", "patterns", "regex"};
#define N_ADAPTERS ((int32_t)(sizeof(folders) / sizeof(folders[0])))

static const char *folder_of(int32_t adapter)
{
    static char path[600];
    snprintf(path, sizeof(path), "%s/tests/goldens/adapters/llama/%s", TRM_SOURCE_DIR, folders[adapter - 1]);
    return path;
}

static trm_generator *make_adapted(int32_t sequences, int32_t step_tokens, int64_t cache_tokens,
                                   trm_speculation speculation)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    options.max_context = 128;
    options.max_sequences = sequences;
    options.max_step_tokens = step_tokens;
    options.cache_tokens = cache_tokens;
    options.dtype = TRM_F32;
    options.speculation = speculation;
    options.pad_steps = true;
    options.max_adapters = N_ADAPTERS;
    assert_ok(trm_generator_create(test_llama.model, test_world, &options, &generator));
    return generator;
}

static void load_all(trm_scheduler *s)
{
    for (int32_t i = 1; i <= N_ADAPTERS; i++) {
        int32_t adapter;
        assert_ok(trm_scheduler_load_adapter(s, folder_of(i), &adapter));
        assert_int_equal(adapter, i);
    }
}

/* Chunks, preemption, found prefixes, drafts and cancelled requests, with any adapters beside each other. */
static void load_changes_no_token(void **state)
{
    (void)state;
    static const struct {
        int32_t sequences, step_tokens;
        int64_t cache_tokens;
        bool prefix_cache, cancels;
        trm_speculation speculation;
    } shapes[] = {
        {24, 128, 0, false, false, {0}},
        {8, 24, 200, true, false, {0}},
        {5, 64, 176, true, true, {0}},
        {8, 24, 200, true, false, {TRM_SPECULATION_NGRAM, 3}},
        {24, 40, 512, true, true, {TRM_SPECULATION_AUTO, 0}},
    };
    static load l, alone;
    uint64_t random = test_seed();
    int64_t preemptions = 0, hits = 0;
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        load_make(&l, LOAD_REQUESTS, &random, test_text, LOAD_TOKENS, (int32_t)test_llama.info.vocab, 80, 40);
        for (int32_t i = 0; i < l.n; i++) {
            l.requests[i].request.adapter = (int32_t)test_random_below(&random, N_ADAPTERS + 1);
        }
        trm_generator *g = make_adapted(1, 128, 0, (trm_speculation){0});
        trm_scheduler *s = schedule(g, false, 0);
        load_all(s);
        load_run_alone(s, &l);
        alone = l;
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
        g = make_adapted(shapes[k].sequences, shapes[k].step_tokens, shapes[k].cache_tokens, shapes[k].speculation);
        s = schedule(g, shapes[k].prefix_cache, 0);
        load_all(s);
        for (int32_t i = 0; i < 2; i++) {
            load_run_together(s, &l, &alone, &random, shapes[k].cancels);
        }
        trm_scheduler_stats stats;
        trm_scheduler_get_stats(s, &stats);
        preemptions += stats.preemptions;
        hits += stats.prefix_hits;
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
    }
    assert_true(preemptions > 0 && hits > 0);
}

/* Runs a request to its end; returns how many tokens of its prompt were found. */
static int64_t found_with(trm_scheduler *s, uint64_t id, int32_t adapter)
{
    trm_serving_request request = request_of(id, 70, 3);
    request.adapter = adapter;
    assert_ok(trm_scheduler_submit(s, &request));
    for (;;) {
        const trm_serving_event *events, *last;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
        last = find_event(events, n, id, TRM_EVENT_FINISHED);
        if (last != NULL) {
            return last->n_cached;
        }
    }
}

static void adapters_share_no_prefix(void **state)
{
    (void)state;
    trm_generator *g = make_adapted(4, 128, 0, (trm_speculation){0});
    trm_scheduler *s = schedule(g, true, 0);
    int32_t adapter;
    load_all(s);
    for (int32_t i = 0; i <= N_ADAPTERS; i++) {
        assert_int_equal(found_with(s, (uint64_t)i, i), 0);
    }
    for (int32_t i = 0; i <= N_ADAPTERS; i++) {
        assert_int_equal(found_with(s, (uint64_t)i, i), 64);
    }
    assert_ok(trm_scheduler_unload_adapter(s, 2)); /* the next one in its place finds nothing of it */
    assert_ok(trm_scheduler_load_adapter(s, folder_of(2), &adapter));
    assert_int_equal(adapter, 2);
    assert_int_equal(found_with(s, 9, 2), 0);
    assert_int_equal(found_with(s, 9, 1), 64);
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

static void an_adapter_leaves_with_its_last_request(void **state)
{
    (void)state;
    trm_generator *g = make_adapted(4, 128, 0, (trm_speculation){0});
    trm_scheduler *s = schedule(g, true, 0);
    trm_serving_request request = request_of(1, 20, 10);
    int32_t adapter;
    load_all(s);
    request.adapter = 3;
    assert_ok(trm_scheduler_submit(s, &request));
    assert_ok(trm_scheduler_unload_adapter(s, 3));
    assert_fails(trm_scheduler_unload_adapter(s, 3), TRM_ERROR_INVALID_ARGUMENT, "not loaded");
    request.id = 2;
    assert_fails(trm_scheduler_submit(s, &request), TRM_ERROR_INVALID_ARGUMENT, "which is being unloaded");
    assert_fails(trm_scheduler_load_adapter(s, folder_of(1), &adapter), TRM_ERROR_BUSY, "there is room for 3");
    assert_true(trm_scheduler_cancel(s, 1));
    assert_fails(trm_scheduler_submit(s, &request), TRM_ERROR_INVALID_ARGUMENT, "which is not loaded");
    assert_ok(trm_scheduler_load_adapter(s, folder_of(1), &adapter));
    assert_int_equal(adapter, 3);
    assert_ok(trm_scheduler_submit(s, &request));
    request.id = 3;
    request.adapter = 4;
    assert_fails(trm_scheduler_submit(s, &request), TRM_ERROR_INVALID_ARGUMENT, "has adapter 4, which is not loaded");
    request.adapter = -1;
    assert_fails(trm_scheduler_submit(s, &request), TRM_ERROR_INVALID_ARGUMENT, "has adapter -1, which is not loaded");
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_changes_no_token),
        cmocka_unit_test(adapters_share_no_prefix),
        cmocka_unit_test(an_adapter_leaves_with_its_last_request),
    };
    return cmocka_run_group_tests(tests, open_all, test_close_world);
}
