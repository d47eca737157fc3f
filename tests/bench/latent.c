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

#include "base/error.h"
#include "bench/common.h"

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

static trm_status run_call(bench *b, const shape *s, trm_kernel_call *call)
{
    bench_call what = {.name = s->name, .operations = operations(s), .bytes = bytes(s)};
    const double guess = what.operations / 2e14 + what.bytes / 2e12; /* seconds */
    what.calls = 4e-3 / guess + 1.0 > MOST_CALLS ? MOST_CALLS : (int32_t)(4e-3 / guess) + 1;
    snprintf(what.fields, sizeof(what.fields), "\"sequences\": %d, \"queries\": %d, \"keys\": %d, \"heads\": %d",
             s->sequences, s->queries, s->keys, s->heads);
    return bench_time_launches(b, &trm_attention_kernels, &what, call);
}

static trm_status run_all(bench *b)
{
    trm_status status = TRM_OK;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && status == TRM_OK; i++) {
        const shape *s = &shapes[i];
        problem p = {0};
        int32_t *integers = calloc((size_t)s->sequences * (size_t)s->keys + 2, sizeof(*integers));
        if (integers == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the tables of a shape");
        }
        status = make_problem(b, s, &p, integers);
        status = status == TRM_OK ? run_call(b, s, &p.call) : status;
        bench_free_call(b, &p.call);
        free(integers);
    }
    return status;
}

int main(int argc, char **argv)
{
    bench b = {.name = "bench_latent", .backend = TRM_BACKEND_CUDA};
    if (!bench_read_options(&b, argc, argv, "--kernel")) {
        return 2;
    }
    return bench_main(&b, BENCH_LAUNCHES_HEADING, run_all);
}
