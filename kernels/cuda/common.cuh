/*
 * Device helpers of all kernels: element types to and from f32, 16-byte loads and stores, activations, reductions, and
 * dispatch on the element type. Internal to .cu files.
 */
#ifndef TRM_KERNELS_CUDA_COMMON_CUH
#define TRM_KERNELS_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/pointwise/element.h"

/* One element to f32 and back, rounding to nearest even. */
static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}
static __device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* Elements of T in 16 bytes. */
template <typename T> struct vec16 {
    static const int n = 16 / sizeof(T);
};

static __device__ __forceinline__ void unpack2(uint32_t bits, float *to, __half)
{
    float2 pair = __half22float2(*reinterpret_cast<const __half2 *>(&bits));
    to[0] = pair.x;
    to[1] = pair.y;
}
static __device__ __forceinline__ void unpack2(uint32_t bits, float *to, __nv_bfloat16)
{
    to[0] = __uint_as_float(bits << 16);
    to[1] = __uint_as_float(bits & 0xffff0000u);
}
static __device__ __forceinline__ uint32_t pack2(float a, float b, __half)
{
    __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t *>(&pair);
}
static __device__ __forceinline__ uint32_t pack2(float a, float b, __nv_bfloat16)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

/* 16 bytes as floats. */
template <typename T> __device__ __forceinline__ void unpack16(uint4 raw, float *to)
{
    unpack2(raw.x, to + 0, T());
    unpack2(raw.y, to + 2, T());
    unpack2(raw.z, to + 4, T());
    unpack2(raw.w, to + 6, T());
}
template <> __device__ __forceinline__ void unpack16<float>(uint4 raw, float *to)
{
    to[0] = __uint_as_float(raw.x);
    to[1] = __uint_as_float(raw.y);
    to[2] = __uint_as_float(raw.z);
    to[3] = __uint_as_float(raw.w);
}
template <typename T> __device__ __forceinline__ uint4 pack16(const float *from)
{
    return make_uint4(pack2(from[0], from[1], T()), pack2(from[2], from[3], T()), pack2(from[4], from[5], T()),
                      pack2(from[6], from[7], T()));
}
template <> __device__ __forceinline__ uint4 pack16<float>(const float *from)
{
    return make_uint4(__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]),
                      __float_as_uint(from[3]));
}

/* The vec16<T>::n elements at `from`, which is 16-byte aligned. */
template <typename T> __device__ __forceinline__ void load16(const T *from, float *to)
{
    unpack16<T>(*reinterpret_cast<const uint4 *>(from), to);
}
template <typename T> __device__ __forceinline__ void store16(T *to, const float *from)
{
    *reinterpret_cast<uint4 *>(to) = pack16<T>(from);
}

/* Eight elements at `from`, which is aligned to 16 bytes. */
template <typename T> __device__ __forceinline__ void load8(const T *from, float *to)
{
    load16(from, to);
    if (vec16<T>::n == 4) {
        load16(from + 4, to + 4);
    }
}
template <typename T> __device__ __forceinline__ void store8(T *to, const float *from)
{
    store16(to, from);
    if (vec16<T>::n == 4) {
        store16(to + 4, from + 4);
    }
}

static __device__ __forceinline__ float activate(trm_activation activation, float x)
{
    return trm_activate_f32(activation, x);
}

/* x * (1 + erf(x / sqrt(2))) / 2 within 2e-6 of its value: erfc(z) for z >= 0 as t * exp(-z^2 + p(t)), t = 1 / (1 + z /
 * 2) (Press et al., Numerical Recipes, 6.2: 1.2e-7). Half the time of erff, which makes a pass over 16-bit floats bound
 * by arithmetic. */
static __device__ __forceinline__ float gelu_narrow(float x)
{
    const float size = fabsf(x) > 16.0f ? 16.0f : fabsf(x); /* there the tail is 0, also for infinity; NaN stays */
    const float z = size * 0.70710678118654752f, t = __fdividef(1.0f, 1.0f + 0.5f * z);
    float p = -0.82215223f + t * 0.17087277f;
    p = 1.48851587f + t * p;
    p = -1.13520398f + t * p;
    p = 0.27886807f + t * p;
    p = -0.18628806f + t * p;
    p = 0.09678418f + t * p;
    p = 0.37409196f + t * p;
    p = 1.00002368f + t * p;
    p = -1.26551223f + t * p;
    const float tail = 0.5f * size * (t * __expf(p - z * z));
    return x > 0.0f ? x - tail : -tail;
}

/* The same to a few units in the last place of f32, for results that are rounded to a type of 16 bits. */
template <typename T> __device__ __forceinline__ float activate_as(trm_activation activation, float x)
{
    return activation == TRM_ACTIVATION_SILU   ? __fdividef(x, 1.0f + __expf(-x))
           : activation == TRM_ACTIVATION_GELU ? gelu_narrow(x)
                                               : activate(activation, x);
}
template <> __device__ __forceinline__ float activate_as<float>(trm_activation activation, float x)
{
    return activate(activation, x);
}

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    }
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    }
    return x;
}

/* Sum over a block of up to 1024 threads (whole warps), given to all. `scratch` is 32 floats of shared memory, free
 * again for the next call. Every thread of the block calls it. */
static __device__ __forceinline__ float block_sum(float x, float *scratch)
{
    x = warp_sum(x);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    if (lane == 0) {
        scratch[warp] = x;
    }
    __syncthreads();
    x = warp_sum(lane < warps ? scratch[lane] : 0.0f);
    __syncthreads();
    return x;
}

static __device__ __forceinline__ float block_max(float x, float *scratch)
{
    x = warp_max(x);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    if (lane == 0) {
        scratch[warp] = x;
    }
    __syncthreads();
    x = warp_max(lane < warps ? scratch[lane] : -INFINITY);
    __syncthreads();
    return x;
}

/* Blocks for a grid-stride loop over `items`: enough to fill the chip several times, never too many for a grid. */
static inline unsigned grid_for(int64_t items, int threads)
{
    int64_t blocks = (items + threads - 1) / threads;
    return (unsigned)(blocks < 1 ? 1 : blocks > 132 * 64 ? 132 * 64 : blocks);
}

static __device__ __forceinline__ int64_t global_thread(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ int64_t global_threads(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

static inline bool is_half_or_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

/* Runs the statements with T the element type of `dtype`, one of f32, f16, bf16 (checked by accepts()). */
#define DISPATCH_FLOAT(dtype, ...)                                                                                     \
    switch (dtype) {                                                                                                   \
    case TRM_F16: {                                                                                                    \
        typedef __half T;                                                                                              \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }                                                                                                                  \
    case TRM_BF16: {                                                                                                   \
        typedef __nv_bfloat16 T;                                                                                       \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }                                                                                                                  \
    default: {                                                                                                         \
        typedef float T;                                                                                               \
        __VA_ARGS__;                                                                                                   \
        break;                                                                                                         \
    }                                                                                                                  \
    }

/* v / by, correctly rounded, by the correctly rounded 1 / by; three instructions where a division takes ten. `by` has a
 * finite inverse. (Markstein: Computation of elementary functions on the IBM RISC System/6000 processor, 1990.) */
static __device__ __forceinline__ float divide_by(float v, float by, float inverse)
{
    const float q = v * inverse, rest = fmaf(-q, by, v);
    return rest == rest ? fmaf(rest, inverse, q) : q; /* infinite, or no number */
}

#endif
