/*
 * Numbers of e4m3, in pairs with the first one in the low byte: by the instructions of compute capability 8.9 and
 * newer, on older GPUs by CUDA's own arithmetic, which gives the same.
 */
#ifndef TRM_KERNELS_CUDA_E4M3_CUH
#define TRM_KERNELS_CUDA_E4M3_CUH

#include <cuda_fp8.h>
#include <stdint.h>

/* Two numbers to the nearest of e4m3, at most +-448. */
static __device__ __forceinline__ uint16_t e4m3_pair(float first, float second)
{
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
    return pair;
#else
    return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE, __NV_E4M3);
#endif
}

/* A pair as two halves. */
static __device__ __forceinline__ uint32_t e4m3_halves(uint16_t pair)
{
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
    return halves;
#else
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
    return (uint32_t)halves.x | (uint32_t)halves.y << 16;
#endif
}

#endif
