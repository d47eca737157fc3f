/*
 * Numbers of 4 bits (e2m1) as bf16 for the tensor cores. The three bits of a number's size, put where a bf16 has its
 * lowest exponent bits and its highest mantissa bit, are the number times 2^-126, also where that is subnormal; one
 * multiplication by a power of two brings it to its scale. That power is kept 2^-64 too small, so that it is a bf16 for
 * every scale up to 2^65; sums are multiplied by F4_UNIT.
 */
#ifndef TRM_KERNELS_MOE_CUDA_F4_CUH
#define TRM_KERNELS_MOE_CUDA_F4_CUH

#include "kernels/cuda/common.cuh"

#define F4_UNIT 18446744073709551616.0f /* 2^64 */

/* What numbers of a block with this scale (e8m0) are multiplied by, twice. */
static __device__ __forceinline__ uint32_t f4_factor(uint32_t scale)
{
    const uint32_t factor = min(scale + 62u, 254u) << 7;
    return factor | factor << 16;
}

/* The numbers in bits 12 to 15 and 28 to 31, times the factor. */
static __device__ __forceinline__ uint32_t f4_pair(uint32_t bits, uint32_t factor)
{
    const uint32_t sign = bits & 0x80008000u;
    uint32_t tiny, pair;
    asm("lop3.b32 %0, %1, 0x01c001c0, %2, 0xea;" : "=r"(tiny) : "r"(bits >> 6), "r"(sign));
#if __CUDA_ARCH__ >= 900
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(tiny), "r"(factor));
#else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(tiny), "r"(factor), "r"(0x80008000u)); /* + -0 */
#endif
    return pair;
}

#endif
