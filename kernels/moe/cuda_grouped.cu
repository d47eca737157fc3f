/*
 * Experts of many tokens on Hopper: tokens in the order of their experts (cuda_sort.cu), products over tiles of it, and
 * a sum of every token's parts in the order of its slots.
 *
 * The weight is on the left of the tensor cores' product, 128 rows to a tile, and tokens are on the right, up to 256 of
 * them; so a tile of few tokens costs what its weight costs to read, and one of many is as large as the registers let
 * it be. Blocks walk over (tile of tokens, tile of the weight) until the work list on the device ends. Of each block one
 * warp group brings operands through a ring of stages: the weight by tensor copies, tokens' rows by copies of 16 bytes
 * from wherever the tokens are. Two others have 64 rows of the weight each.
 *
 * Of a gated product a tile's rows are 8 of the gate, 8 of the up, and so on, so that both factors of an output end in
 * the same thread; a tensor map of five dimensions reads them so, however they are stored.
 */
#include "kernels/cuda/dequant_load.cuh"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/moe/cuda_experts.cuh"
#include "kernels/moe/cuda_moe.h"

#define TILE_M       128 /* rows of the weight */
#define TILE_K       64  /* elements of the inner dimension of a stage: 128 bytes */
#define ROW_BYTES    (TILE_K * 2)
#define WEIGHT_BYTES (TILE_M * ROW_BYTES)
#define CONSUMERS    8 /* warps */
#define THREADS      (128 + CONSUMERS * 32)
#define LAG          2 /* stages whose copies of 16 bytes may be under way behind the newest */

/* What a kernel makes of its product. */
enum grouped_part {
    PART_GATED, /* h, from rows of gate and up */
    PART_UP,    /* h, without a gate */
    PART_DOWN   /* parts of the sum */
};

/* Up to ROWS tokens per tile. */
template <int ROWS, int STAGES> struct tile_form {
    static const int rows = ROWS, stages = STAGES, box = ROWS < 32 ? ROWS : 32; /* rows of a tensor copy of tokens */
    static const int stage_bytes = WEIGHT_BYTES + ROWS * ROW_BYTES;
    static const int barriers_at = STAGES * stage_bytes, info_at = barriers_at + 16 * STAGES;
    static const int shared = info_at + 2 * 8 * ROWS + 1024; /* 1024: to align the panels */
    static_assert(shared <= 227 * 1024 && STAGES > LAG, "room, and stages that can be waited for");
};

typedef struct grouped_args {
    trm_moe_experts p;
    trm_moe_order order;
    const void *x;   /* rows of `inner` elements */
    void *out;       /* h [pairs, width] in sorted order; or parts [pairs, hidden] in the order of pairs */
    int32_t inner;   /* elements of a row of the weight */
    int32_t outputs; /* of the product, after the gate */
    int32_t tiles_m, blocks_k;
    gate_form gate;
    bool wide; /* parts are f32 */
} grouped_args;

typedef struct grouped_maps {
    CUtensorMap weight, tokens; /* tokens: of PART_DOWN */
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
    int32_t tile_m;
};

static __device__ __forceinline__ work_item find_item(const grouped_args &a, int32_t item)
{
    const trm_moe_tile any = a.order.tiles[item / a.tiles_m];
    const int32_t of_expert = item - any.first * a.tiles_m;
    work_item found;
    found.tile = any.tiles == 1 ? any : a.order.tiles[any.first + of_expert % any.tiles];
    found.tile_m = of_expert / any.tiles;
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

template <int PART>
static __device__ __forceinline__ void bring_weight(uint32_t to, const grouped_maps &maps, int32_t block, int32_t tile_m,
                                                    int32_t expert, uint32_t barrier)
{
    if (PART == PART_GATED) {
        copy_box5(to, &maps.weight, block * TILE_K, tile_m * (TILE_M / 16), expert, barrier);
    } else {
        copy_box(to, &maps.weight, block * TILE_K, tile_m * TILE_M, expert, barrier);
    }
}

/* Tokens that lie together, and the weight: by one thread. */
template <typename F, int PART>
static __device__ void bring_sorted(const grouped_args &a, const grouped_maps &maps, const tile_ring<F> &r)
{
    const int32_t items = *a.order.tiles_n * a.tiles_m;
    ring_place<F> at(1); /* of a new barrier the phase of parity 1 has ended */
    for (int32_t item = blockIdx.x; item < items; item += gridDim.x) {
        const work_item found = find_item(a, item);
        const trm_moe_tile tile = found.tile;
        const int boxes = (tile.rows + F::box - 1) / F::box;
        for (int32_t block = 0; block < a.blocks_k; block++) {
            const uint32_t to = r.stage(at.stage), full = r.full(at.stage);
            barrier_wait(r.empty(at.stage), at.parity);
            barrier_arrive_expect(full, (uint32_t)(WEIGHT_BYTES + boxes * F::box * ROW_BYTES));
            bring_weight<PART>(to, maps, block, found.tile_m, tile.expert, full);
            for (int i = 0; i < boxes; i++) {
                copy_box(to + WEIGHT_BYTES + i * F::box * ROW_BYTES, &maps.tokens, block * TILE_K,
                         tile.row + i * F::box, 0, full);
            }
            at.next();
        }
    }
}

/* x of tokens, from wherever they are, and the weight: by a warp group, of which 8 threads have a row at a time. */
template <typename T, typename F, int PART>
static __device__ void bring_scattered(const grouped_args &a, const grouped_maps &maps, const tile_ring<F> &r)
{
    const int32_t items = *a.order.tiles_n * a.tiles_m;
    const int thread = threadIdx.x, chunk = thread & 7;
    ring_place<F> at(1), arrived(0);
    int under_way = 0;
    for (int32_t item = blockIdx.x; item < items; item += gridDim.x) {
        const work_item found = find_item(a, item);
        const trm_moe_tile tile = found.tile;
        int32_t token[F::rows / 16];
#pragma unroll
        for (int i = 0; i < F::rows / 16; i++) {
            const int row = (thread >> 3) + 16 * i;
            token[i] = row < tile.rows ? a.order.pairs[tile.row + row] : -1;
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
                barrier_arrive_expect(full, WEIGHT_BYTES);
                bring_weight<PART>(to, maps, block, found.tile_m, tile.expert, full);
            }
#pragma unroll
            for (int i = 0; i < F::rows / 16; i++) {
                if (16 * i < tile.rows) {
                    const int row = (thread >> 3) + 16 * i;
                    const bool valid = token[i] >= 0 && k0 < a.inner;
                    const T *from = (const T *)a.x + (valid ? token[i] * (int64_t)a.inner + k0 : 0);
                    copy16_async(to + WEIGHT_BYTES + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4), from, valid);
                }
            }
            copies_commit();
            at.next();
            if (under_way == LAG) {
                copies_wait<LAG>();
                fence_async();
                barrier_arrive(r.full(arrived.stage));
                arrived.next();
            } else {
                under_way++;
            }
        }
    }
    copies_wait<0>();
    fence_async();
    for (; under_way > 0; under_way--) {
        barrier_arrive(r.full(arrived.stage));
        arrived.next();
    }
}

/* ---- products ---- */

/* Gives a stage back. */
template <typename F> static __device__ __forceinline__ void release(const tile_ring<F> &r, int stage, int lane)
{
    if (lane == 0) {
        barrier_arrive(r.empty(stage));
    }
}

/* By the first N tokens of a tile, into the first registers. */
template <typename T, typename F, int N>
static __device__ __forceinline__ void multiply(float (&all)[F::rows / 2], const tile_ring<F> &r, ring_place<F> &at,
                                                int32_t blocks_k, int group, int lane)
{
    float(&sums)[N / 2] = reinterpret_cast<float(&)[N / 2]>(all);
    int last = 0;
    for (int32_t block = 0; block < blocks_k; block++) {
        const uint32_t from = r.stage(at.stage);
        barrier_wait(r.full(at.stage), at.parity);
        wgmma_pin(sums);
        wgmma_begin();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++) {
            wgmma_nt(sums, wgmma_operand<128>(from + group * 64 * ROW_BYTES + step * 32, 0),
                     wgmma_operand<128>(from + WEIGHT_BYTES + step * 32, 0), block > 0 || step > 0, T());
        }
        wgmma_commit();
        wgmma_pin(sums);
        if (block > 0) {
            wgmma_wait<1>();
            wgmma_pin(sums);
            release(r, last, lane);
        }
        last = at.stage;
        at.next();
    }
    wgmma_wait<0>();
    wgmma_pin(sums);
    release(r, last, lane);
}

/* Of a matrix of 8 x 8, lane (g, t) with elements (g, 2t) and (g, 2t + 1): gives it (2t, g) and (2t + 1, g). */
static __device__ __forceinline__ uint32_t transpose8(uint32_t x)
{
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* A tile's tokens as the warps that store its products know them: in shared memory, of one warp group. */
struct tile_info {
    uint32_t pairs, weights; /* addresses */
    __device__ __forceinline__ int32_t pair(int token) const
    {
        int32_t v;
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(pairs + token * 4) : "memory");
        return v;
    }
    __device__ __forceinline__ float weight(int token) const
    {
        float v;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(weights + token * 4) : "memory");
        return v;
    }
};

/* Words of tokens 8 j + g for up to four j, each of outputs 2t, 2t + 1 of eight: to `place(token)`. */
template <typename Place>
static __device__ __forceinline__ void store_eights(uint4 words, int count, int token0, int32_t rows, int lane,
                                                    Place place)
{
    const int g = lane >> 2, t = lane & 3;
    if (count == 4) {
        exchange_words(words, t);
        const int token = token0 + 8 * t + g;
        if (token < rows) {
            *(uint4 *)place(token) = words;
        }
    } else {
        for (int j = 0; j < count; j++) {
            const int token = token0 + 8 * j + g;
            if (token < rows) {
                ((uint32_t *)place(token))[t] = word_of(words, j);
            }
        }
    }
}

/* Groups of tokens that are stored together; those behind a tile's last are left out. */
#define TOGETHER (F::rows < 32 ? F::rows / 8 : 4)

template <typename T, typename F>
static __device__ __forceinline__ void store_gated(const grouped_args &a, const trm_moe_tile &tile,
                                                   const float (&sums)[F::rows / 2], const tile_info &info,
                                                   int64_t output0, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    const int64_t rows = 2 * (int64_t)a.p.width, stored = tile.expert * rows, i = output0 + g;
    const float gate_bias = bias_of<T>(a.p.gate_up_bias, stored + trm_moe_gate_row(&a.p, i));
    const float up_bias = bias_of<T>(a.p.gate_up_bias, stored + trm_moe_up_row(&a.p, i));
#pragma unroll
    for (int j0 = 0; j0 < F::rows / 8; j0 += TOGETHER) {
        uint32_t words[4] = {};
        if (8 * j0 >= tile.rows) {
            continue;
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            const float *c = sums + 4 * (j0 + j);
            float h[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float scale = a.p.weighted_input ? info.weight(8 * (j0 + j) + 2 * t + e) : 1.0f;
                h[e] = gated_by(a.p, a.gate, fmaf(c[e], scale, gate_bias), fmaf(c[e + 2], scale, up_bias));
            }
            words[j] = transpose8(pack2(h[0], h[1], T()));
        }
        store_eights(make_uint4(words[0], words[1], words[2], words[3]), TOGETHER, 8 * j0, tile.rows, lane,
                     [&](int token) { return (T *)a.out + (tile.row + token) * (int64_t)a.outputs + output0; });
    }
}

/* 16 outputs of a warp: of PART_UP squared, of PART_DOWN weighted. */
template <typename T, typename F, int PART>
static __device__ __forceinline__ void store_plain(const grouped_args &a, const trm_moe_tile &tile,
                                                   const float (&sums)[F::rows / 2], const tile_info &info,
                                                   int64_t output0, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    const bool down = PART == PART_DOWN, scaled = down != a.p.weighted_input, has_high = output0 + 8 < a.outputs;
    const void *bias = down ? a.p.down_bias : a.p.gate_up_bias;
    const int64_t stored = tile.expert * (int64_t)a.outputs + output0 + g;
    const float low_bias = bias_of<T>(bias, stored), high_bias = has_high ? bias_of<T>(bias, stored + 8) : 0.0f;
#pragma unroll
    for (int j0 = 0; j0 < F::rows / 8; j0 += TOGETHER) {
        uint32_t low[4] = {}, high[4] = {};
        if (8 * j0 >= tile.rows) {
            continue;
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            const float *c = sums + 4 * (j0 + j);
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int token = 8 * (j0 + j) + 2 * t + (i & 1);
                const float row_bias = i < 2 ? low_bias : high_bias, scale = scaled ? info.weight(token) : 1.0f;
                const float up = trm_moe_limited(fmaf(c[i], scale, row_bias), -a.p.limit, a.p.limit);
                v[i] = down ? (c[i] + row_bias) * scale : up < 0.0f ? 0.0f : up * up;
                if (down && a.wide && token < tile.rows && (i < 2 || has_high)) {
                    float *to = (float *)a.out + info.pair(token) * (int64_t)a.outputs + output0 + g;
                    to[i < 2 ? 0 : 8] = v[i];
                }
            }
            low[j] = transpose8(pack2(v[0], v[1], T()));
            high[j] = transpose8(pack2(v[2], v[3], T()));
        }
        if (!(down && a.wide)) {
            const auto place = [&](int token) {
                const int64_t row = down ? info.pair(token) : tile.row + token;
                return (T *)a.out + row * a.outputs + output0;
            };
            store_eights(make_uint4(low[0], low[1], low[2], low[3]), TOGETHER, 8 * j0, tile.rows, lane, place);
            if (has_high) {
                store_eights(make_uint4(high[0], high[1], high[2], high[3]), TOGETHER, 8 * j0, tile.rows, lane,
                             [&](int token) { return place(token) + 8; });
            }
        }
    }
}

/* By a warp group. */
template <typename T, typename F, int PART> static __device__ void compute(const grouped_args &a, const tile_ring<F> &r)
{
    const int32_t items = *a.order.tiles_n * a.tiles_m;
    const int lane = threadIdx.x & 31, warp = ((int)threadIdx.x >> 5) - 4, group = warp >> 2, thread = threadIdx.x & 127;
    const bool informed = PART == PART_DOWN || a.p.weighted_input;
    tile_info info;
    info.pairs = r.stages + F::info_at + group * 8 * F::rows;
    info.weights = info.pairs + 4 * F::rows;
    ring_place<F> at(0);
    for (int32_t item = blockIdx.x; item < items; item += gridDim.x) {
        const work_item found = find_item(a, item);
        const trm_moe_tile tile = found.tile;
        const int64_t output0 = (int64_t)found.tile_m * (PART == PART_GATED ? TILE_M / 2 : TILE_M) +
                                warp * (PART == PART_GATED ? 8 : 16);
        float sums[F::rows / 2];
        int32_t pairs[2] = {};
        float weights[2] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (informed && thread + 128 * i < tile.rows) {
                pairs[i] = a.order.pairs[tile.row + thread + 128 * i];
                weights[i] = a.order.weights[tile.row + thread + 128 * i];
            }
        }
        if (F::rows == 256 && tile.rows <= 64) {
            multiply<T, F, F::rows == 256 ? 64 : 8>(sums, r, at, a.blocks_k, group, lane);
        } else if (F::rows == 256 && tile.rows <= 128) {
            multiply<T, F, F::rows == 256 ? 128 : 8>(sums, r, at, a.blocks_k, group, lane);
        } else if (F::rows == 256 && tile.rows <= 192) {
            multiply<T, F, F::rows == 256 ? 192 : 8>(sums, r, at, a.blocks_k, group, lane);
        } else {
            multiply<T, F, F::rows>(sums, r, at, a.blocks_k, group, lane);
        }
        if (informed) {
            named_sync(1 + group, 128); /* the tile before has been stored */
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = thread + 128 * i;
                if (row < F::rows) {
                    asm volatile("st.shared.b32 [%0], %1;" : : "r"(info.pairs + row * 4), "r"(pairs[i]) : "memory");
                    asm volatile("st.shared.f32 [%0], %1;" : : "r"(info.weights + row * 4), "f"(weights[i]) : "memory");
                }
            }
            named_sync(1 + group, 128);
        }
        if (output0 < a.outputs) {
            if (PART == PART_GATED) {
                store_gated<T, F>(a, tile, sums, info, output0, lane);
            } else {
                store_plain<T, F, PART>(a, tile, sums, info, output0, lane);
            }
        }
    }
}

template <typename T, typename F, int PART, bool SCATTERED>
static __global__ void __launch_bounds__(THREADS, 1)
    multiply_groups(const __grid_constant__ grouped_args a, const __grid_constant__ grouped_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char shared[];
    tile_ring<F> r;
    r.stages = (shared_address(shared) + 1023) / 1024 * 1024;
    if (threadIdx.x == 0) {
        prefetch_map(&maps.weight);
        for (int i = 0; i < F::stages; i++) {
            barrier_init(r.full(i), SCATTERED ? 129 : 1);
            barrier_init(r.empty(i), CONSUMERS);
        }
        barrier_init_done();
    }
    __syncthreads();
    wait_for_previous();
    start_next();
    if (threadIdx.x < 128) {
        registers_shrink<72>();
        if (SCATTERED) {
            bring_scattered<T, F, PART>(a, maps, r);
        } else if (threadIdx.x == 0) {
            bring_sorted<F, PART>(a, maps, r);
        }
        __syncwarp();
    } else {
        registers_grow<216>();
        compute<T, F, PART>(a, r);
    }
#endif
}

/* ---- rows in their order ---- */

typedef struct gather_args {
    trm_moe_experts p;
    trm_moe_order order;
    void *to; /* [pairs, hidden], as many as experts have */
} gather_args;

/* 16 bytes per thread. Bytes moved: x from cache, its copy once. Bound by memory. */
static __global__ void __launch_bounds__(256) gather_rows(const gather_args a)
{
    const int64_t eights = a.p.hidden / 8;
    begin_overlapped();
    const int32_t tiles = *a.order.tiles_n;
    if (tiles == 0) {
        return;
    }
    const trm_moe_tile last = a.order.tiles[tiles - 1];
    const int64_t all = (last.row + last.rows) * eights;
    for (int64_t i = global_thread(); i < all; i += global_threads()) {
        const int64_t row = i / eights;
        ((uint4 *)a.to)[i] = ((const uint4 *)a.p.x)[a.order.pairs[row] / a.p.k * eights + i - row * eights];
    }
}

/* ---- the sum ---- */

typedef struct sum_args {
    trm_moe_experts p;
    const void *parts; /* [tokens * k, hidden] */
} sum_args;

/* Eight elements of a token per thread. Bytes moved: the parts once, y once. Bound by memory. */
template <typename T, typename P> static __global__ void __launch_bounds__(256) sum_parts(const sum_args a)
{
    const trm_moe_experts &p = a.p;
    const int64_t eights = p.hidden / 8, all = p.tokens * eights;
    begin_overlapped();
    for (int64_t i = global_thread(); i < all; i += global_threads()) {
        const int64_t token = i / eights, at = i % eights * 8;
        float sum[8] = {};
        for (int s = 0; s < p.k; s++) {
            const int64_t pair = token * p.k + s;
            if (trm_moe_local(&p, p.ids[pair]) >= 0) {
                float v[8];
                load8((const P *)a.parts + pair * p.hidden + at, v);
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    sum[e] += v[e];
                }
            }
        }
        if (p.residual != NULL) {
            float v[8];
            load8((const T *)p.residual + token * p.hidden + at, v);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                sum[e] += v[e];
            }
        }
        store8((T *)p.y + token * p.hidden + at, sum);
    }
}

/* ---- launching ---- */

bool trm_cuda_moe_grouped_accepts(const trm_moe_experts *p)
{
    return trm_cuda_hopper_ready() && trm_cuda_moe_sort_accepts(p) && p->format == TRM_MOE_HALVES;
}

void trm_cuda_moe_grouped_choose(const trm_moe_experts *p, trm_moe_plan *plan)
{
    const int64_t each = p->tokens * p->k / p->experts;
    plan->rows = each <= 8 ? 16 : each <= 20 ? 32 : each <= 44 ? 64 : each <= 96 ? 128 : 256;
    plan->wide_parts = plan->rows < 256;
}

/* What lies where in the workspace. */
typedef struct grouped_room {
    trm_moe_order order;
    void *x, *h, *parts; /* x: rows in their order, or NULL */
    size_t bytes;
} grouped_room;

static void *take(grouped_room *room, void *workspace, size_t bytes)
{
    void *at = (char *)workspace + room->bytes;
    room->bytes += (bytes + 255) / 256 * 256;
    return at;
}

static grouped_room divide(const trm_moe_experts *p, const trm_moe_plan *plan, void *workspace)
{
    grouped_room room = {};
    const size_t pairs = (size_t)p->tokens * (size_t)p->k;
    room.order.tiles_n = (int32_t *)take(&room, workspace, sizeof(int32_t));
    room.order.tiles = (trm_moe_tile *)take(&room, workspace,
                                            (size_t)trm_cuda_moe_most_tiles(p, plan->rows) * sizeof(trm_moe_tile));
    room.order.pairs = (int32_t *)take(&room, workspace, pairs * sizeof(int32_t));
    room.order.weights = (float *)take(&room, workspace, pairs * sizeof(float));
    room.x = plan->gathered ? take(&room, workspace, pairs * (size_t)p->hidden * 2) : NULL;
    room.h = take(&room, workspace, pairs * (size_t)p->width * 2);
    room.parts = take(&room, workspace, pairs * (size_t)p->hidden * (plan->wide_parts ? 4 : 2));
    return room;
}

size_t trm_cuda_moe_grouped_workspace(const trm_moe_experts *p, const trm_moe_plan *plan)
{
    return divide(p, plan, NULL).bytes;
}

/* Gate and up by eights of rows in turn: columns, the eight, gate or up, eights, experts. */
static trm_status map_gated(CUtensorMap *map, const trm_moe_experts *p)
{
    const cuuint64_t row = (cuuint64_t)p->hidden * 2, width = (cuuint64_t)p->width;
    const cuuint64_t dims[5] = {(cuuint64_t)p->hidden, 8, 2, width / 8, (cuuint64_t)p->experts};
    const cuuint64_t strides[4] = {p->interleaved ? 2 * row : row, p->interleaved ? row : width * row,
                                   p->interleaved ? 16 * row : 8 * row, 2 * width * row};
    const cuuint32_t box[5] = {TILE_K, 8, 2, TILE_M / 16, 1};
    return trm_cuda_tensor_map(map, p->gate_up, 5, dims, strides, box, CU_TENSOR_MAP_SWIZZLE_128B, p->type);
}

static trm_status map_rows(CUtensorMap *map, const void *data, int64_t columns, int64_t rows, int64_t depth,
                           int32_t box_rows, trm_dtype type)
{
    const cuuint64_t dims[3] = {(cuuint64_t)columns, (cuuint64_t)rows, (cuuint64_t)depth};
    const cuuint64_t strides[2] = {(cuuint64_t)columns * 2, (cuuint64_t)columns * (cuuint64_t)rows * 2};
    const cuuint32_t box[3] = {TILE_K, (cuuint32_t)box_rows, 1};
    return trm_cuda_tensor_map(map, data, 3, dims, strides, box, CU_TENSOR_MAP_SWIZZLE_128B, type);
}

template <typename T, typename F, int PART, bool SCATTERED>
static trm_status launch_part(grouped_args *a, const grouped_maps *maps, cudaStream_t stream)
{
    const int32_t tile_outputs = PART == PART_GATED ? TILE_M / 2 : TILE_M;
    a->tiles_m = (a->outputs + tile_outputs - 1) / tile_outputs;
    a->blocks_k = (a->inner + TILE_K - 1) / TILE_K;
    const int64_t most = trm_cuda_moe_most_tiles(&a->p, F::rows) * a->tiles_m, processors = trm_cuda_hopper_processors();
    TRM_CUDA_TRY(cudaFuncSetAttribute(multiply_groups<T, F, PART, SCATTERED>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      F::shared));
    launch_overlapped(multiply_groups<T, F, PART, SCATTERED>, (unsigned)(most < processors ? most : processors), THREADS,
                      F::shared, stream, *a, *maps);
    return trm_cuda_launched("moe experts, grouped");
}

template <typename T, typename F>
static trm_status launch_products(const trm_moe_experts *p, const grouped_room *room, bool wide, cudaStream_t stream)
{
    grouped_args a = {};
    grouped_maps maps;
    a.p = *p;
    a.order = room->order;
    a.x = p->x;
    a.out = room->h;
    a.inner = p->hidden;
    a.outputs = p->width;
    a.gate = gate_form_of(p);
    if (p->activation == TRM_MOE_RELU2) {
        TRM_TRY(map_rows(&maps.weight, p->gate_up, p->hidden, p->width, p->experts, TILE_M, p->type));
        maps.tokens = maps.weight;
        TRM_TRY((launch_part<T, F, PART_UP, true>(&a, &maps, stream)));
    } else {
        TRM_TRY(map_gated(&maps.weight, p));
        const bool gathered = F::rows == 256 && room->x != NULL;
        if (gathered) {
            gather_args g;
            g.p = *p;
            g.order = room->order;
            g.to = room->x;
            launch_overlapped(gather_rows, grid_for(p->tokens * p->k * (p->hidden / 8), 256), 256, 0, stream, g);
            a.x = room->x;
            TRM_TRY(map_rows(&maps.tokens, room->x, p->hidden, p->tokens * p->k, 1, F::box, p->type));
            TRM_TRY((launch_part<T, F, PART_GATED, F::rows != 256>(&a, &maps, stream)));
        } else {
            maps.tokens = maps.weight;
            TRM_TRY((launch_part<T, F, PART_GATED, true>(&a, &maps, stream)));
        }
    }
    TRM_TRY(map_rows(&maps.weight, p->down, p->width, p->hidden, p->experts, TILE_M, p->type));
    TRM_TRY(map_rows(&maps.tokens, room->h, p->width, p->tokens * p->k, 1, F::box, p->type));
    a.x = room->h;
    a.out = room->parts;
    a.inner = p->width;
    a.outputs = p->hidden;
    a.wide = wide;
    return launch_part<T, F, PART_DOWN, false>(&a, &maps, stream);
}

template <typename T>
static trm_status launch(const trm_moe_experts *p, const trm_moe_plan *plan, const grouped_room *room,
                         cudaStream_t stream)
{
    switch (plan->rows) {
    case 16:
        TRM_TRY((launch_products<T, tile_form<16, 11>>(p, room, plan->wide_parts, stream)));
        break;
    case 32:
        TRM_TRY((launch_products<T, tile_form<32, 10>>(p, room, plan->wide_parts, stream)));
        break;
    case 64:
        TRM_TRY((launch_products<T, tile_form<64, 8>>(p, room, plan->wide_parts, stream)));
        break;
    case 128:
        TRM_TRY((launch_products<T, tile_form<128, 6>>(p, room, plan->wide_parts, stream)));
        break;
    default:
        TRM_TRY((launch_products<T, tile_form<256, 4>>(p, room, plan->wide_parts, stream)));
        break;
    }
    sum_args a;
    a.p = *p;
    a.parts = room->parts;
    const unsigned blocks = grid_for(p->tokens * (p->hidden / 8), 256);
    launch_overlapped(plan->wide_parts ? sum_parts<T, float> : sum_parts<T, T>, blocks, 256, 0, stream, a);
    return trm_cuda_launched("moe sum");
}

trm_status trm_cuda_moe_grouped_run(const trm_moe_experts *p, const trm_moe_plan *plan, void *workspace,
                                    cudaStream_t stream)
{
    const grouped_room room = divide(p, plan, workspace);
    TRM_TRY(trm_cuda_moe_sort_run(p, &room.order, plan->rows, stream));
    return p->type == TRM_BF16 ? launch<__nv_bfloat16>(p, plan, &room, stream)
                               : launch<__half>(p, plan, &room, stream);
}
