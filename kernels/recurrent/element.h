/* RECURRENT: the layout of a call, activations, and what a cell makes of its gates. In f64 wherever it runs. */
#ifndef TRM_KERNELS_RECURRENT_ELEMENT_H
#define TRM_KERNELS_RECURRENT_ELEMENT_H

#include <math.h>

#include "kernels/element.h"
#include "kernels/kernel.h"

typedef struct trm_recurrent_args {
    int64_t steps, batch, in, hidden, directions, gates;          /* rows of gates: gates * hidden */
    const void *x, *w, *r, *bias, *first_h, *first_c, *peepholes; /* NULL where not given */
    const int32_t *lengths;                                       /* or NULL */
    void *y, *last_h, *last_c;
    trm_dtype dtype;
    trm_recurrent_params p;
} trm_recurrent_args;

/* False if the call is not one these kernels know; dims were checked by the rule. */
static inline bool trm_recurrent_args_of(const trm_kernel_call *call, trm_recurrent_args *args)
{
    const trm_recurrent_params *p = &call->layer->recurrent;
    const bool lstm = p->cell == TRM_RECURRENT_LSTM;
    if (call->n_inputs < 3 || call->n_inputs > 8 || call->n_outputs != (lstm ? 3 : 2) || call->inputs[0].dims.n != 3 ||
        call->inputs[1].dims.n != 3 || call->outputs[0].dims.n != 4 || !trm_element_is_float(call->inputs[0].dtype)) {
        return false;
    }
    const void *data[8] = {NULL};
    for (int32_t i = 0; i < call->n_inputs; i++) {
        const trm_dtype expected = i == 4 ? TRM_I32 : call->inputs[0].dtype;
        if (call->inputs[i].dtype == expected) {
            data[i] = call->inputs[i].data;
        } else if (call->inputs[i].dtype != TRM_DTYPE_NONE) {
            return false;
        }
    }
    args->steps = call->inputs[0].dims.d[0];
    args->batch = call->inputs[0].dims.d[1];
    args->in = call->inputs[0].dims.d[2];
    args->hidden = p->hidden;
    args->directions = call->inputs[1].dims.d[0];
    args->gates = lstm ? 4 : p->cell == TRM_RECURRENT_GRU ? 3 : 1;
    args->x = data[0];
    args->w = data[1];
    args->r = data[2];
    args->bias = data[3];
    args->lengths = (const int32_t *)data[4];
    args->first_h = data[5];
    args->first_c = lstm ? data[6] : NULL;
    args->peepholes = lstm ? data[7] : NULL;
    args->y = call->outputs[0].data;
    args->last_h = call->outputs[1].data;
    args->last_c = lstm ? call->outputs[2].data : NULL;
    args->dtype = call->inputs[0].dtype;
    args->p = *p;
    return true;
}

/* Steps of batch entry b. */
TRM_ELEMENT int64_t trm_recurrent_length(const trm_recurrent_args *args, int64_t b)
{
    if (args->lengths == NULL) {
        return args->steps;
    }
    const int64_t length = args->lengths[b];
    return length < 0 ? 0 : length < args->steps ? length : args->steps;
}

/* Where in the sequence step s of a direction is. */
TRM_ELEMENT int64_t trm_recurrent_place(const trm_recurrent_args *args, int64_t direction, int64_t length, int64_t s)
{
    const bool reverse = args->p.direction == TRM_RECURRENT_REVERSE || direction == 1;
    return reverse ? length - 1 - s : s;
}

/* Activation `index` of a direction's own, of the clipped x. */
TRM_ELEMENT double trm_recurrent_activate(const trm_recurrent_args *args, int64_t direction, int32_t index, double x)
{
    const int32_t own = args->p.cell == TRM_RECURRENT_RNN ? 1 : args->p.cell == TRM_RECURRENT_GRU ? 2 : 3;
    const int32_t at = (int32_t)direction * own + index;
    const double alpha = (double)args->p.alpha[at], beta = (double)args->p.beta[at], clip = (double)args->p.clip;
    if (clip > 0.0) {
        x = x > clip ? clip : x < -clip ? -clip : x;
    }
    switch (args->p.activations[at]) {
    case TRM_RECURRENT_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case TRM_RECURRENT_TANH:
        return tanh(x);
    case TRM_RECURRENT_RELU:
        return x < 0.0 ? 0.0 : x;
    case TRM_RECURRENT_AFFINE:
        return alpha * x + beta;
    case TRM_RECURRENT_LEAKY_RELU:
        return x < 0.0 ? alpha * x : x;
    case TRM_RECURRENT_THRESHOLDED_RELU:
        return x >= alpha ? x : 0.0;
    case TRM_RECURRENT_SCALED_TANH:
        return alpha * tanh(beta * x);
    case TRM_RECURRENT_HARD_SIGMOID: {
        const double v = alpha * x + beta;
        return v < 0.0 ? 0.0 : v > 1.0 ? 1.0 : v;
    }
    case TRM_RECURRENT_ELU:
        return x < 0.0 ? alpha * (exp(x) - 1.0) : x;
    case TRM_RECURRENT_SOFTSIGN:
        return x / (1.0 + fabs(x));
    default: /* SOFTPLUS */
        return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x)));
    }
}

/* Both biases of row `row` of the gates, or the one of the recurrent side (GRU keeps them apart). */
TRM_ELEMENT double trm_recurrent_bias(const trm_recurrent_args *args, int64_t direction, int64_t row, bool x, bool h)
{
    const int64_t rows = args->gates * args->hidden, at = direction * 2 * rows + row;
    double bias = 0.0;
    if (args->bias != NULL) {
        bias += x ? trm_element_load_f64(args->dtype, args->bias, at) : 0.0;
        bias += h ? trm_element_load_f64(args->dtype, args->bias, at + rows) : 0.0;
    }
    return bias;
}

TRM_ELEMENT double trm_recurrent_peephole(const trm_recurrent_args *args, int64_t direction, int32_t which, int64_t j)
{
    return args->peepholes == NULL
               ? 0.0
               : trm_element_load_f64(args->dtype, args->peepholes, (direction * 3 + which) * args->hidden + j);
}

/* The new h of unit j from its gates' sums (biases in them); *c is the cell's state. */
TRM_ELEMENT double trm_recurrent_lstm(const trm_recurrent_args *args, int64_t direction, int64_t j, const double *sums,
                                      double *c)
{
    const double i =
        trm_recurrent_activate(args, direction, 0, sums[0] + trm_recurrent_peephole(args, direction, 0, j) * *c);
    const double f =
        args->p.input_forget
            ? 1.0 - i
            : trm_recurrent_activate(args, direction, 0, sums[2] + trm_recurrent_peephole(args, direction, 2, j) * *c);
    *c = f * *c + i * trm_recurrent_activate(args, direction, 1, sums[3]);
    const double o =
        trm_recurrent_activate(args, direction, 0, sums[1] + trm_recurrent_peephole(args, direction, 1, j) * *c);
    return o * trm_recurrent_activate(args, direction, 2, *c);
}

#endif
