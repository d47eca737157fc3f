/*
 * How fast latent attention runs on CUDA device 0, in DeepSeek's sizes on random data: the whole layer, and each of its
 * launches by itself.
 *
 *   bench_latent [--json] [--kernel PART_OF_A_LAUNCH_NAME]
 *
 * Bytes are those of the cached keys that are read, once, 1152 a key; operations are those of the expanded form, 2 *
 * 320 per query, key it sees and head. Each figure is the median of several launches of a captured chain of calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench/common.h"
#include "kernels/program.h"

#define BLOCK      16 /* keys per block of the cache */
#define MOST_CALLS 32
#define PLAIN      128
#define ROTATED    64
#define VALUES     128
#define RANK       512

typedef struct shape {
    const char *name;
    int32_t sequences, queries, keys, heads; /* keys: of each sequence, its queries' own among them */
} shape;

static const shape shapes[] = {
    {"64 x 4k, 8 heads", 64, 1, 4096, 8},
    {"64 x 4k, 16 heads", 64, 1, 4096, 16},
    {"64 x 4k, 32 heads", 64, 1, 4096, 32},
    {"64 x 4k, 64 heads", 64, 1, 4096, 64},
    {"64 x 4k, 128 heads", 64, 1, 4096, 128},
    {"8 x 32k, 16 heads", 8, 1, 32768, 16},
    {"1 x 64k, 16 heads", 1, 1, 65536, 16},
    {"50 x 4k + 2, 16 heads", 50, 3, 4098, 16},
    {"2k, 16 heads", 1, 2048, 2048, 16},
    {"8k, 16 heads", 1, 8192, 8192, 16},
    {"8k, 128 heads", 1, 8192, 8192, 128},
    {"16 x 512, 16 heads", 16, 512, 512, 16},
    {"last 2k of 8k, 16 heads", 1, 2048, 8192, 16},
};

typedef struct problem {
    trm_layer_desc layer;
    trm_kernel_call call;
} problem;

static double operations(const shape *s)
{
    const double before = s->keys - s->queries, own = (double)s->queries * (s->queries + 1) / 2;
    return 2.0 * (PLAIN + ROTATED + VALUES) * s->sequences * s->heads * (before * s->queries + own);
}

static double bytes(const shape *s)
{
    return 2.0 * (RANK + ROTATED) * s->sequences * (double)s->keys;
}

static trm_status make_problem(const bench *b, const shape *s, problem *p, int32_t *integers)
{
    const int64_t tokens = (int64_t)s->sequences * s->queries;
    const int32_t columns = (s->keys + BLOCK - 1) / BLOCK, blocks = columns * s->sequences;
    trm_view *inputs = p->call.inputs;
    p->layer.kind = TRM_LAYER_LATENT_ATTENTION;
    p->call.layer = &p->layer;
    p->call.stream = b->stream;
    p->call.n_inputs = TRM_LATENT_ATTENTION_INPUT_COUNT;
    p->call.n_outputs = 1;
    p->call.constants = 1u << TRM_LATENT_ATTENTION_WEIGHT;
    const struct {
        trm_view *view;
        trm_dims dims;
    } floats[] = {
        {&inputs[TRM_LATENT_ATTENTION_Q], {3, {tokens, s->heads, PLAIN + ROTATED}}},
        {&inputs[TRM_LATENT_ATTENTION_LATENT], {2, {tokens, RANK}}},
        {&inputs[TRM_LATENT_ATTENTION_ROPE_KEY], {3, {tokens, 1, ROTATED}}},
        {&inputs[TRM_LATENT_ATTENTION_WEIGHT], {3, {s->heads, PLAIN + VALUES, RANK}}},
        {&inputs[TRM_LATENT_ATTENTION_CACHE], {3, {blocks, BLOCK, RANK + ROTATED}}},
        {&p->call.outputs[0], {3, {tokens, s->heads, VALUES}}},
    };
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
        TRM_TRY(bench_add_floats(b, floats[i].view, TRM_BF16, floats[i].dims, 1, i + 1));
    }
    for (int32_t i = 0; i <= s->sequences; i++) {
        integers[i] = i * s->queries;
    }
    TRM_TRY(bench_add_integers(b, &inputs[TRM_LATENT_ATTENTION_SEQUENCE_STARTS], (trm_dims){1, {s->sequences + 1}},
                               integers));
    for (int32_t i = 0; i < s->sequences; i++) {
        integers[i] = s->keys;
    }
    TRM_TRY(
        bench_add_integers(b, &inputs[TRM_LATENT_ATTENTION_SEQUENCE_LENGTHS], (trm_dims){1, {s->sequences}}, integers));
    for (int32_t i = 0; i < blocks; i++) {
        integers[i] = i;
    }
    return bench_add_integers(b, &inputs[TRM_LATENT_ATTENTION_BLOCK_TABLE], (trm_dims){2, {s->sequences, columns}},
                              integers);
}

/* Launches begin .. end - 1 of a program. */
typedef struct part {
    const trm_program *program;
    trm_stream *stream;
    int32_t begin, end;
} part;

static trm_status enqueue(void *user, int32_t i)
{
    const part *run = user;
    int32_t at;
    (void)i;
    return trm_program_run_on(run->program, run->begin, run->end, run->stream, &at);
}

static trm_status time_part(bench *b, const shape *s, const char *name, part *run)
{
    const double guess = operations(s) / 2e14 + bytes(s) / 2e12; /* seconds */
    const int32_t calls = 4e-3 / guess + 1.0 > MOST_CALLS ? MOST_CALLS : (int32_t)(4e-3 / guess) + 1;
    float milliseconds;
    if (b->only != NULL && strstr(name, b->only) == NULL) {
        return TRM_OK;
    }
    TRM_TRY(bench_time(b, calls, enqueue, run, &milliseconds));
    const double seconds = (double)milliseconds * 1e-3;
    if (b->json) {
        printf("%s  {\"shape\": \"%s\", \"launch\": \"%s\", \"sequences\": %d, \"queries\": %d, \"keys\": %d, "
               "\"heads\": %d, \"microseconds\": %.2f, \"gbytes\": %.0f, \"tflops\": %.1f}",
               b->first ? "" : ",\n", s->name, name, s->sequences, s->queries, s->keys, s->heads, seconds * 1e6,
               bytes(s) / seconds * 1e-9, operations(s) / seconds * 1e-12);
    } else {
        printf("%-24s %-32s %10.1f %10.0f %10.1f\n", s->name, name, seconds * 1e6, bytes(s) / seconds * 1e-9,
               operations(s) / seconds * 1e-12);
    }
    fflush(stdout);
    b->first = false;
    return TRM_OK;
}

static trm_status run_call(bench *b, const shape *s, trm_kernel_call *call, trm_program *program)
{
    const trm_kernel_table *const tables[] = {&trm_attention_kernels};
    const trm_kernel *kernel = trm_kernel_find(tables, 1, TRM_BACKEND_CUDA, call);
    if (kernel == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "no kernel takes %s", s->name);
    }
    call->workspace_size = kernel->workspace(call);
    TRM_TRY(trm_device_alloc(b->device, call->workspace_size, &call->workspace));
    trm_status status = trm_kernel_prepare(kernel, call, program);
    part run = {program, b->stream, 0, program->n};
    status = status == TRM_OK ? enqueue(&run, 0) : status; /* outside of the capture first: code is loaded then */
    status = status == TRM_OK ? time_part(b, s, "all", &run) : status;
    for (int32_t i = 0; i < program->n && status == TRM_OK; i++) {
        run.begin = i;
        run.end = i + 1;
        status = time_part(b, s, program->launches[i].name, &run);
    }
    trm_device_free(b->device, call->workspace);
    return status;
}

static trm_status run_all(bench *b)
{
    trm_status status = TRM_OK;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && status == TRM_OK; i++) {
        const shape *s = &shapes[i];
        problem p = {0};
        trm_program program = {0};
        int32_t *integers = calloc((size_t)s->sequences * (size_t)s->keys + 2, sizeof(*integers));
        if (integers == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the tables of a shape");
        }
        status = make_problem(b, s, &p, integers);
        status = status == TRM_OK ? run_call(b, s, &p.call, &program) : status;
        trm_program_fini(&program);
        bench_free_call(b, &p.call);
        free(integers);
    }
    return status;
}

int main(int argc, char **argv)
{
    bench b = {.name = "bench_latent", .backend = TRM_BACKEND_CUDA};
    char heading[128];
    if (!bench_read_options(&b, argc, argv, "--kernel")) {
        return 2;
    }
    snprintf(heading, sizeof(heading), "%-24s %-32s %10s %10s %10s", "shape", "launch", "us", "GB/s", "TFLOP/s");
    return bench_main(&b, heading, run_all);
}
