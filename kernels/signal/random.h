/* RANDOM: one element, from the seed and its position. */
#ifndef TRM_KERNELS_SIGNAL_RANDOM_H
#define TRM_KERNELS_SIGNAL_RANDOM_H

#include "kernels/kernel.h"
#include "kernels/small_types.h"
#include "kernels/sampling/random.h"

typedef struct trm_random_args {
    trm_random_op op;
    trm_dtype from, to;
    double a, b;
    uint64_t seed;
    int64_t classes, samples; /* MULTINOMIAL */
    const void *x;
    void *y;
} trm_random_args;

/* False if the call is not one these kernels know. */
static inline bool trm_random_args_of(const trm_kernel_call *call, trm_random_args *args)
{
    const trm_random_params *p = &call->layer->random;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const bool shaped = p->op == TRM_RANDOM_UNIFORM || p->op == TRM_RANDOM_NORMAL;
    if (call->n_inputs != 1 || call->n_outputs != 1 || y->dtype != p->to || trm_dtype_size(y->dtype) == 0 ||
        (!shaped && !trm_element_is_float(x->dtype)) || (shaped && !trm_element_is_float(y->dtype)) ||
        (p->op == TRM_RANDOM_MULTINOMIAL && (x->dims.n != 2 || y->dims.n != 2 || y->dims.d[1] != p->samples)) ||
        (p->op == TRM_RANDOM_BERNOULLI && !trm_element_same_dims(&x->dims, &y->dims))) {
        return false;
    }
    args->op = p->op;
    args->from = x->dtype;
    args->to = y->dtype;
    args->a = (double)p->a;
    args->b = (double)p->b;
    args->seed = p->seed;
    args->classes = p->op == TRM_RANDOM_MULTINOMIAL ? x->dims.d[1] : 0;
    args->samples = p->samples;
    args->x = x->data;
    args->y = y->data;
    return true;
}

/* The first class whose share of all, added to those before it, passes a random number. */
TRM_ELEMENT int64_t trm_random_class(const trm_random_args *args, int64_t i)
{
    const int64_t start = i / args->samples * args->classes;
    double largest = (double)-INFINITY, sum = 0.0;
    for (int64_t c = 0; c < args->classes; c++) {
        largest = fmax(largest, trm_element_load_f64(args->from, args->x, start + c));
    }
    for (int64_t c = 0; c < args->classes; c++) {
        sum += exp(trm_element_load_f64(args->from, args->x, start + c) - largest);
    }
    double left = trm_random_uniform(args->seed, (uint64_t)i) * sum;
    for (int64_t c = 0; c + 1 < args->classes; c++) {
        left -= exp(trm_element_load_f64(args->from, args->x, start + c) - largest);
        if (left < 0.0) {
            return c;
        }
    }
    return args->classes - 1;
}

TRM_ELEMENT void trm_element_random(const trm_random_args *args, int64_t i)
{
    trm_wide w = {true, false, 0.0, 0};
    if (args->op == TRM_RANDOM_UNIFORM) {
        w.f = args->a + (args->b - args->a) * trm_random_uniform(args->seed, (uint64_t)i);
    } else if (args->op == TRM_RANDOM_NORMAL) { /* Box and Muller */
        const double u = 1.0 - trm_random_uniform(args->seed, 2 * (uint64_t)i);
        const double v = trm_random_uniform(args->seed, 2 * (uint64_t)i + 1);
        w.f = args->a + args->b * sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
    } else if (args->op == TRM_RANDOM_BERNOULLI) {
        w.f = trm_random_uniform(args->seed, (uint64_t)i) < trm_element_load_f64(args->from, args->x, i) ? 1.0 : 0.0;
    } else {
        w.is_float = false;
        w.i = trm_random_class(args, i);
    }
    trm_wide_store(args->to, args->y, i, w, false, TRM_CAST_ROUND_NEAREST);
}

#endif
