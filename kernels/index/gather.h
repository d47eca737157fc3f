/* GATHER_ELEMENTS and GATHER_ND: one element of the output. */
#ifndef TRM_KERNELS_INDEX_GATHER_H
#define TRM_KERNELS_INDEX_GATHER_H

#include "kernels/element.h"
#include "kernels/kernel.h"

TRM_ELEMENT bool trm_element_is_index(trm_dtype dtype)
{
    return dtype == TRM_I32 || dtype == TRM_I64;
}

/* An index of an axis of n, negative ones counted from the end; -1 out of range. */
TRM_ELEMENT int64_t trm_element_index(trm_dtype dtype, const void *indices, int64_t i, int64_t n)
{
    int64_t index = dtype == TRM_I32 ? ((const int32_t *)indices)[i] : ((const int64_t *)indices)[i];
    index += index < 0 ? n : 0;
    return index >= 0 && index < n ? index : -1;
}

typedef struct trm_gather_elements_args {
    trm_dims dims; /* of the indices and the output */
    int64_t strides[TRM_MAX_DIMS];
    int64_t axis_size;
    const void *x, *indices;
    void *y;
    int32_t axis, size;
    trm_dtype index_type;
} trm_gather_elements_args;

/* False if the call is not one these kernels know. */
static inline bool trm_gather_elements_args_of(const trm_kernel_call *call, trm_gather_elements_args *args)
{
    const trm_view *x = &call->inputs[0], *indices = &call->inputs[1], *y = &call->outputs[0];
    const int32_t axis = trm_element_axis(call->layer->gather_elements.axis, x->dims.n);
    if (call->n_inputs != 2 || call->n_outputs != 1 || axis < 0 || indices->dims.n != x->dims.n ||
        !trm_element_same_dims(&indices->dims, &y->dims) || !trm_element_is_index(indices->dtype) ||
        trm_dtype_size(x->dtype) == 0 || y->dtype != x->dtype) {
        return false;
    }
    args->dims = y->dims;
    trm_element_strides(&x->dims, args->strides);
    args->axis_size = x->dims.d[axis];
    args->x = x->data;
    args->indices = indices->data;
    args->y = y->data;
    args->axis = axis;
    args->size = (int32_t)trm_dtype_size(x->dtype);
    args->index_type = indices->dtype;
    return true;
}

TRM_ELEMENT void trm_element_gather_elements(const trm_gather_elements_args *args, const int64_t *at, int64_t i)
{
    const int64_t index = trm_element_index(args->index_type, args->indices, i, args->axis_size);
    int64_t from = 0;
    for (int32_t axis = 0; axis < args->dims.n; axis++) {
        from += (axis == args->axis ? index : at[axis]) * args->strides[axis];
    }
    trm_element_move(args->size, args->y, i, index < 0 ? NULL : args->x, index < 0 ? 0 : from);
}

/* Rows of k indices that address the first axes of a tensor, or those behind its batch axes. */
typedef struct trm_index_rows {
    const void *indices;
    trm_dtype index_type;
    int32_t k;
    int64_t rows_per_batch, batch_stride;               /* in elements of the tensor */
    int64_t sizes[TRM_MAX_DIMS], strides[TRM_MAX_DIMS]; /* of the k axes */
    int64_t slice;                                      /* elements behind them */
} trm_index_rows;

static inline bool trm_index_rows_of(const trm_view *indices, const trm_dims *data, int32_t batch_dims,
                                     trm_index_rows *rows)
{
    const int32_t q = indices->dims.n;
    if (q < 1 || batch_dims < 0 || batch_dims >= q || !trm_element_is_index(indices->dtype)) {
        return false;
    }
    const int64_t k = indices->dims.d[q - 1];
    if (k < 0 || batch_dims + k > data->n) {
        return false;
    }
    for (int32_t i = 0; i < batch_dims; i++) {
        if (indices->dims.d[i] != data->d[i]) {
            return false;
        }
    }
    int64_t strides[TRM_MAX_DIMS];
    trm_element_strides(data, strides);
    rows->indices = indices->data;
    rows->index_type = indices->dtype;
    rows->k = (int32_t)k;
    rows->rows_per_batch = trm_element_span(&indices->dims, batch_dims, q - 1);
    rows->batch_stride = trm_element_span(data, batch_dims, data->n);
    for (int32_t i = 0; i < rows->k; i++) {
        rows->sizes[i] = data->d[batch_dims + i];
        rows->strides[i] = strides[batch_dims + i];
    }
    rows->slice = trm_element_span(data, batch_dims + rows->k, data->n);
    return true;
}

/* First element that a row addresses; -1 if an index is out of range. */
TRM_ELEMENT int64_t trm_index_rows_start(const trm_index_rows *rows, int64_t row)
{
    int64_t start = row / rows->rows_per_batch * rows->batch_stride;
    for (int32_t i = 0; i < rows->k; i++) {
        const int64_t index = trm_element_index(rows->index_type, rows->indices, row * rows->k + i, rows->sizes[i]);
        if (index < 0) {
            return -1;
        }
        start += index * rows->strides[i];
    }
    return start;
}

typedef struct trm_gather_nd_args {
    trm_index_rows rows;
    const void *x;
    void *y;
    int32_t size;
} trm_gather_nd_args;

static inline bool trm_gather_nd_args_of(const trm_kernel_call *call, trm_gather_nd_args *args)
{
    const trm_view *x = &call->inputs[0], *indices = &call->inputs[1], *y = &call->outputs[0];
    if (call->n_inputs != 2 || call->n_outputs != 1 || trm_dtype_size(x->dtype) == 0 || y->dtype != x->dtype ||
        !trm_index_rows_of(indices, &x->dims, call->layer->gather_nd.batch_dims, &args->rows) ||
        trm_dims_count(&y->dims) != trm_element_span(&indices->dims, 0, indices->dims.n - 1) * args->rows.slice) {
        return false;
    }
    args->x = x->data;
    args->y = y->data;
    args->size = (int32_t)trm_dtype_size(x->dtype);
    return true;
}

TRM_ELEMENT void trm_element_gather_nd(const trm_gather_nd_args *args, int64_t i)
{
    const int64_t row = i / args->rows.slice, start = trm_index_rows_start(&args->rows, row);
    trm_element_move(args->size, args->y, i, start < 0 ? NULL : args->x,
                     start < 0 ? 0 : start + (i - row * args->rows.slice));
}

#endif
