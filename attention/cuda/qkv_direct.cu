/*
 * As qkv.cu's decoding kernel, for heads of 64 or 128 rotated as a whole, up to 8 query heads per key-value head, and
 * blocks of a multiple of 16 keys: keys and values go from the cache into the registers that the tensor cores take them
 * from. Hardly any shared memory is used, so that more blocks run at a time, of the products before and after, too.
 *
 * Where each lane's 16 bytes belong in the fragments of mma.cuh is ours to choose, as long as both operands of a
 * product agree on which column of theirs is which. Lane (g, t) of a warp has of a tile of 16 keys
 *   keys:    elements 32 i + 8 t .. + 7 of keys g and g + 8: columns 2t, 2t + 1, 2t + 8, 2t + 9 of two products;
 *   queries: the same elements of head g;
 *   values:  elements 64 i + 8 g .. + 7 of keys 2t, 2t + 1, 2t + 8, 2t + 9: element 8 g + 2 j is row g, element 8 g +
 *            2 j + 1 is row g + 8 of product j, of which the keys are the columns.
 * Scores have heads as rows and keys as columns, so that weights are the right operand of the second product as they
 * are, whose result has elements as rows and heads as columns.
 */
#include "attention/cuda/qkv.cuh"

#define DIRECT_WARPS   4
#define DIRECT_THREADS (DIRECT_WARPS * 32)
#define DIRECT_HEADS   8
#define DIRECT_KEYS    16  /* per warp and step */
#define DIRECT_BLOCKS  264 /* which all run at once: two per multiprocessor of an H200 */

/* One block's static shared memory. A row is a query head of the block's key-value heads. */
template <typename T, int DIM> struct direct_block {
    float cosines[DIM / 2], sines[DIM / 2];
    float warp_state[DIRECT_WARPS][DIRECT_HEADS][2]; /* maximum in log2 units, sum of weights */
    float state[DIRECT_WARPS * DIRECT_HEADS][2];     /* of the block's rows, read by its cluster */
    __align__(16) T fresh[DIRECT_WARPS][2][DIM];     /* the step's key and value, of a warp's key-value head */
};

template <int DIM> struct direct_tile {
    uint4 k[2][DIM / 32], v[4][DIM / 64];
};

/* Of a warp: running sums of its keys. */
template <int DIM> struct direct_sums {
    float out[DIM / 16][4];
    float largest, total; /* of head g; total is this lane's part */
};

/* 16 bytes of the cache, not kept in L1. */
static __device__ __forceinline__ uint4 load_cached(const void *from)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

/* Where the elements of the first of 16 keys begin, which lie in one block of the cache. */
template <int DIM> static __device__ __forceinline__ int64_t find_tile(const key_rows &places, int32_t key, int32_t end)
{
    uint32_t size = (uint32_t)places.block_size, block = (uint32_t)key / size, offset = (uint32_t)key - block * size;
    int64_t row = key < end ? (int64_t)places.table[block] * size + offset : 0;
    return (row * places.kv_heads + places.kv_head) * DIM;
}

/* 16 keys of which those from number `left` on are zeros. */
template <typename T, int DIM>
static __device__ __forceinline__ void load_keys(const T *keys, int32_t stride, direct_tile<DIM> &tile, int32_t left,
                                                 int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int offset = lane / 4 + r * 8;
        const T *from = keys + offset * stride + lane % 4 * 8;
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            tile.k[r][i] = offset < left ? load_cached(from + i * 32) : make_uint4(0, 0, 0, 0);
        }
    }
}

template <typename T, int DIM>
static __device__ __forceinline__ void load_values(const T *values, int32_t stride, direct_tile<DIM> &tile,
                                                   int32_t left, int lane)
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int offset = lane % 4 * 2 + r % 2 + r / 2 * 8;
        const T *from = values + offset * stride + lane / 4 * 8;
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
            tile.v[r][i] = offset < left ? load_cached(from + i * 64) : make_uint4(0, 0, 0, 0);
        }
    }
}

/* A head of q or k, of which each lane has elements 32 i + 8 t .. + 7: normalised if there is a weight, rotated, each
 * rounded to T. */
template <typename T, int DIM>
static __device__ __forceinline__ void prepare_elements(const trm_cuda_qkv &p, uint4 (&x)[DIM / 32], const T *weight,
                                                        const float *cosines, const float *sines, int lane)
{
    int t8 = lane % 4 * 8;
    if (weight != NULL) {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            float v[8];
            unpack16<T>(x[i], v);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                total += v[j] * v[j];
            }
        }
        float scale = 1.0f / sqrtf(quad_sum(total) / (float)DIM + p.eps);
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            float v[8], w[8];
            unpack16<T>(x[i], v);
            load16(weight + i * 32 + t8, w);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = v[j] * scale * (w[j] + p.weight_offset);
            }
            x[i] = pack16<T>(v);
        }
    }
#pragma unroll
    for (int i = 0; i < DIM / 64; i++) {
        float u[8], v[8];
        unpack16<T>(x[i], u);
        unpack16<T>(x[i + DIM / 64], v);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float c = cosines[i * 32 + t8 + j], s = sines[i * 32 + t8 + j], first = u[j];
            u[j] = first * c - v[j] * s;
            v[j] = v[j] * c + first * s;
        }
        x[i] = pack16<T>(u);
        x[i + DIM / 64] = pack16<T>(v);
    }
}

/* A token's key and value by one warp: into `fresh`, and into the cache as key number `key` of the sequence. */
template <typename T, int DIM>
static __device__ __forceinline__ void store_token(const trm_cuda_qkv &p, const key_rows &places, int32_t token,
                                                   int32_t key, const direct_block<T, DIM> *block, T (*fresh)[DIM],
                                                   int lane)
{
    uint4 k[DIM / 32], v = make_uint4(0, 0, 0, 0);
    const T *from = head_of<T>(p, token, p.a.query_heads + places.kv_head) + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) {
        k[i] = *(const uint4 *)(from + i * 32);
    }
    if (lane < DIM / 8) {
        v = *(const uint4 *)(head_of<T>(p, token, p.a.query_heads + p.a.kv_heads + places.kv_head) + lane * 8);
    }
    prepare_elements<T, DIM>(p, k, (const T *)p.k_norm, block->cosines, block->sines, lane);
    bool stored = key >= 0 && key / p.a.block_size < p.a.table_blocks;
    int64_t at = stored ? vector_of(places, key) * DIM : 0;
    if (lane < 4) {
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            *(uint4 *)(fresh[0] + i * 32 + lane * 8) = k[i];
            if (stored) {
                *(uint4 *)((T *)p.a.key_cache + at + i * 32 + lane * 8) = k[i];
            }
        }
    }
    if (lane < DIM / 8) {
        *(uint4 *)(fresh[1] + lane * 8) = v;
        if (stored) {
            *(uint4 *)((T *)p.a.value_cache + at + lane * 8) = v;
        }
    }
    __syncwarp();
}

/* Key `slot` of a tile and its value are the step's own. */
template <typename T, int DIM>
static __device__ __forceinline__ void take_fresh(direct_tile<DIM> &tile, const T (*fresh)[DIM], int slot, int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            if (slot == lane / 4 + r * 8) {
                tile.k[r][i] = *(const uint4 *)(fresh[0] + i * 32 + lane % 4 * 8);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
            if (slot == lane % 4 * 2 + r % 2 + r / 2 * 8) {
                tile.v[r][i] = *(const uint4 *)(fresh[1] + i * 64 + lane / 4 * 8);
            }
        }
    }
}

/* Scores of the heads (rows) against a tile's keys. */
template <typename T, int DIM>
static __device__ __forceinline__ void multiply_tile(const uint4 (&q)[DIM / 32], const direct_tile<DIM> &tile,
                                                     float (&scores)[2][4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        scores[r][0] = scores[r][1] = scores[r][2] = scores[r][3] = 0.0f;
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            mma_16816(scores[r], q[i].x, 0, q[i].y, 0, tile.k[r][i].x, tile.k[r][i].y, T());
            mma_16816(scores[r], q[i].z, 0, q[i].w, 0, tile.k[r][i].z, tile.k[r][i].w, T());
        }
    }
}

/* One word of products j of values: 2 elements of four keys as rows g and g + 8, two keys a register. */
template <typename T>
static __device__ __forceinline__ void add_words(float (&out)[4], uint32_t v0, uint32_t v1, uint32_t v2, uint32_t v3,
                                                 uint32_t b0, uint32_t b1)
{
    mma_16816(out, __byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632), __byte_perm(v2, v3, 0x5410),
              __byte_perm(v2, v3, 0x7632), b0, b1, T());
}

/* Turns scores into weights and moves the running maximum and sum on: the online softmax of head g. */
template <int DIM>
static __device__ __forceinline__ void weigh_tile(const trm_cuda_qkv &p, float (&scores)[2][4], int32_t key,
                                                  trm_key_range range, direct_sums<DIM> &sums, int lane)
{
    float largest = -INFINITY, part = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float &score = scores[i / 2][i % 2];
        int32_t at = key + i / 2 * 8 + lane % 4 * 2 + i % 2;
        bool seen = at >= range.low && at < range.high;
        score = seen ? score_log2(score, p.a.scale, p.a.softcap) : -INFINITY;
        largest = fmaxf(largest, score);
    }
    largest = fmaxf(sums.largest, quad_max(largest));
    float base = largest == -INFINITY ? 0.0f : largest, shrink = exp2f(sums.largest - base);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        scores[i / 2][i % 2] = exp2f(scores[i / 2][i % 2] - base);
        part += scores[i / 2][i % 2];
    }
    sums.largest = largest;
    sums.total = sums.total * shrink + part;
    /* Sums have heads 2t and 2t + 1 in a lane. */
    float first = __shfl_sync(0xffffffffu, shrink, lane % 4 * 8),
          second = __shfl_sync(0xffffffffu, shrink, lane % 4 * 8 + 4);
#pragma unroll
    for (int j = 0; j < DIM / 16; j++) {
        sums.out[j][0] *= first;
        sums.out[j][1] *= second;
        sums.out[j][2] *= first;
        sums.out[j][3] *= second;
    }
}

template <typename T, int DIM>
static __device__ __forceinline__ void add_tile(const direct_tile<DIM> &tile, const float (&weights)[2][4],
                                                direct_sums<DIM> &sums)
{
    uint32_t b0 = pack2(weights[0][0], weights[0][1], T()), b1 = pack2(weights[1][0], weights[1][1], T());
#pragma unroll
    for (int i = 0; i < DIM / 64; i++) {
        const uint4 &v0 = tile.v[0][i], &v1 = tile.v[1][i], &v2 = tile.v[2][i], &v3 = tile.v[3][i];
        add_words<T>(sums.out[i * 4 + 0], v0.x, v1.x, v2.x, v3.x, b0, b1);
        add_words<T>(sums.out[i * 4 + 1], v0.y, v1.y, v2.y, v3.y, b0, b1);
        add_words<T>(sums.out[i * 4 + 2], v0.z, v1.z, v2.z, v3.z, b0, b1);
        add_words<T>(sums.out[i * 4 + 3], v0.w, v1.w, v2.w, v3.w, b0, b1);
    }
}

/* The warps' sums into a row of DIM floats per query head in `room` (rows DIM + 8 apart), in warp order; maxima and
 * sums of weights into block->state. Warp w has key-value head w % kv_heads of the block. Ends with a barrier. */
template <typename T, int DIM>
static __device__ __forceinline__ void join_warps(direct_sums<DIM> &sums, int group, int kv_heads, float *room,
                                                  direct_block<T, DIM> *block, int warp, int lane)
{
    const int stride = DIM + 8;
    int g = lane / 4, head = lane % 4 * 2, rows = kv_heads * group;
    float total = quad_sum(sums.total);
    if (lane % 4 == 0) {
        block->warp_state[warp][g][0] = sums.largest;
        block->warp_state[warp][g][1] = total;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (head + h < group) {
            float *to = room + (warp * group + head + h) * stride + g * 8;
#pragma unroll
            for (int i = 0; i < DIM / 64; i++) {
                *(float4 *)(to + i * 64) = make_float4(sums.out[4 * i][h], sums.out[4 * i][2 + h],
                                                       sums.out[4 * i + 1][h], sums.out[4 * i + 1][2 + h]);
                *(float4 *)(to + i * 64 + 4) = make_float4(sums.out[4 * i + 2][h], sums.out[4 * i + 2][2 + h],
                                                           sums.out[4 * i + 3][h], sums.out[4 * i + 3][2 + h]);
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < rows * (DIM / 4); i += DIRECT_THREADS) {
        int row = i / (DIM / 4), first = row / group, r = row - first * group;
        float *at = room + row * stride + i % (DIM / 4) * 4, largest = -INFINITY, all = 0.0f;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int w = first; w < DIRECT_WARPS; w += kv_heads) {
            largest = fmaxf(largest, block->warp_state[w][r][0]);
        }
        float base = largest == -INFINITY ? 0.0f : largest;
        for (int w = first; w < DIRECT_WARPS; w += kv_heads) {
            float shrink = exp2f(block->warp_state[w][r][0] - base);
            float4 one = *(const float4 *)(at + (w - first) * group * stride);
            value.x += shrink * one.x;
            value.y += shrink * one.y;
            value.z += shrink * one.z;
            value.w += shrink * one.w;
            all += shrink * block->warp_state[w][r][1];
        }
        *(float4 *)at = value;
        if (i % (DIM / 4) == 0) {
            block->state[row][0] = largest;
            block->state[row][1] = all;
        }
    }
    __syncthreads();
}

/* The outputs of a warp that has seen all keys of its key-value head. */
template <typename T, int DIM>
static __device__ __forceinline__ void store_warp(const trm_cuda_qkv &p, const direct_sums<DIM> &sums, int32_t token,
                                                  int32_t first_head, int lane)
{
    float total = quad_sum(sums.total), scale = total == 0.0f ? 0.0f : 1.0f / total;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int head = lane % 4 * 2 + h;
        float mine = __shfl_sync(0xffffffffu, scale, head * 4), v[8];
        T *to = (T *)p.a.out + ((int64_t)token * p.a.query_heads + first_head + head) * DIM + lane / 4 * 8;
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = sums.out[4 * i + j / 2][j % 2 * 2 + h] * mine;
            }
            if (head < p.a.group) {
                store16(to + i * 64, v);
            }
        }
    }
}

/* Keys and values of a sequence of several queries, before any of them looks at one: rare in such steps. */
template <typename T, int DIM>
static __device__ __noinline__ void store_several(const trm_cuda_qkv &p, const qkv_work &work, int32_t kv_head,
                                                  direct_block<T, DIM> *block, bool stores, T (*fresh)[DIM], int lane)
{
    for (int32_t query = 0; query < work.queries; query++) {
        __syncthreads();
        find_angles(p, work.token + query, block->cosines, block->sines);
        __syncthreads();
        if (stores) {
            store_token<T, DIM>(p, key_rows_of(p.a, work.sequence, 0, kv_head), work.token + query,
                                work.keys - work.queries + query, block, fresh, lane);
        }
    }
    __threadfence();
    __syncthreads();
}

/*
 * Block (cluster and place in it, p.heads key-value heads, sequence). The blocks of the clusters in use share the keys;
 * in a block the warps that have the same key-value head take runs of 16 keys in turn, each with its own softmax. The
 * warp that sees the step's key also stores it and its value. Where the inputs of the step allow it, the cached keys
 * and values are on their way, and the angles are known, before the product of q, k and v ends. Sequences of several
 * queries, rare in such steps, are one block's, one query after the other.
 */
template <typename T, int DIM>
static __global__ void __launch_bounds__(DIRECT_THREADS, 2) decode_direct(const __grid_constant__ trm_cuda_qkv p)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ direct_block<T, DIM> block;
    const int stride = DIM + 8;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, part = warp / p.heads,
        step = DIRECT_WARPS / p.heads * DIRECT_KEYS;
    int32_t rank = (int32_t)blockIdx.x % p.cluster, cluster = (int32_t)blockIdx.x / p.cluster;
    int32_t first_kv = (int32_t)blockIdx.y * p.heads, row_stride = p.a.kv_heads * DIM;
    const T *keys = (const T *)p.a.key_cache, *values = (const T *)p.a.value_cache;
    T(*fresh)[DIM] = block.fresh[warp];
    qkv_work work;
    work.sequence = blockIdx.z;
    work.kv_head = first_kv + warp % p.heads;
    work.heads = p.heads * p.a.group;
    work.first_head = first_kv * p.a.group;
    start_next();
    if (!p.early) {
        wait_for_previous();
    }
    work.token = p.a.starts[work.sequence];
    work.queries = p.a.starts[work.sequence + 1] - work.token;
    work.keys = p.a.lengths[work.sequence];
    key_rows places = key_rows_of(p.a, work.sequence, 0, work.kv_head);
    bool several = work.queries > 1;
    trm_key_range range = seen_keys(p.a, 0, work.queries, work.keys);
    int32_t used = several ? 1 : clusters_used(range.high - range.low, p.cluster, p.clusters);
    if (work.queries <= 0 || cluster >= used || (several && (rank > 0 || p.apart))) {
        wait_for_previous(); /* a kernel that ends says that all before it have */
        return;
    }
    int32_t sharing = several ? 1 : p.cluster * used, newest = several ? -1 : work.keys - 1;
    if (several) {
        wait_for_previous();
        store_several<T, DIM>(p, work, work.kv_head, &block, part == 0, fresh, lane);
    }
    for (int32_t query = 0; query < work.queries; query++) {
        range = seen_keys(p.a, query, work.queries, work.keys);
        int32_t low = range.low / DIRECT_KEYS * DIRECT_KEYS;
        int32_t size = trm_attention_split_size(range.high - low, sharing, DIRECT_KEYS);
        int64_t start = low + (several ? 0 : (int64_t)blockIdx.x * size);
        int32_t begin = start < range.high ? (int32_t)start : range.high;
        int32_t end = range.high - begin < size ? range.high : begin + size, key = begin + part * DIRECT_KEYS;
        direct_tile<DIM> tile;
        int64_t at = find_tile<DIM>(places, key, end);
        load_keys<T, DIM>(keys + at, row_stride, tile, end - key, lane);
        load_values<T, DIM>(values + at, row_stride, tile, end - key, lane);
        find_angles(p, work.token + query, block.cosines, block.sines);
        wait_for_previous();
        __syncthreads(); /* the angles */
        uint4 q[DIM / 32];
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            q[i] = make_uint4(0, 0, 0, 0);
            if (lane / 4 < p.a.group) {
                q[i] = *(const uint4 *)(head_of<T>(p, work.token + query, work.kv_head * p.a.group + lane / 4) +
                                        i * 32 + lane % 4 * 8);
            }
        }
        bool sees = newest >= begin && newest < end && newest >= key && (newest - key) % step < DIRECT_KEYS;
        bool unseen = newest >= range.high && blockIdx.x == 0 && part == 0;
        if (sees || unseen) {
            store_token<T, DIM>(p, places, work.token, newest, &block, fresh, lane);
        }
        prepare_elements<T, DIM>(p, q, (const T *)p.q_norm, block.cosines, block.sines, lane);
        direct_sums<DIM> sums;
        sums.largest = -INFINITY;
        sums.total = 0.0f;
#pragma unroll
        for (int j = 0; j < DIM / 16; j++) {
            sums.out[j][0] = sums.out[j][1] = sums.out[j][2] = sums.out[j][3] = 0.0f;
        }
        while (key < end) {
            if (sees && newest - key < DIRECT_KEYS) { /* what was read there is older */
                take_fresh<T, DIM>(tile, fresh, newest - key, lane);
            }
            int32_t next = key + step;
            float scores[2][4];
            at = find_tile<DIM>(places, next, end);
            multiply_tile<T, DIM>(q, tile, scores);
            if (next < end) {
                load_keys<T, DIM>(keys + at, row_stride, tile, end - next, lane);
            }
            weigh_tile<DIM>(p, scores, key, range, sums, lane);
            add_tile<T, DIM>(tile, scores, sums);
            if (next < end) {
                load_values<T, DIM>(values + at, row_stride, tile, end - next, lane);
            }
            key = next;
        }
        if (sharing == 1 && p.heads == DIRECT_WARPS) {
            store_warp<T, DIM>(p, sums, work.token + query, work.kv_head * p.a.group, lane);
            __syncthreads(); /* before the next query's angles */
            continue;
        }
        join_warps<T, DIM>(sums, p.a.group, p.heads, (float *)shared, &block, warp, lane);
        if (sharing == 1) {
            store_block<T, DIM, stride>(p, work, work.token + query, (float *)shared, block.state);
            __syncthreads(); /* before the next query */
        }
    }
    if (sharing == 1) {
        return;
    }
    cluster_arrive();
    cluster_wait();
    join_blocks<T, DIM, stride>(p, work, work.token, (float *)shared, block.state, p.cluster, rank, cluster, used == 1);
    cluster_arrive(); /* the others may still read here */
    cluster_wait();
}

/* ---- launching ---------------------------------------------------------------------------------- */

bool trm_cuda_qkv_is_direct(const trm_cuda_qkv *p)
{
    return p->a.group <= DIRECT_HEADS && (p->a.dim == 64 || p->a.dim == 128) && p->rope.rotary_dim == p->a.dim &&
           !p->rope.interleaved && p->a.block_size % DIRECT_KEYS == 0;
}

void trm_cuda_qkv_direct_cut(trm_cuda_qkv *p)
{
    int64_t pairs = (int64_t)p->a.sequences * p->a.kv_heads, most = p->a.table_blocks * (p->a.block_size / DIRECT_KEYS);
    p->heads = 1;
    if (p->clusters > 1) {
        return;
    }
    while (p->heads < DIRECT_WARPS && p->a.kv_heads % (2 * p->heads) == 0 && pairs / p->heads > DIRECT_BLOCKS) {
        p->heads *= 2;
    }
    p->cluster = 1;
    while (p->cluster < QKV_MAX_CLUSTER && 4 * p->cluster <= most &&
           pairs * p->cluster * 4 <= DIRECT_BLOCKS * p->heads) {
        p->cluster *= 2;
    }
}

template <typename T, int DIM> static trm_status launch_direct(const trm_cuda_qkv *p, cudaStream_t stream)
{
    cudaLaunchAttribute attributes[MOST_ATTRIBUTES] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim =
        dim3((unsigned)(p->cluster * p->clusters), (unsigned)(p->a.kv_heads / p->heads), (unsigned)p->a.sequences);
    config.blockDim = DIRECT_THREADS;
    config.dynamicSmemBytes = (size_t)(DIRECT_WARPS * p->a.group * (DIM + 8)) * sizeof(float);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = launch_attributes(attributes, true, (unsigned)p->cluster);
    (void)cudaLaunchKernelEx(&config, decode_direct<T, DIM>, *p); /* trm_cuda_launched() sees the error */
    return trm_cuda_launched("cuda.qkv_attention decode");
}

template <typename T> static trm_status launch_direct_of(const trm_cuda_qkv *p, cudaStream_t stream)
{
    return p->a.dim == 64 ? launch_direct<T, 64>(p, stream) : launch_direct<T, 128>(p, stream);
}

trm_status trm_cuda_qkv_direct(const trm_cuda_qkv *p, cudaStream_t stream)
{
    return p->a.dtype == TRM_F16 ? launch_direct_of<__half>(p, stream) : launch_direct_of<__nv_bfloat16>(p, stream);
}
