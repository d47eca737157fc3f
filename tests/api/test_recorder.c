/* Error recorders: what they keep, whose failures reach which, on whatever thread, and what goes wrong on threads of
 * the library. */
#include "support/onnx_message.h"
#include "support/support.h"
#include "support/world.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <trireme/trireme.h>

enum { ROWS = 4, WIDTH = 32, THREADS = 4, FAILURES = 50 };

/* The plan is used up. */
static trm_engine *open_engine(trm_plan *plan)
{
    trm_engine *engine;
    assert_ok(trm_engine_create(plan, test_world, NULL, NULL, &engine));
    return engine;
}

/* y = relu(x) */
static trm_engine *make_engine(void)
{
    trm_network *network;
    trm_tensor *x, *y;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {ROWS, WIDTH}}, &x));
    assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, x, &y));
    assert_ok(trm_network_mark_output(network, y));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan;
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    return open_engine(plan);
}

/* y = x w, w being read from the ONNX file in every run. */
static trm_engine *make_streaming_engine(const char *path)
{
    static const float w[WIDTH * WIDTH];
    message graph = {0};
    put_graph(&graph, 1, node("MatMul x w y"));
    put_text(&graph, 2, "product");
    put_weight(&graph, "w", 1, 2, (int64_t[]){WIDTH, WIDTH}, w, sizeof(w));
    put_graph(&graph, 11, port("x", 1, 2, (int64_t[]){ROWS, WIDTH}));
    put_graph(&graph, 12, port("y", 1, 2, (int64_t[]){ROWS, WIDTH}));
    const message model = model_of(&graph);
    test_write_file(path, model.bytes, model.size);
    trm_plan *plan = test_build_onnx(path, false, 1, 0);
    const trm_weight_budget budget = {.kind = TRM_WEIGHT_BUDGET_PERCENT, .host_bytes = 1};
    assert_ok(trm_plan_set_weight_budget(plan, &budget));
    return open_engine(plan);
}

static void set_input(trm_context *context)
{
    static const float x[ROWS * WIDTH];
    assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {ROWS, WIDTH}}, x));
}

static trm_recorder *make_recorder(int32_t capacity)
{
    trm_recorder *recorder;
    assert_ok(trm_recorder_create(capacity, NULL, NULL, &recorder));
    return recorder;
}

/* The oldest that is kept is of `call`, and is removed. */
static void assert_took(trm_recorder *recorder, const char *call, trm_status status, const char *part)
{
    trm_recorded_error error;
    assert_true(trm_recorder_take(recorder, &error));
    assert_string_equal(error.call, call);
    assert_int_equal(error.status, status);
    assert_non_null(strstr(error.message, part));
}

/* A call that fails, with `name` in its cause. */
static void fail_in(trm_context *context, const char *name)
{
    assert_int_equal(trm_context_set_input(context, name, (trm_dims){0, {0}}, NULL), TRM_ERROR_INVALID_ARGUMENT);
}

static void the_first_are_kept_and_the_others_counted(void **state)
{
    (void)state;
    trm_mesh mesh;
    trm_recorded_error error;
    trm_recorder *recorder = make_recorder(3);
    trm_thread_set_recorder(recorder);
    for (int32_t i = 0; i < 5; i++) {
        char text[24];
        snprintf(text, sizeof(text), "xx=%d", (int)i);
        assert_int_equal(trm_mesh_parse(text, 1, &mesh), TRM_ERROR_INVALID_ARGUMENT);
        assert_ok(trm_mesh_parse("tp=1", 1, &mesh)); /* is nothing to keep */
    }
    assert_int_equal(trm_recorder_count(recorder), 3);
    assert_int_equal(trm_recorder_lost(recorder), 2);
    for (int32_t i = 0; i < 3; i++) {
        char text[24];
        snprintf(text, sizeof(text), "xx=%d", (int)i);
        assert_true(trm_recorder_get(recorder, i, &error));
        assert_string_equal(error.call, "trm_mesh_parse");
        assert_int_equal(error.status, TRM_ERROR_INVALID_ARGUMENT);
        assert_int_equal(error.index, i);
        assert_non_null(strstr(error.message, text));
    }
    assert_false(trm_recorder_get(recorder, 3, &error));
    assert_false(trm_recorder_get(recorder, -1, &error));
    /* A place that is free takes the next. */
    assert_took(recorder, "trm_mesh_parse", TRM_ERROR_INVALID_ARGUMENT, "xx=0");
    assert_int_equal(trm_mesh_parse("yy=1", 1, &mesh), TRM_ERROR_INVALID_ARGUMENT);
    assert_true(trm_recorder_get(recorder, 2, &error));
    assert_int_equal(error.index, 5);
    assert_non_null(strstr(error.message, "yy"));
    trm_recorder_clear(recorder);
    assert_int_equal(trm_recorder_count(recorder), 0);
    assert_int_equal(trm_recorder_lost(recorder), 0);
    assert_false(trm_recorder_take(recorder, &error));
    assert_int_equal(trm_mesh_parse("zz=1", 1, &mesh), TRM_ERROR_INVALID_ARGUMENT);
    assert_true(trm_recorder_get(recorder, 0, &error));
    assert_int_equal(error.index, 6);
    trm_thread_set_recorder(NULL);
    assert_int_equal(trm_mesh_parse("zz=2", 1, &mesh), TRM_ERROR_INVALID_ARGUMENT);
    assert_int_equal(trm_recorder_count(recorder), 1);
    trm_recorder_destroy(recorder);
    trm_recorder_destroy(NULL);
}

static void what_cannot_be_a_recorder(void **state)
{
    (void)state;
    trm_recorder *recorder;
    assert_fails(trm_recorder_create(-1, NULL, NULL, &recorder), TRM_ERROR_INVALID_ARGUMENT, "-1 errors");
    assert_fails(trm_recorder_create(TRM_MAX_RECORDED_ERRORS + 1, NULL, NULL, &recorder), TRM_ERROR_INVALID_ARGUMENT,
                 "expected 0 to 65536");
    assert_fails(trm_recorder_create(1, NULL, NULL, NULL), TRM_ERROR_INVALID_ARGUMENT, "recorder is NULL");
    recorder = make_recorder(1);
    trm_thread_set_recorder(recorder);
    trm_recorder_destroy(recorder); /* the calling thread's is taken from it */
    assert_fails(trm_recorder_create(-2, NULL, NULL, &recorder), TRM_ERROR_INVALID_ARGUMENT, "-2 errors");
}

/* Whether the message of a long cause ends where there is room. */
static void long_causes_are_cut(void **state)
{
    (void)state;
    char text[2 * TRM_CAUSE_SIZE];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    trm_plan *plan;
    trm_recorded_error error;
    trm_recorder *recorder = make_recorder(1);
    trm_thread_set_recorder(recorder);
    assert_int_not_equal(trm_plan_load(text, 0, &plan), TRM_OK);
    trm_thread_set_recorder(NULL);
    assert_true(trm_recorder_take(recorder, &error));
    assert_string_equal(error.message, trm_last_error());
    assert_true(strlen(error.message) < TRM_CAUSE_SIZE);
    trm_recorder_destroy(recorder);
}

typedef struct told {
    trm_recorder *recorder; /* or NULL */
    int64_t n, last, kept;
} told;

static void note(void *user, const trm_recorded_error *error)
{
    told *t = user;
    t->n++;
    t->last = error->index;
    assert_string_equal(error->call, "trm_mesh_parse");
    assert_string_equal(error->message, trm_last_error());
    if (t->recorder != NULL) { /* a callback may read and clear */
        t->kept = trm_recorder_count(t->recorder);
        trm_recorder_clear(t->recorder);
    }
}

static void callbacks_are_told_of_all(void **state)
{
    (void)state;
    trm_mesh mesh;
    for (int32_t capacity = 0; capacity < 2; capacity++) {
        told t = {.last = -1};
        trm_recorder *recorder;
        assert_ok(trm_recorder_create(capacity, note, &t, &recorder));
        trm_thread_set_recorder(recorder);
        assert_int_equal(trm_mesh_parse("a=1", 1, &mesh), TRM_ERROR_INVALID_ARGUMENT);
        assert_int_equal(trm_mesh_parse("b=1", 1, &mesh), TRM_ERROR_INVALID_ARGUMENT);
        assert_int_equal(t.n, 2);
        assert_int_equal(t.last, 1);
        assert_int_equal(trm_recorder_count(recorder), capacity);
        assert_int_equal(trm_recorder_lost(recorder), 2 - capacity);
        t.recorder = recorder;
        trm_recorder_clear(recorder);
        assert_int_equal(trm_mesh_parse("c=1", 1, &mesh), TRM_ERROR_INVALID_ARGUMENT);
        assert_int_equal(t.kept, capacity);
        assert_int_equal(trm_recorder_lost(recorder), 0);
        trm_thread_set_recorder(NULL);
        trm_recorder_destroy(recorder);
    }
}

/* Every object's failures go to the nearest recorder, and to that alone. */
static void the_nearest_recorder_gets_it(void **state)
{
    (void)state;
    trm_recorder *thread = make_recorder(10), *world = make_recorder(10), *of_engine = make_recorder(10),
                 *of_context = make_recorder(10);
    trm_engine *engine = make_engine();
    trm_context *a, *b;
    assert_ok(trm_context_create(engine, &a));
    assert_ok(trm_context_create(engine, &b));
    trm_thread_set_recorder(thread);
    fail_in(a, "in0");
    assert_took(thread, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, "in0");
    trm_world_set_recorder(test_world, world);
    fail_in(a, "in1");
    assert_took(world, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, "in1");
    assert_int_not_equal(trm_world_broadcast(test_world, NULL, 4, 99), TRM_OK);
    assert_took(world, "trm_world_broadcast", TRM_ERROR_INVALID_ARGUMENT, "");
    trm_engine_set_recorder(engine, of_engine);
    fail_in(a, "in2");
    assert_took(of_engine, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, "in2");
    assert_int_equal(trm_engine_set_weight_budget(engine, 0), TRM_ERROR_INVALID_ARGUMENT);
    assert_took(of_engine, "trm_engine_set_weight_budget", TRM_ERROR_INVALID_ARGUMENT, "");
    trm_context_set_recorder(a, of_context);
    fail_in(a, "in3");
    assert_took(of_context, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, "in3");
    assert_int_equal(trm_context_run(a), TRM_ERROR_INVALID_ARGUMENT); /* which calls trm_context_start: one entry */
    assert_took(of_context, "trm_context_run", TRM_ERROR_INVALID_ARGUMENT, "input x is not set");
    assert_int_equal(trm_context_finish(a), TRM_ERROR_INVALID_ARGUMENT);
    assert_took(of_context, "trm_context_finish", TRM_ERROR_INVALID_ARGUMENT, "");
    fail_in(b, "in4");
    assert_took(of_engine, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, "in4");
    trm_context *none = NULL;
    assert_int_equal(trm_context_create(engine, NULL), TRM_ERROR_INVALID_ARGUMENT);
    assert_took(of_engine, "trm_context_create", TRM_ERROR_INVALID_ARGUMENT, "NULL");
    fail_in(NULL, "in5");
    assert_took(thread, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_int_equal(trm_context_create(NULL, &none), TRM_ERROR_INVALID_ARGUMENT);
    assert_took(thread, "trm_context_create", TRM_ERROR_INVALID_ARGUMENT, "NULL");
    trm_engine_set_recorder(engine, NULL);
    trm_world_set_recorder(test_world, NULL);
    fail_in(b, "in6");
    assert_took(thread, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, "in6");
    trm_recorder *all[] = {thread, world, of_engine, of_context};
    trm_thread_set_recorder(NULL);
    trm_context_destroy(a);
    trm_context_destroy(b);
    trm_engine_destroy(engine);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        assert_int_equal(trm_recorder_count(all[i]), 0);
        trm_recorder_destroy(all[i]);
    }
}

static bool fail_within(void *user, const trm_debug_tensor *tensor)
{
    (void)tensor;
    fail_in(user, "in7");
    return false;
}

/* A call within another is part of it, and what ranks tell each other is recorded once. */
static void a_call_is_one_entry(void **state)
{
    (void)state;
    trm_recorder *recorder = make_recorder(10);
    trm_thread_set_recorder(recorder);
    trm_model *model;
    assert_int_not_equal(trm_model_open_preset("no-such-model", 1, 0, &model), TRM_OK);
    assert_took(recorder, "trm_model_open_preset", TRM_ERROR_INVALID_ARGUMENT, "no-such-model");
    trm_engine *engine = make_engine();
    trm_context *context;
    assert_ok(trm_context_create(engine, &context));
    set_input(context);
    assert_ok(trm_context_set_debug(context, fail_within, context));
    assert_int_equal(trm_context_run(context), TRM_ERROR_CANCELLED);
    assert_took(recorder, "trm_context_run", TRM_ERROR_CANCELLED, "");
    fail_in(context, "in8");
    assert_took(recorder, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, "in8");
    assert_int_equal(trm_world_all_ok(test_world, TRM_ERROR_IO), TRM_ERROR_IO);
    assert_int_equal(trm_recorder_count(recorder), 0);
    assert_int_equal(trm_world_all_ok(NULL, TRM_ERROR_IO), TRM_ERROR_INVALID_ARGUMENT);
    assert_took(recorder, "trm_world_all_ok", TRM_ERROR_INVALID_ARGUMENT, "NULL");
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_thread_set_recorder(NULL);
    assert_int_equal(trm_recorder_count(recorder), 0);
    trm_recorder_destroy(recorder);
}

/* No cmocka here: threads call it. */
typedef struct worker {
    pthread_t thread;
    trm_engine *engine;
    trm_recorder *own; /* of its context, or NULL: the engine's */
    int32_t index;
    bool went_well;
} worker;

static void *fail_often(void *user)
{
    worker *w = user;
    trm_context *context = NULL;
    trm_mesh mesh;
    trm_recorder *of_thread = NULL;
    char name[24];
    snprintf(name, sizeof(name), "in%d", (int)w->index);
    w->went_well =
        trm_context_create(w->engine, &context) == TRM_OK && trm_recorder_create(1, NULL, NULL, &of_thread) == TRM_OK;
    if (!w->went_well) {
        return NULL;
    }
    trm_context_set_recorder(context, w->own);
    trm_thread_set_recorder(of_thread);
    for (int32_t i = 0; i < FAILURES; i++) {
        w->went_well = w->went_well && trm_context_set_input(context, name, (trm_dims){0, {0}}, NULL) != TRM_OK &&
                       trm_context_run(context) != TRM_OK && trm_mesh_parse("x", 1, &mesh) != TRM_OK;
    }
    w->went_well = w->went_well && trm_recorder_count(of_thread) == 1 && trm_recorder_lost(of_thread) == FAILURES - 1;
    trm_thread_set_recorder(NULL);
    trm_recorder_destroy(of_thread);
    trm_context_destroy(context);
    return NULL;
}

/* Contexts on threads: every second one has a recorder of its own; another thread takes what the engine's has. */
static void contexts_on_threads(void **state)
{
    (void)state;
    enum { SHARED = THREADS / 2 * FAILURES * 2 };
    trm_engine *engine = make_engine();
    trm_recorder *shared = make_recorder(SHARED);
    trm_engine_set_recorder(engine, shared);
    worker workers[THREADS];
    for (int32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.engine = engine, .own = i % 2 == 0 ? NULL : make_recorder(2 * FAILURES), .index = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, fail_often, &workers[i]), 0);
    }
    int64_t last = -1;
    int32_t by_worker[THREADS] = {0}, runs = 0;
    trm_recorded_error error;
    for (int32_t n = 0; n < SHARED;) {
        if (!trm_recorder_take(shared, &error)) {
            usleep(1000);
            continue;
        }
        n++;
        assert_int_equal(error.index, last + 1);
        last = error.index;
        runs += strcmp(error.call, "trm_context_run") == 0;
        for (int32_t i = 0; i < THREADS; i++) {
            char expected[40];
            snprintf(expected, sizeof(expected), "no input in%d", (int)i);
            by_worker[i] += strstr(error.message, expected) != NULL;
        }
    }
    for (int32_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].went_well);
        assert_int_equal(by_worker[i], i % 2 == 0 ? FAILURES : 0);
        for (int32_t k = 0; workers[i].own != NULL && k < FAILURES; k++) {
            char expected[40];
            snprintf(expected, sizeof(expected), "no input in%d", (int)i);
            assert_took(workers[i].own, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, expected);
            assert_took(workers[i].own, "trm_context_run", TRM_ERROR_INVALID_ARGUMENT, "input x is not set");
        }
        trm_recorder_destroy(workers[i].own);
    }
    assert_int_equal(runs, SHARED / 2);
    assert_int_equal(trm_recorder_count(shared), 0);
    assert_int_equal(trm_recorder_lost(shared), 0);
    trm_engine_destroy(engine);
    trm_recorder_destroy(shared);
}

/* Weights that stream are read by threads of the library, during a run that was only started: what they meet with
 * reaches the recorder of the context whose run it is. */
static void what_fails_on_other_threads(void **state)
{
    (void)state;
    char path[4400];
    snprintf(path, sizeof(path), "%s/net.onnx", test_temporary_folder());
    trm_engine *engine = make_streaming_engine(path);
    trm_recorder *recorders[2] = {make_recorder(10), make_recorder(10)}, *thread = make_recorder(10);
    trm_context *contexts[2];
    trm_thread_set_recorder(thread);
    for (int32_t i = 0; i < 2; i++) {
        assert_ok(trm_context_create(engine, &contexts[i]));
        trm_context_set_recorder(contexts[i], recorders[i]);
        set_input(contexts[i]);
        assert_ok(trm_context_run(contexts[i]));
        assert_true(trm_context_streamed(contexts[i]) > 0);
    }
    assert_int_equal(truncate(path, 2000), 0);
    for (int32_t i = 0; i < 2; i++) {
        trm_status status = TRM_OK;
        for (int32_t k = 0; k < 50 && status == TRM_OK; k++) { /* what had been read ahead is good */
            status = trm_context_start(contexts[i]);
            status = status == TRM_OK ? trm_context_finish(contexts[i]) : status;
        }
        assert_int_equal(status, TRM_ERROR_IO);
        trm_recorded_error error;
        assert_true(trm_recorder_take(recorders[i], &error));
        assert_int_equal(error.status, TRM_ERROR_IO);
        assert_non_null(strstr(error.message, "net.onnx has 2000 bytes"));
        assert_int_equal(trm_recorder_count(recorders[i]), 0);
        trm_context_destroy(contexts[i]);
        trm_recorder_destroy(recorders[i]);
    }
    trm_thread_set_recorder(NULL);
    assert_int_equal(trm_recorder_count(thread), 0);
    trm_engine_destroy(engine);
    trm_recorder_destroy(thread);
}

static void generators_and_schedulers(void **state)
{
    (void)state;
    trm_recorder *world = make_recorder(10), *recorder = make_recorder(10);
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator = NULL;
    trm_scheduler_options how = TRM_SCHEDULER_OPTIONS_INIT;
    trm_scheduler *scheduler;
    trm_serving_request request = TRM_SERVING_REQUEST_INIT;
    trm_world_set_recorder(test_world, world);
    options.max_context = -5;
    assert_int_not_equal(trm_generator_create(test_model, test_world, &options, &generator), TRM_OK);
    assert_took(world, "trm_generator_create", TRM_ERROR_INVALID_ARGUMENT, "");
    options.max_context = 64;
    options.max_sequences = 2;
    assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
    trm_generator_set_recorder(generator, recorder);
    assert_int_equal(trm_generator_set_weight_budget(generator, 0), TRM_ERROR_INVALID_ARGUMENT);
    assert_took(recorder, "trm_generator_set_weight_budget", TRM_ERROR_INVALID_ARGUMENT, "had no weight budget");
    fail_in(trm_generator_context(generator), "in9");
    assert_took(recorder, "trm_context_set_input", TRM_ERROR_INVALID_ARGUMENT, "in9");
    assert_ok(trm_scheduler_create(generator, &how, &scheduler));
    assert_int_equal(trm_scheduler_submit(scheduler, &request), TRM_ERROR_INVALID_ARGUMENT);
    assert_took(recorder, "trm_scheduler_submit", TRM_ERROR_INVALID_ARGUMENT, "");
    assert_ok(trm_scheduler_end(scheduler));
    assert_int_equal(trm_scheduler_end(scheduler), TRM_ERROR_INVALID_ARGUMENT);
    assert_took(recorder, "trm_scheduler_end", TRM_ERROR_INVALID_ARGUMENT, "cannot end");
    trm_scheduler_destroy(scheduler);
    trm_generator_destroy(generator);
    trm_world_set_recorder(test_world, NULL);
    assert_int_equal(trm_recorder_count(world), 0);
    assert_int_equal(trm_recorder_count(recorder), 0);
    trm_recorder_destroy(world);
    trm_recorder_destroy(recorder);
}

int main(void)
{
    if (test_backend() != TRM_BACKEND_HOST) {
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_are_kept_and_the_others_counted),
        cmocka_unit_test(what_cannot_be_a_recorder),
        cmocka_unit_test(long_causes_are_cut),
        cmocka_unit_test(callbacks_are_told_of_all),
        cmocka_unit_test(the_nearest_recorder_gets_it),
        cmocka_unit_test(a_call_is_one_entry),
        cmocka_unit_test(contexts_on_threads),
        cmocka_unit_test(what_fails_on_other_threads),
        cmocka_unit_test(generators_and_schedulers),
    };
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
