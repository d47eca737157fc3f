/*
 * Tactics of a plan: times them on a device before there is an engine, and passes those of a plan file to the kernels.
 *
 * Both walk over the layers that have variants, at the usual dims of every profile. Only timed layers run, one at a
 * time, on random numbers: no weights are read and no other ranks are needed, so that one GPU can tune the plans of all
 * ranks.
 */
#include "dist/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/log.h"
#include "base/map.h"
#include "base/recorder.h"
#include "dist/plan/streaming_plan.h"
#include "dist/parallel/world.h"
#include "graph/memory_plan.h"
#include "kernels/program.h"
#include "kernels/sampling/random.h"
#include "kernels/tuner/tuner.h"

typedef struct walk {
    trm_plan *plan;
    trm_stream *stream;
    trm_tuner *tuner;
    unsigned char *memory; /* operands of one layer, then workspace: device memory if layers are timed, else an address
                              that is never read */
    size_t operand_bytes;  /* of the layer that needs most */
    const trm_tune_options *options; /* NULL: nothing is timed */
    int32_t done, total;
    double began;
} walk;

/* The kernel and the call of a layer at these dims, without addresses; NULL if it has nothing to choose. */
static const trm_kernel *find_choice(const trm_plan *plan, const trm_layer *layer, const trm_dims *dims,
                                     trm_kernel_call *call)
{
    trm_plan_describe_call(layer, dims, call);
    if (trm_plan_layer_is_on_host(plan, layer) || !trm_plan_call_is_known(call)) {
        return NULL;
    }
    call->allow_tf32 = plan->allow_tf32;
    call->batch_invariant = plan->batch_invariant;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        bool is_input = layer->inputs[i] != NULL && layer->inputs[i]->role == TRM_TENSOR_INPUT;
        call->constants |= is_input ? 1u << i : 0; /* as in a run */
    }
    const trm_kernel *kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, plan->backend, call);
    return kernel == NULL || !kernel->is_tuned ? NULL : kernel;
}

/* Places the operands of a call one after the other from `memory` (may be NULL); returns their bytes. */
static size_t place_operands(trm_kernel_call *call, unsigned char *memory)
{
    size_t used = 0;
    for (int32_t i = 0; i < call->n_inputs + call->n_outputs; i++) {
        trm_view *view = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        if (i >= call->n_inputs || view->dtype != TRM_DTYPE_NONE) {
            view->data = memory == NULL ? NULL : memory + used;
            used += trm_align_up(trm_dims_bytes(&view->dims, view->dtype), TRM_TENSOR_ALIGNMENT);
        }
    }
    return used;
}

/* Counts the layers with variants, and the most memory that one needs. */
static void measure_layers(walk *w, const trm_dims *dims)
{
    const trm_network *network = w->plan->network;
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_kernel_call call;
        if (find_choice(w->plan, network->layers[i], dims, &call) != NULL) {
            size_t bytes = place_operands(&call, NULL);
            w->operand_bytes = bytes > w->operand_bytes ? bytes : w->operand_bytes;
            w->total++;
        }
    }
}

static trm_status ask_progress(const walk *w)
{
    double left = w->done == 0 ? 0 : (trm_clock_seconds() - w->began) / w->done * (w->total - w->done);
    if (w->options != NULL && w->options->progress != NULL &&
        !w->options->progress(w->options->progress_user, w->done, w->total, left)) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "tuning was cancelled after %d of %d layers", w->done, w->total);
    }
    return TRM_OK;
}

static trm_status choose_layers(walk *w, const trm_dims *dims)
{
    const trm_network *network = w->plan->network;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        trm_kernel_call call;
        const trm_kernel *kernel = find_choice(w->plan, layer, dims, &call);
        if (kernel == NULL) {
            continue;
        }
        TRM_TRY(ask_progress(w));
        place_operands(&call, w->memory);
        call.workspace = w->memory + w->operand_bytes;
        call.workspace_size = w->plan->workspace_bytes;
        call.stream = w->stream;
        trm_status status = trm_kernel_tune(kernel, &call, w->tuner);
        if (status != TRM_OK) {
            return trm_fail_in(status, "layer %s (%s)", layer->name, kernel->name);
        }
        w->done++;
    }
    return TRM_OK;
}

static trm_status for_all_profiles(walk *w, bool choose)
{
    trm_dims *dims = calloc((size_t)w->plan->network->n_tensors + 1, sizeof(*dims));
    trm_status status = TRM_OK;
    if (dims == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the dims of %d tensors", w->plan->network->n_tensors);
    }
    for (int32_t p = 0; status == TRM_OK && p < w->plan->n_profiles; p++) {
        status = trm_plan_usual_dims(w->plan, p, dims);
        if (status == TRM_OK && choose) {
            status = choose_layers(w, dims);
        } else if (status == TRM_OK) {
            measure_layers(w, dims);
        }
    }
    free(dims);
    return status;
}

/* ---- the plan's list ----------------------------------------------------------------------------------- */

/* Gives a tactic its timed candidates. */
static trm_status set_timed(trm_plan *plan, trm_plan_tactic *to, const trm_plan_timed *timed, int32_t n)
{
    to->n = n;
    for (int32_t i = 0; i < n; i++) {
        to->timed[i] = (trm_plan_timed){trm_arena_strdup(&plan->arena, timed[i].name), timed[i].nanoseconds};
        if (to->timed[i].name == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
    }
    return TRM_OK;
}

trm_status trm_plan_add_tactic(trm_plan *plan, const char *problem, const trm_plan_timed *timed, int32_t n)
{
    if (plan->n_tactics == plan->tactic_capacity) {
        int32_t capacity = plan->tactic_capacity * 2 + 32;
        trm_plan_tactic *grown = trm_arena_array(&plan->arena, (size_t)capacity, sizeof(*grown));
        if (grown == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        if (plan->n_tactics > 0) {
            memcpy(grown, plan->tactics, (size_t)plan->n_tactics * sizeof(*grown));
        }
        plan->tactics = grown;
        plan->tactic_capacity = capacity;
    }
    trm_plan_tactic *to = &plan->tactics[plan->n_tactics];
    *to = (trm_plan_tactic){.problem = trm_arena_strdup(&plan->arena, problem)};
    if (to->problem == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(set_timed(plan, to, timed, n));
    plan->n_tactics++;
    return TRM_OK;
}

void trm_plan_drop_tactics(trm_plan *plan)
{
    if (plan != NULL) {
        plan->n_tactics = plan->tactic_capacity = 0;
        plan->device = (trm_plan_device){0};
    }
}

bool trm_plan_get_tactic(const trm_plan *plan, int32_t index, const char **problem, const char **tactic,
                         double *microseconds)
{
    if (plan == NULL || index < 0 || index >= plan->n_tactics) {
        return false;
    }
    *problem = plan->tactics[index].problem;
    *tactic = plan->tactics[index].timed[0].name;
    *microseconds = (double)plan->tactics[index].timed[0].nanoseconds / 1e3;
    return true;
}

/* ---- tuning -------------------------------------------------------------------------------------------- */

/* The problems of a plan in order of occurrence, with the tactic chosen for each. */
typedef struct choices {
    trm_plan *plan;
    trm_map places; /* of problems, in plan->tactics */
    trm_status status;
} choices;

static bool is_same_choice(const trm_plan_tactic *kept, const trm_plan_timed *timed, int32_t n)
{
    bool same = kept->n == n;
    for (int32_t i = 0; i < n && same; i++) {
        same = kept->timed[i].nanoseconds == timed[i].nanoseconds && strcmp(kept->timed[i].name, timed[i].name) == 0;
    }
    return same;
}

static trm_status keep_choice(choices *c, const char *problem, const trm_timing *taken)
{
    trm_plan_timed timed[TRM_MOST_SHORTLISTED];
    const int32_t n = taken->n_tactics < TRM_MOST_SHORTLISTED ? taken->n_tactics : TRM_MOST_SHORTLISTED;
    uint32_t at;
    bool existing;
    for (int32_t i = 0; i < n; i++) { /* times as a timing cache file has them */
        timed[i] = (trm_plan_timed){taken->tactics[i].name, llround(taken->tactics[i].microseconds * 1e3)};
    }
    if (trm_map_find(&c->places, problem, strlen(problem), &at)) { /* the last choice is what engines use */
        trm_plan_tactic *to = &c->plan->tactics[at];
        return is_same_choice(to, timed, n) ? TRM_OK : set_timed(c->plan, to, timed, n);
    }
    if (c->plan->n_tactics == TRM_PLAN_MOST_TACTICS) {
        return TRM_OK;
    }
    TRM_TRY(trm_plan_add_tactic(c->plan, problem, timed, n));
    const trm_plan_tactic *added = &c->plan->tactics[c->plan->n_tactics - 1];
    return trm_map_add(&c->places, added->problem, strlen(added->problem), (uint32_t)c->plan->n_tactics - 1, &existing);
}

static void note_choice(void *user, const char *problem, const trm_timing *taken)
{
    choices *c = user;
    if (taken != NULL && c->status == TRM_OK) {
        c->status = keep_choice(c, problem, taken);
    }
}

static trm_status describe_device(trm_device *device, trm_plan_device *to)
{
    trm_device_info info;
    TRM_TRY(trm_device_get_info(device, &info));
    *to = (trm_plan_device){
        .multiprocessors = info.multiprocessors, .major = info.compute_major, .minor = info.compute_minor};
    for (size_t i = 0; i + 1 < sizeof(to->name) && info.name[i] != '\0'; i++) { /* a plan file may not hold this text */
        to->name[i] = (unsigned char)info.name[i] < ' ' || info.name[i] == 0x7f ? ' ' : info.name[i];
    }
    return TRM_OK;
}

/* Times the variants of the layers, on random numbers: products of zeros are faster. */
static trm_status time_layers(walk *w, trm_device *device)
{
    size_t bytes;
    void *memory = NULL;
    trm_status status;
    TRM_TRY(for_all_profiles(w, false));
    if (!trm_checked_add(w->operand_bytes, w->plan->workspace_bytes, &bytes)) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "the plan exceeds the address space");
    }
    TRM_TRY(trm_device_alloc(device, bytes + TRM_TENSOR_ALIGNMENT, &memory));
    w->memory = memory;
    const trm_random_fill_args fill = {
        .to = {memory, TRM_BF16, {1, {(int64_t)(bytes / 2)}}}, .seed = 1, .spread = 1, .strides = {1}};
    TRM_TRY_GOTO(status, trm_random_fill(w->stream, &fill), free);
    w->began = trm_clock_seconds();
    status = for_all_profiles(w, true);
    if (status == TRM_OK) {
        status = trm_stream_synchronize(w->stream);
    }
free:
    trm_device_free(device, memory);
    return status;
}

/* An unusable file only costs time. */
static void warn(trm_status status)
{
    if (status != TRM_OK) {
        TRM_WARN("%s", trm_last_error());
    }
}

static trm_status tune(trm_plan *plan, trm_device *device, const trm_tune_options *options)
{
    walk w = {.plan = plan, .options = options, .began = trm_clock_seconds()};
    choices c = {.plan = plan, .status = TRM_OK};
    trm_held_error timed;
    trm_status status;
    TRM_TRY(describe_device(device, &plan->device));
    TRM_TRY(trm_tuner_create(device, &w.tuner));
    TRM_TRY_GOTO(status, trm_stream_create(device, &w.stream), destroy);
    trm_tuner_set_level(w.tuner, options->level);
    trm_tuner_set_listener(w.tuner, note_choice, &c);
    if (options->cache != NULL) {
        warn(trm_tuner_load(w.tuner, options->cache));
    }
    status = time_layers(&w, device);
    status = status == TRM_OK ? c.status : status;
    trm_error_hold(status, &timed);
    if (options->cache != NULL) {
        warn(trm_tuner_save(w.tuner, options->cache));
    }
    if (status == TRM_OK && options->progress != NULL) {
        (void)options->progress(options->progress_user, w.total, w.total, 0);
    }
    status = trm_error_give_back(&timed);
destroy:
    trm_map_fini(&c.places);
    trm_stream_destroy(w.stream);
    trm_tuner_destroy(w.tuner);
    return status;
}

trm_status trm_tune_options_read(const trm_tune_options *options, trm_tune_options *own)
{
    *own = TRM_TUNE_OPTIONS_INIT;
    TRM_TRY(trm_options_read("tune options", options, own));
    if (own->level < TRM_TUNE_OFF || own->level > 5) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "tune options have level %d, expected 1 to 5, 0 or TRM_TUNE_OFF",
                 own->level);
    }
    own->level = own->level == TRM_TUNE_OFF ? 0 : own->level == 0 ? TRM_TUNE_USUAL : own->level;
    return TRM_OK;
}

TRM_CALL(trm_world_recorder(world), trm_plan_tune, (trm_plan *plan, trm_world *world, const trm_tune_options *options),
         (plan, world, options))
{
    trm_tune_options own;
    TRM_TRY(trm_tune_options_read(options, &own));
    options = &own;
    if (plan == NULL || world == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot tune a plan: plan or world is NULL");
    }
    trm_backend backend = trm_device_backend(world->device);
    if (plan->backend != backend) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the plan is for %s, it cannot be tuned on %s",
                 trm_backend_name(plan->backend), trm_backend_name(backend));
    }
    trm_plan_drop_tactics(plan);
    if (options->level == 0 || backend == TRM_BACKEND_HOST) { /* host kernels have nothing to choose */
        return TRM_OK;
    }
    trm_status status = tune(plan, world->device, options);
    if (status != TRM_OK || plan->n_tactics == 0) {
        trm_plan_drop_tactics(plan);
    }
    return status;
}

/* ---- using --------------------------------------------------------------------------------------------- */

static trm_status check_device(const trm_plan_device *expected, trm_device *device)
{
    trm_plan_device found;
    TRM_TRY(describe_device(device, &found));
    if (strcmp(found.name, expected->name) != 0 || found.multiprocessors != expected->multiprocessors ||
        found.major != expected->major || found.minor != expected->minor) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "the plan was tuned on %s (compute capability %d.%d, %d multiprocessors), this is %s (%d.%d, %d): "
                 "build it again here, or drop its tactics (--allow-other-device)",
                 expected->name, expected->major, expected->minor, expected->multiprocessors, found.name, found.major,
                 found.minor, found.multiprocessors);
    }
    return TRM_OK;
}

/* A problem without a tactic in the plan. */
typedef struct missing {
    const trm_plan *plan;
    char found[64], expected[64]; /* library and version */
} missing;

/* "cublasLt 130100" of a problem. */
static void library_of(const char *problem, char library[64])
{
    size_t length = strcspn(problem, ";");
    snprintf(library, 64, "%.*s", (int)length, problem);
}

/* Notes the first library whose version differs from the plan's. */
static void note_missing(void *user, const char *problem, const trm_timing *timing)
{
    missing *m = user;
    char found[64], expected[64];
    if (timing != NULL || m->found[0] != '\0') {
        return;
    }
    library_of(problem, found);
    size_t name = strcspn(found, " ");
    for (int32_t i = 0; i < m->plan->n_tactics; i++) {
        library_of(m->plan->tactics[i].problem, expected);
        if (strncmp(found, expected, name + 1) == 0 && strcmp(found, expected) != 0) {
            strcpy(m->found, found);
            strcpy(m->expected, expected);
            return;
        }
    }
}

static trm_status give_tactics(const trm_plan *plan, trm_tuner *tuner)
{
    for (int32_t i = 0; i < plan->n_tactics; i++) {
        const trm_plan_tactic *from = &plan->tactics[i];
        trm_tactic tactics[TRM_MOST_SHORTLISTED] = {{.microseconds = 0}};
        for (int32_t k = 0; k < from->n; k++) {
            strncpy(tactics[k].name, from->timed[k].name, sizeof(tactics[k].name) - 1);
            tactics[k].microseconds = (double)from->timed[k].nanoseconds / 1e3;
        }
        TRM_TRY(trm_tuner_put(tuner, from->problem, tactics, from->n));
    }
    return TRM_OK;
}

trm_status trm_plan_use_tactics(trm_plan *plan, trm_device *device)
{
    /* Never read or written; aligned like device memory. */
    walk w = {.plan = plan, .memory = (unsigned char *)(uintptr_t)TRM_TENSOR_ALIGNMENT};
    missing m = {.plan = plan};
    trm_status status;
    if (plan->n_tactics == 0) {
        return TRM_OK;
    }
    TRM_TRY(check_device(&plan->device, device));
    TRM_TRY(trm_tuner_create(device, &w.tuner));
    TRM_TRY_GOTO(status, trm_stream_create(device, &w.stream), destroy);
    trm_tuner_set_level(w.tuner, 0);
    TRM_TRY_GOTO(status, give_tactics(plan, w.tuner), destroy);
    trm_tuner_set_listener(w.tuner, note_missing, &m);
    status = for_all_profiles(&w, true);
    if (status == TRM_OK && m.found[0] != '\0') {
        status = trm_fail(TRM_ERROR_INVALID_ARGUMENT,
                          "the plan was tuned with %s, this machine has %s: build it again here, or drop its "
                          "tactics (--allow-other-device)",
                          m.expected, strcmp(m.found + strcspn(m.found, " "), " 0") == 0 ? "none" : m.found);
    }
destroy:
    trm_stream_destroy(w.stream);
    trm_tuner_destroy(w.tuner);
    return status;
}

TRM_CALL(trm_world_recorder(world), trm_plan_check_device, (trm_plan *plan, trm_world *world), (plan, world))
{
    if (plan == NULL || world == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot check a plan: plan or world is NULL");
    }
    return trm_plan_use_tactics(plan, world->device);
}
