/*
 * The dims of a context's runs: inferring them with the values that decide them, where tensors then lie, which kernels
 * run, and enqueueing them.
 *
 * Most networks are shaped once for the dims of their inputs, and enqueued as often as wanted. Where a walk of
 * inference stops (a data-dependent layer, or values that are made on the device), a run goes in parts: the layers so
 * far are enqueued, what was asked for is read back, and the walk goes on.
 */
#include "dist/runtime/engine.h"

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
    free(context->to_prepare);
}

/* ---- where tensors lie ------------------------------------------------------------------------- */

/* Views are looked through: what a RESHAPE or the like gives, and what a SLICE gives where the dims of the run allow
 * it, lies in what they read. */
static void *tensor_address(trm_context *context, const trm_tensor *tensor)
{
    const trm_plan *plan = context->engine->plan;
    tensor = trm_tensor_storage(tensor);
    int64_t offset;
    if (tensor->role == TRM_TENSOR_ACTIVATION && plan->on_host[tensor->index]) {
        return context->memory + plan->input_offsets[tensor->index];
    }
    if (tensor->role == TRM_TENSOR_ACTIVATION && trm_layer_is_view(tensor->producer, context->dims, &offset)) {
        unsigned char *from = tensor_address(context, tensor->producer->inputs[0]);
        return from + (size_t)offset * trm_dtype_size(tensor->dtype);
    }
    switch (tensor->role) {
    case TRM_TENSOR_INPUT:
        if (context->bound_inputs[tensor->index] != NULL) {
            return (void *)(uintptr_t)context->bound_inputs[tensor->index]; /* kernels do not write inputs */
        }
        return context->memory + plan->input_offsets[tensor->index];
    case TRM_TENSOR_CONSTANT: /* of one that is streamed, a layer's own question is weight_address */
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
    return (trm_view){tensor_address(context, tensor), tensor->dtype, context->dims[tensor->index]};
}

static trm_status grow(trm_context *context, trm_context_extra *extra, size_t size)
{
    if (size > extra->capacity || extra->memory == NULL) {
        if (trm_stream_is_capturing(context->stream)) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                     "a run that needs %zu more bytes cannot be captured: run it once with the same inputs before",
                     size - extra->capacity);
        }
        trm_device *device = context->engine->world->device;
        TRM_TRY(trm_stream_synchronize(context->stream));               /* the last run may read what it had */
        size = size < 2 * extra->capacity ? 2 * extra->capacity : size; /* a loop may ask for more in every pass */
        trm_device_free(device, extra->memory);
        *extra = (trm_context_extra){0};
        TRM_TRY(trm_device_alloc(device, size > 0 ? size : 1, &extra->memory));
        extra->capacity = size;
    }
    return TRM_OK;
}

/* Whether a tensor has memory of its own in the arena, and its bytes for the dims in force. */
static bool needs_place(const trm_context *context, const trm_tensor *tensor, size_t *bytes)
{
    *bytes = trm_dims_bytes(&context->dims[tensor->index], tensor->dtype);
    return tensor->role == TRM_TENSOR_ACTIVATION && !context->engine->plan->on_host[tensor->index] &&
           trm_tensor_storage(tensor) == tensor;
}

/* Places all activations anew, for dims that the plan did not foresee: a tensor may be larger for smaller inputs.
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
                 "tensor %s has dims %s for these inputs, the largest inputs give it %s: activations need %zu bytes, "
                 "%zu are planned; give the builder bounds (min, opt) that include them",
                 larger->name, trm_dims_format(&context->dims[larger->index], found),
                 trm_dims_format(&plan->max_dims[larger->index], planned), total, plan->activation_bytes);
    }
    context->offsets = context->own_offsets;
    return TRM_OK;
}

/* Makes sure that the outputs of layers begin .. end - 1 have room. */
static trm_status make_room(trm_context *context, int32_t begin, int32_t end)
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
            TRM_TRY(grow(context, &context->extra[tensor->index], bytes));
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

/* Puts what was computed for layers begin .. end - 1 where the device's copy of it comes from. */
static trm_status stage_values(trm_context *context, int32_t begin, int32_t end, bool upload)
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
                TRM_FAIL(TRM_ERROR_UNSUPPORTED, "values of %s, with dims %s, do not fit into %zu bytes as planned",
                         tensor->name, trm_dims_format(&context->dims[tensor->index], found),
                         plan->tensor_bytes[tensor->index]);
            }
            unsigned char *to = context->input_staging + plan->input_offsets[tensor->index];
            memcpy(to, elements, bytes);
            if (upload) {
                TRM_TRY(trm_stream_upload(context->stream, context->memory + plan->input_offsets[tensor->index], to,
                                          bytes));
            }
        }
    }
    return TRM_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------- */

/* Whether nothing runs: the output is where the input is, or was computed on the host. */
static bool is_skipped(const trm_context *context, const trm_layer *layer)
{
    int64_t offset;
    return trm_layer_hands_on(layer) || trm_layer_is_view(layer, context->dims, &offset) ||
           trm_plan_layer_is_on_host(context->engine->plan, layer);
}

/* Where a weight that can be streamed is when layer `index` runs. */
static void *weight_address(const trm_context *context, int32_t index, int32_t weight, bool *is_constant)
{
    const trm_streaming_plan *streaming = context->engine->plan->streaming;
    const trm_residency *residency = trm_streaming_copy_schedule(streaming, context->schedule);
    const trm_weight_residency *places = &context->engine->places;
    *is_constant = true;
    for (int32_t i = streaming->first_use[index]; i < streaming->first_use[index + 1]; i++) {
        int32_t fetch = residency->use_fetch[i];
        if (streaming->uses[i].weight == weight && fetch >= 0) {
            *is_constant = false; /* it arrives while the step runs */
            return trm_ring_slot(context->ring, context->schedule, fetch);
        }
    }
    return places->resident[weight] != NULL ? places->resident[weight] : places->stored[weight].memory;
}

/* Addresses of a layer's inputs, and elements that it wants on the host. */
static void find_inputs(trm_context *context, const trm_layer *layer, trm_kernel_call *call)
{
    uint32_t value_inputs = trm_layer_value_inputs(&layer->desc);
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        int32_t weight = input == NULL ? -1 : trm_streaming_weight(context->engine->plan, input);
        bool is_constant = true;
        if (weight >= 0) {
            call->inputs[i].data = weight_address(context, layer->index, weight, &is_constant);
            call->constants &= is_constant ? ~0u : ~(1u << i);
        } else {
            call->inputs[i].data = input == NULL ? NULL : tensor_address(context, input);
        }
        if (input != NULL && input->role == TRM_TENSOR_INPUT && context->bound_inputs[input->index] == NULL) {
            call->constants |= 1u << i; /* uploaded before a run's first kernel starts */
        }
        if (input != NULL && (value_inputs >> i & 1) != 0) {
            call->values[i] = trm_inference_values(context->inference, input);
        }
    }
}

/* The sums of a norm with a residual that no layer and nobody outside reads. */
static uint32_t find_unread(const trm_network *network, const trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_NORM || !layer->desc.norm.residual || layer->outputs[1]->is_output) {
        return 0;
    }
    for (int32_t i = layer->index + 1; i < network->n_layers; i++) {
        for (int32_t k = 0; k < network->layers[i]->n_inputs; k++) {
            if (network->layers[i]->inputs[k] == layer->outputs[1]) {
                return 0;
            }
        }
    }
    return 1u << 1;
}

/* Fills in a step but for its workspace; raises *workspace to what it needs. */
static trm_status choose_kernel(trm_context *context, const trm_layer *layer, trm_context_step *step, size_t *workspace)
{
    const trm_plan *plan = context->engine->plan;
    trm_kernel_call *call = &step->call;
    trm_plan_describe_call(layer, context->dims, call);
    find_inputs(context, layer, call);
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        call->outputs[i].data = tensor_address(context, layer->outputs[i]);
    }
    call->stream = context->stream;
    call->allow_tf32 = plan->allow_tf32;
    call->batch_invariant = plan->batch_invariant;
    call->unread = find_unread(plan->network, layer);
    call->communicator = context->engine->world->communicator;
    step->kernel = context->schedule == TRM_COPY_SCHEDULE_SMALL
                       ? trm_cpu_offload_kernel(context->offload, layer->index, context->dims)
                       : NULL;
    step->is_offloaded = step->kernel != NULL;
    if (step->is_offloaded) {
        return TRM_OK;
    }
    step->kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, plan->backend, call);
    if (step->kernel == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "layer %s (%s) has no %s kernel for these dims", layer->name,
                 trm_layer_kind_name(layer->desc.kind), trm_backend_name(plan->backend));
    }
    size_t needed = trm_plan_kernel_workspace(plan, step->kernel, call);
    if (needed > plan->workspace_bytes && !may_grow(context)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "layer %s needs %zu bytes of workspace, the plan has %zu", layer->name, needed,
                 plan->workspace_bytes);
    }
    *workspace = needed > *workspace ? needed : *workspace;
    return TRM_OK;
}

static trm_status choose_kernels(trm_context *context, int32_t begin, int32_t end)
{
    const trm_plan *plan = context->engine->plan;
    unsigned char *workspace = context->workspace;
    size_t size = plan->workspace_bytes, needed = 0;
    for (int32_t i = begin; i < end; i++) {
        const trm_layer *layer = plan->network->layers[i];
        context->steps[i].kernel = NULL;
        context->steps[i].is_offloaded = false;
        if (!trm_plan_layer_is_on_host(plan, layer)) {
            TRM_TRY(choose_kernel(context, layer, &context->steps[i], &needed));
        }
    }
    if (needed > size) {
        TRM_TRY(grow(context, &context->workspace2, needed));
        workspace = context->workspace2.memory;
        size = context->workspace2.capacity;
    }
    for (int32_t i = begin; i < end; i++) {
        int32_t stream = plan->streams.n > 0 && plan->streams.of[i] > 0 ? plan->streams.of[i] : 0;
        context->steps[i].call.workspace = workspace + (size_t)stream * size;
        context->steps[i].call.workspace_size = size;
    }
    return trm_context_prepare_steps(context, begin, end);
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

/* The bound of a value input that gives a range of its elements, or NULL. */
static const trm_shape_bound *find_range(const trm_plan *plan, const trm_tensor *input, int32_t profile)
{
    const trm_shape_bound *found = trm_shape_bound_find(plan->bounds, plan->n_bounds, input->name, profile);
    return found != NULL && found->min_values != NULL && found->max_values != NULL ? found : NULL;
}

/* Whether the elements of value inputs lie in the ranges that a profile has for them. */
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

static trm_status begin_walk(trm_context *context)
{
    TRM_TRY(trm_context_follow_weights(context));
    TRM_TRY(check_profiles(context));
    TRM_TRY(trm_network_check_named_dims(context->engine->plan->network, context->dims));
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
    TRM_TRY(begin_walk(context));
    TRM_TRY(trm_inference_run(context->inference, &stop));
    if (stop.state != TRM_INFERENCE_DONE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "dims of layer %s are known in a run only", stop.layer->name);
    }
    TRM_TRY(make_room(context, 0, n));
    context->schedule =
        trm_cpu_offload_suits(context->offload, context->dims) ? TRM_COPY_SCHEDULE_SMALL : TRM_COPY_SCHEDULE_LARGE;
    TRM_TRY(choose_kernels(context, 0, n));
    TRM_TRY(stage_values(context, 0, n, false));
    context->shaped = true;
    return TRM_OK;
}

/* ---- running ----------------------------------------------------------------------------------- */

/* One by one, leaving out what is bound. */
static trm_status upload_unbound(trm_context *context)
{
    const trm_plan *plan = context->engine->plan;
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        bool is_input = tensor->role == TRM_TENSOR_INPUT && context->bound_inputs[i] == NULL;
        size_t bytes = plan->on_host[i] ? plan->tensor_bytes[i] : trm_dims_bytes(&context->dims[i], tensor->dtype);
        if ((is_input || plan->on_host[i]) && bytes > 0) {
            size_t at = plan->input_offsets[i];
            TRM_TRY(trm_stream_upload(context->stream, context->memory + at, context->input_staging + at, bytes));
        }
    }
    return TRM_OK;
}

/* Bytes of the inputs' memory up to the end of the last one, which is the largest, for the dims in force. */
static size_t used_input_bytes(const trm_context *context)
{
    const trm_plan *plan = context->engine->plan;
    int32_t last = plan->last_input;
    bool whole = last < 0 || plan->on_host[last];
    return whole
               ? plan->input_bytes
               : plan->input_offsets[last] + trm_dims_bytes(&context->dims[last], plan->network->tensors[last]->dtype);
}

static trm_status upload_inputs(trm_context *context)
{
    if (context->n_bound_inputs > 0) {
        TRM_TRY(upload_unbound(context));
    } else {
        TRM_TRY(trm_stream_upload(context->stream, context->memory, context->input_staging, used_input_bytes(context)));
    }
    return trm_context_note(context, TRM_CLOCK_UPLOADED);
}

trm_status trm_context_run_layer(trm_context *context, int32_t index)
{
    const trm_context_step *step = &context->steps[index];
    const trm_layer *layer = context->engine->plan->network->layers[index];
    if (is_skipped(context, layer)) {
        return TRM_OK;
    }
    trm_status status;
    if (step->is_offloaded) {
        status = trm_cpu_offload_run(context->offload, index, &step->call, context->dims);
    } else if (context->debug != NULL && step->call.unread != 0) { /* what nothing else reads is shown */
        trm_kernel_call whole = step->call;
        whole.unread = 0;
        status = step->kernel->run(&whole);
    } else {
        status = step->kernel->run(&step->call);
    }
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "layer %s (%s)", layer->name, step->kernel->name);
}

/* What a layer needs of the weights that stream. */
static trm_status await_weights(trm_context *context, int32_t layer, bool marked)
{
    bool waits;
    if (context->ring == NULL) {
        return TRM_OK;
    }
    TRM_TRY(trm_ring_before(context->ring, layer, context->stream, &waits));
    if (marked && context->arrivals != NULL) {
        context->waited[layer] = waits;
        return waits ? trm_event_record(context->arrivals[layer], context->stream) : TRM_OK;
    }
    return TRM_OK;
}

/* Behind the last layer. */
static trm_status end_steps(trm_context *context, int32_t end, bool marked)
{
    bool waits;
    TRM_TRY(marked ? trm_event_record(context->marks[end], context->stream) : TRM_OK);
    if (context->ring == NULL) {
        return TRM_OK;
    }
    TRM_TRY(trm_ring_end(context->ring, context->stream, &waits));
    if (marked && context->arrivals != NULL) {
        context->waited[end] = waits;
        return waits ? trm_event_record(context->arrivals[end], context->stream) : TRM_OK;
    }
    return TRM_OK;
}

/* `last`: nothing runs behind them. `uncounted`: a layer whose number of entries is not known yet, or -1. */
static trm_status run_steps(trm_context *context, int32_t begin, int32_t end, bool last, int32_t uncounted)
{
    bool marked = context->profiling && !trm_stream_is_capturing(context->stream);
    bool beside = trm_context_runs_beside(context);
    TRM_TRY(beside ? trm_context_fork(context) : TRM_OK);
    if (context->ring != NULL && begin == 0) {
        context->ran_schedule = context->schedule;
        TRM_TRY(trm_ring_begin(context->ring, context->schedule, context->stream));
    }
    for (int32_t i = begin; i < end; i++) {
        if (marked) {
            TRM_TRY(trm_event_record(context->marks[i], context->stream));
        }
        TRM_TRY(await_weights(context, i, marked));
        if (context->tuning != NULL && !context->steps[i].is_offloaded) {
            TRM_TRY(trm_context_tune_step(context, i));
        }
        context->steps[i].call.stream = context->stream;
        TRM_TRY(beside ? trm_context_before_layer(context, i) : TRM_OK);
        TRM_TRY(trm_context_run_layer(context, i));
        TRM_TRY(beside ? trm_context_after_layer(context, i) : TRM_OK);
        if (context->debug != NULL && i != uncounted) {
            TRM_TRY(trm_context_show_layer(context, i));
        }
        if (context->ring != NULL) {
            TRM_TRY(trm_ring_after(context->ring, i, context->stream));
        }
    }
    TRM_TRY(beside ? trm_context_join(context) : TRM_OK);
    return last ? end_steps(context, end, marked) : TRM_OK;
}

/* Reads what the walk stopped at back from the device; ranks that hold the same tensors must see the same. */
static trm_status answer_stop(trm_context *context, const trm_inference_stop *stop)
{
    trm_world *world = context->engine->world;
    const trm_plan *plan = context->engine->plan;
    trm_view view = trm_context_view(context, stop->tensor);
    size_t bytes = trm_dims_bytes(&view.dims, view.dtype);
    if (bytes > TRM_LARGEST_VALUE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s decides dims of layer %s with %zu bytes of values, expected at most %zu",
                 stop->tensor->name, stop->layer->name, bytes, TRM_LARGEST_VALUE);
    }
    TRM_TRY(trm_stream_download(context->stream, context->read, view.data, bytes));
    TRM_TRY(trm_context_wait(context));
    bool same_on_all = trm_mesh_tensor_ranks(&plan->mesh) == world->size && !plan->partition.as_written;
    if (world->size > 1 && same_on_all && world->bootstrap != NULL) {
        TRM_TRY(trm_world_agree(world, stop->tensor->name, context->read, bytes));
    }
    if (stop->state == TRM_INFERENCE_VALUES) {
        return trm_inference_give(context->inference, stop->tensor, &view.dims, context->read);
    }
    int64_t count;
    memcpy(&count, context->read, sizeof(count));
    if (count < 0) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "layer %s counted %lld entries", stop->layer->name, (long long)count);
    }
    return trm_inference_give_count(context->inference, count);
}

/* Copies what the passes of a loop made to where the next one reads it. Dims are those of the next pass already. */
static trm_status carry_on(trm_context *context, int32_t begin, int32_t end)
{
    const trm_plan *plan = context->engine->plan;
    const trm_regions *regions = trm_inference_regions(context->inference);
    for (int32_t i = begin + 1; i < end; i++) {
        const trm_layer *layer = plan->network->layers[i];
        if (layer->desc.kind != TRM_LAYER_NEXT || regions->inside[i] != begin) {
            continue;
        }
        const trm_tensor *carried = layer->inputs[1];
        TRM_TRY(make_room(context, carried->producer->index, carried->producer->index + 1));
        trm_view to = trm_context_view(context, carried), from = trm_context_view(context, layer->outputs[0]);
        size_t bytes = trm_dims_bytes(&to.dims, to.dtype);
        TRM_TRY(bytes == 0 ? TRM_OK : trm_stream_copy(context->stream, to.data, from.data, bytes));
    }
    return TRM_OK;
}

/* Behind the layer of a JUMP: *next is the layer at which the run goes on. */
static trm_status jump(trm_context *context, const trm_layer *layer, int32_t *next)
{
    TRM_TRY(trm_inference_jump(context->inference, next));
    if (layer->desc.kind == TRM_LAYER_END_LOOP) {
        TRM_TRY(carry_on(context, trm_inference_regions(context->inference)->other[layer->index], layer->index));
    }
    for (int32_t i = layer->index + 1; context->profiling && i < *next; i++) { /* what is left out takes no time */
        TRM_TRY(trm_event_record(context->marks[i], context->stream));
        if (context->arrivals != NULL) {
            context->waited[i] = false;
        }
    }
    if (context->ring != NULL && *next <= layer->index) {
        return trm_ring_repeat(context->ring, *next, layer->index + 1, context->stream);
    }
    return context->ring == NULL ? TRM_OK : trm_ring_skip(context->ring, layer->index + 1, *next, context->stream);
}

/* A run in parts, as far as dims are known each, and from condition to condition. One that asks the device for nothing
 * leaves the context shaped: it is the same run again for the same dims and values. */
static trm_status run_in_parts(trm_context *context, bool uploads)
{
    int32_t begin = 0, end, n = context->engine->plan->network->n_layers;
    bool is_first = true;
    trm_inference_stop stop;
    context->walked = 0;
    context->asking = NULL;
    TRM_TRY(begin_walk(context));
    do {
        TRM_TRY(trm_inference_run(context->inference, &stop));
        bool counts = stop.state == TRM_INFERENCE_COUNT, jumps = stop.state == TRM_INFERENCE_JUMP;
        const bool asks = counts || stop.state == TRM_INFERENCE_VALUES;
        context->asking = asks && context->asking == NULL ? stop.layer : context->asking;
        if (context->asking != NULL && trm_stream_is_capturing(context->stream)) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                     "layer %s asks for what a run computes: a network whose dims or layers depend on data cannot be "
                     "captured",
                     context->asking->name);
        }
        end = stop.state == TRM_INFERENCE_DONE ? n : stop.layer->index + (counts || jumps ? 1 : 0);
        TRM_TRY(make_room(context, begin, end));
        TRM_TRY(choose_kernels(context, begin, end));
        TRM_TRY(stage_values(context, begin, end, !is_first));
        if (is_first) {
            TRM_TRY(uploads ? upload_inputs(context) : TRM_OK);
            is_first = false;
        }
        TRM_TRY(run_steps(context, begin, end, stop.state == TRM_INFERENCE_DONE, counts ? end - 1 : -1));
        context->walked += end - begin;
        begin = end;
        if (jumps) {
            TRM_TRY(jump(context, stop.layer, &begin));
        } else if (stop.state != TRM_INFERENCE_DONE) {
            TRM_TRY(answer_stop(context, &stop));
        }
        if (counts && context->debug != NULL) {
            TRM_TRY(trm_context_show_layer(context, end - 1));
        }
    } while (stop.state != TRM_INFERENCE_DONE);
    context->shaped = context->asking == NULL;
    return TRM_OK;
}

bool trm_context_is_known(const trm_context *context)
{
    return context->shaped && !values_changed(context);
}

trm_status trm_context_begin_layers(trm_context *context)
{
    TRM_TRY(trm_context_shape(context));
    return upload_inputs(context);
}

static trm_status run_at_once(trm_context *context)
{
    TRM_TRY(trm_context_begin_layers(context));
    return run_steps(context, 0, context->engine->plan->network->n_layers, true, -1);
}

trm_status trm_context_enqueue(trm_context *context)
{
    return may_stop(context) ? run_in_parts(context, true) : run_at_once(context);
}

trm_status trm_context_enqueue_again(trm_context *context)
{
    if (may_stop(context)) {
        return run_in_parts(context, false);
    }
    TRM_TRY(trm_context_shape(context));
    return run_steps(context, 0, context->engine->plan->network->n_layers, true, -1);
}
