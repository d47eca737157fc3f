/* The shipped model through the whole engine, on any number of ranks: its greedy continuations are the text. */
#include "support/support.h"

#include <trireme/trireme.h>

#include "support/test_prompts.h"
#include "dist/llm/generator.h"
#include "support/split.h"
#include "support/world.h"

#define PROMPT 8

typedef struct book {
    const int32_t *ids;
    int64_t n;
} book;
static const book books[] = {
    {genesis_1, sizeof(genesis_1) / sizeof(int32_t)},           {exodus_20, sizeof(exodus_20) / sizeof(int32_t)},
    {psalm_23, sizeof(psalm_23) / sizeof(int32_t) - 1},         {john_1, sizeof(john_1) / sizeof(int32_t)},
    {corinthians_13, sizeof(corinthians_13) / sizeof(int32_t)},
};
#define N_BOOKS ((int32_t)(sizeof(books) / sizeof(books[0])))

/* What a run gave: the tokens of each request. */
typedef struct transcript {
    int32_t tokens[N_BOOKS][256];
    int32_t count[N_BOOKS];
    int32_t stop_after; /* 0: never */
} transcript;

static bool take(void *user, int32_t request, int32_t token)
{
    transcript *t = user;
    t->tokens[request][t->count[request]++] = token;
    return t->stop_after == 0 || t->count[request] < t->stop_after;
}

/* Our own products, none of a library's: a sanitizer takes minutes to get into each of those. */
static void make_brief(trm_generator_options *options)
{
    if (test_is_brief()) {
        options->no_tune = true;
        options->dtype = TRM_BF16;
        options->max_step_tokens = 8;
    }
}

static trm_generator *make_generator_with_cache(trm_dtype dtype, trm_dtype cache, int32_t sequences,
                                                int32_t step_tokens)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    options.dtype = dtype;
    options.cache_dtype = cache;
    options.max_sequences = sequences;
    options.max_step_tokens = step_tokens;
    make_brief(&options);
    options.mesh = test_mesh();
    trm_generator *generator;
    assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
    test_assert_split(generator->engine->plan);
    return generator;
}

static trm_generator *make_generator(trm_dtype dtype, int32_t sequences, int32_t step_tokens)
{
    return make_generator_with_cache(dtype, TRM_DTYPE_NONE, sequences, step_tokens);
}

/* Prompts of `prompt` tokens and a few more each; at most `tokens` of what follows. */
static void recite(trm_generator *generator, int64_t prompt, int64_t tokens)
{
    const int32_t n = test_is_brief() ? 2 : N_BOOKS;
    static transcript t;
    t = (transcript){0};
    trm_request requests[N_BOOKS];
    for (int32_t i = 0; i < n; i++) {
        requests[i] =
            (trm_request){.prompt = books[i].ids,
                          .n_prompt = prompt + 3 * i,
                          .max_tokens = books[i].n - prompt - 3 * i < tokens ? books[i].n - prompt - 3 * i : tokens,
                          .sampling = TRM_SAMPLING_INIT};
    }
    trm_generate_stats stats;
    assert_ok(trm_generate(generator, requests, n, take, &t, &stats));
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(requests[i].n_generated, requests[i].max_tokens);
        assert_int_equal(t.count[i], requests[i].n_generated);
        assert_memory_equal(t.tokens[i], books[i].ids + requests[i].n_prompt, (size_t)t.count[i] * sizeof(int32_t));
        assert_int_equal(requests[i].finish, TRM_FINISH_LENGTH);
    }
}

static void continuations_are_the_text(void **state)
{
    (void)state;
    static const struct {
        trm_dtype dtype, cache;
        int32_t sequences, step_tokens;
        int64_t prompt, tokens;
    } cases[] = {
        {TRM_DTYPE_NONE, TRM_DTYPE_NONE, 1, 0, PROMPT, 192}, /* one after the other */
        {TRM_F32, TRM_DTYPE_NONE, 5, 0, PROMPT, 64},         /* all at once */
        {TRM_F32, TRM_DTYPE_NONE, 3, 16, 100, 40},           /* prompts in chunks, sequences waiting for a place */
        {TRM_BF16, TRM_DTYPE_NONE, 2, 0, 40, 40},
        {TRM_F32, TRM_F8E4M3, 3, 16, 100, 40},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!test_in_part((int32_t)i)) {
            continue;
        }
        trm_generator *generator =
            make_generator_with_cache(cases[i].dtype, cases[i].cache, cases[i].sequences, cases[i].step_tokens);
        recite(generator, test_is_brief() ? 8 : cases[i].prompt, test_is_brief() ? 2 : cases[i].tokens);
        if (i == 0 && !test_is_brief()) {
            recite(generator, cases[i].prompt, 16); /* the cache is free again */
        }
        trm_generator_destroy(generator);
    }
}

/* Sums that travel by copies in a step of lanes: all with the norm behind them, between two ranks over peer memory. */
static int64_t copied_sums_of_step(const trm_generator *generator)
{
    const trm_network *network = generator->engine->plan->network;
    int64_t sums = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        sums += network->layers[i]->desc.kind == TRM_LAYER_ALL_REDUCE_NORM ? TRM_MICROBATCHES : 0;
    }
    assert_true(generator->engine->plan->mesh.size[TRM_AXIS_TP] == 1 || sums > 0);
    return trm_world_size(test_world) == 2 && strcmp(test_world->communicator->ops->name, "peer") == 0 ? sums : 0;
}

/* Long steps in two lanes: sequences cut in the middle, between two of them, and drawn tokens. */
static void lanes_change_nothing(void **state)
{
    (void)state;
    static transcript alone, in_lanes;
    const trm_sampling drawn = {.temperature = 1.0f, .top_p = 0.9f, .repetition_penalty = 1.3f, .seed = 3};
    trm_request requests[2][N_BOOKS];
    const int32_t n = test_is_brief() ? 2 : N_BOOKS;
    for (int32_t i = 0; i < n; i++) {
        int64_t prompt = test_is_brief() ? 11 + 5 * i : 100 - 13 * i;
        requests[0][i] = (trm_request){.prompt = books[i].ids,
                                       .n_prompt = prompt,
                                       .max_tokens = test_is_brief() ? 2 : 12,
                                       .sampling = i % 2 == 0 ? TRM_SAMPLING_INIT : drawn};
        requests[1][i] = requests[0][i];
    }
    alone = in_lanes = (transcript){0};
    for (int32_t steps = 0; steps < (test_is_brief() ? 1 : 2); steps++) { /* prompts whole, and in chunks */
        trm_generator *generator = make_generator(TRM_F32, N_BOOKS, steps == 0 ? 0 : 150);
        assert_ok(trm_generate(generator, requests[0], n, take, &alone, NULL));
        assert_ok(trm_generator_use_microbatches(generator, test_is_brief() ? 8 : 64));
        assert_ok(trm_generate(generator, requests[1], n, take, &in_lanes, NULL));
        assert_true(generator->microbatches->steps > 0);
        assert_int_equal(generator->microbatches->copied_sums,
                         generator->microbatches->steps * copied_sums_of_step(generator));
        trm_generator_destroy(generator);
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(alone.count[i], in_lanes.count[i]);
            assert_memory_equal(alone.tokens[i], in_lanes.tokens[i], (size_t)alone.count[i] * sizeof(int32_t));
        }
        alone = in_lanes = (transcript){0};
    }
}

static void generation_ends_where_it_should(void **state)
{
    (void)state;
    static transcript t;
    trm_generator *generator = make_generator(TRM_F32, 2, 0);
    const int64_t prompt = test_is_brief() ? books[2].n - 2 : PROMPT;
    trm_request psalm = {.prompt = psalm_23, .n_prompt = prompt, .max_tokens = 250, .sampling = TRM_SAMPLING_INIT};
    t = (transcript){0};
    assert_ok(trm_generate(generator, &psalm, 1, take, &t, NULL));
    assert_int_equal(psalm.finish, TRM_FINISH_STOP);
    assert_int_equal(psalm.n_generated, books[2].n - prompt);

    psalm.ignore_eos = true;
    psalm.max_tokens = books[2].n - prompt + 1;
    t = (transcript){0};
    assert_ok(trm_generate(generator, &psalm, 1, take, &t, NULL));
    assert_int_equal(psalm.finish, TRM_FINISH_LENGTH);
    assert_int_equal(t.tokens[0][psalm.n_generated - 1], 1);

    psalm.n_prompt = PROMPT;
    psalm.max_tokens = 250;
    t = (transcript){.stop_after = 2};
    assert_ok(trm_generate(generator, &psalm, 1, take, &t, NULL));
    assert_int_equal(psalm.finish, TRM_FINISH_CALLBACK);
    assert_int_equal(psalm.n_generated, 2);

    psalm.max_tokens = TRM_NO_TOKENS;
    assert_ok(trm_generate(generator, &psalm, 1, take, &t, NULL));
    assert_int_equal(psalm.finish, TRM_FINISH_LENGTH);
    trm_generator_destroy(generator);
}

static void the_context_is_a_limit(void **state)
{
    (void)state;
    static transcript t;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    options.max_context = test_is_brief() ? 23 : 50; /* not a multiple of a block */
    make_brief(&options);
    options.mesh = test_mesh();
    trm_generator *generator;
    assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
    trm_request request = {.prompt = genesis_1, .n_prompt = 20, .max_tokens = 100, .sampling = TRM_SAMPLING_INIT};
    t = (transcript){0};
    assert_ok(trm_generate(generator, &request, 1, take, &t, NULL));
    assert_int_equal(request.finish, TRM_FINISH_LENGTH);
    assert_int_equal(request.n_generated, options.max_context - 20);
    assert_memory_equal(t.tokens[0], genesis_1 + 20, (size_t)request.n_generated * sizeof(int32_t));
    request.n_prompt = options.max_context;
    assert_fails(trm_generate(generator, &request, 1, take, &t, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 test_is_brief() ? "the context holds 23" : "the context holds 50");
    int32_t bad = 4096;
    request = (trm_request){.prompt = &bad, .n_prompt = 1, .max_tokens = 1, .sampling = TRM_SAMPLING_INIT};
    assert_fails(trm_generate(generator, &request, 1, take, &t, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "outside the vocabulary");
    trm_generator_destroy(generator);
    options.max_context = 5000;
    assert_fails(trm_generator_create(test_model, test_world, &options, &generator), TRM_ERROR_INVALID_ARGUMENT,
                 "the model has 1024");
}

static void draws_follow_the_seed(void **state)
{
    (void)state;
    static transcript first, second, other;
    trm_generator *generator = make_generator(TRM_F32, 3, 0);
    trm_sampling sampling = {
        .temperature = 1.5f, .top_k = 50, .top_p = 0.95f, .min_p = 0.01f, .repetition_penalty = 1.2f, .seed = 7};
    const int32_t n = test_is_brief() ? 4 : 60;
    trm_request request = {.prompt = john_1, .n_prompt = 30, .max_tokens = n, .sampling = sampling, .ignore_eos = true};
    first = second = other = (transcript){0};
    assert_ok(trm_generate(generator, &request, 1, take, &first, NULL));
    /* the same request beside others */
    trm_request three[3] = {request, request, request};
    three[0].sampling = TRM_SAMPLING_INIT;
    three[2].sampling.seed = 8;
    assert_ok(trm_generate(generator, three, 3, take, &second, NULL));
    assert_memory_equal(first.tokens[0], second.tokens[1], (size_t)n * sizeof(int32_t));
    assert_memory_not_equal(second.tokens[1], second.tokens[2], (size_t)n * sizeof(int32_t));
    /* what rank 0 drew is what every rank has */
    int32_t of_root[60];
    memcpy(of_root, first.tokens[0], (size_t)n * sizeof(int32_t));
    assert_ok(trm_world_broadcast(test_world, of_root, (size_t)n * sizeof(int32_t), 0));
    assert_memory_equal(of_root, first.tokens[0], (size_t)n * sizeof(int32_t));
    trm_generator_destroy(generator);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(continuations_are_the_text),      cmocka_unit_test(lanes_change_nothing),
        cmocka_unit_test(generation_ends_where_it_should), cmocka_unit_test(the_context_is_a_limit),
        cmocka_unit_test(draws_follow_the_seed),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
