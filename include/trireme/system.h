/*
 * What the library found on this machine.
 */
#ifndef TRIREME_SYSTEM_H
#define TRIREME_SYSTEM_H

#include <trireme/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One line of the description: a group such as "libraries", a name in it, and its value. */
typedef void (*trm_system_fn)(void *user, const char *group, const char *name, const char *value);

/* Describes this build, the machine as far as this process may use it, the launcher, the GPUs, and the libraries found
 * at run time with their versions and paths, or why they were not found. Starts no MPI. */
TRM_API void trm_system_describe(trm_system_fn fn, void *user);

/* Number of GPUs that the CUDA backend of this build can use. */
TRM_API int32_t trm_system_gpu_count(void);

/* The backend that an option asks for: what TRM_BACKEND_AUTO stands for on this machine, any other as it is. */
TRM_API trm_backend trm_system_backend(trm_backend wanted);

#ifdef __cplusplus
}
#endif
#endif
