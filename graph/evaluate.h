/*
 * Runs single layers on the host's reference kernels, without an engine: to fold layers of constants, and for values
 * that decide dims.
 */
#ifndef TRM_GRAPH_EVALUATE_H
#define TRM_GRAPH_EVALUATE_H

#include "kernels/kernel.h"

/* Zero-initialized is ready; it opens its device when first needed. */
typedef struct trm_evaluator {
    trm_device *device;
    trm_stream *stream;
    void *workspace;
    size_t workspace_size;
} trm_evaluator;

void trm_evaluator_fini(trm_evaluator *self);

/* Runs a call with layer, views, addresses and values, and waits. *ran stays false if no host kernel accepts it. */
trm_status trm_evaluator_run(trm_evaluator *self, trm_kernel_call *call, bool *ran);

#endif
