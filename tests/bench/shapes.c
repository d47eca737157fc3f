/*
 * What a context pays when it gets other input shapes: a network with an open batch, tuned at one size and then run at
 * others; for each the first run, the second (which is captured), the third, and the median of those after it.
 *
 *   bench_shapes NET.onnx BATCH,BATCH,... [--tf32] [--host] [--cache FILE]
 *
 * --cache: the file of the timing cache; without it all is timed. The first batch is the one it is tuned at, the usual
 * of the profile; the largest is its max. Every input's first dimension is the batch, the others are those of the file.
 * Times are of inputs that are set, run and waited for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include <trireme/trireme.h>

enum { MOST_INPUTS = 8, MOST_BATCHES = 32, STEADY = 21 };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

typedef struct bench {
    int64_t batches[MOST_BATCHES], largest;
    int32_t n_batches, n_inputs;
    trm_onnx_port inputs[MOST_INPUTS];
    trm_shape_bound bounds[MOST_INPUTS];
    void *data[MOST_INPUTS]; /* zeros, of the largest batch */
    trm_world *world;
    trm_onnx *model;
    trm_network *network;
    trm_engine *engine;
    trm_context *context;
} bench;

static trm_dims dims_of(const trm_onnx_port *input, int64_t batch)
{
    trm_dims dims = input->dims;
    dims.d[0] = batch;
    return dims;
}

static trm_status describe_inputs(bench *b)
{
    b->n_inputs = trm_onnx_input_count(b->model);
    b->n_inputs = b->n_inputs < MOST_INPUTS ? b->n_inputs : MOST_INPUTS;
    for (int32_t i = 0; i < b->n_inputs; i++) {
        trm_onnx_port *input = &b->inputs[i];
        trm_onnx_get_input(b->model, i, input);
        trm_dims most = dims_of(input, b->largest);
        size_t bytes = 8; /* the widest element */
        for (int32_t k = 0; k < most.n; k++) {
            if (most.d[k] < 1) {
                fprintf(stderr, "input %s has an open dimension %d\n", input->name, (int)k);
                return TRM_ERROR_INVALID_ARGUMENT;
            }
            bytes *= (size_t)most.d[k];
        }
        b->data[i] = calloc(1, bytes);
        b->bounds[i] = (trm_shape_bound){
            .tensor = input->name, .max = most, .min = dims_of(input, 1), .opt = dims_of(input, b->batches[0])};
    }
    return TRM_OK;
}

static trm_status open_bench(bench *b, const char *path, bool tf32, bool host)
{
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan = NULL;
    trm_status status;
    where.backend = how.backend = host ? TRM_BACKEND_HOST : TRM_BACKEND_CUDA;
    how.allow_tf32 = tf32;
    TRY(trm_world_open(&where, &b->world));
    TRY(trm_onnx_open(path, &b->model));
    TRY(describe_inputs(b));
    TRY(trm_onnx_build_network(b->model, NULL, &b->network));
    how.bounds = b->bounds;
    how.n_bounds = b->n_inputs;
    TRY(trm_build(b->network, &how, &plan));
    TRY(trm_engine_create(plan, b->world, NULL, NULL, &b->engine));
    TRY(trm_context_create(b->engine, &b->context));
done:
    return status;
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
    TRY(trm_context_tune(b->context, &tune));
    TRY(trm_context_set_capture(b->context, true));
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
        cache = strcmp(argv[i], "--cache") == 0 && i + 1 < argc ? argv[i + 1] : cache;
    }
    for (char *at = argc > 2 ? argv[2] : NULL; at != NULL && b.n_batches < MOST_BATCHES;) {
        const int64_t batch = strtoll(at, &at, 10);
        b.batches[b.n_batches++] = batch;
        b.largest = batch > b.largest ? batch : b.largest;
        at = *at == ',' ? at + 1 : NULL;
    }
    if (b.n_batches == 0 || b.largest < 1) {
        fprintf(stderr, "usage: bench_shapes NET.onnx BATCH,BATCH,... [--tf32] [--host] [--cache FILE]\n");
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
