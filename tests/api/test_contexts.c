/* Several contexts of one engine: each has its own inputs, activations and state, also when they run on threads. */
#include "support/support.h"
#include "support/world.h"

#include <pthread.h>
#include <stdio.h>

#include <trireme/trireme.h>

enum { WIDTH = 256, ROWS = 64, THREADS = 2, RUNS = 40 };

/* y = relu(x w'), w twice the identity, large enough for the pool's threads to share. */
static trm_engine *make_engine(void)
{
    float *w = calloc(WIDTH * WIDTH, sizeof(*w));
    for (int i = 0; i < WIDTH; i++) {
        w[i * WIDTH + i] = 2;
    }
    trm_network *network;
    trm_tensor *x, *weight, *h, *y;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {-1, WIDTH}}, &x));
    assert_ok(trm_network_add_constant(network, "w", TRM_F32, (trm_dims){2, {WIDTH, WIDTH}}, w, &weight));
    assert_ok(trm_network_add_matmul(network, "h", x, weight, NULL, true, &h));
    assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, h, &y));
    trm_layer_desc softmax = {.kind = TRM_LAYER_SOFTMAX, .softmax = {.axis = -1}};
    trm_tensor *p;
    assert_ok(trm_network_add_layer(network, "p", &softmax, &y, 1, &p));
    assert_ok(trm_network_mark_output(network, y));
    assert_ok(trm_network_mark_output(network, p));
    const trm_shape_bound bound = {.tensor = "x", .max = {2, {ROWS, WIDTH}}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.bounds = &bound;
    options.n_bounds = 1;
    trm_plan *plan;
    trm_engine *engine;
    assert_ok(trm_build(network, &options, &plan));
    assert_ok(trm_engine_create(plan, test_world, NULL, NULL, &engine));
    trm_network_destroy(network);
    free(w);
    return engine;
}

/* One run of `rows` rows of `value`: whether the outputs are what they must be. No cmocka here: threads call it. */
static bool run_is_right(trm_context *context, int64_t rows, float value)
{
    static _Thread_local float x[ROWS * WIDTH];
    for (int64_t i = 0; i < rows * WIDTH; i++) {
        x[i] = value;
    }
    trm_dims dims;
    const void *data;
    if (trm_context_set_input(context, "x", (trm_dims){2, {rows, WIDTH}}, x) != TRM_OK ||
        trm_context_run(context) != TRM_OK || trm_context_output(context, "y", &dims, &data) != TRM_OK ||
        dims.d[0] != rows) {
        return false;
    }
    const float *y = data;
    bool right = true;
    for (int64_t i = 0; i < rows * WIDTH; i++) {
        right = right && y[i] == (value > 0 ? 2 * value : 0);
    }
    if (trm_context_output(context, "p", &dims, &data) != TRM_OK) {
        return false;
    }
    const float *p = data;
    for (int64_t i = 0; i < rows * WIDTH; i++) {
        right = right && p[i] > 0.99f / WIDTH && p[i] < 1.01f / WIDTH;
    }
    return right;
}

static void test_contexts_are_apart(void **state)
{
    (void)state;
    trm_engine *engine = make_engine();
    trm_context *a, *b;
    trm_dims dims;
    const void *data;
    assert_ok(trm_context_create(engine, &a));
    assert_ok(trm_context_create(engine, &b));
    assert_true(run_is_right(a, 3, 1.5f));
    assert_fails(trm_context_run(b), TRM_ERROR_INVALID_ARGUMENT, "input x is not set");
    assert_true(run_is_right(b, 64, -4.0f));
    assert_ok(trm_context_output(a, "y", &dims, &data)); /* as its own last run left it */
    assert_int_equal(dims.d[0], 3);
    assert_true(((const float *)data)[0] == 3.0f);
    trm_context_destroy(a);
    assert_true(run_is_right(b, 2, 7.0f));
    trm_context_destroy(b);
    trm_engine_destroy(engine);
}

/* Contexts in memory of the caller: apart, and taking turns in the same. */
static void test_contexts_in_given_memory(void **state)
{
    (void)state;
    trm_engine *engine = make_engine();
    size_t bytes = (trm_engine_context_bytes(engine) + 255) / 256 * 256;
    unsigned char *memory = aligned_alloc(256, 2 * bytes + 256);
    assert_non_null(memory);
    memset(memory, 0xff, 2 * bytes + 256);
    trm_context *a, *b, *c;
    assert_fails(trm_context_create_in(engine, memory, trm_engine_context_bytes(engine) - 1, &a),
                 TRM_ERROR_INVALID_ARGUMENT, "expected at least");
    assert_fails(trm_context_create_in(engine, memory + 8, bytes, &a), TRM_ERROR_INVALID_ARGUMENT, "aligned to 256");
    assert_fails(trm_context_create_in(engine, NULL, bytes, &a), TRM_ERROR_INVALID_ARGUMENT, "expected at least");
    assert_fails(trm_context_create_in(NULL, memory, bytes, &a), TRM_ERROR_INVALID_ARGUMENT,
                 "engine or context is NULL");
    assert_ok(trm_context_create_in(engine, memory, bytes, &a));
    assert_ok(trm_context_create_in(engine, memory + bytes, bytes, &b));
    assert_ok(trm_context_create_in(engine, memory + bytes, bytes, &c));
    for (int32_t i = 0; i < 4; i++) {
        assert_true(run_is_right(a, 3 + i, 1.5f));
        assert_true(run_is_right(b, 64 - i, -4.0f));
        assert_true(run_is_right(c, 7 * i + 1, 2.5f));
    }
    trm_context_destroy(c);
    trm_context_destroy(b);
    trm_context_destroy(a);
    for (size_t i = 2 * bytes; i < 2 * bytes + 256; i++) { /* nothing behind the end was written */
        assert_int_equal(memory[i], 0xff);
    }
    free(memory);
    trm_engine_destroy(engine);
}

/* Inputs and outputs bound to memory of the world's device, which here is ordinary memory. */
static void test_memory_of_the_world(void **state)
{
    (void)state;
    const size_t bytes = sizeof(float) * ROWS * WIDTH;
    trm_engine *engine = make_engine();
    trm_context *context;
    void *x, *y;
    trm_dims dims;
    const void *data;
    assert_int_equal(trm_world_gpu(test_world), 0);
    assert_fails(trm_memory_allocate(NULL, 1, &x), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_fails(trm_memory_allocate(test_world, SIZE_MAX, &x), TRM_ERROR_OUT_OF_MEMORY, "cannot allocate");
    trm_memory_free(test_world, NULL);
    assert_ok(trm_memory_allocate(test_world, bytes, &x));
    assert_ok(trm_memory_allocate(test_world, bytes, &y));
    for (int32_t i = 0; i < ROWS * WIDTH; i++) {
        ((float *)x)[i] = (float)(i % 7) - 2;
    }
    assert_ok(trm_context_create(engine, &context));
    assert_ok(trm_context_bind_input(context, "x", (trm_dims){2, {ROWS, WIDTH}}, x));
    assert_ok(trm_context_bind_output(context, "y", y, bytes));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_ptr_equal(data, y);
    for (int32_t i = 0; i < ROWS * WIDTH; i++) {
        assert_true(((float *)y)[i] == (i % 7 > 2 ? 2 * (float)(i % 7 - 2) : 0));
    }
    trm_context_destroy(context);
    trm_memory_free(test_world, x);
    trm_memory_free(test_world, y);
    trm_engine_destroy(engine);
}

/* Inputs that the caller writes where the context reads them, on the device and in host memory in turn. */
static void test_mapped_inputs(void **state)
{
    (void)state;
    trm_engine *engine = make_engine();
    trm_context *context;
    float elements[ROWS * WIDTH];
    void *memory = NULL;
    bool on_device = true;
    unsigned char handle[TRM_MEMORY_HANDLE_BYTES] = {0};
    assert_ok(trm_context_create(engine, &context));
    assert_fails(trm_context_map_input(context, "x", (trm_dims){2, {ROWS, WIDTH}}, &on_device, NULL),
                 TRM_ERROR_INVALID_ARGUMENT, "memory is NULL");
    assert_fails(trm_context_map_input(context, "x", (trm_dims){2, {ROWS + 1, WIDTH}}, &on_device, &memory),
                 TRM_ERROR_INVALID_ARGUMENT, "at most");
    assert_null(memory);
    for (int32_t turn = 0; turn < 5; turn++) {
        const int64_t rows = turn == 4 ? ROWS / 2 : ROWS;
        const trm_memory_copy copy = {NULL, elements, sizeof(float) * (size_t)(rows * WIDTH)};
        trm_dims dims;
        const void *data;
        for (int32_t i = 0; i < rows * WIDTH; i++) {
            elements[i] = (float)(i % 7) - 2 + (float)turn;
        }
        if (turn == 3) {
            assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {rows, WIDTH}}, elements));
        } else {
            on_device = turn % 2 == 0;
            assert_ok(trm_context_map_input(context, "x", (trm_dims){2, {rows, WIDTH}}, &on_device, &memory));
            assert_int_equal(on_device, turn % 2 == 0);
            assert_ok(trm_memory_move(test_world, &(trm_memory_copy){memory, copy.data, copy.bytes}, 1));
        }
        assert_ok(trm_context_run(context));
        assert_ok(trm_context_output(context, "y", &dims, &data));
        assert_int_equal(dims.d[0], rows);
        for (int32_t i = 0; i < rows * WIDTH; i++) {
            assert_true(((const float *)data)[i] == (elements[i] > 0 ? 2 * elements[i] : 0));
        }
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    assert_ok(trm_memory_move(test_world, NULL, 0));
    assert_fails(trm_memory_move(test_world, NULL, 1), TRM_ERROR_INVALID_ARGUMENT, "copies is NULL");
    assert_fails(trm_memory_open(test_world, NULL, 1, &memory), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_fails(trm_memory_open(test_world, handle, 1, &memory), TRM_ERROR_UNSUPPORTED, "the device is the host");
    trm_memory_close(test_world, NULL);
    assert_ok(trm_memory_pin(test_world, elements, sizeof(elements)));
    trm_memory_unpin(test_world, elements);
}

typedef struct worker {
    pthread_t thread;
    trm_engine *engine;
    int32_t index, wrong;
    bool record_is_own;
} worker;

static void *work(void *user)
{
    worker *w = user;
    trm_context *context = NULL;
    if (trm_context_create(w->engine, &context) != TRM_OK) {
        w->wrong = -1;
        return NULL;
    }
    for (int32_t i = 0; i < RUNS; i++) {
        w->wrong +=
            !run_is_right(context, 1 + (i * 7 + w->index * 13) % ROWS, (float)(i - 8) + 0.25f * (float)w->index);
    }
    char name[16], expected[32];
    snprintf(name, sizeof(name), "in%d", (int)w->index);
    snprintf(expected, sizeof(expected), "no input in%d", (int)w->index);
    w->record_is_own = true;
    for (int32_t i = 0; i < RUNS; i++) {
        trm_status status = trm_context_set_input(context, name, (trm_dims){0, {0}}, NULL);
        w->record_is_own =
            w->record_is_own && status == TRM_ERROR_INVALID_ARGUMENT && strstr(trm_last_error(), expected) != NULL;
    }
    trm_context_destroy(context);
    return NULL;
}

static void test_contexts_on_threads(void **state)
{
    (void)state;
    trm_engine *engine = make_engine();
    worker workers[THREADS];
    for (int32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.engine = engine, .index = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int32_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
        assert_true(workers[i].record_is_own);
    }
    trm_engine_destroy(engine);
}

/* Attention over a cache of one block: what a context's state holds decides its result. */
static trm_engine *make_cached_engine(void)
{
    trm_layer_desc desc = {
        .kind = TRM_LAYER_ATTENTION,
        .attention = {.form = TRM_ATTENTION_PACKED_NHD, .causal = TRM_CAUSAL_LOWER_RIGHT, .n_ranks = 1}};
    const trm_dims row = {3, {1, 1, 8}}, cache = {4, {1, TRM_KV_BLOCK_SIZE, 1, 8}};
    trm_tensor *in[TRM_ATTENTION_INPUT_COUNT] = {NULL}, *out;
    trm_network *network;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "q", TRM_F32, row, &in[TRM_ATTENTION_Q]));
    assert_ok(trm_network_add_input(network, "v", TRM_F32, row, &in[TRM_ATTENTION_V]));
    in[TRM_ATTENTION_K] = in[TRM_ATTENTION_Q];
    assert_ok(
        trm_network_add_input(network, "starts", TRM_I32, (trm_dims){1, {2}}, &in[TRM_ATTENTION_SEQUENCE_STARTS]));
    assert_ok(
        trm_network_add_input(network, "lengths", TRM_I32, (trm_dims){1, {1}}, &in[TRM_ATTENTION_SEQUENCE_LENGTHS]));
    assert_ok(trm_network_add_input(network, "blocks", TRM_I32, (trm_dims){2, {1, 1}}, &in[TRM_ATTENTION_BLOCK_TABLE]));
    assert_ok(trm_network_add_state(network, "keys", TRM_F32, cache, &in[TRM_ATTENTION_KEY_CACHE]));
    assert_ok(trm_network_add_state(network, "values", TRM_F32, cache, &in[TRM_ATTENTION_VALUE_CACHE]));
    assert_ok(trm_network_add_layer(network, "out", &desc, in, TRM_ATTENTION_INPUT_COUNT, &out));
    assert_ok(trm_network_mark_output(network, out));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan;
    trm_engine *engine;
    assert_ok(trm_build(network, &options, &plan));
    assert_ok(trm_engine_create(plan, test_world, NULL, NULL, &engine));
    trm_network_destroy(network);
    return engine;
}

/* Attends from a token with value `v`, number `length` of its sequence, with keys of 0: the mean of all values. */
static float mean_after(trm_context *context, int32_t length, float v)
{
    const float q[8] = {0}, values[8] = {v, v, v, v, v, v, v, v};
    const int32_t starts[] = {0, 1}, block = 0;
    trm_dims dims;
    const void *data;
    assert_ok(trm_context_set_input(context, "q", (trm_dims){3, {1, 1, 8}}, q));
    assert_ok(trm_context_set_input(context, "v", (trm_dims){3, {1, 1, 8}}, values));
    assert_ok(trm_context_set_input(context, "starts", (trm_dims){1, {2}}, starts));
    assert_ok(trm_context_set_input(context, "lengths", (trm_dims){1, {1}}, &length));
    assert_ok(trm_context_set_input(context, "blocks", (trm_dims){2, {1, 1}}, &block));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "out", &dims, &data));
    return *(const float *)data;
}

static void test_states_are_apart(void **state)
{
    (void)state;
    trm_engine *engine = make_cached_engine();
    trm_context *a, *b;
    assert_ok(trm_context_create(engine, &a));
    assert_ok(trm_context_create(engine, &b));
    assert_float_equal(mean_after(a, 1, 6.0f), 6.0f, 1e-5f);
    assert_float_equal(mean_after(b, 1, 100.0f), 100.0f, 1e-4f);
    assert_float_equal(mean_after(a, 2, 8.0f), 7.0f, 1e-5f);
    assert_float_equal(mean_after(b, 2, 300.0f), 200.0f, 1e-3f);
    assert_ok(trm_context_reset(a)); /* the first value is 0 again */
    assert_float_equal(mean_after(a, 2, 8.0f), 4.0f, 1e-5f);
    assert_float_equal(mean_after(b, 3, 200.0f), 200.0f, 1e-3f);
    trm_context_destroy(a);
    trm_context_destroy(b);
    trm_engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contexts_are_apart),  cmocka_unit_test(test_contexts_in_given_memory),
        cmocka_unit_test(test_memory_of_the_world), cmocka_unit_test(test_mapped_inputs),
        cmocka_unit_test(test_contexts_on_threads), cmocka_unit_test(test_states_are_apart),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
