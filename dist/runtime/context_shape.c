/*
 * The dims of a context's runs: infers them with the values that decide them, places tensors, and enqueues runs.
 *
 * Most networks are shaped once for the dims of their inputs and then enqueued many times. If inference stops (at a
 * data-dependent layer, or values computed on the device), a run goes in parts (walk.c).
 */
#include "dist/runtime/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "graph/memory_plan.h"

static bool may_stop(const trm_context *context)
{
    return trm_inference_may_stop(context->inference);
}

/* Whether memory may be allocated in a run. */
static bool may_grow(const trm_context *context)
{
    return context->extra != NULL;
}

trm_status trm_context_prepare_shapes(trm_context *context)
{
    const trm_plan *plan = context->engine->plan;
    TRM_TRY(trm_inference_create(plan->network, &context->inference));
    trm_inference_follow_conditions(context->inference);
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        if (tensor->role == TRM_TENSOR_INPUT && trm_inference_wants(context->inference, tensor)) {
            context->value_inputs[context->n_value_inputs++] = tensor;
        }
    }
    if (plan->grows || may_stop(context)) {
        context->extra = calloc((size_t)plan->network->n_tensors + 1, sizeof(*context->extra));
        if (context->extra == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a context of %d tensors", plan->network->n_tensors);
        }
    }
    if (may_stop(context)) {
        void *memory;
        TRM_TRY(trm_device_alloc_host(context->engine->world->device, TRM_LARGEST_VALUE, &memory));
        context->read = memory;
    }
    return TRM_OK;
}

void trm_context_drop_shapes(trm_context *context)
{
    trm_device *device = context->engine->world->device;
    for (int32_t i = 0; context->extra != NULL && i < context->engine->plan->network->n_tensors; i++) {
        trm_device_free(device, context->extra[i].memory);
    }
    trm_device_free(device, context->workspace2.memory);
    trm_device_free_host(device, context->read);
    trm_inference_destroy(context->inference);
    free(context->extra);
    free(context->own_offsets);
    free(context->sizes);
    free(context->to_plan);
    trm_program_fini(&context->program);
}

/* ---- where tensors lie ------------------------------------------------------------------------- */

/* Follows views: outputs of RESHAPE and the like, and of SLICE if the run's dims allow it, lie in their inputs. */
void *trm_context_address(trm_context *context, const trm_tensor *tensor)
{
    const trm_plan *plan = context->engine->plan;
    tensor = trm_tensor_storage(tensor);
    int64_t offset;
    if (tensor->role == TRM_TENSOR_ACTIVATION && plan->on_host[tensor->index]) {
        return context->memory + plan->input_offsets[tensor->index];
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
        return context->memory + plan->input_offsets[tensor->index];
    case TRM_TENSOR_CONSTANT: /* a streamed weight has an address per layer, weight_address */
        return context->engine->weights + plan->weight_offsets[tensor->index];
    case TRM_TENSOR_STATE:
        return context->state + plan->state_offsets[tensor->index];
    case TRM_TENSOR_ACTIVATION:
        break;
    }
    if (may_grow(context) && context->extra[tensor->index].memory != NULL) {
        return context->extra[tensor->index].memory;
    }
    return context->activations + context->offsets[tensor->index];
}

trm_view trm_context_view(trm_context *context, const trm_tensor *tensor)
{
    return (trm_view){trm_context_address(context, tensor), tensor->dtype, context->dims[tensor->index]};
}

trm_status trm_context_grow(trm_context *context, trm_context_extra *extra, size_t size)
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
        *extra = (trm_context_extra){0};
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
    if (context->own_offsets == NULL) {
        context->own_offsets = calloc(n + 1, sizeof(*context->own_offsets));
        context->sizes = calloc(n + 1, sizeof(*context->sizes));
    }
    if (context->own_offsets == NULL || context->sizes == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the places of %zu tensors", n);
    }
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        context->sizes[i] = needs_place(context, plan->network->tensors[i], &bytes) ? bytes : TRM_NO_PLACE;
    }
    TRM_TRY(trm_memory_plan_place(plan->network, context->sizes, plan->streams.ends, context->own_offsets, &total));
    if (total > plan->activation_bytes) {
        char found[TRM_DIMS_TEXT_SIZE], planned[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "tensor %s has dims %s for these inputs, but %s for the largest: activations need %zu bytes, the "
                 "plan has %zu; give the builder bounds (min, opt) that include these inputs",
                 larger->name, trm_dims_format(&context->dims[larger->index], found),
                 trm_dims_format(&plan->max_dims[larger->index], planned), total, plan->activation_bytes);
    }
    context->offsets = context->own_offsets;
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
            if (!may_grow(context)) {
                return place_anew(context, tensor);
            }
            TRM_TRY(trm_context_grow(context, &context->extra[tensor->index], bytes));
        }
    }
    return TRM_OK;
}

/* ---- values ------------------------------------------------------------------------------------ */

static bool values_changed(const trm_context *context)
{
    for (int32_t i = 0; i < context->n_value_inputs; i++) {
        const trm_tensor *input = context->value_inputs[i];
        if (!trm_inference_has(context->inference, input, &context->dims[input->index],
                               trm_context_staging((trm_context *)(uintptr_t)context, input))) {
            return true;
        }
    }
    return false;
}

/* Copies values computed on the host for layers begin .. end - 1 to the staging memory. */
trm_status trm_context_stage_values(trm_context *context, int32_t begin, int32_t end, bool upload)
{
    const trm_plan *plan = context->engine->plan;
    for (int32_t i = begin; i < end; i++) {
        const trm_layer *layer = plan->network->layers[i];
        for (int32_t k = 0; k < layer->n_outputs; k++) {
            const trm_tensor *tensor = layer->outputs[k];
            if (!plan->on_host[tensor->index]) {
                continue;
            }
            size_t bytes = trm_dims_bytes(&context->dims[tensor->index], tensor->dtype);
            const void *elements = trm_inference_values(context->inference, tensor);
            if (elements == NULL || bytes > plan->tensor_bytes[tensor->index]) {
                char found[TRM_DIMS_TEXT_SIZE];
                TRM_FAIL(TRM_ERROR_UNSUPPORTED, "values of %s with dims %s need more than the %zu bytes planned",
                         tensor->name, trm_dims_format(&context->dims[tensor->index], found),
                         plan->tensor_bytes[tensor->index]);
            }
            void *to = trm_context_staging(context, tensor);
            memcpy(to, elements, bytes);
            if (upload) {
                TRM_TRY(trm_stream_upload(context->stream, context->memory + plan->input_offsets[tensor->index], to,
                                          bytes));
            }
        }
    }
    return TRM_OK;
}

/* ---- shaping ----------------------------------------------------------------------------------- */

static bool profile_holds(const trm_context *context, const trm_plan_profile *profile, char *why, size_t size)
{
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_dims *dims = &context->dims[i], *least = &profile->least[i], *most = &profile->dims[TRM_POINT_MAX][i];
        for (int32_t k = 0; network->tensors[i]->role == TRM_TENSOR_INPUT && k < dims->n; k++) {
            if (dims->d[k] < least->d[k] || dims->d[k] > most->d[k]) {
                snprintf(why, size, "input %s has %lld at dimension %d, expected %lld to %lld",
                         network->tensors[i]->name, (long long)dims->d[k], k, (long long)least->d[k],
                         (long long)most->d[k]);
                return false;
            }
        }
    }
    return true;
}

/* The bound of a value input with a range of elements, or NULL. */
static const trm_shape_bound *find_range(const trm_plan *plan, const trm_tensor *input, int32_t profile)
{
    const trm_shape_bound *found = trm_shape_bound_find(plan->bounds, plan->n_bounds, input->name, profile);
    return found != NULL && found->min_values != NULL && found->max_values != NULL ? found : NULL;
}

/* Whether the elements of value inputs lie in a profile's ranges. */
static trm_status check_values(trm_context *context, int32_t profile)
{
    const trm_plan *plan = context->engine->plan;
    for (int32_t i = 0; i < context->n_value_inputs; i++) {
        const trm_tensor *input = context->value_inputs[i];
        const trm_shape_bound *bound = find_range(plan, input, profile);
        const trm_dims *dims = &context->dims[input->index];
        if (bound == NULL || !trm_dims_equal(dims, &bound->max) ||
            (bound->min.n > 0 && !trm_dims_equal(dims, &bound->min))) {
            continue;
        }
        const void *elements = trm_context_staging(context, input);
        for (int64_t k = 0; k < trm_dims_count(dims); k++) {
            double found = trm_element_as_double(input->dtype, elements, k);
            double least = trm_element_as_double(input->dtype, bound->min_values, k);
            double most = trm_element_as_double(input->dtype, bound->max_values, k);
            if (found < least || found > most) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "element %lld of input %s is %g, expected %g to %g in profile %d",
                         (long long)k, input->name, found, least, most, profile);
            }
        }
    }
    return TRM_OK;
}

static trm_status check_profiles(trm_context *context)
{
    const trm_plan *plan = context->engine->plan;
    char why[256] = "";
    if (context->profile >= 0) {
        if (!profile_holds(context, &plan->profiles[context->profile], why, sizeof(why))) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s in profile %d", why, context->profile);
        }
        return check_values(context, context->profile);
    }
    for (int32_t i = 0; i < plan->n_profiles; i++) {
        if (profile_holds(context, &plan->profiles[i], why, sizeof(why))) {
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s%s", why,
             plan->n_profiles > 1 ? ", and the dims of all inputs do not fit the other profiles either" : "");
}

trm_status trm_context_begin_walk(trm_context *context)
{
    TRM_TRY(trm_context_follow_weights(context));
    TRM_TRY(check_profiles(context));
    context->warned_of_names =
        context->warned_of_names ||
        trm_network_check_named_dims(context->engine->plan->network, context->dims, true, "in a run, ");
    context->shaped = false;
    context->schedule = TRM_COPY_SCHEDULE_LARGE;
    context->shapings++;
    context->offsets = context->engine->plan->activation_offsets;
    for (int32_t i = 0; i < context->n_value_inputs; i++) {
        const trm_tensor *input = context->value_inputs[i];
        TRM_TRY(trm_inference_give(context->inference, input, &context->dims[input->index],
                                   trm_context_staging(context, input)));
    }
    return trm_inference_begin(context->inference, context->dims);
}

trm_status trm_context_shape(trm_context *context)
{
    TRM_TRY(trm_context_follow_weights(context));
    if (context->shaped && !values_changed(context)) {
        return TRM_OK;
    }
    trm_inference_stop stop;
    int32_t n = context->engine->plan->network->n_layers;
    TRM_TRY(trm_context_begin_walk(context));
    TRM_TRY(trm_inference_run(context->inference, &stop));
    if (stop.state != TRM_INFERENCE_DONE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "dims of layer %s are known only in a run", stop.layer->name);
    }
    TRM_TRY(trm_context_make_room(context, 0, n));
    context->schedule =
        trm_cpu_offload_suits(context->offload, context->dims) ? TRM_COPY_SCHEDULE_SMALL : TRM_COPY_SCHEDULE_LARGE;
    TRM_TRY(trm_context_prepare_program(context, 0, n, true));
    TRM_TRY(trm_context_stage_values(context, 0, n, false));
    context->shaped = true;
    return TRM_OK;
}

/* ---- running ----------------------------------------------------------------------------------- */

bool trm_context_is_known(const trm_context *context)
{
    return context->shaped && !values_changed(context);
}

trm_status trm_context_begin_layers(trm_context *context)
{
    TRM_TRY(trm_context_shape(context));
    return trm_context_upload(context);
}

static trm_status run_at_once(trm_context *context)
{
    TRM_TRY(trm_context_begin_layers(context));
    return trm_context_run_program(context, 0, context->engine->plan->network->n_layers, true, -1);
}

trm_status trm_context_enqueue(trm_context *context)
{
    return may_stop(context) ? trm_context_walk(context, true) : run_at_once(context);
}

trm_status trm_context_enqueue_again(trm_context *context)
{
    if (may_stop(context)) {
        return trm_context_walk(context, false);
    }
    TRM_TRY(trm_context_shape(context));
    return trm_context_run_program(context, 0, context->engine->plan->network->n_layers, true, -1);
}
