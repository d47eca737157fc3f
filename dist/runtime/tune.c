/*
 * Tunes a context: one run on the current inputs, in which every kernel chooses among its variants before it runs.
 * Reads the timing cache file before and writes it after.
 */
#include "dist/runtime/context.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/log.h"
#include "base/recorder.h"
#include "dist/runtime/load.h"

typedef struct trm_tuning {
    trm_tune_progress_fn progress;
    void *user;
    int32_t done, total; /* layers that choose */
    double began;
} trm_tuning;

void trm_context_tuning_fini(trm_context *context)
{
    trm_tuner_destroy(context->tuning.tuner);
    free(context->tuning.timings);
}

bool trm_context_is_tuning(const trm_context *context)
{
    return context->tuning.running != NULL && !context->tuning.is_paused;
}

void trm_context_pause_tuning(trm_context *context, bool pause)
{
    context->tuning.is_paused = pause;
}

static bool chooses(const trm_context *context, int32_t layer)
{
    const trm_kernel *kernel = trm_context_kernel(context, layer);
    return kernel != NULL && kernel->is_tuned;
}

trm_status trm_context_begin_choice(trm_context *context, int32_t layer, trm_program *program)
{
    const trm_tuning *tuning = context->tuning.running;
    if (!chooses(context, layer)) {
        return TRM_OK;
    }
    double elapsed = trm_clock_seconds() - tuning->began;
    double left = tuning->done == 0 ? 0 : elapsed / tuning->done * (tuning->total - tuning->done);
    if (tuning->progress != NULL && !tuning->progress(tuning->user, tuning->done, tuning->total, left)) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "tuning was cancelled after %d of %d layers", tuning->done, tuning->total);
    }
    trm_tuner_forget_last(context->tuning.tuner);
    program->tunes = true;
    program->tuner = context->tuning.tuner;
    return TRM_OK;
}

void trm_context_end_choice(trm_context *context, int32_t layer, trm_program *program)
{
    program->tunes = false;
    if (chooses(context, layer)) {
        context->tuning.timings[layer] = trm_tuner_last(context->tuning.tuner);
        context->tuning.running->done++;
    }
}

/* An unusable file only costs time. */
static void warn(trm_status status)
{
    if (status != TRM_OK) {
        TRM_WARN("%s", trm_last_error());
    }
}

static trm_status open_tuner(trm_context *context, const trm_tune_options *options)
{
    size_t n_layers = (size_t)context->engine->plan->network->n_layers;
    if (context->tuning.tuner == NULL) {
        TRM_TRY(trm_tuner_create(context->engine->world->device, &context->tuning.tuner));
    }
    if (context->tuning.timings == NULL) {
        context->tuning.timings = calloc(n_layers + 1, sizeof(*context->tuning.timings));
        if (context->tuning.timings == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the timings of %zu layers", n_layers);
        }
    }
    memset(context->tuning.timings, 0, n_layers * sizeof(*context->tuning.timings));
    trm_tuner_set_level(context->tuning.tuner, options->level);
    if (options->cache != NULL) {
        warn(trm_tuner_load(context->tuning.tuner, options->cache));
    }
    return TRM_OK;
}

/* Whether any kernel of a backend has something to choose. */
static bool has_choices(trm_backend backend)
{
    bool found = false;
    for (int32_t i = 0; i < trm_all_kernels_count; i++) {
        for (int32_t k = 0; k < trm_all_kernels[i]->count && !found; k++) {
            const trm_kernel *kernel = &trm_all_kernels[i]->kernels[k];
            found = kernel->backend == backend && kernel->is_tuned;
        }
    }
    return found;
}

/* Measures only after the weights are loaded, when nothing else is copied to the device. */
static void await_weights(void *user, const char *problem, const trm_timing *timing)
{
    const trm_context *context = user;
    (void)problem;
    if (timing == NULL) {
        (void)trm_load_wait(context->engine->load, NULL, NULL); /* whoever finishes the loading gets its status again */
    }
}

static trm_status check(const trm_context *context)
{
    TRM_TRY(trm_context_refuse_captured(context, "tune"));
    if (context->is_started) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot tune before the run that was started is finished");
    }
    return trm_context_check_inputs(context, "cannot tune: ");
}

trm_status trm_context_tune_kernels(trm_context *context, const trm_tune_options *options)
{
    TRM_TRY(check(context));
    if (options->level == 0 || !has_choices(context->engine->plan->backend)) {
        return TRM_OK;
    }
    trm_tuning tuning = {.progress = options->progress, .user = options->progress_user, .began = trm_clock_seconds()};
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer_kind kind = network->layers[i]->desc.kind;
        tuning.total += kind == TRM_LAYER_MATMUL || kind == TRM_LAYER_CONVOLUTION;
    }
    TRM_TRY(open_tuner(context, options));
    trm_tuner_set_listener(context->tuning.tuner, await_weights, context);
    context->tuning.running = &tuning;
    trm_status status = trm_context_enqueue(context);
    context->tuning.running = NULL;
    trm_tuner_set_listener(context->tuning.tuner, NULL, NULL);
    if (status == TRM_OK || status == TRM_ERROR_CANCELLED) {
        trm_status waited = trm_context_wait(context);
        status = waited != TRM_OK && status == TRM_OK ? waited : status;
    }
    trm_held_error ran;
    trm_error_hold(status, &ran);
    if (options->cache != NULL) {
        warn(trm_tuner_save(context->tuning.tuner, options->cache));
    }
    if (status == TRM_OK && options->progress != NULL) {
        (void)options->progress(options->progress_user, tuning.total, tuning.total, 0);
    }
    return trm_error_give_back(&ran);
}

/* A failed run, or one of the caller's graph, may have left exchanges on the stream, while measurements use another.
 * The ranks synchronize after it. */
static trm_status choose_exchanges(trm_context *context, const trm_tune_options *options)
{
    trm_world *world = context->engine->world;
    TRM_TRY(trm_event_record(context->done, context->stream));
    TRM_TRY(trm_world_await(world, context->done, "a step"));
    return trm_world_choose_exchanges(world, &context->engine->plan->mesh, options->level, options->cache);
}

TRM_CALL(trm_context_recorder(context), trm_context_tune, (trm_context *context, const trm_tune_options *options),
         (context, options))
{
    trm_tune_options own;
    TRM_TRY(trm_tune_options_read(options, &own));
    options = &own;
    if (context == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot tune: context is NULL");
    }
    TRM_TRY(check(context));
    if (options->level > 0 && has_choices(context->engine->plan->backend)) {
        TRM_TRY(choose_exchanges(context, options));
        trm_context_drop_captures(context);
    }
    return trm_context_tune_kernels(context, options);
}

const trm_timing *trm_context_timing(const trm_context *context, int32_t layer)
{
    return context->tuning.timings == NULL ? NULL : context->tuning.timings[layer];
}

void trm_context_tactics(const trm_context *context, trm_tactic_fn fn, void *user)
{
    const trm_network *network = context->engine->plan->network;
    for (int32_t i = 0; context->tuning.timings != NULL && i < network->n_layers; i++) {
        const trm_timing *timing = context->tuning.timings[i];
        for (int32_t k = 0; timing != NULL && k < timing->n_tactics; k++) {
            fn(user, network->layers[i]->name, timing->problem, timing->tactics[k].name,
               timing->tactics[k].microseconds, k == 0);
        }
    }
}

/* A path in the user's cache folder, to free(). */
static char *cache_path(const char *folder, const char *name, const char *suffix)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool has_cache = cache != NULL && cache[0] == '/';
    if (!has_cache && (home == NULL || home[0] != '/')) {
        return NULL;
    }
    const char *base = has_cache ? cache : home, *between = has_cache ? "" : "/.cache";
    const size_t size = strlen(base) + strlen(name) + 64;
    char *path = malloc(size);
    if (path != NULL) {
        snprintf(path, size, "%s%s/trireme/%s%s%s", base, between, folder, name, suffix);
    }
    return path;
}

char *trm_timing_cache_path(trm_world *world)
{
    trm_device_info info;
    if (world == NULL || trm_device_get_info(world->device, &info) != TRM_OK) {
        return NULL;
    }
    for (char *c = info.name; *c != '\0'; c++) {
        *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '-';
    }
    return cache_path("timing/", info.name, ".txt");
}

char *trm_expert_profile_path(void)
{
    return cache_path("experts", "", "");
}
