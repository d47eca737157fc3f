/*
 * State of writing one rank's network (emit.c) and the forms of its tensors (forms.c).
 */
#ifndef TRM_DIST_PARTITION_EMITTER_H
#define TRM_DIST_PARTITION_EMITTER_H

#include "dist/partition/problem.h"
#include "graph/regions.h"

typedef struct trm_emitter {
    const trm_partitioner *partitioner;
    const trm_mesh *mesh;
    int32_t world_rank;
    int32_t rank;         /* along tp or cp; along dp if the batch is split */
    int32_t stage;        /* along pp */
    int32_t begin, end;   /* layers of the stage */
    trm_network *network; /* being written */
    trm_tensor **tensors; /* [n_tensors, TRM_MAX_FORMS] in the new network; NULL: not made */
    trm_form_set *forms;  /* [n_tensors] as the search saw them */
    trm_regions regions;  /* of the whole network */
    int32_t runs;         /* of the layer being written */
    trm_arena arena;      /* for this call */
    trm_partition_report *report;
} trm_emitter;

static inline trm_tensor **trm_emitter_slot(const trm_emitter *e, const trm_tensor *tensor, int32_t form)
{
    return &e->tensors[(size_t)tensor->index * TRM_MAX_FORMS + (size_t)form];
}

static inline const trm_sharding *trm_emitter_form(const trm_emitter *e, const trm_tensor *tensor, int32_t form)
{
    return &e->partitioner->tensors[tensor->index].forms[form];
}

/* The index of this rank's part. */
static inline int64_t trm_emitter_part(const trm_emitter *e, const trm_sharding *sharding)
{
    return (int64_t)e->rank * sharding->parts / e->partitioner->n;
}

/* Start and length of this rank's part; the rest is zeros. */
void trm_emitter_part_range(const trm_emitter *e, const trm_tensor *tensor, const trm_sharding *form, int64_t *start,
                            int64_t *length);
/* Makes this rank's part of a constant or a state, unless it exists. */
trm_status trm_emitter_keep(trm_emitter *e, const trm_tensor *tensor, int32_t form);
/* Makes a form of a tensor, as the search did, unless it exists. */
trm_status trm_emitter_acquire(trm_emitter *e, const trm_tensor *tensor, int32_t form);
/* Notes that a tensor exists; a pin makes its form the only one. */
trm_status trm_emitter_arrive(trm_emitter *e, const trm_tensor *tensor, int32_t form);

/* Adds a layer of one input named after the tensor that it serves, "<tensor>.<what>"; a slice. */
trm_status trm_emitter_add(trm_emitter *e, const trm_tensor *tensor, const char *what, const trm_layer_desc *desc,
                           trm_tensor *input, trm_tensor **output);
trm_status trm_emitter_slice(trm_emitter *e, const trm_tensor *tensor, const char *what, int32_t axis, int64_t start,
                             int64_t end, trm_tensor *input, trm_tensor **output);
/* The groups of ranks along an axis of the mesh. */
void trm_emitter_list_axis_groups(const trm_mesh *mesh, trm_axis axis, trm_collective_params *params);
/* Multiplies or divides `x` by a constant whose element `at` is `factor` and whose others are 1. */
trm_status trm_emitter_scale_sizes(trm_emitter *e, const trm_tensor *tensor, const char *what, trm_elementwise_op op,
                                   int32_t at, int64_t factor, trm_tensor *x, trm_tensor **output);

#endif
