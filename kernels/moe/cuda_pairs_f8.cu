/*
 * Experts of a few tokens with weights of e4m3, scaled by rows or by blocks of 128 x 128: as cuda_pairs.cu, a lane
 * having 16 numbers of a row at a time, which lie in one block.
 */
#include "kernels/dequant/cuda.cuh"
#include "kernels/moe/cuda_experts.cuh"
#include "kernels/moe/cuda_moe.h"

#define RUN        512 /* numbers that a warp loads at a time, 16 bytes per lane */
#define ROWS       4
#define UP_WARPS   4
#define UP_LOADS   1
#define DOWN_WARPS 8
#define DOWN_LOADS 2

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

template <typename T> static __device__ __forceinline__ void load_x16(const T *from, float (&to)[16])
{
    load16(from, to);
    load16(from + 8, to + 8);
}

static __device__ __forceinline__ float dot16(uint4 w, const float (&x)[16])
{
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
    float sum = 0.0f;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        float v[4];
        floats_of(words[q], v, weight_f8());
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum = fmaf(v[i], x[4 * q + i], sum);
        }
    }
    return sum;
}

/* h of ROWS / 2 outputs (ROWS without a gate) of one pair per block; pairs are neighbours. Bytes moved: gate_up of the
 * pair's expert once over all blocks, x from cache per block. */
template <typename T, bool GATE> static __global__ void __launch_bounds__(UP_WARPS * 32) pair_up_f8(const pair_args a)
{
    const int outputs = GATE ? ROWS / 2 : ROWS;
    __shared__ float partial[UP_WARPS][ROWS];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t pair = blockIdx.x, first = (int64_t)blockIdx.y * outputs;
    const int32_t k = p.hidden;
    wait_for_previous();
    start_next();
    const int32_t expert = local_expert(p, pair);
    if (expert < 0) {
        return;
    }
    const int64_t rows = trm_moe_up_rows(&p);
    const f8_scales scales = scales_of(p, p.gate_up_scale, rows, k);
    const T *x = (const T *)p.x + pair / p.k * k;
    int64_t row[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int64_t i = min(first + r % outputs, (int64_t)p.width - 1);
        row[r] = GATE && r < outputs ? trm_moe_gate_row(&p, i) : trm_moe_up_row(&p, i);
    }
    float sums[ROWS] = {};
    for (int32_t k0 = warp * (UP_LOADS * RUN); k0 < k; k0 += UP_WARPS * UP_LOADS * RUN) {
        uint4 w[ROWS][UP_LOADS];
        float scale[ROWS][UP_LOADS];
#pragma unroll
        for (int u = 0; u < UP_LOADS; u++) {
            const int32_t at = k0 + u * RUN + lane * 16;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                w[r][u] = make_uint4(0, 0, 0, 0);
                scale[r][u] = 0.0f;
                if (at < k) {
                    w[r][u] = load_weight16((const uint8_t *)p.gate_up + (expert * rows + row[r]) * k + at);
                    scale[r][u] = load_scale(scales, expert, row[r], at);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < UP_LOADS; u++) {
            const int32_t at = k0 + u * RUN + lane * 16;
            if (at < k) {
                float v[16];
                load_x16(x + at, v);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    sums[r] = fmaf(scale[r][u], dot16(w[r][u], v), sums[r]);
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float sum = warp_sum(sums[r]);
        if (lane == 0) {
            partial[warp][r] = sum;
        }
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
    gate = gate * factor + (GATE ? bias_of<T>(p.gate_up_bias, expert * rows + trm_moe_gate_row(&p, i)) : 0.0f);
    up = up * factor + bias_of<T>(p.gate_up_bias, expert * rows + trm_moe_up_row(&p, i));
    ((T *)a.h)[pair * p.width + i] = from_float<T>(GATE ? gated_by(p, a.gate, gate, up) : trm_moe_gated(&p, 0.0f, up));
}

/* A lane's numbers of DOWN_LOADS runs and their scales, from run c on; every slot has `runs`. */
static __device__ __forceinline__ void load_down(uint4 (&w)[ROWS][DOWN_LOADS], float (&scale)[ROWS][DOWN_LOADS],
                                                 const trm_moe_experts &p, const f8_scales &scales,
                                                 const int32_t *experts, int32_t c, int32_t runs, int64_t first,
                                                 int lane)
{
#pragma unroll
    for (int u = 0; u < DOWN_LOADS; u++) {
        const int32_t slot = (c + u) / runs, at = (c + u) % runs * RUN + lane * 16;
        const int32_t expert = slot < p.k ? experts[slot] : -1;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            w[r][u] = make_uint4(0, 0, 0, 0);
            scale[r][u] = 0.0f;
            if (expert >= 0 && at < p.width && first + r < p.hidden) {
                const int64_t stored = expert * (int64_t)p.hidden + first + r;
                w[r][u] = load_weight16((const uint8_t *)p.down + stored * p.width + at);
                scale[r][u] = load_scale(scales, expert, first + r, at);
            }
        }
    }
}

/* ROWS outputs of one token per block: its warps share the runs of all of the token's experts, one after the other, and
 * add up in their order. Bytes moved: down of the token's experts once over all blocks, h from cache per block. */
template <typename T> static __global__ void __launch_bounds__(DOWN_WARPS * 32) pair_down_f8(const pair_args a)
{
    __shared__ float partial[DOWN_WARPS][ROWS];
    __shared__ int32_t experts[TRM_MOE_MOST_CHOSEN];
    __shared__ float weights[TRM_MOE_MOST_CHOSEN];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t token = blockIdx.y, first = (int64_t)blockIdx.x * ROWS;
    if (threadIdx.x < p.k) {
        experts[threadIdx.x] = local_expert(p, token * p.k + threadIdx.x);
        weights[threadIdx.x] = p.weighted_input ? 1.0f : __ldcg(p.weights + token * p.k + threadIdx.x);
    }
    __syncthreads();
    const f8_scales scales = scales_of(p, p.down_scale, p.hidden, p.width);
    const int32_t runs = (p.width + RUN - 1) / RUN, all = runs * p.k;
    int32_t c = warp * DOWN_LOADS;
    float sums[ROWS] = {}, scale[ROWS][DOWN_LOADS];
    uint4 w[ROWS][DOWN_LOADS];
    load_down(w, scale, p, scales, experts, c, runs, first, lane);
    wait_for_previous();
    start_next();
    while (c < all) {
#pragma unroll
        for (int u = 0; u < DOWN_LOADS; u++) {
            const int32_t slot = min((c + u) / runs, p.k - 1), at = (c + u) % runs * RUN + lane * 16;
            if (c + u < all && experts[slot] >= 0 && at < p.width) {
                float v[16];
                load_x16((const T *)a.h + (token * p.k + slot) * (int64_t)p.width + at, v);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    sums[r] = fmaf(weights[slot] * scale[r][u], dot16(w[r][u], v), sums[r]);
                }
            }
        }
        c += DOWN_WARPS * DOWN_LOADS;
        if (c < all) {
            load_down(w, scale, p, scales, experts, c, runs, first, lane);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float sum = warp_sum(sums[r]);
        if (lane == 0) {
            partial[warp][r] = sum;
        }
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
