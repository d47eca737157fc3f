/* Devices: hands each call of kernels/device/device.h to the backend that owns the object. */
#include "kernels/device/device_impl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

int32_t trm_device_cuda_count(char *why, size_t why_size)
{
#if TRM_HAVE_CUDA
    return trm_cuda_device_count(why, why_size);
#else
    if (why != NULL && why_size > 0) {
        snprintf(why, why_size, "this build has no CUDA backend");
    }
    return 0;
#endif
}

bool trm_device_cuda_lacks_code(char *why, size_t why_size)
{
#if TRM_HAVE_CUDA
    return trm_cuda_lacks_code(why, why_size);
#else
    (void)why;
    (void)why_size;
    return false;
#endif
}

double trm_device_cuda_memory_rate(int32_t ordinal)
{
#if TRM_HAVE_CUDA
    return trm_cuda_memory_rate(ordinal);
#else
    (void)ordinal;
    return 0.0;
#endif
}

trm_status trm_device_open(trm_backend backend, int32_t ordinal, int32_t threads, trm_device **device)
{
    if (backend == TRM_BACKEND_HOST) {
        if (threads < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "host device has %d threads, expected at least 1, or 0 for all CPUs",
                     threads);
        }
        return trm_host_device_open(threads, device);
    }
    if (backend != TRM_BACKEND_CUDA) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "backend %d is not known", (int)backend);
    }
#if TRM_HAVE_CUDA
    return trm_cuda_device_open(ordinal, device);
#else
    TRM_FAIL(TRM_ERROR_NO_DEVICE, "cannot open CUDA device %d: this build has no CUDA backend", ordinal);
#endif
}

void trm_device_close(trm_device *device)
{
    if (device != NULL) {
        device->ops->close(device);
    }
}

trm_backend trm_device_backend(const trm_device *device)
{
    return device->ops->backend;
}

trm_status trm_device_get_info(trm_device *device, trm_device_info *info)
{
    memset(info, 0, sizeof(*info));
    info->backend = device->ops->backend;
    return device->ops->get_info(device, info);
}

trm_status trm_device_alloc(trm_device *device, size_t size, void **memory)
{
    return device->ops->alloc(device, size > 0 ? size : 1, memory);
}

void trm_device_free(trm_device *device, void *memory)
{
    if (memory != NULL) {
        device->ops->free(device, memory);
    }
}

trm_status trm_device_alloc_host(trm_device *device, size_t size, void **memory)
{
    return device->ops->alloc_host(device, size > 0 ? size : 1, memory);
}

void trm_device_free_host(trm_device *device, void *memory)
{
    if (memory != NULL) {
        device->ops->free_host(device, memory);
    }
}

trm_status trm_device_pin(trm_device *device, void *memory, size_t size)
{
    return size == 0 ? TRM_OK : device->ops->pin(device, memory, size);
}

void trm_device_unpin(trm_device *device, void *memory)
{
    if (memory != NULL) {
        device->ops->unpin(device, memory);
    }
}

trm_status trm_device_import(trm_device *device, const void *handle, size_t size, void **memory)
{
    return device->ops->import(device, handle, size, memory);
}

void trm_device_release(trm_device *device, void *memory)
{
    if (memory != NULL) {
        device->ops->release(device, memory);
    }
}

trm_status trm_device_copy(trm_device *device, const trm_memory_copy *copies, int32_t n)
{
    return device->ops->copy(device, copies, n);
}

trm_status trm_stream_create(trm_device *device, trm_stream **stream)
{
    return device->ops->stream_create(device, stream);
}

trm_status trm_stream_create_beside(trm_device *device, trm_stream **stream)
{
    return device->ops->stream_create_beside(device, stream);
}

void trm_stream_destroy(trm_stream *stream)
{
    if (stream != NULL) {
        stream->ops->stream_destroy(stream);
    }
}

trm_device *trm_stream_device(const trm_stream *stream)
{
    return stream->device;
}

trm_status trm_stream_synchronize(trm_stream *stream)
{
    return stream->ops->stream_synchronize(stream);
}

trm_status trm_stream_upload(trm_stream *stream, void *device_to, const void *host_from, size_t size)
{
    return size == 0 ? TRM_OK : stream->ops->stream_upload(stream, device_to, host_from, size);
}

trm_status trm_stream_upload_rows(trm_stream *stream, void *device_to, size_t pitch, const void *host_from,
                                  size_t width, size_t rows)
{
    assert(width <= pitch);
    if (rows <= 1 || width == pitch) {
        return trm_stream_upload(stream, device_to, host_from, width * rows);
    }
    return width == 0 ? TRM_OK : stream->ops->stream_upload_rows(stream, device_to, pitch, host_from, width, rows);
}

trm_status trm_stream_download(trm_stream *stream, void *host_to, const void *device_from, size_t size)
{
    return size == 0 ? TRM_OK : stream->ops->stream_download(stream, host_to, device_from, size);
}

trm_status trm_stream_copy(trm_stream *stream, void *device_to, const void *device_from, size_t size)
{
    return size == 0 ? TRM_OK : stream->ops->stream_copy(stream, device_to, device_from, size);
}

trm_status trm_stream_fill_zero(trm_stream *stream, void *device_to, size_t size)
{
    return size == 0 ? TRM_OK : stream->ops->stream_fill_zero(stream, device_to, size);
}

trm_status trm_stream_copy_small(trm_stream *stream, const trm_small_copy *copies, int32_t n)
{
    assert(n <= TRM_MAX_SMALL_COPIES);
    return n == 0 ? TRM_OK : stream->ops->stream_copy_small(stream, copies, n);
}

trm_status trm_stream_host_task(trm_stream *stream, trm_host_task_fn fn, void *user)
{
    return stream->ops->stream_host_task(stream, fn, user);
}

trm_status trm_event_create(trm_device *device, trm_event **event)
{
    return device->ops->event_create(device, event);
}

void trm_event_destroy(trm_event *event)
{
    if (event != NULL) {
        event->ops->event_destroy(event);
    }
}

trm_status trm_event_record(trm_event *event, trm_stream *stream)
{
    assert(event->ops == stream->ops);
    return event->ops->event_record(event, stream);
}

trm_status trm_event_synchronize(trm_event *event)
{
    return event->ops->event_synchronize(event);
}

trm_status trm_event_query(trm_event *event, bool *passed)
{
    return event->ops->event_query(event, passed);
}

trm_status trm_stream_wait_event(trm_stream *stream, trm_event *event)
{
    assert(event->ops == stream->ops);
    return stream->ops->stream_wait_event(stream, event);
}

trm_status trm_event_elapsed_ms(trm_event *start, trm_event *end, float *milliseconds)
{
    assert(start->ops == end->ops);
    return start->ops->event_elapsed_ms(start, end, milliseconds);
}

trm_status trm_stream_begin_capture(trm_stream *stream)
{
    return stream->ops->stream_begin_capture(stream);
}

trm_status trm_stream_end_capture(trm_stream *stream, trm_graph_exec **exec)
{
    return stream->ops->stream_end_capture(stream, exec);
}

trm_status trm_stream_capture(trm_stream *stream, trm_status (*fn)(void *user), void *user, trm_graph_exec **exec)
{
    trm_graph_exec *made = NULL;
    TRM_TRY(trm_stream_begin_capture(stream));
    trm_held_error enqueued; /* the capture that it broke cannot be ended either, and that is not the cause */
    trm_error_hold(fn(user), &enqueued);
    const trm_status ended = trm_stream_end_capture(stream, &made);
    if (enqueued.status != TRM_OK) {
        trm_graph_exec_destroy(made);
        return trm_error_give_back(&enqueued);
    }
    TRM_TRY(ended);
    *exec = made;
    return TRM_OK;
}

bool trm_stream_is_capturing(const trm_stream *stream)
{
    return stream->ops->stream_is_capturing(stream);
}

trm_status trm_graph_exec_launch(trm_graph_exec *exec, trm_stream *stream)
{
    assert(exec->ops == stream->ops);
    return exec->ops->graph_exec_launch(exec, stream);
}

void trm_graph_exec_destroy(trm_graph_exec *exec)
{
    if (exec != NULL) {
        exec->ops->graph_exec_destroy(exec);
    }
}

void *trm_stream_native(trm_stream *stream)
{
    return stream->ops->stream_native(stream);
}
