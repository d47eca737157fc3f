/* The scheduler on one rank: the same output alone and under load, admission, order, chunks, and no block lost. */
#include "support/support.h"

#include <math.h>

#include "scheduler/scheduler_fixture.h"
#include "support/tiny_model.h"

static void load_changes_no_token(void **state)
{
    (void)state;
    trm_model *other; /* with more tokens */
    assert_ok(trm_model_open(tiny_model(test_temporary_folder(), (int32_t)test_llama.info.vocab + 9), &other));
    static const struct {
        int32_t sequences, step_tokens;
        int64_t cache_tokens;
        bool prefix_cache, cancels;
        trm_speculation speculation;
        enum { DRAFT_NONE, DRAFT_SAME, DRAFT_OTHER } draft;
    } shapes[] = {
        {24, 128, 0, false, false, {0}, DRAFT_NONE}, /* room for all */
        {6, 16, 0, true, false, {0}, DRAFT_NONE},    /* small chunks beside decodes */
        {8, 24, 200, true, false, {0}, DRAFT_NONE},  /* not enough cache: preemption */
        {8, 9, 200, false, true, {0}, DRAFT_NONE},
        {5, 64, 176, true, true, {0}, DRAFT_NONE},
        {3, 7, 300, true, true, {0}, DRAFT_NONE},
        {24, 40, 512, true, true, {0}, DRAFT_NONE},
        {24, 128, 0, false, false, {TRM_SPECULATION_NGRAM, 15}, DRAFT_NONE},
        {6, 16, 0, true, false, {TRM_SPECULATION_NGRAM, 3}, DRAFT_NONE},
        {8, 24, 200, true, false, {TRM_SPECULATION_NGRAM, 0}, DRAFT_NONE},
        {5, 64, 176, true, true, {TRM_SPECULATION_NGRAM, 5}, DRAFT_NONE},
        {24, 40, 512, true, true, {TRM_SPECULATION_AUTO, 0}, DRAFT_NONE},
        {24, 128, 0, false, false, {TRM_SPECULATION_NGRAM, 4}, DRAFT_SAME},
        {8, 24, 200, true, true, {TRM_SPECULATION_NGRAM, 3}, DRAFT_SAME},
        {5, 64, 176, true, true, {TRM_SPECULATION_NGRAM, 5}, DRAFT_OTHER},
        {24, 40, 512, true, true, {TRM_SPECULATION_AUTO, 0}, DRAFT_SAME},
    };
    static load l, alone;
    uint64_t random = test_seed();
    int64_t preemptions = 0, hits = 0;
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        load_make(&l, LOAD_REQUESTS, &random, test_text, LOAD_TOKENS, (int32_t)test_llama.info.vocab, 80, 40);
        trm_generator *g = make(128, 1, 128, 0);
        trm_scheduler *s = schedule(g, false, 0);
        load_run_alone(s, &l);
        alone = l;
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
        for (int32_t pads = 0; pads < 2; pads++) { /* as steps of captured forms are */
            g = make_speculating(128, shapes[k].sequences, shapes[k].step_tokens, shapes[k].cache_tokens,
                                 shapes[k].speculation, pads == 1);
            trm_generator *draft = make_draft(shapes[k].draft == DRAFT_OTHER ? other : test_llama.model, g);
            assert_ok(trm_generator_set_draft(g, shapes[k].draft == DRAFT_NONE ? NULL : draft));
            s = schedule(g, shapes[k].prefix_cache, 0);
            for (int32_t i = 0; i < 1 + pads; i++) {
                load_run_together(s, &l, &alone, &random, shapes[k].cancels);
            }
            trm_scheduler_stats stats;
            trm_scheduler_get_stats(s, &stats);
            preemptions += stats.preemptions;
            hits += stats.prefix_hits;
            assert_int_equal(stats.prefix_hits > 0, shapes[k].prefix_cache);
            assert_int_equal(stats.blocks_used, 0);
            if (shapes[k].speculation.kind == TRM_SPECULATION_NGRAM) {
                assert_true(stats.drafted_tokens > stats.accepted_tokens);
                assert_true(stats.accepted_tokens > 0 || shapes[k].draft == DRAFT_OTHER);
            }
            trm_scheduler_destroy(s);
            trm_generator_destroy(g);
            trm_generator_destroy(draft);
        }
    }
    trm_model_close(other);
    assert_true(preemptions > 0);
    assert_true(hits > 0);
}

/* Decode steps start before the last one's tokens are read, whatever comes, ends, is cancelled or preempted. */
static void async_steps_change_no_token(void **state)
{
    (void)state;
    static const struct {
        int32_t sequences, step_tokens;
        int64_t cache_tokens;
        bool prefix_cache, cancels;
    } shapes[] = {
        {24, 128, 0, false, false}, {6, 16, 0, true, true}, {8, 24, 200, true, true}, {3, 7, 300, false, true}};
    static load l, alone;
    uint64_t random = test_seed();
    int64_t preemptions = 0, vain = 0;
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        load_make(&l, LOAD_REQUESTS, &random, test_text, LOAD_TOKENS, (int32_t)test_llama.info.vocab, 40, 40);
        load_make_plain(&l);
        trm_generator *g = make(128, 1, 128, 0);
        trm_scheduler *s = schedule(g, false, 0);
        load_run_alone(s, &l);
        alone = l;
        assert_int_equal(g->ahead.n_taken + g->ahead.n_vain, 0);
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
        g = make_speculating(128, shapes[k].sequences, shapes[k].step_tokens, shapes[k].cache_tokens,
                             (trm_speculation){0}, true);
        if (k % 2 == 1) { /* tables of 32 tokens first, then of all */
            trm_capture_cache *captures = trm_context_captures(g->context);
            trm_graph_buckets_init(&g->buckets, g->max_sequences, 0, g->max_rows, 2);
            trm_capture_cache_fini(captures);
            assert_ok(trm_graph_buckets_open(&g->buckets, captures));
        }
        s = schedule(g, shapes[k].prefix_cache, 0);
        load_run_together(s, &l, &alone, &random, shapes[k].cancels);
        load_run_together(s, &l, &alone, &random, false);
        trm_scheduler_stats stats;
        trm_scheduler_get_stats(s, &stats);
        preemptions += stats.preemptions;
        vain += g->ahead.n_vain;
        assert_true(g->ahead.n_taken > stats.decode_steps / 4);
        trm_scheduler_destroy(s);
        assert_null(g->ahead.step);
        trm_generator_destroy(g);
    }
    assert_true(preemptions > 0);
    assert_in_range(vain, 0, 8); /* those of which all sequences are cancelled */
}

static void what_can_never_run_is_refused(void **state)
{
    (void)state;
    trm_generator *g = make(50, 2, 32, 0);
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    options.max_waiting = 3;
    trm_scheduler *s;
    assert_ok(trm_scheduler_create(g, &options, &s));
    trm_serving_request r = request_of(1, 50, 1);
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "the context holds 50 including");
    r = request_of(1, 0, 1);
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "0 prompt tokens");
    r = request_of(1, 5, -2);
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "max_tokens -2");
    r = request_of(1, 5, 5);
    r.n_resumed = 5;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "5 of them resumed");
    r = request_of(1, 5, 5);
    r.size--;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "_INIT");
    int32_t bad[2] = {3, (int32_t)test_llama.info.vocab};
    r = request_of(1, 2, 5);
    r.prompt = bad;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "outside the vocabulary");
    r = request_of(1, 5, 5);
    r.sampling.base.temperature = NAN;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "temperature nan");
    r = request_of(1, 5, 5);
    r.sampling.typical_p = -0.5f;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "typical_p -0.5");
    r = request_of(1, 5, 5);
    r.sampling.frequency_penalty = INFINITY;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "frequency_penalty inf");
    trm_logit_bias bias = {(int32_t)test_llama.info.vocab, 1.0f};
    r = request_of(1, 5, 5);
    r.sampling.bias = &bias;
    r.sampling.n_bias = 1;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "logit bias 0");
    r = request_of(1, 5, 5);
    r.logprobs = 21;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "logprobs 21");
    r = request_of(1, 5, 5);
    r.n_stop_tokens = 1;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "stop tokens");
    assert_false(trm_scheduler_has_work(s));
    assert_false(trm_scheduler_cancel(s, 1));
    for (uint64_t id = 1; id <= 3; id++) {
        r = request_of(id, 5, 2);
        assert_ok(trm_scheduler_submit(s, &r));
        assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "already running");
    }
    r = request_of(4, 5, 2);
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_BUSY, "3 requests wait");
    assert_int_equal(trm_status_exit_code(TRM_ERROR_BUSY), 1);
    /* submitting and cancelling without a step ends somewhere too */
    int32_t taken = 0;
    for (uint64_t id = 2; id < 40; id++) {
        r = request_of(id, 5, 2);
        if (id > 3 && trm_scheduler_submit(s, &r) == TRM_OK) {
            taken++;
        }
        trm_scheduler_cancel(s, id);
    }
    assert_in_range(taken, 1, 5);
    const trm_serving_event *events;
    int32_t n, ended = 0;
    while (trm_scheduler_has_work(s)) {
        assert_ok(trm_scheduler_step(s, &events, &n));
        for (int32_t i = 0; i < n; i++) {
            ended += events[i].kind == TRM_EVENT_FINISHED;
        }
    }
    assert_int_equal(ended, 3 + taken);
    assert_ok(trm_scheduler_step(s, &events, &n)); /* nothing to do */
    assert_int_equal(n, 0);
    assert_ok(trm_scheduler_end(s));
    assert_fails(trm_scheduler_step(s, &events, &n), TRM_ERROR_INVALID_ARGUMENT, "ended");
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "ended");
    assert_fails(trm_scheduler_follow(s), TRM_ERROR_INVALID_ARGUMENT, "rank 0 leads");
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* A second request with the same prompt runs its last block only, and of two that come together the second waits for
 * the first. */
static void equal_beginnings_are_run_once(void **state)
{
    (void)state;
    trm_generator *g = make(96, 4, 64, 0);
    trm_scheduler *s = schedule(g, true, 0);
    const trm_serving_event *events;
    int32_t n;
    trm_serving_request r = request_of(1, 64, 1);
    assert_ok(trm_scheduler_submit(s, &r));
    r.id = 2;
    r.n_prompt = 70;
    assert_ok(trm_scheduler_submit(s, &r));
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_int_equal(s->stats.last_step_tokens, 64);
    assert_non_null(find_event(events, n, 1, TRM_EVENT_FINISHED));
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_int_equal(s->stats.last_step_tokens, 6);
    const trm_serving_event *end = find_event(events, n, 2, TRM_EVENT_FINISHED);
    assert_non_null(end);
    assert_int_equal(end->n_cached, 64);
    assert_int_equal(end->n_prompt, 70);
    r.id = 3;
    r.n_prompt = 64; /* at least one token is run */
    assert_ok(trm_scheduler_submit(s, &r));
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_int_equal(s->stats.last_step_tokens, 16);
    /* output is found again too */
    trm_serving_request first = request_of(4, 20, 30), second = first;
    assert_ok(trm_scheduler_submit(s, &first));
    int32_t conversation[50];
    memcpy(conversation, test_text, sizeof(conversation));
    while (trm_scheduler_has_work(s)) {
        assert_ok(trm_scheduler_step(s, &events, &n));
        const trm_serving_event *token = find_event(events, n, 4, TRM_EVENT_TOKEN);
        if (token != NULL) {
            conversation[20 + token->index] = token->token;
        }
    }
    second.id = 5;
    second.prompt = conversation;
    second.n_prompt = 50;
    second.max_tokens = 1;
    assert_ok(trm_scheduler_submit(s, &second));
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_int_equal(find_event(events, n, 5, TRM_EVENT_FINISHED)->n_cached, 48);
    trm_scheduler_stats stats;
    trm_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.prefix_queries, 64 + 70 + 64 + 20 + 50);
    assert_int_equal(stats.blocks_used, 0);
    assert_true(stats.blocks_cached >= 6);
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

static void order_is_by_priority_then_arrival(void **state)
{
    (void)state;
    trm_generator *g = make(64, 2, 64, 0);
    trm_scheduler *s = schedule(g, false, 0);
    const trm_serving_event *events;
    int32_t n;
    trm_serving_request r = request_of(1, 10, 6);
    assert_ok(trm_scheduler_submit(s, &r));
    r.id = 2;
    assert_ok(trm_scheduler_submit(s, &r));
    r.id = 3;
    assert_ok(trm_scheduler_submit(s, &r));
    r.id = 4;
    r.priority = 1;
    assert_ok(trm_scheduler_submit(s, &r));
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_non_null(find_event(events, n, 4, TRM_EVENT_TOKEN));
    assert_non_null(find_event(events, n, 1, TRM_EVENT_TOKEN));
    assert_int_equal(n, 2);
    r.id = 5; /* takes the place of the last in order */
    r.priority = 2;
    assert_ok(trm_scheduler_submit(s, &r));
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_non_null(find_event(events, n, 5, TRM_EVENT_TOKEN));
    assert_non_null(find_event(events, n, 4, TRM_EVENT_TOKEN));
    assert_int_equal(s->stats.preemptions, 1);
    uint64_t ended[5];
    int32_t n_ended = 0;
    while (trm_scheduler_has_work(s)) {
        assert_ok(trm_scheduler_step(s, &events, &n));
        for (int32_t i = 0; i < n; i++) {
            if (events[i].kind == TRM_EVENT_FINISHED) {
                ended[n_ended++] = events[i].id;
                assert_int_equal(events[i].n_output, 6);
            }
        }
    }
    assert_int_equal(n_ended, 5);
    static const uint64_t expected[] = {4, 5, 1, 2, 3};
    assert_memory_equal(ended, expected, sizeof(expected));
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* A request of a client: their ids are client * 1000 + number. */
static void submit_of(trm_scheduler *s, uint64_t client, uint64_t number, int64_t n_prompt, int64_t tokens,
                      int32_t priority)
{
    trm_serving_request r = request_of(client * 1000 + number, n_prompt, tokens);
    r.client = client;
    r.priority = priority;
    assert_ok(trm_scheduler_submit(s, &r));
}

/* Steps until a request has ended, of a scheduler that runs one at a time. */
static uint64_t next_end(trm_scheduler *s)
{
    while (trm_scheduler_has_work(s)) {
        const trm_serving_event *events;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
        for (int32_t i = 0; i < n; i++) {
            if (events[i].kind == TRM_EVENT_FINISHED) {
                assert_int_equal(events[i].finish, TRM_FINISH_LENGTH);
                return events[i].id;
            }
        }
    }
    fail_msg("nothing ends any more");
    return 0;
}

static void clients_are_served_alike(void **state)
{
    (void)state;
    enum { MANY = 40 };
    trm_generator *g = make(64, 1, 64, 0);
    trm_scheduler *s = schedule(g, false, 0);
    for (uint64_t i = 0; i < MANY; i++) {
        submit_of(s, 1, i, 10, 5, 0);
    }
    for (uint64_t i = 0; i < 8; i++) {
        assert_int_equal(next_end(s), 1000 + i);
    }
    /* One request of another client waits for those that run, and at most one more. */
    submit_of(s, 2, 0, 10, 5, 0);
    uint64_t first = next_end(s), second = next_end(s);
    assert_true(first == 2000 || second == 2000);
    /* What was not asked for is not saved up: from now on it gets its half, of which each takes as much as four of the
     * others: 40 tokens and twice 20, not 10 and twice 5. */
    for (uint64_t i = 1; i <= 5; i++) {
        submit_of(s, 2, i, 40, 20, 0);
    }
    uint64_t expected = 1001 + 8;
    int32_t others = 0, own = 0;
    expected -= first == 2000 || second == 2000 ? 0 : 1;
    while (own < 5) {
        uint64_t id = next_end(s);
        if (id / 1000 == 2) {
            assert_int_equal(id, 2001 + (uint64_t)own);
            own++;
            assert_in_range(others, 4 * (own - 1), 4 * (own - 1) + 5);
        } else {
            assert_int_equal(id, expected);
            expected++;
            others++;
        }
    }
    while (trm_scheduler_has_work(s)) {
        assert_int_equal(next_end(s), expected);
        expected++;
        if (expected == 1000 + MANY) {
            break;
        }
    }
    assert_int_equal(s->n_running + s->n_waiting, 0);
    assert_null(s->levels); /* and all is forgotten */
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

static void priorities_come_before_shares(void **state)
{
    (void)state;
    trm_generator *g = make(64, 1, 64, 0);
    trm_scheduler *s = schedule(g, false, 0);
    for (uint64_t i = 0; i < 4; i++) {
        submit_of(s, 1, i, 10, 5, 1);
        submit_of(s, 2, i, 10, 5, 0);
        submit_of(s, 3, i, 10, 5, 0);
    }
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(next_end(s), 1000 + i);
    }
    submit_of(s, 1, 4, 10, 5, 0); /* what it had of another priority does not count */
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t a = next_end(s), b = next_end(s), c = i == 0 ? next_end(s) : 0;
        if (i == 0) {
            assert_true(a / 1000 + b / 1000 + c / 1000 == 6 && a != b && b != c && a != c);
        } else {
            assert_true((a == 2000 + i && b == 3000 + i) || (a == 3000 + i && b == 2000 + i));
        }
    }
    assert_false(trm_scheduler_has_work(s));
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* What was begun is not left for what another client asks: a preempted request is ahead of all that have not run. */
static void turns_are_kept(void **state)
{
    (void)state;
    trm_generator *g = make(64, 2, 64, 0);
    trm_scheduler *s = schedule(g, false, 0);
    const trm_serving_event *events;
    int32_t n;
    submit_of(s, 1, 0, 10, 20, 0);
    submit_of(s, 1, 1, 10, 20, 0);
    assert_ok(trm_scheduler_step(s, &events, &n));
    submit_of(s, 2, 0, 10, 5, 0);
    submit_of(s, 3, 0, 10, 2, 1); /* takes the place of 1001 */
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_int_equal(s->stats.preemptions, 1);
    assert_int_equal(next_end(s), 3000);
    assert_int_equal(next_end(s), 1000);
    assert_int_equal(s->n_running + s->n_waiting, 2);
    assert_int_equal(s->running[0]->request.id, 1001);
    assert_int_equal(next_end(s), 1001);
    assert_int_equal(next_end(s), 2000);
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* A client that was given more than others still gets its turn when there are always new ones. */
static void newcomers_keep_nobody_out(void **state)
{
    (void)state;
    trm_generator *g = make(64, 1, 64, 0);
    trm_scheduler *s = schedule(g, false, 0);
    submit_of(s, 1, 0, 10, 40, 0);
    submit_of(s, 1, 1, 10, 1, 0);
    uint64_t next = 2, ended = 0;
    submit_of(s, next++, 0, 10, 1, 0);
    for (; ended != 1001 && next < 80; next++) {
        submit_of(s, next, 0, 10, 1, 0);
        ended = next_end(s);
    }
    assert_int_equal(ended, 1001);
    assert_in_range(next, 5, 60);
    while (trm_scheduler_has_work(s)) {
        ended = next_end(s);
    }
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* What was half written where it ran before is ahead of all that have not begun; afterwards clients share alike. */
static void resumed_requests_come_first(void **state)
{
    (void)state;
    trm_generator *g = make(64, 4, 64, 0);
    trm_scheduler *s = schedule(g, false, 0);
    const trm_serving_event *events;
    int32_t n;
    for (uint64_t client = 2; client < 10; client++) {
        submit_of(s, client, 0, 10, 20, 0);
    }
    for (uint64_t i = 0; i < 4; i++) {
        trm_serving_request r = request_of(1000 + i, 20, 10);
        r.client = 1;
        r.n_resumed = 10;
        assert_ok(trm_scheduler_submit(s, &r));
    }
    submit_of(s, 1, 4, 10, 20, 0);
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_int_equal(s->n_running, 4);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(s->running[i]->request.id, 1000 + i);
    }
    uint64_t ended[13];
    int32_t n_ended = 0;
    while (trm_scheduler_has_work(s)) {
        assert_ok(trm_scheduler_step(s, &events, &n));
        for (int32_t i = 0; i < n; i++) {
            if (events[i].kind == TRM_EVENT_FINISHED) {
                ended[n_ended++] = events[i].id;
            }
        }
    }
    assert_int_equal(n_ended, 13);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(ended[i], 1000 + i);
    }
    assert_int_equal(ended[12], 1004); /* the others had been given nothing */
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* Steps until a request has ended. How many have ended meanwhile, with it. */
static int32_t ends_until(trm_scheduler *s, uint64_t id)
{
    for (int32_t n_ended = 0; trm_scheduler_has_work(s);) {
        const trm_serving_event *events;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
        for (int32_t i = 0; i < n; i++) {
            n_ended += events[i].kind == TRM_EVENT_FINISHED;
        }
        if (find_event(events, n, id, TRM_EVENT_FINISHED) != NULL) {
            return n_ended;
        }
    }
    fail_msg("request %d does not end", (int)id);
    return 0;
}

/* Clients have generated, with requests of their own that wait or with none; then another has much to ask. */
static void work_alone_is_not_held_against_anybody(void **state)
{
    (void)state;
    enum { MANY = 100 };
    static const struct {
        int32_t clients, running, waiting; /* requests of each client */
    } cases[] = {{1, 1, 0}, {2, 1, 0}, {1, 1, 1}, {1, 2, 1}, {2, 1, 1}, {2, 2, 1}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        const int32_t clients = cases[c].clients, running = cases[c].running, waiting = cases[c].waiting;
        trm_generator *g = make(128, clients * running, 128, 0);
        trm_scheduler *s = schedule(g, false, 0);
        const trm_serving_event *events;
        int32_t n;
        for (int32_t i = 0; i < running + waiting; i++) {
            for (int32_t client = 1; client <= clients; client++) {
                submit_of(s, (uint64_t)client, (uint64_t)i, 1, i < running ? 110 : 1, 0);
            }
        }
        for (int32_t i = 0; i < 108; i++) {
            assert_ok(trm_scheduler_step(s, &events, &n));
        }
        assert_int_equal(s->n_running, clients * running);
        for (uint64_t i = 0; i < MANY; i++) {
            submit_of(s, (uint64_t)clients + 1, i, 1, 1, 0);
        }
        uint64_t last = (uint64_t)(running + waiting);
        submit_of(s, 1, last, 1, 1, 0);
        int32_t ends = ends_until(s, 1000 + last);
        if (ends > clients * (running + waiting) + MANY / 10) {
            fail_msg("case %d: it ends as number %d", (int)c, ends);
        }
        while (trm_scheduler_has_work(s)) {
            assert_ok(trm_scheduler_step(s, &events, &n));
        }
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
    }
}

/* Requests that a pass of admission has left waiting are not tried again for each of those behind them. */
static void a_pass_looks_at_each_once(void **state)
{
    (void)state;
    trm_generator *g = make(64, 2, 64, 0);
    trm_scheduler *s = schedule(g, false, 0);
    for (uint64_t i = 0; i < 4; i++) {
        submit_of(s, 1, i, 10, 1, 0);
    }
    s->pass++;
    trm_sequence *first = trm_scheduler_next(s);
    assert_int_equal(first->request.id, 1000);
    first->passed = s->pass;
    trm_sequence *second = trm_scheduler_next(s);
    assert_int_equal(second->request.id, 1001);
    first->passed = 0; /* which a look would see */
    assert_ptr_equal(trm_scheduler_next(s), second);
    assert_true(trm_scheduler_cancel(s, 1001)); /* what goes and what comes meanwhile is known */
    trm_sequence *third = trm_scheduler_next(s);
    assert_int_equal(third->request.id, 1002);
    first->passed = third->passed = s->pass;
    trm_serving_request r = request_of(1004, 20, 1);
    r.client = 1;
    r.n_resumed = 10;
    assert_ok(trm_scheduler_submit(s, &r));
    trm_sequence *resumed = trm_scheduler_next(s);
    assert_int_equal(resumed->request.id, 1004);
    resumed->passed = s->pass;
    assert_int_equal(trm_scheduler_next(s)->request.id, 1003);
    s->pass++;
    assert_ptr_equal(trm_scheduler_next(s), resumed);
    while (trm_scheduler_has_work(s)) {
        const trm_serving_event *events;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
    }
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

static void requests_end_where_they_should(void **state)
{
    (void)state;
    trm_generator *g = make(64, 2, 64, 0);
    trm_scheduler *s = schedule(g, true, 0);
    const trm_serving_event *events;
    int32_t n, tokens[8];
    trm_serving_request r = request_of(1, 12, 8);
    r.sampling.base = (trm_sampling){2.0f, 0, 1.0f, 0.0f, 1.0f, 5};
    assert_ok(trm_scheduler_submit(s, &r));
    for (int32_t i = 0; i < 8; i++) {
        assert_ok(trm_scheduler_step(s, &events, &n));
        tokens[i] = find_event(events, n, 1, TRM_EVENT_TOKEN)->token;
    }
    /* the token at 5, if it is not among the earlier ones */
    int32_t stop = 5;
    while (stop > 0 && memchr(tokens, tokens[stop], 1) == NULL) {
        stop--;
    }
    int32_t first = 0;
    while (tokens[first] != tokens[stop]) {
        first++;
    }
    r.id = 2;
    r.stop_tokens = &tokens[stop];
    r.n_stop_tokens = 1;
    assert_ok(trm_scheduler_submit(s, &r));
    for (int32_t i = 0; i < first; i++) {
        assert_ok(trm_scheduler_step(s, &events, &n));
        assert_null(find_event(events, n, 2, TRM_EVENT_FINISHED));
    }
    assert_ok(trm_scheduler_step(s, &events, &n));
    const trm_serving_event *end = find_event(events, n, 2, TRM_EVENT_FINISHED);
    assert_non_null(end);
    assert_null(find_event(events, n, 2, TRM_EVENT_TOKEN));
    assert_int_equal(end->finish, TRM_FINISH_STOP);
    assert_int_equal(end->token, tokens[stop]);
    assert_int_equal(end->n_output, first);
    /* resumed after three tokens it goes on as it would have */
    int32_t so_far[15];
    memcpy(so_far, test_text, sizeof(so_far));
    memcpy(so_far + 12, tokens, 3 * sizeof(*tokens));
    r.id = 3;
    r.prompt = so_far;
    r.n_prompt = 15;
    r.n_resumed = 3;
    r.max_tokens = 5;
    r.n_stop_tokens = 0;
    assert_ok(trm_scheduler_submit(s, &r));
    for (int32_t i = 0; i < 5; i++) {
        assert_ok(trm_scheduler_step(s, &events, &n));
        assert_int_equal(find_event(events, n, 3, TRM_EVENT_TOKEN)->token, tokens[3 + i]);
    }
    /* the context is a limit; no token at all can be asked for */
    r = request_of(4, 60, 100);
    assert_ok(trm_scheduler_submit(s, &r));
    r = request_of(5, 64, TRM_NO_TOKENS);
    assert_ok(trm_scheduler_submit(s, &r));
    int64_t outputs[2] = {-1, -1};
    while (trm_scheduler_has_work(s)) {
        assert_ok(trm_scheduler_step(s, &events, &n));
        for (int32_t i = 0; i < n; i++) {
            if (events[i].kind == TRM_EVENT_FINISHED) {
                assert_int_equal(events[i].finish, TRM_FINISH_LENGTH);
                outputs[events[i].id - 4] = events[i].n_output;
            }
        }
    }
    assert_int_equal(outputs[0], 4);
    assert_int_equal(outputs[1], 0);
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* A long prompt leaves room in each step for the short ones behind it, and has all of it when it is alone. */
static void long_prompts_share(void **state)
{
    (void)state;
    trm_generator *g = make(0, 8, 64, 0);
    trm_scheduler *s = schedule(g, false, 64);
    const trm_serving_event *events;
    int32_t n;
    assert_true(LOAD_TOKENS >= 96 && s->g->max_context >= 128);
    s->long_prompt = 16;
    trm_serving_request r = request_of(1, 96, 1);
    assert_ok(trm_scheduler_submit(s, &r));
    r = request_of(2, 10, 1);
    assert_ok(trm_scheduler_submit(s, &r));
    r = request_of(3, 90, 1);
    assert_ok(trm_scheduler_submit(s, &r));
    assert_ok(trm_scheduler_step(s, &events, &n)); /* 32 and 10 and 22 */
    assert_int_equal(s->stats.last_step_tokens, 64);
    assert_non_null(find_event(events, n, 2, TRM_EVENT_FINISHED));
    assert_int_equal(s->running[0]->n_cached, 32);
    assert_int_equal(s->running[1]->n_cached, 22);
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_int_equal(s->running[0]->n_cached, 64);
    assert_int_equal(s->running[1]->n_cached, 54);
    assert_true(trm_scheduler_cancel(s, 1));
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_int_equal(s->stats.last_step_tokens, 36);
    assert_non_null(find_event(events, n, 3, TRM_EVENT_FINISHED));
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* By default prompts get 24 tokens for each decoding sequence, which fill steps of two chunks or a multiple. */
static void chunks_grow_with_the_decoding_sequences(void **state)
{
    (void)state;
    static const int32_t steps[] = {10, 20, 40, 60, 80}; /* tokens beside 0, 1, 2, 3 and 4 sequences */
    const trm_serving_event *events;
    int32_t n;
    trm_generator *g = make(0, 8, 100, 0);
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    trm_scheduler *s;
    options.no_prefix_cache = true;
    options.prefill_chunk = 10;
    assert_ok(trm_scheduler_create(g, &options, &s));
    s->filled_step = 80;
    for (int32_t i = 0; i < 5; i++) {
        trm_serving_request r = request_of((uint64_t)i + 1, i == 0 ? 10 : 78, 20);
        assert_ok(trm_scheduler_submit(s, &r));
        assert_ok(trm_scheduler_step(s, &events, &n));
        assert_int_equal(s->stats.last_step_tokens, steps[i]);
        while (s->running[i]->n_tokens - s->running[i]->n_cached > 1) {
            assert_ok(trm_scheduler_step(s, &events, &n));
        }
    }
    trm_serving_request r = request_of(6, 17, 20); /* 22 tokens with the others */
    assert_ok(trm_scheduler_submit(s, &r));
    assert_ok(trm_scheduler_step(s, &events, &n));
    assert_int_equal(s->stats.last_step_tokens, 20);
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* Prompts take small steps while others decode, and all there is otherwise. */
static void prompts_leave_time_to_decode(void **state)
{
    (void)state;
    static const struct {
        int32_t chunk, first, steps[4];
    } cases[] = {{5, 90, {6, 6, 6, 6}}, {40, 90, {41, 41, 11, 1}}, {64, 90, {65, 27, 1, 1}}, {0, 90, {91, 1, 1, 1}}};
    const trm_serving_event *events;
    int32_t n;
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        trm_generator *g = make(0, 8, 100, 0);
        trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
        trm_scheduler *s;
        options.no_prefix_cache = true;
        options.prefill_chunk = cases[k].chunk;
        assert_ok(trm_scheduler_create(g, &options, &s));
        trm_serving_request r = request_of(1, cases[k].first, 20);
        assert_ok(trm_scheduler_submit(s, &r));
        assert_ok(trm_scheduler_step(s, &events, &n)); /* nobody waits */
        assert_int_equal(s->stats.last_step_tokens, cases[k].first);
        r = request_of(2, 90, 1);
        assert_ok(trm_scheduler_submit(s, &r));
        for (int32_t i = 0; i < 4; i++) {
            assert_ok(trm_scheduler_step(s, &events, &n));
            assert_int_equal(s->stats.last_step_tokens, cases[k].steps[i]);
        }
        trm_scheduler_destroy(s);
        options.prefill_chunk = 10; /* of several prompts four times as many */
        assert_ok(trm_scheduler_create(g, &options, &s));
        r = request_of(1, 60, 9);
        assert_ok(trm_scheduler_submit(s, &r));
        r = request_of(2, 60, 9);
        assert_ok(trm_scheduler_submit(s, &r));
        for (int32_t i = 0; i < 5; i++) {
            assert_ok(trm_scheduler_step(s, &events, &n));
            assert_int_equal(s->stats.last_step_tokens, ((int32_t[]){40, 40, 11, 11, 11})[i]);
        }
        trm_scheduler_destroy(s);
        options.prefill_chunk = -1;
        assert_fails(trm_scheduler_create(g, &options, &s), TRM_ERROR_INVALID_ARGUMENT, "prefill_chunk -1");
        trm_generator_destroy(g);
    }
}

/* Prompts with 32 times as many tokens as two chunks get two, also beside one sequence. */
static void many_prompts_fill_steps(void **state)
{
    (void)state;
    const trm_serving_event *events;
    int32_t n;
    for (int32_t more = 0; more < 2; more++) {
        trm_generator *g = make(0, 12, 100, 0);
        trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
        trm_scheduler *s;
        options.no_prefix_cache = true;
        options.prefill_chunk = 13;
        assert_ok(trm_scheduler_create(g, &options, &s));
        s->filled_step = 52;
        trm_serving_request r = request_of(1, 10, 20);
        assert_ok(trm_scheduler_submit(s, &r));
        assert_ok(trm_scheduler_step(s, &events, &n));
        for (uint64_t id = 2; id <= 10 + (uint64_t)more; id++) {
            r = request_of(id, 90, 1);
            assert_ok(trm_scheduler_submit(s, &r));
        }
        assert_ok(trm_scheduler_step(s, &events, &n));
        assert_int_equal(s->stats.last_step_tokens, more == 0 ? 14 : 26);
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
    }
}

/* Steps with prompts have a multiple of 128 tokens, unless that leaves less than half of a chunk. */
static void chunks_end_steps_with_a_tile(void **state)
{
    (void)state;
    static const struct {
        int32_t chunk, steps[3];
    } cases[] = {{200, {128, 54, 1}}, {130, {128, 54, 1}}, {127, {128, 54, 1}}, {126, {127, 55, 1}}};
    const trm_serving_event *events;
    int32_t n;
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        trm_generator *g = make(0, 8, 300, 0);
        trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
        trm_scheduler *s;
        options.no_prefix_cache = true;
        options.prefill_chunk = cases[k].chunk;
        assert_ok(trm_scheduler_create(g, &options, &s));
        trm_serving_request r = request_of(1, 10, 20);
        assert_ok(trm_scheduler_submit(s, &r));
        assert_ok(trm_scheduler_step(s, &events, &n));
        for (uint64_t id = 2; id <= 3; id++) {
            r = request_of(id, 90, 1);
            assert_ok(trm_scheduler_submit(s, &r));
        }
        for (int32_t i = 0; i < 3; i++) {
            assert_ok(trm_scheduler_step(s, &events, &n));
            assert_int_equal(s->stats.last_step_tokens, cases[k].steps[i]);
        }
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_changes_no_token),
        cmocka_unit_test(async_steps_change_no_token),
        cmocka_unit_test(what_can_never_run_is_refused),
        cmocka_unit_test(equal_beginnings_are_run_once),
        cmocka_unit_test(order_is_by_priority_then_arrival),
        cmocka_unit_test(requests_end_where_they_should),
        cmocka_unit_test(long_prompts_share),
        cmocka_unit_test(prompts_leave_time_to_decode),
        cmocka_unit_test(chunks_grow_with_the_decoding_sequences),
        cmocka_unit_test(many_prompts_fill_steps),
        cmocka_unit_test(chunks_end_steps_with_a_tile),
        cmocka_unit_test(clients_are_served_alike),
        cmocka_unit_test(priorities_come_before_shares),
        cmocka_unit_test(turns_are_kept),
        cmocka_unit_test(newcomers_keep_nobody_out),
        cmocka_unit_test(resumed_requests_come_first),
        cmocka_unit_test(a_pass_looks_at_each_once),
        cmocka_unit_test(work_alone_is_not_held_against_anybody),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, open_all, test_close_world);
}
