/*
 * Single layers run on the host's reference kernels, away from any engine: layers of constants when they are folded,
 * and values that decide dims.
 */
#ifndef TRM_GRAPH_EVALUATE_H
#define TRM_GRAPH_EVALUATE_H

#include "kernels/kernel.h"

/* Zero-initialized; its device is opened when first needed. */
typedef struct trm_evaluator {
    trm_device *device;
    trm_stream *stream;
    void *workspace;
    size_t workspace_size;
} trm_evaluator;

void trm_evaluator_fini(trm_evaluator *self);

/* Runs a call that has its layer, views with addresses and values, and waits. *ran stays false where no host kernel
 * takes it. */
trm_status trm_evaluator_run(trm_evaluator *self, trm_kernel_call *call, bool *ran);

#endif
