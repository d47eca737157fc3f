/* Fused elementwise layers on the host: bit by bit what their layers give. */
#include "kernels/fused_cases.h"

static void fused_is_layer_by_layer(void **state)
{
    (void)state;
    int64_t elements = 0, different = 0;
    int32_t layers = 0;
    for (uint64_t i = 0; i < 150; i++) {
        fused_compare(TRM_BACKEND_HOST, NULL, test_seed() + i, 0, &elements, &different, &layers);
    }
    print_message("%lld elements, %d layers fused\n", (long long)elements, (int)layers);
    assert_int_equal(different, 0);
    assert_true(layers > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fused_is_layer_by_layer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
