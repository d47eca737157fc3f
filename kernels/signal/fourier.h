/*
 * FOURIER: transforms of lines of n points in f64, one factor of n at a time (Stockham's order, which needs no
 * permutation): a line costs n times the sum of the factors. Many threads may share a line, with a barrier after each
 * stage. The table holds cos and sin of 2 pi k / n for k = 0 .. n - 1.
 */
#ifndef TRM_KERNELS_SIGNAL_FOURIER_H
#define TRM_KERNELS_SIGNAL_FOURIER_H

#include <math.h>

#include "kernels/element.h"
#include "kernels/kernel.h"

/* Lines that are transformed at a time, each with two buffers in the workspace; and points that take 256 MiB there. */
#define TRM_FOURIER_SLOTS  264
#define TRM_FOURIER_POINTS ((int64_t)1 << 23)

typedef struct trm_fourier_args {
    int64_t lines, inner;   /* inner: elements behind the axis, without the last one */
    int64_t n;              /* points of the transform */
    int64_t from, to;       /* points of x, of y */
    int32_t parts;          /* of x: 1 real, 2 complex */
    int32_t out_parts;      /* of y: 1 where the result is real */
    bool inverse, mirrored; /* mirrored: x is one half of a spectrum that belongs to real numbers */
    trm_dtype dtype;
    int64_t slots;
    double *table;   /* [n, 2], the workspace */
    double *buffers; /* [slots, 2, n, 2] */
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
    args->lines = trm_element_span(&x->dims, 0, axis) * args->inner;
    args->from = x->dims.d[axis];
    args->n = trm_fourier_points(p, args->from);
    args->to = trm_fourier_outputs(p, args->n);
    args->parts = (int32_t)x->dims.d[last];
    args->out_parts = p->inverse && p->onesided ? 1 : 2;
    args->inverse = p->inverse;
    args->mirrored = p->inverse && p->onesided;
    args->dtype = x->dtype;
    args->slots = args->lines < TRM_FOURIER_SLOTS ? args->lines : TRM_FOURIER_SLOTS;
    if (args->n > 0 && args->slots > TRM_FOURIER_POINTS / args->n) {
        args->slots = args->n < TRM_FOURIER_POINTS ? TRM_FOURIER_POINTS / args->n : 1;
    }
    args->table = (double *)call->workspace;
    args->buffers = args->n > 0 && args->table != NULL ? args->table + 2 * args->n : NULL;
    args->x = x->data;
    args->y = y->data;
    return args->n >= 0 && y->dims.d[axis] == args->to && y->dims.d[last] == args->out_parts;
}

static inline size_t trm_fourier_workspace(const trm_kernel_call *call)
{
    trm_fourier_args args;
    if (!trm_fourier_args_of(call, &args)) {
        return 0;
    }
    /* Of a size that does not fall when n grows and the slots become fewer. */
    const int64_t most = args.lines < TRM_FOURIER_SLOTS ? args.lines : TRM_FOURIER_SLOTS;
    const int64_t points = most > TRM_FOURIER_POINTS / (args.n + 1) ? TRM_FOURIER_POINTS : most * args.n;
    return (size_t)(args.n + 2 * (points > args.n ? points : args.n)) * 2 * sizeof(double);
}

/* Entry k of the table. */
TRM_ELEMENT void trm_element_twiddle(double *table, int64_t n, int64_t k)
{
    const double angle = 6.283185307179586476925 * (double)k / (double)n;
    table[2 * k] = 4 * k == n || 4 * k == 3 * n ? 0.0 : cos(angle);
    table[2 * k + 1] = 2 * k == n ? 0.0 : sin(angle);
}

/* Point j of a line's input, into to [2]: of a mirrored one, the conjugates of the points there are. */
TRM_ELEMENT void trm_fourier_load(const trm_fourier_args *args, int64_t line, int64_t j, double *to)
{
    const bool mirror = args->mirrored && j > args->n / 2;
    const int64_t source = mirror ? args->n - j : j, outer = line / args->inner;
    to[0] = to[1] = 0.0;
    if (source >= args->from) {
        return;
    }
    const int64_t at = ((outer * args->from + source) * args->inner + line - outer * args->inner) * args->parts;
    to[0] = trm_element_load_f64(args->dtype, args->x, at);
    if (args->parts == 2 && !(args->mirrored && (j == 0 || 2 * j == args->n))) {
        const double imaginary = trm_element_load_f64(args->dtype, args->x, at + 1);
        to[1] = mirror ? -imaginary : imaginary;
    }
}

/* Point k of a line's output. */
TRM_ELEMENT void trm_fourier_store(const trm_fourier_args *args, int64_t line, int64_t k, const double *from)
{
    const int64_t outer = line / args->inner;
    const int64_t at = ((outer * args->to + k) * args->inner + line - outer * args->inner) * args->out_parts;
    const double scale = args->inverse ? 1.0 / (double)args->n : 1.0;
    trm_element_store_f64(args->dtype, args->y, at, from[0] * scale);
    if (args->out_parts == 2) {
        trm_element_store_f64(args->dtype, args->y, at + 1, from[1] * scale);
    }
}

/* The factor of the next stage: 4, or the smallest prime. */
TRM_ELEMENT int64_t trm_fourier_factor(int64_t n)
{
    if (n % 4 == 0) {
        return 4;
    }
    for (int64_t p = 2; p * p <= n; p++) {
        if (n % p == 0) {
            return p;
        }
    }
    return n;
}

/* One stage from x to y [n, 2], elements first, first + step, ...: transforms of `length` points, `stride` of them side
 * by side, become p times as many of length / p. */
TRM_ELEMENT void trm_fourier_stage(const trm_fourier_args *args, int64_t length, int64_t stride, int64_t p,
                                   const double *x, double *y, int64_t first, int64_t step)
{
    const int64_t n = args->n, m = length / p;
    const double sign = args->inverse ? 1.0 : -1.0;
    for (int64_t i = first; i < n; i += step) {
        const int64_t row = i / stride, q = i - row * stride, k = row / p, j = row - k * p;
        double real = 0.0, imaginary = 0.0;
        int64_t turn = 0; /* r * j modulo p */
        for (int64_t r = 0; r < p; r++) {
            const double *from = x + 2 * (q + stride * (k + m * r));
            const double *w = args->table + 2 * (turn * (n / p));
            real += from[0] * w[0] - sign * from[1] * w[1];
            imaginary += sign * from[0] * w[1] + from[1] * w[0];
            turn += j;
            turn -= turn >= p ? p : 0;
        }
        const double *w = args->table + 2 * (j * k * (n / length));
        y[2 * i] = real * w[0] - sign * imaginary * w[1];
        y[2 * i + 1] = sign * real * w[1] + imaginary * w[0];
    }
}

#endif
