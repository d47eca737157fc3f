/* SELECT: one element of the output, by its coordinates. */
#ifndef TRM_KERNELS_POINTWISE_SELECT_H
#define TRM_KERNELS_POINTWISE_SELECT_H

#include "kernels/element.h"

typedef struct trm_select_args {
    trm_dims dims; /* of the output, neighbouring axes joined where all inputs allow it */
    int64_t strides[3][TRM_MAX_DIMS];
    const uint8_t *condition;
    const void *a, *b;
    void *y;
    int32_t size;
} trm_select_args;

static inline bool trm_select_broadcasts(const trm_dims *from, const trm_dims *to)
{
    bool fits = from->n <= to->n;
    for (int32_t i = 0; fits && i < from->n; i++) {
        fits = from->d[i] == 1 || from->d[i] == to->d[i + to->n - from->n];
    }
    return fits;
}

/* False if the call is not one these kernels know. */
static inline bool trm_select_args_of(const trm_kernel_call *call, trm_select_args *args)
{
    const trm_view *y = &call->outputs[0];
    if (call->n_inputs != 3 || call->n_outputs != 1 || call->inputs[0].dtype != TRM_BOOL ||
        trm_dtype_size(y->dtype) == 0 || call->inputs[1].dtype != y->dtype || call->inputs[2].dtype != y->dtype) {
        return false;
    }
    int64_t strides[3][TRM_MAX_DIMS];
    for (int32_t i = 0; i < 3; i++) {
        if (!trm_select_broadcasts(&call->inputs[i].dims, &y->dims)) {
            return false;
        }
        trm_element_broadcast_strides(&call->inputs[i].dims, &y->dims, strides[i]);
    }
    args->dims.n = 0;
    for (int32_t axis = 0; axis < y->dims.n; axis++) {
        const int64_t d = y->dims.d[axis];
        int32_t last = args->dims.n - 1;
        bool joins = last >= 0;
        for (int32_t i = 0; joins && i < 3; i++) {
            joins = args->strides[i][last] == strides[i][axis] * d;
        }
        if (joins) {
            args->dims.d[last] *= d;
        } else {
            last = args->dims.n++;
            args->dims.d[last] = d;
        }
        for (int32_t i = 0; i < 3; i++) {
            args->strides[i][last] = strides[i][axis];
        }
    }
    args->condition = (const uint8_t *)call->inputs[0].data;
    args->a = call->inputs[1].data;
    args->b = call->inputs[2].data;
    args->y = y->data;
    args->size = (int32_t)trm_dtype_size(y->dtype);
    return true;
}

TRM_ELEMENT void trm_element_select(const trm_select_args *args, const int64_t *at, int64_t i)
{
    int64_t condition = 0, a = 0, b = 0;
    for (int32_t axis = 0; axis < args->dims.n; axis++) {
        condition += at[axis] * args->strides[0][axis];
        a += at[axis] * args->strides[1][axis];
        b += at[axis] * args->strides[2][axis];
    }
    if (args->condition[condition] != 0) {
        trm_element_move(args->size, args->y, i, args->a, a);
    } else {
        trm_element_move(args->size, args->y, i, args->b, b);
    }
}

#endif
