/*
 * A place in a ring of stages in shared memory. A stage has rows of x, then rows of a weight; behind the stages lie a
 * barrier for each that says when it is full, then one for each that says when it is empty. The form F names bytes of a
 * stage and of its x, where the barriers begin, and how many stages there are.
 */
#ifndef TRM_KERNELS_CUDA_STAGE_RING_CUH
#define TRM_KERNELS_CUDA_STAGE_RING_CUH

#include <stdint.h>

template <typename F> struct stage_ring {
    uint32_t base;
    int stage = 0;
    uint32_t parity;
    __device__ __forceinline__ stage_ring(uint32_t at, uint32_t first) : base(at), parity(first)
    {
    }
    __device__ __forceinline__ uint32_t x(void) const
    {
        return base + stage * F::stage_bytes;
    }
    __device__ __forceinline__ uint32_t weight(void) const
    {
        return x() + F::x_bytes;
    }
    __device__ __forceinline__ uint32_t full(void) const
    {
        return base + F::barriers_at + 8 * stage;
    }
    __device__ __forceinline__ uint32_t empty(void) const
    {
        return full() + 8 * F::stages;
    }
    __device__ __forceinline__ void next(void)
    {
        stage = stage + 1 == F::stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

#endif
