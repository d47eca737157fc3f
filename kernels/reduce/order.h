/*
 * The order of elements of any number type: what ARG_REDUCE and TOPK compare.
 */
#ifndef TRM_KERNELS_REDUCE_ORDER_H
#define TRM_KERNELS_REDUCE_ORDER_H

#include "kernels/element.h"
#include "kernels/kernel.h"

/* Bits of a float as an unsigned number of `bits` bits in the floats' order: -0 as 0, NaN above all. */
TRM_ELEMENT uint64_t trm_order_of_float(uint64_t value, int32_t bits, uint64_t infinity)
{
    const uint64_t top = 1ull << (bits - 1), magnitude = value & (top - 1);
    if (magnitude > infinity) {
        return top | (top - 1);
    }
    return magnitude == 0 || (value & top) == 0 ? magnitude | top : top - magnitude;
}

/* A number of as many bits as the type has, larger for a larger element. */
TRM_ELEMENT uint64_t trm_order_key(trm_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case TRM_F32:
        return trm_order_of_float(((const uint32_t *)data)[i], 32, 0x7f800000u);
    case TRM_F16:
        return trm_order_of_float(((const uint16_t *)data)[i], 16, 0x7c00u);
    case TRM_BF16:
        return trm_order_of_float(((const uint16_t *)data)[i], 16, 0x7f80u);
    case TRM_F64:
        return trm_order_of_float(((const uint64_t *)data)[i], 64, 0x7ff0000000000000ull);
    case TRM_I8:
        return ((const uint8_t *)data)[i] ^ 0x80u;
    case TRM_U8:
    case TRM_BOOL:
        return ((const uint8_t *)data)[i];
    case TRM_I16:
        return ((const uint16_t *)data)[i] ^ 0x8000u;
    case TRM_U16:
        return ((const uint16_t *)data)[i];
    case TRM_I32:
        return ((const uint32_t *)data)[i] ^ 0x80000000u;
    case TRM_U32:
        return ((const uint32_t *)data)[i];
    case TRM_I64:
        return ((const uint64_t *)data)[i] ^ (1ull << 63);
    default:
        return ((const uint64_t *)data)[i];
    }
}

/* The same with the smallest first: `flip` is all bits of the type, or 0. */
TRM_ELEMENT uint64_t trm_order_flip(trm_dtype dtype, bool smallest)
{
    const uint64_t size = dtype == TRM_F64 || dtype == TRM_I64 || dtype == TRM_U64   ? 8
                          : dtype == TRM_F32 || dtype == TRM_I32 || dtype == TRM_U32 ? 4
                          : dtype == TRM_I8 || dtype == TRM_U8 || dtype == TRM_BOOL  ? 1
                                                                                     : 2;
    return smallest ? ~0ull >> (64 - 8 * size) : 0;
}

/* Rows of x along an axis: x as [outer, n, inner]. */
typedef struct trm_order_args {
    int64_t n, inner, rows; /* rows: outer * inner */
    int64_t k;              /* TOPK: elements taken of each row */
    const void *x;
    void *values; /* TOPK */
    int64_t *indices;
    uint64_t flip;
    trm_dtype dtype;
    int32_t size;
    bool last;   /* ARG_REDUCE */
    bool sorted; /* TOPK */
} trm_order_args;

static inline bool trm_order_args_init(const trm_kernel_call *call, int32_t axis, bool smallest, trm_order_args *args)
{
    const trm_view *x = &call->inputs[0];
    axis = trm_element_axis(axis, x->dims.n);
    if (axis < 0 || trm_dtype_size(x->dtype) == 0 ||
        !(trm_element_is_float(x->dtype) || trm_element_is_integer(x->dtype) || x->dtype == TRM_BOOL)) {
        return false;
    }
    args->n = x->dims.d[axis];
    args->inner = trm_element_span(&x->dims, axis + 1, x->dims.n);
    args->rows = trm_element_span(&x->dims, 0, axis) * args->inner;
    args->k = 1;
    args->x = x->data;
    args->values = NULL;
    args->indices = NULL;
    args->flip = trm_order_flip(x->dtype, smallest);
    args->dtype = x->dtype;
    args->size = (int32_t)trm_dtype_size(x->dtype);
    args->last = args->sorted = false;
    return true;
}

/* False if the call is not one these kernels know. */
static inline bool trm_arg_reduce_args_of(const trm_kernel_call *call, trm_order_args *args)
{
    const trm_arg_reduce_params *p = &call->layer->arg_reduce;
    const trm_view *y = &call->outputs[0];
    if (call->n_inputs != 1 || call->n_outputs != 1 || y->dtype != TRM_I64 ||
        !trm_order_args_init(call, p->axis, p->smallest, args) || trm_dims_count(&y->dims) != args->rows) {
        return false;
    }
    args->indices = (int64_t *)y->data;
    args->last = p->last;
    return true;
}

static inline bool trm_topk_args_of(const trm_kernel_call *call, trm_order_args *args)
{
    const trm_topk_params *p = &call->layer->topk;
    const trm_view *x = &call->inputs[0], *values = &call->outputs[0], *indices = &call->outputs[1];
    if (call->n_inputs != 2 || call->n_outputs != 2 || values->dtype != x->dtype || indices->dtype != TRM_I64 ||
        !trm_element_same_dims(&values->dims, &indices->dims) || values->dims.n != x->dims.n ||
        !trm_order_args_init(call, p->axis, p->smallest, args)) {
        return false;
    }
    args->k = values->dims.d[trm_element_axis(p->axis, x->dims.n)];
    args->values = values->data;
    args->indices = (int64_t *)indices->data;
    args->sorted = p->sorted;
    return args->k <= args->n && trm_dims_count(&values->dims) == args->rows * args->k;
}

/* First element of a row of x, whose elements are `inner` apart. */
TRM_ELEMENT int64_t trm_order_row(const trm_order_args *args, int64_t row)
{
    const int64_t outer = row / args->inner;
    return outer * args->n * args->inner + (row - outer * args->inner);
}

/* Whether element a of a row, with that key, comes before element b: larger keys, then lower positions. */
TRM_ELEMENT bool trm_order_before(uint64_t key_a, int64_t a, uint64_t key_b, int64_t b)
{
    return key_a > key_b || (key_a == key_b && a < b);
}

#endif
