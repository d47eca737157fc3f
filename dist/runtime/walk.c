/*
 * Runs networks whose dims or layers depend on data, in parts: each part is a program up to the next unknown dims or
 * condition, whose values are read back between parts.
 */
#include "dist/runtime/context.h"

#include <string.h>

#include "base/error.h"
#include "graph/memory_plan.h"

/* Reads the values that inference stopped at back from the device; ranks with the same tensors must see the same. */
static trm_status answer_stop(trm_context *context, const trm_inference_stop *stop)
{
    trm_world *world = context->engine->world;
    const trm_plan *plan = context->engine->plan;
    trm_view view = trm_context_view(context, stop->tensor);
    size_t bytes = trm_dims_bytes(&view.dims, view.dtype);
    if (bytes > TRM_LARGEST_VALUE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s decides dims of layer %s with %zu bytes of values, expected at most %zu",
                 stop->tensor->name, stop->layer->name, bytes, TRM_LARGEST_VALUE);
    }
    TRM_TRY(trm_stream_download(context->stream, context->shaping.read, view.data, bytes));
    TRM_TRY(trm_context_wait(context));
    bool same_on_all = trm_mesh_tensor_ranks(&plan->mesh) == world->size && !plan->partition.as_written;
    if (world->size > 1 && same_on_all && world->bootstrap != NULL) {
        TRM_TRY(trm_world_agree(world, stop->tensor->name, context->shaping.read, bytes));
    }
    if (stop->state == TRM_INFERENCE_VALUES) {
        return trm_inference_give(context->inference, stop->tensor, &view.dims, context->shaping.read);
    }
    int64_t count;
    memcpy(&count, context->shaping.read, sizeof(count));
    if (count < 0) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "layer %s has the invalid count of %lld entries", stop->layer->name,
                 (long long)count);
    }
    return trm_inference_give_count(context->inference, count);
}

/* Copies loop-carried values to where the next pass reads them. Dims are already those of the next pass. */
static trm_status carry_on(trm_context *context, int32_t begin, int32_t end)
{
    const trm_plan *plan = context->engine->plan;
    const trm_regions *regions = trm_inference_regions(context->inference);
    for (int32_t i = begin + 1; i < end; i++) {
        const trm_layer *layer = plan->network->layers[i];
        if (layer->desc.kind != TRM_LAYER_NEXT || regions->inside[i] != begin) {
            continue;
        }
        const trm_tensor *carried = layer->inputs[1];
        TRM_TRY(trm_context_make_room(context, carried->producer->index, carried->producer->index + 1));
        trm_view to = trm_context_view(context, carried), from = trm_context_view(context, layer->outputs[0]);
        size_t bytes = trm_dims_bytes(&to.dims, to.dtype);
        TRM_TRY(bytes == 0 ? TRM_OK : trm_stream_copy(context->stream, to.data, from.data, bytes));
    }
    return TRM_OK;
}

/* Continues after a JUMP; *next is the next layer. */
static trm_status jump(trm_context *context, const trm_layer *layer, int32_t *next)
{
    TRM_TRY(trm_inference_jump(context->inference, next));
    if (layer->desc.kind == TRM_LAYER_END_LOOP) {
        TRM_TRY(carry_on(context, trm_inference_regions(context->inference)->other[layer->index], layer->index));
    }
    for (int32_t i = layer->index + 1; i < *next; i++) { /* skipped layers take no time */
        TRM_TRY(trm_context_mark(context, i));
    }
    return trm_context_jump_weights(context, layer->index, *next);
}

const trm_layer *trm_context_asking(const trm_context *context)
{
    return context->shaping.asking;
}

int64_t trm_context_walked(const trm_context *context)
{
    return context->shaping.walked;
}

/* Runs in parts, each up to the next unknown dims or condition. If the run needed no values from the device, the
 * context stays shaped: it repeats for the same dims and values. */
trm_status trm_context_walk(trm_context *context, bool uploads)
{
    int32_t begin = 0, end, n = context->engine->plan->network->n_layers;
    bool is_first = true;
    trm_inference_stop stop;
    context->shaping.walked = 0;
    context->shaping.asking = NULL;
    TRM_TRY(trm_context_begin_walk(context));
    do {
        TRM_TRY(trm_inference_run(context->inference, &stop));
        bool counts = stop.state == TRM_INFERENCE_COUNT, jumps = stop.state == TRM_INFERENCE_JUMP;
        const bool asks = counts || stop.state == TRM_INFERENCE_VALUES;
        context->shaping.asking = asks && context->shaping.asking == NULL ? stop.layer : context->shaping.asking;
        if (context->shaping.asking != NULL && trm_stream_is_capturing(context->stream)) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot capture this network: layer %s depends on what a run computes",
                     context->shaping.asking->name);
        }
        end = stop.state == TRM_INFERENCE_DONE ? n : stop.layer->index + (counts || jumps ? 1 : 0);
        TRM_TRY(trm_context_make_room(context, begin, end));
        const bool is_last = stop.state == TRM_INFERENCE_DONE;
        TRM_TRY(trm_context_prepare_program(context, begin, end, is_last));
        TRM_TRY(trm_context_stage_values(context, begin, end, !is_first));
        if (is_first) {
            TRM_TRY(uploads ? trm_context_upload(context) : TRM_OK);
            is_first = false;
        }
        TRM_TRY(trm_context_run_program(context, begin, end, is_last, counts ? end - 1 : -1));
        context->shaping.walked += end - begin;
        begin = end;
        if (jumps) {
            TRM_TRY(jump(context, stop.layer, &begin));
        } else if (stop.state != TRM_INFERENCE_DONE) {
            TRM_TRY(answer_stop(context, &stop));
        }
        TRM_TRY(counts ? trm_context_show_layer(context, end - 1) : TRM_OK);
    } while (stop.state != TRM_INFERENCE_DONE);
    context->shaping.is_current = context->shaping.asking == NULL;
    return TRM_OK;
}
