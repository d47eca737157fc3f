/*
 * The states of a language model's network, for plans of one sequence.
 */
#ifndef TRM_LAUNCHER_CLI_JOB_CACHES_H
#define TRM_LAUNCHER_CLI_JOB_CACHES_H

#include <trireme/trireme.h>

#define CACHES_PER_LAYER 11 /* most states of a layer */

/* Bounds of the states of `layers` layers for one sequence of `tokens`: returns how many of bounds [CACHES_PER_LAYER *
 * layers] there are. */
int32_t caches_bound(const trm_network *network, int64_t layers, int64_t tokens, trm_shape_bound *bounds);

#endif
