/* The order of tokens by their experts, and the tiles of it. */
#include "kernels/cuda/cluster.cuh"
#include "kernels/moe/cuda_experts.cuh"
#include "kernels/moe/cuda_moe.h"

#define WARPS   32
#define THREADS (WARPS * 32)
#define AHEAD   8 /* ids of a lane in flight */
#define CLUSTER 8 /* blocks, for many pairs */

typedef struct sort_args {
    trm_moe_experts p;
    trm_moe_order order;
    int32_t rows;
} sort_args;

/* The sum of x over the threads before this one, and over all. Every thread of the block calls it. */
static __device__ int32_t scan(int32_t x, int32_t *scratch, int32_t *all)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int32_t sum = x;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int32_t other = __shfl_up_sync(0xffffffffu, sum, offset);
        sum += lane >= offset ? other : 0;
    }
    __syncthreads(); /* the scratch of a call before is free */
    if (lane == 31) {
        scratch[warp] = sum;
    }
    __syncthreads();
    int32_t before = 0, whole = 0;
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? scratch[w] : 0;
        whole += scratch[w];
    }
    *all = whole;
    return before + sum - x;
}

/* A word at the same place of shared memory in block `block` of the cluster. */
static __device__ __forceinline__ int32_t read_word(const int32_t *place, int block)
{
#if __CUDA_ARCH__ >= 900
    int32_t v;
    asm volatile("{ .reg .b32 at;\n"
                 "mapa.shared::cluster.u32 at, %1, %2;\n"
                 "ld.shared::cluster.b32 %0, [at]; }"
                 : "=r"(v)
                 : "r"(shared_address(place)), "r"(block)
                 : "memory");
    return v;
#else
    (void)block;
    return *place;
#endif
}

/* Counts the experts of pairs [begin, end), TURN 0, or puts these pairs in their places. By one warp, which has
 * `places` for itself: counts in turn 0, and where its next pair of an expert goes in turn 1. */
template <int TURN>
static __device__ __forceinline__ void walk(const sort_args &a, int32_t *places, int32_t begin, int32_t end, int lane)
{
    for (int32_t i0 = begin; i0 < end; i0 += 32 * AHEAD) {
        int32_t expert[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int32_t i = i0 + u * 32 + lane;
            expert[u] = i < end ? local_expert(a.p, i) : -1;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (i0 + u * 32 >= end) {
                break;
            }
            const unsigned same = __match_any_sync(0xffffffffu, expert[u]);
            const int rank = __popc(same & ((1u << lane) - 1));
            const int32_t place = expert[u] >= 0 ? places[expert[u]] : 0;
            __syncwarp();
            if (expert[u] >= 0) {
                if (rank == 0) {
                    places[expert[u]] = place + __popc(same);
                }
                if (TURN == 1) {
                    a.order.pairs[place + rank] = i0 + u * 32 + lane;
                }
            }
            __syncwarp();
        }
    }
}

/* The tiles of an expert, as even as the widths of products allow. */
static __device__ void write_tiles(const sort_args &a, int32_t expert, int32_t first, int32_t count, int32_t tile,
                                   int32_t tiles)
{
    const int32_t step = a.rows >= 128 ? 32 : 8, begin = tile;
    const int32_t even = tiles > 0 ? ((count + tiles - 1) / tiles + step - 1) / step * step : 0;
    for (int32_t row = 0; row < count; row += even) {
        const trm_moe_tile t = {expert, first + row, min(even, count - row), begin, tiles};
        a.order.tiles[tile++] = t;
    }
}

/*
 * One cluster, whose warps have a part of the pairs each. They count experts, every warp by itself; sums over blocks,
 * warps and experts give each warp its places; then they put the pairs there. 4 bytes of shared memory per warp and
 * expert. Bound by latency: 7 us for 256 pairs, 36 for
 * 65536 (ncu, H200). The order does not depend on timing.
 */
static __global__ void __launch_bounds__(THREADS) sort_pairs(const sort_args a)
{
    extern __shared__ int32_t places[]; /* [WARPS][experts], then the sums over warps [experts] */
    __shared__ int32_t scratch[WARPS];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, experts = p.experts, blocks = gridDim.x;
    const int32_t pairs = (int32_t)p.tokens * p.k, share = (pairs + THREADS * blocks - 1) / (THREADS * blocks) * 32;
    const int32_t begin = (blockIdx.x * WARPS + warp) * share, end = min(begin + share, pairs);
    int32_t *sums = places + WARPS * experts;
    for (int32_t i = threadIdx.x; i < WARPS * experts; i += THREADS) {
        places[i] = 0;
    }
    wait_for_previous();
    start_next();
    __syncthreads();
    walk<0>(a, places + warp * experts, begin, end, lane);
    __syncthreads();
    const int e = threadIdx.x;
    int32_t count = 0, before = 0, all, tiles_n;
    if (e < experts) {
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const int32_t n = places[w * experts + e];
            places[w * experts + e] = count;
            count += n;
        }
        sums[e] = count;
    }
    if (blocks > 1) {
        cluster_barrier();
        count = 0;
        for (int b = 0; e < experts && b < blocks; b++) {
            const int32_t n = read_word(sums + e, b);
            before += b < (int)blockIdx.x ? n : 0;
            count += n;
        }
        cluster_barrier(); /* no block ends while its sums may be read */
    }
    const int32_t first = scan(count, scratch, &all), tiles = (count + a.rows - 1) / a.rows;
    const int32_t tile = scan(tiles, scratch, &tiles_n);
    if (e < experts) {
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            places[w * experts + e] += first + before;
        }
        if (blockIdx.x == 0) {
            write_tiles(a, e, first, count, tile, tiles);
        }
    }
    if (e == 0 && blockIdx.x == 0) {
        *a.order.tiles_n = tiles_n;
    }
    __syncthreads();
    walk<1>(a, places + warp * experts, begin, end, lane);
}

int64_t trm_cuda_moe_most_tiles(const trm_moe_experts *p, int32_t rows)
{
    const int64_t pairs = p->tokens * p->k;
    return (pairs < p->experts ? pairs : p->experts) + pairs / rows + 1;
}

bool trm_cuda_moe_sort_accepts(const trm_moe_experts *p)
{
    return p->experts <= THREADS && p->tokens * p->k <= INT32_MAX / 2;
}

trm_status trm_cuda_moe_sort_run(const trm_moe_experts *p, const trm_moe_order *order, int32_t rows,
                                 cudaStream_t stream)
{
    const size_t shared = (size_t)(WARPS + 1) * (size_t)p->experts * sizeof(int32_t);
    const unsigned blocks = p->tokens * p->k > 4096 && trm_cuda_has_clusters() ? CLUSTER : 1;
    sort_args a;
    a.p = *p;
    a.order = *order;
    a.rows = rows;
    TRM_CUDA_TRY(cudaFuncSetAttribute(sort_pairs, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, true, blocks);
    (void)cudaLaunchKernelEx(&config, sort_pairs, a); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("moe sort");
}
