/*
 * Attention of sequences with one query over a paged cache: the keys of a sequence are split over blocks, whose results
 * a second kernel joins (as in "Flash-Decoding", Dao et al. 2023). The query heads of one key-value head are the rows
 * of one matrix product, so keys and values are read once for all of them. Bound by reading the cache: 2 * keys *
 * kv_heads * dim elements a sequence.
 */
#include "attention/cuda/stages.cuh"

#define DECODE_STEP       64 /* keys of a block's warps together, at most */
#define DECODE_MAX_SPLITS 256
#define DECODE_BLOCKS     264 /* wanted in all: two per multiprocessor of an H200 */

/* The keys of a sequence's one query, and its token; false if it has another number of queries. */
static __device__ __forceinline__ bool single_query(const trm_cuda_attention &a, int32_t sequence, int32_t *token,
                                                    trm_key_range *range)
{
    int32_t next = a.starts[sequence + 1], keys = a.lengths[sequence];
    *token = a.starts[sequence];
    if (next - *token != 1) {
        return false;
    }
    *range = seen_places(a, 0, 1, keys);
    range->high = range->high < keys ? range->high : keys;
    range->low = range->low < range->high ? range->low : range->high;
    return true;
}

/* Partial results of a head in a split: value_dim sums, then maximum (log2 units) and sum of weights. */
static __device__ __forceinline__ float *partial_of(const trm_cuda_attention &a, int32_t split, int32_t sequence,
                                                    int32_t head)
{
    return a.partial + (((int64_t)split * a.sequences + sequence) * a.query_heads + head) * (a.value_dim + 2);
}

/*
 * Block (split, key-value head and tile of 16 of its query heads, sequence), as stages.cuh says. Shared memory: 16 rows
 * of q and 4 * 3 * 2 * 16 rows of keys and values, of 2 * DP + 16 bytes: 109 KB for DP 128, two blocks per
 * multiprocessor.
 */
template <typename T, int DP>
static __global__ void __launch_bounds__(stage_shape<T, DP>::threads) decode_splits(trm_cuda_attention a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ stage_state<T, DP> state;
    const int stride = stage_shape<T, DP>::stride;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int32_t sequence = blockIdx.z, split = blockIdx.x, head_tiles = (a.group + 15) / 16;
    int32_t kv_head = (int32_t)blockIdx.y / head_tiles, head_tile = (int32_t)blockIdx.y % head_tiles;
    int32_t first_head = kv_head * a.group + head_tile * 16;
    int32_t heads = a.group - head_tile * 16 < 16 ? a.group - head_tile * 16 : 16;
    int32_t token;
    trm_key_range range;
    begin_overlapped();
    if (!single_query(a, sequence, &token, &range)) {
        return;
    }
    int32_t size = trm_attention_split_size(range.high - range.low, a.splits, DECODE_STEP);
    int64_t start = range.low + (int64_t)split * size;
    if (start >= range.high) {
        return;
    }
    int32_t begin = (int32_t)start, end = range.high - begin < size ? range.high : begin + size;
    T *q_tile = (T *)shared,
      *stages = q_tile + 16 * stride + warp * stage_shape<T, DP>::stages * 2 * stage_shape<T, DP>::tile;
    for (int i = threadIdx.x; i < 16 * (DP / 8); i += blockDim.x) {
        int row = i / (DP / 8), column = i % (DP / 8) * 8;
        bool valid = row < heads && column < a.dim;
        int64_t at = valid ? ((int64_t)token * a.query_heads + first_head + row) * a.dim + column : 0;
        copy16_async(shared_address(q_tile + row * stride + column), (const T *)a.q + at, valid);
    }
    copies_commit();
    key_rows places = key_rows_of(a, sequence, 0, kv_head);
    start_copies<T, DP>(a, places, stages, begin + warp * STAGE_KEYS, end, lane);
    copies_wait<stage_shape<T, DP>::stages - 1>(); /* q */
    __syncthreads();
    walk_keys<T, DP>(a, heads, places, q_tile, &state, begin, end, -1, NULL, warp, lane);
    __syncthreads();
    const float *sums = (const float *)(q_tile + 16 * stride) + stage_shape<T, DP>::warp_sums;
    for (int i = threadIdx.x; i < heads * DP; i += blockDim.x) {
        int row = i / DP, column = i % DP;
        float *to = partial_of(a, split, sequence, first_head + row);
        if (column < a.value_dim) {
            to[column] = sums[i];
        }
        if (column < 2) {
            to[a.value_dim + column] = state.block[row][column];
        }
    }
}

/* Block (head, sequence), 128 threads: out = sum of the splits' values over the sum of their weights, in split order.
 */
template <typename T> static __global__ void __launch_bounds__(128) decode_join(trm_cuda_attention a)
{
    __shared__ float weights[DECODE_MAX_SPLITS], scratch[32];
    int32_t head = blockIdx.x, sequence = blockIdx.y, token;
    trm_key_range range;
    begin_overlapped();
    if (!single_query(a, sequence, &token, &range)) {
        return;
    }
    int32_t used = trm_attention_splits_used(range.high - range.low, a.splits, DECODE_STEP);
    float largest = -INFINITY, total = 0.0f;
    for (int i = threadIdx.x; i < used; i += blockDim.x) {
        largest = fmaxf(largest, partial_of(a, i, sequence, head)[a.value_dim]);
    }
    largest = block_max(largest, scratch);
    float base = largest == -INFINITY ? 0.0f : largest;
    for (int i = threadIdx.x; i < used; i += blockDim.x) {
        const float *partial = partial_of(a, i, sequence, head);
        weights[i] = exp2f(partial[a.value_dim] - base);
        total += weights[i] * partial[a.value_dim + 1];
    }
    total = with_sink(a, head, largest, block_sum(total, scratch)); /* its barriers make the weights visible, too */
    float scale = total == 0.0f ? 0.0f : 1.0f / total;
    if (a.logs != NULL && threadIdx.x == 0) {
        a.logs[(int64_t)token * a.query_heads + head] = largest + log2f(total);
    }
    T *to = (T *)a.out + ((int64_t)token * a.query_heads + head) * a.value_dim;
    for (int d = threadIdx.x; d < a.value_dim; d += blockDim.x) {
        float value = 0.0f;
#pragma unroll 8
        for (int i = 0; i < used; i++) {
            value += weights[i] * partial_of(a, i, sequence, head)[d];
        }
        to[d] = from_float<T>(value * scale);
    }
}

int32_t trm_cuda_attention_splits(const trm_attention_shape *s)
{
    int64_t tiles = s->kv_heads * ((s->query_heads / s->kv_heads + 15) / 16) * (s->sequences < 1 ? 1 : s->sequences);
    int64_t splits = (DECODE_BLOCKS + tiles - 1) / tiles;
    int64_t most = (s->table_blocks * s->block_size + DECODE_STEP - 1) / DECODE_STEP;
    splits = splits > most ? most : splits;
    return (int32_t)(splits < 1 ? 1 : splits > DECODE_MAX_SPLITS ? DECODE_MAX_SPLITS : splits);
}

template <typename T, int DP> static trm_status launch_decode(const trm_cuda_attention *a, cudaStream_t stream)
{
    int threads, shared;
    stage_launch<T, DP>(&threads, &shared);
    static_assert(DECODE_STEP % stage_shape<T, DP>::step == 0, "splits are whole steps");
    dim3 grid((unsigned)a->splits, (unsigned)(a->kv_heads * ((a->group + 15) / 16)), (unsigned)a->sequences);
    TRM_CUDA_TRY(cudaFuncSetAttribute(decode_splits<T, DP>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_overlapped(decode_splits<T, DP>, grid, (unsigned)threads, (size_t)shared, stream, *a);
    launch_overlapped(decode_join<T>, dim3((unsigned)a->query_heads, (unsigned)a->sequences), 128, 0, stream, *a);
    return trm_cuda_launched("cuda.attention decode");
}

template <typename T> static trm_status launch_decode_of(const trm_cuda_attention *a, cudaStream_t stream)
{
    if (a->dim <= 64) {
        return launch_decode<T, 64>(a, stream);
    }
    if (a->dim <= 96) {
        return launch_decode<T, 96>(a, stream);
    }
    if (a->dim <= 128) {
        return launch_decode<T, 128>(a, stream);
    }
    return launch_decode<T, 256>(a, stream);
}

trm_status trm_cuda_attention_decode(const trm_cuda_attention *a, cudaStream_t stream)
{
    return a->dtype == TRM_F16 ? launch_decode_of<__half>(a, stream) : launch_decode_of<__nv_bfloat16>(a, stream);
}
