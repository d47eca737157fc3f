/* Streamed weights of a context: the ring that they arrive in, layers offloaded to the CPU, and copy schedules. */
#include "base/error.h"
#include "dist/runtime/context.h"
#include "weight_stream/offload/streaming.h"

/* The cache is one of the engine: it is as large as its budget allows, and one context at a time may use it. */
static trm_status take_experts(trm_context *context)
{
    trm_engine *engine = context->engine;
    trm_status status = TRM_OK;
    pthread_mutex_lock(&engine->sharing);
    if (engine->experts == NULL) {
        const trm_offload_site site = trm_engine_offload_site(engine);
        status = trm_expert_cache_create(&site, context->stream, &context->weights.experts);
        engine->experts = context->weights.experts;
    }
    pthread_mutex_unlock(&engine->sharing);
    return status;
}

static void drop_experts(trm_context *context)
{
    trm_engine *engine = context->engine;
    if (context->weights.experts != NULL) {
        pthread_mutex_lock(&engine->sharing);
        engine->experts = NULL;
        trm_expert_cache_destroy(context->weights.experts, engine->world->device);
        pthread_mutex_unlock(&engine->sharing);
        context->weights.experts = NULL;
    }
}

void trm_context_weights_fini(trm_context *context)
{
    trm_ring_destroy(context->weights.ring);
    if (trm_context_offloads(context)) { /* tasks and fetches of a step that failed */
        (void)trm_stream_synchronize(context->stream);
    }
    trm_cpu_offload_destroy(context->weights.offload, context->engine->world->device);
    drop_experts(context);
}

trm_status trm_context_follow_weights(trm_context *context)
{
    const trm_engine *engine = context->engine;
    if (engine->plan->streaming == NULL || context->weights.places == engine->places.version) {
        return TRM_OK;
    }
    const trm_streaming_plan *streaming = engine->plan->streaming;
    const trm_reader_options files = {.read = trm_streaming_read_piece,
                                      .user = engine->plan,
                                      .row_bytes = streaming->row_bytes,
                                      .threads = TRM_READER_THREADS,
                                      .buffers = TRM_READER_BUFFERS,
                                      .buffer_bytes = TRM_READER_BUFFER_BYTES};
    TRM_TRY(trm_stream_synchronize(context->stream)); /* host tasks of the previous step */
    trm_context_drop_captures(context);
    trm_ring_destroy(context->weights.ring);
    context->weights.ring = NULL;
    trm_cpu_offload_destroy(context->weights.offload, engine->world->device);
    context->weights.offload = NULL;
    drop_experts(context);
    trm_context_drop_shape(context);
    const trm_ring_sharing sharing = {.begins = streaming->part_begin,
                                      .shared = streaming->shared,
                                      .gather = streaming->n_sharers > 1 ? trm_streaming_gather : NULL,
                                      .user = engine->sharers};
    const trm_offload_site site = trm_engine_offload_site(context->engine);
    TRM_TRY(trm_cpu_offload_create(&site, &context->weights.offload));
    TRM_TRY(take_experts(context));
    const trm_residency *const schedules[TRM_COPY_SCHEDULE_COUNT] = {&streaming->residency, &streaming->small};
    TRM_TRY(trm_ring_create(engine->world->device, schedules, trm_streaming_copy_schedules(streaming),
                            streaming->part_bytes, engine->places.stored, &files, &sharing, &context->weights.ring));
    context->weights.places = engine->places.version;
    return TRM_OK;
}

uint64_t trm_context_weight_places(const trm_context *context)
{
    return context->weights.places;
}

bool trm_context_streams_weights(const trm_context *context)
{
    return context->weights.ring != NULL;
}

bool trm_context_offloads(const trm_context *context)
{
    return context->weights.offload != NULL || context->weights.experts != NULL;
}

trm_status trm_context_offload_status(const trm_context *context)
{
    TRM_TRY(trm_cpu_offload_status(context->weights.offload));
    return trm_expert_cache_status(context->weights.experts);
}

/* ---- copy schedules ---------------------------------------------------------------------------- */

void trm_context_choose_schedule(trm_context *context, bool dims_are_known)
{
    const bool is_small = dims_are_known && (trm_cpu_offload_suits(context->weights.offload, context->dims) ||
                                             trm_expert_cache_suits(context->weights.experts, context->dims));
    context->weights.schedule = is_small ? TRM_COPY_SCHEDULE_SMALL : TRM_COPY_SCHEDULE_LARGE;
}

bool trm_context_captures_small(const trm_context *context)
{
    return context->weights.experts != NULL && context->engine->places.pinned &&
           context->engine->plan->streaming->small.n_fetches == 0;
}

int32_t trm_context_schedule(const trm_context *context)
{
    return context->weights.schedule;
}

int32_t trm_context_ran_schedule(const trm_context *context)
{
    return context->weights.ran_schedule;
}

trm_status trm_context_prime_weights(trm_context *context, int32_t schedule)
{
    context->weights.ran_schedule = schedule;
    return context->weights.ring == NULL ? TRM_OK : trm_ring_prime(context->weights.ring, schedule, context->stream);
}

size_t trm_context_streamed(const trm_context *context)
{
    if (context == NULL || context->weights.ring == NULL || !context->has_outputs) {
        return 0;
    }
    /* runs with loops vary and are not captured; others follow the plan */
    const trm_streaming_plan *streaming = context->engine->plan->streaming;
    return trm_inference_regions(context->inference)->n > 0
               ? trm_ring_copied_bytes(context->weights.ring)
               : trm_streaming_copy_schedule(streaming, context->weights.ran_schedule)->link_bytes +
                     (context->weights.ran_schedule == TRM_COPY_SCHEDULE_SMALL ? trm_expert_cache_fetched(streaming)
                                                                               : 0);
}

/* ---- addresses and launches -------------------------------------------------------------------- */

void *trm_context_weight_address(const trm_context *context, int32_t index, int32_t weight, bool *is_constant)
{
    const trm_streaming_plan *streaming = context->engine->plan->streaming;
    const trm_residency *residency = trm_streaming_copy_schedule(streaming, context->weights.schedule);
    const trm_weight_residency *places = &context->engine->places;
    *is_constant = true;
    for (int32_t i = streaming->first_use[index]; i < streaming->first_use[index + 1]; i++) {
        int32_t fetch = residency->use_fetch[i];
        if (streaming->uses[i].weight == weight && fetch >= 0) {
            *is_constant = false; /* it arrives while the step runs */
            return trm_ring_slot(context->weights.ring, context->weights.schedule, fetch);
        }
    }
    return places->resident[weight] != NULL ? places->resident[weight] : places->stored[weight].memory;
}

const trm_kernel *trm_context_offloaded(trm_context *context, int32_t layer)
{
    return context->weights.schedule == TRM_COPY_SCHEDULE_SMALL && context->weights.offload != NULL
               ? trm_cpu_offload_kernel(context->weights.offload, layer, context->dims)
               : NULL;
}

trm_status trm_context_append_offloaded(trm_context *context, int32_t layer, const trm_kernel_call *call,
                                        trm_program *program)
{
    return trm_cpu_offload_prepare(context->weights.offload, layer, call, context->dims, program);
}

void trm_context_redirect_experts(trm_context *context, int32_t layer, trm_kernel_call *call)
{
    if (context->weights.schedule == TRM_COPY_SCHEDULE_SMALL) {
        trm_expert_cache_redirect(context->weights.experts, layer, call);
    }
}

trm_status trm_context_prepare_layer(trm_context *context, int32_t layer, const trm_kernel *kernel,
                                     const trm_kernel_call *call, trm_program *program)
{
    return context->weights.schedule == TRM_COPY_SCHEDULE_SMALL
               ? trm_expert_cache_prepare(context->weights.experts, layer, kernel, call, program)
               : trm_kernel_prepare(kernel, call, program);
}

trm_expert_counts trm_context_expert_counts(const trm_context *context)
{
    return trm_expert_cache_counts(context->weights.experts);
}

/* Arguments of a launch of the ring. */
typedef struct ring_args {
    trm_context_weights *weights;
    int32_t layer, schedule;
    bool waits; /* in the last run */
} ring_args;

static trm_status begin_ring(void *user, trm_stream *stream)
{
    const ring_args *args = user;
    args->weights->ran_schedule = args->schedule;
    return trm_ring_begin(args->weights->ring, args->schedule, stream);
}

static trm_status await_weights(void *user, trm_stream *stream)
{
    ring_args *args = user;
    return trm_ring_before(args->weights->ring, args->layer, stream, &args->waits);
}

static trm_status free_weights(void *user, trm_stream *stream)
{
    const ring_args *args = user;
    return trm_ring_after(args->weights->ring, args->layer, stream);
}

static trm_status end_ring(void *user, trm_stream *stream)
{
    ring_args *args = user;
    return trm_ring_end(args->weights->ring, stream, &args->waits);
}

static trm_status append(trm_context *context, trm_program *program, const char *name,
                         trm_status (*enqueue)(void *, trm_stream *))
{
    if (context->weights.ring == NULL) {
        return TRM_OK;
    }
    ring_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (ring_args){&context->weights, program->layer, context->weights.schedule, false};
    return trm_program_append(program, name, enqueue, args);
}

trm_status trm_context_append_begin_copies(trm_context *context, trm_program *program)
{
    return append(context, program, "begin copies", begin_ring);
}

trm_status trm_context_append_wait(trm_context *context, trm_program *program)
{
    return append(context, program, "wait for weights", await_weights);
}

trm_status trm_context_append_free(trm_context *context, trm_program *program)
{
    return append(context, program, "free weights", free_weights);
}

trm_status trm_context_append_end_copies(trm_context *context, trm_program *program)
{
    return append(context, program, "end copies", end_ring);
}

bool trm_launch_waits_for_weights(const trm_launch *launch, bool *waited)
{
    const bool waits = launch->enqueue == await_weights || launch->enqueue == end_ring;
    *waited = waits && ((const ring_args *)launch->args)->waits;
    return waits;
}

trm_status trm_context_jump_weights(trm_context *context, int32_t layer, int32_t next)
{
    if (context->weights.ring == NULL) {
        return TRM_OK;
    }
    return next <= layer ? trm_ring_repeat(context->weights.ring, next, layer + 1, context->stream)
                         : trm_ring_skip(context->weights.ring, layer + 1, next, context->stream);
}
