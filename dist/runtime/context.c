/*
 * The execution context: creates its parts, and starts and finishes runs of a rank's network.
 */
#include "dist/runtime/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/ranges.h"
#include "base/recorder.h"
#include "graph/inference.h"
#include "graph/memory_plan.h"

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
    made->dims = calloc(n_tensors + 1, sizeof(*made->dims));
    trm_status status;
    if (made->dims == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a context of %zu tensors", n_tensors);
        goto destroy;
    }
    memcpy(made->dims, plan->max_dims, n_tensors * sizeof(*made->dims));
    TRM_TRY_GOTO(status, trm_bindings_init(made), destroy);
    TRM_TRY_GOTO(status, trm_context_shaping_init(made), destroy);
    if (beside != NULL) {
        made->stream = beside->stream;
    } else {
        TRM_TRY_GOTO(status, trm_stream_create(device, &made->stream), destroy);
    }
    TRM_TRY_GOTO(status, trm_event_create(device, &made->done), destroy);
    TRM_TRY_GOTO(status, trm_context_program_init(made), destroy);
    TRM_TRY_GOTO(status, trm_context_memory_init(made, memory), destroy);
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
    trm_captures_fini(context);
    trm_context_shaping_fini(context);
    trm_context_program_fini(context);
    trm_context_tuning_fini(context);
    trm_context_weights_fini(context);
    trm_observers_fini(context);
    trm_bindings_fini(context);
    trm_context_memory_fini(context);
    trm_event_destroy(context->done);
    if (context->beside == NULL) {
        trm_stream_destroy(context->stream);
    }
    free(context->dims);
    free(context);
}

TRM_CALL(trm_context_recorder(context), trm_context_reset, (trm_context *context), (context))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot reset: context is NULL");
    }
    TRM_TRY(trm_context_refuse_captured(context, "reset state"));
    TRM_TRY(trm_context_zero_state(context));
    return trm_stream_synchronize(context->stream);
}

trm_status trm_context_wait(trm_context *context)
{
    TRM_TRY(trm_event_record(context->done, context->stream));
    TRM_TRY(trm_world_await(context->engine->world, context->done, "a step"));
    return trm_context_offload_status(context);
}

/* Enqueues into the caller's graph: nothing runs, and the state of the last run stays. */
static trm_status capture_run(trm_context *context)
{
    TRM_TRY(trm_context_check_capture(context));
    TRM_TRY(trm_context_enqueue(context));
    trm_context_note_run(context); /* a run in parts also ends here */
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
    TRM_TRY(trm_context_begin_trace(context));
    TRM_TRY(trm_context_note(context, TRM_CLOCK_BEGIN));
    trm_range_begin("run");
    const trm_status status = trm_context_enqueue_run(context);
    trm_range_end();
    TRM_TRY(status);
    TRM_TRY(trm_context_note(context, TRM_CLOCK_COMPUTED));
    TRM_TRY(trm_context_hand_over_outputs(context));
    TRM_TRY(trm_context_note(context, TRM_CLOCK_DONE));
    context->is_started = true;
    trm_context_note_run(context);
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
    TRM_TRY(trm_context_is_profiling(context) ? trm_context_collect_profile(context) : TRM_OK);
    return trm_context_end_trace(context);
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
