/* Processors of several ranks that each compute layers of their own part of a model: the same tokens as on the devices,
 * also where ranks compute different shares. */
#include "support/support.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/llm/generator.h"
#include "support/split.h"
#include "support/world.h"

enum { REQUESTS = 2, PROMPT = 20, TOKENS = 8 };

typedef struct tokens {
    int32_t all[REQUESTS][TOKENS], n[REQUESTS];
} tokens;

static bool keep_token(void *user, int32_t request, int32_t token)
{
    tokens *kept = user;
    kept->all[request][kept->n[request]++] = token;
    return true;
}

/* A prompt of a small step, and one of a large. */
static tokens generate(trm_generator *generator)
{
    int32_t prompts[REQUESTS][PROMPT];
    trm_request requests[REQUESTS];
    tokens kept = {0};
    for (int32_t r = 0; r < REQUESTS; r++) {
        for (int32_t i = 0; i < PROMPT; i++) {
            prompts[r][i] = (i * 37 + r * 101 + 5) % 4000 + 2;
        }
        requests[r] = (trm_request){
            .prompt = prompts[r], .n_prompt = r == 0 ? 4 : PROMPT, .max_tokens = TOKENS, .ignore_eos = true};
        requests[r].sampling = TRM_SAMPLING_INIT;
    }
    assert_ok(trm_generate(generator, &requests[0], 1, keep_token, &kept, NULL));
    kept = (tokens){0};
    assert_ok(trm_generate(generator, requests, REQUESTS, keep_token, &kept, NULL));
    assert_int_equal(kept.n[0] + kept.n[1], REQUESTS * TOKENS);
    return kept;
}

static trm_status try_to_open(const char *mesh, const char *budget, const char *share, trm_weight_sharing sharing,
                              trm_generator **generator)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    options.dtype = TRM_F32;
    options.max_context = 64;
    options.no_tune = true;
    assert_ok(trm_weight_budget_parse(budget, &options.weight_budget));
    assert_ok(trm_host_compute_parse(share, &options.weight_budget));
    options.weight_budget.sharing = sharing;
    assert_ok(trm_mesh_parse(mesh, trm_world_size(test_world), &options.mesh));
    return trm_generator_create(test_model, test_world, &options, generator);
}

static trm_generator *open_generator(const char *mesh, const char *budget, const char *share,
                                     trm_weight_sharing sharing)
{
    trm_generator *generator;
    assert_ok(try_to_open(mesh, budget, share, sharing, &generator));
    test_assert_split(generator->engine->plan);
    return generator;
}

static void check(const char *mesh, const char *budget, const char *share, trm_weight_sharing sharing,
                  const tokens *expected, bool hosts)
{
    trm_generator *generator = open_generator(mesh, budget, share, sharing);
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    assert_int_equal(limits.streaming.offloaded_layers > 0, hosts);
    tokens found = generate(generator);
    assert_memory_equal(&found, expected, sizeof(found));
    assert_ok(trm_generator_set_weight_budget(generator, limits.streaming.streamable / 2));
    found = generate(generator);
    assert_memory_equal(&found, expected, sizeof(found));
    trm_generator_destroy(generator);
}

static void check_mesh(const char *mesh, bool replicas)
{
    const char *differs = trm_world_rank(test_world) == 0 ? "off" : "70%";
    trm_generator *generator = open_generator(mesh, "off", "off", TRM_WEIGHT_SHARING_AUTO);
    const tokens expected = generate(generator);
    trm_generator_destroy(generator);
    check(mesh, "0", "100%", TRM_WEIGHT_SHARING_AUTO, &expected, true);
    check(mesh, "25%", "50%", TRM_WEIGHT_SHARING_AUTO, &expected, true);
    check(mesh, "0", differs, replicas ? TRM_WEIGHT_SHARING_OFF : TRM_WEIGHT_SHARING_AUTO, &expected,
          trm_world_rank(test_world) > 0);
    if (replicas) { /* what ranks fetch together processors do not compute */
        check(mesh, "0", "auto", TRM_WEIGHT_SHARING_AUTO, &expected, false);
        check(mesh, "0", "0%", TRM_WEIGHT_SHARING_ON, &expected, false);
        assert_fails(try_to_open(mesh, "0", "50%", TRM_WEIGHT_SHARING_ON, &generator), TRM_ERROR_INVALID_ARGUMENT,
                     "CPU offload cannot take 50 % of the streamed weights (host compute): replicas stream weights");
        assert_fails(try_to_open(mesh, "0", differs, TRM_WEIGHT_SHARING_AUTO, &generator), TRM_ERROR_INVALID_ARGUMENT,
                     "sharing of weights");
    }
}

static void ranks_compute_their_parts(void **state)
{
    (void)state;
    const int32_t n = trm_world_size(test_world);
    char mesh[32];
    snprintf(mesh, sizeof(mesh), "tp=%d", n);
    check_mesh(mesh, false);
    if (n > 1) {
        snprintf(mesh, sizeof(mesh), "pp=%d", n);
        check_mesh(mesh, false);
        snprintf(mesh, sizeof(mesh), "dp=%d", n);
        check_mesh(mesh, true);
    }
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_compute_their_parts)};
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
