/*
 * Kernels that plan before they first run dims: what a context asks of them, on which threads, and what it says if that
 * fails. Products of the host stand for those of libraries: their launches are given something to plan here
 * (LINKER:--wrap=trm_kernel_prepare).
 */
#include "graph/nets.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include <trireme/trireme.h>

#include "support/world.h"

#include "base/error.h"
#include "dist/runtime/context.h"
#include "kernels/program.h"

enum { LAYERS = 6, MOST_ROWS = 9, FIRST_WIDTH = 8, THREADS = 4, PATIENCE = 60 };

/* Layer i is the one that gives FIRST_WIDTH + i columns. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t came;
    bool planned[LAYERS][MOST_ROWS + 1];
    int32_t n_planned, inside, most_inside;
    int32_t meet;   /* nobody goes on before this many are inside */
    uint32_t fails; /* bit i: layer i */
} library = {.mutex = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};

static bool *slot_of(const trm_kernel_call *call)
{
    const trm_dims *dims = &call->outputs[0].dims;
    return &library.planned[dims->d[1] - FIRST_WIDTH][dims->d[0]];
}

static bool is_done(const trm_kernel_call *call)
{
    pthread_mutex_lock(&library.mutex);
    const bool done = *slot_of(call);
    pthread_mutex_unlock(&library.mutex);
    return done;
}

/* Under the mutex; for a minute at most. */
static void wait_for_others(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    pthread_cond_broadcast(&library.came);
    while (library.most_inside < library.meet && pthread_cond_timedwait(&library.came, &library.mutex, &until) == 0) {
    }
}

static trm_status ask(const trm_kernel_call *call)
{
    const int64_t layer = call->outputs[0].dims.d[1] - FIRST_WIDTH;
    pthread_mutex_lock(&library.mutex);
    library.inside++;
    library.most_inside = library.inside > library.most_inside ? library.inside : library.most_inside;
    wait_for_others();
    const bool fails = (library.fails >> layer & 1) != 0;
    library.n_planned += !fails;
    *slot_of(call) = !fails;
    library.inside--;
    pthread_mutex_unlock(&library.mutex);
    return fails ? trm_fail(TRM_ERROR_INTERNAL, "nothing is known of %d columns", (int)layer + FIRST_WIDTH) : TRM_OK;
}

typedef struct product_args {
    const trm_kernel *kernel;
    trm_kernel_call call;
} product_args;

static trm_status run_product(void *user, trm_stream *stream)
{
    product_args *args = user;
    args->call.stream = stream;
    return args->kernel->run(&args->call);
}

static trm_status plan_product(void *user, trm_stream *stream)
{
    const product_args *args = user;
    (void)stream;
    return ask(&args->call);
}

trm_status __real_trm_kernel_prepare(const trm_kernel *kernel, const trm_kernel_call *call, trm_program *program);
trm_status __wrap_trm_kernel_prepare(const trm_kernel *kernel, const trm_kernel_call *call, trm_program *program);
trm_status __wrap_trm_kernel_prepare(const trm_kernel *kernel, const trm_kernel_call *call, trm_program *program)
{
    if (strncmp(kernel->name, "host.matmul", 11) != 0) {
        return __real_trm_kernel_prepare(kernel, call, program);
    }
    product_args *args = trm_program_alloc(program, sizeof(*args));
    assert_true(args != NULL && kernel->run != NULL);
    *args = (product_args){kernel, *call};
    assert_ok(trm_program_append(program, kernel->name, run_product, args));
    if (!is_done(call)) {
        trm_program_set_plan(program, plan_product);
    }
    return TRM_OK;
}

static int forget_plans(void **state)
{
    (void)state;
    memset(library.planned, 0, sizeof(library.planned));
    library.n_planned = library.most_inside = library.meet = 0;
    library.fails = 0;
    return 0;
}

static int open_threads(void **state)
{
    (void)state;
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.threads = THREADS;
    assert_ok(trm_world_open(&options, &test_world));
    return 0;
}

/* x [?, 8] through products of 8, 9, ... columns. */
static trm_engine *open_engine(trm_context **context)
{
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    const trm_shape_bound bound = {.tensor = "x", .max = DIMS(MOST_ROWS, FIRST_WIDTH)};
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, FIRST_WIDTH));
    for (int64_t i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "product%d", (int)i);
        const int64_t columns = i == 0 ? FIRST_WIDTH : FIRST_WIDTH + i - 1;
        trm_tensor *weight = net_weight(network, "", DIMS(FIRST_WIDTH + i, columns), (uint64_t)i);
        x = net_linear(network, name, x, weight);
    }
    net_output(network, x);
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    options.backend = TRM_BACKEND_HOST;
    options.bounds = &bound;
    options.n_bounds = 1;
    assert_ok(trm_build(network, &options, &plan));
    *context = test_open_context(plan, &engine);
    trm_network_destroy(network);
    return engine;
}

/* One run of `rows` rows, whose elements are all different. */
static trm_status run_rows(trm_context *context, int64_t rows, const float **y)
{
    float values[MOST_ROWS * FIRST_WIDTH];
    const void *data = NULL;
    trm_dims dims;
    for (int64_t i = 0; i < rows * FIRST_WIDTH; i++) {
        values[i] = (float)(i + rows) / 16;
    }
    trm_status status = trm_context_set_input(context, "x", DIMS(rows, FIRST_WIDTH), values);
    status = status == TRM_OK ? trm_context_run(context) : status;
    status = status == TRM_OK ? trm_context_output(context, "product5", &dims, &data) : status;
    *y = data;
    return status;
}

/* Every problem is planned once, in whatever order dims come and come again, and runs are those of a fresh context. */
static void dims_are_planned_once(void **state)
{
    (void)state;
    static const int64_t rows[] = {3, 5, 3, 2, 5, 9, 1, 3, 9, 4, 1, 7, 8, 6, 7};
    bool seen[MOST_ROWS + 1] = {false};
    int32_t expected = 0;
    trm_context *context;
    trm_engine *engine = open_engine(&context);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const float *found, *fresh;
        trm_context *other = NULL;
        expected += seen[rows[i]] ? 0 : LAYERS;
        seen[rows[i]] = true;
        assert_ok(run_rows(context, rows[i], &found));
        assert_int_equal(library.n_planned, expected);
        assert_ok(trm_context_create(engine, &other));
        assert_ok(run_rows(other, rows[i], &fresh));
        assert_int_equal(library.n_planned, expected);
        assert_memory_equal(found, fresh, (size_t)rows[i] * (FIRST_WIDTH + LAYERS - 1) * sizeof(float));
        trm_context_destroy(other);
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

static void layers_are_planned_beside_each_other(void **state)
{
    (void)state;
    const float *y;
    trm_context *context;
    trm_engine *engine = open_engine(&context);
    library.meet = 2;
    assert_ok(run_rows(context, 4, &y));
    assert_true(library.most_inside >= 2);
    assert_true(library.most_inside <= THREADS);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* The first layer that fails is named, whichever thread was first, and a run can be tried again. */
static void failures_are_told(void **state)
{
    (void)state;
    trm_context *context;
    trm_engine *engine = open_engine(&context);
    const float *y;
    for (int i = 0; i < 50; i++) {
        forget_plans(NULL);
        library.fails = 1u << 2 | 1u << 4 | 1u << 5;
        assert_fails(run_rows(context, 3, &y), TRM_ERROR_INTERNAL, "layer product2 (host.matmul");
        assert_non_null(strstr(trm_last_error(), "nothing is known of 10 columns"));
        library.fails = 1u << 5;
        assert_fails(run_rows(context, 3, &y), TRM_ERROR_INTERNAL, "nothing is known of 13 columns");
        assert_int_equal(library.n_planned, LAYERS - 1); /* what did not fail before is not asked again */
    }
    library.fails = 0;
    assert_ok(run_rows(context, 3, &y));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

typedef struct runner {
    pthread_t thread;
    trm_context *context;
    float results[MOST_ROWS + 1];
    trm_status status;
} runner;

static void *run_all(void *user)
{
    runner *r = user;
    for (int64_t rows = 1; rows <= MOST_ROWS && r->status == TRM_OK; rows++) {
        const float *y;
        r->status = run_rows(r->context, rows, &y);
        r->results[rows] = r->status == TRM_OK ? y[rows * (FIRST_WIDTH + LAYERS - 1) - 1] : 0;
    }
    return NULL;
}

/* Contexts of one engine share its threads. */
static void contexts_plan_at_the_same_time(void **state)
{
    (void)state;
    runner runners[2] = {{.status = TRM_OK}};
    trm_engine *engine = open_engine(&runners[0].context);
    assert_ok(trm_context_create(engine, &runners[1].context));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&runners[i].thread, NULL, run_all, &runners[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(runners[i].thread, NULL);
        assert_int_equal(runners[i].status, TRM_OK);
        trm_context_destroy(runners[i].context);
    }
    assert_memory_equal(runners[0].results, runners[1].results, sizeof(runners[0].results));
    assert_true(runners[0].results[1] != 0);
    trm_engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(dims_are_planned_once, forget_plans),
        cmocka_unit_test_setup(layers_are_planned_beside_each_other, forget_plans),
        cmocka_unit_test_setup(failures_are_told, forget_plans),
        cmocka_unit_test_setup(contexts_plan_at_the_same_time, forget_plans),
    };
    return cmocka_run_group_tests(tests, open_threads, test_close_world);
}
