/*
 * How fast prompts attend on CUDA device 0: every attention kernel that takes a shape, on random data.
 *
 *   bench_attention [--json] [--kernel NAME]
 *
 * Operations are 4 per query, key it sees, head and element; the roof is what a matrix product of the library reaches
 * on random data on an H200. Each figure is the median of several launches of a captured chain of calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/kernel.h"
#include "kernels/random.h"

#define ROOF_TFLOPS 800.0
#define BLOCK       16 /* keys per block of the cache */
#define LAUNCHES    7
#define MOST_CALLS  32

typedef struct shape {
    const char *name;
    int32_t sequences, queries, keys; /* keys: of each sequence, its queries' own among them */
    int32_t heads, kv_heads, dim;
    bool cached, scattered; /* scattered: the blocks of a sequence in no order */
    trm_causal causal;
    int32_t window;
} shape;

static const shape shapes[] = {
    {"2k", 1, 2048, 2048, 32, 8, 128, false, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"8k", 1, 8192, 8192, 32, 8, 128, false, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"32k", 1, 32768, 32768, 32, 8, 128, false, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"8k, every key", 1, 8192, 8192, 32, 8, 128, false, false, TRM_CAUSAL_NONE, 0},
    {"8k, window 1k", 1, 8192, 8192, 32, 8, 128, false, false, TRM_CAUSAL_LOWER_RIGHT, 1024},
    {"16 x 512", 16, 512, 512, 32, 8, 128, false, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"2k, cache", 1, 2048, 2048, 32, 8, 128, true, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"8k, cache", 1, 8192, 8192, 32, 8, 128, true, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"8k, scattered cache", 1, 8192, 8192, 32, 8, 128, true, true, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"last 2k of 8k, cache", 1, 2048, 8192, 32, 8, 128, true, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"16 x 512, cache", 16, 512, 512, 32, 8, 128, true, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"8k, heads of 64", 1, 8192, 8192, 32, 8, 64, false, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"8k, heads of 96", 1, 8192, 8192, 32, 8, 96, false, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"8k, heads of 192", 1, 8192, 8192, 16, 4, 192, false, false, TRM_CAUSAL_LOWER_RIGHT, 0},
    {"8k, heads of 256", 1, 8192, 8192, 16, 4, 256, false, false, TRM_CAUSAL_LOWER_RIGHT, 0},
};

typedef struct bench {
    trm_device *device;
    trm_stream *stream;
    trm_event *start, *end;
    const char *only; /* kernel, or NULL */
    bool json, first;
} bench;

/* A call and the memory behind it. */
typedef struct problem {
    trm_layer_desc layer;
    trm_kernel_call call;
} problem;

static double operations(const shape *s)
{
    double pairs = 0.0;
    for (int32_t i = 0; i < s->queries; i++) {
        int32_t high = s->causal == TRM_CAUSAL_NONE ? s->keys : s->keys - s->queries + i + 1;
        pairs += s->window > 0 && high > s->window ? s->window : high;
    }
    return 4.0 * pairs * s->sequences * s->heads * s->dim;
}

static size_t bytes_of(const trm_view *view)
{
    return (size_t)trm_dims_count(&view->dims) * trm_dtype_size(view->dtype);
}

static trm_status add_floats(const bench *b, trm_view *view, trm_dims dims, uint64_t seed)
{
    *view = (trm_view){NULL, TRM_BF16, dims};
    TRM_TRY(trm_device_alloc(b->device, bytes_of(view), &view->data));
    trm_random_fill_args fill = {.to = *view, .seed = seed, .spread = 1.7f};
    int64_t stride = 1;
    for (int32_t i = dims.n - 1; i >= 0; i--) {
        fill.strides[i] = stride;
        stride *= dims.d[i];
    }
    return trm_random_fill(b->stream, &fill);
}

static trm_status add_integers(const bench *b, trm_view *view, trm_dims dims, const int32_t *values)
{
    *view = (trm_view){NULL, TRM_I32, dims};
    TRM_TRY(trm_device_alloc(b->device, bytes_of(view), &view->data));
    TRM_TRY(trm_stream_upload(b->stream, view->data, values, bytes_of(view)));
    return trm_stream_synchronize(b->stream);
}

static trm_status add_cache(const bench *b, const shape *s, problem *p, int32_t *integers)
{
    const int32_t columns = (s->keys + BLOCK - 1) / BLOCK, blocks = columns * s->sequences;
    for (int32_t i = 0; i < s->sequences; i++) {
        integers[i] = s->keys;
    }
    TRM_TRY(add_integers(b, &p->call.inputs[TRM_ATTENTION_SEQUENCE_LENGTHS], (trm_dims){1, {s->sequences}}, integers));
    for (int32_t i = 0; i < blocks; i++) {
        integers[i] = i;
    }
    for (int32_t i = blocks - 1; s->scattered && i > 0; i--) {
        const int32_t other = (int32_t)(trm_random_bits(7, (uint64_t)i) % (uint64_t)(i + 1)), kept = integers[i];
        integers[i] = integers[other];
        integers[other] = kept;
    }
    TRM_TRY(
        add_integers(b, &p->call.inputs[TRM_ATTENTION_BLOCK_TABLE], (trm_dims){2, {s->sequences, columns}}, integers));
    const trm_dims cache = {4, {blocks, BLOCK, s->kv_heads, s->dim}};
    TRM_TRY(add_floats(b, &p->call.inputs[TRM_ATTENTION_KEY_CACHE], cache, 4));
    TRM_TRY(add_floats(b, &p->call.inputs[TRM_ATTENTION_VALUE_CACHE], cache, 5));
    p->call.n_inputs = TRM_ATTENTION_INPUT_COUNT;
    return TRM_OK;
}

static trm_status make_problem(const bench *b, const shape *s, problem *p, int32_t *integers)
{
    const int64_t tokens = (int64_t)s->sequences * s->queries;
    memset(p, 0, sizeof(*p));
    p->layer.kind = TRM_LAYER_ATTENTION;
    p->layer.attention = (trm_attention_params){.causal = s->causal, .window = s->window};
    p->call.layer = &p->layer;
    p->call.stream = b->stream;
    p->call.n_inputs = TRM_ATTENTION_SEQUENCE_STARTS + 1;
    p->call.n_outputs = 1;
    TRM_TRY(add_floats(b, &p->call.inputs[TRM_ATTENTION_Q], (trm_dims){3, {tokens, s->heads, s->dim}}, 1));
    TRM_TRY(add_floats(b, &p->call.inputs[TRM_ATTENTION_K], (trm_dims){3, {tokens, s->kv_heads, s->dim}}, 2));
    TRM_TRY(add_floats(b, &p->call.inputs[TRM_ATTENTION_V], (trm_dims){3, {tokens, s->kv_heads, s->dim}}, 3));
    TRM_TRY(add_floats(b, &p->call.outputs[0], (trm_dims){3, {tokens, s->heads, s->dim}}, 6));
    for (int32_t i = 0; i <= s->sequences; i++) {
        integers[i] = i * s->queries;
    }
    TRM_TRY(
        add_integers(b, &p->call.inputs[TRM_ATTENTION_SEQUENCE_STARTS], (trm_dims){1, {s->sequences + 1}}, integers));
    return s->cached ? add_cache(b, s, p, integers) : TRM_OK;
}

static void free_problem(const bench *b, problem *p)
{
    for (int32_t i = 0; i < p->call.n_inputs; i++) {
        trm_device_free(b->device, p->call.inputs[i].data);
    }
    trm_device_free(b->device, p->call.outputs[0].data);
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Median milliseconds of one call. */
static trm_status time_calls(const bench *b, const trm_kernel *kernel, const trm_kernel_call *call, int32_t calls,
                             float *milliseconds)
{
    float times[LAUNCHES];
    trm_graph_exec *exec = NULL;
    TRM_TRY(trm_stream_begin_capture(b->stream));
    trm_status run = TRM_OK;
    for (int32_t i = 0; run == TRM_OK && i < calls; i++) {
        run = kernel->run(call);
    }
    trm_status status = trm_stream_end_capture(b->stream, &exec);
    status = run != TRM_OK ? run : status;
    for (int32_t i = -1; status == TRM_OK && i < LAUNCHES; i++) { /* the first is not counted */
        float time = 0.0f;
        TRM_TRY_GOTO(status, trm_event_record(b->start, b->stream), done);
        TRM_TRY_GOTO(status, trm_graph_exec_launch(exec, b->stream), done);
        TRM_TRY_GOTO(status, trm_event_record(b->end, b->stream), done);
        TRM_TRY_GOTO(status, trm_event_synchronize(b->end), done);
        TRM_TRY_GOTO(status, trm_event_elapsed_ms(b->start, b->end, &time), done);
        if (i >= 0) {
            times[i] = time / (float)calls;
        }
    }
    if (status == TRM_OK) {
        qsort(times, LAUNCHES, sizeof(times[0]), compare_floats);
        *milliseconds = times[LAUNCHES / 2];
    }
done:
    trm_graph_exec_destroy(exec);
    return status;
}

static trm_status run_kernel(bench *b, const shape *s, const problem *p, const trm_kernel *kernel)
{
    trm_kernel_call call = p->call;
    call.workspace_size = kernel->workspace != NULL ? kernel->workspace(&call) : 0;
    TRM_TRY(trm_device_alloc(b->device, call.workspace_size, &call.workspace));
    const double flops = operations(s), guess = flops / 4e14; /* seconds */
    int32_t calls = (int32_t)(4e-3 / guess) + 1;
    calls = calls > MOST_CALLS ? MOST_CALLS : calls;
    float milliseconds = 0.0f;
    trm_status status = kernel->run(&call); /* outside of the capture first: code is loaded then */
    status = status == TRM_OK ? time_calls(b, kernel, &call, calls, &milliseconds) : status;
    trm_device_free(b->device, call.workspace);
    TRM_TRY(status);
    const double rate = flops / (double)milliseconds * 1e-9;
    if (b->json) {
        printf("%s  {\"shape\": \"%s\", \"kernel\": \"%s\", \"sequences\": %d, \"queries\": %d, \"keys\": %d, "
               "\"heads\": %d, "
               "\"kv_heads\": %d, \"head_dim\": %d, \"cached\": %s, \"window\": %d, \"microseconds\": %.2f, "
               "\"tflops\": %.1f, \"of_roof\": %.3f}",
               b->first ? "" : ",\n", s->name, kernel->name, s->sequences, s->queries, s->keys, s->heads, s->kv_heads,
               s->dim, s->cached ? "true" : "false", s->window, (double)milliseconds * 1e3, rate, rate / ROOF_TFLOPS);
    } else {
        printf("%-24s %-24s %10.1f %10.1f %8.0f %%\n", s->name, kernel->name, (double)milliseconds * 1e3, rate,
               rate / ROOF_TFLOPS * 100.0);
    }
    fflush(stdout);
    b->first = false;
    return TRM_OK;
}

static trm_status run_shape(bench *b, const shape *s)
{
    problem p;
    int32_t *integers = calloc((size_t)s->sequences * (size_t)s->keys + 2, sizeof(*integers));
    if (integers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the tables of a shape");
    }
    trm_status status = make_problem(b, s, &p, integers);
    for (int32_t i = 0; status == TRM_OK && i < trm_attention_kernels.count; i++) {
        const trm_kernel *kernel = &trm_attention_kernels.kernels[i];
        if (kernel->backend == TRM_BACKEND_CUDA && (b->only == NULL || strcmp(kernel->name, b->only) == 0) &&
            kernel->accepts(&p.call)) {
            status = run_kernel(b, s, &p, kernel);
        }
    }
    free_problem(b, &p);
    free(integers);
    return status;
}

static trm_status run_all(bench *b)
{
    TRM_TRY(trm_device_open(TRM_BACKEND_CUDA, 0, 0, &b->device));
    TRM_TRY(trm_stream_create(b->device, &b->stream));
    TRM_TRY(trm_event_create(b->device, &b->start));
    TRM_TRY(trm_event_create(b->device, &b->end));
    if (b->json) {
        printf("[\n");
    } else {
        printf("%-24s %-24s %10s %10s %10s\n", "shape", "kernel", "us", "TFLOP/s", "of roof");
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        TRM_TRY(run_shape(b, &shapes[i]));
    }
    if (b->json) {
        printf("\n]\n");
    }
    return TRM_OK;
}

int main(int argc, char **argv)
{
    bench b = {.first = true};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            b.json = true;
        } else if (strcmp(argv[i], "--kernel") == 0 && i + 1 < argc) {
            b.only = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_attention [--json] [--kernel NAME]\n");
            return 2;
        }
    }
    trm_status status = run_all(&b);
    if (status != TRM_OK) {
        fprintf(stderr, "bench_attention: %s\n", trm_last_error());
    }
    trm_event_destroy(b.start);
    trm_event_destroy(b.end);
    trm_stream_destroy(b.stream);
    trm_device_close(b.device);
    return status == TRM_OK ? 0 : 1;
}
