/*
 * Which axis of a layer's outputs follows which of its inputs: entries along the one are made from the same entries
 * along the other. What may be split over ranks rests on it, and what may be computed for a part of the entries alone.
 */
#ifndef TRM_GRAPH_AXIS_LINKS_H
#define TRM_GRAPH_AXIS_LINKS_H

#include "graph/network.h"

enum {
    TRM_LINK_WHOLE = -1, /* each entry takes the whole input */
    TRM_LINK_NEVER = -2  /* entries along this axis of the outputs are not made by themselves */
};

/*
 * The axis of input `i`, which is given, that axis `k` of the outputs follows. Both need not be of one size: where dims
 * are unknown the input may have size 1 in a run and be broadcast, and the two axes of a RESHAPE may be the first of
 * groups, blocks of one then being blocks of the other. Only the first output of a layer is looked at.
 */
int32_t trm_layer_axis_link(const trm_layer *layer, int32_t k, int32_t i);
/* The same of an input that is broadcast to `out`. */
int32_t trm_broadcast_axis_link(const trm_dims *in, const trm_dims *out, int32_t k);

#endif
