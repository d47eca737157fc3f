/* What the caller gives a context and takes from it: elements of inputs, and where outputs go. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"
#include "dist/runtime/context.h"
#include "graph/memory_plan.h"

trm_status trm_bindings_init(trm_context *context)
{
    trm_bindings *self = &context->bindings;
    const trm_plan *plan = context->engine->plan;
    const size_t n_tensors = (size_t)plan->network->n_tensors;
    self->is_set = calloc(n_tensors + 1, sizeof(*self->is_set));
    self->on_device = calloc(n_tensors + 1, sizeof(*self->on_device));
    self->inputs = calloc(n_tensors + 1, sizeof(*self->inputs));
    self->outputs = calloc((size_t)plan->network->n_outputs + 1, sizeof(*self->outputs));
    if (self->is_set == NULL || self->on_device == NULL || self->inputs == NULL || self->outputs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a context of %zu tensors", n_tensors);
    }
    void *memory;
    TRM_TRY(
        trm_device_alloc_host(context->engine->world->device, plan->input_bytes == 0 ? 1 : plan->input_bytes, &memory));
    self->staging = memory;
    memset(self->staging, 0, plan->input_bytes);
    return TRM_OK;
}

void trm_bindings_fini(trm_context *context)
{
    trm_bindings *self = &context->bindings;
    trm_device *device = context->engine->world->device;
    for (int32_t i = 0; self->outputs != NULL && i < context->engine->plan->network->n_outputs; i++) {
        trm_device_free_host(device, self->outputs[i].staging);
    }
    trm_device_free_host(device, self->staging);
    free(self->is_set);
    free(self->on_device);
    free(self->inputs);
    free(self->outputs);
}

/* ---- inputs ------------------------------------------------------------------------------------ */

void *trm_context_staging(trm_context *context, const trm_tensor *input)
{
    return context->bindings.staging + context->engine->plan->input_offsets[input->index];
}

trm_status trm_context_set_dims(trm_context *context, const trm_tensor *input, const trm_dims *dims)
{
    const trm_dims *max = &context->engine->plan->max_dims[input->index];
    trm_dims *current = &context->dims[input->index];
    context->bindings.changed = true;
    if (dims->n == current->n && memcmp(dims->d, current->d, (size_t)dims->n * sizeof(dims->d[0])) == 0) {
        context->bindings.is_set[input->index] = true; /* its dims were checked */
        return TRM_OK;
    }
    if (dims->n != max->n) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s has %d dimensions, expected %d", input->name, dims->n, max->n);
    }
    TRM_TRY(trm_partition_check_batch(input, dims));
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] < 0 || dims->d[i] > max->d[i] || (input->dims.d[i] >= 0 && dims->d[i] != input->dims.d[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s has %lld at dimension %d, expected %s %lld", input->name,
                     (long long)dims->d[i], i, input->dims.d[i] >= 0 ? "exactly" : "at most", (long long)max->d[i]);
        }
        if (dims->d[i] != current->d[i]) {
            trm_context_drop_shape(context);
        }
    }
    *current = *dims;
    context->bindings.is_set[input->index] = true;
    return TRM_OK;
}

static trm_status find_input(const trm_context *context, const char *name, const trm_tensor **input)
{
    if (context == NULL || name == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set an input: context or name is NULL");
    }
    *input = trm_network_find_tensor(context->engine->plan->network, name);
    if (*input == NULL || (*input)->role != TRM_TENSOR_INPUT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the network has no input %s", name);
    }
    return TRM_OK;
}

static void bind_input(trm_context *context, const trm_tensor *input, const void *data, bool on_device)
{
    const void **bound = &context->bindings.inputs[input->index];
    context->bindings.n_on_device += on_device - context->bindings.on_device[input->index];
    context->bindings.on_device[input->index] = on_device;
    if (*bound != data) { /* kernels have its address */
        context->bindings.n_bound_inputs += (data != NULL) - (*bound != NULL);
        *bound = data;
        trm_context_drop_shape(context);
    }
}

TRM_CALL(trm_context_recorder(context), trm_context_set_input,
         (trm_context *context, const char *name, trm_dims dims, const void *data), (context, name, dims, data))
{
    const trm_tensor *tensor = NULL;
    TRM_TRY(find_input(context, name, &tensor));
    if (data == NULL && dims.n == tensor->dims.n && trm_dims_count(&dims) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s has no data", name);
    }
    TRM_TRY(trm_context_set_dims(context, tensor, &dims));
    bind_input(context, tensor, NULL, false);
    size_t bytes = trm_dims_bytes(&dims, tensor->dtype);
    if (bytes > 0) {
        memcpy(trm_context_staging(context, tensor), data, bytes);
    }
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_bind_input,
         (trm_context *context, const char *name, trm_dims dims, const void *data), (context, name, dims, data))
{
    const trm_tensor *tensor = NULL;
    TRM_TRY(find_input(context, name, &tensor));
    if (data == NULL || (uintptr_t)data % TRM_TENSOR_ALIGNMENT != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s is bound to %p, expected memory aligned to %zu bytes", name,
                 data, TRM_TENSOR_ALIGNMENT);
    }
    if (trm_inference_wants(context->inference, tensor)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot bind input %s, because its elements may decide dims: set it",
                 name);
    }
    TRM_TRY(trm_context_set_dims(context, tensor, &dims));
    bind_input(context, tensor, data, false);
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_map_input,
         (trm_context *context, const char *name, trm_dims dims, bool *on_device, void **memory),
         (context, name, dims, on_device, memory))
{
    const trm_tensor *tensor = NULL;
    TRM_TRY(find_input(context, name, &tensor));
    if (on_device == NULL || memory == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot map input %s: on_device or memory is NULL", name);
    }
    TRM_TRY(trm_context_set_dims(context, tensor, &dims));
    *on_device = *on_device && !trm_inference_wants(context->inference, tensor);
    bind_input(context, tensor, NULL, *on_device);
    *memory = *on_device ? trm_context_input_memory(context) + context->engine->plan->input_offsets[tensor->index]
                         : trm_context_staging(context, tensor);
    return TRM_OK;
}

const void *trm_context_bound_input(const trm_context *context, const trm_tensor *input)
{
    return context->bindings.inputs[input->index];
}

trm_status trm_context_check_inputs(const trm_context *context, const char *before)
{
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        if (network->tensors[i]->role == TRM_TENSOR_INPUT && !context->bindings.is_set[i]) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%sinput %s is not set", before, network->tensors[i]->name);
        }
    }
    return TRM_OK;
}

void trm_context_forget_inputs(trm_context *context)
{
    const size_t n = (size_t)context->engine->plan->network->n_tensors;
    memset(context->bindings.is_set, 0, n * sizeof(*context->bindings.is_set));
    memset(context->bindings.on_device, 0, n * sizeof(*context->bindings.on_device));
    context->bindings.n_on_device = 0;
}

bool trm_context_inputs_changed(const trm_context *context)
{
    return context->bindings.changed;
}

void trm_context_set_inputs_changed(trm_context *context, bool changed)
{
    context->bindings.changed = changed;
}

/* Copies inputs one by one, without those that are on the device. */
static trm_status upload_others(trm_context *context)
{
    const trm_plan *plan = context->engine->plan;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        bool is_input =
            tensor->role == TRM_TENSOR_INPUT && context->bindings.inputs[i] == NULL && !context->bindings.on_device[i];
        size_t bytes = plan->on_host[i] ? plan->tensor_bytes[i] : trm_dims_bytes(&context->dims[i], tensor->dtype);
        if ((is_input || plan->on_host[i]) && bytes > 0) {
            size_t at = plan->input_offsets[i];
            TRM_TRY(trm_stream_upload(context->stream, trm_context_input_memory(context) + at,
                                      context->bindings.staging + at, bytes));
        }
    }
    return TRM_OK;
}

/* Bytes of the inputs' memory up to the end of the last and largest one, for the current dims. */
static size_t used_input_bytes(const trm_context *context)
{
    const trm_plan *plan = context->engine->plan;
    int32_t last = plan->last_input;
    bool whole = last < 0 || plan->on_host[last];
    return whole
               ? plan->input_bytes
               : plan->input_offsets[last] + trm_dims_bytes(&context->dims[last], plan->network->tensors[last]->dtype);
}

trm_status trm_context_upload(trm_context *context)
{
    if (context->bindings.n_bound_inputs > 0 || context->bindings.n_on_device > 0) {
        TRM_TRY(upload_others(context));
    } else {
        TRM_TRY(trm_stream_upload(context->stream, trm_context_input_memory(context), context->bindings.staging,
                                  used_input_bytes(context)));
    }
    return trm_context_note(context, TRM_CLOCK_UPLOADED);
}

/* ---- outputs ----------------------------------------------------------------------------------- */

/* Copies an output to its host memory, which grows as needed. */
static trm_status download_output(trm_context *context, trm_bound_output *output, const trm_view *view, size_t bytes)
{
    trm_device *device = context->engine->world->device;
    if (bytes > output->staging_size) {
        trm_device_free_host(device, output->staging);
        output->staging = NULL;
        output->staging_size = 0;
        TRM_TRY(trm_device_alloc_host(device, bytes, &output->staging));
        output->staging_size = bytes;
    }
    output->address = output->staging;
    return bytes == 0 ? TRM_OK : trm_stream_download(context->stream, output->staging, view->data, bytes);
}

/* Checks that an output fits its bound memory, if any. */
static trm_status check_bound(const trm_tensor *tensor, const trm_bound_output *output, size_t bytes)
{
    if (output->memory != NULL && bytes > output->capacity) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "output %s needs %zu bytes, it is bound to %zu", tensor->name, bytes,
                 output->capacity);
    }
    return TRM_OK;
}

trm_status trm_context_check_places(const trm_context *context, bool *known)
{
    const trm_network *network = context->engine->plan->network;
    const trm_bindings *self = &context->bindings;
    for (int32_t i = 0; i < network->n_outputs; i++) {
        const trm_tensor *tensor = network->outputs[i];
        const size_t bytes = trm_dims_bytes(&context->dims[tensor->index], tensor->dtype);
        TRM_TRY(check_bound(tensor, &self->outputs[i], bytes));
        *known = self->outputs[i].memory != NULL || self->allocate != NULL || bytes <= self->outputs[i].staging_size;
        if (!*known) {
            return TRM_OK;
        }
    }
    *known = true;
    return TRM_OK;
}

/* The caller's device memory for an output, or NULL. */
static trm_status find_memory(trm_context *context, int32_t i, const trm_view *view, size_t bytes, void **memory)
{
    const trm_tensor *tensor = context->engine->plan->network->outputs[i];
    const trm_bindings *self = &context->bindings;
    TRM_TRY(check_bound(tensor, &self->outputs[i], bytes));
    *memory = self->outputs[i].memory;
    if (*memory == NULL && self->allocate != NULL) {
        *memory = self->allocate(self->allocate_user, tensor->name, &view->dims, bytes);
        if (*memory == NULL && bytes > 0) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "the output allocator has no %zu bytes for output %s", bytes,
                     tensor->name);
        }
    }
    return TRM_OK;
}

trm_status trm_context_hand_over_outputs(trm_context *context)
{
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_outputs; i++) {
        trm_bound_output *output = &context->bindings.outputs[i];
        trm_view view = trm_context_view(context, network->outputs[i]);
        size_t bytes = trm_dims_bytes(&view.dims, view.dtype);
        void *memory;
        output->dims = view.dims;
        TRM_TRY(find_memory(context, i, &view, bytes, &memory));
        if (memory == NULL) {
            TRM_TRY(download_output(context, output, &view, bytes));
        } else {
            output->address = memory;
            TRM_TRY(bytes == 0 ? TRM_OK : trm_stream_copy(context->stream, memory, view.data, bytes));
        }
    }
    return TRM_OK;
}

static trm_status find_output(trm_context *context, const char *name, trm_bound_output **output)
{
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_outputs; i++) {
        if (strcmp(network->outputs[i]->name, name) == 0) {
            *output = &context->bindings.outputs[i];
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the network has no output %s", name);
}

TRM_CALL(trm_context_recorder(context), trm_context_bind_output,
         (trm_context *context, const char *name, void *memory, size_t capacity), (context, name, memory, capacity))
{
    if (context == NULL || name == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot bind an output: context or name is NULL");
    }
    trm_bound_output *output = NULL;
    TRM_TRY(find_output(context, name, &output));
    output->memory = memory;
    output->capacity = memory == NULL ? 0 : capacity;
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_set_output_allocator,
         (trm_context *context, trm_output_allocate_fn allocate, void *user), (context, allocate, user))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set an allocator: context is NULL");
    }
    context->bindings.allocate = allocate;
    context->bindings.allocate_user = user;
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_output,
         (trm_context *context, const char *name, trm_dims *dims, const void **data), (context, name, dims, data))
{
    if (context == NULL || name == NULL || dims == NULL || data == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read an output: context, name, dims or data is NULL");
    }
    trm_bound_output *output = NULL;
    TRM_TRY(find_output(context, name, &output));
    if (!context->has_outputs) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read output %s: no run has succeeded", name);
    }
    *dims = output->dims;
    *data = output->address;
    return TRM_OK;
}
