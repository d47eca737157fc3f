/*
 * SHORT_CONVOLUTION and GATED_DELTA: what a call has, for the kernels of both backends.
 *
 * Sequence s has tokens starts[s] .. starts[s + 1] - 1 of the step, the last ones of its lengths[s]. It reads slot
 * slots[2 s] and writes slot slots[2 s + 1]; one without tokens may have any.
 */
#ifndef TRM_KERNELS_DELTA_DELTA_H
#define TRM_KERNELS_DELTA_DELTA_H

#include "kernels/element.h"
#include "kernels/kernel.h"

/* The sequences of a step, and their slots of a state. */
typedef struct trm_delta_sequences {
    int64_t n;
    const int32_t *starts, *lengths, *slots;
} trm_delta_sequences;

typedef struct trm_short_convolution_args {
    int64_t tokens, channels, taps, places;
    trm_delta_sequences sequences;
    trm_dtype dtype;
    trm_activation activation;
    const void *x;      /* [tokens, channels] */
    const void *weight; /* [channels, taps] */
    const void *bias;   /* [channels] or NULL */
    void *cache;        /* [slots, places, channels] */
    void *y;            /* [tokens, channels] */
} trm_short_convolution_args;

typedef struct trm_gated_delta_args {
    int64_t tokens, key_heads, heads, key_dim, value_dim, places;
    trm_delta_sequences sequences;
    trm_dtype dtype;
    float eps;
    const void *q, *k;           /* [tokens, key_heads, key_dim] */
    const void *v;               /* [tokens, heads, value_dim] */
    const void *a, *b;           /* [tokens, heads] */
    const float *a_log, *a_bias; /* [heads] */
    float *state;                /* [slots, places, heads, key_dim, value_dim] */
    void *y;                     /* [tokens, heads, value_dim] */
} trm_gated_delta_args;

static inline bool trm_delta_is_float(const trm_view *view, trm_dtype dtype)
{
    return view->dtype == dtype && (dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16);
}

/* Starts, lengths and slots are three inputs from `first` on. */
static inline bool trm_delta_sequences_of(const trm_kernel_call *call, int32_t first, trm_delta_sequences *sequences)
{
    const trm_view *starts = &call->inputs[first];
    sequences->n = starts->dims.d[0] - 1;
    sequences->starts = (const int32_t *)starts->data;
    sequences->lengths = (const int32_t *)call->inputs[first + 1].data;
    sequences->slots = (const int32_t *)call->inputs[first + 2].data;
    bool fits = starts->dims.n == 1 && sequences->n >= 0;
    for (int32_t i = 0; i < 3; i++) {
        const trm_view *view = &call->inputs[first + i];
        fits = fits && view->dtype == TRM_I32 && view->dims.n == (i == 2 ? 2 : 1) &&
               view->dims.d[0] == sequences->n + (i == 0);
    }
    return fits;
}

/* False if the call is not one these kernels know; dims were checked by the rule. */
static inline bool trm_short_convolution_args_of(const trm_kernel_call *call, trm_short_convolution_args *args)
{
    const trm_view *x = &call->inputs[TRM_SHORT_CONVOLUTION_X], *weight = &call->inputs[TRM_SHORT_CONVOLUTION_WEIGHT];
    const trm_view *cache = &call->inputs[TRM_SHORT_CONVOLUTION_CACHE], *y = &call->outputs[0];
    const bool has_bias = trm_kernel_call_has(call, TRM_SHORT_CONVOLUTION_BIAS);
    if (call->n_inputs < TRM_SHORT_CONVOLUTION_BIAS || call->n_outputs != 1 || x->dims.n != 2 || weight->dims.n != 2 ||
        cache->dims.n != 3 || !trm_delta_is_float(x, x->dtype) || !trm_delta_is_float(weight, x->dtype) ||
        !trm_delta_is_float(cache, x->dtype) || !trm_delta_is_float(y, x->dtype) ||
        (has_bias && !trm_delta_is_float(&call->inputs[TRM_SHORT_CONVOLUTION_BIAS], x->dtype))) {
        return false;
    }
    args->tokens = x->dims.d[0];
    args->channels = x->dims.d[1];
    args->taps = weight->dims.d[1];
    args->places = cache->dims.d[1];
    args->dtype = x->dtype;
    args->activation = call->layer->short_convolution.activation;
    args->x = x->data;
    args->weight = weight->data;
    args->bias = has_bias ? call->inputs[TRM_SHORT_CONVOLUTION_BIAS].data : NULL;
    args->cache = cache->data;
    args->y = y->data;
    return trm_delta_sequences_of(call, TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS, &args->sequences);
}

/* The same. */
static inline bool trm_gated_delta_args_of(const trm_kernel_call *call, trm_gated_delta_args *args)
{
    const trm_view *k = &call->inputs[TRM_GATED_DELTA_K], *v = &call->inputs[TRM_GATED_DELTA_V];
    const trm_view *state = &call->inputs[TRM_GATED_DELTA_STATE], *y = &call->outputs[0];
    if (call->n_inputs != TRM_GATED_DELTA_INPUT_COUNT || call->n_outputs != 1 || k->dims.n != 3 || v->dims.n != 3 ||
        state->dims.n != 5 || state->dtype != TRM_F32 || !trm_delta_is_float(y, k->dtype) ||
        call->inputs[TRM_GATED_DELTA_A_LOG].dtype != TRM_F32 || call->inputs[TRM_GATED_DELTA_A_BIAS].dtype != TRM_F32) {
        return false;
    }
    for (int32_t i = TRM_GATED_DELTA_Q; i <= TRM_GATED_DELTA_B; i++) {
        if (!trm_delta_is_float(&call->inputs[i], k->dtype)) {
            return false;
        }
    }
    args->tokens = k->dims.d[0];
    args->key_heads = k->dims.d[1];
    args->key_dim = k->dims.d[2];
    args->heads = v->dims.d[1];
    args->value_dim = v->dims.d[2];
    args->places = state->dims.d[1];
    args->dtype = k->dtype;
    args->eps = call->layer->gated_delta.eps;
    args->q = call->inputs[TRM_GATED_DELTA_Q].data;
    args->k = k->data;
    args->v = v->data;
    args->a = call->inputs[TRM_GATED_DELTA_A].data;
    args->b = call->inputs[TRM_GATED_DELTA_B].data;
    args->a_log = (const float *)call->inputs[TRM_GATED_DELTA_A_LOG].data;
    args->a_bias = (const float *)call->inputs[TRM_GATED_DELTA_A_BIAS].data;
    args->state = (float *)state->data;
    args->y = y->data;
    return trm_delta_sequences_of(call, TRM_GATED_DELTA_SEQUENCE_STARTS, &args->sequences);
}

#endif
