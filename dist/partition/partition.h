/*
 * The partitioner: turns a network and a mesh into the network of each rank.
 *
 * It chooses a sharding for every tensor by a cost model, splits weights, divides head counts, and writes ordinary
 * DIST_COLLECTIVE layers where a tensor changes its sharding. Ranks along dp split the batch of a network without
 * states. Inputs and outputs of the network stay whole on every rank; states are sharded like the layers that use them.
 * Invariant: any number of ranks gives the result of one rank.
 */
#ifndef TRM_DIST_PARTITION_PARTITION_H
#define TRM_DIST_PARTITION_PARTITION_H

#include <trireme/engine.h>
#include <trireme/mesh.h>

#include "collectives/communicator.h"
#include "graph/network.h"
#include "graph/sharding.h"

/* Costs of moving and computing, for the choice of shardings. */
typedef struct trm_cost_model {
    double memory_bandwidth;   /* bytes per second of device memory */
    double compute_rate;       /* FLOP per second of matrix products */
    double link_bandwidth;     /* bytes per second of a rank's links in an all-gather */
    double link_latency;       /* seconds of one small exchange */
    double layer_overhead;     /* seconds to start one layer */
    double memory_price;       /* holding a byte of weights or state costs as much as this many reads per run */
    int64_t unknown_dimension; /* size assumed for a dimension of -1 */
    const int32_t *runs;       /* [layers of the network] how often each runs; NULL: by trm_layer_runs for any inputs */
} trm_cost_model;
void trm_cost_model_default(trm_backend backend, trm_cost_model *model);

typedef struct trm_partition_report {
    int32_t n_collectives;
    double bytes_exchanged; /* per rank and run, with the cost model's unknown dimensions and layer runs */
    double seconds;         /* the cost model's estimate of one run of this rank's stage */
    int32_t n_parts;        /* with several stages: group sizes of their collectives */
    int32_t parts[8];
    bool shares_batch;  /* ranks along dp split the batch */
    bool shares_tokens; /* ranks along cp split the tokens of a step and the keys of a cache */
    bool as_written;    /* the network has exchanges of its own: the rank runs it as written */
    bool has_regions; /* there are loops or branches, perhaps in another stage; false for networks as written, which may
                         differ between ranks */
    char note[512];   /* what could not be split and why, or "" */
} trm_partition_report;

/*
 * Makes the network of `rank`. `model` and `report` may be NULL. The same on every rank, except for what depends on the
 * rank's index. TRM_ERROR_INVALID_ARGUMENT, with the reason, if a pin or the mesh cannot be met.
 */
trm_status trm_partition(const trm_network *network, const trm_mesh *mesh, int32_t rank, const trm_cost_model *model,
                         trm_network **local, trm_partition_report *report);

/*
 * The same with bounds of inputs: an input whose first dimension differs from that of the others is not part of the
 * batch that ranks along dp split. A known batch size that they do not divide is TRM_ERROR_INVALID_ARGUMENT.
 */
trm_status trm_partition_bounded(const trm_network *network, const trm_mesh *mesh, int32_t rank,
                                 const trm_cost_model *model, const trm_shape_bound *bounds, int32_t n_bounds,
                                 trm_network **local, trm_partition_report *report);

/* Checks that the ranks that split an input's batch divide its size. */
trm_status trm_partition_check_batch(const trm_tensor *input, const trm_dims *dims);

/*
 * Makes the groups of the collectives of all stages, in the same order on every rank. In the first run that would
 * deadlock: a stage would make a group while the next, which must take part, waits to receive from it. Collective; does
 * nothing with one stage.
 */
trm_status trm_partition_open_groups(const trm_mesh *mesh, const trm_partition_report *report,
                                     trm_communicator *communicator);

#endif
