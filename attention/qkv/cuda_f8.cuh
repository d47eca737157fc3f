/*
 * Reading and writing caches of either type for the kernels that keep fragments in registers: of the queries' own type
 * by cuda_direct.cuh, and of e4m3.
 *
 * A tile of e4m3 is 32 keys, so that as many bytes are in flight. Of it lane (g, t) has
 *   keys:    elements 64 i + 16 t .. + 15 of keys g, g + 8, g + 16, g + 24, and the same of head g of the queries;
 *   values:  elements DIM / 8 * g .. of keys 2t, 2t + 1, 2t + 8, 2t + 9 of each 16: element 2 j of them is row g,
 * element 2 j + 1 row g + 8 of product j. They become halves, exactly, on their way into a product.
 */
#ifndef TRM_ATTENTION_QKV_CUDA_F8_CUH
#define TRM_ATTENTION_QKV_CUDA_F8_CUH

#include "attention/cuda/fp8.cuh"
#include "attention/qkv/cuda_direct.cuh"

/* A number of the cache in 8 bits. */
typedef struct e4m3 {
    uint8_t bits;
} e4m3;

template <int BYTES> struct bytes_of;
template <> struct bytes_of<8> {
    typedef uint2 type;
};
template <> struct bytes_of<16> {
    typedef uint4 type;
};

template <int DIM> struct f8_tile {
    uint4 k[4][DIM / 64];
    typename bytes_of<DIM / 8>::type v[8];
};

/* How a cache of C is read: keys of a tile, type of the fragments, elements that a lane has of a value in one piece. */
template <typename C, int DIM> struct cache_form {
    static const int keys = 16, piece = 8;
    typedef C math;
    typedef direct_tile<DIM> tile;
};
template <int DIM> struct cache_form<e4m3, DIM> {
    static const int keys = 32, piece = DIM / 8;
    typedef __half math;
    typedef f8_tile<DIM> tile;
};

static __device__ __forceinline__ void clear(uint2 &words)
{
    clear(words.x);
    clear(words.y);
}

static __device__ __forceinline__ void load_cached(uint2 &to, const char *from, bool valid)
{
    asm volatile("{\n\t.reg .pred valid;\n\tsetp.ne.b32 valid, %3, 0;\n\t"
                 "@valid ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];\n\t}"
                 : "+r"(to.x), "+r"(to.y)
                 : "l"(from), "r"((int)valid)
                 : "memory");
}

/* 32 keys of which those from number place.left on are zeros. */
template <int DIM>
static __device__ __forceinline__ void load_keys(const lane_places &places, const tile_place &place, int32_t row_bytes,
                                                 f8_tile<DIM> &tile, int lane)
{
    if (place.left < 32) {
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
            clear(tile.k[0][i]);
            clear(tile.k[1][i]);
            clear(tile.k[2][i]);
            clear(tile.k[3][i]);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const char *from = places.keys + (int64_t)place.row[r / 2] * row_bytes + r % 2 * 8 * row_bytes;
        bool valid = lane / 4 + r * 8 < place.left;
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
            load_cached(tile.k[r][i], from + i * 64, valid);
        }
    }
}

template <int DIM>
static __device__ __forceinline__ void load_values(const lane_places &places, const tile_place &place,
                                                   int32_t row_bytes, f8_tile<DIM> &tile, int lane)
{
    if (place.left < 32) {
#pragma unroll
        for (int r = 0; r < 8; r++) {
            clear(tile.v[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < 8; r++) {
        int row = r % 2 + r % 4 / 2 * 8;
        const char *from = places.values + (int64_t)place.row[r / 4] * row_bytes + row * row_bytes;
        load_cached(tile.v[r], from, r / 4 * 16 + lane % 4 * 2 + row < place.left);
    }
}

/* Both caches' lane_places. */
template <typename C, int DIM>
static __device__ __forceinline__ lane_places places_of(const trm_cuda_qkv &p, int32_t kv_head, int lane)
{
    return find_places<(int)sizeof(C), DIM, cache_form<C, DIM>::piece>(p, kv_head, lane);
}

/* As take_fresh() of cuda_direct.cuh. */
template <typename C, int DIM>
static __device__ __forceinline__ void take_fresh(f8_tile<DIM> &tile, const C (*fresh)[DIM], int slot, int lane)
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
#pragma unroll
        for (int i = 0; i < DIM / 64; i++) {
            if (slot == lane / 4 + r * 8) {
                tile.k[r][i] = *(const uint4 *)(fresh[0] + i * 64 + lane % 4 * 16);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 8; r++) {
        if (slot == lane % 4 * 2 + r % 2 + r / 2 * 8) {
            tile.v[r] = *(const typename bytes_of<DIM / 8>::type *)(fresh[1] + lane / 4 * (DIM / 8));
        }
    }
}
static __device__ __forceinline__ uint32_t first_two(uint32_t four)
{
    return f8_expand(four & 0xffffu, __half());
}
static __device__ __forceinline__ uint32_t last_two(uint32_t four)
{
    return f8_expand(four >> 16, __half());
}

/* As multiply_tile(). */
template <typename M, int DIM>
static __device__ __forceinline__ void multiply_tile(const uint4 (&q)[DIM / 32], const f8_tile<DIM> &tile,
                                                     float (&scores)[4][4])
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        scores[r][0] = scores[r][1] = scores[r][2] = scores[r][3] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < DIM / 64; i++) {
        const uint4 &a = q[2 * i], &b = q[2 * i + 1];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const uint4 &k = tile.k[r][i];
            mma_16816(scores[r], a.x, 0, a.y, 0, first_two(k.x), last_two(k.x), M());
            mma_16816(scores[r], a.z, 0, a.w, 0, first_two(k.y), last_two(k.y), M());
            mma_16816(scores[r], b.x, 0, b.y, 0, first_two(k.z), last_two(k.z), M());
            mma_16816(scores[r], b.z, 0, b.w, 0, first_two(k.w), last_two(k.w), M());
        }
    }
}

/* Four elements of four keys' values: two products. */
static __device__ __forceinline__ void add_numbers(float (*out)[4], uint32_t v0, uint32_t v1, uint32_t v2, uint32_t v3,
                                                   uint32_t b0, uint32_t b1)
{
    uint32_t low = __byte_perm(v0, v1, 0x5140), high = __byte_perm(v2, v3, 0x5140);
    mma_16816(out[0], first_two(low), last_two(low), first_two(high), last_two(high), b0, b1, __half());
    low = __byte_perm(v0, v1, 0x7362);
    high = __byte_perm(v2, v3, 0x7362);
    mma_16816(out[1], first_two(low), last_two(low), first_two(high), last_two(high), b0, b1, __half());
}
static __device__ __forceinline__ void add_pieces(float (*out)[4], const uint2 *v, uint32_t b0, uint32_t b1)
{
    add_numbers(out, v[0].x, v[1].x, v[2].x, v[3].x, b0, b1);
    add_numbers(out + 2, v[0].y, v[1].y, v[2].y, v[3].y, b0, b1);
}
static __device__ __forceinline__ void add_pieces(float (*out)[4], const uint4 *v, uint32_t b0, uint32_t b1)
{
    add_numbers(out, v[0].x, v[1].x, v[2].x, v[3].x, b0, b1);
    add_numbers(out + 2, v[0].y, v[1].y, v[2].y, v[3].y, b0, b1);
    add_numbers(out + 4, v[0].z, v[1].z, v[2].z, v[3].z, b0, b1);
    add_numbers(out + 6, v[0].w, v[1].w, v[2].w, v[3].w, b0, b1);
}

/* As add_tile(). */
template <typename M, int DIM>
static __device__ __forceinline__ void add_tile(const f8_tile<DIM> &tile, const float (&weights)[4][4],
                                                direct_sums<DIM> &sums)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t b0 = pack2(weights[2 * h][0], weights[2 * h][1], M());
        uint32_t b1 = pack2(weights[2 * h + 1][0], weights[2 * h + 1][1], M());
        add_pieces(sums.out, tile.v + 4 * h, b0, b1);
    }
}

/* As store_token() for a cache of e4m3: `fresh` has what the cache has. */
template <typename T, int DIM>
static __device__ __forceinline__ void store_numbers(const trm_cuda_qkv &p, const key_rows &places, int32_t token,
                                                     int32_t key, const float *cosines, const float *sines,
                                                     e4m3 (*fresh)[DIM], int lane)
{
    uint4 k[DIM / 32];
    const T *from = head_of<T>(p, token, p.a.query_heads + places.kv_head) + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) {
        k[i] = *(const uint4 *)(from + i * 32);
    }
    prepare_elements<T, DIM>(p, k, (const T *)p.k_norm, cosines, sines, lane);
    bool stored = key >= 0 && key / p.a.block_size < p.a.table_blocks;
    int64_t at = stored ? vector_of(places, key) * DIM : 0;
    if (lane < 4) {
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            uint2 numbers = f8_pack8_of<T>(k[i], p.a.key_inverse);
            *(uint2 *)(fresh[0] + i * 32 + lane * 8) = numbers;
            if (stored) {
                *(uint2 *)((e4m3 *)p.a.key_cache + at + i * 32 + lane * 8) = numbers;
            }
        }
    }
    if (lane < DIM / 8) {
        const T *value = head_of<T>(p, token, p.a.query_heads + p.a.kv_heads + places.kv_head) + lane * 8;
        uint2 numbers = f8_pack8_of<T>(*(const uint4 *)value, p.a.value_inverse);
        *(uint2 *)(fresh[1] + lane * 8) = numbers;
        if (stored) {
            *(uint2 *)((e4m3 *)p.a.value_cache + at + lane * 8) = numbers;
        }
    }
    __syncwarp();
}

template <typename T, int DIM>
static __device__ __forceinline__ void store_fresh(const trm_cuda_qkv &p, const key_rows &places, int32_t token,
                                                   int32_t key, const float *cosines, const float *sines,
                                                   T (*fresh)[DIM], int lane, T)
{
    store_token<T, DIM>(p, places, token, key, cosines, sines, fresh, lane);
}
template <typename T, int DIM>
static __device__ __forceinline__ void store_fresh(const trm_cuda_qkv &p, const key_rows &places, int32_t token,
                                                   int32_t key, const float *cosines, const float *sines,
                                                   e4m3 (*fresh)[DIM], int lane, e4m3)
{
    store_numbers<T, DIM>(p, places, token, key, cosines, sines, fresh, lane);
}

static __device__ __forceinline__ uint4 shuffle(uint4 x, int from)
{
    return make_uint4(__shfl_sync(0xffffffffu, x.x, from), __shfl_sync(0xffffffffu, x.y, from),
                      __shfl_sync(0xffffffffu, x.z, from), __shfl_sync(0xffffffffu, x.w, from));
}

/* Prepared queries as left operands for a cache of C; returns what scores of head g are multiplied by. */
template <typename T, int DIM>
static __device__ __forceinline__ float take_queries(const trm_cuda_qkv &p, uint4 (&q)[DIM / 32], int, T)
{
    return p.a.scale;
}
template <typename T, int DIM>
static __device__ __forceinline__ float take_queries(const trm_cuda_qkv &p, uint4 (&q)[DIM / 32], int lane, e4m3)
{
    float largest = 0.0f, v[8];
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) {
        unpack16<T>(q[i], v);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            largest = fmaxf(largest, fabsf(v[j]));
        }
    }
    /* A power of two that brings the largest to 2^11 .. 2^12; 1 for zeros, infinity and what is near either. */
    uint32_t exponent = __float_as_uint(quad_max(largest)) >> 23;
    bool usual = exponent > 27 && exponent < 227;
    float up = __uint_as_float((usual ? 265 - exponent : 127) << 23);
    float down = __uint_as_float((usual ? exponent - 11 : 127) << 23);
#pragma unroll
    for (int i = 0; i < DIM / 32; i++) {
        unpack16<T>(q[i], v);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            v[j] *= up;
        }
        q[i] = pack16<__half>(v);
    }
    /* Eight elements number n of a head are lane n % 4's q[n / 4]; to be lane n / 2 % 4's q[n / 8 * 2 + n % 2]. */
#pragma unroll
    for (int i = 0; i < DIM / 64; i++) {
        uint4 old[2] = {q[2 * i], q[2 * i + 1]};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int from = (lane & ~3) | ((lane * 2 + h) & 3);
            uint4 first = shuffle(old[0], from), second = shuffle(old[1], from);
            q[2 * i + h] = lane % 4 < 2 ? first : second;
        }
    }
    return p.a.scale * down;
}

#endif
