/*
 * SELECTIVE_SCAN: what a call has, for the kernels of both backends.
 */
#ifndef TRM_KERNELS_SCAN_SCAN_H
#define TRM_KERNELS_SCAN_SCAN_H

#include <float.h>

#include "kernels/delta/delta.h"

typedef struct trm_selective_scan_args {
    int64_t tokens, groups, heads, dim, columns, places; /* columns: of a head's matrix [dim, columns] */
    trm_delta_sequences sequences;
    trm_dtype dtype;
    float step_min, step_max;
    const void *x;                         /* [tokens, heads, dim] */
    const void *b, *c;                     /* [tokens, groups, columns] */
    const void *step;                      /* [tokens, heads] */
    const float *a_log, *step_bias, *skip; /* [heads] */
    float *state;                          /* [slots, places, heads, dim, columns] */
    void *y;                               /* [tokens, heads, dim] */
} trm_selective_scan_args;

/* False if the call is not one these kernels know; dims were checked by the rule. */
static inline bool trm_selective_scan_args_of(const trm_kernel_call *call, trm_selective_scan_args *args)
{
    const trm_view *x = &call->inputs[TRM_SELECTIVE_SCAN_X], *b = &call->inputs[TRM_SELECTIVE_SCAN_B];
    const trm_view *state = &call->inputs[TRM_SELECTIVE_SCAN_STATE], *y = &call->outputs[0];
    if (call->n_inputs != TRM_SELECTIVE_SCAN_INPUT_COUNT || call->n_outputs != 1 || x->dims.n != 3 || b->dims.n != 3 ||
        state->dims.n != 5 || state->dtype != TRM_F32 || !trm_delta_is_float(y, x->dtype)) {
        return false;
    }
    for (int32_t i = TRM_SELECTIVE_SCAN_X; i <= TRM_SELECTIVE_SCAN_SKIP; i++) {
        if (i <= TRM_SELECTIVE_SCAN_STEP ? !trm_delta_is_float(&call->inputs[i], x->dtype)
                                         : call->inputs[i].dtype != TRM_F32) {
            return false;
        }
    }
    args->tokens = x->dims.d[0];
    args->heads = x->dims.d[1];
    args->dim = x->dims.d[2];
    args->groups = b->dims.d[1];
    args->columns = b->dims.d[2];
    args->places = state->dims.d[1];
    args->dtype = x->dtype;
    args->step_min = call->layer->selective_scan.step_min;
    args->step_max = call->layer->selective_scan.step_max > 0.0f ? call->layer->selective_scan.step_max : FLT_MAX;
    args->x = x->data;
    args->b = b->data;
    args->c = call->inputs[TRM_SELECTIVE_SCAN_C].data;
    args->step = call->inputs[TRM_SELECTIVE_SCAN_STEP].data;
    args->a_log = (const float *)call->inputs[TRM_SELECTIVE_SCAN_A_LOG].data;
    args->step_bias = (const float *)call->inputs[TRM_SELECTIVE_SCAN_STEP_BIAS].data;
    args->skip = (const float *)call->inputs[TRM_SELECTIVE_SCAN_SKIP].data;
    args->state = (float *)state->data;
    args->y = y->data;
    return trm_delta_sequences_of(call, TRM_SELECTIVE_SCAN_SEQUENCE_STARTS, &args->sequences);
}

#endif
