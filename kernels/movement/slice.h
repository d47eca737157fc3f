/* SLICE: which elements of an axis are taken, for its rule, its kernels and what sees through it. */
#ifndef TRM_KERNELS_MOVEMENT_SLICE_H
#define TRM_KERNELS_MOVEMENT_SLICE_H

#include "kernels/kernel.h"

/* How many elements of an axis of `size` a slice takes; *first is the first of them. step is not 0. */
static inline int64_t trm_slice_range(const trm_slice_params *slice, int64_t size, int64_t *first)
{
    int64_t start = slice->start < 0 ? slice->start + size : slice->start;
    int64_t end = slice->end < 0 ? slice->end + size : slice->end;
    if (slice->step > 0) {
        start = start < 0 ? 0 : start > size ? size : start;
        end = end < 0 ? 0 : end > size ? size : end;
        *first = start;
        return end > start ? (end - start - 1) / slice->step + 1 : 0;
    }
    if (size == 0) {
        *first = 0;
        return 0;
    }
    start = start < 0 ? 0 : start > size - 1 ? size - 1 : start;
    end = end < -1 ? -1 : end > size - 1 ? size - 1 : end;
    *first = start;
    return start > end ? (int64_t)((uint64_t)(start - end - 1) / (0 - (uint64_t)slice->step)) + 1 : 0;
}

static inline int64_t trm_slice_value(trm_dtype dtype, const void *value)
{
    return dtype == TRM_I32 ? (int64_t) * (const int32_t *)value : *(const int64_t *)value;
}

/* The parameters of a slice with the inputs that replace them; false if an input is given whose value is not known. */
static inline bool trm_slice_of_call(const trm_kernel_call *call, trm_slice_params *slice)
{
    int64_t *fields[] = {&slice->start, &slice->end, &slice->step};
    *slice = call->layer->slice;
    for (int32_t i = 1; i < call->n_inputs && i <= 3; i++) {
        if (call->inputs[i].dtype == TRM_DTYPE_NONE) {
            continue;
        }
        if (call->values[i] == NULL) {
            return false;
        }
        *fields[i - 1] = trm_slice_value(call->inputs[i].dtype, call->values[i]);
    }
    return true;
}

#endif
