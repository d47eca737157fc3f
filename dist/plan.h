/*
 * The plan as the engine and the context see it. The public calls are in <trireme/engine.h>.
 */
#ifndef TRM_DIST_PLAN_H
#define TRM_DIST_PLAN_H

#include <trireme/engine.h>

#include "dist/partition.h"
#include "graph/network.h"
#include "kernels/kernel.h"

struct trm_plan {
    trm_network *network; /* this rank's, after all passes */
    trm_backend backend;
    trm_mesh mesh;
    int32_t rank;
    trm_arena arena;
    trm_dims *max_dims;         /* [n_tensors] */
    size_t *weight_offsets;     /* [n_tensors], SIZE_MAX where the tensor is no constant */
    size_t *state_offsets;      /* [n_tensors] */
    size_t *input_offsets;      /* [n_tensors], in the region of the inputs */
    size_t *activation_offsets; /* [n_tensors], as trm_memory_plan_activations gives them */
    size_t weight_bytes, state_bytes, input_bytes, activation_bytes, workspace_bytes;
    trm_partition_report partition;
};

/* The kernel tables of all rooms, in order of preference. */
extern const trm_kernel_table *const trm_all_kernels[];
extern const int32_t trm_all_kernels_count;

/* Gives every state whose first dimension the network does not know `blocks` there, and plans memory anew. */
trm_status trm_plan_set_state_blocks(trm_plan *plan, int64_t blocks);

/* Makes sure the workspace suffices for these dims of the inputs [n_tensors, others ignored], which must lie within
 * the bounds: the largest dims do not always need the largest workspace. */
trm_status trm_plan_cover(trm_plan *plan, const trm_dims *dims);

/* Fills a call of `layer` for these dims; addresses are left NULL. */
void trm_plan_describe_call(const trm_layer *layer, const trm_dims *dims, trm_kernel_call *call);

#endif
