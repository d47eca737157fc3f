/* Products of a warp group in e4m3, as those of wgmma.cuh. */
#ifndef TRM_KERNELS_CUDA_WGMMA_F8_CUH
#define TRM_KERNELS_CUDA_WGMMA_F8_CUH

#include "kernels/cuda/wgmma.cuh"

/*
 * d [64, N] = a b^T + (accumulate ? d : 0) over 32 elements of e4m3, sums in f32. a [64, 32] and b [N, 32] in shared
 * memory, the inner dimension contiguous; or a in registers. Left operands in registers have four numbers each: of rows
 * g and g + 8 columns 4t to 4t + 3, then columns 16 + 4t to 19 + 4t.
 */
struct e4m3_type {
};
#define WGMMA_TEXT_24    WGMMA_TEXT_16 ",%8,%9,%10,%11"
#define WGMMA_SUMS_24(d) WGMMA_EIGHT(d, 0), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define WGMMA_DEFINE_F8(N, A0, A1, A2, A3, A4, A5)                                                                     \
    static __device__ __forceinline__ void wgmma_nt(float(&d)[N / 2], uint64_t a, uint64_t b, int accumulate,          \
                                                    e4m3_type)                                                         \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " A2 ", 0;\n"                                                     \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" WGMMA_TEXT_##N "}, " A0 ", " A1      \
                                                                                                 ", p, 1, 1; }"        \
                     : WGMMA_SUMS_##N(d)                                                                               \
                     : "l"(a), "l"(b), "r"(accumulate)                                                                 \
                     : "memory");                                                                                      \
    }                                                                                                                  \
    static __device__ __forceinline__ void wgmma_nt(float(&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2,           \
                                                    uint32_t a3, uint64_t b, int accumulate, e4m3_type)                \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " A5 ", 0;\n"                                                     \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" WGMMA_TEXT_##N                       \
                     "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " A4 ", p, 1, 1; }"                                         \
                     : WGMMA_SUMS_##N(d)                                                                               \
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate)                                     \
                     : "memory");                                                                                      \
    }
WGMMA_DEFINE_F8(8, "%4", "%5", "%6", "%7", "%8", "%9")
WGMMA_DEFINE_F8(16, "%8", "%9", "%10", "%11", "%12", "%13")
WGMMA_DEFINE_F8(24, "%12", "%13", "%14", "%15", "%16", "%17")
WGMMA_DEFINE_F8(32, "%16", "%17", "%18", "%19", "%20", "%21")
WGMMA_DEFINE_F8(64, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA_DEFINE_F8(128, "%64", "%65", "%66", "%67", "%68", "%69")

#endif
