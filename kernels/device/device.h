/*
 * A device: memory, streams, events and captured steps, the same on the host and on a GPU.
 *
 * Every function may be called from one thread at a time per device. Host streams run at once, but
 * for those made to run beside others; CUDA streams run in order, asynchronously. Sizes are bytes, addresses are device
 * addresses, which on the host backend are ordinary pointers.
 */
#ifndef TRM_KERNELS_DEVICE_DEVICE_H
#define TRM_KERNELS_DEVICE_DEVICE_H

#include <trireme/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_device trm_device;
typedef struct trm_stream trm_stream;
typedef struct trm_event trm_event;
typedef struct trm_graph_exec trm_graph_exec; /* a captured step */

typedef struct trm_device_info {
    trm_backend backend;
    int32_t ordinal; /* CUDA device index; 0 on the host */
    char name[128];
    char uuid[48];       /* empty on the host */
    char pci_bus_id[32]; /* empty on the host */
    size_t memory_total, memory_free;
    int32_t compute_major, compute_minor, multiprocessors; /* 0 on the host */
    int32_t threads;                                       /* host worker threads */
} trm_device_info;

/* Number of usable CUDA devices; 0 with `why` (may be NULL) filled in when there is none. */
int32_t trm_device_cuda_count(char *why, size_t why_size);
/* Whether there are CUDA devices, but this build has code for none of them; `why` (may be NULL) says so. */
bool trm_device_cuda_lacks_code(char *why, size_t why_size);
/* Bytes per second of its memory by bus width and highest clock; 0 if unknown. Opens no device. */
double trm_device_cuda_memory_rate(int32_t ordinal);

/* Opens a device. `threads` is the size of the host thread pool (0: the CPUs this process may run on);
 * ignored on CUDA. TRM_ERROR_NO_DEVICE if there is none or this build has no CUDA. */
trm_status trm_device_open(trm_backend backend, int32_t ordinal, int32_t threads, trm_device **device);
void trm_device_close(trm_device *device);
trm_backend trm_device_backend(const trm_device *device);
trm_status trm_device_get_info(trm_device *device, trm_device_info *info);

/* Memory, aligned to 256 bytes. Alloc fails with TRM_ERROR_OUT_OF_MEMORY naming what was asked for. */
trm_status trm_device_alloc(trm_device *device, size_t size, void **memory);
void trm_device_free(trm_device *device, void *memory);
/* Host memory the device copies from and to at full speed (pinned on CUDA). */
trm_status trm_device_alloc_host(trm_device *device, size_t size, void **memory);
void trm_device_free_host(trm_device *device, void *memory);
/* Makes memory of the caller such that the device copies from it at full speed and kernels may read it where it lies,
 * until it is unpinned. Fails where the system refuses; unpin ignores NULL. Nothing to do on the host. */
trm_status trm_device_pin(trm_device *device, void *memory, size_t size);
void trm_device_unpin(trm_device *device, void *memory);

trm_status trm_stream_create(trm_device *device, trm_stream **stream);
/* A stream of copies, fills and events beside the others: on the host a thread does them in order. On CUDA every stream
 * is such a one. No kernels on it but trm_bf16_decode (kernels/codec/codec.h); it is not captured by itself. */
trm_status trm_stream_create_beside(trm_device *device, trm_stream **stream);
void trm_stream_destroy(trm_stream *stream);
trm_device *trm_stream_device(const trm_stream *stream);
trm_status trm_stream_synchronize(trm_stream *stream);

/* Copies in stream order. Host pointers must stay valid until the stream has passed them. */
trm_status trm_stream_upload(trm_stream *stream, void *device_to, const void *host_from, size_t size);
/* `rows` of `width` bytes, packed on the host, to places `pitch` bytes apart. */
trm_status trm_stream_upload_rows(trm_stream *stream, void *device_to, size_t pitch, const void *host_from,
                                  size_t width, size_t rows);
trm_status trm_stream_download(trm_stream *stream, void *host_to, const void *device_from, size_t size);
trm_status trm_stream_copy(trm_stream *stream, void *device_to, const void *device_from, size_t size);
trm_status trm_stream_fill_zero(trm_stream *stream, void *device_to, size_t size);

/* A few small copies between memory of the device and memory of trm_device_alloc_host, or within either, in stream
 * order and in one launch. Multiprocessors make them, not the copy engines, which may have hundreds of megabytes to do
 * first. Not on streams beside others. */
#define TRM_MAX_SMALL_COPIES 8
typedef struct trm_small_copy {
    void *to;
    const void *from;
    size_t size;
} trm_small_copy;
trm_status trm_stream_copy_small(trm_stream *stream, const trm_small_copy *copies, int32_t n);

/* Calls fn(user) on the host when the stream comes to it; what is behind it on the stream waits for its end. On CUDA a
 * thread of the driver calls it, which must not call the device, and where a step is captured every launch does. Not on
 * streams beside others. */
typedef void (*trm_host_task_fn)(void *user);
trm_status trm_stream_host_task(trm_stream *stream, trm_host_task_fn fn, void *user);

/* Events: points in a stream, to wait for and to time. */
trm_status trm_event_create(trm_device *device, trm_event **event);
void trm_event_destroy(trm_event *event);
trm_status trm_event_record(trm_event *event, trm_stream *stream);
trm_status trm_event_synchronize(trm_event *event);
/* Whether the event has passed, without waiting; a device fault is the status. */
trm_status trm_event_query(trm_event *event, bool *passed);
trm_status trm_stream_wait_event(trm_stream *stream, trm_event *event);
trm_status trm_event_elapsed_ms(trm_event *start, trm_event *end, float *milliseconds);

/* Captures what is enqueued between begin and end, to be launched as one. On the host backend
 * capturing is TRM_ERROR_UNSUPPORTED; callers run their steps directly. */
trm_status trm_stream_begin_capture(trm_stream *stream);
trm_status trm_stream_end_capture(trm_stream *stream, trm_graph_exec **exec);
/* Both, around `fn`, which enqueues; if that fails, its cause is the failure. */
trm_status trm_stream_capture(trm_stream *stream, trm_status (*fn)(void *user), void *user, trm_graph_exec **exec);
bool trm_stream_is_capturing(const trm_stream *stream);
trm_status trm_graph_exec_launch(trm_graph_exec *exec, trm_stream *stream);
void trm_graph_exec_destroy(trm_graph_exec *exec);

/* The backend's own stream handle: a cudaStream_t on CUDA; the thread pool (struct trm_pool *) on the
 * host. For kernels and communicators. */
void *trm_stream_native(trm_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
