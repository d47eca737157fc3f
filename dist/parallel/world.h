/*
 * The world of ranks as the rest of dist/ sees it. The public calls are in <trireme/mesh.h>.
 */
#ifndef TRM_DIST_PARALLEL_WORLD_H
#define TRM_DIST_PARALLEL_WORLD_H

#include <trireme/mesh.h>

#include "collectives/communicator.h"

struct trm_world {
    int32_t rank, size;
    int32_t local_rank, local_size; /* among the ranks of this machine, those of replicas of this world too */
    int32_t memory_sharers;         /* ranks that divide what memory of this machine is free, this one included */
    const char *launcher;           /* "none", "openmpi", "pmix", "slurm", "torchrun" */
    trm_device *device;
    trm_communicator *communicator;
    double deadline_seconds;
    const char *exchange;            /* "auto", "peer", "nccl": how device memory is to travel */
    struct trm_bootstrap *bootstrap; /* control messages between ranks; NULL for one rank */
    uint32_t chosen_exchanges;       /* bit n: those between groups of n ranks, by times */
    int32_t timed_exchanges;         /* ways and sizes that were measured, not known */
    double join_seconds, device_seconds, communicator_seconds; /* what opening it took (trm_startup) */
    trm_recorder *recorder;                                    /* the caller's, or NULL */
};

/* Where failures of calls about a world go (base/recorder.h); NULL, as for no world: to the thread's recorder. */
trm_recorder *trm_world_recorder(const trm_world *world);

/* A host's memory as one of its ranks may use it: info's memory_free becomes its part of what is free among those that
 * start, but of all memory at most its part among all ranks, as others may have been lost meanwhile and need theirs
 * again. *reserve, a twentieth of that part, is not to be used. */
void trm_world_share_memory(const trm_world *world, trm_device_info *info, size_t *reserve);

/* Threads that a rank of this world may start beside its own, as for reading weights: its share of the processors. */
int32_t trm_world_threads(const trm_world *world);

/* Ranks of a mesh whose sizes have been checked. */
int32_t trm_mesh_ranks(const trm_mesh *mesh);
/* The mesh that an option asks for: sizes of 0 are 1; zeros alone put all n_ranks on tp. */
trm_mesh trm_mesh_resolve(const trm_mesh *wanted, int32_t n_ranks);
/* Of them, those that a partitioned network's tensors are spread over: runs of neighbours along tp or cp. */
int32_t trm_mesh_tensor_ranks(const trm_mesh *mesh);

/* Rank and size as the environment tells them. */
typedef struct trm_launcher {
    const char *launcher;
    int32_t rank, size, local_rank, local_size;
} trm_launcher;
/* Reads Open MPI, PMIx, PMI, Slurm and torchrun variables through `get` (getenv in production). Variables that
 * contradict each other are TRM_ERROR_INVALID_ARGUMENT naming both. */
trm_status trm_launcher_detect(const char *(*get)(const char *name), trm_launcher *launch);

/* The smallest of all ranks' values, each by itself, on every rank. Collective. */
trm_status trm_world_minimum(trm_world *world, int64_t *values, size_t n);

/* Whether ranks can: worlds made of parts may have no way for host bytes between devices. */
bool trm_world_has_host_communicator(const trm_world *world);

/* The communicator that moves host bytes between all ranks. */
trm_status trm_world_host_communicator(trm_world *world, trm_communicator **communicator);

/* Waits until the device has passed `event`, at most the deadline, watching the peers. `what` is for the error. */
trm_status trm_world_await(trm_world *world, trm_event *event, const char *what);

/* Which way exchanges along the axes tp and cp take, by their size: from the times in the timing cache, and with
 * a level of 2 or more (trm_tune_options) from new ones where it lacks them, which are added to it. Without a cache, a
 * level or peer memory what it was stays. Once for groups of a size: chosen by measured times, or by a cache that knows
 * all of them. Collective, at levels of 1 or more on all ranks or on none; rank 0's level and cache are those of all.
 * No run of the world may be in flight on any rank: what is measured uses the same mailboxes.
 * dist/parallel/exchange_times.c */
trm_status trm_world_choose_exchanges(trm_world *world, const trm_mesh *mesh, int32_t level, const char *cache);

/* Whether all ranks pass the same bytes (options, network text): TRM_ERROR_INVALID_ARGUMENT naming the first rank that
 * differs, on every rank. Collective. */
trm_status trm_world_agree(trm_world *world, const char *what, const void *bytes, size_t size);

#endif
