/* Regions of system shared memory. */
#include "launcher/serve/network/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

struct shared_region {
    atomic_int references;
    shared_region *next;
    int fd;
    shared_info info;
};

struct shared_regions {
    pthread_mutex_t lock;
    shared_region *first;
    int32_t count;
};

trm_status shared_regions_create(shared_regions **result)
{
    shared_regions *regions = calloc(1, sizeof(*regions));
    if (regions == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the list of shared memory");
    }
    pthread_mutex_init(&regions->lock, NULL);
    *result = regions;
    return TRM_OK;
}

void shared_release(shared_region *region)
{
    if (region != NULL && atomic_fetch_sub(&region->references, 1) == 1) {
        close(region->fd);
        free(region);
    }
}

void shared_regions_destroy(shared_regions *regions)
{
    if (regions == NULL) {
        return;
    }
    for (shared_region *region = regions->first, *next; region != NULL; region = next) {
        next = region->next;
        shared_release(region);
    }
    pthread_mutex_destroy(&regions->lock);
    free(regions);
}

static bool check_on(const shared_regions *regions, api_error *error)
{
    return regions != NULL ||
           api_fail(error, 400, NULL, NULL, "the server shares no memory with its clients (--shared-memory)");
}

/* An object of shm_open has no folder. */
static bool check_key(const char *key, api_error *error)
{
    const char *name = key[0] == '/' ? key + 1 : key;
    return (name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
            strlen(name) < SHARED_LONGEST_NAME) ||
           api_fail(error, 400, NULL, NULL, "shared memory key \"%.64s\" is no name of an object", key);
}

/* Whether the object has these bytes. */
static bool check_size(int fd, const char *key, uint64_t offset, uint64_t size, api_error *error)
{
    struct stat status;
    uint64_t end;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return api_fail(error, 400, NULL, NULL, "shared memory %s is no regular object", key);
    }
    return (!__builtin_add_overflow(offset, size, &end) && end <= (uint64_t)status.st_size) ||
           api_fail(error, 400, NULL, NULL,
                    "shared memory %s has %lld bytes, too few for %" PRIu64 " bytes at offset %" PRIu64, key,
                    (long long)status.st_size, size, offset);
}

static shared_region *find(const shared_regions *regions, const char *name)
{
    shared_region *region = regions->first;
    while (region != NULL && strcmp(region->info.name, name) != 0) {
        region = region->next;
    }
    return region;
}

bool shared_register(shared_regions *regions, const char *name, const char *key, uint64_t offset, uint64_t size,
                     api_error *error)
{
    if (!check_on(regions, error) || !check_key(key, error)) {
        return false;
    }
    if (name[0] == '\0' || strlen(name) > SHARED_LONGEST_NAME) {
        return api_fail(error, 400, NULL, NULL, "a region's name has %zu bytes, expected 1 to %d", strlen(name),
                        SHARED_LONGEST_NAME);
    }
    const int fd = shm_open(key, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) {
        return api_fail(error, 400, NULL, NULL, "cannot open shared memory %s: %s", key, strerror(errno));
    }
    shared_region *region = check_size(fd, key, offset, size, error) ? calloc(1, sizeof(*region)) : NULL;
    if (region == NULL) {
        close(fd);
        return false;
    }
    atomic_init(&region->references, 1);
    region->fd = fd;
    region->info.offset = offset;
    region->info.size = size;
    strcpy(region->info.name, name);
    strcpy(region->info.key, key);
    pthread_mutex_lock(&regions->lock);
    const bool known = find(regions, name) != NULL, full = regions->count == SHARED_MAX_REGIONS;
    if (!known && !full) {
        region->next = regions->first;
        regions->first = region;
        regions->count++;
    }
    pthread_mutex_unlock(&regions->lock);
    if (known || full) {
        shared_release(region);
        return known ? api_fail(error, 400, NULL, NULL, "region %.64s is registered already", name)
                     : api_fail(error, 400, NULL, NULL, "%d regions are registered, the most", SHARED_MAX_REGIONS);
    }
    return true;
}

bool shared_unregister(shared_regions *regions, const char *name, api_error *error)
{
    if (!check_on(regions, error)) {
        return false;
    }
    pthread_mutex_lock(&regions->lock);
    shared_region **at = &regions->first;
    while (*at != NULL) {
        shared_region *region = *at;
        if (name[0] != '\0' && strcmp(region->info.name, name) != 0) {
            at = &region->next;
            continue;
        }
        *at = region->next;
        regions->count--;
        shared_release(region);
    }
    pthread_mutex_unlock(&regions->lock);
    return true;
}

shared_info *shared_status(shared_regions *regions, const char *name, size_t *n, api_error *error)
{
    *n = 0;
    if (!check_on(regions, error)) {
        return NULL;
    }
    pthread_mutex_lock(&regions->lock);
    shared_info *infos = calloc((size_t)regions->count + 1, sizeof(*infos));
    for (const shared_region *region = regions->first; infos != NULL && region != NULL; region = region->next) {
        if (name[0] == '\0' || strcmp(region->info.name, name) == 0) {
            infos[(*n)++] = region->info;
        }
    }
    pthread_mutex_unlock(&regions->lock);
    if (infos == NULL) {
        api_fail(error, 503, NULL, NULL, "cannot allocate the list of shared memory");
    } else if (name[0] != '\0' && *n == 0) {
        free(infos);
        infos = NULL;
        api_fail(error, 400, NULL, NULL, "region %.64s is not registered", name);
    }
    return infos;
}

shared_region *shared_find(shared_regions *regions, const char *name, uint64_t offset, uint64_t size, api_error *error)
{
    uint64_t end;
    if (!check_on(regions, error)) {
        return NULL;
    }
    pthread_mutex_lock(&regions->lock);
    shared_region *region = find(regions, name);
    if (region != NULL) {
        atomic_fetch_add(&region->references, 1);
    }
    pthread_mutex_unlock(&regions->lock);
    if (region == NULL) {
        api_fail(error, 400, NULL, NULL, "region %.64s is not registered", name);
    } else if (__builtin_add_overflow(offset, size, &end) || end > region->info.size) {
        api_fail(error, 400, NULL, NULL,
                 "region %.64s has %" PRIu64 " bytes, too few for %" PRIu64 " bytes at offset %" PRIu64, name,
                 region->info.size, size, offset);
        shared_release(region);
        region = NULL;
    }
    return region;
}

const char *shared_name(const shared_region *region)
{
    return region->info.name;
}

trm_status shared_read(const shared_region *region, uint64_t offset, void *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        const off_t at = (off_t)(region->info.offset + offset + done);
        const ssize_t got = pread(region->fd, (char *)to + done, size - done, at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read shared memory %s: %s", region->info.key,
                     got < 0 ? strerror(errno) : "it is shorter than when it was registered");
        }
        done += (size_t)got;
    }
    return TRM_OK;
}

trm_status shared_write(const shared_region *region, uint64_t offset, const void *from, size_t size)
{
    struct stat status;
    const uint64_t begin = region->info.offset + offset;
    if (fstat(region->fd, &status) != 0 || begin + size > (uint64_t)status.st_size) { /* a write would make it longer */
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot write shared memory %s: it is shorter than when it was registered",
                 region->info.key);
    }
    for (size_t done = 0; done < size;) {
        const ssize_t put = pwrite(region->fd, (const char *)from + done, size - done, (off_t)(begin + done));
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            TRM_FAIL(TRM_ERROR_IO, "cannot write shared memory %s: %s", region->info.key, strerror(errno));
        }
        done += (size_t)put;
    }
    return TRM_OK;
}
