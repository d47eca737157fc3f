/*
 * Experts of a few tokens with weights of MXFP4: as cuda_pairs.cu, but by tensor cores, as multiply-adds of single
 * numbers of 4 bits would take longer than reading them. Twice a number of 4 bits is an integer, so products are of
 * integers: 32 neighbours of x are numbers of 15 bits in a unit of their own, each cut into two digits of 8 bits. The
 * sum over a block of 32 is exact.
 *
 * mma m16n8k32 has 16 rows of the weight on its left. Which k a slot means is ours to choose: of a row's next four
 * blocks lane (g, t) = (lane / 4, lane % 4) takes block t of rows g and g + 8, 16 bytes each, 8 numbers per product.
 * Columns 2t and 2t + 1 on the right are the digits of block t, with zeros where the other lanes' blocks are. So the
 * lane's sums are those of its own block.
 *
 * Two byte permutations look up four numbers: one those without a sign, one those with it, and each gives all ones for
 * the others' (it repeats the sign of the byte it finds). That needs bytes below zero: all are 13 too small, which 13
 * times the sum of x's numbers puts right.
 *
 * bench_moe --format mxfp4 on an H200, both kernels, us and the share of the read rate: gpt-oss-20b 1 token 25.9 0.45,
 * gpt-oss-120b 2 tokens 47.1 0.48. Products that convert weights to bf16 took 34.5 and 61.5.
 */
#include "kernels/cuda/mma.cuh"
#include "kernels/dequant/cuda_load.cuh"
#include "kernels/moe/cuda_experts.cuh"
#include "kernels/moe/cuda_moe.h"

#define BLOCK       32 /* numbers that share a scale */
#define BLOCK_BYTES 16
#define BELOW       13 /* what all weights are too small by */
#define UP_TILES    4  /* of 16 rows in a block of the first kernel */
#define UP_WARPS    2  /* share the inner dimension of a tile */
#define UP_THREADS  (UP_TILES * UP_WARPS * 32)
#define DOWN_WARPS  16 /* share the inner dimension */
#define LOADS       2  /* of two rows' blocks in flight in a warp */

typedef __nv_bfloat16 half_type;

/* 32 numbers of 15 bits: their high and their low digits. */
struct fixed_block {
    uint4 digits[2][2];
};

/* Half of the numbers' unit, as weights are doubled; BELOW times their sum. */
struct fixed_unit {
    float half;
    int32_t offset;
};

typedef struct pair_args {
    trm_moe_experts p;
    fixed_block *h;     /* [tokens * k, width / 32] */
    fixed_unit *h_unit; /* likewise */
    uint32_t inverse;   /* 2^32 divided by the turns of an expert's row, rounded up */
    gate_form gate;
} pair_args;

/* Blocks of a stacked matrix are counted from its first, below 2^32; rows g and g + 8 of a tile begin at these. */
struct f4_rows {
    const uint8_t *weight, *scale;
    uint32_t begin[2];
};

/* A lane's blocks of two rows and their scales. */
struct f4_load {
    uint4 weight[2];
    uint32_t scale[2];
};

static __device__ __forceinline__ f4_rows rows_of(const void *weight, const void *scale, int64_t low, int64_t high,
                                                  int32_t blocks)
{
    f4_rows rows;
    rows.weight = (const uint8_t *)weight;
    rows.scale = (const uint8_t *)scale;
    rows.begin[0] = (uint32_t)(low * blocks);
    rows.begin[1] = (uint32_t)(high * blocks);
    return rows;
}

static __device__ __forceinline__ f4_load load_f4(const f4_rows &rows, uint32_t block)
{
    f4_load load;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t at = rows.begin[h] + block;
        load.weight[h] = load_weight16(rows.weight + (uint64_t)at * BLOCK_BYTES);
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(load.scale[h]) : "l"(rows.scale + at));
    }
    return load;
}

static __device__ __forceinline__ uint32_t permute(uint32_t low, uint32_t high, uint32_t select)
{
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(select));
    return bytes;
}

/*
 * Neighbours 8 i .. 8 i + 7 of a block in lane i of four, as numbers of 15 bits; the digits' bytes 8 i .. 8 i + 7.
 * Every lane gets the unit. Numbers that are infinite or none make the whole block none.
 */
static __device__ __forceinline__ fixed_unit make_fixed(const uint4 &words, uint2 &high, uint2 &low)
{
    uint32_t most = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        most = __vmaxu2(most, word_of(words, q) & 0x7fff7fffu);
    }
    most = max(most & 0xffffu, most >> 16);
    most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = max(most, __shfl_xor_sync(0xffffffffu, most, 2));
    const uint32_t exponent = max(most >> 7, 20u); /* neither power of two is subnormal */
    const float factor = __uint_as_float((267u - exponent) << 23);
    uint32_t r[8]; /* the numbers + 128 in the low 16 bits */
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t word = word_of(words, q);
        r[2 * q] = __float_as_uint(fmaf(__uint_as_float(word << 16), factor, 12582912.0f + 128.0f));
        r[2 * q + 1] = __float_as_uint(fmaf(__uint_as_float(word & 0xffff0000u), factor, 12582912.0f + 128.0f));
    }
    high.x = permute(permute(r[0], r[1], 0x51), permute(r[2], r[3], 0x51), 0x5410);
    high.y = permute(permute(r[4], r[5], 0x51), permute(r[6], r[7], 0x51), 0x5410);
    low.x = permute(permute(r[0], r[1], 0x40), permute(r[2], r[3], 0x40), 0x5410) ^ 0x80808080u;
    low.y = permute(permute(r[4], r[5], 0x40), permute(r[6], r[7], 0x40), 0x5410) ^ 0x80808080u;
    int32_t sum = __dp4a((int32_t)high.y, 0x01010101, __dp4a((int32_t)high.x, 0x01010101, 0)) * 256;
    sum = __dp4a((int32_t)low.y, 0x01010101, __dp4a((int32_t)low.x, 0x01010101, sum));
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    fixed_unit unit;
    unit.half = __uint_as_float(exponent == 255 ? 0x7fc00000u : (exponent - 14) << 23);
    unit.offset = BELOW * sum;
    return unit;
}

/* Four numbers of 4 bits, doubled, less BELOW. */
static __device__ __forceinline__ uint32_t f4_bytes(uint32_t bits)
{
    return permute(0xf6f5f4f3u, 0xfffbf9f7u, bits) & permute(0xf0f1f2f3u, 0xe7ebedefu, bits ^ 0x8888u);
}

static __device__ __forceinline__ void mma_16832(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                 uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* A scale e8m0, of which 0 is subnormal. */
static __device__ __forceinline__ float f4_scale(uint32_t scale)
{
    return __uint_as_float(max(scale << 23, 0x00400000u));
}

/* What a lane has of the digits of its block: one of the two columns, or zeros. */
struct f4_digits {
    uint4 run[2];
};

static __device__ __forceinline__ f4_digits load_digits(const fixed_block *x, int lane)
{
    f4_digits digits = {};
    if (lane >> 3 == (lane & 3)) {
        const uint4 *from = x->digits[lane >> 2 & 1];
        digits.run[0] = from[0];
        digits.run[1] = from[1];
    }
    return digits;
}

/* sums of rows g and g + 8 += the lane's block of them times its block of x. */
static __device__ __forceinline__ void multiply_f4(float (&sums)[2], const f4_load &load, const f4_digits &digits,
                                                   const fixed_unit &unit)
{
    int32_t c[4] = {0, unit.offset, 0, unit.offset};
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t low = word_of(load.weight[0], q), high = word_of(load.weight[1], q);
        mma_16832(c, f4_bytes(low), f4_bytes(high), f4_bytes(low >> 16), f4_bytes(high >> 16),
                  word_of(digits.run[q >> 1], 2 * (q & 1)), word_of(digits.run[q >> 1], 2 * (q & 1) + 1));
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sums[h] = fmaf((float)(c[2 * h] * 256 + c[2 * h + 1]) * unit.half, f4_scale(load.scale[h]), sums[h]);
    }
}

/* The sum over the four lanes of a row. */
static __device__ __forceinline__ float sum_lanes(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/*
 * h of 8 outputs (16 without a gate) per tile of one pair; rows g of a tile are gates, rows g + 8 ups. Bytes moved:
 * gate_up of the pair's expert once over all blocks, x from cache per block.
 */
template <bool GATE> static __global__ void __launch_bounds__(UP_THREADS, 3) pair_up_f4(const pair_args a)
{
    const int of_tile = GATE ? 8 : 16, outputs = UP_TILES * of_tile;
    extern __shared__ uint4 room[];
    __shared__ float partial[UP_WARPS][UP_TILES][16];
    __shared__ __align__(16) half_type result[outputs];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int tile = warp / UP_WARPS, part = warp % UP_WARPS;
    const int64_t pair = blockIdx.x, begin = (int64_t)blockIdx.y * outputs, first = begin + tile * of_tile;
    const int32_t blocks = p.hidden / BLOCK;
    fixed_block *x = (fixed_block *)room;
    fixed_unit *x_unit = (fixed_unit *)(x + blocks);
    wait_for_previous();
    start_next();
    const int32_t expert = local_expert(p, pair);
    if (expert < 0) {
        return;
    }
    const int64_t stored = expert * trm_moe_up_rows(&p), last = (int64_t)p.width - 1;
    const int64_t low = GATE ? trm_moe_gate_row(&p, min(first + g, last)) : min(first + g, last);
    const int64_t high = GATE ? trm_moe_up_row(&p, min(first + g, last)) : min(first + g + 8, last);
    const f4_rows rows = rows_of(p.gate_up, p.gate_up_scale, stored + low, stored + high, blocks);
    const uint32_t end = (uint32_t)blocks - 1;
    f4_load loads[LOADS];
    int32_t b0 = part * 4;
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
        loads[u] = load_f4(rows, min((uint32_t)(b0 + u * UP_WARPS * 4 + t), end));
    }
    const uint4 *row = (const uint4 *)((const half_type *)p.x + pair / p.k * p.hidden);
    for (int32_t i0 = warp * 32; i0 < blocks * 4; i0 += UP_THREADS) {
        const int32_t i = i0 + lane;
        uint2 high_digits, low_digits;
        const fixed_unit unit = make_fixed(i < blocks * 4 ? row[i] : make_uint4(0, 0, 0, 0), high_digits, low_digits);
        if (i < blocks * 4) {
            ((uint2 *)x[i / 4].digits[0])[i % 4] = high_digits;
            ((uint2 *)x[i / 4].digits[1])[i % 4] = low_digits;
            x_unit[i / 4] = unit;
        }
    }
    __syncthreads();
    float sums[2] = {};
    while (b0 < blocks) {
#pragma unroll
        for (int u = 0; u < LOADS; u++, b0 += UP_WARPS * 4) {
            const int32_t block = b0 + t, place = min(block, blocks - 1);
            fixed_unit unit = x_unit[place];
            if (block >= blocks) {
                unit = fixed_unit();
            }
            multiply_f4(sums, loads[u], load_digits(x + place, lane), unit);
            loads[u] = load_f4(rows, min((uint32_t)(block + LOADS * UP_WARPS * 4), end));
        }
    }
    sums[0] = sum_lanes(sums[0]);
    sums[1] = sum_lanes(sums[1]);
    if (t == 0) {
        partial[part][tile][g] = sums[0];
        partial[part][tile][g + 8] = sums[1];
    }
    __syncthreads();
    if (threadIdx.x < outputs) {
        const int64_t i = begin + threadIdx.x;
        const int at = threadIdx.x / of_tile, r = threadIdx.x % of_tile;
        float gate = 0.0f, up = 0.0f;
#pragma unroll
        for (int w = 0; w < UP_WARPS; w++) {
            gate += GATE ? partial[w][at][r] : 0.0f;
            up += partial[w][at][r + (GATE ? 8 : 0)];
        }
        if (i < p.width) {
            const float factor = p.weighted_input ? __ldcg(p.weights + pair) : 1.0f;
            gate = gate * factor + (GATE ? bias_of<half_type>(p.gate_up_bias, stored + trm_moe_gate_row(&p, i)) : 0.0f);
            up = up * factor + bias_of<half_type>(p.gate_up_bias, stored + trm_moe_up_row(&p, i));
            up = GATE ? gated_by(p, a.gate, gate, up) : trm_moe_gated(&p, 0.0f, up);
        }
        result[threadIdx.x] = from_float<half_type>(up);
    }
    __syncthreads();
    if (warp == 0) {
        const int64_t block = begin / BLOCK + lane / 4;
        uint2 high_digits, low_digits;
        const fixed_unit unit = make_fixed(lane * 8 < outputs ? ((const uint4 *)result)[lane] : make_uint4(0, 0, 0, 0),
                                           high_digits, low_digits);
        if (lane * 8 < outputs && block * BLOCK < p.width) {
            fixed_block *h = a.h + pair * (p.width / BLOCK) + block;
            ((uint2 *)h->digits[0])[lane % 4] = high_digits;
            ((uint2 *)h->digits[1])[lane % 4] = low_digits;
            a.h_unit[pair * (p.width / BLOCK) + block] = unit;
        }
    }
}

/* The next of a token's experts' blocks in a lane: a warp takes four blocks of an expert's rows at a time, and the
 * experts one after the other. */
struct f4_down {
    f4_load weight;
    f4_digits digits;
    fixed_unit unit;
    int32_t slot, block; /* slot < 0: behind the last one, or not of an expert that is here */
};

/*
 * 16 outputs of one token per block: its warps share the blocks of all of the token's experts, one after the other, and
 * add up in their order. Bytes moved: down of the token's experts once over all blocks, h from cache per block.
 */
static __global__ void __launch_bounds__(DOWN_WARPS * 32, 2) pair_down_f4(const pair_args a)
{
    __shared__ float partial[DOWN_WARPS][16];
    __shared__ int32_t experts[TRM_MOE_MOST_CHOSEN];
    __shared__ float weights[TRM_MOE_MOST_CHOSEN];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int64_t token = blockIdx.y, first = (int64_t)blockIdx.x * 16, last = (int64_t)p.hidden - 1;
    const int32_t blocks = p.width / BLOCK, turns = (blocks + 3) / 4, all = turns * p.k;
    const f4_rows rows = rows_of(p.down, p.down_scale, min(first + g, last), min(first + g + 8, last), blocks);
    const uint32_t of_expert = (uint32_t)p.hidden * (uint32_t)blocks;
    if (threadIdx.x < p.k) {
        experts[threadIdx.x] = local_expert(p, token * p.k + threadIdx.x);
        weights[threadIdx.x] = p.weighted_input ? 1.0f : __ldcg(p.weights + token * p.k + threadIdx.x);
    }
    __syncthreads();
    f4_down w[LOADS];
    const auto load_weight = [&](f4_down &to, int32_t c) {
        const int32_t slot = turns == 1 ? c : (int32_t)__umulhi((uint32_t)c, a.inverse);
        const int32_t expert = c < all ? experts[slot] : -1;
        to.slot = expert < 0 ? -1 : slot;
        to.block = (c - slot * turns) * 4 + t;
        if (expert >= 0) {
            to.weight = load_f4(rows, (uint32_t)expert * of_expert + (uint32_t)min(to.block, blocks - 1));
        }
    };
    const auto load_h = [&](f4_down &to) {
        if (to.slot >= 0) {
            const uint32_t at = (uint32_t)((token * p.k + to.slot) * blocks + min(to.block, blocks - 1));
            to.digits = load_digits(a.h + at, lane);
            to.unit = a.h_unit[at];
        }
    };
    int32_t c = warp;
    float sums[2] = {};
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
        load_weight(w[u], c + u * DOWN_WARPS);
    }
    wait_for_previous();
    start_next();
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
        load_h(w[u]);
    }
    while (c < all) {
#pragma unroll
        for (int u = 0; u < LOADS; u++, c += DOWN_WARPS) {
            if (w[u].slot >= 0) { /* the same for the whole warp */
                w[u].unit.half *= weights[w[u].slot];
                multiply_f4(sums, w[u].weight, w[u].digits, w[u].block < blocks ? w[u].unit : fixed_unit());
            }
            load_weight(w[u], c + LOADS * DOWN_WARPS);
            load_h(w[u]);
        }
    }
    sums[0] = sum_lanes(sums[0]);
    sums[1] = sum_lanes(sums[1]);
    if (t == 0) {
        partial[warp][g] = sums[0];
        partial[warp][g + 8] = sums[1];
    }
    __syncthreads();
    const int64_t i = first + threadIdx.x;
    if (threadIdx.x >= 16 || i >= p.hidden) {
        return;
    }
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < DOWN_WARPS; v++) {
        sum += partial[v][threadIdx.x];
    }
    for (int s = 0; p.down_bias != NULL && s < p.k; s++) {
        if (experts[s] >= 0) {
            sum = fmaf(weights[s], bias_of<half_type>(p.down_bias, experts[s] * (int64_t)p.hidden + i), sum);
        }
    }
    ((half_type *)p.y)[token * p.hidden + i] =
        from_float<half_type>(sum + bias_of<half_type>(p.residual, token * p.hidden + i));
}

template <bool GATE> static void launch_up(const pair_args *a, cudaStream_t stream)
{
    const trm_moe_experts *p = &a->p;
    const int32_t outputs = UP_TILES * (GATE ? 8 : 16);
    const size_t shared = (size_t)(p->hidden / BLOCK) * (sizeof(fixed_block) + sizeof(fixed_unit));
    if (shared > 40 * 1024) {
        (void)cudaFuncSetAttribute(pair_up_f4<GATE>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    }
    launch_overlapped(pair_up_f4<GATE>,
                      dim3((unsigned)(p->tokens * p->k), (unsigned)((p->width + outputs - 1) / outputs)), UP_THREADS,
                      shared, stream, *a);
}

size_t trm_cuda_moe_pairs_f4_workspace(const trm_moe_experts *p)
{
    return (size_t)(p->tokens * p->k) * (size_t)(p->width / BLOCK) * (sizeof(fixed_block) + sizeof(fixed_unit));
}

trm_status trm_cuda_moe_pairs_f4_run(const trm_moe_experts *p, void *workspace, cudaStream_t stream)
{
    fixed_block *const h = (fixed_block *)workspace;
    const uint32_t turns = (uint32_t)(p->width / BLOCK + 3) / 4;
    const pair_args a = {*p, h, (fixed_unit *)(h + p->tokens * p->k * (p->width / BLOCK)),
                         turns > 1 ? UINT32_MAX / turns + 1 : 0, gate_form_of(p)};
    if (p->activation != TRM_EXPERT_RELU2) {
        launch_up<true>(&a, stream);
    } else {
        launch_up<false>(&a, stream);
    }
    launch_kernel(p->constant_weights, pair_down_f4, dim3((unsigned)((p->hidden + 15) / 16), (unsigned)p->tokens),
                  DOWN_WARPS * 32, 0, stream, a);
    return trm_cuda_launched("moe experts, pairs of mxfp4");
}
