/*
 * Experts of a few tokens with weights of MXFP4: as cuda_pairs.cu, but by tensor cores, as multiply-adds of single
 * numbers of 4 bits would take longer than reading them.
 *
 * mma m16n8k16 has 16 rows of the weight on its left; on its right all 8 columns are the same row of x. Which k a slot
 * means is ours to choose: of a row's next four blocks of 32 numbers lane (g, t) = (lane / 4, lane % 4) takes block t
 * of rows g and g + 8, 16 bytes each. Four shifts of a word give its numbers (0, 4), (1, 5), (2, 6), (3, 7) as pairs.
 *
 * Measured with one chain of products in a warp instead of two, by bench_moe --format mxfp4 on an H200 that reads 4.54
 * TB/s, both kernels, us and the share of that rate for 1, 2 and 4 tokens: gpt-oss-20b 35.1 0.33, 60.6 0.36, 109.8
 * 0.36; gpt-oss-120b 35.7 0.33, 61.9 0.37, 110.6 0.41.
 */
#include "kernels/cuda/mma.cuh"
#include "kernels/moe/cuda_experts.cuh"
#include "kernels/moe/cuda_f4.cuh"
#include "kernels/moe/cuda_moe.h"

#define BLOCK_BYTES 16 /* of a weight's 32 numbers */

typedef __nv_bfloat16 half_type;

typedef struct pair_args {
    trm_moe_experts p;
    void *h; /* [tokens * k, width] */
    gate_form gate;
} pair_args;

/* WARPS of a block share the inner dimension, LOADS of two rows' blocks under way in each. */
template <int WARPS, int LOADS> struct f4_form {
    static const int warps = WARPS, loads = LOADS;
};

/* A lane's blocks of two rows and their scales. */
struct f4_load {
    uint4 weight[2];
    uint32_t scale[2];
};

static __device__ __forceinline__ uint32_t load_scale(const void *from)
{
    uint32_t scale;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(scale) : "l"(from));
    return scale;
}

/* Block `block` of two rows that begin at these addresses; zeros if not `valid`. */
static __device__ __forceinline__ f4_load load_f4(const uint8_t *const (&weight)[2], const uint8_t *const (&scale)[2],
                                                  int32_t block, bool valid)
{
    f4_load load = {};
    if (valid) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            load.weight[h] = load_weight16(weight[h] + block * BLOCK_BYTES);
            load.scale[h] = load_scale(scale[h] + block);
        }
    }
    return load;
}

/* c[0] + c[1] += these blocks times x, of which 32 elements are at `x`: two chains of products, as one waits for
 * itself. */
static __device__ __forceinline__ void multiply_f4(float (&c)[2][4], const f4_load &load, const half_type *x)
{
    const uint32_t low_factor = f4_factor(load.scale[0]), high_factor = f4_factor(load.scale[1]);
    const uint32_t low[4] = {load.weight[0].x, load.weight[0].y, load.weight[0].z, load.weight[0].w};
    const uint32_t high[4] = {load.weight[1].x, load.weight[1].y, load.weight[1].z, load.weight[1].w};
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint4 v = *(const uint4 *)(x + 8 * q);
        mma_16816(c[0], f4_pair(low[q] << 12, low_factor), f4_pair(high[q] << 12, high_factor),
                  f4_pair(low[q] << 8, low_factor), f4_pair(high[q] << 8, high_factor), __byte_perm(v.x, v.z, 0x5410),
                  __byte_perm(v.x, v.z, 0x7632), half_type());
        mma_16816(c[1], f4_pair(low[q] << 4, low_factor), f4_pair(high[q] << 4, high_factor),
                  f4_pair(low[q], low_factor), f4_pair(high[q], high_factor), __byte_perm(v.y, v.w, 0x5410),
                  __byte_perm(v.y, v.w, 0x7632), half_type());
    }
}

/*
 * h of 8 outputs (16 without a gate) of one pair per block; rows g are gates, rows g + 8 ups. Bytes moved: gate_up of
 * the pair's expert once over all blocks, x from cache per block.
 */
template <bool GATE, typename F> static __global__ void __launch_bounds__(F::warps * 32) pair_up_f4(const pair_args a)
{
    __shared__ float partial[F::warps][16];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int64_t pair = blockIdx.x, first = (int64_t)blockIdx.y * (GATE ? 8 : 16);
    const int32_t blocks = p.hidden / 32;
    wait_for_previous();
    start_next();
    const int32_t expert = local_expert(p, pair);
    if (expert < 0) {
        return;
    }
    const int64_t stored = expert * trm_moe_up_rows(&p), last = (int64_t)p.width - 1;
    const int64_t low = GATE ? trm_moe_gate_row(&p, min(first + g, last)) : min(first + g, last);
    const int64_t high = GATE ? trm_moe_up_row(&p, min(first + g, last)) : min(first + g + 8, last);
    const uint8_t *weight[2], *scale[2];
    weight[0] = (const uint8_t *)p.gate_up + (stored + low) * blocks * BLOCK_BYTES;
    weight[1] = (const uint8_t *)p.gate_up + (stored + high) * blocks * BLOCK_BYTES;
    scale[0] = (const uint8_t *)p.gate_up_scale + (stored + low) * blocks;
    scale[1] = (const uint8_t *)p.gate_up_scale + (stored + high) * blocks;
    const half_type *x = (const half_type *)p.x + pair / p.k * p.hidden;
    float c[2][4] = {};
    for (int32_t b0 = warp * (F::loads * 4); b0 < blocks; b0 += F::warps * F::loads * 4) {
        f4_load loads[F::loads];
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            loads[u] = load_f4(weight, scale, b0 + u * 4 + t, b0 + u * 4 + t < blocks);
        }
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            const int32_t block = b0 + u * 4 + t;
            multiply_f4(c, loads[u], x + (block < blocks ? block : 0) * 32);
        }
    }
    if (t == 0) {
        partial[warp][g] = c[0][0] + c[1][0];
        partial[warp][g + 8] = c[0][2] + c[1][2];
    }
    __syncthreads();
    const int64_t i = first + threadIdx.x;
    if (threadIdx.x >= (GATE ? 8 : 16) || i >= p.width) {
        return;
    }
    float gate = 0.0f, up = 0.0f;
#pragma unroll
    for (int w = 0; w < F::warps; w++) {
        gate += GATE ? partial[w][threadIdx.x] : 0.0f;
        up += partial[w][threadIdx.x + (GATE ? 8 : 0)];
    }
    const float factor = F4_UNIT * (p.weighted_input ? __ldcg(p.weights + pair) : 1.0f);
    gate = gate * factor + (GATE ? bias_of<half_type>(p.gate_up_bias, stored + trm_moe_gate_row(&p, i)) : 0.0f);
    up = up * factor + bias_of<half_type>(p.gate_up_bias, stored + trm_moe_up_row(&p, i));
    ((half_type *)a.h)[pair * p.width + i] =
        from_float<half_type>(GATE ? gated_by(p, a.gate, gate, up) : trm_moe_gated(&p, 0.0f, up));
}

/* Where load c of a token's experts, one after the other, finds its blocks: each expert has `loads` loads. */
struct down_place {
    int32_t slot, block;
    bool valid;
};
static __device__ __forceinline__ down_place find_down(const trm_moe_experts &p, const int32_t *experts, int32_t c,
                                                       int32_t loads, int t)
{
    down_place place;
    place.slot = min(c / loads, p.k - 1);
    place.block = c % loads * 4 + t;
    place.valid = c < loads * p.k && experts[place.slot] >= 0 && place.block * 32 < p.width;
    return place;
}

template <typename F>
static __device__ __forceinline__ void load_down(f4_load (&w)[F::loads], const trm_moe_experts &p,
                                                 const int32_t *experts, int32_t c, int32_t loads, int64_t low,
                                                 int64_t high, int t)
{
    const int32_t blocks = p.width / 32;
#pragma unroll
    for (int u = 0; u < F::loads; u++) {
        const down_place place = find_down(p, experts, c + u, loads, t);
        const int64_t stored = max(experts[place.slot], 0) * (int64_t)p.hidden;
        const uint8_t *weight[2], *scale[2];
        weight[0] = (const uint8_t *)p.down + (stored + low) * blocks * BLOCK_BYTES;
        weight[1] = (const uint8_t *)p.down + (stored + high) * blocks * BLOCK_BYTES;
        scale[0] = (const uint8_t *)p.down_scale + (stored + low) * blocks;
        scale[1] = (const uint8_t *)p.down_scale + (stored + high) * blocks;
        w[u] = load_f4(weight, scale, place.block, place.valid);
    }
}

/*
 * 16 outputs of one token per block: its warps share the blocks of all of the token's experts, one after the other, and
 * add up in their order. Bytes moved: down of the token's experts once over all blocks, h from cache per block.
 */
template <typename F> static __global__ void __launch_bounds__(F::warps * 32) pair_down_f4(const pair_args a)
{
    __shared__ float partial[F::warps][16];
    __shared__ int32_t experts[TRM_MOE_MOST_CHOSEN];
    __shared__ float weights[TRM_MOE_MOST_CHOSEN];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int64_t token = blockIdx.y, first = (int64_t)blockIdx.x * 16, last = (int64_t)p.hidden - 1;
    const int64_t low = min(first + g, last), high = min(first + g + 8, last);
    if (threadIdx.x < p.k) {
        experts[threadIdx.x] = local_expert(p, token * p.k + threadIdx.x);
        weights[threadIdx.x] = p.weighted_input ? 1.0f : __ldcg(p.weights + token * p.k + threadIdx.x);
    }
    __syncthreads();
    const int32_t loads = (p.width / 32 + 3) / 4, all = loads * p.k;
    int32_t c = warp * F::loads;
    float sums[2] = {};
    f4_load w[F::loads];
    load_down<F>(w, p, experts, c, loads, low, high, t);
    wait_for_previous();
    start_next();
    while (c < all) {
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            const down_place place = find_down(p, experts, c + u, loads, t);
            const bool used = c + u < all && experts[place.slot] >= 0; /* the same for the whole warp */
            if (used) {
                const int64_t row = (token * p.k + place.slot) * (int64_t)p.width;
                float part[2][4] = {};
                multiply_f4(part, w[u], (const half_type *)a.h + row + (place.valid ? place.block * 32 : 0));
                sums[0] = fmaf(weights[place.slot], part[0][0] + part[1][0], sums[0]);
                sums[1] = fmaf(weights[place.slot], part[0][2] + part[1][2], sums[1]);
            }
        }
        c += F::warps * F::loads;
        if (c < all) {
            load_down<F>(w, p, experts, c, loads, low, high, t);
        }
    }
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
    for (int v = 0; v < F::warps; v++) {
        sum += partial[v][threadIdx.x];
    }
    sum *= F4_UNIT;
    for (int s = 0; p.down_bias != NULL && s < p.k; s++) {
        if (experts[s] >= 0) {
            sum = fmaf(weights[s], bias_of<half_type>(p.down_bias, experts[s] * (int64_t)p.hidden + i), sum);
        }
    }
    ((half_type *)p.y)[token * p.hidden + i] =
        from_float<half_type>(sum + bias_of<half_type>(p.residual, token * p.hidden + i));
}

template <typename F> static void launch_up(const pair_args *a, cudaStream_t stream)
{
    const trm_moe_experts *p = &a->p;
    const bool gate = p->activation != TRM_EXPERT_RELU2;
    const int32_t outputs = gate ? 8 : 16;
    const dim3 grid((unsigned)(p->tokens * p->k), (unsigned)((p->width + outputs - 1) / outputs));
    launch_overlapped(gate ? pair_up_f4<true, F> : pair_up_f4<false, F>, grid, F::warps * 32, 0, stream, *a);
}

template <typename F> static void launch_down(const pair_args *a, cudaStream_t stream)
{
    const dim3 grid((unsigned)((a->p.hidden + 15) / 16), (unsigned)a->p.tokens);
    launch_kernel(a->p.constant_weights, pair_down_f4<F>, grid, F::warps * 32, 0, stream, *a);
}

trm_status trm_cuda_moe_pairs_f4_run(const trm_moe_experts *p, const trm_moe_plan *plan, void *workspace,
                                     cudaStream_t stream)
{
    static void (*const ups[])(const pair_args *, cudaStream_t) = {launch_up<f4_form<4, 6>>, launch_up<f4_form<4, 3>>,
                                                                   launch_up<f4_form<8, 3>>, launch_up<f4_form<2, 4>>};
    static void (*const downs[])(const pair_args *,
                                 cudaStream_t) = {launch_down<f4_form<8, 4>>, launch_down<f4_form<8, 2>>,
                                                  launch_down<f4_form<16, 2>>, launch_down<f4_form<4, 4>>};
    const pair_args a = {*p, workspace, gate_form_of(p)};
    ups[plan->up](&a, stream);
    downs[plan->down](&a, stream);
    return trm_cuda_launched("moe experts, pairs of mxfp4");
}
