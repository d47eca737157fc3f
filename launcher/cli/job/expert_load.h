/*
 * How many tokens routers give to each expert, layer by layer: counted from the debug tensors of a run.
 */
#ifndef TRM_LAUNCHER_CLI_JOB_EXPERT_LOAD_H
#define TRM_LAUNCHER_CLI_JOB_EXPERT_LOAD_H

#include <trireme/trireme.h>

#include "launcher/cli/job/report.h"

typedef struct expert_layer {
    char layer[128];
    int64_t *tokens; /* [n_experts] */
} expert_layer;

/* Starts with n_experts set and the rest zero. */
typedef struct expert_load {
    int64_t n_experts;
    expert_layer *rows; /* [n], in order of execution */
    size_t n, capacity;
    trm_status status;
} expert_load;

/* A trm_debug_fn; `user` is the load. Takes the ids of routers. Failures are kept in its status and end the run. */
bool expert_load_add(void *user, const trm_debug_tensor *tensor);
void expert_load_fini(expert_load *load);
void expert_load_report(const expert_load *load, report *r, const char *key);
void expert_load_print(const expert_load *load);

#endif
