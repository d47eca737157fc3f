/*
 * LORA: what a call has, for the kernels of both backends.
 */
#ifndef TRM_KERNELS_LORA_LORA_H
#define TRM_KERNELS_LORA_LORA_H

#include "kernels/element.h"

typedef struct trm_lora_pair {
    const void *a;         /* [adapters, rank, k] */
    const void *b;         /* [adapters, columns, rank] */
    int64_t columns, rank; /* columns of y from `first` on */
    int64_t first;
} trm_lora_pair;

typedef struct trm_lora_args {
    int64_t tokens, k, columns, adapters;
    trm_dtype dtype;
    const void *x;        /* [tokens, k] */
    const int32_t *slots; /* [tokens] */
    const void *y;        /* [tokens, columns] */
    void *out;            /* [tokens, columns] */
    int32_t n_pairs;
    int64_t rank; /* the largest of a pair */
    trm_lora_pair pairs[TRM_LORA_MAX_PAIRS];
} trm_lora_args;

/* False if the call is not one these kernels know; dims were checked by the rule. */
static inline bool trm_lora_args_of(const trm_kernel_call *call, trm_lora_args *args)
{
    const trm_view *x = &call->inputs[TRM_LORA_X], *y = &call->inputs[TRM_LORA_Y];
    if (call->n_inputs < TRM_LORA_INPUT_COUNT || x->dims.n != 2 || y->dims.n != 2 || call->n_outputs != 1 ||
        (x->dtype != TRM_F32 && x->dtype != TRM_F16 && x->dtype != TRM_BF16)) {
        return false;
    }
    args->tokens = x->dims.d[0];
    args->k = x->dims.d[1];
    args->columns = y->dims.d[1];
    args->adapters = call->inputs[TRM_LORA_A].dims.d[0];
    args->dtype = x->dtype;
    args->x = x->data;
    args->slots = (const int32_t *)call->inputs[TRM_LORA_SLOTS].data;
    args->y = y->data;
    args->out = call->outputs[0].data;
    args->n_pairs = (call->n_inputs - TRM_LORA_A) / 2;
    args->rank = 0;
    int64_t first = 0;
    for (int32_t i = 0; i < args->n_pairs; i++) {
        const trm_view *a = &call->inputs[TRM_LORA_A + 2 * i], *b = &call->inputs[TRM_LORA_B + 2 * i];
        trm_lora_pair *pair = &args->pairs[i];
        pair->a = a->data;
        pair->b = b->data;
        pair->columns = b->dims.d[1];
        pair->rank = b->dims.d[2];
        pair->first = first;
        first += pair->columns;
        args->rank = pair->rank > args->rank ? pair->rank : args->rank;
    }
    return true;
}

#endif
