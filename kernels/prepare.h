/*
 * What some kernels plan on the host before they first run a problem, so that it can be planned ahead and on several
 * threads. A kernel that nobody prepared plans when it runs.
 */
#ifndef TRM_KERNELS_PREPARE_H
#define TRM_KERNELS_PREPARE_H

#include "kernels/kernel.h"

typedef struct trm_preparation {
    const char *kernel; /* its name */
    /* Whether nothing is left to plan for a call with real addresses, which is looked up, not planned. */
    bool (*is_done)(const trm_kernel_call *call);
    /* Plans it. Enqueues nothing; any thread, several at a time. What `run` does in another way is no error. */
    trm_status (*prepare)(const trm_kernel_call *call);
} trm_preparation;

/* That of a kernel, or NULL: it has nothing to plan. */
const trm_preparation *trm_preparation_find(const trm_kernel *kernel);

#endif
