/*
 * Keys and values of an e4m3 cache: between 8 of its numbers and 8 elements of the types that are computed in. Numbers
 * of e4m3 are numbers of each of those.
 */
#ifndef TRM_ATTENTION_CUDA_FP8_CUH
#define TRM_ATTENTION_CUDA_FP8_CUH

#include "kernels/cuda/e4m3.cuh"
#include "kernels/cuda/mma.cuh"

/* Two numbers to the nearest of e4m3, at most +-448, the first one in the low byte. */
static __device__ __forceinline__ uint32_t f8_pair(float first, float second)
{
    return e4m3_pair(first, second);
}

static __device__ __forceinline__ uint8_t f8_of(float value)
{
    return (uint8_t)f8_pair(value, 0.0f);
}

/* The two numbers of a pair. */
static __device__ __forceinline__ float2 f8_floats(uint32_t pair)
{
    const uint32_t halves = e4m3_halves((uint16_t)pair);
    return __half22float2(*(const __half2 *)&halves);
}

static __device__ __forceinline__ uint32_t f8_expand(uint32_t pair, __half)
{
    return e4m3_halves((uint16_t)pair);
}

static __device__ __forceinline__ uint32_t f8_expand(uint32_t pair, __nv_bfloat16)
{
    float2 two = f8_floats(pair);
    return pack2(two.x, two.y, __nv_bfloat16());
}

/* Eight numbers of e4m3 as elements of a 16-bit type. */
template <typename T> static __device__ __forceinline__ uint4 f8_unpack8(uint2 raw)
{
    return make_uint4(f8_expand(raw.x & 0xffffu, T()), f8_expand(raw.x >> 16, T()), f8_expand(raw.y & 0xffffu, T()),
                      f8_expand(raw.y >> 16, T()));
}

/* Eight floats times `inverse` as e4m3. */
static __device__ __forceinline__ uint2 f8_pack8(const float *from, float inverse)
{
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pairs[i] = f8_pair(__fmul_rn(from[2 * i], inverse), __fmul_rn(from[2 * i + 1], inverse));
    }
    return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

/* Eight elements of a 16-bit type. */
template <typename T> static __device__ __forceinline__ uint2 f8_pack8_of(uint4 raw, float inverse)
{
    float values[8];
    unpack16<T>(raw, values);
    return f8_pack8(values, inverse);
}

/* A number of the cache, for kernels that are written for any type of it. */
static __device__ __forceinline__ float cached_float(uint8_t number)
{
    return f8_floats(number).x;
}
template <typename T> static __device__ __forceinline__ float cached_float(T element)
{
    return to_float(element);
}

static __device__ __forceinline__ void copy8_async(uint32_t to, const void *from, bool valid)
{
    int size = valid ? 8 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" : : "r"(to), "l"(from), "r"(size) : "memory");
}

/* ROWS keys, or values, of DP numbers each, packed, into a tile of rows of STRIDE elements, by THREADS threads. */
template <typename T, int ROWS, int DP, int STRIDE, int THREADS>
static __device__ __forceinline__ void f8_expand_tile(const uint8_t *raw, T *tile, int thread)
{
    const int chunks = DP / 8;
    static_assert(ROWS * chunks % THREADS == 0, "every thread converts the same number of chunks");
#pragma unroll 8
    for (int i = 0; i < ROWS * chunks / THREADS; i++) {
        const int index = i * THREADS + thread, row = index / chunks, column = index % chunks * 8;
        *(uint4 *)(tile + row * STRIDE + column) = f8_unpack8<T>(*(const uint2 *)(raw + index * 8));
    }
}

#endif
