/*
 * Weight streaming of a rank: which weights of its network can be streamed, the plan for a budget, and where each lies.
 *
 * A weight can be streamed if it is large enough for a copy of its own and layers read it as it is. One that does not
 * stay lies in host memory in its stored form, which weight_stream/ring.c makes the device form of in staging memory.
 * Here the stored form is the device form itself.
 */
#ifndef TRM_DIST_STREAMING_H
#define TRM_DIST_STREAMING_H

#include "dist/plan.h"
#include "kernels/device.h"
#include "weight_stream/residency.h"

typedef struct trm_streaming_plan {
    trm_arena arena;
    trm_weight_budget asked;
    int32_t *weight_of;                     /* [n_tensors]; -1: stays whatever the budget */
    const trm_tensor **tensors;             /* [n_weights] */
    size_t *bytes;                          /* [n_weights] */
    size_t streamable;                      /* their sum */
    trm_residency_use *uses, *fetched_uses; /* the latter with none in place */
    int32_t *first_use;                     /* [n_layers + 1] in uses */
    trm_residency_problem problem;
    trm_residency residency;
} trm_streaming_plan;

/* The number of a tensor among the weights that can be streamed, or -1. */
int32_t trm_streaming_weight(const trm_plan *plan, const trm_tensor *tensor);
void trm_streaming_plan_destroy(trm_streaming_plan *streaming);

/* Resolves an automatic budget: as many weights as fit into `room` bytes with what must stay and staging. If not even
 * those do, OUT_OF_MEMORY names what is needed. Nothing to do for other budgets. */
trm_status trm_streaming_fit(trm_plan *plan, size_t room);
/* Plans for another budget. */
trm_status trm_streaming_replan(trm_plan *plan, size_t budget);
/* Bytes of the device form of a weight from its source: a trm_reader_fn. `plan` is the trm_plan. */
trm_status trm_streaming_read(void *plan, int32_t weight, size_t begin, size_t size, void *to);
/* Whether a layer reads the weight where it lies when it is streamed. */
bool trm_streaming_reads_in_place(const trm_plan *plan, int32_t weight);
/* What follows from weights being where they are [n_weights], from a rate of the link that was measured (0: none was),
 * and from whether tables can be read where they lie. */
trm_status trm_streaming_adjust(trm_plan *plan, const bool *resident, double link_rate, bool rows_in_place);

/* Where the weights are. */
typedef struct trm_weight_places {
    int32_t n;
    void **resident; /* [n] device memory, or NULL */
    void **stored;   /* [n] host memory of those that are streamed, or NULL: neither is read in every step */
    bool *is_pinned; /* [n] */
    bool pinned;     /* all of them are */
    bool capturable; /* and none is read in every step: copies can be part of a captured step */
    size_t host_limit, host_used; /* bytes of stored ones */
    uint64_t version;             /* rises with every change */
} trm_weight_places;

/* Memory for the weights as the plan says; they are to be filled by the caller. Host memory is taken as far as there is
 * any, or as the budget allows. `sharing`: the ranks that take memory of this machine. */
trm_status trm_weight_places_init(trm_weight_places *places, const trm_plan *plan, trm_device *device, int32_t sharing);
void trm_weight_places_fini(trm_weight_places *places, const trm_plan *plan, trm_device *device);
/* Once stored weights are filled: pins them, measures the link, and plans with what came out. Where pinning is refused
 * copies go from ordinary memory. */
trm_status trm_weight_places_settle(trm_weight_places *places, trm_plan *plan, trm_device *device);

/* Plans again for another budget and moves weights to where they then belong. If that fails on the way, the plan is of
 * where they are. */
trm_status trm_weight_places_change(trm_weight_places *places, trm_plan *plan, trm_device *device, size_t budget);

#endif
