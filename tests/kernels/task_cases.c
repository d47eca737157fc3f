#include "kernels/task_cases.h"

#include "support/device.h"
#include "support/support.h"

enum { MOST = 70000, LISTS = 40 };

/* Lists of copies of any size at any address, to the device and back: these bytes and no others. */
void small_copies_of_any_size(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    unsigned char *from, *to, *between;
    void *memory;
    assert_ok(trm_device_alloc_host(test_device, MOST, &memory));
    from = memory;
    assert_ok(trm_device_alloc_host(test_device, MOST, &memory));
    to = memory;
    assert_ok(trm_device_alloc(test_device, MOST, &memory));
    between = memory;
    for (int32_t n = 0; n < LISTS; n++) {
        trm_small_copy there[TRM_MAX_SMALL_COPIES], back[TRM_MAX_SMALL_COPIES];
        const int32_t count = 1 + (int32_t)test_random_below(&random, TRM_MAX_SMALL_COPIES);
        const size_t grain = (size_t)1 << test_random_below(&random, 5);
        bool written[MOST] = {false};
        size_t at = 0;
        for (int32_t i = 0; i < count; i++) {
            at += grain * (size_t)test_random_below(&random, 9);
            size_t size = (size_t)test_random_below(&random, n % 4 == 0 ? MOST / TRM_MAX_SMALL_COPIES - 300 : 200);
            there[i] = (trm_small_copy){between + at, from + at, size};
            back[i] = (trm_small_copy){to + at, between + at, size};
            memset(written + at, 1, size);
            at = (at + size + grain - 1) / grain * grain;
        }
        assert_true(at <= MOST);
        for (size_t i = 0; i < MOST; i++) {
            from[i] = (unsigned char)test_random(&random);
            to[i] = 0;
        }
        assert_ok(trm_stream_copy_small(test_stream, there, count));
        assert_ok(trm_stream_copy_small(test_stream, back, count));
        assert_ok(trm_stream_synchronize(test_stream));
        for (size_t i = 0; i < MOST; i++) {
            assert_int_equal(to[i], written[i] ? from[i] : 0);
        }
    }
    assert_ok(trm_stream_copy_small(test_stream, NULL, 0));
    trm_device_free(test_device, between);
    trm_device_free_host(test_device, from);
    trm_device_free_host(test_device, to);
}

/* Rows of any width, to places as far apart as they are long or farther, on both kinds of streams: nothing beside them
 * changes. */
void rows_to_places_apart(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    unsigned char *from, *to;
    void *memory;
    trm_stream *beside;
    assert_ok(trm_stream_create_beside(test_device, &beside));
    assert_ok(trm_device_alloc_host(test_device, MOST, &memory));
    from = memory;
    assert_ok(trm_device_alloc_host(test_device, MOST, &memory));
    to = memory;
    assert_ok(trm_device_alloc(test_device, MOST, &memory));
    for (size_t i = 0; i < MOST; i++) {
        from[i] = (unsigned char)(1 + test_random(&random) % 255);
    }
    for (int32_t n = 0; n < LISTS; n++) {
        trm_stream *stream = n % 2 == 0 ? test_stream : beside;
        const size_t rows = (size_t)test_random_below(&random, 60);
        const size_t pitch = 1 + (size_t)test_random_below(&random, MOST / 60 - 1);
        const size_t width = n % 5 == 0 ? pitch : (size_t)test_random_below(&random, (int64_t)pitch + 1);
        assert_ok(trm_stream_fill_zero(stream, memory, MOST));
        assert_ok(trm_stream_upload_rows(stream, memory, pitch, from, width, rows));
        assert_ok(trm_stream_download(stream, to, memory, MOST));
        assert_ok(trm_stream_synchronize(stream));
        for (size_t i = 0; i < MOST; i++) {
            const bool written = i / pitch < rows && i % pitch < width;
            assert_int_equal(to[i], written ? from[i / pitch * width + i % pitch] : 0);
        }
    }
    trm_stream_destroy(beside);
    trm_device_free(test_device, memory);
    trm_device_free_host(test_device, from);
    trm_device_free_host(test_device, to);
}

enum { WORDS = 3000, TASKS = 50 };

typedef struct task {
    int32_t *seen, *answer; /* [WORDS] pinned */
    int32_t runs;
} task;

static void add_one(void *user)
{
    task *t = user;
    t->runs++;
    for (int32_t i = 0; i < WORDS; i++) {
        t->answer[i] = t->seen[i] + i;
    }
}

/* What the device has goes through the host and back, again and again: each task sees what the one before made. */
static void enqueue_tasks(task *t, int32_t *device)
{
    const trm_small_copy in = {t->seen, device, WORDS * sizeof(int32_t)};
    const trm_small_copy out = {device, t->answer, WORDS * sizeof(int32_t)};
    for (int32_t i = 0; i < TASKS; i++) {
        assert_ok(trm_stream_copy_small(test_stream, &in, 1));
        assert_ok(trm_stream_host_task(test_stream, add_one, t));
        assert_ok(trm_stream_copy_small(test_stream, &out, 1));
    }
}

void tasks_run_in_their_place(void **state)
{
    (void)state;
    task t = {0};
    void *memory;
    int32_t *device, *found;
    assert_ok(trm_device_alloc_host(test_device, WORDS * 3 * sizeof(int32_t), &memory));
    t.seen = memory;
    t.answer = t.seen + WORDS;
    found = t.seen + (size_t)2 * WORDS;
    assert_ok(trm_device_alloc(test_device, WORDS * sizeof(int32_t), &memory));
    device = memory;
    assert_ok(trm_stream_fill_zero(test_stream, device, WORDS * sizeof(int32_t)));
    enqueue_tasks(&t, device);
    int32_t runs = TASKS;
    if (trm_device_backend(test_device) == TRM_BACKEND_CUDA) {
        trm_graph_exec *exec;
        assert_ok(trm_stream_synchronize(test_stream));
        assert_ok(trm_stream_begin_capture(test_stream));
        enqueue_tasks(&t, device);
        assert_ok(trm_stream_end_capture(test_stream, &exec));
        assert_int_equal(t.runs, runs); /* captured, not run */
        for (int32_t i = 0; i < 3; i++, runs += TASKS) {
            assert_ok(trm_graph_exec_launch(exec, test_stream));
        }
        assert_ok(trm_stream_synchronize(test_stream));
        trm_graph_exec_destroy(exec);
    }
    assert_ok(trm_stream_download(test_stream, found, device, WORDS * sizeof(int32_t)));
    assert_ok(trm_stream_synchronize(test_stream));
    assert_int_equal(t.runs, runs);
    for (int32_t i = 0; i < WORDS; i++) {
        assert_int_equal(found[i], i * runs);
    }
    trm_device_free(test_device, device);
    trm_device_free_host(test_device, t.seen);
}
