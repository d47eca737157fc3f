/*
 * cuDNN behind a table of functions found at run time: a convolution and what follows it as a graph of its backend
 * interface, engines chosen by heuristic or by timing and remembered per problem.
 *
 * Two graphs are tried: all of the layer in one, and the convolution alone with a pass of ours behind it.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/library.h"
#include "kernels/convolution/cuda.h"
#include "kernels/cuda/cuda.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/tuner/tactic_cache.h"

#if defined(__has_include) && __has_include(<cudnn.h>)
#include "kernels/convolution/cuda_cudnn.h"

#define MAX_DEVICES  64
#define CACHE_SLOTS  2048 /* a power of two */
#define MOST_RATIO   4.0  /* of batches that engines are taken over */
#define MOST_ENGINES 256
#define FUSED_PREFIX "cudnn.fused:"
#define ALONE_PREFIX "cudnn.alone:"

/* An engine ready to run: descriptors of the graph and of the plan. */
typedef struct engine {
    trm_cudnn_pieces graph, plan;
    cudnnBackendDescriptor_t execution;
    bool fused;
} engine;

typedef struct cache_slot {
    trm_tactic_state state;
    trm_cudnn_problem key;
    engine engine;
    trm_shortlist known; /* of a tuned one: its engine first */
} cache_slot;

static struct {
    pthread_mutex_t mutex; /* held while the library is called with a handle */
    pthread_cond_t planned;
    bool loaded, missing;
    void *library;
    trm_cudnn_target targets[MAX_DEVICES];
    cache_slot cache[CACHE_SLOTS + 1];
    engine kept; /* the best of the problem that was timed last, if its tactic has a name */
    trm_cudnn_problem kept_key;
    trm_tactic kept_tactic;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .planned = PTHREAD_COND_INITIALIZER};

static trm_status dnn_fail(cudnnStatus_t error, const char *what)
{
    trm_status status = error / 1000 == 3 ? TRM_ERROR_UNSUPPORTED : TRM_ERROR_INTERNAL;
    return trm_fail(status, "%s failed: %s", what, trm_cudnn.cudnnGetErrorString(error));
}

/* A description of a handle's device, where the library has such. */
static void describe_device(trm_cudnn_target *target)
{
    trm_cudnn_pieces p = {.n = 0};
    if (trm_cudnn.cudnnGetVersion() < TRM_CUDNN_DESCRIBES_DEVICES) {
        return;
    }
    cudnnBackendDescriptor_t device = trm_cudnn_make(&p, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    trm_cudnn_set(&p, device, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    trm_cudnn_finish(&p, device);
    if (p.error == CUDNN_STATUS_SUCCESS) {
        target->device = device; /* for the life of the process, as the handle */
    } else {
        trm_cudnn_destroy(&p);
    }
}

/* Of the current device, under the mutex. UNSUPPORTED without a library. */
static trm_status target_get(int *device, const trm_cudnn_target **target)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so"};
    static const trm_library_symbol symbols[] = {
#define SYMBOL(name) {#name, &trm_cudnn.name, false},
        CUDNN_FUNCTIONS(SYMBOL)
#undef SYMBOL
    };
    if (!state.loaded && !state.missing) {
        state.loaded = trm_library_open(names, 2, symbols, (int32_t)(sizeof(symbols) / sizeof(symbols[0])),
                                        &state.library) == TRM_OK;
        state.missing = !state.loaded;
    }
    TRM_CUDA_TRY(cudaGetDevice(device));
    if (state.missing || *device >= MAX_DEVICES) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "no cuDNN for convolutions on cuda device %d", *device);
    }
    trm_cudnn_target *found = &state.targets[*device];
    if (found->handle == NULL) {
        cudnnStatus_t error = trm_cudnn.cudnnCreate(&found->handle);
        if (error != CUDNN_STATUS_SUCCESS) {
            found->handle = NULL;
            state.missing = true; /* our own kernels do */
            return trm_fail(TRM_ERROR_UNSUPPORTED, "cudnnCreate failed: %s", trm_cudnn.cudnnGetErrorString(error));
        }
        describe_device(found);
    }
    *target = found;
    return TRM_OK;
}

typedef struct engine_run {
    cudnnHandle_t handle;
    const engine *engine;
    const trm_convolution_args *args;
    void *workspace;
    cudaStream_t stream;
} engine_run;

/* Under the mutex. */
static trm_status engine_enqueue(void *user)
{
    const engine_run *run = user;
    const trm_convolution_args *args = run->args;
    trm_cudnn_pieces p = {.n = 0};
    int64_t ids[] = {UID_X, UID_W, UID_Y, UID_B, UID_R}, n = 3;
    const void *data[] = {args->x, args->weight, args->y, args->bias, args->residual};
    if (run->engine->fused && args->residual != NULL) {
        if (args->bias == NULL) {
            ids[3] = UID_R;
            data[3] = args->residual;
        }
        n = args->bias == NULL ? 4 : 5;
    } else if (run->engine->fused && args->bias != NULL) {
        n = 4;
    }
    cudnnBackendDescriptor_t pack = trm_cudnn_make(&p, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    trm_cudnn_set(&p, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data);
    trm_cudnn_set(&p, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    trm_cudnn_set(&p, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &run->workspace);
    trm_cudnn_finish(&p, pack);
    if (p.error == CUDNN_STATUS_SUCCESS) {
        p.error = trm_cudnn.cudnnSetStream(run->handle, run->stream);
    }
    if (p.error == CUDNN_STATUS_SUCCESS) {
        p.error = trm_cudnn.cudnnBackendExecute(run->handle, run->engine->execution, pack);
    }
    const cudnnStatus_t error = p.error;
    trm_cudnn_destroy(&p);
    if (error != CUDNN_STATUS_SUCCESS) {
        return dnn_fail(error, "cudnnBackendExecute");
    }
    return run->engine->fused ? TRM_OK : trm_cuda_convolution_finish(args, run->stream);
}

static void engine_destroy(engine *e)
{
    trm_cudnn_destroy(&e->plan);
    trm_cudnn_destroy(&e->graph);
    memset(e, 0, sizeof(*e));
}

/* ---- engines by name ---- */

/* Plans the configuration, with which the graph comes to belong to *found. */
static bool plan_engine(const trm_cudnn_problem *key, const trm_cudnn_target *target, bool fused,
                        const trm_cudnn_pieces *graph, cudnnBackendDescriptor_t configuration, engine *found)
{
    engine candidate = {.fused = fused};
    if (!trm_cudnn_is_exact(key, configuration) ||
        !trm_cudnn_make_plan(key, target, configuration, &candidate.plan, &candidate.execution)) {
        return false;
    }
    engine_destroy(found);
    *found = candidate;
    found->graph = *graph;
    return true;
}

static bool is_fused(const char *tactic)
{
    return strncmp(tactic, FUSED_PREFIX, strlen(FUSED_PREFIX)) == 0;
}

/* Engines that were seen to be compiled, by graph and number: they need not be opened where that is of no use. */
static _Atomic bool compiled_engines[2][MOST_ENGINES];

/* That of the engine in a tactic; NULL: not kept. */
static _Atomic bool *compiled_of(const char *tactic)
{
    const long number = strtol(tactic + strlen(FUSED_PREFIX), NULL, 10); /* both prefixes are as long */
    return number >= 0 && number < MOST_ENGINES ? &compiled_engines[is_fused(tactic)][number] : NULL;
}

/* The engine of this name; of those that need no compiler, or of all. */
static bool find_engine(const trm_cudnn_problem *key, const trm_cudnn_target *target, bool compiled, const char *name,
                        engine *found)
{
    trm_cudnn_pieces graph = {.n = 0};
    cudnnBackendDescriptor_t configuration;
    const bool fused = is_fused(name);
    _Atomic bool *is_compiled = compiled_of(name);
    if (!compiled && is_compiled != NULL && *is_compiled) {
        return false;
    }
    bool opened = trm_cudnn_open_engine(key, target, fused, name, &graph, &configuration);
    if (opened && !compiled && trm_cudnn_is_compiled(configuration)) {
        opened = false;
        if (is_compiled != NULL) {
            *is_compiled = true;
        }
    }
    if (opened && plan_engine(key, target, fused, &graph, configuration, found)) {
        return true;
    }
    trm_cudnn_destroy(&graph);
    return false;
}

/* The first proposal that can be planned, of those that need no compiler or of all. */
static bool find_proposal(const trm_cudnn_problem *key, const trm_cudnn_target *target, bool fused, bool compiled,
                          engine *found)
{
    trm_cudnn_pieces graph = {.n = 0};
    cudnnBackendDescriptor_t proposals[MAX_PROPOSALS];
    const int32_t n = trm_cudnn_open_graph(key, target, fused, &graph, proposals, 8);
    for (int32_t i = 0; i < n; i++) {
        if ((compiled || !trm_cudnn_is_compiled(proposals[i])) &&
            plan_engine(key, target, fused, &graph, proposals[i], found)) {
            return true;
        }
    }
    trm_cudnn_destroy(&graph);
    return false;
}

/* An engine that ran: into the tactics, and kept for trm_cudnn_convolution_use if it is the best so far. Its graph
 * stays with the plans made of it, the plan before it goes. */
static void take_engine(const trm_cudnn_problem *key, engine *candidate, const trm_cudnn_pieces *graph, bool *is_kept,
                        const trm_tactic *tactic)
{
    if (state.kept_tactic.name[0] != '\0' && trm_tactic_compare(tactic, &state.kept_tactic) >= 0) {
        trm_cudnn_destroy(&candidate->plan);
        return;
    }
    if (*is_kept) {
        trm_cudnn_destroy(&state.kept.plan);
    } else {
        engine_destroy(&state.kept);
        state.kept.graph = *graph;
        *is_kept = true;
    }
    state.kept.plan = candidate->plan;
    state.kept.execution = candidate->execution;
    state.kept.fused = candidate->fused;
    state.kept_key = *key;
    state.kept_tactic = *tactic;
}

/* Plans up to `wanted` engines and times them one by one; appends them to the tactics. One thread and one handle do
 * that: a handle for each of 16 threads saved no time, and every later kernel of a captured run began later (docs). */
static void time_engines(const trm_cudnn_problem *key, engine_run *run, bool fused, int32_t wanted, trm_tactic *tactics,
                         int32_t *n_tactics)
{
    trm_cudnn_pieces graph = {.n = 0};
    cudnnBackendDescriptor_t proposals[MAX_PROPOSALS];
    const int32_t room = TRM_MOST_TACTICS - *n_tactics, most_compiled = trm_cudnn_most_compiled(key, wanted);
    const trm_cudnn_target target = {.handle = run->handle};
    const int32_t n = trm_cudnn_open_graph(key, &target, fused, &graph, proposals, wanted < room ? wanted : room);
    bool graph_is_kept = false;
    for (int32_t i = 0, n_compiled = 0; i < n; i++) {
        engine candidate = {.fused = fused};
        trm_tactic *tactic = &tactics[*n_tactics];
        const bool compiled = trm_cudnn_is_compiled(proposals[i]);
        float milliseconds;
        trm_cudnn_name_engine(proposals[i], fused, tactic->name);
        if (tactic->name[0] == '\0' || (compiled && n_compiled >= most_compiled) ||
            !trm_cudnn_is_exact(key, proposals[i]) ||
            !trm_cudnn_make_plan(key, &target, proposals[i], &candidate.plan, &candidate.execution)) {
            continue;
        }
        n_compiled += compiled;
        run->engine = &candidate;
        if (trm_cuda_time(run->stream, engine_enqueue, run, &milliseconds) != TRM_OK) {
            trm_cudnn_destroy(&candidate.plan);
            continue;
        }
        tactic->microseconds = (double)milliseconds * 1e3;
        (*n_tactics)++;
        take_engine(key, &candidate, &graph, &graph_is_kept, tactic);
    }
    if (!graph_is_kept) {
        trm_cudnn_destroy(&graph);
    }
}

static void drop_kept(void)
{
    engine_destroy(&state.kept);
    state.kept_tactic.name[0] = '\0';
}

/* ---- the cache ---- */

static bool key_fill(const trm_convolution_args *args, int device, size_t workspace_size, trm_cudnn_problem *key)
{
    const trm_windows *w = &args->w;
    memset(key, 0, sizeof(*key));
    key->batch = w->batch;
    key->channels_in = w->channels_in;
    key->channels = args->channels;
    key->outputs = args->outputs;
    key->groups = args->groups;
    memcpy(key->in, w->in, sizeof(key->in));
    memcpy(key->out, w->out, sizeof(key->out));
    memcpy(key->kernel, w->kernel, sizeof(key->kernel));
    memcpy(key->stride, w->stride, sizeof(key->stride));
    memcpy(key->dilation, w->dilation, sizeof(key->dilation));
    memcpy(key->before, w->before, sizeof(key->before));
    key->workspace = workspace_size;
    uintptr_t bits = 16 | (uintptr_t)args->x | (uintptr_t)args->weight | (uintptr_t)args->y | (uintptr_t)args->bias |
                     (uintptr_t)args->residual;
    key->alignment = bits & (~bits + 1);
    key->device = device;
    key->dtype = args->dtype;
    key->activation = args->activation;
    key->bias = args->bias != NULL;
    key->residual = args->residual != NULL;
    key->channels_last = args->channels_last;
    key->tf32 = args->dtype == TRM_F32 && args->allow_tf32;
    key->whole_numbers = args->whole_numbers;
    return args->dtype != TRM_F64 && args->channels > 0 && w->in_size > 0;
}

static void slot_release(void *slot)
{
    engine_destroy(&((cache_slot *)slot)->engine);
}

static trm_tactic_cache tactic_cache = {
    .slots = state.cache,
    .n = CACHE_SLOTS,
    .size = sizeof(cache_slot),
    .key = offsetof(cache_slot, key),
    .key_size = sizeof(trm_cudnn_problem),
    .release = slot_release,
};

/* What was tuned takes the place of what was known of the problem; the engine comes to belong to its slot. */
static void slot_tune(const trm_cudnn_problem *key, const engine *chosen, const trm_shortlist *known)
{
    cache_slot *slot = trm_tactic_cache_get(&tactic_cache, key, true);
    slot_release(slot);
    *slot = (cache_slot){.state = TRM_TACTIC_TUNED, .key = *key, .engine = *chosen, .known = *known};
}

static trm_tactic_state slot_state_of(const trm_cudnn_problem *key)
{
    const cache_slot *slot = trm_tactic_cache_find(&tactic_cache, key);
    return slot != NULL ? slot->state : TRM_TACTIC_FREE;
}

static bool has_epilogue(const trm_cudnn_problem *key)
{
    return key->bias || key->residual || key->activation != TRM_ACTIVATION_NONE;
}

/* How many times as large the batch of one problem is as that of the other, where they are otherwise the same. */
static double batch_ratio(const void *theirs, const void *ours)
{
    const trm_cudnn_problem *key = ours;
    trm_cudnn_problem same;
    memcpy(&same, theirs, sizeof(same)); /* compared as bytes */
    const double a = (double)same.batch, b = (double)key->batch;
    same.batch = key->batch;
    same.workspace = key->workspace;
    same.alignment = key->alignment;
    return memcmp(&same, key, sizeof(same)) != 0 ? INFINITY : a > b ? a / b : b / a;
}

/* What was tuned for the same problem with the nearest batch, or NULL. */
static const cache_slot *find_relative(const trm_cudnn_problem *key)
{
    return trm_tactic_cache_nearest(&tactic_cache, key, MOST_RATIO, batch_ratio);
}

/* For a problem that was not tuned, in little time: the first of its relative's engines that needs no compiler, or
 * another such, and only if there is none, one that does. `tried`: its relative's, in order. */
static bool choose_engine(const trm_cudnn_problem *key, const trm_cudnn_target *target, const trm_shortlist *tried,
                          engine *chosen)
{
    const bool fused = has_epilogue(key);
    for (int32_t compiled = 0; compiled < 2; compiled++) {
        for (int32_t i = 0; i < tried->n; i++) {
            if (find_engine(key, target, compiled != 0, tried->tactics[i].name, chosen)) {
                return true;
            }
        }
        if ((fused && find_proposal(key, target, true, compiled != 0, chosen)) ||
            find_proposal(key, target, false, compiled != 0, chosen)) {
            return true;
        }
    }
    return false;
}

/* The slot of a problem, once an engine has been chosen for it. Under the mutex, which is let go where the library can
 * plan without a handle: other threads plan other problems meanwhile. */
static cache_slot *slot_settle(const trm_cudnn_problem *key, const trm_cudnn_target *target)
{
    while (slot_state_of(key) == TRM_TACTIC_ASKED) {
        pthread_cond_wait(&state.planned, &state.mutex);
    }
    cache_slot *slot = trm_tactic_cache_get(&tactic_cache, key, false);
    if (slot->state != TRM_TACTIC_FREE) {
        return slot;
    }
    engine chosen = {.fused = false};
    trm_shortlist tried = {.n = 0};
    const cache_slot *relative = find_relative(key);
    if (relative != NULL) { /* another kernel to load in its first run is 2 to 6 ms */
        trm_shortlist_order(&relative->known, trm_cudnn_picks_kernels, &tried);
    }
    slot->state = TRM_TACTIC_ASKED;
    if (target->device != NULL) {
        pthread_mutex_unlock(&state.mutex);
    }
    const bool found = choose_engine(key, target, &tried, &chosen);
    if (target->device != NULL) {
        pthread_mutex_lock(&state.mutex);
        slot = trm_tactic_cache_get(&tactic_cache, key,
                                    false); /* it may have given way to another problem, or been tuned */
    }
    if (slot->state == TRM_TACTIC_ASKED || slot->state == TRM_TACTIC_FREE) {
        slot->engine = chosen;
        slot->state = found ? TRM_TACTIC_PROPOSED : TRM_TACTIC_NONE;
    } else {
        engine_destroy(&chosen);
    }
    pthread_cond_broadcast(&state.planned);
    return slot;
}

/* Under the mutex. */
static trm_status run_locked(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                             cudaStream_t stream)
{
    int device;
    const trm_cudnn_target *target = NULL;
    trm_cudnn_problem key;
    TRM_TRY(target_get(&device, &target));
    if (!key_fill(args, device, workspace_size, &key)) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN does no convolutions of %s", trm_dtype_name(args->dtype));
    }
    cache_slot *slot = slot_settle(&key, target);
    if (slot->state == TRM_TACTIC_NONE) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN has no engine for the convolution");
    }
    engine_run run = {target->handle, &slot->engine, args, workspace, stream};
    trm_status status = engine_enqueue(&run);
    if (status != TRM_OK && slot->state == TRM_TACTIC_PROPOSED) { /* an engine that the library itself refuses to run */
        engine_destroy(&slot->engine);
        slot->state = TRM_TACTIC_NONE;
        status = TRM_ERROR_UNSUPPORTED;
    }
    return status;
}

trm_status trm_cudnn_convolution_run(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                                     cudaStream_t stream)
{
    pthread_mutex_lock(&state.mutex);
    trm_status status = run_locked(args, workspace, workspace_size, stream);
    pthread_mutex_unlock(&state.mutex);
    return status;
}

static trm_status prepare_locked(const trm_convolution_args *args, size_t workspace_size)
{
    int device;
    const trm_cudnn_target *target = NULL;
    trm_cudnn_problem key;
    TRM_TRY(target_get(&device, &target));
    if (!key_fill(args, device, workspace_size, &key)) {
        return TRM_ERROR_UNSUPPORTED;
    }
    const bool is_planned = slot_state_of(&key) == TRM_TACTIC_ASKED; /* by a thread that need not be waited for */
    return is_planned || slot_settle(&key, target)->state != TRM_TACTIC_NONE ? TRM_OK : TRM_ERROR_UNSUPPORTED;
}

trm_status trm_cudnn_convolution_prepare(const trm_convolution_args *args, size_t workspace_size)
{
    pthread_mutex_lock(&state.mutex);
    trm_status status = prepare_locked(args, workspace_size);
    pthread_mutex_unlock(&state.mutex);
    return status;
}

static trm_status time_locked(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                              cudaStream_t stream, int32_t proposals, trm_tactic *tactics, int32_t *n_tactics)
{
    int device;
    const trm_cudnn_target *target = NULL;
    trm_cudnn_problem key;
    TRM_TRY(target_get(&device, &target));
    if (!key_fill(args, device, workspace_size, &key)) {
        return TRM_OK;
    }
    engine_run run = {target->handle, NULL, args, workspace, stream};
    drop_kept();
    if (has_epilogue(&key)) {
        time_engines(&key, &run, true, proposals, tactics, n_tactics);
    }
    time_engines(&key, &run, false, proposals, tactics, n_tactics);
    return TRM_OK;
}

trm_status trm_cudnn_convolution_time(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                                      cudaStream_t stream, int32_t proposals, trm_tactic *tactics, int32_t *n_tactics)
{
    pthread_mutex_lock(&state.mutex);
    trm_status status = time_locked(args, workspace, workspace_size, stream, proposals, tactics, n_tactics);
    pthread_mutex_unlock(&state.mutex);
    return status;
}

static trm_status use_locked(const trm_convolution_args *args, size_t workspace_size, const trm_shortlist *engines)
{
    int device;
    const trm_cudnn_target *target = NULL;
    trm_cudnn_problem key;
    TRM_TRY(target_get(&device, &target));
    if (!key_fill(args, device, workspace_size, &key)) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN does no convolutions of %s", trm_dtype_name(args->dtype));
    }
    if (engines == NULL) {
        cache_slot *slot = trm_tactic_cache_get(&tactic_cache, &key, true);
        engine_destroy(&slot->engine);
        slot->state = TRM_TACTIC_NONE;
        return TRM_OK;
    }
    const char *tactic = engines->tactics[0].name;
    cache_slot *slot = trm_tactic_cache_find(&tactic_cache, &key);
    if (slot != NULL && slot->state == TRM_TACTIC_TUNED && strcmp(tactic, slot->known.tactics[0].name) == 0) {
        slot->known = *engines; /* another layer of the same problem, or other times of it */
        return TRM_OK;
    }
    engine chosen = {.fused = false};
    if (strcmp(tactic, state.kept_tactic.name) == 0 && memcmp(&key, &state.kept_key, sizeof(key)) == 0) {
        chosen = state.kept;
        memset(&state.kept, 0, sizeof(state.kept));
        state.kept_tactic.name[0] = '\0';
    } else {
        const trm_cudnn_target with_handle = {.handle = target->handle};
        if ((!is_fused(tactic) && strncmp(tactic, ALONE_PREFIX, strlen(ALONE_PREFIX)) != 0) ||
            !find_engine(&key, &with_handle, true, tactic, &chosen)) {
            return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN has no engine %s for the convolution", tactic);
        }
    }
    slot_tune(&key, &chosen, engines);
    return TRM_OK;
}

trm_status trm_cudnn_convolution_use(const trm_convolution_args *args, size_t workspace_size,
                                     const trm_shortlist *engines)
{
    pthread_mutex_lock(&state.mutex);
    trm_status status = use_locked(args, workspace_size, engines);
    pthread_mutex_unlock(&state.mutex);
    return status;
}

static trm_tactic_state state_of(const trm_convolution_args *args, size_t workspace_size)
{
    int device;
    const trm_cudnn_target *target = NULL;
    trm_cudnn_problem key;
    trm_tactic_state now = TRM_TACTIC_FREE;
    pthread_mutex_lock(&state.mutex);
    if (target_get(&device, &target) == TRM_OK && key_fill(args, device, workspace_size, &key)) {
        now = slot_state_of(&key);
    }
    pthread_mutex_unlock(&state.mutex);
    return now;
}

bool trm_cudnn_convolution_is_tuned(const trm_convolution_args *args, size_t workspace_size)
{
    const trm_tactic_state now = state_of(args, workspace_size);
    return now == TRM_TACTIC_TUNED || now == TRM_TACTIC_NONE;
}

bool trm_cudnn_convolution_is_chosen(const trm_convolution_args *args, size_t workspace_size)
{
    return state_of(args, workspace_size) == TRM_TACTIC_TUNED;
}

bool trm_cudnn_convolution_is_prepared(const trm_convolution_args *args, size_t workspace_size)
{
    const trm_tactic_state now = state_of(args, workspace_size);
    return now != TRM_TACTIC_FREE && now != TRM_TACTIC_ASKED;
}

bool trm_cudnn_convolution_is_likely(const trm_convolution_args *args, size_t workspace_size)
{
    int device;
    const trm_cudnn_target *target = NULL;
    trm_cudnn_problem key;
    bool likely = false;
    pthread_mutex_lock(&state.mutex);
    if (target_get(&device, &target) == TRM_OK && key_fill(args, device, workspace_size, &key)) {
        const trm_tactic_state now = slot_state_of(&key);
        likely = now == TRM_TACTIC_TUNED || (now != TRM_TACTIC_NONE && find_relative(&key) != NULL);
    }
    pthread_mutex_unlock(&state.mutex);
    return likely;
}

size_t trm_cudnn_version(void)
{
    int device;
    const trm_cudnn_target *target = NULL;
    pthread_mutex_lock(&state.mutex);
    size_t version = target_get(&device, &target) == TRM_OK ? trm_cudnn.cudnnGetVersion() : 0;
    pthread_mutex_unlock(&state.mutex);
    return version;
}

#else

trm_status trm_cudnn_convolution_run(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                                     cudaStream_t stream)
{
    (void)args, (void)workspace, (void)workspace_size, (void)stream;
    return trm_fail(TRM_ERROR_UNSUPPORTED, "built without the headers of cuDNN");
}

trm_status trm_cudnn_convolution_time(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                                      cudaStream_t stream, int32_t proposals, trm_tactic *tactics, int32_t *n_tactics)
{
    (void)args, (void)workspace, (void)workspace_size, (void)stream, (void)proposals, (void)tactics, (void)n_tactics;
    return trm_fail(TRM_ERROR_UNSUPPORTED, "built without the headers of cuDNN");
}

trm_status trm_cudnn_convolution_use(const trm_convolution_args *args, size_t workspace_size,
                                     const trm_shortlist *engines)
{
    (void)args, (void)workspace_size;
    return engines == NULL ? TRM_OK : trm_fail(TRM_ERROR_UNSUPPORTED, "built without the headers of cuDNN");
}

bool trm_cudnn_convolution_is_tuned(const trm_convolution_args *args, size_t workspace_size)
{
    (void)args, (void)workspace_size;
    return true;
}

bool trm_cudnn_convolution_is_chosen(const trm_convolution_args *args, size_t workspace_size)
{
    (void)args, (void)workspace_size;
    return false;
}

trm_status trm_cudnn_convolution_prepare(const trm_convolution_args *args, size_t workspace_size)
{
    (void)args, (void)workspace_size;
    return trm_fail(TRM_ERROR_UNSUPPORTED, "built without the headers of cuDNN");
}

bool trm_cudnn_convolution_is_prepared(const trm_convolution_args *args, size_t workspace_size)
{
    (void)args, (void)workspace_size;
    return true;
}

bool trm_cudnn_convolution_is_likely(const trm_convolution_args *args, size_t workspace_size)
{
    (void)args, (void)workspace_size;
    return false;
}

size_t trm_cudnn_version(void)
{
    return 0;
}

#endif
