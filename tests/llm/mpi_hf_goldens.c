/* The goldens of transformers over all ranks of the host backend. */
#include "support/support.h"

#include "support/hf_golden_ranks.h"

static trm_world *world;

static void engines_equal_transformers(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        test_golden_on_engine(world, test_golden_name(i), TRM_DTYPE_NONE);
    }
}

static void split_networks_equal_transformers(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        test_golden_split(world, test_golden_name(i), TRM_DTYPE_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_equal_transformers),
        cmocka_unit_test(split_networks_equal_transformers),
    };
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.threads = 1;
    if (trm_world_open(&options, &world) != TRM_OK) {
        print_error("%s\n", trm_last_error());
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed != 0) {
        trm_world_abort(world, TRM_ERROR_INTERNAL); /* peers may wait in a collective */
    }
    trm_world_close(world);
    return failed;
}
