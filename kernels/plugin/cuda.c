/*
 * PLUGIN on CUDA: the plugin's own function, or a kernel that it gives as source or as an image. Such a kernel is
 * loaded once per process and architecture; how it is launched is asked when the launch is prepared, and not in a run.
 */
#include "kernels/plugin/plugin.h"

#include <pthread.h>
#include <stdlib.h>

#include "kernels/cuda/cuda.h"
#include "kernels/fused/cuda.h"
#include "kernels/kernel_list.h"
#include "kernels/program.h"

#define MOST_SHARED_MEMORY (48u << 10) /* that needs no permission */

/* ---- kernels of source or image ---------------------------------------------------------------- */

typedef struct loaded_kernel {
    const trm_plugin_entry *plugin;
    int32_t arch;
    cudaKernel_t kernel;
    struct loaded_kernel *next;
} loaded_kernel;

static struct {
    pthread_mutex_t mutex;
    loaded_kernel *first; /* never freed */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* This may happen while the thread captures a stream, in which loading takes no part. */
static trm_status load_image(const trm_plugin_entry *plugin, const void *image, cudaKernel_t *kernel)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaLibrary_t library = NULL;
    TRM_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaError_t error = cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
    error = error == cudaSuccess ? cudaLibraryGetKernel(kernel, library, plugin->table.cuda_kernel) : error;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    (void)cudaGetLastError();
    return error == cudaSuccess ? TRM_OK : trm_cuda_fail(error, plugin->table.cuda_kernel);
}

static trm_status make_kernel(const trm_plugin_entry *plugin, int32_t arch, cudaKernel_t *kernel)
{
    void *image = NULL;
    size_t size = 0;
    if (plugin->table.cuda_image != NULL) {
        return load_image(plugin, plugin->table.cuda_image, kernel);
    }
    TRM_TRY(trm_nvrtc_compile(plugin->table.cuda_source, arch, true, &image, &size));
    const trm_status status = load_image(plugin, image, kernel);
    free(image);
    return status;
}

/* Under the mutex. */
static trm_status find_kernel(const trm_plugin_entry *plugin, int32_t arch, cudaKernel_t *kernel)
{
    loaded_kernel *at = state.first;
    while (at != NULL && (at->plugin != plugin || at->arch != arch)) {
        at = at->next;
    }
    if (at == NULL) {
        at = malloc(sizeof(*at));
        if (at == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the kernel of plugin %s", plugin->label);
        }
        *at = (loaded_kernel){.plugin = plugin, .arch = arch, .next = state.first};
        const trm_status status = make_kernel(plugin, arch, &at->kernel);
        if (status != TRM_OK) {
            free(at);
            return trm_fail_in(status, "plugin %s", plugin->label);
        }
        state.first = at;
    }
    *kernel = at->kernel;
    return TRM_OK;
}

/* For the device that is current. */
static trm_status get_kernel(const trm_plugin_entry *plugin, int device, cudaKernel_t *kernel)
{
    int major = 0, minor = 0;
    TRM_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    TRM_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    pthread_mutex_lock(&state.mutex);
    const trm_status status = find_kernel(plugin, major * 10 + minor, kernel);
    pthread_mutex_unlock(&state.mutex);
    return status;
}

/* ---- launches ---------------------------------------------------------------------------------- */

typedef struct kernel_launch {
    const trm_plugin_entry *plugin;
    cudaKernel_t kernel;
    trm_plugin_launch launch;
} kernel_launch;

static trm_status enqueue_kernel(void *args, trm_stream *stream)
{
    kernel_launch *self = args;
    const trm_plugin_launch *l = &self->launch;
    void *pointers[TRM_PLUGIN_MAX_ARGUMENTS];
    for (int32_t i = 0; i < l->n_arguments; i++) {
        pointers[i] = &self->launch.arguments[i];
    }
    const cudaLaunchConfig_t config = {.gridDim = {l->grid[0], l->grid[1], l->grid[2]},
                                       .blockDim = {l->block[0], l->block[1], l->block[2]},
                                       .dynamicSmemBytes = l->shared_memory,
                                       .stream = trm_cuda_stream(stream)};
    const cudaError_t error = cudaLaunchKernelExC(&config, (const void *)self->kernel, pointers);
    return error == cudaSuccess
               ? TRM_OK
               : trm_fail_in(trm_cuda_fail(error, self->plugin->table.cuda_kernel), "plugin %s", self->plugin->label);
}

static trm_status prepare_kernel(trm_plugin_run *run, trm_stream *stream, trm_program *program)
{
    const trm_plugin_entry *plugin = run->layer->plugin;
    kernel_launch *made = trm_program_alloc(program, sizeof(*made));
    int device;
    if (made == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *made = (kernel_launch){.plugin = plugin, .launch = {.size = sizeof(made->launch)}};
    run->error[0] = '\0';
    if (!plugin->table.launch(&run->call, &made->launch)) {
        return trm_plugin_fail(run, "say how its kernel is launched");
    }
    bool good = made->launch.n_arguments >= 0 && made->launch.n_arguments <= TRM_PLUGIN_MAX_ARGUMENTS;
    for (int i = 0; i < 3; i++) {
        good = good && made->launch.grid[i] > 0 && made->launch.block[i] > 0;
    }
    if (!good) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "plugin %s launches its kernel with an empty grid or block, or %d arguments", plugin->label,
                 (int)made->launch.n_arguments);
    }
    (void)trm_cuda_stream(stream); /* its device is current from here on */
    TRM_CUDA_TRY(cudaGetDevice(&device));
    TRM_TRY(get_kernel(plugin, device, &made->kernel));
    if (made->launch.shared_memory > MOST_SHARED_MEMORY) {
        TRM_CUDA_TRY(cudaKernelSetAttributeForDevice(made->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     (int)made->launch.shared_memory, device));
    }
    return trm_program_append(program, plugin->label, enqueue_kernel, made);
}

static trm_status enqueue(void *args, trm_stream *stream)
{
    trm_plugin_run *self = args;
    self->call.stream = trm_stream_native(stream);
    return trm_plugin_do(self, self->layer->plugin->table.enqueue, "enqueue");
}

/* ---- the kernel -------------------------------------------------------------------------------- */

bool trm_cuda_plugin_accepts(const trm_kernel_call *call)
{
    const trm_plugin_layer *layer = trm_plugin_layer_of(call->layer);
    return layer != NULL && trm_plugin_has_kernel(layer->plugin, TRM_BACKEND_CUDA);
}

size_t trm_cuda_plugin_workspace(const trm_kernel_call *call)
{
    return trm_plugin_asked(call, TRM_BACKEND_CUDA);
}

trm_status trm_cuda_plugin_prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_plugin_run *self;
    TRM_TRY(trm_plugin_prepare(call, TRM_BACKEND_CUDA, program, &self));
    if (self == NULL) {
        return TRM_OK;
    }
    return self->layer->plugin->table.launch != NULL
               ? prepare_kernel(self, call->stream, program)
               : trm_program_append(program, self->layer->plugin->label, enqueue, self);
}
