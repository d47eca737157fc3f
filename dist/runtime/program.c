/*
 * The program of a context: the kernels for the current dims with their addresses, and the list of their launches,
 * including waits for streamed weights, events between streams, and copies to the CPU and back. trm_program_run() runs
 * it; layer times and debug tensors use a loop of their own.
 */
#include "dist/runtime/context.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/ranges.h"
#include "graph/memory_plan.h"

static trm_status open_streams(trm_context *context)
{
    const trm_plan *plan = context->engine->plan;
    const trm_streams *streams = &plan->streams;
    trm_device *device = context->engine->world->device;
    if (streams->n == 0) {
        return TRM_OK;
    }
    context->program.layer_done = calloc((size_t)plan->network->n_layers + 1, sizeof(*context->program.layer_done));
    if (context->program.layer_done == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the events of %d layers", plan->network->n_layers);
    }
    TRM_TRY(trm_event_create(device, &context->program.begun));
    for (int32_t s = 0; s < streams->n; s++) {
        TRM_TRY(trm_stream_create(device, &context->program.aux[s]));
    }
    for (int32_t i = 0; i < plan->network->n_layers; i++) {
        bool is_tail = streams->of[i] > 0 && streams->tails[streams->of[i]] == i;
        if (streams->is_awaited[i] || is_tail) {
            TRM_TRY(trm_event_create(device, &context->program.layer_done[i]));
        }
    }
    return TRM_OK;
}

trm_status trm_context_program_init(trm_context *context)
{
    const int32_t n = context->engine->plan->network->n_layers;
    context->program.steps = calloc((size_t)n + 1, sizeof(*context->program.steps));
    if (context->program.steps == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the program of %d layers", n);
    }
    return open_streams(context);
}

void trm_context_program_fini(trm_context *context)
{
    for (int32_t i = 0; context->program.layer_done != NULL && i < context->engine->plan->network->n_layers; i++) {
        trm_event_destroy(context->program.layer_done[i]);
    }
    for (int32_t s = 0; s < TRM_MAX_AUX_STREAMS; s++) {
        trm_stream_destroy(context->program.aux[s]);
    }
    trm_event_destroy(context->program.begun);
    free(context->program.layer_done);
    free(context->program.steps);
    free(context->program.to_plan);
    trm_program_fini(&context->program.list);
}

bool trm_context_is_launched(const trm_context *context, int32_t layer)
{
    return context->program.steps[layer].n > 0;
}

const trm_kernel *trm_context_kernel(const trm_context *context, int32_t layer)
{
    return context->program.steps[layer].kernel;
}

const trm_kernel_call *trm_context_call(const trm_context *context, int32_t layer)
{
    return &context->program.steps[layer].call;
}

const trm_program *trm_context_launches(const trm_context *context)
{
    return &context->program.list;
}

int32_t trm_context_stream_number(const trm_context *context, const trm_stream *stream)
{
    int32_t s = 0;
    while (s < context->engine->plan->streams.n && context->program.aux[s] != stream) {
        s++;
    }
    return s < context->engine->plan->streams.n ? s + 1 : 0;
}

/* ---- kernels ----------------------------------------------------------------------------------- */

/* Whether nothing runs: the output is its input in place, or was computed on the host. */
static bool is_skipped(const trm_context *context, const trm_layer *layer)
{
    int64_t offset;
    return trm_layer_hands_on(layer) || trm_layer_is_view(layer, context->dims, &offset) ||
           trm_plan_layer_is_on_host(context->engine->plan, layer);
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
            call->inputs[i].data = trm_context_weight_address(context, layer->index, weight, &is_constant);
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
static trm_status choose_kernel(trm_context *context, const trm_layer *layer, trm_program_step *step, size_t *workspace)
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
    trm_context_redirect_experts(context, layer->index, call);
    step->kernel = trm_context_offloaded(context, layer->index);
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
    if (needed > plan->workspace_bytes && !trm_context_may_grow(context)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "layer %s needs %zu bytes of workspace, the plan has %zu", layer->name, needed,
                 plan->workspace_bytes);
    }
    *workspace = needed > *workspace ? needed : *workspace;
    return TRM_OK;
}

static trm_status choose_kernels(trm_context *context, int32_t begin, int32_t end)
{
    const trm_plan *plan = context->engine->plan;
    unsigned char *workspace;
    size_t size, needed = 0;
    for (int32_t i = begin; i < end; i++) {
        const trm_layer *layer = plan->network->layers[i];
        context->program.steps[i].kernel = NULL;
        context->program.steps[i].is_offloaded = false;
        if (!trm_plan_layer_is_on_host(plan, layer)) {
            TRM_TRY(choose_kernel(context, layer, &context->program.steps[i], &needed));
        }
    }
    TRM_TRY(trm_context_find_workspace(context, needed, &workspace, &size));
    for (int32_t i = begin; i < end; i++) {
        int32_t stream = plan->streams.n > 0 && plan->streams.of[i] > 0 ? plan->streams.of[i] : 0;
        context->program.steps[i].call.workspace = workspace + (size_t)stream * size;
        context->program.steps[i].call.workspace_size = size;
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

/* ---- the list ---------------------------------------------------------------------------------- */

/* Whether branches use streams of their own: not while kernels are timed or weights stream. */
static bool has_branches(const trm_context *context)
{
    return context->engine->plan->streams.n > 0 && !trm_context_streams_weights(context) &&
           !trm_context_is_tuning(context);
}

static trm_stream *stream_of(const trm_context *context, int32_t layer)
{
    const int32_t stream = has_branches(context) ? context->engine->plan->streams.of[layer] : 0;
    return stream > 0 ? context->program.aux[stream - 1] : context->stream;
}

/* Appends the launches before the first layer. */
static trm_status append_begin(trm_context *context, int32_t begin)
{
    const trm_streams *streams = &context->engine->plan->streams;
    trm_program *program = &context->program.list;
    trm_program_clear(program);
    program->layer = begin - 1;
    program->stream = context->stream;
    if (has_branches(context)) {
        TRM_TRY(trm_program_append(program, "fork", record, context->program.begun));
        for (int32_t s = 0; s < streams->n; s++) {
            program->stream = context->program.aux[s];
            TRM_TRY(trm_program_append(program, "fork", await, context->program.begun));
        }
        program->stream = context->stream;
    }
    return begin == 0 ? trm_context_append_begin_copies(context, program) : TRM_OK;
}

static trm_status append_waits(trm_context *context, int32_t layer)
{
    const trm_streams *streams = &context->engine->plan->streams;
    trm_program *program = &context->program.list;
    program->layer = layer;
    program->stream = stream_of(context, layer);
    for (int32_t i = has_branches(context) ? streams->first_wait[layer] : 0;
         has_branches(context) && i < streams->first_wait[layer + 1]; i++) {
        TRM_TRY(trm_program_append(program, "wait", await, context->program.layer_done[streams->waits[i]]));
    }
    return trm_context_append_wait(context, program);
}

static trm_status append_layer(trm_context *context, int32_t index)
{
    trm_program_step *step = &context->program.steps[index];
    trm_program *program = &context->program.list;
    trm_status status = TRM_OK;
    step->first = program->n;
    if (step->is_offloaded) {
        status = trm_context_append_offloaded(context, index, &step->call, program);
    } else if (!is_skipped(context, context->engine->plan->network->layers[index])) {
        status = trm_context_prepare_layer(context, index, step->kernel, &step->call, program);
    }
    step->n = program->n - step->first;
    return status == TRM_OK ? TRM_OK
                            : trm_fail_in(status, "layer %s (%s)", context->engine->plan->network->layers[index]->name,
                                          step->kernel->name);
}

static trm_status append_layer_end(trm_context *context, int32_t layer)
{
    trm_event *done = has_branches(context) ? context->program.layer_done[layer] : NULL;
    TRM_TRY(done == NULL ? TRM_OK : trm_program_append(&context->program.list, "done", record, done));
    return trm_context_append_free(context, &context->program.list);
}

static trm_status append_end(trm_context *context, int32_t end, bool last)
{
    const trm_streams *streams = &context->engine->plan->streams;
    trm_program *program = &context->program.list;
    program->layer = end;
    program->stream = context->stream;
    for (int32_t s = 1; has_branches(context) && s <= streams->n; s++) {
        if (streams->joins[s]) {
            TRM_TRY(trm_program_append(program, "join", await, context->program.layer_done[streams->tails[s]]));
        }
    }
    return last ? trm_context_append_end_copies(context, program) : TRM_OK;
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

/* ---- preparing in parallel --------------------------------------------------------------------- */

typedef struct planning {
    const trm_program *program;
    int32_t *launches; /* [n] launches with something to prepare */
    int32_t n;
    pthread_mutex_t mutex;
    int32_t failed; /* the first launch that failed, or the number of launches */
    trm_held_error failure;
} planning;

static void plan_range(void *user, int64_t begin, int64_t end)
{
    planning *p = user;
    for (int64_t i = begin; i < end; i++) {
        trm_launch *launch = &p->program->launches[p->launches[i]];
        const trm_status status = launch->plan(launch->args, launch->stream);
        if (status == TRM_OK) {
            launch->plan = NULL;
            continue;
        }
        pthread_mutex_lock(&p->mutex);
        if (p->launches[i] < p->failed) { /* the same error whichever thread is first */
            p->failed = p->launches[i];
            trm_error_hold(status, &p->failure);
        }
        pthread_mutex_unlock(&p->mutex);
    }
}

/* The engine's threads, created when first needed; NULL if that fails: one thread then prepares. */
static trm_pool *find_planners(trm_engine *engine)
{
    pthread_mutex_lock(&engine->planning);
    if (engine->planners == NULL && trm_pool_create(trm_world_threads(engine->world), &engine->planners) != TRM_OK) {
        TRM_WARN("preparing kernels on one thread: %s", trm_last_error());
        engine->planners = NULL;
    }
    trm_pool *planners = engine->planners;
    pthread_mutex_unlock(&engine->planning);
    return planners;
}

static trm_status reserve_plans(trm_context *context, int32_t n)
{
    if (n > context->program.to_plan_capacity) {
        int32_t *larger = realloc(context->program.to_plan, (size_t)n * sizeof(*larger));
        if (larger == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d launches", n);
        }
        context->program.to_plan = larger;
        context->program.to_plan_capacity = n;
    }
    return TRM_OK;
}

/* Prepares kernels that ask a library for an engine (cuDNN) or an algorithm (cuBLASLt) before their first launch, for
 * all layers in parallel, on the rank's CPUs, instead of one by one as layers are enqueued. */
static trm_status plan_ahead(trm_context *context)
{
    const trm_program *program = &context->program.list;
    planning p = {.program = program, .mutex = PTHREAD_MUTEX_INITIALIZER, .failed = program->n};
    int32_t first = 0;
    while (first < program->n && program->launches[first].plan == NULL) {
        first++;
    }
    if (first == program->n || trm_context_is_tuning(context)) { /* tuning prepares what it times */
        return TRM_OK;
    }
    TRM_TRY(reserve_plans(context, program->n));
    p.launches = context->program.to_plan;
    for (int32_t i = first; i < program->n; i++) {
        if (program->launches[i].plan != NULL) {
            p.launches[p.n++] = i;
        }
    }
    trm_pool_for(p.n > 1 ? find_planners(context->engine) : NULL, p.n, 1, plan_range, &p);
    if (p.failure.status == TRM_OK) {
        return TRM_OK;
    }
    const trm_launch *failed = &program->launches[p.failed];
    return trm_fail(p.failure.status, "layer %s (%s): %s", context->engine->plan->network->layers[failed->layer]->name,
                    failed->name, p.failure.cause);
}

trm_status trm_context_prepare_program(trm_context *context, int32_t begin, int32_t end, bool last)
{
    TRM_TRY(append_all(context, begin, end, last));
    return plan_ahead(context);
}

trm_status trm_context_reserve_program(trm_context *context)
{
    trm_program *program = &context->program.list;
    if (trm_context_may_grow(context)) {
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
    const trm_launch *launch = &context->program.list.launches[at];
    const trm_program_step *step =
        launch->layer >= 0 && launch->layer < network->n_layers ? &context->program.steps[launch->layer] : NULL;
    return step != NULL && at >= step->first && at < step->first + step->n
               ? trm_fail_in(status, "layer %s (%s)", network->layers[launch->layer]->name, launch->name)
               : status;
}

static trm_status run_range(const trm_context *context, int32_t begin, int32_t end)
{
    int32_t at;
    const trm_status status = trm_program_run(&context->program.list, begin, end, &at);
    return status == TRM_OK ? TRM_OK : fail_at(context, at, status);
}

/* Of launches: before the first layer, of a layer, or behind the last. */
static const char *range_name(const trm_context *context, int32_t layer)
{
    const trm_network *network = context->engine->plan->network;
    return layer < 0 ? "begin" : layer < network->n_layers ? network->layers[layer]->name : "end";
}

/* Enqueues all launches, those of a layer within a range of its name. */
static trm_status run_in_ranges(const trm_context *context)
{
    const trm_program *program = &context->program.list;
    for (int32_t at = 0, end = 0; at < program->n; at = end) {
        while (end < program->n && program->launches[end].layer == program->launches[at].layer) {
            end++;
        }
        trm_range_begin(range_name(context, program->launches[at].layer));
        const trm_status status = run_range(context, at, end);
        trm_range_end();
        TRM_TRY(status);
    }
    return TRM_OK;
}

trm_status trm_context_run_layer(const trm_context *context, int32_t index, trm_stream *stream)
{
    const trm_program_step *step = &context->program.steps[index];
    int32_t at;
    trm_range_begin(range_name(context, index));
    const trm_status status =
        trm_program_run_on(&context->program.list, step->first, step->first + step->n, stream, &at);
    trm_range_end();
    return status == TRM_OK ? TRM_OK : fail_at(context, at, status);
}

/* Tunes each kernel once all before it have run, and runs it. */
static trm_status run_tuned(trm_context *context, int32_t begin, int32_t end, bool last)
{
    trm_program *program = &context->program.list;
    TRM_TRY(append_begin(context, begin));
    int32_t ran = 0;
    for (int32_t i = begin; i < end; i++) {
        TRM_TRY(append_waits(context, i));
        TRM_TRY(run_range(context, ran, program->n));
        ran = program->n;
        TRM_TRY(trm_context_begin_choice(context, i, program));
        TRM_TRY(append_layer(context, i));
        trm_context_end_choice(context, i, program);
        TRM_TRY(append_layer_end(context, i));
    }
    TRM_TRY(append_end(context, end, last));
    return run_range(context, ran, program->n);
}

/* Runs the launches of a layer on one stream; *at is their begin, and then their end. */
static trm_status run_watched_layer(trm_context *context, int32_t layer, int32_t *at)
{
    const trm_program *program = &context->program.list;
    for (; *at < program->n && program->launches[*at].layer == layer; ++*at) {
        const trm_launch *launch = &program->launches[*at];
        const trm_status status = launch->enqueue(launch->args, context->stream);
        TRM_TRY(status == TRM_OK ? TRM_OK : fail_at(context, *at, status));
        bool waited;
        if (trm_launch_waits_for_weights(launch, &waited)) {
            TRM_TRY(trm_context_mark_arrival(context, layer, waited));
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
        trm_range_begin(range_name(context, i));
        const trm_status status = run_watched_layer(context, i, &at);
        trm_range_end();
        TRM_TRY(status);
        TRM_TRY(i != uncounted ? trm_context_show_layer(context, i) : TRM_OK);
    }
    TRM_TRY(last ? trm_context_mark(context, end) : TRM_OK);
    return run_watched_layer(context, end, &at);
}

trm_status trm_context_run_program(trm_context *context, int32_t begin, int32_t end, bool last, int32_t uncounted)
{
    if (trm_context_is_tuning(context)) {
        TRM_TRY(run_tuned(context, begin, end, last));
        trm_context_pause_tuning(context, true); /* launches prepared now are for later runs */
        const trm_status status = trm_context_prepare_program(context, begin, end, last);
        trm_context_pause_tuning(context, false);
        return status;
    }
    return trm_context_is_watched(context) ? run_watched(context, begin, end, last, uncounted)
           : trm_ranges_are_on()           ? run_in_ranges(context)
                                           : run_range(context, 0, context->program.list.n);
}
