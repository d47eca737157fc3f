/*
 * The CPU's part of the expert cache: a thread polls the mailbox of kernels/moe/expert_table.h, and with the pool of
 * CPU offload computes the missing experts that small steps leave to it, from host memory. On the host backend, whose
 * streams run at once, the step itself does that. No host call is part of a step.
 */
#ifndef TRM_WEIGHT_STREAM_OFFLOAD_EXPERT_OFFLOAD_H
#define TRM_WEIGHT_STREAM_OFFLOAD_EXPERT_OFFLOAD_H

#include "weight_stream/offload/cpu_offload.h"
#include "weight_stream/offload/expert_cache.h"

typedef struct trm_expert_offload trm_expert_offload;

/* For the cached layers of the plan. `sent`: zeroed memory of the device for trm_expert_mailbox.sent. */
trm_status trm_expert_offload_create(const trm_offload_site *site, int64_t *sent, trm_expert_offload **made);
/* No step that refers to it may run anymore. Ignores NULL. */
void trm_expert_offload_destroy(trm_expert_offload *offload, trm_device *device);

const trm_expert_mailbox *trm_expert_offload_box(const trm_expert_offload *offload);
/* Tells where the experts of cached layer `i` lie, the first time: `call` is the layer's with all experts. What lies on
 * the device is copied. */
trm_status trm_expert_offload_place(trm_expert_offload *offload, int32_t i, const trm_cached_layer *cached,
                                    const trm_kernel_call *call);
/* Whether an answer was late since the last call. NULL is OK. */
trm_status trm_expert_offload_status(trm_expert_offload *offload);

#endif
