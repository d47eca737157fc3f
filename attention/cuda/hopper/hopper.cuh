/*
 * The kernel of hopper.cu and f8.cu: attention of packed sequences with Hopper's warp group products (Shah et
 * al. 2024, "FlashAttention-3"), and its launch. What a block shares is in shape.cuh, its loading warps in
 * load.cuh, its computing ones in compute.cuh.
 */
#ifndef TRM_ATTENTION_CUDA_HOPPER_HOPPER_CUH
#define TRM_ATTENTION_CUDA_HOPPER_HOPPER_CUH

#include "attention/cuda/hopper/compute.cuh"
#include "attention/cuda/hopper/load.cuh"
#include "kernels/cuda/hopper.h"

/*
 * A block takes tile after tile of ROWS queries of one sequence (of `pack` neighbouring heads together): two warps load
 * queries, keys and values by tensor copies into rings of STAGES tiles, GROUPS warp groups compute 64 rows each. In a
 * warp group the product of queries and the next keys runs ahead of the softmax, whose weights meet the values while
 * the next softmax is computed; with PINGPONG, warp groups issue their products in turn. Keys pass from the last seen
 * to the first: masks are needed at the ends alone. Shared memory and registers: see hopper_shape. Bound by the tensor
 * cores, and in long runs by the power the GPU may draw: 687 TFLOP/s at 8192 tokens, 601 at 32768 (H200, bf16, 32 heads
 * of 128 over 8, causal, random data; bench_attention) of about 800 that a matrix product reaches.
 */
template <typename T, typename S, bool CAP, bool PINGPONG>
static __global__ void __launch_bounds__(S::THREADS, 1)
    hopper_tiles(const __grid_constant__ hopper_call c, const __grid_constant__ hopper_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char memory[];
    unsigned char *base = memory + (-shared_address(memory) & 1023);
    hopper_shared<S> shared;
    shared.q = shared_address(base);
    shared.k = shared.q + S::GROUPS * S::Q_BYTES;
    shared.v = shared.k + S::STAGES * S::TILE_BYTES;
    shared.tiles = shared.q + S::TILES_AT;
    shared.barriers = shared.q + S::BARRIERS_AT;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (threadIdx.x == 0) {
        prefetch_map(&maps.q);
        if (!S::F8) {
            prefetch_map(&maps.k_tiles);
            prefetch_map(&maps.v_tiles);
        }
        for (int stage = 0; stage < S::STAGES; stage++) {
            barrier_init(shared.k_full(stage), S::LOADERS);
            barrier_init(shared.v_full(stage), S::LOADERS);
            barrier_init(shared.k_empty(stage), 4 * S::GROUPS);
            barrier_init(shared.v_empty(stage), 4 * S::GROUPS);
        }
        for (int group = 0; group < S::GROUPS; group++) {
            barrier_init(shared.q_full(group), 1);
            barrier_init(shared.q_empty(group), 4);
        }
        for (int slot = 0; slot < 2; slot++) {
            barrier_init(shared.tile_full(slot), 1);
            barrier_init(shared.tile_empty(slot), 4 * S::GROUPS + 2 * S::LOADERS - 1);
        }
        barrier_init(shared.tail_full(), 1);
        barrier_init_done();
    }
    __syncthreads();
    begin_overlapped();
    if (warp < 4) {
        registers_shrink<S::LOAD_REGISTERS>();
        if (warp == 0) {
            load_queries_keys<T, S>(c, maps, shared, base + S::TILES_AT, lane);
        } else if constexpr (S::F8) { /* warps 0 and 2 keys, 1 and 3 values */
            expand_tiles<T, S>(c, shared, base + S::TILES_AT, warp == 2, warp / 2, lane);
        } else if (warp == 1) {
            load_values<S>(c, maps, shared, base + S::TILES_AT, lane);
        }
    } else {
        registers_grow<S::REGISTERS>();
        compute_all<T, S, CAP, PINGPONG>(c, shared, base + S::TILES_AT, warp / 4 - 1, lane);
    }
#endif /* else never launched */
}

/* ---- launching ---------------------------------------------------------------------------------- */

/* hopper.cu: a counter set to 0. */
void trm_cuda_hopper_clear(uint32_t *counter, cudaStream_t stream);

/* The map of vectors [rows, heads, dim] of 16-bit elements in boxes of a panel's columns, `box_heads` heads and
 * `box_rows` rows. */
static inline trm_status hopper_map(CUtensorMap *map, const void *data, int64_t rows, int32_t heads, int32_t dim,
                                    int32_t columns, int32_t box_heads, int32_t box_rows, trm_dtype dtype)
{
    const cuuint64_t dims[3] = {(cuuint64_t)dim, (cuuint64_t)heads, (cuuint64_t)rows};
    const cuuint64_t strides[2] = {(cuuint64_t)dim * 2, (cuuint64_t)heads * (cuuint64_t)dim * 2};
    const cuuint32_t box[3] = {(cuuint32_t)columns, (cuuint32_t)box_heads, (cuuint32_t)box_rows};
    return trm_cuda_tensor_map(map, data, 3, dims, strides, box,
                               columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B, dtype);
}

template <typename T, typename S, bool CAP, bool PINGPONG>
static trm_status run_hopper(const hopper_call *call, const hopper_maps *maps, int blocks, cudaStream_t stream)
{
    TRM_CUDA_TRY(cudaFuncSetAttribute(hopper_tiles<T, S, CAP, PINGPONG>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      S::SHARED));
    launch_overlapped(hopper_tiles<T, S, CAP, PINGPONG>, dim3((unsigned)blocks), dim3(S::THREADS), (size_t)S::SHARED,
                      stream, *call, *maps);
    return trm_cuda_launched("cuda.attention hopper");
}

template <typename T, typename S, bool CAP, bool PINGPONG>
static trm_status launch_hopper(const hopper_call *call, int blocks, cudaStream_t stream)
{
    const trm_cuda_attention *a = &call->a;
    hopper_maps maps;
    TRM_TRY(hopper_map(&maps.q, a->q, a->tokens, a->query_heads, a->dim, S::COLUMNS, call->pack, 64 / call->pack,
                       a->dtype));
    if constexpr (S::F8) { /* read without maps */
        maps.k_boxes = maps.v_boxes = maps.k_tiles = maps.v_tiles = maps.q;
    } else if constexpr (S::LATENT) {
        TRM_TRY(
            hopper_map(&maps.k_tiles, a->k, a->tokens, a->query_heads, S::DP - 64 + S::VP, 64, 1, S::KEYS, a->dtype));
        TRM_TRY(hopper_map(&maps.k_boxes, a->v, a->tokens, 1, 64, 64, 1, S::KEYS, a->dtype));
        maps.v_boxes = maps.v_tiles = maps.k_tiles;
    } else {
        const int64_t rows = a->cached ? a->cache_rows : a->packed ? a->tokens : (int64_t)a->sequences * a->keys;
        const void *k = a->cached ? a->key_cache : a->k, *v = a->cached ? a->value_cache : a->v;
        const int32_t columns = S::COLUMNS, boxes = call->box_keys;
        TRM_TRY(hopper_map(&maps.k_boxes, k, rows, a->kv_heads, a->dim, columns, 1, boxes, a->dtype));
        TRM_TRY(hopper_map(&maps.v_boxes, v, rows, a->kv_heads, a->dim, columns, 1, boxes, a->dtype));
        TRM_TRY(hopper_map(&maps.k_tiles, k, rows, a->kv_heads, a->dim, columns, 1, S::KEYS, a->dtype));
        TRM_TRY(hopper_map(&maps.v_tiles, v, rows, a->kv_heads, a->dim, columns, 1, S::KEYS, a->dtype));
    }
    return run_hopper<T, S, CAP, PINGPONG>(call, &maps, blocks, stream);
}

static inline int32_t common_divisor(int32_t a, int32_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

template <typename T, typename S, bool PINGPONG>
static trm_status launch_shape(const trm_cuda_attention *a, cudaStream_t stream)
{
    hopper_call call;
    call.a = *a;
    call.box_keys = a->cached ? common_divisor(S::KEYS, a->block_size) : S::KEYS;
    call.pack = 64 % a->group == 0 ? a->group : 1;
    /* The tiles of one sequence are dealt out as evenly as first come, first served would. */
    call.next = a->sequences > 1 ? a->next_tile : NULL;
    if (call.next != NULL && !a->cached) {
        trm_cuda_hopper_clear(call.next, stream);
    }
    int blocks = trm_cuda_hopper_processors();
    return a->softcap > 0.0f ? launch_hopper<T, S, true, PINGPONG>(&call, blocks, stream)
                             : launch_hopper<T, S, false, PINGPONG>(&call, blocks, stream);
}

#endif
