/* Microbatches: two contexts of one engine, each with a stream for its layers; their collectives alternate on a third.
 */
#include "dist/llm/microbatch.h"

#include <stdlib.h>

#include "base/error.h"

trm_status trm_microbatches_create(trm_context *main, trm_microbatches **microbatches)
{
    trm_device *device = main->engine->world->device;
    trm_microbatches *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the microbatches of a step");
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
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the microbatches of a step");
        goto destroy;
    }
    *microbatches = made;
    return TRM_OK;
destroy:
    trm_microbatches_destroy(made);
    return status;
}

void trm_microbatches_destroy(trm_microbatches *microbatches)
{
    if (microbatches == NULL) {
        return;
    }
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        trm_event_destroy(microbatches->computed[i]);
        trm_event_destroy(microbatches->exchanged[i]);
    }
    trm_event_destroy(microbatches->stored);
    trm_event_destroy(microbatches->begun);
    trm_event_destroy(microbatches->ended);
    trm_stream_destroy(microbatches->exchange);
    trm_stream_destroy(microbatches->second);
    trm_context_destroy(microbatches->contexts[1]);
    trm_microbatch_sums_fini(microbatches);
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        trm_program_fini(&microbatches->programs[i]);
    }
    free(microbatches->layers);
    free(microbatches);
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

static trm_stream *stream_of(const trm_microbatches *microbatches, int32_t microbatch)
{
    return microbatch == 0 ? microbatches->contexts[0]->stream : microbatches->second;
}

/* Enqueues a collective of a microbatch on the third stream, after its input. */
static trm_status exchange(trm_microbatches *microbatches, int32_t microbatch, int32_t layer)
{
    TRM_TRY(trm_event_record(microbatches->computed[microbatch], stream_of(microbatches, microbatch)));
    TRM_TRY(trm_stream_wait_event(microbatches->exchange, microbatches->computed[microbatch]));
    TRM_TRY(trm_context_run_layer(microbatches->contexts[microbatch], layer, microbatches->exchange));
    return trm_event_record(microbatches->exchanged[microbatch], microbatches->exchange);
}

/* Enqueues products that read a gathered result in place. */
static trm_status prepare_gathered(trm_microbatches *microbatches, int32_t microbatch)
{
    const trm_context *context = microbatches->contexts[microbatch];
    trm_program *program = &microbatches->programs[microbatch];
    trm_program_clear(program);
    for (int32_t i = 0; i < context->engine->plan->network->n_layers; i++) {
        trm_microbatch_layer *own = &microbatches->layers[i];
        own->first[microbatch] = program->n;
        if (own->reads_gathered) {
            trm_kernel_call call = *trm_context_call(context, i);
            call.inputs[0].data = microbatches->gathered[microbatch];
            TRM_TRY(trm_kernel_prepare(trm_context_kernel(context, i), &call, program));
        }
        own->end[microbatch] = program->n;
    }
    return TRM_OK;
}

static trm_status run_on_gathered(const trm_microbatches *microbatches, int32_t microbatch, int32_t index,
                                  trm_stream *stream)
{
    const trm_microbatch_layer *own = &microbatches->layers[index];
    const trm_layer *layer = microbatches->contexts[microbatch]->engine->plan->network->layers[index];
    int32_t at;
    const trm_status status = trm_program_run_on(&microbatches->programs[microbatch], own->first[microbatch],
                                                 own->end[microbatch], stream, &at);
    return status == TRM_OK ? TRM_OK
                            : trm_fail_in(status, "layer %s (%s)", layer->name,
                                          microbatches->programs[microbatch].launches[at].name);
}

/* Enqueues a computing layer of a microbatch. The first microbatch is ahead, up to its next collective, so the event is
 * that of the same layer or of a later one. */
static trm_status compute(trm_microbatches *microbatches, int32_t microbatch, bool copies, int32_t index)
{
    trm_context *context = microbatches->contexts[microbatch];
    trm_stream *stream = stream_of(microbatches, microbatch);
    bool state = has_state(context->engine->plan->network->layers[index]);
    if (state && microbatch == 1) {
        TRM_TRY(trm_stream_wait_event(stream, microbatches->stored));
    }
    TRM_TRY(copies && microbatches->layers[index].reads_gathered
                ? run_on_gathered(microbatches, microbatch, index, stream)
                : trm_context_run_layer(context, index, stream));
    return state && microbatch == 0 ? trm_event_record(microbatches->stored, stream) : TRM_OK;
}

/* Enqueues the layers of a microbatch from *at up to and including its next collective. */
static trm_status advance(trm_microbatches *microbatches, int32_t microbatch, bool copies, int32_t *at)
{
    const trm_network *network = microbatches->contexts[microbatch]->engine->plan->network;
    if (*at > 0) {
        TRM_TRY(trm_stream_wait_event(stream_of(microbatches, microbatch), microbatches->exchanged[microbatch]));
    }
    while (*at < network->n_layers) {
        int32_t layer = (*at)++;
        if (copies && microbatches->layers[layer].copies) {
            microbatches->copied_sums++;
            return trm_microbatch_sums_add(microbatches, microbatch, layer, stream_of(microbatches, microbatch));
        }
        if (is_exchange(network->layers[layer])) {
            return exchange(microbatches, microbatch, layer);
        }
        TRM_TRY(compute(microbatches, microbatch, copies, layer));
    }
    return TRM_OK;
}

trm_status trm_microbatches_enqueue(trm_microbatches *microbatches)
{
    int32_t at[TRM_MICROBATCHES] = {0}, n_layers = microbatches->contexts[0]->engine->plan->network->n_layers;
    trm_stream *stream = microbatches->contexts[0]->stream;
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        TRM_TRY(trm_context_begin_layers(microbatches->contexts[i]));
    }
    const bool copies = trm_microbatch_sums_can_copy(microbatches);
    for (int32_t i = 0; copies && i < TRM_MICROBATCHES; i++) {
        TRM_TRY(prepare_gathered(microbatches, i));
    }
    microbatches->steps++;
    TRM_TRY(trm_event_record(microbatches->begun, stream));
    TRM_TRY(trm_stream_wait_event(microbatches->second, microbatches->begun));
    while (at[0] < n_layers || at[1] < n_layers) {
        for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
            if (at[i] < n_layers) {
                TRM_TRY(advance(microbatches, i, copies, &at[i]));
            }
        }
    }
    TRM_TRY(trm_event_record(microbatches->ended, microbatches->second));
    TRM_TRY(trm_stream_wait_event(stream, microbatches->ended));
    /* a network may end with a collective */
    for (int32_t i = 0; i < TRM_MICROBATCHES; i++) {
        TRM_TRY(trm_stream_wait_event(stream, microbatches->exchanged[i]));
    }
    return TRM_OK;
}
