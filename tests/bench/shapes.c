/*
 * What a context pays when it gets other input shapes: a network with an open batch, tuned at one size and then run at
 * others; for each the first run, the second (which is captured), the third, and the median of those after it.
 *
 *   bench_shapes NET.onnx BATCH,BATCH,... [--warm-up] [--tf32] [--host] [--cache FILE]
 *   bench_shapes NET.plan BATCH,BATCH,... [--warm-up] [--host]
 *
 * --warm-up: trm_context_warm_up first, whose time it prints; the network's profile names 1, the first and the largest.
 * --cache: the file of the timing cache; without it all is timed. The first batch is the one it is tuned at, the usual
 * of the profile; the largest is its max. A plan brings its tactics, and nothing is timed. Every input's first
 * dimension is the batch, the others are those of the file. Times are of inputs that are set, run and waited for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include <trireme/trireme.h>

enum { MOST_INPUTS = 8, MOST_BATCHES = 32, STEADY = 21 };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

typedef struct bench_input {
    const char *name;
    trm_dims dims; /* the first: open, or any */
} bench_input;

typedef struct bench {
    int64_t batches[MOST_BATCHES], largest;
    int32_t n_batches, n_inputs;
    bool is_plan; /* the file */
    bool warms_up;
    bench_input inputs[MOST_INPUTS];
    trm_shape_bound bounds[MOST_INPUTS];
    void *data[MOST_INPUTS]; /* zeros, of the largest batch */
    trm_world *world;
    trm_onnx *model;
    trm_network *network;
    trm_engine *engine;
    trm_context *context;
} bench;

static trm_dims dims_of(const bench_input *input, int64_t batch)
{
    trm_dims dims = input->dims;
    dims.d[0] = batch;
    return dims;
}

/* Makes room for an input of the largest batch, and gives it a bound. */
static trm_status add_input(bench *b, const char *name, trm_dims dims)
{
    const int32_t i = b->n_inputs;
    if (i == MOST_INPUTS) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the network has more than %d inputs", (int)MOST_INPUTS);
    }
    b->inputs[i] = (bench_input){name, dims};
    const trm_dims most = dims_of(&b->inputs[i], b->largest);
    size_t bytes = 8; /* the widest element */
    for (int32_t k = 0; k < most.n; k++) {
        if (most.d[k] < 1) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s has an open dimension %d", name, (int)k);
        }
        bytes *= (size_t)most.d[k];
    }
    b->data[i] = calloc(1, bytes);
    if (b->data[i] == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for input %s", bytes, name);
    }
    b->bounds[i] = (trm_shape_bound){
        .tensor = name, .max = most, .min = dims_of(&b->inputs[i], 1), .opt = dims_of(&b->inputs[i], b->batches[0])};
    b->n_inputs++;
    return TRM_OK;
}

static trm_status build_plan(bench *b, const char *path, trm_backend backend, bool tf32, trm_plan **plan)
{
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    how.backend = backend;
    how.allow_tf32 = tf32;
    TRM_TRY(trm_onnx_open(path, &b->model));
    for (int32_t i = 0; i < trm_onnx_input_count(b->model); i++) {
        trm_onnx_port input;
        trm_onnx_get_input(b->model, i, &input);
        TRM_TRY(add_input(b, input.name, input.dims));
    }
    TRM_TRY(trm_onnx_build_network(b->model, NULL, &b->network));
    how.bounds = b->bounds;
    how.n_bounds = b->n_inputs;
    return trm_build(b->network, &how, plan);
}

/* The names of its inputs live with the plan. */
static trm_status load_plan(bench *b, const char *path, trm_plan **plan)
{
    TRM_TRY(trm_plan_load(path, 0, plan));
    const trm_network *network = trm_plan_network(*plan);
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < trm_network_input_count(network) && status == TRM_OK; i++) {
        const trm_tensor *input = trm_network_input(network, i);
        status = add_input(b, trm_tensor_name(input), trm_tensor_dims(input));
    }
    if (status != TRM_OK) {
        trm_plan_destroy(*plan);
    }
    return status;
}

static trm_status open_bench(bench *b, const char *path, bool tf32, bool host)
{
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    trm_plan *plan = NULL;
    where.backend = host ? TRM_BACKEND_HOST : TRM_BACKEND_CUDA;
    TRM_TRY(trm_world_open(&where, &b->world));
    TRM_TRY(b->is_plan ? load_plan(b, path, &plan) : build_plan(b, path, where.backend, tf32, &plan));
    TRM_TRY(trm_engine_create(plan, b->world, NULL, NULL, &b->engine));
    return trm_context_create(b->engine, &b->context);
}

static trm_status set_inputs(bench *b, int64_t batch)
{
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < b->n_inputs && status == TRM_OK; i++) {
        status = trm_context_set_input(b->context, b->inputs[i].name, dims_of(&b->inputs[i], batch), b->data[i]);
    }
    return status;
}

static trm_status run_once(bench *b, int64_t batch, double *milliseconds)
{
    const double began = trm_clock_seconds();
    trm_status status = set_inputs(b, batch);
    status = status == TRM_OK ? trm_context_run(b->context) : status;
    *milliseconds = (trm_clock_seconds() - began) * 1e3;
    return status;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static trm_status measure(bench *b, const char *cache)
{
    trm_tune_options tune = TRM_TUNE_OPTIONS_INIT;
    trm_status status;
    tune.cache = cache;
    TRY(set_inputs(b, b->batches[0]));
    if (!b->is_plan) {
        TRY(trm_context_tune(b->context, &tune));
    }
    TRY(trm_context_set_capture(b->context, true));
    if (b->warms_up) {
        const double began = trm_clock_seconds();
        TRY(trm_context_warm_up(b->context));
        printf("warmed up in %.1f ms\n", (trm_clock_seconds() - began) * 1e3);
    }
    printf("%8s %10s %10s %10s %10s\n", "batch", "first, ms", "second", "third", "median");
    for (int32_t i = 0; i < b->n_batches; i++) {
        double first[3], steady[STEADY];
        for (int32_t k = 0; k < 3 + STEADY; k++) {
            TRY(run_once(b, b->batches[i], k < 3 ? &first[k] : &steady[k - 3]));
        }
        qsort(steady, STEADY, sizeof(steady[0]), compare_doubles);
        printf("%8lld %10.3f %10.3f %10.3f %10.3f\n", (long long)b->batches[i], first[0], first[1], first[2],
               steady[STEADY / 2]);
    }
done:
    return status;
}

int main(int argc, char **argv)
{
    bench b = {0};
    bool tf32 = false, host = false;
    const char *cache = NULL;
    for (int i = 3; i < argc; i++) {
        tf32 = tf32 || strcmp(argv[i], "--tf32") == 0;
        host = host || strcmp(argv[i], "--host") == 0;
        b.warms_up = b.warms_up || strcmp(argv[i], "--warm-up") == 0;
        cache = strcmp(argv[i], "--cache") == 0 && i + 1 < argc ? argv[i + 1] : cache;
    }
    for (char *at = argc > 2 ? argv[2] : NULL; at != NULL && b.n_batches < MOST_BATCHES;) {
        const int64_t batch = strtoll(at, &at, 10);
        b.batches[b.n_batches++] = batch;
        b.largest = batch > b.largest ? batch : b.largest;
        at = *at == ',' ? at + 1 : NULL;
    }
    const char *suffix = argc > 2 ? strrchr(argv[1], '.') : NULL;
    b.is_plan = suffix != NULL && strcmp(suffix, ".plan") == 0;
    if (b.n_batches == 0 || b.largest < 1 || (b.is_plan && (tf32 || cache != NULL))) {
        fprintf(stderr, "usage: bench_shapes NET.onnx BATCH,BATCH,... [--warm-up] [--tf32] [--host] [--cache FILE]\n"
                        "       bench_shapes NET.plan BATCH,BATCH,... [--warm-up] [--host]\n");
        return 2;
    }
    trm_status status = open_bench(&b, argv[1], tf32, host);
    status = status == TRM_OK ? measure(&b, cache) : status;
    if (status != TRM_OK) {
        fprintf(stderr, "bench_shapes: %s: %s\n", trm_status_name(status), trm_last_error());
    }
    trm_context_destroy(b.context);
    trm_engine_destroy(b.engine);
    trm_network_destroy(b.network);
    trm_onnx_close(b.model);
    trm_world_close(b.world);
    for (int32_t i = 0; i < b.n_inputs; i++) {
        free(b.data[i]);
    }
    return status == TRM_OK ? 0 : 1;
}
