/* Regions of system shared memory and of CUDA. */
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

#define LEAST_PINNED ((uint64_t)256 << 10) /* smaller regions are read about as fast by the CPU */

/* Whether a region of the system is pinned. */
enum { PIN_NOT_TRIED, PIN_BEGUN, PIN_DONE, PIN_REFUSED };

struct shared_region {
    atomic_int references;
    shared_region *next;
    trm_world *world;
    int fd;       /* of SYSTEM, else -1 */
    void *memory; /* of CUDA, else NULL */
    atomic_int pin;
    char *mapping, *pinned; /* of SYSTEM once pinned: `pinned` is where the region begins in it */
    size_t mapped;
    shared_info info;
};

struct shared_regions {
    trm_world *world;
    pthread_mutex_t lock;
    shared_region *first;
    int32_t count;
};

trm_status shared_regions_create(trm_world *world, shared_regions **result)
{
    shared_regions *regions = calloc(1, sizeof(*regions));
    if (regions == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the list of shared memory");
    }
    regions->world = world;
    pthread_mutex_init(&regions->lock, NULL);
    *result = regions;
    return TRM_OK;
}

void shared_release(shared_region *region)
{
    if (region != NULL && atomic_fetch_sub(&region->references, 1) == 1) {
        if (region->fd >= 0) {
            close(region->fd);
        }
        trm_memory_close(region->world, region->memory);
        if (region->mapping != NULL) {
            trm_memory_unpin(region->world, region->mapping);
            munmap(region->mapping, region->mapped);
        }
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

size_t shared_extensions(const shared_regions *regions, const char *names[SHARED_EXTENSIONS])
{
    static const char *const all[SHARED_EXTENSIONS] = {"model_configuration", "statistics", "model_repository",
                                                       "system_shared_memory", "cuda_shared_memory"};
    memcpy(names, all, sizeof(all));
    return regions == NULL                      ? SHARED_EXTENSIONS - 2
           : trm_world_gpu(regions->world) == 0 ? SHARED_EXTENSIONS - 1
                                                : SHARED_EXTENSIONS;
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

/* Adds a region, which it takes over, unless the name is used. */
static bool add(shared_regions *regions, shared_region *region, api_error *error)
{
    pthread_mutex_lock(&regions->lock);
    const bool known = find(regions, region->info.name) != NULL, full = regions->count == SHARED_MAX_REGIONS;
    if (!known && !full) {
        region->next = regions->first;
        regions->first = region;
        regions->count++;
    }
    pthread_mutex_unlock(&regions->lock);
    if (known) {
        api_fail(error, 400, NULL, NULL, "region %.64s is registered already", region->info.name);
    } else if (full) {
        api_fail(error, 400, NULL, NULL, "%d regions are registered, the most", SHARED_MAX_REGIONS);
    }
    if (known || full) {
        shared_release(region);
    }
    return !known && !full;
}

/* A region without memory; NULL with an error. */
static shared_region *create(const shared_regions *regions, shared_kind kind, const char *name, uint64_t size,
                             api_error *error)
{
    if (!check_on(regions, error)) {
        return NULL;
    }
    if (name[0] == '\0' || strlen(name) > SHARED_LONGEST_NAME) {
        api_fail(error, 400, NULL, NULL, "a region's name has %zu bytes, expected 1 to %d", strlen(name),
                 SHARED_LONGEST_NAME);
        return NULL;
    }
    shared_region *region = calloc(1, sizeof(*region));
    if (region == NULL) {
        api_fail(error, 503, NULL, NULL, "cannot allocate a region");
        return NULL;
    }
    atomic_init(&region->references, 1);
    region->world = regions->world;
    region->fd = -1;
    region->info.kind = kind;
    region->info.size = size;
    strcpy(region->info.name, name);
    return region;
}

bool shared_register(shared_regions *regions, const char *name, const char *key, uint64_t offset, uint64_t size,
                     api_error *error)
{
    shared_region *region = create(regions, SHARED_SYSTEM, name, size, error);
    if (region == NULL || !check_key(key, error)) {
        shared_release(region);
        return false;
    }
    region->info.offset = offset;
    strcpy(region->info.key, key);
    region->fd = shm_open(key, O_RDWR | O_CLOEXEC, 0);
    if (region->fd < 0) {
        api_fail(error, 400, NULL, NULL, "cannot open shared memory %s: %s", key, strerror(errno));
    }
    if (region->fd < 0 || !check_size(region->fd, key, offset, size, error)) {
        shared_release(region);
        return false;
    }
    return add(regions, region, error);
}

bool shared_register_cuda(shared_regions *regions, const char *name, const void *handle, size_t handle_size,
                          int64_t device, uint64_t size, api_error *error)
{
    shared_region *region = create(regions, SHARED_CUDA, name, size, error);
    if (region == NULL) {
        return false;
    }
    const int32_t gpu = trm_world_gpu(regions->world) - 1;
    bool good = gpu >= 0 || api_fail(error, 400, NULL, NULL, "the server runs on no GPU, so it has no memory of CUDA");
    good = good &&
           (device == gpu || api_fail(error, 400, NULL, NULL,
                                      "device_id is %" PRId64 ", but the networks run on GPU %d", device, (int)gpu));
    good = good && (handle_size == TRM_MEMORY_HANDLE_BYTES ||
                    api_fail(error, 400, NULL, NULL, "raw_handle has %zu bytes, expected %d", handle_size,
                             TRM_MEMORY_HANDLE_BYTES));
    region->info.device = gpu;
    if (good && trm_memory_open(regions->world, handle, size, &region->memory) != TRM_OK) {
        good = api_fail(error, 400, NULL, NULL, "region %.64s: %s", name, trm_last_error());
    }
    if (!good) {
        shared_release(region);
        return false;
    }
    return add(regions, region, error);
}

static bool is_named(const shared_region *region, shared_kind kind, const char *name)
{
    return region->info.kind == kind && (name[0] == '\0' || strcmp(region->info.name, name) == 0);
}

bool shared_unregister(shared_regions *regions, shared_kind kind, const char *name, api_error *error)
{
    if (!check_on(regions, error)) {
        return false;
    }
    pthread_mutex_lock(&regions->lock);
    shared_region **at = &regions->first;
    while (*at != NULL) {
        shared_region *region = *at;
        if (!is_named(region, kind, name)) {
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

shared_info *shared_status(shared_regions *regions, shared_kind kind, const char *name, size_t *n, api_error *error)
{
    *n = 0;
    if (!check_on(regions, error)) {
        return NULL;
    }
    pthread_mutex_lock(&regions->lock);
    shared_info *infos = calloc((size_t)regions->count + 1, sizeof(*infos));
    for (const shared_region *region = regions->first; infos != NULL && region != NULL; region = region->next) {
        if (is_named(region, kind, name)) {
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

char *shared_device(const shared_region *region)
{
    return region->memory;
}

/* Maps the region and pins its pages, which must be there: pinning would make them. */
static bool pin(shared_region *region)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skipped = region->info.offset % page;
    const size_t bytes = (size_t)(region->info.size + skipped);
    char *mapping =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, (off_t)(region->info.offset - skipped));
    if (mapping == MAP_FAILED) {
        return false;
    }
    if (trm_memory_pin(region->world, mapping, bytes) != TRM_OK) {
        munmap(mapping, bytes);
        return false;
    }
    region->mapping = mapping;
    region->mapped = bytes;
    region->pinned = mapping + skipped;
    return true;
}

const char *shared_source(shared_region *region, uint64_t offset)
{
    struct stat status;
    int state = PIN_NOT_TRIED;
    if (region->memory != NULL) {
        return (const char *)region->memory + offset;
    }
    if (trm_world_gpu(region->world) == 0 || region->info.size < LEAST_PINNED || fstat(region->fd, &status) != 0 ||
        (uint64_t)status.st_size < region->info.offset + region->info.size ||
        (uint64_t)status.st_blocks * 512 < region->info.offset + region->info.size) {
        return NULL;
    }
    if (atomic_compare_exchange_strong(&region->pin, &state, PIN_BEGUN)) {
        state = pin(region) ? PIN_DONE : PIN_REFUSED;
        atomic_store(&region->pin, state);
    }
    return state == PIN_DONE ? region->pinned + offset : NULL;
}

trm_status shared_read(const shared_region *region, uint64_t offset, void *to, size_t size)
{
    if (region->memory != NULL) {
        const trm_memory_copy copy = {to, (const char *)region->memory + offset, size};
        return trm_memory_move(region->world, &copy, 1);
    }
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
    if (region->memory != NULL) {
        const trm_memory_copy copy = {(char *)region->memory + offset, from, size};
        return trm_memory_move(region->world, &copy, 1);
    }
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
