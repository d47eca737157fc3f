/*
 * Microbatches: one long step as two shorter ones whose layers alternate, so that the collectives of one overlap with
 * the computation of the other.
 */
#ifndef TRM_DIST_LLM_MICROBATCH_H
#define TRM_DIST_LLM_MICROBATCH_H

#include "collectives/peer_lane.h"
#include "dist/runtime/context.h"

#define TRM_MICROBATCHES 2
/* Microbatches are split at multiples of this, so that no tile of a product is split. */
#define TRM_MICROBATCH_GRAIN 64

/* What a layer has to do with all-reduces by copy engines. */
typedef struct trm_microbatch_layer {
    bool copies;                                            /* it is such an all-reduce, with the norm after it */
    bool whole_sum;                                         /* the whole sum is read, not only each rank's own rows */
    bool in_place;                                          /* its result is read in the gather buffer */
    bool reads_gathered;                                    /* its first input is such a result */
    int32_t first[TRM_MICROBATCHES], end[TRM_MICROBATCHES]; /* its launches that read it in the gather buffer */
} trm_microbatch_layer;

typedef struct trm_microbatches {
    trm_context *contexts[TRM_MICROBATCHES]; /* the first belongs to the caller; the second uses its stream and state */
    trm_stream *second;                      /* the second's stream: its blocks fill the tail of the other's kernels */
    trm_stream *exchange;                    /* the stream of collectives */
    trm_event *computed[TRM_MICROBATCHES];   /* the input of a collective is ready */
    trm_event *exchanged[TRM_MICROBATCHES];  /* the result of a collective is ready */
    trm_event *stored;                       /* the first has written its last state */
    trm_event *begun, *ended;                /* of the second: inputs are copied; all layers have run */
    trm_peer_lane *places[TRM_MICROBATCHES]; /* for all-reduces by copies; NULL: none */
    void *gathered[TRM_MICROBATCHES];        /* their results */
    trm_microbatch_layer *layers;            /* [n_layers] */
    trm_program programs[TRM_MICROBATCHES];  /* of layers that read gathered results */
    int64_t steps;                           /* that were enqueued */
    int64_t copied_sums;                     /* enqueued all-reduces by copies, of both microbatches */
} trm_microbatches;

/* Creates a second context beside `main`, which must outlive the microbatches. No all-reduces use copies yet. */
trm_status trm_microbatches_create(trm_context *main, trm_microbatches **microbatches);
void trm_microbatches_destroy(trm_microbatches *microbatches);

/*
 * Enqueues the input copies and all layers of both contexts, alternating at each collective. The contexts' stream waits
 * for all of it.
 *
 * In the second microbatch a layer with a state waits for the same layer of the first, so that it can read the state
 * that the first writes (keys of earlier tokens), but not vice versa.
 */
trm_status trm_microbatches_enqueue(trm_microbatches *microbatches);

/* ---- sums that travel by copies: microbatch_sums.c ---- */

/* Device memory for all-reduces by copies of a plan with microbatches of up to `rows` tokens on CUDA; 0: none.
 * `communicator` NULL: assume that the ranks have peer access. */
size_t trm_microbatch_sums_bytes(const trm_plan *plan, const trm_communicator *communicator, int64_t rows);
/* If the ranks have peer access, allocates the buffers for microbatches of up to `rows` tokens and marks the layers
 * that use them. Collective: all ranks have microbatches. */
trm_status trm_microbatch_sums_init(trm_microbatches *microbatches, int64_t rows);
void trm_microbatch_sums_fini(trm_microbatches *microbatches);
/* Whether the step's all-reduces use copies at its dims: all that can, or none. The same on every rank. */
bool trm_microbatch_sums_can_copy(const trm_microbatches *microbatches);
/* Enqueues the all-reduce and norm of a layer of a microbatch. */
trm_status trm_microbatch_sums_add(trm_microbatches *microbatches, int32_t microbatch, int32_t layer,
                                   trm_stream *stream);

#endif
