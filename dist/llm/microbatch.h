/*
 * Lanes: one long step as two shorter ones whose layers take turns, so that what one rank sends to the others in one
 * is under way while it computes in the other.
 */
#ifndef TRM_DIST_LLM_MICROBATCH_H
#define TRM_DIST_LLM_MICROBATCH_H

#include "collectives/peer_lane.h"
#include "dist/runtime/engine.h"

#define TRM_MICROBATCHES 2
/* A cut between microbatches falls on a multiple of it, so that no tile of a product is cut. */
#define TRM_MICROBATCH_GRAIN 64

/* What a layer has to do with sums that travel by copies. */
typedef struct trm_microbatch_layer {
    bool copies;         /* it is such a sum, with the norm behind it */
    bool whole_sum;      /* all of what it adds up to is read, not each rank's own rows alone */
    bool in_place;       /* its result is read where it was gathered */
    bool reads_gathered; /* its first input is such a result */
    int32_t first[TRM_MICROBATCHES], end[TRM_MICROBATCHES]; /* its launches that read it where it was gathered */
} trm_microbatch_layer;

typedef struct trm_microbatches {
    trm_context *contexts[TRM_MICROBATCHES]; /* the first is the caller's; the second has its stream and its state */
    trm_stream *second;   /* where the second computes: blocks of one fill what the other's last ones leave */
    trm_stream *exchange; /* where exchanges between ranks run */
    trm_event *computed[TRM_MICROBATCHES];   /* what an exchange reads is there */
    trm_event *exchanged[TRM_MICROBATCHES];  /* what the layers behind it read is there */
    trm_event *stored;                       /* the first has written the state of its last layer that has one */
    trm_event *begun, *ended;                /* of the second: inputs are there, all has run */
    trm_peer_lane *places[TRM_MICROBATCHES]; /* for sums that travel by copies; NULL: none does */
    void *gathered[TRM_MICROBATCHES];        /* where their results are */
    trm_microbatch_layer *layers;            /* [n_layers] */
    trm_program programs[TRM_MICROBATCHES];  /* of layers that read what was gathered */
    int64_t steps;                           /* that were enqueued */
    int64_t copied_sums;                     /* of both microbatches of those, that travel by copies */
} trm_microbatches;

/* Makes a second context beside `main`, which must outlive the microbatches. No sums travel by copies yet. */
trm_status trm_microbatches_create(trm_context *main, trm_microbatches **microbatches);
void trm_microbatches_destroy(trm_microbatches *microbatches);

/*
 * Enqueues the copies of both contexts' inputs and all their layers, each microbatch up to its next exchange in turn.
 * The stream of the contexts has passed everything when it has passed this.
 *
 * A layer with a state waits in the second microbatch until the same layer of the first has run, so the second may read
 * the state that the first one writes there (keys of the tokens before its own), and not the other way round.
 */
trm_status trm_microbatches_enqueue(trm_microbatches *microbatches);

/* ---- sums that travel by copies: microbatch_sums.c ---- */

/* Device memory for those of a plan with microbatches of up to `rows` tokens on CUDA; 0: none travels so.
 * `communicator`: of the ranks; NULL: they are thought to reach each other's memory. */
size_t trm_microbatch_sums_bytes(const trm_plan *plan, const trm_communicator *communicator, int64_t rows);
/* Takes places for steps of up to `rows` tokens in a microbatch, where the ranks reach each other's memory, and says
 * what each layer has to do with them. Collective: all ranks have microbatches. */
trm_status trm_microbatch_sums_init(trm_microbatches *microbatches, int64_t rows);
void trm_microbatch_sums_fini(trm_microbatches *microbatches);
/* Whether sums of the step travel by copies, with the dims in force: all that may, or none. The same on every rank. */
bool trm_microbatch_sums_can_copy(const trm_microbatches *microbatches);
/* Enqueues the sum and norm of a layer of a microbatch. */
trm_status trm_microbatch_sums_add(trm_microbatches *microbatches, int32_t microbatch, int32_t layer,
                                   trm_stream *stream);

#endif
