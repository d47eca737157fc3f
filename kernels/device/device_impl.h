/*
 * What a backend implements: the calls of kernels/device/device.h as a table. kernels/device/device.c dispatches to it.
 *
 * Every object begins with a pointer to its backend's table; a backend's own structures have these as their first
 * member. The dispatcher handles NULL (close, free, destroy) and copies of 0 bytes, makes an allocation of 0 bytes one
 * of 1, and never passes objects of one backend to the other.
 */
#ifndef TRM_KERNELS_DEVICE_DEVICE_IMPL_H
#define TRM_KERNELS_DEVICE_DEVICE_IMPL_H

#include "kernels/device/device.h"
#include "kernels/device/import.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trm_sample_args;
struct trm_sample_advance_args;
struct trm_logits_adjust_args;
struct trm_logits_report_args;
struct trm_random_fill_args;
struct trm_expert_table;
struct trm_expert_tensor;
struct trm_expert_post;
struct trm_expert_mailbox;
struct trm_expert_supply;

typedef struct trm_device_ops {
    trm_backend backend;

    void (*close)(trm_device *device);
    trm_status (*get_info)(trm_device *device, trm_device_info *info); /* `info` comes zeroed, `backend` set */
    trm_status (*alloc)(trm_device *device, size_t size, void **memory);
    void (*free)(trm_device *device, void *memory);
    trm_status (*alloc_host)(trm_device *device, size_t size, void **memory);
    void (*free_host)(trm_device *device, void *memory);
    trm_status (*pin)(trm_device *device, void *memory, size_t size);
    void (*unpin)(trm_device *device, void *memory);
    trm_status (*import)(trm_device *device, const void *handle, size_t size, void **memory);
    void (*release)(trm_device *device, void *memory);
    trm_status (*copy)(trm_device *device, const trm_memory_copy *copies, int32_t n);

    trm_status (*stream_create)(trm_device *device, trm_stream **stream);
    trm_status (*stream_create_beside)(trm_device *device, trm_stream **stream);
    void (*stream_destroy)(trm_stream *stream);
    trm_status (*stream_synchronize)(trm_stream *stream);
    trm_status (*stream_upload)(trm_stream *stream, void *device_to, const void *host_from, size_t size);
    trm_status (*stream_upload_rows)(trm_stream *stream, void *device_to, size_t pitch, const void *host_from,
                                     size_t width, size_t rows); /* two or more, apart */
    trm_status (*stream_download)(trm_stream *stream, void *host_to, const void *device_from, size_t size);
    trm_status (*stream_copy)(trm_stream *stream, void *device_to, const void *device_from, size_t size);
    trm_status (*stream_fill_zero)(trm_stream *stream, void *device_to, size_t size);
    trm_status (*stream_copy_small)(trm_stream *stream, const trm_small_copy *copies, int32_t n);
    trm_status (*stream_host_task)(trm_stream *stream, trm_host_task_fn fn, void *user);
    trm_status (*stream_wait_event)(trm_stream *stream, trm_event *event);
    trm_status (*stream_begin_capture)(trm_stream *stream);
    trm_status (*stream_end_capture)(trm_stream *stream, trm_graph_exec **exec);
    bool (*stream_is_capturing)(const trm_stream *stream);
    void *(*stream_native)(trm_stream *stream);

    trm_status (*event_create)(trm_device *device, trm_event **event);
    void (*event_destroy)(trm_event *event);
    trm_status (*event_record)(trm_event *event, trm_stream *stream);
    trm_status (*event_synchronize)(trm_event *event);
    trm_status (*event_query)(trm_event *event, bool *passed);
    trm_status (*event_elapsed_ms)(trm_event *start, trm_event *end, float *milliseconds);

    /* Kernels that are no layers: kernels/sampling/backends.h, kernels/codec/codec_impl.h,
     * kernels/moe/expert_table.h. */
    size_t (*sample_workspace)(const trm_stream *stream, int64_t rows, int64_t vocab);
    trm_status (*sample)(trm_stream *stream, const struct trm_sample_args *args);
    trm_status (*sample_advance)(trm_stream *stream, const struct trm_sample_advance_args *args);
    trm_status (*logits_adjust)(trm_stream *stream, const struct trm_logits_adjust_args *args);
    trm_status (*logits_report)(trm_stream *stream, const struct trm_logits_report_args *args);
    trm_status (*random_fill)(trm_stream *stream, const struct trm_random_fill_args *args);
    trm_status (*bf16_decode)(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors);
    trm_status (*expert_select)(trm_stream *stream, const struct trm_expert_table *table, const int32_t *ids,
                                int64_t pairs, int32_t *slot_ids, const struct trm_expert_post *post);
    trm_status (*expert_fetch)(trm_stream *stream, const struct trm_expert_table *table,
                               const struct trm_expert_tensor *tensors, int32_t n,
                               const struct trm_expert_supply *supply, int32_t layer);
    trm_status (*expert_add)(trm_stream *stream, const struct trm_expert_mailbox *box, trm_dtype type, void *y,
                             int64_t n);

    trm_status (*graph_exec_launch)(trm_graph_exec *exec, trm_stream *stream);
    void (*graph_exec_destroy)(trm_graph_exec *exec);
} trm_device_ops;

struct trm_device {
    const trm_device_ops *ops;
};

struct trm_stream {
    const trm_device_ops *ops;
    trm_device *device;
};

struct trm_event {
    const trm_device_ops *ops;
};

struct trm_graph_exec {
    const trm_device_ops *ops;
};

/* kernels/device/host.c; threads 0: the CPUs this process may run on. */
trm_status trm_host_device_open(int32_t threads, trm_device **device);

#if TRM_HAVE_CUDA
/* kernels/device/cuda.c */
trm_status trm_cuda_device_open(int32_t ordinal, trm_device **device);
int32_t trm_cuda_device_count(char *why, size_t why_size);
bool trm_cuda_lacks_code(char *why, size_t why_size);
double trm_cuda_memory_rate(int32_t ordinal);
#endif

#ifdef __cplusplus
}
#endif
#endif
