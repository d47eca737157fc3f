/* The scheduler over ranks: rank 0 leads, the others follow, and the output is what each request gives alone. */
#include "support/support.h"

#include "support/test_prompts.h"
#include "scheduler/scheduler_load.h"
#include "support/split.h"
#include "support/world.h"

/* Of the generators that are made. */
static trm_dtype made_dtype;
static bool made_invariant, made_padded;

static trm_generator *make(int32_t sequences, int32_t step_tokens, int64_t cache_tokens, trm_speculation speculation)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    options.max_context = 200;
    options.max_sequences = sequences;
    options.max_step_tokens = step_tokens;
    options.cache_tokens = cache_tokens;
    options.no_tune = test_is_brief();
    options.speculation = speculation;
    options.dtype = made_dtype;
    options.batch_invariant = made_invariant;
    options.pad_steps = made_padded;
    options.mesh = test_mesh();
    assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
    test_assert_split(generator->engine->plan);
    return generator;
}

/* Of this rank's steps with one scheduler. */
typedef struct step_facts {
    int64_t steps, looked_at;
    bool odd; /* times that cannot be */
    bool exchanged;
    int64_t heard, begun, made; /* on a rank that follows */
    bool busy, disordered;
} step_facts;
static step_facts facts_of_steps;

static void note_step(void *user, const trm_step_times *times)
{
    step_facts *facts = user;
    facts->steps++;
    facts->looked_at += times->layer_seconds > 0;
    facts->odd = facts->odd || times->seconds <= 0 || times->device_seconds < times->layer_seconds ||
                 times->collective_seconds < 0 || times->collective_seconds > times->layer_seconds;
    facts->exchanged = facts->exchanged || times->collective_seconds > 0;
}

static void note_heard(void *user, bool has_step)
{
    step_facts *facts = user;
    facts->heard++;
    facts->begun += has_step;
    facts->made += facts->busy && !has_step;
    facts->disordered = facts->disordered || (facts->busy && has_step);
    facts->busy = has_step;
}

/* Where there are other ranks, some steps are profiled: on the host the fifth, on a GPU that of those captured. Async
 * steps count, but are not profiled themselves. */
static void check_steps(void)
{
    const step_facts *facts = &facts_of_steps;
    assert_true(facts->steps > 0);
    assert_false(facts->odd);
    assert_false(facts->busy || facts->disordered);
    assert_int_equal(facts->begun, facts->made);
    if (trm_world_rank(test_world) == 0) {
        assert_int_equal(facts->heard, 0);
    } else {
        assert_true(facts->begun >= facts->steps);    /* those of a draft model too */
        assert_true(facts->heard > 2 * facts->begun); /* the end as well */
    }
    if (trm_world_size(test_world) == 1) {
        assert_int_equal(facts->looked_at, 0);
    } else if (test_backend() == TRM_BACKEND_HOST) {
        assert_int_equal(facts->looked_at, (facts->steps + 1019) / 1024);
    }
    assert_int_equal(facts->exchanged, facts->looked_at > 0);
}

static trm_scheduler *schedule(trm_generator *generator, bool prefix_cache)
{
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    trm_scheduler *s;
    facts_of_steps = (step_facts){0};
    options.on_step = note_step;
    options.on_heard = note_heard;
    options.user = &facts_of_steps;
    options.no_prefix_cache = !prefix_cache;
    assert_ok(trm_scheduler_create(generator, &options, &s));
    return s;
}

/* Alone, then together on a generator with too little cache; the others follow both. */
static void check_load(void)
{
    static load l, alone;
    const bool few = test_is_brief();
    const int32_t n = few ? 3 : 16;
    bool leads = trm_world_rank(test_world) == 0;
    uint64_t random = test_seed();
    trm_model_info info;
    trm_model_get_info(test_model, &info);
    load_make(&l, n, &random, genesis_1, 60, (int32_t)info.vocab, 50, few ? 3 : 20);
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
    check_steps();
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
    static const trm_speculation speculations[] = {
        {0}, {TRM_SPECULATION_NGRAM, 4}, {TRM_SPECULATION_AUTO, 0}, {TRM_SPECULATION_NGRAM, 3}};
    for (int32_t turn = 0; turn < 4; turn++) { /* the last with a draft model */
        if (!test_in_part(turn)) {
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
        check_steps();
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

/* Decode steps start before the host has the last one's tokens, on all ranks alike. */
static void async_steps_change_no_token(void **state)
{
    (void)state;
    static load l, alone;
    const bool few = test_is_brief(), leads = trm_world_rank(test_world) == 0;
    uint64_t random = test_seed();
    trm_model_info info;
    trm_model_get_info(test_model, &info);
    load_make(&l, few ? 3 : 12, &random, genesis_1, 60, (int32_t)info.vocab, 30, few ? 6 : 30);
    load_make_plain(&l);
    made_dtype = TRM_DTYPE_NONE;
    made_invariant = false;
    l.rounds = test_backend() == TRM_BACKEND_CUDA;
    for (int32_t together = 0; together < 2; together++) {
        made_padded = together == 1;
        trm_generator *g = make(together == 1 ? 6 : 1, 64, 0, (trm_speculation){0});
        trm_scheduler *s = schedule(g, together == 1);
        if (!leads) {
            assert_ok(trm_scheduler_follow(s));
        } else if (together == 0) {
            load_run_alone(s, &l);
            alone = l;
            assert_ok(trm_scheduler_end(s));
        } else {
            load_run_together(s, &l, &alone, &random, true);
            assert_ok(trm_scheduler_end(s));
        }
        check_steps();
        assert_true(together == 0 || few || g->ahead.n_taken > 0); /* requests of a few tokens may need none */
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
    }
    made_padded = false;
}

/* ---- everything at once ------------------------------------------------------------------------ */

/* Texts that come again, so that a beginning is found in the cache and what follows is guessed, greedy and drawn by
 * turns; prompts that no step has room for. */
static void make_crowd(load *l, int32_t n, bool logprobs, uint64_t *random, int32_t vocab)
{
    *l = (load){.n = n, .words = (vocab + 31) / 32};
    for (int32_t i = 0; i < n; i++) {
        load_request *r = &l->requests[i];
        *r = (load_request){.request = TRM_SERVING_REQUEST_INIT};
        int32_t n_prompt = 33 + (int32_t)test_random_below(random, 8), from = i % 4 == 3 ? 7 : 0;
        for (int32_t k = 0; k < n_prompt; k++) {
            r->prompt[k] = k < 33 ? genesis_1[from + k % 16] : (int32_t)test_random_below(random, vocab);
        }
        r->request.id = 1000 + (uint64_t)i;
        r->request.prompt = r->prompt;
        r->request.n_prompt = n_prompt;
        r->request.max_tokens = 12 + test_random_below(random, 4);
        r->request.ignore_eos = true;
        r->request.priority = (int32_t)test_random_below(random, 2);
        r->request.sampling.base.temperature = i % 2 == 0 ? 0.0f : 0.7f;
        r->request.sampling.base.seed = test_random(random);
        r->request.logprobs = logprobs;
        r->request.mask = i % 4 == 2 ? load_mask : NULL; /* of which some go round in a circle */
        r->request.mask_user = l;
    }
}

/* What has to have happened for the bits to tell anything. */
typedef struct crowd_facts {
    int64_t prompts_beside, captured_beside; /* steps with prompts beside sequences that decode */
    int64_t preemptions, prefix_hits, accepted, refused;
} crowd_facts;

static void run_crowd(trm_scheduler *s, load *l, crowd_facts *facts)
{
    trm_scheduler_stats stats, before;
    int32_t next = 0;
    load_forget(l);
    trm_scheduler_get_stats(s, &before);
    while (next < l->n || trm_scheduler_has_work(s)) {
        if (next < l->n) { /* one a step, so that prompts come while others decode */
            assert_ok(trm_scheduler_submit(s, &l->requests[next++].request));
        }
        const trm_serving_event *events;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
        load_take(l, events, n);
        load_check_blocks(s);
        trm_scheduler_get_stats(s, &stats);
        bool beside = stats.prompt_tokens > before.prompt_tokens && stats.generated_tokens > before.generated_tokens;
        facts->prompts_beside += beside;
        facts->captured_beside += beside && stats.last_step_captured;
        before = stats;
    }
    facts->preemptions += stats.preemptions;
    facts->prefix_hits += stats.prefix_hits;
    facts->accepted += stats.accepted_tokens;
    facts->refused += stats.drafted_tokens - stats.accepted_tokens;
}

static void check_crowd(bool logprobs)
{
    static load l, alone;
    bool leads = trm_world_rank(test_world) == 0, cuda = test_backend() == TRM_BACKEND_CUDA;
    uint64_t random = test_seed();
    trm_model_info info;
    trm_model_get_info(test_model, &info);
    make_crowd(&l, test_is_brief() ? 4 : cuda ? 20 : 12, logprobs, &random, (int32_t)info.vocab);
    made_padded = true; /* on the host, too */
    for (int32_t together = 0; together < 2; together++) {
        /* Alone a prompt is one step. Together there are blocks for two or three whole sequences. */
        trm_generator *g = together == 1 ? make(6, 24, 208, (trm_speculation){TRM_SPECULATION_NGRAM, 3})
                                         : make(1, 64, 0, (trm_speculation){0});
        trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
        trm_scheduler *s;
        crowd_facts facts = {0};
        options.no_prefix_cache = together == 0;
        options.prefill_chunk = together == 1 ? 12 : 0;
        assert_ok(trm_scheduler_create(g, &options, &s));
        if (!leads) {
            assert_ok(trm_scheduler_follow(s));
        } else if (together == 0) {
            load_run_alone(s, &l);
            alone = l;
            assert_ok(trm_scheduler_end(s));
        } else {
            run_crowd(s, &l, &facts);
            load_compare(&l, &alone, false);
            assert_int_equal(s->blocks.n_free, s->blocks.n);
            assert_ok(trm_scheduler_end(s));
            if (!test_is_brief()) {
                assert_true(facts.prompts_beside > 3);
                assert_true(!cuda || facts.captured_beside > 3);
                assert_true(facts.preemptions > 0 && facts.prefix_hits > 0);
                assert_true(facts.accepted > 0 && facts.refused > 0);
            }
        }
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
    }
    made_padded = false;
}

/* ---- tests ------------------------------------------------------------------------------------- */

/* The mode that costs time on a GPU: there, too, every bit is what it is alone, by tensor cores and without. On the
 * host it changes the products alone, and is slow. */
static const trm_dtype types[] = {TRM_F32, TRM_BF16, TRM_F16};

static int32_t n_types(void)
{
    return test_backend() == TRM_BACKEND_CUDA && !test_is_brief() ? (int32_t)(sizeof(types) / sizeof(types[0])) : 1;
}

static void load_changes_no_bit(void **state)
{
    (void)state;
    if (test_backend() != TRM_BACKEND_CUDA) {
        skip(); /* everything_at_once_changes_no_bit is the host's */
    }
    made_invariant = true;
    for (int32_t i = 0; i < n_types(); i++) {
        made_dtype = types[i];
        check_load();
    }
}

/* Prompts in chunks beside sequences that decode, beginnings found, sequences preempted and drafts verified, in steps
 * that are padded and captured: all in one run, and no bit is another than alone. */
static void everything_at_once_changes_no_bit(void **state)
{
    (void)state;
    made_invariant = true;
    for (int32_t i = 0; i < n_types(); i++) {
        made_dtype = types[i];
        check_crowd(true);
        if (test_backend() == TRM_BACKEND_CUDA) { /* without logprobs steps are greedy, or draw, and no more */
            check_crowd(false);
        }
    }
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_changes_no_token),
        cmocka_unit_test(async_steps_change_no_token),
        cmocka_unit_test(load_changes_no_bit),
        cmocka_unit_test(everything_at_once_changes_no_bit),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
