/*
 * Device helpers of products with quantised weights: numbers of 8 and 4 bits as pairs of 16-bit floats or as f32, and
 * their scales. Every conversion is exact.
 */
#ifndef TRM_KERNELS_CUDA_DEQUANT_CUH
#define TRM_KERNELS_CUDA_DEQUANT_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/dequant.h"

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

/* Two numbers of 16 bits each, in f16. */
static __device__ __forceinline__ void halves_of(uint32_t word, uint32_t (&to)[2], weight_f8)
{
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high; }"
        : "=r"(to[0]), "=r"(to[1])
        : "r"(word));
}
static __device__ __forceinline__ uint32_t subtract2(uint32_t a, uint32_t b, __half)
{
    __half2 r = __hsub2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
    return *reinterpret_cast<uint32_t *>(&r);
}
static __device__ __forceinline__ uint32_t subtract2(uint32_t a, uint32_t b, __nv_bfloat16)
{
    __nv_bfloat162 r = __hsub2(*reinterpret_cast<__nv_bfloat162 *>(&a), *reinterpret_cast<__nv_bfloat162 *>(&b));
    return *reinterpret_cast<uint32_t *>(&r);
}
/* 1024 + u with u = number + 128 in the low bits, minus 1152. */
static __device__ __forceinline__ void halves_of(uint32_t word, uint32_t (&to)[2], weight_i8)
{
    const uint32_t u = word ^ 0x80808080u;
    to[0] = subtract2(pick_bytes(u, 0x64646464u, 0x4140), 0x64806480u, __half());
    to[1] = subtract2(pick_bytes(u, 0x64646464u, 0x4342), 0x64806480u, __half());
}

/* What is subtracted from numbers of 4 bits, for `zero` in 0 .. 255. */
template <typename T> struct nibble_zero;
template <> struct nibble_zero<__half> {
    uint32_t low, high; /* 1024 + zero; -(64 + zero) */
    __device__ __forceinline__ void set(int zero)
    {
        low = 0x64006400u + (uint32_t)zero * 0x00010001u;
        const __half2 h = __half2half2(__int2half_rn(-64 - zero));
        high = *reinterpret_cast<const uint32_t *>(&h);
    }
    __device__ __forceinline__ void usual()
    {
        low = 0x64086408u;
        high = 0xd480d480u; /* -72 */
    }
};
template <> struct nibble_zero<__nv_bfloat16> {
    uint32_t low, high; /* 128 + zero; 0 or, where that has too many bits, 128 and zero */
    __device__ __forceinline__ void set(int zero)
    {
        const __nv_bfloat162 z = __bfloat162bfloat162(__int2bfloat16_rn(zero));
        low = 0x43004300u;
        high = *reinterpret_cast<const uint32_t *>(&z);
    }
    __device__ __forceinline__ void usual()
    {
        low = 0x43084308u;
        high = 0;
    }
};

/*
 * The numbers of a word as pairs for the tensor cores. Of 8 bits two pairs, in their order. Of 4 bits four pairs, of
 * numbers (0, 4), (1, 5), (2, 6), (3, 7): each mask takes two that lie 16 bits apart.
 */
template <typename W, bool ZERO>
static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t (&to)[2], W, const nibble_zero<__half> &,
                                                __half)
{
    halves_of(word, to, W());
}
template <typename W, bool ZERO>
static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t (&to)[2], W, const nibble_zero<__nv_bfloat16> &,
                                                __nv_bfloat16)
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
template <typename W, bool ZERO>
static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t (&to)[4], W, const nibble_zero<__half> &zero,
                                                __half)
{
    const __half2 sixteenth = __floats2half2_rn(0.0625f, 0.0625f);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t low = and_or<0x000f000fu, 0x64006400u>(word), high = and_or<0x00f000f0u, 0x64006400u>(word);
        __half2 scaled =
            __hfma2(*reinterpret_cast<__half2 *>(&high), sixteenth, *reinterpret_cast<const __half2 *>(&zero.high));
        to[2 * i] = subtract2(low, zero.low, __half());
        to[2 * i + 1] = *reinterpret_cast<uint32_t *>(&scaled);
        word >>= 8;
    }
}
template <typename W, bool ZERO>
static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t (&to)[4], W,
                                                const nibble_zero<__nv_bfloat16> &zero, __nv_bfloat16)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[i] = subtract2(and_or<0x000f000fu, 0x43004300u>(word), zero.low, __nv_bfloat16());
        if (ZERO) {
            to[i] = subtract2(to[i], zero.high, __nv_bfloat16());
        }
        word >>= 4;
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

/* Scale number i, whatever type it has, and its zero. Loads that stay where they are. */
static __device__ __forceinline__ uint32_t load_scale_bits(const trm_dequant_gemm &gemm, int32_t i)
{
    const bool wide = gemm.scale_type == TRM_F32;
    uint32_t bits;
    asm volatile("{ .reg .pred p; .reg .u16 s; setp.ne.u32 p, %2, 0; @p ld.global.u32 %0, [%1];\n"
                 "@!p ld.global.u16 s, [%1]; @!p cvt.u32.u16 %0, s; }"
                 : "=r"(bits)
                 : "l"((const char *)gemm.scale + (wide ? 4 : 2) * (int64_t)i), "r"((uint32_t)wide));
    return bits;
}
static __device__ __forceinline__ uint32_t load_zero(const trm_dequant_gemm &gemm, int32_t i)
{
    uint32_t zero;
    asm volatile("{ .reg .u16 z; ld.global.u8 z, [%1]; cvt.u32.u16 %0, z; }" : "=r"(zero) : "l"(gemm.zero + i));
    return zero;
}
static __device__ __forceinline__ float scale_of(const trm_dequant_gemm &gemm, uint32_t bits)
{
    return gemm.scale_type == TRM_F32    ? __uint_as_float(bits)
           : gemm.scale_type == TRM_BF16 ? __uint_as_float(bits << 16)
                                         : __half2float(__ushort_as_half((unsigned short)bits));
}

#endif
