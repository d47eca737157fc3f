/* Two contexts of one engine, each computing on a stream of its own, their exchanges in turn on a third. */
#include "dist/llm/microbatch.h"

#include <stdlib.h>

#include "base/error.h"

trm_status trm_microbatches_create(trm_context *main, trm_microbatches **lanes)
{
    trm_device *device = main->engine->world->device;
    trm_microbatches *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the lanes of a step");
    }
    made->contexts[0] = main;
    trm_status status;
    TRM_TRY_GOTO(status, trm_context_create_beside(main, &made->contexts[1]), destroy);
    TRM_TRY_GOTO(status, trm_stream_create(device, &made->second), destroy);
    TRM_TRY_GOTO(status, trm_stream_create(device, &made->exchange), destroy);
    TRM_TRY_GOTO(status, trm_event_create(device, &made->stored), destroy);
    TRM_TRY_GOTO(status, trm_event_create(device, &made->begun), destroy);
    TRM_TRY_GOTO(status, trm_event_create(device, &made->ended), destroy);
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        TRM_TRY_GOTO(status, trm_event_create(device, &made->computed[i]), destroy);
        TRM_TRY_GOTO(status, trm_event_create(device, &made->exchanged[i]), destroy);
    }
    made->layers = calloc((size_t)main->engine->plan->network->n_layers + 1, sizeof(*made->layers));
    if (made->layers == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the lanes of a step");
        goto destroy;
    }
    *lanes = made;
    return TRM_OK;
destroy:
    trm_microbatches_destroy(made);
    return status;
}

void trm_microbatches_destroy(trm_microbatches *lanes)
{
    if (lanes == NULL) {
        return;
    }
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        trm_event_destroy(lanes->computed[i]);
        trm_event_destroy(lanes->exchanged[i]);
    }
    trm_event_destroy(lanes->stored);
    trm_event_destroy(lanes->begun);
    trm_event_destroy(lanes->ended);
    trm_stream_destroy(lanes->exchange);
    trm_stream_destroy(lanes->second);
    trm_context_destroy(lanes->contexts[1]);
    trm_microbatch_sums_fini(lanes);
    free(lanes->layers);
    free(lanes);
}

static bool is_exchange(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_DIST_COLLECTIVE || layer->desc.kind == TRM_LAYER_ALL_REDUCE_NORM;
}

static bool has_state(const trm_layer *layer)
{
    bool found = false;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        found = found || (layer->inputs[i] != NULL && layer->inputs[i]->role == TRM_TENSOR_STATE);
    }
    return found;
}

static trm_stream *stream_of(const trm_microbatches *lanes, int32_t lane)
{
    return lane == 0 ? lanes->contexts[0]->stream : lanes->second;
}

static trm_status run_on(trm_context *context, int32_t layer, trm_stream *stream)
{
    trm_context_step *step = &context->steps[layer];
    step->call.stream = stream;
    trm_status status = trm_context_run_layer(context, layer);
    step->call.stream = context->stream;
    return status;
}

/* An exchange of a lane, on the third stream, when what it reads is there. */
static trm_status exchange(trm_microbatches *lanes, int32_t lane, int32_t layer)
{
    TRM_TRY(trm_event_record(lanes->computed[lane], stream_of(lanes, lane)));
    TRM_TRY(trm_stream_wait_event(lanes->exchange, lanes->computed[lane]));
    TRM_TRY(run_on(lanes->contexts[lane], layer, lanes->exchange));
    return trm_event_record(lanes->exchanged[lane], lanes->exchange);
}

/* A product that reads what was gathered where it lies. */
static trm_status run_on_gathered(trm_microbatches *lanes, int32_t lane, int32_t layer, trm_stream *stream)
{
    trm_context *context = lanes->contexts[lane];
    trm_view *read = &context->steps[layer].call.inputs[0];
    void *planned = read->data;
    read->data = lanes->gathered[lane];
    trm_status status = run_on(context, layer, stream);
    read->data = planned;
    return status;
}

/* A layer of a lane that computes. The first lane is ahead in what is enqueued, up to its next exchange, so the event
 * is of the same layer, or of a later one. */
static trm_status compute(trm_microbatches *lanes, int32_t lane, bool copies, int32_t index)
{
    trm_context *context = lanes->contexts[lane];
    trm_stream *stream = stream_of(lanes, lane);
    bool state = has_state(context->engine->plan->network->layers[index]);
    if (state && lane == 1) {
        TRM_TRY(trm_stream_wait_event(stream, lanes->stored));
    }
    TRM_TRY(copies && lanes->layers[index].reads_gathered ? run_on_gathered(lanes, lane, index, stream)
                                                          : run_on(context, index, stream));
    return state && lane == 0 ? trm_event_record(lanes->stored, stream) : TRM_OK;
}

/* Runs the layers of a lane from `*at` to its next exchange and through it. */
static trm_status advance(trm_microbatches *lanes, int32_t lane, bool copies, int32_t *at)
{
    const trm_network *network = lanes->contexts[lane]->engine->plan->network;
    if (*at > 0) {
        TRM_TRY(trm_stream_wait_event(stream_of(lanes, lane), lanes->exchanged[lane]));
    }
    while (*at < network->n_layers) {
        int32_t layer = (*at)++;
        if (copies && lanes->layers[layer].copies) {
            lanes->copied_sums++;
            return trm_microbatch_sums_add(lanes, lane, layer, stream_of(lanes, lane));
        }
        if (is_exchange(network->layers[layer])) {
            return exchange(lanes, lane, layer);
        }
        TRM_TRY(compute(lanes, lane, copies, layer));
    }
    return TRM_OK;
}

trm_status trm_microbatches_enqueue(trm_microbatches *lanes)
{
    int32_t at[TRM_MICROBATCHES] = {0}, n_layers = lanes->contexts[0]->engine->plan->network->n_layers;
    trm_stream *stream = lanes->contexts[0]->stream;
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        TRM_TRY(trm_context_begin_layers(lanes->contexts[i]));
    }
    const bool copies = trm_microbatch_sums_can_copy(lanes);
    lanes->steps++;
    TRM_TRY(trm_event_record(lanes->begun, stream));
    TRM_TRY(trm_stream_wait_event(lanes->second, lanes->begun));
    while (at[0] < n_layers || at[1] < n_layers) {
        for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
            if (at[i] < n_layers) {
                TRM_TRY(advance(lanes, i, copies, &at[i]));
            }
        }
    }
    TRM_TRY(trm_event_record(lanes->ended, lanes->second));
    TRM_TRY(trm_stream_wait_event(stream, lanes->ended));
    /* a network may end with an exchange */
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        TRM_TRY(trm_stream_wait_event(stream, lanes->exchanged[i]));
    }
    return TRM_OK;
}
