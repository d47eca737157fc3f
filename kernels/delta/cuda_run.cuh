/*
 * What the kernels of this family share: runs and chunks of tokens, and a token of the gated delta rule.
 */
#ifndef TRM_KERNELS_DELTA_CUDA_RUN_CUH
#define TRM_KERNELS_DELTA_CUDA_RUN_CUH

#include "kernels/delta/delta.h"

#define RUN   16 /* tokens of a block that convolves, of a prompt */
#define CHUNK 64 /* tokens of a sequence that are multiplied together, in cuda_chunk.cu */
#define LEAST 16 /* tokens of a sequence that are worth a chunk */

/* Of a step's tokens of a sequence, how many go by chunks; the others behind them leave a version of the state each,
 * and go token by token. */
static __device__ __forceinline__ int64_t chunked_tokens(int64_t count, int64_t places)
{
    return count - (places - 1) >= LEAST ? count - (places - 1) : 0;
}

/* The sequence of a run of SIZE tokens, and which of its runs it is: sequence s has run numbers from starts[s] / SIZE +
 * s on, so there are at most tokens / SIZE + sequences. All lanes of a warp call it: each looks at one of 32 parts. */
template <int SIZE>
static __device__ __forceinline__ void find_run(const trm_delta_sequences &all, int32_t number, int32_t *sequence,
                                                int32_t *run)
{
    int32_t low = 0, count = (int32_t)all.n;
    while (count > 1) {
        const int32_t part = (count + 31) / 32, at = ((int32_t)threadIdx.x & 31) * part;
        const bool before = at < count && all.starts[low + at] / SIZE + low + at <= number;
        const int32_t last = (31 - __clz((int)__ballot_sync(0xffffffffu, before))) * part;
        low += last;
        count = count - last < part ? count - last : part;
    }
    *sequence = low;
    *run = number - (all.starts[low] / SIZE + low);
}

/* run(sequence, tokens) for every sequence of which tokens go by chunks, by blocks along y in turn. All threads call
 * it.
 */
template <typename F>
static __device__ __forceinline__ void each_chunked(const trm_delta_sequences &all, int64_t places, F run)
{
    unsigned turn = 0;
    for (int32_t group = 0; group < all.n; group += 32) {
        const int32_t own = group + ((int32_t)threadIdx.x & 31);
        const int64_t chunked = own < all.n ? chunked_tokens(all.starts[own + 1] - all.starts[own], places) : 0;
        for (unsigned found = __ballot_sync(0xffffffffu, chunked > 0); found != 0; found &= found - 1) {
            const int which = __ffs((int)found) - 1;
            const int64_t tokens = __shfl_sync(0xffffffffu, chunked, which);
            if (turn++ % gridDim.y == blockIdx.y) {
                run(group + which, tokens);
            }
        }
    }
}

/* Blocks along y for it, with as many along x: enough to fill the chip, and no more than there are such sequences. */
static inline unsigned chunked_at_once(int64_t sequences, int64_t tokens, unsigned blocks)
{
    const int64_t most = tokens / LEAST < sequences ? tokens / LEAST : sequences, at_once = (511 + blocks) / blocks;
    return (unsigned)(most < at_once ? most : at_once);
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
