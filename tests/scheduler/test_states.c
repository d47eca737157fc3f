/* Models with states by sequence: the same output alone and under load, with drafts that are taken back and async steps
 * that are discarded. */
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
    int64_t preemptions = 0;
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
            s = schedule(g, true, 0);
            load_run_together(s, &l, &alone, &random, shapes[k].cancels);
            trm_scheduler_stats stats;
            trm_scheduler_get_stats(s, &stats);
            preemptions += stats.preemptions;
            assert_int_equal(stats.prefix_hits, 0); /* off, though asked for */
            assert_int_equal(stats.blocks_used, 0);
            if (shapes[k].speculation.kind == TRM_SPECULATION_NGRAM) {
                assert_true(stats.drafted_tokens > stats.accepted_tokens && stats.accepted_tokens > 0);
            }
            trm_scheduler_destroy(s);
            trm_generator_destroy(g);
        }
    }
    assert_true(preemptions > 0);
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
        cmocka_unit_test(load_changes_no_token),
        cmocka_unit_test(async_steps_change_no_token),
        cmocka_unit_test(such_a_model_does_not_draft),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
