/* Large blocks of host memory, and how much memory is available. */
#include "base/memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"

/* Blocks of this size and more are aligned to it, so that they can use large pages. */
#define LARGE_PAGE ((size_t)2 << 20)

static bool read_number(const char *path, const char *format, size_t *number)
{
    FILE *file = fopen(path, "r");
    char line[128];
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = sscanf(line, format, number) == 1;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* What the control group may still take. Its usage includes file cache, which the kernel can drop. */
static size_t group_available(void)
{
    size_t limit, used, cache = 0;
    if (read_number("/sys/fs/cgroup/memory.max", "%zu", &limit) &&
        read_number("/sys/fs/cgroup/memory.current", "%zu", &used)) {
        (void)read_number("/sys/fs/cgroup/memory.stat", "file %zu", &cache);
    } else if (read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", "%zu", &limit) &&
               read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", "%zu", &used)) {
        (void)read_number("/sys/fs/cgroup/memory/memory.stat", "cache %zu", &cache);
    } else {
        return SIZE_MAX;
    }
    used -= cache < used ? cache : used;
    return limit > used ? limit - used : 0;
}

size_t trm_memory_available(void)
{
    size_t kilobytes, available = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    /* The number of free pages does not count the system's file cache. */
    if (read_number("/proc/meminfo", "MemAvailable: %zu", &kilobytes)) {
        available = kilobytes << 10;
    }
    size_t group = group_available();
    return group < available ? group : available;
}

trm_status trm_pages_alloc(size_t size, void **memory)
{
    size_t extra = size >= LARGE_PAGE ? LARGE_PAGE : 0, mapped;
    unsigned char *made = MAP_FAILED;
    size = trm_align_up(size, (size_t)sysconf(_SC_PAGESIZE));
    if (trm_checked_add(size, extra, &mapped)) {
        made = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (made == MAP_FAILED) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot map %zu bytes of host memory: %s", size, strerror(errno));
    }
    if (extra > 0) {
        unsigned char *aligned = (unsigned char *)trm_align_up((uintptr_t)made, LARGE_PAGE);
        if (aligned > made) {
            munmap(made, (size_t)(aligned - made));
        }
        if (made + mapped > aligned + size) {
            munmap(aligned + size, (size_t)(made + mapped - aligned - size));
        }
        made = aligned;
        (void)madvise(made, size, MADV_HUGEPAGE); /* fewer faults and faster pinning, if the system allows it */
    }
    *memory = made;
    return TRM_OK;
}

void trm_pages_trim(void *memory, size_t size, size_t used)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size = trm_align_up(size, page);
    used = trm_align_up(used, page);
    if (used < size) {
        munmap((unsigned char *)memory + used, size - used);
    }
}

void trm_pages_free(void *memory, size_t size)
{
    if (memory != NULL) {
        munmap(memory, trm_align_up(size, (size_t)sysconf(_SC_PAGESIZE)));
    }
}
