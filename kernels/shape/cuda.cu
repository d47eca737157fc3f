/*
 * Kernels whose dims follow from values or from data: shape, expand, tile, range (one element per thread, bound by
 * device memory; the functions of one element are in element.h), non_zero and unique (a few passes; they are
 * rare, and written to be right rather than fast).
 */
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_list.h"
#include "kernels/shape/element.h"
#include "kernels/shape/unique.h"

bool trm_cuda_shape_accepts(const trm_kernel_call *call)
{
    trm_shape_args args;
    return trm_shape_args_of(call, &args);
}

trm_status trm_cuda_shape_run(const trm_kernel_call *call)
{
    trm_shape_args args;
    if (!trm_shape_args_of(call, &args)) {
        return TRM_OK;
    }
    return launch_elements<trm_shape_args, trm_element_shape>(call, args, args.sizes.n, "cuda.shape");
}

TRM_CUDA_PLACED_ELEMENT_KERNEL(repeat)
TRM_CUDA_ELEMENT_KERNEL(range)

/* ---- sums up to each place --------------------------------------------------------------------- */

#define SCAN_THREADS 1024

/* Sum of x over the threads up to this one, itself included, of a block of SCAN_THREADS; *total the whole. */
static __device__ int64_t block_scan(int64_t x, int64_t *total)
{
    __shared__ int64_t sums[SCAN_THREADS / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int offset = 1; offset < 32; offset *= 2) {
        int64_t below = __shfl_up_sync(0xffffffffu, x, offset);
        x += lane >= offset ? below : 0;
    }
    __syncthreads(); /* the last call's readers are done */
    if (lane == 31) {
        sums[warp] = x;
    }
    __syncthreads();
    int64_t before = 0, all = 0;
    for (int w = 0; w < SCAN_THREADS / 32; w++) {
        before += w < warp ? sums[w] : 0;
        all += sums[w];
    }
    *total = all;
    return before + x;
}

/* sums[i] = flags[0] + .. + flags[i], the last left out if `exclusive`; *total the sum of all. One block. */
static __global__ void __launch_bounds__(SCAN_THREADS)
    scan_all(const int64_t *flags, int64_t *sums, int64_t n, bool exclusive, int64_t *total)
{
    int64_t carried = 0;
    for (int64_t base = 0; base < n; base += SCAN_THREADS) {
        int64_t i = base + threadIdx.x, flag = i < n ? flags[i] : 0, all;
        int64_t sum = carried + block_scan(flag, &all);
        if (i < n) {
            sums[i] = sum - (exclusive ? flag : 0);
        }
        carried += all;
    }
    if (threadIdx.x == 0 && total != NULL) {
        *total = carried;
    }
}

/* ---- non_zero ---------------------------------------------------------------------------------- */

#define CHUNK (8 * SCAN_THREADS) /* elements of a block */

static __global__ void __launch_bounds__(SCAN_THREADS)
    count_non_zero(trm_dtype dtype, const void *x, int64_t n, int64_t *counts)
{
    int64_t found = 0, all;
    for (int64_t i = (int64_t)blockIdx.x * CHUNK + threadIdx.x; i < n && i < ((int64_t)blockIdx.x + 1) * CHUNK;
         i += SCAN_THREADS) {
        found += !trm_element_is_zero(dtype, x, i);
    }
    block_scan(found, &all);
    if (threadIdx.x == 0) {
        counts[blockIdx.x] = all;
    }
}

static __global__ void __launch_bounds__(SCAN_THREADS)
    list_non_zero(trm_dtype dtype, const void *x, trm_dims dims, int64_t n, const int64_t *before, const int64_t *total,
                  int64_t *y)
{
    int64_t at = before[blockIdx.x], count = *total;
    for (int64_t base = (int64_t)blockIdx.x * CHUNK; base < n && base < ((int64_t)blockIdx.x + 1) * CHUNK;
         base += SCAN_THREADS) {
        int64_t i = base + threadIdx.x, all, place[TRM_MAX_DIMS];
        bool found = i < n && !trm_element_is_zero(dtype, x, i);
        int64_t to = at + block_scan(found, &all) - 1;
        if (found) {
            trm_element_place(&dims, i, place);
            for (int axis = 0; axis < dims.n; axis++) {
                y[axis * count + to] = place[axis];
            }
        }
        at += all;
    }
}

bool trm_cuda_non_zero_accepts(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    return call->n_inputs == 1 && call->n_outputs == 2 && trm_dtype_size(x->dtype) > 0 && y->dtype == TRM_I64 &&
           y->dims.n == 2 && call->outputs[1].dtype == TRM_I64 && trm_dims_count(&x->dims) / CHUNK < INT32_MAX;
}

/* A number per block, and sums of them. */
size_t trm_cuda_non_zero_workspace(const trm_kernel_call *call)
{
    int64_t blocks = (trm_dims_count(&call->inputs[0].dims) + CHUNK - 1) / CHUNK;
    return 2 * (size_t)blocks * sizeof(int64_t);
}

trm_status trm_cuda_non_zero_run(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0];
    int64_t n = trm_dims_count(&x->dims), blocks = (n + CHUNK - 1) / CHUNK;
    int64_t *counts = (int64_t *)call->workspace, *before = counts + blocks, *total = (int64_t *)call->outputs[1].data;
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (n == 0) {
        return trm_stream_fill_zero(call->stream, total, sizeof(*total));
    }
    count_non_zero<<<(unsigned)blocks, SCAN_THREADS, 0, stream>>>(x->dtype, x->data, n, counts);
    scan_all<<<1, SCAN_THREADS, 0, stream>>>(counts, before, blocks, true, total);
    list_non_zero<<<(unsigned)blocks, SCAN_THREADS, 0, stream>>>(x->dtype, x->data, x->dims, n, before, total,
                                                                 (int64_t *)call->outputs[0].data);
    return trm_cuda_launched("cuda.non_zero");
}

/* ---- unique ------------------------------------------------------------------------------------ */

/* Numbers of the workspace: slices in order [padded to a power of 2], and [n] each the rest. */
typedef struct unique_lists {
    int64_t *order;  /* slices by value; -1 where padded, behind all */
    int64_t *flags;  /* whether a place, or a slice, is the first of its kind */
    int64_t *groups; /* of places: how many kinds are before or here */
    int64_t *ranks;  /* of slices: how many first ones are before */
    int64_t *slots;  /* of groups: position among the results */
    int64_t *begins; /* of groups: first place */
} unique_lists;

static int64_t padded_size(int64_t n)
{
    int64_t size = 1;
    while (size < n) {
        size *= 2;
    }
    return size;
}

static __global__ void start_order(int64_t *order, int64_t n, int64_t padded)
{
    for (int64_t i = global_thread(); i < padded; i += global_threads()) {
        order[i] = i < n ? i : -1;
    }
}

static __device__ bool is_after(const trm_unique_args *args, int64_t a, int64_t b)
{
    if (a < 0 || b < 0) {
        return a < 0 && b >= 0;
    }
    int by_value = trm_unique_compare(args, a, b);
    return by_value > 0 || (by_value == 0 && a > b);
}

/* One pass of a bitonic sort: pairs at distance `step` in runs of `run`. */
static __global__ void sort_pass(trm_unique_args args, int64_t *order, int64_t padded, int64_t run, int64_t step)
{
    for (int64_t i = global_thread(); i < padded; i += global_threads()) {
        int64_t other = i ^ step;
        if (other > i && is_after(&args, order[i], order[other]) == ((i & run) == 0)) {
            int64_t moved = order[i];
            order[i] = order[other];
            order[other] = moved;
        }
    }
}

static __global__ void flag_places(trm_unique_args args, unique_lists lists)
{
    for (int64_t p = global_thread(); p < args.n; p += global_threads()) {
        lists.flags[p] = p == 0 || trm_unique_compare(&args, lists.order[p - 1], lists.order[p]) != 0;
    }
}

/* From flags and groups of places to begins of groups. */
static __global__ void begin_groups(int64_t n, unique_lists lists)
{
    for (int64_t p = global_thread(); p < n; p += global_threads()) {
        if (lists.flags[p] != 0) {
            lists.begins[lists.groups[p] - 1] = p;
        }
    }
}

static __global__ void flag_slices(int64_t n, unique_lists lists)
{
    for (int64_t p = global_thread(); p < n; p += global_threads()) {
        lists.flags[lists.order[p]] = p == lists.begins[lists.groups[p] - 1];
    }
}

static __global__ void write_groups(trm_unique_args args, unique_lists lists)
{
    int64_t count = *args.count;
    for (int64_t g = global_thread(); g < count; g += global_threads()) {
        int64_t begin = lists.begins[g], end = g + 1 < count ? lists.begins[g + 1] : args.n;
        int64_t first = lists.order[begin], slot = args.sorted ? g : lists.ranks[first];
        lists.slots[g] = slot;
        args.indices[slot] = first;
        args.counts[slot] = end - begin;
    }
}

static __global__ void write_slices(trm_unique_args args, unique_lists lists)
{
    int64_t count = *args.count, elements = args.outer * args.inner;
    for (int64_t p = global_thread(); p < args.n; p += global_threads()) {
        args.inverse[lists.order[p]] = lists.slots[lists.groups[p] - 1];
    }
    for (int64_t i = global_thread(); i < count * elements; i += global_threads()) {
        int64_t slot = i / elements;
        trm_unique_copy(&args, count, slot, args.indices[slot], i % elements);
    }
}

bool trm_cuda_unique_accepts(const trm_kernel_call *call)
{
    trm_unique_args args;
    return trm_unique_args_of(call, &args);
}

size_t trm_cuda_unique_workspace(const trm_kernel_call *call)
{
    trm_unique_args args;
    return trm_unique_args_of(call, &args) ? (size_t)(padded_size(args.n) + 5 * args.n) * sizeof(int64_t) : 0;
}

trm_status trm_cuda_unique_run(const trm_kernel_call *call)
{
    trm_unique_args args;
    if (!trm_unique_args_of(call, &args)) {
        return TRM_OK;
    }
    if (args.n == 0) {
        return trm_stream_fill_zero(call->stream, args.count, sizeof(*args.count));
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    int64_t n = args.n, padded = padded_size(n);
    unsigned grid = grid_for(padded, 256);
    unique_lists lists;
    lists.order = (int64_t *)call->workspace;
    lists.flags = lists.order + padded;
    lists.groups = lists.flags + n;
    lists.ranks = lists.groups + n;
    lists.slots = lists.ranks + n;
    lists.begins = lists.slots + n;
    start_order<<<grid, 256, 0, stream>>>(lists.order, n, padded);
    for (int64_t run = 2; run <= padded; run *= 2) {
        for (int64_t step = run / 2; step > 0; step /= 2) {
            sort_pass<<<grid, 256, 0, stream>>>(args, lists.order, padded, run, step);
        }
    }
    flag_places<<<grid, 256, 0, stream>>>(args, lists);
    scan_all<<<1, SCAN_THREADS, 0, stream>>>(lists.flags, lists.groups, n, false, args.count);
    begin_groups<<<grid, 256, 0, stream>>>(n, lists);
    flag_slices<<<grid, 256, 0, stream>>>(n, lists);
    scan_all<<<1, SCAN_THREADS, 0, stream>>>(lists.flags, lists.ranks, n, true, NULL);
    write_groups<<<grid, 256, 0, stream>>>(args, lists);
    write_slices<<<grid_for(n * args.outer * args.inner, 256), 256, 0, stream>>>(args, lists);
    return trm_cuda_launched("cuda.unique");
}
