/*
 * Attention over a paged cache in which a query's result has the same bits whatever else is in the step: keys fall into
 * splits by their position, each the same chain of tensor core products and softmax steps from nothing, and splits are
 * joined in order. Rows of a tile, queries and heads, do not influence each other, and a tile of keys that a row does
 * not see changes nothing of it. Sequences of few queries and of many have kernels of their own, which differ in who
 * computes which split.
 *
 * An e4m3 cache (F8) is copied as it is, beside the tiles, and expanded into them when its turn has come.
 */
#include "attention/cuda/invariant.h"

#include "attention/cuda/fp8.cuh"
#include "attention/cuda/rows.cuh"

#define SPLIT      128 /* keys, at multiples of it */
#define WALK_ROWS  64  /* queries of a tile: 16 per warp */
#define WALK_WARPS 4
#define FEW_ROWS   16
#define FEW_BLOCKS 2640 /* of one warp, wanted at most: twenty per multiprocessor of an H200 */

/* Keys of one softmax step for heads of up to DP elements. */
template <int DP> struct step_of {
    static const int keys = DP <= 128 ? 64 : 32, stride = DP + 8;
    static_assert(SPLIT % keys == 0, "splits are whole steps");
};

/* Two rows of a lane: row g is 0, row g + 8 is 1. */
template <int DP> struct row_sums {
    float values[DP / 8][4], maxima[2], parts[2]; /* parts: this lane's of the sums of weights; whole ones in totals */
};

template <int DP> static __device__ __forceinline__ void clear(row_sums<DP> &sums)
{
#pragma unroll
    for (int j = 0; j < DP / 8; j++) {
        sums.values[j][0] = sums.values[j][1] = sums.values[j][2] = sums.values[j][3] = 0.0f;
    }
    sums.maxima[0] = sums.maxima[1] = -INFINITY;
    sums.parts[0] = sums.parts[1] = 0.0f;
}

/* What two sums are multiplied by when they are joined, and their common maximum. */
typedef struct joint {
    float largest, first, second;
} joint;

static __device__ __forceinline__ joint join_of(float first, float second)
{
    joint j;
    j.largest = fmaxf(first, second);
    const float base = j.largest == -INFINITY ? 0.0f : j.largest;
    j.first = exp2f(first - base);
    j.second = exp2f(second - base);
    return j;
}

/* Rounded in one way wherever it is computed. */
static __device__ __forceinline__ float join_values(const joint &j, float first, float second)
{
    return __fmaf_rn(second, j.second, __fmul_rn(first, j.first));
}

static __device__ __forceinline__ float inverse_of(float total)
{
    return total == 0.0f ? 0.0f : __fdiv_rn(1.0f, total);
}

/* A split, whose parts are whole, joined to those before it. */
template <int DP> static __device__ __forceinline__ void join_split(row_sums<DP> &totals, const row_sums<DP> &split)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const joint j = join_of(totals.maxima[r], split.maxima[r]);
        totals.maxima[r] = j.largest;
        totals.parts[r] = join_values(j, totals.parts[r], split.parts[r]);
#pragma unroll
        for (int i = 0; i < DP / 8; i++) {
            totals.values[i][2 * r] = join_values(j, totals.values[i][2 * r], split.values[i][2 * r]);
            totals.values[i][2 * r + 1] = join_values(j, totals.values[i][2 * r + 1], split.values[i][2 * r + 1]);
        }
    }
}

static __device__ __forceinline__ trm_key_range seen_by(const trm_cuda_attention &a, int32_t query, int32_t queries,
                                                        int32_t keys)
{
    trm_key_range range = trm_attention_range(a.causal, a.window, query, queries, keys);
    range.high = range.high < keys ? range.high : keys;
    range.low = range.low < range.high ? range.low : range.high;
    return range;
}

/* Starts the copy of KEYS keys, or values, from `key` on into shared memory by THREADS threads; zeros from `end` on. */
template <typename T, int KEYS, int DP, int THREADS>
static __device__ __forceinline__ void copy_keys(const key_rows &rows, const T *from, T *tile, int32_t key, int32_t end,
                                                 int32_t dim, int thread)
{
    const int chunks = DP / 8;
    static_assert(KEYS * chunks % THREADS == 0, "every thread copies the same number of chunks");
#pragma unroll
    for (int i = 0; i < KEYS * chunks / THREADS; i++) {
        const int index = i * THREADS + thread, row = index / chunks, column = index % chunks * 8;
        const bool valid = key + row < end && column < dim;
        const int64_t at = valid ? vector_of(rows, key + row) * dim + column : 0;
        copy16_async(shared_address(tile + row * step_of<DP>::stride + column), from + at, valid);
    }
}

/* Keys and values of a tile in the type that is multiplied: copied there, or, of an e4m3 cache, next to it and expanded
 * by f8_expand_tile(). */
template <typename T, bool F8, int KEYS, int DP, int THREADS>
static __device__ __forceinline__ void copy_tiles(const trm_cuda_attention &a, const key_rows &rows, T *k_tile,
                                                  T *v_tile, uint8_t *raw, int32_t key, int32_t end, int thread)
{
    if (!F8) {
        copy_keys<T, KEYS, DP, THREADS>(rows, (const T *)a.key_cache, k_tile, key, end, a.dim, thread);
        copy_keys<T, KEYS, DP, THREADS>(rows, (const T *)a.value_cache, v_tile, key, end, a.dim, thread);
        return;
    }
    const int chunks = DP / 8;
#pragma unroll
    for (int i = 0; i < KEYS * chunks / THREADS; i++) {
        const int index = i * THREADS + thread, row = index / chunks, column = index % chunks * 8;
        const bool valid = key + row < end && column < a.dim;
        const int64_t at = valid ? vector_of(rows, key + row) * a.dim + column : 0;
        copy8_async(shared_address(raw + index * 8), (const uint8_t *)a.key_cache + at, valid);
        copy8_async(shared_address(raw + KEYS * DP + index * 8), (const uint8_t *)a.value_cache + at, valid);
    }
}

/* One step: the scores of a warp's 16 rows against a tile of keys, which become weights in place. */
template <typename T, int DP>
static __device__ __forceinline__ void weigh_keys(const trm_cuda_attention &a, row_sums<DP> &sums,
                                                  const uint32_t (*q)[4], uint32_t q_at, const T *k_tile, int32_t key,
                                                  const trm_key_range (&seen)[2], int lane,
                                                  float (&scores)[step_of<DP>::keys / 8][4], float (&shrink)[2])
{
    const int keys = step_of<DP>::keys, stride = step_of<DP>::stride;
    multiply_keys<T, keys, DP, stride>(scores, q, q_at, b_address(k_tile, stride, lane));
#pragma unroll
    for (int j = 0; j < keys / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t at = key + j * 8 + lane % 4 * 2 + i % 2;
            const float score = score_log2(scores[j][i], a.scale, a.softcap);
            scores[j][i] = at >= seen[i / 2].low && at < seen[i / 2].high ? score : -INFINITY;
        }
    }
    softmax_step<keys>(scores, sums.maxima, sums.parts, shrink);
}

/* ---- sequences of many queries -------------------------------------------------------------------- */

/* Bytes of shared memory of a block of walk_splits(). */
template <typename T, int DP, bool F8> struct walk_memory {
    static const int keys = step_of<DP>::keys;
    static const int tiles = F8 ? 2 : 4;           /* of keys and values */
    static const int raw = F8 ? 4 * keys * DP : 0; /* two stages of both */
    static const int bytes = (WALK_ROWS + tiles * keys) * step_of<DP>::stride * (int)sizeof(T) + raw;
};

/*
 * A block of 4 warps takes a tile of 64 queries of one sequence and one head, a warp 16 of them, and walks over the
 * splits; keys and values pass through two stages of shared memory: 87 KB for DP 128. Bound by the tensor cores. F8:
 * the stages hold the cache's numbers, from which one tile of each is made.
 */
template <typename T, int DP, bool F8>
static __global__ void __launch_bounds__(WALK_WARPS * 32) walk_splits(const __grid_constant__ trm_cuda_attention a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int keys = step_of<DP>::keys, stride = step_of<DP>::stride, threads = WALK_WARPS * 32;
    const bool keep_q = DP <= 128;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int stages = F8 ? 1 : 2;
    T *q_tile = (T *)shared, *k_tile = q_tile + WALK_ROWS * stride, *v_tile = k_tile + stages * keys * stride;
    uint8_t *raw = (uint8_t *)(v_tile + stages * keys * stride);
    const uint32_t q_at = a_address(q_tile + warp * 16 * stride, stride, lane);
    begin_overlapped();
    for (int64_t work = blockIdx.x;; work += gridDim.x) {
        const trm_query_tile tile =
            trm_attention_find_tile(a.starts, a.sequences, WALK_ROWS, TRM_ATTENTION_FEW_QUERIES, work / a.query_heads);
        if (tile.sequence < 0) {
            return;
        }
        const int32_t head = (int32_t)(work % a.query_heads), n_keys = a.lengths[tile.sequence];
        const int32_t left = tile.queries - tile.start, rows = left < WALK_ROWS ? left : WALK_ROWS;
        const key_rows places = key_rows_of(a, tile.sequence, tile.first, head / a.group);
        const int32_t low = seen_by(a, tile.start, tile.queries, n_keys).low / keys * keys;
        const int32_t high = seen_by(a, tile.start + rows - 1, tile.queries, n_keys).high;
        trm_key_range seen[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            seen[r] = seen_by(a, tile.start + warp * 16 + lane / 4 + r * 8, tile.queries, n_keys);
        }
        __syncthreads(); /* the work before is done with shared memory */
        for (int i = threadIdx.x; i < WALK_ROWS * (DP / 8); i += threads) {
            const int row = i / (DP / 8), column = i % (DP / 8) * 8;
            const bool valid = row < rows && column < a.dim;
            const int64_t vector = (int64_t)(tile.first + tile.start + row) * a.query_heads + head;
            copy16_async(shared_address(q_tile + row * stride + column),
                         (const T *)a.q + (valid ? vector * a.dim + column : 0), valid);
        }
        copy_tiles<T, F8, keys, DP, threads>(a, places, k_tile, v_tile, raw, low, high, (int)threadIdx.x);
        copies_commit();
        uint32_t q[DP / 16][4];
        row_sums<DP> sums, totals;
        clear(sums);
        clear(totals);
        int stage = 0;
        for (int32_t key = low; key < high; key += keys, stage ^= 1) {
            if (key + keys < high) {
                const int next = F8 ? 0 : (stage ^ 1) * keys * stride;
                copy_tiles<T, F8, keys, DP, threads>(a, places, k_tile + next, v_tile + next,
                                                     raw + (stage ^ 1) * 2 * keys * DP, key + keys, high,
                                                     (int)threadIdx.x);
            }
            copies_commit();
            copies_wait<1>();
            __syncthreads();
            if (F8) {
                const uint8_t *numbers = raw + stage * 2 * keys * DP;
                f8_expand_tile<T, keys, DP, stride, threads>(numbers, k_tile, (int)threadIdx.x);
                f8_expand_tile<T, keys, DP, stride, threads>(numbers + keys * DP, v_tile, (int)threadIdx.x);
                __syncthreads();
            }
            const int used = F8 ? 0 : stage * keys * stride;
            if (keep_q && key == low) {
#pragma unroll
                for (int step = 0; step < DP / 16; step++) {
                    load_matrices(q[step], q_at + step * 32);
                }
            }
            float scores[keys / 8][4], shrink[2];
            weigh_keys<T, DP>(a, sums, keep_q ? q : NULL, q_at, k_tile + used, key, seen, lane, scores, shrink);
            add_values<T, keys, DP, stride>(sums.values, scores, shrink, bt_address(v_tile + used, stride, lane));
            if ((key + keys) % SPLIT == 0 || key + keys >= high) {
                sums.parts[0] = quad_sum(sums.parts[0]);
                sums.parts[1] = quad_sum(sums.parts[1]);
                join_split(totals, sums);
                clear(sums);
            }
            __syncthreads(); /* before this stage is filled again */
        }
        copies_wait<0>();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int32_t query = tile.start + warp * 16 + lane / 4 + r * 8;
            if (query >= tile.queries) {
                continue;
            }
            const float total = with_sink(a, head, totals.maxima[r], totals.parts[r]);
            const float scale = __fmul_rn(inverse_of(total), a.value_scale);
            T *to = (T *)a.out + ((int64_t)(tile.first + query) * a.query_heads + head) * a.dim;
#pragma unroll
            for (int j = 0; j < DP / 8; j++) {
                const int column = j * 8 + lane % 4 * 2;
                if (column < a.dim) {
                    *(uint32_t *)(to + column) = pack2(__fmul_rn(totals.values[j][2 * r], scale),
                                                       __fmul_rn(totals.values[j][2 * r + 1], scale), T());
                }
            }
        }
    }
}

/* ---- sequences of few queries --------------------------------------------------------------------- */

/* Where the partial results of a query's head in a split are: values, maximum, sum of weights. */
static __device__ __forceinline__ float *partial_of(const trm_cuda_attention &a, int32_t split, int32_t sequence,
                                                    int32_t query, int32_t token, int32_t head)
{
    const int64_t slots = trm_attention_few_slots(a.tokens, a.sequences);
    const int64_t slot = a.tokens <= a.sequences ? token : (int64_t)sequence * TRM_ATTENTION_FEW_QUERIES + query;
    return a.partial + (((int64_t)split * slots + slot) * a.query_heads + head) * (a.dim + 2);
}

/* A tile of 16 rows of one sequence: row r is query (first + r) / group of head (first + r) % group of a key-value
 * head. */
typedef struct few_tile {
    int32_t sequence, kv_head, token, queries, keys, first;
} few_tile;

/* The two rows of a lane, whole or of a split. */
template <typename T, int DP>
static __device__ __forceinline__ void store_few(const trm_cuda_attention &a, const few_tile &tile,
                                                 const row_sums<DP> &sums, int32_t split, int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = tile.first + lane / 4 + r * 8, query = row / a.group;
        const int32_t head = tile.kv_head * a.group + row % a.group, token = tile.token + query;
        if (query >= tile.queries) {
            continue;
        }
        if (split < 0) {
            const float total = with_sink(a, head, sums.maxima[r], sums.parts[r]);
            const float scale = __fmul_rn(inverse_of(total), a.value_scale);
            T *to = (T *)a.out + ((int64_t)token * a.query_heads + head) * a.dim;
#pragma unroll
            for (int j = 0; j < DP / 8; j++) {
                const int column = j * 8 + lane % 4 * 2;
                if (column < a.dim) {
                    *(uint32_t *)(to + column) = pack2(__fmul_rn(sums.values[j][2 * r], scale),
                                                       __fmul_rn(sums.values[j][2 * r + 1], scale), T());
                }
            }
            continue;
        }
        float *to = partial_of(a, split, tile.sequence, query, token, head);
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            const int column = j * 8 + lane % 4 * 2;
            if (column < a.dim) {
                *(float2 *)(to + column) = make_float2(sums.values[j][2 * r], sums.values[j][2 * r + 1]);
            }
        }
        if (lane % 4 == 0) {
            *(float2 *)(to + a.dim) = make_float2(sums.maxima[r], sums.parts[r]);
        }
    }
}

/* Where a step's keys lie: this lane's are key + lane and, of 64, key + 32 + lane. -1: past the end. */
template <int KEYS> struct step_places {
    int64_t vectors[KEYS / 32];
};

template <int KEYS>
static __device__ __forceinline__ step_places<KEYS> find_places(const key_rows &rows, int32_t key, int32_t end,
                                                                int lane)
{
    step_places<KEYS> found;
#pragma unroll
    for (int i = 0; i < KEYS / 32; i++) {
        const int32_t at = key + i * 32 + lane;
        found.vectors[i] = at < end ? vector_of(rows, at) : -1;
    }
    return found;
}

/* As copy_keys, by a warp that knows where they lie. C: of the cache; numbers of e4m3 are packed. */
template <typename C, int KEYS, int DP>
static __device__ __forceinline__ void copy_places(const step_places<KEYS> &places, const C *from, C *tile, int32_t dim,
                                                   int lane)
{
    const int chunks = DP / 8;
#pragma unroll 8
    for (int i = 0; i < KEYS * chunks / 32; i++) {
        const int index = i * 32 + lane, row = index / chunks, column = index % chunks * 8;
        int64_t vector = __shfl_sync(0xffffffffu, (long long)places.vectors[0], row & 31);
        if (KEYS == 64) {
            const int64_t other = __shfl_sync(0xffffffffu, (long long)places.vectors[KEYS / 32 - 1], row & 31);
            vector = row < 32 ? vector : other;
        }
        const bool valid = vector >= 0 && column < dim;
        const C *at = from + (valid ? vector * dim + column : 0);
        if (sizeof(C) == 1) {
            copy8_async(shared_address(tile + index * 8), at, valid);
        } else {
            copy16_async(shared_address(tile + row * step_of<DP>::stride + column), at, valid);
        }
    }
}

/* Keys begin .. end - 1, which lie in one split and begin with a step, against a tile's rows. Keys and
 * values are copied to k_raw and v_raw: the tiles, or of an e4m3 cache its numbers, which become the tiles, one and the
 * same, in turn. */
template <typename T, typename C, int DP>
static __device__ __forceinline__ void sum_split(const trm_cuda_attention &a, const key_rows &places,
                                                 row_sums<DP> &sums, const uint32_t (*q)[4], uint32_t q_at, T *k_tile,
                                                 T *v_tile, C *k_raw, C *v_raw, int32_t begin, int32_t end,
                                                 const trm_key_range (&seen)[2], int lane)
{
    const int keys = step_of<DP>::keys, stride = step_of<DP>::stride;
    const bool is_f8 = sizeof(C) == 1;
    const C *all_keys = (const C *)a.key_cache, *all_values = (const C *)a.value_cache;
    clear(sums);
    step_places<keys> here = find_places<keys>(places, begin, end, lane);
    copy_places<C, keys, DP>(here, all_keys, k_raw, a.dim, lane);
    copies_commit();
    copy_places<C, keys, DP>(here, all_values, v_raw, a.dim, lane);
    copies_commit();
    for (int32_t key = begin; key < end; key += keys) {
        float scores[keys / 8][4], shrink[2];
        const bool more = key + keys < end;
        here = find_places<keys>(places, key + keys, end, lane);
        copies_wait<1>(); /* the keys */
        __syncwarp();
        if (is_f8) {
            f8_expand_tile<T, keys, DP, stride, 32>((const uint8_t *)k_raw, k_tile, lane);
            __syncwarp();
        }
        weigh_keys<T, DP>(a, sums, q, q_at, k_tile, key, seen, lane, scores, shrink);
        __syncwarp();
        if (more) {
            copy_places<C, keys, DP>(here, all_keys, k_raw, a.dim, lane);
        }
        copies_commit();
        copies_wait<1>(); /* the values */
        __syncwarp();
        if (is_f8) {
            f8_expand_tile<T, keys, DP, stride, 32>((const uint8_t *)v_raw, v_tile, lane);
            __syncwarp();
        }
        add_values<T, keys, DP, stride>(sums.values, scores, shrink, bt_address(v_tile, stride, lane));
        __syncwarp();
        if (more) {
            copy_places<C, keys, DP>(here, all_values, v_raw, a.dim, lane);
        }
        copies_commit();
    }
    copies_wait<0>();
    __syncwarp();
    sums.parts[0] = quad_sum(sums.parts[0]);
    sums.parts[1] = quad_sum(sums.parts[1]);
}

/* Bytes of shared memory of a block of few_queries(). */
template <typename T, typename C, int DP> struct few_memory {
    static const int keys = step_of<DP>::keys, tiles = sizeof(C) == 1 ? 1 : 2;
    static const int raw = sizeof(C) == 1 ? 2 * keys * DP : 0;
    static const int bytes = (FEW_ROWS + tiles * keys) * step_of<DP>::stride * (int)sizeof(T) + raw;
};

/*
 * Block (place among those of a tile, key-value head and tile, sequence), one warp: every gridDim.x-th split of the
 * tile, each into its own place of the partial results; with a.splits == 1, all of them one after the other. Shared
 * memory: 39 KB for DP 128. Bound by reading the cache, of type C.
 */
template <typename T, typename C, int DP>
static __global__ void __launch_bounds__(32) few_queries(const __grid_constant__ trm_cuda_attention a, int32_t tiles)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int keys = step_of<DP>::keys, stride = step_of<DP>::stride, lane = threadIdx.x;
    const bool keep_q = DP <= 128;
    const bool is_f8 = sizeof(C) == 1;
    T *q_tile = (T *)shared, *k_tile = q_tile + FEW_ROWS * stride, *v_tile = is_f8 ? k_tile : k_tile + keys * stride;
    C *k_raw = is_f8 ? (C *)(k_tile + keys * stride) : (C *)k_tile, *v_raw = is_f8 ? k_raw + keys * DP : (C *)v_tile;
    const uint32_t q_at = a_address(q_tile, stride, lane);
    begin_overlapped();
    few_tile tile;
    tile.sequence = blockIdx.z;
    tile.kv_head = (int32_t)blockIdx.y / tiles;
    tile.token = a.starts[tile.sequence];
    tile.queries = a.starts[tile.sequence + 1] - tile.token;
    tile.keys = a.lengths[tile.sequence];
    if (tile.queries > TRM_ATTENTION_FEW_QUERIES || tile.queries <= a.skipped) {
        return;
    }
    const key_rows places = key_rows_of(a, tile.sequence, 0, tile.kv_head);
    for (tile.first = (int32_t)blockIdx.y % tiles * FEW_ROWS; tile.first < tile.queries * a.group;
         tile.first += tiles * FEW_ROWS) {
        const int32_t last_row = min(tile.first + FEW_ROWS, tile.queries * a.group) - 1;
        const int32_t low = seen_by(a, tile.first / a.group, tile.queries, tile.keys).low / keys * keys;
        const int32_t high = seen_by(a, last_row / a.group, tile.queries, tile.keys).high;
        trm_key_range seen[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            seen[r] = seen_by(a, (tile.first + lane / 4 + r * 8) / a.group, tile.queries, tile.keys);
        }
        __syncwarp();
        for (int i = lane; i < FEW_ROWS * (DP / 8); i += 32) {
            const int row = i / (DP / 8), column = i % (DP / 8) * 8;
            const bool valid = tile.first + row <= last_row && column < a.dim;
            const int32_t query = (tile.first + row) / a.group, head = (tile.first + row) % a.group;
            const int64_t vector = (int64_t)(tile.token + query) * a.query_heads + tile.kv_head * a.group + head;
            copy16_async(shared_address(q_tile + row * stride + column),
                         (const T *)a.q + (valid ? vector * a.dim + column : 0), valid);
        }
        copies_commit();
        copies_wait<0>();
        __syncwarp();
        uint32_t q[DP / 16][4];
        if (keep_q) {
#pragma unroll
            for (int step = 0; step < DP / 16; step++) {
                load_matrices(q[step], q_at + step * 32);
            }
        }
        row_sums<DP> sums, totals;
        clear(totals);
        for (int32_t split = low / SPLIT + (int32_t)blockIdx.x; split * SPLIT < high; split += (int32_t)gridDim.x) {
            const int32_t begin = max(low, split * SPLIT), end = min(high, (split + 1) * SPLIT);
            sum_split<T, C, DP>(a, places, sums, keep_q ? q : NULL, q_at, k_tile, v_tile, k_raw, v_raw, begin, end,
                                seen, lane);
            if (a.splits > 1) {
                store_few<T, DP>(a, tile, sums, split, lane);
            } else {
                join_split(totals, sums);
            }
        }
        if (a.splits == 1) {
            store_few<T, DP>(a, tile, totals, -1, lane);
        }
    }
}

/* Block (head, token), 128 threads: the splits of a query in order. */
template <typename T>
static __global__ void __launch_bounds__(128) join_few(const __grid_constant__ trm_cuda_attention a)
{
    const int32_t head = blockIdx.x, token = blockIdx.y;
    begin_overlapped();
    const int32_t sequence = trm_attention_sequence_of(a.starts, a.sequences, token);
    if (sequence < 0) {
        return;
    }
    const int32_t first = a.starts[sequence], queries = a.starts[sequence + 1] - first, query = token - first;
    if (queries > TRM_ATTENTION_FEW_QUERIES || queries <= a.skipped) {
        return;
    }
    const trm_key_range seen = seen_by(a, query, queries, a.lengths[sequence]);
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
        float largest = -INFINITY, total = 0.0f, value = 0.0f;
#pragma unroll 4
        for (int32_t split = seen.low / SPLIT; split * SPLIT < seen.high; split++) {
            const float *partial = partial_of(a, split, sequence, query, token, head);
            const joint j = join_of(largest, partial[a.dim]);
            largest = j.largest;
            total = join_values(j, total, partial[a.dim + 1]);
            value = join_values(j, value, partial[d]);
        }
        total = with_sink(a, head, largest, total);
        ((T *)a.out)[((int64_t)token * a.query_heads + head) * a.dim + d] =
            from_float<T>(__fmul_rn(value, __fmul_rn(inverse_of(total), a.value_scale)));
    }
}

/* ---- launching ------------------------------------------------------------------------------------ */

template <typename T, typename C, int DP> static trm_status launch_few(const trm_cuda_attention *a, cudaStream_t stream)
{
    const int shared = few_memory<T, C, DP>::bytes;
    const int64_t queries = a->tokens <= a->sequences               ? 1
                            : a->tokens < TRM_ATTENTION_FEW_QUERIES ? a->tokens
                                                                    : TRM_ATTENTION_FEW_QUERIES;
    const int64_t tiles = (queries * a->group + FEW_ROWS - 1) / FEW_ROWS, blocks = tiles * a->kv_heads * a->sequences;
    int64_t splits = FEW_BLOCKS / blocks;
    splits = a->splits == 1 || splits < 1 ? 1 : splits < a->splits ? splits : a->splits;
    TRM_CUDA_TRY(cudaFuncSetAttribute(few_queries<T, C, DP>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_overlapped(few_queries<T, C, DP>,
                      dim3((unsigned)splits, (unsigned)(tiles * a->kv_heads), (unsigned)a->sequences), 32,
                      (size_t)shared, stream, *a, (int32_t)tiles);
    if (a->splits > 1) {
        launch_overlapped(join_few<T>, dim3((unsigned)a->query_heads, (unsigned)a->tokens), 128, 0, stream, *a);
    }
    return trm_cuda_launched("cuda.attention few queries");
}

template <typename T, int DP, bool F8> static trm_status launch_walk(const trm_cuda_attention *a, cudaStream_t stream)
{
    const int shared = walk_memory<T, DP, F8>::bytes;
    const int64_t tiles = a->tokens / WALK_ROWS + (a->sequences < a->tokens ? a->sequences : a->tokens);
    const int64_t blocks = tiles * a->query_heads;
    TRM_CUDA_TRY(cudaFuncSetAttribute(walk_splits<T, DP, F8>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch_overlapped(walk_splits<T, DP, F8>, (unsigned)(blocks < INT32_MAX ? blocks : INT32_MAX), WALK_WARPS * 32,
                      (size_t)shared, stream, *a);
    return trm_cuda_launched("cuda.attention walk");
}

template <typename T, typename C, int DP>
static trm_status launch_both(const trm_cuda_attention *a, bool few_alone, cudaStream_t stream)
{
    TRM_TRY((launch_few<T, C, DP>(a, stream))); /* a padded step has fewer queries than its dims say */
    return a->tokens > TRM_ATTENTION_FEW_QUERIES && !few_alone ? launch_walk<T, DP, sizeof(C) == 1>(a, stream) : TRM_OK;
}

template <typename T, int DP>
static trm_status launch_invariant(const trm_cuda_attention *a, bool few_alone, cudaStream_t stream)
{
    return a->cache_f8 ? launch_both<T, uint8_t, DP>(a, few_alone, stream)
                       : launch_both<T, T, DP>(a, few_alone, stream);
}

template <typename T> static trm_status launch_of(const trm_cuda_attention *a, bool few_alone, cudaStream_t stream)
{
    if (a->dim <= 64) {
        return launch_invariant<T, 64>(a, few_alone, stream);
    }
    if (a->dim <= 96) {
        return launch_invariant<T, 96>(a, few_alone, stream);
    }
    if (a->dim <= 128) {
        return launch_invariant<T, 128>(a, few_alone, stream);
    }
    return launch_invariant<T, 256>(a, few_alone, stream);
}

static trm_status launch_type(const trm_cuda_attention *a, bool few_alone, cudaStream_t stream)
{
    return a->dtype == TRM_F16 ? launch_of<__half>(a, few_alone, stream)
                               : launch_of<__nv_bfloat16>(a, few_alone, stream);
}

int64_t trm_cuda_attention_invariant_splits(const trm_attention_shape *s)
{
    return (s->table_blocks * s->block_size + SPLIT - 1) / SPLIT;
}

trm_status trm_cuda_attention_invariant(const trm_cuda_attention *a, cudaStream_t stream)
{
    return launch_type(a, false, stream);
}

trm_status trm_cuda_attention_few(const trm_cuda_attention *a, cudaStream_t stream)
{
    return launch_type(a, true, stream);
}
