/*
 * Runs of a context as CUDA graphs: captured on the second run of the same shapes and kept for a few shapes, so that a
 * repeated shape is one launch. Also checks whether a run can become part of a graph that the caller captures.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/recorder.h"
#include "dist/runtime/context.h"

/* Longer runs, which loops may cause, are not captured: each layer becomes a node in memory. */
#define MOST_CAPTURED 16384

/* The part of one input in the key of a captured run. */
typedef struct input_key {
    const void *bound;
    int32_t n;
    int64_t d[TRM_MAX_DIMS];
} input_key;

/* The key of the next run, which the caller frees. NULL: out of memory. */
static input_key *make_key(const trm_context *context, size_t *size)
{
    const trm_network *network = context->engine->plan->network;
    input_key *key = calloc((size_t)network->n_tensors + 1, sizeof(*key));
    size_t n = 0;
    for (int32_t i = 0; key != NULL && i < network->n_tensors; i++) {
        if (network->tensors[i]->role == TRM_TENSOR_INPUT) {
            const trm_dims *dims = &context->dims[i];
            key[n].bound = trm_context_bound_input(context, network->tensors[i]);
            key[n].n = dims->n;
            memcpy(key[n++].d, dims->d, (size_t)dims->n * sizeof(dims->d[0]));
        }
    }
    *size = n * sizeof(*key);
    return key;
}

/* If elements decide dims, or memory grows with them, dims of inputs do not identify a run. */
static bool may_keep(const trm_context *context)
{
    int32_t n;
    (void)trm_context_value_inputs(context, &n);
    return n == 0 && !trm_context_may_grow(context);
}

static void drop_kept(trm_kept_capture *kept)
{
    trm_graph_exec_destroy(kept->exec);
    free(kept->key);
    *kept = (trm_kept_capture){0};
}

void trm_context_drop_captures(trm_context *context)
{
    for (int32_t i = 0; context->captures.kept != NULL && i < TRM_KEPT_CAPTURES; i++) {
        drop_kept(&context->captures.kept[i]);
    }
    free(context->captures.kept);
    context->captures.kept = NULL;
    context->captures.exec = NULL;
    context->captures.ran = false;
}

TRM_CALL(trm_context_recorder(context), trm_context_set_capture, (trm_context *context, bool on), (context, on))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot capture: context is NULL");
    }
    trm_context_drop_captures(context);
    context->captures.wanted = on && context->engine->plan->backend == TRM_BACKEND_CUDA;
    return TRM_OK;
}

bool trm_context_is_captured(const trm_context *context)
{
    return context->captures.exec != NULL;
}

/* For new shapes: finds their captured run, if there is one. */
static trm_status find_kept(trm_context *context)
{
    size_t size;
    if (!may_keep(context) || context->captures.kept == NULL) {
        trm_context_drop_captures(context);
        return TRM_OK;
    }
    input_key *key = make_key(context, &size);
    if (key == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the key of a captured run");
    }
    context->captures.exec = NULL;
    for (int32_t i = 0; i < TRM_KEPT_CAPTURES; i++) {
        trm_kept_capture *kept = &context->captures.kept[i];
        if (kept->exec != NULL && kept->schedule == trm_context_schedule(context) && kept->key_size == size &&
            memcmp(kept->key, key, size) == 0) {
            context->captures.exec = kept->exec;
            kept->used = ++context->captures.launches;
        }
    }
    context->captures.ran = context->captures.exec != NULL;
    trm_context_set_inputs_changed(context, true); /* with values computed on the host */
    free(key);
    return TRM_OK;
}

/* Takes the graph over, in place of the least recently used one. */
static trm_status keep(trm_context *context, trm_graph_exec *exec)
{
    size_t size;
    input_key *key = make_key(context, &size);
    if (context->captures.kept == NULL) {
        context->captures.kept = calloc(TRM_KEPT_CAPTURES, sizeof(*context->captures.kept));
    }
    if (key == NULL || context->captures.kept == NULL) {
        free(key);
        trm_graph_exec_destroy(exec);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the list of captured runs");
    }
    trm_kept_capture *oldest = &context->captures.kept[0];
    for (int32_t i = 1; i < TRM_KEPT_CAPTURES; i++) {
        oldest = context->captures.kept[i].used < oldest->used ? &context->captures.kept[i] : oldest;
    }
    drop_kept(oldest);
    *oldest = (trm_kept_capture){exec, key, size, trm_context_schedule(context), ++context->captures.launches};
    context->captures.exec = exec;
    return TRM_OK;
}

trm_status trm_context_launch(trm_context *context, trm_graph_exec *exec, int32_t schedule)
{
    TRM_TRY(trm_context_prime_weights(context, schedule));
    return trm_graph_exec_launch(exec, context->stream);
}

static trm_status enqueue(void *user)
{
    trm_context *context = user;
    const trm_status status = trm_context_enqueue_again(context);
    context->captures.ran = context->captures.ran && status == TRM_OK;
    return status;
}

static trm_status capture(trm_context *context)
{
    trm_graph_exec *exec = NULL;
    TRM_TRY(trm_stream_capture(context->stream, enqueue, context, &exec));
    context->captures.shaped_at = trm_context_shapings(context); /* a walk in parts is one more */
    return keep(context, exec);
}

static trm_status refuse_first(void)
{
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
             "cannot capture this run: no run had the same dims and the same bound memory; run "
             "it once before");
}

trm_status trm_context_refuse_captured(const trm_context *context, const char *what)
{
    if (trm_stream_is_capturing(context->stream)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "cannot %s while the caller captures the context's stream: it would wait for the device", what);
    }
    return TRM_OK;
}

/* Copies then depend on which layers run. */
static bool streams_in_regions(const trm_context *context)
{
    return trm_context_streams_weights(context) && trm_streaming_fetches(context->engine->plan) &&
           trm_inference_regions(context->inference)->n > 0;
}

/* Ranks that exchange in a loop must all capture or all not, since libraries run captured exchanges differently. */
static bool others_stream_in_regions(const trm_context *context)
{
    return trm_context_streams_weights(context) && !context->engine->others_stay &&
           trm_inference_regions(context->inference)->n > 0;
}

trm_status trm_context_check_capture(const trm_context *context)
{
    if (context->is_started) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot capture a run before the run that was started "
                                             "is finished");
    }
    if (trm_context_shows_layers(context)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot read debug tensors of a captured run");
    }
    if (trm_context_offloads(context)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "cannot capture a run with CPU offload or an expert cache: after a run of more rows the ring would "
                 "hold other weights");
    }
    if (trm_context_streams_weights(context) && !context->engine->places.capturable) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "cannot capture a run that reads weights from files or shares them between ranks: "
                 "keep them in pinned host memory");
    }
    if (streams_in_regions(context)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "cannot capture a run with loops or branches while weights stream: keep them all "
                 "on the device");
    }
    if (trm_context_asking(context) != NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot capture this network: layer %s depends on what a run computes",
                 trm_context_asking(context)->name);
    }
    const bool moved = context->engine->plan->streaming != NULL &&
                       trm_context_weight_places(context) != context->engine->places.version;
    if (moved || !trm_context_ran(context) || !trm_context_is_known(context)) {
        return refuse_first();
    }
    bool known;
    TRM_TRY(trm_context_check_places(context, &known));
    return known ? TRM_OK : refuse_first();
}

/* Whether a run with the current inputs can be captured. */
static bool can_capture(const trm_context *context)
{
    /* copies from pageable memory cannot be captured */
    const bool may = context->captures.wanted && !trm_context_is_profiling(context) &&
                     !trm_context_shows_layers(context) && !trm_stream_is_capturing(context->stream) &&
                     (!trm_context_streams_weights(context) || context->engine->places.capturable) &&
                     !streams_in_regions(context) && !others_stream_in_regions(context);
    return may && (!trm_inference_may_stop(context->inference) ||
                   (trm_context_is_known(context) && trm_context_walked(context) <= MOST_CAPTURED));
}

trm_status trm_context_enqueue_run(trm_context *context)
{
    const bool in_parts = trm_inference_may_stop(context->inference);
    TRM_TRY(trm_context_follow_weights(context)); /* captured runs have the old addresses */
    if (!can_capture(context)) {
        if (in_parts) {
            trm_context_drop_captures(context);
        }
        return trm_context_enqueue(context);
    }
    TRM_TRY(in_parts ? TRM_OK : trm_context_shape(context)); /* it has run, since it is known */
    if (context->captures.shaped_at != trm_context_shapings(context)) {
        TRM_TRY(find_kept(context));
        context->captures.shaped_at = trm_context_shapings(context);
    }
    if (!context->captures.ran && !in_parts) {
        TRM_TRY(trm_context_enqueue(context));
        context->captures.ran = true;
        trm_context_set_inputs_changed(context, false);
        return TRM_OK;
    }
    if (trm_context_inputs_changed(context)) {
        TRM_TRY(trm_context_begin_layers(context));
        trm_context_set_inputs_changed(context, false);
    }
    if (context->captures.exec == NULL && capture(context) != TRM_OK) { /* as when a library initializes itself again */
        TRM_DEBUG("cannot capture a run, it goes on without: %s", trm_last_error());
        return trm_context_enqueue(context);
    }
    return trm_context_launch(context, context->captures.exec, trm_context_schedule(context));
}
