/*
 * Waits of the layers of a step for streamed weights, reported in full as JSON and in a few lines as text.
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

/* A trm_stall_fn; `user` is the list. Allocation failures are kept in its status. */
void stall_list_add(void *user, const char *layer, double seconds);
void stall_list_fini(stall_list *list);
/* Reports every layer in order, as an array. */
void stall_list_report(const stall_list *list, report *r, const char *key);
/* Prints the total and the longest waits, with repeated blocks merged; nothing for an empty list. */
void stall_list_print(const stall_list *list, const char *what);

#endif
