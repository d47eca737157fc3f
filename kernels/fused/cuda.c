/*
 * Launches of generated kernels. Bound by device memory: every input is read once (what repeats, from cache), every
 * output written once, 16 bytes of the narrowest type at a time where dims and addresses allow it.
 */
#include "kernels/fused/cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/fused/cuda_args.h"
#include "kernels/kernel_list.h"
#include "kernels/fused/fused.h"

#define SLOTS   4096 /* a power of two */
#define THREADS 256

/* What a kernel is made for. Compared as bytes: always zeroed before it is filled. */
typedef struct fused_key {
    trm_fused_elementwise_params params;
    int32_t inputs[TRM_MAX_LAYER_INPUTS]; /* types */
    int32_t n_inputs, arch;
} fused_key;

typedef struct fused_kernel {
    fused_key key;
    cudaKernel_t vector, scalar;
    int32_t width; /* elements of a run of `vector` */
} fused_kernel;

static struct {
    pthread_mutex_t mutex;
    fused_kernel *slots[SLOTS]; /* never freed: kernels live as long as the process */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

bool trm_cuda_fused_available(char *why, size_t why_size)
{
    bool available = trm_nvrtc_open() == TRM_OK;
    if (!available && why != NULL && why_size > 0) {
        snprintf(why, why_size, "%s", trm_last_error());
    }
    return available;
}

/* ---- kernels ----------------------------------------------------------------------------------- */

static void make_key(const trm_fused_elementwise_params *params, const trm_dtype *inputs, int32_t n_inputs, int arch,
                     fused_key *key)
{
    memset(key, 0, sizeof(*key));
    key->params.n_steps = params->n_steps;
    key->params.n_outputs = params->n_outputs;
    memcpy(key->params.outputs, params->outputs, (size_t)params->n_outputs * sizeof(params->outputs[0]));
    memcpy(key->params.steps, params->steps, (size_t)params->n_steps * sizeof(params->steps[0]));
    for (int32_t i = 0; i < n_inputs; i++) {
        key->inputs[i] = (int32_t)inputs[i];
    }
    key->n_inputs = n_inputs;
    key->arch = arch;
}

static uint64_t hash_key(const fused_key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 14695981039346656037u; /* FNV-1a over words */
    for (size_t i = 0; i + sizeof(uint32_t) <= sizeof(*key); i += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, bytes + i, sizeof(word));
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash ^ hash >> 32;
}

/* The slot of a key: its kernel, or where it belongs; NULL if there is no room. Under the mutex. */
static fused_kernel **find_slot(const fused_key *key)
{
    uint64_t at = hash_key(key);
    for (int i = 0; i < SLOTS; i++) {
        fused_kernel **slot = &state.slots[(at + (uint64_t)i) & (SLOTS - 1)];
        if (*slot == NULL || memcmp(&(*slot)->key, key, sizeof(*key)) == 0) {
            return slot;
        }
    }
    return NULL;
}

/* Loads an image. This may happen while the thread captures a stream, in which loading takes no part. */
static trm_status load_image(const void *image, fused_kernel *made)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaLibrary_t library = NULL;
    TRM_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaError_t error = cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
    error = error == cudaSuccess ? cudaLibraryGetKernel(&made->vector, library, "fused_vector") : error;
    error = error == cudaSuccess ? cudaLibraryGetKernel(&made->scalar, library, "fused_scalar") : error;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return error == cudaSuccess ? TRM_OK : trm_cuda_fail(error, "loading a generated kernel");
}

static trm_status make_kernel(const fused_key *key, fused_kernel **kernel)
{
    void *image = NULL;
    size_t size = 0;
    fused_kernel *made = calloc(1, sizeof(*made));
    trm_dtype types[TRM_MAX_LAYER_INPUTS];
    for (int32_t i = 0; i < key->n_inputs; i++) {
        types[i] = (trm_dtype)key->inputs[i];
    }
    char *source = made == NULL ? NULL : trm_cuda_fused_source(&key->params, types, key->n_inputs, &made->width);
    if (source == NULL) {
        free(made);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a generated kernel");
    }
    trm_status status = trm_nvrtc_compile(source, key->arch, false, &image, &size);
    status = status == TRM_OK ? load_image(image, made) : status;
    free(source);
    free(image);
    if (status != TRM_OK) {
        free(made);
        return status;
    }
    made->key = *key;
    *kernel = made;
    return TRM_OK;
}

/* The kernel for the device that is current. */
static trm_status get_kernel(const trm_fused_elementwise_params *params, const trm_dtype *inputs, int32_t n_inputs,
                             const fused_kernel **kernel)
{
    int device, major = 0, minor = 0;
    TRM_CUDA_TRY(cudaGetDevice(&device));
    TRM_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    TRM_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    fused_key key;
    make_key(params, inputs, n_inputs, major * 10 + minor, &key);
    trm_status status = TRM_OK;
    pthread_mutex_lock(&state.mutex);
    fused_kernel **slot = find_slot(&key);
    if (slot == NULL) {
        status = trm_fail(TRM_ERROR_UNSUPPORTED, "more than %d generated kernels", SLOTS);
    } else if (*slot == NULL) {
        status = make_kernel(&key, slot);
    }
    *kernel = status == TRM_OK ? *slot : NULL;
    pthread_mutex_unlock(&state.mutex);
    return status;
}

trm_status trm_cuda_fused_prepare(trm_device *device, const trm_fused_elementwise_params *params,
                                  const trm_dtype *inputs, int32_t n_inputs)
{
    const fused_kernel *kernel;
    trm_device_info info = {.ordinal = 0};
    TRM_TRY(trm_device_get_info(device, &info)); /* which makes it current */
    return get_kernel(params, inputs, n_inputs, &kernel);
}

/* ---- running ----------------------------------------------------------------------------------- */

/* The loop over the output; false if an input does not broadcast to it. */
static bool lay_out(const trm_kernel_call *call, trm_fused_args *a)
{
    const trm_dims *out = &call->outputs[0].dims;
    long long strides[TRM_MAX_LAYER_INPUTS][TRM_MAX_DIMS];
    memset(a, 0, sizeof(*a));
    for (int32_t k = 0; k < call->n_inputs; k++) {
        const trm_dims *in = &call->inputs[k].dims;
        long long step = 1;
        if (in->n > out->n) {
            return false;
        }
        for (int32_t i = out->n - 1; i >= 0; i--) {
            const int32_t own = i - (out->n - in->n);
            const int64_t size = own >= 0 ? in->d[own] : 1;
            if (size != 1 && size != out->d[i]) {
                return false;
            }
            strides[k][i] = size == 1 ? 0 : step;
            step *= size;
        }
    }
    for (int32_t i = 0; i < out->n; i++) {
        int last = a->n - 1;
        bool joins = last >= 0;
        if (out->d[i] == 1) {
            continue;
        }
        for (int32_t k = 0; joins && k < call->n_inputs; k++) {
            joins = a->stride[k][last] == strides[k][i] * out->d[i];
        }
        if (!joins) {
            last = a->n++;
            a->d[last] = 1;
        }
        a->d[last] *= out->d[i];
        for (int32_t k = 0; k < call->n_inputs; k++) {
            a->stride[k][last] = strides[k][i];
        }
    }
    if (a->n == 0) {
        a->n = 1;
        a->d[0] = 1;
    }
    a->count = trm_dims_count(out);
    for (int32_t k = 0; k < call->n_inputs; k++) {
        a->in[k] = call->inputs[k].data;
        a->advances |= a->stride[k][a->n - 1] != 0 ? 1u << k : 0;
    }
    for (int32_t k = 0; k < call->n_outputs; k++) {
        a->out[k] = call->outputs[k].data;
    }
    return true;
}

static size_t run_alignment(trm_dtype dtype, int32_t width)
{
    const size_t bytes = trm_dtype_size(dtype) * (size_t)width;
    return bytes < 16 ? bytes : 16;
}

/* Turns the loop into one over runs of `width` elements; false where dims, strides or addresses forbid it. */
static bool take_runs(const trm_kernel_call *call, int32_t width, trm_fused_args *a)
{
    const int last = a->n - 1;
    bool fits = a->d[last] % width == 0;
    for (int32_t k = 0; fits && k < call->n_outputs; k++) {
        fits = (uintptr_t)a->out[k] % run_alignment(call->outputs[k].dtype, width) == 0;
    }
    for (int32_t k = 0; fits && k < call->n_inputs; k++) {
        if ((a->advances >> k & 1) != 0) {
            fits = (uintptr_t)a->in[k] % run_alignment(call->inputs[k].dtype, width) == 0;
            for (int i = 0; fits && i < last; i++) {
                fits = a->stride[k][i] % width == 0;
            }
        }
    }
    if (fits) {
        a->d[last] /= width;
        a->count /= width;
        for (int32_t k = 0; k < call->n_inputs; k++) {
            a->stride[k][last] *= width;
        }
    }
    return fits;
}

/* Also without a compiler: an engine says then what is missing. */
bool trm_cuda_fused_accepts(const trm_kernel_call *call)
{
    const trm_fused_elementwise_params *p = &call->layer->fused_elementwise;
    trm_fused_args args;
    bool fits = p->n_steps >= 1 && p->n_steps <= TRM_MAX_FUSED_STEPS && call->n_inputs >= 1 &&
                call->n_outputs == p->n_outputs && lay_out(call, &args);
    for (int32_t i = 0; fits && i < p->n_outputs; i++) {
        const trm_dims *dims = &call->outputs[i].dims;
        fits = call->outputs[i].dtype == p->steps[p->outputs[i]].type && dims->n == call->outputs[0].dims.n &&
               memcmp(dims->d, call->outputs[0].dims.d, (size_t)dims->n * sizeof(dims->d[0])) == 0;
    }
    return fits;
}

trm_status trm_cuda_fused_run(const trm_kernel_call *call)
{
    trm_fused_args args;
    const fused_kernel *kernel;
    trm_dtype types[TRM_MAX_LAYER_INPUTS];
    cudaStream_t stream = trm_cuda_stream(call->stream); /* its device is current from here on */
    if (trm_dims_count(&call->outputs[0].dims) == 0) {
        return TRM_OK;
    }
    if (!lay_out(call, &args)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a fused elementwise call does not fit the layer it was accepted for");
    }
    for (int32_t i = 0; i < call->n_inputs; i++) {
        types[i] = call->inputs[i].dtype;
    }
    TRM_TRY(get_kernel(&call->layer->fused_elementwise, types, call->n_inputs, &kernel));
    const bool runs = take_runs(call, kernel->width, &args);
    const long long blocks = (args.count + THREADS - 1) / THREADS, most = 1 << 16;
    cudaLaunchAttribute overlap = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {
        .gridDim = {(unsigned)(blocks < most ? blocks : most), 1, 1},
        .blockDim = {THREADS, 1, 1},
        .stream = stream,
        .attrs = &overlap,
        .numAttrs = trm_cuda_has_clusters() ? 1 : 0,
    };
    void *arguments[] = {&args};
    TRM_CUDA_TRY(cudaLaunchKernelExC(&config, (const void *)(runs ? kernel->vector : kernel->scalar), arguments));
    return TRM_OK;
}
