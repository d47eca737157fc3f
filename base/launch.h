/*
 * Which launcher started this process as a rank, and where the ranks of a launcher without MPI meet. All read the
 * environment through `get` (trm_environment in production).
 */
#ifndef TRM_BASE_LAUNCH_H
#define TRM_BASE_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/status.h>

typedef const char *trm_environment_fn(const char *name);
/* getenv. */
const char *trm_environment(const char *name);

/* Rank and size from the environment. */
typedef struct trm_launcher {
    const char *launcher; /* "none", "openmpi", "pmix", "slurm", "pmi" or "torchrun" */
    int32_t rank, size, local_rank, local_size;
    bool binds_by_default; /* the launcher has bound this rank to processors although nobody asked it to */
} trm_launcher;
/* Reads Open MPI, PMIx, Slurm, PMI and torchrun variables. Size 0, local_rank and local_size -1: unknown. Variables
 * that contradict each other are TRM_ERROR_INVALID_ARGUMENT naming both. */
trm_status trm_launcher_detect(trm_environment_fn *get, trm_launcher *launch);
/* The text of the rank that trm_launcher_detect reads; NULL if no launcher started this process. Never fails. */
const char *trm_launcher_rank(trm_environment_fn *get);
/* Whether ranks meet over TCP: under torchrun, and under srun without PMIx. */
bool trm_launcher_has_no_mpi(const trm_launcher *launch);

/* Ports of Slurm's steps without MASTER_PORT and TRIREME_PORT. */
#define TRM_SLURM_FIRST_PORT 20000
#define TRM_SLURM_PORTS      9000

typedef struct trm_meeting_point {
    char host[256]; /* of rank 0 */
    uint16_t port;
} trm_meeting_point;
/* Where ranks meet over TCP: MASTER_ADDR, and TRIREME_PORT or MASTER_PORT + 1. Under srun the defaults are the first
 * host of the step, the loopback device if it is the only one, and a port made from the job and the step. */
trm_status trm_launcher_meeting_point(trm_environment_fn *get, const trm_launcher *launch, trm_meeting_point *point);

#endif
