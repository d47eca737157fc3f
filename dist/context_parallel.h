/*
 * Context parallel attention: an ATTENTION with n_ranks > 1, of which every rank has its rows of the sequences, as
 * layers that one rank has kernels for.
 */
#ifndef TRM_DIST_CONTEXT_PARALLEL_H
#define TRM_DIST_CONTEXT_PARALLEL_H

#include <trireme/mesh.h>

#include "graph/network.h"

/*
 * Replaces each such layer of one rank's network by all-gathers of k and v and an ATTENTION of one rank. Under a causal
 * kind the gathered keys, and a mask's columns, are cut to those up to the last that the rank's last query sees: then
 * LOWER_RIGHT is right whatever the rank. Fails where n_ranks does not suit the mesh, where a causal kind is asked for
 * and it is unknown how many rows q and k have beside each other, and on UPPER_LEFT with more queries than keys.
 */
trm_status trm_context_parallel_lower(trm_network *network, const trm_mesh *mesh, int32_t rank);

#endif
