/* Two contexts of one engine in turn, exchanges on a stream of their own. */
#include "dist/lanes.h"

#include <stdlib.h>

#include "base/error.h"

trm_status trm_lanes_create(trm_context *main, trm_lanes **lanes)
{
    trm_device *device = main->engine->world->device;
    trm_lanes *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the lanes of a step");
    }
    made->contexts[0] = main;
    trm_status status;
    TRM_TRY_GOTO(status, trm_context_create_beside(main, &made->contexts[1]), destroy);
    TRM_TRY_GOTO(status, trm_stream_create(device, &made->exchange), destroy);
    for (int32_t i = 0; i < TRM_LANES; i++) {
        TRM_TRY_GOTO(status, trm_event_create(device, &made->computed[i]), destroy);
        TRM_TRY_GOTO(status, trm_event_create(device, &made->exchanged[i]), destroy);
    }
    *lanes = made;
    return TRM_OK;
destroy:
    trm_lanes_destroy(made);
    return status;
}

void trm_lanes_destroy(trm_lanes *lanes)
{
    if (lanes == NULL) {
        return;
    }
    for (int32_t i = 0; i < TRM_LANES; i++) {
        trm_event_destroy(lanes->computed[i]);
        trm_event_destroy(lanes->exchanged[i]);
    }
    trm_stream_destroy(lanes->exchange);
    trm_context_destroy(lanes->contexts[1]);
    free(lanes);
}

static bool is_exchange(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_DIST_COLLECTIVE || layer->desc.kind == TRM_LAYER_ALL_REDUCE_NORM;
}

/* An exchange of a lane, on the other stream, when what it reads is there. */
static trm_status exchange(trm_lanes *lanes, int32_t lane, int32_t layer)
{
    trm_context *context = lanes->contexts[lane];
    trm_context_step *step = &context->steps[layer];
    TRM_TRY(trm_event_record(lanes->computed[lane], context->stream));
    TRM_TRY(trm_stream_wait_event(lanes->exchange, lanes->computed[lane]));
    step->call.stream = lanes->exchange;
    trm_status status = trm_context_run_layer(context, layer);
    step->call.stream = context->stream;
    TRM_TRY(status);
    return trm_event_record(lanes->exchanged[lane], lanes->exchange);
}

/* Runs the layers of a lane from `*at` to its next exchange and through it. */
static trm_status advance(trm_lanes *lanes, int32_t lane, int32_t *at)
{
    trm_context *context = lanes->contexts[lane];
    const trm_network *network = context->engine->plan->network;
    if (*at > 0) {
        TRM_TRY(trm_stream_wait_event(context->stream, lanes->exchanged[lane]));
    }
    while (*at < network->n_layers) {
        int32_t layer = (*at)++;
        if (is_exchange(network->layers[layer])) {
            return exchange(lanes, lane, layer);
        }
        TRM_TRY(trm_context_run_layer(context, layer));
    }
    return TRM_OK;
}

trm_status trm_lanes_enqueue(trm_lanes *lanes)
{
    int32_t at[TRM_LANES] = {0}, n_layers = lanes->contexts[0]->engine->plan->network->n_layers;
    for (int32_t i = 0; i < TRM_LANES; i++) {
        TRM_TRY(trm_context_begin_layers(lanes->contexts[i]));
    }
    while (at[0] < n_layers || at[1] < n_layers) {
        for (int32_t i = 0; i < TRM_LANES; i++) {
            if (at[i] < n_layers) {
                TRM_TRY(advance(lanes, i, &at[i]));
            }
        }
    }
    /* a network may end with an exchange */
    for (int32_t i = 0; i < TRM_LANES; i++) {
        TRM_TRY(trm_stream_wait_event(lanes->contexts[i]->stream, lanes->exchanged[i]));
    }
    return TRM_OK;
}
