/* The device memory of a context: inputs, states, activations and workspace, and where each tensor lies. */
#include <stdlib.h>

#include "base/error.h"
#include "dist/runtime/context.h"
#include "graph/memory_plan.h"

trm_status trm_context_memory_init(trm_context *context, void *given)
{
    trm_context_memory *self = &context->memory;
    const trm_plan *plan = context->engine->plan;
    size_t state_bytes = context->beside == NULL ? plan->state_bytes : 0;
    size_t total = plan->input_bytes + state_bytes + plan->activation_bytes + trm_plan_workspace(plan);
    void *memory = given;
    if (given == NULL) {
        TRM_TRY(trm_device_alloc(context->engine->world->device, total == 0 ? 1 : total, &memory));
    }
    self->begin = memory;
    self->is_lodger = given != NULL;
    self->state = context->beside == NULL ? self->begin + plan->input_bytes : context->beside->memory.state;
    self->activations = self->begin + plan->input_bytes + state_bytes;
    self->workspace = self->activations + plan->activation_bytes;
    self->offsets = plan->activation_offsets;
    if (plan->grows || trm_inference_may_stop(context->inference)) {
        self->extra = calloc((size_t)plan->network->n_tensors + 1, sizeof(*self->extra));
        if (self->extra == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a context of %d tensors", plan->network->n_tensors);
        }
    }
    return TRM_OK;
}

void trm_context_memory_fini(trm_context *context)
{
    trm_context_memory *self = &context->memory;
    trm_device *device = context->engine->world->device;
    for (int32_t i = 0; self->extra != NULL && i < context->engine->plan->network->n_tensors; i++) {
        trm_device_free(device, self->extra[i].memory);
    }
    trm_device_free(device, self->larger_workspace.memory);
    trm_device_free(device, self->is_lodger ? NULL : self->begin);
    free(self->extra);
    free(self->own_offsets);
    free(self->sizes);
}

bool trm_context_may_grow(const trm_context *context)
{
    return context->memory.extra != NULL;
}

unsigned char *trm_context_input_memory(const trm_context *context)
{
    return context->memory.begin;
}

trm_status trm_context_zero_state(trm_context *context)
{
    return trm_stream_fill_zero(context->stream, context->memory.state, context->engine->plan->state_bytes);
}

void trm_context_place_as_planned(trm_context *context)
{
    context->memory.offsets = context->engine->plan->activation_offsets;
}

/* Follows views: outputs of RESHAPE and the like, and of SLICE if the run's dims allow it, lie in their inputs. */
void *trm_context_address(trm_context *context, const trm_tensor *tensor)
{
    const trm_plan *plan = context->engine->plan;
    tensor = trm_tensor_storage(tensor);
    int64_t offset;
    if (tensor->role == TRM_TENSOR_ACTIVATION && plan->on_host[tensor->index]) {
        return context->memory.begin + plan->input_offsets[tensor->index];
    }
    if (tensor->role == TRM_TENSOR_ACTIVATION && trm_layer_is_view(tensor->producer, context->dims, &offset)) {
        unsigned char *from = trm_context_address(context, tensor->producer->inputs[0]);
        return from + (size_t)offset * trm_dtype_size(tensor->dtype);
    }
    switch (tensor->role) {
    case TRM_TENSOR_INPUT:
        if (trm_context_bound_input(context, tensor) != NULL) {
            return (void *)(uintptr_t)trm_context_bound_input(context, tensor); /* kernels do not write inputs */
        }
        return context->memory.begin + plan->input_offsets[tensor->index];
    case TRM_TENSOR_CONSTANT: /* a streamed weight has an address per layer, weight_address */
        if (trm_plan_borrows(plan, tensor)) {
            const trm_engine *lender = context->engine->lender;
            return lender->weights + lender->plan->weight_offsets[plan->borrowed[tensor->index]->index];
        }
        return context->engine->weights + plan->weight_offsets[tensor->index];
    case TRM_TENSOR_STATE:
        return context->memory.state + plan->state_offsets[tensor->index];
    case TRM_TENSOR_ACTIVATION:
        break;
    }
    if (context->memory.extra != NULL && context->memory.extra[tensor->index].memory != NULL) {
        return context->memory.extra[tensor->index].memory;
    }
    return context->memory.activations + context->memory.offsets[tensor->index];
}

trm_view trm_context_view(trm_context *context, const trm_tensor *tensor)
{
    return (trm_view){trm_context_address(context, tensor), tensor->dtype, context->dims[tensor->index]};
}

static trm_status grow(trm_context *context, trm_grown_memory *extra, size_t size)
{
    if (size > extra->capacity || extra->memory == NULL) {
        if (trm_stream_is_capturing(context->stream)) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                     "cannot capture a run that allocates %zu bytes: run it once with the same inputs before",
                     size - extra->capacity);
        }
        trm_device *device = context->engine->world->device;
        TRM_TRY(trm_stream_synchronize(context->stream));               /* the last run may still read it */
        size = size < 2 * extra->capacity ? 2 * extra->capacity : size; /* a loop may need more in every pass */
        trm_device_free(device, extra->memory);
        *extra = (trm_grown_memory){0};
        TRM_TRY(trm_device_alloc(device, size > 0 ? size : 1, &extra->memory));
        extra->capacity = size;
    }
    return TRM_OK;
}

/* Whether a tensor has memory of its own in the arena, and its bytes for the current dims. */
static bool needs_place(const trm_context *context, const trm_tensor *tensor, size_t *bytes)
{
    *bytes = trm_dims_bytes(&context->dims[tensor->index], tensor->dtype);
    return tensor->role == TRM_TENSOR_ACTIVATION && !context->engine->plan->on_host[tensor->index] &&
           trm_tensor_storage(tensor) == tensor;
}

/* Places all activations again, for dims that the plan did not cover: a tensor may be larger for smaller inputs.
 * Elements -8 to 5 of an axis of 8 are five, of one of 12 only one. */
static trm_status place_anew(trm_context *context, const trm_tensor *larger)
{
    const trm_plan *plan = context->engine->plan;
    size_t n = (size_t)plan->network->n_tensors, total = 0;
    if (context->memory.own_offsets == NULL) {
        context->memory.own_offsets = calloc(n + 1, sizeof(*context->memory.own_offsets));
        context->memory.sizes = calloc(n + 1, sizeof(*context->memory.sizes));
    }
    if (context->memory.own_offsets == NULL || context->memory.sizes == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the places of %zu tensors", n);
    }
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        context->memory.sizes[i] = needs_place(context, plan->network->tensors[i], &bytes) ? bytes : TRM_NO_PLACE;
    }
    TRM_TRY(trm_memory_plan_place(plan->network, context->memory.sizes, plan->streams.ends, context->memory.own_offsets,
                                  &total));
    if (total > plan->activation_bytes) {
        char found[TRM_DIMS_TEXT_SIZE], planned[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "tensor %s has dims %s for these inputs, but %s for the largest: activations need %zu bytes, the "
                 "plan has %zu; give the builder bounds (min, opt) that include these inputs",
                 larger->name, trm_dims_format(&context->dims[larger->index], found),
                 trm_dims_format(&plan->max_dims[larger->index], planned), total, plan->activation_bytes);
    }
    context->memory.offsets = context->memory.own_offsets;
    return TRM_OK;
}

/* Makes room for the outputs of layers begin .. end - 1. */
trm_status trm_context_make_room(trm_context *context, int32_t begin, int32_t end)
{
    const trm_plan *plan = context->engine->plan;
    for (int32_t i = begin; i < end; i++) {
        const trm_layer *layer = plan->network->layers[i];
        for (int32_t k = 0; k < layer->n_outputs; k++) {
            const trm_tensor *tensor = layer->outputs[k];
            size_t bytes, planned = plan->tensor_bytes[tensor->index];
            if (!needs_place(context, tensor, &bytes) || (planned != SIZE_MAX && bytes <= planned)) {
                continue;
            }
            if (!trm_context_may_grow(context)) {
                return place_anew(context, tensor);
            }
            TRM_TRY(grow(context, &context->memory.extra[tensor->index], bytes));
        }
    }
    return TRM_OK;
}

trm_status trm_context_find_workspace(trm_context *context, size_t needed, unsigned char **workspace, size_t *size)
{
    trm_context_memory *self = &context->memory;
    *workspace = self->workspace;
    *size = context->engine->plan->workspace_bytes;
    if (needed > *size) {
        TRM_TRY(grow(context, &self->larger_workspace, needed));
        *workspace = self->larger_workspace.memory;
        *size = self->larger_workspace.capacity;
    }
    return TRM_OK;
}
