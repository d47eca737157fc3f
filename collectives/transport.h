/*
 * Transports: messages of host bytes between the ranks of a job, over MPI, TCP, or the memory of one process.
 *
 * A transport moves sets of messages, has deadlines, and carries notices that a rank has failed. collectives/pairwise.c
 * builds exchanges on it.
 */
#ifndef TRM_COLLECTIVES_TRANSPORT_H
#define TRM_COLLECTIVES_TRANSPORT_H

#include "collectives/communicator.h"
#include "collectives/tcp_connect.h"

/* Why a rank failed. */
typedef struct trm_notice {
    int32_t rank;
    int32_t status; /* trm_status; TRM_OK: no notice */
    char cause[512];
} trm_notice;

typedef struct trm_message {
    int32_t peer; /* rank of the job */
    void *bytes;
    size_t size; /* > 0; known to both sides */
} trm_message;

typedef struct trm_transport trm_transport;

typedef struct trm_transport_ops {
    const char *name;
    /* Transfers messages, at most one to and one from each peer; returns when all have arrived and sent buffers may be
     * overwritten. Messages between two ranks on one channel match in the order they were given. On failure the
     * transport is broken for good. */
    trm_status (*transfer)(trm_transport *transport, uint32_t channel, double deadline_seconds,
                           const trm_message *sends, int32_t n_sends, const trm_message *receives, int32_t n_receives);
    /* Sends a notice to every peer, and waits until they have it, at most `seconds`. */
    void (*notify)(trm_transport *transport, const trm_notice *notice, double seconds);
    /* Reads a notice that has arrived. */
    void (*poll)(trm_transport *transport);
    void (*destroy)(trm_transport *transport);
} trm_transport_ops;

struct trm_transport {
    const trm_transport_ops *ops;
    int32_t rank, size;
    int32_t users;     /* references: communicators, and the creator until trm_transport_release */
    trm_notice notice; /* the first failure known; later transfers fail with it */
};

/* One transport per rank, for threads of this process. */
trm_status trm_transport_local_create(int32_t size, trm_transport **transports);
/* Over MPI_COMM_WORLD, which must be initialized. Collective. */
trm_status trm_transport_mpi_create(double deadline_seconds, trm_transport **transport);
/* Rank 0 listens, the others connect; then every pair is connected. Collective. */
trm_status trm_transport_tcp_create(int32_t rank, int32_t size, const trm_tcp_options *options,
                                    trm_transport **transport);

/* OK, or LOST_RANK with the notice that arrived. Never blocks. */
trm_status trm_transport_check(trm_transport *transport);
/* Records the first notice and logs it; returns TRM_ERROR_LOST_RANK with its text, or for a notice of this rank's own
 * the status in it. */
trm_status trm_transport_break(trm_transport *transport, const trm_notice *notice);
/* Breaks the transport because `rank` missed the deadline or is gone. */
trm_status trm_transport_lost(trm_transport *transport, int32_t rank, const char *format, ...) TRM_PRINTF(3, 4);
void trm_transport_retain(trm_transport *transport);
void trm_transport_release(trm_transport *transport); /* NULL is ignored */

/* A communicator of all ranks over a transport, which it retains. */
trm_status trm_communicator_pairwise_create(trm_transport *transport, double deadline_seconds,
                                            trm_communicator **communicator);

/* Sizes at which messages are split; variables, so that small buffers can reach them. Scratch bytes of a communicator
 * for reductions; bytes up to which an all-reduce sends everything to everyone; bytes of one MPI message. */
extern size_t trm_pairwise_scratch_size;
extern size_t trm_pairwise_small_size;
extern size_t trm_mpi_message_size;

#endif
