/*
 * The execution context: inputs, outputs and runs of a rank's network. Dims and kernels of a run are in
 * context_shape.c.
 */
#include "dist/runtime/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"
#include "weight_stream/offload/streaming.h"
#include "graph/inference.h"
#include "graph/memory_plan.h"

/* Allocates device memory, unless the caller gave it, and host memory for inputs. */
static trm_status allocate_memory(trm_context *context, void *given)
{
    const trm_plan *plan = context->engine->plan;
    trm_device *device = context->engine->world->device;
    size_t state_bytes = context->beside == NULL ? plan->state_bytes : 0;
    size_t total = plan->input_bytes + state_bytes + plan->activation_bytes + trm_plan_workspace(plan);
    void *memory = given;
    if (given == NULL) {
        TRM_TRY(trm_device_alloc(device, total == 0 ? 1 : total, &memory));
    }
    context->memory = memory;
    context->is_lodger = given != NULL;
    context->state = context->beside == NULL ? context->memory + plan->input_bytes : context->beside->state;
    context->activations = context->memory + plan->input_bytes + state_bytes;
    context->workspace = context->activations + plan->activation_bytes;
    TRM_TRY(trm_device_alloc_host(device, plan->input_bytes == 0 ? 1 : plan->input_bytes, &memory));
    context->input_staging = memory;
    memset(context->input_staging, 0, plan->input_bytes);
    return TRM_OK;
}

static trm_status create(trm_engine *engine, trm_context *beside, void *memory, trm_context **context)
{
    const trm_plan *plan = engine->plan;
    trm_device *device = engine->world->device;
    size_t n_tensors = (size_t)plan->network->n_tensors, n_outputs = (size_t)plan->network->n_outputs;
    trm_context *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a context");
    }
    made->engine = engine;
    made->beside = beside;
    made->profile = -1;
    made->dims = calloc(n_tensors + 1, sizeof(*made->dims));
    made->input_is_set = calloc(n_tensors + 1, sizeof(*made->input_is_set));
    made->steps = calloc((size_t)plan->network->n_layers + 1, sizeof(*made->steps));
    made->outputs = calloc(n_outputs + 1, sizeof(*made->outputs));
    made->output_capacity = calloc(n_outputs + 1, sizeof(*made->output_capacity));
    made->output_dims = calloc(n_outputs + 1, sizeof(*made->output_dims));
    made->bound_inputs = calloc(n_tensors + 1, sizeof(void *));
    made->bound_outputs = calloc(n_outputs + 1, sizeof(*made->bound_outputs));
    made->output_memory = calloc(n_outputs + 1, sizeof(void *));
    made->value_inputs = calloc(n_tensors + 1, sizeof(trm_tensor *));
    made->offsets = plan->activation_offsets;
    trm_status status;
    if (made->bound_inputs == NULL || made->bound_outputs == NULL || made->output_memory == NULL ||
        made->value_inputs == NULL || made->dims == NULL || made->input_is_set == NULL || made->steps == NULL ||
        made->outputs == NULL || made->output_capacity == NULL || made->output_dims == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a context of %zu tensors", n_tensors);
        goto destroy;
    }
    memcpy(made->dims, plan->max_dims, n_tensors * sizeof(*made->dims));
    TRM_TRY_GOTO(status, trm_context_prepare_shapes(made), destroy);
    if (beside != NULL) {
        made->stream = beside->stream;
    } else {
        TRM_TRY_GOTO(status, trm_stream_create(device, &made->stream), destroy);
    }
    TRM_TRY_GOTO(status, trm_event_create(device, &made->done), destroy);
    TRM_TRY_GOTO(status, trm_context_open_streams(made), destroy);
    TRM_TRY_GOTO(status, allocate_memory(made, memory), destroy);
    TRM_TRY_GOTO(status, trm_context_follow_weights(made), destroy);
    TRM_TRY_GOTO(status, trm_context_reserve_program(made), destroy);
    if (beside == NULL) {
        TRM_TRY_GOTO(status, trm_context_reset(made), destroy);
    }
    *context = made;
    return TRM_OK;
destroy:
    trm_context_destroy(made);
    return status;
}

TRM_CALL(trm_engine_recorder(engine), trm_context_create, (trm_engine *engine, trm_context **context),
         (engine, context))
{
    if (engine == NULL || context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot create a context: engine or context is NULL");
    }
    return create(engine, NULL, NULL, context);
}

size_t trm_engine_context_bytes(const trm_engine *engine)
{
    const trm_plan *plan = engine->plan;
    return plan->input_bytes + plan->state_bytes + plan->activation_bytes + trm_plan_workspace(plan);
}

TRM_CALL(trm_engine_recorder(engine), trm_context_create_in,
         (trm_engine *engine, void *memory, size_t bytes, trm_context **context), (engine, memory, bytes, context))
{
    if (engine == NULL || context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot create a context: engine or context is NULL");
    }
    if (memory == NULL || (uintptr_t)memory % TRM_TENSOR_ALIGNMENT != 0 || bytes < trm_engine_context_bytes(engine)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "memory of a context has %zu bytes at %p, expected at least %zu aligned to %zu", bytes, memory,
                 trm_engine_context_bytes(engine), TRM_TENSOR_ALIGNMENT);
    }
    return create(engine, NULL, memory, context);
}

trm_status trm_context_create_beside(trm_context *main, trm_context **context)
{
    return create(main->engine, main, NULL, context);
}

trm_status trm_context_follow_weights(trm_context *context)
{
    const trm_engine *engine = context->engine;
    if (engine->plan->streaming == NULL || context->places_version == engine->places.version) {
        return TRM_OK;
    }
    const trm_streaming_plan *streaming = engine->plan->streaming;
    const trm_reader_options files = {.read = trm_streaming_read_piece,
                                      .user = engine->plan,
                                      .row_bytes = streaming->row_bytes,
                                      .threads = TRM_READER_THREADS,
                                      .buffers = TRM_READER_BUFFERS,
                                      .buffer_bytes = TRM_READER_BUFFER_BYTES};
    TRM_TRY(trm_stream_synchronize(context->stream)); /* host tasks of the previous step */
    trm_context_drop_capture(context);
    trm_ring_destroy(context->ring);
    context->ring = NULL;
    trm_cpu_offload_destroy(context->offload, engine->world->device);
    context->offload = NULL;
    context->shaped = false;
    const trm_ring_sharing sharing = {.begins = streaming->part_begin,
                                      .shared = streaming->shared,
                                      .gather = streaming->n_sharers > 1 ? trm_streaming_gather : NULL,
                                      .user = engine->sharers};
    const trm_offload_site site = trm_engine_offload_site(context->engine);
    TRM_TRY(trm_cpu_offload_create(&site, &context->offload));
    const trm_residency *const schedules[TRM_COPY_SCHEDULE_COUNT] = {&streaming->residency, &streaming->small};
    TRM_TRY(trm_ring_create(engine->world->device, schedules, streaming->hosts ? TRM_COPY_SCHEDULE_COUNT : 1,
                            streaming->part_bytes, engine->places.stored, &files, &sharing, &context->ring));
    context->places_version = engine->places.version;
    return TRM_OK;
}

void trm_context_set_recorder(trm_context *context, trm_recorder *recorder)
{
    context->recorder = recorder;
}

trm_recorder *trm_context_recorder(const trm_context *context)
{
    return context == NULL             ? NULL
           : context->recorder != NULL ? context->recorder
                                       : trm_engine_recorder(context->engine);
}

void trm_context_destroy(trm_context *context)
{
    if (context == NULL) {
        return;
    }
    trm_device *device = context->engine->world->device;
    if (context->outputs != NULL) {
        for (int32_t i = 0; i < context->engine->plan->network->n_outputs; i++) {
            trm_device_free_host(device, context->outputs[i]);
        }
    }
    trm_context_drop_capture(context);
    trm_context_drop_shapes(context);
    trm_context_close_streams(context);
    trm_tuner_destroy(context->tuner);
    free(context->timings);
    trm_ring_destroy(context->ring);
    if (context->offload != NULL) { /* tasks of a step that failed */
        (void)trm_stream_synchronize(context->stream);
    }
    trm_cpu_offload_destroy(context->offload, device);
    trm_observers_fini(context);
    trm_device_free_host(device, context->input_staging);
    trm_device_free(device, context->is_lodger ? NULL : context->memory);
    trm_event_destroy(context->done);
    if (context->beside == NULL) {
        trm_stream_destroy(context->stream);
    }
    free(context->outputs);
    free(context->output_capacity);
    free(context->output_dims);
    free(context->steps);
    free(context->value_inputs);
    free(context->bound_inputs);
    free(context->bound_outputs);
    free(context->output_memory);
    free(context->input_is_set);
    free(context->dims);
    free(context);
}

TRM_CALL(trm_context_recorder(context), trm_context_reset, (trm_context *context), (context))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot reset: context is NULL");
    }
    TRM_TRY(trm_context_refuse_captured(context, "reset state"));
    TRM_TRY(trm_stream_fill_zero(context->stream, context->state, context->engine->plan->state_bytes));
    return trm_stream_synchronize(context->stream);
}

void *trm_context_staging(trm_context *context, const trm_tensor *input)
{
    return context->input_staging + context->engine->plan->input_offsets[input->index];
}

trm_status trm_context_set_dims(trm_context *context, const trm_tensor *input, const trm_dims *dims)
{
    const trm_dims *max = &context->engine->plan->max_dims[input->index];
    trm_dims *current = &context->dims[input->index];
    context->inputs_changed = true;
    if (dims->n == current->n && memcmp(dims->d, current->d, (size_t)dims->n * sizeof(dims->d[0])) == 0) {
        context->input_is_set[input->index] = true; /* its dims were checked */
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
            context->shaped = false;
        }
    }
    *current = *dims;
    context->input_is_set[input->index] = true;
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

static void bind_input(trm_context *context, const trm_tensor *input, const void *data)
{
    const void **bound = &context->bound_inputs[input->index];
    if (*bound != data) { /* kernels have its address */
        context->n_bound_inputs += (data != NULL) - (*bound != NULL);
        *bound = data;
        context->shaped = false;
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
    bind_input(context, tensor, NULL);
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
    bind_input(context, tensor, data);
    return TRM_OK;
}

trm_status trm_context_wait(trm_context *context)
{
    TRM_TRY(trm_event_record(context->done, context->stream));
    TRM_TRY(trm_world_await(context->engine->world, context->done, "a step"));
    return trm_cpu_offload_status(context->offload);
}

/* Copies an output to its host memory, which grows as needed. */
static trm_status download_output(trm_context *context, int32_t i, const trm_view *view, size_t bytes)
{
    trm_device *device = context->engine->world->device;
    if (bytes > context->output_capacity[i]) {
        trm_device_free_host(device, context->outputs[i]);
        context->outputs[i] = NULL;
        context->output_capacity[i] = 0;
        void *memory;
        TRM_TRY(trm_device_alloc_host(device, bytes, &memory));
        context->outputs[i] = memory;
        context->output_capacity[i] = bytes;
    }
    context->output_memory[i] = context->outputs[i];
    return bytes == 0 ? TRM_OK : trm_stream_download(context->stream, context->outputs[i], view->data, bytes);
}

trm_status trm_context_check_bound(const trm_context *context, int32_t i, size_t bytes)
{
    const trm_context_extra *bound = &context->bound_outputs[i];
    if (bound->memory != NULL && bytes > bound->capacity) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "output %s needs %zu bytes, it is bound to %zu",
                 context->engine->plan->network->outputs[i]->name, bytes, bound->capacity);
    }
    return TRM_OK;
}

/* The caller's device memory for an output, or NULL. */
static trm_status find_memory(trm_context *context, int32_t i, const trm_view *view, size_t bytes, void **memory)
{
    const char *name = context->engine->plan->network->outputs[i]->name;
    TRM_TRY(trm_context_check_bound(context, i, bytes));
    *memory = context->bound_outputs[i].memory;
    if (*memory == NULL && context->allocate_output != NULL) {
        *memory = context->allocate_output(context->allocate_user, name, &view->dims, bytes);
        if (*memory == NULL && bytes > 0) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "the output allocator has no %zu bytes for output %s", bytes, name);
        }
    }
    return TRM_OK;
}

static trm_status hand_over_outputs(trm_context *context)
{
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_outputs; i++) {
        trm_view view = trm_context_view(context, network->outputs[i]);
        size_t bytes = (size_t)trm_dims_count(&view.dims) * trm_dtype_size(view.dtype);
        void *memory;
        context->output_dims[i] = view.dims;
        TRM_TRY(find_memory(context, i, &view, bytes, &memory));
        if (memory == NULL) {
            TRM_TRY(download_output(context, i, &view, bytes));
        } else {
            context->output_memory[i] = memory;
            TRM_TRY(bytes == 0 ? TRM_OK : trm_stream_copy(context->stream, memory, view.data, bytes));
        }
    }
    return TRM_OK;
}

/* Enqueues into the caller's graph: nothing runs, and the state of the last run stays. */
static trm_status capture_run(trm_context *context)
{
    TRM_TRY(trm_context_check_capture(context));
    TRM_TRY(trm_context_enqueue(context));
    context->ran_at = context->shapings; /* a run in parts also ends here */
    return hand_over_outputs(context);
}

TRM_CALL(trm_context_recorder(context), trm_context_start, (trm_context *context), (context))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot run: context is NULL");
    }
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        if (network->tensors[i]->role == TRM_TENSOR_INPUT && !context->input_is_set[i]) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s is not set", network->tensors[i]->name);
        }
    }
    if (trm_stream_is_capturing(context->stream)) {
        return capture_run(context);
    }
    context->has_outputs = false;
    context->is_started = false;
    TRM_TRY(trm_context_note(context, TRM_CLOCK_BEGIN));
    TRM_TRY(trm_context_enqueue_run(context));
    TRM_TRY(trm_context_note(context, TRM_CLOCK_COMPUTED));
    TRM_TRY(hand_over_outputs(context));
    TRM_TRY(trm_context_note(context, TRM_CLOCK_DONE));
    context->is_started = true;
    context->ran_at = context->shapings;
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_finish, (trm_context *context), (context))
{
    if (context == NULL || !context->is_started) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot finish a run: none was started");
    }
    TRM_TRY(trm_context_refuse_captured(context, "finish a run"));
    context->is_started = false;
    TRM_TRY(trm_context_wait(context));
    context->has_outputs = true;
    return trm_context_is_profiling(context) ? trm_context_collect_profile(context) : TRM_OK;
}

size_t trm_context_streamed(const trm_context *context)
{
    if (context == NULL || context->ring == NULL || !context->has_outputs) {
        return 0;
    }
    /* runs with loops vary and are not captured; others follow the plan */
    const trm_streaming_plan *streaming = context->engine->plan->streaming;
    return trm_inference_regions(context->inference)->n > 0
               ? trm_ring_copied_bytes(context->ring)
               : trm_streaming_copy_schedule(streaming, context->ran_schedule)->link_bytes;
}

TRM_CALL(trm_context_recorder(context), trm_context_run, (trm_context *context), (context))
{
    TRM_TRY(context == NULL ? TRM_OK : trm_context_refuse_captured(context, "run"));
    TRM_TRY(trm_context_start(context));
    return trm_context_finish(context);
}

void *trm_context_stream(trm_context *context)
{
    bool has = context != NULL && context->engine->plan->backend != TRM_BACKEND_HOST;
    return has ? trm_stream_native(context->stream) : NULL;
}

TRM_CALL(trm_context_recorder(context), trm_context_bind_output,
         (trm_context *context, const char *name, void *memory, size_t capacity), (context, name, memory, capacity))
{
    if (context == NULL || name == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot bind an output: context or name is NULL");
    }
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_outputs; i++) {
        if (strcmp(network->outputs[i]->name, name) == 0) {
            context->bound_outputs[i] = (trm_context_extra){memory, memory == NULL ? 0 : capacity};
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the network has no output %s", name);
}

TRM_CALL(trm_context_recorder(context), trm_context_set_output_allocator,
         (trm_context *context, trm_output_allocate_fn allocate, void *user), (context, allocate, user))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set an allocator: context is NULL");
    }
    context->allocate_output = allocate;
    context->allocate_user = user;
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_output,
         (trm_context *context, const char *name, trm_dims *dims, const void **data), (context, name, dims, data))
{
    if (context == NULL || name == NULL || dims == NULL || data == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read an output: context, name, dims or data is NULL");
    }
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_outputs; i++) {
        if (strcmp(network->outputs[i]->name, name) == 0) {
            if (!context->has_outputs) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read output %s: no run has succeeded", name);
            }
            *dims = context->output_dims[i];
            *data = context->output_memory[i];
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the network has no output %s", name);
}

TRM_CALL(trm_context_recorder(context), trm_context_set_capture, (trm_context *context, bool on), (context, on))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot capture: context is NULL");
    }
    trm_context_drop_capture(context);
    context->captures = on && context->engine->plan->backend == TRM_BACKEND_CUDA;
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_set_optimization_profile, (trm_context *context, int32_t profile),
         (context, profile))
{
    if (context == NULL || profile < -1 || profile >= context->engine->plan->n_profiles) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set profile %d: %s", profile,
                 context == NULL ? "context is NULL" : "the plan has no such profile");
    }
    context->profile = profile;
    context->shaped = false;
    return TRM_OK;
}
