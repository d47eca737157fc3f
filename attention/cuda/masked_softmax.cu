/*
 * Attention weights from scores in memory: scale, softcap, causal range and mask on the way. Bound by device memory:
 * scores are read once, weights written once, for rows of up to 1024 keys; longer ones are read three times.
 */
#include "attention/cuda/rows.cuh"
#include "kernels/cuda/common.cuh"

#define SOFTMAX_WARPS 8

typedef struct score_row {
    int32_t sequence, head, query;
    trm_key_range range;
} score_row;

static __device__ __forceinline__ score_row locate_row(const trm_cuda_attention &a, int64_t first, int64_t row)
{
    int64_t per_pair = (int64_t)a.group * a.queries, pair = first + row / per_pair, at = row % per_pair;
    score_row r;
    r.sequence = (int32_t)(pair / a.kv_heads);
    r.head = (int32_t)(pair % a.kv_heads) * a.group + (int32_t)(at / a.queries);
    r.query = (int32_t)(at % a.queries);
    r.range = trm_attention_range(a.causal, a.window, r.query, a.queries, a.keys);
    return r;
}

/* -inf where the query does not see the key. */
static __device__ __forceinline__ float score_of(const trm_cuda_attention &a, const score_row &r, float dot,
                                                 int32_t key)
{
    if (key < r.range.low || key >= r.range.high || key >= a.keys) {
        return -INFINITY;
    }
    float score = dot * a.scale;
    if (a.softcap > 0.0f) {
        score = a.softcap * tanhf(score / a.softcap);
    }
    return a.mask == NULL ? score : score + mask_of(a, r.sequence, r.head, r.query, key);
}

/* A warp per row of up to 32 * VALUES keys, which it holds in registers. 8 warps per block. */
template <typename T, int VALUES>
static __global__ void __launch_bounds__(SOFTMAX_WARPS * 32)
    softmax_short(trm_cuda_attention a, int64_t first, int64_t rows, const float *scores, T *weights)
{
    const int lane = threadIdx.x & 31;
    begin_overlapped();
    for (int64_t row = (int64_t)blockIdx.x * SOFTMAX_WARPS + threadIdx.x / 32; row < rows;
         row += (int64_t)gridDim.x * SOFTMAX_WARPS) {
        score_row r = locate_row(a, first, row);
        const float *from = scores + row * a.keys;
        float x[VALUES], largest = -INFINITY, total = 0.0f;
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            int32_t key = i * 32 + lane;
            x[i] = score_of(a, r, key < a.keys ? from[key] : 0.0f, key);
            largest = fmaxf(largest, x[i]);
        }
        largest = warp_max(largest);
        float base = largest == -INFINITY ? 0.0f : largest; /* no key seen: zeros */
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            x[i] = expf(x[i] - base);
            total += x[i];
        }
        total = warp_sum(total);
        float scale = total == 0.0f ? 0.0f : 1.0f / total;
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            int32_t key = i * 32 + lane;
            if (key < a.keys) {
                weights[row * a.keys + key] = from_float<T>(x[i] * scale);
            }
        }
    }
}

/* A block of 256 threads per row, of any length; 128 bytes of shared memory. */
template <typename T>
static __global__ void __launch_bounds__(256)
    softmax_long(trm_cuda_attention a, int64_t first, int64_t rows, const float *scores, T *weights)
{
    __shared__ float scratch[32];
    begin_overlapped();
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        score_row r = locate_row(a, first, row);
        const float *from = scores + row * a.keys;
        float largest = -INFINITY, total = 0.0f;
        for (int32_t key = threadIdx.x; key < a.keys; key += 256) {
            largest = fmaxf(largest, score_of(a, r, from[key], key));
        }
        largest = block_max(largest, scratch);
        float base = largest == -INFINITY ? 0.0f : largest;
        for (int32_t key = threadIdx.x; key < a.keys; key += 256) {
            total += expf(score_of(a, r, from[key], key) - base);
        }
        total = block_sum(total, scratch);
        float scale = total == 0.0f ? 0.0f : 1.0f / total;
        for (int32_t key = threadIdx.x; key < a.keys; key += 256) {
            weights[row * a.keys + key] = from_float<T>(expf(score_of(a, r, from[key], key) - base) * scale);
        }
    }
}

template <typename T>
static void launch_softmax(const trm_cuda_attention *a, int64_t first, int64_t rows, const float *scores, T *weights,
                           cudaStream_t stream)
{
    int64_t blocks = a->keys <= 1024 ? (rows + SOFTMAX_WARPS - 1) / SOFTMAX_WARPS : rows;
    unsigned grid = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20);
    if (a->keys <= 256) {
        launch_overlapped(softmax_short<T, 8>, grid, SOFTMAX_WARPS * 32, 0, stream, *a, first, rows, scores, weights);
    } else if (a->keys <= 1024) {
        launch_overlapped(softmax_short<T, 32>, grid, SOFTMAX_WARPS * 32, 0, stream, *a, first, rows, scores, weights);
    } else {
        launch_overlapped(softmax_long<T>, grid, 256, 0, stream, *a, first, rows, scores, weights);
    }
}

trm_status trm_cuda_attention_softmax(const trm_cuda_attention *a, int64_t first, int64_t pairs, const float *scores,
                                      void *weights, cudaStream_t stream)
{
    int64_t rows = pairs * a->group * a->queries;
    if (rows > 0) {
        DISPATCH_FLOAT(a->dtype, launch_softmax<T>(a, first, rows, scores, (T *)weights, stream));
    }
    return trm_cuda_launched("cuda.attention softmax");
}
