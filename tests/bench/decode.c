/*
 * The kernels of a step of one token, each alone: products of one row in the shapes of Llama models and of their
 * shards, norms, GLUs, rotary embeddings, attention over a cache, of one sequence and of many, the choice of the
 * largest logit.
 *
 *   bench_decode [--json] [--host] [--only TEXT]
 *
 * A kernel runs in a captured chain of calls that rotate through as many copies of what it reads as do not fit into the
 * caches together, up to 64: vectors of a few KiB are warm, as a step finds them. Figures are medians of several
 * launches, with the time that a launch itself takes in them. The roof is what a plain kernel reads on an H200. With
 * --host the same on the host backend, of one sequence of at most 8192 keys, not captured and with one copy: whether
 * the program works, not how fast the host is. Exits 1 on an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench/common.h"
#include "kernels/program.h"
#include "kernels/sampling/random.h"
#include "kernels/sampling/sample.h"

#define ROOF_GBS   4550.0
#define COLD_BYTES ((size_t)512 << 20) /* of copies: several times the caches */
#define BLOCK      16                  /* keys per block of the cache */

/* One kernel's work: a layer, and which of its inputs there are copies of. */
typedef struct problem {
    char name[64];
    trm_layer_desc layer;
    trm_kernel_call call;
    uint32_t copied; /* bit i: input i has `copies` copies in a row */
    int32_t copies;
    size_t bytes; /* read and written by a call */
    const trm_kernel *kernel;
    trm_sample_args sample; /* of no layer: if logits are set */
    trm_stream *stream;
} problem;

static trm_status add_view(const bench *b, trm_view *view, trm_dtype dtype, trm_dims dims, int32_t copies)
{
    return bench_add_floats(b, view, dtype, dims, copies, (uint64_t)(uintptr_t)view);
}

/* Where the fill has no numbers of the type, the bytes of some bf16. */
static trm_status add_cache(const bench *b, trm_view *view, trm_dtype dtype, trm_dims dims, int32_t copies)
{
    trm_dims half = dims;
    half.d[half.n - 1] /= dtype == TRM_BF16 ? 1 : 2;
    trm_status status = add_view(b, view, TRM_BF16, half, copies);
    view->dtype = dtype;
    view->dims = dims;
    return status;
}

static void free_problem(const bench *b, problem *p)
{
    bench_free_call(b, &p->call);
    trm_device_free(b->device, p->sample.logits);
    trm_device_free(b->device, p->sample.tokens);
    trm_device_free(b->device, p->sample.workspace);
}

/* Call number i of the chain. */
static trm_status enqueue(void *user, int32_t i)
{
    const problem *p = user;
    if (p->sample.logits != NULL) {
        trm_sample_args sample = p->sample;
        sample.logits += (int64_t)(i % p->copies) * sample.vocab;
        return trm_sample(p->stream, &sample);
    }
    trm_kernel_call call = p->call;
    for (int32_t k = 0; k < call.n_inputs; k++) {
        if ((p->copied >> k & 1) != 0) {
            call.inputs[k].data =
                (char *)call.inputs[k].data + bench_bytes_of(&call.inputs[k]) * (size_t)(i % p->copies);
        }
    }
    return trm_kernel_run(p->kernel, &call);
}

static void report(bench *b, const problem *p, float milliseconds)
{
    const char *kernel = p->kernel != NULL ? p->kernel->name : "sample";
    const double rate = (double)p->bytes / (double)milliseconds * 1e-6;
    if (b->json) {
        printf("%s  {\"name\": \"%s\", \"kernel\": \"%s\", \"bytes\": %zu, \"microseconds\": %.2f, "
               "\"gb_per_s\": %.0f, \"of_roof\": %.3f}",
               b->first ? "" : ",\n", p->name, kernel, p->bytes, (double)milliseconds * 1e3, rate, rate / ROOF_GBS);
    } else {
        printf("%-58s %-18s %12zu %9.2f %8.0f %6.1f %%\n", p->name, kernel, p->bytes, (double)milliseconds * 1e3, rate,
               rate / ROOF_GBS * 100.0);
    }
    fflush(stdout);
    b->first = false;
}

/* Runs a problem whose tensors are there, and frees it. */
static trm_status run_problem(bench *b, problem *p, trm_status made)
{
    static const trm_kernel_table *const tables[] = {&trm_cuda_kernels, &trm_host_kernels, &trm_attention_kernels};
    float milliseconds = 0.0f;
    trm_status status = made;
    TRM_TRY_GOTO(status, status, done);
    p->stream = b->stream;
    if (p->sample.logits == NULL) {
        p->call.layer = &p->layer;
        p->call.stream = b->stream;
        p->kernel = trm_kernel_find(tables, 3, b->backend, &p->call);
        if (p->kernel == NULL) {
            status = trm_fail(TRM_ERROR_UNSUPPORTED, "%s has no kernel", p->name);
            goto done;
        }
        p->call.workspace_size = p->kernel->workspace != NULL ? p->kernel->workspace(&p->call) : 0;
        TRM_TRY_GOTO(status, trm_device_alloc(b->device, p->call.workspace_size, &p->call.workspace), done);
        TRM_TRY_GOTO(status, trm_kernel_tune(p->kernel, &p->call, NULL), done);
    }
    TRM_TRY_GOTO(status, enqueue(p, 0), done); /* outside of the capture first: code is loaded then */
    TRM_TRY_GOTO(status, trm_stream_synchronize(b->stream), done);
    TRM_TRY_GOTO(status, bench_time(b, b->backend == TRM_BACKEND_CUDA ? 64 : 1, enqueue, p, &milliseconds), done);
    report(b, p, milliseconds);
done:
    free_problem(b, p);
    return status;
}

/* Whether to run a problem of this name; sets it up. */
static bool begin(const bench *b, problem *p, const char *name, size_t read)
{
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "%s", name);
    p->copies = b->backend == TRM_BACKEND_CUDA ? (int32_t)(COLD_BYTES / read) + 1 : 1;
    p->copies = p->copies > 64 ? 64 : p->copies;
    return b->only == NULL || strstr(name, b->only) != NULL;
}

typedef struct product_shape {
    const char *name;
    int64_t n, k;
    bool head;
} product_shape;

static const product_shape products[] = {
    {"8B qkv", 6144, 4096, false},         {"8B o", 4096, 4096, false},
    {"8B gate+up", 28672, 4096, false},    {"8B down", 4096, 14336, false},
    {"8B head", 128256, 4096, true},       {"8B qkv of 2", 3072, 4096, false},
    {"8B o of 2", 4096, 2048, false},      {"8B gate+up of 2", 14336, 4096, false},
    {"8B down of 2", 4096, 7168, false},   {"8B qkv of 4", 1536, 4096, false},
    {"8B o of 4", 4096, 1024, false},      {"8B gate+up of 4", 7168, 4096, false},
    {"8B down of 4", 4096, 3584, false},   {"70B qkv of 2", 5120, 8192, false},
    {"70B o of 2", 8192, 4096, false},     {"70B gate+up of 2", 28672, 8192, false},
    {"70B down of 2", 8192, 14336, false}, {"70B qkv of 4", 2560, 8192, false},
    {"70B o of 4", 8192, 2048, false},     {"70B gate+up of 4", 14336, 8192, false},
    {"70B down of 4", 8192, 7168, false},  {"1B qkv", 3072, 2048, false},
    {"1B o", 2048, 2048, false},           {"1B gate+up", 16384, 2048, false},
    {"1B down", 2048, 8192, false},        {"1B head", 128256, 2048, true},
};

static trm_status make_product(const bench *b, const product_shape *s, problem *p)
{
    p->layer.kind = TRM_LAYER_MATMUL;
    p->layer.matmul = (trm_matmul_params){.transpose_b = true, .out = s->head ? TRM_F32 : TRM_BF16};
    p->call.n_inputs = 2;
    p->call.n_outputs = 1;
    p->call.constants = p->copied = 1u << 1;
    TRM_TRY(add_view(b, &p->call.inputs[0], TRM_BF16, (trm_dims){2, {1, s->k}}, 1));
    TRM_TRY(add_view(b, &p->call.inputs[1], TRM_BF16, (trm_dims){2, {s->n, s->k}}, p->copies));
    TRM_TRY(add_view(b, &p->call.outputs[0], p->layer.matmul.out, (trm_dims){2, {1, s->n}}, 1));
    p->bytes =
        bench_bytes_of(&p->call.inputs[0]) + bench_bytes_of(&p->call.inputs[1]) + bench_bytes_of(&p->call.outputs[0]);
    return TRM_OK;
}

/* Norm with the residual addition, GLU, rotary embedding. */
static trm_status make_pointwise(const bench *b, trm_layer_kind kind, int64_t n, problem *p)
{
    const int32_t position = 300;
    const trm_dims vector = {2, {1, n}};
    p->layer.kind = kind;
    p->call.n_outputs = 1;
    if (kind == TRM_LAYER_NORM) {
        p->layer.norm = (trm_norm_params){.op = TRM_NORM_RMS, .residual = true, .eps = 1e-5f};
        p->call.n_inputs = 3;
        p->call.n_outputs = 2;
        TRM_TRY(add_view(b, &p->call.inputs[1], TRM_BF16, vector, p->copies));
        TRM_TRY(add_view(b, &p->call.inputs[2], TRM_BF16, (trm_dims){1, {n}}, p->copies));
        TRM_TRY(add_view(b, &p->call.outputs[1], TRM_BF16, vector, 1));
        p->copied = 7;
    } else if (kind == TRM_LAYER_GLU) {
        p->layer.glu.activation = TRM_ACTIVATION_SILU;
        p->call.n_inputs = 1;
        p->copied = 1;
        TRM_TRY(add_view(b, &p->call.inputs[0], TRM_BF16, (trm_dims){2, {1, 2 * n}}, p->copies));
    } else {
        p->layer.rope = (trm_rope_params){.rotary_dim = 128, .magnitude = 1.0f};
        p->call.n_inputs = 3;
        p->copied = 1;
        TRM_TRY(add_view(b, &p->call.inputs[0], TRM_BF16, (trm_dims){3, {1, n / 128, 128}}, p->copies));
        TRM_TRY(bench_add_integers(b, &p->call.inputs[1], (trm_dims){1, {1}}, &position));
        TRM_TRY(add_view(b, &p->call.inputs[2], TRM_F32, (trm_dims){1, {64}}, 1));
    }
    if (kind == TRM_LAYER_NORM) {
        TRM_TRY(add_view(b, &p->call.inputs[0], TRM_BF16, vector, p->copies));
    }
    TRM_TRY(add_view(b, &p->call.outputs[0], TRM_BF16, kind == TRM_LAYER_ROPE ? p->call.inputs[0].dims : vector, 1));
    for (int32_t i = 0; i < p->call.n_inputs; i++) {
        p->bytes += bench_bytes_of(&p->call.inputs[i]);
    }
    for (int32_t i = 0; i < p->call.n_outputs; i++) {
        p->bytes += bench_bytes_of(&p->call.outputs[i]);
    }
    return TRM_OK;
}

/* Sequences of one query per head over keys of a cache. */
typedef struct attended {
    int32_t sequences, keys; /* of each sequence; where they are mixed, the most */
    int32_t kv_heads, dim;   /* four query heads over each */
    bool mixed;
    bool joined; /* from the joined product of q, k and v on */
    trm_dtype cache;
} attended;

static int32_t keys_of(const attended *a, int32_t sequence)
{
    return a->mixed ? 1 + (int32_t)(trm_random_bits(11, (uint64_t)sequence) % (uint64_t)a->keys) : a->keys;
}

static size_t bytes_of_keys(const attended *a)
{
    size_t keys = 0;
    for (int32_t i = 0; i < a->sequences; i++) {
        keys += (size_t)keys_of(a, i);
    }
    return 2 * keys * (size_t)a->kv_heads * (size_t)a->dim * trm_dtype_size(a->cache);
}

/* The blocks of a sequence stand in no order of use: the last first. */
static trm_status add_sequences(const bench *b, const attended *a, trm_view *inputs, int32_t *integers, problem *p)
{
    const int32_t columns = (a->keys + BLOCK - 1) / BLOCK;
    const int64_t blocks = (int64_t)columns * a->sequences;
    for (int32_t i = 0; i <= a->sequences; i++) {
        integers[i] = i;
    }
    TRM_TRY(bench_add_integers(b, &inputs[TRM_ATTENTION_SEQUENCE_STARTS], (trm_dims){1, {a->sequences + 1}}, integers));
    for (int32_t i = 0; i < a->sequences; i++) {
        integers[i] = keys_of(a, i);
    }
    TRM_TRY(bench_add_integers(b, &inputs[TRM_ATTENTION_SEQUENCE_LENGTHS], (trm_dims){1, {a->sequences}}, integers));
    for (int64_t i = 0; i < blocks; i++) {
        integers[i] = (int32_t)(blocks - 1 - i);
    }
    TRM_TRY(
        bench_add_integers(b, &inputs[TRM_ATTENTION_BLOCK_TABLE], (trm_dims){2, {a->sequences, columns}}, integers));
    const trm_dims cache = {4, {blocks, BLOCK, a->kv_heads, a->dim}};
    TRM_TRY(add_cache(b, &inputs[TRM_ATTENTION_KEY_CACHE], a->cache, cache, p->copies));
    return add_cache(b, &inputs[TRM_ATTENTION_VALUE_CACHE], a->cache, cache, p->copies);
}

/* The same five inputs in the layer of the joined product. */
static trm_status add_joined(const bench *b, const attended *a, int32_t *integers, problem *p)
{
    trm_view *inputs = p->call.inputs, sequences[TRM_ATTENTION_INPUT_COUNT];
    memset(sequences, 0, sizeof(sequences));
    p->layer.kind = TRM_LAYER_QKV_ATTENTION;
    p->layer.qkv_attention = (trm_qkv_attention_params){.attention = {.causal = TRM_CAUSAL_LOWER_RIGHT},
                                                        .rope = {.rotary_dim = a->dim, .magnitude = 1.0f},
                                                        .query_heads = 4 * a->kv_heads,
                                                        .kv_heads = a->kv_heads};
    p->call.n_inputs = TRM_QKV_ATTENTION_INV_FREQ + 1;
    p->call.constants = ~(1u << TRM_QKV_ATTENTION_QKV);
    p->copied = 1u << TRM_QKV_ATTENTION_KEY_CACHE | 1u << TRM_QKV_ATTENTION_VALUE_CACHE;
    trm_status status = add_sequences(b, a, sequences, integers, p);
    memcpy(&inputs[TRM_QKV_ATTENTION_SEQUENCE_STARTS], &sequences[TRM_ATTENTION_SEQUENCE_STARTS],
           5 * sizeof(sequences[0]));
    TRM_TRY(status);
    const trm_dims whole = {2, {a->sequences, (int64_t)6 * a->kv_heads * a->dim}};
    TRM_TRY(add_view(b, &inputs[TRM_QKV_ATTENTION_QKV], TRM_BF16, whole, 1));
    for (int32_t i = 0; i < a->sequences; i++) {
        integers[i] = keys_of(a, i) - 1;
    }
    TRM_TRY(bench_add_integers(b, &inputs[TRM_QKV_ATTENTION_POSITIONS], (trm_dims){1, {a->sequences}}, integers));
    return add_view(b, &inputs[TRM_QKV_ATTENTION_INV_FREQ], TRM_F32, (trm_dims){1, {a->dim / 2}}, 1);
}

static trm_status add_apart(const bench *b, const attended *a, int32_t *integers, problem *p)
{
    trm_view *inputs = p->call.inputs;
    const trm_dims own = {3, {a->sequences, a->kv_heads, a->dim}};
    p->layer.kind = TRM_LAYER_ATTENTION;
    p->layer.attention = (trm_attention_params){.causal = TRM_CAUSAL_LOWER_RIGHT};
    p->call.n_inputs = TRM_ATTENTION_VALUE_CACHE + 1;
    p->copied = 1u << TRM_ATTENTION_KEY_CACHE | 1u << TRM_ATTENTION_VALUE_CACHE;
    TRM_TRY(add_view(b, &inputs[TRM_ATTENTION_Q], TRM_BF16, (trm_dims){3, {a->sequences, 4 * a->kv_heads, a->dim}}, 1));
    TRM_TRY(add_view(b, &inputs[TRM_ATTENTION_K], TRM_BF16, own, 1));
    TRM_TRY(add_view(b, &inputs[TRM_ATTENTION_V], TRM_BF16, own, 1));
    return add_sequences(b, a, inputs, integers, p);
}

/* The copies are of the cache. */
static trm_status make_attention(const bench *b, const attended *a, problem *p)
{
    int32_t *integers = calloc((size_t)a->sequences * (size_t)(a->keys / BLOCK + 1) + 2, sizeof(*integers));
    if (integers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the tables of %d sequences", a->sequences);
    }
    trm_status status = a->joined ? add_joined(b, a, integers, p) : add_apart(b, a, integers, p);
    free(integers);
    TRM_TRY(status);
    p->call.n_outputs = 1;
    p->bytes = bytes_of_keys(a);
    return add_view(b, &p->call.outputs[0], TRM_BF16, (trm_dims){3, {a->sequences, 4 * a->kv_heads, a->dim}}, 1);
}

static trm_status run_attention(bench *b, const attended *a)
{
    char name[64], sequences[32] = "";
    problem p;
    if (a->sequences > 1 || a->mixed) {
        snprintf(sequences, sizeof(sequences), "%d x %s", a->sequences, a->mixed ? "up to " : "");
    }
    snprintf(name, sizeof(name), "%s, %s%d keys%s, %d heads of %d", a->joined ? "qkv to attention" : "attention",
             sequences, a->keys, a->cache == TRM_F8E4M3 ? " of e4m3" : "", a->kv_heads, a->dim);
    if (b->backend == TRM_BACKEND_HOST && (a->sequences > 1 || a->keys > 8192)) {
        return TRM_OK;
    }
    return begin(b, &p, name, bytes_of_keys(a)) ? run_problem(b, &p, make_attention(b, a, &p)) : TRM_OK;
}

/* One sequence, and many: both apart and joined, over both types of cache where the engine has a choice. */
static trm_status run_attentions(bench *b)
{
    static const attended single[] = {
        {.keys = 256, .kv_heads = 8, .dim = 128},   {.keys = 256, .kv_heads = 4, .dim = 128},
        {.keys = 256, .kv_heads = 2, .dim = 128},   {.keys = 256, .kv_heads = 8, .dim = 64},
        {.keys = 2048, .kv_heads = 8, .dim = 128},  {.keys = 8192, .kv_heads = 8, .dim = 128},
        {.keys = 8192, .kv_heads = 2, .dim = 128},  {.keys = 8192, .kv_heads = 1, .dim = 128},
        {.keys = 8192, .kv_heads = 8, .dim = 64},   {.keys = 32768, .kv_heads = 8, .dim = 128},
        {.keys = 32768, .kv_heads = 2, .dim = 128}, {.keys = 131072, .kv_heads = 8, .dim = 128}};
    static const attended many[] = {{.sequences = 8, .keys = 8192},
                                    {.sequences = 32, .keys = 2048},
                                    {.sequences = 32, .keys = 8192},
                                    {.sequences = 40, .keys = 2048},
                                    {.sequences = 128, .keys = 1024},
                                    {.sequences = 128, .keys = 8192},
                                    {.sequences = 37, .keys = 8192, .mixed = true}};
    static const int32_t lengths[] = {256, 2048, 8192, 32768};
    for (size_t i = 0; i < 2 * sizeof(lengths) / sizeof(lengths[0]); i++) {
        const attended a = {
            .sequences = 1, .keys = lengths[i / 2], .kv_heads = 8, .dim = i % 2 == 0 ? 128 : 64, .cache = TRM_BF16};
        TRM_TRY(run_attention(b, &a));
    }
    for (int32_t e4m3 = 0; e4m3 < 2; e4m3++) {
        attended a;
        for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++) {
            a = single[i];
            a.sequences = 1;
            a.joined = true;
            a.cache = e4m3 != 0 ? TRM_F8E4M3 : TRM_BF16;
            TRM_TRY(run_attention(b, &a));
        }
        for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
            a = many[i];
            a.kv_heads = 8;
            a.dim = 128;
            a.joined = true;
            a.cache = e4m3 != 0 ? TRM_F8E4M3 : TRM_BF16;
            TRM_TRY(run_attention(b, &a));
        }
    }
    return TRM_OK;
}

static trm_status make_sample(const bench *b, int64_t vocab, problem *p)
{
    trm_view logits = {NULL, TRM_F32, {0}};
    void *memory;
    TRM_TRY(add_view(b, &logits, TRM_F32, (trm_dims){2, {1, vocab}}, p->copies));
    p->sample = (trm_sample_args){.logits = logits.data, .rows = 1, .vocab = vocab, .greedy_only = true};
    TRM_TRY(trm_device_alloc(b->device, sizeof(int32_t), &memory));
    p->sample.tokens = memory;
    TRM_TRY(trm_device_alloc(b->device, trm_sample_workspace(b->stream, 1, vocab), &p->sample.workspace));
    p->bytes = bench_bytes_of(&logits);
    return TRM_OK;
}

static trm_status run_all(bench *b)
{
    static const struct {
        const char *name;
        trm_layer_kind kind;
        int64_t n;
    } pointwise[] = {{"norm of 4096 + residual", TRM_LAYER_NORM, 4096},
                     {"norm of 8192 + residual", TRM_LAYER_NORM, 8192},
                     {"glu of 14336", TRM_LAYER_GLU, 14336},
                     {"rope, 32 heads of 128", TRM_LAYER_ROPE, 4096},
                     {"rope, 8 heads of 128", TRM_LAYER_ROPE, 1024}};
    problem p;
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        if (begin(b, &p, products[i].name, (size_t)(products[i].n * products[i].k) * 2)) {
            TRM_TRY(run_problem(b, &p, make_product(b, &products[i], &p)));
        }
    }
    for (size_t i = 0; i < sizeof(pointwise) / sizeof(pointwise[0]); i++) {
        if (begin(b, &p, pointwise[i].name, (size_t)pointwise[i].n * 2)) {
            TRM_TRY(run_problem(b, &p, make_pointwise(b, pointwise[i].kind, pointwise[i].n, &p)));
        }
    }
    TRM_TRY(run_attentions(b));
    if (begin(b, &p, "largest of 128256 logits", (size_t)128256 * 4)) {
        TRM_TRY(run_problem(b, &p, make_sample(b, 128256, &p)));
    }
    return TRM_OK;
}

int main(int argc, char **argv)
{
    bench b = {.name = "bench_decode", .backend = TRM_BACKEND_CUDA};
    char heading[128];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            b.json = true;
        } else if (strcmp(argv[i], "--host") == 0) {
            b.backend = TRM_BACKEND_HOST;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            b.only = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_decode [--json] [--host] [--only TEXT]\n");
            return 2;
        }
    }
    snprintf(heading, sizeof(heading), "%-58s %-18s %12s %9s %8s %8s", "work", "kernel", "bytes", "us", "GB/s",
             "of roof");
    return bench_main(&b, heading, run_all);
}
