/*
 * Decoding with the fragments of the tensor cores' products in registers, for heads of 64 or 128 rotated as a whole:
 * what cuda_direct.cu and cuda_shares.cu share.
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
#ifndef TRM_ATTENTION_QKV_CUDA_DIRECT_CUH
#define TRM_ATTENTION_QKV_CUDA_DIRECT_CUH

#include "attention/qkv/cuda.cuh"

#define DIRECT_WARPS   4
#define DIRECT_THREADS (DIRECT_WARPS * 32)
#define DIRECT_HEADS   8  /* query heads per key-value head at most */
#define DIRECT_KEYS    16 /* per warp and step */

template <int DIM> struct direct_tile {
    uint4 k[2][DIM / 32], v[4][DIM / 64];
};

/* Of a warp: running sums of its keys. */
template <int DIM> struct direct_sums {
    float out[DIM / 16][4];
    float largest, total; /* of head g; total is this lane's part */
};

/* 16 bytes of the cache, not kept in L1, where `valid`. */
static __device__ __forceinline__ void load_cached(uint4 &to, const char *from, bool valid)
{
    asm volatile("{\n\t.reg .pred valid;\n\tsetp.ne.b32 valid, %5, 0;\n\t"
                 "@valid ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
                 : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
                 : "l"(from), "r"((int)valid)
                 : "memory");
}

/* Where that is rare: a branch, as the compiler would not make of an assignment. */
static __device__ __forceinline__ void clear(uint32_t &word)
{
    asm volatile("mov.b32 %0, 0;" : "=r"(word));
}
static __device__ __forceinline__ void clear(uint4 &words)
{
    clear(words.x);
    clear(words.y);
    clear(words.z);
    clear(words.w);
}

/* Where a lane finds what it reads of the caches: its part of the first of 16 rows from row 0 on, of one head. */
struct lane_places {
    const char *keys, *values;
};

/* The first row of each 16 keys of a tile, and how many keys there are from the first on. */
struct tile_place {
    uint32_t row[2];
    int32_t left;
};

/* SIZE: bytes of an element. PIECE: elements that a lane has of a value in one piece. */
template <int SIZE, int DIM, int PIECE>
static __device__ __forceinline__ lane_places find_places(const trm_cuda_qkv &p, int32_t kv_head, int lane)
{
    int32_t row = p.a.kv_heads * DIM * SIZE, head = kv_head * DIM * SIZE;
    lane_places places = {(const char *)p.a.key_cache + head + lane / 4 * row + lane % 4 * 16,
                          (const char *)p.a.value_cache + head + lane % 4 * 2 * row + lane / 4 * (PIECE * SIZE)};
    return places;
}

/* A tile's keys from number `key` on, of those before `end`; the cache has blocks of 2^shift rows. */
template <int KEYS>
static __device__ __forceinline__ tile_place find_tile(const int32_t *table, int shift, int32_t key, int32_t end)
{
    tile_place place;
#pragma unroll
    for (int h = 0; h < KEYS / 16; h++) {
        int32_t first = key + h * 16;
        place.row[h] = first < end ? ((uint32_t)table[first >> shift] << shift) + (first & ((1 << shift) - 1)) : 0;
    }
    place.left = end - key;
    return place;
}

/* 16 keys of which those from number place.left on are zeros. */
template <int DIM>
static __device__ __forceinline__ void load_keys(const lane_places &places, const tile_place &place, int32_t row_bytes,
                                                 direct_tile<DIM> &tile, int lane)
{
    const char *from = places.keys + (int64_t)place.row[0] * row_bytes;
    if (place.left < DIRECT_KEYS) {
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            clear(tile.k[0][i]);
            clear(tile.k[1][i]);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        bool valid = lane / 4 + r * 8 < place.left;
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            load_cached(tile.k[r][i], from + r * 8 * row_bytes + i * 64, valid);
        }
    }
}

template <int DIM>
static __device__ __forceinline__ void load_values(const lane_places &places, const tile_place &place,
                                                   int32_t row_bytes, direct_tile<DIM> &tile, int lane)
{
    const char *from = places.values + (int64_t)place.row[0] * row_bytes;
    if (place.left < DIRECT_KEYS) {
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
            clear(tile.v[0][i]);
            clear(tile.v[1][i]);
            clear(tile.v[2][i]);
            clear(tile.v[3][i]);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int row = r % 2 + r / 2 * 8;
        bool valid = lane % 4 * 2 + row < place.left;
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
            load_cached(tile.v[r][i], from + row * row_bytes + i * 128, valid);
        }
    }
}

/* A head of q or k, of which each lane has elements 32 i + 8 t .. + 7: normalized if there is a weight, rotated, each
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
                                                   int32_t key, const float *cosines, const float *sines,
                                                   T (*fresh)[DIM], int lane)
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
    prepare_elements<T, DIM>(p, k, (const T *)p.k_norm, cosines, sines, lane);
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

/* Scores of the heads (rows) against a tile's keys, in two chains for each eight keys. */
template <typename M, int DIM>
static __device__ __forceinline__ void multiply_tile(const uint4 (&q)[DIM / 32], const direct_tile<DIM> &tile,
                                                     float (&scores)[2][4])
{
    float others[2][4];
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            scores[r][j] = others[r][j] = 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            mma_16816(scores[r], q[i].x, 0, q[i].y, 0, tile.k[r][i].x, tile.k[r][i].y, M());
            mma_16816(others[r], q[i].z, 0, q[i].w, 0, tile.k[r][i].z, tile.k[r][i].w, M());
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        scores[r][0] += others[r][0];
        scores[r][1] += others[r][1];
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

/* 2^x to within two last places; 0 for what is less than the least normal number. */
static __device__ __forceinline__ float exp2_near(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Turns scores, times `scale` of head g, into weights and moves the running maximum and sum on: the online softmax.
 * Only tiles at the ends of the range check which keys are seen, and sums shrink only where a maximum moves.
 */
template <int DIM, int GROUPS>
static __device__ __forceinline__ void weigh_tile(const trm_cuda_qkv &p, float scale, float (&scores)[GROUPS][4],
                                                  int32_t key, trm_key_range range, direct_sums<DIM> &sums, int lane)
{
    if (p.a.softcap > 0.0f) {
#pragma unroll
        for (int i = 0; i < 2 * GROUPS; i++) {
            scores[i / 2][i % 2] = score_log2(scores[i / 2][i % 2], scale, p.a.softcap);
        }
    } else {
        const float factor = scale * LOG2_E;
#pragma unroll
        for (int i = 0; i < 2 * GROUPS; i++) {
            scores[i / 2][i % 2] *= factor;
        }
    }
    if (key < range.low || key + 8 * GROUPS > range.high) {
#pragma unroll
        for (int i = 0; i < 2 * GROUPS; i++) {
            int32_t at = key + i / 2 * 8 + lane % 4 * 2 + i % 2;
            scores[i / 2][i % 2] = at >= range.low && at < range.high ? scores[i / 2][i % 2] : -INFINITY;
        }
    }
    float largest = -INFINITY, part = 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * GROUPS; i++) {
        largest = fmaxf(largest, scores[i / 2][i % 2]);
    }
    largest = fmaxf(sums.largest, quad_max(largest));
    float base = largest == -INFINITY ? 0.0f : largest;
#pragma unroll
    for (int i = 0; i < 2 * GROUPS; i++) {
        scores[i / 2][i % 2] = exp2_near(scores[i / 2][i % 2] - base);
        part += scores[i / 2][i % 2];
    }
    if (__any_sync(0xffffffffu, largest > sums.largest)) {
        float shrink = exp2_near(sums.largest - base);
        sums.largest = largest;
        sums.total *= shrink;
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
    sums.total += part;
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

/* Where eight elements number i of the lane's begin, of values that it reads in pieces of PIECE elements. */
template <int PIECE> static __device__ __forceinline__ int eight_of(int i, int lane)
{
    return PIECE == 16 ? lane / 4 * 16 + i * 8 : lane / 4 * 8 + i * 64;
}

/* A warp's sums as rows of DIM floats, `stride` apart, one for each of the `group` query heads. */
template <int DIM, int PIECE = 8>
static __device__ __forceinline__ void put_sums(const direct_sums<DIM> &sums, int group, float *to, int stride,
                                                int lane)
{
    int head = lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (head + h < group) {
            float *row = to + (head + h) * stride;
#pragma unroll
            for (int i = 0; i < DIM / 64; i++) {
                int at = eight_of<PIECE>(i, lane);
                *(float4 *)(row + at) = make_float4(sums.out[4 * i][h], sums.out[4 * i][2 + h], sums.out[4 * i + 1][h],
                                                    sums.out[4 * i + 1][2 + h]);
                *(float4 *)(row + at + 4) = make_float4(sums.out[4 * i + 2][h], sums.out[4 * i + 2][2 + h],
                                                        sums.out[4 * i + 3][h], sums.out[4 * i + 3][2 + h]);
            }
        }
    }
}

template <int DIM> static __device__ __forceinline__ void clear_sums(direct_sums<DIM> &sums)
{
    sums.largest = -INFINITY;
    sums.total = 0.0f;
#pragma unroll
    for (int j = 0; j < DIM / 16; j++) {
        sums.out[j][0] = sums.out[j][1] = sums.out[j][2] = sums.out[j][3] = 0.0f;
    }
}

/* The query heads of a token that are key-value head `kv_head`'s, as they come from the product: zeros for the rest. */
template <typename T, int DIM>
static __device__ __forceinline__ void load_queries(const trm_cuda_qkv &p, uint4 (&q)[DIM / 32], int32_t token,
                                                    int32_t kv_head, int lane)
{
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) {
        q[i] = make_uint4(0, 0, 0, 0);
        if (lane / 4 < p.a.group) {
            q[i] = *(const uint4 *)(head_of<T>(p, token, kv_head * p.a.group + lane / 4) + i * 32 + lane % 4 * 8);
        }
    }
}

/* The outputs of a warp that has seen all keys of its key-value head. */
template <typename T, int DIM, int PIECE = 8>
static __device__ __forceinline__ void store_warp(const trm_cuda_qkv &p, const direct_sums<DIM> &sums, int32_t token,
                                                  int32_t first_head, int lane)
{
    float total = quad_sum(sums.total);
    if (lane / 4 < p.a.group) {
        total = with_sink(p.a, first_head + lane / 4, sums.largest, total);
    }
    float scale = total == 0.0f ? 0.0f : p.a.value_scale / total;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int head = lane % 4 * 2 + h;
        float mine = __shfl_sync(0xffffffffu, scale, head * 4), v[8];
        T *to = (T *)p.a.out + ((int64_t)token * p.a.query_heads + first_head + head) * DIM;
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = sums.out[4 * i + j / 2][j % 2 * 2 + h] * mine;
            }
            if (head < p.a.group) {
                store16(to + eight_of<PIECE>(i, lane), v);
            }
        }
    }
}

#endif
