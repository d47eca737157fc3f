/*
 * Kernels that order elements along an axis: arg_reduce and topk. Keys and positions are compared
 * (kernels/reduce/order.h), for all types alike.
 *
 * topk, one row per block: the key of the k-th element is found digit by digit (radix select, 8 bits at a time), the k
 * elements are gathered, then sorted by a bitonic network, in shared memory up to SORT_SHARED elements, else in the
 * workspace. Bound by the passes over the row: one per byte of the type and two more.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/reduce/order.h"

/* A key and where it was: better ones have larger keys, then lower positions. */
struct ranked {
    unsigned long long key;
    long long at;
};

static __device__ __forceinline__ bool better(const ranked &a, const ranked &b)
{
    return trm_order_before(a.key, a.at, b.key, b.at);
}

static __device__ __forceinline__ ranked ranked_of(const trm_order_args &args, int64_t row, int64_t i)
{
    ranked r = {trm_order_key(args.dtype, args.x, row + i * args.inner) ^ args.flip, i};
    return r;
}

/* ---- arg_reduce ---- */

/* By position from the other end, `last` is as `first`. */
static __device__ __forceinline__ ranked better_of(const ranked &a, const ranked &b)
{
    return better(a, b) ? a : b;
}

/* One row per block and pass, 32 to 1024 threads, 16 bytes of shared memory for each. */
static __global__ void __launch_bounds__(1024) arg_reduce_rows(const trm_order_args args)
{
    extern __shared__ ranked best[];
    begin_overlapped();
    for (int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
        int64_t row = trm_order_row(&args, r);
        ranked mine = {0, INT64_MAX};
        for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
            ranked one = ranked_of(args, row, i);
            one.at = args.last ? args.n - 1 - i : i;
            mine = mine.at == INT64_MAX ? one : better_of(mine, one);
        }
        best[threadIdx.x] = mine;
        __syncthreads();
        for (int half = (int)blockDim.x / 2; half > 0; half /= 2) {
            if ((int)threadIdx.x < half) {
                best[threadIdx.x] = better_of(best[threadIdx.x], best[threadIdx.x + half]);
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            args.indices[r] = args.last ? args.n - 1 - best[0].at : best[0].at;
        }
        __syncthreads();
    }
}

/* One row per thread and pass: many short rows, or columns side by side. */
static __global__ void __launch_bounds__(128) arg_reduce_columns(const trm_order_args args)
{
    begin_overlapped();
    for (int64_t r = global_thread(); r < args.rows; r += global_threads()) {
        int64_t row = trm_order_row(&args, r);
        ranked best = ranked_of(args, row, 0);
        for (int64_t i = 1; i < args.n; i++) {
            ranked one = ranked_of(args, row, i);
            if (one.key > best.key || (args.last && one.key == best.key)) {
                best = one;
            }
        }
        args.indices[r] = best.at;
    }
}

bool trm_cuda_arg_reduce_accepts(const trm_kernel_call *call)
{
    trm_order_args args;
    return trm_arg_reduce_args_of(call, &args);
}

trm_status trm_cuda_arg_reduce_run(const trm_kernel_call *call)
{
    trm_order_args args;
    if (!trm_arg_reduce_args_of(call, &args) || args.rows == 0) {
        return TRM_OK;
    }
    if (args.n == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "arg_reduce over an axis of size 0, expected at least 1");
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (args.n <= 32 || (args.inner >= 32 && args.rows >= 8192)) {
        launch_overlapped(arg_reduce_columns, grid_for(args.rows, 128), 128, 0, stream, args);
    } else {
        unsigned threads = 32;
        while (threads < 1024 && (int64_t)threads < args.n) {
            threads *= 2;
        }
        launch_overlapped(arg_reduce_rows, (unsigned)(args.rows < 1 << 20 ? args.rows : 1 << 20), threads,
                          threads * sizeof(ranked), stream, args);
    }
    return trm_cuda_launched("cuda.arg_reduce");
}

/* ---- topk ---- */

#define TOPK_THREADS 256
#define SORT_SHARED  2048 /* 32 KiB */

static int64_t power_of_two(int64_t n)
{
    int64_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

/* Sorts n, a power of two, best first. Every thread of the block calls it. */
static __device__ void sort_ranked(ranked *list, int64_t n)
{
    for (int64_t run = 2; run <= n; run *= 2) {
        for (int64_t step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int64_t i = threadIdx.x; i < n / 2; i += blockDim.x) {
                int64_t a = i / step * 2 * step + i % step, b = a + step;
                bool falls = (a & run) == 0;
                ranked x = list[a], y = list[b];
                if (better(y, x) == falls) {
                    list[a] = y;
                    list[b] = x;
                }
            }
        }
    }
    __syncthreads();
}

/* The key of the k-th best of a row, and in *above how many are better than that key. */
static __device__ unsigned long long select_key(const trm_order_args &args, int64_t row, int64_t *above)
{
    __shared__ unsigned long long counts[256]; /* of elements whose next digit is this */
    __shared__ unsigned long long chosen;
    __shared__ int64_t passed;
    unsigned long long prefix = 0;
    int64_t better_ones = 0;
    for (int shift = args.size * 8 - 8; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += blockDim.x) {
            counts[i] = 0;
        }
        __syncthreads();
        for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
            unsigned long long key = ranked_of(args, row, i).key;
            if (shift + 8 >= args.size * 8 || key >> (shift + 8) == prefix) {
                atomicAdd(&counts[key >> shift & 255], 1ull);
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int64_t total = better_ones;
            int digit = 255;
            while (digit > 0 && total + (int64_t)counts[digit] < args.k) {
                total += (int64_t)counts[digit--];
            }
            chosen = prefix << 8 | (unsigned)digit;
            passed = total;
        }
        __syncthreads();
        prefix = chosen;
        better_ones = passed;
        __syncthreads();
    }
    *above = better_ones;
    return prefix;
}

/* Puts the k best of a row into the list: those above the key in any order, then the first of those equal to it. */
static __device__ void gather_best(const trm_order_args &args, int64_t row, unsigned long long key, int64_t above,
                                   ranked *list)
{
    __shared__ unsigned long long taken, equal_before;
    __shared__ int equal_of_warp[TOPK_THREADS / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) {
        taken = equal_before = 0;
    }
    __syncthreads();
    for (int64_t first = 0; first < args.n; first += blockDim.x) {
        int64_t i = first + threadIdx.x;
        ranked one = {0, 0};
        bool equal = false;
        if (i < args.n) {
            one = ranked_of(args, row, i);
            equal = one.key == key;
            if (one.key > key) {
                list[atomicAdd(&taken, 1ull)] = one;
            }
        }
        unsigned votes = __ballot_sync(0xffffffffu, equal);
        if (lane == 0) {
            equal_of_warp[warp] = __popc(votes);
        }
        __syncthreads();
        int64_t at = (int64_t)equal_before + __popc(votes & ((1u << lane) - 1));
        int64_t total = (int64_t)equal_before;
        for (int w = 0; w < TOPK_THREADS / 32; w++) {
            at += w < warp ? equal_of_warp[w] : 0;
            total += equal_of_warp[w];
        }
        if (equal && above + at < args.k) {
            list[above + at] = one;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            equal_before = (unsigned long long)total;
        }
        __syncthreads();
    }
}

/* One row per block and pass. `room`: the power of two the list is filled up to for the sort, in shared memory if
 * `scratch` is NULL, else there, room for every block. */
static __global__ void __launch_bounds__(TOPK_THREADS)
    topk_rows(const trm_order_args args, ranked *scratch, int64_t room)
{
    extern __shared__ ranked shared_list[];
    ranked *list = scratch != NULL ? scratch + blockIdx.x * room : shared_list;
    begin_overlapped();
    for (int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
        int64_t row = trm_order_row(&args, r);
        int64_t above;
        unsigned long long key = select_key(args, row, &above);
        gather_best(args, row, key, above, list);
        for (int64_t i = args.k + threadIdx.x; i < room; i += blockDim.x) {
            ranked none = {0, INT64_MAX};
            list[i] = none;
        }
        sort_ranked(list, room);
        int64_t outer = r / args.inner, to = outer * args.k * args.inner + (r - outer * args.inner);
        for (int64_t i = threadIdx.x; i < args.k; i += blockDim.x) {
            args.indices[to + i * args.inner] = list[i].at;
            trm_element_move(args.size, args.values, to + i * args.inner, args.x, row + list[i].at * args.inner);
        }
        __syncthreads();
    }
}

/* Blocks, so that the workspace of long lists stays bounded. */
static int64_t topk_blocks(const trm_order_args *args)
{
    int64_t most = args->k > SORT_SHARED ? 132 : 1 << 20;
    return args->rows < most ? args->rows : most;
}

bool trm_cuda_topk_accepts(const trm_kernel_call *call)
{
    trm_order_args args;
    return trm_topk_args_of(call, &args);
}

size_t trm_cuda_topk_workspace(const trm_kernel_call *call)
{
    trm_order_args args;
    if (!trm_topk_args_of(call, &args) || args.k <= SORT_SHARED) {
        return 0;
    }
    return (size_t)(topk_blocks(&args) * power_of_two(args.k)) * sizeof(ranked);
}

trm_status trm_cuda_topk_run(const trm_kernel_call *call)
{
    trm_order_args args;
    if (!trm_topk_args_of(call, &args) || args.rows == 0 || args.k == 0) {
        return TRM_OK;
    }
    int64_t room = power_of_two(args.k);
    bool shared = args.k <= SORT_SHARED;
    launch_overlapped(topk_rows, (unsigned)topk_blocks(&args), TOPK_THREADS, shared ? room * sizeof(ranked) : 0,
                      trm_cuda_stream(call->stream), args, shared ? (ranked *)NULL : (ranked *)call->workspace, room);
    return trm_cuda_launched("cuda.topk");
}
