/* DETERMINANT: what its kernels share. */
#ifndef TRM_KERNELS_SIGNAL_DETERMINANT_H
#define TRM_KERNELS_SIGNAL_DETERMINANT_H

#include "kernels/element.h"

typedef struct trm_determinant_args {
    int64_t batch, n;
    trm_dtype dtype;
    const void *x;
    void *y;
    double *matrices; /* [batch, n, n], in the workspace */
} trm_determinant_args;

/* False if the call is not one these kernels know. */
static inline bool trm_determinant_args_of(const trm_kernel_call *call, trm_determinant_args *args)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int32_t rank = x->dims.n;
    if (call->n_inputs != 1 || call->n_outputs != 1 || rank < 2 || x->dims.d[rank - 1] != x->dims.d[rank - 2] ||
        y->dims.n != rank - 2 || y->dtype != x->dtype || !trm_element_is_float(x->dtype)) {
        return false;
    }
    args->n = x->dims.d[rank - 1];
    args->batch = trm_element_span(&x->dims, 0, rank - 2);
    args->dtype = x->dtype;
    args->x = x->data;
    args->y = y->data;
    args->matrices = (double *)call->workspace;
    return true;
}

static inline size_t trm_determinant_workspace(const trm_kernel_call *call)
{
    return (size_t)trm_dims_count(&call->inputs[0].dims) * sizeof(double);
}

#endif
