/*
 * Rank and size from the environment variables of launchers. Every launcher's variables are read; the first found
 * decides, and the others must agree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dist/parallel/world.h"

typedef const char *get_fn(const char *name);

/* Names of a launcher's variables; NULL: none. */
typedef struct source {
    const char *launcher;
    const char *rank, *size, *local_rank, *local_size;
} source;

static const source sources[] = {
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"pmix", "PMIX_RANK", NULL, NULL, NULL},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};
#define N_SOURCES (sizeof(sources) / sizeof(sources[0]))

/* A whole number from 0 to `limit`; -1 if the variable is not set. */
static trm_status read_number(get_fn *get, const char *name, int32_t limit, int32_t *value)
{
    const char *text = name != NULL ? get(name) : NULL;
    *value = -1;
    if (text == NULL) {
        return TRM_OK;
    }
    char *end;
    long number = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number > limit) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "environment variable %s is \"%s\", expected a number from 0 to %d", name,
                 text, (int)limit);
    }
    *value = (int32_t)number;
    return TRM_OK;
}

/* Tasks on node `node` from Slurm's "2(x3),1"; -1 if unknown. */
static int32_t slurm_tasks_on_node(const char *text, int32_t node)
{
    while (text != NULL && *text != '\0' && node >= 0) {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;
        if (end == text || tasks < 1 || tasks > TRM_MAX_RANKS) {
            return -1;
        }
        if (strncmp(end, "(x", 2) == 0) {
            times = strtol(end + 2, &end, 10);
            end += *end == ')';
        }
        if (times < 1 || node < times) {
            return times < 1 ? -1 : (int32_t)tasks;
        }
        node -= (int32_t)times;
        text = *end == ',' ? end + 1 : end;
    }
    return -1;
}

/* Inside a Slurm step, mpirun and torchrun run at most once per node and pass on Slurm's variables to the ranks, which
 * then describe that process and not the rank. */
static bool slurm_is_outer(get_fn *get)
{
    return get("SLURM_STEP_ID") == NULL || get("OMPI_COMM_WORLD_RANK") != NULL || get("TORCHELASTIC_RUN_ID") != NULL;
}

/* launch->launcher stays NULL if the launcher's variables are absent. Unknown values: size 0, local_rank and local_size
 * -1. */
static trm_status read_source(get_fn *get, const source *s, trm_launcher *launch)
{
    *launch = (trm_launcher){NULL, 0, 0, -1, -1};
    bool slurm = strcmp(s->launcher, "slurm") == 0, torchrun = strcmp(s->launcher, "torchrun") == 0;
    if (get(s->rank) == NULL || (slurm && slurm_is_outer(get)) || (torchrun && get(s->size) == NULL)) {
        return TRM_OK; /* RANK alone is too common to indicate torchrun */
    }
    TRM_TRY(read_number(get, s->rank, TRM_MAX_RANKS - 1, &launch->rank));
    if (s->size != NULL) {
        const char *name = slurm && get("SLURM_STEP_NUM_TASKS") != NULL ? "SLURM_STEP_NUM_TASKS" : s->size;
        TRM_TRY(read_number(get, name, TRM_MAX_RANKS, &launch->size));
        if (launch->size < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "environment variable %s is set, but %s is not", s->rank, name);
        }
        if (launch->rank >= launch->size) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "environment variable %s is %d, expected less than %s, which is %d",
                     s->rank, (int)launch->rank, name, (int)launch->size);
        }
    }
    TRM_TRY(read_number(get, s->local_rank, TRM_MAX_RANKS - 1, &launch->local_rank));
    TRM_TRY(read_number(get, s->local_size, TRM_MAX_RANKS, &launch->local_size));
    if (slurm) {
        int32_t node;
        TRM_TRY(read_number(get, "SLURM_NODEID", INT32_MAX, &node));
        launch->local_size = slurm_tasks_on_node(get("SLURM_STEP_TASKS_PER_NODE"), node);
    }
    launch->launcher = s->launcher;
    return TRM_OK;
}

trm_status trm_launcher_detect(const char *(*get)(const char *name), trm_launcher *launch)
{
    trm_launcher found = {NULL, 0, 0, -1, -1};
    const source *first = NULL, *sized = NULL;
    for (size_t i = 0; i < N_SOURCES; i++) {
        trm_launcher read;
        TRM_TRY(read_source(get, &sources[i], &read));
        if (read.launcher == NULL) {
            continue;
        }
        if (first == NULL) {
            found = read;
            first = &sources[i];
        } else if (read.rank != found.rank) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "environment variables %s and %s contradict each other: %d and %d",
                     first->rank, sources[i].rank, (int)found.rank, (int)read.rank);
        }
        if (read.size > 0 && found.size > 0 && read.size != found.size) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "environment variables %s and %s contradict each other: %d and %d",
                     sized->size, sources[i].size, (int)found.size, (int)read.size);
        }
        if (read.size > 0) {
            sized = &sources[i];
            found.size = read.size;
        }
        found.local_rank = found.local_rank < 0 ? read.local_rank : found.local_rank;
        found.local_size = found.local_size < 0 ? read.local_size : found.local_size;
    }
    *launch = first != NULL ? found : (trm_launcher){"none", 0, 1, 0, 1};
    return TRM_OK;
}
