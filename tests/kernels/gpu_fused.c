/* Generated kernels on CUDA device 0 against their layers one by one on the same device. Exits 77 if there is none. */
#include "support/device.h"

#include "kernels/fused/fused.h"
#include "kernels/fused_cases.h"

static void fused_is_layer_by_layer(void **state)
{
    (void)state;
    int64_t elements = 0, different = 0;
    int32_t layers = 0;
    trm_device *device = NULL;
    char why[512] = "";
    if (!trm_fused_available(TRM_BACKEND_CUDA, why, sizeof(why))) {
        fail_msg("no run-time compiler: %s", why);
    }
    assert_ok(trm_device_open(TRM_BACKEND_CUDA, 0, 0, &device));
    for (uint64_t i = 0; i < (test_is_brief() ? 3 : 20); i++) {
        fused_compare(TRM_BACKEND_CUDA, device, test_seed() + i, 1e-5f, &elements, &different, &layers);
    }
    trm_device_close(device);
    print_message("%lld elements, %d layers fused, %lld differ\n", (long long)elements, (int)layers,
                  (long long)different);
    assert_true(elements > 0);
    assert_true(different <= elements / 1000); /* functions that two compilers make may step over a comparison */
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(fused_is_layer_by_layer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
