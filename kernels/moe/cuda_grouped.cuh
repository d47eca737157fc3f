/*
 * Products of many tokens with their experts on Hopper, over tiles of the order that cuda_sort.cu makes.
 *
 * The weight is on the left of the tensor cores' product, 128 rows to a tile, and tokens are on the right, up to 256 of
 * them; so a tile of few tokens costs what its weight costs to read, and one of many is as large as the registers let
 * it be. Blocks walk over (tile of tokens, tile of the weight) until the work list on the device ends. Of each block
 * one warp group brings operands through a ring of stages; two others have 64 rows of the weight each.
 *
 * The weight comes by tensor copies. Tiles of up to 64 tokens of x come by copies of 16 bytes from wherever the tokens
 * are. With larger ones that took longer than the products: there x is copied into the order of experts first, and two
 * or four blocks of a cluster with neighbouring rows of the weight share a tile of tokens, of which each brings its
 * part for all.
 *
 * Of a gated product a tile's rows are 8 of the gate, 8 of the up, and so on, so that both factors of an output end in
 * the same thread; a tensor map of five dimensions reads them so, however they are stored.
 *
 * With quantized weights and up to 64 tokens a tile, tokens are split into numbers of e4m3 (cuda_split.cuh).
 *
 * Outputs go through shared memory to whole rows of memory, while no product runs. A token's outputs of an expert are
 * rounded before the kernel that adds them up multiplies them by their weights.
 *
 * Bound by reading the weight up to some 64 tokens an expert, then by reads from L2, of which an H200 does some 4 TB/s.
 * bench_moe, bf16, an H200 that reads 4.54 TB/s, the whole layer:
 *
 *   T                   16     32     64    128    512    2048    8192
 *   qwen3-30b, us      204    263    301    308    334     467    1330
 *     of the read     0.85   0.87   0.87   0.86   0.80
 *     TFLOP/s                                     116     331     465
 *   gpt-oss-20b, us    347    391    397    402    463     932    3293
 *     of the read     0.88   0.88   0.88   0.88   0.76
 *     TFLOP/s                                     220     437     495
 *   mixtral, us        661    675    676    693    898    2424   10143
 *     of the read     0.92   0.92   0.92   0.90   0.69
 *     TFLOP/s                                     402     595     569
 *
 * Of qwen3-30b at 8192 tokens, one kernel at a time, the first product takes 697 us, the second 404, the copy of x 115,
 * the sum 85 and the order 36.
 */
#ifndef TRM_KERNELS_MOE_CUDA_GROUPED_CUH
#define TRM_KERNELS_MOE_CUDA_GROUPED_CUH

#include "kernels/moe/cuda_grouped_ring.cuh"

/* ---- products ---- */

/* Gives a stage back to those that fill it: all blocks of the cluster. */
template <typename F> static __device__ __forceinline__ void release(const tile_ring<F> &r, int stage, int lane)
{
    if (F::cluster == 1) {
        if (lane == 0) {
            barrier_arrive(r.empty(stage));
        }
    } else if (lane < F::cluster) {
        asm volatile("{ .reg .b32 at;\n"
                     "mapa.shared::cluster.u32 at, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [at]; }"
                     :
                     : "r"(r.empty(stage)), "r"(lane)
                     : "memory");
    }
}

/* Where the scales of a lane's two rows are: of MXFP4 in shared memory, `count` of a row; of e4m3 in global memory, one
 * for all of a row or for every 128 columns. */
struct scale_rows {
    uint32_t low, high;
    int32_t count;
    const float *from[2];
    bool one;
};

/* By the first N tokens of a tile, into the first registers. */
template <typename T, typename F, bool SCATTERED, int N>
static __device__ __forceinline__ void multiply(float (&all)[F::rows / 2], const tile_ring<F> &r, ring_place<F> &at,
                                                int32_t blocks_k, int group, int lane)
{
    float(&sums)[N / 2] = reinterpret_cast<float(&)[N / 2]>(all);
    int last = 0;
    for (int32_t block = 0; block < blocks_k; block++) {
        const uint32_t from = r.stage(at.stage);
        barrier_wait(r.full(at.stage), at.parity);
        if (SCATTERED) {
            fence_async();
        }
        wgmma_pin(sums);
        wgmma_begin();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++) {
            wgmma_nt(sums, wgmma_operand<128>(from + group * 64 * ROW_BYTES + step * 32, 0),
                     wgmma_operand<128>(from + F::weight_bytes + step * 32, 0), block > 0 || step > 0, T());
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

static __device__ __forceinline__ uint32_t load_byte(uint32_t address)
{
    uint32_t v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

/* Left operands of a stage's four steps from the numbers of rows g and g + 8 of a warp, whose first is `row`. Of MXFP4
 * byte t of a word has the numbers of slots 2t and 2t + 1, low half first. */
static __device__ __forceinline__ void load_left_f4(uint32_t (&left)[16], uint32_t stage, int row,
                                                    const scale_rows &scales, int32_t block, int lane)
{
    const uint32_t t = lane & 3, pick = t << 12 | (4 + t) << 4, from = stage + (row + (lane >> 2)) * (TILE_K / 2);
#pragma unroll
    for (int b = 0; b < 2; b++) {
        const int32_t scale = min(2 * block + b, scales.count - 1); /* behind the end numbers are 0 */
        const uint32_t factors[2] = {f4_factor(load_byte(scales.low + scale)),
                                     f4_factor(load_byte(scales.high + scale))};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 words = load_shared16(from + h * 8 * (TILE_K / 2) + b * 16);
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const uint32_t word = word_of(words, q);
                left[(2 * b + q / 2) * 4 + (q & 1) * 2 + h] = f4_pair(__byte_perm(word, word << 4, pick), factors[h]);
            }
        }
    }
}

/* Two numbers e4m3 in the low bytes as bf16. A number's bits where a bf16 has its lower exponent bits are the number
 * times 2^-120, also where that is subnormal. */
static __device__ __forceinline__ uint32_t f8_pair(uint32_t bytes)
{
    uint32_t high, tiny, pair;
    asm("prmt.b32 %0, %1, 0, 0x1404;" : "=r"(high) : "r"(bytes));
    asm("lop3.b32 %0, %1, 0x07f007f0, %2, 0xea;" : "=r"(tiny) : "r"(high >> 4), "r"(high & 0x80008000u));
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(tiny), "r"(0x7b807b80u)); /* 2^120 */
    return pair;
}

/* Of e4m3: bytes 2t, 2t + 1 and 2t + 8, 2t + 9 of each 16. Rows are of 64 bytes, whose 16 are swizzled. */
static __device__ __forceinline__ void load_left_f8(uint32_t (&left)[16], uint32_t stage, int row, int lane)
{
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int at = row + g + 8 * h;
#pragma unroll
        for (int q = 0; q < 8; q++) { /* eights of columns */
            const uint32_t address = stage + at * TILE_K + (((q >> 1) ^ (at >> 1 & 3)) << 4) + (q & 1) * 8 + 2 * t;
            uint32_t bytes;
            asm volatile("ld.shared.u16 %0, [%1];" : "=r"(bytes) : "r"(address) : "memory");
            left[(q >> 1) * 4 + (q & 1) * 2 + h] = f8_pair(bytes);
        }
    }
}

template <typename F>
static __device__ __forceinline__ void load_left(uint32_t (&left)[16], uint32_t stage, int row,
                                                 const scale_rows &scales, int32_t block, int lane)
{
    if (F::f4) {
        load_left_f4(left, stage, row, scales, block, lane);
    } else {
        load_left_f8(left, stage, row, lane);
    }
}

/* The scale of a block of 128 columns of e4m3; as good as 0 if it is 0, so that others can be divided by it. */
static __device__ __forceinline__ float f8_scale(const scale_rows &scales, int h, int32_t block)
{
    const float scale = scales.from[h][block];
    return fabsf(scale) < 1e-30f ? 1e-30f : scale;
}

/*
 * The same with a quantized weight: while a stage is multiplied, numbers of the next one become left operands. Sums of
 * e4m3 are in units of the scale of their rows' last block: a new scale changes the unit.
 */
template <typename F, bool SCATTERED, int N>
static __device__ __forceinline__ void multiply_quantized(float (&all)[F::rows / 2], const tile_ring<F> &r,
                                                          ring_place<F> &at, int32_t blocks_k, int lane,
                                                          const scale_rows &scales)
{
    float(&sums)[N / 2] = reinterpret_cast<float(&)[N / 2]>(all);
    const int row = ((int)(threadIdx.x >> 5) - 4) * 16;
    uint32_t left[16], next[16];
    float unit[2] = {}, coming[2] = {};
    const int32_t last_scale = scales.one ? 0 : (blocks_k - 1) / 2;
#pragma unroll
    for (int h = 0; !F::f4 && h < 2; h++) {
        unit[h] = f8_scale(scales, h, 0);
        coming[h] = f8_scale(scales, h, min(1, last_scale));
    }
    barrier_wait(r.full(at.stage), at.parity);
    load_left<F>(left, r.stage(at.stage), row, scales, 0, lane);
    for (int32_t block = 0; block < blocks_k; block++) {
        const uint32_t from = r.stage(at.stage);
        const int stage = at.stage;
        if (SCATTERED) {
            fence_async();
        }
        wgmma_pin(sums);
        wgmma_begin();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++) {
            wgmma_nt(sums, left[4 * step], left[4 * step + 1], left[4 * step + 2], left[4 * step + 3],
                     wgmma_operand<128>(from + F::weight_bytes + step * 32, 0), block > 0 || step > 0, __nv_bfloat16());
        }
        wgmma_commit();
        wgmma_pin(sums);
        at.next();
        if (block + 1 < blocks_k) {
            barrier_wait(r.full(at.stage), at.parity);
            load_left<F>(next, r.stage(at.stage), row, scales, block + 1, lane);
        }
        wgmma_wait<0>();
        wgmma_pin(sums);
        release(r, stage, lane);
        if (!F::f4 && !scales.one && (block & 1) != 0 && block + 1 < blocks_k) {
            const float ratio[2] = {__fdividef(unit[0], coming[0]), __fdividef(unit[1], coming[1])};
#pragma unroll
            for (int i = 0; i < N / 2; i++) {
                sums[i] *= ratio[i >> 1 & 1];
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                unit[h] = coming[h];
                coming[h] = f8_scale(scales, h, min(block / 2 + 2, last_scale));
            }
        }
#pragma unroll
        for (int i = 0; i < 16; i++) {
            asm volatile("" : "+r"(left[i]) : : "memory"); /* products read them up to here: they are not `next` yet */
            left[i] = next[i];
        }
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        sums[i] *= F::f4 ? F4_UNIT : unit[i >> 1 & 1];
    }
}
template <typename T, typename F, bool SCATTERED, int N>
static __device__ __forceinline__ typename std::enable_if<!F::halves>::type
multiply_as(float (&all)[F::rows / 2], const tile_ring<F> &r, ring_place<F> &at, int32_t blocks_k, int, int lane,
            const scale_rows &scales)
{
    multiply_quantized<F, SCATTERED, N>(all, r, at, blocks_k, lane, scales);
}
template <typename T, typename F, bool SCATTERED, int N>
static __device__ __forceinline__ typename std::enable_if<F::halves>::type
multiply_as(float (&all)[F::rows / 2], const tile_ring<F> &r, ring_place<F> &at, int32_t blocks_k, int group, int lane,
            const scale_rows &)
{
    multiply<T, F, SCATTERED, N>(all, r, at, blocks_k, group, lane);
}

#include "kernels/moe/cuda_split.cuh"

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

/* Outputs on their way to memory: a row of CHUNKS times 16 bytes per token, of one warp group. */
template <int CHUNKS> struct staged_rows {
    uint32_t room;
    __device__ __forceinline__ uint32_t at(int token, int chunk) const /* without conflicts of banks either way */
    {
        const int swizzle = CHUNKS == 8 ? token & 7 : token >> 1 & 3;
        return room + token * (CHUNKS * 16) + ((chunk ^ swizzle) << 4);
    }
};

/* Four matrices of 8 tokens by 8 outputs, of which lane (g, t) has outputs g of tokens 2t and 2t + 1: `address` is of
 * token lane % 8 of matrix lane / 8. */
static __device__ __forceinline__ void store_matrices(uint32_t address, const uint32_t (&m)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

static __device__ __forceinline__ void store_matrices(uint32_t address, const uint32_t (&m)[2])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(m[0]), "r"(m[1])
                 : "memory");
}

/* What a lane adds to its products: of its lower eight outputs and its higher, or of gate and up. */
struct lane_bias {
    float low, high;
};

/* h of F::together tokens from `token0` on, a warp's 8 outputs. SIMPLE: silu(g) * u and nothing else. */
template <typename T, typename F, bool SIMPLE>
static __device__ __forceinline__ void stage_gated(const grouped_args &a, const float *sums, const tile_info &info,
                                                   int token0, lane_bias bias, staged_rows<4> rows, int warp, int lane)
{
    const int matrices = F::together < 32 ? 2 : 4;
#pragma unroll
    for (int j0 = 0; j0 < F::together / 8; j0 += matrices) {
        uint32_t words[matrices];
#pragma unroll
        for (int j = 0; j < matrices; j++) {
            const float *c = sums + 4 * (j0 + j);
            float h[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                if (SIMPLE) {
                    h[e] = __fdividef(c[e], 1.0f + __expf(-c[e])) * c[e + 2];
                } else {
                    const int token = token0 + 8 * (j0 + j) + 2 * (lane & 3) + e;
                    const float scale = a.p.weighted_input ? info.weight(token) : 1.0f;
                    h[e] = gated_by(a.p, a.gate, fmaf(c[e], scale, bias.low), fmaf(c[e + 2], scale, bias.high));
                }
            }
            words[j] = pack2(h[0], h[1], T());
        }
        store_matrices(rows.at(8 * (j0 + (lane >> 3) % matrices) + (lane & 7), warp), words);
    }
}

/* The same of a product without a gate: a warp's 16 outputs, of PART_UP squared. */
template <typename T, typename F, int PART>
static __device__ __forceinline__ void stage_plain(const grouped_args &a, const float *sums, const tile_info &info,
                                                   int token0, lane_bias bias, staged_rows<8> rows, int warp, int lane)
{
#pragma unroll
    for (int j0 = 0; j0 < F::together / 8; j0 += 2) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float *c = sums + 4 * (j0 + j / 2) + 2 * (j & 1), row_bias = j & 1 ? bias.high : bias.low;
            float v[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                if (PART == PART_DOWN) {
                    v[e] = c[e] + row_bias;
                } else {
                    const int token = token0 + 8 * (j0 + j / 2) + 2 * (lane & 3) + e;
                    const float scale = a.p.weighted_input ? info.weight(token) : 1.0f;
                    const float up = trm_moe_limited(fmaf(c[e], scale, row_bias), -a.p.limit, a.p.limit);
                    v[e] = up < 0.0f ? 0.0f : up * up;
                }
            }
            words[j] = pack2(v[0], v[1], T());
        }
        store_matrices(rows.at(8 * (j0 + (lane >> 4)) + (lane & 7), 2 * warp + (lane >> 3 & 1)), words);
    }
}

/*
 * A tile's outputs from `output0` on, 64 of a warp group or 32 of a gated product: staged in shared memory, tokens by
 * tokens, and from there whole rows to memory. `barrier` is the group's.
 */
template <typename T, typename F, int PART>
static __device__ __forceinline__ void store_tile(const grouped_args &a, const trm_moe_tile &tile,
                                                  const float (&sums)[F::rows / 2], const tile_info &info,
                                                  uint32_t room, int64_t output0, int barrier)
{
    const bool gated = PART == PART_GATED;
    const int chunks = gated ? 4 : 8, thread = threadIdx.x & 127, warp = thread >> 5, lane = thread & 31;
    const int64_t last = a.outputs - 1, row = output0 + warp * (gated ? 8 : 16) + (lane >> 2);
    const int64_t all = (gated ? 2 : 1) * (int64_t)a.outputs, stored = tile.expert * all;
    const int64_t low = min(row, last), high = gated ? low : min(row + 8, last);
    const void *biases = PART == PART_DOWN ? a.p.down_bias : a.p.gate_up_bias;
    const lane_bias bias = {bias_of<T>(biases, stored + (gated ? trm_moe_gate_row(&a.p, low) : low)),
                            bias_of<T>(biases, stored + (gated ? trm_moe_up_row(&a.p, high) : high))};
    const staged_rows<chunks> rows = {room};
#pragma unroll
    for (int token0 = 0; token0 < F::rows; token0 += F::together) {
        if (token0 >= tile.rows) {
            continue;
        }
        if constexpr (PART != PART_GATED) {
            stage_plain<T, F, PART>(a, sums + token0 / 2, info, token0, bias, rows, warp, lane);
        } else if (a.simple) {
            stage_gated<T, F, true>(a, sums + token0 / 2, info, token0, bias, rows, warp, lane);
        } else {
            stage_gated<T, F, false>(a, sums + token0 / 2, info, token0, bias, rows, warp, lane);
        }
        named_sync(barrier, 128);
#pragma unroll
        for (int i = thread; i < F::together * chunks; i += 128) {
            const int token = i / chunks, chunk = i % chunks;
            if (token0 + token < tile.rows && output0 + 8 * chunk < a.outputs) {
                const int64_t to = PART == PART_DOWN ? info.pair(token0 + token) : tile.row + token0 + token;
                *(uint4 *)((T *)a.out + to * a.outputs + output0 + 8 * chunk) = load_shared16(rows.at(token, chunk));
            }
        }
        named_sync(barrier, 128);
    }
}

/* By a warp group. */
template <typename T, typename F, int PART, bool SCATTERED>
static __device__ void compute(const grouped_args &a, const tile_ring<F> &r)
{
    const int32_t items = *a.order.tiles_n * a.tiles_m;
    const int lane = threadIdx.x & 31, warp = ((int)threadIdx.x >> 5) - 4, group = warp >> 2,
              thread = threadIdx.x & 127;
    const bool informed = PART == PART_DOWN || a.p.weighted_input;
    const uint32_t staged = r.stages + F::staged_at + group * 128 * F::together;
    tile_info info;
    info.pairs = r.stages + F::info_at + group * 8 * F::rows;
    info.weights = info.pairs + 4 * F::rows;
    ring_place<F> at(0);
    scale_place scales_at(0);
    for (int32_t item = blockIdx.x / F::cluster; item < items; item += gridDim.x / F::cluster) {
        const work_item found = find_item<F>(a, item);
        const trm_moe_tile tile = found.tile;
        const int64_t output0 =
            (int64_t)found.tile_m * (PART == PART_GATED ? TILE_M / 2 : TILE_M) + group * (PART == PART_GATED ? 32 : 64);
        float sums[F::rows / 2];
        int32_t pairs[2] = {};
        float weights[2] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (informed && thread + 128 * i < tile.rows) {
                pairs[i] = a.order.pairs[tile.row + thread + 128 * i];
                weights[i] = PART == PART_DOWN ? 0.0f : a.p.weights[pairs[i]];
            }
        }
        scale_rows scales = {};
        const int row = PART == PART_GATED ? warp * 8 + (lane >> 2) : warp * 16 + (lane >> 2); /* of a half, if gated */
        if (F::f4) {
            const bool turns = PART == PART_GATED && a.p.interleaved; /* gate, up, gate, up, ... */
            const int up = PART != PART_GATED ? 8 : turns ? 1 : TILE_M / 2;
            scales.count = a.inner / 32;
            scales.low = r.scales(scales_at.which) + (turns ? 2 * row : row) * scales.count;
            scales.high = scales.low + up * scales.count;
            barrier_wait(r.scales_full(scales_at.which), scales_at.parity);
        } else if (!F::halves) {
            const int64_t rows = (PART == PART_GATED ? 2 : 1) * (int64_t)a.outputs, last = a.outputs - 1;
            const int64_t i = (int64_t)found.tile_m * (PART == PART_GATED ? TILE_M / 2 : TILE_M) + row;
            const int64_t low = PART == PART_GATED ? trm_moe_gate_row(&a.p, min(i, last)) : min(i, last);
            const int64_t high = PART == PART_GATED ? trm_moe_up_row(&a.p, min(i, last)) : min(i + 8, last);
            scales.one = a.p.format == TRM_MOE_F8_ROWS;
            const int64_t down = scales.one ? rows : (rows + 127) / 128,
                          across = scales.one ? 1 : (a.inner + 127) / 128;
            const float *from = (const float *)a.scale + tile.expert * down * across;
            scales.from[0] = from + (scales.one ? low : low / 128 * across);
            scales.from[1] = from + (scales.one ? high : high / 128 * across);
        }
        if constexpr (F::split) {
            if (tile.rows <= F::rows / 2) {
                multiply_split<F, F::rows / 2>(a, tile, sums, r, at, group, lane, scales);
            } else if (F::rows == 32 && tile.rows <= 24) {
                multiply_split<F, F::rows == 32 ? 24 : 8>(a, tile, sums, r, at, group, lane, scales);
            } else {
                multiply_split<F, F::rows>(a, tile, sums, r, at, group, lane, scales);
            }
        } else
#define PRODUCT_OF(n)                                                                                                  \
    if (F::rows >= 128 && F::rows > (n) && (n) % F::step == 0 && tile.rows <= (n)) {                                   \
        multiply_as<T, F, SCATTERED, (F::rows > (n) && (n) % F::step == 0 ? (n) : 8)>(sums, r, at, a.blocks_k, group,  \
                                                                                      lane, scales);                   \
    } else
            PRODUCT_OF(32)
        PRODUCT_OF(64)
        PRODUCT_OF(96)
        PRODUCT_OF(128)
        PRODUCT_OF(160)
        PRODUCT_OF(192)
        PRODUCT_OF(224)
        {
            multiply_as<T, F, SCATTERED, F::rows>(sums, r, at, a.blocks_k, group, lane, scales);
        }
#undef PRODUCT_OF
        if (F::f4) {
            if (lane == 0) {
                barrier_arrive(r.scales_empty(scales_at.which));
            }
            scales_at.next();
        }
        if (informed) {
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
            store_tile<T, F, PART>(a, tile, sums, info, staged, output0, 1 + group);
        }
    }
}

template <typename F> static __device__ __forceinline__ void sync_blocks(void)
{
    if (F::cluster == 1) {
        __syncthreads();
    } else {
        asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
    }
}

template <typename T, typename F, int PART, bool SCATTERED>
static __global__ void __launch_bounds__(THREADS, F::blocks)
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
            barrier_init(r.empty(i), CONSUMERS * F::cluster);
        }
        for (int i = 0; F::f4 && i < 2; i++) {
            barrier_init(r.scales_full(i), 1);
            barrier_init(r.scales_empty(i), CONSUMERS);
        }
        barrier_init_done();
    }
    sync_blocks<F>();
    if (threadIdx.x < 128) {
        registers_shrink<F::blocks == 2 ? 48 : 72>();
        if (SCATTERED) {
            wait_for_previous();
            bring_scattered<T, F, PART>(a, maps, r);
        } else if (threadIdx.x == 0) {
            bring_sorted<F, PART>(a, maps, r);
        }
        __syncwarp();
    } else {
        registers_grow<F::blocks == 2 ? 96 : 216>();
        wait_for_previous();
        start_next();
        compute<T, F, PART, SCATTERED>(a, r);
    }
    if (F::cluster > 1) { /* the other block may still write and arrive here */
        sync_blocks<F>();
    }
#endif
}

/* ---- launching ---- */

/* Blocks of a kernel that walks over its work: as many as run at the same time. Where clusters of 4 do not fit into the
 * groups of processors that a GPU has, these are fewer than its processors. */
template <typename Kernel> static int64_t clusters_of(Kernel kernel, const cudaLaunchConfig_t *config, int32_t cluster)
{
    int64_t clusters = trm_cuda_hopper_processors() / cluster;
    int active = 0;
    if (cluster > 2 && cudaOccupancyMaxActiveClusters(&active, kernel, config) == cudaSuccess && active > 0) {
        clusters = active < clusters ? active : clusters;
    }
    return clusters;
}

template <typename T, typename F, int PART, bool SCATTERED>
static trm_status launch_part(grouped_args *a, const grouped_maps *maps, cudaStream_t stream)
{
    if constexpr (F::halves && F::rows == 256 && F::cluster == 2) {
        /* Four blocks read each token from L2 once for 512 rows of the weight, if the weight has them. */
        const int32_t tiles = (a->outputs * (PART == PART_GATED ? 2 : 1) + TILE_M - 1) / TILE_M;
        if ((tiles + 3) / 4 * 40 <= tiles * 11) {
            return launch_part<T, tile_form<256, F::stages, TRM_MOE_HALVES, 4>, PART, SCATTERED>(a, maps, stream);
        }
    }
    const int32_t tile_outputs = PART == PART_GATED ? TILE_M / 2 : TILE_M, together = tile_outputs * F::cluster;
    a->tiles_m = (a->outputs + together - 1) / together;
    a->blocks_k = (a->inner + F::k - 1) / F::k;
    const int64_t most = trm_cuda_moe_most_tiles(&a->p, F::rows) * a->tiles_m;
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)trm_cuda_hopper_processors() / F::cluster * F::cluster);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = F::shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, true, F::cluster);
    TRM_CUDA_TRY(cudaFuncSetAttribute(multiply_groups<T, F, PART, SCATTERED>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, F::shared));
    const int64_t clusters = clusters_of(multiply_groups<T, F, PART, SCATTERED>, &config, F::cluster) * F::blocks;
    config.gridDim.x = (unsigned)(most < clusters ? most : clusters) * F::cluster;
    (void)cudaLaunchKernelEx(&config, multiply_groups<T, F, PART, SCATTERED>, *a, *maps);
    return trm_cuda_launched("moe experts, grouped");
}

/* Rows of 128, 64 or 32 bytes. */
static inline CUtensorMapSwizzle swizzle_of(int32_t box_columns)
{
    return box_columns == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
           : box_columns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                               : CU_TENSOR_MAP_SWIZZLE_NONE;
}

/* The map of `depth` matrices [rows, columns] of 2 bytes, in boxes of box_rows and a stage's columns. */
static inline trm_status map_matrices(CUtensorMap *map, const void *data, int64_t columns, int64_t rows, int64_t depth,
                                      int32_t box_rows, int32_t box_columns, trm_dtype type)
{
    const cuuint64_t dims[3] = {(cuuint64_t)columns, (cuuint64_t)rows, (cuuint64_t)depth};
    const cuuint64_t strides[2] = {(cuuint64_t)columns * 2, (cuuint64_t)columns * (cuuint64_t)rows * 2};
    const cuuint32_t box[3] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows, 1};
    return trm_cuda_tensor_map(map, data, 3, dims, strides, box, swizzle_of(box_columns), type);
}

/* Gate and up by eights of rows in turn: columns, the eight, gate or up, eights, experts. A row is of `columns` times 2
 * bytes. */
static inline trm_status map_gated(CUtensorMap *map, const trm_moe_experts *p, int64_t columns, int32_t box_columns)
{
    const cuuint64_t row = (cuuint64_t)columns * 2, width = (cuuint64_t)p->width;
    const cuuint64_t dims[5] = {(cuuint64_t)columns, 8, 2, width / 8, (cuuint64_t)p->experts};
    const cuuint64_t strides[4] = {p->interleaved ? 2 * row : row, p->interleaved ? row : width * row,
                                   p->interleaved ? 16 * row : 8 * row, 2 * width * row};
    const cuuint32_t box[5] = {(cuuint32_t)box_columns, 8, 2, TILE_M / 16, 1};
    return trm_cuda_tensor_map(map, p->gate_up, 5, dims, strides, box, swizzle_of(box_columns), p->type);
}

/* Rows as they come to the tensor cores: of bf16, or split into numbers of e4m3. */
template <typename F>
static trm_status map_tokens(CUtensorMap *map, const void *rows, int64_t columns, int64_t n, trm_dtype type)
{
    if (!F::split) {
        return map_matrices(map, rows, columns, n, 1, F::box, TILE_K, type);
    }
    const cuuint64_t bytes = (cuuint64_t)columns, dims[3] = {bytes / 2, (cuuint64_t)n, 2},
                     strides[2] = {2 * bytes, bytes};
    const cuuint32_t box[3] = {TILE_K, F::box, 1};
    return trm_cuda_tensor_map(map, rows, 3, dims, strides, box, CU_TENSOR_MAP_SWIZZLE_128B, type);
}

/* Both products. */
template <typename T, typename F>
static trm_status launch_products(const trm_moe_experts *p, const grouped_room *room, cudaStream_t stream)
{
    grouped_args a = {};
    grouped_maps maps = {};
    const int32_t packed = F::packed, box_columns = F::k / packed;
    const int64_t pairs = p->tokens * p->k;
    constexpr bool scattered = !F::split && F::cluster == 1;
    a.p = *p;
    a.order = room->order;
    a.x = scattered ? p->x : room->x;
    a.units = room->units;
    a.scale = p->gate_up_scale;
    a.out = room->h;
    a.inner = p->hidden;
    a.outputs = p->width;
    a.gate = gate_form_of(p);
    a.simple = p->activation == TRM_EXPERT_SILU && isinf(p->limit) && p->gate_up_bias == NULL && !p->weighted_input;
    if (F::split) {
        launch_split<F>(p, &room->order, p->x, p->hidden, true, room->x, room->units, stream);
    }
    if (!scattered) {
        TRM_TRY(map_tokens<F>(&maps.tokens, room->x, p->hidden, pairs, p->type));
    }
    if (p->activation != TRM_EXPERT_RELU2) {
        TRM_TRY(map_gated(&maps.weight, p, p->hidden / packed, box_columns));
        TRM_TRY((launch_part<T, F, PART_GATED, scattered>(&a, &maps, stream)));
    } else if constexpr (F::halves) { /* no model has quantized weights without a gate yet */
        TRM_TRY(map_matrices(&maps.weight, p->gate_up, p->hidden, p->width, p->experts, TILE_M, TILE_K, p->type));
        TRM_TRY((launch_part<T, F, PART_UP, scattered>(&a, &maps, stream)));
    }
    a.x = room->h;
    if (F::split) {
        a.x = room->h_split;
        launch_split<F>(p, &room->order, room->h, p->width, false, room->h_split, room->units, stream);
    }
    TRM_TRY(
        map_matrices(&maps.weight, p->down, p->width / packed, p->hidden, p->experts, TILE_M, box_columns, p->type));
    TRM_TRY(map_tokens<F>(&maps.tokens, a.x, p->width, pairs, p->type));
    a.scale = p->down_scale;
    a.out = room->parts;
    a.inner = p->width;
    a.outputs = p->hidden;
    return launch_part<T, F, PART_DOWN, false>(&a, &maps, stream);
}

#endif
