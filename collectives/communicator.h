/*
 * A communicator: the ranks of a world, or of one group of it, and the exchanges between them.
 *
 * Implementations: self (one rank), local (ranks as threads of one process, for tests and tools), MPI and TCP (host
 * memory), NCCL (device memory), peer memory beside NCCL. Every call is collective over the group and made in the same
 * order on each rank. Exchanges are enqueued on a stream; on host streams they are complete on return. No wait is
 * unbounded: a peer that misses the deadline is TRM_ERROR_LOST_RANK.
 */
#ifndef TRM_COLLECTIVES_COMMUNICATOR_H
#define TRM_COLLECTIVES_COMMUNICATOR_H

#include <trireme/layers/collective.h>

#include "kernels/call.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_communicator trm_communicator;

/* One exchange of flat buffers. `count` is elements of the smaller side: what one rank contributes in ALL_GATHER,
 * GATHER, what one rank receives in REDUCE_SCATTER, SCATTER, one block of ALL_TO_ALL (n blocks in all), the buffer
 * otherwise. `root` is a rank within this communicator. Blocks lie one after the other in rank order;
 * collectives/layer.c handles the axis of a layer. from == to is allowed if the sizes agree. */
typedef struct trm_exchange {
    trm_collective_op op;
    trm_reduce_op reduce;
    trm_dtype dtype;
    const void *from;
    void *to;
    size_t count;
    int32_t root;
} trm_exchange;

typedef struct trm_communicator_ops {
    const char *name; /* "self", "local", "mpi", "tcp", "nccl", "peer" */
    trm_status (*exchange)(trm_communicator *communicator, const trm_exchange *exchange, trm_stream *stream);
    /* Makes a communicator of `members` [n_members], ranks of this one in the new order, including this rank; n_members
     * 0: this rank joins no part and gets NULL. Parts made by one call differ in `colour`. Collective. */
    trm_status (*split)(trm_communicator *communicator, int32_t colour, const int32_t *members, int32_t n_members,
                        trm_communicator **part);
    /* Checks enqueued work for failures; never blocks. */
    trm_status (*check)(trm_communicator *communicator);
    /* Aborts: makes pending exchanges return soon. */
    void (*abort)(trm_communicator *communicator);
    void (*destroy)(trm_communicator *communicator);
} trm_communicator_ops;

/* Implementations begin with this. */
struct trm_communicator {
    const trm_communicator_ops *ops;
    int32_t rank, size;
    double deadline_seconds;
    int32_t world_ranks[TRM_MAX_RANKS]; /* global rank of each member */
    /* Called while waiting and by check, to learn of failures from elsewhere (dist/parallel/world.c). May be NULL. */
    trm_status (*watch)(void *user);
    void *watch_user;
    /* Sub-communicators for layers' groups, by colour set; owned. */
    struct trm_communicator_part *parts;
};

/* Whether an op takes a reduce operation, and whether it takes a root (the peer of SEND and RECV). */
bool trm_collective_reduces(trm_collective_op op);
bool trm_collective_has_root(trm_collective_op op);

trm_status trm_communicator_exchange(trm_communicator *communicator, const trm_exchange *exchange, trm_stream *stream);
/* The sub-communicator of this rank for `groups` [n_groups * group_size] of world ranks, for collectives/layer.c; made
 * by the first call, which is collective, and kept. n_groups == 0: the communicator itself. *part is NULL if the rank
 * is not a member. */
trm_status trm_communicator_part(trm_communicator *communicator, const int32_t *groups, int32_t n_groups,
                                 int32_t group_size, trm_communicator **part);
trm_status trm_communicator_check(trm_communicator *communicator);
void trm_communicator_abort(trm_communicator *communicator);
void trm_communicator_destroy(trm_communicator *communicator); /* NULL is ignored */

trm_status trm_communicator_self_create(trm_communicator **communicator);

/* `size` communicators over threads of this process; thread r uses communicators[r]. */
trm_status trm_communicator_local_create(int32_t size, double deadline_seconds, trm_communicator **communicators);

/* NCCL, loaded at run time. Rank 0 makes the id and all ranks pass it. Device memory of the current CUDA device. */
#define TRM_NCCL_ID_SIZE 128
trm_status trm_nccl_make_id(unsigned char id[TRM_NCCL_ID_SIZE]);
trm_status trm_communicator_nccl_create(trm_device *device, const unsigned char id[TRM_NCCL_ID_SIZE], int32_t rank,
                                        int32_t size, double deadline_seconds, trm_communicator **communicator);
/* Version of the NCCL found, such as 22809, and its path; 0 without NCCL, with the reason in `path`. */
int32_t trm_nccl_version(char *path, size_t size);

/* Small sums of device memory by kernels that write to the peers' memory, everything else by `inner`, which it takes
 * over. `host` moves host memory between the same ranks in the same order, and outlives it. If a rank has no peer
 * access to another, *communicator is `inner` itself on all ranks and `why` says what is missing. Exchanges of one
 * communicator use one stream. Collective. */
trm_status trm_communicator_peer_create(trm_device *device, trm_communicator *host, trm_communicator *inner,
                                        trm_communicator **communicator, char *why, size_t why_size);

#ifdef __cplusplus
}
#endif
#endif
