/*
 * Kernels that are one small function per output element: what those functions share, for C and CUDA alike.
 *
 * A family's element.h, or a header named by the kind, defines a kind's args (a plain struct, given to CUDA kernels by
 * value), how they follow from a call, and its element function. The host runs it over the pool
 * (kernels/host/element.h), CUDA launches it (kernels/cuda/element.cuh). Two forms, `i` being the output's element:
 *
 *     TRM_ELEMENT void trm_element_<kind>(const trm_<kind>_args *args, int64_t i);
 *     TRM_ELEMENT void trm_element_<kind>(const trm_<kind>_args *args, const int64_t *at, int64_t i);
 *
 * In the second, args begin with `trm_dims dims`, and at [dims.n] are the coordinates of i in them.
 */
#ifndef TRM_KERNELS_ELEMENT_H
#define TRM_KERNELS_ELEMENT_H

#include "base/half.h"
#include "kernels/call.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define TRM_ELEMENT static __host__ __device__ __forceinline__
#else
#define TRM_ELEMENT static inline
#endif

/* ---- one element ------------------------------------------------------------------------------ */

TRM_ELEMENT float trm_element_f16(uint16_t bits)
{
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(bits));
#else
    return trm_f16_to_f32(bits);
#endif
}

TRM_ELEMENT uint16_t trm_element_to_f16(float value)
{
#ifdef __CUDA_ARCH__
    return __half_as_ushort(__float2half_rn(value));
#else
    return trm_f32_to_f16(value);
#endif
}

TRM_ELEMENT float trm_element_bf16(uint16_t bits)
{
#ifdef __CUDA_ARCH__
    return __bfloat162float(__ushort_as_bfloat16(bits));
#else
    return trm_bf16_to_f32(bits);
#endif
}

TRM_ELEMENT uint16_t trm_element_to_bf16(float value)
{
#ifdef __CUDA_ARCH__
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    return trm_f32_to_bf16(value);
#endif
}

/* Element i of f32, f16 or bf16. */
TRM_ELEMENT float trm_element_load_f32(trm_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case TRM_F16:
        return trm_element_f16(((const uint16_t *)data)[i]);
    case TRM_BF16:
        return trm_element_bf16(((const uint16_t *)data)[i]);
    default:
        return ((const float *)data)[i];
    }
}

TRM_ELEMENT void trm_element_store_f32(trm_dtype dtype, void *data, int64_t i, float value)
{
    switch (dtype) {
    case TRM_F16:
        ((uint16_t *)data)[i] = trm_element_to_f16(value);
        break;
    case TRM_BF16:
        ((uint16_t *)data)[i] = trm_element_to_bf16(value);
        break;
    default:
        ((float *)data)[i] = value;
        break;
    }
}

/* Element i of any float type, as f64; stores round f16 and bf16 through f32. */
TRM_ELEMENT double trm_element_load_f64(trm_dtype dtype, const void *data, int64_t i)
{
    return dtype == TRM_F64 ? ((const double *)data)[i] : (double)trm_element_load_f32(dtype, data, i);
}

TRM_ELEMENT void trm_element_store_f64(trm_dtype dtype, void *data, int64_t i, double value)
{
    if (dtype == TRM_F64) {
        ((double *)data)[i] = value;
    } else {
        trm_element_store_f32(dtype, data, i, (float)value);
    }
}

/* Element i of an integer type or bool, as i64: u64 by its bits. */
TRM_ELEMENT int64_t trm_element_load_i64(trm_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case TRM_I8:
        return ((const int8_t *)data)[i];
    case TRM_U8:
    case TRM_BOOL:
        return ((const uint8_t *)data)[i];
    case TRM_I16:
        return ((const int16_t *)data)[i];
    case TRM_U16:
        return ((const uint16_t *)data)[i];
    case TRM_I32:
        return ((const int32_t *)data)[i];
    case TRM_U32:
        return ((const uint32_t *)data)[i];
    default:
        return ((const int64_t *)data)[i];
    }
}

/* Keeps the low bits; bool: whether it is not 0. */
TRM_ELEMENT void trm_element_store_i64(trm_dtype dtype, void *data, int64_t i, int64_t value)
{
    switch (dtype) {
    case TRM_BOOL:
        ((uint8_t *)data)[i] = value != 0;
        break;
    case TRM_I8:
    case TRM_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case TRM_I16:
    case TRM_U16:
        ((uint16_t *)data)[i] = (uint16_t)value;
        break;
    case TRM_I32:
    case TRM_U32:
        ((uint32_t *)data)[i] = (uint32_t)value;
        break;
    default:
        ((int64_t *)data)[i] = value;
        break;
    }
}

/* to[i] = from[j], elements of 1, 2, 4 or 8 bytes; from NULL: 0. */
TRM_ELEMENT void trm_element_move(int32_t size, void *to, int64_t i, const void *from, int64_t j)
{
    switch (size) {
    case 1:
        ((uint8_t *)to)[i] = from != NULL ? ((const uint8_t *)from)[j] : (uint8_t)0;
        break;
    case 2:
        ((uint16_t *)to)[i] = from != NULL ? ((const uint16_t *)from)[j] : (uint16_t)0;
        break;
    case 4:
        ((uint32_t *)to)[i] = from != NULL ? ((const uint32_t *)from)[j] : 0u;
        break;
    default:
        ((uint64_t *)to)[i] = from != NULL ? ((const uint64_t *)from)[j] : 0u;
        break;
    }
}

/* ---- types and dims, for accepts() and the args ----------------------------------------------- */

TRM_ELEMENT bool trm_element_is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16 || dtype == TRM_F64;
}

TRM_ELEMENT bool trm_element_is_integer(trm_dtype dtype)
{
    return dtype >= TRM_I8 && dtype <= TRM_U64;
}

static inline bool trm_element_same_dims(const trm_dims *a, const trm_dims *b)
{
    bool same = a->n == b->n;
    for (int32_t i = 0; same && i < a->n; i++) {
        same = a->d[i] == b->d[i];
    }
    return same;
}

/* Row-major strides of `dims`, in elements. */
static inline void trm_element_strides(const trm_dims *dims, int64_t *strides)
{
    int64_t step = 1;
    for (int32_t i = dims->n - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims->d[i];
    }
}

/* Strides of `dims` as broadcast to `to`: 0 along axes that repeat. */
static inline void trm_element_broadcast_strides(const trm_dims *dims, const trm_dims *to, int64_t *strides)
{
    int64_t step = 1;
    for (int32_t i = to->n - 1; i >= 0; i--) {
        const int32_t own = i - (to->n - dims->n);
        const int64_t size = own >= 0 ? dims->d[own] : 1;
        strides[i] = size == 1 ? 0 : step;
        step *= size;
    }
}

/* `axis`, which may be negative, of n; -1 if there is none such. */
static inline int32_t trm_element_axis(int32_t axis, int32_t n)
{
    const int32_t normal = axis < 0 ? axis + n : axis;
    return normal >= 0 && normal < n ? normal : -1;
}

/* Product of dims begin .. end - 1. */
static inline int64_t trm_element_span(const trm_dims *dims, int32_t begin, int32_t end)
{
    int64_t product = 1;
    for (int32_t i = begin; i < end; i++) {
        product *= dims->d[i];
    }
    return product;
}

/* Coordinates of element i. */
TRM_ELEMENT void trm_element_place(const trm_dims *dims, int64_t i, int64_t *at)
{
    for (int32_t axis = dims->n - 1; axis >= 0; axis--) {
        const int64_t rest = i / dims->d[axis];
        at[axis] = i - rest * dims->d[axis];
        i = rest;
    }
}

/* The coordinates of the element after. */
TRM_ELEMENT void trm_element_next(const trm_dims *dims, int64_t *at)
{
    for (int32_t axis = dims->n - 1; axis >= 0; axis--) {
        if (++at[axis] < dims->d[axis]) {
            return;
        }
        at[axis] = 0;
    }
}

#endif
