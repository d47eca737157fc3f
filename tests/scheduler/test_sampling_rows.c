/* What requests ask of the scheduler beside text: biases, penalties, masks and ends, drafts, embeddings. */
#include "support/support.h"

#include <math.h>

#include "scheduler/scheduler_fixture.h"
#include "support/tiny_model.h"

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
    memcpy(so_far, test_text, sizeof(so_far));
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
    assert_non_null(strstr(error, "allows no token"));
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
                  *speculating = make_speculating(96, 2, 64, 0, (trm_speculation){TRM_SPECULATION_NGRAM, 7}, false);
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
    trm_generator *g = make_speculating(96, 3, 64, 0, (trm_speculation){TRM_SPECULATION_NGRAM, 4}, false),
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
    trm_serving_request r = request_of(77, n, TRM_NO_TOKENS);
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
    options.speculation.kind = TRM_SPECULATION_NGRAM;
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
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "max_tokens is not");
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
    trm_model_close(model);
    g = make(64, 2, 64, 0);
    s = schedule(g, true, 0);
    r.max_tokens = TRM_NO_TOKENS;
    assert_fails(trm_scheduler_submit(s, &r), TRM_ERROR_INVALID_ARGUMENT, "created without embeddings");
    trm_scheduler_destroy(s);
    trm_generator_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_shape_their_tokens),
        cmocka_unit_test(drafts_change_no_choice),
        cmocka_unit_test(a_model_drafts),
        cmocka_unit_test(embeddings_are_hidden_states),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, open_all, test_close_world);
}
