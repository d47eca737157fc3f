/*
 * What the machine can do at most, for the shares of it that other measurements are given in:
 *
 *   bench_roof [--json]
 *
 * Per GPU: a plain kernel's rate of reading memory (8 GiB in turn, so that no cache helps), of copies from pinned host
 * memory and, from the first GPU, of copies from each other GPU's memory; the rate of a bf16 product of [8192, 4096]
 * and [28672, 4096] (gate and up of Llama-3-8B for a chunk of prompts) by the kernel that the engine has for it, random
 * data, over half a second, so that the power the GPU may draw counts. Medians of 7. Exits 1 on an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "base/error.h"
extern "C" {
#include "bench/common.h"
}
#include "kernels/cuda/cuda.h"

#define READ_BYTES ((size_t)8 << 30)
#define COPY_BYTES ((size_t)512 << 20)
#define REPEATS    7
#define PRODUCTS   180 /* half a second of them */

typedef struct product {
    trm_layer_desc layer;
    trm_kernel_call call;
    const trm_kernel *kernel;
} product;

/* Blocks of 512 threads, 8 loads of 16 bytes of each thread in flight; the sum goes nowhere unless it is one that no
 * data gives. */
__global__ void __launch_bounds__(512) read_all(const uint4 *from, size_t n, uint32_t *to)
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
    for (; i < n; i += step) {
        sum += from[i].x;
    }
    if (sum == 0x9e3779b9u) {
        *to = sum;
    }
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median seconds of a call of `enqueue`, which is called once before. */
static trm_status time_calls(const bench *b, trm_status (*enqueue)(const bench *b, void *user), void *user,
                             double *seconds)
{
    double times[REPEATS];
    for (int i = -1; i < REPEATS; i++) {
        float ms = 0.0f;
        TRM_TRY(trm_event_record(b->start, b->stream));
        TRM_TRY(enqueue(b, user));
        TRM_TRY(trm_event_record(b->end, b->stream));
        TRM_TRY(trm_event_synchronize(b->end));
        TRM_TRY(trm_event_elapsed_ms(b->start, b->end, &ms));
        if (i >= 0) {
            times[i] = (double)ms * 1e-3;
        }
    }
    qsort(times, REPEATS, sizeof(times[0]), compare_doubles);
    *seconds = times[REPEATS / 2];
    return TRM_OK;
}

typedef struct buffers {
    void *to, *from;
    int blocks;
} buffers;

static trm_status enqueue_read(const bench *b, void *user)
{
    const buffers *p = (const buffers *)user;
    read_all<<<p->blocks, 512, 0, trm_cuda_stream(b->stream)>>>((const uint4 *)p->from, READ_BYTES / sizeof(uint4),
                                                                (uint32_t *)p->to);
    return trm_cuda_launched("read_all");
}

static trm_status enqueue_copy(const bench *b, void *user)
{
    const buffers *p = (const buffers *)user;
    TRM_CUDA_TRY(cudaMemcpyAsync(p->to, p->from, COPY_BYTES, cudaMemcpyDefault, trm_cuda_stream(b->stream)));
    return TRM_OK;
}

static trm_status enqueue_products(const bench *b, void *user)
{
    const product *p = (const product *)user;
    (void)b;
    for (int i = 0; i < PRODUCTS; i++) {
        TRM_TRY(trm_kernel_run(p->kernel, &p->call));
    }
    return TRM_OK;
}

/* Bytes per second read from this GPU's memory; the best of three sizes of grid. */
static trm_status measure_read(const bench *b, double *rate)
{
    buffers p = {};
    trm_status status;
    *rate = 0.0;
    TRM_TRY(trm_device_alloc(b->device, 256, &p.to));
    TRM_TRY_GOTO(status, trm_device_alloc(b->device, READ_BYTES, &p.from), done);
    TRM_TRY_GOTO(status, trm_stream_fill_zero(b->stream, p.from, READ_BYTES), done);
    for (p.blocks = 132 * 2; p.blocks <= 132 * 8; p.blocks *= 2) {
        double seconds = 0.0;
        TRM_TRY_GOTO(status, time_calls(b, enqueue_read, &p, &seconds), done);
        *rate = (double)READ_BYTES / seconds > *rate ? (double)READ_BYTES / seconds : *rate;
    }
done:
    trm_device_free(b->device, p.from);
    trm_device_free(b->device, p.to);
    return status;
}

static trm_status copy_rate(const bench *b, void *to, void *from, double *rate)
{
    buffers p = {};
    double seconds = 0.0;
    p.to = to;
    p.from = from;
    TRM_TRY(time_calls(b, enqueue_copy, &p, &seconds));
    *rate = (double)COPY_BYTES / seconds;
    return TRM_OK;
}

/* Bytes per second from pinned host memory, and from the second GPU (0 without one). */
static trm_status measure_copies(const bench *b, double *host, double *peer)
{
    void *to = NULL, *from = NULL;
    int devices = 0;
    trm_status status = TRM_OK;
    *host = *peer = 0.0;
    TRM_CUDA_TRY(cudaGetDeviceCount(&devices));
    TRM_TRY(trm_device_alloc(b->device, COPY_BYTES, &to));
    if (cudaMallocHost(&from, COPY_BYTES) != cudaSuccess) {
        trm_device_free(b->device, to);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot pin %zu bytes", COPY_BYTES);
    }
    memset(from, 1, COPY_BYTES);
    status = copy_rate(b, to, from, host);
    cudaFreeHost(from);
    if (status == TRM_OK && devices > 1) {
        cudaSetDevice(1);
        const bool made = cudaMalloc(&from, COPY_BYTES) == cudaSuccess;
        cudaSetDevice(0);
        cudaDeviceEnablePeerAccess(1, 0);
        cudaGetLastError();
        status = made ? copy_rate(b, to, from, peer) : TRM_OK;
        if (made) {
            cudaFree(from);
        }
    }
    trm_device_free(b->device, to);
    return status;
}

static trm_status make_view(const bench *b, trm_view *view, int64_t rows, int64_t columns)
{
    trm_dims dims = {};
    dims.n = 2;
    dims.d[0] = rows;
    dims.d[1] = columns;
    return bench_add_floats(b, view, TRM_BF16, dims, 1, (uint64_t)(rows * columns));
}

static trm_status prepare_product(const bench *b, product *p)
{
    static const trm_kernel_table *const tables[] = {&trm_cuda_kernels};
    p->layer.kind = TRM_LAYER_MATMUL;
    p->layer.matmul.transpose_b = true;
    p->layer.matmul.out = TRM_BF16;
    p->call.n_inputs = 2;
    p->call.n_outputs = 1;
    p->call.constants = 1u << 1;
    p->call.layer = &p->layer;
    p->call.stream = b->stream;
    TRM_TRY(make_view(b, &p->call.inputs[0], 8192, 4096));
    TRM_TRY(make_view(b, &p->call.inputs[1], 28672, 4096));
    TRM_TRY(make_view(b, &p->call.outputs[0], 8192, 28672));
    p->kernel = trm_kernel_find(tables, 1, b->backend, &p->call);
    if (p->kernel == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the product has no kernel");
    }
    p->call.workspace_size = p->kernel->workspace != NULL ? p->kernel->workspace(&p->call) : 0;
    TRM_TRY(trm_device_alloc(b->device, p->call.workspace_size, &p->call.workspace));
    return trm_kernel_tune(p->kernel, &p->call, NULL);
}

/* Floating point operations per second of the product. */
static trm_status measure_product(const bench *b, double *rate)
{
    product p = {};
    double seconds = 0.0;
    trm_status status = prepare_product(b, &p);
    status = status == TRM_OK ? time_calls(b, enqueue_products, &p, &seconds) : status;
    *rate = 2.0 * 8192 * 4096 * 28672 * PRODUCTS / seconds;
    bench_free_call(b, &p.call);
    return status;
}

static trm_status run_all(bench *b)
{
    double read, host, peer, product_rate;
    TRM_TRY(measure_read(b, &read));
    TRM_TRY(measure_copies(b, &host, &peer));
    TRM_TRY(measure_product(b, &product_rate));
    if (b->json) {
        printf("  {\"read_bytes_per_second\": %.0f, \"host_bytes_per_second\": %.0f, \"peer_bytes_per_second\": %.0f, "
               "\"product_flops\": %.0f}",
               read, host, peer, product_rate);
    } else {
        printf("memory read %.3f TB/s, from host %.2f GB/s, from a peer %.1f GB/s, bf16 product %.1f TFLOP/s\n",
               read * 1e-12, host * 1e-9, peer * 1e-9, product_rate * 1e-12);
    }
    return TRM_OK;
}

int main(int argc, char **argv)
{
    bench b = {};
    b.name = "bench_roof";
    b.backend = TRM_BACKEND_CUDA;
    b.json = argc > 1 && strcmp(argv[1], "--json") == 0;
    if (argc > 2 || (argc == 2 && !b.json)) {
        fprintf(stderr, "usage: bench_roof [--json]\n");
        return 2;
    }
    return bench_main(&b, "the machine's roofs", run_all);
}
