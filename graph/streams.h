/*
 * Which layers may run beside each other: independent branches of a network on streams of their own, ordered by events.
 *
 * The order is static, as the list of layers is. Layer i starts after the layers that it waits for, and after those
 * before it on its stream. Stream 0 is the main one: what is before all layers and after them is there.
 */
#ifndef TRM_GRAPH_STREAMS_H
#define TRM_GRAPH_STREAMS_H

#include "graph/network.h"

#define TRM_MOST_AUX_STREAMS 8 /* TRM_MAX_AUX_STREAMS of engine.h */

typedef struct trm_streams {
    int32_t n;           /* streams beside the main one; 0: all layers are on that, and the rest is not there */
    int32_t *of;         /* [n_layers] stream of a layer; -1: it is not run */
    int32_t *first_wait; /* [n_layers + 1] in `waits` */
    int32_t *waits;      /* layers of other streams that have to be done before */
    bool *is_awaited;    /* [n_layers] whether others wait for it */
    int32_t tails[TRM_MOST_AUX_STREAMS + 1]; /* last layer of each stream, -1 of one that has none */
    bool joins[TRM_MOST_AUX_STREAMS + 1];    /* whether the main stream has to wait for a tail in the end */
    int32_t *ends; /* [n_tensors] of activations with memory of their own: the last layer that does not start after all
                      that use the tensor, so that no layer up to it may write there */
} trm_streams;

/* `skipped` [n_layers]: layers that are not run. Collectives stay on the main stream. Memory is the arena's. */
trm_status trm_streams_assign(const trm_network *network, const bool *skipped, int32_t most, trm_arena *arena,
                              trm_streams *streams);

/* How many layers there are to run at a time on average, of those that take time (products, convolutions, attention,
 * pools, recurrent ones): their number over that of the longest chain of them. 1 for a chain. Allocates. */
trm_status trm_streams_width(const trm_network *network, double *width);

#endif
