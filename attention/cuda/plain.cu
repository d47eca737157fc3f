/*
 * Attention of every form, type and head size up to 512 (keys of 576), one warp per query and head: the padded form
 * with its masks, f32, odd sizes, latents. Not tuned: bound by the latency of dependent loads.
 */
#include "attention/cuda/fp8.cuh"
#include "attention/cuda/rows.cuh"

#define PLAIN_WARPS 4
#define PLAIN_PARTS (TRM_ATTENTION_PLAIN_MAX_VALUE / 32) /* elements of an output per lane */

/* Where a row of the output belongs. Its vector in q and out has the row's own index, in both forms. */
typedef struct plain_row {
    int32_t sequence, head, query;
    key_rows rows;
    trm_key_range range;
} plain_row;

static __device__ bool locate(const trm_cuda_attention &a, int64_t row, plain_row *at)
{
    int32_t queries = a.queries, keys = a.keys;
    if (a.packed) {
        int32_t token = (int32_t)(row / a.query_heads);
        at->head = (int32_t)(row % a.query_heads);
        at->sequence = trm_attention_sequence_of(a.starts, a.sequences, token);
        if (at->sequence < 0) {
            return false;
        }
        int32_t first = a.starts[at->sequence];
        queries = a.starts[at->sequence + 1] - first;
        keys = a.cached ? a.lengths[at->sequence] : queries;
        at->query = token - first;
        at->rows = key_rows_of(a, at->sequence, first, at->head / a.group);
    } else {
        int64_t rest = row / (a.rows_first ? a.query_heads : queries);
        int32_t within = (int32_t)(row % (a.rows_first ? a.query_heads : queries));
        int32_t other = (int32_t)(rest % (a.rows_first ? queries : a.query_heads));
        at->query = a.rows_first ? other : within;
        at->head = a.rows_first ? within : other;
        at->sequence = (int32_t)(rest / (a.rows_first ? queries : a.query_heads));
        at->rows = padded_rows_of(a, at->sequence, at->head / a.group, a.kv_heads, keys);
    }
    at->range = seen_places(a, at->query, queries, keys);
    at->range.high = at->range.high < keys ? at->range.high : keys;
    return true;
}

/* Keys pass in runs of 32: a lane scores one key against q in shared memory, then the warp adds the 32 weighted values,
 * a lane holding every 32nd element of the sum. 4 warps per block, 2.25 KiB of shared memory each. C: type of keys and
 * values, uint8_t for e4m3. */
template <typename T, typename C>
static __global__ void __launch_bounds__(PLAIN_WARPS * 32) plain_rows(trm_cuda_attention a, int64_t rows)
{
    __shared__ float queries[PLAIN_WARPS][TRM_ATTENTION_PLAIN_MAX_DIM];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *q = queries[warp];
    const C *keys = (const C *)(a.cached ? a.key_cache : a.k), *values = (const C *)(a.cached ? a.value_cache : a.v);
    const int32_t pitch = a.shared_values ? a.dim : a.value_dim; /* from one value to the next */
    for (int64_t row = (int64_t)blockIdx.x * PLAIN_WARPS + warp; row < rows; row += (int64_t)gridDim.x * PLAIN_WARPS) {
        plain_row at;
        if (!locate(a, row, &at)) {
            continue; /* the whole warp */
        }
        float out[PLAIN_PARTS], largest = -INFINITY, total = 0.0f;
#pragma unroll
        for (int i = 0; i < PLAIN_PARTS; i++) {
            out[i] = 0.0f;
        }
        __syncwarp(); /* the row before is done with q */
        for (int i = lane; i < a.dim; i += 32) {
            q[i] = to_float(((const T *)a.q)[row * a.dim + i]);
        }
        __syncwarp();
        for (int32_t start = at.range.low; start < at.range.high; start += 32) {
            int32_t key = start + lane;
            bool seen = key < at.range.high;
            int64_t vector = seen ? vector_of(at.rows, key) : 0;
            float score = -INFINITY;
            if (seen) {
                score = 0.0f;
                for (int i = 0; i < a.dim; i++) {
                    score += q[i] * cached_float(keys[vector * a.dim + i]);
                }
                score *= a.scale;
                if (a.softcap > 0.0f) {
                    score = a.softcap * tanhf(score / a.softcap);
                }
                if (a.mask != NULL) {
                    score += mask_of(a, at.sequence, at.head, at.query, key);
                }
            }
            float next = fmaxf(largest, warp_max(score));
            float base = next == -INFINITY ? 0.0f : next;
            float shrink = expf(largest - base), weight = expf(score - base);
            largest = next;
            total = total * shrink + warp_sum(weight);
#pragma unroll
            for (int i = 0; i < PLAIN_PARTS; i++) {
                out[i] *= shrink;
            }
            int count = at.range.high - start < 32 ? at.range.high - start : 32;
            for (int j = 0; j < count; j++) {
                float w = __shfl_sync(0xffffffffu, weight, j);
                const C *value = values + __shfl_sync(0xffffffffu, (long long)vector, j) * pitch;
#pragma unroll
                for (int i = 0; i < PLAIN_PARTS; i++) {
                    if (lane + i * 32 < a.value_dim) {
                        out[i] += w * cached_float(value[lane + i * 32]);
                    }
                }
            }
        }
        if (a.logs != NULL && lane == 0) {
            a.logs[row] = largest * LOG2_E + log2f(total);
        }
        total = with_sink(a, at.head, largest * LOG2_E, total);
        float scale = total == 0.0f ? 0.0f : a.value_scale / total;
#pragma unroll
        for (int i = 0; i < PLAIN_PARTS; i++) {
            if (lane + i * 32 < a.value_dim) {
                ((T *)a.out)[row * a.value_dim + lane + i * 32] = from_float<T>(out[i] * scale);
            }
        }
    }
}

trm_status trm_cuda_attention_plain(const trm_cuda_attention *a, cudaStream_t stream)
{
    int64_t rows = a->packed ? a->tokens * a->query_heads : (int64_t)a->sequences * a->query_heads * a->queries;
    int64_t blocks = (rows + PLAIN_WARPS - 1) / PLAIN_WARPS;
    unsigned grid = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20);
    if (a->shared_values) {
        DISPATCH_FLOAT(a->dtype, plain_rows<float, T><<<grid, PLAIN_WARPS * 32, 0, stream>>>(*a, rows));
    } else if (a->cache_f8) {
        DISPATCH_FLOAT(a->dtype, plain_rows<T, uint8_t><<<grid, PLAIN_WARPS * 32, 0, stream>>>(*a, rows));
    } else {
        DISPATCH_FLOAT(a->dtype, plain_rows<T, T><<<grid, PLAIN_WARPS * 32, 0, stream>>>(*a, rows));
    }
    return trm_cuda_launched("cuda.attention plain");
}
