/*
 * What the host kernels share: conversion of runs of elements to and from f32, the pool of a call, small helpers
 * on views, and their entry points.
 */
#ifndef TRM_KERNELS_HOST_HOST_H
#define TRM_KERNELS_HOST_HOST_H

#include "base/pool.h"
#include "kernels/element.h"
#include "kernels/kernel_list.h"

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

/* The same for integers and bool, as i64 (u64 by its bits); stores keep the low bits. movement/host_cast.c. */
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
 * others. device/host.c. */
trm_status trm_host_stream_call(trm_stream *stream, void (*fn)(void *pool, void *to, const void *from, size_t count),
                                void *to, const void *from, size_t count);

static inline trm_pool *trm_host_pool(const trm_kernel_call *call)
{
    return (trm_pool *)trm_stream_native(call->stream);
}

/* trm_pool_for() on the call's pool; a loop of at most `grain` does not ask for it, as most of a decode step's. */
static inline void trm_host_for(const trm_kernel_call *call, int64_t count, int64_t grain, trm_pool_fn fn, void *user)
{
    if (count > grain) {
        trm_pool_for(trm_host_pool(call), count, grain, fn, user);
    } else if (count > 0) {
        fn(user, 0, count);
    }
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

#endif
