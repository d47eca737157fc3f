/*
 * Attention in f32 without a cache, packed or padded: tiles of queries against tiles of keys with plain multiply-adds,
 * the softmax computed along the way. Bound by f32 arithmetic: 4 * queries * keys * dim operations per head.
 */
#include "attention/cuda/rows.cuh"

#define F32_ROWS    64 /* queries of a tile, and keys of one */
#define F32_THREADS 256
#define F32_PAD     4 /* floats between rows in shared memory: 16 lanes reading 16 bytes each meet all banks */

/* Rows first .. first + 63 of a matrix into shared memory; those from `end` on and columns from `dim` on are zeros. */
template <int DP>
static __device__ __forceinline__ void load_rows(float *tile, const key_rows &rows, const float *from, int32_t first,
                                                 int32_t end, int32_t dim)
{
    const int chunks = DP / 4;
#pragma unroll 4
    for (int i = threadIdx.x; i < F32_ROWS * chunks; i += F32_THREADS) {
        int row = i / chunks, column = i % chunks * 4;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + row < end && column < dim) {
            v = *(const float4 *)(from + vector_of(rows, first + row) * dim + column);
        }
        *(float4 *)(tile + row * (DP + F32_PAD) + column) = v;
    }
}

/* Maximum or sum over the 16 lanes that share rows. */
static __device__ __forceinline__ float row_max16(float x)
{
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    }
    return x;
}
static __device__ __forceinline__ float row_sum16(float x)
{
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    }
    return x;
}

/* sums[i][j] += left[4 rows of this thread][d] * right[keys lane + 16 * j][d] */
template <int DP>
static __device__ __forceinline__ void multiply_rows(float (&sums)[4][4], const float *left, const float *right)
{
#pragma unroll 4
    for (int d = 0; d < DP; d += 4) {
        float4 a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = *(const float4 *)(left + i * (DP + F32_PAD) + d);
            b[i] = *(const float4 *)(right + i * 16 * (DP + F32_PAD) + d);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sums[i][j] += a[i].x * b[j].x + a[i].y * b[j].y + a[i].z * b[j].z + a[i].w * b[j].w;
            }
        }
    }
}

/* Tile `tile` of the call: of a packed batch, or of a padded one. */
static __device__ __forceinline__ trm_query_tile f32_tile(const trm_cuda_attention &a, int64_t tile)
{
    if (a.packed) {
        return trm_attention_find_tile(a.starts, a.sequences, F32_ROWS, false, tile);
    }
    int32_t tiles = (a.queries + F32_ROWS - 1) / F32_ROWS;
    trm_query_tile found = {-1, 0, a.queries, 0};
    int64_t sequence = tile / tiles;
    if (sequence < a.sequences) {
        found.sequence = (int32_t)sequence;
        found.start = (tiles - 1 - (int32_t)(tile - sequence * tiles)) * F32_ROWS;
    }
    return found;
}

/*
 * A block of 256 threads takes 64 queries of one sequence and head; a thread has 4 rows, of the scores every 16th key,
 * of the output DP / 16 columns. Shared memory: three tiles of 64 rows of DP + 4 floats and one of the weights: 68 KB
 * for DP 64, 116 KB for 128.
 */
template <int DP> static __global__ void __launch_bounds__(F32_THREADS) f32_tiles(trm_cuda_attention a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int stride = DP + F32_PAD, weight_stride = F32_ROWS + F32_PAD;
    float *q_tile = (float *)shared, *k_tile = q_tile + F32_ROWS * stride, *v_tile = k_tile + F32_ROWS * stride;
    float *weights = v_tile + F32_ROWS * stride;
    const int lane = threadIdx.x % 16, mine = threadIdx.x / 16 * 4;
    begin_overlapped();
    for (int64_t work = blockIdx.x;; work += gridDim.x) {
        trm_query_tile tile = f32_tile(a, work / a.query_heads);
        if (tile.sequence < 0) {
            return;
        }
        int32_t head = (int32_t)(work % a.query_heads), n_keys = a.packed ? tile.queries : a.keys;
        key_rows queries, keys;
        if (a.packed) {
            queries = key_rows{NULL, tile.first, 1, a.query_heads, head};
            keys = key_rows{NULL, tile.first, 1, a.kv_heads, head / a.group};
        } else {
            queries = padded_rows_of(a, tile.sequence, head, a.query_heads, a.queries);
            keys = padded_rows_of(a, tile.sequence, head / a.group, a.kv_heads, a.keys);
        }
        int32_t left = tile.queries - tile.start, rows = left < F32_ROWS ? left : F32_ROWS;
        trm_key_range first = trm_attention_range(a.causal, a.window, tile.start, tile.queries, n_keys);
        trm_key_range last = trm_attention_range(a.causal, a.window, tile.start + rows - 1, tile.queries, n_keys);
        int32_t low = first.low, high = last.high < n_keys ? last.high : n_keys;
        trm_key_range ranges[4];
        float out[4][DP / 16], largest[4], total[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t query = tile.start + mine + i;
            query = query < tile.queries ? query : tile.queries - 1; /* rows past the end are not stored */
            ranges[i] = trm_attention_range(a.causal, a.window, query, tile.queries, n_keys);
            largest[i] = -INFINITY;
            total[i] = 0.0f;
#pragma unroll
            for (int c = 0; c < DP / 16; c++) {
                out[i][c] = 0.0f;
            }
        }
        __syncthreads(); /* the work before is done with shared memory */
        load_rows<DP>(q_tile, queries, (const float *)a.q, tile.start, tile.queries, a.dim);
        for (int32_t key = low; key < high; key += F32_ROWS) {
            load_rows<DP>(k_tile, keys, (const float *)a.k, key, high, a.dim);
            load_rows<DP>(v_tile, keys, (const float *)a.v, key, high, a.dim);
            __syncthreads();
            float scores[4][4] = {};
            multiply_rows<DP>(scores, q_tile + mine * stride, k_tile + lane * stride);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float best = -INFINITY;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int32_t at = key + lane + 16 * j;
                    float score = score_log2(scores[i][j], a.scale, a.softcap);
                    bool seen = at >= ranges[i].low && at < ranges[i].high && at < n_keys;
                    if (seen && a.mask != NULL) {
                        int32_t query = tile.start + mine + i;
                        score += mask_log2(a, tile.sequence, head, query < tile.queries ? query : 0, at);
                    }
                    scores[i][j] = seen ? score : -INFINITY;
                    best = fmaxf(best, scores[i][j]);
                }
                best = fmaxf(largest[i], row_max16(best));
                float base = best == -INFINITY ? 0.0f : best, shrink = exp2f(largest[i] - base), sum = 0.0f;
                largest[i] = best;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float weight = exp2f(scores[i][j] - base);
                    weights[(mine + i) * weight_stride + lane + 16 * j] = weight;
                    sum += weight;
                }
                total[i] = total[i] * shrink + sum;
#pragma unroll
                for (int c = 0; c < DP / 16; c++) {
                    out[i][c] *= shrink;
                }
            }
            __syncthreads();
#pragma unroll 4
            for (int k = 0; k < F32_ROWS; k++) {
                float w[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    w[i] = weights[(mine + i) * weight_stride + k];
                }
#pragma unroll
                for (int c = 0; c < DP / 16; c += 4) {
                    float4 v = *(const float4 *)(v_tile + k * stride + c * 16 + lane * 4);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        out[i][c] += w[i] * v.x;
                        out[i][c + 1] += w[i] * v.y;
                        out[i][c + 2] += w[i] * v.z;
                        out[i][c + 3] += w[i] * v.w;
                    }
                }
            }
            __syncthreads(); /* before the tiles are filled again */
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float sum = row_sum16(total[i]), scale = sum == 0.0f ? 0.0f : 1.0f / sum; /* no key seen: zeros */
            int32_t query = tile.start + mine + i;
#pragma unroll
            for (int c = 0; c < DP / 16; c += 4) {
                int column = c * 16 + lane * 4;
                if (query < tile.queries && column < a.dim) {
                    *(float4 *)((float *)a.out + vector_of(queries, query) * a.dim + column) = make_float4(
                        out[i][c] * scale, out[i][c + 1] * scale, out[i][c + 2] * scale, out[i][c + 3] * scale);
                }
            }
        }
    }
}

template <int DP> static trm_status launch_f32(const trm_cuda_attention *a, cudaStream_t stream)
{
    const int shared = (3 * F32_ROWS * (DP + F32_PAD) + F32_ROWS * (F32_ROWS + F32_PAD)) * (int)sizeof(float);
    TRM_CUDA_TRY(cudaFuncSetAttribute(f32_tiles<DP>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    int64_t tiles = a->packed ? a->tokens / F32_ROWS + (a->sequences < a->tokens ? a->sequences : a->tokens)
                              : (int64_t)a->sequences * ((a->queries + F32_ROWS - 1) / F32_ROWS);
    int64_t blocks = tiles * a->query_heads;
    launch_overlapped(f32_tiles<DP>, (unsigned)(blocks > INT32_MAX ? INT32_MAX : blocks), F32_THREADS, (size_t)shared,
                      stream, *a);
    return trm_cuda_launched("cuda.attention f32");
}

trm_status trm_cuda_attention_f32(const trm_cuda_attention *a, cudaStream_t stream)
{
    return a->dim <= 64 ? launch_f32<64>(a, stream) : launch_f32<128>(a, stream);
}
