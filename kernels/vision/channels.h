/* COL2IM and LRN: one element of the output. */
#ifndef TRM_KERNELS_VISION_CHANNELS_H
#define TRM_KERNELS_VISION_CHANNELS_H

#include <math.h>

#include "kernels/element.h"
#include "kernels/convolution/window.h"
#include "kernels/kernel.h"

/* ---- columns to image -------------------------------------------------------------------------- */

typedef struct trm_col2im_args {
    trm_dims dims; /* [N, C, d1, d2, d3] */
    int64_t kernel[TRM_MAX_SPATIAL], stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL], before[TRM_MAX_SPATIAL];
    int64_t places[TRM_MAX_SPATIAL], columns, taps;
    const void *x;
    void *y;
    trm_dtype dtype;
} trm_col2im_args;

static inline bool trm_col2im_args_of(const trm_kernel_call *call, trm_col2im_args *args)
{
    const trm_col2im_params *p = &call->layer->col2im;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int32_t n = p->image.n;
    if (call->n_inputs != 1 || call->n_outputs != 1 || n < 1 || n > TRM_MAX_SPATIAL || x->dims.n != 3 ||
        y->dims.n != n + 2 || y->dtype != x->dtype ||
        !(trm_element_is_float(x->dtype) || trm_element_is_integer(x->dtype))) {
        return false;
    }
    args->dims.n = 2 + TRM_MAX_SPATIAL;
    args->dims.d[0] = y->dims.d[0];
    args->dims.d[1] = y->dims.d[1];
    args->columns = args->taps = 1;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        const int32_t k = i - (TRM_MAX_SPATIAL - n);
        const trm_window axis = {k < 0 ? 1 : p->kernel[k], k < 0 ? 1 : p->stride[k], k < 0 ? 1 : p->dilation[k],
                                 k < 0 ? 0 : p->before[k], k < 0 ? 0 : p->after[k]};
        args->dims.d[2 + i] = k < 0 ? 1 : y->dims.d[2 + k];
        args->kernel[i] = axis.kernel;
        args->stride[i] = axis.stride;
        args->dilation[i] = axis.dilation;
        args->before[i] = axis.before;
        args->places[i] = trm_window_places(args->dims.d[2 + i], &axis, TRM_AUTO_PAD_NONE, false);
        args->columns *= args->places[i];
        args->taps *= args->kernel[i];
    }
    if (args->columns != x->dims.d[2]) {
        return false;
    }
    args->x = x->data;
    args->y = y->data;
    args->dtype = x->dtype;
    return true;
}

/* The place whose tap k lies at `at`, or -1. */
TRM_ELEMENT int64_t trm_col2im_place(const trm_col2im_args *args, int32_t axis, int64_t at, int64_t k)
{
    const int64_t moved = at + args->before[axis] - k * args->dilation[axis];
    const int64_t place = moved / args->stride[axis];
    return moved >= 0 && moved == place * args->stride[axis] && place < args->places[axis] ? place : -1;
}

TRM_ELEMENT void trm_element_col2im(const trm_col2im_args *args, const int64_t *at, int64_t i)
{
    const bool whole = trm_element_is_integer(args->dtype);
    double sum = 0.0;
    int64_t whole_sum = 0, row = (at[0] * args->dims.d[1] + at[1]) * args->taps;
    for (int64_t a = 0; a < args->kernel[0]; a++) {
        const int64_t z = trm_col2im_place(args, 0, at[2], a);
        for (int64_t b = 0; b < args->kernel[1]; b++) {
            const int64_t y = trm_col2im_place(args, 1, at[3], b);
            for (int64_t c = 0; c < args->kernel[2]; c++, row++) {
                const int64_t x = trm_col2im_place(args, 2, at[4], c);
                if (z < 0 || y < 0 || x < 0) {
                    continue;
                }
                const int64_t from = row * args->columns + (z * args->places[1] + y) * args->places[2] + x;
                if (whole) {
                    whole_sum =
                        (int64_t)((uint64_t)whole_sum + (uint64_t)trm_element_load_i64(args->dtype, args->x, from));
                } else {
                    sum += trm_element_load_f64(args->dtype, args->x, from);
                }
            }
        }
    }
    if (whole) {
        trm_element_store_i64(args->dtype, args->y, i, whole_sum);
    } else {
        trm_element_store_f64(args->dtype, args->y, i, sum);
    }
}

/* ---- local response ---------------------------------------------------------------------------- */

typedef struct trm_lrn_args {
    int64_t channels, inner; /* elements of a channel */
    int64_t below, above;    /* neighbours on either side */
    const void *x;
    void *y;
    trm_dtype dtype;
    double factor, beta, bias;
} trm_lrn_args;

static inline bool trm_lrn_args_of(const trm_kernel_call *call, trm_lrn_args *args)
{
    const trm_lrn_params *p = &call->layer->lrn;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    if (call->n_inputs != 1 || call->n_outputs != 1 || x->dims.n < 2 || p->size < 1 || y->dtype != x->dtype ||
        !trm_element_is_float(x->dtype) || !trm_element_same_dims(&x->dims, &y->dims)) {
        return false;
    }
    args->channels = x->dims.d[1];
    args->inner = trm_element_span(&x->dims, 2, x->dims.n);
    args->below = (p->size - 1) / 2;
    args->above = p->size / 2;
    args->x = x->data;
    args->y = y->data;
    args->dtype = x->dtype;
    args->factor = (double)p->alpha / (double)p->size;
    args->beta = (double)p->beta;
    args->bias = (double)p->bias;
    return true;
}

TRM_ELEMENT void trm_element_lrn(const trm_lrn_args *args, int64_t i)
{
    const int64_t channel = i / args->inner % args->channels;
    const int64_t first = channel < args->below ? -channel : -args->below;
    const int64_t last = channel + args->above < args->channels ? args->above : args->channels - 1 - channel;
    double sum = 0.0;
    for (int64_t c = first; c <= last; c++) {
        const double v = trm_element_load_f64(args->dtype, args->x, i + c * args->inner);
        sum += v * v;
    }
    const double x = trm_element_load_f64(args->dtype, args->x, i);
    trm_element_store_f64(args->dtype, args->y, i, x / pow(args->bias + args->factor * sum, args->beta));
}

#endif
