/* The example plugin from ONNX over ranks: split by columns or by the batch, streamed, with new weights. */
#include "plugin/fixture.h"

static char one[4096], two[4096];

static int set_up(void **state)
{
    const int opened = test_open_world(state);
    const char *folder = test_temporary_folder();
    snprintf(one, sizeof(one), "%s/one.onnx", folder);
    snprintf(two, sizeof(two), "%s/two.onnx", folder);
    write_model(one, 1);
    write_model(two, 2);
    assert_ok(trm_plugin_load(library("gain_swish")));
    return opened;
}

/* Every rank has a part of the columns, of the gains and of the rows of `c`, if they divide. */
static void columns_are_split(void **state)
{
    (void)state;
    const int32_t ranks = trm_world_size(test_world), rank = trm_world_rank(test_world);
    char wanted[128];
    const bool divides = MIDDLE % ranks == 0;
    snprintf(wanted, sizeof(wanted), "s: f32 [?, %d] = plugin(h, gain)", MIDDLE / ranks);
    for (int streamed = 0; streamed < 2; streamed++) {
        trm_plan *plan = plan_model(one, true, NULL, ranks, rank, divides);
        const trm_weight_budget budget = {.kind = streamed ? TRM_WEIGHT_BUDGET_PERCENT : TRM_WEIGHT_BUDGET_OFF};
        char *text = trm_plan_to_text(plan);
        if (divides && strstr(text, wanted) == NULL) {
            fail_msg("the plan has no \"%s\":\n%s", wanted, text);
        }
        trm_free(text);
        assert_ok(trm_plan_set_weight_budget(plan, &budget));
        check_plan(plan, 1, 1, two);
    }
}

static void batches_are_split(void **state)
{
    (void)state;
    const int32_t ranks = trm_world_size(test_world), rank = trm_world_rank(test_world);
    char mesh[32];
    snprintf(mesh, sizeof(mesh), "dp=%d", (int)ranks);
    trm_network *network = import_model(one, false);
    const int64_t most = ROWS / ranks * ranks;
    const trm_shape_bound bound = {.tensor = "x", .min = DIMS(ranks, IN), .max = DIMS(most, IN)};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan = NULL;
    options.backend = test_backend();
    options.bounds = &bound;
    options.n_bounds = 1;
    options.rank = rank;
    assert_ok(trm_mesh_parse(mesh, ranks, &options.mesh));
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    trm_plan_info info;
    trm_plan_get_info(plan, &info);
    check_plan(plan, 1, ranks, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(columns_are_split), cmocka_unit_test(batches_are_split)};
    return test_lacks_backend() ? TEST_SKIPPED : cmocka_run_group_tests(tests, set_up, test_close_world);
}
