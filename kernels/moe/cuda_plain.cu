/*
 * ROUTER and EXPERTS for all types, sizes and formats: what the fast kernels do not take. A block per token, plain
 * loops over weights, sums in f32 by warps. Bound by reading the weights of every token anew.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/moe/cuda_moe.h"
#include "kernels/moe/element.h"

#define THREADS 256
#define WARPS   (THREADS / 32)

static __device__ float sum_of_warp(float value)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    return value;
}

/* ---- router: logits by warps, the choice by one thread ---- */

static __global__ void __launch_bounds__(THREADS) route_plain(const trm_moe_router p)
{
    __shared__ float logits[TRM_MOE_MOST_EXPERTS];
    const int64_t t = blockIdx.x;
    const int lane = threadIdx.x % 32;
    for (int32_t e = threadIdx.x / 32; e < p.experts; e += WARPS) {
        float sum = 0.0f;
        for (int64_t i = lane; p.logits == NULL && i < p.hidden; i += 32) {
            sum += trm_element_load_f32(p.x_type, p.x, t * p.hidden + i) *
                   trm_element_load_f32(p.weight_type, p.weight, e * (int64_t)p.hidden + i);
        }
        sum = sum_of_warp(sum) + (p.logits != NULL ? p.logits[t * p.experts + e] : 0.0f);
        if (lane == 0) {
            logits[e] = sum + (p.bias != NULL ? p.bias[e] : 0.0f);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        trm_moe_route(&p, logits, p.ids + t * p.k, p.weights + t * p.k);
    }
}

trm_status trm_cuda_moe_router_plain(const trm_moe_router *p, cudaStream_t stream)
{
    route_plain<<<(unsigned)p->tokens, THREADS, 0, stream>>>(*p);
    TRM_CUDA_TRY(cudaGetLastError());
    return TRM_OK;
}

/* ---- experts: h of one expert in shared memory, then its output into the token's sum there ---- */

static __device__ float dot_of_warp(const trm_moe_matrix *m, int64_t expert, int64_t row, const float *x)
{
    float sum = 0.0f;
    for (int64_t i = threadIdx.x % 32; i < m->columns; i += 32) {
        sum += (float)trm_moe_number(m, expert, row, i) * x[i];
    }
    return sum_of_warp(sum);
}

static __device__ float bias_of(const trm_moe_experts *p, const void *bias, int64_t i)
{
    return bias != NULL ? trm_element_load_f32(p->type, bias, i) : 0.0f;
}

static __device__ float rounded(trm_dtype type, float value)
{
    return type == TRM_F32   ? value
           : type == TRM_F16 ? trm_element_f16(trm_element_to_f16(value))
                             : trm_element_bf16(trm_element_to_bf16(value));
}

static __global__ void __launch_bounds__(THREADS) experts_plain(const trm_moe_experts p)
{
    extern __shared__ float shared[];
    float *x = shared, *sum = x + p.hidden, *h = sum + p.hidden;
    const int64_t t = blockIdx.x, rows = trm_moe_up_rows(&p);
    const trm_moe_matrix up = trm_moe_up_matrix(&p), down = trm_moe_down_matrix(&p);
    for (int32_t i = threadIdx.x; i < p.hidden; i += THREADS) {
        x[i] = trm_element_load_f32(p.type, p.x, t * p.hidden + i);
        sum[i] = p.residual != NULL ? trm_element_load_f32(p.type, p.residual, t * p.hidden + i) : 0.0f;
    }
    for (int64_t s = t * p.k; s < (t + 1) * p.k; s++) {
        const int64_t expert = trm_moe_local(&p, p.ids[s]);
        if (expert < 0) {
            continue; /* the same for all threads */
        }
        const float before = p.weighted_input ? p.weights[s] : 1.0f, after = p.weighted_input ? 1.0f : p.weights[s];
        __syncthreads();
        for (int32_t i = threadIdx.x / 32; i < p.width; i += WARPS) {
            const int64_t gate = trm_moe_gate_row(&p, i), raised = trm_moe_up_row(&p, i);
            const float u =
                before * dot_of_warp(&up, expert, raised, x) + bias_of(&p, p.gate_up_bias, expert * rows + raised);
            const float g = p.activation == TRM_EXPERT_RELU2 ? 0.0f
                                                             : before * dot_of_warp(&up, expert, gate, x) +
                                                                   bias_of(&p, p.gate_up_bias, expert * rows + gate);
            if (threadIdx.x % 32 == 0) {
                h[i] = rounded(p.type, trm_moe_gated(&p, g, u));
            }
        }
        __syncthreads();
        for (int32_t i = threadIdx.x / 32; i < p.hidden; i += WARPS) {
            const float out = dot_of_warp(&down, expert, i, h) + bias_of(&p, p.down_bias, expert * p.hidden + i);
            if (threadIdx.x % 32 == 0) {
                sum[i] += after * out;
            }
        }
    }
    __syncthreads();
    for (int32_t i = threadIdx.x; i < p.hidden; i += THREADS) {
        trm_element_store_f32(p.type, p.y, t * p.hidden + i, sum[i]);
    }
}

static size_t shared_bytes(const trm_moe_experts *p)
{
    return (2 * (size_t)p->hidden + (size_t)p->width) * sizeof(float);
}

bool trm_cuda_moe_experts_plain_accepts(const trm_moe_experts *p)
{
    return shared_bytes(p) <= 200 * 1024 && shared_bytes(p) <= (size_t)trm_cuda_block_memory();
}

trm_status trm_cuda_moe_experts_plain(const trm_moe_experts *p, cudaStream_t stream)
{
    const int bytes = (int)shared_bytes(p);
    TRM_CUDA_TRY(cudaFuncSetAttribute(experts_plain, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    experts_plain<<<(unsigned)p->tokens, THREADS, (size_t)bytes, stream>>>(*p);
    TRM_CUDA_TRY(cudaGetLastError());
    return TRM_OK;
}
