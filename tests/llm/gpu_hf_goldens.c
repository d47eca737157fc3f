/*
 * The goldens of transformers on GPUs, one per rank: run under mpirun with as many ranks as there are GPUs, or alone.
 * Also with all models computed in 16-bit types.
 */
#include "support/support.h"

#include "support/hf_golden_ranks.h"

static trm_world *world;

/* In brief, one golden in `fewer`. */
static bool taken(int32_t i, int32_t fewer)
{
    return test_in_part(i) && (!test_is_brief() || i % fewer == 0);
}

static void engines_equal_transformers(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        if (taken(i, 4)) {
            test_golden_on_engine(world, test_golden_name(i), TRM_DTYPE_NONE);
        }
    }
}

static void split_networks_equal_transformers(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        if (taken(i, 8)) {
            test_golden_split(world, test_golden_name(i), TRM_DTYPE_NONE);
        }
    }
}

static void sixteen_bit_types_agree(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        if (taken(i, 8)) {
            test_golden_split(world, test_golden_name(i), TRM_BF16);
            test_golden_split(world, test_golden_name(i), TRM_F16);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_equal_transformers),
        cmocka_unit_test(split_networks_equal_transformers),
        cmocka_unit_test(sixteen_bit_types_agree),
    };
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_CUDA;
    if (trm_world_open(&options, &world) != TRM_OK) {
        print_error("%s\n", trm_last_error());
        return trm_device_cuda_count(NULL, 0) == 0 ? 77 : 1;
    }
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed != 0) {
        trm_world_abort(world, TRM_ERROR_INTERNAL); /* peers may wait in a collective */
    }
    trm_world_close(world);
    return failed;
}
