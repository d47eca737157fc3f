/* SHAPE, EXPAND, TILE and RANGE: one element of the output. */
#ifndef TRM_KERNELS_SHAPE_ELEMENT_H
#define TRM_KERNELS_SHAPE_ELEMENT_H

#include "kernels/element.h"
#include "kernels/kernel.h"

/* ---- shape ------------------------------------------------------------------------------------- */

typedef struct trm_shape_args {
    trm_dims sizes; /* what is written */
    int64_t *y;
} trm_shape_args;

static inline bool trm_shape_args_of(const trm_kernel_call *call, trm_shape_args *args)
{
    const trm_dims *x = &call->inputs[0].dims;
    const trm_view *y = &call->outputs[0];
    int64_t start = call->layer->shape.start;
    if (call->n_inputs != 1 || call->n_outputs != 1 || y->dtype != TRM_I64 || y->dims.n != 1) {
        return false;
    }
    start = start < 0 ? start + x->n : start;
    start = start < 0 ? 0 : start;
    args->sizes.n = (int32_t)y->dims.d[0];
    if (args->sizes.n < 0 || (args->sizes.n > 0 && start + args->sizes.n > x->n)) {
        return false;
    }
    for (int32_t i = 0; i < args->sizes.n; i++) {
        args->sizes.d[i] = x->d[start + i];
    }
    args->y = (int64_t *)y->data;
    return true;
}

TRM_ELEMENT void trm_element_shape(const trm_shape_args *args, int64_t i)
{
    args->y[i] = args->sizes.d[i];
}

/* ---- expand and tile --------------------------------------------------------------------------- */

typedef struct trm_repeat_args {
    trm_dims dims;                 /* of the output */
    int64_t from[TRM_MAX_DIMS];    /* sizes of x along them, which repeat */
    int64_t strides[TRM_MAX_DIMS]; /* of x along them */
    const void *x;
    void *y;
    int32_t size;
} trm_repeat_args;

/* False if the call is not one these kernels know: the output's axes are those of x, repeated. */
static inline bool trm_repeat_args_of(const trm_kernel_call *call, trm_repeat_args *args)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const bool tile = call->layer->kind == TRM_LAYER_TILE;
    if (call->n_inputs < (tile ? 2 : 1) || call->n_inputs > 2 || call->n_outputs != 1 || y->dtype != x->dtype ||
        trm_dtype_size(x->dtype) == 0 || (tile ? x->dims.n != y->dims.n : x->dims.n > y->dims.n)) {
        return false;
    }
    args->dims = y->dims;
    args->x = x->data;
    args->y = y->data;
    args->size = (int32_t)trm_dtype_size(x->dtype);
    trm_element_broadcast_strides(&x->dims, &y->dims, args->strides);
    for (int32_t i = 0; i < y->dims.n; i++) {
        const int32_t own = i - (y->dims.n - x->dims.n);
        args->from[i] = own < 0 ? 1 : x->dims.d[own];
        const bool fits = tile ? (args->from[i] == 0 ? y->dims.d[i] == 0 : y->dims.d[i] % args->from[i] == 0)
                               : (args->from[i] == 1 || args->from[i] == y->dims.d[i]);
        if (!fits) {
            return false;
        }
    }
    return true;
}

TRM_ELEMENT void trm_element_repeat(const trm_repeat_args *args, const int64_t *at, int64_t i)
{
    int64_t from = 0;
    for (int32_t axis = 0; axis < args->dims.n; axis++) {
        const int64_t size = args->from[axis];
        from += (at[axis] < size ? at[axis] : at[axis] % size) * args->strides[axis];
    }
    trm_element_move(args->size, args->y, i, args->x, from);
}

/* ---- range ------------------------------------------------------------------------------------- */

typedef struct trm_range_args {
    const void *start, *delta;
    void *y;
    trm_dtype dtype;
} trm_range_args;

static inline bool trm_range_args_of(const trm_kernel_call *call, trm_range_args *args)
{
    const trm_view *y = &call->outputs[0];
    if (call->n_inputs != 3 || call->n_outputs != 1 || y->dims.n != 1 ||
        !(trm_element_is_float(y->dtype) || trm_element_is_integer(y->dtype))) {
        return false;
    }
    for (int32_t i = 0; i < 3; i++) {
        if (call->inputs[i].dtype != y->dtype || trm_dims_count(&call->inputs[i].dims) != 1) {
            return false;
        }
    }
    args->start = call->inputs[0].data;
    args->delta = call->inputs[2].data;
    args->y = y->data;
    args->dtype = y->dtype;
    return true;
}

TRM_ELEMENT void trm_element_range(const trm_range_args *args, int64_t i)
{
    if (args->dtype == TRM_F64) {
        ((double *)args->y)[i] = *(const double *)args->start + (double)i * *(const double *)args->delta;
    } else if (trm_element_is_float(args->dtype)) {
        const float start = trm_element_load_f32(args->dtype, args->start, 0);
        trm_element_store_f32(args->dtype, args->y, i,
                              start + (float)i * trm_element_load_f32(args->dtype, args->delta, 0));
    } else { /* as unsigned, to wrap */
        const uint64_t start = (uint64_t)trm_element_load_i64(args->dtype, args->start, 0);
        const uint64_t delta = (uint64_t)trm_element_load_i64(args->dtype, args->delta, 0);
        trm_element_store_i64(args->dtype, args->y, i, (int64_t)(start + (uint64_t)i * delta));
    }
}

#endif
