/*
 * How the ranks of a job find each other and exchange host memory.
 */
#ifndef TRM_DIST_PARALLEL_BOOTSTRAP_H
#define TRM_DIST_PARALLEL_BOOTSTRAP_H

#include "base/launch.h"
#include "collectives/transport.h"
#include "dist/parallel/world.h"

typedef struct trm_bootstrap {
    trm_transport *transport;
    trm_communicator *control; /* host memory, all ranks */
    bool mpi;                  /* started by MPI, not TCP */
    bool finalize;             /* MPI was initialized here */
} trm_bootstrap;

/* Joins the peers: over MPI, or over TCP under launchers without it. Collective. Fills in launch->size if it was
 * unknown. */
trm_status trm_bootstrap_open(trm_launcher *launch, double deadline_seconds, trm_bootstrap **bootstrap);
/* Collective if nothing failed. Ignores NULL. */
void trm_bootstrap_close(trm_bootstrap *bootstrap);
/* Gathers mine [size] of every rank into all [ranks, size]. Collective. */
trm_status trm_bootstrap_gather(trm_bootstrap *bootstrap, const void *mine, size_t size, void *all);
/* Compares the status of all ranks: if one failed, every rank gets the status of the first that failed, with its cause.
 * Collective. */
trm_status trm_bootstrap_all_ok(trm_bootstrap *bootstrap, trm_status mine);
/* The status of the peer that reported a failure, else `mine`. */
trm_status trm_bootstrap_status(const trm_bootstrap *bootstrap, trm_status mine);
/* Reports this rank's failure to the peers, or waits for the rank that reported its own, and ends the job. */
void trm_bootstrap_abort(trm_bootstrap *bootstrap, trm_status status);

#endif
