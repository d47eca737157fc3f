/* ROTATE: one element of the output, by its coordinates. */
#ifndef TRM_KERNELS_ROPE_ROTATE_H
#define TRM_KERNELS_ROPE_ROTATE_H

#include "kernels/element.h"
#include "kernels/kernel.h"

typedef struct trm_rotate_args {
    trm_dims dims;                 /* of x */
    int64_t strides[TRM_MAX_DIMS]; /* of cos and sin along all axes but the last */
    const void *x, *cosines, *sines;
    void *y;
    trm_dtype dtype;
    int32_t rotary, columns;
    bool interleaved;
} trm_rotate_args;

/* False if the call is not one these kernels know. */
static inline bool trm_rotate_args_of(const trm_kernel_call *call, trm_rotate_args *args)
{
    const trm_view *x = &call->inputs[0], *c = &call->inputs[1], *s = &call->inputs[2], *y = &call->outputs[0];
    const int32_t n = x->dims.n, rotary = call->layer->rotate.rotary_dim;
    args->dims = x->dims;
    if (call->n_inputs != 3 || call->n_outputs != 1 || !trm_element_is_float(x->dtype) || c->dtype != x->dtype ||
        s->dtype != x->dtype || y->dtype != x->dtype || !trm_element_same_dims(&x->dims, &y->dims) ||
        !trm_element_same_dims(&c->dims, &s->dims) || n < 1 || c->dims.n < 1 || c->dims.n > n || rotary < 2 ||
        rotary % 2 != 0 || rotary > x->dims.d[n - 1]) {
        return false;
    }
    const int64_t columns = c->dims.d[c->dims.n - 1];
    int64_t step = columns;
    for (int32_t i = n - 2; i >= 0; i--) {
        const int32_t own = i - (n - c->dims.n);
        const int64_t size = own >= 0 ? c->dims.d[own] : 1;
        if (size != 1 && size != x->dims.d[i]) {
            return false;
        }
        args->strides[i] = size == 1 ? 0 : step;
        step *= size;
    }
    args->x = x->data;
    args->cosines = c->data;
    args->sines = s->data;
    args->y = y->data;
    args->dtype = x->dtype;
    args->rotary = rotary;
    args->columns = (int32_t)columns;
    args->interleaved = call->layer->rotate.interleaved;
    return columns == rotary || columns == rotary / 2;
}

TRM_ELEMENT void trm_element_rotate(const trm_rotate_args *args, const int64_t *at, int64_t i)
{
    const int32_t last = args->dims.n - 1, column = (int32_t)at[last], half = args->rotary / 2;
    if (at[last] >= args->rotary) {
        trm_element_move((int32_t)(args->dtype == TRM_F64   ? 8
                                   : args->dtype == TRM_F32 ? 4
                                                            : 2),
                         args->y, i, args->x, i);
        return;
    }
    const bool first = args->interleaved ? column % 2 == 0 : column < half;
    const int32_t distance = args->interleaved ? 1 : half;
    const int32_t pair = args->interleaved ? column / 2 : first ? column : column - half;
    int64_t angle = args->columns == args->rotary ? column : pair;
    for (int32_t axis = 0; axis < last; axis++) {
        angle += at[axis] * args->strides[axis];
    }
    const int64_t other = first ? i + distance : i - distance;
    if (args->dtype == TRM_F64) {
        const double *x = (const double *)args->x;
        const double c = ((const double *)args->cosines)[angle], s = ((const double *)args->sines)[angle];
        ((double *)args->y)[i] = first ? x[i] * c - x[other] * s : x[i] * c + x[other] * s;
        return;
    }
    const float x = trm_element_load_f32(args->dtype, args->x, i),
                z = trm_element_load_f32(args->dtype, args->x, other);
    const float c = trm_element_load_f32(args->dtype, args->cosines, angle);
    const float s = trm_element_load_f32(args->dtype, args->sines, angle);
    trm_element_store_f32(args->dtype, args->y, i, first ? x * c - z * s : x * c + z * s);
}

#endif
