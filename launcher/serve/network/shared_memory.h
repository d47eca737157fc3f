/*
 * Regions of memory that clients registered, for tensors that do not travel with their requests. The CPU reads and
 * writes those of system shared memory by pread and pwrite: a client may shrink its object at any time, and a mapping
 * would then raise SIGBUS. A GPU copies from a pinned mapping, whose pages stay. Those of CUDA are memory of the
 * server's GPU, which stays while a region is registered or used, also if its client has ended.
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_SHARED_MEMORY_H
#define TRM_LAUNCHER_SERVE_NETWORK_SHARED_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/mesh.h>

#include "launcher/serve/requests/api_request.h"

#define SHARED_MAX_REGIONS  1024 /* of both kinds */
#define SHARED_LONGEST_NAME 255

typedef enum shared_kind { SHARED_SYSTEM, SHARED_CUDA } shared_kind;
typedef struct shared_regions shared_regions;
typedef struct shared_region shared_region; /* reference-counted */

typedef struct shared_info {
    shared_kind kind;
    char name[SHARED_LONGEST_NAME + 1], key[SHARED_LONGEST_NAME + 1];
    uint64_t offset, size;
    int32_t device; /* of CUDA */
} shared_info;

/* The world, which must outlive the regions and all requests, has the GPU. */
trm_status shared_regions_create(trm_world *world, shared_regions **result);
/* Accepts NULL. Regions that requests hold live on. */
void shared_regions_destroy(shared_regions *regions);

/* The names of the protocol's extensions that a server with these regions has; the count. */
#define SHARED_EXTENSIONS 5
size_t shared_extensions(const shared_regions *regions, const char *names[SHARED_EXTENSIONS]);

/* Opens the object `key` (shm_open). `regions` NULL: the server shares no memory. False with an error, also below. */
bool shared_register(shared_regions *regions, const char *name, const char *key, uint64_t offset, uint64_t size,
                     api_error *error);
/* Opens memory by its cudaIpcMemHandle_t [handle_size]; `device` is the GPU as the server counts. */
bool shared_register_cuda(shared_regions *regions, const char *name, const void *handle, size_t handle_size,
                          int64_t device, uint64_t size, api_error *error);
/* name "": all of the kind. */
bool shared_unregister(shared_regions *regions, shared_kind kind, const char *name, api_error *error);
/* The regions of this kind and name ("": all) [*n], to be freed. NULL with an error. */
shared_info *shared_status(shared_regions *regions, shared_kind kind, const char *name, size_t *n, api_error *error);

/* The region, if the bytes lie inside it; to be released. NULL with an error. */
shared_region *shared_find(shared_regions *regions, const char *name, uint64_t offset, uint64_t size, api_error *error);
void shared_release(shared_region *region); /* accepts NULL */
const char *shared_name(const shared_region *region);
/* Memory of the GPU; NULL: it is system shared memory. */
char *shared_device(const shared_region *region);
/* Where copies to the GPU find the bytes at an offset: memory of the GPU, or a pinned mapping, which the CPU must not
 * touch. NULL: use shared_read. The first call for a region of the system pins it. */
const char *shared_source(shared_region *region, uint64_t offset);
/* Copy bytes at an offset of the region. Errors: INVALID_ARGUMENT (the object is shorter by now), IO. */
trm_status shared_read(const shared_region *region, uint64_t offset, void *to, size_t size);
trm_status shared_write(const shared_region *region, uint64_t offset, const void *from, size_t size);

#endif
