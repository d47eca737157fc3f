/*
 * Random numbers by counter: number i of a seed, the same on host and GPU and in any order.
 */
#ifndef TRM_KERNELS_SAMPLING_RANDOM_H
#define TRM_KERNELS_SAMPLING_RANDOM_H

#include "kernels/call.h"

#ifdef __CUDACC__
#define TRM_HOST_DEVICE __host__ __device__
#else
#define TRM_HOST_DEVICE
#endif

/* splitmix64 finalizer over seed and counter (Steele, Lea, Flood 2014). */
TRM_HOST_DEVICE static inline uint64_t trm_random_bits(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Uniform in [-1, 1), a multiple of 2^-23. */
TRM_HOST_DEVICE static inline float trm_random_unit(uint64_t seed, uint64_t index)
{
    return (float)(trm_random_bits(seed, index) >> 40) * 0x1p-23f - 1.0f;
}

/* Uniform in [0, 1) in double steps of 2^-53, for sampling. */
TRM_HOST_DEVICE static inline double trm_random_uniform(uint64_t seed, uint64_t index)
{
    return (double)(trm_random_bits(seed, index) >> 11) * 0x1p-53;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `to` [count of dims], f32, f16 or bf16: element (i0, i1, ...) = mean + spread * unit(seed, offset + sum(i *
 * stride)). */
typedef struct trm_random_fill_args {
    trm_view to;
    uint64_t seed;
    float mean, spread;
    int64_t strides[TRM_MAX_DIMS];
    int64_t offset;
} trm_random_fill_args;
trm_status trm_random_fill(trm_stream *stream, const trm_random_fill_args *args);

/* On the host, by this thread: to[i] = mean + spread * unit(seed, start + i * stride), rounded once. */
void trm_random_numbers(uint64_t seed, float mean, float spread, uint64_t start, uint64_t stride, size_t count,
                        float *to);

#ifdef __cplusplus
}
#endif
#endif
