/* RESIZE: one element of the output, as a weighted sum over taps of every axis that changes; coordinates in f64. */
#ifndef TRM_KERNELS_VISION_RESIZE_H
#define TRM_KERNELS_VISION_RESIZE_H

#include <math.h>

#include "kernels/element.h"
#include "kernels/kernel.h"

typedef struct trm_resize_args {
    trm_dims dims; /* of the output */
    trm_dims from; /* of x */
    int64_t strides[TRM_MAX_DIMS];
    double scale[TRM_MAX_DIMS];                                /* output to input, of the axes in `axes` */
    double numerator[TRM_MAX_DIMS], denominator[TRM_MAX_DIMS]; /* the same as a fraction: of sizes it is exact */
    int32_t axes[TRM_MAX_DIMS];                                /* that are resampled */
    int32_t roi_at[TRM_MAX_DIMS];
    int32_t n, n_roi; /* axes; half of the roi's values */
    const void *x;
    const float *roi; /* or NULL */
    void *y;
    trm_dtype dtype;
    int32_t size; /* of an element */
    trm_resize_params p;
} trm_resize_args;

/* Output to input along an axis. */
typedef struct trm_resize_scale {
    double value, numerator, denominator; /* the value as a fraction: of sizes, their numbers */
} trm_resize_scale;

/* Sizes that follow from scales or sizes (one of them NULL) for the axes of `p`, in their order; other axes stay.
 * scale [axes] is filled in. False if a number makes no sense. */
static inline bool trm_resize_sizes(const trm_resize_params *p, const trm_dims *x, const float *scales,
                                    const int64_t *sizes, trm_dims *out, trm_resize_scale *scale)
{
    int32_t count = 0;
    trm_resize_scale common = {0.0, 0.0, 1.0};
    *out = *x;
    for (int32_t i = 0; i < x->n; i++) {
        if ((p->axes >> i & 1) == 0) {
            continue;
        }
        if (scales != NULL) {
            const double size = (double)floorf(scales[count] * (float)x->d[i]); /* as ONNX's shape inference does */
            if (!(scales[count] > 0.0f) || !(size < 0x1p62)) {
                return false;
            }
            scale[count].value = scale[count].numerator = (double)scales[count];
            scale[count].denominator = 1.0;
            out->d[i] = (int64_t)size;
        } else {
            if (sizes[count] < 0) {
                return false;
            }
            scale[count].numerator = x->d[i] == 0 ? 1.0 : (double)sizes[count];
            scale[count].denominator = x->d[i] == 0 ? 1.0 : (double)x->d[i];
            scale[count].value = scale[count].numerator / scale[count].denominator;
            out->d[i] = sizes[count];
            const bool better = p->aspect == TRM_RESIZE_NOT_LARGER ? scale[count].value < common.value
                                                                   : scale[count].value > common.value;
            common = count == 0 || better ? scale[count] : common;
        }
        if (x->d[i] == 0 && out->d[i] != 0 && (scales != NULL || p->aspect == TRM_RESIZE_STRETCH)) {
            return false; /* there is nothing that could repeat */
        }
        count++;
    }
    for (int32_t i = 0, k = 0; sizes != NULL && p->aspect != TRM_RESIZE_STRETCH && i < x->n; i++) {
        if (p->axes >> i & 1) {
            scale[k++] = common;
            out->d[i] = (int64_t)(common.numerator * (double)x->d[i] / common.denominator + 0.5);
        }
    }
    return true;
}

/* Number of axes in the bits of `axes` below `n`. */
TRM_ELEMENT int32_t trm_resize_count(uint32_t axes, int32_t n)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        count += (int32_t)(axes >> i & 1);
    }
    return count;
}

/* False if the call is not one these kernels know. */
static inline bool trm_resize_args_of(const trm_kernel_call *call, trm_resize_args *args)
{
    const trm_resize_params *p = &call->layer->resize;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int32_t count = trm_resize_count(p->axes, x->dims.n);
    const bool by_scales = trm_kernel_call_has(call, 2), by_sizes = trm_kernel_call_has(call, 3);
    const bool roi = trm_kernel_call_has(call, 1);
    if (call->n_inputs > 4 || call->n_outputs != 1 || y->dtype != x->dtype || y->dims.n != x->dims.n ||
        by_scales == by_sizes || (by_scales && call->inputs[2].dtype != TRM_F32) ||
        (by_sizes && call->inputs[3].dtype != TRM_I64) || trm_dtype_size(x->dtype) == 0 ||
        (p->mode != TRM_RESIZE_NEAREST && !trm_element_is_float(x->dtype) && !trm_element_is_integer(x->dtype)) ||
        (roi && (call->inputs[1].dtype != TRM_F32 || trm_dims_count(&call->inputs[1].dims) != 2 * (int64_t)count))) {
        return false;
    }
    args->dims = y->dims;
    args->from = x->dims;
    trm_element_strides(&x->dims, args->strides);
    args->x = x->data;
    args->y = y->data;
    args->roi = roi ? (const float *)call->inputs[1].data : NULL;
    args->n_roi = count;
    args->dtype = x->dtype;
    args->size = (int32_t)trm_dtype_size(x->dtype);
    args->p = *p;
    args->n = 0;
    trm_resize_scale scale[TRM_MAX_DIMS];
    const float *scales = by_scales ? (const float *)call->values[2] : NULL;
    const int64_t *sizes = by_sizes ? (const int64_t *)call->values[3] : NULL;
    if (scales == NULL && sizes == NULL) {
        return true; /* a question about the call */
    }
    trm_dims out;
    if (!trm_resize_sizes(p, &x->dims, scales, sizes, &out, scale)) {
        return false;
    }
    for (int32_t i = 0, k = 0; i < x->dims.n; i++) {
        if (p->axes >> i & 1) {
            /* At a scale of 1 every position is one of the input's. */
            if (scale[k].value != 1.0 || p->coordinates == TRM_RESIZE_CROP) {
                args->axes[args->n] = i;
                args->roi_at[args->n] = k;
                args->numerator[args->n] = scale[k].numerator;
                args->denominator[args->n] = scale[k].denominator;
                args->scale[args->n++] = scale[k].value;
            }
            k++;
        }
    }
    return true;
}

/* Where output position `at` of axis k lies in the input. Of sizes, x / scale is x * from / to, which is exact where it
 * is a whole number or half of one; dividing by the rounded scale misses some of these, and the nearest with them. */
TRM_ELEMENT double trm_resize_coordinate(const trm_resize_args *args, int32_t k, int64_t at)
{
    const int32_t axis = args->axes[k];
    const double in = (double)args->from.d[axis], x = (double)at;
    const double numerator = args->numerator[k], denominator = args->denominator[k];
    const double out = (double)args->dims.d[axis]; /* also where a scale would make it a fraction, as in torch */
    switch (args->p.coordinates) {
    case TRM_RESIZE_ALIGN_CORNERS:
        return out == 1.0 ? 0.0 : x * (in - 1.0) / (out - 1.0);
    case TRM_RESIZE_ASYMMETRIC:
        return x * denominator / numerator;
    case TRM_RESIZE_HALF_PIXEL_FOR_NN:
        return (x + 0.5) * denominator / numerator;
    case TRM_RESIZE_PYTORCH_HALF_PIXEL:
        return out == 1.0 ? 0.0 : (x + 0.5) * denominator / numerator - 0.5;
    case TRM_RESIZE_HALF_PIXEL_SYMMETRIC:
        return in / 2.0 * (1.0 - out * denominator / (numerator * in)) + (x + 0.5) * denominator / numerator - 0.5;
    case TRM_RESIZE_CROP: {
        const double start = args->roi != NULL ? (double)args->roi[args->roi_at[k]] : 0.0;
        const double end = args->roi != NULL ? (double)args->roi[args->n_roi + args->roi_at[k]] : 1.0;
        return out == 1.0 ? (end - start) * (in - 1.0) / 2.0 + start * (in - 1.0)
                          : x * (end - start) * (in - 1.0) / (out - 1.0) + start * (in - 1.0);
    }
    default:
        return (x + 0.5) * denominator / numerator - 0.5;
    }
}

/* The taps of one axis around a coordinate: positions base + first .. base + first + count - 1. */
typedef struct trm_resize_taps {
    double ratio; /* of the coordinate behind base, in 0 .. 1, 0 excluded */
    double width; /* scale of distances: below 1 with antialias */
    double sum;   /* of weights that the weights are divided by */
    int64_t base, size;
    int64_t first, count;
} trm_resize_taps;

TRM_ELEMENT double trm_resize_weight(const trm_resize_args *args, const trm_resize_taps *taps, int64_t k)
{
    const int64_t at = taps->base + taps->first + k;
    if (args->p.exclude_outside && (at < 0 || at >= taps->size)) {
        return 0.0;
    }
    const double d = fabs(((double)(taps->first + k) - taps->ratio) * taps->width);
    if (args->p.mode == TRM_RESIZE_LINEAR) {
        return d < 1.0 ? 1.0 - d : 0.0;
    }
    const double a = (double)args->p.cubic_a;
    return d <= 1.0  ? ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
           : d < 2.0 ? ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
                     : 0.0;
}

TRM_ELEMENT void trm_resize_taps_init(const trm_resize_args *args, int32_t k, double x, trm_resize_taps *taps)
{
    const double above = ceil(x);
    taps->base = (int64_t)above - 1;
    taps->ratio = x - (above - 1.0);
    taps->size = args->from.d[args->axes[k]];
    taps->width = args->p.antialias && args->scale[k] < 1.0 ? args->scale[k] : 1.0;
    const double reach = args->p.mode == TRM_RESIZE_LINEAR ? 1.0 : 2.0;
    taps->first = (int64_t)floor(-reach / taps->width) + 1;
    taps->count = 2 - 2 * taps->first;
    taps->sum = 1.0;
    if (args->p.antialias || args->p.exclude_outside) {
        double sum = 0.0;
        for (int64_t i = 0; i < taps->count; i++) {
            sum += trm_resize_weight(args, taps, i);
        }
        taps->sum = sum;
    }
}

/* The position nearest to a coordinate. */
TRM_ELEMENT int64_t trm_resize_nearest_to(trm_resize_nearest nearest, double x)
{
    const double below = floor(x), rest = x - below;
    switch (nearest) {
    case TRM_RESIZE_ROUND_PREFER_FLOOR:
        return (int64_t)below + (rest > 0.5);
    case TRM_RESIZE_ROUND_PREFER_CEIL:
        return (int64_t)below + (rest >= 0.5);
    case TRM_RESIZE_FLOOR:
        return (int64_t)below;
    default:
        return (int64_t)ceil(x);
    }
}

TRM_ELEMENT int64_t trm_resize_clamp(int64_t at, int64_t size)
{
    return at < 0 ? 0 : at >= size ? size - 1 : at;
}

TRM_ELEMENT double trm_resize_load(const trm_resize_args *args, int64_t i)
{
    return trm_element_is_integer(args->dtype) ? (double)trm_element_load_i64(args->dtype, args->x, i)
                                               : trm_element_load_f64(args->dtype, args->x, i);
}

/* Integers take the whole part, within the range of short types. */
TRM_ELEMENT void trm_resize_store(const trm_resize_args *args, int64_t i, double value)
{
    if (!trm_element_is_integer(args->dtype)) {
        trm_element_store_f64(args->dtype, args->y, i, value);
        return;
    }
    const double low = args->dtype == TRM_I8 ? -128.0 : args->dtype == TRM_U8 ? 0.0 : -0x1p62;
    const double high = args->dtype == TRM_I8 ? 127.0 : args->dtype == TRM_U8 ? 255.0 : 0x1p62;
    trm_element_store_i64(args->dtype, args->y, i, (int64_t)(value < low ? low : value > high ? high : value));
}

TRM_ELEMENT void trm_element_resize(const trm_resize_args *args, const int64_t *at, int64_t i)
{
    trm_resize_taps taps[TRM_MAX_DIMS];
    int64_t tap[TRM_MAX_DIMS], fixed = 0;
    for (int32_t axis = 0; axis < args->dims.n; axis++) {
        fixed += at[axis] * args->strides[axis];
    }
    for (int32_t k = 0; k < args->n; k++) {
        const int32_t axis = args->axes[k];
        const double x = trm_resize_coordinate(args, k, at[axis]);
        fixed -= at[axis] * args->strides[axis];
        if (args->p.coordinates == TRM_RESIZE_CROP && (x < 0.0 || x > (double)(args->from.d[axis] - 1))) {
            trm_resize_store(args, i, (double)args->p.extrapolation);
            return;
        }
        if (args->p.mode == TRM_RESIZE_NEAREST) {
            fixed +=
                trm_resize_clamp(trm_resize_nearest_to(args->p.nearest, x), args->from.d[axis]) * args->strides[axis];
        } else {
            trm_resize_taps_init(args, k, x, &taps[k]);
            tap[k] = 0;
        }
    }
    if (args->p.mode == TRM_RESIZE_NEAREST) {
        trm_element_move(args->size, args->y, i, args->x, fixed);
        return;
    }
    double sum = 0.0;
    for (int32_t k = 0; k >= 0;) {
        int64_t from = fixed;
        double weight = 1.0;
        for (int32_t j = 0; j < args->n; j++) {
            const int64_t position = taps[j].base + taps[j].first + tap[j];
            weight *= trm_resize_weight(args, &taps[j], tap[j]) / taps[j].sum;
            from += trm_resize_clamp(position, taps[j].size) * args->strides[args->axes[j]];
        }
        if (weight != 0.0) {
            sum += weight * trm_resize_load(args, from);
        }
        for (k = args->n - 1; k >= 0; k--) { /* the next combination of taps */
            if (++tap[k] < taps[k].count) {
                break;
            }
            tap[k] = 0;
        }
    }
    trm_resize_store(args, i, sum);
}

#endif
