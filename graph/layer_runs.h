/*
 * How often layers run in a run, for those who plan with it: where conditions of loops follow from constants, dims and
 * elements of inputs, as often as they say, else by a guess.
 */
#ifndef TRM_GRAPH_LAYER_RUNS_H
#define TRM_GRAPH_LAYER_RUNS_H

#include "graph/network.h"

/* Passes of a loop that are counted on where nobody knows. */
#define TRM_LOOP_PASSES 8

/*
 * runs [n_layers], at least 1: of layers in loops that of the loop around by the passes, on average where they differ;
 * whoever is in a branch is taken to run. dims [n_tensors] and values [n_tensors] are what inputs (and states: dims)
 * usually are; elements that are not known are NULL. dims NULL: nothing is known of inputs but what the network says.
 * *guessed: whether there is a loop whose passes are not known. OUT_OF_MEMORY only: a walk that fails is one that
 * tells nothing.
 */
trm_status trm_layer_runs(const trm_network *network, const trm_dims *dims, const void *const *values, int32_t *runs,
                          bool *guessed);

#endif
