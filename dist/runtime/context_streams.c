/* Runs branches of a network on separate streams, as planned (graph/streams.h), ordered by events. */
#include <stdlib.h>

#include "base/error.h"
#include "dist/runtime/context.h"

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
