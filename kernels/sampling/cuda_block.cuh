/* What a block of 1024 threads joins; `scratch` is 32 words of shared memory, free again on return. */
#ifndef TRM_KERNELS_SAMPLING_CUDA_BLOCK_CUH
#define TRM_KERNELS_SAMPLING_CUDA_BLOCK_CUH

#include <stdint.h>

static __device__ __forceinline__ uint64_t warp_max_u64(uint64_t x)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, (unsigned long long)x, offset);
        x = other > x ? other : x;
    }
    return x;
}

static __device__ uint64_t block_max_u64(uint64_t x, uint64_t *scratch)
{
    x = warp_max_u64(x);
    if ((threadIdx.x & 31) == 0) {
        scratch[threadIdx.x >> 5] = x;
    }
    __syncthreads();
    x = warp_max_u64(scratch[threadIdx.x & 31]);
    __syncthreads();
    return x;
}

static __device__ __forceinline__ double warp_sum_f64(double x)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    }
    return x;
}

/* In an order of its own that is always the same. */
static __device__ double block_sum_f64(double x, double *scratch)
{
    x = warp_sum_f64(x);
    if ((threadIdx.x & 31) == 0) {
        scratch[threadIdx.x >> 5] = x;
    }
    __syncthreads();
    x = warp_sum_f64(scratch[threadIdx.x & 31]);
    __syncthreads();
    return x;
}

#endif
