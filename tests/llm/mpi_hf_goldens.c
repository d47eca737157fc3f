/* The goldens of transformers over all ranks of the host backend. */
#include "support/support.h"

#include "support/hf_golden_ranks.h"
#include "support/world.h"

static void engines_equal_transformers(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        test_golden_on_engine(test_world, test_golden_name(i), TRM_DTYPE_NONE);
    }
}

static void split_networks_equal_transformers(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        test_golden_split(test_world, test_golden_name(i), TRM_DTYPE_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_equal_transformers),
        cmocka_unit_test(split_networks_equal_transformers),
    };
    return test_run_host_ranks(tests, sizeof(tests) / sizeof(tests[0]));
}
