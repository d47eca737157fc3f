/* Generation on one rank: the borders of blocks, chunks, contexts and batches, and generators that go on being used. */
#include "support/support.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/llm/generator.h"
#include "support/world.h"
#include "support/tiny_model.h"

#define MOST 128 /* tokens of a request */

static int32_t prompt_tokens[MOST];

typedef struct transcript {
    int32_t tokens[8][MOST], count[8];
    int32_t stop_after[8];                    /* 0: never */
    trm_generator *sabotage, *step_in_return; /* NULL: no */
} transcript;

static trm_status fail_to_run(void *args, trm_stream *stream)
{
    (void)args;
    (void)stream;
    TRM_FAIL(TRM_ERROR_INTERNAL, "the kernel was sabotaged");
}

static bool take(void *user, int32_t request, int32_t token)
{
    transcript *t = user;
    t->tokens[request][t->count[request]++] = token;
    if (t->sabotage != NULL && t->count[request] == 3) {
        const trm_program *program = trm_context_launches(t->sabotage->context);
        program->launches[program->n / 2].enqueue = fail_to_run;
    }
    return t->stop_after[request] == 0 || t->count[request] < t->stop_after[request];
}

static trm_generator *make(trm_model *model, int64_t context, int32_t sequences, int32_t step_tokens)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    options.max_context = context;
    options.max_sequences = sequences;
    options.max_step_tokens = step_tokens;
    assert_ok(trm_generator_create(model, test_world, &options, &generator));
    return generator;
}

static trm_request request_of(int64_t n_prompt, int64_t max_tokens)
{
    return (trm_request){.prompt = prompt_tokens,
                         .n_prompt = n_prompt,
                         .max_tokens = max_tokens,
                         .sampling = TRM_SAMPLING_INIT,
                         .ignore_eos = true};
}

static void assert_same(const transcript *a, int32_t i, const transcript *b, int32_t k)
{
    assert_int_equal(a->count[i], b->count[k]);
    assert_memory_equal(a->tokens[i], b->tokens[k], (size_t)a->count[i] * sizeof(int32_t));
}

/* Lengths on both sides of the borders of blocks (16) and of chunks, alone in one chunk, and several in small ones. */
static void borders_do_not_show(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 32, 33};
    trm_generator *roomy = make(test_llama.model, 0, 1, 128);
    static transcript alone, together;
    trm_request requests[8];
    alone = (transcript){0};
    for (int32_t i = 0; i < 8; i++) {
        transcript one = {0};
        requests[i] = request_of(lengths[i], 20);
        assert_ok(trm_generate(roomy, &requests[i], 1, take, &one, NULL));
        memcpy(alone.tokens[i], one.tokens[0], sizeof(one.tokens[0]));
        alone.count[i] = one.count[0];
        assert_int_equal(one.count[0], 20);
    }
    trm_generator_destroy(roomy);
    static const struct {
        int64_t context;
        int32_t sequences, step_tokens;
    } shapes[] = {{0, 8, 128}, {53, 3, 16}, {64, 2, 17}, {53, 1, 1}, {0, 5, 5}, {70, 8, 33}};
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        trm_generator *g = make(test_llama.model, shapes[k].context, shapes[k].sequences, shapes[k].step_tokens);
        together = (transcript){0};
        trm_generate_stats stats;
        assert_ok(trm_generate(g, requests, 8, take, &together, &stats));
        for (int32_t i = 0; i < 8; i++) {
            assert_same(&together, i, &alone, i);
            assert_int_equal(requests[i].finish, TRM_FINISH_LENGTH);
        }
        assert_int_equal(stats.generated_tokens, 160);
        /* One at a time decodes all but first tokens in steps without prompts; several do some beside prompts. */
        assert_true(shapes[k].sequences == 1 ? stats.decode_tokens == 152 : stats.decode_tokens < 152);
        assert_true(stats.decode_tokens >= 8);
        assert_int_equal(stats.prompt_tokens, 1 + 2 + 15 + 16 + 17 + 31 + 32 + 33);
        trm_generator_destroy(g);
    }
}

static void requests_for_nothing(void **state)
{
    (void)state;
    trm_generator *g = make(test_llama.model, 40, 2, 16);
    trm_generate_stats stats = {.steps = 5};
    assert_ok(trm_generate(g, NULL, 0, take, NULL, &stats));
    assert_int_equal(stats.steps, 0);
    static transcript t;
    t = (transcript){0};
    trm_request requests[6];
    for (int32_t i = 0; i < 6; i++) {
        requests[i] = request_of(20, i % 3 == 2 ? 4 : TRM_NO_TOKENS);
        requests[i].n_generated = 77;
    }
    assert_ok(trm_generate(g, requests, 6, take, &t, &stats));
    for (int32_t i = 0; i < 6; i++) {
        assert_int_equal(requests[i].n_generated, i % 3 == 2 ? 4 : 0);
        assert_int_equal(requests[i].finish, TRM_FINISH_LENGTH);
    }
    assert_int_equal(stats.prompt_tokens, 40); /* what was not run is not counted */
    trm_request zeroed = {.prompt = requests[0].prompt, .n_prompt = 20, .ignore_eos = true};
    assert_ok(trm_generate(g, &zeroed, 1, NULL, NULL, NULL)); /* greedy, to the end of the context */
    assert_int_equal(zeroed.n_generated, 20);
    assert_int_equal(zeroed.finish, TRM_FINISH_LENGTH);
    trm_generator_destroy(g);
}

static void the_context_ends_inside_a_block(void **state)
{
    (void)state;
    trm_generator *g = make(test_llama.model, 35, 2, 0);
    trm_generator_limits limits;
    trm_generator_get_limits(g, &limits);
    assert_int_equal(limits.max_context, 35);
    assert_int_equal(limits.cache_tokens, 2 * 48);
    static transcript t;
    t = (transcript){0};
    trm_request requests[] = {request_of(34, 9), request_of(1, MOST), request_of(33, 9)};
    for (int round = 0; round < 2; round++) { /* blocks come back */
        t = (transcript){0};
        assert_ok(trm_generate(g, requests, 3, take, &t, NULL));
        assert_int_equal(t.count[0], 1);
        assert_int_equal(t.count[1], 34);
        assert_int_equal(t.count[2], 2);
    }
    trm_request long_one = request_of(35, 1);
    assert_fails(trm_generate(g, &long_one, 1, NULL, NULL, NULL), TRM_ERROR_INVALID_ARGUMENT, "the context holds 35");
    trm_generator_destroy(g);
}

/* Each with its own end; those that go on give what they give alone. */
static void sequences_stop_one_by_one(void **state)
{
    (void)state;
    trm_generator *g = make(test_llama.model, 80, 4, 24);
    static transcript alone, t;
    trm_request requests[7], one = request_of(9, 30);
    alone = t = (transcript){.stop_after = {1, 7, 0, 3, 3, 12, 2}};
    alone.stop_after[0] = 0;
    assert_ok(trm_generate(g, &one, 1, take, &alone, NULL));
    for (int32_t i = 0; i < 7; i++) {
        requests[i] = request_of(9, 30);
    }
    assert_ok(trm_generate(g, requests, 7, take, &t, NULL));
    for (int32_t i = 0; i < 7; i++) {
        int32_t expected = t.stop_after[i] == 0 ? 30 : t.stop_after[i];
        assert_int_equal(requests[i].n_generated, expected);
        assert_int_equal(requests[i].finish, t.stop_after[i] == 0 ? TRM_FINISH_LENGTH : TRM_FINISH_CALLBACK);
        assert_memory_equal(t.tokens[i], alone.tokens[0], (size_t)expected * sizeof(int32_t));
    }
    trm_generator_destroy(g);
}

static void a_generator_survives_errors(void **state)
{
    (void)state;
    trm_generator *g = make(test_llama.model, 80, 3, 24);
    static transcript before, t;
    trm_request requests[3] = {request_of(9, 30), request_of(30, 12), request_of(1, 20)};
    before = (transcript){0};
    assert_ok(trm_generate(g, requests, 3, take, &before, NULL));
    for (int32_t i = 0; i < 3; i++) {
        t = (transcript){.sabotage = g};
        assert_fails(trm_generate(g, requests, 3, take, &t, NULL), TRM_ERROR_INTERNAL, "sabotaged");
        assert_int_equal(requests[0].finish, TRM_FINISH_NONE);
        if (i == 1) { /* an argument that is refused */
            trm_request bad = request_of(0, 3);
            assert_fails(trm_generate(g, &bad, 1, NULL, NULL, NULL), TRM_ERROR_INVALID_ARGUMENT, "0 prompt tokens");
        }
        t = (transcript){0};
        assert_ok(trm_generate(g, requests, 3, take, &t, NULL));
        for (int32_t k = 0; k < 3; k++) {
            assert_same(&t, k, &before, k);
        }
    }
    trm_generator_destroy(g);
}

static bool take_and_run_another(void *user, int32_t request, int32_t token)
{
    transcript *t = user, other = {0};
    trm_request one = request_of(7, 3);
    assert_ok(trm_generate(t->step_in_return, &one, 1, take, &other, NULL));
    return take(user, request, token);
}

static void generators_do_not_meet(void **state)
{
    (void)state;
    trm_generator *a = make(test_llama.model, 64, 2, 0), *b = make(test_llama.model, 48, 3, 8);
    static transcript alone, t;
    trm_request requests[2] = {request_of(12, 10), request_of(20, 10)};
    alone = (transcript){0};
    assert_ok(trm_generate(a, requests, 2, take, &alone, NULL));
    t = (transcript){.step_in_return = b};
    assert_ok(trm_generate(a, requests, 2, take_and_run_another, &t, NULL));
    assert_same(&t, 0, &alone, 0);
    assert_same(&t, 1, &alone, 1);
    trm_generator_destroy(a);
    t = (transcript){0};
    assert_ok(trm_generate(b, requests, 2, take, &t, NULL));
    assert_same(&t, 0, &alone, 0);
    trm_generator_destroy(b);
}

static void count_layer(void *user, const char *layer, trm_layer_kind kind, const char *kernel, double milliseconds,
                        int64_t runs)
{
    int64_t *seen = user;
    assert_non_null(layer);
    assert_string_not_equal(trm_layer_kind_name(kind), "invalid");
    assert_non_null(kernel);
    assert_true(milliseconds >= 0);
    seen[0]++;
    seen[1] = runs;
}

static void profiling_changes_no_token(void **state)
{
    (void)state;
    trm_generator *g = make(test_llama.model, 64, 2, 10);
    static transcript plain, t;
    trm_request request = request_of(25, 10);
    plain = (transcript){0};
    assert_ok(trm_generate(g, &request, 1, take, &plain, NULL));
    for (int32_t i = 0; i < 4; i++) {
        int64_t seen[2] = {0};
        trm_context_layer_times(trm_generator_context(g), count_layer, seen);
        assert_int_equal(seen[0], 0);
        assert_ok(trm_context_set_layer_timing(trm_generator_context(g), i % 2 == 0));
        t = (transcript){0};
        trm_generate_stats stats;
        assert_ok(trm_generate(g, &request, 1, take, &t, &stats));
        assert_same(&t, 0, &plain, 0);
        trm_context_layer_times(trm_generator_context(g), count_layer, seen);
        assert_int_equal(seen[0], i % 2 == 0 ? g->engine->plan->network->n_layers : 0);
        assert_int_equal(seen[1], i % 2 == 0 ? stats.steps : 0);
        assert_ok(trm_context_set_layer_timing(trm_generator_context(g), false));
    }
    trm_generator_destroy(g);
}

/* A vocabulary that ends inside a word of the bit set; penalties with and without beside each other. */
static void penalties_keep_to_their_sequence(void **state)
{
    (void)state;
    trm_model *model;
    assert_ok(trm_model_open(tiny_model(test_temporary_folder(), 50), &model));
    trm_generator *g = make(model, 64, 3, 16);
    static transcript alone, t;
    static const float penalties[] = {1.0f, 1.8f, 0.7f, 5.0f};
    trm_request requests[4];
    alone = t = (transcript){0};
    for (int32_t i = 0; i < 4; i++) {
        transcript one = {0};
        requests[i] = request_of(3 + i, 40);
        requests[i].sampling.repetition_penalty = penalties[i];
        requests[i].sampling.temperature = i < 2 ? 0.0f : 1.0f;
        requests[i].sampling.seed = (uint64_t)i;
        assert_ok(trm_generate(g, &requests[i], 1, take, &one, NULL));
        memcpy(alone.tokens[i], one.tokens[0], sizeof(one.tokens[0]));
        alone.count[i] = one.count[0];
    }
    assert_ok(trm_generate(g, requests, 4, take, &t, NULL));
    bool seen[50] = {false};
    int32_t different = 0;
    for (int32_t i = 0; i < 4; i++) {
        assert_same(&t, i, &alone, i);
        for (int32_t k = 0; k < t.count[i]; k++) {
            assert_in_range(t.tokens[i][k], 0, 49);
            if (i == 3) {
                different += !seen[t.tokens[i][k]];
                seen[t.tokens[i][k]] = true;
            }
        }
    }
    assert_true(different > 15); /* a large penalty spreads */
    assert_true(memcmp(t.tokens[0], t.tokens[1], 40 * sizeof(int32_t)) != 0);
    trm_generator_destroy(g);
    trm_model_close(model);
}

static void sizes_past_reason_are_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t context;
        int32_t sequences, step_tokens;
        trm_status status;
        const char *part;
    } cases[] = {
        {0, INT32_MAX, 0, TRM_ERROR_INVALID_ARGUMENT, "expected at most 65536 sequences"},
        {0, 65537, 0, TRM_ERROR_INVALID_ARGUMENT, "expected at most 65536 sequences"},
        {INT64_MAX, 1, 0, TRM_ERROR_INVALID_ARGUMENT, "the model has 128"},
        {INT64_MIN, 1, 0, TRM_ERROR_INVALID_ARGUMENT, "negative"},
        {0, 0, INT32_MAX, TRM_ERROR_OUT_OF_MEMORY, "are free"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator *generator = NULL;
        options.max_context = cases[i].context;
        options.max_sequences = cases[i].sequences;
        options.max_step_tokens = cases[i].step_tokens;
        assert_fails(trm_generator_create(test_llama.model, test_world, &options, &generator), cases[i].status,
                     cases[i].part);
        assert_null(generator);
    }
    trm_model *endless; /* whose own context is too long for positions of 32 bits */
    const char *folder = test_temporary_folder();
    tiny_model(folder, 50);
    tiny_model_config(folder, 50, (int64_t)1 << 31);
    assert_ok(trm_model_open(folder, &endless));
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator = NULL;
    assert_fails(trm_generator_create(endless, test_world, &options, &generator), TRM_ERROR_INVALID_ARGUMENT,
                 "2147483648");
    options.max_context = 100;
    assert_ok(trm_generator_create(endless, test_world, &options, &generator));
    trm_generator_destroy(generator);
    trm_model_close(endless);
}

static int open_all(void **state)
{
    uint64_t random = test_seed();
    test_open_llama(state);
    for (int32_t i = 0; i < MOST; i++) {
        prompt_tokens[i] = (int32_t)test_random_below(&random, 50);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(borders_do_not_show),
        cmocka_unit_test(requests_for_nothing),
        cmocka_unit_test(the_context_ends_inside_a_block),
        cmocka_unit_test(sequences_stop_one_by_one),
        cmocka_unit_test(a_generator_survives_errors),
        cmocka_unit_test(generators_do_not_meet),
        cmocka_unit_test(profiling_changes_no_token),
        cmocka_unit_test(penalties_keep_to_their_sequence),
        cmocka_unit_test(sizes_past_reason_are_refused),
    };
    return cmocka_run_group_tests(tests, open_all, test_close_world);
}
