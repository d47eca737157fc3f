/* The CUDA device itself: memory, copies, events, captured steps and its errors. Exits 77 if there is no GPU. */
#include <pthread.h>
#include <stdio.h>

#include "support/device.h"
#include "support/support.h"

#include "kernels/device/device.h"
#include "kernels/sampling/random.h"
#include "kernels/task_cases.h"

static void tells_what_it_is(void **state)
{
    (void)state;
    trm_device_info info;
    assert_int_equal(trm_device_backend(test_device), TRM_BACKEND_CUDA);
    assert_ok(trm_device_get_info(test_device, &info));
    assert_int_equal(info.backend, TRM_BACKEND_CUDA);
    assert_true(info.name[0] != '\0' && info.memory_total > 0 && info.memory_free <= info.memory_total);
    assert_true(info.compute_major > 0 && info.multiprocessors > 0);
    assert_int_equal(strlen(info.uuid), 40);
    assert_int_equal(strncmp(info.uuid, "GPU-", 4), 0);
    assert_true(strlen(info.pci_bus_id) > 6);
    assert_ptr_equal(trm_stream_device(test_stream), test_device);
    assert_non_null(trm_stream_native(test_stream));
}

static void copies_go_through(void **state)
{
    (void)state;
    enum { COUNT = 100003 };
    int32_t *from = NULL, *to = NULL;
    void *a = NULL, *b = NULL;
    assert_ok(trm_device_alloc_host(test_device, COUNT * 4, (void **)&from));
    assert_ok(trm_device_alloc_host(test_device, COUNT * 4, (void **)&to));
    assert_ok(trm_device_alloc(test_device, COUNT * 4, &a));
    assert_ok(trm_device_alloc(test_device, COUNT * 4, &b));
    assert_int_equal((uintptr_t)a % 256, 0);
    for (int32_t i = 0; i < COUNT; i++) {
        from[i] = i * 7;
    }
    assert_ok(trm_stream_upload(test_stream, a, from, COUNT * 4));
    assert_ok(trm_stream_copy(test_stream, b, a, COUNT * 4));
    assert_ok(trm_stream_fill_zero(test_stream, b, 40));
    assert_ok(trm_stream_download(test_stream, to, b, COUNT * 4));
    assert_ok(trm_stream_synchronize(test_stream));
    for (int32_t i = 0; i < COUNT; i++) {
        assert_int_equal(to[i], i < 10 ? 0 : i * 7);
    }
    trm_device_free(test_device, a);
    trm_device_free(test_device, b);
    trm_device_free_host(test_device, from);
    trm_device_free_host(test_device, to);
}

static void events_order_streams(void **state)
{
    (void)state;
    enum { SIZE = 64 << 20 };
    trm_stream *other = NULL;
    trm_event *start = NULL, *end = NULL;
    void *memory = NULL, *copy = NULL;
    float milliseconds = -1.0f;
    assert_ok(trm_stream_create(test_device, &other));
    assert_ok(trm_event_create(test_device, &start));
    assert_ok(trm_event_create(test_device, &end));
    assert_ok(trm_device_alloc(test_device, SIZE, &memory));
    assert_ok(trm_device_alloc(test_device, SIZE, &copy));
    trm_random_fill_args fill = {.to = {memory, TRM_F32, {1, {SIZE / 4}}}, .seed = 5, .spread = 1.0f, .strides = {1}};
    assert_ok(trm_event_record(start, test_stream));
    assert_ok(trm_random_fill(test_stream, &fill));
    assert_ok(trm_event_record(end, test_stream));
    assert_ok(trm_stream_wait_event(other, end));
    assert_ok(trm_stream_copy(other, copy, memory, SIZE));
    float last = 0.0f;
    assert_ok(trm_stream_download(other, &last, (char *)copy + SIZE - 4, 4));
    assert_ok(trm_stream_synchronize(other));
    assert_true(last == trm_random_unit(5, SIZE / 4 - 1));
    bool passed = false;
    assert_ok(trm_event_query(end, &passed));
    assert_true(passed);
    assert_ok(trm_event_synchronize(end));
    assert_ok(trm_event_elapsed_ms(start, end, &milliseconds));
    assert_true(milliseconds > 0.0f && milliseconds < 1000.0f);
    trm_device_free(test_device, memory);
    trm_device_free(test_device, copy);
    trm_event_destroy(start);
    trm_event_destroy(end);
    trm_stream_destroy(other);
}

/* A captured step reads its inputs anew at each launch, on streams that fork and join, too. */
static void captured_steps_run_again(void **state)
{
    (void)state;
    trm_stream *other = NULL;
    trm_event *fork = NULL, *join = NULL;
    trm_graph_exec *exec = NULL;
    void *a = NULL, *b = NULL, *c = NULL;
    assert_ok(trm_stream_create(test_device, &other));
    assert_ok(trm_event_create(test_device, &fork));
    assert_ok(trm_event_create(test_device, &join));
    assert_ok(trm_device_alloc(test_device, 1024, &a));
    assert_ok(trm_device_alloc(test_device, 1024, &b));
    assert_ok(trm_device_alloc(test_device, 1024, &c));
    assert_false(trm_stream_is_capturing(test_stream));
    assert_ok(trm_stream_begin_capture(test_stream));
    assert_true(trm_stream_is_capturing(test_stream));
    assert_ok(trm_event_record(fork, test_stream));
    assert_ok(trm_stream_wait_event(other, fork));
    assert_ok(trm_stream_copy(other, b, a, 1024));
    assert_ok(trm_event_record(join, other));
    assert_ok(trm_stream_wait_event(test_stream, join));
    assert_ok(trm_stream_copy(test_stream, c, b, 1024));
    assert_ok(trm_stream_end_capture(test_stream, &exec));
    assert_false(trm_stream_is_capturing(test_stream));
    for (int32_t round = 1; round < 4; round++) {
        char bytes[1024], back[1024];
        memset(bytes, round, sizeof(bytes));
        assert_ok(trm_stream_upload(test_stream, a, bytes, sizeof(bytes)));
        assert_ok(trm_graph_exec_launch(exec, test_stream));
        assert_ok(trm_stream_download(test_stream, back, c, sizeof(back)));
        assert_ok(trm_stream_synchronize(test_stream));
        assert_memory_equal(back, bytes, sizeof(bytes));
    }
    trm_graph_exec_destroy(exec);
    trm_device_free(test_device, a);
    trm_device_free(test_device, b);
    trm_device_free(test_device, c);
    trm_event_destroy(fork);
    trm_event_destroy(join);
    trm_stream_destroy(other);
}

static void *use_from_another_thread(void *user)
{
    int32_t *value = user;
    void *memory = NULL;
    if (trm_device_alloc(test_device, 4, &memory) == TRM_OK &&
        trm_stream_upload(test_stream, memory, &value[0], 4) == TRM_OK &&
        trm_stream_download(test_stream, &value[1], memory, 4) == TRM_OK) {
        value[2] = trm_stream_synchronize(test_stream) == TRM_OK;
    }
    trm_device_free(test_device, memory);
    return NULL;
}

static void works_from_another_thread(void **state)
{
    (void)state;
    int32_t value[3] = {41, 0, 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_from_another_thread, value), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(value[1], 41);
    assert_int_equal(value[2], 1);
}

static void refusals_name_the_cause(void **state)
{
    (void)state;
    trm_device *missing = NULL;
    void *memory = NULL;
    trm_device_info info;
    assert_fails(trm_device_open(TRM_BACKEND_CUDA, 1000, 0, &missing), TRM_ERROR_NO_DEVICE,
                 "cannot open cuda device 1000: this process sees");
    assert_fails(trm_device_open(TRM_BACKEND_CUDA, -1, 0, &missing), TRM_ERROR_NO_DEVICE, "cannot open cuda device -1");
    assert_null(missing);
    assert_ok(trm_device_get_info(test_device, &info));
    assert_fails(trm_device_alloc(test_device, info.memory_total * 2, &memory), TRM_ERROR_OUT_OF_MEMORY,
                 "bytes free of");
    assert_null(memory);
    assert_ok(trm_device_alloc(test_device, 16, &memory)); /* the failure does not stay behind */
    trm_device_free(test_device, memory);
    assert_ok(trm_stream_synchronize(test_stream));
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(tells_what_it_is),
                                       cmocka_unit_test(copies_go_through),
                                       cmocka_unit_test(events_order_streams),
                                       cmocka_unit_test(captured_steps_run_again),
                                       cmocka_unit_test(works_from_another_thread),
                                       cmocka_unit_test(refusals_name_the_cause),
                                       TASK_CASES(TASK_LIST)};
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
