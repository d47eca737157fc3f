/*
 * The partitioner: from one network and a mesh to the network of each rank.
 *
 * Chooses a sharding for every tensor by a cost model, cuts weights, divides head counts, and writes ordinary
 * DIST_COLLECTIVE layers where a tensor must change its sharding. Ranks along dp share the batch of a network that has
 * no state. Inputs and outputs of the network stay whole on every rank; states are sharded with the layers that use
 * them. The property it keeps: every rank count gives what one rank gives.
 */
#ifndef TRM_DIST_PARTITION_PARTITION_H
#define TRM_DIST_PARTITION_PARTITION_H

#include <trireme/engine.h>
#include <trireme/mesh.h>

#include "collectives/communicator.h"
#include "graph/network.h"
#include "graph/sharding.h"

/* What moving and computing costs, for the choice of shardings. */
typedef struct trm_cost_model {
    double memory_bandwidth;   /* bytes per second of device memory */
    double compute_rate;       /* FLOP per second of matrix products */
    double link_bandwidth;     /* bytes per second of one rank's links in an all-gather */
    double link_latency;       /* seconds of one small exchange */
    double layer_overhead;     /* seconds to start one layer */
    double memory_price;       /* a byte of weights or state held is as bad as this many reads of it per run */
    int64_t unknown_dimension; /* what a dimension of -1 is taken as */
    const int32_t *runs;       /* [layers of the network] how often each runs in a run; NULL: as trm_layer_runs tells of
                                  any inputs */
} trm_cost_model;
void trm_cost_model_default(trm_backend backend, trm_cost_model *model);

typedef struct trm_partition_report {
    int32_t n_collectives;
    double bytes_exchanged; /* per rank and run, unknown dimensions and runs of layers as in the cost model */
    double seconds;         /* the cost model's estimate of one run of this rank's stage */
    int32_t n_parts;        /* with several stages: numbers of ranks that the collectives of any of them may join */
    int32_t parts[8];
    bool shares_batch; /* ranks along dp have a part of the batch each */
    bool as_written;   /* the network has exchanges of its own: the rank runs it as it is */
    bool has_regions;  /* there are loops or branches, perhaps in another stage; false of networks as written, which
                          other ranks may have others of */
    char note[512];    /* what could not be split and why, or "" */
} trm_partition_report;

/*
 * Makes the network of `rank`. `model` and `report` may be NULL. The same on every rank but for what depends on the
 * rank's index. TRM_ERROR_INVALID_ARGUMENT with the reason where a pin or the mesh cannot be met.
 */
trm_status trm_partition(const trm_network *network, const trm_mesh *mesh, int32_t rank, const trm_cost_model *model,
                         trm_network **local, trm_partition_report *report);

/*
 * The same where it is known what inputs may be like: one whose first dimension differs from that of the others has no
 * part in the batch that ranks along dp share. A batch of known size that they do not divide is
 * TRM_ERROR_INVALID_ARGUMENT.
 */
trm_status trm_partition_bounded(const trm_network *network, const trm_mesh *mesh, int32_t rank,
                                 const trm_cost_model *model, const trm_shape_bound *bounds, int32_t n_bounds,
                                 trm_network **local, trm_partition_report *report);

/* Whether the ranks that share the batch of an input of a rank's network divide it. */
trm_status trm_partition_check_batch(const trm_tensor *input, const trm_dims *dims);

/*
 * Makes the parts of the communicator for the collectives of all stages, in the same order on every rank. Left to the
 * first run, a stage would make one while the next, which must take part in that, waits to receive from it. Collective;
 * nothing to do with one stage.
 */
trm_status trm_partition_open_groups(const trm_mesh *mesh, const trm_partition_report *report,
                                     trm_communicator *communicator);

#endif
