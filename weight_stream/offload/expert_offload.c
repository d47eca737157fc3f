/* The thread that answers the requests of small steps, and what it needs. */
#include "weight_stream/offload/expert_offload.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/pool.h"
#include "graph/memory_plan.h"
#include "kernels/moe/host_few.h"
#include "kernels/moe/layer.h"
#include "weight_stream/offload/mail_thread.h"
#include "weight_stream/offload/streaming.h"

_Static_assert(TRM_HOST_COMPUTE_ROWS <= TRM_MOE_FEW_TOKENS, "small steps have few tokens");
_Static_assert(TRM_HOST_COMPUTE_ROWS *TRM_MOE_MOST_CHOSEN <= TRM_EXPERT_MOST_PAIRS, "a request has all pairs");

/* How long the device waits for an answer, which takes less than a millisecond. */
#define LIMIT_SECONDS 10

struct trm_expert_offload {
    trm_offload_site parts;
    trm_expert_mailbox box;
    int32_t n;
    const trm_layer **layers; /* [n] cached ones */
    trm_moe_experts *experts; /* [n] */
    void **copies;            /* [n, TRM_EXPERT_MOST_TENSORS] of what lies on the device */
    trm_pool *pool;
    void *workspace;
    trm_mail_thread thread;
};

/* Answers the last request. */
static void answer(void *user)
{
    trm_expert_offload *offload = user;
    trm_expert_mail *mail = offload->box.mail;
    trm_moe_experts experts = offload->experts[mail->layer];
    experts.tokens = mail->tokens;
    experts.k = mail->k;
    experts.x = offload->box.x;
    experts.ids = mail->ids;
    experts.weights = mail->weights;
    trm_moe_few_run(offload->pool, &experts, offload->workspace, offload->box.y);
    __atomic_store_n(&mail->done, mail->posted, __ATOMIC_RELEASE);
}

/* Finds the cached layers and the memory of requests and answers. */
static trm_status allocate(trm_expert_offload *made)
{
    const trm_streaming_plan *s = made->parts.plan->streaming;
    trm_device *device = made->parts.world->device;
    size_t x = 0, y = 0, workspace = 0;
    void *memory;
    made->n = s->n_expert_layers;
    made->layers = calloc((size_t)made->n, sizeof(*made->layers));
    made->experts = calloc((size_t)made->n, sizeof(*made->experts));
    made->copies = calloc((size_t)made->n * TRM_EXPERT_MOST_TENSORS, sizeof(*made->copies));
    if (made->layers == NULL || made->experts == NULL || made->copies == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d layers of experts for the CPU", made->n);
    }
    for (int32_t i = 0; i < made->n; i++) {
        trm_moe_experts of = {0};
        trm_kernel_call call;
        made->layers[i] = s->expert_layers[i];
        trm_cpu_offload_describe(made->layers[i], made->parts.plan->max_dims, TRM_HOST_COMPUTE_ROWS, &call);
        if (!trm_moe_experts_of(&call, &of)) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "layer %s: the CPU cannot compute its experts", made->layers[i]->name);
        }
        const size_t elements = (size_t)TRM_HOST_COMPUTE_ROWS * (size_t)of.hidden;
        const size_t needs = trm_moe_few_workspace(&of, TRM_HOST_COMPUTE_ROWS);
        x = elements * trm_dtype_size(of.type) > x ? elements * trm_dtype_size(of.type) : x;
        y = elements * sizeof(float) > y ? elements * sizeof(float) : y;
        workspace = needs > workspace ? needs : workspace;
    }
    made->workspace = aligned_alloc(TRM_TENSOR_ALIGNMENT, trm_align_up(workspace, TRM_TENSOR_ALIGNMENT));
    if (made->workspace == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for experts on the CPU", workspace);
    }
    TRM_TRY(trm_device_alloc_host(device, sizeof(trm_expert_mail), &memory));
    made->box.mail = memset(memory, 0, sizeof(trm_expert_mail));
    TRM_TRY(trm_device_alloc_host(device, x, &made->box.x));
    TRM_TRY(trm_device_alloc_host(device, y, &memory));
    made->box.y = memory;
    return TRM_OK;
}

static trm_status start(trm_expert_offload *made)
{
    TRM_TRY(trm_cpu_offload_open_device(&made->parts));
    TRM_TRY(allocate(made));
    made->pool = trm_stream_native(made->parts.device->stream);
    made->box.limit = (int64_t)LIMIT_SECONDS * 1000000000;
    if (trm_device_backend(made->parts.world->device) == TRM_BACKEND_HOST) {
        made->box.serve = answer;
        made->box.server = made;
        return TRM_OK;
    }
    return trm_mail_thread_start(&made->thread, &made->box.mail->posted, answer, made);
}

trm_status trm_expert_offload_create(const trm_offload_site *site, int64_t *sent, trm_expert_offload **made)
{
    trm_expert_offload *offload = calloc(1, sizeof(*offload));
    *made = NULL;
    if (offload == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate experts on the CPU");
    }
    offload->parts = *site;
    offload->box.sent = sent;
    const trm_status status = start(offload);
    if (status != TRM_OK) {
        trm_expert_offload_destroy(offload, site->world->device);
        return status;
    }
    *made = offload;
    return TRM_OK;
}

void trm_expert_offload_destroy(trm_expert_offload *offload, trm_device *device)
{
    if (offload == NULL) {
        return;
    }
    trm_mail_thread_stop(&offload->thread);
    trm_device_free_host(device, offload->box.mail);
    trm_device_free_host(device, offload->box.x);
    trm_device_free_host(device, offload->box.y);
    for (int32_t i = 0; offload->copies != NULL && i < offload->n * TRM_EXPERT_MOST_TENSORS; i++) {
        free(offload->copies[i]);
    }
    free(offload->copies);
    free(offload->workspace);
    free(offload->experts);
    free(offload->layers);
    free(offload);
}

const trm_expert_mailbox *trm_expert_offload_box(const trm_expert_offload *offload)
{
    return &offload->box;
}

/* A tensor of all experts where the CPU reads it. */
static trm_status find_tensor(const trm_expert_offload *offload, const trm_tensor *tensor,
                              const trm_expert_tensor *lies, size_t bytes, trm_stream *stream, void **copy,
                              void **found)
{
    const trm_offload_site *parts = &offload->parts;
    const int32_t weight = trm_streaming_weight(parts->plan, tensor);
    const bool in_host = weight >= 0 && parts->places->resident[weight] == NULL;
    *found = (void *)(uintptr_t)lies->from;
    if (in_host || trm_device_backend(parts->world->device) == TRM_BACKEND_HOST) {
        return TRM_OK;
    }
    *copy = aligned_alloc(TRM_TENSOR_ALIGNMENT, trm_align_up(bytes, TRM_TENSOR_ALIGNMENT));
    if (*copy == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for a copy of %s", bytes, tensor->name);
    }
    *found = *copy;
    TRM_TRY(trm_stream_download(stream, *copy, lies->from, bytes));
    return trm_stream_synchronize(stream);
}

trm_status trm_expert_offload_place(trm_expert_offload *offload, int32_t i, const trm_cached_layer *cached,
                                    const trm_kernel_call *call)
{
    if (offload->experts[i].hidden > 0) {
        return TRM_OK;
    }
    trm_moe_experts experts;
    trm_kernel_call whole = *call;
    for (int32_t k = 0; k < cached->n; k++) {
        trm_view *view = &whole.inputs[cached->inputs[k]];
        TRM_TRY(find_tensor(offload, cached->layer->inputs[cached->inputs[k]], &cached->tensors[k],
                            trm_dims_bytes(&view->dims, view->dtype), call->stream,
                            &offload->copies[i * TRM_EXPERT_MOST_TENSORS + k], &view->data));
    }
    if (!trm_moe_experts_of(&whole, &experts)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "layer %s: the CPU cannot compute its experts", cached->layer->name);
    }
    offload->experts[i] = experts;
    return TRM_OK;
}

trm_status trm_expert_offload_status(trm_expert_offload *offload)
{
    if (offload == NULL || offload->box.mail->late == 0) {
        return TRM_OK;
    }
    offload->box.mail->late = 0;
    TRM_FAIL(TRM_ERROR_INTERNAL, "layer %s: the CPU did not compute its experts within %d s",
             offload->layers[offload->box.mail->layer]->name, LIMIT_SECONDS);
}
