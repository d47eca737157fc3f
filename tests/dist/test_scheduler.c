/* The scheduler on one rank: the same output alone and under load, admission, order, and no block lost. */
#include "support/support.h"

#include <math.h>

#include "dist/scheduler_load.h"
#include "support/world.h"
#include "tiny_model.h"

static int32_t text[LOAD_TOKENS];

static trm_generator *make_speculating(int64_t context, int32_t sequences, int32_t step_tokens, int64_t cache_tokens,
                                       trm_speculation speculation)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    options.max_context = context;
    options.max_sequences = sequences;
    options.max_step_tokens = step_tokens;
    options.cache_tokens = cache_tokens;
    options.dtype = TRM_F32;
    options.speculation = speculation;
    assert_ok(trm_generator_create(test_llama.model, test_world, &options, &generator));
    return generator;
}

static trm_generator *make(int64_t context, int32_t sequences, int32_t step_tokens, int64_t cache_tokens)
{
    return make_speculating(context, sequences, step_tokens, cache_tokens, (trm_speculation){0});
}

static trm_scheduler *schedule(trm_generator *generator, bool prefix_cache, int32_t step_tokens)
{
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    trm_scheduler *s;
    options.prefix_cache = prefix_cache;
    options.step_tokens = step_tokens;
    assert_ok(trm_scheduler_create(generator, &options, &s));
    return s;
}

/* A generator that drafts for another one: not as far as its contexts go. */
static trm_generator *make_draft(trm_model *model, const trm_generator *g)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *draft;
    options.max_context = 64;
    options.max_sequences = g->max_sequences + 1;
    options.max_step_tokens = 32;
    assert_ok(trm_generator_create(model, test_world, &options, &draft));
    return draft;
}

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
        {24, 128, 0, false, false, {TRM_SPECULATION_LOOKUP, 15}, DRAFT_NONE},
        {6, 16, 0, true, false, {TRM_SPECULATION_LOOKUP, 3}, DRAFT_NONE},
        {8, 24, 200, true, false, {TRM_SPECULATION_LOOKUP, 0}, DRAFT_NONE},
        {5, 64, 176, true, true, {TRM_SPECULATION_LOOKUP, 5}, DRAFT_NONE},
        {24, 40, 512, true, true, {TRM_SPECULATION_AUTO, 0}, DRAFT_NONE},
        {24, 128, 0, false, false, {TRM_SPECULATION_LOOKUP, 4}, DRAFT_SAME},
        {8, 24, 200, true, true, {TRM_SPECULATION_LOOKUP, 3}, DRAFT_SAME},
        {5, 64, 176, true, true, {TRM_SPECULATION_LOOKUP, 5}, DRAFT_OTHER},
        {24, 40, 512, true, true, {TRM_SPECULATION_AUTO, 0}, DRAFT_SAME},
    };
    static load l, alone;
    uint64_t random = test_seed();
    int64_t preemptions = 0, hits = 0;
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        load_make(&l, LOAD_REQUESTS, &random, text, LOAD_TOKENS, (int32_t)test_llama.info.vocab, 80, 40);
        trm_generator *g = make(128, 1, 128, 0);
        trm_scheduler *s = schedule(g, false, 0);
        load_run_alone(s, &l);
        alone = l;
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
        g = make_speculating(128, shapes[k].sequences, shapes[k].step_tokens, shapes[k].cache_tokens,
                             shapes[k].speculation);
        trm_generator *draft = make_draft(shapes[k].draft == DRAFT_OTHER ? other : test_llama.model, g);
        assert_ok(trm_generator_set_draft(g, shapes[k].draft == DRAFT_NONE ? NULL : draft));
        s = schedule(g, shapes[k].prefix_cache, 0);
        for (int32_t i = 0; i < 3; i++) {
            g->pads = i > 0; /* as captured steps are */
            load_run_together(s, &l, &alone, &random, shapes[k].cancels);
        }
        trm_scheduler_stats stats;
        trm_scheduler_get_stats(s, &stats);
        preemptions += stats.preemptions;
        hits += stats.prefix_hits;
        assert_int_equal(stats.prefix_hits > 0, shapes[k].prefix_cache);
        assert_int_equal(stats.blocks_used, 0);
        if (shapes[k].speculation.kind == TRM_SPECULATION_LOOKUP) {
            assert_true(stats.drafted_tokens > stats.accepted_tokens);
            assert_true(stats.accepted_tokens > 0 || shapes[k].draft == DRAFT_OTHER);
        }
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
        trm_generator_destroy(draft);
    }
    trm_model_close(other);
    assert_true(preemptions > 0);
    assert_true(hits > 0);
}

static trm_serving_request request_of(uint64_t id, int64_t n_prompt, int64_t max_tokens)
{
    trm_serving_request r = TRM_SERVING_REQUEST_INIT;
    r.id = id;
    r.prompt = text;
    r.n_prompt = n_prompt;
    r.max_tokens = max_tokens;
    r.ignore_eos = true;
    r.sampling.base.temperature = 0.0f;
    return r;
}

static const trm_serving_event *find_event(const trm_serving_event *events, int32_t n, uint64_t id,
                                           trm_serving_event_kind kind)
{
    for (int32_t i = 0; i < n; i++) {
        if (events[i].id == id && events[i].kind == kind) {
            return &events[i];
        }
    }
    return NULL;
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
    r = request_of(1, 5, -1);
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "asks for -1");
    r = request_of(1, 5, 5);
    r.n_resumed = 5;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "5 of them resumed");
    r = request_of(1, 5, 5);
    r.size--;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "TRM_SERVING_REQUEST_INIT");
    int32_t bad[2] = {3, (int32_t)test_llama.info.vocab};
    r = request_of(1, 2, 5);
    r.prompt = bad;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "outside the vocabulary");
    r = request_of(1, 5, 5);
    r.sampling.base.temperature = NAN;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "temperature nan");
    r = request_of(1, 5, 5);
    r.sampling.typical_p = 0.0f;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "typical_p 0");
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
        assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "live already");
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
    memcpy(conversation, text, sizeof(conversation));
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
    memcpy(so_far, text, sizeof(so_far));
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
    r = request_of(5, 64, 0);
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

/* Runs one request to its end; its tokens and the last event. */
static trm_serving_event run_one(trm_scheduler *s, const trm_serving_request *r, int32_t *tokens, char *error)
{
    assert_ok(trm_scheduler_submit(s, r));
    int64_t n_tokens = 0;
    for (;;) {
        const trm_serving_event *events;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
        for (int32_t i = 0; i < n; i++) {
            if (events[i].kind == TRM_EVENT_TOKEN) {
                tokens[n_tokens++] = events[i].token;
            } else if (events[i].kind == TRM_EVENT_FINISHED) {
                assert_int_equal(events[i].n_output, n_tokens);
                if (events[i].error != NULL) {
                    snprintf(error, 256, "%s", events[i].error);
                }
                return events[i];
            }
        }
    }
}

static trm_status only_even(void *user, uint64_t id, const int32_t *tokens, int64_t n_tokens, uint32_t *mask)
{
    int32_t *calls = user;
    assert_int_equal(n_tokens, (*calls)++);
    assert_true(n_tokens == 0 || tokens[n_tokens - 1] % 2 == 0);
    for (int64_t i = 0; i < (test_llama.info.vocab + 31) / 32; i++) {
        assert_int_equal(mask[i], UINT32_MAX);
        mask[i] = 0x55555555u;
    }
    if (id == 7 && n_tokens == 2) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "the grammar gave up");
    }
    if (id == 8 && n_tokens == 1) {
        memset(mask, 0, (size_t)((test_llama.info.vocab + 31) / 32) * sizeof(*mask));
        mask[test_llama.info.vocab / 32] |= ~((1u << (test_llama.info.vocab % 32)) - 1); /* past the vocabulary */
    }
    return TRM_OK;
}

static void requests_shape_their_tokens(void **state)
{
    (void)state;
    trm_generator *g = make(64, 4, 64, 0);
    trm_scheduler *s = schedule(g, true, 0);
    int32_t greedy[16], tokens[16];
    char error[256] = "";
    trm_serving_request r = request_of(1, 12, 16);
    assert_int_equal(run_one(s, &r, greedy, error).finish, TRM_FINISH_LENGTH);
    const int32_t favoured = greedy[0] == 17 ? 18 : 17;
    /* a ban, given twice, and a favour */
    trm_logit_bias bias[3] = {{greedy[0], -60.0f}, {greedy[0], -60.0f}, {favoured, 99.0f}};
    r.sampling.bias = bias;
    r.sampling.n_bias = 2;
    run_one(s, &r, tokens, error);
    for (int32_t i = 0; i < 16; i++) {
        assert_int_not_equal(tokens[i], greedy[0]);
    }
    r.sampling.n_bias = 3;
    run_one(s, &r, tokens, error);
    for (int32_t i = 0; i < 16; i++) {
        assert_int_equal(tokens[i], favoured);
    }
    /* as long as it is not in the output: presence; each time less: frequency, over the favour's 99 */
    r.sampling.presence_penalty = 100.0f;
    run_one(s, &r, tokens, error);
    assert_int_equal(tokens[0], favoured);
    assert_int_not_equal(tokens[1], favoured);
    r.sampling.presence_penalty = 0.0f;
    r.sampling.frequency_penalty = 12.0f;
    run_one(s, &r, tokens, error);
    int32_t times = 0;
    for (int32_t i = 0; i < 16; i++) {
        times += tokens[i] == favoured;
        assert_true(i >= 3 || tokens[i] == favoured);
    }
    assert_in_range(times, 3, 13);
    /* what came before an interruption counts as output, the prompt does not */
    int32_t so_far[16];
    memcpy(so_far, text, sizeof(so_far));
    so_far[10] = so_far[11] = so_far[12] = so_far[13] = favoured;
    r.prompt = so_far;
    r.n_prompt = 14;
    r.n_resumed = 2;
    r.sampling.frequency_penalty = 0.0f;
    r.sampling.presence_penalty = 100.0f;
    bias[2].bias = 50.0f;
    run_one(s, &r, tokens, error);
    assert_int_not_equal(tokens[0], favoured);
    r.n_resumed = 0;
    run_one(s, &r, tokens, error);
    assert_int_equal(tokens[0], favoured);
    /* masks */
    int32_t calls = 0;
    r = request_of(1, 12, 16);
    r.mask = only_even;
    r.mask_user = &calls;
    assert_int_equal(run_one(s, &r, tokens, error).finish, TRM_FINISH_LENGTH);
    assert_int_equal(calls, 16);
    calls = 0;
    r.id = 7;
    trm_serving_event end = run_one(s, &r, tokens, error);
    assert_int_equal(end.finish, TRM_FINISH_ERROR);
    assert_int_equal(end.n_output, 2);
    assert_string_equal(error, "the grammar gave up");
    calls = 0;
    r.id = 8;
    end = run_one(s, &r, tokens, error);
    assert_int_equal(end.finish, TRM_FINISH_ERROR);
    assert_non_null(strstr(error, "leaves no token"));
    /* no end before min_tokens */
    r = request_of(1, 12, 16);
    r.stop_tokens = greedy;
    r.n_stop_tokens = 1;
    assert_int_equal(run_one(s, &r, tokens, error).n_output, 0);
    r.min_tokens = 5;
    end = run_one(s, &r, tokens, error);
    assert_true(end.n_output >= 5);
    for (int64_t i = 0; i < end.n_output; i++) {
        assert_int_not_equal(tokens[i], greedy[0]);
    }
    assert_int_equal(s->blocks.n_free, s->blocks.n);
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

/* What penalties, bans and ends make of a text that repeats itself is the same with drafts. */
static void drafts_change_no_choice(void **state)
{
    (void)state;
    trm_generator *g = make(96, 2, 64, 0),
                  *speculating = make_speculating(96, 2, 64, 0, (trm_speculation){TRM_SPECULATION_LOOKUP, 7});
    trm_scheduler *s = schedule(g, false, 0), *with_drafts = schedule(speculating, true, 0);
    assert_int_equal(speculating->max_rows, 2 + 2 * 7);
    const trm_logit_bias favours[] = {{17, 60.0f}, {18, 60.0f}};
    int32_t stop = 18, accepted_cases = 0;
    for (int32_t i = 0; i < 64; i++) {
        trm_serving_request r = request_of((uint64_t)i + 1, 4 + i % 5, 1 + i % 40);
        r.sampling.bias = favours;
        r.sampling.n_bias = 2;
        r.sampling.frequency_penalty = i % 3 == 0 ? 2.0f : i % 3 == 1 ? 7.0f : 0.0f;
        r.sampling.presence_penalty = i % 4 == 0 ? 20.0f : 0.0f;
        r.sampling.base.repetition_penalty = i % 5 == 0 ? 1.2f : 1.0f;
        r.sampling.base.temperature = i % 2 == 0 ? 0.0f : 1.0f;
        r.sampling.base.seed = (uint64_t)i;
        r.stop_tokens = &stop;
        r.n_stop_tokens = i % 7 == 0;
        r.min_tokens = i % 7 == 0 ? i / 2 : 0;
        r.n_resumed = i % 6 == 0 ? 3 : 0;
        int32_t tokens[40], drafted[40];
        char error[256] = "";
        int64_t accepted = with_drafts->stats.accepted_tokens;
        trm_serving_event end = run_one(s, &r, tokens, error), same = run_one(with_drafts, &r, drafted, error);
        assert_int_equal(end.finish, same.finish);
        assert_int_equal(end.token, same.token);
        assert_int_equal(end.n_output, same.n_output);
        for (int64_t k = 0; k < end.n_output; k++) {
            if (tokens[k] != drafted[k]) {
                fail_msg("request %d: token %d is %d, with drafts %d", i, (int)k, tokens[k], drafted[k]);
            }
        }
        accepted_cases += with_drafts->stats.accepted_tokens > accepted;
        load_check_blocks(with_drafts);
    }
    assert_true(accepted_cases > 20);
    assert_int_equal(with_drafts->blocks.n_free, with_drafts->blocks.n);
    trm_scheduler_destroy(s);
    trm_scheduler_destroy(with_drafts);
    trm_generator_destroy(g);
    trm_generator_destroy(speculating);
}

/* What the same model drafts is right where nothing but its logits decides, also across what is kept of its cache. */
static void a_model_drafts(void **state)
{
    (void)state;
    trm_generator *g = make_speculating(96, 3, 64, 0, (trm_speculation){TRM_SPECULATION_LOOKUP, 4}),
                  *plain = make(96, 3, 64, 0);
    trm_generator *draft = make_draft(test_llama.model, g), *small = make(96, 2, 64, 0);
    assert_fails(trm_generator_set_draft(g, small), TRM_ERROR_INVALID_ARGUMENT, "of 2 sequences");
    assert_fails(trm_generator_set_draft(plain, draft), TRM_ERROR_INVALID_ARGUMENT, "speculation off");
    assert_fails(trm_generator_set_draft(g, g), TRM_ERROR_INVALID_ARGUMENT, "for itself");
    assert_fails(trm_generator_set_draft(NULL, g), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_ok(trm_generator_set_draft(g, draft));
    trm_scheduler *s = schedule(g, true, 0), *alone = schedule(plain, true, 0);
    int32_t tokens[40], expected[40];
    char error[256];
    for (uint64_t turn = 0; turn < 3; turn++) { /* slots are used again; prefixes are found in one cache only */
        trm_serving_request r = request_of(1 + turn, 20 + 3 * (int64_t)turn, 30);
        int64_t steps = s->stats.steps, drafted = s->stats.drafted_tokens, accepted = s->stats.accepted_tokens;
        run_one(alone, &r, expected, error);
        run_one(s, &r, tokens, error);
        assert_memory_equal(tokens, expected, 30 * sizeof(*tokens));
        assert_int_equal(s->stats.accepted_tokens - accepted, s->stats.drafted_tokens - drafted);
        assert_int_equal(s->stats.steps - steps,
                         1 + 6);            /* one token, then five at a time, of which the last step drafts three */
        r.sampling.base.temperature = 1.0f; /* some are wrong now */
        r.max_tokens = 40;
        run_one(alone, &r, expected, error);
        run_one(s, &r, tokens, error);
        assert_memory_equal(tokens, expected, sizeof(tokens));
    }
    assert_true(s->stats.accepted_tokens < s->stats.drafted_tokens);
    trm_scheduler_destroy(s);
    trm_scheduler_destroy(alone);
    assert_ok(trm_generator_set_draft(g, NULL));
    trm_generator_destroy(g);
    trm_generator_destroy(plain);
    trm_generator_destroy(draft);
    trm_generator_destroy(small);
}

/* The embedding of the first n tokens of a text, from a scheduler that may have others to do. */
static void embed(trm_scheduler *s, const int32_t *tokens, int64_t n, trm_embedding kind, float *to)
{
    trm_serving_request r = request_of(77, n, 0);
    r.prompt = tokens;
    r.embedding = kind;
    assert_ok(trm_scheduler_submit(s, &r));
    for (;;) {
        const trm_serving_event *events;
        int32_t n_events;
        assert_ok(trm_scheduler_step(s, &events, &n_events));
        const trm_serving_event *end = find_event(events, n_events, 77, TRM_EVENT_FINISHED);
        if (end != NULL) {
            assert_int_equal(end->finish, TRM_FINISH_LENGTH);
            assert_int_equal(end->n_embedding, TINY_HIDDEN);
            memcpy(to, end->embedding, TINY_HIDDEN * sizeof(*to));
            return;
        }
    }
}

/* The model's own table of embeddings, which its logits are products with. */
static void read_table(const char *folder, float *table, int32_t vocab)
{
    char path[4400];
    uint64_t header;
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(&header, sizeof(header), 1, file), 1);
    assert_int_equal(fseek(file, (long)(sizeof(header) + header), SEEK_SET), 0);
    assert_int_equal(fread(table, TINY_HIDDEN * sizeof(*table), (size_t)vocab, file), (size_t)vocab);
    fclose(file);
}

/* Products of the last hidden states with the table are the logits; the mean is that of the last ones of all
 * beginnings; neither depends on chunks, other requests, caches or drafts. */
static void embeddings_are_hidden_states(void **state)
{
    (void)state;
    enum { VOCAB = 50, N = 45 };
    static float table[VOCAB][TINY_HIDDEN];
    const char *folder = tiny_model(test_temporary_folder(), VOCAB);
    trm_model *model;
    read_table(folder, table[0], VOCAB);
    assert_ok(trm_model_open(folder, &model));
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    options.max_context = 60;
    options.max_sequences = 5;
    options.max_step_tokens = 11;
    options.embeddings = true;
    options.speculation.kind = TRM_SPECULATION_LOOKUP;
    trm_generator *g;
    assert_ok(trm_generator_create(model, test_world, &options, &g));
    trm_scheduler *s = schedule(g, true, 0);
    int32_t tokens[N];
    uint64_t random = test_seed();
    for (int32_t i = 0; i < N; i++) {
        tokens[i] = (int32_t)test_random_below(&random, VOCAB);
    }
    float sum[TINY_HIDDEN] = {0}, last[TINY_HIDDEN], mean[TINY_HIDDEN];
    for (int64_t n = 1; n <= N; n++) {
        if (n % 7 == 0) { /* beside others */
            trm_serving_request other = request_of((uint64_t)n, 12, 9);
            other.prompt = tokens;
            assert_ok(trm_scheduler_submit(s, &other));
        }
        embed(s, tokens, n, TRM_EMBEDDING_LAST, last);
        for (int32_t i = 0; i < TINY_HIDDEN; i++) {
            sum[i] += last[i];
        }
        if (n % 9 == 0 || n == 1) {
            embed(s, tokens, n, TRM_EMBEDDING_MEAN, mean);
            for (int32_t i = 0; i < TINY_HIDDEN; i++) {
                assert_true(fabsf(mean[i] - sum[i] / (float)n) < 1e-5f);
            }
        }
    }
    trm_serving_request r = request_of(5, N, 1);
    r.prompt = tokens;
    r.logprobs = 20;
    assert_ok(trm_scheduler_submit(s, &r));
    const trm_serving_event *events, *token = NULL;
    for (int32_t n; token == NULL;) {
        assert_ok(trm_scheduler_step(s, &events, &n));
        token = find_event(events, n, 5, TRM_EVENT_TOKEN);
    }
    float logits[VOCAB] = {0};
    double all = 0.0;
    for (int32_t v = 0; v < VOCAB; v++) {
        for (int32_t i = 0; i < TINY_HIDDEN; i++) {
            logits[v] += table[v][i] * last[i];
        }
        all += exp((double)logits[v]);
    }
    for (int32_t i = 0; i < 20; i++) {
        double expected = (double)logits[token->top[i].token] - log(all);
        assert_true(fabs((double)token->top[i].logprob - expected) < 1e-4);
    }
    /* what is not there is refused */
    r = request_of(6, 5, 3);
    r.embedding = TRM_EMBEDDING_LAST;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "also for tokens");
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
    trm_model_close(model);
    g = make(64, 2, 64, 0);
    s = schedule(g, true, 0);
    r.max_tokens = 0;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "not made for embeddings");
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

/* Prompts take small steps while others decode, and all there is otherwise. */
static void prompts_leave_time_to_decode(void **state)
{
    (void)state;
    static const struct {
        int32_t chunk, first, steps[4];
    } cases[] = {{5, 90, {6, 6, 6, 6}}, {40, 90, {41, 41, 11, 1}}, {64, 90, {91, 1, 1, 1}}, {0, 90, {91, 1, 1, 1}}};
    const trm_serving_event *events;
    int32_t n;
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        trm_generator *g = make(0, 8, 100, 0);
        trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
        trm_scheduler *s;
        options.prefix_cache = false;
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

static int open_all(void **state)
{
    uint64_t random = test_seed();
    test_open_llama(state);
    for (int32_t i = 0; i < LOAD_TOKENS; i++) {
        text[i] = (int32_t)test_random_below(&random, test_llama.info.vocab);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_changes_no_token),          cmocka_unit_test(what_can_never_run_is_refused),
        cmocka_unit_test(equal_beginnings_are_run_once),  cmocka_unit_test(order_is_by_priority_then_arrival),
        cmocka_unit_test(requests_end_where_they_should), cmocka_unit_test(requests_shape_their_tokens),
        cmocka_unit_test(drafts_change_no_choice),        cmocka_unit_test(a_model_drafts),
        cmocka_unit_test(embeddings_are_hidden_states),   cmocka_unit_test(long_prompts_share),
        cmocka_unit_test(prompts_leave_time_to_decode),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, open_all, test_close_world);
}
