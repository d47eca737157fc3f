/*
 * The goldens of transformers over all ranks: through builder, engine and context, where the cost model may find that
 * tiny models are not worth splitting; and with links that cost nothing, so that everything is split, on the
 * interpreter.
 */
#include "support/support.h"

#include "dist/partition.h"
#include "dist/world.h"
#include "support/hf_golden.h"

static trm_world *world;

static void check(const test_golden *golden, const char *way, double worst)
{
    double tolerance = test_golden_tolerance(golden, TRM_DTYPE_NONE);
    if (!(worst <= tolerance)) {
        fail_msg("%s on %d ranks, %s: logits differ by %.3g of the largest, expected at most %.3g", golden->name,
                 trm_world_size(world), way, worst, tolerance);
    }
    if (getenv("TRM_TEST_VERBOSE") != NULL && trm_world_rank(world) == 0) {
        print_message("%-18s %-8s %.2e\n", golden->name, way, worst);
    }
}

static void run_all_ways(const test_golden *golden, const test_runner *runner)
{
    check(golden, "whole", test_golden_run_whole(golden, runner));
    check(golden, "chunks", test_golden_run_chunks(golden, runner, 7));
    check(golden, "decode", test_golden_run_decode(golden, runner));
    check(golden, "batch", test_golden_run_batch(golden, runner));
}

static void run_on_engine(const char *name)
{
    test_golden golden;
    trm_network *network;
    trm_plan *plan;
    trm_engine *engine;
    trm_context *context;
    trm_shape_bound bounds[TEST_GOLDEN_MAX_BOUNDS];
    test_golden_open(name, &golden);
    assert_ok(trm_model_build_network(golden.model, TRM_DTYPE_NONE, &network));
    trm_build_options options = {.size = sizeof(options), .backend = TRM_BACKEND_HOST, .rank = trm_world_rank(world)};
    assert_ok(trm_mesh_parse(NULL, trm_world_size(world), &options.mesh));
    options.bounds = bounds;
    options.n_bounds = test_golden_bounds(network, bounds);
    assert_ok(trm_build(network, &options, &plan));
    assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
    assert_ok(trm_context_create(engine, &context));
    test_runner runner = test_runner_of_context(context, network);
    run_all_ways(&golden, &runner);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    test_golden_close(&golden);
}

static int64_t weight_elements(const trm_network *network)
{
    int64_t elements = 0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        elements += tensor->weight != NULL ? trm_dims_count(&tensor->dims) : 0;
    }
    return elements;
}

static void run_split(const char *name)
{
    const trm_cost_model free_links = {.memory_bandwidth = 1e6,
                                       .compute_rate = 1e6,
                                       .link_bandwidth = 1e15,
                                       .link_latency = 0.0,
                                       .unknown_dimension = 16};
    test_golden golden;
    trm_network *network, *local;
    trm_mesh mesh;
    trm_partition_report report;
    test_interpreter *interpreter;
    test_golden_open(name, &golden);
    assert_ok(trm_model_build_network(golden.model, TRM_DTYPE_NONE, &network));
    assert_ok(trm_mesh_parse(NULL, trm_world_size(world), &mesh));
    assert_ok(trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION));
    assert_ok(trm_partition(network, &mesh, trm_world_rank(world), &free_links, &local, &report));
    assert_ok(trm_run_passes(local, TRM_PASSES_AFTER_PARTITION));
    if (trm_world_size(world) > 1) {
        assert_true(report.n_collectives > golden.info.layers);
        assert_true(weight_elements(local) < weight_elements(network) * 3 / 4);
    }
    test_interpreter_options options = {.backend = TRM_BACKEND_HOST,
                                        .state_dimension = TEST_GOLDEN_CACHE,
                                        .communicator = world->communicator,
                                        .device = world->device};
    assert_ok(test_interpreter_create(local, &options, &interpreter));
    test_runner runner = test_runner_of_interpreter(interpreter);
    run_all_ways(&golden, &runner);
    test_interpreter_destroy(interpreter);
    trm_network_destroy(local);
    trm_network_destroy(network);
    test_golden_close(&golden);
}

static void engines_equal_transformers(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        run_on_engine(test_golden_name(i));
    }
}

static void split_networks_equal_transformers(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        run_split(test_golden_name(i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_equal_transformers),
        cmocka_unit_test(split_networks_equal_transformers),
    };
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.threads = 1;
    if (trm_world_open(&options, &world) != TRM_OK) {
        print_error("%s\n", trm_last_error());
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed != 0) {
        trm_world_abort(world, TRM_ERROR_INTERNAL);
    }
    trm_world_close(world);
    return failed;
}
