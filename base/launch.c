/*
 * Rank and size from the environment variables of launchers. Every launcher's variables are read; the first found
 * decides, and the others must agree. Slurm stands before PMI: under srun --mpi=pmi2, Open MPI cannot start.
 */
#include "base/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/layers/common.h>

#include "base/error.h"

const char *trm_environment(const char *name)
{
    return getenv(name);
}

/* Names of a launcher's variables; NULL: none. */
typedef struct source {
    const char *launcher;
    const char *rank, *size, *local_rank, *local_size;
} source;

static const source sources[] = {
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"pmix", "PMIX_RANK", NULL, NULL, NULL},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};
#define N_SOURCES (sizeof(sources) / sizeof(sources[0]))

/* A whole number from 0 to `limit`; -1 if the variable is not set. */
static trm_status read_number(trm_environment_fn *get, const char *name, int32_t limit, int32_t *value)
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
static bool slurm_is_outer(trm_environment_fn *get)
{
    return get("SLURM_STEP_ID") == NULL || get("OMPI_COMM_WORLD_RANK") != NULL || get("TORCHELASTIC_RUN_ID") != NULL;
}

/* Whether the launcher started this process as a rank. */
static bool has_started(trm_environment_fn *get, const source *s)
{
    bool is_slurm = strcmp(s->launcher, "slurm") == 0, is_torchrun = strcmp(s->launcher, "torchrun") == 0;
    return get(s->rank) != NULL && !(is_slurm && slurm_is_outer(get)) &&
           !(is_torchrun && get(s->size) == NULL); /* RANK alone is too common to indicate torchrun */
}

const char *trm_launcher_rank(trm_environment_fn *get)
{
    for (size_t i = 0; i < N_SOURCES; i++) {
        if (has_started(get, &sources[i])) {
            return get(sources[i].rank);
        }
    }
    return NULL;
}

/* launch->launcher stays NULL if the launcher did not start this process. Unknown values: size 0, local_rank and
 * local_size -1. */
static trm_status read_source(trm_environment_fn *get, const source *s, trm_launcher *launch)
{
    *launch = (trm_launcher){.local_rank = -1, .local_size = -1};
    bool slurm = strcmp(s->launcher, "slurm") == 0;
    if (!has_started(get, s)) {
        return TRM_OK;
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

/* Open MPI binds each of up to two ranks to a core, others to a socket or a NUMA node. It passes the options of its
 * command line on to the ranks. */
static bool binds_by_default(trm_environment_fn *get)
{
    static const char *const wishes[] = {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_bind_to_core",
                                         "OMPI_MCA_hwloc_base_bind_to_socket", "OMPI_MCA_hwloc_base_cpu_set",
                                         "OMPI_MCA_hwloc_base_cpu_list",       "OMPI_MCA_orte_rankfile",
                                         "OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_rmaps_base_cpus_per_rank"};
    bool asked = false;
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        asked = asked || get(wishes[i]) != NULL;
    }
    return !asked && get("OMPI_MCA_orte_bound_at_launch") != NULL;
}

trm_status trm_launcher_detect(trm_environment_fn *get, trm_launcher *launch)
{
    trm_launcher found = {.local_rank = -1, .local_size = -1};
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
    *launch = first != NULL ? found : (trm_launcher){.launcher = "none", .size = 1, .local_size = 1};
    launch->binds_by_default = binds_by_default(get);
    return TRM_OK;
}

bool trm_launcher_has_no_mpi(const trm_launcher *launch)
{
    return strcmp(launch->launcher, "torchrun") == 0 || strcmp(launch->launcher, "slurm") == 0;
}

/* The first host of Slurm's "rack[1-2]node[03,05-07],login1": rack1node03. */
static bool first_host(const char *list, char *host, size_t size)
{
    size_t n = 0;
    for (const char *at = list; *at != '\0' && *at != ','; at++) {
        if (*at == '[') {
            const size_t digits = strspn(at + 1, "0123456789");
            const char *end = strchr(at, ']');
            if (digits == 0 || end == NULL || n + digits >= size) {
                return false;
            }
            memcpy(host + n, at + 1, digits);
            n += digits;
            at = end;
        } else if (n + 1 < size) {
            host[n++] = *at;
        } else {
            return false;
        }
    }
    host[n] = '\0';
    return n > 0;
}

/* The host of rank 0 of a Slurm step. */
static trm_status slurm_host(trm_environment_fn *get, const trm_launcher *launch, trm_meeting_point *point)
{
    if (launch->local_size == launch->size) {
        snprintf(point->host, sizeof(point->host), "127.0.0.1");
        return TRM_OK;
    }
    const char *name = get("SLURM_STEP_NODELIST") != NULL ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    const char *list = get(name);
    if (list == NULL || !first_host(list, point->host, sizeof(point->host))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "environment variable %s is %s, expected a list of hosts: set MASTER_ADDR to the host of rank 0", name,
                 list == NULL ? "not set" : list);
    }
    return TRM_OK;
}

/* A port for a Slurm step: those of one job, and of the jobs beside it, differ. */
static trm_status slurm_port(trm_environment_fn *get, trm_meeting_point *point)
{
    unsigned long long ids[2];
    static const char *const names[] = {"SLURM_JOB_ID", "SLURM_STEP_ID"};
    for (int i = 0; i < 2; i++) {
        const char *text = get(names[i]);
        char *end = NULL;
        ids[i] = text != NULL ? strtoull(text, &end, 10) : 0;
        if (text == NULL || text[0] < '0' || text[0] > '9' || *end != '\0') {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "environment variable %s is %s, expected a number: set MASTER_PORT to a free port", names[i],
                     text == NULL ? "not set" : text);
        }
    }
    point->port =
        (uint16_t)(TRM_SLURM_FIRST_PORT + (ids[0] % TRM_SLURM_PORTS * 31 + ids[1] % TRM_SLURM_PORTS) % TRM_SLURM_PORTS);
    return TRM_OK;
}

trm_status trm_launcher_meeting_point(trm_environment_fn *get, const trm_launcher *launch, trm_meeting_point *point)
{
    const char *host = get("MASTER_ADDR"), *text = get("TRIREME_PORT"), *master = get("MASTER_PORT");
    const char *name = text != NULL ? "TRIREME_PORT" : "MASTER_PORT";
    bool is_slurm = strcmp(launch->launcher, "slurm") == 0;
    long offset = text == NULL; /* torchrun's own store uses MASTER_PORT */
    text = text != NULL ? text : master;
    char *end = NULL;
    long port = text != NULL ? strtol(text, &end, 10) : 0;
    bool is_port = text != NULL && *end == '\0' && port >= 1 && port + offset <= 65535;
    bool lacks_host = host == NULL && !is_slurm, lacks_port = text == NULL && !is_slurm;
    if (lacks_host || lacks_port || (text != NULL && !is_port)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "environment variable %s is %s, expected %s for %d ranks without MPI",
                 lacks_host ? "MASTER_ADDR" : name, lacks_host || lacks_port ? "not set" : text,
                 lacks_host ? "the host of rank 0" : "a port", (int)launch->size);
    }
    *point = (trm_meeting_point){.port = (uint16_t)(port + offset)};
    if (host == NULL) {
        TRM_TRY(slurm_host(get, launch, point));
    } else if (snprintf(point->host, sizeof(point->host), "%s", host) >= (int)sizeof(point->host)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "environment variable MASTER_ADDR has %zu characters, expected at most %zu", strlen(host),
                 sizeof(point->host) - 1);
    }
    return text == NULL ? slurm_port(get, point) : TRM_OK;
}
