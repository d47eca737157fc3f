/* PAD: one element of the output, by its coordinates. */
#ifndef TRM_KERNELS_INDEX_PAD_H
#define TRM_KERNELS_INDEX_PAD_H

#include "kernels/element.h"
#include "kernels/kernel.h"

typedef struct trm_pad_args {
    trm_dims dims; /* of the output */
    trm_dims from; /* of x */
    int64_t strides[TRM_MAX_DIMS];
    int64_t before[TRM_MAX_DIMS], after[TRM_MAX_DIMS];
    const void *x, *value;
    void *y;
    int32_t size;
    trm_pad_mode mode;
} trm_pad_args;

/* False if the call is not one these kernels know. */
static inline bool trm_pad_args_of(const trm_kernel_call *call, trm_pad_args *args)
{
    const trm_pad_params *p = &call->layer->pad;
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const bool given = trm_kernel_call_has(call, 1);
    const int64_t *pads = given ? (const int64_t *)call->values[1] : NULL;
    if (call->n_inputs < 1 || call->n_inputs > 3 || call->n_outputs != 1 || trm_dtype_size(x->dtype) == 0 ||
        y->dtype != x->dtype || x->dims.n != y->dims.n || (unsigned)p->mode > TRM_PAD_WRAP ||
        (given && (call->inputs[1].dtype != TRM_I64 || trm_dims_count(&call->inputs[1].dims) != 2 * x->dims.n)) ||
        (trm_kernel_call_has(call, 2) &&
         (call->inputs[2].dtype != x->dtype || trm_dims_count(&call->inputs[2].dims) != 1))) {
        return false;
    }
    args->dims = y->dims;
    args->from = x->dims;
    trm_element_strides(&x->dims, args->strides);
    for (int32_t i = 0; i < x->dims.n; i++) {
        args->before[i] = pads != NULL ? pads[i] : p->before[i];
        args->after[i] = pads != NULL ? pads[x->dims.n + i] : p->after[i];
        if (!given && y->dims.d[i] != x->dims.d[i] + p->before[i] + p->after[i]) {
            return false;
        }
    }
    args->x = x->data;
    args->value = trm_kernel_call_has(call, 2) ? call->inputs[2].data : NULL;
    args->y = y->data;
    args->size = (int32_t)trm_dtype_size(x->dtype);
    args->mode = p->mode;
    return true;
}

/* Where position `at` of a padded axis comes from, if what is there is `from` .. `end` - 1; -1: from the constant. */
TRM_ELEMENT int64_t trm_pad_source(trm_pad_mode mode, int64_t at, int64_t from, int64_t end)
{
    const int64_t n = end - from;
    if (at >= from && at < end) {
        return at;
    }
    if (mode == TRM_PAD_CONSTANT || n <= 0) {
        return -1;
    }
    if (mode == TRM_PAD_EDGE) {
        return at < from ? from : end - 1;
    }
    const int64_t period = mode == TRM_PAD_WRAP ? n : n > 1 ? 2 * (n - 1) : 1;
    int64_t rest = (at - from) % period;
    rest += rest < 0 ? period : 0;
    return from + (rest < n ? rest : period - rest);
}

TRM_ELEMENT void trm_element_pad(const trm_pad_args *args, const int64_t *at, int64_t i)
{
    const int32_t n = args->dims.n;
    int64_t from = 0;
    for (int32_t axis = 0; axis < n; axis++) {
        const int64_t before = args->before[axis], after = args->after[axis];
        const int64_t source = trm_pad_source(args->mode, at[axis] - before, before < 0 ? -before : 0,
                                              args->from.d[axis] + (after < 0 ? after : 0));
        if (source < 0) {
            trm_element_move(args->size, args->y, i, args->value, 0);
            return;
        }
        from += source * args->strides[axis];
    }
    trm_element_move(args->size, args->y, i, args->x, from);
}

#endif
