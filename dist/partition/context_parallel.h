/*
 * Context parallel attention: lowers an ATTENTION with n_ranks > 1, of which every rank has its rows of the sequences,
 * to layers that a rank has kernels for.
 */
#ifndef TRM_DIST_PARTITION_CONTEXT_PARALLEL_H
#define TRM_DIST_PARTITION_CONTEXT_PARALLEL_H

#include <trireme/mesh.h>

#include "graph/network.h"

/*
 * Keys *begin .. *end - 1 of `keys` are those that rows first .. first + rows - 1 of `queries` queries see under a
 * causal kind. LOWER_RIGHT over these keys alone gives each row what it sees, since the last row and the last key
 * align; for UPPER_LEFT this holds if there are no more queries than keys.
 */
void trm_context_parallel_keys(const trm_attention_params *attention, int64_t queries, int64_t keys, int64_t first,
                               int64_t rows, int64_t *begin, int64_t *end);

/*
 * Replaces each such layer of one rank's network by all-gathers of k and v and an ATTENTION of one rank. Under a causal
 * kind the gathered keys, and a mask's columns, are cut to those up to the last that the rank's last query sees: then
 * LOWER_RIGHT is right whatever the rank. Fails if n_ranks does not fit the mesh, on a causal kind if it is unknown
 * whether q and k have equally many rows, and on UPPER_LEFT with more queries than keys.
 */
trm_status trm_context_parallel_lower(trm_network *network, const trm_mesh *mesh, int32_t rank);

#endif
