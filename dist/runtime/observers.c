/* What watches runs of a context: the clock of their parts, the times of their layers, and debug tensors. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/recorder.h"
#include "dist/runtime/context.h"

/* ---- the clock of a run ------------------------------------------------------------------------ */

static void drop_clock(trm_observers *self)
{
    for (int32_t i = 0; i < TRM_CLOCK_COUNT; i++) {
        trm_event_destroy(self->clock[i]);
        self->clock[i] = NULL;
    }
    self->is_clocked = false;
}

TRM_CALL(trm_context_recorder(context), trm_context_set_timing, (trm_context *context, bool on), (context, on))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot time runs: context is NULL");
    }
    trm_observers *self = &context->observers;
    drop_clock(self);
    trm_status status = TRM_OK;
    for (int32_t i = 0; on && i < TRM_CLOCK_COUNT && status == TRM_OK; i++) {
        status = trm_event_create(context->engine->world->device, &self->clock[i]);
    }
    if (status != TRM_OK) {
        drop_clock(self);
    }
    return status;
}

trm_status trm_context_note(trm_context *context, int32_t moment)
{
    trm_observers *self = &context->observers;
    if (self->clock[moment] == NULL || trm_stream_is_capturing(context->stream)) {
        return TRM_OK;
    }
    if (moment == TRM_CLOCK_BEGIN) {
        self->is_clocked = false;
        self->enqueue_began = trm_clock_seconds();
        TRM_TRY(trm_event_record(self->clock[TRM_CLOCK_BEGIN], context->stream));
        return trm_event_record(self->clock[TRM_CLOCK_UPLOADED],
                                context->stream); /* recorded again if anything is copied */
    }
    TRM_TRY(trm_event_record(self->clock[moment], context->stream));
    if (moment == TRM_CLOCK_DONE) {
        self->enqueue_seconds = trm_clock_seconds() - self->enqueue_began;
        self->is_clocked = true;
    }
    return TRM_OK;
}

TRM_CALL(trm_context_recorder(context), trm_context_times, (const trm_context *context, trm_run_times *times),
         (context, times))
{
    if (context == NULL || times == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read times: context or times is NULL");
    }
    const trm_observers *self = &context->observers;
    if (!self->is_clocked || !context->has_outputs) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "no times: no run has been timed");
    }
    float spans[TRM_CLOCK_COUNT - 1];
    for (int32_t i = 0; i + 1 < TRM_CLOCK_COUNT; i++) {
        TRM_TRY(trm_event_elapsed_ms(self->clock[i], self->clock[i + 1], &spans[i]));
    }
    *times = (trm_run_times){(double)spans[0], (double)spans[1], (double)spans[2], self->enqueue_seconds * 1e3};
    return TRM_OK;
}

/* ---- layer times ------------------------------------------------------------------------------- */

static int32_t layers_of(const trm_context *context)
{
    return context->engine->plan->network->n_layers;
}

bool trm_context_is_profiling(const trm_context *context)
{
    return context->observers.is_profiling;
}

static void drop_layers(trm_context *context)
{
    trm_observers *self = &context->observers;
    for (int32_t i = 0; self->layers != NULL && i <= layers_of(context); i++) {
        trm_event_destroy(self->layers[i].begun);
        trm_event_destroy(self->layers[i].arrived);
    }
    free(self->layers);
    self->layers = NULL;
    self->is_profiling = false;
}

trm_status trm_context_prepare_sample(trm_context *context)
{
    trm_observers *self = &context->observers;
    trm_device *device = context->engine->world->device;
    const int32_t n = layers_of(context);
    if (self->layers != NULL) {
        return TRM_OK;
    }
    self->layers = calloc((size_t)n + 1, sizeof(*self->layers));
    if (self->layers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the profile of %d layers", n);
    }
    trm_status status = TRM_OK;
    for (int32_t i = 0; i <= n && status == TRM_OK; i++) {
        status = trm_event_create(device, &self->layers[i].begun);
        if (status == TRM_OK && context->engine->plan->streaming != NULL) {
            status = trm_event_create(device, &self->layers[i].arrived);
        }
    }
    if (status != TRM_OK) {
        drop_layers(context);
    }
    return status;
}

bool trm_context_begin_sample(trm_context *context)
{
    trm_observers *self = &context->observers;
    if (self->layers == NULL || self->is_profiling) {
        return false;
    }
    for (int32_t i = 0; i <= layers_of(context); i++) {
        self->layers[i].milliseconds = self->layers[i].stall = 0;
        self->layers[i].waited = false;
    }
    self->is_profiling = true;
    return true;
}

void trm_context_end_sample(trm_context *context)
{
    context->observers.is_profiling = false;
    context->observers.profiled_runs = 0;
}

void trm_context_sum_sample(const trm_context *context, double *layers, double *collectives)
{
    *layers = *collectives = 0;
    for (int32_t i = 0; i < layers_of(context); i++) {
        trm_layer_kind kind = context->engine->plan->network->layers[i]->desc.kind;
        double seconds = context->observers.layers[i].milliseconds * 1e-3;
        *layers += seconds;
        *collectives += kind == TRM_LAYER_DIST_COLLECTIVE || kind == TRM_LAYER_ALL_REDUCE_NORM ? seconds : 0;
    }
}

bool trm_context_sample_stalls(const trm_context *context, trm_stall_fn fn, void *user)
{
    const trm_watched_layer *layers = context->observers.layers;
    const bool may_wait = layers != NULL && context->engine->plan->streaming != NULL;
    const int32_t end = layers_of(context);
    for (int32_t i = 0; may_wait && fn != NULL && i <= end; i++) {
        if (layers[i].waited) {
            fn(user, i == end ? TRM_NEXT_STEP : context->engine->plan->network->layers[i]->name,
               layers[i].stall * 1e-3);
        }
    }
    return may_wait;
}

TRM_CALL(trm_context_recorder(context), trm_context_set_layer_timing, (trm_context *context, bool on), (context, on))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot profile: context is NULL");
    }
    drop_layers(context);
    context->observers.profiled_runs = 0;
    TRM_TRY(on ? trm_context_prepare_sample(context) : TRM_OK);
    context->observers.is_profiling = on;
    return TRM_OK;
}

trm_status trm_context_mark(trm_context *context, int32_t layer)
{
    if (!context->observers.is_profiling || trm_stream_is_capturing(context->stream)) {
        return TRM_OK;
    }
    context->observers.layers[layer].waited = false;
    return trm_event_record(context->observers.layers[layer].begun, context->stream);
}

trm_status trm_context_mark_arrival(trm_context *context, int32_t layer, bool waited)
{
    if (!context->observers.is_profiling || !waited || trm_stream_is_capturing(context->stream)) {
        return TRM_OK;
    }
    context->observers.layers[layer].waited = true;
    return trm_event_record(context->observers.layers[layer].arrived, context->stream);
}

trm_status trm_context_collect_profile(trm_context *context)
{
    trm_observers *self = &context->observers;
    for (int32_t i = 0; i <= layers_of(context); i++) {
        trm_watched_layer *layer = &self->layers[i];
        float milliseconds;
        if (layer->waited) {
            TRM_TRY(trm_event_elapsed_ms(layer->begun, layer->arrived, &milliseconds));
            layer->stall += (double)milliseconds;
        }
        if (i < layers_of(context)) {
            TRM_TRY(trm_event_elapsed_ms(layer->waited ? layer->arrived : layer->begun, layer[1].begun, &milliseconds));
            layer->milliseconds += (double)milliseconds;
        }
    }
    self->profiled_runs++;
    return TRM_OK;
}

void trm_context_layer_times(trm_context *context, trm_layer_time_fn fn, void *user)
{
    const trm_network *network = context->engine->plan->network;
    const trm_observers *self = &context->observers;
    const double runs = (double)self->profiled_runs;
    const int32_t end = self->is_profiling && self->profiled_runs > 0 && network->n_layers > 0 ? network->n_layers : -1;
    for (int32_t i = 0; i <= end; i++) {
        const trm_layer *layer = network->layers[i < end ? i : end - 1];
        const char *name = i < end ? layer->name : TRM_NEXT_STEP;
        const trm_watched_layer *watched = &self->layers[i];
        if (watched->waited) {
            fn(user, name, layer->desc.kind, TRM_KERNEL_WAIT, watched->stall / runs, self->profiled_runs);
        }
        if (i < end) {
            const trm_kernel *kernel = trm_context_kernel(context, i);
            fn(user, name, layer->desc.kind, kernel == NULL ? "" : kernel->name, watched->milliseconds / runs,
               self->profiled_runs);
        }
    }
}

/* ---- the timeline ------------------------------------------------------------------------------ */

typedef struct row_name {
    char text[64];
} row_name;

/* The name of a row of this context, to which its number belongs unless it is the first. */
static row_name name_row(trm_context *context, const char *name)
{
    static atomic_int contexts;
    row_name row;
    trm_observers *self = &context->observers;
    if (self->trace_number == 0) {
        self->trace_number = atomic_fetch_add(&contexts, 1) + 1;
    }
    if (self->trace_number == 1) {
        snprintf(row.text, sizeof(row.text), "%s", name);
    } else {
        snprintf(row.text, sizeof(row.text), "%s %d", name, (int)self->trace_number);
    }
    return row;
}

static trm_status trace_layer(const trm_context *context, int32_t index, trm_event *began, double begin, int32_t row)
{
    const trm_layer *layer = context->engine->plan->network->layers[index];
    const trm_watched_layer *watched = &context->observers.layers[index];
    const trm_kernel *kernel = trm_context_kernel(context, index);
    const bool exchanges =
        layer->desc.kind == TRM_LAYER_DIST_COLLECTIVE || layer->desc.kind == TRM_LAYER_ALL_REDUCE_NORM;
    const trm_trace_value values[] = {{.key = "kernel", .text = kernel == NULL ? "" : kernel->name},
                                      {.key = "kind", .text = trm_layer_kind_name(layer->desc.kind)}};
    trm_trace_span span = {.category = "wait", .name = layer->name, .row = row, .values = values, .n_values = 2};
    float from, arrived, to;
    TRM_TRY(trm_event_elapsed_ms(began, watched->begun, &from));
    TRM_TRY(trm_event_elapsed_ms(began, watched[1].begun, &to));
    if (watched->waited) {
        TRM_TRY(trm_event_elapsed_ms(began, watched->arrived, &arrived));
        span.begin = trm_trace_after(row, begin + (double)from * 1e-3);
        span.seconds = begin + (double)arrived * 1e-3 - span.begin;
        trm_trace_add(&span);
        from = arrived;
    }
    span.category = exchanges ? "exchange" : "layer";
    span.begin = trm_trace_after(row, begin + (double)from * 1e-3);
    span.seconds = begin + (double)to * 1e-3 - span.begin;
    if (from >= 0 && to >= from) { /* not of a layer in a branch that this run did not take */
        trm_trace_add(&span);
    }
    return TRM_OK;
}

static const char *weight_name(void *user, int32_t weight)
{
    const trm_context *context = user;
    return context->engine->plan->streaming->tensors[weight]->name;
}

trm_status trm_context_trace_run(trm_context *context, const trm_traced_run *run)
{
    const double now = trm_clock_seconds();
    const int32_t row = trm_trace_row(name_row(context, run->row).text);
    float milliseconds;
    TRM_TRY(trm_event_elapsed_ms(run->began, run->ended, &milliseconds));
    const double seconds = (double)milliseconds * 1e-3;
    const trm_trace_span span = {.category = "step",
                                 .name = run->name,
                                 .begin = trm_trace_after(row, run->follows ? 0 : now - seconds),
                                 .seconds = seconds,
                                 .row = row,
                                 .values = run->values,
                                 .n_values = run->n_values};
    trm_trace_add(&span);
    if (trm_context_is_profiling(context) && !run->follows) {
        const int32_t layers = trm_trace_row(name_row(context, "layers").text);
        for (int32_t i = 0; i < layers_of(context); i++) {
            TRM_TRY(trm_context_is_launched(context, i) ? trace_layer(context, i, run->began, span.begin, layers)
                                                        : TRM_OK);
        }
    }
    if (context->weights.ring == NULL || run->follows) {
        return TRM_OK;
    }
    const row_name names[] = {name_row(context, "weight copies"), name_row(context, "packed weight copies, a"),
                              name_row(context, "packed weight copies, b")};
    const char *const rows[] = {names[0].text, names[1].text, names[2].text};
    return trm_ring_trace(context->weights.ring, run->began, span.begin, rows, weight_name, context);
}

trm_status trm_context_begin_trace(trm_context *context)
{
    trm_observers *self = &context->observers;
    self->is_traced = trm_trace_is_on();
    if (!self->is_traced) {
        return TRM_OK;
    }
    const bool is_first = self->traced_from == NULL;
    if (is_first) {
        TRM_TRY(trm_event_create(context->engine->world->device, &self->traced_from));
    }
    if (is_first || !trm_context_wants_capture(context)) {
        TRM_TRY(trm_context_prepare_sample(context));
        self->is_trace_sample = trm_context_begin_sample(context) || self->is_trace_sample; /* of a run that failed */
    }
    return trm_event_record(self->traced_from, context->stream);
}

trm_status trm_context_end_trace(trm_context *context)
{
    trm_observers *self = &context->observers;
    const trm_traced_run run = {.row = "runs", .name = "run", .began = self->traced_from, .ended = context->done};
    const trm_status status = self->is_traced ? trm_context_trace_run(context, &run) : TRM_OK;
    if (self->is_trace_sample) {
        trm_context_end_sample(context);
    }
    self->is_traced = self->is_trace_sample = false;
    return status;
}

/* ---- debug tensors ----------------------------------------------------------------------------- */

TRM_CALL(trm_context_recorder(context), trm_context_set_debug, (trm_context *context, trm_debug_fn fn, void *user),
         (context, fn, user))
{
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set debug tensors: context is NULL");
    }
    trm_observers *self = &context->observers;
    if ((fn == NULL) != (self->debug == NULL)) { /* all outputs are then computed */
        trm_context_drop_shape(context);
    }
    self->debug = fn;
    self->debug_user = user;
    return TRM_OK;
}

bool trm_context_shows_layers(const trm_context *context)
{
    return context->observers.debug != NULL;
}

bool trm_context_is_watched(const trm_context *context)
{
    return context->observers.is_profiling || context->observers.debug != NULL;
}

/* Host memory for one tensor, which grows as needed. */
static trm_status reserve(trm_observers *self, trm_device *device, size_t bytes)
{
    if (self->debug_memory == NULL || bytes > self->debug_capacity) {
        trm_device_free_host(device, self->debug_memory);
        self->debug_memory = NULL;
        TRM_TRY(trm_device_alloc_host(device, bytes > 0 ? bytes : 1, &self->debug_memory));
        self->debug_capacity = bytes;
    }
    return TRM_OK;
}

static trm_status show(trm_context *context, const trm_layer *layer, const trm_tensor *tensor)
{
    trm_observers *self = &context->observers;
    const trm_kernel *kernel = trm_context_kernel(context, layer->index);
    trm_view view = trm_context_view(context, tensor);
    size_t bytes = trm_dims_bytes(&view.dims, view.dtype);
    TRM_TRY(reserve(self, context->engine->world->device, bytes));
    if (bytes > 0) {
        TRM_TRY(trm_stream_download(context->stream, self->debug_memory, view.data, bytes));
    }
    TRM_TRY(trm_context_wait(context));
    trm_debug_tensor shown = {.name = tensor->name,
                              .layer = layer->name,
                              .kernel = kernel == NULL ? "" : kernel->name,
                              .kind = layer->desc.kind,
                              .dtype = tensor->dtype,
                              .dims = view.dims,
                              .data = self->debug_memory,
                              .part = tensor->part};
    if (shown.part.kind == TRM_PART_SPLIT && shown.part.whole < 0) { /* for a batch of unknown size */
        shown.part.whole = shown.dims.d[shown.part.axis] * shown.part.parts;
    }
    if (!self->debug(self->debug_user, &shown)) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "the run was cancelled at debug tensor %s", tensor->name);
    }
    return TRM_OK;
}

trm_status trm_context_show_layer(trm_context *context, int32_t index)
{
    if (!trm_context_shows_layers(context)) {
        return TRM_OK;
    }
    const trm_layer *layer = context->engine->plan->network->layers[index];
    if (trm_stream_is_capturing(context->stream)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot read debug tensors of a captured run");
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        TRM_TRY(show(context, layer, layer->outputs[i]));
    }
    return TRM_OK;
}

void trm_observers_fini(trm_context *context)
{
    drop_clock(&context->observers);
    drop_layers(context);
    trm_event_destroy(context->observers.traced_from);
    trm_device_free_host(context->engine->world->device, context->observers.debug_memory);
}
