/*
 * What latent attention multiplies before and after attention over latents, for every size and type: one block per
 * token and head. Not tuned: bound by reading the weight for every token, from L2 at best.
 */
#include "attention/cuda/geometry.h"
#include "attention/latent/cuda.h"
#include "kernels/cuda/common.cuh"

/* Where the weight of a head begins. */
template <typename T> static __device__ const T *weight_of(const trm_cuda_latent &l, int32_t head)
{
    return (const T *)l.weight + (int64_t)(l.first_head + head) * (l.plain + l.values) * l.a.value_dim;
}

/* The absorbed query: element r is the sum over i of q[i] weight[i, r]; then what is rotated, as it is. 128 threads. */
template <typename T> static __global__ void __launch_bounds__(128) plain_queries(trm_cuda_latent l)
{
    const int32_t head = blockIdx.x % l.a.query_heads, width = l.plain + l.rotated, rank = l.a.value_dim;
    const int64_t token = blockIdx.x / l.a.query_heads;
    const T *q = (const T *)l.q + (token * l.heads + l.first_head + head) * width;
    const T *weight = weight_of<T>(l, head);
    float *to = (float *)l.a.q + (token * l.a.query_heads + head) * l.a.dim;
    for (int32_t r = threadIdx.x; r < rank; r += blockDim.x) {
        float sum = 0.0f;
        for (int32_t i = 0; i < l.plain; i++) {
            sum += to_float(q[i]) * to_float(weight[(int64_t)i * rank + r]);
        }
        to[r] = sum;
    }
    for (int32_t r = threadIdx.x; r < l.rotated; r += blockDim.x) {
        to[rank + r] = to_float(q[l.plain + r]);
    }
}

/* A head's output: element i is the sum over r of weight[plain + i, r] sum[r]. A warp per element, 4 warps. */
template <typename T> static __global__ void __launch_bounds__(128) plain_values(trm_cuda_latent l)
{
    const int32_t head = blockIdx.x % l.a.query_heads, rank = l.a.value_dim;
    const int64_t token = blockIdx.x / l.a.query_heads;
    const T *weight = weight_of<T>(l, head) + (int64_t)l.plain * rank;
    const float *sums = (const float *)l.a.out + (token * l.a.query_heads + head) * rank;
    T *to = (T *)l.out + (token * l.heads + l.first_head + head) * l.values;
    if (trm_attention_sequence_of(l.a.starts, l.a.sequences, (int32_t)token) < 0) {
        return; /* of no sequence: not written */
    }
    for (int32_t i = threadIdx.x / 32; i < l.values; i += 4) {
        float sum = 0.0f;
        for (int32_t r = threadIdx.x % 32; r < rank; r += 32) {
            sum += to_float(weight[(int64_t)i * rank + r]) * sums[r];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) {
            to[i] = from_float<T>(sum);
        }
    }
}

trm_status trm_cuda_latent_plain_queries(const trm_cuda_latent *l, cudaStream_t stream)
{
    const unsigned grid = (unsigned)(l->a.tokens * l->a.query_heads);
    DISPATCH_FLOAT(l->a.dtype, plain_queries<T><<<grid, 128, 0, stream>>>(*l));
    return trm_cuda_launched("cuda.latent_attention plain queries");
}

trm_status trm_cuda_latent_plain_values(const trm_cuda_latent *l, cudaStream_t stream)
{
    const unsigned grid = (unsigned)(l->a.tokens * l->a.query_heads);
    DISPATCH_FLOAT(l->a.dtype, plain_values<T><<<grid, 128, 0, stream>>>(*l));
    return trm_cuda_launched("cuda.latent_attention plain values");
}
