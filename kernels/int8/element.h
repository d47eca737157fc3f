/*
 * INT8_PRODUCT: how a call is laid out, what is made of a sum, and one element of the output. A product is a
 * convolution of rows with one position each.
 */
#ifndef TRM_KERNELS_INT8_ELEMENT_H
#define TRM_KERNELS_INT8_ELEMENT_H

#include <string.h>

#include "kernels/kernel.h"
#include "kernels/convolution/window.h"
#include "kernels/pointwise/element.h"

typedef struct trm_int8_product_args {
    trm_dims dims;        /* [N, o1, o2, o3, M]; in parts [parts, rows, 1, 1, M / parts] */
    trm_windows w;        /* batch: N */
    int64_t outputs;      /* M */
    const int8_t *x;      /* [N, in, channels_in] */
    const int8_t *weight; /* [M, kernel, channels_in] */
    const float *scale, *bias;
    const void *residual;
    void *y;
    int64_t scale_step; /* 0: one scale for all */
    int32_t parts;      /* 0: not divided */
    trm_dtype out, residual_type;
    trm_activation activation;
    float product_scale, product_inverse; /* 0: not rounded there */
    float residual_scale, out_inverse;
} trm_int8_product_args;

static inline bool trm_int8_has_dims(const trm_kernel_call *call, int32_t input, trm_dtype dtype, int64_t size)
{
    const trm_view *view = &call->inputs[input];
    return !trm_kernel_call_has(call, input) || (view->dtype == dtype && view->dims.n == 1 && view->dims.d[0] == size);
}

/* Windows of x and y; of a product those of rows. */
static inline bool trm_int8_windows_of(const trm_kernel_call *call, trm_windows *windows)
{
    const trm_int8_product_params *p = &call->layer->int8_product;
    const trm_dims *x = &call->inputs[TRM_INT8_PRODUCT_X].dims, *w = &call->inputs[TRM_INT8_PRODUCT_WEIGHT].dims;
    trm_dims whole = call->outputs[0].dims, *y = &whole;
    const int64_t one[] = {1};
    if (p->parts > 0) { /* of columns, as they were one after the other */
        if (y->n < 2 || y->d[0] != p->parts) {
            return false;
        }
        y->n--;
        memmove(y->d, y->d + 1, (size_t)y->n * sizeof(y->d[0]));
        y->d[y->n - 1] *= p->parts;
    }
    if (x->n < 1 || y->n != x->n || w->n < 2 || w->d[w->n - 1] != x->d[x->n - 1] || w->d[0] != y->d[y->n - 1]) {
        return false;
    }
    if (w->n == 2) {
        const int64_t rows = trm_element_span(x, 0, x->n - 1);
        const trm_dims from = {3, {rows, x->d[x->n - 1], 1}}, to = {3, {rows, w->d[0], 1}};
        const int32_t none[] = {0}, single[] = {1};
        trm_windows_init(windows, &from, &to, one, single, single, none, TRM_AUTO_PAD_NONE);
        return trm_element_span(y, 0, y->n - 1) == rows;
    }
    const trm_dims from = trm_channels_first(x, true), to = trm_channels_first(y, true);
    const trm_dims taps = trm_channels_first(w, true);
    if (w->n != x->n || x->n < 3 || x->n > 2 + TRM_MAX_SPATIAL || x->d[0] != y->d[0]) {
        return false;
    }
    trm_windows_init(windows, &from, &to, taps.d + 2, p->stride, p->dilation, p->before, TRM_AUTO_PAD_NONE);
    return true;
}

/* False if the call is not one these kernels know. */
static inline bool trm_int8_product_args_of(const trm_kernel_call *call, trm_int8_product_args *args)
{
    const trm_int8_product_params *p = &call->layer->int8_product;
    const trm_view *in = call->inputs, *y = &call->outputs[0];
    if (call->n_inputs <= TRM_INT8_PRODUCT_SCALE || call->n_inputs > TRM_INT8_PRODUCT_INPUT_COUNT ||
        call->n_outputs != 1 || in[TRM_INT8_PRODUCT_X].dtype != TRM_I8 || in[TRM_INT8_PRODUCT_WEIGHT].dtype != TRM_I8 ||
        y->dtype != p->out || (p->out != TRM_I8 && (!trm_element_is_float(p->out) || p->out == TRM_F64)) ||
        !trm_int8_windows_of(call, &args->w) || p->parts < 0 ||
        (p->parts > 0 && trm_kernel_call_has(call, TRM_INT8_PRODUCT_RESIDUAL))) {
        return false;
    }
    const int64_t outputs = in[TRM_INT8_PRODUCT_WEIGHT].dims.d[0];
    const bool residual = trm_kernel_call_has(call, TRM_INT8_PRODUCT_RESIDUAL);
    const trm_view *added = &in[TRM_INT8_PRODUCT_RESIDUAL];
    if (!(trm_int8_has_dims(call, TRM_INT8_PRODUCT_SCALE, TRM_F32, outputs) ||
          trm_int8_has_dims(call, TRM_INT8_PRODUCT_SCALE, TRM_F32, 1)) ||
        !trm_int8_has_dims(call, TRM_INT8_PRODUCT_BIAS, TRM_F32, outputs) ||
        (residual && (!trm_element_same_dims(&added->dims, &y->dims) || added->dtype == TRM_F64 ||
                      (added->dtype != TRM_I8 && !trm_element_is_float(added->dtype))))) {
        return false;
    }
    args->outputs = outputs;
    args->parts = p->parts;
    args->dims = (trm_dims){5, {args->w.batch, args->w.out[0], args->w.out[1], args->w.out[2], outputs}};
    if (p->parts > 0) {
        args->dims = (trm_dims){5, {p->parts, args->w.batch, 1, 1, outputs / p->parts}};
    }
    args->x = (const int8_t *)in[TRM_INT8_PRODUCT_X].data;
    args->weight = (const int8_t *)in[TRM_INT8_PRODUCT_WEIGHT].data;
    args->scale = (const float *)in[TRM_INT8_PRODUCT_SCALE].data;
    args->scale_step = in[TRM_INT8_PRODUCT_SCALE].dims.d[0] == 1 ? 0 : 1;
    args->bias =
        trm_kernel_call_has(call, TRM_INT8_PRODUCT_BIAS) ? (const float *)in[TRM_INT8_PRODUCT_BIAS].data : NULL;
    args->residual = residual ? added->data : NULL;
    args->residual_type = residual ? added->dtype : TRM_DTYPE_NONE;
    args->y = y->data;
    args->out = p->out;
    args->activation = p->activation;
    args->product_scale = p->product_scale;
    args->product_inverse = p->product_scale > 0.0f ? 1.0f / p->product_scale : 0.0f;
    args->residual_scale = p->residual_scale;
    args->out_inverse = p->out == TRM_I8 ? 1.0f / p->out_scale : 1.0f;
    return true;
}

/* The whole number from -128 to 127 that is nearest. */
TRM_ELEMENT float trm_int8_round(float v)
{
    const float whole = rintf(v);
    return whole < -128.0f ? -128.0f : whole > 127.0f ? 127.0f : whole;
}

TRM_ELEMENT void trm_int8_finish(const trm_int8_product_args *args, int64_t m, int64_t i, int32_t sum)
{
    float v = fmaf((float)sum, args->scale[m * args->scale_step], args->bias != NULL ? args->bias[m] : 0.0f);
    if (args->product_scale > 0.0f) {
        v = trm_int8_round(v * args->product_inverse) * args->product_scale;
    }
    if (args->residual_type == TRM_I8) {
        v = fmaf((float)((const int8_t *)args->residual)[i], args->residual_scale, v);
    } else if (args->residual != NULL) {
        v += trm_element_load_f32(args->residual_type, args->residual, i);
    }
    v = trm_activate_f32(args->activation, v);
    if (args->out == TRM_I8) {
        ((int8_t *)args->y)[i] = (int8_t)trm_int8_round(v * args->out_inverse);
    } else {
        trm_element_store_f32(args->out, args->y, i, v);
    }
}

TRM_ELEMENT void trm_element_int8_product(const trm_int8_product_args *args, const int64_t *at, int64_t i)
{
    const trm_windows *w = &args->w;
    const int64_t own[] = {at[1], 0, 0, 0};
    const int64_t m = args->parts > 0 ? at[0] * args->dims.d[4] + at[4] : at[4], channels = w->channels_in;
    at = args->parts > 0 ? own : at;
    const int64_t z0 = at[1] * w->stride[0] - w->before[0], y0 = at[2] * w->stride[1] - w->before[1];
    const int64_t x0 = at[3] * w->stride[2] - w->before[2];
    const int8_t *tap = args->weight + m * w->kernel_size * channels;
    int32_t sum = 0;
    for (int64_t t = 0; t < w->kernel_size; t++, tap += channels) {
        const int64_t row = t / w->kernel[2], plane = row / w->kernel[1];
        const int64_t z = z0 + plane * w->dilation[0], y = y0 + (row - plane * w->kernel[1]) * w->dilation[1];
        const int64_t x = x0 + (t - row * w->kernel[2]) * w->dilation[2];
        if (z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1] && x >= 0 && x < w->in[2]) {
            const int8_t *from = args->x + (((at[0] * w->in[0] + z) * w->in[1] + y) * w->in[2] + x) * channels;
            for (int64_t c = 0; c < channels; c++) {
                sum += (int32_t)from[c] * (int32_t)tap[c];
            }
        }
    }
    trm_int8_finish(args, m, i, sum);
}

#endif
