/*
 * What the layers of a step wait for weights that stream: a list, reported whole as JSON and in a few lines as text.
 */
#ifndef TRM_LAUNCHER_CLI_JOB_STALLS_H
#define TRM_LAUNCHER_CLI_JOB_STALLS_H

#include <trireme/trireme.h>

#include "launcher/cli/job/report.h"

typedef struct stall {
    char layer[128];
    double seconds;
} stall;

/* Zero-initialized is empty. */
typedef struct stall_list {
    stall *rows; /* [n] */
    size_t n, capacity;
    double seconds; /* of all */
    trm_status status;
} stall_list;

/* A trm_stall_fn, `user` the list; what it lacks memory for sticks in its status. */
void stall_list_add(void *user, const char *layer, double seconds);
void stall_list_fini(stall_list *list);
/* An array of every layer in its order. */
void stall_list_report(const stall_list *list, report *r, const char *key);
/* A line with the sum and those that wait longest, equal layers of repeated blocks together; nothing of an empty one.
 */
void stall_list_print(const stall_list *list, const char *what);

#endif
