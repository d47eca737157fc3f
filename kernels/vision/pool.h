/* POOL: one element of the output. Maxima in the type itself, sums in f64. */
#ifndef TRM_KERNELS_VISION_POOL_H
#define TRM_KERNELS_VISION_POOL_H

#include <math.h>

#include "kernels/element.h"
#include "kernels/convolution/window.h"
#include "kernels/kernel.h"

typedef struct trm_pool_args {
    trm_dims dims; /* [N, C, o1, o2, o3]; with channels last [N, o1, o2, o3, C] */
    trm_windows w;
    int64_t padded[TRM_MAX_SPATIAL]; /* where the padding after ends */
    const void *x;
    void *y;
    int64_t *indices; /* or NULL */
    trm_dtype dtype;
    trm_pool_op op;
    bool count_padding, by_column, channels_last;
    float p;
} trm_pool_args;

/* False if the call is not one these kernels know. */
static inline bool trm_pool_args_of(const trm_kernel_call *call, trm_pool_args *args)
{
    const trm_pool_params *p = &call->layer->pool;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int32_t n = x->dims.n - 2;
    const bool last = p->channels_last;
    const trm_dims from_dims = trm_channels_first(&x->dims, last), to_dims = trm_channels_first(&y->dims, last);
    if (call->n_inputs != 1 || call->n_outputs != (p->indices ? 2 : 1) || n < 1 || n > TRM_MAX_SPATIAL ||
        y->dims.n != n + 2 || y->dtype != x->dtype || to_dims.d[0] != from_dims.d[0] ||
        to_dims.d[1] != from_dims.d[1] ||
        !(trm_element_is_float(x->dtype) || (p->op == TRM_POOL_MAX && trm_element_is_integer(x->dtype))) ||
        (p->indices && (last || p->op != TRM_POOL_MAX || call->outputs[1].dtype != TRM_I64 ||
                        !trm_element_same_dims(&call->outputs[1].dims, &y->dims)))) {
        return false;
    }
    int64_t kernel[TRM_MAX_SPATIAL];
    for (int32_t i = 0; i < n; i++) {
        kernel[i] = p->kernel[i];
    }
    trm_windows_init(&args->w, &from_dims, &to_dims, kernel, p->stride, p->dilation, p->before, p->auto_pad);
    args->dims.n = 2 + TRM_MAX_SPATIAL;
    args->dims.d[0] = to_dims.d[0];
    args->dims.d[last ? 1 + TRM_MAX_SPATIAL : 1] = to_dims.d[1];
    args->channels_last = last;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        const int32_t from = i - (TRM_MAX_SPATIAL - n);
        const trm_windows *w = &args->w;
        args->dims.d[(last ? 1 : 2) + i] = w->out[i];
        args->padded[i] = w->in[i];
        if (from >= 0) {
            const int64_t final = (w->out[i] - 1) * w->stride[i] - w->before[i];
            args->padded[i] = p->auto_pad == TRM_AUTO_PAD_NONE
                                  ? w->in[i] + p->after[from]
                                  : final + trm_window_extent(w->kernel[i], w->dilation[i]);
        }
    }
    args->x = x->data;
    args->y = y->data;
    args->indices = p->indices ? (int64_t *)call->outputs[1].data : NULL;
    args->dtype = x->dtype;
    args->op = p->op;
    args->count_padding = p->count_padding;
    args->by_column = p->indices_by_column;
    args->p = p->p;
    return true;
}

/* Position of element (z, y, x) of a plane. */
TRM_ELEMENT int64_t trm_pool_position(const trm_windows *w, bool by_column, int64_t z, int64_t y, int64_t x)
{
    return by_column ? (x * w->in[1] + y) * w->in[0] + z : (z * w->in[1] + y) * w->in[2] + x;
}

/* A maximum so far. NaN is larger than anything. */
typedef struct trm_pool_best {
    int64_t at; /* -1: none */
    double real;
    int64_t whole;
} trm_pool_best;

TRM_ELEMENT void trm_pool_compare(const trm_pool_args *args, int64_t from, trm_pool_best *best)
{
    if (trm_element_is_integer(args->dtype)) {
        const int64_t v = trm_element_load_i64(args->dtype, args->x, from);
        const bool more = args->dtype == TRM_U64 ? (uint64_t)v > (uint64_t)best->whole : v > best->whole;
        if (best->at < 0 || more) {
            best->whole = v;
            best->at = from;
        }
    } else {
        const double v = trm_element_load_f64(args->dtype, args->x, from);
        if (best->at < 0 || v > best->real || (v != v && best->real == best->real)) {
            best->real = v;
            best->at = from;
        }
    }
}

TRM_ELEMENT void trm_pool_store_best(const trm_pool_args *args, const trm_pool_best *best, int64_t plane, int64_t i)
{
    if (trm_element_is_integer(args->dtype)) {
        trm_element_store_i64(args->dtype, args->y, i, best->whole);
    } else {
        trm_element_store_f64(args->dtype, args->y, i, best->at < 0 ? -(double)INFINITY : best->real);
    }
    if (args->indices != NULL) {
        const trm_windows *w = &args->w;
        int64_t at = best->at < 0 ? 0 : best->at - plane;
        if (args->by_column) {
            const int64_t row = at / w->in[2], z = row / w->in[1];
            at = trm_pool_position(w, true, z, row - z * w->in[1], at - row * w->in[2]);
        }
        args->indices[i] = best->at < 0 ? -1 : plane + at;
    }
}

/* Taps of the window from `start` that lie before `end`. */
TRM_ELEMENT int64_t trm_pool_taps(const trm_windows *w, int32_t axis, int64_t start, int64_t end)
{
    const int64_t room = end - start;
    const int64_t taps = room <= 0 ? 0 : (room + w->dilation[axis] - 1) / w->dilation[axis];
    return taps < w->kernel[axis] ? taps : w->kernel[axis];
}

TRM_ELEMENT void trm_element_pool(const trm_pool_args *args, const int64_t *at, int64_t i)
{
    const trm_windows *w = &args->w;
    const bool last = args->channels_last;
    const int64_t position = last ? w->channels_in : 1; /* from one to the next */
    const int64_t plane = last ? at[0] * w->channels_in * w->in_size + at[1 + TRM_MAX_SPATIAL]
                               : (at[0] * w->channels_in + at[1]) * w->in_size;
    int64_t start[TRM_MAX_SPATIAL], counted = 1;
    for (int32_t axis = 0; axis < TRM_MAX_SPATIAL; axis++) {
        start[axis] = at[(last ? 1 : 2) + axis] * w->stride[axis] - w->before[axis];
        counted *= trm_pool_taps(w, axis, start[axis], args->padded[axis]);
    }
    trm_pool_best best = {-1, 0.0, 0};
    double sum = 0.0;
    int64_t taken = 0;
    for (int64_t a = 0; a < w->kernel[0]; a++) {
        const int64_t z = start[0] + a * w->dilation[0];
        for (int64_t b = 0; z >= 0 && z < w->in[0] && b < w->kernel[1]; b++) {
            const int64_t y = start[1] + b * w->dilation[1];
            for (int64_t k = 0; y >= 0 && y < w->in[1] && k < w->kernel[2]; k++) {
                const int64_t x = start[2] + k * w->dilation[2];
                if (x < 0 || x >= w->in[2]) {
                    continue;
                }
                const int64_t from = plane + ((z * w->in[1] + y) * w->in[2] + x) * position;
                taken++;
                if (args->op == TRM_POOL_MAX) {
                    trm_pool_compare(args, from, &best);
                } else {
                    const double v = trm_element_load_f64(args->dtype, args->x, from);
                    sum += args->op == TRM_POOL_AVERAGE ? v : args->p == 2.0f ? v * v : pow(fabs(v), (double)args->p);
                }
            }
        }
    }
    if (args->op == TRM_POOL_MAX) {
        trm_pool_store_best(args, &best, plane, i);
    } else if (args->op == TRM_POOL_AVERAGE) {
        const int64_t count = args->count_padding ? counted : taken;
        trm_element_store_f64(args->dtype, args->y, i, count > 0 ? sum / (double)count : 0.0);
    } else {
        const double root = args->p == 2.0f ? sqrt(sum) : pow(sum, 1.0 / (double)args->p);
        trm_element_store_f64(args->dtype, args->y, i, root);
    }
}

#endif
