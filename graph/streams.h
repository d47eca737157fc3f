/*
 * Which layers may run at the same time: independent branches of a network on separate streams, ordered by events.
 *
 * The order is static, as the list of layers is. Layer i starts after the layers that it waits for and after those
 * before it on its stream. Stream 0 is the main one: work before and after all layers runs there.
 */
#ifndef TRM_GRAPH_STREAMS_H
#define TRM_GRAPH_STREAMS_H

#include "graph/network.h"

#define TRM_MOST_AUX_STREAMS 8 /* TRM_MAX_AUX_STREAMS of engine.h */

typedef struct trm_streams {
    int32_t n;           /* streams besides the main one; 0: all layers are on the main one, and the arrays are NULL */
    int32_t *of;         /* [n_layers] stream of a layer; -1: it does not run */
    int32_t *first_wait; /* [n_layers + 1] in `waits` */
    int32_t *waits;      /* layers of other streams that must finish before */
    bool *is_awaited;    /* [n_layers] whether others wait for it */
    int32_t tails[TRM_MOST_AUX_STREAMS + 1]; /* last layer of each stream; -1: none */
    bool joins[TRM_MOST_AUX_STREAMS + 1];    /* whether the main stream waits for a tail at the end */
    int32_t *ends; /* [n_tensors] for activations with memory of their own: the last layer that may start before all
                      users of the tensor finished; no layer up to it may write there */
} trm_streams;

/* `skipped` [n_layers]: layers that do not run. Collectives stay on the main stream. Allocates in the arena. */
trm_status trm_streams_assign(const trm_network *network, const bool *skipped, int32_t most, trm_arena *arena,
                              trm_streams *streams);

/* Average number of expensive layers (products, convolutions, attention, pools, recurrent) that can run at once: their
 * number divided by the length of their longest chain. 1 for a chain. Allocates. */
trm_status trm_streams_width(const trm_network *network, double *width);

#endif
