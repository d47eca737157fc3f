/*
 * States by sequence of a language model's network, [slots, versions, ...]: what a recurrent layer keeps of a sequence,
 * which does not grow with it.
 */
#ifndef TRM_DIST_LLM_SEQUENCE_STATES_H
#define TRM_DIST_LLM_SEQUENCE_STATES_H

#include "graph/network.h"

/* Whether a network has such states. */
bool trm_network_has_sequence_states(const trm_network *network);
/* The size of one for this many sequences, of which the last `versions` - 1 tokens can be taken back. */
trm_dims trm_sequence_state_dims(const trm_network *network, const trm_tensor *state, int32_t slots, int32_t versions);

#endif
