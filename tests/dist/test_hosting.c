/* Layers that the processors run while the weights of others stream: the same results as on the device, whatever
 * stays, whatever they run, and however large the steps are. */
#include "support/support.h"

#include <stdatomic.h>

#include <trireme/trireme.h>

#include "dist/generate.h"
#include "dist/hosting.h"
#include "dist/streaming.h"

#define PROMPT 24
#define TOKENS 10
#define MOST   4 /* sequences */

static trm_world *world;
static trm_model *model;
static bool on_cuda;

static int open_world(void **state)
{
    (void)state;
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    const char *backend = getenv("TRM_TEST_BACKEND");
    on_cuda = backend != NULL && strcmp(backend, "cuda") == 0;
    options.backend = on_cuda ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
    options.threads = 2;
    assert_ok(trm_world_open(&options, &world));
    assert_ok(trm_model_open(TRM_SOURCE_DIR "/configs/models/kjv-7m", &model));
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    trm_model_close(model);
    trm_world_close(world);
    return 0;
}

/* On a GPU f32, whose sums in another order choose the same tokens. */
static trm_generator *open_generator(const char *budget, const char *host, trm_dtype dtype)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator = NULL;
    options.max_context = 64;
    options.max_sequences = MOST;
    options.dtype = dtype;
    assert_ok(trm_weight_budget_parse(budget, &options.weight_budget));
    assert_ok(trm_host_compute_parse(host, &options.weight_budget));
    options.weight_budget.compression = TRM_WEIGHT_COMPRESSION_LOSSLESS;
    assert_ok(trm_generator_create(model, world, &options, &generator));
    return generator;
}

typedef struct tokens {
    int32_t all[MOST][TOKENS], n[MOST];
} tokens;

static bool keep_token(void *user, int32_t request, int32_t token)
{
    tokens *kept = user;
    kept->all[request][kept->n[request]++] = token;
    return true;
}

/* `n` sequences; the first has a short prompt, whose step is a small one. */
static trm_status try_to_generate(trm_generator *generator, int32_t n, tokens *kept)
{
    int32_t prompts[MOST][PROMPT];
    trm_request requests[MOST];
    *kept = (tokens){0};
    for (int32_t r = 0; r < n; r++) {
        for (int32_t i = 0; i < PROMPT; i++) {
            prompts[r][i] = (i * 37 + r * 101) % 4000 + 2;
        }
        requests[r] = (trm_request){.prompt = prompts[r],
                                    .n_prompt = r == 0 ? 5 : PROMPT,
                                    .max_tokens = TOKENS,
                                    .sampling = TRM_SAMPLING_INIT,
                                    .ignore_eos = true};
        requests[r].sampling.temperature = 0.7f;
        requests[r].sampling.seed = 11 + (uint64_t)r;
    }
    return trm_generate(generator, requests, n, keep_token, kept, NULL);
}

static tokens generate(trm_generator *generator, int32_t n)
{
    tokens kept;
    assert_ok(try_to_generate(generator, n, &kept));
    return kept;
}

static void check_alike(trm_generator *generator, const tokens *expected)
{
    for (int32_t n = 1; n <= MOST; n += MOST - 1) { /* one sequence, then all: small and large steps in turn */
        tokens found = generate(generator, n);
        assert_memory_equal(found.all, expected->all, (size_t)n * sizeof(found.all[0]));
    }
}

static void any_share_gives_the_same(void **state)
{
    (void)state;
    static const char *const budgets[] = {"0", "30%", "100%"}, *const shares[] = {"0", "30%", "70%", "100%", "auto"};
    const trm_dtype types[] = {TRM_F32, TRM_BF16};
    for (size_t t = 0; t < (on_cuda ? 1 : 2); t++) {
        trm_generator *generator = open_generator("off", "off", types[t]);
        tokens expected = generate(generator, MOST);
        trm_generator_destroy(generator);
        for (size_t b = 0; b < sizeof(budgets) / sizeof(budgets[0]); b++) {
            size_t before = 0;
            for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
                trm_generator_limits limits;
                generator = open_generator(budgets[b], shares[i], types[t]);
                check_alike(generator, &expected);
                trm_generator_get_limits(generator, &limits);
                const trm_streaming_info *info = &limits.streaming;
                assert_true(info->resident + info->hosted + info->unpacked >= info->streamable);
                assert_int_equal(info->hosted_layers > 0, info->hosted > 0);
                assert_true(i == 4 || info->hosted >= before);
                assert_true((i == 0 || b == 2) == (info->hosted == 0) || i == 4);
                assert_int_equal(limits.memory.staging, info->staging);
                before = info->hosted;
                trm_generator_destroy(generator);
            }
        }
    }
}

/* Weights become resident, packed, and readable by processors in turn. */
static void budgets_change(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("off", "off", TRM_F32);
    tokens expected = generate(generator, MOST);
    trm_generator_destroy(generator);
    const trm_dtype types[] = {TRM_F32, TRM_BF16};
    for (size_t t = 0; t < (on_cuda ? 1 : 2); t++) {
        generator = open_generator("100%", "60%", types[t]);
        expected = generate(generator, MOST);
        trm_generator_limits limits;
        trm_generator_get_limits(generator, &limits);
        const size_t all = limits.streaming.streamable;
        const size_t budgets[] = {0, all / 2, all / 4, all, all * 3 / 4, 0, all / 5};
        for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
            assert_ok(trm_generator_set_weight_budget(generator, budgets[i]));
            check_alike(generator, &expected);
            trm_generator_get_limits(generator, &limits);
            assert_true(limits.streaming.resident <= budgets[i]);
            assert_int_equal(limits.streaming.hosted > 0, budgets[i] < all);
        }
        trm_generator_destroy(generator);
    }
}

/* What is asked for by a share does not depend on what is measured. */
static void shares_choose_alike(void **state)
{
    (void)state;
    trm_generator *generators[2];
    for (int32_t i = 0; i < 2; i++) {
        generators[i] = open_generator("40%", "50%", TRM_F32);
    }
    const trm_plan *a = generators[0]->engine->plan, *b = generators[1]->engine->plan;
    const size_t n = (size_t)a->network->n_layers;
    assert_memory_equal(a->streaming->hosted, b->streaming->hosted, n * sizeof(bool));
    trm_hosting_rates slow = a->streaming->rates;
    slow.host /= 100;
    bool before[1024];
    assert_true(n <= 1024);
    memcpy(before, a->streaming->hosted, n * sizeof(bool));
    assert_ok(trm_streaming_use_rates(generators[0]->engine->plan, &slow));
    assert_ok(trm_streaming_replan(generators[0]->engine->plan, a->streaming->problem.budget));
    assert_memory_equal(a->streaming->hosted, before, n * sizeof(bool));
    trm_generator_destroy(generators[0]);
    trm_generator_destroy(generators[1]);
}

/* The linker sends the library's calls of the kernel here (CMakeLists.txt). */
trm_status __real_trm_host_gemv_run(const trm_kernel_call *call);
trm_status __wrap_trm_host_gemv_run(const trm_kernel_call *call);

static atomic_int products_left = -1; /* until one fails, if not negative */

trm_status __wrap_trm_host_gemv_run(const trm_kernel_call *call)
{
    if (atomic_load(&products_left) >= 0 && atomic_fetch_sub(&products_left, 1) == 0) {
        return trm_fail(TRM_ERROR_INTERNAL, "the processors are on fire");
    }
    return __real_trm_host_gemv_run(call);
}

/* A layer that fails on the processors is the error of its step; the next call works. */
static void a_failed_layer_ends_the_step(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("0", "100%", TRM_F32);
    tokens expected = generate(generator, 1), found;
    for (int32_t at = 0; at < 60; at += 13) {
        atomic_store(&products_left, at);
        assert_int_equal(try_to_generate(generator, 1, &found), TRM_ERROR_INTERNAL);
        assert_non_null(strstr(trm_last_error(), "the processors are on fire"));
        assert_non_null(strstr(trm_last_error(), "layer "));
        assert_true(atomic_load(&products_left) < 0);
        found = generate(generator, 1);
        assert_memory_equal(&found, &expected, sizeof(found));
    }
    trm_generator_destroy(generator);
}

static void shares_as_text(void **state)
{
    (void)state;
    trm_weight_budget budget = {0};
    assert_ok(trm_host_compute_parse("auto", &budget));
    assert_int_equal(budget.host_compute, TRM_HOST_COMPUTE_AUTO);
    assert_ok(trm_host_compute_parse("12.5%", &budget));
    assert_int_equal(budget.host_compute, TRM_HOST_COMPUTE_PERCENT);
    assert_true(budget.host_percent == 12.5);
    assert_ok(trm_host_compute_parse("70", &budget));
    assert_true(budget.host_percent == 70);
    assert_ok(trm_host_compute_parse("off", &budget));
    assert_int_equal(budget.host_compute, TRM_HOST_COMPUTE_OFF);
    static const char *const wrong[] = {"", "on", "-1", "101", "50%%", "0x10", "nan", "5G", "autos"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_fails(trm_host_compute_parse(wrong[i], &budget), TRM_ERROR_INVALID_ARGUMENT,
                     "expected off, auto, or 0%");
    }
    assert_fails(trm_host_compute_parse(NULL, &budget), TRM_ERROR_INVALID_ARGUMENT, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_share_gives_the_same), cmocka_unit_test(budgets_change),
        cmocka_unit_test(shares_choose_alike),      cmocka_unit_test(a_failed_layer_ends_the_step),
        cmocka_unit_test(shares_as_text),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
