/*
 * The layers of a mixture of experts by themselves, in shapes of published models:
 *
 *   bench_moe [--forms] [--format halves|mxfp4|fp8] [--shape NAME] [--tokens N]
 *
 * A line per shape and number of tokens: how many experts a call touched, the time of a call, the rate at which it read
 * these experts' weights and its share of what a plain read reaches in the same run, and the rate of its products. Ids
 * are random and differ from call to call, so that the weights of a call of few tokens are not in the cache. Calls are
 * captured in a graph; medians of 5. --forms: every form of the kernels instead of the chosen one. Exits 1 on an error.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "base/error.h"
#include "kernels/moe/moe.h"

#define REPEATS    5
#define MOST_CALLS 16
#define READ_BYTES ((size_t)4 << 30)

typedef struct shape {
    const char *name;
    int32_t experts, k, hidden, width;
    bool gpt_oss; /* interleaved rows, biases, its activation */
} shape;

static const shape shapes[] = {{"qwen3-30b", 128, 8, 2048, 768, false},
                               {"gpt-oss-20b", 32, 4, 2880, 2880, true},
                               {"gpt-oss-120b", 128, 4, 2880, 2880, true},
                               {"mixtral", 8, 2, 4096, 14336, false}};
static const int32_t token_counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 8192};

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const cudaError_t error_ = (call);                                                                             \
        if (error_ != cudaSuccess) {                                                                                   \
            fprintf(stderr, "bench_moe: %s: %s\n", #call, cudaGetErrorString(error_));                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void check(trm_status status)
{
    if (status != TRM_OK) {
        fprintf(stderr, "bench_moe: %s\n", trm_last_error());
        exit(1);
    }
}

/* ---- data ---- */

static __device__ uint32_t hashed(uint64_t i)
{
    uint32_t x = (uint32_t)(i ^ (i >> 32)) * 0x9e3779b1u;
    x ^= x >> 15;
    x *= 0x85ebca77u;
    return x ^ (x >> 13);
}

/* bf16 in about [-2, 2] times 2^shift. */
static __global__ void fill_halves(uint16_t *to, size_t n, int shift)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const float v = ((float)(hashed(i) >> 8) / 8388608.0f - 1.0f) * exp2f((float)shift);
        to[i] = (uint16_t)(__float_as_uint(v) >> 16);
    }
}

static __global__ void fill_bytes(uint8_t *to, size_t n, uint8_t mask, uint8_t value)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        to[i] = (uint8_t)((hashed(i) >> 9 & mask) | value);
    }
}

static __global__ void fill_floats(float *to, size_t n, float value)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        to[i] = value * (float)(1 + (hashed(i) & 3));
    }
}

/* What a plain read reaches. */
static __global__ void __launch_bounds__(512) read_all(const uint4 *from, size_t n, uint32_t *to)
{
    const size_t step = (size_t)gridDim.x * 512;
    size_t i = (size_t)blockIdx.x * 512 + threadIdx.x;
    uint32_t sum = 0;
    for (; i + 7 * step < n; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k] = __ldcs(from + i + (size_t)k * step);
        }
#pragma unroll
        for (int k = 0; k < 8; k++) {
            sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
        }
    }
    if (sum == 0x9e3779b9u) {
        *to = sum;
    }
}

/* ---- timing ---- */

static cudaStream_t stream;
static cudaEvent_t begun, ended;
static double roof; /* bytes per second */

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Median microseconds of a captured graph. */
static double time_graph(cudaGraph_t graph)
{
    cudaGraphExec_t ready;
    float times[REPEATS];
    TRY(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = -1; i < REPEATS; i++) {
        float ms = 0.0f;
        TRY(cudaEventRecord(begun, stream));
        TRY(cudaGraphLaunch(ready, stream));
        TRY(cudaEventRecord(ended, stream));
        TRY(cudaEventSynchronize(ended));
        TRY(cudaEventElapsedTime(&ms, begun, ended));
        if (i >= 0) {
            times[i] = ms * 1000.0f;
        }
    }
    TRY(cudaGraphExecDestroy(ready));
    TRY(cudaGraphDestroy(graph));
    qsort(times, REPEATS, sizeof(times[0]), compare_floats);
    return times[REPEATS / 2];
}

static void measure_roof(const void *buffer)
{
    uint32_t *out;
    double best = 0.0;
    TRY(cudaMalloc((void **)&out, 4));
    for (int blocks = 132 * 2; blocks <= 132 * 8; blocks *= 2) {
        cudaGraph_t graph;
        TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        read_all<<<blocks, 512, 0, stream>>>((const uint4 *)buffer, READ_BYTES / 16, out);
        TRY(cudaStreamEndCapture(stream, &graph));
        best = fmax(best, (double)READ_BYTES / time_graph(graph) * 1e6);
    }
    TRY(cudaFree(out));
    roof = best;
}

/* ---- calls ---- */

typedef struct problem {
    trm_moe_experts calls[MOST_CALLS];
    trm_moe_router routers[MOST_CALLS];
    int32_t n;
    double touched; /* experts a call */
    double bytes;   /* of an expert */
} problem;

static char *pool; /* device memory that is handed out from its beginning for each problem */
static size_t pool_bytes, pool_used;

static void *take(size_t bytes)
{
    void *at = pool + pool_used;
    pool_used += (bytes + 1023) / 1024 * 1024;
    if (pool_used > pool_bytes) {
        fprintf(stderr, "bench_moe: %zu bytes of device memory do not suffice\n", pool_bytes);
        exit(1);
    }
    return at;
}

static size_t matrix_bytes(trm_moe_format format, size_t numbers)
{
    return format == TRM_MOE_HALVES ? numbers * 2 : format == TRM_MOE_MXFP4 ? numbers / 2 : numbers;
}

/* Weights of the shape; their scales are returned, NULL for none. */
static void *take_matrix(trm_moe_format format, int32_t experts, int64_t rows, int64_t columns, void **scales)
{
    const size_t numbers = (size_t)experts * (size_t)rows * (size_t)columns;
    void *data = take(matrix_bytes(format, numbers));
    *scales = NULL;
    if (format == TRM_MOE_HALVES) {
        fill_halves<<<1024, 256, 0, stream>>>((uint16_t *)data, numbers, -4);
    } else if (format == TRM_MOE_MXFP4) {
        fill_bytes<<<1024, 256, 0, stream>>>((uint8_t *)data, numbers / 2, 0xff, 0);
        *scales = take(numbers / 32);
        fill_bytes<<<1024, 256, 0, stream>>>((uint8_t *)*scales, numbers / 32, 1, 122);
    } else {
        const size_t n = (size_t)experts * (size_t)((rows + 127) / 128) * (size_t)((columns + 127) / 128);
        fill_bytes<<<1024, 256, 0, stream>>>((uint8_t *)data, numbers, 0xb7, 0);
        *scales = take(n * 4);
        fill_floats<<<64, 256, 0, stream>>>((float *)*scales, n, 0.02f);
    }
    return data;
}

static uint64_t seed = 1;
static uint32_t random_below(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seed >> 33) % n);
}

/* Random distinct ids for every token; returns how many experts they are. */
static int32_t random_ids(const shape *s, int32_t tokens, int32_t *ids)
{
    bool touched[1024] = {false};
    int32_t n = 0;
    for (int32_t i = 0; i < tokens * s->k; i++) {
        bool used = true;
        while (used) {
            ids[i] = (int32_t)random_below((uint32_t)s->experts);
            used = false;
            for (int32_t j = i / s->k * s->k; j < i; j++) {
                used = used || ids[j] == ids[i];
            }
        }
        n += touched[ids[i]] ? 0 : 1;
        touched[ids[i]] = true;
    }
    return n;
}

/* Weights are taken once per shape, by `first`; tokens' tensors are taken each time. */
static void make_problem(problem *b, const shape *s, int32_t tokens, trm_moe_format format,
                         const trm_moe_experts *first)
{
    b->n = tokens <= 16 ? MOST_CALLS : tokens <= 128 ? 6 : 2;
    b->touched = 0.0;
    int32_t *ids = (int32_t *)malloc(sizeof(int32_t) * (size_t)tokens * (size_t)s->k);
    float *weights = (float *)malloc(sizeof(float) * (size_t)tokens * (size_t)s->k);
    const size_t pairs = (size_t)tokens * (size_t)s->k, row = (size_t)tokens * (size_t)s->hidden;
    for (size_t i = 0; i < pairs; i++) {
        weights[i] = 1.0f / (float)s->k;
    }
    uint16_t *x = (uint16_t *)take(row * 2), *router = (uint16_t *)take((size_t)s->experts * (size_t)s->hidden * 2);
    fill_halves<<<256, 256, 0, stream>>>(x, row, 0);
    fill_halves<<<256, 256, 0, stream>>>(router, (size_t)s->experts * (size_t)s->hidden, -4);
    for (int32_t c = 0; c < b->n; c++) {
        trm_moe_experts p = *first;
        b->touched += (double)random_ids(s, tokens, ids) / b->n;
        p.tokens = tokens;
        p.format = format;
        p.x = x;
        p.y = take(row * 2);
        p.ids = (const int32_t *)take(pairs * 4);
        p.weights = (const float *)take(pairs * 4);
        TRY(cudaMemcpyAsync((void *)p.ids, ids, pairs * 4, cudaMemcpyHostToDevice, stream));
        TRY(cudaMemcpyAsync((void *)p.weights, weights, pairs * 4, cudaMemcpyHostToDevice, stream));
        TRY(cudaStreamSynchronize(stream));
        b->calls[c] = p;
        trm_moe_router r = {};
        r.tokens = tokens;
        r.hidden = s->hidden;
        r.experts = s->experts;
        r.k = s->k;
        r.x_type = r.weight_type = TRM_BF16;
        r.scoring = TRM_ROUTER_SOFTMAX;
        r.renormalize = true;
        r.scale = 1.0f;
        r.x = x;
        r.weight = router;
        r.ids = (int32_t *)take(pairs * 4);
        r.weights = (float *)take(pairs * 4);
        b->routers[c] = r;
    }
    free(ids);
    free(weights);
}

static trm_moe_experts take_weights(problem *b, const shape *s, trm_moe_format format)
{
    trm_moe_experts p = {};
    void *scales;
    p.hidden = s->hidden;
    p.width = s->width;
    p.experts = s->experts;
    p.k = s->k;
    p.type = TRM_BF16;
    p.format = format;
    p.activation = s->gpt_oss ? TRM_EXPERT_SWIGLU_OAI : TRM_EXPERT_SILU;
    p.limit = s->gpt_oss ? 7.0f : INFINITY;
    p.alpha = 1.702f;
    p.interleaved = s->gpt_oss;
    p.constant_weights = true;
    p.gate_up = take_matrix(format, s->experts, 2 * (int64_t)s->width, s->hidden, &scales);
    p.gate_up_scale = scales;
    p.down = take_matrix(format, s->experts, s->hidden, s->width, &scales);
    p.down_scale = scales;
    if (s->gpt_oss) {
        const size_t up = (size_t)s->experts * 2 * (size_t)s->width, down = (size_t)s->experts * (size_t)s->hidden;
        p.gate_up_bias = take(up * 2);
        p.down_bias = take(down * 2);
        fill_halves<<<64, 256, 0, stream>>>((uint16_t *)p.gate_up_bias, up, -4);
        fill_halves<<<64, 256, 0, stream>>>((uint16_t *)p.down_bias, down, -4);
    }
    const size_t numbers = 3 * (size_t)s->width * (size_t)s->hidden;
    b->bytes = (double)matrix_bytes(format, numbers) + (format == TRM_MOE_MXFP4 ? (double)numbers / 32 : 0.0);
    TRY(cudaStreamSynchronize(stream));
    return p;
}

/* Microseconds of a call. */
static double time_experts(const problem *b, const trm_moe_plan *plan, void *workspace, bool routed)
{
    cudaGraph_t graph;
    TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int32_t i = 0; i < b->n; i++) {
        if (routed) {
            check(trm_cuda_moe_router_run(&b->routers[i], true, stream));
        }
        check(trm_cuda_moe_experts_run(&b->calls[i], plan, workspace, stream));
    }
    TRY(cudaStreamEndCapture(stream, &graph));
    return time_graph(graph) / b->n;
}

static double time_router(const problem *b)
{
    cudaGraph_t graph;
    TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int32_t i = 0; i < b->n; i++) {
        check(trm_cuda_moe_router_run(&b->routers[i], true, stream));
    }
    TRY(cudaStreamEndCapture(stream, &graph));
    return time_graph(graph) / b->n;
}

static void report(const shape *s, const problem *b, const trm_moe_plan *plan, double us)
{
    const double bytes = b->touched * b->bytes, rate = bytes / us * 1e6;
    const double flops = 6.0 * (double)b->calls[0].tokens * s->k * (double)s->hidden * (double)s->width;
    char way[64];
    if (plan->regime == TRM_MOE_PAIRS) {
        (void)snprintf(way, sizeof(way), "pairs %d %d", (int)plan->up, (int)plan->down);
    } else {
        (void)snprintf(way, sizeof(way), "grouped %d", (int)plan->rows);
    }
    printf("%-12s %5d %6.1f  %-16s %9.1f %7.0f %5.2f %7.1f\n", s->name, (int)b->calls[0].tokens, b->touched, way, us,
           rate * 1e-9, rate / roof, flops / us * 1e-6);
}

static void try_forms(const shape *s, const problem *b, void *workspace)
{
    const trm_moe_experts *p = &b->calls[0];
    if (p->tokens <= 8) {
        trm_moe_plan plan = {TRM_MOE_PAIRS, 0, 0, 0};
        double best = INFINITY;
        int32_t up = 0;
        for (int32_t f = 0; f < trm_cuda_moe_pairs_forms(); f++) {
            plan.up = f;
            const double us = time_experts(b, &plan, workspace, false);
            report(s, b, &plan, us);
            up = us < best ? f : up;
            best = fmin(us, best);
        }
        plan.up = up;
        for (int32_t f = 1; f < trm_cuda_moe_pairs_forms(); f++) {
            plan.down = f;
            report(s, b, &plan, time_experts(b, &plan, workspace, false));
        }
    }
    const double each = (double)p->tokens * p->k / p->experts;
    for (int32_t rows = 16; p->tokens >= 2 && rows <= 256; rows *= 2) {
        if (rows >= each / 4 && (rows <= each * 8 || rows == 16)) {
            trm_moe_plan plan = {TRM_MOE_GROUPED, 0, 0, rows};
            report(s, b, &plan, time_experts(b, &plan, workspace, false));
        }
    }
}

int main(int argc, char **argv)
{
    bool forms = false;
    trm_moe_format format = TRM_MOE_HALVES;
    const char *only = NULL;
    int only_tokens = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--forms") == 0) {
            forms = true;
        } else if (strcmp(argv[i], "--format") == 0 && i + 1 < argc) {
            i++;
            format = strcmp(argv[i], "mxfp4") == 0 ? TRM_MOE_MXFP4
                     : strcmp(argv[i], "fp8") == 0 ? TRM_MOE_F8_BLOCKS
                                                   : TRM_MOE_HALVES;
        } else if (strcmp(argv[i], "--shape") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--tokens") == 0 && i + 1 < argc) {
            only_tokens = atoi(argv[++i]);
        } else {
            fprintf(stderr, "usage: bench_moe [--forms] [--format halves|mxfp4|fp8] [--shape NAME] [--tokens N]\n");
            return 2;
        }
    }
    TRY(cudaStreamCreate(&stream));
    TRY(cudaEventCreate(&begun));
    TRY(cudaEventCreate(&ended));
    pool_bytes = (size_t)16 << 30;
    TRY(cudaMalloc((void **)&pool, pool_bytes));
    fill_halves<<<2048, 256, 0, stream>>>((uint16_t *)pool, READ_BYTES / 2, 0);
    measure_roof(pool);
    cudaDeviceProp device;
    TRY(cudaGetDeviceProperties(&device, 0));
    printf("%s, plain read %.2f TB/s\n", device.name, roof * 1e-12);
    printf("%-12s %5s %6s  %-16s %9s %7s %5s %7s\n", "shape", "T", "experts", "kernels", "us", "GB/s", "roof",
           "TFLOP/s");
    static problem b;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (only != NULL && strcmp(only, shapes[i].name) != 0) {
            continue;
        }
        pool_used = 0;
        const trm_moe_experts first = take_weights(&b, &shapes[i], format);
        const size_t kept = pool_used;
        for (size_t t = 0; t < sizeof(token_counts) / sizeof(token_counts[0]); t++) {
            if (only_tokens > 0 && token_counts[t] != only_tokens) {
                continue;
            }
            pool_used = kept;
            make_problem(&b, &shapes[i], token_counts[t], format, &first);
            if (!trm_cuda_moe_experts_accepts(&b.calls[0])) {
                continue;
            }
            trm_moe_plan plan = {TRM_MOE_GROUPED, 0, 0, 16};
            void *workspace = take(trm_cuda_moe_experts_workspace(&b.calls[0], &plan) + ((size_t)64 << 20));
            if (forms) {
                try_forms(&shapes[i], &b, workspace);
                continue;
            }
            plan = trm_cuda_moe_experts_plan(&b.calls[0]);
            report(&shapes[i], &b, &plan, time_experts(&b, &plan, workspace, false));
            if (token_counts[t] <= 64) {
                printf("%-12s %5d %6s  %-16s %9.1f\n", shapes[i].name, (int)token_counts[t], "", "router",
                       time_router(&b));
                printf("%-12s %5d %6s  %-16s %9.1f\n", shapes[i].name, (int)token_counts[t], "", "both",
                       time_experts(&b, &plan, workspace, true));
            }
        }
    }
    return 0;
}
