/*
 * Attention of sequences with several queries, on tensor cores: tiles of queries against tiles of keys with the softmax
 * computed along the way (Dao 2023, "FlashAttention-2"). Bound by arithmetic for long sequences: 4 * queries * keys
 * seen * dim operations per head.
 */
#include "attention/cuda/rows.cuh"

#define PREFILL_ROWS    64 /* queries per tile: 16 per warp */
#define PREFILL_THREADS 128

/* Tile `index` of a head. */
template <bool PADDED>
static __device__ __forceinline__ trm_query_tile find_tile(const trm_cuda_attention &a, int64_t index)
{
    if (!PADDED) {
        return trm_attention_find_tile(a.starts, a.sequences, PREFILL_ROWS, a.skipped, index);
    }
    int32_t tiles = (a.queries + PREFILL_ROWS - 1) / PREFILL_ROWS;
    int64_t sequence = index / tiles;
    trm_query_tile tile;
    tile.sequence = sequence < a.sequences ? (int32_t)sequence : -1;
    tile.first = 0;
    tile.queries = a.queries;
    tile.start = (tiles - 1 - (int32_t)(index % tiles)) * PREFILL_ROWS;
    return tile;
}

/* The output of a warp's 16 rows of a head. */
template <typename T, int DP>
static __device__ __forceinline__ void store_rows(const trm_cuda_attention &a, const trm_query_tile &tile,
                                                  const key_rows &queries, const float (&out)[DP / 8][4],
                                                  const float (&row_max)[2], const float (&row_part)[2], int32_t head,
                                                  int warp, int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total = with_sink(a, head, row_max[r], quad_sum(row_part[r]));
        float scale = total == 0.0f ? 0.0f : 1.0f / total; /* no key seen: zeros */
        int32_t query = tile.start + warp * 16 + lane / 4 + r * 8;
        if (query >= tile.queries) {
            continue; /* after the shuffles of quad_sum: the four lanes share a row */
        }
        const int64_t vector = vector_of(queries, query);
        if (a.logs != NULL && lane % 4 == 0) {
            a.logs[vector] = row_max[r] + log2f(total);
        }
        T *to = (T *)a.out + vector * a.dim;
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            int column = j * 8 + lane % 4 * 2;
            if (column < a.dim) {
                *(uint32_t *)(to + column) = pack2(out[j][2 * r] * scale, out[j][2 * r + 1] * scale, T());
            }
        }
    }
}

/* Scores in log2 units, -inf where a row does not see the key. `inside`: every row sees every key of the tile. */
template <int KEYS>
static __device__ __forceinline__ void mask_scores(float (&scores)[KEYS / 8][4], float scale, float softcap,
                                                   bool inside, int32_t key, const trm_key_range (&ranges)[2], int lane)
{
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t at = key + j * 8 + lane % 4 * 2 + i % 2;
            float score = score_log2(scores[j][i], scale, softcap);
            bool seen = inside || (at >= ranges[i / 2].low && at < ranges[i / 2].high);
            scores[j][i] = seen ? score : -INFINITY;
        }
    }
}

/* Adds the mask of the padded form to scores in log2 units. */
template <int KEYS>
static __device__ __forceinline__ void add_mask(float (&scores)[KEYS / 8][4], const trm_cuda_attention &a,
                                                const trm_query_tile &tile, int32_t head, int32_t key, int32_t keys,
                                                int warp, int lane)
{
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t at = key + j * 8 + lane % 4 * 2 + i % 2;
            int32_t query = tile.start + warp * 16 + lane / 4 + i / 2 * 8;
            if (at < keys && query < tile.queries) {
                scores[j][i] += mask_log2(a, tile.sequence, head, query, at);
            }
        }
    }
}

/*
 * A block of 4 warps takes a tile of 64 queries of one sequence and one head, a warp 16 of them; keys and values pass
 * in tiles of KEYS through two stages of shared memory, copied while the stage before is used. DP: dim rounded up, its
 * surplus zeros. Shared memory: (64 + 4 * KEYS) rows of 2 * DP + 16 bytes (the 16 keep ldmatrix free of bank
 * conflicts): 87 KB for DP 128, KEYS 64. Which tile is a block's is found from `starts` on the device; blocks past the
 * last tile end at once. PADDED: the padded form, whose tiles follow from its dims, with its mask.
 */
template <typename T, int DP, int KEYS, bool PADDED>
static __global__ void __launch_bounds__(PREFILL_THREADS) prefill_tiles(trm_cuda_attention a)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int stride = DP + 8;
    const bool keep_q = DP <= 128; /* q in registers; a wider one is read again for each tile of keys */
    T *q_tile = (T *)shared, *k_tile = q_tile + PREFILL_ROWS * stride, *v_tile = k_tile + 2 * KEYS * stride;
    __shared__ float key_mask[KEYS]; /* a mask that is the same for all rows of a tile, for this tile's keys */
    const bool by_key = PADDED && a.mask != NULL && a.mask_strides[2] == 0;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32_t q_at = a_address(q_tile + warp * 16 * stride, stride, lane);
    const T *keys = (const T *)(a.cached ? a.key_cache : a.k), *values = (const T *)(a.cached ? a.value_cache : a.v);
    begin_overlapped();
    for (int64_t work = blockIdx.x;; work += gridDim.x) {
        trm_query_tile tile = find_tile<PADDED>(a, work / a.query_heads);
        if (tile.sequence < 0) {
            return;
        }
        int32_t head = (int32_t)(work % a.query_heads);
        int32_t n_keys = PADDED ? a.keys : a.cached ? a.lengths[tile.sequence] : tile.queries;
        int32_t left = tile.queries - tile.start, rows = left < PREFILL_ROWS ? left : PREFILL_ROWS;
        trm_key_range first = seen_places(a, tile.start, tile.queries, n_keys);
        trm_key_range last = seen_places(a, tile.start + rows - 1, tile.queries, n_keys);
        int32_t low = first.low, high = last.high < n_keys ? last.high : n_keys;
        trm_key_range ranges[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            ranges[r] = seen_places(a, tile.start + warp * 16 + lane / 4 + r * 8, tile.queries, n_keys);
        }
        key_rows places, queries; /* queries: where they lie in q, and rows in out */
        if (PADDED) {
            places = padded_rows_of(a, tile.sequence, head / a.group, a.kv_heads, a.keys);
            queries = padded_rows_of(a, tile.sequence, head, a.query_heads, a.queries);
        } else {
            places = key_rows_of(a, tile.sequence, tile.first, head / a.group);
            queries = key_rows{NULL, tile.first, 1, a.query_heads, head};
        }

        __syncthreads(); /* the work before is done with shared memory */
#pragma unroll
        for (int i = 0; i < PREFILL_ROWS * DP / 8 / PREFILL_THREADS; i++) {
            int index = i * PREFILL_THREADS + (int)threadIdx.x, row = index / (DP / 8), column = index % (DP / 8) * 8;
            bool valid = row < rows && column < a.dim;
            int64_t at = valid ? vector_of(queries, tile.start + row) * a.dim + column : 0;
            copy16_async(shared_address(q_tile + row * stride + column), (const T *)a.q + at, valid);
        }
        load_keys_values<T, KEYS, DP, stride, PREFILL_THREADS>(places, keys, values, k_tile, v_tile, low, high, a.dim,
                                                               (int)threadIdx.x);
        copies_commit();

        uint32_t q[DP / 16][4];
        float out[DP / 8][4], row_max[2] = {-INFINITY, -INFINITY}, row_part[2] = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0.0f;
        }
        int stage = 0;
        for (int32_t key = low; key < high; key += KEYS, stage ^= 1) {
            if (key + KEYS < high) {
                load_keys_values<T, KEYS, DP, stride, PREFILL_THREADS>(
                    places, keys, values, k_tile + (stage ^ 1) * KEYS * stride, v_tile + (stage ^ 1) * KEYS * stride,
                    key + KEYS, high, a.dim, (int)threadIdx.x);
            }
            copies_commit();
            if (by_key && (int)threadIdx.x < KEYS) {
                int32_t at = key + (int32_t)threadIdx.x;
                key_mask[threadIdx.x] = at < n_keys ? mask_log2(a, tile.sequence, head, 0, at) : 0.0f;
            }
            copies_wait<1>();
            __syncthreads();
            if (keep_q && key == low) {
#pragma unroll
                for (int step = 0; step < DP / 16; step++) {
                    load_matrices(q[step], q_at + step * 32);
                }
            }
            float scores[KEYS / 8][4], shrink[2];
            multiply_keys<T, KEYS, DP, stride>(scores, keep_q ? q : NULL, q_at,
                                               b_address(k_tile + stage * KEYS * stride, stride, lane));
            bool inside = key >= last.low && key + KEYS <= first.high;
            mask_scores<KEYS>(scores, a.scale, a.softcap, inside, key, ranges, lane);
            if (by_key) {
#pragma unroll
                for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        scores[j][i] += key_mask[j * 8 + lane % 4 * 2 + i % 2];
                    }
                }
            } else if (PADDED && a.mask != NULL) {
                add_mask<KEYS>(scores, a, tile, head, key, n_keys, warp, lane);
            }
            softmax_step<KEYS>(scores, row_max, row_part, shrink);
            add_values<T, KEYS, DP, stride>(out, scores, shrink,
                                            bt_address(v_tile + stage * KEYS * stride, stride, lane));
            __syncthreads(); /* before this stage is filled again */
        }
        copies_wait<0>();
        store_rows<T, DP>(a, tile, queries, out, row_max, row_part, head, warp, lane);
    }
}

template <typename T, int DP, int KEYS, bool PADDED>
static trm_status launch_tiles(const trm_cuda_attention *a, cudaStream_t stream)
{
    const int shared = (PREFILL_ROWS + 4 * KEYS) * (DP + 8) * (int)sizeof(T);
    TRM_CUDA_TRY(
        cudaFuncSetAttribute(prefill_tiles<T, DP, KEYS, PADDED>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    /* No more tiles than full ones of all tokens and a broken one per sequence. Where few sequences can have several
     * queries, a small grid walks what there is, most often nothing. */
    int64_t tiles = PADDED ? (int64_t)a->sequences * ((a->queries + PREFILL_ROWS - 1) / PREFILL_ROWS)
                           : a->tokens / PREFILL_ROWS + (a->sequences < a->tokens ? a->sequences : a->tokens);
    int64_t blocks = tiles * a->query_heads, few = 264;
    bool sparse = !PADDED && a->skipped > 0 && trm_cuda_attention_is_sparse(a->tokens, a->sequences, a->share);
    blocks = sparse && blocks > few ? few : blocks > INT32_MAX ? INT32_MAX : blocks;
    launch_overlapped(prefill_tiles<T, DP, KEYS, PADDED>, (unsigned)blocks, PREFILL_THREADS, (size_t)shared, stream,
                      *a);
    return trm_cuda_launched("cuda.attention prefill");
}

template <typename T, int DP, int KEYS>
static trm_status launch_prefill(const trm_cuda_attention *a, cudaStream_t stream)
{
    return a->packed ? launch_tiles<T, DP, KEYS, false>(a, stream) : launch_tiles<T, DP, KEYS, true>(a, stream);
}

template <typename T> static trm_status launch_prefill_of(const trm_cuda_attention *a, cudaStream_t stream)
{
    if (a->dim <= 64) {
        return launch_prefill<T, 64, 64>(a, stream);
    }
    if (a->dim <= 96) {
        return launch_prefill<T, 96, 64>(a, stream);
    }
    if (a->dim <= 128) {
        return launch_prefill<T, 128, 64>(a, stream);
    }
    return launch_prefill<T, 256, 32>(a, stream);
}

trm_status trm_cuda_attention_prefill(const trm_cuda_attention *a, cudaStream_t stream)
{
    return a->dtype == TRM_F16 ? launch_prefill_of<__half>(a, stream) : launch_prefill_of<__nv_bfloat16>(a, stream);
}
