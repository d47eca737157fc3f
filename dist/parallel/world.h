/*
 * The world of ranks, for the rest of dist/. The public calls are in <trireme/mesh.h>.
 */
#ifndef TRM_DIST_PARALLEL_WORLD_H
#define TRM_DIST_PARALLEL_WORLD_H

#include <trireme/mesh.h>

#include "collectives/communicator.h"

struct trm_world {
    int32_t rank, size;
    int32_t local_rank, local_size; /* among the ranks of this machine, including replicas */
    int32_t memory_sharers;         /* ranks that share the free memory of this machine, this one included */
    int32_t processors;             /* this rank's share of those on which it started */
    const char *launcher;           /* "none", "openmpi", "pmix", "slurm", "torchrun" */
    trm_device *device;
    trm_communicator *communicator;
    double deadline_seconds;
    const char *exchange;            /* "auto", "peer", "nccl": how device memory is exchanged */
    struct trm_bootstrap *bootstrap; /* control messages between ranks; NULL for one rank */
    uint32_t chosen_exchanges;       /* bit n: exchanges in groups of n ranks use measured times */
    int32_t timed_exchanges;         /* number of ways and sizes that were measured */
    double join_seconds, device_seconds, communicator_seconds; /* times of opening it (trm_startup) */
    trm_recorder *recorder;                                    /* the caller's, or NULL */
};

/* The recorder for failed calls about a world (base/recorder.h); NULL: the thread's. */
trm_recorder *trm_world_recorder(const trm_world *world);

/* Limits a host's memory to this rank's part: info's memory_free becomes its part of the free memory among the ranks
 * that start, but at most its part of all memory among all ranks, since lost replicas will need theirs again. *reserve,
 * a twentieth of that part, must stay free. */
void trm_world_share_memory(const trm_world *world, trm_device_info *info, size_t *reserve);

/* Number of extra threads that a rank may start, as for reading weights: its share of the processors. */
int32_t trm_world_threads(const trm_world *world);

/* Ranks of a mesh whose sizes have been checked. */
int32_t trm_mesh_ranks(const trm_mesh *mesh);
/* Resolves the mesh of an option: sizes of 0 become 1; zeros alone put all n_ranks on tp. */
trm_mesh trm_mesh_resolve(const trm_mesh *wanted, int32_t n_ranks);
/* Ranks that a partitioned network's tensors are split over: neighbours along tp or cp. */
int32_t trm_mesh_tensor_ranks(const trm_mesh *mesh);

/* Writes the minimum of each value over all ranks. Collective. */
trm_status trm_world_minimum(trm_world *world, int64_t *values, size_t n);

/* Whether ranks can exchange host memory: worlds made of parts may not. */
bool trm_world_has_host_communicator(const trm_world *world);

/* The communicator for host memory between all ranks. */
trm_status trm_world_host_communicator(trm_world *world, trm_communicator **communicator);

/* Waits until the device has passed `event`, at most the deadline, and watches the peers. Errors mention `what`. */
trm_status trm_world_await(trm_world *world, trm_event *event, const char *what);

/* Chooses how exchanges along the axes tp and cp work, by size: from the times in the timing cache, and, from level 2
 * on (trm_tune_options), from new measurements, which are added to it. Changes nothing without a cache, level or peer
 * memory. Done once per group size. Collective, with level 1 or more on all ranks or on none; rank 0's level and cache
 * count. No run of the world may be in flight on any rank, since measurements use the same mailboxes.
 * dist/parallel/exchange_times.c */
trm_status trm_world_choose_exchanges(trm_world *world, const trm_mesh *mesh, int32_t level, const char *cache);

/* Checks that all ranks pass the same bytes (options, network text): TRM_ERROR_INVALID_ARGUMENT with the first rank
 * that differs, on every rank. Collective. */
trm_status trm_world_agree(trm_world *world, const char *what, const void *bytes, size_t size);

#endif
