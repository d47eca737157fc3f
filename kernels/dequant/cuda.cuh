/*
 * Device helpers of products with quantized weights: numbers of 8 and 4 bits as pairs of 16-bit floats or as f32, and
 * their scales. Every conversion is exact.
 */
#ifndef TRM_KERNELS_DEQUANT_CUDA_CUH
#define TRM_KERNELS_DEQUANT_CUDA_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/e4m3.cuh"
#include "kernels/dequant/cuda.h"

/* How a weight is stored. In 16 bytes are `elements` numbers, in 4 bytes `elements` / 4. */
struct weight_f8 {
    static const int bits = 8, elements = 16;
};
struct weight_i8 {
    static const int bits = 8, elements = 16;
};
struct weight_u4 {
    static const int bits = 4, elements = 32;
};
struct weight_f4 {
    static const int bits = 4, elements = 32;
};

static __device__ __forceinline__ uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which)
{
    return __byte_perm(a, b, which);
}

/* (bits & mask) | value in one instruction. */
template <uint32_t mask, uint32_t value> static __device__ __forceinline__ uint32_t and_or(uint32_t bits)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(bits), "n"(mask), "n"(value));
    return r;
}

static __device__ __forceinline__ uint32_t subtract2(uint32_t a, uint32_t b, __half)
{
    __half2 r = __hsub2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
    return *reinterpret_cast<uint32_t *>(&r);
}
/* a * b + c of pairs, rounded once; what is subnormal counts. */
static __device__ __forceinline__ uint32_t multiply_add2(uint32_t a, uint32_t b, uint32_t c, __half)
{
    uint32_t r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
static __device__ __forceinline__ uint32_t multiply_add2(uint32_t a, uint32_t b, uint32_t c, __nv_bfloat16)
{
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/* The numbers of a word as two pairs of f16. */
static __device__ __forceinline__ void halves_of(uint32_t word, uint32_t (&to)[2], weight_f8)
{
    to[0] = e4m3_halves((uint16_t)word);
    to[1] = e4m3_halves((uint16_t)(word >> 16));
}
/* 1024 + u with u = number + 128 in the low bits, minus 1152. */
static __device__ __forceinline__ void halves_of(uint32_t word, uint32_t (&to)[2], weight_i8)
{
    const uint32_t u = word ^ 0x80808080u;
    to[0] = subtract2(pick_bytes(u, 0x64646464u, 0x4140), 0x64806480u, __half());
    to[1] = subtract2(pick_bytes(u, 0x64646464u, 0x4342), 0x64806480u, __half());
}

/*
 * A number of 4 bits alone in the lowest 8 of a 16-bit float is a multiple of the smallest one, whichever 4 bits it has
 * there: one multiply-add makes (number - zero) * nibble_form::unit of it, exactly.
 */
template <typename T> struct nibble_form;
template <> struct nibble_form<__half> {
    static const uint32_t from_low = 0x78007800u, from_high = 0x68006800u; /* 2^15, 2^11: of bits 0 to 3, 4 to 7 */
    static const uint32_t minus_eight = 0xa400a400u;                       /* times unit */
    static __device__ __forceinline__ float unit(void)
    {
        return 1.0f / 512.0f;
    }
};
template <> struct nibble_form<__nv_bfloat16> {
    static const uint32_t from_low = 0x7f007f00u, from_high = 0x7d007d00u; /* 2^127, 2^123 */
    static const uint32_t minus_eight = 0xbe00be00u;
    static __device__ __forceinline__ float unit(void)
    {
        return 1.0f / 64.0f;
    }
};

/* -zero * unit, twice; without zeros, of 8. */
template <typename T, bool ZERO> static __device__ __forceinline__ uint32_t minus_zero(uint32_t zero)
{
    if (!ZERO) {
        return nibble_form<T>::minus_eight;
    }
    const float minus = -(float)zero * nibble_form<T>::unit();
    return pack2(minus, minus, T());
}

/* What a sum of products with numbers of `W` is to be multiplied by for the numbers' unit. */
template <typename T> static __device__ __forceinline__ float units(weight_u4)
{
    return 1.0f / nibble_form<T>::unit();
}
template <typename T, typename W> static __device__ __forceinline__ float units(W)
{
    return 1.0f;
}

/* A float e2m1 whose exponent and mantissa are put at a float's lowest bits of the one and highest of the other is
 * itself times the smallest power of two of that float, also where it is subnormal. */
template <typename T> struct small_form;
template <> struct small_form<__half> {
    static const uint32_t shift = 9, scale = 0x74007400u; /* 2^14 */
};
template <> struct small_form<__nv_bfloat16> {
    static const uint32_t shift = 6, scale = 0x7e807e80u; /* 2^126 */
};

/*
 * The numbers of a word as pairs for the tensor cores. Of 8 bits two pairs, in their order. Of 4 bits four pairs in
 * units, less the zero that is given by minus_zero(), of numbers (0, 4), (1, 5), (2, 6), (3, 7); floats of 4 bits as
 * they are.
 */
template <typename W>
static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t, uint32_t (&to)[2], W, __half)
{
    halves_of(word, to, W());
}
template <typename W>
static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t, uint32_t (&to)[2], W, __nv_bfloat16)
{
    uint32_t halves[2];
    halves_of(word, halves, W());
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float pair[2];
        unpack2(halves[i], pair, __half());
        to[i] = pack2(pair[0], pair[1], __nv_bfloat16());
    }
}
template <typename T>
static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t minus, uint32_t (&to)[4], weight_u4, T)
{
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t bytes = word >> (4 * i);
        to[i] = multiply_add2(bytes & 0x000f000fu, nibble_form<T>::from_low, minus, T());
        to[i + 1] = multiply_add2(bytes & 0x00f000f0u, nibble_form<T>::from_high, minus, T());
    }
}

template <typename T>
static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t, uint32_t (&to)[4], weight_f4, T)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t both = word >> (4 * i);
        const uint32_t bits = (both & 0x00080008u) << 12 | (both & 0x00070007u) << small_form<T>::shift;
        to[i] = multiply_add2(bits, small_form<T>::scale, 0x80008000u, T());
    }
}

/* The numbers of a word as f32, in their order. */
template <typename W> static __device__ __forceinline__ void floats_of(uint32_t word, float (&to)[4], W)
{
    uint32_t halves[2];
    halves_of(word, halves, W());
    unpack2(halves[0], to, __half());
    unpack2(halves[1], to + 2, __half());
}

/* Bytes of a scale. */
static __device__ __forceinline__ uint32_t scale_size(const trm_dequant_gemm &gemm)
{
    return gemm.scale_type == TRM_F32 ? 4 : 2;
}
/* The scale there, whatever type it has, and a zero. Loads that stay where they are, and nothing behind them that would
 * wait for them. */
static __device__ __forceinline__ uint32_t load_scale_bits(const trm_dequant_gemm &gemm, const char *at)
{
    uint32_t bits = 0;
    asm volatile("{ .reg .pred p; setp.eq.u32 p, %2, 1; @p ld.global.u32 %0, [%1]; @!p ld.global.u16 %0, [%1]; }"
                 : "+r"(bits)
                 : "l"(at), "r"((uint32_t)gemm.scale_type));
    return bits;
}
static __device__ __forceinline__ uint32_t load_zero(const uint8_t *at)
{
    uint32_t zero;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(zero) : "l"(at));
    return zero;
}
static __device__ __forceinline__ float scale_of(const trm_dequant_gemm &gemm, uint32_t bits)
{
    const float half = __half2float(__ushort_as_half((unsigned short)bits));
    const uint32_t whole = gemm.scale_type == TRM_F32 ? bits : bits << 16;
    return gemm.scale_type == TRM_F16 ? half : __uint_as_float(whole);
}

#endif
