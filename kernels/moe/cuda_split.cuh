/*
 * Products with weights of e4m3 or MXFP4 by the tensor cores' products of e4m3: these take e4m3 as it is stored, and
 * eight numbers of MXFP4 by seven instructions.
 *
 * Tokens are split: a number divided by its row's unit is rounded to e4m3, and so is what that leaves. The unit is a
 * power of two that brings the largest number of the row to [128, 256). So a product of bf16 becomes two of e4m3, whose
 * sum is that of numbers with an error of at most 2^-18 of the largest of the row; a number of bf16 itself has one of
 * 2^-9 of its size. Every 128 columns' sums (32 of MXFP4) are multiplied by the weight's scale and added in f32.
 *
 * Part of cuda_grouped.cuh.
 */
#ifndef TRM_KERNELS_MOE_CUDA_SPLIT_CUH
#define TRM_KERNELS_MOE_CUDA_SPLIT_CUH

#include "kernels/cuda/e4m3.cuh"

/* ---- tokens ---- */

/* 16 neighbouring numbers of bf16. */
struct split_run {
    uint4 words[2];
};

static __device__ __forceinline__ split_run load_run(const __nv_bfloat16 *from, bool valid)
{
    split_run run = {};
    if (valid) {
        run.words[0] = *(const uint4 *)from;
        run.words[1] = *(const uint4 *)(from + 8);
    }
    return run;
}

static __device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b)
{
    uint32_t most;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}

/* The largest sizes of a run's even and odd numbers, and of `most`. */
static __device__ __forceinline__ uint32_t largest_of_run(const split_run &run, uint32_t most)
{
#pragma unroll
    for (int q = 0; q < 8; q++) {
        most = larger_pair(most, word_of(run.words[q / 4], q % 4) & 0x7fff7fffu);
    }
    return most;
}

/* The largest size that any lane of the warp has, as the bits of a bf16. */
static __device__ __forceinline__ uint32_t largest_of_warp(uint32_t most)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        most = larger_pair(most, __shfl_xor_sync(0xffffffffu, most, step));
    }
    return max(most & 0xffffu, most >> 16);
}

/* What a row's numbers are divided by: a power of two; no number if the largest is none or infinite. */
struct split_unit {
    float unit, inverse;
};
static __device__ __forceinline__ split_unit unit_of(uint32_t largest)
{
    const uint32_t exponent = max(largest >> 7, 10u); /* so that neither power is subnormal */
    split_unit u;
    u.unit = __uint_as_float(exponent == 255 ? 0x7fc00000u : (exponent - 7) << 23);
    u.inverse = __uint_as_float((261u - exponent) << 23);
    return u;
}

/* Two numbers, and what is left of them; `first` in the low byte. */
static __device__ __forceinline__ void split_pair(float first, float second, uint32_t &high, uint32_t &low)
{
    const uint16_t pair = e4m3_pair(first, second);
    const uint32_t halves = e4m3_halves(pair);
    const float2 rounded = __half22float2(*(const __half2 *)&halves);
    high = pair;
    low = e4m3_pair(first - rounded.x, second - rounded.y);
}

/* A run as bytes. For MXFP4 its even numbers and then its odd ones, which is the order that low_e4m3 and high_e4m3 give
 * the weight's. */
template <bool F4>
static __device__ __forceinline__ void split_of(const split_run &run, float inverse, uint32_t (&high)[4],
                                                uint32_t (&low)[4])
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = F4 ? q / 2 + 2 * (4 * (q % 2) + i) : 4 * q + i;
            const uint32_t word = word_of(run.words[column / 8], column / 2 % 4);
            v[i] = __uint_as_float(column % 2 ? word & 0xffff0000u : word << 16) * inverse;
        }
        uint32_t h[2], l[2];
        split_pair(v[0], v[1], h[0], l[0]);
        split_pair(v[2], v[3], h[1], l[1]);
        high[q] = h[0] | h[1] << 16;
        low[q] = l[0] | l[1] << 16;
    }
}

/* Where the 16 bytes of run `chunk` of a row begin, or the 8 of its even or odd numbers. */
template <bool F4> static __device__ __forceinline__ int32_t run_place(int32_t chunk, int odd)
{
    return F4 ? chunk / 2 * 32 + odd * 16 + chunk % 2 * 8 : chunk * 16;
}

typedef struct split_args {
    trm_moe_experts p;
    trm_moe_order order;
    const void *from; /* rows of `columns`, in the order of tokens or of experts */
    int32_t columns;
    bool tokens;
    uint8_t *to; /* [pairs, 2, columns] in the order of experts */
    float *units;
} split_args;

/* A row per block in turn. Bytes moved: rows once or twice, from cache the second time; as many are written. Bound by
 * latency for a few tokens. */
template <bool F4> static __global__ void __launch_bounds__(128) split_rows(const split_args a)
{
    __shared__ uint32_t largest[4];
    const int32_t runs = a.columns / 16, warp = threadIdx.x >> 5;
    if (a.tokens) { /* the next kernel reads the order at once: it begins when that is known */
        wait_for_previous();
        start_next();
    } else {
        begin_overlapped();
    }
    const int32_t tiles = *a.order.tiles_n;
    const trm_moe_tile last = a.order.tiles[max(tiles - 1, 0)];
    const int32_t rows = tiles > 0 ? last.row + last.rows : 0;
    for (int32_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t place = a.tokens ? a.order.pairs[row] / a.p.k : row;
        const __nv_bfloat16 *from = (const __nv_bfloat16 *)a.from + place * a.columns;
        uint8_t *to = a.to + (int64_t)row * 2 * a.columns;
        const split_run first = load_run(from + threadIdx.x * 16, (int32_t)threadIdx.x < runs);
        uint32_t most = largest_of_run(first, 0);
        for (int32_t i = threadIdx.x + 128; i < runs; i += 128) {
            most = largest_of_run(load_run(from + i * 16, true), most);
        }
        most = largest_of_warp(most);
        __syncthreads(); /* all have read those of the row before */
        if ((threadIdx.x & 31) == 0) {
            largest[warp] = most;
        }
        __syncthreads();
        const split_unit u = unit_of(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
        if (threadIdx.x == 0) {
            a.units[row] = u.unit;
        }
        for (int32_t i = threadIdx.x; i < runs; i += 128) {
            uint32_t high[4], low[4];
            split_of<F4>(i == (int32_t)threadIdx.x ? first : load_run(from + i * 16, true), u.inverse, high, low);
            if (F4) {
#pragma unroll
                for (int odd = 0; odd < 2; odd++) {
                    uint8_t *at = to + run_place<F4>(i, odd);
                    *(uint2 *)at = make_uint2(high[2 * odd], high[2 * odd + 1]);
                    *(uint2 *)(at + a.columns) = make_uint2(low[2 * odd], low[2 * odd + 1]);
                }
            } else {
                *(uint4 *)(to + run_place<F4>(i, 0)) = make_uint4(high[0], high[1], high[2], high[3]);
                *(uint4 *)(to + run_place<F4>(i, 0) + a.columns) = make_uint4(low[0], low[1], low[2], low[3]);
            }
        }
    }
}

template <typename F>
static void launch_split(const trm_moe_experts *p, const trm_moe_order *order, const void *from, int32_t columns,
                         bool tokens, void *to, float *units, cudaStream_t stream)
{
    const split_args a = {*p, *order, from, columns, tokens, (uint8_t *)to, units};
    launch_overlapped(split_rows<F::f4>, grid_for(p->tokens * p->k, 1), 128, 0, stream, a);
}

/* ---- products ---- */

/* Four numbers of MXFP4 in the low halves of bytes, or in the high ones, as e4m3 times 2^6. */
static __device__ __forceinline__ uint32_t low_e4m3(uint32_t word)
{
    const uint32_t size = word << 2 & 0x1c1c1c1cu;
    uint32_t value;
    asm("lop3.b32 %0, %1, 0x80808080, %2, 0xea;" : "=r"(value) : "r"(word << 4), "r"(size));
    return value;
}
static __device__ __forceinline__ uint32_t high_e4m3(uint32_t word)
{
    const uint32_t size = word >> 2 & 0x1c1c1c1cu;
    uint32_t value;
    asm("lop3.b32 %0, %1, 0x80808080, %2, 0xea;" : "=r"(value) : "r"(word), "r"(size));
    return value;
}

/* A number that all lanes of the warp have, in a register that the warp has once: what descriptors of operands are made
 * of takes a third of the instructions then. */
static __device__ __forceinline__ uint32_t of_warp(uint32_t number)
{
    return __shfl_sync(0xffffffffu, number, 0);
}

/* part (+)= left * (upper + lower parts of N tokens) over 32 columns. */
template <typename F, int N, typename... Left>
static __device__ __forceinline__ void multiply_tokens(float (&part)[N / 2], uint64_t tokens, bool more, Left... left)
{
    wgmma_nt(part, left..., tokens, more, e4m3_type());
    wgmma_nt(part, left..., tokens + F::rows * SPLIT_K / 16, 1, e4m3_type());
}

/* sums += part * the scales of rows g and g + 8. */
template <int N>
static __device__ __forceinline__ void add_scaled(float (&sums)[N], const float (&part)[N], const float (&scale)[2])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        sums[i] = fmaf(part[i], scale[i >> 1 & 1], sums[i]);
    }
}

/* The weight of e4m3 is a left operand as it is stored. */
template <typename F, int N>
static __device__ __forceinline__ void multiply_stage_f8(float (&sums)[N / 2], const tile_ring<F> &r, int stage,
                                                         const float (&scale)[2], int group, int lane)
{
    const uint32_t from = of_warp(r.stage(stage));
    const uint64_t weight = wgmma_operand<128>(from + of_warp(group) * 64 * SPLIT_K, 0),
                   tokens = wgmma_operand<128>(from + F::weight_bytes, 0);
    float part[N / 2];
    wgmma_pin(part);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < SPLIT_K / 32; step++) {
        multiply_tokens<F, N>(part, tokens + step * 2, step > 0, weight + step * 2);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(part);
    release(r, stage, lane);
    add_scaled<N / 2>(sums, part, scale);
}

/* The scales of four blocks of columns from `column` on; behind the end numbers are 0, with any scale. */
static __device__ __forceinline__ void load_scales(float (&scale)[4][2], const scale_rows &scales, int32_t column)
{
    const uint32_t low = scales.low + column, high = scales.high + column;
    uint32_t bytes[4][2];
    if (column + 4 <= scales.count) {
#pragma unroll
        for (int b = 0; b < 4; b++) {
            bytes[b][0] = load_byte(low + b);
            bytes[b][1] = load_byte(high + b);
        }
    } else {
#pragma unroll
        for (int b = 0; b < 4; b++) {
            const int32_t inside = min(b, scales.count - 1 - column);
            bytes[b][0] = load_byte(low + inside);
            bytes[b][1] = load_byte(high + inside);
        }
    }
#pragma unroll
    for (int b = 0; b < 4; b++) {
        scale[b][0] = __uint_as_float(bytes[b][0] << 23);
        scale[b][1] = __uint_as_float(bytes[b][1] << 23);
    }
}

/* Of MXFP4 some blocks of 32 columns at a time, of whose four words lane (g, t) has word t. `rows`: where a stage has
 * the lane's row for load_matrices(). */
template <typename F, int N>
static __device__ __forceinline__ void multiply_stage_f4(float (&sums)[N / 2], const tile_ring<F> &r, int stage,
                                                         int32_t block, uint32_t rows, int lane,
                                                         const scale_rows &scales)
{
    const int together = N <= 16 ? 4 : 2;
    const uint32_t from = of_warp(r.stage(stage)), weight = from + rows;
    const uint64_t tokens = wgmma_operand<128>(from + F::weight_bytes, 0);
    float scale[4][2];
    load_scales(scale, scales, 4 * block);
#pragma unroll
    for (int b0 = 0; b0 < 4; b0 += together) {
        float part[together][N / 2];
        uint32_t left[together][4];
#pragma unroll
        for (int b = 0; b < together; b += 2) {
            uint32_t words[4]; /* rows g and g + 8 of block b, then of b + 1 */
            load_matrices(words, weight ^ (uint32_t)(b0 + b) << 4);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                left[b + i / 2][i % 2] = low_e4m3(words[i]);
                left[b + i / 2][2 + i % 2] = high_e4m3(words[i]);
            }
            wgmma_pin(part[b]);
            wgmma_pin(part[b + 1]);
        }
        wgmma_begin();
#pragma unroll
        for (int b = 0; b < together; b++) {
            multiply_tokens<F, N>(part[b], tokens + (b0 + b) * 2, false, left[b][0], left[b][1], left[b][2],
                                  left[b][3]);
        }
        wgmma_commit();
        wgmma_wait<0>();
        if (b0 + together == 4) {
            release(r, stage, lane);
        }
#pragma unroll
        for (int b = 0; b < together; b++) {
            wgmma_pin(part[b]);
#pragma unroll
            for (int i = 0; i < 4; i++) { /* products read them up to here */
                asm volatile("" : "+r"(left[b][i]) : : "memory");
            }
            add_scaled<N / 2>(sums, part[b], scale[b0 + b]);
        }
    }
}

/* By the first N tokens of a tile, into the first registers. */
template <typename F, int N>
static __device__ __forceinline__ void multiply_split(const grouped_args &a, const trm_moe_tile &tile,
                                                      float (&all)[F::rows / 2], const tile_ring<F> &r,
                                                      ring_place<F> &at, int group, int lane, const scale_rows &scales)
{
    float(&sums)[N / 2] = reinterpret_cast<float(&)[N / 2]>(all);
    float scale[2] = {}, coming[2] = {};
    const int row = group * 64 + (int)(threadIdx.x >> 5 & 3) * 16 + (lane & 15);
    const uint32_t rows = (uint32_t)(row * (SPLIT_K / 2) + ((lane >> 4 ^ (row >> 1 & 3)) << 4)); /* in a stage */
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        sums[i] = 0.0f;
    }
    if (!F::f4) {
        coming[0] = scales.from[0][0];
        coming[1] = scales.from[1][0];
    }
    for (int32_t block = 0; block < a.blocks_k; block++) {
        if (!F::f4) {
            const int32_t next = scales.one ? 0 : min(block + 1, a.blocks_k - 1);
            scale[0] = coming[0];
            scale[1] = coming[1];
            coming[0] = scales.from[0][next];
            coming[1] = scales.from[1][next];
        }
        barrier_wait(r.full(at.stage), at.parity);
        if constexpr (F::f4) {
            multiply_stage_f4<F, N>(sums, r, at.stage, block, rows, lane, scales);
        } else {
            multiply_stage_f8<F, N>(sums, r, at.stage, scale, group, lane);
        }
        at.next();
    }
    /* Units are read past L1, as this kernel may begin before the one that writes them. */
    const float whole = F::f4 ? 64.0f : 1.0f; /* see low_e4m3 */
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        const int token = 8 * i + 2 * (lane & 3);
        const float first = token < tile.rows ? whole * __ldcg(a.units + tile.row + token) : 0.0f;
        const float second = token + 1 < tile.rows ? whole * __ldcg(a.units + tile.row + token + 1) : 0.0f;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            sums[4 * i + e] *= e & 1 ? second : first;
        }
    }
}

#endif
