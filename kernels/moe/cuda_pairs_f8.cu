/*
 * Experts of a few tokens with weights of e4m3, scaled by rows or by blocks of 128 x 128: as cuda_pairs.cu, but by
 * tensor cores, as multiply-adds of single numbers take longer than reading them. One instruction makes two numbers of
 * e4m3 into f16, so x is f16, too: of bf16 a warp multiplies what it has of x by the power of two that brings the
 * largest to [2^14, 2^15). That keeps all bits of numbers down to 2^-29 of the largest.
 *
 * mma m16n8k16 has 16 rows of the weight on its left; on its right all 8 columns are the same row of x. Which k a slot
 * means is ours to choose: of a row's next 64 numbers lane (g, t) = (lane / 4, lane % 4) takes run t of 16, in rows g
 * and g + 8.
 */
#include "kernels/cuda/mma.cuh"
#include "kernels/dequant/cuda_load.cuh"
#include "kernels/moe/cuda_experts.cuh"
#include "kernels/moe/cuda_moe.h"

#define ROWS       16
#define RUN        256 /* columns that a warp multiplies at a time */
#define LOADS      (RUN / 64)
#define UP_WARPS   8
#define DOWN_WARPS 16

typedef struct pair_args {
    trm_moe_experts p;
    void *h; /* [tokens * k, width] */
    gate_form gate;
} pair_args;

/* The scales of one matrix. */
struct f8_scales {
    const float *scale;
    int64_t of_expert;
    int32_t across; /* blocks of a row; 0: one for all of it */
};

static __device__ __forceinline__ f8_scales scales_of(const trm_moe_experts &p, const void *scale, int64_t rows,
                                                      int32_t columns)
{
    f8_scales s;
    s.scale = (const float *)scale;
    s.across = p.format == TRM_MOE_F8_ROWS ? 0 : (columns + 127) / 128;
    s.of_expert = s.across == 0 ? rows : (rows + 127) / 128 * s.across;
    return s;
}

static __device__ __forceinline__ float load_scale(const f8_scales &s, int64_t expert, int64_t row, int32_t column)
{
    const int64_t at = s.across == 0 ? row : row / 128 * s.across + column / 128;
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(s.scale + expert * s.of_expert + at));
    return v;
}

/* A lane's numbers of a run in rows g and g + 8 of a warp's 16, and the scales of the run's blocks of 128 columns. */
struct f8_run {
    uint4 weight[LOADS][2];
    float scale[RUN / 128][2];
};

/* `rows` are stored rows of the expert's matrix of `columns`, which begins at `weight`; zeros behind the end. */
static __device__ __forceinline__ void load_run(f8_run &run, const uint8_t *weight, const f8_scales &scales,
                                                int64_t expert, const int64_t (&rows)[2], int32_t columns,
                                                int32_t column0, bool valid, int lane)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            const int32_t at = column0 + u * 64 + (lane & 3) * 16;
            run.weight[u][h] =
                valid && at < columns ? load_weight16(weight + rows[h] * columns + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int b = 0; b < RUN / 128; b++) {
            const int32_t at = column0 + b * 128;
            run.scale[b][h] = valid && at < columns ? load_scale(scales, expert, rows[h], at) : 0.0f;
        }
    }
}

/* A warp's 256 numbers of x as f16 in its own `room`, zeros behind the end; what they are to be multiplied by. */
static __device__ __forceinline__ float stage_x(uint4 *room, const __half *x, bool valid, int lane)
{
    room[lane] = valid ? *(const uint4 *)x : make_uint4(0, 0, 0, 0);
    __syncwarp();
    return 1.0f;
}

static __device__ __forceinline__ float stage_x(uint4 *room, const __nv_bfloat16 *x, bool valid, int lane)
{
    const uint4 words = valid ? *(const uint4 *)x : make_uint4(0, 0, 0, 0);
    uint32_t most = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t size = word_of(words, q) & 0x7fff7fffu;
        most = max(most, max(size & 0xffffu, size >> 16));
    }
    /* Neither power of two is subnormal; numbers that are infinite or none come out as none. */
    const uint32_t exponent = max(__reduce_max_sync(0xffffffffu, most) >> 7, 20u);
    const float factor = __uint_as_float((268u - exponent) << 23);
    uint32_t halves[4];
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t word = word_of(words, q);
        const __half2 pair =
            __floats2half2_rn(__uint_as_float(word << 16) * factor, __uint_as_float(word & 0xffff0000u) * factor);
        halves[q] = *(const uint32_t *)&pair;
    }
    room[lane] = make_uint4(halves[0], halves[1], halves[2], halves[3]);
    __syncwarp();
    return __uint_as_float(exponent == 255 ? 0x7fc00000u : (exponent - 14) << 23);
}

static __device__ __forceinline__ uint32_t halves_of(uint32_t word, int high)
{
    return e4m3_halves((uint16_t)(high ? word >> 16 : word));
}

/* sums of rows g and g + 8 += a run times x. A lane has all columns' sums. */
static __device__ __forceinline__ void multiply_run(float (&sums)[2], const f8_run &run, const uint4 *x, float factor,
                                                    int lane)
{
#pragma unroll
    for (int b = 0; b < RUN / 128; b++) {
        float c[2][4] = {};
#pragma unroll
        for (int u = 2 * b; u < 2 * b + 2; u++) {
            const uint4 first = x[u * 8 + (lane & 3) * 2], second = x[u * 8 + (lane & 3) * 2 + 1];
#pragma unroll
            for (int q = 0; q < 4; q++) { /* four of the lane's 16 numbers */
                const uint4 &from = q < 2 ? first : second;
                const uint32_t low = word_of(run.weight[u][0], q), high = word_of(run.weight[u][1], q);
                mma_16816(c[u & 1], halves_of(low, 0), halves_of(high, 0), halves_of(low, 1), halves_of(high, 1),
                          word_of(from, 2 * (q & 1)), word_of(from, 2 * (q & 1) + 1), __half());
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sums[h] = fmaf((c[0][2 * h] + c[1][2 * h]) * factor, run.scale[b][h], sums[h]);
        }
    }
}

/* h of ROWS / 2 outputs (ROWS without a gate) of one pair per block; rows g are gates, rows g + 8 ups. Bytes moved:
 * gate_up of the pair's expert once over all blocks, x from cache per block. */
template <typename T, bool GATE>
static __global__ void __launch_bounds__(UP_WARPS * 32, 2) pair_up_f8(const pair_args a)
{
    const int outputs = GATE ? ROWS / 2 : ROWS;
    __shared__ float partial[UP_WARPS][ROWS];
    __shared__ uint4 room[UP_WARPS][RUN / 8];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2;
    const int64_t pair = blockIdx.x, first = (int64_t)blockIdx.y * outputs, last = (int64_t)p.width - 1;
    const int32_t k = p.hidden;
    wait_for_previous();
    start_next();
    const int32_t expert = local_expert(p, pair);
    if (expert < 0) {
        return;
    }
    const int64_t stored = trm_moe_up_rows(&p);
    const f8_scales scales = scales_of(p, p.gate_up_scale, stored, k);
    const uint8_t *weight = (const uint8_t *)p.gate_up + expert * stored * k;
    const int64_t rows[2] = {GATE ? trm_moe_gate_row(&p, min(first + g, last)) : min(first + g, last),
                             GATE ? trm_moe_up_row(&p, min(first + g, last)) : min(first + g + 8, last)};
    const T *x = (const T *)p.x + pair / p.k * k;
    float sums[2] = {};
    for (int32_t k0 = warp * RUN; k0 < k; k0 += UP_WARPS * RUN) {
        f8_run run;
        load_run(run, weight, scales, expert, rows, k, k0, true, lane);
        __syncwarp();
        const float factor = stage_x(room[warp], x + k0 + lane * 8, k0 + lane * 8 < k, lane);
        multiply_run(sums, run, room[warp], factor, lane);
    }
    if ((lane & 3) == 0) {
        partial[warp][g] = sums[0];
        partial[warp][g + 8] = sums[1];
    }
    __syncthreads();
    const int64_t i = first + threadIdx.x;
    if (threadIdx.x >= outputs || i >= p.width) {
        return;
    }
    float gate = 0.0f, up = 0.0f;
#pragma unroll
    for (int w = 0; w < UP_WARPS; w++) {
        gate += GATE ? partial[w][threadIdx.x] : 0.0f;
        up += partial[w][threadIdx.x + ROWS - outputs];
    }
    const float factor = p.weighted_input ? __ldcg(p.weights + pair) : 1.0f;
    gate = gate * factor + (GATE ? bias_of<T>(p.gate_up_bias, expert * stored + trm_moe_gate_row(&p, i)) : 0.0f);
    up = up * factor + bias_of<T>(p.gate_up_bias, expert * stored + trm_moe_up_row(&p, i));
    ((T *)a.h)[pair * p.width + i] = from_float<T>(GATE ? gated_by(p, a.gate, gate, up) : trm_moe_gated(&p, 0.0f, up));
}

/* ROWS outputs of one token per block: its warps share the runs of all of the token's experts, one after the other, and
 * add up in their order. Bytes moved: down of the token's experts once over all blocks, h from cache per block. */
template <typename T> static __global__ void __launch_bounds__(DOWN_WARPS * 32) pair_down_f8(const pair_args a)
{
    __shared__ float partial[DOWN_WARPS][ROWS];
    __shared__ uint4 room[DOWN_WARPS][RUN / 8];
    __shared__ int32_t experts[TRM_MOE_MOST_CHOSEN];
    __shared__ float weights[TRM_MOE_MOST_CHOSEN];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2;
    const int64_t token = blockIdx.y, first = (int64_t)blockIdx.x * ROWS, last = (int64_t)p.hidden - 1;
    const int64_t rows[2] = {min(first + g, last), min(first + g + 8, last)};
    if (threadIdx.x < p.k) {
        experts[threadIdx.x] = local_expert(p, token * p.k + threadIdx.x);
        weights[threadIdx.x] = p.weighted_input ? 1.0f : __ldcg(p.weights + token * p.k + threadIdx.x);
    }
    __syncthreads();
    const f8_scales scales = scales_of(p, p.down_scale, p.hidden, p.width);
    const int32_t runs = (p.width + RUN - 1) / RUN, all = runs * p.k;
    const uint8_t *down = (const uint8_t *)p.down;
    const int64_t of_expert = p.hidden * (int64_t)p.width;
    float sums[2] = {};
    f8_run run;
    int32_t c = warp;
    load_run(run, down + max(experts[min(c / runs, p.k - 1)], 0) * of_expert, scales,
             max(experts[min(c / runs, p.k - 1)], 0), rows, p.width, c % runs * RUN, c < all && experts[c / runs] >= 0,
             lane);
    wait_for_previous();
    start_next();
    for (; c < all; c += DOWN_WARPS) {
        const int32_t slot = c / runs, column = c % runs * RUN + lane * 8;
        if (experts[slot] >= 0) {
            float part[2] = {};
            __syncwarp();
            const T *h = (const T *)a.h + (token * p.k + slot) * (int64_t)p.width;
            const float factor = stage_x(room[warp], h + column, column < p.width, lane);
            multiply_run(part, run, room[warp], factor, lane);
            sums[0] = fmaf(weights[slot], part[0], sums[0]);
            sums[1] = fmaf(weights[slot], part[1], sums[1]);
        }
        const int32_t next = c + DOWN_WARPS;
        if (next < all) {
            const int32_t expert = experts[next / runs];
            load_run(run, down + max(expert, 0) * of_expert, scales, max(expert, 0), rows, p.width, next % runs * RUN,
                     expert >= 0, lane);
        }
    }
    if ((lane & 3) == 0) {
        partial[warp][g] = sums[0];
        partial[warp][g + 8] = sums[1];
    }
    __syncthreads();
    const int64_t i = first + threadIdx.x;
    if (threadIdx.x >= ROWS || i >= p.hidden) {
        return;
    }
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < DOWN_WARPS; v++) {
        sum += partial[v][threadIdx.x];
    }
    for (int s = 0; p.down_bias != NULL && s < p.k; s++) {
        if (experts[s] >= 0) {
            sum = fmaf(weights[s], bias_of<T>(p.down_bias, experts[s] * (int64_t)p.hidden + i), sum);
        }
    }
    ((T *)p.y)[token * p.hidden + i] = from_float<T>(sum + bias_of<T>(p.residual, token * p.hidden + i));
}

template <typename T> static void launch(const pair_args *a, cudaStream_t stream)
{
    const trm_moe_experts *p = &a->p;
    const bool gate = p->activation != TRM_EXPERT_RELU2;
    const int32_t outputs = gate ? ROWS / 2 : ROWS;
    launch_overlapped(gate ? pair_up_f8<T, true> : pair_up_f8<T, false>,
                      dim3((unsigned)(p->tokens * p->k), (unsigned)((p->width + outputs - 1) / outputs)), UP_WARPS * 32,
                      0, stream, *a);
    launch_kernel(p->constant_weights, pair_down_f8<T>,
                  dim3((unsigned)((p->hidden + ROWS - 1) / ROWS), (unsigned)p->tokens), DOWN_WARPS * 32, 0, stream, *a);
}

trm_status trm_cuda_moe_pairs_f8_run(const trm_moe_experts *p, void *workspace, cudaStream_t stream)
{
    const pair_args a = {*p, workspace, gate_form_of(p)};
    if (p->type == TRM_BF16) {
        launch<__nv_bfloat16>(&a, stream);
    } else {
        launch<__half>(&a, stream);
    }
    return trm_cuda_launched("moe experts, pairs of e4m3");
}
