/* QUANTIZE and DEQUANTIZE: one element. */
#ifndef TRM_KERNELS_POINTWISE_QUANTIZE_H
#define TRM_KERNELS_POINTWISE_QUANTIZE_H

#include "kernels/kernel.h"
#include "kernels/small_types.h"

typedef struct trm_quantize_args {
    /* The scale of element i is at (i / outer_step * scales + i / inner % n / block) * inner_scales + i % inner_scales;
     * one scale for all: scales 0. */
    int64_t outer_step, n, inner, block, scales, inner_scales;
    trm_dtype from, scale_type, to;
    bool unsaturated;
    const void *x, *scale, *zero;
    void *y;
} trm_quantize_args;

TRM_ELEMENT bool trm_quantize_is_target(trm_dtype dtype)
{
    return (dtype >= TRM_I8 && dtype <= TRM_U16) || trm_is_small_integer(dtype) ||
           (trm_is_small_float(dtype) && dtype != TRM_F8E8M0);
}

/* Where scale stands beside x. False if it does not fit. */
static inline bool trm_quantize_places(const trm_quantize_params *p, const trm_dims *x, const trm_dims *scale,
                                       trm_quantize_args *args)
{
    args->outer_step = args->n = args->inner = args->block = args->inner_scales = 1;
    args->scales = 0;
    if (p->block_size <= 0 && (scale->n == 0 || (scale->n == 1 && scale->d[0] == 1))) {
        return true;
    }
    const int32_t axis = trm_element_axis(p->axis, x->n);
    if (axis < 0) {
        return false;
    }
    args->n = x->d[axis];
    args->inner = trm_element_span(x, axis + 1, x->n);
    args->outer_step = args->n * args->inner;
    if (p->block_size <= 0) {
        args->scales = 1; /* the same for every outer position: taken out below */
        args->outer_step = INT64_MAX;
        return scale->n == 1 && scale->d[0] == x->d[axis];
    }
    args->block = p->block_size;
    args->scales = (args->n + args->block - 1) / args->block;
    args->inner_scales = args->inner;
    bool fits = scale->n == x->n;
    for (int32_t i = 0; fits && i < x->n; i++) {
        fits = scale->d[i] == (i == axis ? args->scales : x->d[i]);
    }
    return fits;
}

static inline bool trm_quantize_args_of(const trm_kernel_call *call, trm_quantize_args *args)
{
    const trm_quantize_params *p = &call->layer->quantize;
    const bool quantize = call->layer->kind == TRM_LAYER_QUANTIZE;
    const trm_view *x = &call->inputs[0], *scale = &call->inputs[1], *y = &call->outputs[0];
    const trm_dtype small = quantize ? y->dtype : x->dtype;
    const bool zero = trm_kernel_call_has(call, 2);
    if (call->n_inputs < 2 || call->n_inputs > 3 || call->n_outputs != 1 ||
        !trm_element_is_float(quantize ? x->dtype : y->dtype) ||
        !(trm_quantize_is_target(small) || (!quantize && (small == TRM_I32 || small == TRM_F8E8M0))) ||
        !(trm_element_is_float(scale->dtype) || scale->dtype == TRM_F8E8M0) ||
        !trm_element_same_dims(&x->dims, &y->dims) ||
        (zero && (call->inputs[2].dtype != small || !trm_element_same_dims(&call->inputs[2].dims, &scale->dims)))) {
        return false;
    }
    args->from = x->dtype;
    args->scale_type = scale->dtype;
    args->to = y->dtype;
    args->unsaturated = p->unsaturated;
    args->x = x->data;
    args->scale = scale->data;
    args->zero = zero ? call->inputs[2].data : NULL;
    args->y = y->data;
    return trm_quantize_places(p, &x->dims, &scale->dims, args);
}

TRM_ELEMENT int64_t trm_quantize_scale_at(const trm_quantize_args *args, int64_t i)
{
    if (args->scales == 0) {
        return 0;
    }
    const int64_t row = i / args->inner;
    return (i / args->outer_step * args->scales + row % args->n / args->block) * args->inner_scales +
           (args->inner_scales == 1 ? 0 : i - row * args->inner);
}

TRM_ELEMENT void trm_element_quantize(const trm_quantize_args *args, int64_t i)
{
    const int64_t at = trm_quantize_scale_at(args, i);
    double value;
    if (args->from == TRM_F64 || args->scale_type == TRM_F64) {
        value = trm_wide_f64(trm_wide_load(args->from, args->x, i)) /
                trm_wide_f64(trm_wide_load(args->scale_type, args->scale, at));
    } else {
        value = (double)((float)trm_wide_load(args->from, args->x, i).f /
                         (float)trm_wide_load(args->scale_type, args->scale, at).f);
    }
    const double zero = args->zero != NULL ? trm_wide_f64(trm_wide_load(args->to, args->zero, at)) : 0.0;
    if (trm_is_small_float(args->to)) {
        ((uint8_t *)args->y)[i] =
            trm_small_float_encode(args->to, value + zero, args->unsaturated, TRM_CAST_ROUND_NEAREST);
        return;
    }
    const double low = trm_integer_low(args->to), high = trm_integer_high(args->to);
    const int64_t whole = trm_saturate_i64(rint(value) + zero, low, high);
    trm_wide_store_low_bits(args->to, args->y, i, whole);
}

TRM_ELEMENT void trm_element_dequantize(const trm_quantize_args *args, int64_t i)
{
    const int64_t at = trm_quantize_scale_at(args, i);
    const double zero = args->zero != NULL ? trm_wide_f64(trm_wide_load(args->from, args->zero, at)) : 0.0;
    const double value = trm_wide_f64(trm_wide_load(args->from, args->x, i)) - zero;
    const double scale = trm_wide_f64(trm_wide_load(args->scale_type, args->scale, at));
    if (args->to == TRM_F64) {
        ((double *)args->y)[i] = value * scale;
    } else {
        trm_element_store_f32(args->to, args->y, i, (float)value * (float)scale);
    }
}

#endif
