/* SCATTER: where one update goes, and what it makes of the element there. */
#ifndef TRM_KERNELS_INDEX_SCATTER_H
#define TRM_KERNELS_INDEX_SCATTER_H

#include "kernels/index/gather.h"

typedef struct trm_scatter_args {
    trm_dims dims; /* of the updates */
    trm_scatter_form form;
    trm_scatter_reduction reduction;
    trm_dtype dtype, index_type;
    int32_t size, axis;            /* ELEMENTS */
    int64_t axis_size;             /* ELEMENTS */
    int64_t strides[TRM_MAX_DIMS]; /* ELEMENTS: of the output */
    trm_index_rows rows;           /* ND */
    const void *x, *indices, *updates;
    void *y;
} trm_scatter_args;

/* False if the call is not one these kernels know. */
static inline bool trm_scatter_args_of(const trm_kernel_call *call, trm_scatter_args *args)
{
    const trm_scatter_params *p = &call->layer->scatter;
    const trm_view *x = &call->inputs[0], *indices = &call->inputs[1], *updates = &call->inputs[2];
    const trm_view *y = &call->outputs[0];
    if (call->n_inputs != 3 || call->n_outputs != 1 || trm_dtype_size(x->dtype) == 0 || y->dtype != x->dtype ||
        updates->dtype != x->dtype || !trm_element_same_dims(&x->dims, &y->dims) ||
        !trm_element_is_index(indices->dtype) || (unsigned)p->reduction > TRM_SCATTER_MAX) {
        return false;
    }
    args->dims = updates->dims;
    args->form = p->form;
    args->reduction = p->reduction;
    args->dtype = x->dtype;
    args->index_type = indices->dtype;
    args->size = (int32_t)trm_dtype_size(x->dtype);
    args->axis = 0;
    args->axis_size = 0;
    args->x = x->data;
    args->indices = indices->data;
    args->updates = updates->data;
    args->y = y->data;
    trm_element_strides(&y->dims, args->strides);
    if (p->form == TRM_SCATTER_ELEMENTS) {
        args->axis = trm_element_axis(p->axis, x->dims.n);
        if (args->axis < 0 || updates->dims.n != x->dims.n || !trm_element_same_dims(&indices->dims, &updates->dims)) {
            return false;
        }
        args->axis_size = x->dims.d[args->axis];
        return true;
    }
    return p->form == TRM_SCATTER_ND && trm_index_rows_of(indices, &x->dims, 0, &args->rows) &&
           trm_dims_count(&updates->dims) == args->rows.rows_per_batch * args->rows.slice;
}

/* The element of the output that update i goes to, whose coordinates are `at` (ELEMENTS); -1: none. */
TRM_ELEMENT int64_t trm_scatter_target(const trm_scatter_args *args, const int64_t *at, int64_t i)
{
    if (args->form == TRM_SCATTER_ND) {
        const int64_t row = i / args->rows.slice, start = trm_index_rows_start(&args->rows, row);
        return start < 0 ? -1 : start + (i - row * args->rows.slice);
    }
    const int64_t index = trm_element_index(args->index_type, args->indices, i, args->axis_size);
    int64_t to = 0;
    for (int32_t axis = 0; axis < args->dims.n; axis++) {
        to += (axis == args->axis ? index : at[axis]) * args->strides[axis];
    }
    return index < 0 ? -1 : to;
}

TRM_ELEMENT double trm_scatter_combine_f64(trm_scatter_reduction reduction, double a, double b)
{
    switch (reduction) {
    case TRM_SCATTER_ADD:
        return a + b;
    case TRM_SCATTER_MUL:
        return a * b;
    case TRM_SCATTER_MIN:
        return b < a || b != b ? b : a;
    case TRM_SCATTER_MAX:
        return b > a || b != b ? b : a;
    default:
        return b;
    }
}

/* u64 by its bits, compared as such with `flip` the top bit. */
TRM_ELEMENT int64_t trm_scatter_combine_i64(trm_scatter_reduction reduction, int64_t a, int64_t b, uint64_t flip)
{
    const bool less = (int64_t)((uint64_t)b ^ flip) < (int64_t)((uint64_t)a ^ flip);
    switch (reduction) {
    case TRM_SCATTER_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case TRM_SCATTER_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case TRM_SCATTER_MIN:
        return less ? b : a;
    case TRM_SCATTER_MAX:
        return less ? a : b;
    default:
        return b;
    }
}

/* Combines element i of `from` into element `to_at` of `to`: f32 sums of f32, f16 and bf16, as their type rounds. */
TRM_ELEMENT void trm_scatter_combine(trm_scatter_reduction reduction, trm_dtype dtype, void *to, int64_t to_at,
                                     const void *from, int64_t i)
{
    if (trm_element_is_float(dtype)) {
        trm_element_store_f64(dtype, to, to_at,
                              trm_scatter_combine_f64(reduction, trm_element_load_f64(dtype, to, to_at),
                                                      trm_element_load_f64(dtype, from, i)));
    } else {
        trm_element_store_i64(dtype, to, to_at,
                              trm_scatter_combine_i64(reduction, trm_element_load_i64(dtype, to, to_at),
                                                      trm_element_load_i64(dtype, from, i),
                                                      dtype == TRM_U64 ? 1ull << 63 : 0));
    }
}

#endif
