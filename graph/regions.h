/*
 * Regions: runs of layers between IF and END_IF, LOOP and END_LOOP (layers.h), and where they are.
 */
#ifndef TRM_GRAPH_REGIONS_H
#define TRM_GRAPH_REGIONS_H

#include "graph/network.h"

/* A picture of the network at one moment; indices are those it had then. */
typedef struct trm_regions {
    int32_t n;       /* how many there are; without layers of control flow the rest is not there */
    int32_t *inside; /* [n_layers] the IF or LOOP of the innermost region that a layer lies in, -1: of none. The layers
                        that begin and end a region lie in the one around it */
    int32_t *other;  /* [n_layers] of a layer that begins a region that which ends it, and the other way round; of a
                        NEXT its RECURRENCE; of an ENTER that a branch is left by the MERGE; else -1 */
} trm_regions;

/* Kinds that regions are made of, MERGE and RECURRENCE among them. */
bool trm_kind_is_control(trm_layer_kind kind);
bool trm_kind_begins_region(trm_layer_kind kind);
bool trm_kind_ends_region(trm_layer_kind kind);
bool trm_network_has_regions(const trm_network *network);

/* Of a network whose layers wait to be sorted: INVALID_MODEL where regions do not nest. */
trm_status trm_regions_find(const trm_network *network, trm_regions *regions);
/* The same, and INVALID_MODEL where layers read what regions do not let them. */
trm_status trm_regions_init(const trm_network *network, trm_regions *regions);
void trm_regions_fini(trm_regions *regions);

/* Whether a layer is an ENTER by which a region is entered, not left. */
bool trm_regions_enters(const trm_regions *regions, const trm_layer *layer);
/* Whether layer `index` lies in the region that layer `begin` begins, or in one within it. */
bool trm_regions_holds(const trm_regions *regions, int32_t begin, int32_t index);

/*
 * Raises ends [n_tensors] to the last layer at which a tensor's memory is in use, seen from loops: what is made before
 * a loop and read in it is read until the loop ends, and what a loop carries on is written there. `ends` belong to
 * tensors with memory of their own (trm_tensor_storage).
 */
void trm_regions_extend_lives(const trm_network *network, const trm_regions *regions, int32_t *ends);

#endif
