/* NON_ZERO and UNIQUE: what is zero, and the order of slices, for C and CUDA. */
#ifndef TRM_KERNELS_SHAPE_UNIQUE_H
#define TRM_KERNELS_SHAPE_UNIQUE_H

#include "kernels/element.h"
#include "kernels/kernel.h"

/* NaN is not 0, -0 is. */
TRM_ELEMENT bool trm_element_is_zero(trm_dtype dtype, const void *x, int64_t i)
{
    switch (dtype) {
    case TRM_F16:
    case TRM_BF16:
        return (((const uint16_t *)x)[i] & 0x7fffu) == 0;
    case TRM_F32:
        return (((const uint32_t *)x)[i] & 0x7fffffffu) == 0;
    case TRM_F64:
        return (((const uint64_t *)x)[i] & 0x7fffffffffffffffu) == 0;
    default:
        return trm_element_load_i64(dtype, x, i) == 0;
    }
}

/* -1, 0 or 1. NaN is the largest, and equal to itself. */
TRM_ELEMENT int trm_element_compare(trm_dtype dtype, const void *x, int64_t i, int64_t k)
{
    if (trm_element_is_float(dtype)) {
        const double a = trm_element_load_f64(dtype, x, i), b = trm_element_load_f64(dtype, x, k);
        const bool a_nan = !(a == a), b_nan = !(b == b);
        return a_nan || b_nan ? (int)a_nan - (int)b_nan : (int)(a > b) - (int)(a < b);
    }
    const int64_t a = trm_element_load_i64(dtype, x, i), b = trm_element_load_i64(dtype, x, k);
    if (dtype == TRM_U64) {
        return (int)((uint64_t)a > (uint64_t)b) - (int)((uint64_t)a < (uint64_t)b);
    }
    return (int)(a > b) - (int)(a < b);
}

/* n slices of x seen as [outer, n, inner]; flattened: outer and inner are 1. */
typedef struct trm_unique_args {
    int64_t outer, n, inner;
    trm_dtype dtype;
    bool sorted;
    const void *x;
    void *y;
    int64_t *indices, *inverse, *counts, *count;
} trm_unique_args;

static inline bool trm_unique_args_of(const trm_kernel_call *call, trm_unique_args *args)
{
    const trm_unique_params *p = &call->layer->unique;
    const trm_view *x = &call->inputs[0], *out = call->outputs;
    const int32_t axis = trm_element_axis(p->axis, x->dims.n);
    if (call->n_inputs != 1 || call->n_outputs != 5 || out[0].dtype != x->dtype || trm_dtype_size(x->dtype) == 0 ||
        (!p->flatten && axis < 0)) {
        return false;
    }
    for (int32_t i = 1; i < 5; i++) {
        if (out[i].dtype != TRM_I64) {
            return false;
        }
    }
    args->outer = p->flatten ? 1 : trm_element_span(&x->dims, 0, axis);
    args->n = p->flatten ? trm_dims_count(&x->dims) : x->dims.d[axis];
    args->inner = p->flatten ? 1 : trm_element_span(&x->dims, axis + 1, x->dims.n);
    args->dtype = x->dtype;
    args->sorted = p->sorted;
    args->x = x->data;
    args->y = out[0].data;
    args->indices = (int64_t *)out[1].data;
    args->inverse = (int64_t *)out[2].data;
    args->counts = (int64_t *)out[3].data;
    args->count = (int64_t *)out[4].data;
    return true;
}

/* The order of slices i and k by value. */
TRM_ELEMENT int trm_unique_compare(const trm_unique_args *args, int64_t i, int64_t k)
{
    for (int64_t o = 0; o < args->outer; o++) {
        for (int64_t e = 0; e < args->inner; e++) {
            const int order = trm_element_compare(args->dtype, args->x, (o * args->n + i) * args->inner + e,
                                                  (o * args->n + k) * args->inner + e);
            if (order != 0) {
                return order;
            }
        }
    }
    return 0;
}

/* Element e of slice `number` of y, which has `count` slices, from slice `from` of x. */
TRM_ELEMENT void trm_unique_copy(const trm_unique_args *args, int64_t count, int64_t number, int64_t from, int64_t e)
{
    const int64_t o = e / args->inner, in = e % args->inner;
    const int32_t size = args->dtype == TRM_F64 || args->dtype == TRM_I64 || args->dtype == TRM_U64   ? 8
                         : args->dtype == TRM_F32 || args->dtype == TRM_I32 || args->dtype == TRM_U32 ? 4
                         : args->dtype == TRM_I8 || args->dtype == TRM_U8 || args->dtype == TRM_BOOL  ? 1
                                                                                                      : 2;
    trm_element_move(size, args->y, (o * count + number) * args->inner + in, args->x,
                     (o * args->n + from) * args->inner + in);
}

#endif
