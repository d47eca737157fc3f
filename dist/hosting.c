/* Hosted layers at run time: small copies to and from memory that processors see, and between them a task on the host.
 */
#include "dist/hosting.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/pool.h"
#include "dist/engine.h"
#include "dist/load.h"
#include "graph/memory_plan.h"

/* Threads poll so long for the next layer: the gap between hosted layers of a step is a few times shorter. Waking all
 * that sleep takes 0.2 ms. */
#define GAP_MICROSECONDS 5000

/* A hosted layer for a number of rows: what a task is given. */
typedef struct hosted_call {
    trm_hosting *hosting;
    const trm_layer *layer;
    const trm_kernel *kernel;
    trm_kernel_call call; /* weights where they lie, all else in the shadows */
} hosted_call;

struct trm_hosting {
    int32_t n_layers; /* of the network */
    int32_t *of;      /* [n_layers] the number of a hosted layer; -1: it is not */
    int32_t n;
    const trm_layer **layers; /* [n] */
    hosted_call *calls;       /* [n, TRM_HOST_COMPUTE_ROWS] */
    unsigned char *memory;    /* pinned: shadows of what a layer reads and writes, then the workspace; layers run one by
                                 one */
    size_t shadow_bytes, workspace_bytes;
    atomic_int status; /* of the first layer that failed */
    char cause[512];   /* there before that */
};

trm_status trm_host_crew_open(trm_device *device, int32_t threads, trm_host_crew *crew)
{
    trm_host_crew made = {0};
    if (trm_device_backend(device) != TRM_BACKEND_HOST) {
        TRM_TRY(trm_device_open(TRM_BACKEND_HOST, 0, threads, &made.own));
    }
    trm_status status = trm_stream_create(made.own == NULL ? device : made.own, &made.stream);
    if (status != TRM_OK) {
        trm_host_crew_close(&made);
        return status;
    }
    *crew = made;
    return TRM_OK;
}

void trm_host_crew_close(trm_host_crew *crew)
{
    trm_stream_destroy(crew->stream);
    trm_device_close(crew->own);
    *crew = (trm_host_crew){0};
}

trm_status trm_hosting_open_crew(trm_engine *engine)
{
    if (engine->crew.stream != NULL) {
        return TRM_OK;
    }
    int32_t threads = trm_load_threads(engine->world); /* one is left to who waits for the device */
    TRM_TRY(trm_host_crew_open(engine->world->device, threads > 1 ? threads - 1 : 1, &engine->crew));
    if (engine->crew.own != NULL) {
        trm_pool_set_spin(trm_stream_native(engine->crew.stream), GAP_MICROSECONDS);
    }
    return TRM_OK;
}

/* ---- making -------------------------------------------------------------------------------------- */

static size_t view_bytes(const trm_view *view)
{
    return trm_dims_bytes(&view->dims, view->dtype);
}

/* Where processors read an input as it is; NULL: in a shadow. */
static void *weight_of(const trm_engine *engine, const trm_tensor *input)
{
    int32_t weight = input == NULL ? -1 : trm_streaming_weight(engine->plan, input);
    return weight < 0 || engine->places.resident[weight] != NULL ? NULL : engine->places.stored[weight].memory;
}

/* Gives what has a shadow its place in `memory`, for the largest number of rows; returns the bytes of all. */
static size_t place(const trm_engine *engine, const trm_layer *layer, const trm_kernel_call *largest,
                    unsigned char *memory, trm_kernel_call *call)
{
    size_t at = 0;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        void *weight = weight_of(engine, layer->inputs[i]);
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
static trm_status find_kernel(const trm_engine *engine, const trm_layer *layer, int64_t rows, hosted_call *h)
{
    trm_hosting_describe(layer, engine->plan->max_dims, rows, &h->call);
    h->layer = layer;
    h->kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, TRM_BACKEND_HOST, &h->call);
    if (h->kernel == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "layer %s has no host kernel for %lld rows", layer->name, (long long)rows);
    }
    return TRM_OK;
}

static hosted_call *call_of(const trm_hosting *hosting, int32_t i, int64_t rows)
{
    return &hosting->calls[(size_t)i * TRM_HOST_COMPUTE_ROWS + (size_t)rows - 1];
}

/* Kernels of all calls, and the memory that they need. */
static trm_status describe_calls(const trm_engine *engine, trm_hosting *hosting)
{
    for (int32_t i = 0; i < hosting->n; i++) {
        const trm_layer *layer = hosting->layers[i];
        for (int64_t rows = 1; rows <= TRM_HOST_COMPUTE_ROWS; rows++) {
            hosted_call *h = call_of(hosting, i, rows);
            h->hosting = hosting;
            TRM_TRY(find_kernel(engine, layer, rows, h));
            size_t needs = h->kernel->workspace == NULL ? 0 : h->kernel->workspace(&h->call);
            hosting->workspace_bytes = needs > hosting->workspace_bytes ? needs : hosting->workspace_bytes;
        }
        const trm_kernel_call *largest = &call_of(hosting, i, TRM_HOST_COMPUTE_ROWS)->call;
        trm_kernel_call scratch = *largest;
        size_t shadows = place(engine, layer, largest, NULL, &scratch);
        hosting->shadow_bytes = shadows > hosting->shadow_bytes ? shadows : hosting->shadow_bytes;
    }
    return TRM_OK;
}

static void place_calls(const trm_engine *engine, trm_hosting *hosting)
{
    for (int32_t i = 0; i < hosting->n; i++) {
        const trm_kernel_call *largest = &call_of(hosting, i, TRM_HOST_COMPUTE_ROWS)->call;
        for (int64_t rows = 1; rows <= TRM_HOST_COMPUTE_ROWS; rows++) {
            trm_kernel_call *call = &call_of(hosting, i, rows)->call;
            (void)place(engine, hosting->layers[i], largest, hosting->memory, call);
            call->stream = engine->crew.stream;
            call->workspace = hosting->memory + hosting->shadow_bytes;
            call->workspace_size = hosting->workspace_bytes;
        }
    }
}

static trm_status fill(trm_engine *engine, trm_hosting *made)
{
    const trm_streaming_plan *s = engine->plan->streaming;
    const trm_network *network = engine->plan->network;
    void *memory;
    for (int32_t i = 0; i < network->n_layers; i++) {
        made->of[i] = s->hosted[i] ? made->n : -1;
        if (s->hosted[i]) {
            made->layers[made->n++] = network->layers[i];
        }
    }
    made->calls = calloc((size_t)made->n * TRM_HOST_COMPUTE_ROWS, sizeof(*made->calls));
    if (made->calls == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d layers that processors run", made->n);
    }
    TRM_TRY(describe_calls(engine, made));
    TRM_TRY(trm_device_alloc_host(engine->world->device, made->shadow_bytes + made->workspace_bytes, &memory));
    made->memory = memory;
    place_calls(engine, made);
    return TRM_OK;
}

trm_status trm_hosting_create(trm_engine *engine, trm_hosting **made)
{
    *made = NULL;
    if (!engine->plan->streaming->hosts) {
        return TRM_OK;
    }
    TRM_TRY(trm_hosting_open_crew(engine));
    size_t n = (size_t)engine->plan->network->n_layers;
    trm_hosting *hosting = calloc(1, sizeof(*hosting));
    if (hosting == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the layers that processors run");
    }
    hosting->n_layers = (int32_t)n;
    hosting->of = calloc(n + 1, sizeof(*hosting->of));
    hosting->layers = calloc(n + 1, sizeof(*hosting->layers));
    atomic_init(&hosting->status, TRM_OK);
    trm_status status = hosting->of == NULL || hosting->layers == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the numbers of %zu layers", n)
                            : fill(engine, hosting);
    if (status != TRM_OK) {
        trm_hosting_destroy(hosting, engine->world->device);
        return status;
    }
    *made = hosting;
    return TRM_OK;
}

void trm_hosting_destroy(trm_hosting *hosting, trm_device *device)
{
    if (hosting != NULL) {
        trm_device_free_host(device, hosting->memory);
        free(hosting->calls);
        free(hosting->layers);
        free(hosting->of);
        free(hosting);
    }
}

/* ---- running ------------------------------------------------------------------------------------- */

bool trm_hosting_suits(const trm_hosting *hosting, const trm_dims *dims)
{
    bool suits = hosting != NULL;
    for (int32_t i = 0; suits && i < hosting->n; i++) {
        int64_t rows = trm_hosting_rows(hosting->layers[i], dims);
        suits = rows >= 1 && rows <= TRM_HOST_COMPUTE_ROWS;
    }
    return suits;
}

const trm_kernel *trm_hosting_kernel(const trm_hosting *hosting, int32_t layer, const trm_dims *dims)
{
    int32_t i = hosting->of[layer];
    return i < 0 ? NULL : call_of(hosting, i, trm_hosting_rows(hosting->layers[i], dims))->kernel;
}

/* On a thread of the device's driver, or of the caller. */
static void run_call(void *user)
{
    hosted_call *h = user;
    trm_hosting *hosting = h->hosting;
    if (atomic_load(&hosting->status) != TRM_OK) {
        return; /* the step has failed */
    }
    trm_status status = h->kernel->run(&h->call);
    if (status != TRM_OK) {
        snprintf(hosting->cause, sizeof(hosting->cause), "layer %s (%s): %s", h->layer->name, h->kernel->name,
                 trm_last_error());
        atomic_store(&hosting->status, (int)status);
    }
}

trm_status trm_hosting_run(trm_hosting *hosting, int32_t layer, const trm_kernel_call *call, const trm_dims *dims)
{
    int32_t i = hosting->of[layer], n_in = 0, n_out = 0;
    hosted_call *h = call_of(hosting, i, trm_hosting_rows(hosting->layers[i], dims));
    trm_small_copy in[TRM_MAX_SMALL_COPIES], out[TRM_MAX_SMALL_COPIES];
    for (int32_t k = 0; k < h->call.n_inputs; k++) {
        const trm_view *to = &h->call.inputs[k];
        if (to->data != NULL && to->data != call->inputs[k].data) {
            in[n_in++] = (trm_small_copy){to->data, call->inputs[k].data, view_bytes(to)};
        }
    }
    for (int32_t k = 0; k < h->call.n_outputs; k++) {
        const trm_view *from = &h->call.outputs[k];
        if ((call->unread >> k & 1) == 0) {
            out[n_out++] = (trm_small_copy){call->outputs[k].data, from->data, view_bytes(from)};
        }
    }
    TRM_TRY(trm_stream_copy_small(call->stream, in, n_in));
    TRM_TRY(trm_stream_host_task(call->stream, run_call, h));
    return trm_stream_copy_small(call->stream, out, n_out);
}

trm_status trm_hosting_status(trm_hosting *hosting)
{
    trm_status status = hosting == NULL ? TRM_OK : (trm_status)atomic_load(&hosting->status);
    if (status != TRM_OK) {
        char cause[sizeof(hosting->cause)];
        snprintf(cause, sizeof(cause), "%s", hosting->cause);
        atomic_store(&hosting->status, TRM_OK);
        return trm_fail(status, "%s", cause);
    }
    return TRM_OK;
}
