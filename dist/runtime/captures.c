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

/* Makes the cache before its first use. */
static trm_status open_cache(trm_context *context)
{
    const trm_network *network = context->engine->plan->network;
    size_t size = sizeof(int64_t);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        size += network->tensors[i]->role == TRM_TENSOR_INPUT ? sizeof(input_key) : 0;
    }
    if (context->captures.key != NULL) {
        return TRM_OK;
    }
    context->captures.key = calloc(1, size);
    if (context->captures.key == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the key of a captured run");
    }
    return trm_capture_cache_init(&context->captures.cache, TRM_KEPT_CAPTURES, size);
}

/* The key of the next run: its copy schedule and its inputs. */
static const void *make_key(const trm_context *context)
{
    const trm_network *network = context->engine->plan->network;
    int64_t *schedule = context->captures.key;
    input_key *key = (input_key *)(void *)(schedule + 1);
    *schedule = trm_context_schedule(context);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        if (network->tensors[i]->role == TRM_TENSOR_INPUT) {
            const trm_dims *dims = &context->dims[i];
            memset(key, 0, sizeof(*key));
            key->bound = trm_context_bound_input(context, network->tensors[i]);
            key->n = dims->n;
            memcpy((key++)->d, dims->d, (size_t)dims->n * sizeof(dims->d[0]));
        }
    }
    return schedule;
}

/* If elements decide dims, or memory grows with them, dims of inputs do not identify a run. */
static bool may_keep(const trm_context *context)
{
    int32_t n;
    (void)trm_context_value_inputs(context, &n);
    return n == 0 && !trm_context_may_grow(context);
}

void trm_captures_fini(trm_context *context)
{
    trm_capture_cache_fini(&context->captures.cache);
    free(context->captures.key);
}

trm_capture_cache *trm_context_captures(trm_context *context)
{
    return &context->captures.cache;
}

void trm_context_drop_captures(trm_context *context)
{
    trm_capture_cache_drop(&context->captures.cache);
    context->captures.shape = NULL;
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

bool trm_context_wants_capture(const trm_context *context)
{
    return context->captures.wanted;
}

bool trm_context_is_captured(const trm_context *context)
{
    return context->captures.shape != NULL;
}

/* For new shapes: finds their captured run, if there is one. */
static void find_captured(trm_context *context)
{
    if (!may_keep(context) || context->captures.key == NULL) {
        trm_context_drop_captures(context);
        return;
    }
    trm_captured_shape *shape = trm_capture_cache_find(&context->captures.cache, make_key(context));
    context->captures.shape = shape != NULL && shape->execs[0] != NULL ? shape : NULL;
    context->captures.ran = context->captures.shape != NULL;
    trm_context_set_inputs_changed(context, true); /* with values computed on the host */
}

trm_status trm_context_capture(trm_context *context, trm_captured_shape *shape, int32_t variant,
                               trm_status (*enqueue)(void *user), void *user)
{
    TRM_TRY(trm_stream_capture(context->stream, enqueue, user, &shape->execs[variant]));
    shape->schedule = trm_context_schedule(context);
    return TRM_OK;
}

trm_status trm_context_launch(trm_context *context, const trm_captured_shape *shape, int32_t variant)
{
    TRM_TRY(trm_context_prime_weights(context, shape->schedule));
    return trm_graph_exec_launch(shape->execs[variant], context->stream);
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
    TRM_TRY(open_cache(context));
    trm_captured_shape *shape = trm_capture_cache_get(&context->captures.cache, make_key(context));
    TRM_TRY(trm_context_capture(context, shape, 0, enqueue, context));
    context->captures.shaped_at = trm_context_shapings(context); /* a walk in parts is one more */
    context->captures.shape = shape;
    return TRM_OK;
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
        find_captured(context);
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
    if (context->captures.shape == NULL &&
        capture(context) != TRM_OK) { /* as when a library initializes itself again */
        TRM_DEBUG("cannot capture a run, it goes on without: %s", trm_last_error());
        return trm_context_enqueue(context);
    }
    return trm_context_launch(context, context->captures.shape, 0);
}
