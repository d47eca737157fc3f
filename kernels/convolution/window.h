/*
 * Windows that slide over spatial axes: sizes and padding of convolutions, their transposes and pools. Shared by
 * shape rules, kernels of every backend and the CUDA compiler.
 */
#ifndef TRM_KERNELS_CONVOLUTION_WINDOW_H
#define TRM_KERNELS_CONVOLUTION_WINDOW_H

#include <trireme/layers/convolution.h>

#ifdef __CUDACC__
#define TRM_WINDOW_FN __host__ __device__ static inline
#else
#define TRM_WINDOW_FN static inline
#endif

/* Positions a window covers, gaps included. */
TRM_WINDOW_FN int64_t trm_window_extent(int64_t kernel, int64_t dilation)
{
    return dilation * (kernel - 1) + 1;
}

/* How a window slides along one axis. */
typedef struct trm_window {
    int64_t kernel, stride, dilation, before, after;
} trm_window;

/* Places of the window on an axis of `in` >= 0; 0 or less where it does not fit. */
TRM_WINDOW_FN int64_t trm_window_places(int64_t in, const trm_window *w, trm_auto_pad auto_pad, bool ceil)
{
    if (auto_pad != TRM_AUTO_PAD_NONE) {
        return (in + w->stride - 1) / w->stride;
    }
    const int64_t room = in + w->before + w->after - trm_window_extent(w->kernel, w->dilation);
    if (room < 0) {
        return 0;
    }
    int64_t out = room / w->stride + 1;
    if (ceil && room % w->stride != 0 && out * w->stride < in + w->before) {
        out++; /* the last window starts before the padding after */
    }
    return out;
}

/* Padding before the axis: as given, or what SAME makes of `in` and `out`. */
TRM_WINDOW_FN int64_t trm_window_before(int64_t in, int64_t out, const trm_window *w, trm_auto_pad auto_pad)
{
    if (auto_pad == TRM_AUTO_PAD_NONE) {
        return w->before;
    }
    int64_t total = (out - 1) * w->stride + trm_window_extent(w->kernel, w->dilation) - in;
    total = total < 0 ? 0 : total;
    return auto_pad == TRM_AUTO_PAD_SAME_UPPER ? total / 2 : total - total / 2;
}

/* What a transposed convolution makes of an axis of `in`. */
TRM_WINDOW_FN int64_t trm_window_spread(int64_t in, const trm_window *w, int64_t output_padding, trm_auto_pad auto_pad)
{
    if (auto_pad != TRM_AUTO_PAD_NONE) {
        return in * w->stride;
    }
    return w->stride * (in - 1) + output_padding + trm_window_extent(w->kernel, w->dilation) - w->before - w->after;
}

/* What a transposed convolution cuts before the axis: as given, or where `out` was given or is SAME, a half of what is
 * too much. */
TRM_WINDOW_FN int64_t trm_window_cut(int64_t in, int64_t out, const trm_window *w, int64_t output_padding,
                                     trm_auto_pad auto_pad, bool out_given)
{
    if (auto_pad == TRM_AUTO_PAD_NONE && !out_given) {
        return w->before;
    }
    int64_t total = w->stride * (in - 1) + output_padding + trm_window_extent(w->kernel, w->dilation) - out;
    total = total < 0 ? 0 : total;
    return auto_pad == TRM_AUTO_PAD_SAME_UPPER ? total / 2 : total - total / 2;
}

/* Dims [N, C, d1 ..] of an image, or of a weight, that has channels last: [N, d1 .., C]; and the other way. */
TRM_WINDOW_FN trm_dims trm_channels_first(const trm_dims *dims, bool channels_last)
{
    trm_dims first = *dims;
    for (int32_t i = 1; channels_last && i < dims->n; i++) {
        first.d[i] = dims->d[i == 1 ? dims->n - 1 : i - 1];
    }
    return first;
}

TRM_WINDOW_FN trm_dims trm_channels_last(const trm_dims *dims, bool channels_last)
{
    trm_dims last = *dims;
    for (int32_t i = 1; channels_last && i < dims->n; i++) {
        last.d[i] = dims->d[i == dims->n - 1 ? 1 : i + 1];
    }
    return last;
}

/* A window's places on up to three axes as kernels see them: axes that are not there are 1 with a window of 1, first.
 */
typedef struct trm_windows {
    int32_t n;                  /* spatial axes there are */
    int64_t batch, channels_in; /* of x */
    int64_t in[TRM_MAX_SPATIAL], out[TRM_MAX_SPATIAL], kernel[TRM_MAX_SPATIAL];
    int64_t stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL], before[TRM_MAX_SPATIAL];
    int64_t in_size, out_size, kernel_size; /* products */
} trm_windows;

/* From x [N, C, ...] and y [N, M, ...] (their number of axes was checked: 3 to 5), a window's parameters and sizes. The
 * padding is that of a convolution or pool. */
TRM_WINDOW_FN void trm_windows_init(trm_windows *w, const trm_dims *x, const trm_dims *y, const int64_t *kernel,
                                    const int32_t *stride, const int32_t *dilation, const int32_t *before,
                                    trm_auto_pad auto_pad)
{
    w->n = x->n - 2;
    w->batch = x->d[0];
    w->channels_in = x->d[1];
    w->in_size = w->out_size = w->kernel_size = 1;
    const int32_t shift = TRM_MAX_SPATIAL - w->n;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        const int32_t from = i - shift;
        w->in[i] = w->out[i] = w->kernel[i] = w->stride[i] = w->dilation[i] = 1;
        w->before[i] = 0;
        if (from >= 0) {
            const trm_window axis = {kernel[from], stride[from], dilation[from], before[from], 0};
            w->in[i] = x->d[2 + from];
            w->out[i] = y->d[2 + from];
            w->kernel[i] = kernel[from];
            w->stride[i] = stride[from];
            w->dilation[i] = dilation[from];
            w->before[i] = trm_window_before(w->in[i], w->out[i], &axis, auto_pad);
        }
        w->in_size *= w->in[i];
        w->out_size *= w->out[i];
        w->kernel_size *= w->kernel[i];
    }
}

#endif
