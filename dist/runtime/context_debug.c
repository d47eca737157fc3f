/* Debug tensors of a context: outputs of layers, copied to the host as soon as they ran. */
#include "dist/runtime/engine.h"

#include "base/error.h"
#include "base/recorder.h"

TRM_CALL(trm_context_recorder(context), trm_context_set_debug, (trm_context *context, trm_debug_fn fn, void *user),
         (context, fn, user))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set debug tensors: context is NULL");
    }
    context->shaped = context->shaped && (fn == NULL) == (context->debug == NULL); /* all outputs are then computed */
    context->debug = fn;
    context->debug_user = user;
    return TRM_OK;
}

/* Host memory for one tensor, which grows as needed. */
static trm_status reserve(trm_context *context, size_t bytes)
{
    trm_context_extra *host = &context->debug_memory;
    trm_device *device = context->engine->world->device;
    if (host->memory == NULL || bytes > host->capacity) {
        trm_device_free_host(device, host->memory);
        *host = (trm_context_extra){0};
        TRM_TRY(trm_device_alloc_host(device, bytes > 0 ? bytes : 1, &host->memory));
        host->capacity = bytes;
    }
    return TRM_OK;
}

static trm_status show(trm_context *context, const trm_layer *layer, const trm_tensor *tensor)
{
    const trm_context_step *step = &context->steps[layer->index];
    trm_view view = trm_context_view(context, tensor);
    size_t bytes = trm_dims_bytes(&view.dims, view.dtype);
    TRM_TRY(reserve(context, bytes));
    if (bytes > 0) {
        TRM_TRY(trm_stream_download(context->stream, context->debug_memory.memory, view.data, bytes));
    }
    TRM_TRY(trm_context_wait(context));
    trm_debug_tensor shown = {.name = tensor->name,
                              .layer = layer->name,
                              .kernel = step->kernel == NULL ? "" : step->kernel->name,
                              .kind = layer->desc.kind,
                              .dtype = tensor->dtype,
                              .dims = view.dims,
                              .data = context->debug_memory.memory,
                              .part = tensor->part};
    if (shown.part.kind == TRM_PART_SPLIT && shown.part.whole < 0) { /* for a batch of unknown size */
        shown.part.whole = shown.dims.d[shown.part.axis] * shown.part.parts;
    }
    if (!context->debug(context->debug_user, &shown)) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "the run was cancelled at debug tensor %s", tensor->name);
    }
    return TRM_OK;
}

trm_status trm_context_show_layer(trm_context *context, int32_t index)
{
    const trm_layer *layer = context->engine->plan->network->layers[index];
    if (trm_stream_is_capturing(context->stream)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot read debug tensors of a captured run");
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        TRM_TRY(show(context, layer, layer->outputs[i]));
    }
    return TRM_OK;
}
