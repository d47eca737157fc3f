/* Models with states by sequence: the same output alone and under load, behind prefixes whose state was kept, with
 * drafts that are taken back and async steps that are discarded. */
#include "support/support.h"

#include "scheduler/scheduler_fixture.h"

static test_golden recurrent;

static void load_changes_no_token(void **state)
{
    (void)state;
    static const struct {
        int32_t sequences, step_tokens;
        int64_t cache_tokens;
        bool cancels;
        trm_speculation speculation;
    } shapes[] = {
        {24, 128, 0, false, {0}},                        /* room for all */
        {6, 16, 0, false, {0}},                          /* small chunks beside decodes */
        {40, 50, 0, true, {0}},                          /* one version of each state */
        {8, 24, 200, false, {0}},                        /* not enough cache: preemption */
        {3, 7, 300, true, {0}},                          /* slots go from one to the next */
        {6, 16, 0, false, {TRM_SPECULATION_NGRAM, 3}},   /* drafts, right and wrong */
        {8, 24, 200, false, {TRM_SPECULATION_NGRAM, 0}}, /* of the number by default */
        {5, 64, 176, true, {TRM_SPECULATION_NGRAM, 15}},
        {24, 40, 512, true, {TRM_SPECULATION_AUTO, 0}},
    };
    static load l, alone;
    uint64_t random = test_seed();
    int64_t preemptions = 0, hits = 0, drafted = 0, accepted = 0;
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        const trm_speculation off = {0};
        load_make(&l, LOAD_REQUESTS, &random, test_text, LOAD_TOKENS, (int32_t)recurrent.info.vocab, 80, 40);
        trm_generator *g = make_of(recurrent.model, 128, 1, 128, 0, off, false);
        trm_scheduler *s = schedule(g, false, 0);
        load_run_alone(s, &l);
        alone = l;
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
        for (int32_t pads = 0; pads < 2; pads++) {
            g = make_of(recurrent.model, 128, shapes[k].sequences, shapes[k].step_tokens, shapes[k].cache_tokens,
                        shapes[k].speculation, pads == 1);
            s = schedule(g, pads == 1, 0);
            load_run_together(s, &l, &alone, &random, shapes[k].cancels);
            trm_scheduler_stats stats;
            trm_scheduler_get_stats(s, &stats);
            preemptions += stats.preemptions;
            hits += stats.prefix_hits;
            assert_true(pads == 1 || stats.prefix_hits == 0);
            assert_int_equal(stats.blocks_used, 0);
            assert_int_equal(s->states.n_free, s->states.n);
            drafted += stats.drafted_tokens;
            accepted += stats.accepted_tokens;
            trm_scheduler_destroy(s);
            trm_generator_destroy(g);
        }
    }
    assert_true(preemptions > 0 && hits > 0);
    assert_true(drafted > accepted && accepted > 0);
}

/* Runs a request to its end; its tokens behind the prompt, and how many of the prompt were found. */
static int64_t run_request(trm_scheduler *s, uint64_t id, const int32_t *prompt, int64_t n_prompt, int64_t n,
                           int32_t *output)
{
    trm_scheduler_stats before, after;
    trm_serving_request r = request_of(id, n_prompt, n);
    r.prompt = prompt;
    trm_scheduler_get_stats(s, &before);
    assert_ok(trm_scheduler_submit(s, &r));
    for (int64_t found = 0; found < n;) {
        const trm_serving_event *events;
        int32_t n_events;
        assert_ok(trm_scheduler_step(s, &events, &n_events));
        for (int32_t i = 0; i < n_events; i++) {
            if (events[i].kind == TRM_EVENT_TOKEN) {
                output[found++] = events[i].token;
            }
        }
    }
    trm_scheduler_get_stats(s, &after);
    return after.prefix_hits - before.prefix_hits;
}

/* A conversation goes on behind its last whole block, and so does a text behind a beginning that two had before. */
static void beginnings_are_found_with_their_state(void **state)
{
    (void)state;
    int32_t first[128], second[128], output[3][32], alone[3][32];
    trm_generator *g = make_of(recurrent.model, 128, 2, 128, 0, (trm_speculation){0}, false);
    for (int32_t cache = 0; cache < 2; cache++) {
        int32_t(*to)[32] = cache == 1 ? output : alone;
        trm_scheduler *s = schedule(g, cache == 1, 0);
        memcpy(first, test_text, 70 * sizeof(*first));
        assert_int_equal(run_request(s, 1, first, 70, 20, to[0]), 0);
        memcpy(first + 70, to[0], 20 * sizeof(*first)); /* 89 tokens were run */
        first[90] = 5;
        assert_int_equal(run_request(s, 2, first, 91, 10, to[1]), cache == 1 ? 80 : 0);
        memcpy(second, test_text, 50 * sizeof(*second)); /* 48 tokens are in whole blocks, behind which no state is */
        memcpy(second + 50, test_text + 60, 30 * sizeof(*second));
        assert_int_equal(run_request(s, 3, second, 80, 10, to[2]), 0);
        second[60]++;
        second[60] %= (int32_t)recurrent.info.vocab;
        int32_t third[32];
        assert_int_equal(run_request(s, 4, second, 80, 10, third), cache == 1 ? 48 : 0);
        trm_scheduler_destroy(s);
    }
    for (int32_t i = 0; i < 3; i++) {
        assert_memory_equal(output[i], alone[i], (i == 0 ? 20 : 10) * sizeof(int32_t));
    }
    trm_generator_destroy(g);
}

static void slots_are_taken_in_order(void **state)
{
    (void)state;
    trm_state_pool pool;
    assert_ok(trm_state_pool_init(&pool, 3));
    const int32_t a = trm_state_pool_take(&pool), b = trm_state_pool_take(&pool);
    trm_state_pool_keep(&pool, a, 7);
    trm_state_pool_release(&pool, a);
    trm_state_pool_keep(&pool, b, 9);
    trm_state_pool_release(&pool, b);
    assert_int_equal(trm_state_pool_find(&pool, 7), a);
    trm_state_pool_retain(&pool, a); /* found: b was used longest ago */
    trm_state_pool_release(&pool, a);
    const int32_t c = trm_state_pool_take(&pool); /* that keeps nothing */
    assert_true(c != a && c != b);
    assert_int_equal(trm_state_pool_take(&pool), b);
    assert_int_equal(trm_state_pool_find(&pool, 9), -1);
    trm_state_pool_drop(&pool, 7);
    assert_int_equal(trm_state_pool_find(&pool, 7), -1);
    assert_int_equal(pool.n_free, 1);
    trm_state_pool_fini(&pool);
}

enum { REQUESTS = 7, TOKENS = 30 };

typedef struct transcript {
    int32_t tokens[REQUESTS][TOKENS], count[REQUESTS];
} transcript;

static bool take(void *user, int32_t request, int32_t token)
{
    transcript *t = user;
    t->tokens[request][t->count[request]++] = token;
    return request % 3 != 2 || t->count[request] < 7;
}

/* Of steps that run ahead some are discarded: where a sequence ends that was likely to go on. */
static void async_steps_change_no_token(void **state)
{
    (void)state;
    static const int32_t sequences[] = {1, 3, 40};
    static transcript found[3];
    for (int32_t way = 0; way < 3; way++) {
        trm_generator *g = make_of(recurrent.model, 100, sequences[way], 64, 0, (trm_speculation){0}, way > 0);
        trm_request requests[REQUESTS];
        for (int32_t i = 0; i < REQUESTS; i++) {
            requests[i] = (trm_request){.prompt = test_text + 3 * i,
                                        .n_prompt = 5 + 9 * i,
                                        .max_tokens = TOKENS - 2 * i,
                                        .sampling = TRM_SAMPLING_INIT,
                                        .ignore_eos = true};
        }
        found[way] = (transcript){0};
        assert_ok(trm_generate(g, requests, REQUESTS, take, &found[way], NULL));
        assert_true(way == 1 ? g->ahead.n_taken > 0 && g->ahead.n_vain > 0
                             : g->ahead.n_taken == 0); /* 40: one version */
        trm_generator_destroy(g);
        assert_memory_equal(&found[way], &found[0], sizeof(found[0]));
    }
}

static void such_a_model_does_not_draft(void **state)
{
    (void)state;
    trm_generator *g = make_speculating(64, 2, 32, 0, (trm_speculation){TRM_SPECULATION_NGRAM, 3}, false);
    trm_generator *draft = make_draft(recurrent.model, g);
    assert_fails(trm_generator_set_draft(g, draft), TRM_ERROR_UNSUPPORTED, "states by sequence");
    trm_generator_destroy(draft);
    trm_generator_destroy(g);
}

static int open_models(void **state)
{
    open_all(state);
    test_golden_open("qwen3-5", &recurrent);
    return 0;
}

static int close_models(void **state)
{
    test_golden_close(&recurrent);
    return test_close_world(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_changes_no_token),       cmocka_unit_test(beginnings_are_found_with_their_state),
        cmocka_unit_test(slots_are_taken_in_order),    cmocka_unit_test(async_steps_change_no_token),
        cmocka_unit_test(such_a_model_does_not_draft),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
