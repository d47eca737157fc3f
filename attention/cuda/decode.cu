/*
 * Attention of sequences with one query over a paged cache: the keys of a sequence are split over blocks, whose results
 * a second kernel joins (as in "Flash-Decoding", Dao et al. 2023). The query heads of one key-value head are the rows
 * of one matrix product, so keys and values are read once for all of them. Bound by reading the cache: 2 * keys *
 * kv_heads * dim elements a sequence.
 */
#include "attention/cuda/rows.cuh"

#define DECODE_WARPS      4
#define DECODE_KEYS       16 /* per warp and step */
#define DECODE_STAGES     3  /* of shared memory per warp */
#define DECODE_STEP       (DECODE_WARPS * DECODE_KEYS)
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
    *range = trm_attention_range(a.causal, a.window, 0, 1, keys);
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

/* Joins the four warps' results in shared memory, in warp order, and stores the block's. sums [warps][16][DP + 8],
 * state [warps][16][2]. */
template <int DP>
static __device__ __forceinline__ void store_partial(const trm_cuda_attention &a, int32_t sequence, int32_t split,
                                                     int32_t first_head, int32_t heads, const float *sums,
                                                     const float (*state)[16][2])
{
    for (int i = threadIdx.x; i < heads * DP; i += blockDim.x) {
        int row = i / DP, column = i % DP;
        float largest = -INFINITY, value = 0.0f, total = 0.0f;
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++) {
            largest = fmaxf(largest, state[w][row][0]);
        }
        float base = largest == -INFINITY ? 0.0f : largest;
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++) {
            float shrink = exp2f(state[w][row][0] - base);
            value += shrink * sums[(w * 16 + row) * (DP + 8) + column];
            total += shrink * state[w][row][1];
        }
        float *to = partial_of(a, split, sequence, first_head + row);
        if (column < a.value_dim) {
            to[column] = value;
        }
        if (column == 0) {
            to[a.value_dim] = largest;
            to[a.value_dim + 1] = total;
        }
    }
}

/*
 * Block (split, key-value head and tile of 16 of its query heads, sequence). Each of the 4 warps takes every fourth run
 * of 16 keys, with its own three stages of shared memory and its own softmax; no barrier until the end. Shared memory:
 * 16 rows of q and 4 * 3 * 2 * 16 rows of keys and values, of 2 * DP + 16 bytes: 109 KB for DP 128, two blocks per
 * multiprocessor.
 */
template <typename T, int DP>
static __global__ void __launch_bounds__(DECODE_WARPS * 32) decode_splits(trm_cuda_attention a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ float state[DECODE_WARPS][16][2];
    const int stride = DP + 8;
    const bool keep_q = DP <= 128;
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

    T *q_tile = (T *)shared, *stages = q_tile + 16 * stride + warp * DECODE_STAGES * 2 * DECODE_KEYS * stride;
    for (int i = threadIdx.x; i < 16 * (DP / 8); i += blockDim.x) {
        int row = i / (DP / 8), column = i % (DP / 8) * 8;
        bool valid = row < heads && column < a.dim;
        int64_t at = valid ? ((int64_t)token * a.query_heads + first_head + row) * a.dim + column : 0;
        copy16_async(shared_address(q_tile + row * stride + column), (const T *)a.q + at, valid);
    }
    copies_commit();

    key_rows places = key_rows_of(a, sequence, 0, kv_head);
    const T *keys = (const T *)a.key_cache, *values = (const T *)a.value_cache;
    int32_t first_key = begin + warp * DECODE_KEYS;
#pragma unroll
    for (int s = 0; s < DECODE_STAGES - 1; s++) {
        int32_t key = first_key + s * DECODE_STEP;
        T *k_tile = stages + s * 2 * DECODE_KEYS * stride;
        if (key < end) {
            load_keys_values<T, DECODE_KEYS, DP, stride, 32>(places, keys, values, k_tile,
                                                             k_tile + DECODE_KEYS * stride, key, end, a.dim, lane);
        }
        copies_commit();
    }
    copies_wait<DECODE_STAGES - 1>(); /* q */
    __syncthreads();
    uint32_t q[DP / 16][4], q_at = a_address(q_tile, stride, lane);
    if (keep_q) {
#pragma unroll
        for (int step = 0; step < DP / 16; step++) {
            load_matrices(q[step], q_at + step * 32);
        }
    }
    float out[DP / 8][4], row_max[2] = {-INFINITY, -INFINITY}, row_part[2] = {0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < DP / 8; j++) {
        out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0.0f;
    }
    int stage = 0;
    for (int32_t key = first_key; key < end; key += DECODE_STEP) {
        copies_wait<DECODE_STAGES - 2>(); /* this step's keys and values */
        __syncwarp();                     /* of all lanes; and all are done with the stage filled next */
        int32_t ahead = key + (DECODE_STAGES - 1) * DECODE_STEP;
        int filled = stage == 0 ? DECODE_STAGES - 1 : stage - 1;
        T *next = stages + filled * 2 * DECODE_KEYS * stride;
        if (ahead < end) {
            load_keys_values<T, DECODE_KEYS, DP, stride, 32>(places, keys, values, next, next + DECODE_KEYS * stride,
                                                             ahead, end, a.dim, lane);
        }
        copies_commit();
        const T *k_tile = stages + stage * 2 * DECODE_KEYS * stride, *v_tile = k_tile + DECODE_KEYS * stride;
        float scores[DECODE_KEYS / 8][4], shrink[2];
        multiply_keys<T, DECODE_KEYS, DP, stride>(scores, keep_q ? q : NULL, q_at, b_address(k_tile, stride, lane));
#pragma unroll
        for (int j = 0; j < DECODE_KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen = key + j * 8 + lane % 4 * 2 + i % 2 < end;
                scores[j][i] = seen ? score_log2(scores[j][i], a.scale, a.softcap) : -INFINITY;
            }
        }
        softmax_step<DECODE_KEYS>(scores, row_max, row_part, shrink);
        add_values<T, DECODE_KEYS, DP, stride>(out, scores, shrink, bt_address(v_tile, stride, lane));
        stage = stage == DECODE_STAGES - 1 ? 0 : stage + 1;
    }
    copies_wait<0>();
    __syncthreads(); /* every warp is done with its stages: their memory holds the sums now */
    float *sums = (float *)(q_tile + 16 * stride);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = lane / 4 + r * 8;
        float total = quad_sum(row_part[r]);
        if (lane % 4 == 0) {
            state[warp][row][0] = row_max[r];
            state[warp][row][1] = total;
        }
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            float2 pair = make_float2(out[j][2 * r], out[j][2 * r + 1]);
            *(float2 *)(sums + (warp * 16 + row) * (DP + 8) + j * 8 + lane % 4 * 2) = pair;
        }
    }
    __syncthreads();
    store_partial<DP>(a, sequence, split, first_head, heads, sums, state);
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
    total = block_sum(total, scratch); /* its barriers make the weights visible, too */
    float scale = total == 0.0f ? 0.0f : 1.0f / total;
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
    const int shared = 16 * (1 + DECODE_WARPS * DECODE_STAGES * 2) * (DP + 8) * (int)sizeof(T);
    static_assert(DECODE_WARPS * 16 * (DP + 8) * sizeof(float) <=
                      DECODE_WARPS * DECODE_STAGES * 2 * DECODE_KEYS * (DP + 8) * sizeof(T),
                  "the sums fit where the stages were");
    dim3 grid((unsigned)a->splits, (unsigned)(a->kv_heads * ((a->group + 15) / 16)), (unsigned)a->sequences);
    TRM_CUDA_TRY(cudaFuncSetAttribute(decode_splits<T, DP>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_overlapped(decode_splits<T, DP>, grid, DECODE_WARPS * 32, (size_t)shared, stream, *a);
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
