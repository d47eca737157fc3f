/* Replicas that fetch streamed weights together, each a part: the same tokens as each for itself, on any number of
 * ranks that has replicas. */
#include "support/support.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/llm/generator.h"
#include "support/split.h"
#include "support/world.h"

#define PROMPT 20
#define TOKENS 8

typedef struct tokens {
    int32_t all[TOKENS], n;
} tokens;

static bool keep_token(void *user, int32_t request, int32_t token)
{
    tokens *kept = user;
    (void)request;
    kept->all[kept->n++] = token;
    return true;
}

static trm_status try_to_generate(trm_generator *generator, tokens *kept)
{
    int32_t prompt[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) {
        prompt[i] = (i * 37 + 5) % 4000 + 2;
    }
    trm_request request = {.prompt = prompt, .n_prompt = PROMPT, .max_tokens = TOKENS, .ignore_eos = true};
    request.sampling = TRM_SAMPLING_INIT;
    *kept = (tokens){0};
    return trm_generate(generator, &request, 1, keep_token, kept, NULL);
}

static tokens generate(trm_generator *generator)
{
    tokens kept;
    assert_ok(try_to_generate(generator, &kept));
    assert_int_equal(kept.n, TOKENS);
    return kept;
}

static void set_mesh(trm_generator_options *options, int32_t dp)
{
    char text[32];
    snprintf(text, sizeof(text), "tp=%d,dp=%d", trm_world_size(test_world) / dp, dp);
    assert_ok(trm_mesh_parse(text, trm_world_size(test_world), &options->mesh));
}

static trm_generator *open_generator(int32_t dp, const trm_weight_budget *budget)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    options.dtype = TRM_BF16;
    options.max_context = 64;
    options.no_tune = true;
    options.weight_budget = *budget;
    set_mesh(&options, dp);
    assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
    test_assert_split(generator->engine->plan);
    return generator;
}

/* 0: there are none for this number of ranks. */
static int32_t replicas(int32_t i)
{
    static const int32_t some[] = {2, 3, 4};
    return trm_world_size(test_world) % some[i] == 0 ? some[i] : 0;
}

static void check(int32_t dp, const trm_weight_budget *budget, const tokens *expected)
{
    trm_generator_limits limits;
    trm_generator *generator = open_generator(dp, budget);
    const trm_streaming_info *info = &limits.streaming;
    bool shares = budget->sharing != TRM_WEIGHT_SHARING_OFF;
    trm_generator_get_limits(generator, &limits);
    size_t streamable = info->streamable, host = info->host;
    assert_int_equal(info->sharers, shares ? dp : 1);
    assert_int_equal(info->gathered > 0, shares && info->copies > 0);
    if (shares && budget->compression == TRM_WEIGHT_COMPRESSION_OFF &&
        info->copies > 0) { /* except what dp does not divide */
        assert_true(info->streamed < info->unpacked / (size_t)dp + info->unpacked / 4);
        assert_true(info->streamed + info->gathered == info->unpacked);
        assert_true(info->files > 0 || host < (streamable - info->resident) / (size_t)dp + streamable / 2);
    }
    const size_t budgets[] = {SIZE_MAX, streamable, streamable / 3, 0};
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        if (i > 0) {
            assert_ok(trm_generator_set_weight_budget(generator, budgets[i]));
        }
        tokens found = generate(generator);
        assert_memory_equal(&found, expected, sizeof(found));
    }
    trm_generator_destroy(generator);
}

/* Shared or not, packed or not, from files, and as the budget changes. */
static void replicas_share_what_they_fetch(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 3; i++) {
        const int32_t dp = replicas(i);
        if (dp == 0) {
            continue;
        }
        const trm_weight_budget off = {.kind = TRM_WEIGHT_BUDGET_OFF};
        trm_generator *generator = open_generator(dp, &off);
        tokens expected = generate(generator);
        trm_generator_destroy(generator);
        const trm_weight_budget budgets[] = {
            {.kind = TRM_WEIGHT_BUDGET_PERCENT, .compression = TRM_WEIGHT_COMPRESSION_OFF},
            {.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 40, .sharing = TRM_WEIGHT_SHARING_OFF},
            {.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 40, .compression = TRM_WEIGHT_COMPRESSION_LOSSLESS},
            {.kind = TRM_WEIGHT_BUDGET_PERCENT,
             .compression = TRM_WEIGHT_COMPRESSION_OFF,
             .host_bytes = (size_t)1 << 21},
            {.kind = TRM_WEIGHT_BUDGET_AUTO, .sharing = TRM_WEIGHT_SHARING_ON},
        };
        for (size_t k = 0; k < sizeof(budgets) / sizeof(budgets[0]); k++) {
            check(dp, &budgets[k], &expected);
        }
    }
}

/* Each with a budget of its own would wait for the other's parts in another order. */
static void budgets_must_be_the_same(void **state)
{
    (void)state;
    const int32_t size = trm_world_size(test_world);
    const trm_weight_budget budget = {.kind = TRM_WEIGHT_BUDGET_PERCENT};
    if (size == 1) {
        return;
    }
    trm_generator *generator = open_generator(size, &budget);
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    size_t mine = trm_world_rank(test_world) == 0 ? limits.streaming.streamable / 2 : limits.streaming.streamable;
    assert_fails(trm_generator_set_weight_budget(generator, mine), TRM_ERROR_INVALID_ARGUMENT,
                 "keeps other weights on the device than rank");
    assert_ok(trm_generator_set_weight_budget(generator, 0));
    (void)generate(generator);
    trm_generator_destroy(generator);
}

/* The linker sends the library's calls here (CMakeLists.txt). */
trm_status __real_trm_pages_alloc(size_t size, void **memory);
trm_status __wrap_trm_pages_alloc(size_t size, void **memory);
static bool is_full; /* the memory of this rank's machine */

trm_status __wrap_trm_pages_alloc(size_t size, void **memory)
{
    return is_full ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot map %zu bytes: refused by the test", size)
                   : __real_trm_pages_alloc(size, memory);
}

/* One rank without host memory is an error on all of them, at once. */
static void a_rank_without_host_memory(void **state)
{
    (void)state;
    const int32_t size = trm_world_size(test_world), rank = trm_world_rank(test_world);
    for (int32_t i = 0; i < 2; i++) { /* along tp, then along dp */
        trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
        trm_generator *generator = NULL;
        options.max_context = 64;
        options.weight_budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 10};
        set_mesh(&options, i == 0 ? 1 : size);
        is_full = rank == size - 1;
        trm_status status = trm_generator_create(test_model, test_world, &options, &generator);
        is_full = false;
        assert_int_equal(status, TRM_ERROR_OUT_OF_MEMORY);
        assert_non_null(strstr(trm_last_error(), "refused by the test"));
        assert_null(generator);
    }
}

/* A rank that cannot change its budget says so, and the others do not wait for it. */
static void a_rank_that_cannot_change_its_budget(void **state)
{
    (void)state;
    const int32_t size = trm_world_size(test_world), rank = trm_world_rank(test_world);
    const trm_weight_budget budget = {.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 100};
    if (size == 1) {
        return;
    }
    trm_generator *generator = open_generator(size, &budget);
    tokens expected = generate(generator);
    is_full = rank == size - 1;
    trm_status status = trm_generator_set_weight_budget(generator, 0);
    is_full = false;
    assert_int_equal(status, rank == size - 1 ? TRM_ERROR_OUT_OF_MEMORY : TRM_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(trm_last_error(), rank == size - 1 ? "refused by the test" : "keeps other weights"));
    assert_ok(trm_generator_set_weight_budget(generator, 0));
    tokens found = generate(generator);
    assert_memory_equal(&found, &expected, sizeof(found));
    trm_generator_destroy(generator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_share_what_they_fetch),
        cmocka_unit_test(budgets_must_be_the_same),
        cmocka_unit_test(a_rank_without_host_memory),
        cmocka_unit_test(a_rank_that_cannot_change_its_budget),
    };
    return test_lacks_backend() ? 77 : cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
