/*
 * CONVOLUTION, DECONVOLUTION and DEFORMABLE_CONVOLUTION: how a call is laid out, and one element of the output, any
 * type, any case. Sums are f64.
 */
#ifndef TRM_KERNELS_CONVOLUTION_ELEMENT_H
#define TRM_KERNELS_CONVOLUTION_ELEMENT_H

#include "kernels/kernel.h"
#include "kernels/pointwise/element.h"
#include "kernels/convolution/window.h"

typedef struct trm_convolution_args {
    trm_dims dims; /* [N, M, o1, o2, o3]; with channels last [N, o1, o2, o3, M], and the others so, too */
    trm_windows w; /* of DECONVOLUTION: in and out of it, before what is cut */
    int64_t groups;
    int64_t channels; /* of x in a group */
    int64_t outputs;  /* channels of y in a group */
    const void *x, *weight, *bias, *residual;
    void *y;
    trm_dtype dtype;
    trm_activation activation;
    bool allow_tf32, channels_last, whole_numbers;
} trm_convolution_args;

/* What both kinds have in common. */
static inline bool trm_convolution_args_common(const trm_kernel_call *call, trm_convolution_args *args)
{
    const trm_convolution_params *p = &call->layer->convolution;
    const trm_view *x = &call->inputs[0], *weight = &call->inputs[1], *y = &call->outputs[0];
    const bool bias = trm_kernel_call_has(call, 2), last = p->channels_last;
    const int32_t n = x->dims.n - 2;
    const trm_dims from = trm_channels_first(&x->dims, last), to = trm_channels_first(&y->dims, last);
    const trm_dims taps = trm_channels_first(&weight->dims, last);
    if (call->n_inputs < 2 || call->n_outputs != 1 || n < 1 || n > TRM_MAX_SPATIAL || weight->dims.n != n + 2 ||
        y->dims.n != n + 2 || p->groups < 1 || from.d[1] % p->groups != 0 || to.d[1] % p->groups != 0 ||
        to.d[0] != from.d[0] || !trm_element_is_float(x->dtype) || weight->dtype != x->dtype || y->dtype != x->dtype ||
        (bias &&
         (call->inputs[2].dtype != x->dtype || call->inputs[2].dims.n != 1 || call->inputs[2].dims.d[0] != to.d[1]))) {
        return false;
    }
    args->groups = p->groups;
    args->channels = from.d[1] / p->groups;
    args->outputs = to.d[1] / p->groups;
    args->x = x->data;
    args->weight = weight->data;
    args->bias = bias ? call->inputs[2].data : NULL;
    args->residual = NULL;
    args->y = y->data;
    args->dtype = x->dtype;
    args->activation = p->activation;
    args->whole_numbers = p->whole_numbers;
    args->allow_tf32 = call->allow_tf32 || p->whole_numbers; /* TF32 has them all */
    args->channels_last = last;
    trm_windows_init(&args->w, &from, &to, taps.d + 2, p->stride, p->dilation, p->before, p->auto_pad);
    args->dims.n = 2 + TRM_MAX_SPATIAL;
    args->dims.d[0] = to.d[0];
    args->dims.d[last ? 1 + TRM_MAX_SPATIAL : 1] = to.d[1];
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        args->dims.d[(last ? 1 : 2) + i] = args->w.out[i];
    }
    return true;
}

/* False if the call is not one these kernels know. */
static inline bool trm_convolution_args_of(const trm_kernel_call *call, trm_convolution_args *args)
{
    if (!trm_convolution_args_common(call, args) || call->n_inputs > 4 ||
        call->inputs[1].dims.d[0] != args->outputs * args->groups ||
        call->inputs[1].dims.d[args->channels_last ? call->inputs[1].dims.n - 1 : 1] != args->channels) {
        return false;
    }
    if (trm_kernel_call_has(call, 3)) {
        if (call->inputs[3].dtype != args->dtype ||
            !trm_element_same_dims(&call->inputs[3].dims, &call->outputs[0].dims)) {
            return false;
        }
        args->residual = call->inputs[3].data;
    }
    return true;
}

static inline bool trm_deconvolution_args_of(const trm_kernel_call *call, trm_convolution_args *args)
{
    const trm_convolution_params *p = &call->layer->convolution;
    if (!trm_convolution_args_common(call, args) || call->n_inputs > 4 || args->channels_last ||
        call->inputs[1].dims.d[0] != call->inputs[0].dims.d[1] || call->inputs[1].dims.d[1] != args->outputs) {
        return false;
    }
    const bool given = trm_kernel_call_has(call, 3);
    for (int32_t i = 0; i < args->w.n; i++) {
        const int32_t to = TRM_MAX_SPATIAL - args->w.n + i;
        const trm_window axis = {args->w.kernel[to], p->stride[i], p->dilation[i], p->before[i], p->after[i]};
        args->w.before[to] =
            trm_window_cut(args->w.in[to], args->w.out[to], &axis, p->output_padding[i], p->auto_pad, given);
    }
    return true;
}

/* The end of each: bias, residual, activation, store. */
TRM_ELEMENT void trm_convolution_finish(const trm_convolution_args *args, int64_t m, int64_t i, double sum)
{
    if (args->bias != NULL) {
        sum += trm_element_load_f64(args->dtype, args->bias, m);
    }
    if (args->residual != NULL) {
        sum += trm_element_load_f64(args->dtype, args->residual, i);
    }
    trm_element_store_f64(args->dtype, args->y, i, trm_activate_f64(args->activation, sum));
}

TRM_ELEMENT void trm_element_convolution(const trm_convolution_args *args, const int64_t *at, int64_t i)
{
    const trm_windows *w = &args->w;
    const bool last = args->channels_last;
    const int64_t m = at[last ? 1 + TRM_MAX_SPATIAL : 1], group = m / args->outputs;
    /* From one channel to the next, and from one position to the next, of x and of the weight. */
    const int64_t channel = last ? 1 : w->in_size, position = last ? w->channels_in : 1;
    const int64_t tap_channel = last ? 1 : w->kernel_size, tap_position = last ? args->channels : 1;
    const int64_t image = at[0] * w->channels_in * w->in_size + group * args->channels * channel;
    const int64_t taps = m * args->channels * w->kernel_size;
    int64_t start[TRM_MAX_SPATIAL];
    for (int32_t axis = 0; axis < TRM_MAX_SPATIAL; axis++) {
        start[axis] = at[(last ? 1 : 2) + axis] * w->stride[axis] - w->before[axis];
    }
    double sum = 0.0;
    for (int64_t t = 0; t < w->kernel_size; t++) {
        const int64_t row = t / w->kernel[2], layer = row / w->kernel[1];
        const int64_t x = start[2] + (t - row * w->kernel[2]) * w->dilation[2];
        const int64_t y = start[1] + (row - layer * w->kernel[1]) * w->dilation[1];
        const int64_t z = start[0] + layer * w->dilation[0];
        if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1] || x < 0 || x >= w->in[2]) {
            continue;
        }
        int64_t from = image + ((z * w->in[1] + y) * w->in[2] + x) * position, tap = taps + t * tap_position;
        for (int64_t c = 0; c < args->channels; c++, from += channel, tap += tap_channel) {
            sum +=
                trm_element_load_f64(args->dtype, args->x, from) * trm_element_load_f64(args->dtype, args->weight, tap);
        }
    }
    trm_convolution_finish(args, m, i, sum);
}

/* Position of the input that tap k of a transposed convolution brings to output `at`, or -1. */
TRM_ELEMENT int64_t trm_deconvolution_source(const trm_windows *w, int32_t axis, int64_t at, int64_t k)
{
    const int64_t moved = at + w->before[axis] - k * w->dilation[axis];
    if (moved < 0 || moved % w->stride[axis] != 0 || moved / w->stride[axis] >= w->in[axis]) {
        return -1;
    }
    return moved / w->stride[axis];
}

TRM_ELEMENT void trm_element_deconvolution(const trm_convolution_args *args, const int64_t *at, int64_t i)
{
    const trm_windows *w = &args->w;
    const int64_t group = at[1] / args->outputs, m = at[1] - group * args->outputs;
    const int64_t plane = (at[0] * w->channels_in + group * args->channels) * w->in_size;
    const int64_t step = args->outputs * w->kernel_size; /* of the weight, from channel to channel */
    double sum = 0.0;
    for (int64_t a = 0; a < w->kernel[0]; a++) {
        const int64_t z = trm_deconvolution_source(w, 0, at[2], a);
        for (int64_t b = 0; z >= 0 && b < w->kernel[1]; b++) {
            const int64_t y = trm_deconvolution_source(w, 1, at[3], b);
            for (int64_t k = 0; y >= 0 && k < w->kernel[2]; k++) {
                const int64_t x = trm_deconvolution_source(w, 2, at[4], k);
                if (x < 0) {
                    continue;
                }
                int64_t from = plane + (z * w->in[1] + y) * w->in[2] + x;
                int64_t tap =
                    group * args->channels * step + m * w->kernel_size + (a * w->kernel[1] + b) * w->kernel[2] + k;
                for (int64_t c = 0; c < args->channels; c++, from += w->in_size, tap += step) {
                    sum += trm_element_load_f64(args->dtype, args->x, from) *
                           trm_element_load_f64(args->dtype, args->weight, tap);
                }
            }
        }
    }
    trm_convolution_finish(args, at[1], i, sum);
}

#endif
