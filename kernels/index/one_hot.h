/* ONE_HOT and REVERSE_SEQUENCE: one element of the output. */
#ifndef TRM_KERNELS_INDEX_ONE_HOT_H
#define TRM_KERNELS_INDEX_ONE_HOT_H

#include "kernels/element.h"
#include "kernels/kernel.h"

typedef struct trm_one_hot_args {
    int64_t depth, inner; /* of the new axis, and behind it */
    const void *indices, *values;
    void *y;
    int32_t size;
    trm_dtype index_type;
} trm_one_hot_args;

/* False if the call is not one these kernels know. */
static inline bool trm_one_hot_args_of(const trm_kernel_call *call, trm_one_hot_args *args)
{
    const trm_view *indices = &call->inputs[0], *values = &call->inputs[2], *y = &call->outputs[0];
    const int32_t axis = trm_element_axis(call->layer->one_hot.axis, y->dims.n);
    if (call->n_inputs != 3 || call->n_outputs != 1 || axis < 0 || y->dims.n != indices->dims.n + 1 ||
        (!trm_element_is_float(indices->dtype) && !trm_element_is_integer(indices->dtype)) ||
        trm_dtype_size(y->dtype) == 0 || values->dtype != y->dtype || trm_dims_count(&values->dims) != 2 ||
        trm_dims_count(&y->dims) != trm_dims_count(&indices->dims) * y->dims.d[axis]) {
        return false;
    }
    args->depth = y->dims.d[axis];
    args->inner = trm_element_span(&y->dims, axis + 1, y->dims.n);
    args->indices = indices->data;
    args->values = values->data;
    args->y = y->data;
    args->size = (int32_t)trm_dtype_size(y->dtype);
    args->index_type = indices->dtype;
    return true;
}

TRM_ELEMENT void trm_element_one_hot(const trm_one_hot_args *args, int64_t i)
{
    const int64_t row = i / args->inner, outer = row / args->depth,
                  from = outer * args->inner + (i - row * args->inner);
    int64_t index;
    if (trm_element_is_float(args->index_type)) {
        const double value = trm_element_load_f64(args->index_type, args->indices, from);
        const double limit = (double)args->depth;
        index = value > -limit - 1.0 && value < limit ? (int64_t)value : args->depth;
    } else {
        index = trm_element_load_i64(args->index_type, args->indices, from);
    }
    index += index < 0 ? args->depth : 0;
    trm_element_move(args->size, args->y, i, args->values, index == row - outer * args->depth ? 1 : 0);
}

typedef struct trm_reverse_sequence_args {
    int64_t first, second, inner; /* x as [first, second, inner] */
    const void *x;
    const int64_t *lengths;
    void *y;
    int32_t size;
    bool time_first; /* the first axis is time, the second the batch */
} trm_reverse_sequence_args;

static inline bool trm_reverse_sequence_args_of(const trm_kernel_call *call, trm_reverse_sequence_args *args)
{
    const trm_reverse_sequence_params *p = &call->layer->reverse_sequence;
    const trm_view *x = &call->inputs[0], *lengths = &call->inputs[1], *y = &call->outputs[0];
    if (call->n_inputs != 2 || call->n_outputs != 1 || x->dims.n < 2 || (p->batch_axis | p->time_axis) != 1 ||
        p->batch_axis == p->time_axis || trm_dtype_size(x->dtype) == 0 || y->dtype != x->dtype ||
        !trm_element_same_dims(&x->dims, &y->dims) || lengths->dtype != TRM_I64 || lengths->dims.n != 1 ||
        lengths->dims.d[0] != x->dims.d[p->batch_axis]) {
        return false;
    }
    args->first = x->dims.d[0];
    args->second = x->dims.d[1];
    args->inner = trm_element_span(&x->dims, 2, x->dims.n);
    args->x = x->data;
    args->lengths = (const int64_t *)lengths->data;
    args->y = y->data;
    args->size = (int32_t)trm_dtype_size(x->dtype);
    args->time_first = p->time_axis == 0;
    return true;
}

TRM_ELEMENT void trm_element_reverse_sequence(const trm_reverse_sequence_args *args, int64_t i)
{
    const int64_t row = i / args->inner, first = row / args->second, second = row - first * args->second;
    const int64_t time = args->time_first ? first : second, most = args->time_first ? args->first : args->second;
    int64_t length = args->lengths[args->time_first ? second : first];
    length = length > most ? most : length;
    const int64_t from = time < length ? length - 1 - time : time;
    const int64_t step = args->inner * (args->time_first ? args->second : 1);
    trm_element_move(args->size, args->y, i, args->x, i + (from - time) * step);
}

#endif
