/*
 * What the library found on this machine.
 */
#ifndef TRIREME_SYSTEM_H
#define TRIREME_SYSTEM_H

#include <trireme/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One fact about this build or machine. The facts of a group come in a row, and so do those of an item of a list. */
typedef struct trm_system_fact {
    const char *group; /* "build" and "machine"; "numa_nodes", "gpus" and "libraries", which are lists */
    int32_t item;      /* of a list, from 0; -1 in other groups */
    const char *name;  /* such as "memory_bytes"; NULL: the list is empty */
    bool is_number;
    int64_t number;
    const char *text; /* if it is not a number; NULL: not known or not found */
} trm_system_fact;

typedef void (*trm_system_fn)(void *user, const trm_system_fact *fact);

/* Describes this build, the part of the machine that this process may use, the launcher, the GPUs, and the libraries:
 * version and path of each that was found at run time. Does not start MPI. */
TRM_API void trm_system_describe(trm_system_fn fn, void *user);

/* Number of GPUs that the CUDA backend of this build can use. */
TRM_API int32_t trm_system_gpu_count(void);

/* Bytes per second that the memory of a GPU moves at its highest clock: kernels reach nine tenths and more. 0 if there
 * is no such GPU or its driver does not say. */
TRM_API double trm_system_memory_rate(int32_t gpu);

/* Resolves TRM_BACKEND_AUTO for this machine; returns any other backend unchanged. */
TRM_API trm_backend trm_system_backend(trm_backend wanted);

#ifdef __cplusplus
}
#endif
#endif
