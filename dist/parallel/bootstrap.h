/*
 * How the ranks of a job find each other and talk before, beside and after the collectives on device memory.
 */
#ifndef TRM_DIST_PARALLEL_BOOTSTRAP_H
#define TRM_DIST_PARALLEL_BOOTSTRAP_H

#include "collectives/transport.h"
#include "dist/parallel/world.h"

typedef struct trm_bootstrap {
    trm_transport *transport;
    trm_communicator *control; /* host memory, all ranks */
    bool mpi;                  /* started by MPI, as opposed to TCP */
    bool finalize;             /* MPI was initialized here */
} trm_bootstrap;

/* Joins the peers: over MPI, or under torchrun over TCP. Collective. Fills in launch->size where it was unknown. */
trm_status trm_bootstrap_open(trm_launcher *launch, double deadline_seconds, trm_bootstrap **bootstrap);
/* Collective when nothing failed. NULL is ignored. */
void trm_bootstrap_close(trm_bootstrap *bootstrap);
/* all [size of the world, size] from mine [size] of every rank. Collective. */
trm_status trm_bootstrap_gather(trm_bootstrap *bootstrap, const void *mine, size_t size, void *all);
/* Whether every rank succeeded; else every rank gets the status of the first that failed, with its cause. Collective.
 */
trm_status trm_bootstrap_all_ok(trm_bootstrap *bootstrap, trm_status mine);
/* The status of a failure: that of the peer that told us of its own, else `mine`. */
trm_status trm_bootstrap_status(const trm_bootstrap *bootstrap, trm_status mine);
/* Tells the peers of this rank's failure, or waits for the rank that told us of its own, and ends the job. */
void trm_bootstrap_abort(trm_bootstrap *bootstrap, trm_status status);

#endif
