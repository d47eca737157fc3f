/*
 * What the kernels of QKV_ATTENTION share: angles and heads of a token, which keys are seen by how many clusters, and
 * how the blocks of a cluster join their results.
 */
#ifndef TRM_ATTENTION_QKV_CUDA_CUH
#define TRM_ATTENTION_QKV_CUDA_CUH

#include "attention/qkv/cuda.h"
#include "attention/cuda/rows.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/rope/cuda.cuh"

#define QKV_MAX_CLUSTER 8  /* what every device allows */
#define QKV_FEW_KEYS    64 /* per block alone, before more take part */

/* cos and sin of a token's pairs into shared memory, by all threads of the block. */
static __device__ __forceinline__ void find_angles(const trm_cuda_qkv &p, int32_t token, float *cosines, float *sines)
{
    float position = (float)p.positions[token];
    int32_t length = p.rope_lengths != NULL ? p.rope_lengths[token] : 0;
    for (int i = threadIdx.x; i < p.rope.rotary_dim / 2; i += blockDim.x) {
        float s, c;
        sincosf(position * rope_frequency(p.rope, p.inv_freq, i, length), &s, &c);
        cosines[i] = c * p.rope.magnitude;
        sines[i] = s * p.rope.magnitude;
    }
}

/* Elements of head `head` of a token in qkv: queries first, then keys, then values. */
template <typename T>
static __device__ __forceinline__ const T *head_of(const trm_cuda_qkv &p, int32_t token, int32_t head)
{
    return (const T *)p.qkv + (int64_t)token * p.width + (int64_t)head * p.a.dim;
}

/* A float at the same place of shared memory in block `block` of the cluster. */
static __device__ __forceinline__ float read_in(const float *place, int block)
{
#if __CUDA_ARCH__ >= 900
    uint32_t mapped;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared_address(place)), "r"(block));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(mapped) : "memory");
    return value;
#else
    (void)block;
    return *place;
#endif
}

/* Partial results of a head: value_dim sums, then maximum and sum of weights. */
static __device__ __forceinline__ float *cluster_partial(const trm_cuda_attention &a, int32_t cluster, int32_t sequence,
                                                         int32_t head)
{
    return a.partial + (((int64_t)cluster * a.sequences + sequence) * a.query_heads + head) * (a.value_dim + 2);
}

/* Keys that a sequence's one query sees: what trm_attention_range says, inside the sequence. */
static __device__ __forceinline__ trm_key_range seen_keys(const trm_cuda_attention &a, int32_t query, int32_t queries,
                                                          int32_t keys)
{
    trm_key_range range = trm_attention_range(a.causal, a.window, query, queries, keys);
    range.high = range.high < keys ? range.high : keys;
    range.low = range.low < range.high ? range.low : range.high;
    return range;
}

/* Clusters that share a range of keys. */
static __device__ __forceinline__ int32_t clusters_used(int32_t keys, int32_t cluster, int32_t clusters)
{
    int32_t wanted = keys / (cluster * QKV_FEW_KEYS);
    return wanted < 1 ? 1 : wanted < clusters ? wanted : clusters;
}

/* What a block works on. */
typedef struct qkv_work {
    int32_t sequence, kv_head, first_head, heads; /* query heads: a tile of up to 16 of the key-value head's */
    int32_t token, queries, keys;                 /* of the sequence */
} qkv_work;

/* Joins the blocks' sums, rows of a head each, STRIDE floats apart, with maximum and sum of weights in `state`: each
 * block of the cluster an equal share of the outputs, in the blocks' order. Outputs of a sequence that several clusters
 * share are partial. */
template <typename T, int DP, int STRIDE>
static __device__ __forceinline__ void join_blocks(const trm_cuda_qkv &p, const qkv_work &work, int32_t token,
                                                   const float *sums, const float (*state)[2], int32_t blocks,
                                                   int32_t rank, int32_t cluster, bool is_whole)
{
    for (int i = rank * (int)blockDim.x + (int)threadIdx.x; i < work.heads * DP; i += blocks * (int)blockDim.x) {
        int row = i / DP, column = i % DP;
        if (column >= p.a.dim) {
            continue;
        }
        float largest = -INFINITY, value = 0.0f, total = 0.0f;
        float maxima[QKV_MAX_CLUSTER], totals[QKV_MAX_CLUSTER], values[QKV_MAX_CLUSTER];
#pragma unroll
        for (int b = 0; b < QKV_MAX_CLUSTER; b++) { /* all on their way at once */
            maxima[b] = b < blocks ? read_in(&state[row][0], b) : -INFINITY;
            totals[b] = b < blocks ? read_in(&state[row][1], b) : 0.0f;
            values[b] = b < blocks ? read_in(sums + row * STRIDE + column, b) : 0.0f;
        }
#pragma unroll
        for (int b = 0; b < QKV_MAX_CLUSTER; b++) {
            largest = fmaxf(largest, maxima[b]);
        }
        float base = largest == -INFINITY ? 0.0f : largest;
#pragma unroll
        for (int b = 0; b < QKV_MAX_CLUSTER; b++) {
            float shrink = exp2f(maxima[b] - base);
            value += shrink * values[b];
            total += shrink * totals[b];
        }
        int32_t head = work.first_head + row;
        if (is_whole) {
            total = with_sink(p.a, head, largest, total);
            ((T *)p.a.out)[((int64_t)token * p.a.query_heads + head) * p.a.dim + column] =
                from_float<T>(total == 0.0f ? 0.0f : value / total * p.a.value_scale);
        } else {
            float *to = cluster_partial(p.a, cluster, work.sequence, head);
            to[column] = value;
            if (column == 0) {
                to[p.a.value_dim] = largest;
                to[p.a.value_dim + 1] = total;
            }
        }
    }
}

/* Of one block alone. */
template <typename T, int DP, int STRIDE>
static __device__ __forceinline__ void store_block(const trm_cuda_qkv &p, const qkv_work &work, int32_t token,
                                                   const float *sums, const float (*state)[2])
{
    for (int i = threadIdx.x; i < work.heads * DP; i += (int)blockDim.x) {
        int row = i / DP, column = i % DP;
        int32_t head = work.first_head + row;
        float total = with_sink(p.a, head, state[row][0], state[row][1]);
        if (column < p.a.dim) {
            ((T *)p.a.out)[((int64_t)token * p.a.query_heads + head) * p.a.dim + column] =
                from_float<T>(total == 0.0f ? 0.0f : sums[row * STRIDE + column] / total * p.a.value_scale);
        }
    }
}

#endif
