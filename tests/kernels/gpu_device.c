/* A GPU as a device. Exits 77 if there is none. */
#include "support/device.h"
#include "support/support.h"

#include "kernels/device_suite.h"

static void has_multiprocessors_and_an_address(void **state)
{
    (void)state;
    trm_device_info info;
    assert_int_equal(trm_device_backend(test_device), TRM_BACKEND_CUDA);
    assert_ok(trm_device_get_info(test_device, &info));
    assert_true(info.compute_major > 0 && info.multiprocessors > 0);
    assert_int_equal(strlen(info.uuid), 40);
    assert_int_equal(strncmp(info.uuid, "GPU-", 4), 0);
    assert_true(strlen(info.pci_bus_id) > 6);
}

static void refusals_name_the_cause(void **state)
{
    (void)state;
    trm_device *missing = NULL;
    assert_fails(trm_device_open(TRM_BACKEND_CUDA, 1000, 0, &missing), TRM_ERROR_NO_DEVICE,
                 "cannot open cuda device 1000: this process sees");
    assert_fails(trm_device_open(TRM_BACKEND_CUDA, -1, 0, &missing), TRM_ERROR_NO_DEVICE, "cannot open cuda device -1");
    assert_null(missing);
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {DEVICE_SUITE(DEVICE_TEST) cmocka_unit_test(has_multiprocessors_and_an_address),
                                       cmocka_unit_test(refusals_name_the_cause)};
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
