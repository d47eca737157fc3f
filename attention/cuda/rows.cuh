/*
 * Where keys and values of a sequence lie, for the attention kernels.
 */
#ifndef TRM_ATTENTION_CUDA_ROWS_CUH
#define TRM_ATTENTION_CUDA_ROWS_CUH

#include "attention/cuda/attention.h"
#include "attention/cuda/geometry.h"
#include "kernels/cuda/mma.cuh"

#define LOG2_E 1.44269504088896341f

/* The keys of one sequence and one key-value head. */
typedef struct key_rows {
    const int32_t *table; /* of the sequence; NULL without a cache */
    int64_t first;        /* row of key 0 without a cache */
    int32_t block_size, kv_heads, kv_head;
} key_rows;

/* The same of the padded forms. */
static __device__ __forceinline__ key_rows padded_rows_of(const trm_cuda_attention &a, int32_t sequence, int32_t head,
                                                          int32_t heads, int32_t rows)
{
    key_rows places;
    places.table = NULL;
    places.first = a.rows_first ? (int64_t)sequence * rows : ((int64_t)sequence * heads + head) * rows;
    places.block_size = 1;
    places.kv_heads = a.rows_first ? heads : 1;
    places.kv_head = a.rows_first ? head : 0;
    return places;
}

/* Packed forms. */
static __device__ __forceinline__ key_rows key_rows_of(const trm_cuda_attention &a, int32_t sequence, int32_t first,
                                                       int32_t kv_head)
{
    key_rows rows;
    rows.table = a.cached ? a.table + (int64_t)sequence * a.table_blocks : NULL;
    rows.first = first;
    rows.block_size = a.block_size;
    rows.kv_heads = a.kv_heads;
    rows.kv_head = kv_head;
    return rows;
}

/* Index of a key's vector in the cache or in the step's keys, in vectors of one head. */
static __device__ __forceinline__ int64_t vector_of(const key_rows &rows, int32_t key)
{
    int64_t row = rows.first + key;
    if (rows.table != NULL) {
        uint32_t block = (uint32_t)key / (uint32_t)rows.block_size;
        row = (int64_t)rows.table[block] * rows.block_size + (key - (int32_t)block * rows.block_size);
    }
    return row * rows.kv_heads + rows.kv_head;
}

/* How many of a sequence's keys are in the cache's share. */
static __device__ __forceinline__ int32_t held_keys(const trm_cuda_attention &a, int32_t keys)
{
    return a.share.ranks > 1 ? trm_cache_share_count(a.share, keys) : keys;
}

/* What query `query` of a sequence of `queries` sees of its `keys` keys, as places among those held. */
static __device__ __forceinline__ trm_key_range seen_places(const trm_cuda_attention &a, int32_t query, int32_t queries,
                                                            int32_t keys)
{
    trm_key_range range = trm_attention_range(a.causal, a.window, query, queries, keys);
    if (a.share.ranks > 1) {
        range.low = trm_cache_share_count(a.share, range.low);
        range.high = trm_cache_share_count(a.share, range.high < keys ? range.high : keys);
        range.high = range.high < range.low ? range.low : range.high;
    }
    return range;
}

/* What the mask of the padded form adds to a score. */
static __device__ __forceinline__ float mask_of(const trm_cuda_attention &a, int32_t sequence, int32_t head,
                                                int32_t query, int32_t key)
{
    int64_t i =
        sequence * a.mask_strides[0] + head * a.mask_strides[1] + query * a.mask_strides[2] + key * a.mask_strides[3];
    switch (a.mask_type) {
    case TRM_BOOL:
        return ((const uint8_t *)a.mask)[i] != 0 ? 0.0f : -INFINITY;
    case TRM_F16:
        return to_float(((const __half *)a.mask)[i]);
    case TRM_BF16:
        return to_float(((const __nv_bfloat16 *)a.mask)[i]);
    default:
        return ((const float *)a.mask)[i];
    }
}

/* The same in log2 units. A finite number stays one, so that queries that see nothing but large negative numbers weigh
 * their keys as they are. */
static __device__ __forceinline__ float mask_log2(const trm_cuda_attention &a, int32_t sequence, int32_t head,
                                                  int32_t query, int32_t key)
{
    const float least = -2.3e38f;
    float added = mask_of(a, sequence, head, query, key);
    return added == -INFINITY ? added : fmaxf(added, least) * LOG2_E;
}

/* Starts the copy of keys key .. key + ROWS - 1 and their values into shared memory, rows of DP elements `stride`
 * apart, by `threads` threads of which this is number `thread`. Keys from `end` on and elements from `dim` on become
 * zeros: what is multiplied by a weight of 0 must not be NaN. */
template <typename T, int ROWS, int DP, int STRIDE, int THREADS>
static __device__ __forceinline__ void load_keys_values(const key_rows &rows, const T *keys, const T *values, T *k_tile,
                                                        T *v_tile, int32_t key, int32_t end, int32_t dim, int thread)
{
    const int chunks = DP / 8;
    static_assert(ROWS * chunks % THREADS == 0, "every thread copies the same number of chunks");
#pragma unroll
    for (int i = 0; i < ROWS * chunks / THREADS; i++) {
        int index = i * THREADS + thread;
        int row = index / chunks, column = index % chunks * 8;
        bool valid = key + row < end && column < dim;
        int64_t at = valid ? vector_of(rows, key + row) * dim + column : 0;
        copy16_async(shared_address(k_tile + row * STRIDE + column), keys + at, valid);
        copy16_async(shared_address(v_tile + row * STRIDE + column), values + at, valid);
    }
}

/* A score in units of log2: scaled, capped. */
static __device__ __forceinline__ float score_log2(float dot, float scale, float softcap)
{
    if (softcap > 0.0f) {
        return softcap * LOG2_E * tanhf(dot * scale / softcap);
    }
    return dot * (scale * LOG2_E);
}

/* A query's sum of weights `total`, which are relative to `largest` (log2 units), with the weight of its head's sink. A
 * sink far above the largest score makes it infinite, and the result zeros; a query that sees no key keeps its 0.
 * Rounded in one way wherever it is computed. */
static __device__ __forceinline__ float with_sink(const trm_cuda_attention &a, int32_t head, float largest, float total)
{
    if (a.sinks == NULL || total == 0.0f) {
        return total;
    }
    return __fadd_rn(total, exp2f(__fmaf_rn(a.sinks[head], LOG2_E, -largest)));
}

/* Maximum and sum over the four lanes that share a row of an accumulator. */
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/*
 * One step of the online softmax for the 16 rows of a warp over KEYS keys: turns the scores (log2 units, -inf where
 * masked) into weights, and moves each row's maximum and this lane's part of its sum on. Row g is 0, row g + 8 is 1.
 * `shrink` receives what earlier sums must be multiplied by.
 */
template <int KEYS>
static __device__ __forceinline__ void softmax_step(float (&scores)[KEYS / 8][4], float (&row_max)[2],
                                                    float (&row_part)[2], float (&shrink)[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float largest = -INFINITY;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            largest = fmaxf(largest, fmaxf(scores[j][2 * r], scores[j][2 * r + 1]));
        }
        largest = fmaxf(row_max[r], quad_max(largest));
        float base = largest == -INFINITY ? 0.0f : largest; /* a row that has seen nothing: all weights 0, not NaN */
        shrink[r] = exp2f(row_max[r] - base);
        row_max[r] = largest;
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            scores[j][2 * r] = exp2f(scores[j][2 * r] - base);
            scores[j][2 * r + 1] = exp2f(scores[j][2 * r + 1] - base);
            sum += scores[j][2 * r] + scores[j][2 * r + 1];
        }
        row_part[r] = row_part[r] * shrink[r] + sum;
    }
}

/* scores [16, KEYS] = q [16, DP] k^T, of a warp. q_at, k_at: this lane's ldmatrix addresses in the tiles (see
 * a_address, b_address). */
template <typename T, int KEYS, int DP, int STRIDE>
static __device__ __forceinline__ void multiply_keys(float (&scores)[KEYS / 8][4], const uint32_t (*q)[4],
                                                     uint32_t q_at, uint32_t k_at)
{
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        scores[j][0] = scores[j][1] = scores[j][2] = scores[j][3] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < DP / 16; step++) {
        uint32_t a[4];
        if (q != NULL) {
            a[0] = q[step][0], a[1] = q[step][1], a[2] = q[step][2], a[3] = q[step][3];
        } else {
            load_matrices(a, q_at + step * 32);
        }
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
            uint32_t b[4];
            load_matrices(b, k_at + j * 16 * STRIDE * 2 + step * 32);
            mma_16816(scores[2 * j], a[0], a[1], a[2], a[3], b[0], b[1], T());
            mma_16816(scores[2 * j + 1], a[0], a[1], a[2], a[3], b[2], b[3], T());
        }
    }
}

/* out [16, DP] = out * shrink + weights [16, KEYS] v, of a warp. v_at: this lane's address (see bt_address). */
template <typename T, int KEYS, int DP, int STRIDE>
static __device__ __forceinline__ void add_values(float (&out)[DP / 8][4], const float (&weights)[KEYS / 8][4],
                                                  const float (&shrink)[2], uint32_t v_at)
{
#pragma unroll
    for (int j = 0; j < DP / 8; j++) {
        out[j][0] *= shrink[0];
        out[j][1] *= shrink[0];
        out[j][2] *= shrink[1];
        out[j][3] *= shrink[1];
    }
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) {
        /* Accumulators of two neighbouring tiles of 8 keys are the left operand of 16 keys. */
        uint32_t a0 = pack2(weights[2 * i][0], weights[2 * i][1], T());
        uint32_t a1 = pack2(weights[2 * i][2], weights[2 * i][3], T());
        uint32_t a2 = pack2(weights[2 * i + 1][0], weights[2 * i + 1][1], T());
        uint32_t a3 = pack2(weights[2 * i + 1][2], weights[2 * i + 1][3], T());
#pragma unroll
        for (int j = 0; j < DP / 16; j++) {
            uint32_t b[4];
            load_matrices_transposed(b, v_at + i * 16 * STRIDE * 2 + j * 32);
            mma_16816(out[2 * j], a0, a1, a2, a3, b[0], b[1], T());
            mma_16816(out[2 * j + 1], a0, a1, a2, a3, b[2], b[3], T());
        }
    }
}

/* This lane's address for ldmatrix of: a left operand [16 rows, 16 columns]; */
template <typename T> static __device__ __forceinline__ uint32_t a_address(const T *tile, int stride, int lane)
{
    return shared_address(tile + lane % 16 * stride + lane / 16 * 8);
}
/* two right operands of 8 columns each, stored as 16 rows of which a row is a column; */
template <typename T> static __device__ __forceinline__ uint32_t b_address(const T *tile, int stride, int lane)
{
    return shared_address(tile + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
}
/* two right operands of 8 columns each, stored as 16 rows, by a transposing load. */
template <typename T> static __device__ __forceinline__ uint32_t bt_address(const T *tile, int stride, int lane)
{
    return shared_address(tile + lane % 16 * stride + lane / 16 * 8);
}

#endif
