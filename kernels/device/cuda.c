/*
 * The CUDA backend of kernels/device/device.h over the runtime API. Every call makes its device current on the calling
 * thread first, so that threads may work on different devices.
 */
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/codec/codec_impl.h"
#include "kernels/device/architectures.h"
#include "kernels/device/cuda.h"
#include "kernels/device/device_impl.h"
#include "kernels/moe/expert_table.h"
#include "kernels/sampling/backends.h"

typedef struct cuda_device {
    trm_device base;
    int ordinal;
    char name[128];
} cuda_device;

typedef struct cuda_stream {
    trm_stream base;
    cudaStream_t handle;
    uint32_t *counters; /* device memory, see trm_cuda_stream_counters() */
} cuda_stream;

typedef struct cuda_event {
    trm_event base;
    int ordinal;
    cudaEvent_t handle;
} cuda_event;

typedef struct cuda_graph {
    trm_graph_exec base;
    int ordinal;
    cudaGraphExec_t handle;
} cuda_graph;

static const trm_device_ops cuda_ops;

static trm_status status_of(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation:
        return TRM_ERROR_OUT_OF_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorCompatNotSupportedOnDevice:
        return TRM_ERROR_NO_DEVICE;
    case cudaErrorNoKernelImageForDevice:
        return TRM_ERROR_UNSUPPORTED;
    default:
        return TRM_ERROR_INTERNAL;
    }
}

trm_status trm_cuda_fail(cudaError_t error, const char *what)
{
    (void)cudaGetLastError(); /* so that the next launch check does not see it again */
    return trm_fail(status_of(error), "%.*s failed: %s", (int)strcspn(what, "("), what, cudaGetErrorString(error));
}

static int ordinal_of(const trm_device *device)
{
    return ((const cuda_device *)device)->ordinal;
}

static cudaStream_t handle_of(trm_stream *stream)
{
    return ((cuda_stream *)stream)->handle;
}

static trm_status device_use(const trm_device *device)
{
    TRM_CUDA_TRY(cudaSetDevice(ordinal_of(device)));
    return TRM_OK;
}

/* The driver is asked, no kernel: that would take memory of a GPU that may never be opened. */
bool trm_cuda_lacks_code(char *why, size_t why_size)
{
    int count = 0, major = 0, minor = 0;
    bool lacks = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
    for (int i = count - 1; lacks && i >= 0; i--) {
        lacks = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i) == cudaSuccess &&
                cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i) == cudaSuccess &&
                !trm_architectures_run_on(TRM_CUDA_ARCHITECTURES, major, minor);
    }
    (void)cudaGetLastError();
    if (lacks && why != NULL && why_size > 0) {
        snprintf(why, why_size, "GPU 0 has compute capability %d.%d, this build has code for %s", major, minor,
                 TRM_CUDA_ARCHITECTURES);
    }
    return lacks;
}

int32_t trm_cuda_device_count(char *why, size_t why_size)
{
    int count = 0, driver = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) {
        return trm_cuda_lacks_code(why, why_size) ? 0 : count;
    }
    (void)cudaGetLastError();
    if (why == NULL || why_size == 0) {
        return 0;
    }
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        snprintf(why, why_size, "no NVIDIA driver was found");
    } else if (error == cudaErrorInsufficientDriver && cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
        snprintf(why, why_size, "the NVIDIA driver is for CUDA %d.%d, this build needs CUDA %d.%d", driver / 1000,
                 driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    } else if (error == cudaSuccess || error == cudaErrorNoDevice) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        snprintf(why, why_size, "the NVIDIA driver shows no device%s%s",
                 visible != NULL ? ", CUDA_VISIBLE_DEVICES is " : "", visible != NULL ? visible : "");
    } else {
        snprintf(why, why_size, "%s", cudaGetErrorString(error));
    }
    return 0;
}

/* Two transfers a clock on each line of the bus. */
double trm_cuda_memory_rate(int32_t ordinal)
{
    int kilohertz = 0, bits = 0;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, ordinal) != cudaSuccess ||
        cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, ordinal) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0.0;
    }
    return 2.0 * 1e3 * kilohertz * bits / 8.0;
}

trm_status trm_cuda_device_open(int32_t ordinal, trm_device **device)
{
    char why[256];
    struct cudaDeviceProp properties;
    int32_t count = trm_cuda_device_count(why, sizeof(why));
    if (count == 0) {
        TRM_FAIL(TRM_ERROR_NO_DEVICE, "cannot open cuda device %d: %s", ordinal, why);
    }
    if (ordinal < 0 || ordinal >= count) {
        TRM_FAIL(TRM_ERROR_NO_DEVICE, "cannot open cuda device %d: this process sees %d", ordinal, count);
    }
    TRM_CUDA_TRY(cudaSetDevice(ordinal));
    TRM_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
    if (trm_cuda_probe() != cudaSuccess) {
        (void)cudaGetLastError();
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "cuda device %d (%s) has compute capability %d.%d, this build has no kernels for it", ordinal,
                 properties.name, properties.major, properties.minor);
    }
    cuda_device *opened = calloc(1, sizeof(*opened));
    if (opened == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for a device", sizeof(*opened));
    }
    opened->base.ops = &cuda_ops;
    opened->ordinal = ordinal;
    snprintf(opened->name, sizeof(opened->name), "%.127s", properties.name);
    *device = &opened->base;
    return TRM_OK;
}

static void cuda_close(trm_device *device)
{
    free(device);
}

static trm_status cuda_get_info(trm_device *device, trm_device_info *info)
{
    struct cudaDeviceProp properties;
    int ordinal = ordinal_of(device);
    TRM_TRY(device_use(device));
    TRM_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
    TRM_CUDA_TRY(cudaDeviceGetPCIBusId(info->pci_bus_id, (int)sizeof(info->pci_bus_id), ordinal));
    TRM_CUDA_TRY(cudaMemGetInfo(&info->memory_free, &info->memory_total));
    info->ordinal = ordinal;
    snprintf(info->name, sizeof(info->name), "%.127s", properties.name);
    int used = snprintf(info->uuid, sizeof(info->uuid), "GPU-");
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        used += snprintf(info->uuid + used, sizeof(info->uuid) - (size_t)used, "%s%02x", dash ? "-" : "",
                         (unsigned char)properties.uuid.bytes[i]);
    }
    info->compute_major = properties.major;
    info->compute_minor = properties.minor;
    info->multiprocessors = properties.multiProcessorCount;
    return TRM_OK;
}

static trm_status cuda_alloc(trm_device *device, size_t size, void **memory)
{
    void *result = NULL;
    TRM_TRY(device_use(device));
    cudaError_t error = cudaMalloc(&result, size);
    if (error == cudaErrorMemoryAllocation) {
        size_t available = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&available, &total);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes on cuda device %d (%s): %zu bytes free of %zu",
                 size, ordinal_of(device), ((cuda_device *)device)->name, available, total);
    }
    if (error != cudaSuccess) {
        return trm_cuda_fail(error, "cudaMalloc");
    }
    *memory = result;
    return TRM_OK;
}

static void cuda_free(trm_device *device, void *memory)
{
    if (cudaSetDevice(ordinal_of(device)) == cudaSuccess) {
        (void)cudaFree(memory);
    }
    (void)cudaGetLastError();
}

static trm_status cuda_alloc_host(trm_device *device, size_t size, void **memory)
{
    void *result = NULL;
    TRM_TRY(device_use(device));
    cudaError_t error = cudaHostAlloc(&result, size, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of pinned host memory", size);
    }
    if (error != cudaSuccess) {
        return trm_cuda_fail(error, "cudaHostAlloc");
    }
    *memory = result;
    return TRM_OK;
}

static void cuda_free_host(trm_device *device, void *memory)
{
    (void)device;
    (void)cudaFreeHost(memory);
    (void)cudaGetLastError();
}

static trm_status cuda_pin(trm_device *device, void *memory, size_t size)
{
    TRM_TRY(device_use(device));
    cudaError_t error = cudaHostRegister(memory, size, cudaHostRegisterPortable);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        TRM_FAIL(error == cudaErrorMemoryAllocation ? TRM_ERROR_OUT_OF_MEMORY : TRM_ERROR_UNSUPPORTED,
                 "cannot pin %zu bytes of host memory: %s", size, cudaGetErrorString(error));
    }
    return TRM_OK;
}

static void cuda_unpin(trm_device *device, void *memory)
{
    (void)device;
    (void)cudaHostUnregister(memory);
    (void)cudaGetLastError();
}

/* Bytes from an address of an imported allocation to its end; 0: unknown. */
static size_t bytes_behind(const void *memory)
{
    typedef int get_range_fn(unsigned long long *base, size_t *size, unsigned long long address); /* CUresult */
    enum cudaDriverEntryPointQueryResult found;
    get_range_fn *get_range = NULL;
    void *function = NULL;
    unsigned long long base = 0;
    size_t size = 0;
    if (cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    memcpy(&get_range, &function, sizeof(get_range));
    return get_range(&base, &size, (uintptr_t)memory) == 0 ? size - (size_t)((uintptr_t)memory - base) : 0;
}

static trm_status cuda_import(trm_device *device, const void *handle, size_t size, void **memory)
{
    cudaIpcMemHandle_t copy;
    void *opened = NULL;
    TRM_TRY(device_use(device));
    memcpy(&copy, handle, sizeof(copy));
    const cudaError_t error = cudaIpcOpenMemHandle(&opened, copy, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cuda device %d cannot open the memory of a handle: %s",
                 ordinal_of(device), cudaGetErrorString(error));
    }
    const size_t found = bytes_behind(opened);
    if (size > found) {
        (void)cudaIpcCloseMemHandle(opened);
        (void)cudaGetLastError();
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the memory of a handle has %zu bytes, expected at least %zu", found,
                 size);
    }
    *memory = opened;
    return TRM_OK;
}

static void cuda_release(trm_device *device, void *memory)
{
    if (cudaSetDevice(ordinal_of(device)) == cudaSuccess) {
        (void)cudaIpcCloseMemHandle(memory);
    }
    (void)cudaGetLastError();
}

static trm_status cuda_copy(trm_device *device, const trm_memory_copy *copies, int32_t n)
{
    TRM_TRY(device_use(device));
    cudaError_t error = cudaSuccess;
    for (int32_t i = 0; i < n && error == cudaSuccess; i++) {
        error = copies[i].bytes == 0 ? cudaSuccess
                                     : cudaMemcpyAsync(copies[i].to, copies[i].data, copies[i].bytes, cudaMemcpyDefault,
                                                       cudaStreamPerThread);
    }
    const cudaError_t ended = cudaStreamSynchronize(cudaStreamPerThread);
    error = error != cudaSuccess ? error : ended;
    return error != cudaSuccess ? trm_cuda_fail(error, "cudaMemcpyAsync") : TRM_OK;
}

static trm_status create_stream(trm_device *device, bool urgent, trm_stream **stream)
{
    int least = 0, greatest = 0;
    TRM_TRY(device_use(device));
    cuda_stream *created = calloc(1, sizeof(*created));
    if (created == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for a stream", sizeof(*created));
    }
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess) {
        error = cudaStreamCreateWithPriority(&created->handle, cudaStreamNonBlocking, urgent ? greatest : least);
    }
    if (error != cudaSuccess) {
        free(created);
        return trm_cuda_fail(error, "cudaStreamCreateWithPriority");
    }
    const size_t size = TRM_CUDA_STREAM_COUNTERS * sizeof(*created->counters);
    error = cudaMalloc((void **)&created->counters, size);
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(created->counters, 0, size, created->handle);
    }
    if (error != cudaSuccess) {
        (void)cudaFree(created->counters);
        (void)cudaStreamDestroy(created->handle);
        free(created);
        return trm_cuda_fail(error, "the counters of a stream");
    }
    created->base.ops = device->ops;
    created->base.device = device;
    *stream = &created->base;
    return TRM_OK;
}

static trm_status cuda_stream_create(trm_device *device, trm_stream **stream)
{
    return create_stream(device, false, stream);
}

/* What little it runs goes before the layers' kernels, which wait for it sooner or later. */
static trm_status cuda_stream_create_beside(trm_device *device, trm_stream **stream)
{
    return create_stream(device, true, stream);
}

static void cuda_stream_destroy(trm_stream *stream)
{
    (void)cudaStreamDestroy(handle_of(stream));
    (void)cudaFree(((cuda_stream *)stream)->counters);
    (void)cudaGetLastError();
    free(stream);
}

static trm_status cuda_stream_synchronize(trm_stream *stream)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaStreamSynchronize(handle_of(stream)));
    return TRM_OK;
}

static trm_status cuda_stream_upload(trm_stream *stream, void *device_to, const void *host_from, size_t size)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaMemcpyAsync(device_to, host_from, size, cudaMemcpyHostToDevice, handle_of(stream)));
    return TRM_OK;
}

static trm_status cuda_stream_upload_rows(trm_stream *stream, void *device_to, size_t pitch, const void *host_from,
                                          size_t width, size_t rows)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(
        cudaMemcpy2DAsync(device_to, pitch, host_from, width, width, rows, cudaMemcpyHostToDevice, handle_of(stream)));
    return TRM_OK;
}

static trm_status cuda_stream_download(trm_stream *stream, void *host_to, const void *device_from, size_t size)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaMemcpyAsync(host_to, device_from, size, cudaMemcpyDeviceToHost, handle_of(stream)));
    return TRM_OK;
}

static trm_status cuda_stream_copy(trm_stream *stream, void *device_to, const void *device_from, size_t size)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaMemcpyAsync(device_to, device_from, size, cudaMemcpyDeviceToDevice, handle_of(stream)));
    return TRM_OK;
}

static trm_status cuda_stream_fill_zero(trm_stream *stream, void *device_to, size_t size)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaMemsetAsync(device_to, 0, size, handle_of(stream)));
    return TRM_OK;
}

static trm_status cuda_stream_host_task(trm_stream *stream, trm_host_task_fn fn, void *user)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaLaunchHostFunc(handle_of(stream), fn, user));
    return TRM_OK;
}

static trm_status cuda_stream_wait_event(trm_stream *stream, trm_event *event)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaStreamWaitEvent(handle_of(stream), ((cuda_event *)event)->handle, 0));
    return TRM_OK;
}

static trm_status cuda_stream_begin_capture(trm_stream *stream)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeThreadLocal));
    return TRM_OK;
}

static trm_status cuda_stream_end_capture(trm_stream *stream, trm_graph_exec **exec)
{
    cudaGraph_t graph = NULL;
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaStreamEndCapture(handle_of(stream), &graph));
    cuda_graph *created = calloc(1, sizeof(*created));
    if (created == NULL) {
        (void)cudaGraphDestroy(graph);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for a captured step", sizeof(*created));
    }
    cudaError_t error = cudaGraphInstantiate(&created->handle, graph, 0);
    (void)cudaGraphDestroy(graph);
    if (error != cudaSuccess) {
        free(created);
        return trm_cuda_fail(error, "cudaGraphInstantiate");
    }
    error = cudaGraphUpload(created->handle, handle_of(stream));
    if (error != cudaSuccess) {
        (void)cudaGraphExecDestroy(created->handle);
        free(created);
        return trm_cuda_fail(error, "cudaGraphUpload");
    }
    created->base.ops = stream->ops;
    created->ordinal = ordinal_of(stream->device);
    *exec = &created->base;
    return TRM_OK;
}

static bool cuda_stream_is_capturing(const trm_stream *stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(((const cuda_stream *)stream)->handle, &status) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return status != cudaStreamCaptureStatusNone;
}

uint32_t *trm_cuda_stream_counters(trm_stream *stream)
{
    return ((cuda_stream *)stream)->counters;
}

/* Whoever asks for the handle is about to launch: the device is made current for it. */
static void *cuda_stream_native(trm_stream *stream)
{
    (void)cudaSetDevice(ordinal_of(stream->device));
    return handle_of(stream);
}

static trm_status cuda_event_create(trm_device *device, trm_event **event)
{
    TRM_TRY(device_use(device));
    cuda_event *created = calloc(1, sizeof(*created));
    if (created == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for an event", sizeof(*created));
    }
    cudaError_t error = cudaEventCreate(&created->handle);
    if (error != cudaSuccess) {
        free(created);
        return trm_cuda_fail(error, "cudaEventCreate");
    }
    created->base.ops = device->ops;
    created->ordinal = ordinal_of(device);
    *event = &created->base;
    return TRM_OK;
}

static void cuda_event_destroy(trm_event *event)
{
    (void)cudaEventDestroy(((cuda_event *)event)->handle);
    (void)cudaGetLastError();
    free(event);
}

static trm_status cuda_event_record(trm_event *event, trm_stream *stream)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaEventRecord(((cuda_event *)event)->handle, handle_of(stream)));
    return TRM_OK;
}

static trm_status cuda_event_synchronize(trm_event *event)
{
    TRM_CUDA_TRY(cudaSetDevice(((cuda_event *)event)->ordinal));
    TRM_CUDA_TRY(cudaEventSynchronize(((cuda_event *)event)->handle));
    return TRM_OK;
}

static trm_status cuda_event_query(trm_event *event, bool *passed)
{
    TRM_CUDA_TRY(cudaSetDevice(((cuda_event *)event)->ordinal));
    cudaError_t error = cudaEventQuery(((cuda_event *)event)->handle);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        *passed = false;
        return TRM_OK;
    }
    if (error != cudaSuccess) {
        return trm_cuda_fail(error, "cudaEventQuery");
    }
    *passed = true;
    return TRM_OK;
}

static trm_status cuda_event_elapsed_ms(trm_event *start, trm_event *end, float *milliseconds)
{
    TRM_CUDA_TRY(cudaSetDevice(((cuda_event *)start)->ordinal));
    TRM_CUDA_TRY(cudaEventElapsedTime(milliseconds, ((cuda_event *)start)->handle, ((cuda_event *)end)->handle));
    return TRM_OK;
}

static trm_status cuda_graph_exec_launch(trm_graph_exec *exec, trm_stream *stream)
{
    TRM_TRY(device_use(stream->device));
    TRM_CUDA_TRY(cudaGraphLaunch(((cuda_graph *)exec)->handle, handle_of(stream)));
    return TRM_OK;
}

static void cuda_graph_exec_destroy(trm_graph_exec *exec)
{
    (void)cudaGraphExecDestroy(((cuda_graph *)exec)->handle);
    (void)cudaGetLastError();
    free(exec);
}

static const trm_device_ops cuda_ops = {
    .backend = TRM_BACKEND_CUDA,
    .close = cuda_close,
    .get_info = cuda_get_info,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_host = cuda_alloc_host,
    .free_host = cuda_free_host,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .import = cuda_import,
    .release = cuda_release,
    .copy = cuda_copy,
    .stream_create = cuda_stream_create,
    .stream_create_beside = cuda_stream_create_beside,
    .stream_destroy = cuda_stream_destroy,
    .stream_synchronize = cuda_stream_synchronize,
    .stream_upload = cuda_stream_upload,
    .stream_upload_rows = cuda_stream_upload_rows,
    .stream_download = cuda_stream_download,
    .stream_copy = cuda_stream_copy,
    .stream_fill_zero = cuda_stream_fill_zero,
    .stream_copy_small = trm_cuda_copy_small,
    .stream_host_task = cuda_stream_host_task,
    .stream_wait_event = cuda_stream_wait_event,
    .stream_begin_capture = cuda_stream_begin_capture,
    .stream_end_capture = cuda_stream_end_capture,
    .stream_is_capturing = cuda_stream_is_capturing,
    .stream_native = cuda_stream_native,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_synchronize = cuda_event_synchronize,
    .event_query = cuda_event_query,
    .event_elapsed_ms = cuda_event_elapsed_ms,
    .sample_workspace = trm_cuda_sample_workspace,
    .sample = trm_cuda_sample,
    .sample_advance = trm_cuda_sample_advance,
    .logits_adjust = trm_cuda_logits_adjust,
    .logits_report = trm_cuda_logits_report,
    .random_fill = trm_cuda_random_fill,
    .bf16_decode = trm_cuda_bf16_decode,
    .expert_select = trm_cuda_expert_select,
    .expert_fetch = trm_cuda_expert_fetch,
    .expert_add = trm_cuda_expert_add,
    .graph_exec_launch = cuda_graph_exec_launch,
    .graph_exec_destroy = cuda_graph_exec_destroy,
};
