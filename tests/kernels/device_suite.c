/* Tests of kernels/device/device.h, which hold on every backend. */
#include "kernels/device_suite.h"

#include <pthread.h>

#include "support/device.h"
#include "support/support.h"

#include "kernels/sampling/random.h"

static bool on_cuda(void)
{
    return trm_device_backend(test_device) == TRM_BACKEND_CUDA;
}

void says_what_it_is(void **state)
{
    (void)state;
    trm_device_info info;
    assert_ok(trm_device_get_info(test_device, &info));
    assert_int_equal(info.backend, trm_device_backend(test_device));
    assert_true(strlen(info.name) > 0);
    assert_true(info.memory_total > 0 && info.memory_free <= info.memory_total);
    assert_ptr_equal(trm_stream_device(test_stream), test_device);
    assert_non_null(trm_stream_native(test_stream));
}

void moves_memory(void **state)
{
    (void)state;
    char *a = NULL, *b = NULL, text[16] = "pull together";
    assert_ok(trm_device_alloc(test_device, 16, (void **)&a));
    assert_ok(trm_device_alloc(test_device, 16, (void **)&b));
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_ok(trm_stream_upload(test_stream, a, text, sizeof(text)));
    assert_ok(trm_stream_copy(test_stream, b, a, sizeof(text)));
    assert_ok(trm_stream_synchronize(test_stream));
    memset(text, 0, sizeof(text));
    assert_ok(trm_stream_download(test_stream, text, b, sizeof(text)));
    assert_ok(trm_stream_synchronize(test_stream));
    assert_string_equal(text, "pull together");
    assert_ok(trm_stream_fill_zero(test_stream, b, 5));
    assert_ok(trm_stream_download(test_stream, text, b, sizeof(text)));
    assert_ok(trm_stream_synchronize(test_stream));
    assert_string_equal(text, "");
    assert_string_equal(text + 5, "together");
    assert_ok(trm_stream_copy(test_stream, NULL, NULL, 0));
    assert_ok(trm_stream_synchronize(test_stream));
    trm_device_free(test_device, a);
    trm_device_free(test_device, b);
}

void nothing_is_taken_as_memory(void **state)
{
    (void)state;
    void *nothing = NULL;
    assert_ok(trm_device_alloc(test_device, 0, &nothing));
    assert_non_null(nothing);
    trm_device_free(test_device, nothing);
    trm_device_free(test_device, NULL);
    trm_device_close(NULL);
    trm_stream_destroy(NULL);
    trm_event_destroy(NULL);
    trm_graph_exec_destroy(NULL);
}

void copies_go_through(void **state)
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

void events_order_streams(void **state)
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
    assert_true(milliseconds > 0.0f && milliseconds < (on_cuda() ? 1000.0f : 60000.0f));
    trm_device_free(test_device, memory);
    trm_device_free(test_device, copy);
    trm_event_destroy(start);
    trm_event_destroy(end);
    trm_stream_destroy(other);
}

/* A captured step reads its inputs anew at each launch, on streams that fork and join, too. */
void captured_steps_run_again(void **state)
{
    (void)state;
    trm_stream *other = NULL;
    trm_event *fork = NULL, *join = NULL;
    trm_graph_exec *exec = NULL;
    void *a = NULL, *b = NULL, *c = NULL;
    if (!on_cuda()) { /* host streams run at once */
        assert_fails(trm_stream_begin_capture(test_stream), TRM_ERROR_UNSUPPORTED, "cannot be captured");
        assert_fails(trm_stream_end_capture(test_stream, &exec), TRM_ERROR_UNSUPPORTED, "cannot be captured");
        assert_false(trm_stream_is_capturing(test_stream));
        assert_null(exec);
        return;
    }
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

void works_from_another_thread(void **state)
{
    (void)state;
    int32_t value[3] = {41, 0, 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_from_another_thread, value), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(value[1], 41);
    assert_int_equal(value[2], 1);
}

/* Too much memory is refused; the failure does not stay behind. */
void too_much_memory_is_refused(void **state)
{
    (void)state;
    void *memory = NULL;
    trm_device_info info;
    assert_ok(trm_device_get_info(test_device, &info));
    const size_t size = on_cuda() ? info.memory_total * 2 : SIZE_MAX - 3; /* the host promises more than it has */
    assert_fails(trm_device_alloc(test_device, size, &memory), TRM_ERROR_OUT_OF_MEMORY,
                 on_cuda() ? "bytes free of" : "bytes of host memory");
    assert_null(memory);
    assert_ok(trm_device_alloc(test_device, 16, &memory));
    trm_device_free(test_device, memory);
    assert_ok(trm_stream_synchronize(test_stream));
}

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
    if (on_cuda()) {
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
