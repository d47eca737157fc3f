/*
 * Regions: sequences of layers between IF and END_IF, or LOOP and END_LOOP (layers.h).
 */
#ifndef TRM_GRAPH_REGIONS_H
#define TRM_GRAPH_REGIONS_H

#include "graph/network.h"

/* A snapshot of the network; indices are those of that moment. */
typedef struct trm_regions {
    int32_t n;       /* number of regions; if 0, the arrays are NULL */
    int32_t *inside; /* [n_layers] the IF or LOOP of a layer's innermost region; -1: none. The layers that begin and end
                        a region belong to the outer one */
    int32_t *other;  /* [n_layers] for a layer that begins a region the one that ends it, and vice versa; for a NEXT its
                        RECURRENCE; for an ENTER that leaves a branch the MERGE; else -1 */
} trm_regions;

/* Kinds of control flow, including MERGE and RECURRENCE. */
bool trm_kind_is_control(trm_layer_kind kind);
bool trm_kind_begins_region(trm_layer_kind kind);
bool trm_kind_ends_region(trm_layer_kind kind);
bool trm_network_has_regions(const trm_network *network);

/* Finds the regions of a network whose layers are not yet sorted. INVALID_MODEL if regions do not nest. */
trm_status trm_regions_find(const trm_network *network, trm_regions *regions);
/* The same; also INVALID_MODEL if a layer reads a tensor that it cannot see from its region. */
trm_status trm_regions_init(const trm_network *network, trm_regions *regions);
void trm_regions_fini(trm_regions *regions);

/* Whether a layer is an ENTER that enters a region, and does not leave it. */
bool trm_regions_enters(const trm_regions *regions, const trm_layer *layer);

/*
 * Raises ends [n_tensors] to the last layer that uses a tensor's memory if loops repeat: a tensor written before a loop
 * and read in it is in use until the loop ends, where loop-carried values are written. `ends` belong to tensors with
 * memory of their own (trm_tensor_storage).
 */
void trm_regions_extend_lives(const trm_network *network, const trm_regions *regions, int32_t *ends);

#endif
