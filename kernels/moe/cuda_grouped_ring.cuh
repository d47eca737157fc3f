/*
 * How operands of the products in cuda_grouped.cuh come: what a kernel's tiles are, the ring of stages in shared
 * memory, and the warp group that fills it.
 */
#ifndef TRM_KERNELS_MOE_CUDA_GROUPED_RING_CUH
#define TRM_KERNELS_MOE_CUDA_GROUPED_RING_CUH

#include <type_traits>

#include "kernels/dequant/cuda_load.cuh"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/cuda/wgmma_f8.cuh"
#include "kernels/moe/cuda_experts.cuh"
#include "kernels/moe/cuda_f4.cuh"
#include "kernels/moe/cuda_moe.h"

#define TILE_M      128 /* rows of the weight */
#define TILE_K      64  /* elements of the inner dimension of a stage: 128 bytes */
#define ROW_BYTES   (TILE_K * 2)
#define MOST_SCALES 224 /* of a row of MXFP4 */
#define SPLIT_K     128 /* elements of a stage where tokens are of e4m3 */
#define SPLIT_MOST  96  /* scales of a row of MXFP4 there */
#define CONSUMERS   8   /* warps */
#define THREADS     (128 + CONSUMERS * 32)

/* What a kernel makes of its product. */
enum grouped_part {
    PART_GATED, /* h, from rows of gate and up */
    PART_UP,    /* h, without a gate */
    PART_DOWN   /* parts of the sum */
};

/* Up to ROWS tokens per tile. SPLIT: tokens come as numbers of e4m3, see cuda_split.cuh. */
template <int ROWS, int STAGES, trm_moe_format FORMAT = TRM_MOE_HALVES, int CLUSTER = ROWS >= 128 ? 2 : 1,
          bool SPLIT = false>
struct tile_form {
    static const int rows = ROWS, stages = STAGES;
    static const int cluster = CLUSTER; /* blocks that share a tile of tokens */
    static const bool halves = FORMAT == TRM_MOE_HALVES, f4 = FORMAT == TRM_MOE_MXFP4, split = SPLIT;
    static const int box = split && ROWS <= 32 ? 8 : ROWS < 32 ? ROWS : 32; /* rows of a tensor copy of tokens */
    static const int k = split ? SPLIT_K : TILE_K;                          /* elements of a stage */
    static const int packed = halves ? 1 : f4 ? 4 : 2;                      /* numbers of the weight in 2 bytes */
    static const int step = halves ? 32 : 64;                               /* of widths, from 128 rows on */
    static const int row_bytes = 2 * k / packed, weight_bytes = TILE_M * row_bytes; /* of a stage */
    static const int stage_bytes = weight_bytes + ROWS * 2 * k;
    static const int most_scales = !f4 ? 0 : split ? SPLIT_MOST : MOST_SCALES;             /* of a row */
    static const int scales_at = STAGES * stage_bytes, scale_bytes = TILE_M * most_scales; /* of a tile */
    static const int barriers_at = scales_at + 2 * scale_bytes, staged_at = barriers_at + 16 * STAGES + 32;
    static const int together = ROWS < 64 ? ROWS : 64;         /* tokens whose outputs are staged at a time */
    static const int info_at = staged_at + 2 * 128 * together; /* 128 bytes of outputs per token and warp group */
    static const int blocks = !halves && ROWS <= (split && f4 ? 32 : 64) ? 2 : 1; /* on a multiprocessor */
    static const int shared = info_at + 2 * 8 * ROWS + 1024;                      /* 1024: to align the panels */
    static_assert(shared <= (blocks == 2 ? 113 : 227) * 1024, "room");
};

typedef struct grouped_args {
    trm_moe_experts p;
    trm_moe_order order;
    const void *x;      /* rows of `inner` elements */
    const float *units; /* of split tokens, by rows */
    const void *scale;  /* of the weight, MXFP4 */
    void *out;          /* h [pairs, width] in sorted order; or parts [pairs, hidden] in the order of pairs */
    int32_t inner;      /* elements of a row of the weight */
    int32_t outputs;    /* of the product, after the gate */
    int32_t tiles_m, blocks_k;
    gate_form gate;
    bool simple; /* the gate is silu(g) * u, without biases and limits */
} grouped_args;

typedef struct grouped_maps {
    CUtensorMap weight, tokens; /* tokens: where they lie in their order */
} grouped_maps;

/* Addresses in shared memory. */
template <typename F> struct tile_ring {
    uint32_t stages;
    __device__ __forceinline__ uint32_t stage(int i) const
    {
        return stages + i * F::stage_bytes;
    }
    __device__ __forceinline__ uint32_t full(int i) const
    {
        return stages + F::barriers_at + 8 * i;
    }
    __device__ __forceinline__ uint32_t empty(int i) const
    {
        return stages + F::barriers_at + 8 * (F::stages + i);
    }
    /* Two tiles' scales, and the barriers of both. */
    __device__ __forceinline__ uint32_t scales(int i) const
    {
        return stages + F::scales_at + i * F::scale_bytes;
    }
    __device__ __forceinline__ uint32_t scales_full(int i) const
    {
        return stages + F::barriers_at + 16 * F::stages + 8 * i;
    }
    __device__ __forceinline__ uint32_t scales_empty(int i) const
    {
        return stages + F::barriers_at + 16 * F::stages + 16 + 8 * i;
    }
};

/* Which of the two a tile's scales are in, and the parity of its barriers. */
struct scale_place {
    int which = 0;
    uint32_t parity;
    __device__ __forceinline__ scale_place(uint32_t first) : parity(first)
    {
    }
    __device__ __forceinline__ void next(void)
    {
        which ^= 1;
        parity ^= which == 0;
    }
};

template <typename F> struct ring_place {
    int stage = 0;
    uint32_t parity;
    __device__ __forceinline__ ring_place(uint32_t first) : parity(first)
    {
    }
    __device__ __forceinline__ void next(void)
    {
        stage = stage + 1 == F::stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

/* A tile of tokens, and one of the weight's rows. Tiles of an expert's tokens are next to each other, so that they are
 * computed at the same time and the weight is read once. */
struct work_item {
    trm_moe_tile tile;
    int32_t tile_m; /* of a cluster's second block it may lie behind the last */
};

static __device__ __forceinline__ trm_moe_tile load_tile(const grouped_args &a, int32_t i)
{
    const int32_t *from = (const int32_t *)(a.order.tiles + i);
    const trm_moe_tile tile = {__ldcg(from), __ldcg(from + 1), __ldcg(from + 2), __ldcg(from + 3), __ldcg(from + 4)};
    return tile;
}

template <typename F> static __device__ __forceinline__ work_item find_item(const grouped_args &a, int32_t item)
{
    const trm_moe_tile any = load_tile(a, item / a.tiles_m);
    const int32_t of_expert = item - any.first * a.tiles_m;
    work_item found;
    found.tile = any.tiles == 1 ? any : load_tile(a, any.first + of_expert % any.tiles);
    found.tile_m = of_expert / any.tiles * F::cluster + (int32_t)blockIdx.x % F::cluster;
    return found;
}

/* ---- bringing operands ---- */

/* One box of a tensor of five dimensions. */
static __device__ __forceinline__ void copy_box5(uint32_t to, const CUtensorMap *map, int32_t x, int32_t group,
                                                 int32_t expert, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %3, "
                 "%4, %5}], [%6];"
                 :
                 : "r"(to), "l"(map), "r"(x), "r"(0), "r"(group), "r"(expert), "r"(barrier)
                 : "memory");
}

/* One box of tokens, into the same place of all blocks of the cluster. */
template <typename F>
static __device__ __forceinline__ void copy_tokens(uint32_t to, const CUtensorMap *map, int32_t x, int32_t y,
                                                   uint32_t barrier)
{
    if (F::cluster == 1) {
        copy_box(to, map, x, y, 0, barrier);
        return;
    }
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%2, %3, %4}], [%5], %6;"
                 :
                 : "r"(to), "l"(map), "r"(x), "r"(y), "r"(0), "r"(barrier), "h"((uint16_t)((1 << F::cluster) - 1))
                 : "memory");
}

template <typename F, int PART>
static __device__ __forceinline__ void bring_weight(uint32_t to, const grouped_maps &maps, int32_t block,
                                                    int32_t tile_m, int32_t expert, uint32_t barrier)
{
    const int32_t x = block * (F::k / F::packed); /* maps are of 2 bytes */
    if (PART == PART_GATED) {
        copy_box5(to, &maps.weight, x, tile_m * (TILE_M / 16), expert, barrier);
    } else {
        copy_box(to, &maps.weight, x, tile_m * TILE_M, expert, barrier);
    }
}

static __device__ __forceinline__ void copy_bytes(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :
                 : "r"(to), "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* The scales of a tile of the weight as they are stored; gates and ups apart from each other in two halves. */
template <typename F, int PART>
static __device__ __forceinline__ void bring_scales(const grouped_args &a, const tile_ring<F> &r, scale_place &place,
                                                    int32_t expert, int32_t tile_m)
{
    const uint32_t full = r.scales_full(place.which), to = r.scales(place.which);
    const int32_t row_scales = a.inner / 32, halves = PART == PART_GATED ? 2 : 1, most = TILE_M / halves;
    const int32_t rows = max(0, min(most, a.outputs - tile_m * most)), bytes = rows * row_scales;
    const uint8_t *from =
        (const uint8_t *)a.scale + (expert * (int64_t)a.outputs * halves + (int64_t)tile_m * most) * row_scales;
    barrier_wait(r.scales_empty(place.which), place.parity);
    barrier_arrive_expect(full, (uint32_t)(bytes * halves));
    if (bytes > 0 && PART == PART_GATED && a.p.interleaved) {
        copy_bytes(to, from + (int64_t)tile_m * most * row_scales, (uint32_t)(2 * bytes), full);
    } else if (bytes > 0) {
        copy_bytes(to, from, (uint32_t)bytes, full);
        if (PART == PART_GATED) {
            copy_bytes(to + most * row_scales, from + (int64_t)a.p.width * row_scales, (uint32_t)bytes, full);
        }
    }
    place.next();
}

/* Into a stage: the weight. The barrier expects it and `boxes` boxes of tokens. */
template <typename F, int PART>
static __device__ __forceinline__ void bring_weight_of(const grouped_maps &maps, const tile_ring<F> &r, int stage,
                                                       int32_t block, const work_item &item, int boxes)
{
    barrier_arrive_expect(r.full(stage), (uint32_t)(F::weight_bytes + boxes * F::box * 2 * F::k));
    bring_weight<F, PART>(r.stage(stage), maps, block, item.tile_m, item.tile.expert, r.full(stage));
}

/* A block's part of the boxes of tokens. */
template <typename F>
static __device__ __forceinline__ void bring_boxes(const grouped_maps &maps, const tile_ring<F> &r, int stage,
                                                   int32_t block, const work_item &item, int boxes)
{
    for (int i = blockIdx.x % F::cluster; i < boxes; i += F::cluster) {
        const uint32_t to = r.stage(stage) + F::weight_bytes + i * F::box * ROW_BYTES;
        const int32_t row = item.tile.row + i * F::box;
        if (F::split) { /* a row's lower parts are behind its upper ones */
            copy_box(to, &maps.tokens, block * TILE_K, row, 0, r.full(stage));
            copy_box(to + F::rows * ROW_BYTES, &maps.tokens, block * TILE_K, row, 1, r.full(stage));
        } else {
            copy_tokens<F>(to, &maps.tokens, block * TILE_K, row, r.full(stage));
        }
    }
}

/* Tokens that lie together, and the weight: by one thread. Where the kernel before splits tokens, it begins when their
 * order is known; then the first weights, if they are constant, are on their way before it ends. */
template <typename F, int PART>
static __device__ void bring_sorted(const grouped_args &a, const grouped_maps &maps, const tile_ring<F> &r)
{
    bool early = F::split && a.p.constant_weights;
    if (!early) {
        wait_for_previous();
    }
    const int32_t items = __ldcg(a.order.tiles_n) * a.tiles_m;
    ring_place<F> at(1); /* of a new barrier the phase of parity 1 has ended */
    scale_place scales(1);
    for (int32_t item = blockIdx.x / F::cluster; item < items; item += gridDim.x / F::cluster) {
        const work_item found = find_item<F>(a, item);
        const int boxes = (found.tile.rows + F::box - 1) / F::box;
        int32_t block = 0;
        if (F::f4) {
            bring_scales<F, PART>(a, r, scales, found.tile.expert, found.tile_m);
        }
        if (early) {
            const int32_t ahead = min(F::stages, a.blocks_k);
            for (int32_t i = 0; i < ahead; i++) {
                bring_weight_of<F, PART>(maps, r, i, i, found, boxes);
            }
            wait_for_previous();
            for (; block < ahead; block++, at.next()) {
                bring_boxes<F>(maps, r, block, block, found, boxes);
            }
            early = false;
        }
        for (; block < a.blocks_k; block++, at.next()) {
            barrier_wait(r.empty(at.stage), at.parity);
            bring_weight_of<F, PART>(maps, r, at.stage, block, found, boxes);
            bring_boxes<F>(maps, r, at.stage, block, found, boxes);
        }
    }
}

/* Arrives when this thread's copies of 16 bytes so far have ended. */
static __device__ __forceinline__ void barrier_arrive_behind_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}

/* x of tokens, from wherever they are, and the weight: by a warp group, of which 8 threads have a row at a time. Those
 * who use a stage make its copies visible to the tensor cores: a fence here would wait for copies in flight. */
template <typename T, typename F, int PART>
static __device__ void bring_scattered(const grouped_args &a, const grouped_maps &maps, const tile_ring<F> &r)
{
    const int32_t items = *a.order.tiles_n * a.tiles_m;
    const int thread = threadIdx.x, chunk = thread & 7;
    ring_place<F> at(1);
    scale_place scales(1);
    for (int32_t item = blockIdx.x / F::cluster; item < items; item += gridDim.x / F::cluster) {
        const work_item found = find_item<F>(a, item);
        const trm_moe_tile tile = found.tile;
        int32_t token[F::rows / 16];
#pragma unroll
        for (int i = 0; i < F::rows / 16; i++) {
            const int row = (thread >> 3) + 16 * i;
            token[i] = row < tile.rows ? a.order.pairs[tile.row + row] : -1;
        }
        if (F::f4 && thread == 0) {
            bring_scales<F, PART>(a, r, scales, tile.expert, found.tile_m);
        }
#pragma unroll
        for (int i = 0; i < F::rows / 16; i++) {
            token[i] = token[i] >= 0 ? token[i] / a.p.k : -1;
        }
        for (int32_t block = 0; block < a.blocks_k; block++) {
            const uint32_t to = r.stage(at.stage), full = r.full(at.stage);
            const int32_t k0 = block * TILE_K + chunk * 8;
            barrier_wait(r.empty(at.stage), at.parity);
            if (thread == 0) {
                barrier_arrive_expect(full, F::weight_bytes);
                bring_weight<F, PART>(to, maps, block, found.tile_m, tile.expert, full);
            }
#pragma unroll
            for (int i = 0; i < F::rows / 16; i++) {
                if (16 * i < tile.rows) {
                    const int row = (thread >> 3) + 16 * i;
                    const bool valid = token[i] >= 0 && k0 < a.inner;
                    const T *from = (const T *)a.x + (valid ? token[i] * (int64_t)a.inner + k0 : 0);
                    copy16_async(to + F::weight_bytes + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4), from, valid);
                }
            }
            barrier_arrive_behind_copies(full);
            at.next();
        }
    }
    asm volatile("cp.async.wait_all;" : : : "memory"); /* they arrive at barriers of this block */
}

#endif
