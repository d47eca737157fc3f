/*
 * Rotary embedding: the angle of a pair, and which elements are one. Shared by the kernels that rotate.
 */
#ifndef TRM_KERNELS_ROPE_CUDA_CUH
#define TRM_KERNELS_ROPE_CUDA_CUH

#include <trireme/layers/attention.h>

/* Dynamic NTK scaling, as in transformers' _compute_dynamic_ntk_parameters. Rare, and not to cost registers. */
static __device__ __noinline__ float rope_dynamic_frequency(const trm_rope_params &p, int i, int32_t length)
{
    double dim = (double)p.rotary_dim, factor = (double)p.factor;
    double growth = factor * (double)length / (double)p.original_length - (factor - 1.0);
    double base = (double)p.base * pow(growth, dim / (dim - 2.0));
    return (float)(1.0 / pow(base, 2.0 * (double)i / dim));
}

/* Radians per position of pair i, in a sequence of `length` tokens. */
static __device__ __forceinline__ float rope_frequency(const trm_rope_params &p, const float *inv_freq, int i,
                                                       int32_t length)
{
    bool extended = p.scaling != TRM_ROPE_PLAIN && length > p.original_length;
    if (extended && p.scaling == TRM_ROPE_DYNAMIC) {
        return rope_dynamic_frequency(p, i, length);
    }
    return inv_freq[extended ? p.rotary_dim / 2 + i : i];
}

/* The two partners of pair i in a head. */
static __device__ __forceinline__ void rope_pair(const trm_rope_params &p, int i, int *first, int *second)
{
    *first = p.interleaved ? 2 * i : i;
    *second = p.interleaved ? 2 * i + 1 : i + p.rotary_dim / 2;
}

#endif
