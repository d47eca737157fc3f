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
#include "bench/common.h"
#include "kernels/program.h"
#include "kernels/sampling/random.h"

#define ROOF_TFLOPS 800.0
#define BLOCK       16 /* keys per block of the cache */
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

static trm_status add_cache(const bench *b, const shape *s, problem *p, int32_t *integers)
{
    const int32_t columns = (s->keys + BLOCK - 1) / BLOCK, blocks = columns * s->sequences;
    for (int32_t i = 0; i < s->sequences; i++) {
        integers[i] = s->keys;
    }
    TRM_TRY(bench_add_integers(b, &p->call.inputs[TRM_ATTENTION_SEQUENCE_LENGTHS], (trm_dims){1, {s->sequences}},
                               integers));
    for (int32_t i = 0; i < blocks; i++) {
        integers[i] = i;
    }
    for (int32_t i = blocks - 1; s->scattered && i > 0; i--) {
        const int32_t other = (int32_t)(trm_random_bits(7, (uint64_t)i) % (uint64_t)(i + 1)), kept = integers[i];
        integers[i] = integers[other];
        integers[other] = kept;
    }
    TRM_TRY(bench_add_integers(b, &p->call.inputs[TRM_ATTENTION_BLOCK_TABLE], (trm_dims){2, {s->sequences, columns}},
                               integers));
    const trm_dims cache = {4, {blocks, BLOCK, s->kv_heads, s->dim}};
    TRM_TRY(bench_add_floats(b, &p->call.inputs[TRM_ATTENTION_KEY_CACHE], TRM_BF16, cache, 1, 4));
    TRM_TRY(bench_add_floats(b, &p->call.inputs[TRM_ATTENTION_VALUE_CACHE], TRM_BF16, cache, 1, 5));
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
    TRM_TRY(bench_add_floats(b, &p->call.inputs[TRM_ATTENTION_Q], TRM_BF16, (trm_dims){3, {tokens, s->heads, s->dim}},
                             1, 1));
    TRM_TRY(bench_add_floats(b, &p->call.inputs[TRM_ATTENTION_K], TRM_BF16,
                             (trm_dims){3, {tokens, s->kv_heads, s->dim}}, 1, 2));
    TRM_TRY(bench_add_floats(b, &p->call.inputs[TRM_ATTENTION_V], TRM_BF16,
                             (trm_dims){3, {tokens, s->kv_heads, s->dim}}, 1, 3));
    TRM_TRY(bench_add_floats(b, &p->call.outputs[0], TRM_BF16, (trm_dims){3, {tokens, s->heads, s->dim}}, 1, 6));
    for (int32_t i = 0; i <= s->sequences; i++) {
        integers[i] = i * s->queries;
    }
    TRM_TRY(bench_add_integers(b, &p->call.inputs[TRM_ATTENTION_SEQUENCE_STARTS], (trm_dims){1, {s->sequences + 1}},
                               integers));
    return s->cached ? add_cache(b, s, p, integers) : TRM_OK;
}

/* A kernel and its call. */
typedef struct kernel_run {
    const trm_kernel *kernel;
    const trm_kernel_call *call;
} kernel_run;

static trm_status enqueue(void *user, int32_t i)
{
    const kernel_run *run = user;
    (void)i;
    return trm_kernel_run(run->kernel, run->call);
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
    kernel_run run = {kernel, &call};
    trm_status status = enqueue(&run, 0); /* outside of the capture first: code is loaded then */
    status = status == TRM_OK ? bench_time(b, calls, enqueue, &run, &milliseconds) : status;
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
    bench_free_call(b, &p.call);
    free(integers);
    return status;
}

static trm_status run_all(bench *b)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        TRM_TRY(run_shape(b, &shapes[i]));
    }
    return TRM_OK;
}

int main(int argc, char **argv)
{
    bench b = {.name = "bench_attention", .backend = TRM_BACKEND_CUDA};
    char heading[128];
    if (!bench_read_options(&b, argc, argv, "--kernel")) {
        return 2;
    }
    snprintf(heading, sizeof(heading), "%-24s %-24s %10s %10s %10s", "shape", "kernel", "us", "TFLOP/s", "of roof");
    return bench_main(&b, heading, run_all);
}
