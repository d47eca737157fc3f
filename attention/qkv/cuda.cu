/*
 * Attention from the joined product of q, k and v on: heads are normalized and rotated where they are used, the step's
 * keys and values go into the cache on the way, and the splits of a sequence's keys are joined in the same kernel, by a
 * cluster of blocks through their shared memory. A decode step's layer is so one launch.
 */
#include "attention/cuda/fp8.cuh"
#include "attention/qkv/cuda.cuh"
#include "attention/cuda/stages.cuh"

#define QKV_BLOCKS       264  /* wanted in all: two per multiprocessor of an H200 */
#define QKV_CLUSTER_KEYS 4096 /* tables up to this many keys: a cluster; longer ones: blocks alone, all at once */
#define PREPARE_WARPS    4

/* ---- one head ----------------------------------------------------------------------------------- */

/* A head of q or k by a warp: normalized if there is a weight, rotated, each rounded to T, into `to` (shared, aligned
 * to 16 bytes). Head dims are a multiple of 8 up to 256: a lane has 8. */
template <typename T>
static __device__ __forceinline__ void prepare_head(const trm_cuda_qkv &p, const T *from, const T *weight,
                                                    const float *cosines, const float *sines, T *to, int lane)
{
    bool active = lane * 8 < p.a.dim;
    uint4 raw = make_uint4(0, 0, 0, 0);
    if (active) {
        raw = *(const uint4 *)(from + lane * 8);
    }
    if (weight != NULL) {
        float v[8], w[8], total = 0.0f;
        unpack16<T>(raw, v);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            total += v[j] * v[j];
        }
        float scale = 1.0f / sqrtf(warp_sum(total) / (float)p.a.dim + p.eps);
        if (active) {
            load16(weight + lane * 8, w);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = v[j] * scale * (w[j] + p.weight_offset);
            }
            raw = pack16<T>(v);
        }
    }
    if (active) {
        *(uint4 *)(to + lane * 8) = raw;
    }
    __syncwarp();
    for (int i = lane; i < p.rope.rotary_dim / 2; i += 32) { /* each pair is one lane's */
        int first, second;
        rope_pair(p.rope, i, &first, &second);
        float u = to_float(to[first]), v = to_float(to[second]), c = cosines[i], s = sines[i];
        to[first] = from_float<T>(u * c - v * s);
        to[second] = from_float<T>(v * c + u * s);
    }
    __syncwarp();
}

/* ---- before other kernels ----------------------------------------------------------------------- */

/* Index of the cache's vector of a token, or -1 where its sequence's table has no place for it. */
static __device__ __forceinline__ int64_t vector_in_cache(const trm_cuda_attention &a, int32_t token, int32_t kv_head)
{
    int32_t sequence = trm_attention_sequence_of(a.starts, a.sequences, token);
    if (sequence < 0) {
        return -1;
    }
    int32_t key = a.lengths[sequence] - (a.starts[sequence + 1] - token);
    if (key < 0 || key / a.block_size >= a.table_blocks) {
        return -1;
    }
    return vector_of(key_rows_of(a, sequence, 0, kv_head), key);
}

/* Whether a token is its sequence's only one, or of no sequence. */
static __device__ __forceinline__ bool is_alone(const trm_cuda_attention &a, int32_t token)
{
    int32_t sequence = trm_attention_sequence_of(a.starts, a.sequences, token);
    return sequence < 0 || a.starts[sequence + 1] - a.starts[sequence] == 1;
}

/* Block (token, share of its heads), 128 threads, a warp per head. Bound by device memory: qkv is read once and written
 * once, in two places. */
template <typename T>
static __global__ void __launch_bounds__(PREPARE_WARPS * 32)
    prepare_tokens(const __grid_constant__ trm_cuda_qkv p, T *queries, uint32_t *next_tile)
{
    __shared__ float cosines[128], sines[128];
    __shared__ __align__(16) T heads[PREPARE_WARPS][256];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    begin_overlapped();
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
        *next_tile = 0;
    }
    int32_t hq = p.a.query_heads, hkv = p.a.kv_heads, dim = p.a.dim;
    for (int32_t token = blockIdx.x; token < p.a.tokens; token += gridDim.x) {
        if (p.apart && is_alone(p.a, token)) {
            continue;
        }
        find_angles(p, token, cosines, sines);
        __syncthreads();
        for (int32_t head = (int32_t)blockIdx.y * PREPARE_WARPS + warp; head < hq + 2 * hkv;
             head += (int32_t)gridDim.y * PREPARE_WARPS) {
            const T *from = head_of<T>(p, token, head);
            T *to = queries + ((int64_t)token * hq + head) * dim, *made = heads[warp];
            bool is_key = head >= hq && head < hq + hkv;
            uint8_t *bytes = NULL; /* of an e4m3 cache */
            if (head >= hq) {
                int64_t vector = vector_in_cache(p.a, token, is_key ? head - hq : head - hq - hkv);
                if (vector < 0) {
                    continue;
                }
                void *cache = is_key ? p.a.key_cache : p.a.value_cache;
                to = (T *)cache + vector * dim;
                bytes = p.a.cache_f8 ? (uint8_t *)cache + vector * dim : NULL;
            }
            if (head < hq + hkv) {
                prepare_head(p, from, (const T *)(head < hq ? p.q_norm : p.k_norm), cosines, sines, made, lane);
                from = made;
            }
            if (lane * 8 < dim && bytes != NULL) {
                *(uint2 *)(bytes + lane * 8) =
                    f8_pack8_of<T>(*(const uint4 *)(from + lane * 8), is_key ? p.a.key_inverse : p.a.value_inverse);
            } else if (lane * 8 < dim) {
                *(uint4 *)(to + lane * 8) = *(const uint4 *)(from + lane * 8);
            }
            __syncwarp();
        }
        __syncthreads(); /* before the next token's angles */
    }
}

/* ---- decoding ----------------------------------------------------------------------------------- */

/* One block's shared memory that is not dynamic. */
template <typename T, int DP> struct qkv_block {
    float cosines[DP / 2], sines[DP / 2];
    stage_state<T, DP> state;     /* read by its cluster */
    __align__(16) T fresh[2][DP]; /* the step's key and value */
};

/* The heads of a token into shared memory: its queries into q_tile, and with `fresh` its key and value. */
template <typename T, int DP>
static __device__ __forceinline__ void prepare_token(const trm_cuda_qkv &p, const qkv_work &work, int32_t token,
                                                     T *q_tile, qkv_block<T, DP> *block, bool with_queries,
                                                     bool with_fresh, int warp, int lane)
{
    int32_t first = with_queries ? 0 : work.heads, last = with_fresh ? work.heads + 2 : work.heads;
    for (int32_t i = first + warp; i < last; i += stage_shape<T, DP>::warps) {
        if (i < work.heads) {
            prepare_head(p, head_of<T>(p, token, work.first_head + i), (const T *)p.q_norm, block->cosines,
                         block->sines, q_tile + i * stage_shape<T, DP>::stride, lane);
        } else if (i == work.heads) {
            prepare_head(p, head_of<T>(p, token, p.a.query_heads + work.kv_head), (const T *)p.k_norm, block->cosines,
                         block->sines, block->fresh[0], lane);
        } else if (lane * 8 < p.a.dim) {
            const T *value = head_of<T>(p, token, p.a.query_heads + p.a.kv_heads + work.kv_head);
            *(uint4 *)(block->fresh[1] + lane * 8) = *(const uint4 *)(value + lane * 8);
        }
    }
}

/* The prepared key and value into the cache, as key number `key` of the sequence. */
template <typename T, int DP>
static __device__ __forceinline__ void store_fresh(const trm_cuda_qkv &p, const key_rows &places,
                                                   const qkv_block<T, DP> *block, int32_t key)
{
    int runs = p.a.dim / 8, i = threadIdx.x;
    if (key >= 0 && key / p.a.block_size < p.a.table_blocks && i < 2 * runs) {
        bool is_value = i >= runs;
        int column = (is_value ? i - runs : i) * 8;
        T *to = (T *)(is_value ? p.a.value_cache : p.a.key_cache) + vector_of(places, key) * p.a.dim;
        *(uint4 *)(to + column) = *(const uint4 *)(block->fresh[is_value] + column);
    }
}

/* A sequence of several queries, by one block, one query after the other: rare in such steps, and slow. */
template <typename T, int DP>
static __device__ __noinline__ void decode_several(const trm_cuda_qkv &p, const qkv_work &work, const key_rows &places,
                                                   T *q_tile, qkv_block<T, DP> *block)
{
    const int stride = stage_shape<T, DP>::stride;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    T *stages = q_tile + 16 * stride + warp * stage_shape<T, DP>::stages * 2 * stage_shape<T, DP>::tile;
    for (int32_t query = 0; query < work.queries; query++) {
        find_angles(p, work.token + query, block->cosines, block->sines);
        __syncthreads();
        prepare_token(p, work, work.token + query, q_tile, block, false, true, warp, lane);
        __syncthreads();
        store_fresh(p, places, block, work.keys - work.queries + query);
        __syncthreads();
    }
    __threadfence();
    __syncthreads();
    for (int32_t query = 0; query < work.queries; query++) {
        trm_key_range range = seen_keys(p.a, query, work.queries, work.keys);
        find_angles(p, work.token + query, block->cosines, block->sines);
        __syncthreads();
        prepare_token(p, work, work.token + query, q_tile, block, true, false, warp, lane);
        start_copies<T, DP>(p.a, places, stages, range.low + warp * STAGE_KEYS, range.high, lane);
        __syncthreads();
        walk_keys<T, DP>(p.a, work.heads, places, q_tile, &block->state, range.low, range.high, -1, block->fresh, warp,
                         lane);
        __syncthreads();
        store_block<T, DP, DP>(p, work, work.token + query,
                               (float *)(q_tile + 16 * stride) + stage_shape<T, DP>::warp_sums, block->state.block);
        __syncthreads();
    }
}

/*
 * Block (cluster and place in it, key-value head and tile of 16 of its query heads, sequence). The blocks of the
 * clusters in use share the keys; in a block each of the 4 warps takes every fourth run of 16 keys, with
 * its own three stages of shared memory and its own softmax. The key-value head's first tile, or rather its first
 * block, also stores the step's key and value. Shared memory: 109 KB for DP 128, two blocks
 * per multiprocessor. Where the inputs of the step allow it, the cached keys and values are on their way, and the
 * angles are known, before the product of q, k and v ends.
 */
template <typename T, int DP>
static __global__ void __launch_bounds__(stage_shape<T, DP>::threads, DP <= 128 ? 2 : 1)
    decode_tokens(const __grid_constant__ trm_cuda_qkv p)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ qkv_block<T, DP> block;
    const int stride = stage_shape<T, DP>::stride;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    T *q_tile = (T *)shared;
    int32_t head_tiles = (p.a.group + 15) / 16, head_tile = (int32_t)blockIdx.y % head_tiles;
    int32_t rank = (int32_t)blockIdx.x % p.cluster, cluster = (int32_t)blockIdx.x / p.cluster;
    qkv_work work;
    work.sequence = blockIdx.z;
    work.kv_head = (int32_t)blockIdx.y / head_tiles;
    work.first_head = work.kv_head * p.a.group + head_tile * 16;
    work.heads = p.a.group - head_tile * 16 < 16 ? p.a.group - head_tile * 16 : 16;
    start_next();
    if (!p.early) {
        wait_for_previous();
    }
    work.token = p.a.starts[work.sequence];
    work.queries = p.a.starts[work.sequence + 1] - work.token;
    work.keys = p.a.lengths[work.sequence];
    key_rows places = key_rows_of(p.a, work.sequence, 0, work.kv_head);
    /* Rows of no head and columns past the dims are zeros. */
    for (int i = threadIdx.x; i < 16 * (DP / 8); i += (stage_shape<T, DP>::threads)) {
        int row = i / (DP / 8), column = i % (DP / 8) * 8;
        if (row >= work.heads || column >= p.a.dim) {
            *(uint4 *)(q_tile + row * stride + column) = make_uint4(0, 0, 0, 0);
        }
        if (row < 2 && column >= p.a.dim) {
            *(uint4 *)(block.fresh[row] + column) = make_uint4(0, 0, 0, 0);
        }
    }
    if (work.queries != 1) {
        wait_for_previous();
        if (work.queries > 1 && blockIdx.x == 0) {
            decode_several(p, work, places, q_tile, &block);
        }
        return;
    }
    trm_key_range range = seen_keys(p.a, 0, 1, work.keys);
    int32_t used = clusters_used(range.high - range.low, p.cluster, p.clusters);
    if (cluster >= used) {
        wait_for_previous(); /* a kernel that ends says that all before it have */
        return;
    }
    int32_t size = trm_attention_split_size(range.high - range.low, p.cluster * used, STAGE_KEYS);
    int64_t start = range.low + (int64_t)blockIdx.x * size;
    int32_t begin = start < range.high ? (int32_t)start : range.high;
    int32_t end = range.high - begin < size ? range.high : begin + size, fresh = work.keys - 1;
    bool is_writer = blockIdx.x == 0 && head_tile == 0, sees_fresh = fresh >= begin && fresh < end;
    T *stages = q_tile + 16 * stride + warp * stage_shape<T, DP>::stages * 2 * stage_shape<T, DP>::tile;
    find_angles(p, work.token, block.cosines, block.sines);
    start_copies<T, DP>(p.a, places, stages, begin + warp * STAGE_KEYS, end, lane);
    if (p.early) {
        wait_for_previous();
    }
    __syncthreads(); /* the angles */
    prepare_token(p, work, work.token, q_tile, &block, true, is_writer || sees_fresh, warp, lane);
    __syncthreads();
    if (is_writer) {
        store_fresh(p, places, &block, fresh);
    }
    walk_keys<T, DP>(p.a, work.heads, places, q_tile, &block.state, begin, end, fresh, block.fresh, warp, lane);
    float *sums = (float *)(q_tile + 16 * stride) + stage_shape<T, DP>::warp_sums;
    if (p.cluster == 1 && used == 1) {
        __syncthreads();
        store_block<T, DP, DP>(p, work, work.token, sums, block.state.block);
        return;
    }
    cluster_arrive();
    cluster_wait();
    join_blocks<T, DP, DP>(p, work, work.token, sums, block.state.block, p.cluster, rank, cluster, used == 1);
    cluster_arrive(); /* the others may still read here */
    cluster_wait();
}

/* Block (head, sequence), 128 threads: joins what several clusters made, in their order. */
template <typename T>
static __global__ void __launch_bounds__(128) join_clusters(const __grid_constant__ trm_cuda_qkv p)
{
    __shared__ float weights[QKV_BLOCKS], scratch[32];
    int32_t head = blockIdx.x, sequence = blockIdx.y;
    begin_overlapped();
    int32_t token = p.a.starts[sequence], queries = p.a.starts[sequence + 1] - token;
    trm_key_range range = seen_keys(p.a, 0, 1, p.a.lengths[sequence]);
    int32_t used = clusters_used(range.high - range.low, p.cluster, p.clusters);
    if (queries != 1 || used == 1) {
        return;
    }
    float largest = -INFINITY, total = 0.0f;
    for (int i = threadIdx.x; i < used; i += blockDim.x) {
        largest = fmaxf(largest, cluster_partial(p.a, i, sequence, head)[p.a.value_dim]);
    }
    largest = block_max(largest, scratch);
    float base = largest == -INFINITY ? 0.0f : largest;
    for (int i = threadIdx.x; i < used; i += blockDim.x) {
        const float *partial = cluster_partial(p.a, i, sequence, head);
        weights[i] = exp2f(partial[p.a.value_dim] - base);
        total += weights[i] * partial[p.a.value_dim + 1];
    }
    total = with_sink(p.a, head, largest, block_sum(total, scratch)); /* its barriers make the weights visible, too */
    float scale = total == 0.0f ? 0.0f : 1.0f / total;
    T *to = (T *)p.a.out + ((int64_t)token * p.a.query_heads + head) * p.a.dim;
    for (int d = threadIdx.x; d < p.a.value_dim; d += blockDim.x) {
        float value = 0.0f;
#pragma unroll 8
        for (int i = 0; i < used; i++) {
            value += weights[i] * cluster_partial(p.a, i, sequence, head)[d];
        }
        to[d] = from_float<T>(value * scale);
    }
}

/* ---- launching ---------------------------------------------------------------------------------- */

void trm_cuda_qkv_clusters(const trm_attention_shape *s, int32_t *cluster, int32_t *clusters)
{
    int64_t tiles = s->kv_heads * ((s->query_heads / s->kv_heads + 15) / 16) * (s->sequences < 1 ? 1 : s->sequences);
    int64_t keys = s->table_blocks * s->block_size, most = (keys + STAGE_KEYS - 1) / STAGE_KEYS;
    int64_t blocks = 1, several = 1;
    if (keys > QKV_CLUSTER_KEYS) {
        several = QKV_BLOCKS / tiles;
        several = several < keys / QKV_FEW_KEYS ? several : keys / QKV_FEW_KEYS;
    }
    while (several <= 1 && trm_cuda_has_clusters() && blocks < QKV_MAX_CLUSTER && blocks < most &&
           tiles * blocks * 4 <= QKV_BLOCKS) {
        blocks *= 2;
    }
    *cluster = (int32_t)blocks;
    *clusters = (int32_t)(several < 1 ? 1 : several);
}

trm_status trm_cuda_qkv_prepare(const trm_cuda_qkv *qkv, void *queries, uint32_t *next_tile, cudaStream_t stream)
{
    if (trm_cuda_qkv_prepares_whole(qkv)) {
        return trm_cuda_qkv_prepare_whole(qkv, queries, next_tile, stream);
    }
    int64_t tokens = qkv->a.tokens;
    int heads = qkv->a.query_heads + 2 * qkv->a.kv_heads, shares = (heads + PREPARE_WARPS - 1) / PREPARE_WARPS;
    if (tokens >= 132) {
        shares = shares < 2 ? shares : 2;
    }
    dim3 grid((unsigned)(tokens < 1 << 20 ? tokens : 1 << 20), (unsigned)(shares < 65535 ? shares : 65535));
    if (qkv->a.dtype == TRM_F16) {
        launch_overlapped(prepare_tokens<__half>, grid, PREPARE_WARPS * 32, 0, stream, *qkv, (__half *)queries,
                          next_tile);
    } else {
        launch_overlapped(prepare_tokens<__nv_bfloat16>, grid, PREPARE_WARPS * 32, 0, stream, *qkv,
                          (__nv_bfloat16 *)queries, next_tile);
    }
    return trm_cuda_launched("cuda.qkv_attention prepare");
}

template <typename T, int DP> static trm_status launch_tokens(const trm_cuda_qkv *p, cudaStream_t stream)
{
    int threads, shared;
    stage_launch<T, DP>(&threads, &shared);
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(p->cluster * p->clusters), (unsigned)(p->a.kv_heads * ((p->a.group + 15) / 16)),
                          (unsigned)p->a.sequences);
    config.blockDim = (unsigned)threads;
    config.dynamicSmemBytes = (size_t)shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, true, (unsigned)p->cluster);
    TRM_CUDA_TRY(cudaFuncSetAttribute(decode_tokens<T, DP>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    (void)cudaLaunchKernelEx(&config, decode_tokens<T, DP>, *p); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("cuda.qkv_attention decode");
}

template <typename T> static trm_status launch_tokens_of(const trm_cuda_qkv *p, cudaStream_t stream)
{
    if (p->a.dim <= 64) {
        return launch_tokens<T, 64>(p, stream);
    }
    if (p->a.dim <= 96) {
        return launch_tokens<T, 96>(p, stream);
    }
    if (p->a.dim <= 128) {
        return launch_tokens<T, 128>(p, stream);
    }
    return launch_tokens<T, 256>(p, stream);
}

trm_status trm_cuda_qkv_decode(const trm_cuda_qkv *p, cudaStream_t stream)
{
    if (trm_cuda_qkv_is_direct(p)) {
        return p->shared_out ? trm_cuda_qkv_shares(p, stream) : trm_cuda_qkv_direct(p, stream);
    }
    TRM_TRY(p->a.dtype == TRM_F16 ? launch_tokens_of<__half>(p, stream) : launch_tokens_of<__nv_bfloat16>(p, stream));
    if (p->clusters == 1) {
        return TRM_OK;
    }
    dim3 grid((unsigned)p->a.query_heads, (unsigned)p->a.sequences);
    if (p->a.dtype == TRM_F16) {
        launch_overlapped(join_clusters<__half>, grid, 128, 0, stream, *p);
    } else {
        launch_overlapped(join_clusters<__nv_bfloat16>, grid, 128, 0, stream, *p);
    }
    return trm_cuda_launched("cuda.qkv_attention join");
}
