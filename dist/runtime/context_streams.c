/* Branches of a network on streams beside each other, as the plan says (graph/streams.h), ordered by events. */
#include <stdlib.h>

#include "base/error.h"
#include "dist/runtime/engine.h"

trm_status trm_context_open_streams(trm_context *context)
{
    const trm_plan *plan = context->engine->plan;
    const trm_streams *streams = &plan->streams;
    trm_device *device = context->engine->world->device;
    if (streams->n == 0) {
        return TRM_OK;
    }
    context->layer_done = calloc((size_t)plan->network->n_layers + 1, sizeof(*context->layer_done));
    if (context->layer_done == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the events of %d layers", plan->network->n_layers);
    }
    TRM_TRY(trm_event_create(device, &context->begun));
    for (int32_t s = 0; s < streams->n; s++) {
        TRM_TRY(trm_stream_create(device, &context->aux[s]));
    }
    for (int32_t i = 0; i < plan->network->n_layers; i++) {
        bool is_tail = streams->of[i] > 0 && streams->tails[streams->of[i]] == i;
        if (streams->is_awaited[i] || is_tail) {
            TRM_TRY(trm_event_create(device, &context->layer_done[i]));
        }
    }
    return TRM_OK;
}

void trm_context_close_streams(trm_context *context)
{
    for (int32_t i = 0; context->layer_done != NULL && i < context->engine->plan->network->n_layers; i++) {
        trm_event_destroy(context->layer_done[i]);
    }
    for (int32_t s = 0; s < TRM_MAX_AUX_STREAMS; s++) {
        trm_stream_destroy(context->aux[s]);
    }
    trm_event_destroy(context->begun);
    free(context->layer_done);
}

bool trm_context_runs_beside(const trm_context *context)
{
    return context->engine->plan->streams.n > 0 && context->ring == NULL && !context->profiling &&
           context->debug == NULL && context->tuning == NULL;
}

static trm_stream *stream_of(const trm_context *context, int32_t stream)
{
    return stream > 0 ? context->aux[stream - 1] : context->stream;
}

trm_status trm_context_fork(trm_context *context)
{
    TRM_TRY(trm_event_record(context->begun, context->stream));
    for (int32_t s = 0; s < context->engine->plan->streams.n; s++) {
        TRM_TRY(trm_stream_wait_event(context->aux[s], context->begun));
    }
    return TRM_OK;
}

trm_status trm_context_before_layer(trm_context *context, int32_t index)
{
    const trm_streams *streams = &context->engine->plan->streams;
    trm_stream *stream = stream_of(context, streams->of[index]);
    for (int32_t i = streams->first_wait[index]; i < streams->first_wait[index + 1]; i++) {
        TRM_TRY(trm_stream_wait_event(stream, context->layer_done[streams->waits[i]]));
    }
    context->steps[index].call.stream = stream;
    return TRM_OK;
}

trm_status trm_context_after_layer(trm_context *context, int32_t index)
{
    trm_event *done = context->layer_done[index];
    return done == NULL ? TRM_OK : trm_event_record(done, stream_of(context, context->engine->plan->streams.of[index]));
}

trm_status trm_context_join(trm_context *context)
{
    const trm_streams *streams = &context->engine->plan->streams;
    for (int32_t s = 1; s <= streams->n; s++) {
        if (streams->joins[s]) {
            TRM_TRY(trm_stream_wait_event(context->stream, context->layer_done[streams->tails[s]]));
        }
    }
    return TRM_OK;
}
