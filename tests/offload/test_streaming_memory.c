/* Weights that stream on hosts whose memory is full, or nearly so, or is not pinned: the same results, from other
 * places. */
#include <stdatomic.h>

#include "offload/streaming_fixture.h"
#include "weight_stream/offload/streaming.h"

static trm_status refuse_pin(trm_device *device, void *memory, size_t size)
{
    (void)device;
    (void)memory;
    return trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot pin %zu bytes of host memory: refused by the test", size);
}

static char logged[1024];

static void keep_log(void *user, trm_log_level level, const char *message)
{
    (void)user;
    (void)level;
    snprintf(logged, sizeof(logged), "%s", message);
}

/* Copies then go from pageable memory, and no kernel reads a table where it lies. */
static void a_system_that_does_not_pin(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("0");
    tokens expected = generate(generator);
    trm_generator_limits limits;
    trm_generator_get_limits(generator, &limits);
    assert_true(limits.streaming.pinned);
    assert_int_equal(limits.streaming.streamed, limits.streaming.streamable); /* the head's table; its rows in place */
    trm_generator_destroy(generator);
    change_ops()->pin = refuse_pin;
    trm_log_set(keep_log, NULL, TRM_LOG_WARNING);
    generator = open_generator("0");
    trm_log_set(NULL, NULL, TRM_LOG_WARNING);
    assert_non_null(strstr(logged, "refused by the test: weights stream from pageable memory, which is several "
                                   "times slower and is not captured"));
    restore_ops();
    tokens found = generate(generator);
    assert_memory_equal(&found, &expected, sizeof(found));
    trm_generator_get_limits(generator, &limits);
    assert_false(limits.streaming.pinned);
    size_t element = trm_device_backend(test_world->device) == TRM_BACKEND_CUDA ? 2 : 4;
    assert_int_equal(limits.streaming.streamed,
                     limits.streaming.streamable + 4096 * 256 * element); /* the table twice */
    trm_generator_destroy(generator);
}

static size_t available; /* not 0: the memory that there seems to be */
size_t __real_trm_memory_available(void);
size_t __wrap_trm_memory_available(void);
size_t __wrap_trm_memory_available(void)
{
    return available > 0 ? available : __real_trm_memory_available();
}

static size_t file_memory; /* not 0: what is left free for the buffers that files are read into */
size_t __real_trm_streaming_file_memory(void);
size_t __wrap_trm_streaming_file_memory(void);
size_t __wrap_trm_streaming_file_memory(void)
{
    return file_memory > 0 ? file_memory : __real_trm_streaming_file_memory();
}

/* Of the device; that of the host, which weights stream from, is another matter, also where they are one. */
static trm_status get_roomy_info(trm_device *device, trm_device_info *info)
{
    TRM_TRY(own_ops->get_info(device, info));
    info->memory_free = info->memory_total;
    return TRM_OK;
}

/* Where free memory has no room for all weights, the buffers that the others are read through have theirs, too. */
static void memory_that_is_nearly_full(void **state)
{
    (void)state;
    const size_t others = TRM_READER_HOST_BYTES;
    trm_generator_limits limits;
    trm_generator *generator = open_generator("0");
    tokens expected = generate(generator);
    trm_generator_get_limits(generator, &limits);
    const size_t all = limits.streaming.streamable;
    assert_int_equal(limits.streaming.files, 0);
    trm_generator_destroy(generator);
    change_ops()->get_info = get_roomy_info;
    const size_t rooms[] = {all + (all / 8), all * 19 / 20, others + all / 4};
    for (size_t i = 0; i < 3; i++) {
        available = rooms[i];
        trm_log_set(keep_log, NULL, TRM_LOG_WARNING);
        generator = open_generator("0");
        trm_log_set(NULL, NULL, TRM_LOG_WARNING);
        available = 0;
        trm_generator_get_limits(generator, &limits);
        const size_t host = limits.streaming.host, files = limits.streaming.files;
        assert_true(host + limits.streaming.file_buffers <= rooms[i] || host == 0);
        assert_true(i == 1 ? host == 0 && files == all : host == all && files == 0);
        assert_true(i != 1 || strstr(logged, " MiB from files, at the speed of the disk"));
        tokens found = generate(generator);
        assert_memory_equal(&found, &expected, sizeof(found));
        trm_generator_destroy(generator);
    }
    restore_ops();
}

static trm_status get_little_info(trm_device *device, trm_device_info *info)
{
    TRM_TRY(own_ops->get_info(device, info));
    info->memory_total = (size_t)3 << 20;
    info->memory_free = (size_t)1536 << 10;
    return TRM_OK;
}

/* The need of a small model is printed in a unit that leaves it digits. */
static void little_memory_is_told_in_its_unit(void **state)
{
    (void)state;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_build_options build = TRM_BUILD_OPTIONS_INIT;
    trm_generator *generator;
    trm_engine *engine;
    trm_plan *plan;
    int64_t cache_tokens;
    double needed, weights;
    char rest[256];
    if (test_backend() != TRM_BACKEND_HOST) {
        skip(); /* what CUDA is left is more than this */
    }
    options.max_context = 64;
    build.backend = test_backend();
    assert_ok(trm_generator_plan(test_model, &options, &build, &plan, &cache_tokens));
    change_ops()->get_info = get_little_info;
    for (int32_t i = 0; i < 2; i++) {
        const trm_status status = i == 0 ? trm_generator_create(test_model, test_world, &options, &generator)
                                         : trm_engine_create(plan, test_world, NULL, NULL, &engine);
        assert_int_equal(status, TRM_ERROR_OUT_OF_MEMORY);
        const char *cause = trm_last_error(), *of = strstr(cause, " (weights ");
        assert_int_equal(sscanf(cause, "rank 0 needs %lf MiB of memory on %200s", &needed, rest), 2);
        assert_non_null(of);
        assert_int_equal(sscanf(of, " (weights %lf", &weights), 1);
        assert_true(weights > 10 && weights < needed && needed < 100000);
        assert_non_null(strstr(cause, "), 1.50 MiB of 3.00 MiB are free"));
    }
    restore_ops();
}

/* That budgets leave more or fewer weights on the host, too: room for three quarters of all, and buffers less than
 * that. */
static void memory_that_is_nearly_full_with_other_budgets(void **state)
{
    (void)state;
    trm_generator_limits limits;
    trm_generator *generator = open_generator("0");
    tokens expected = generate(generator);
    trm_generator_get_limits(generator, &limits);
    const size_t all = limits.streaming.streamable, room = all / 4 * 3;
    trm_generator_destroy(generator);
    change_ops()->get_info = get_roomy_info;
    file_memory = all / 4;
    const size_t budgets[] = {0, all / 4 * 3, all / 16 * 5, all, all / 8 * 3, 0, all, all / 2, all / 8};
    for (size_t first = 0; first < 2; first++) { /* some are in files at first, or none are */
        available = room / 19 * 20;
        generator = open_generator(first == 0 ? "0" : "100%");
        available = 0;
        for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
            assert_ok(trm_generator_set_weight_budget(generator, budgets[i]));
            trm_generator_get_limits(generator, &limits);
            const size_t host = limits.streaming.host, files = limits.streaming.files;
            assert_true(host + (files > 0 ? file_memory : 0) <= room);
            assert_int_equal(files > 0, budgets[i] < all / 4); /* also after budgets that left some in files */
            assert_true(files == 0 || host > 0);
            tokens found = generate(generator);
            assert_memory_equal(&found, &expected, sizeof(found));
        }
        trm_generator_destroy(generator);
    }
    file_memory = 0;
    restore_ops();
}

static size_t refused; /* bytes that there is no memory for; SIZE_MAX: for anything */
static atomic_size_t most_allocated;
trm_status __real_trm_pages_alloc(size_t size, void **memory);
trm_status __wrap_trm_pages_alloc(size_t size, void **memory);
trm_status __wrap_trm_pages_alloc(size_t size, void **memory)
{
    size_t most = atomic_load(&most_allocated);
    while (size > most && !atomic_compare_exchange_weak(&most_allocated, &most, size)) {
    }
    return refused == SIZE_MAX || refused == size ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "the machine is full")
                                                  : __real_trm_pages_alloc(size, memory);
}

static trm_status refuse_buffers(trm_device *device, size_t size, void **memory)
{
    return size == TRM_READER_BUFFER_BYTES
               ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot pin %zu bytes of host memory: refused by the test", size)
               : own_ops->alloc_host(device, size, memory);
}

/* Weights find no host memory; those that are read from files no pinned memory to be read into, which costs time, or no
 * memory at all. */
static void a_machine_that_is_full(void **state)
{
    (void)state;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator = open_generator("0");
    tokens expected = generate(generator);
    trm_generator_destroy(generator);
    options.max_context = 64;
    options.max_sequences = 2;
    options.no_tune = true;
    options.weight_budget =
        (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT, .compression = TRM_WEIGHT_COMPRESSION_OFF};
    refused = SIZE_MAX;
    trm_status status = trm_generator_create(test_model, test_world, &options, &generator);
    refused = 0;
    assert_int_equal(status, TRM_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(trm_last_error(), "the machine is full"));
    options.weight_budget.host_bytes = 1;
    for (int32_t i = 0; i < 2; i++) {
        refused = i == 0 ? TRM_READER_BUFFER_BYTES : 0;
        logged[0] = '\0';
        trm_log_set(keep_log, NULL, TRM_LOG_WARNING);
        change_ops()->alloc_host = refuse_buffers;
        status = trm_generator_create(test_model, test_world, &options, &generator);
        restore_ops();
        trm_log_set(NULL, NULL, TRM_LOG_WARNING);
        assert_non_null(strstr(logged, "refused by the test: weights from files are copied from pageable "
                                       "memory, which is several times slower"));
        assert_int_equal(status, i == 0 ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK);
        assert_true(i == 1 || strstr(trm_last_error(), "the machine is full") != NULL);
    }
    trm_generator_limits limits;
    tokens found = generate(generator);
    assert_memory_equal(&found, &expected, sizeof(found));
    trm_generator_get_limits(generator, &limits);
    assert_true(limits.streaming.files > 0);
    trm_generator_destroy(generator);
    available = TRM_READER_BUFFERS * TRM_READER_BUFFER_BYTES - 1; /* pageable memory would be taken from others */
    logged[0] = '\0';
    trm_log_set(keep_log, NULL, TRM_LOG_WARNING);
    trm_device_ops *ops = change_ops();
    ops->alloc_host = refuse_buffers;
    ops->get_info = get_roomy_info;
    status = trm_generator_create(test_model, test_world, &options, &generator);
    restore_ops();
    trm_log_set(NULL, NULL, TRM_LOG_WARNING);
    available = 0;
    assert_int_equal(status, TRM_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(trm_last_error(), "cannot pin 8388608 bytes of host memory: refused by the test"));
    assert_null(strstr(logged, "pageable memory"));
}

/* A budget that could not be reached leaves weights on the host, where kernels read tables: pinned, too. */
static void weights_that_are_on_the_host_are_pinned(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("100%");
    tokens expected = generate(generator);
    const trm_weight_residency *places = &generator->engine->places;
    refused = generator->engine->plan->streaming->part_bytes[places->n - 1];
    const trm_status status = trm_generator_set_weight_budget(generator, 0);
    refused = 0;
    assert_int_equal(status, TRM_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(trm_last_error(), "the machine is full"));
    int32_t stored = 0;
    for (int32_t i = 0; i < places->n; i++) {
        assert_int_equal(places->is_pinned[i], places->stored[i].memory != NULL);
        stored += places->stored[i].memory != NULL;
    }
    assert_in_range(stored, 1, places->n - 1);
    tokens found = generate(generator);
    assert_memory_equal(&found, &expected, sizeof(found));
    trm_generator_destroy(generator);
}

/* How fast files are read is found with no more memory than is left free for reading them. */
static void files_are_probed_in_little_memory(void **state)
{
    (void)state;
    const trm_dims dims = {2, {5 << 20, 8}};
    size_t bytes = (size_t)(dims.d[0] * dims.d[1]) * sizeof(float), begin = 0;
    for (size_t row_bytes = 0; row_bytes <= 32; row_bytes += 32) {
        trm_tensor tensor = {.name = "w", .dtype = TRM_F32, .dims = dims};
        const trm_tensor *tensors = &tensor;
        trm_stored_weight stored = {0};
        void *resident = NULL;
        trm_streaming_plan streaming = {.tensors = &tensors,
                                        .part_begin = &begin,
                                        .part_bytes = &bytes,
                                        .row_bytes = &row_bytes,
                                        .problem = {.n_weights = 1}};
        trm_plan plan = {.streaming = &streaming};
        const trm_weight_residency places = {.n = 1, .resident = &resident, .stored = &stored};
        trm_streaming_rates rates = {0};
        trm_weight *weight;
        assert_ok(trm_weight_random(TRM_F32, &dims, 1, 0, 1, &weight));
        tensor.weight = weight;
        atomic_store(&most_allocated, 0);
        assert_ok(trm_weight_residency_measure(&places, &plan, test_world->device, &rates));
        assert_true(rates.file > 0 && rates.link == 0);
        assert_in_range(atomic_load(&most_allocated), 1, TRM_READER_BUFFERS * TRM_READER_BUFFER_BYTES);
        trm_weight_destroy(weight);
    }
}

static enum { GUESSES, GUESSES_HALF, GUESSES_ALL } guess; /* the size that packed weights are expected to have */
size_t __real_trm_streaming_packed_guess(size_t bytes);
size_t __wrap_trm_streaming_packed_guess(size_t bytes);
size_t __wrap_trm_streaming_packed_guess(size_t bytes)
{
    return guess == GUESSES_HALF ? bytes / 2 : guess == GUESSES_ALL ? bytes : __real_trm_streaming_packed_guess(bytes);
}

static int32_t n_fills; /* of stored weights */
trm_status __real_trm_stored_fill(trm_stored_weight *stored, size_t bytes, size_t piece, struct trm_pool *pool,
                                  trm_stored_read_fn read, void *user);
trm_status __wrap_trm_stored_fill(trm_stored_weight *stored, size_t bytes, size_t piece, struct trm_pool *pool,
                                  trm_stored_read_fn read, void *user);
trm_status __wrap_trm_stored_fill(trm_stored_weight *stored, size_t bytes, size_t piece, struct trm_pool *pool,
                                  trm_stored_read_fn read, void *user)
{
    n_fills++;
    return __real_trm_stored_fill(stored, bytes, piece, pool, read, user);
}

static trm_generator *open_packed(void)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    options.dtype = TRM_BF16;
    options.max_context = 64;
    options.max_sequences = 2;
    options.weight_budget =
        (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT, .compression = TRM_WEIGHT_COMPRESSION_LOSSLESS};
    assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
    return generator;
}

/* Weights take another size than expected: all seem to fit and do not, or some seem to have no room and
 * have. In both cases there is room for the buffers that some are read through, and for no more weights than that
 * leaves as long as some are. */
static void packed_weights_that_are_not_as_thought(void **state)
{
    (void)state;
    trm_generator_limits limits;
    trm_generator *generator = open_packed();
    tokens expected = generate(generator);
    trm_generator_get_limits(generator, &limits);
    const size_t all = limits.streaming.streamable, packed = limits.streaming.host;
    assert_int_equal(limits.streaming.files, 0);
    trm_generator_destroy(generator);
    change_ops()->get_info = get_roomy_info;
    for (guess = GUESSES_HALF; guess <= GUESSES_ALL; guess++) {
        const size_t room = guess == GUESSES_HALF ? packed - ((size_t)256 << 10) : all / 10 * 9;
        available = room / 19 * 20;
        file_memory = guess == GUESSES_HALF ? (size_t)3 << 20 : all / 8;
        generator = open_packed();
        available = 0;
        trm_generator_get_limits(generator, &limits);
        assert_true(limits.streaming.files > 0 && limits.streaming.host > 0);
        assert_true(limits.streaming.host + file_memory <= room);
        assert_true(generator->engine->places.host_limit + file_memory <= room); /* as a refit is held to, too */
        tokens found = generate(generator);
        assert_memory_equal(&found, &expected, sizeof(found));
        assert_ok(trm_generator_set_weight_budget(generator, 0)); /* what has room now comes from its file */
        trm_generator_get_limits(generator, &limits);
        assert_int_equal(limits.streaming.files > 0, guess == GUESSES_HALF);
        assert_true(limits.streaming.host + (limits.streaming.files > 0 ? file_memory : 0) <= room);
        found = generate(generator);
        assert_memory_equal(&found, &expected, sizeof(found));
        n_fills = 0;
        for (int32_t i = 0; i < 3; i++) { /* what packed ones take is known by now: none is packed to have no room */
            assert_ok(trm_generator_set_weight_budget(generator, 0));
            trm_generator_get_limits(generator, &limits);
            assert_int_equal(limits.streaming.files > 0, guess == GUESSES_HALF);
        }
        assert_int_equal(n_fills, 0);
        assert_ok(trm_generator_set_weight_budget(generator, all));
        assert_ok(trm_generator_set_weight_budget(generator, 0));
        assert_true(n_fills > 0 && n_fills < 2 * generator->engine->places.n);
        found = generate(generator);
        assert_memory_equal(&found, &expected, sizeof(found));
        trm_generator_destroy(generator);
    }
    guess = GUESSES;
    file_memory = 0;
    restore_ops();
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_system_that_does_not_pin),
        cmocka_unit_test(memory_that_is_nearly_full),
        cmocka_unit_test(little_memory_is_told_in_its_unit),
        cmocka_unit_test(memory_that_is_nearly_full_with_other_budgets),
        cmocka_unit_test(a_machine_that_is_full),
        cmocka_unit_test(weights_that_are_on_the_host_are_pinned),
        cmocka_unit_test(files_are_probed_in_little_memory),
        cmocka_unit_test(packed_weights_that_are_not_as_thought),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_two_threads, test_close_world);
}
