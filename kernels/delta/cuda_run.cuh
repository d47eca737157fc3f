/*
 * What the kernels of this family share: runs of tokens, and a token of the gated delta rule.
 */
#ifndef TRM_KERNELS_DELTA_CUDA_RUN_CUH
#define TRM_KERNELS_DELTA_CUDA_RUN_CUH

#include "kernels/delta/delta.h"

#define RUN 16 /* tokens of a block that convolves, of a prompt */

/* The sequence of a run of tokens, and which of its runs it is: sequence s has run numbers from starts[s] / RUN + s on,
 * so there are at most tokens / RUN + sequences. */
static __device__ __forceinline__ void find_run(const trm_delta_sequences &all, int32_t number, int32_t *sequence,
                                                int32_t *run)
{
    int32_t low = 0, high = (int32_t)all.n - 1;
    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (all.starts[middle] / RUN + middle <= number) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    *sequence = low;
    *run = number - (all.starts[low] / RUN + low);
}

/* One token. With S before it: S' = decay S + k d^T, d = strength (v - decay S^T k), and S'^T q = decay S^T q + (q k)
 * d, so that both sums over S are taken at once. */
template <int DK>
static __device__ __forceinline__ float delta_token(float (&s)[DK / 4], const float *q, const float *k, float decay,
                                                    float strength, float qk, float v)
{
    float read[4] = {}, result[4] = {};
#pragma unroll
    for (int i = 0; i < DK / 4; i += 4) {
        const float4 k4 = *(const float4 *)(k + i), q4 = *(const float4 *)(q + i);
        read[0] += s[i] * k4.x;
        read[1] += s[i + 1] * k4.y;
        read[2] += s[i + 2] * k4.z;
        read[3] += s[i + 3] * k4.w;
        result[0] += s[i] * q4.x;
        result[1] += s[i + 1] * q4.y;
        result[2] += s[i + 2] * q4.z;
        result[3] += s[i + 3] * q4.w;
    }
    float of_k = (read[0] + read[1]) + (read[2] + read[3]), of_q = (result[0] + result[1]) + (result[2] + result[3]);
#pragma unroll
    for (int offset = 8; offset <= 16; offset *= 2) {
        of_k += __shfl_xor_sync(0xffffffffu, of_k, offset);
        of_q += __shfl_xor_sync(0xffffffffu, of_q, offset);
    }
    const float delta = strength * (v - decay * of_k);
#pragma unroll
    for (int i = 0; i < DK / 4; i += 4) {
        const float4 k4 = *(const float4 *)(k + i);
        s[i] = decay * s[i] + k4.x * delta;
        s[i + 1] = decay * s[i + 1] + k4.y * delta;
        s[i + 2] = decay * s[i + 2] + k4.z * delta;
        s[i + 3] = decay * s[i + 3] + k4.w * delta;
    }
    return decay * of_q + qk * delta;
}

#endif
