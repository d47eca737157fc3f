/*
 * How often each layer executes in a run, for planning: exact if the conditions of loops follow from constants, dims
 * and elements of inputs, else a guess.
 */
#ifndef TRM_GRAPH_LAYER_RUNS_H
#define TRM_GRAPH_LAYER_RUNS_H

#include "graph/network.h"

/* Passes assumed for a loop of unknown length. */
#define TRM_LOOP_PASSES 8

/*
 * Writes runs [n_layers], at least 1: a layer in a loop runs as often as the loop times its passes, on average if they
 * differ; layers in branches count as run. dims [n_tensors] and values [n_tensors] are the usual dims and elements of
 * inputs and the dims of states; unknown elements are NULL. dims NULL: use only what the network says. *guessed says
 * whether a loop has unknown passes. Error: OUT_OF_MEMORY; if the walk fails otherwise, all is guessed.
 */
trm_status trm_layer_runs(const trm_network *network, const trm_dims *dims, const void *const *values, int32_t *runs,
                          bool *guessed);

#endif
