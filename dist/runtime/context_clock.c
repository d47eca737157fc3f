/* Times of a run: events around copies and layers, and the calling thread's time. */
#include "dist/runtime/engine.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/recorder.h"

void trm_context_drop_clock(trm_context *context)
{
    for (int32_t i = 0; i < TRM_CLOCK_COUNT; i++) {
        trm_event_destroy(context->clock[i]);
        context->clock[i] = NULL;
    }
    context->is_clocked = false;
}

TRM_CALL(trm_context_recorder(context), trm_context_set_timing, (trm_context *context, bool on), (context, on))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot time runs: context is NULL");
    }
    trm_context_drop_clock(context);
    trm_status status = TRM_OK;
    for (int32_t i = 0; on && i < TRM_CLOCK_COUNT && status == TRM_OK; i++) {
        status = trm_event_create(context->engine->world->device, &context->clock[i]);
    }
    if (status != TRM_OK) {
        trm_context_drop_clock(context);
    }
    return status;
}

trm_status trm_context_note(trm_context *context, int32_t moment)
{
    if (context->clock[moment] == NULL || trm_stream_is_capturing(context->stream)) {
        return TRM_OK;
    }
    if (moment == TRM_CLOCK_BEGIN) {
        context->is_clocked = false;
        context->enqueue_began = trm_clock_seconds();
        TRM_TRY(trm_event_record(context->clock[TRM_CLOCK_BEGIN], context->stream));
        return trm_event_record(context->clock[TRM_CLOCK_UPLOADED],
                                context->stream); /* recorded again if anything is copied */
    }
    TRM_TRY(trm_event_record(context->clock[moment], context->stream));
    if (moment == TRM_CLOCK_DONE) {
        context->enqueue_seconds = trm_clock_seconds() - context->enqueue_began;
        context->is_clocked = true;
    }
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_times, (const trm_context *context, trm_run_times *times),
         (context, times))
{
    if (context == NULL || times == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read times: context or times is NULL");
    }
    if (!context->is_clocked || !context->has_outputs) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "no times: no run has been timed");
    }
    float spans[TRM_CLOCK_COUNT - 1];
    for (int32_t i = 0; i + 1 < TRM_CLOCK_COUNT; i++) {
        TRM_TRY(trm_event_elapsed_ms(context->clock[i], context->clock[i + 1], &spans[i]));
    }
    *times = (trm_run_times){(double)spans[0], (double)spans[1], (double)spans[2], context->enqueue_seconds * 1e3};
    return TRM_OK;
}
