/*
 * What the host kernels share: conversion of runs of elements to and from f32, the pool of a call, small helpers
 * on views, and the entry points that kernels/host/kernels.c lists.
 */
#ifndef TRM_KERNELS_HOST_HOST_H
#define TRM_KERNELS_HOST_HOST_H

#include "base/pool.h"
#include "kernels/element.h"

/* Compiles a function for AVX-512, AVX2 and the baseline, chosen at load time. Not under sanitizers, whose
 * run-time is not up yet when the choice is made. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__)
#define TRM_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRM_VECTOR_CLONES
#endif

/* Elements a kernel converts and computes at a time, in buffers on the stack. */
#define TRM_HOST_BLOCK 512

/* Elements a thread takes at least in loops that move or touch each element once. */
#define TRM_HOST_GRAIN 8192

/* f32, f16 or bf16: what the float kernels compute on. */
static inline bool trm_host_is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

/* Elements start .. start + n - 1 of `data` as f32: a pointer into `data` if it is f32, else to `buffer` [n]. */
const float *trm_host_load(trm_dtype dtype, const void *data, int64_t start, int64_t n, float *buffer);
/* Rounds `from` [n] to `dtype` into elements start .. of `data`. */
void trm_host_store(trm_dtype dtype, void *data, int64_t start, int64_t n, const float *from);

/* The same for integers and bool, as i64 (u64 by its bits); stores keep the low bits. cast.c. */
void trm_host_load_i64(trm_dtype dtype, const void *data, int64_t start, int64_t n, int64_t *to);
void trm_host_store_i64(trm_dtype dtype, void *data, int64_t start, int64_t n, const int64_t *from);

/* x = activation(x) over n elements. */
void trm_host_activate(trm_activation activation, float *x, int64_t n);
bool trm_host_activation_is_known(trm_activation activation);

/* x = e^x over n elements, within 2 units in the last place; below -87.3 zero. */
void trm_host_exp(float *x, int64_t n);

/* What these layers do, for elements 0 .. n - 1 of a call on this thread; without a stream. */
void trm_host_elementwise_block(const trm_kernel_call *call);
void trm_host_unary_block(const trm_kernel_call *call, int64_t n);
void trm_host_cast_block(const trm_kernel_call *call, int64_t n);

/* Calls fn(pool, to, from, count) in the order of a stream: with the device's pool, or without one on a stream beside
 * others. device.c. */
trm_status trm_host_stream_call(trm_stream *stream, void (*fn)(void *pool, void *to, const void *from, size_t count),
                                void *to, const void *from, size_t count);

static inline trm_pool *trm_host_pool(const trm_kernel_call *call)
{
    return (trm_pool *)trm_stream_native(call->stream);
}

/* A negative axis counted from the end. */
static inline int32_t trm_host_axis(int32_t axis, int32_t n)
{
    return axis < 0 ? axis + n : axis;
}

/* Product of dims begin .. end - 1. */
static inline int64_t trm_host_span(const trm_dims *dims, int32_t begin, int32_t end)
{
    int64_t product = 1;
    for (int32_t i = begin; i < end; i++) {
        product *= dims->d[i];
    }
    return product;
}

static inline int64_t trm_host_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of `width` elements that make up one grain. */
static inline int64_t trm_host_row_grain(int64_t width)
{
    return width >= TRM_HOST_GRAIN ? 1 : TRM_HOST_GRAIN / (width > 0 ? width : 1);
}

#define TRM_HOST_KERNEL(family)                                                                                        \
    bool trm_host_##family##_accepts(const trm_kernel_call *call);                                                     \
    trm_status trm_host_##family##_run(const trm_kernel_call *call);

TRM_HOST_KERNEL(cast)
TRM_HOST_KERNEL(reshape)
TRM_HOST_KERNEL(hand_on)
TRM_HOST_KERNEL(merge)
TRM_HOST_KERNEL(transpose)
TRM_HOST_KERNEL(slice)
TRM_HOST_KERNEL(concat)
TRM_HOST_KERNEL(gather)
TRM_HOST_KERNEL(embedding)
TRM_HOST_KERNEL(matmul_openblas)
TRM_HOST_KERNEL(matmul_reference)
TRM_HOST_KERNEL(matmul_wide)
TRM_HOST_KERNEL(gemv)
TRM_HOST_KERNEL(dequant_matmul)
size_t trm_host_dequant_matmul_workspace(const trm_kernel_call *call);
TRM_HOST_KERNEL(convolution)
TRM_HOST_KERNEL(convolution_columns)
TRM_HOST_KERNEL(convolution_rows)
TRM_HOST_KERNEL(pool)
TRM_HOST_KERNEL(deconvolution)
TRM_HOST_KERNEL(deformable_convolution)
TRM_HOST_KERNEL(resize)
TRM_HOST_KERNEL(grid_sample)
TRM_HOST_KERNEL(roi_pool)
TRM_HOST_KERNEL(col2im)
TRM_HOST_KERNEL(lrn)
TRM_HOST_KERNEL(group_norm)
TRM_HOST_KERNEL(recurrent)
size_t trm_host_recurrent_workspace(const trm_kernel_call *call);
TRM_HOST_KERNEL(non_max_suppression)
size_t trm_host_non_max_suppression_workspace(const trm_kernel_call *call);
TRM_HOST_KERNEL(elementwise)
TRM_HOST_KERNEL(unary)
TRM_HOST_KERNEL(fused)
TRM_HOST_KERNEL(glu)
TRM_HOST_KERNEL(norm)
TRM_HOST_KERNEL(softmax)
TRM_HOST_KERNEL(reduce)
TRM_HOST_KERNEL(rope)
TRM_HOST_KERNEL(rotate)
TRM_HOST_KERNEL(shape)
TRM_HOST_KERNEL(repeat)
TRM_HOST_KERNEL(range)
TRM_HOST_KERNEL(non_zero)
TRM_HOST_KERNEL(unique)
TRM_HOST_KERNEL(pad)
TRM_HOST_KERNEL(select)
TRM_HOST_KERNEL(cumulative)
TRM_HOST_KERNEL(quantize) /* and dequantize */
TRM_HOST_KERNEL(fourier)
TRM_HOST_KERNEL(random)
TRM_HOST_KERNEL(determinant)
size_t trm_host_fourier_workspace(const trm_kernel_call *call);
size_t trm_host_determinant_workspace(const trm_kernel_call *call);
TRM_HOST_KERNEL(gather_elements)
TRM_HOST_KERNEL(gather_nd)
TRM_HOST_KERNEL(scatter)
TRM_HOST_KERNEL(one_hot)
TRM_HOST_KERNEL(reverse_sequence)
TRM_HOST_KERNEL(topk)
TRM_HOST_KERNEL(arg_reduce)
size_t trm_host_gemv_workspace(const trm_kernel_call *call);
size_t trm_host_unique_workspace(const trm_kernel_call *call);

#undef TRM_HOST_KERNEL

#endif
