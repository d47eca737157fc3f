/* The scheduler over ranks: rank 0 leads, the others follow, and the output is what each request gives alone. */
#include "support/support.h"

#include "dist/chapters.h"
#include "dist/scheduler_load.h"
#include "support/world.h"

/* Of the generators that are made. */
static trm_dtype made_dtype;
static bool made_invariant;

static trm_generator *make(int32_t sequences, int32_t step_tokens, int64_t cache_tokens, trm_speculation speculation)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    options.max_context = 200;
    options.max_sequences = sequences;
    options.max_step_tokens = step_tokens;
    options.cache_tokens = cache_tokens;
    options.tune = !test_is_brief();
    options.speculation = speculation;
    options.dtype = made_dtype;
    options.batch_invariant = made_invariant;
    assert_ok(trm_mesh_parse(NULL, trm_world_size(test_world), &options.mesh));
    assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
    return generator;
}

static trm_scheduler *schedule(trm_generator *generator, bool prefix_cache)
{
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    trm_scheduler *s;
    options.prefix_cache = prefix_cache;
    assert_ok(trm_scheduler_create(generator, &options, &s));
    return s;
}

/* Alone, then together on a generator with too little cache; the others follow both. */
static void check_load(void)
{
    static load l, alone;
    /* The mode's plain products are slow on the host. */
    const bool slow = made_invariant && test_backend() == TRM_BACKEND_HOST, few = test_is_brief() || slow;
    const int32_t n = test_is_brief() ? 3 : slow ? 6 : 16;
    bool leads = trm_world_rank(test_world) == 0;
    uint64_t random = test_seed();
    trm_model_info info;
    trm_model_get_info(test_model, &info);
    load_make(&l, n, &random, genesis_1, 60, (int32_t)info.vocab, 50, test_is_brief() ? 3 : slow ? 10 : 20);
    l.rounds = test_backend() == TRM_BACKEND_CUDA && !made_invariant;
    trm_generator *g = make(1, 64, 0, (trm_speculation){0});
    trm_scheduler *s = schedule(g, false);
    if (leads) {
        load_run_alone(s, &l);
        alone = l;
        assert_ok(trm_scheduler_end(s));
    } else {
        assert_ok(trm_scheduler_follow(s));
        const trm_serving_event *events;
        int32_t n_events;
        assert_fails(trm_scheduler_step(s, &events, &n_events), TRM_ERROR_INVALID_ARGUMENT, "follows rank 0");
        assert_fails(trm_scheduler_submit(s, &l.requests[0].request), TRM_ERROR_INVALID_ARGUMENT, "follows rank 0");
        assert_fails(trm_scheduler_end(s), TRM_ERROR_INVALID_ARGUMENT, "follows rank 0");
    }
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
    static const trm_speculation speculations[] = {
        {0}, {TRM_SPECULATION_LOOKUP, 4}, {TRM_SPECULATION_AUTO, 0}, {TRM_SPECULATION_LOOKUP, 3}};
    for (int32_t turn = 0; turn < 4; turn++) { /* the last with a draft model */
        if (!test_in_part(turn) || (slow && turn != 1)) {
            continue;
        }
        g = make(6, 24, 320, speculations[turn]);
        trm_generator *draft = turn == 3 ? make(6, 24, 0, (trm_speculation){0}) : NULL;
        assert_ok(draft == NULL ? TRM_OK : trm_generator_set_draft(g, draft));
        s = schedule(g, turn > 0);
        if (leads) {
            load_run_together(s, &l, &alone, &random, turn > 0);
            trm_scheduler_stats stats;
            trm_scheduler_get_stats(s, &stats);
            assert_true(few || stats.preemptions > 0 || turn > 0);
            assert_true(few || (stats.prefix_hits > 0) == (turn > 0));
            assert_true(few || turn != 1 || stats.accepted_tokens > 0);
            assert_ok(trm_scheduler_end(s));
        } else {
            assert_ok(trm_scheduler_follow(s));
        }
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
        trm_generator_destroy(draft);
    }
}

static void load_changes_no_token(void **state)
{
    (void)state;
    made_dtype = TRM_DTYPE_NONE;
    made_invariant = false;
    check_load();
}

/* The mode that costs time on a GPU: there, too, every bit is what it is alone, by tensor cores and without. On the
 * host it changes the products alone: one turn is enough. */
static void load_changes_no_bit(void **state)
{
    (void)state;
    static const trm_dtype types[] = {TRM_F32, TRM_BF16, TRM_F16};
    made_invariant = true;
    for (size_t i = 0; i < (test_backend() == TRM_BACKEND_CUDA && !test_is_brief() ? 3 : 1); i++) {
        made_dtype = types[i];
        check_load();
    }
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_changes_no_token),
        cmocka_unit_test(load_changes_no_bit),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
