/* Offloaded layers at run time: small copies to and from memory that the CPU sees, with a host task between them. */
#include "weight_stream/offload/cpu_offload.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/pool.h"
#include "graph/memory_plan.h"
#include "weight_stream/offload/streaming.h"

/* How long threads poll for the next layer: the gap between offloaded layers of a step is a few times shorter. Waking
 * all sleeping threads takes 0.2 ms. */
#define GAP_MICROSECONDS 5000

/* An offloaded layer for a number of rows, as its task gets it. */
typedef struct offloaded_call {
    trm_cpu_offload *offload;
    const trm_layer *layer;
    const trm_kernel *kernel;
    trm_kernel_call call; /* weights in place, all other operands in the shadows */
    int32_t first, end;   /* launches that run it */
} offloaded_call;

struct trm_cpu_offload {
    int32_t n_layers; /* of the network */
    int32_t *of;      /* [n_layers] index of an offloaded layer; -1: not offloaded */
    int32_t n;
    const trm_layer **layers; /* [n] */
    offloaded_call *calls;    /* [n, TRM_HOST_COMPUTE_ROWS] */
    trm_program program;      /* launches of all of them */
    unsigned char
        *memory; /* pinned: shadows of a layer's inputs and outputs, then the workspace; layers run one by one */
    size_t shadow_bytes, workspace_bytes;
    atomic_int status;      /* of the first layer that failed */
    trm_held_error failure; /* written before it */
};

trm_status trm_offload_device_open(trm_device *device, int32_t threads, trm_offload_device *offload_device)
{
    trm_offload_device made = {0};
    if (trm_device_backend(device) != TRM_BACKEND_HOST) {
        TRM_TRY(trm_device_open(TRM_BACKEND_HOST, 0, threads, &made.own));
    }
    trm_status status = trm_stream_create(made.own == NULL ? device : made.own, &made.stream);
    if (status != TRM_OK) {
        trm_offload_device_close(&made);
        return status;
    }
    *offload_device = made;
    return TRM_OK;
}

void trm_offload_device_close(trm_offload_device *offload_device)
{
    trm_stream_destroy(offload_device->stream);
    trm_device_close(offload_device->own);
    *offload_device = (trm_offload_device){0};
}

trm_status trm_cpu_offload_open_device(const trm_offload_site *site)
{
    if (site->device->stream != NULL) {
        return TRM_OK;
    }
    int32_t threads = trm_world_threads(site->world); /* one CPU is left to the thread that waits for the device */
    TRM_TRY(trm_offload_device_open(site->world->device, threads > 1 ? threads - 1 : 1, site->device));
    if (site->device->own != NULL) {
        trm_pool_set_spin(trm_stream_native(site->device->stream), GAP_MICROSECONDS);
    }
    return TRM_OK;
}

/* ---- making -------------------------------------------------------------------------------------- */

static size_t view_bytes(const trm_view *view)
{
    return trm_dims_bytes(&view->dims, view->dtype);
}

/* The address where the CPU reads an input in place; NULL: in a shadow. */
static void *weight_of(const trm_offload_site *site, const trm_tensor *input)
{
    int32_t weight = input == NULL ? -1 : trm_streaming_weight(site->plan, input);
    return weight < 0 || site->places->resident[weight] != NULL ? NULL : site->places->stored[weight].memory;
}

/* Places the shadows in `memory`, for the largest number of rows; returns their bytes. */
static size_t place(const trm_offload_site *site, const trm_layer *layer, const trm_kernel_call *largest,
                    unsigned char *memory, trm_kernel_call *call)
{
    size_t at = 0;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        void *weight = weight_of(site, layer->inputs[i]);
        if (layer->inputs[i] != NULL) {
            call->inputs[i].data = weight != NULL ? weight : memory + at;
            at += weight != NULL ? 0 : trm_align_up(view_bytes(&largest->inputs[i]), TRM_TENSOR_ALIGNMENT);
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        call->outputs[i].data = memory + at;
        at += trm_align_up(view_bytes(&largest->outputs[i]), TRM_TENSOR_ALIGNMENT);
    }
    return at;
}

/* The call for a number of rows, without addresses, and its kernel. */
static trm_status find_kernel(const trm_offload_site *site, const trm_layer *layer, int64_t rows, offloaded_call *h)
{
    trm_cpu_offload_describe(layer, site->plan->max_dims, rows, &h->call);
    h->layer = layer;
    h->kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, TRM_BACKEND_HOST, &h->call);
    if (h->kernel == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "layer %s has no host kernel for %lld rows", layer->name, (long long)rows);
    }
    return TRM_OK;
}

static offloaded_call *call_of(const trm_cpu_offload *offload, int32_t i, int64_t rows)
{
    return &offload->calls[(size_t)i * TRM_HOST_COMPUTE_ROWS + (size_t)rows - 1];
}

/* Finds the kernels of all calls, and the memory that they need. */
static trm_status describe_calls(const trm_offload_site *site, trm_cpu_offload *offload)
{
    for (int32_t i = 0; i < offload->n; i++) {
        const trm_layer *layer = offload->layers[i];
        for (int64_t rows = 1; rows <= TRM_HOST_COMPUTE_ROWS; rows++) {
            offloaded_call *h = call_of(offload, i, rows);
            h->offload = offload;
            TRM_TRY(find_kernel(site, layer, rows, h));
            size_t needs = h->kernel->workspace == NULL ? 0 : h->kernel->workspace(&h->call);
            offload->workspace_bytes = needs > offload->workspace_bytes ? needs : offload->workspace_bytes;
        }
        const trm_kernel_call *largest = &call_of(offload, i, TRM_HOST_COMPUTE_ROWS)->call;
        trm_kernel_call scratch = *largest;
        size_t shadows = place(site, layer, largest, NULL, &scratch);
        offload->shadow_bytes = shadows > offload->shadow_bytes ? shadows : offload->shadow_bytes;
    }
    return TRM_OK;
}

static trm_status prepare_calls(const trm_offload_site *site, trm_cpu_offload *offload)
{
    offload->program.stream = site->device->stream;
    for (int32_t i = 0; i < offload->n; i++) {
        const trm_kernel_call *largest = &call_of(offload, i, TRM_HOST_COMPUTE_ROWS)->call;
        for (int64_t rows = 1; rows <= TRM_HOST_COMPUTE_ROWS; rows++) {
            offloaded_call *h = call_of(offload, i, rows);
            trm_kernel_call *call = &h->call;
            (void)place(site, offload->layers[i], largest, offload->memory, call);
            call->stream = site->device->stream;
            call->workspace = offload->memory + offload->shadow_bytes;
            call->workspace_size = offload->workspace_bytes;
            h->first = offload->program.n;
            TRM_TRY(trm_kernel_prepare(h->kernel, call, &offload->program));
            h->end = offload->program.n;
        }
    }
    return TRM_OK;
}

static trm_status fill(const trm_offload_site *site, trm_cpu_offload *made)
{
    const trm_streaming_plan *s = site->plan->streaming;
    const trm_network *network = site->plan->network;
    void *memory;
    for (int32_t i = 0; i < network->n_layers; i++) {
        made->of[i] = s->offloaded[i] ? made->n : -1;
        if (s->offloaded[i]) {
            made->layers[made->n++] = network->layers[i];
        }
    }
    made->calls = calloc((size_t)made->n * TRM_HOST_COMPUTE_ROWS, sizeof(*made->calls));
    if (made->calls == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d layers of CPU offload", made->n);
    }
    TRM_TRY(describe_calls(site, made));
    TRM_TRY(trm_device_alloc_host(site->world->device, made->shadow_bytes + made->workspace_bytes, &memory));
    made->memory = memory;
    return prepare_calls(site, made);
}

trm_status trm_cpu_offload_create(const trm_offload_site *site, trm_cpu_offload **made)
{
    *made = NULL;
    if (!site->plan->streaming->hosts) {
        return TRM_OK;
    }
    TRM_TRY(trm_cpu_offload_open_device(site));
    size_t n = (size_t)site->plan->network->n_layers;
    trm_cpu_offload *offload = calloc(1, sizeof(*offload));
    if (offload == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the layers of CPU offload");
    }
    offload->n_layers = (int32_t)n;
    offload->of = calloc(n + 1, sizeof(*offload->of));
    offload->layers = calloc(n + 1, sizeof(*offload->layers));
    atomic_init(&offload->status, TRM_OK);
    trm_status status = offload->of == NULL || offload->layers == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the indices of %zu layers", n)
                            : fill(site, offload);
    if (status != TRM_OK) {
        trm_cpu_offload_destroy(offload, site->world->device);
        return status;
    }
    *made = offload;
    return TRM_OK;
}

void trm_cpu_offload_destroy(trm_cpu_offload *offload, trm_device *device)
{
    if (offload != NULL) {
        trm_device_free_host(device, offload->memory);
        trm_program_fini(&offload->program);
        free(offload->calls);
        free(offload->layers);
        free(offload->of);
        free(offload);
    }
}

/* ---- running ------------------------------------------------------------------------------------- */

bool trm_cpu_offload_suits(const trm_cpu_offload *offload, const trm_dims *dims)
{
    bool suits = offload != NULL;
    for (int32_t i = 0; suits && i < offload->n; i++) {
        int64_t rows = trm_cpu_offload_rows(offload->layers[i], dims);
        suits = rows >= 1 && rows <= TRM_HOST_COMPUTE_ROWS;
    }
    return suits;
}

const trm_kernel *trm_cpu_offload_kernel(const trm_cpu_offload *offload, int32_t layer, const trm_dims *dims)
{
    int32_t i = offload->of[layer];
    return i < 0 ? NULL : call_of(offload, i, trm_cpu_offload_rows(offload->layers[i], dims))->kernel;
}

/* On a thread of the device's driver, or of the caller. */
static void run_call(void *user)
{
    offloaded_call *h = user;
    trm_cpu_offload *offload = h->offload;
    if (atomic_load(&offload->status) != TRM_OK) {
        return; /* the step has failed */
    }
    int32_t at;
    trm_status status = trm_program_run(&offload->program, h->first, h->end, &at);
    if (status != TRM_OK) {
        trm_error_hold(trm_fail_in(status, "layer %s (%s)", h->layer->name, h->kernel->name), &offload->failure);
        atomic_store(&offload->status, (int)status);
    }
}

typedef struct copy_args {
    int32_t n;
    trm_small_copy copies[TRM_MAX_SMALL_COPIES];
} copy_args;

static trm_status run_copies(void *user, trm_stream *stream)
{
    const copy_args *args = user;
    return trm_stream_copy_small(stream, args->copies, args->n);
}

static trm_status run_task(void *user, trm_stream *stream)
{
    return trm_stream_host_task(stream, run_call, user);
}

trm_status trm_cpu_offload_prepare(trm_cpu_offload *offload, int32_t layer, const trm_kernel_call *call,
                                   const trm_dims *dims, trm_program *program)
{
    offloaded_call *h =
        call_of(offload, offload->of[layer], trm_cpu_offload_rows(offload->layers[offload->of[layer]], dims));
    copy_args *args = trm_program_alloc(program, 2 * sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    copy_args *in = &args[0], *out = &args[1];
    for (int32_t k = 0; k < h->call.n_inputs; k++) {
        const trm_view *to = &h->call.inputs[k];
        if (to->data != NULL && to->data != call->inputs[k].data) {
            in->copies[in->n++] = (trm_small_copy){to->data, call->inputs[k].data, view_bytes(to)};
        }
    }
    for (int32_t k = 0; k < h->call.n_outputs; k++) {
        const trm_view *from = &h->call.outputs[k];
        if ((call->unread >> k & 1) == 0) {
            out->copies[out->n++] = (trm_small_copy){call->outputs[k].data, from->data, view_bytes(from)};
        }
    }
    TRM_TRY(trm_program_append(program, "copy to the CPU", run_copies, in));
    TRM_TRY(trm_program_append(program, h->kernel->name, run_task, h));
    return trm_program_append(program, "copy from the CPU", run_copies, out);
}

trm_status trm_cpu_offload_status(trm_cpu_offload *offload)
{
    trm_status status = offload == NULL ? TRM_OK : (trm_status)atomic_load(&offload->status);
    if (status != TRM_OK) {
        (void)trm_error_give_back(&offload->failure);
        atomic_store(&offload->status, TRM_OK);
    }
    return status;
}
