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
#include "base/recorder.h"
#include "graph/memory_plan.h"

trm_status trm_context_shaping_init(trm_context *context)
{
    trm_shaping *self = &context->shaping;
    const trm_plan *plan = context->engine->plan;
    self->profile = -1;
    self->value_inputs = calloc((size_t)plan->network->n_tensors + 1, sizeof(trm_tensor *));
    if (self->value_inputs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a context of %d tensors", plan->network->n_tensors);
    }
    TRM_TRY(trm_inference_create(plan->network, &context->inference));
    trm_inference_follow_conditions(context->inference);
    for (int32_t i = 0; i < plan->network->n_tensors; i++) {
        const trm_tensor *tensor = plan->network->tensors[i];
        if (tensor->role == TRM_TENSOR_INPUT && trm_inference_wants(context->inference, tensor)) {
            context->shaping.value_inputs[context->shaping.n_value_inputs++] = tensor;
        }
    }
    if (trm_inference_may_stop(context->inference)) {
        void *memory;
        TRM_TRY(trm_device_alloc_host(context->engine->world->device, TRM_LARGEST_VALUE, &memory));
        context->shaping.read = memory;
    }
    return TRM_OK;
}

void trm_context_shaping_fini(trm_context *context)
{
    trm_device *device = context->engine->world->device;
    trm_device_free_host(device, context->shaping.read);
    trm_inference_destroy(context->inference);
    free(context->shaping.value_inputs);
}

void trm_context_drop_shape(trm_context *context)
{
    context->shaping.is_current = false;
}

int64_t trm_context_shapings(const trm_context *context)
{
    return context->shaping.count;
}

void trm_context_note_run(trm_context *context)
{
    context->shaping.ran_at = context->shaping.count;
}

bool trm_context_ran(const trm_context *context)
{
    return context->shaping.ran_at == context->shaping.count;
}

const trm_tensor *const *trm_context_value_inputs(const trm_context *context, int32_t *n)
{
    *n = context->shaping.n_value_inputs;
    return context->shaping.value_inputs;
}

bool trm_context_runs_profile(const trm_context *context, int32_t profile)
{
    return context->shaping.profile < 0 || context->shaping.profile == profile;
}

TRM_CALL(trm_context_recorder(context), trm_context_set_optimization_profile, (trm_context *context, int32_t profile),
         (context, profile))
{
    if (context == NULL || profile < -1 || profile >= context->engine->plan->n_profiles) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set profile %d: %s", profile,
                 context == NULL ? "context is NULL" : "the plan has no such profile");
    }
    context->shaping.profile = profile;
    context->shaping.is_current = false;
    return TRM_OK;
}

/* ---- values ------------------------------------------------------------------------------------ */

static bool values_changed(const trm_context *context)
{
    for (int32_t i = 0; i < context->shaping.n_value_inputs; i++) {
        const trm_tensor *input = context->shaping.value_inputs[i];
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
                TRM_TRY(trm_stream_upload(context->stream,
                                          trm_context_input_memory(context) + plan->input_offsets[tensor->index], to,
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
    for (int32_t i = 0; i < context->shaping.n_value_inputs; i++) {
        const trm_tensor *input = context->shaping.value_inputs[i];
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
    if (context->shaping.profile >= 0) {
        if (!profile_holds(context, &plan->profiles[context->shaping.profile], why, sizeof(why))) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s in profile %d", why, context->shaping.profile);
        }
        return check_values(context, context->shaping.profile);
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
    context->shaping.warned_of_names =
        context->shaping.warned_of_names ||
        trm_network_check_named_dims(context->engine->plan->network, context->dims, true, "in a run, ");
    context->shaping.is_current = false;
    trm_context_choose_schedule(context, false);
    context->shaping.count++;
    trm_context_place_as_planned(context);
    for (int32_t i = 0; i < context->shaping.n_value_inputs; i++) {
        const trm_tensor *input = context->shaping.value_inputs[i];
        TRM_TRY(trm_inference_give(context->inference, input, &context->dims[input->index],
                                   trm_context_staging(context, input)));
    }
    return trm_inference_begin(context->inference, context->dims);
}

trm_status trm_context_shape(trm_context *context)
{
    TRM_TRY(trm_context_follow_weights(context));
    if (context->shaping.is_current && !values_changed(context)) {
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
    trm_context_choose_schedule(context, true);
    TRM_TRY(trm_context_prepare_program(context, 0, n, true));
    TRM_TRY(trm_context_stage_values(context, 0, n, false));
    context->shaping.is_current = true;
    return TRM_OK;
}

/* ---- running ----------------------------------------------------------------------------------- */

bool trm_context_is_known(const trm_context *context)
{
    return context->shaping.is_current && !values_changed(context);
}

trm_status trm_context_begin_layers(trm_context *context)
{
    TRM_TRY(trm_context_shape(context));
    return trm_context_upload(context);
}

trm_status trm_context_enqueue(trm_context *context)
{
    if (trm_inference_may_stop(context->inference)) {
        return trm_context_walk(context, true);
    }
    TRM_TRY(trm_context_begin_layers(context));
    return trm_context_run_program(context, 0, context->engine->plan->network->n_layers, true, -1);
}

trm_status trm_context_enqueue_again(trm_context *context)
{
    if (trm_inference_may_stop(context->inference)) {
        return trm_context_walk(context, false);
    }
    TRM_TRY(trm_context_shape(context));
    return trm_context_run_program(context, 0, context->engine->plan->network->n_layers, true, -1);
}
