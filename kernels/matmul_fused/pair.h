/*
 * A layer that two kernels can do in turn: what the first makes lies at the beginning of the workspace, and the second
 * reads it there; what either needs as workspace of its own lies behind it.
 */
#ifndef TRM_KERNELS_MATMUL_FUSED_PAIR_H
#define TRM_KERNELS_MATMUL_FUSED_PAIR_H

#include "kernels/kernel.h"

typedef struct trm_kernel_pair {
    trm_layer_desc descs[2];
    trm_kernel_call calls[2];
    const trm_kernel *kernels[2];
    size_t room; /* bytes of what lies between them, aligned */
} trm_kernel_pair;

/* Fills in both layers and calls, but for their workspaces; the first's output 0 and an input of the second is a tensor
 * at the beginning of the call's workspace. False: the call is not of that kind. */
typedef bool (*trm_kernel_pair_fn)(const trm_kernel_call *call, trm_kernel_pair *pair);

/* What a kernel of the layer needs (kernels/kernel.h). */
bool trm_kernel_pair_accepts(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart);
size_t trm_kernel_pair_workspace(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart);
trm_status trm_kernel_pair_run(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart);
trm_status trm_kernel_pair_tune(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart,
                                struct trm_tuner *tuner);

#endif
