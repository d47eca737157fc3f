/*
 * Regions of system shared memory that clients registered, for tensors that do not travel with their requests. They are
 * read and written by pread and pwrite: a client may shrink its object at any time, and a mapping would then raise
 * SIGBUS.
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_SHARED_MEMORY_H
#define TRM_LAUNCHER_SERVE_NETWORK_SHARED_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "launcher/serve/requests/api_request.h"

#define SHARED_MAX_REGIONS  1024
#define SHARED_LONGEST_NAME 255

typedef struct shared_regions shared_regions;
typedef struct shared_region shared_region; /* reference-counted */

typedef struct shared_info {
    char name[SHARED_LONGEST_NAME + 1], key[SHARED_LONGEST_NAME + 1];
    uint64_t offset, size;
} shared_info;

trm_status shared_regions_create(shared_regions **result);
/* Accepts NULL. Regions that requests hold live on. */
void shared_regions_destroy(shared_regions *regions);

/* Opens the object `key` (shm_open). `regions` NULL: the server shares no memory. False with an error, also below. */
bool shared_register(shared_regions *regions, const char *name, const char *key, uint64_t offset, uint64_t size,
                     api_error *error);
/* name "": all. */
bool shared_unregister(shared_regions *regions, const char *name, api_error *error);
/* The regions of this name ("": all) [*n], to be freed. NULL with an error. */
shared_info *shared_status(shared_regions *regions, const char *name, size_t *n, api_error *error);

/* The region, if the bytes lie inside it; to be released. NULL with an error. */
shared_region *shared_find(shared_regions *regions, const char *name, uint64_t offset, uint64_t size, api_error *error);
void shared_release(shared_region *region); /* accepts NULL */
const char *shared_name(const shared_region *region);
/* Copy bytes at an offset of the region. Errors: INVALID_ARGUMENT (the object is shorter by now), IO. */
trm_status shared_read(const shared_region *region, uint64_t offset, void *to, size_t size);
trm_status shared_write(const shared_region *region, uint64_t offset, const void *from, size_t size);

#endif
