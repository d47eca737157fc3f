/*
 * Lanes: one long step as two shorter ones whose layers take turns, so that what one rank sends to the others in one
 * is under way while it computes in the other.
 */
#ifndef TRM_DIST_LANES_H
#define TRM_DIST_LANES_H

#include "dist/engine.h"

#define TRM_LANES 2

typedef struct trm_lanes {
    trm_context *contexts[TRM_LANES]; /* the first is the caller's; the second has its stream and its state */
    trm_stream *second;             /* where the second computes: blocks of one fill what the other's last ones leave */
    trm_stream *exchange;           /* where exchanges between ranks run */
    trm_event *computed[TRM_LANES]; /* what an exchange reads is there */
    trm_event *exchanged[TRM_LANES]; /* what the layers behind it read is there */
    trm_event *stored;               /* the first has written the state of its last layer that has one */
    trm_event *begun, *ended;        /* of the second: inputs are there, all has run */
} trm_lanes;

/* Makes a second context beside `main`, which must outlive the lanes. */
trm_status trm_lanes_create(trm_context *main, trm_lanes **lanes);
void trm_lanes_destroy(trm_lanes *lanes);

/*
 * Enqueues the copies of both contexts' inputs and all their layers, each lane up to its next exchange in turn. The
 * stream of the contexts has passed everything when it has passed this.
 *
 * A layer with a state waits in the second lane until the same layer of the first has run, so the second may read the
 * state that the first one writes there (keys of the tokens before its own), and not the other way round.
 */
trm_status trm_lanes_enqueue(trm_lanes *lanes);

#endif
