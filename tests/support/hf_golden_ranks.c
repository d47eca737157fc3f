/* Goldens on engines and on split networks. */
#include "support/hf_golden_ranks.h"

#include "support/support.h"

#include <math.h>

#include "dist/partition/partition.h"
#include "dist/plan/plan.h"

static void check(trm_world *world, const test_golden *golden, trm_dtype dtype, const char *way,
                  test_golden_difference difference)
{
    double tolerance = test_golden_tolerance(golden, dtype);
    const bool cuda = trm_device_backend(world->device) == TRM_BACKEND_CUDA;
    if (cuda) {
        tolerance = fmax(tolerance, 1e-4); /* sums in other orders */
    }
    if (golden->quantizes_x && (cuda || trm_world_size(world) > 1)) { /* few rows; rows of which each rank has a part */
        tolerance = fmax(tolerance, TEST_GOLDEN_OTHER_SCALES);
    }
    if (!test_golden_agrees(golden, &difference, tolerance)) {
        fail_msg(
            "%s in %s on %d ranks, %s: logits differ by %.3g of the largest, the median row by %.3g, tolerance %.3g",
            golden->name, trm_dtype_name(dtype), trm_world_size(world), way, difference.worst, difference.median,
            tolerance);
    }
    if (getenv("TRM_TEST_VERBOSE") != NULL && trm_world_rank(world) == 0) {
        print_message("%-18s %-5s %-8s %.2e median %.2e\n", golden->name, trm_dtype_name(dtype), way, difference.worst,
                      difference.median);
    }
}

static void run_all_ways(trm_world *world, const test_golden *golden, trm_dtype dtype, const test_runner *runner)
{
    if (!test_is_brief() || dtype == TRM_DTYPE_NONE) {
        check(world, golden, dtype, "whole", test_golden_run_whole(golden, runner));
        check(world, golden, dtype, "chunks", test_golden_run_chunks(golden, runner, 7));
    }
    check(world, golden, dtype, "decode", test_golden_run_decode(golden, runner));
    check(world, golden, dtype, "batch", test_golden_run_batch(golden, runner));
}

/* Whether a network has a cache that ranks along cp do not share. */
static bool has_latents(const trm_network *network)
{
    bool has = false;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        has = has || (tensor->role == TRM_TENSOR_STATE && strstr(tensor->name, "latent") != NULL);
    }
    return has;
}

void test_golden_on_engine(trm_world *world, const char *name, trm_dtype dtype)
{
    test_golden golden;
    trm_network *network;
    trm_plan *plan;
    trm_engine *engine;
    trm_context *context;
    trm_shape_bound bounds[TEST_GOLDEN_MAX_BOUNDS];
    test_golden_open(name, &golden);
    assert_ok(trm_model_build_network(golden.model, dtype, &network));
    trm_build_options options = {
        .size = sizeof(options), .backend = trm_device_backend(world->device), .rank = trm_world_rank(world)};
    assert_ok(trm_mesh_parse(getenv("TRM_TEST_MESH"), trm_world_size(world), &options.mesh));
    options.bounds = bounds;
    options.n_bounds = test_golden_bounds(network, bounds);
    if (options.mesh.size[TRM_AXIS_CP] > 1 && has_latents(network)) {
        assert_fails(trm_build(network, &options, &plan), TRM_ERROR_UNSUPPORTED,
                     "mesh axis cp shares the tokens of attention over keys and values");
        trm_network_destroy(network);
        test_golden_close(&golden);
        return;
    }
    assert_ok(trm_build(network, &options, &plan));
    assert_int_equal(plan->partition.shares_tokens, options.mesh.size[TRM_AXIS_CP] > 1);
    assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
    assert_ok(trm_context_create(engine, &context));
    test_runner runner = test_runner_of_context(context, network);
    run_all_ways(world, &golden, dtype, &runner);
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

void test_golden_split(trm_world *world, const char *name, trm_dtype dtype)
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
    assert_ok(trm_model_build_network(golden.model, dtype, &network));
    assert_ok(trm_mesh_parse(NULL, trm_world_size(world), &mesh));
    assert_ok(trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION));
    assert_ok(trm_partition(network, &mesh, trm_world_rank(world), &free_links, &local, &report));
    assert_ok(trm_run_passes(local, TRM_PASSES_AFTER_PARTITION));
    if (trm_world_size(world) > 1) {
        assert_true(report.n_collectives > golden.info.layers);
        const int64_t here = weight_elements(local), whole = weight_elements(network);
        if (here >= whole * 3 / 4) {
            fail_msg("%s: a rank of %d has %lld of %lld elements of weights", name, trm_world_size(world),
                     (long long)here, (long long)whole);
        }
    }
    test_interpreter_options options = {.backend = trm_device_backend(world->device),
                                        .state_dimension = TEST_GOLDEN_CACHE,
                                        .communicator = world->communicator,
                                        .device = world->device};
    assert_ok(test_interpreter_create(local, &options, &interpreter));
    test_runner runner = test_runner_of_interpreter(interpreter);
    run_all_ways(world, &golden, dtype, &runner);
    test_interpreter_destroy(interpreter);
    trm_network_destroy(local);
    trm_network_destroy(network);
    test_golden_close(&golden);
}
