/* Streamed weights of a context: the ring that they arrive in, layers offloaded to the CPU, and copy schedules. */
#ifndef TRM_DIST_RUNTIME_WEIGHTS_H
#define TRM_DIST_RUNTIME_WEIGHTS_H

#include <trireme/engine.h>

#include "graph/network.h"
#include "kernels/program.h"
#include "weight_stream/offload/cpu_offload.h"
#include "weight_stream/offload/expert_cache.h"
#include "weight_stream/ring.h"

/* weights.c alone looks inside. */
typedef struct trm_context_weights {
    trm_ring *ring;                 /* NULL without a weight budget */
    trm_cpu_offload *offload;       /* NULL without CPU offload */
    trm_expert_cache *experts;      /* NULL without, or if another context has it */
    int32_t schedule, ran_schedule; /* copy schedule: for the current dims, and of the last run */
    uint64_t places; /* version of the engine's residency when the ring was made and kernels got addresses */
} trm_context_weights;

void trm_context_weights_fini(trm_context *context);
/* Makes the ring again and drops addresses if weights have moved. */
trm_status trm_context_follow_weights(trm_context *context);
/* The version of the residency that it followed last. */
uint64_t trm_context_weight_places(const trm_context *context);
/* Whether there is a ring, and whether layers may be offloaded or experts cached. */
bool trm_context_streams_weights(const trm_context *context);
bool trm_context_offloads(const trm_context *context);
/* Whether a task of an offloaded layer failed. */
trm_status trm_context_offload_status(const trm_context *context);

/* Chooses the copy schedule of a run: the large one while dims are not known. */
void trm_context_choose_schedule(trm_context *context, bool dims_are_known);
int32_t trm_context_schedule(const trm_context *context);
/* Whether runs of the small schedule can be captured even if others read weights from files: they fetch experts only.
 */
bool trm_context_captures_small(const trm_context *context);
/* That of the last run. */
int32_t trm_context_ran_schedule(const trm_context *context);
/* Prepares a captured run of a schedule, whose first copies begin before it. */
trm_status trm_context_prime_weights(trm_context *context, int32_t schedule);

/* The address of an input of layer `layer`, a streamable weight; *is_constant: it is there before a run. */
void *trm_context_weight_address(const trm_context *context, int32_t layer, int32_t weight, bool *is_constant);
/* The CPU's kernel of a layer that is offloaded for the current dims, else NULL, and its launches. */
const trm_kernel *trm_context_offloaded(trm_context *context, int32_t layer);
trm_status trm_context_append_offloaded(trm_context *context, int32_t layer, const trm_kernel_call *call,
                                        trm_program *program);
/* Gives a layer of cached experts the cache's slots for weights, if the current dims allow it. */
void trm_context_redirect_experts(trm_context *context, int32_t layer, trm_kernel_call *call);
/* Appends a layer's launches, and before them those that fetch its experts. */
trm_status trm_context_prepare_layer(trm_context *context, int32_t layer, const trm_kernel *kernel,
                                     const trm_kernel_call *call, trm_program *program);

/* What its expert cache found and fetched; zeros without one. */
trm_expert_counts trm_context_expert_counts(const trm_context *context);

/* Appends what the ring does before all layers, before and after one, and after all of them; nothing without a ring. */
trm_status trm_context_append_begin_copies(trm_context *context, trm_program *program);
trm_status trm_context_append_wait(trm_context *context, trm_program *program);
trm_status trm_context_append_free(trm_context *context, trm_program *program);
trm_status trm_context_append_end_copies(trm_context *context, trm_program *program);
/* Whether a launch waits for weights. *waited: it did in the last run. */
bool trm_launch_waits_for_weights(const trm_launch *launch, bool *waited);
/* The layers after `layer`, up to `next`, do not run; or those from `next` run again. */
trm_status trm_context_jump_weights(trm_context *context, int32_t layer, int32_t next);

#endif
