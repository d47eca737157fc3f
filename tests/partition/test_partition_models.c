/* Every preset of a published model over 2 ranks of tp and of pp: each takes about half of the weights. */
#include <stdio.h>

#include <trireme/generate.h>
#include <trireme/model.h>

#include "dist/llm/microbatch.h"
#include "dist/partition/partition.h"
#include "support/support.h"

static double weight_bytes(const trm_network *network)
{
    double bytes = 0.0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        bytes += tensor->weight != NULL ? (double)trm_dims_bytes(&tensor->dims, tensor->dtype) : 0.0;
    }
    return bytes;
}

static trm_network *open_network(const char *name, const char *weights)
{
    trm_model *model;
    trm_network *network;
    assert_ok(trm_model_open_preset_quantized(name, weights, 0, 1, &model));
    assert_ok(trm_model_build_network(model, TRM_BF16, &network));
    trm_model_close(model);
    assert_ok(trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION));
    return network;
}

/* The heaviest rank's part of the weights. */
static double heaviest(const trm_network *network, const trm_mesh *mesh, int32_t ranks)
{
    double most = 0.0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        trm_cost_model model;
        trm_network *local;
        trm_cost_model_default(TRM_BACKEND_CUDA, &model);
        assert_ok(trm_partition(network, mesh, rank, &model, &local, NULL));
        assert_ok(trm_run_passes(local, TRM_PASSES_AFTER_PARTITION));
        double bytes = weight_bytes(local);
        most = bytes > most ? bytes : most;
        trm_network_destroy(local);
    }
    return most / weight_bytes(network);
}

static void ranks_share_the_weights(void **unused)
{
    (void)unused;
    for (int32_t i = 0; trm_model_preset_name(i) != NULL; i++) {
        const char *name = trm_model_preset_name(i);
        trm_network *network = open_network(name, NULL);
        trm_mesh tp = {{2, 1, 1, 1, 1}}, pp = {{1, 2, 1, 1, 1}};
        double by_tp = heaviest(network, &tp, 2), by_pp = heaviest(network, &pp, 2);
        print_message("%s: tp=2 %.3f, pp=2 %.3f of the weights\n", name, by_tp, by_pp);
        assert_true(by_tp < 0.56); /* the smallest keep their attention whole: an all-reduce would take longer */
        assert_true(by_pp < 0.85); /* both stages have a tied table */
        trm_network_destroy(network);
    }
}

/* Quantized weights, with their scales in whole blocks, are split as others are. */
static void ranks_share_quantized_weights(void **unused)
{
    (void)unused;
    static const char *const kinds[] = {"bf16", "fp8", "fp8-weights", "fp8-block", "int8", "int4", "int4-128", "nvfp4"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        trm_network *network = open_network("llama-3-8b", kinds[i]);
        trm_mesh two = {{2, 1, 1, 1, 1}}, eight = {{8, 1, 1, 1, 1}};
        double by_two = heaviest(network, &two, 2), by_eight = heaviest(network, &eight, 8);
        print_message("%s: %.2f GB, tp=2 %.3f, tp=8 %.3f of the weights\n", kinds[i], weight_bytes(network) / 1e9,
                      by_two, by_eight);
        assert_true(by_two < 0.51 && by_eight < 0.13);
        trm_network_destroy(network);
    }
}

/* What the lanes' sums of a model by copies take in memory on a mesh, with a communicator or NULL. */
static size_t lane_sums_bytes(trm_model *model, trm_mesh mesh, const trm_communicator *communicator, int64_t rows)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_build_options build = TRM_BUILD_OPTIONS_INIT;
    build.backend = TRM_BACKEND_HOST;
    trm_plan *plan;
    int64_t tokens;
    options.dtype = TRM_BF16;
    options.max_context = 512;
    build.mesh = mesh;
    assert_ok(trm_generator_plan(model, &options, &build, &plan, &tokens));
    size_t bytes = trm_microbatch_sums_bytes(plan, communicator, rows);
    trm_plan_destroy(plan);
    return bytes;
}

/* Between two tensor-parallel ranks, with room for what both send and for the result in each of two lanes; between
 * others not, nor where they do not reach each other's memory. */
static void sums_of_lanes_travel_between_two_ranks(void **unused)
{
    (void)unused;
    trm_model *model;
    const size_t sum = (size_t)1000 * 4096 * 2;
    assert_ok(trm_model_open_preset("llama-3-8b", 0, 1, &model));
    size_t two = lane_sums_bytes(model, (trm_mesh){{2, 1, 1, 1, 1}}, NULL, 1000);
    assert_true(two >= 4 * sum && two < 4 * sum + 4096);
    assert_true(lane_sums_bytes(model, (trm_mesh){{2, 2, 1, 1, 1}}, NULL, 1000) == 0);
    assert_true(lane_sums_bytes(model, (trm_mesh){{4, 1, 1, 1, 1}}, NULL, 1000) == 0);
    assert_true(lane_sums_bytes(model, (trm_mesh){{8, 1, 1, 1, 1}}, NULL, 1000) == 0);
    assert_true(lane_sums_bytes(model, (trm_mesh){{1, 1, 1, 1, 1}}, NULL, 1000) == 0);
    trm_communicator *ranks[2];
    assert_ok(trm_communicator_local_create(2, 1.0, ranks)); /* as NCCL alone: nobody's memory is mapped */
    assert_true(lane_sums_bytes(model, (trm_mesh){{2, 1, 1, 1, 1}}, ranks[0], 1000) == 0);
    for (int i = 0; i < 2; i++) {
        trm_communicator_destroy(ranks[i]);
    }
    trm_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_the_weights),
        cmocka_unit_test(ranks_share_quantized_weights),
        cmocka_unit_test(sums_of_lanes_travel_between_two_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
