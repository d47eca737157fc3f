/*
 * Device helpers of products with quantized weights: numbers of 8 and 4 bits as pairs of 16-bit floats or as f32, and
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

/* The numbers of a word as two pairs of f16. */
static __device__ __forceinline__ void halves_of(uint32_t word, uint32_t (&to)[2], weight_f8)
{
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high; }"
        : "=r"(to[0]), "=r"(to[1])
        : "r"(word));
}
/* 1024 + u with u = number + 128 in the low bits, minus 1152. */
static __device__ __forceinline__ void halves_of(uint32_t word, uint32_t (&to)[2], weight_i8)
{
    const uint32_t u = word ^ 0x80808080u;
    to[0] = subtract2(pick_bytes(u, 0x64646464u, 0x4140), 0x64806480u, __half());
    to[1] = subtract2(pick_bytes(u, 0x64646464u, 0x4342), 0x64806480u, __half());
}

/* Numbers of 4 bits are made in the low bits of a base that is large enough to have ones: base + bits. */
template <typename T> struct nibble_base;
template <> struct nibble_base<__half> {
    static const uint32_t pair = 0x64006400u; /* 1024 */
    static const uint32_t most = 255;         /* what can be added to it in the low bits */
};
template <> struct nibble_base<__nv_bfloat16> {
    static const uint32_t pair = 0x43004300u; /* 128 */
    static const uint32_t most = 127;
};

/* -(base + zero) twice, and what that leaves of zero. */
template <typename T> static __device__ __forceinline__ uint32_t minus_base(uint32_t zero, uint32_t &rest)
{
    rest = zero & ~nibble_base<T>::most;
    return (nibble_base<T>::pair | 0x80008000u) + (zero - rest) * 0x00010001u;
}

/*
 * The numbers of a word as pairs for the tensor cores. Of 8 bits two pairs, in their order. Of 4 bits four pairs of
 * base + bits, of numbers (0, 4), (1, 5), (2, 6), (3, 7): each mask takes two that lie 16 bits apart.
 */
template <typename W> static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t (&to)[2], W, __half)
{
    halves_of(word, to, W());
}
template <typename W>
static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t (&to)[2], W, __nv_bfloat16)
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
template <typename T> static __device__ __forceinline__ void pairs_of(uint32_t word, uint32_t (&to)[4], weight_u4, T)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[i] = and_or<0x000f000fu, nibble_base<T>::pair>(word >> (4 * i));
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
