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

/* Allocates device memory, unless the caller gave it. */
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
    return TRM_OK;
}

static trm_status create(trm_engine *engine, trm_context *beside, void *memory, trm_context **context)
{
    const trm_plan *plan = engine->plan;
    trm_device *device = engine->world->device;
    size_t n_tensors = (size_t)plan->network->n_tensors;
    trm_context *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a context");
    }
    made->engine = engine;
    made->beside = beside;
    made->profile = -1;
    made->dims = calloc(n_tensors + 1, sizeof(*made->dims));
    made->steps = calloc((size_t)plan->network->n_layers + 1, sizeof(*made->steps));
    made->value_inputs = calloc(n_tensors + 1, sizeof(trm_tensor *));
    made->offsets = plan->activation_offsets;
    trm_status status;
    if (made->value_inputs == NULL || made->dims == NULL || made->steps == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a context of %zu tensors", n_tensors);
        goto destroy;
    }
    memcpy(made->dims, plan->max_dims, n_tensors * sizeof(*made->dims));
    TRM_TRY_GOTO(status, trm_bindings_init(made), destroy);
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
    trm_context_drop_captures(context);
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
    trm_context_drop_captures(context);
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
    trm_bindings_fini(context);
    trm_device_free(device, context->is_lodger ? NULL : context->memory);
    trm_event_destroy(context->done);
    if (context->beside == NULL) {
        trm_stream_destroy(context->stream);
    }
    free(context->steps);
    free(context->value_inputs);
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

trm_status trm_context_wait(trm_context *context)
{
    TRM_TRY(trm_event_record(context->done, context->stream));
    TRM_TRY(trm_world_await(context->engine->world, context->done, "a step"));
    return trm_cpu_offload_status(context->offload);
}

/* Enqueues into the caller's graph: nothing runs, and the state of the last run stays. */
static trm_status capture_run(trm_context *context)
{
    TRM_TRY(trm_context_check_capture(context));
    TRM_TRY(trm_context_enqueue(context));
    context->ran_at = context->shapings; /* a run in parts also ends here */
    return trm_context_hand_over_outputs(context);
}

TRM_CALL(trm_context_recorder(context), trm_context_start, (trm_context *context), (context))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot run: context is NULL");
    }
    TRM_TRY(trm_context_check_inputs(context, ""));
    if (trm_stream_is_capturing(context->stream)) {
        return capture_run(context);
    }
    context->has_outputs = false;
    context->is_started = false;
    TRM_TRY(trm_context_note(context, TRM_CLOCK_BEGIN));
    TRM_TRY(trm_context_enqueue_run(context));
    TRM_TRY(trm_context_note(context, TRM_CLOCK_COMPUTED));
    TRM_TRY(trm_context_hand_over_outputs(context));
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
