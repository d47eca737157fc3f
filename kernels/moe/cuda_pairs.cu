/*
 * Experts of a few tokens: every pair of a token and a chosen expert is a product of one row by itself, in two kernels
 * without any sorting. Bound by reading the chosen experts' weights once; two tokens' blocks that want the same rows of
 * the same expert run side by side, and the second finds them in L2.
 *
 * The first kernel lets the second start when it has itself seen the router's end. So the second may read ids, and the
 * first of its weights, before it waits for the first.
 *
 * bench_moe, bf16, an H200 that reads 4.54 TB/s, both kernels, us and the share of that rate:
 *
 *   T                      1            2            4            8
 *   qwen3-30b      21.2 0.78    37.1 0.87    68.0 0.90   122.2 0.89
 *   gpt-oss-20b    51.5 0.85    96.5 0.85   163.4 0.86
 *   gpt-oss-120b   53.4 0.82   100.9 0.86   179.5 0.93   340.8 0.94
 *   mixtral       168.9 0.92   297.1 0.90
 */
#include "kernels/moe/cuda_experts.cuh"
#include "kernels/moe/cuda_moe.h"

/* WARPS of a block share the inner dimension; ROWS of the weight per block; LOADS of 16 bytes in flight per row. */
template <int WARPS, int ROWS, int LOADS> struct pair_form {
    static const int warps = WARPS, rows = ROWS, loads = LOADS;
};

#define RUN 256 /* elements of 16 bits that a warp loads at a time, 16 bytes per lane */

typedef struct pair_args {
    trm_moe_experts p;
    void *h; /* [tokens * k, width] */
    gate_form gate;
} pair_args;

template <typename T> static __device__ __forceinline__ float dot8(uint4 w, const float (&x)[8], float sum)
{
    float v[8];
    unpack16<T>(w, v);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum = fmaf(v[i], x[i], sum);
    }
    return sum;
}

/*
 * h of F::rows / 2 outputs (F::rows without a gate) of one pair per block; pairs are neighbours. Bytes moved:
 * gate_up of the pair's expert once over all blocks, x from cache per block.
 */
template <typename T, bool GATE, typename F>
static __global__ void __launch_bounds__(F::warps * 32) pair_up(const pair_args a)
{
    const int outputs = GATE ? F::rows / 2 : F::rows;
    __shared__ float partial[F::warps][F::rows];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t pair = blockIdx.x, k = p.hidden, first = (int64_t)blockIdx.y * outputs;
    wait_for_previous();
    start_next();
    const int32_t expert = local_expert(p, pair);
    if (expert < 0) {
        return;
    }
    const int64_t rows = trm_moe_up_rows(&p), stored = expert * rows;
    const T *x = (const T *)p.x + pair / p.k * k;
    const T *row[F::rows];
#pragma unroll
    for (int r = 0; r < F::rows; r++) {
        const int64_t i = min(first + r % outputs, (int64_t)p.width - 1);
        const int64_t at = GATE && r < outputs ? trm_moe_gate_row(&p, i) : trm_moe_up_row(&p, i);
        row[r] = (const T *)p.gate_up + (stored + at) * k;
    }
    float sums[F::rows] = {};
    for (int64_t k0 = warp * (F::loads * RUN); k0 < k; k0 += F::warps * F::loads * RUN) {
        uint4 w[F::rows][F::loads];
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            const int64_t at = k0 + u * RUN + lane * 8;
#pragma unroll
            for (int r = 0; r < F::rows; r++) {
                w[r][u] = at < k ? load_weight16(row[r] + at) : make_uint4(0, 0, 0, 0);
            }
        }
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            const int64_t at = k0 + u * RUN + lane * 8;
            float v[8];
            unpack16<T>(at < k ? *(const uint4 *)(x + at) : make_uint4(0, 0, 0, 0), v);
#pragma unroll
            for (int r = 0; r < F::rows; r++) {
                sums[r] = dot8<T>(w[r][u], v, sums[r]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < F::rows; r++) {
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
    for (int w = 0; w < F::warps; w++) {
        gate += GATE ? partial[w][threadIdx.x] : 0.0f;
        up += partial[w][threadIdx.x + F::rows - outputs];
    }
    const float scale = p.weighted_input ? __ldcg(p.weights + pair) : 1.0f;
    gate = gate * scale + (GATE ? bias_of<T>(p.gate_up_bias, stored + trm_moe_gate_row(&p, i)) : 0.0f);
    up = up * scale + bias_of<T>(p.gate_up_bias, stored + trm_moe_up_row(&p, i));
    ((T *)a.h)[pair * p.width + i] = from_float<T>(GATE ? gated_by(p, a.gate, gate, up) : trm_moe_gated(&p, 0.0f, up));
}

/* A lane's weights of F::loads runs, of which every slot has `runs`, from run c on. */
template <typename T, typename F>
static __device__ __forceinline__ void load_down(uint4 (&w)[F::rows][F::loads], const trm_moe_experts &p,
                                                 const int32_t *experts, int32_t c, int32_t runs, int64_t first,
                                                 int lane)
{
#pragma unroll
    for (int u = 0; u < F::loads; u++) {
        const int32_t slot = (c + u) / runs, at = (c + u) % runs * RUN + lane * 8;
        const int32_t expert = slot < p.k ? experts[slot] : -1;
        const T *from = (const T *)p.down + (expert * (int64_t)p.hidden + first) * p.width + at;
        const bool there = expert >= 0 && at < p.width;
#pragma unroll
        for (int r = 0; r < F::rows; r++) {
            w[r][u] =
                there && first + r < p.hidden ? load_weight16(from + r * (int64_t)p.width) : make_uint4(0, 0, 0, 0);
        }
    }
}

/*
 * F::rows outputs of one token per block: its warps share the runs of all of the token's experts, one after the other,
 * and add up in their order. Bytes moved: down of the token's experts once over all blocks, h from cache per block.
 */
template <typename T, typename F> static __global__ void __launch_bounds__(F::warps * 32) pair_down(const pair_args a)
{
    __shared__ float partial[F::warps][F::rows];
    __shared__ int32_t experts[TRM_MOE_MOST_CHOSEN];
    __shared__ float weights[TRM_MOE_MOST_CHOSEN];
    const trm_moe_experts &p = a.p;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t token = blockIdx.y, first = (int64_t)blockIdx.x * F::rows, width = p.width;
    if (threadIdx.x < p.k) {
        experts[threadIdx.x] = local_expert(p, token * p.k + threadIdx.x);
        weights[threadIdx.x] = p.weighted_input ? 1.0f : __ldcg(p.weights + token * p.k + threadIdx.x);
    }
    __syncthreads();
    const int32_t runs = (int32_t)((width + RUN - 1) / RUN), all = runs * p.k;
    int32_t c = warp * F::loads;
    float sums[F::rows] = {};
    uint4 w[F::rows][F::loads];
    load_down<T, F>(w, p, experts, c, runs, first, lane);
    wait_for_previous();
    start_next();
    while (c < all) {
#pragma unroll
        for (int u = 0; u < F::loads; u++) {
            const int32_t slot = min((c + u) / runs, p.k - 1), at = (c + u) % runs * RUN + lane * 8;
            if (c + u < all && experts[slot] >= 0 && at < width) {
                const float weight = weights[slot];
                float v[8];
                load16((const T *)a.h + (token * p.k + slot) * width + at, v);
#pragma unroll
                for (int r = 0; r < F::rows; r++) {
                    sums[r] = fmaf(weight, dot8<T>(w[r][u], v, 0.0f), sums[r]);
                }
            }
        }
        c += F::warps * F::loads;
        if (c < all) {
            load_down<T, F>(w, p, experts, c, runs, first, lane);
        }
    }
#pragma unroll
    for (int r = 0; r < F::rows; r++) {
        const float sum = warp_sum(sums[r]);
        if (lane == 0) {
            partial[warp][r] = sum;
        }
    }
    __syncthreads();
    const int64_t i = first + threadIdx.x;
    if (threadIdx.x >= F::rows || i >= p.hidden) {
        return;
    }
    float sum = 0.0f;
#pragma unroll
    for (int w2 = 0; w2 < F::warps; w2++) {
        sum += partial[w2][threadIdx.x];
    }
    for (int s = 0; p.down_bias != NULL && s < p.k; s++) {
        if (experts[s] >= 0) {
            sum = fmaf(weights[s], bias_of<T>(p.down_bias, experts[s] * (int64_t)p.hidden + i), sum);
        }
    }
    ((T *)p.y)[token * p.hidden + i] = from_float<T>(sum + bias_of<T>(p.residual, token * p.hidden + i));
}

/* ---- launching ---- */

/*
 * Forms, of eleven tried. bench_moe --forms, bf16, us of both kernels on an H200; the form of the first kernel with the
 * second's being 4, 4, 1, and of the second with the best of the first:
 *
 *                          4, 4, 1   4, 4, 2   1, 4, 4   8, 4, 2   best of the others
 *   qwen3-30b, T 1, first     23.7      22.9      24.8      28.9   22.7  4, 6, 2
 *                  second     22.7      22.4      28.7      20.5   20.9  8, 4, 1
 *   qwen3-30b, T 4, first     71.2      71.1      68.2      87.4   68.9  4, 8, 1
 *                  second     68.2      67.3      71.9      69.6   67.4  8, 4, 1
 *   gpt-oss-20b, T 1, first   53.3      56.2      54.5      60.7   54.0  1, 2, 8
 *                    second   53.3      50.7      63.4      53.1   51.7  4, 6, 2
 *   gpt-oss-20b, T 4, first  173.1     173.7     168.7     194.5  169.2  4, 8, 1
 *                    second  168.7     164.5     182.3     165.1  163.6  4, 8, 1
 *   mixtral, T 1, first      160.2     159.5     163.6     160.6  160.8  4, 8, 1
 *                second      159.5     157.2     180.1     157.4  158.5  4, 6, 2
 */
typedef pair_form<4, 4, 1> form0;
typedef pair_form<4, 4, 2> form1;
typedef pair_form<1, 4, 4> form2;
typedef pair_form<8, 4, 2> form3;
#define FORMS 4

int32_t trm_cuda_moe_pairs_forms(void)
{
    return FORMS;
}

void trm_cuda_moe_pairs_choose(const trm_moe_experts *p, trm_moe_plan *plan)
{
    if (p->format != TRM_MOE_HALVES) {
        plan->up = plan->down = 0;
        return;
    }
    plan->up = p->tokens > 1 ? 2 : p->hidden <= 2048 ? 1 : 0;
    plan->down = p->tokens == 1 && p->width * p->k <= 8192 ? 3 : 1;
}

size_t trm_cuda_moe_pairs_workspace(const trm_moe_experts *p)
{
    return p->format == TRM_MOE_MXFP4 ? trm_cuda_moe_pairs_f4_workspace(p)
                                      : (size_t)p->tokens * (size_t)p->k * (size_t)p->width * 2;
}

template <typename T, typename F> static void launch_up(const pair_args *a, cudaStream_t stream)
{
    const trm_moe_experts *p = &a->p;
    const bool gate = p->activation != TRM_EXPERT_RELU2;
    const int64_t outputs = gate ? F::rows / 2 : F::rows;
    const dim3 grid((unsigned)(p->tokens * p->k), (unsigned)((p->width + outputs - 1) / outputs));
    launch_overlapped(gate ? pair_up<T, true, F> : pair_up<T, false, F>, grid, F::warps * 32, 0, stream, *a);
}

template <typename T, typename F> static void launch_down(const pair_args *a, cudaStream_t stream)
{
    const dim3 grid((unsigned)((a->p.hidden + F::rows - 1) / F::rows), (unsigned)a->p.tokens);
    launch_kernel(a->p.constant_weights, pair_down<T, F>, grid, F::warps * 32, 0, stream, *a);
}

template <typename T> static void launch(const pair_args *a, const trm_moe_plan *plan, cudaStream_t stream)
{
    static void (*const ups[FORMS])(const pair_args *, cudaStream_t) = {launch_up<T, form0>, launch_up<T, form1>,
                                                                        launch_up<T, form2>, launch_up<T, form3>};
    static void (*const downs[FORMS])(const pair_args *, cudaStream_t) = {launch_down<T, form0>, launch_down<T, form1>,
                                                                          launch_down<T, form2>, launch_down<T, form3>};
    ups[plan->up](a, stream);
    downs[plan->down](a, stream);
}

trm_status trm_cuda_moe_pairs_run(const trm_moe_experts *p, const trm_moe_plan *plan, void *workspace,
                                  cudaStream_t stream)
{
    pair_args a;
    a.p = *p;
    a.h = workspace;
    a.gate = gate_form_of(p);
    if (p->type == TRM_BF16) {
        launch<__nv_bfloat16>(&a, plan, stream);
    } else {
        launch<__half>(&a, plan, stream);
    }
    return trm_cuda_launched("moe experts, pairs");
}
