/* The host as a device: ordinary memory, calls that run at once, except on streams beside others, a thread pool per
 * device. */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/pool.h"
#include "kernels/codec/codec_impl.h"
#include "kernels/device/device_impl.h"
#include "kernels/device/host_queue.h"
#include "kernels/host/gemm.h"
#include "kernels/host/host.h"
#include "kernels/moe/expert_table.h"
#include "kernels/sampling/backends.h"

#define ALIGNMENT 256

typedef struct host_device {
    trm_device base;
    trm_pool *pool;
} host_device;

typedef struct host_stream {
    trm_stream base;
    trm_host_queue *queue; /* of a stream beside others, else NULL */
} host_stream;

typedef struct host_event {
    trm_event base;
    trm_host_point point;
} host_event;

static trm_host_queue *queue_of(trm_stream *stream)
{
    return ((host_stream *)stream)->queue;
}

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

static trm_status get_info(trm_device *device, trm_device_info *info)
{
    const host_device *host = (const host_device *)device;
    read_cpu_name(info->name, sizeof(info->name));
    info->threads = trm_pool_threads(host->pool);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    info->memory_total = (size_t)sysconf(_SC_PHYS_PAGES) * page;
    info->memory_free = trm_memory_available();
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

static trm_status import(trm_device *device, const void *handle, size_t size, void **memory)
{
    (void)device, (void)handle, (void)memory;
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot open %zu bytes of a GPU's memory: the device is the host", size);
}

static void release(trm_device *device, void *memory)
{
    (void)device, (void)memory;
}

static trm_status copy(trm_device *device, const trm_memory_copy *copies, int32_t n)
{
    (void)device;
    for (int32_t i = 0; i < n; i++) {
        if (copies[i].bytes > 0) {
            memcpy(copies[i].to, copies[i].data, copies[i].bytes);
        }
    }
    return TRM_OK;
}

static trm_status pin(trm_device *device, void *memory, size_t size)
{
    (void)device;
    (void)memory;
    (void)size;
    return TRM_OK;
}

static void unpin(trm_device *device, void *memory)
{
    (void)device;
    (void)memory;
}

static trm_status stream_create(trm_device *device, trm_stream **stream)
{
    host_stream *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot create a host stream: out of host memory");
    }
    made->base.ops = device->ops;
    made->base.device = device;
    *stream = &made->base;
    return TRM_OK;
}

static trm_status stream_create_beside(trm_device *device, trm_stream **stream)
{
    trm_stream *made = NULL;
    TRM_TRY(stream_create(device, &made));
    trm_status status = trm_host_queue_create(&((host_stream *)made)->queue);
    if (status != TRM_OK) {
        free(made);
        return status;
    }
    *stream = made;
    return TRM_OK;
}

static void stream_destroy(trm_stream *stream)
{
    trm_host_queue_destroy(queue_of(stream));
    free(stream);
}

static trm_status stream_synchronize(trm_stream *stream)
{
    if (queue_of(stream) != NULL) {
        trm_host_queue_wait(queue_of(stream));
    }
    return TRM_OK;
}

static trm_status stream_move(trm_stream *stream, void *to, const void *from, size_t size)
{
    if (queue_of(stream) != NULL) {
        return trm_host_queue_move(queue_of(stream), to, from, size);
    }
    memmove(to, from, size);
    return TRM_OK;
}

static trm_status stream_upload_rows(trm_stream *stream, void *to, size_t pitch, const void *from, size_t width,
                                     size_t rows)
{
    if (queue_of(stream) != NULL) {
        return trm_host_queue_move_rows(queue_of(stream), to, pitch, from, width, rows);
    }
    trm_host_move_rows(to, pitch, from, width, rows);
    return TRM_OK;
}

static trm_status stream_fill_zero(trm_stream *stream, void *to, size_t size)
{
    if (queue_of(stream) != NULL) {
        return trm_host_queue_move(queue_of(stream), to, NULL, size);
    }
    memset(to, 0, size);
    return TRM_OK;
}

static trm_status stream_copy_small(trm_stream *stream, const trm_small_copy *copies, int32_t n)
{
    assert(queue_of(stream) == NULL);
    (void)stream;
    for (int32_t i = 0; i < n; i++) {
        memmove(copies[i].to, copies[i].from, copies[i].size);
    }
    return TRM_OK;
}

static trm_status stream_host_task(trm_stream *stream, trm_host_task_fn fn, void *user)
{
    assert(queue_of(stream) == NULL);
    (void)stream;
    fn(user);
    return TRM_OK;
}

trm_status trm_host_stream_call(trm_stream *stream, trm_host_call_fn fn, void *to, const void *from, size_t count)
{
    if (queue_of(stream) != NULL) {
        return trm_host_queue_call(queue_of(stream), fn, to, from, count);
    }
    fn(((host_device *)stream->device)->pool, to, from, count);
    return TRM_OK;
}

static trm_status stream_wait_event(trm_stream *stream, trm_event *event)
{
    trm_host_point *point = &((host_event *)event)->point;
    if (queue_of(stream) != NULL) {
        return trm_host_queue_wait_point(queue_of(stream), point);
    }
    trm_host_point_wait(point);
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
    trm_host_point_init(&made->point);
    *event = &made->base;
    return TRM_OK;
}

static void event_destroy(trm_event *event)
{
    trm_host_point_fini(&((host_event *)event)->point);
    free(event);
}

static trm_status event_record(trm_event *event, trm_stream *stream)
{
    trm_host_point *point = &((host_event *)event)->point;
    if (queue_of(stream) != NULL) {
        return trm_host_queue_record(queue_of(stream), point);
    }
    trm_host_point_pass(point, trm_host_point_begin(point));
    return TRM_OK;
}

static trm_status event_synchronize(trm_event *event)
{
    trm_host_point_wait(&((host_event *)event)->point);
    return TRM_OK;
}

static trm_status event_query(trm_event *event, bool *passed)
{
    *passed = trm_host_point_passed(&((host_event *)event)->point);
    return TRM_OK;
}

static trm_status event_elapsed_ms(trm_event *start, trm_event *end, float *milliseconds)
{
    struct timespec from, to;
    if (!trm_host_point_time(&((host_event *)start)->point, &from) ||
        !trm_host_point_time(&((host_event *)end)->point, &to)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "elapsed time of an event that was not recorded");
    }
    double seconds = (double)(to.tv_sec - from.tv_sec);
    *milliseconds = (float)(seconds * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6);
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
    .pin = pin,
    .unpin = unpin,
    .import = import,
    .release = release,
    .copy = copy,
    .stream_create = stream_create,
    .stream_create_beside = stream_create_beside,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .stream_upload = stream_move,
    .stream_upload_rows = stream_upload_rows,
    .stream_download = stream_move,
    .stream_copy = stream_move,
    .stream_fill_zero = stream_fill_zero,
    .stream_copy_small = stream_copy_small,
    .stream_host_task = stream_host_task,
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
    .sample_workspace = trm_host_sample_workspace,
    .sample = trm_host_sample,
    .sample_advance = trm_host_sample_advance,
    .logits_adjust = trm_host_logits_adjust,
    .logits_report = trm_host_logits_report,
    .random_fill = trm_host_random_fill,
    .bf16_decode = trm_host_bf16_decode,
    .expert_select = trm_host_expert_select,
    .expert_fetch = trm_host_expert_fetch,
    .expert_add = trm_host_expert_add,
    .graph_exec_launch = graph_exec_launch,
    .graph_exec_destroy = graph_exec_destroy,
};

trm_status trm_host_device_open(int32_t threads, trm_device **device)
{
    if (threads == 0) {
        cpu_set_t set;
        threads = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    TRM_TRY(trm_host_blas_load());
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
    *device = &host->base;
    return TRM_OK;
}
