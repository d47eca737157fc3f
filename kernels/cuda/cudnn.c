/*
 * cuDNN behind a table of functions found at run time: a convolution and what follows it as a graph of its backend
 * interface, engines chosen by heuristic or by timing and remembered per problem.
 *
 * Two graphs are tried: all of the layer in one, and the convolution alone with a pass of ours behind it.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/library.h"
#include "kernels/cuda/convolution.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"

#if defined(__has_include) && __has_include(<cudnn.h>)
#include "kernels/cuda/cudnn.h"

#define MAX_DEVICES  64
#define CACHE_SLOTS  2048 /* a power of two */
#define CACHE_PROBES 8

/* An engine ready to run: descriptors of the graph and of the plan. */
typedef struct engine {
    trm_cudnn_pieces graph, plan;
    cudnnBackendDescriptor_t execution;
    bool fused;
} engine;

typedef enum slot_state { SLOT_FREE = 0, SLOT_PROPOSED, SLOT_TUNED, SLOT_NONE } slot_state;

typedef struct cache_slot {
    slot_state state; /* NONE: the library does not do it, or slower */
    trm_cudnn_problem key;
    engine engine;
    char name[TRM_TACTIC_NAME_SIZE]; /* of a tuned one */
} cache_slot;

static struct {
    pthread_mutex_t mutex; /* held while the library is called */
    bool loaded, missing;
    void *library;
    cudnnHandle_t handles[MAX_DEVICES];
    cache_slot cache[CACHE_SLOTS];
    engine kept; /* the best of the problem that was timed last, if it has a name */
    trm_cudnn_problem kept_key;
    double kept_microseconds;
    char kept_name[TRM_TACTIC_NAME_SIZE];
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static trm_status dnn_fail(cudnnStatus_t error, const char *what)
{
    trm_status status = error / 1000 == 3 ? TRM_ERROR_UNSUPPORTED : TRM_ERROR_INTERNAL;
    return trm_fail(status, "%s failed: %s", what, trm_cudnn.cudnnGetErrorString(error));
}

/* The current device's handle, under the mutex. UNSUPPORTED without a library. */
static trm_status handle_get(int *device, cudnnHandle_t *handle)
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
    if (state.handles[*device] == NULL) {
        cudnnStatus_t error = trm_cudnn.cudnnCreate(&state.handles[*device]);
        if (error != CUDNN_STATUS_SUCCESS) {
            state.handles[*device] = NULL;
            state.missing = true; /* our own kernels do */
            return trm_fail(TRM_ERROR_UNSUPPORTED, "cudnnCreate failed: %s", trm_cudnn.cudnnGetErrorString(error));
        }
    }
    *handle = state.handles[*device];
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
static bool plan_engine(const trm_cudnn_problem *key, cudnnHandle_t handle, bool fused, const trm_cudnn_pieces *graph,
                        cudnnBackendDescriptor_t configuration, engine *found)
{
    engine candidate = {.fused = fused};
    if (!trm_cudnn_is_exact(key, configuration) ||
        !trm_cudnn_make_plan(key, handle, configuration, &candidate.plan, &candidate.execution)) {
        return false;
    }
    engine_destroy(found);
    *found = candidate;
    found->graph = *graph;
    return true;
}

/* The engine of this name; of those that need no compiler, or of all. */
static bool find_engine(const trm_cudnn_problem *key, cudnnHandle_t handle, bool fused, bool compiled, const char *name,
                        engine *found)
{
    trm_cudnn_pieces graph = {.n = 0};
    cudnnBackendDescriptor_t configuration;
    if (trm_cudnn_open_engine(key, handle, fused, name, &graph, &configuration) &&
        (compiled || !trm_cudnn_is_compiled(configuration)) &&
        plan_engine(key, handle, fused, &graph, configuration, found)) {
        return true;
    }
    trm_cudnn_destroy(&graph);
    return false;
}

/* The first proposal that can be planned, of those that need no compiler or of all. */
static bool find_proposal(const trm_cudnn_problem *key, cudnnHandle_t handle, bool fused, bool compiled, engine *found)
{
    trm_cudnn_pieces graph = {.n = 0};
    cudnnBackendDescriptor_t proposals[MAX_PROPOSALS];
    const int32_t n = trm_cudnn_open_graph(key, handle, fused, &graph, proposals, 8);
    for (int32_t i = 0; i < n; i++) {
        if ((compiled || !trm_cudnn_is_compiled(proposals[i])) &&
            plan_engine(key, handle, fused, &graph, proposals[i], found)) {
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
    if (state.kept_name[0] != '\0' && tactic->microseconds >= state.kept_microseconds) {
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
    state.kept_microseconds = tactic->microseconds;
    strcpy(state.kept_name, tactic->name);
}

/* Plans up to `wanted` engines and times them one by one; appends them to the tactics. One thread and one handle do
 * that: a handle for each of 16 threads saved no time, and every later kernel of a captured run began later (docs). */
static void time_engines(const trm_cudnn_problem *key, engine_run *run, bool fused, int32_t wanted, trm_tactic *tactics,
                         int32_t *n_tactics)
{
    trm_cudnn_pieces graph = {.n = 0};
    cudnnBackendDescriptor_t proposals[MAX_PROPOSALS];
    const int32_t room = TRM_MOST_TACTICS - *n_tactics, most_compiled = trm_cudnn_most_compiled(key, wanted);
    const int32_t n = trm_cudnn_open_graph(key, run->handle, fused, &graph, proposals, wanted < room ? wanted : room);
    bool graph_is_kept = false;
    for (int32_t i = 0, n_compiled = 0; i < n; i++) {
        engine candidate = {.fused = fused};
        trm_tactic *tactic = &tactics[*n_tactics];
        const bool compiled = trm_cudnn_is_compiled(proposals[i]);
        float milliseconds;
        trm_cudnn_name_engine(proposals[i], fused, tactic->name);
        if (tactic->name[0] == '\0' || (compiled && n_compiled >= most_compiled) ||
            !trm_cudnn_is_exact(key, proposals[i]) ||
            !trm_cudnn_make_plan(key, run->handle, proposals[i], &candidate.plan, &candidate.execution)) {
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
    state.kept_name[0] = '\0';
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
    return args->dtype != TRM_F64 && args->channels > 0 && w->in_size > 0;
}

static uint64_t key_hash(const trm_cudnn_problem *key)
{
    uint64_t hash = trm_hash_bytes(TRM_HASH_START, key, sizeof(*key));
    return hash ^ (hash >> 29);
}

/* The slot that holds the key, else an emptied one for it. */
static cache_slot *slot_get(const trm_cudnn_problem *key)
{
    uint64_t home = key_hash(key);
    cache_slot *place = NULL;
    for (uint64_t i = 0; i < CACHE_PROBES; i++) {
        cache_slot *slot = &state.cache[(home + i) & (CACHE_SLOTS - 1)];
        if (slot->state != SLOT_FREE && memcmp(&slot->key, key, sizeof(*key)) == 0) {
            return slot;
        }
        place = slot->state == SLOT_FREE && place == NULL ? slot : place;
    }
    place = place != NULL ? place : &state.cache[home & (CACHE_SLOTS - 1)];
    engine_destroy(&place->engine);
    place->state = SLOT_FREE;
    place->key = *key;
    return place;
}

static bool has_epilogue(const trm_cudnn_problem *key)
{
    return key->bias || key->residual || key->activation != TRM_ACTIVATION_NONE;
}

/* What was tuned for the same problem but for the batch, at most four times as large or small: the nearest, or NULL. */
static const cache_slot *find_relative(const trm_cudnn_problem *key)
{
    const cache_slot *nearest = NULL;
    int64_t smallest = 5; /* the larger batch over the smaller one, rounded up */
    for (int32_t i = 0; i < CACHE_SLOTS; i++) {
        const cache_slot *slot = &state.cache[i];
        trm_cudnn_problem same;
        memcpy(&same, &slot->key, sizeof(same)); /* compared as bytes */
        same.batch = key->batch;
        same.workspace = key->workspace;
        same.alignment = key->alignment;
        if (slot->state != SLOT_TUNED || memcmp(&same, key, sizeof(same)) != 0) {
            continue;
        }
        const int64_t more = slot->key.batch > key->batch ? slot->key.batch : key->batch;
        const int64_t less = slot->key.batch > key->batch ? key->batch : slot->key.batch;
        const int64_t ratio = less < 1 ? 5 : (more + less - 1) / less;
        if (ratio < smallest) {
            smallest = ratio;
            nearest = slot;
        }
    }
    return nearest;
}

/* For a problem that was not tuned, in little time: what its relative runs with, or another engine, that needs no
 * compiler, and only if there is none, one that does. */
static bool choose_engine(const trm_cudnn_problem *key, cudnnHandle_t handle, engine *chosen)
{
    const cache_slot *relative = find_relative(key);
    const bool fused = has_epilogue(key);
    return (relative != NULL && find_engine(key, handle, relative->engine.fused, false, relative->name, chosen)) ||
           (fused && find_proposal(key, handle, true, false, chosen)) ||
           find_proposal(key, handle, false, false, chosen) ||
           (fused && find_proposal(key, handle, true, true, chosen)) || find_proposal(key, handle, false, true, chosen);
}

/* Under the mutex. */
static trm_status run_locked(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                             cudaStream_t stream)
{
    int device;
    cudnnHandle_t handle = NULL;
    trm_cudnn_problem key;
    TRM_TRY(handle_get(&device, &handle));
    if (!key_fill(args, device, workspace_size, &key)) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN does no convolutions of %s", trm_dtype_name(args->dtype));
    }
    cache_slot *slot = slot_get(&key);
    if (slot->state == SLOT_FREE) {
        slot->state = choose_engine(&key, handle, &slot->engine) ? SLOT_PROPOSED : SLOT_NONE;
    }
    if (slot->state == SLOT_NONE) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN has no engine for the convolution");
    }
    engine_run run = {handle, &slot->engine, args, workspace, stream};
    trm_status status = engine_enqueue(&run);
    if (status != TRM_OK && slot->state == SLOT_PROPOSED) { /* an engine that the library itself refuses to run */
        engine_destroy(&slot->engine);
        slot->state = SLOT_NONE;
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

static trm_status time_locked(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                              cudaStream_t stream, int32_t proposals, trm_tactic *tactics, int32_t *n_tactics)
{
    int device;
    cudnnHandle_t handle = NULL;
    trm_cudnn_problem key;
    TRM_TRY(handle_get(&device, &handle));
    if (!key_fill(args, device, workspace_size, &key)) {
        return TRM_OK;
    }
    engine_run run = {handle, NULL, args, workspace, stream};
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

static trm_status use_locked(const trm_convolution_args *args, size_t workspace_size, const char *tactic)
{
    int device;
    cudnnHandle_t handle = NULL;
    trm_cudnn_problem key;
    TRM_TRY(handle_get(&device, &handle));
    if (!key_fill(args, device, workspace_size, &key)) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN does no convolutions of %s", trm_dtype_name(args->dtype));
    }
    cache_slot *slot = slot_get(&key);
    if (tactic == NULL) {
        engine_destroy(&slot->engine);
        slot->state = SLOT_NONE;
        return TRM_OK;
    }
    if (slot->state == SLOT_TUNED && strcmp(tactic, slot->name) == 0) {
        return TRM_OK; /* another layer of the same problem */
    }
    if (strcmp(tactic, state.kept_name) == 0 && memcmp(&key, &state.kept_key, sizeof(key)) == 0) {
        engine_destroy(&slot->engine);
        slot->engine = state.kept;
        slot->state = SLOT_TUNED;
        strcpy(slot->name, tactic);
        memset(&state.kept, 0, sizeof(state.kept));
        state.kept_name[0] = '\0';
        return TRM_OK;
    }
    const bool fused = strncmp(tactic, "cudnn.fused:", 12) == 0;
    if ((!fused && strncmp(tactic, "cudnn.alone:", 12) != 0) ||
        !find_engine(&key, handle, fused, true, tactic, &slot->engine)) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN has no engine %s for the convolution", tactic);
    }
    slot->state = SLOT_TUNED;
    strcpy(slot->name, tactic); /* that of an engine, so it fits */
    return TRM_OK;
}

trm_status trm_cudnn_convolution_use(const trm_convolution_args *args, size_t workspace_size, const char *tactic)
{
    pthread_mutex_lock(&state.mutex);
    trm_status status = use_locked(args, workspace_size, tactic);
    pthread_mutex_unlock(&state.mutex);
    return status;
}

static slot_state state_of(const trm_convolution_args *args, size_t workspace_size)
{
    int device;
    cudnnHandle_t handle = NULL;
    trm_cudnn_problem key;
    slot_state now = SLOT_FREE;
    pthread_mutex_lock(&state.mutex);
    if (handle_get(&device, &handle) == TRM_OK && key_fill(args, device, workspace_size, &key)) {
        now = slot_get(&key)->state;
    }
    pthread_mutex_unlock(&state.mutex);
    return now;
}

bool trm_cudnn_convolution_is_tuned(const trm_convolution_args *args, size_t workspace_size)
{
    const slot_state now = state_of(args, workspace_size);
    return now == SLOT_TUNED || now == SLOT_NONE;
}

bool trm_cudnn_convolution_is_chosen(const trm_convolution_args *args, size_t workspace_size)
{
    return state_of(args, workspace_size) == SLOT_TUNED;
}

bool trm_cudnn_convolution_is_likely(const trm_convolution_args *args, size_t workspace_size)
{
    int device;
    cudnnHandle_t handle = NULL;
    trm_cudnn_problem key;
    bool likely = false;
    pthread_mutex_lock(&state.mutex);
    if (handle_get(&device, &handle) == TRM_OK && key_fill(args, device, workspace_size, &key)) {
        const slot_state now = slot_get(&key)->state;
        likely = now == SLOT_TUNED || (now != SLOT_NONE && find_relative(&key) != NULL);
    }
    pthread_mutex_unlock(&state.mutex);
    return likely;
}

size_t trm_cudnn_version(void)
{
    int device;
    cudnnHandle_t handle = NULL;
    pthread_mutex_lock(&state.mutex);
    size_t version = handle_get(&device, &handle) == TRM_OK ? trm_cudnn.cudnnGetVersion() : 0;
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

trm_status trm_cudnn_convolution_use(const trm_convolution_args *args, size_t workspace_size, const char *tactic)
{
    (void)args, (void)workspace_size;
    return tactic == NULL ? TRM_OK : trm_fail(TRM_ERROR_UNSUPPORTED, "built without the headers of cuDNN");
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
