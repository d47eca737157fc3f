/*
 * FOURIER: one output element, as the sum that defines it, in f64. The table holds cos and sin of 2 pi k / n for k = 0
 * .. n
 * - 1.
 */
#ifndef TRM_KERNELS_ELEMENT_FOURIER_H
#define TRM_KERNELS_ELEMENT_FOURIER_H

#include <math.h>

#include "kernels/element/element.h"

typedef struct trm_fourier_args {
    int64_t inner;          /* elements behind the axis, without the last one */
    int64_t n;              /* points of the transform */
    int64_t from, to;       /* points of x, of y */
    int64_t taken;          /* of x: the rest of n is 0 */
    int32_t parts;          /* of x: 1 real, 2 complex */
    int32_t out_parts;      /* of y: 1 where the result is real */
    bool inverse, mirrored; /* mirrored: x is one half of a spectrum that belongs to real numbers */
    trm_dtype dtype;
    const double *table; /* [n, 2] */
    const void *x;
    void *y;
} trm_fourier_args;

/* Points of the transform and of the output. */
static inline int64_t trm_fourier_points(const trm_fourier_params *p, int64_t from)
{
    return p->length > 0 ? p->length : p->inverse && p->onesided ? 2 * (from - 1) : from;
}

static inline int64_t trm_fourier_outputs(const trm_fourier_params *p, int64_t points)
{
    return p->onesided && !p->inverse ? points / 2 + 1 : points;
}

/* False if the call is not one these kernels know. */
static inline bool trm_fourier_args_of(const trm_kernel_call *call, trm_fourier_args *args)
{
    const trm_fourier_params *p = &call->layer->fourier;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int32_t axis = trm_element_axis(p->axis, x->dims.n), last = x->dims.n - 1;
    if (call->n_inputs != 1 || call->n_outputs != 1 || axis < 0 || axis == last || y->dims.n != x->dims.n ||
        y->dtype != x->dtype || !trm_element_is_float(x->dtype) || x->dims.d[last] < 1 || x->dims.d[last] > 2) {
        return false;
    }
    args->inner = trm_element_span(&x->dims, axis + 1, last);
    args->from = x->dims.d[axis];
    args->n = trm_fourier_points(p, args->from);
    args->to = trm_fourier_outputs(p, args->n);
    args->parts = (int32_t)x->dims.d[last];
    args->out_parts = p->inverse && p->onesided ? 1 : 2;
    args->inverse = p->inverse;
    args->mirrored = p->inverse && p->onesided;
    const int64_t most = args->mirrored ? args->n / 2 + 1 : args->n;
    args->taken = args->from < most ? args->from : most;
    args->dtype = x->dtype;
    args->table = (const double *)call->workspace;
    args->x = x->data;
    args->y = y->data;
    return args->n >= 0 && y->dims.d[axis] == args->to && y->dims.d[last] == args->out_parts;
}

/* Entry k of the table. */
TRM_ELEMENT void trm_element_twiddle(double *table, int64_t n, int64_t k)
{
    const double angle = 6.283185307179586476925 * (double)k / (double)n;
    table[2 * k] = 4 * k == n || 4 * k == 3 * n ? 0.0 : cos(angle);
    table[2 * k + 1] = 2 * k == n ? 0.0 : sin(angle);
}

/* Point k of the outputs, i counting points of y. */
TRM_ELEMENT void trm_element_fourier(const trm_fourier_args *args, int64_t i)
{
    const int64_t row = i / args->inner, outer = row / args->to, k = row - outer * args->to;
    const int64_t start = outer * args->from * args->inner + (i - row * args->inner);
    double real = 0.0, imaginary = 0.0;
    int64_t at = 0; /* j * k modulo n */
    for (int64_t j = 0; j < args->taken; j++) {
        const double c = args->table[2 * at], s = args->inverse ? args->table[2 * at + 1] : -args->table[2 * at + 1];
        const int64_t from = (start + j * args->inner) * args->parts;
        const double a = trm_element_load_f64(args->dtype, args->x, from);
        const double b = args->parts == 2 ? trm_element_load_f64(args->dtype, args->x, from + 1) : 0.0;
        /* The other half of the spectrum is the first one's conjugate: it doubles the real part. */
        const double weight = args->mirrored && j > 0 && 2 * j != args->n ? 2.0 : 1.0;
        real += weight * (a * c - b * s);
        imaginary += a * s + b * c;
        at += k;
        at -= at >= args->n ? args->n : 0;
    }
    const double scale = args->inverse ? 1.0 / (double)args->n : 1.0;
    trm_element_store_f64(args->dtype, args->y, i * args->out_parts, real * scale);
    if (args->out_parts == 2) {
        trm_element_store_f64(args->dtype, args->y, i * 2 + 1, imaginary * scale);
    }
}

#endif
