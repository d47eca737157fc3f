/* The host as a device. */
#include "support/device.h"
#include "support/support.h"

#include "kernels/device_suite.h"

static void has_threads_and_no_uuid(void **state)
{
    (void)state;
    trm_device_info info;
    trm_device *all = NULL;
    assert_int_equal(trm_device_backend(test_device), TRM_BACKEND_HOST);
    assert_ok(trm_device_get_info(test_device, &info));
    assert_int_equal(info.threads, 3);
    assert_string_equal(info.uuid, "");
    assert_ok(trm_device_open(TRM_BACKEND_HOST, 0, 0, &all));
    assert_ok(trm_device_get_info(all, &info));
    assert_true(info.threads >= 1);
    trm_device_close(all);
}

static void refusals_name_the_cause(void **state)
{
    (void)state;
    trm_device *none = NULL;
    assert_fails(trm_device_open(TRM_BACKEND_HOST, 0, -1, &none), TRM_ERROR_INVALID_ARGUMENT, "has -1 threads");
    assert_fails(trm_device_open((trm_backend)7, 0, 0, &none), TRM_ERROR_INVALID_ARGUMENT, "backend 7");
    char why[256] = "";
    if (trm_device_cuda_count(why, sizeof(why)) == 0) {
        assert_true(strlen(why) > 0);
        assert_fails(trm_device_open(TRM_BACKEND_CUDA, 0, 0, &none), TRM_ERROR_NO_DEVICE, "");
    }
    assert_null(none);
}

static void memory_has_a_rate(void **state)
{
    (void)state;
    const int32_t n = trm_device_cuda_count(NULL, 0);
    for (int32_t i = 0; i < n; i++) { /* of GPUs of the last ten years */
        const double rate = trm_device_cuda_memory_rate(i);
        assert_true(rate > 1e11 && rate < 2e13);
    }
    assert_true(trm_device_cuda_memory_rate(n) == 0.0);
}

static void events_time_what_was_recorded(void **state)
{
    (void)state;
    trm_event *start = NULL, *end = NULL;
    float milliseconds = -1.0f;
    assert_ok(trm_event_create(test_device, &start));
    assert_ok(trm_event_create(test_device, &end));
    assert_fails(trm_event_elapsed_ms(start, end, &milliseconds), TRM_ERROR_INVALID_ARGUMENT, "not recorded");
    trm_event_destroy(start);
    trm_event_destroy(end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {DEVICE_SUITE(DEVICE_TEST) cmocka_unit_test(has_threads_and_no_uuid),
                                       cmocka_unit_test(refusals_name_the_cause), cmocka_unit_test(memory_has_a_rate),
                                       cmocka_unit_test(events_time_what_was_recorded)};
    return cmocka_run_group_tests(tests, test_open_host_pool, test_close_device);
}
