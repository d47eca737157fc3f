/*
 * The program of a context: the kernels for the current dims with their addresses, and the list of their launches,
 * including waits for streamed weights, events between streams, and copies to the CPU and back. trm_program_run() runs
 * it; layer times and debug tensors use a loop of their own.
 */
#include "dist/runtime/context.h"

#include "base/error.h"
#include "graph/memory_plan.h"

/* ---- kernels ----------------------------------------------------------------------------------- */

/* Whether nothing runs: the output is its input in place, or was computed on the host. */
static bool is_skipped(const trm_context *context, const trm_layer *layer)
{
    int64_t offset;
    return trm_layer_hands_on(layer) || trm_layer_is_view(layer, context->dims, &offset) ||
           trm_plan_layer_is_on_host(context->engine->plan, layer);
}

/* The address of a streamable weight when layer `index` runs. */
static void *weight_address(const trm_context *context, int32_t index, int32_t weight, bool *is_constant)
{
    const trm_streaming_plan *streaming = context->engine->plan->streaming;
    const trm_residency *residency = trm_streaming_copy_schedule(streaming, context->schedule);
    const trm_weight_residency *places = &context->engine->places;
    *is_constant = true;
    for (int32_t i = streaming->first_use[index]; i < streaming->first_use[index + 1]; i++) {
        int32_t fetch = residency->use_fetch[i];
        if (streaming->uses[i].weight == weight && fetch >= 0) {
            *is_constant = false; /* it arrives while the step runs */
            return trm_ring_slot(context->ring, context->schedule, fetch);
        }
    }
    return places->resident[weight] != NULL ? places->resident[weight] : places->stored[weight].memory;
}

/* Addresses of a layer's inputs, and elements that it needs on the host. */
static void find_inputs(trm_context *context, const trm_layer *layer, trm_kernel_call *call)
{
    uint32_t value_inputs = trm_layer_value_inputs(&layer->desc);
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        int32_t weight = input == NULL ? -1 : trm_streaming_weight(context->engine->plan, input);
        bool is_constant = true;
        if (weight >= 0) {
            call->inputs[i].data = weight_address(context, layer->index, weight, &is_constant);
            call->constants &= is_constant ? ~0u : ~(1u << i);
        } else {
            call->inputs[i].data = input == NULL ? NULL : trm_context_address(context, input);
        }
        if (input != NULL && input->role == TRM_TENSOR_INPUT && trm_context_bound_input(context, input) == NULL) {
            call->constants |= 1u << i; /* uploaded before a run's first kernel starts */
        }
        if (input != NULL && (value_inputs >> i & 1) != 0) {
            call->values[i] = trm_inference_values(context->inference, input);
        }
    }
}

/* Whether no layer and no caller reads the sum of a norm with residual. */
static uint32_t find_unread(const trm_network *network, const trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_NORM || !layer->desc.norm.residual || layer->outputs[1]->is_output) {
        return 0;
    }
    for (int32_t i = layer->index + 1; i < network->n_layers; i++) {
        for (int32_t k = 0; k < network->layers[i]->n_inputs; k++) {
            if (network->layers[i]->inputs[k] == layer->outputs[1]) {
                return 0;
            }
        }
    }
    return 1u << 1;
}

/* Fills in a step except its workspace; raises *workspace to its need. */
static trm_status choose_kernel(trm_context *context, const trm_layer *layer, trm_context_step *step, size_t *workspace)
{
    const trm_plan *plan = context->engine->plan;
    trm_kernel_call *call = &step->call;
    trm_plan_describe_call(layer, context->dims, call);
    find_inputs(context, layer, call);
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        call->outputs[i].data = trm_context_address(context, layer->outputs[i]);
    }
    call->stream = context->stream;
    call->allow_tf32 = plan->allow_tf32;
    call->batch_invariant = plan->batch_invariant;
    call->unread =
        trm_context_shows_layers(context) ? 0 : find_unread(plan->network, layer); /* debug tensors show all outputs */
    call->communicator = context->engine->world->communicator;
    step->kernel = context->schedule == TRM_COPY_SCHEDULE_SMALL
                       ? trm_cpu_offload_kernel(context->offload, layer->index, context->dims)
                       : NULL;
    step->is_offloaded = step->kernel != NULL;
    if (step->is_offloaded) {
        return TRM_OK;
    }
    step->kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, plan->backend, call);
    if (step->kernel == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "layer %s (%s) has no %s kernel for these dims", layer->name,
                 trm_layer_kind_name(layer->desc.kind), trm_backend_name(plan->backend));
    }
    size_t needed = trm_plan_kernel_workspace(plan, step->kernel, call);
    if (needed > plan->workspace_bytes && context->extra == NULL) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "layer %s needs %zu bytes of workspace, the plan has %zu", layer->name, needed,
                 plan->workspace_bytes);
    }
    *workspace = needed > *workspace ? needed : *workspace;
    return TRM_OK;
}

static trm_status choose_kernels(trm_context *context, int32_t begin, int32_t end)
{
    const trm_plan *plan = context->engine->plan;
    unsigned char *workspace = context->workspace;
    size_t size = plan->workspace_bytes, needed = 0;
    for (int32_t i = begin; i < end; i++) {
        const trm_layer *layer = plan->network->layers[i];
        context->steps[i].kernel = NULL;
        context->steps[i].is_offloaded = false;
        if (!trm_plan_layer_is_on_host(plan, layer)) {
            TRM_TRY(choose_kernel(context, layer, &context->steps[i], &needed));
        }
    }
    if (needed > size) {
        TRM_TRY(trm_context_grow(context, &context->workspace2, needed));
        workspace = context->workspace2.memory;
        size = context->workspace2.capacity;
    }
    for (int32_t i = begin; i < end; i++) {
        int32_t stream = plan->streams.n > 0 && plan->streams.of[i] > 0 ? plan->streams.of[i] : 0;
        context->steps[i].call.workspace = workspace + (size_t)stream * size;
        context->steps[i].call.workspace_size = size;
    }
    return TRM_OK;
}

/* ---- launches that are no kernels -------------------------------------------------------------- */

static trm_status record(void *event, trm_stream *stream)
{
    return trm_event_record(event, stream);
}

static trm_status await(void *event, trm_stream *stream)
{
    return trm_stream_wait_event(stream, event);
}

/* Appends the ring's launches of a layer. */
typedef struct ring_args {
    trm_ring *ring;
    int32_t layer, schedule;
    bool waits; /* in the last run */
} ring_args;

static trm_status begin_ring(void *user, trm_stream *stream)
{
    const ring_args *args = user;
    return trm_ring_begin(args->ring, args->schedule, stream);
}

static trm_status await_weights(void *user, trm_stream *stream)
{
    ring_args *args = user;
    return trm_ring_before(args->ring, args->layer, stream, &args->waits);
}

static trm_status free_weights(void *user, trm_stream *stream)
{
    const ring_args *args = user;
    return trm_ring_after(args->ring, args->layer, stream);
}

static trm_status end_ring(void *user, trm_stream *stream)
{
    ring_args *args = user;
    return trm_ring_end(args->ring, stream, &args->waits);
}

static trm_status append_ring(trm_context *context, const char *name, trm_status (*enqueue)(void *, trm_stream *))
{
    trm_program *program = &context->program;
    ring_args *args = context->ring == NULL ? NULL : trm_program_alloc(program, sizeof(*args));
    if (context->ring == NULL) {
        return TRM_OK;
    }
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (ring_args){context->ring, program->layer, context->schedule, false};
    return trm_program_append(program, name, enqueue, args);
}

/* ---- the list ---------------------------------------------------------------------------------- */

/* Whether branches use streams of their own: not while kernels are timed or weights stream. */
static bool has_branches(const trm_context *context)
{
    return context->engine->plan->streams.n > 0 && context->ring == NULL && context->tuning == NULL;
}

static trm_stream *stream_of(const trm_context *context, int32_t layer)
{
    const int32_t stream = has_branches(context) ? context->engine->plan->streams.of[layer] : 0;
    return stream > 0 ? context->aux[stream - 1] : context->stream;
}

/* Appends the launches before the first layer. */
static trm_status append_begin(trm_context *context, int32_t begin)
{
    const trm_streams *streams = &context->engine->plan->streams;
    trm_program *program = &context->program;
    trm_program_clear(program);
    program->layer = begin - 1;
    program->stream = context->stream;
    if (has_branches(context)) {
        TRM_TRY(trm_program_append(program, "fork", record, context->begun));
        for (int32_t s = 0; s < streams->n; s++) {
            program->stream = context->aux[s];
            TRM_TRY(trm_program_append(program, "fork", await, context->begun));
        }
        program->stream = context->stream;
    }
    return begin == 0 ? append_ring(context, "begin copies", begin_ring) : TRM_OK;
}

static trm_status append_waits(trm_context *context, int32_t layer)
{
    const trm_streams *streams = &context->engine->plan->streams;
    trm_program *program = &context->program;
    program->layer = layer;
    program->stream = stream_of(context, layer);
    for (int32_t i = has_branches(context) ? streams->first_wait[layer] : 0;
         has_branches(context) && i < streams->first_wait[layer + 1]; i++) {
        TRM_TRY(trm_program_append(program, "wait", await, context->layer_done[streams->waits[i]]));
    }
    return append_ring(context, "wait for weights", await_weights);
}

static trm_status append_layer(trm_context *context, int32_t index)
{
    trm_context_step *step = &context->steps[index];
    trm_program *program = &context->program;
    trm_status status = TRM_OK;
    step->first = program->n;
    if (step->is_offloaded) {
        status = trm_cpu_offload_prepare(context->offload, index, &step->call, context->dims, program);
    } else if (!is_skipped(context, context->engine->plan->network->layers[index])) {
        status = trm_kernel_prepare(step->kernel, &step->call, program);
    }
    step->n = program->n - step->first;
    return status == TRM_OK ? TRM_OK
                            : trm_fail_in(status, "layer %s (%s)", context->engine->plan->network->layers[index]->name,
                                          step->kernel->name);
}

static trm_status append_layer_end(trm_context *context, int32_t layer)
{
    trm_event *done = has_branches(context) ? context->layer_done[layer] : NULL;
    TRM_TRY(done == NULL ? TRM_OK : trm_program_append(&context->program, "done", record, done));
    return append_ring(context, "free weights", free_weights);
}

static trm_status append_end(trm_context *context, int32_t end, bool last)
{
    const trm_streams *streams = &context->engine->plan->streams;
    trm_program *program = &context->program;
    program->layer = end;
    program->stream = context->stream;
    for (int32_t s = 1; has_branches(context) && s <= streams->n; s++) {
        if (streams->joins[s]) {
            TRM_TRY(trm_program_append(program, "join", await, context->layer_done[streams->tails[s]]));
        }
    }
    return last ? append_ring(context, "end copies", end_ring) : TRM_OK;
}

static trm_status append_all(trm_context *context, int32_t begin, int32_t end, bool last)
{
    TRM_TRY(choose_kernels(context, begin, end));
    TRM_TRY(append_begin(context, begin));
    for (int32_t i = begin; i < end; i++) {
        TRM_TRY(append_waits(context, i));
        TRM_TRY(append_layer(context, i));
        TRM_TRY(append_layer_end(context, i));
    }
    return append_end(context, end, last);
}

trm_status trm_context_prepare_program(trm_context *context, int32_t begin, int32_t end, bool last)
{
    TRM_TRY(append_all(context, begin, end, last));
    return trm_context_plan_ahead(context);
}

trm_status trm_context_reserve_program(trm_context *context)
{
    trm_program *program = &context->program;
    if (context->extra != NULL) {
        return TRM_OK;
    }
    const trm_status status = append_all(context, 0, context->engine->plan->network->n_layers, true);
    const bool reserved = status == TRM_OK && trm_program_alloc(program, program->arena.used / 4) != NULL;
    trm_program_clear(program);
    return reserved || (status != TRM_OK && status != TRM_ERROR_OUT_OF_MEMORY) ? TRM_OK : TRM_ERROR_OUT_OF_MEMORY;
}

/* ---- running ----------------------------------------------------------------------------------- */

/* Reports the failure of launch number `at`. */
static trm_status fail_at(const trm_context *context, int32_t at, trm_status status)
{
    const trm_network *network = context->engine->plan->network;
    const trm_launch *launch = &context->program.launches[at];
    const trm_context_step *step =
        launch->layer >= 0 && launch->layer < network->n_layers ? &context->steps[launch->layer] : NULL;
    return step != NULL && at >= step->first && at < step->first + step->n
               ? trm_fail_in(status, "layer %s (%s)", network->layers[launch->layer]->name, launch->name)
               : status;
}

static trm_status run_range(const trm_context *context, int32_t begin, int32_t end)
{
    int32_t at;
    const trm_status status = trm_program_run(&context->program, begin, end, &at);
    return status == TRM_OK ? TRM_OK : fail_at(context, at, status);
}

trm_status trm_context_run_layer(const trm_context *context, int32_t index, trm_stream *stream)
{
    const trm_context_step *step = &context->steps[index];
    int32_t at;
    const trm_status status = trm_program_run_on(&context->program, step->first, step->first + step->n, stream, &at);
    return status == TRM_OK ? TRM_OK : fail_at(context, at, status);
}

/* Tunes each kernel once all before it have run, and runs it. */
static trm_status run_tuned(trm_context *context, int32_t begin, int32_t end, bool last)
{
    trm_program *program = &context->program;
    TRM_TRY(append_begin(context, begin));
    int32_t ran = 0;
    for (int32_t i = begin; i < end; i++) {
        TRM_TRY(append_waits(context, i));
        TRM_TRY(run_range(context, ran, program->n));
        ran = program->n;
        TRM_TRY(context->steps[i].is_offloaded ? TRM_OK : trm_context_tune_step(context, i));
        TRM_TRY(append_layer(context, i));
        TRM_TRY(append_layer_end(context, i));
    }
    TRM_TRY(append_end(context, end, last));
    return run_range(context, ran, program->n);
}

/* Runs the launches of a layer on one stream; *at is their begin, and then their end. */
static trm_status run_watched_layer(trm_context *context, int32_t layer, int32_t *at)
{
    const trm_program *program = &context->program;
    for (; *at < program->n && program->launches[*at].layer == layer; ++*at) {
        const trm_launch *launch = &program->launches[*at];
        const trm_status status = launch->enqueue(launch->args, context->stream);
        TRM_TRY(status == TRM_OK ? TRM_OK : fail_at(context, *at, status));
        if (launch->enqueue == await_weights || launch->enqueue == end_ring) {
            TRM_TRY(trm_context_mark_arrival(context, layer, ((const ring_args *)launch->args)->waits));
        }
    }
    return TRM_OK;
}

/* With layer times or debug tensors. `uncounted`: a layer whose number of entries is not known yet, or -1. */
static trm_status run_watched(trm_context *context, int32_t begin, int32_t end, bool last, int32_t uncounted)
{
    int32_t at = 0;
    TRM_TRY(run_watched_layer(context, begin - 1, &at));
    for (int32_t i = begin; i < end; i++) {
        TRM_TRY(trm_context_mark(context, i));
        TRM_TRY(run_watched_layer(context, i, &at));
        TRM_TRY(i != uncounted ? trm_context_show_layer(context, i) : TRM_OK);
    }
    TRM_TRY(last ? trm_context_mark(context, end) : TRM_OK);
    return run_watched_layer(context, end, &at);
}

trm_status trm_context_run_program(trm_context *context, int32_t begin, int32_t end, bool last, int32_t uncounted)
{
    context->ran_schedule = context->schedule;
    if (context->tuning != NULL) {
        TRM_TRY(run_tuned(context, begin, end, last));
        struct trm_tuning *tuning = context->tuning;
        context->tuning = NULL; /* launches prepared now are for later runs */
        const trm_status status = trm_context_prepare_program(context, begin, end, last);
        context->tuning = tuning;
        return status;
    }
    return trm_context_is_profiling(context) || trm_context_shows_layers(context)
               ? run_watched(context, begin, end, last, uncounted)
               : run_range(context, 0, context->program.n);
}
