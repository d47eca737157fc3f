/* The host as a device: ordinary memory, calls that run at once, a thread pool per device. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cblas.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/pool.h"
#include "kernels/device_impl.h"

#define ALIGNMENT 256

typedef struct host_device {
    trm_device base;
    trm_pool *pool;
} host_device;

typedef struct host_event {
    trm_event base;
    bool recorded;
    struct timespec time;
} host_event;

static void close_device(trm_device *device)
{
    host_device *host = (host_device *)device;
    trm_pool_destroy(host->pool);
    free(host);
}

/* The first "model name" of /proc/cpuinfo, if there is one. */
static void read_cpu_name(char *name, size_t size)
{
    snprintf(name, size, "host CPU");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) {
        return;
    }
    char line[256];
    while (fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            colon += strspn(colon, ": \t");
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(name, size, "%s", colon);
            break;
        }
    }
    fclose(file);
}

/* What the system could give without swapping; the pages free at the moment leave out its file cache. */
static size_t memory_available(size_t page)
{
    size_t kilobytes, available = (size_t)sysconf(_SC_AVPHYS_PAGES) * page;
    FILE *file = fopen("/proc/meminfo", "r");
    if (file == NULL) {
        return available;
    }
    char line[128];
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %zu", &kilobytes) == 1) {
            available = kilobytes << 10;
            break;
        }
    }
    fclose(file);
    return available;
}

static trm_status get_info(trm_device *device, trm_device_info *info)
{
    const host_device *host = (const host_device *)device;
    read_cpu_name(info->name, sizeof(info->name));
    info->threads = trm_pool_threads(host->pool);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    info->memory_total = (size_t)sysconf(_SC_PHYS_PAGES) * page;
    info->memory_free = memory_available(page);
    return TRM_OK;
}

static trm_status alloc(trm_device *device, size_t size, void **memory)
{
    (void)device;
    void *made = NULL;
    if (size > SIZE_MAX - ALIGNMENT || (made = aligned_alloc(ALIGNMENT, trm_align_up(size, ALIGNMENT))) == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory", size);
    }
    *memory = made;
    return TRM_OK;
}

static void free_memory(trm_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static trm_status stream_create(trm_device *device, trm_stream **stream)
{
    trm_stream *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot create a host stream: out of host memory");
    }
    made->ops = device->ops;
    made->device = device;
    *stream = made;
    return TRM_OK;
}

static void stream_destroy(trm_stream *stream)
{
    free(stream);
}

static trm_status stream_synchronize(trm_stream *stream)
{
    (void)stream;
    return TRM_OK;
}

static trm_status stream_move(trm_stream *stream, void *to, const void *from, size_t size)
{
    (void)stream;
    memmove(to, from, size);
    return TRM_OK;
}

static trm_status stream_fill_zero(trm_stream *stream, void *to, size_t size)
{
    (void)stream;
    memset(to, 0, size);
    return TRM_OK;
}

static trm_status stream_wait_event(trm_stream *stream, trm_event *event)
{
    (void)stream;
    (void)event;
    return TRM_OK;
}

static trm_status stream_begin_capture(trm_stream *stream)
{
    (void)stream;
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "host streams run at once and cannot be captured");
}

static trm_status stream_end_capture(trm_stream *stream, trm_graph_exec **exec)
{
    (void)exec;
    return stream_begin_capture(stream);
}

static bool stream_is_capturing(const trm_stream *stream)
{
    (void)stream;
    return false;
}

static void *stream_native(trm_stream *stream)
{
    return ((host_device *)stream->device)->pool;
}

static trm_status event_create(trm_device *device, trm_event **event)
{
    host_event *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot create a host event: out of host memory");
    }
    made->base.ops = device->ops;
    *event = &made->base;
    return TRM_OK;
}

static void event_destroy(trm_event *event)
{
    free(event);
}

static trm_status event_record(trm_event *event, trm_stream *stream)
{
    (void)stream;
    host_event *host = (host_event *)event;
    host->recorded = true;
    clock_gettime(CLOCK_MONOTONIC, &host->time);
    return TRM_OK;
}

static trm_status event_synchronize(trm_event *event)
{
    (void)event;
    return TRM_OK;
}

static trm_status event_query(trm_event *event, bool *passed)
{
    (void)event;
    *passed = true;
    return TRM_OK;
}

static trm_status event_elapsed_ms(trm_event *start, trm_event *end, float *milliseconds)
{
    const host_event *from = (const host_event *)start, *to = (const host_event *)end;
    if (!from->recorded || !to->recorded) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "elapsed time of an event that was not recorded");
    }
    double seconds = (double)(to->time.tv_sec - from->time.tv_sec);
    *milliseconds = (float)(seconds * 1e3 + (double)(to->time.tv_nsec - from->time.tv_nsec) * 1e-6);
    return TRM_OK;
}

/* Captures never begin on the host, so there is nothing to launch or destroy. */
static trm_status graph_exec_launch(trm_graph_exec *exec, trm_stream *stream)
{
    (void)exec;
    return stream_begin_capture(stream);
}

static void graph_exec_destroy(trm_graph_exec *exec)
{
    (void)exec;
}

static const trm_device_ops host_ops = {
    .backend = TRM_BACKEND_HOST,
    .close = close_device,
    .get_info = get_info,
    .alloc = alloc,
    .free = free_memory,
    .alloc_host = alloc,
    .free_host = free_memory,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .stream_upload = stream_move,
    .stream_download = stream_move,
    .stream_copy = stream_move,
    .stream_fill_zero = stream_fill_zero,
    .stream_wait_event = stream_wait_event,
    .stream_begin_capture = stream_begin_capture,
    .stream_end_capture = stream_end_capture,
    .stream_is_capturing = stream_is_capturing,
    .stream_native = stream_native,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_synchronize = event_synchronize,
    .event_query = event_query,
    .event_elapsed_ms = event_elapsed_ms,
    .graph_exec_launch = graph_exec_launch,
    .graph_exec_destroy = graph_exec_destroy,
};

trm_status trm_host_device_open(int32_t threads, trm_device **device)
{
    if (threads == 0) {
        cpu_set_t set;
        threads = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    host_device *host = calloc(1, sizeof(*host));
    if (host == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot open the host device: out of host memory");
    }
    host->base.ops = &host_ops;
    trm_status status = trm_pool_create(threads, &host->pool);
    if (status != TRM_OK) {
        free(host);
        return status;
    }
    /* The pool splits matrix products itself; threads of OpenBLAS beside it would only compete. */
    openblas_set_num_threads(1);
    *device = &host->base;
    return TRM_OK;
}
