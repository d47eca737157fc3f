/* The host as a test_device, and the choice of a kernel from tables. */
#include "support/device.h"
#include "support/support.h"

#include "kernels/kernel.h"
#include "kernels/task_cases.h"

static void says_what_it_is(void **state)
{
    (void)state;
    trm_device_info info;
    assert_ok(trm_device_get_info(test_device, &info));
    assert_int_equal(info.backend, TRM_BACKEND_HOST);
    assert_int_equal(trm_device_backend(test_device), TRM_BACKEND_HOST);
    assert_int_equal(info.threads, 3);
    assert_true(strlen(info.name) > 0);
    assert_true(info.memory_total > 0 && info.memory_free <= info.memory_total);
    assert_string_equal(info.uuid, "");
    assert_ptr_equal(trm_stream_device(test_stream), test_device);
    trm_device *all = NULL;
    assert_ok(trm_device_open(TRM_BACKEND_HOST, 0, 0, &all));
    assert_ok(trm_device_get_info(all, &info));
    assert_true(info.threads >= 1);
    trm_device_close(all);
}

static void moves_memory(void **state)
{
    (void)state;
    char *a = NULL, *b = NULL, text[16] = "pull together";
    assert_ok(trm_device_alloc(test_device, 16, (void **)&a));
    assert_ok(trm_device_alloc_host(test_device, 16, (void **)&b));
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_ok(trm_stream_upload(test_stream, a, text, sizeof(text)));
    assert_ok(trm_stream_copy(test_stream, b, a, sizeof(text)));
    memset(text, 0, sizeof(text));
    assert_ok(trm_stream_download(test_stream, text, b, sizeof(text)));
    assert_string_equal(text, "pull together");
    assert_ok(trm_stream_fill_zero(test_stream, b, 5));
    assert_string_equal(b, "");
    assert_string_equal(b + 5, "together");
    assert_ok(trm_stream_copy(test_stream, NULL, NULL, 0));
    assert_ok(trm_stream_synchronize(test_stream));
    trm_device_free(test_device, a);
    trm_device_free_host(test_device, b);
    trm_device_free(test_device, NULL);
    void *nothing = NULL;
    assert_ok(trm_device_alloc(test_device, 0, &nothing));
    assert_non_null(nothing);
    trm_device_free(test_device, nothing);
}

static void refuses(void **state)
{
    (void)state;
    void *memory = NULL;
    trm_device *none = NULL;
    trm_graph_exec *exec = NULL;
    assert_fails(trm_device_alloc(test_device, SIZE_MAX - 3, &memory), TRM_ERROR_OUT_OF_MEMORY, "bytes of host memory");
    assert_null(memory);
    assert_fails(trm_device_open(TRM_BACKEND_HOST, 0, -1, &none), TRM_ERROR_INVALID_ARGUMENT, "has -1 threads");
    assert_fails(trm_device_open((trm_backend)7, 0, 0, &none), TRM_ERROR_INVALID_ARGUMENT, "backend 7");
    assert_null(none);
    assert_fails(trm_stream_begin_capture(test_stream), TRM_ERROR_UNSUPPORTED, "cannot be captured");
    assert_fails(trm_stream_end_capture(test_stream, &exec), TRM_ERROR_UNSUPPORTED, "cannot be captured");
    assert_false(trm_stream_is_capturing(test_stream));
    assert_null(exec);
    char why[256] = "";
    if (trm_device_cuda_count(why, sizeof(why)) == 0) {
        assert_true(strlen(why) > 0);
        assert_fails(trm_device_open(TRM_BACKEND_CUDA, 0, 0, &none), TRM_ERROR_NO_DEVICE, "");
    }
    trm_device_close(NULL);
    trm_stream_destroy(NULL);
    trm_event_destroy(NULL);
    trm_graph_exec_destroy(NULL);
}

static void times_with_events(void **state)
{
    (void)state;
    trm_event *start = NULL, *end = NULL;
    float milliseconds = -1.0f;
    bool passed = false;
    assert_ok(trm_event_create(test_device, &start));
    assert_ok(trm_event_create(test_device, &end));
    assert_fails(trm_event_elapsed_ms(start, end, &milliseconds), TRM_ERROR_INVALID_ARGUMENT, "not recorded");
    assert_ok(trm_event_record(start, test_stream));
    assert_ok(trm_event_record(end, test_stream));
    assert_ok(trm_stream_wait_event(test_stream, end));
    assert_ok(trm_event_synchronize(end));
    assert_ok(trm_event_query(end, &passed));
    assert_true(passed);
    assert_ok(trm_event_elapsed_ms(start, end, &milliseconds));
    assert_true(milliseconds >= 0.0f && milliseconds < 60000.0f);
    trm_event_destroy(start);
    trm_event_destroy(end);
}

static void finds_the_first_kernel_that_accepts(void **state)
{
    (void)state;
    static const trm_kernel_table *const tables[] = {&trm_cuda_kernels, &trm_host_kernels};
    trm_layer_desc layer = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_kernel_call call = {.layer = &layer, .n_inputs = 2, .n_outputs = 1};
    call.inputs[0] = (trm_view){NULL, TRM_BF16, {2, {3, 16}}};
    call.inputs[1] = (trm_view){NULL, TRM_BF16, {2, {8, 16}}};
    call.outputs[0] = (trm_view){NULL, TRM_BF16, {2, {3, 8}}};
    assert_string_equal(trm_kernel_find(tables, 2, TRM_BACKEND_HOST, &call)->name, "host.matmul.gemv");
    call.inputs[0].dims.d[0] = call.outputs[0].dims.d[0] = 9;
    assert_string_equal(trm_kernel_find(tables, 2, TRM_BACKEND_HOST, &call)->name, "host.matmul.openblas");
    call.outputs[0].dims.d[0] = 8; /* fits no product */
    assert_null(trm_kernel_find(tables, 2, TRM_BACKEND_HOST, &call));
    layer.kind = TRM_LAYER_DIST_COLLECTIVE;
    assert_null(trm_kernel_find(tables, 2, TRM_BACKEND_HOST, &call));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_what_it_is),
                                       cmocka_unit_test(moves_memory),
                                       cmocka_unit_test(refuses),
                                       cmocka_unit_test(times_with_events),
                                       cmocka_unit_test(finds_the_first_kernel_that_accepts),
                                       TASK_CASES(TASK_LIST)};
    return cmocka_run_group_tests(tests, test_open_host_pool, test_close_device);
}
