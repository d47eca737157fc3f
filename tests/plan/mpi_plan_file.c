/* Models from plan files over all ranks of the host backend: rank 0 builds for everybody, each loads its part. */
#include "support/support.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "support/hf_golden_ranks.h"
#include "support/world.h"

/* What rank 0 does alone. */
static trm_status write_plans(const trm_network *network, trm_build_options options, bool embed, const char *path)
{
    trm_plan *plans[TRM_MAX_RANKS] = {NULL};
    int32_t ranks = trm_world_size(test_world);
    trm_status status = TRM_OK;
    for (options.rank = 0; status == TRM_OK && options.rank < ranks; options.rank++) {
        status = trm_build(network, &options, &plans[options.rank]);
    }
    if (status == TRM_OK) {
        status = trm_plan_save((const trm_plan *const *)plans, ranks, embed, path);
    }
    for (int32_t i = 0; i < ranks; i++) {
        trm_plan_destroy(plans[i]);
    }
    return status;
}

static void run_from_file(const char *name, const char *mesh, bool embed, const char *path)
{
    test_golden golden;
    trm_network *network;
    trm_plan *plan;
    trm_engine *engine;
    trm_context *context;
    trm_shape_bound bounds[TEST_GOLDEN_MAX_BOUNDS];
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    test_golden_open(name, &golden);
    assert_ok(trm_model_build_network(golden.model, TRM_F32, &network));
    assert_ok(trm_mesh_parse(mesh, trm_world_size(test_world), &options.mesh));
    options.bounds = bounds;
    options.n_bounds = test_golden_bounds(network, bounds);
    bool writes = trm_world_rank(test_world) == 0;
    assert_ok(trm_world_all_ok(test_world, writes ? write_plans(network, options, embed, path) : TRM_OK));
    assert_ok(trm_plan_load(path, trm_world_rank(test_world), &plan));
    assert_ok(trm_engine_create(plan, test_world, NULL, NULL, &engine));
    assert_ok(trm_context_create(engine, &context));
    test_runner runner = test_runner_of_context(context, network);
    double worst = test_golden_run_chunks(&golden, &runner, 7).worst;
    assert_true(worst <= test_golden_tolerance(&golden, TRM_F32));
    worst = test_golden_run_decode(&golden, &runner).worst;
    assert_true(worst <= test_golden_tolerance(&golden, TRM_F32));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    test_golden_close(&golden);
}

static void models_run_from_plan_files(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gpt2", "gemma3", "phi3", "quant-awq", "quant-fp8-tensor"};
    char path[4096] = "";
    if (trm_world_rank(test_world) == 0) {
        snprintf(path, sizeof(path), "%s/model.plan", test_temporary_folder());
    }
    assert_ok(trm_world_broadcast(test_world, path, sizeof(path), 0));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        run_from_file(names[i], NULL, i % 2 == 1, path);
        assert_ok(trm_world_all_ok(test_world, TRM_OK)); /* before the file is written anew */
    }
    if (trm_world_size(test_world) == 2) { /* stages: groups of ranks are opened from what the file says */
        run_from_file("llama", "pp=2", false, path);
    }
    if (trm_world_size(test_world) == 4) {
        run_from_file("llama", "tp=2,pp=2", false, path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_run_from_plan_files)};
    return test_run_host_ranks(tests, sizeof(tests) / sizeof(tests[0]));
}
