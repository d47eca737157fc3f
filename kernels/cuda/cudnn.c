/*
 * cuDNN behind a table of functions found at run time: a convolution and what follows it as a graph of its backend
 * interface, engines chosen by heuristic or by timing and remembered per problem.
 *
 * Two graphs are tried: all of the layer in one, and the convolution alone with a pass of ours behind it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/library.h"
#include "kernels/cuda/convolution.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"

#if defined(__has_include) && __has_include(<cudnn.h>)
#include <cudnn.h>

#define CUDNN_FUNCTIONS(X)                                                                                             \
    X(cudnnCreate)                                                                                                     \
    X(cudnnSetStream)                                                                                                  \
    X(cudnnGetErrorString)                                                                                             \
    X(cudnnGetVersion)                                                                                                 \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendDestroyDescriptor)                                                                                   \
    X(cudnnBackendFinalize)                                                                                            \
    X(cudnnBackendSetAttribute)                                                                                        \
    X(cudnnBackendGetAttribute)                                                                                        \
    X(cudnnBackendExecute)

#define MAX_DEVICES   64
#define MAX_PIECES    (16 + TRM_MOST_TACTICS)
#define MAX_PROPOSALS TRM_MOST_TACTICS
#define MAX_KNOBS     32
#define CACHE_SLOTS   512 /* a power of two */

static struct {
#define FIELD(name) __typeof__(&name) name;
    CUDNN_FUNCTIONS(FIELD)
#undef FIELD
} dnn;

/* What an engine is chosen for. Compared as bytes: always zeroed before it is filled. */
typedef struct problem_key {
    int64_t batch, channels_in, channels, outputs, groups;
    int64_t in[TRM_MAX_SPATIAL], out[TRM_MAX_SPATIAL], kernel[TRM_MAX_SPATIAL];
    int64_t stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL], before[TRM_MAX_SPATIAL];
    uint64_t workspace, alignment;
    int32_t device, dtype, activation, bias, residual, tf32;
} problem_key;

/* Descriptors that live and die together. After the first error nothing more is done. */
typedef struct pieces {
    cudnnBackendDescriptor_t items[MAX_PIECES];
    int32_t n;
    cudnnStatus_t error;
} pieces;

/* An engine ready to run: descriptors of the graph and of the plan. */
typedef struct engine {
    pieces graph, plan;
    cudnnBackendDescriptor_t execution;
    bool fused;
} engine;

typedef enum slot_state { SLOT_FREE = 0, SLOT_PROPOSED, SLOT_TUNED, SLOT_NONE } slot_state;

typedef struct cache_slot {
    slot_state state; /* NONE: the library does not do it, or slower */
    problem_key key;
    engine engine;
} cache_slot;

static struct {
    pthread_mutex_t mutex; /* held while the library is called */
    bool loaded, missing;
    void *library;
    cudnnHandle_t handles[MAX_DEVICES];
    cache_slot cache[CACHE_SLOTS];
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static trm_status dnn_fail(cudnnStatus_t error, const char *what)
{
    trm_status status = error / 1000 == 3 ? TRM_ERROR_UNSUPPORTED : TRM_ERROR_INTERNAL;
    return trm_fail(status, "%s failed: %s", what, dnn.cudnnGetErrorString(error));
}

/* The current device's handle, under the mutex. UNSUPPORTED without a library. */
static trm_status handle_get(int *device, cudnnHandle_t *handle)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so"};
    static const trm_library_symbol symbols[] = {
#define SYMBOL(name) {#name, &dnn.name, false},
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
        cudnnStatus_t error = dnn.cudnnCreate(&state.handles[*device]);
        if (error != CUDNN_STATUS_SUCCESS) {
            state.handles[*device] = NULL;
            state.missing = true; /* our own kernels do */
            return trm_fail(TRM_ERROR_UNSUPPORTED, "cudnnCreate failed: %s", dnn.cudnnGetErrorString(error));
        }
    }
    *handle = state.handles[*device];
    return TRM_OK;
}

/* ---- descriptors ---- */

static cudnnBackendDescriptor_t make(pieces *p, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (p->error == CUDNN_STATUS_SUCCESS && p->n < MAX_PIECES) {
        p->error = dnn.cudnnBackendCreateDescriptor(type, &made);
        if (p->error == CUDNN_STATUS_SUCCESS) {
            p->items[p->n++] = made;
        }
    } else if (p->error == CUDNN_STATUS_SUCCESS) {
        p->error = CUDNN_STATUS_NOT_SUPPORTED;
    }
    return made;
}

static void set(pieces *p, cudnnBackendDescriptor_t piece, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (p->error == CUDNN_STATUS_SUCCESS) {
        p->error = dnn.cudnnBackendSetAttribute(piece, name, type, count, values);
    }
}

static void get(pieces *p, cudnnBackendDescriptor_t piece, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *values)
{
    if (p->error == CUDNN_STATUS_SUCCESS) {
        p->error = dnn.cudnnBackendGetAttribute(piece, name, type, wanted, count, values);
    }
}

static void finish(pieces *p, cudnnBackendDescriptor_t piece)
{
    if (p->error == CUDNN_STATUS_SUCCESS) {
        p->error = dnn.cudnnBackendFinalize(piece);
    }
}

static void destroy(pieces *p)
{
    for (int32_t i = p->n - 1; i >= 0; i--) {
        dnn.cudnnBackendDestroyDescriptor(p->items[i]);
    }
    memset(p, 0, sizeof(*p));
}

/* Tensors of a graph. VIRTUAL: the first of those that exist only inside it. */
enum { UID_X = 'x', UID_W = 'w', UID_B = 'b', UID_R = 'r', UID_Y = 'y', UID_VIRTUAL = 'A' };

static cudnnDataType_t data_type(trm_dtype dtype)
{
    return dtype == TRM_F16 ? CUDNN_DATA_HALF : dtype == TRM_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* A row-major tensor; virtual ones are f32. */
static cudnnBackendDescriptor_t tensor(pieces *p, int64_t uid, const problem_key *key, const int64_t *dims, int64_t n)
{
    int64_t strides[2 + TRM_MAX_SPATIAL], step = 1;
    const int64_t alignment = (int64_t)key->alignment;
    const bool is_virtual = uid < 'a';
    cudnnDataType_t type = is_virtual ? CUDNN_DATA_FLOAT : data_type((trm_dtype)key->dtype);
    cudnnBackendDescriptor_t made = make(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    for (int64_t i = n - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims[i];
    }
    set(p, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(p, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dims);
    set(p, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, strides);
    set(p, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(p, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(p, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    finish(p, made);
    return made;
}

static cudnnBackendDescriptor_t convolution_op(pieces *p, const problem_key *key, cudnnBackendDescriptor_t x,
                                               cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y, int32_t skip)
{
    int64_t n = TRM_MAX_SPATIAL - skip, after[TRM_MAX_SPATIAL];
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const float one = 1.0f, zero = 0.0f;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        /* The same on both sides where that gives these dims: more engines take it. */
        const int64_t extent = trm_window_extent(key->kernel[i], key->dilation[i]);
        const int64_t room = key->in[i] + 2 * key->before[i] - extent;
        const int64_t needed = (key->out[i] - 1) * key->stride[i] + extent - key->in[i] - key->before[i];
        after[i] = room >= 0 && room / key->stride[i] + 1 == key->out[i] ? key->before[i] : needed > 0 ? needed : 0;
    }
    cudnnBackendDescriptor_t window = make(p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(p, window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(p, window, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(p, window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n);
    set(p, window, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, key->dilation + skip);
    set(p, window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, key->stride + skip);
    set(p, window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, key->before + skip);
    set(p, window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, after + skip);
    finish(p, window);
    cudnnBackendDescriptor_t op = make(p, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &window);
    set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
    set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    finish(p, op);
    return op;
}

/* y = mode(x) or mode(x, other). */
static cudnnBackendDescriptor_t pointwise_op(pieces *p, cudnnPointwiseMode_t mode, double swish,
                                             cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t other,
                                             cudnnBackendDescriptor_t y)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what = make(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(p, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(p, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (mode == CUDNN_POINTWISE_SWISH_FWD) {
        set(p, what, CUDNN_ATTR_POINTWISE_SWISH_BETA, CUDNN_TYPE_DOUBLE, 1, &swish);
    }
    finish(p, what);
    cudnnBackendDescriptor_t op = make(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &what);
    set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    if (other != NULL) {
        set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
    }
    set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    finish(p, op);
    return op;
}

/* Whether the library has the activation; *swish is then its factor. */
static bool activation_mode(trm_activation activation, cudnnPointwiseMode_t *mode, double *swish)
{
    *swish = activation == TRM_ACTIVATION_QUICK_GELU ? 1.702 : 1.0;
    *mode = CUDNN_POINTWISE_RELU_FWD;
    switch (activation) {
    case TRM_ACTIVATION_NONE:
    case TRM_ACTIVATION_RELU:
        return true;
    case TRM_ACTIVATION_SILU:
    case TRM_ACTIVATION_QUICK_GELU:
        *mode = CUDNN_POINTWISE_SWISH_FWD;
        return true;
    case TRM_ACTIVATION_GELU:
        *mode = CUDNN_POINTWISE_GELU_FWD;
        return true;
    case TRM_ACTIVATION_GELU_TANH:
        *mode = CUDNN_POINTWISE_GELU_APPROX_TANH_FWD;
        return true;
    case TRM_ACTIVATION_SIGMOID:
        *mode = CUDNN_POINTWISE_SIGMOID_FWD;
        return true;
    case TRM_ACTIVATION_TANH:
        *mode = CUDNN_POINTWISE_TANH_FWD;
        return true;
    default:
        return false;
    }
}

/* The graph of the problem; without `fused` of the convolution alone. Returns its descriptor. */
static cudnnBackendDescriptor_t build_graph(pieces *p, cudnnHandle_t handle, const problem_key *key, bool fused)
{
    const int32_t skip = key->in[0] == 1 && key->kernel[0] == 1 && key->before[0] == 0 ? 1 : 0;
    const int64_t n = 2 + TRM_MAX_SPATIAL - skip;
    int64_t x[5] = {key->batch, key->channels_in}, w[5] = {key->outputs * key->groups, key->channels};
    int64_t y[5] = {key->batch, key->outputs * key->groups}, b[5] = {1, key->outputs * key->groups, 1, 1, 1};
    memcpy(x + 2, key->in + skip, (size_t)(n - 2) * sizeof(int64_t));
    memcpy(w + 2, key->kernel + skip, (size_t)(n - 2) * sizeof(int64_t));
    memcpy(y + 2, key->out + skip, (size_t)(n - 2) * sizeof(int64_t));
    cudnnPointwiseMode_t mode;
    double swish;
    if (!activation_mode((trm_activation)key->activation, &mode, &swish)) {
        p->error = fused ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    }
    const int32_t left_after_convolution =
        !fused ? 0 : key->bias + key->residual + (key->activation != TRM_ACTIVATION_NONE);
    int32_t left = left_after_convolution, n_ops = 0;
    int64_t next = UID_VIRTUAL;
    cudnnBackendDescriptor_t ops[4], from = tensor(p, UID_X, key, x, n), weight = tensor(p, UID_W, key, w, n);
    cudnnBackendDescriptor_t to = tensor(p, left == 0 ? UID_Y : next++, key, y, n);
    ops[n_ops++] = convolution_op(p, key, from, weight, to, skip);
    for (int32_t step = 0; step < 3 && left > 0; step++) { /* residual, bias, activation */
        const bool there = step == 0   ? key->residual != 0
                           : step == 1 ? key->bias != 0
                                       : key->activation != TRM_ACTIVATION_NONE;
        if (!there) {
            continue;
        }
        cudnnBackendDescriptor_t other = step == 0   ? tensor(p, UID_R, key, y, n)
                                         : step == 1 ? tensor(p, UID_B, key, b, n)
                                                     : NULL;
        from = to;
        left--;
        to = tensor(p, left == 0 ? UID_Y : next++, key, y, n);
        ops[n_ops++] = pointwise_op(p, step == 2 ? mode : CUDNN_POINTWISE_ADD, swish, from, other, to);
    }
    cudnnBackendDescriptor_t graph = make(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n_ops, ops);
    finish(p, graph);
    return graph;
}

/* ---- engines ---- */

/* The engines the library proposes for a graph, as configurations, best first; they belong to `p`. */
static int32_t propose(pieces *p, cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode, int32_t wanted,
                       cudnnBackendDescriptor_t *configurations)
{
    int64_t count = 0;
    cudnnBackendDescriptor_t heuristic = make(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(p, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    set(p, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(p, heuristic);
    for (int32_t i = 0; i < wanted; i++) {
        configurations[i] = make(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    get(p, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, wanted, &count, configurations);
    return p->error == CUDNN_STATUS_SUCCESS ? (int32_t)(count < wanted ? count : wanted) : 0;
}

/* Whether an engine keeps to the type's precision and always gives the same. */
static bool is_exact(const problem_key *key, cudnnBackendDescriptor_t configuration)
{
    pieces p = {.n = 0};
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0, n = 0;
    cudnnBackendDescriptor_t found = make(&p, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    get(&p, configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &found);
    get(&p, found, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
        notes);
    bool exact = p.error == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; exact && i < count; i++) {
        const bool f32 = key->dtype == TRM_F32;
        exact = notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
                notes[i] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION &&
                notes[i] != CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 &&
                notes[i] != CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 &&
                !(notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS && f32 && key->tf32 == 0) &&
                !(notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && f32 && key->tf32 == 0);
    }
    destroy(&p);
    return exact;
}

/* A plan of a configuration, if the library makes one that fits into the workspace. */
static bool make_plan(const problem_key *key, cudnnHandle_t handle, cudnnBackendDescriptor_t configuration, pieces *p,
                      cudnnBackendDescriptor_t *execution)
{
    int64_t need = 0, count = 0;
    memset(p, 0, sizeof(*p));
    *execution = make(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(p, *execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(p, *execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration);
    finish(p, *execution);
    get(p, *execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &need);
    if (p->error != CUDNN_STATUS_SUCCESS || need < 0 || (uint64_t)need > key->workspace) {
        destroy(p);
        return false;
    }
    return true;
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
    pieces p = {.n = 0};
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
    cudnnBackendDescriptor_t pack = make(&p, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&p, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data);
    set(&p, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    set(&p, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &run->workspace);
    finish(&p, pack);
    if (p.error == CUDNN_STATUS_SUCCESS) {
        p.error = dnn.cudnnSetStream(run->handle, run->stream);
    }
    if (p.error == CUDNN_STATUS_SUCCESS) {
        p.error = dnn.cudnnBackendExecute(run->handle, run->engine->execution, pack);
    }
    const cudnnStatus_t error = p.error;
    destroy(&p);
    if (error != CUDNN_STATUS_SUCCESS) {
        return dnn_fail(error, "cudnnBackendExecute");
    }
    return run->engine->fused ? TRM_OK : trm_cuda_convolution_finish(args, run->stream);
}

static void engine_destroy(engine *e)
{
    destroy(&e->plan);
    destroy(&e->graph);
    memset(e, 0, sizeof(*e));
}

/* ---- engines by name ---- */

/* "cudnn.fused:engine,knob=value,..." of a configuration; empty if the library does not tell. */
static void name_engine(cudnnBackendDescriptor_t configuration, bool fused, char name[TRM_TACTIC_NAME_SIZE])
{
    pieces p = {.n = 0};
    int64_t index = 0, count = 0, n = 0;
    cudnnBackendDescriptor_t knobs[MAX_KNOBS], found = make(&p, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    for (int i = 0; i < MAX_KNOBS; i++) {
        knobs[i] = make(&p, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    }
    get(&p, configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &found);
    get(&p, found, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &index);
    get(&p, configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS, &count, knobs);
    int used = snprintf(name, TRM_TACTIC_NAME_SIZE, "cudnn.%s:%lld", fused ? "fused" : "alone", (long long)index);
    for (int64_t i = 0; i < count && i < MAX_KNOBS && used < TRM_TACTIC_NAME_SIZE; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)0;
        int64_t value = 0;
        get(&p, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &n, &type);
        get(&p, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &n, &value);
        used += snprintf(name + used, TRM_TACTIC_NAME_SIZE - (size_t)used, ",%d=%lld", (int)type, (long long)value);
    }
    if (p.error != CUDNN_STATUS_SUCCESS || used >= TRM_TACTIC_NAME_SIZE) {
        name[0] = '\0';
    }
    destroy(&p);
}

/* The graph of a problem and what the library proposes for it, best first; both belong to `graph`. */
static int32_t open_graph(const problem_key *key, cudnnHandle_t handle, bool fused, pieces *graph,
                          cudnnBackendDescriptor_t proposals[MAX_PROPOSALS], int32_t wanted)
{
    cudnnBackendDescriptor_t whole = build_graph(graph, handle, key, fused);
    int32_t n = propose(graph, whole, CUDNN_HEUR_MODE_A, wanted, proposals);
    if (n == 0 && graph->error == CUDNN_STATUS_SUCCESS) {
        n = propose(graph, whole, CUDNN_HEUR_MODE_FALLBACK, wanted, proposals);
    }
    return n;
}

/* The engine of this name, or with NULL the first, that can be planned. */
static bool find_engine(const problem_key *key, cudnnHandle_t handle, bool fused, const char *name, engine *found)
{
    pieces graph = {.n = 0};
    cudnnBackendDescriptor_t proposals[MAX_PROPOSALS];
    int32_t n = open_graph(key, handle, fused, &graph, proposals, name == NULL ? 8 : MAX_PROPOSALS);
    engine candidate = {.fused = fused};
    for (int32_t i = 0; i < n; i++) {
        char its_name[TRM_TACTIC_NAME_SIZE];
        if (name != NULL) {
            name_engine(proposals[i], fused, its_name);
        }
        if ((name == NULL || strcmp(name, its_name) == 0) && is_exact(key, proposals[i]) &&
            make_plan(key, handle, proposals[i], &candidate.plan, &candidate.execution)) {
            engine_destroy(found);
            *found = candidate;
            found->graph = graph;
            return true;
        }
    }
    destroy(&graph);
    return false;
}

/* Times up to `wanted` engines and appends them to the tactics. */
static void time_engines(const problem_key *key, engine_run *run, bool fused, int32_t wanted, trm_tactic *tactics,
                         int32_t *n_tactics)
{
    pieces graph = {.n = 0};
    cudnnBackendDescriptor_t proposals[MAX_PROPOSALS];
    const int32_t room = TRM_MOST_TACTICS - *n_tactics;
    int32_t n = open_graph(key, run->handle, fused, &graph, proposals, wanted < room ? wanted : room);
    for (int32_t i = 0; i < n; i++) {
        engine candidate = {.fused = fused};
        trm_tactic *tactic = &tactics[*n_tactics];
        float milliseconds;
        name_engine(proposals[i], fused, tactic->name);
        if (tactic->name[0] == '\0' || !is_exact(key, proposals[i]) ||
            !make_plan(key, run->handle, proposals[i], &candidate.plan, &candidate.execution)) {
            continue;
        }
        run->engine = &candidate;
        if (trm_cuda_time(run->stream, engine_enqueue, run, &milliseconds) == TRM_OK) {
            tactic->microseconds = (double)milliseconds * 1e3;
            (*n_tactics)++;
        }
        destroy(&candidate.plan);
    }
    destroy(&graph);
}

/* ---- the cache ---- */

static bool key_fill(const trm_convolution_args *args, int device, size_t workspace_size, problem_key *key)
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
    key->tf32 = args->dtype == TRM_F32 && args->allow_tf32;
    return args->dtype != TRM_F64 && args->channels > 0 && w->in_size > 0;
}

static uint64_t key_hash(const problem_key *key)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
    const unsigned char *bytes = (const unsigned char *)key;
    for (size_t i = 0; i < sizeof(*key); i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    }
    return hash ^ (hash >> 29);
}

/* The slot that holds the key, else an emptied one for it. */
static cache_slot *slot_get(const problem_key *key)
{
    uint64_t home = key_hash(key);
    cache_slot *place = NULL;
    for (uint64_t i = 0; i < 4; i++) {
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

static bool has_epilogue(const problem_key *key)
{
    return key->bias || key->residual || key->activation != TRM_ACTIVATION_NONE;
}

/* Under the mutex. */
static trm_status run_locked(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                             cudaStream_t stream)
{
    int device;
    cudnnHandle_t handle = NULL;
    problem_key key;
    TRM_TRY(handle_get(&device, &handle));
    if (!key_fill(args, device, workspace_size, &key)) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN does no convolutions of %s", trm_dtype_name(args->dtype));
    }
    cache_slot *slot = slot_get(&key);
    if (slot->state == SLOT_FREE) {
        const bool found = (has_epilogue(&key) && find_engine(&key, handle, true, NULL, &slot->engine)) ||
                           find_engine(&key, handle, false, NULL, &slot->engine);
        slot->state = found ? SLOT_PROPOSED : SLOT_NONE;
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
    problem_key key;
    TRM_TRY(handle_get(&device, &handle));
    if (key_fill(args, device, workspace_size, &key)) {
        engine_run run = {handle, NULL, args, workspace, stream};
        if (has_epilogue(&key)) {
            time_engines(&key, &run, true, proposals, tactics, n_tactics);
        }
        time_engines(&key, &run, false, proposals, tactics, n_tactics);
    }
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
    problem_key key;
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
    const bool fused = strncmp(tactic, "cudnn.fused:", 12) == 0;
    if ((!fused && strncmp(tactic, "cudnn.alone:", 12) != 0) ||
        !find_engine(&key, handle, fused, tactic, &slot->engine)) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "cuDNN has no engine %s for the convolution", tactic);
    }
    slot->state = SLOT_TUNED;
    return TRM_OK;
}

trm_status trm_cudnn_convolution_use(const trm_convolution_args *args, size_t workspace_size, const char *tactic)
{
    pthread_mutex_lock(&state.mutex);
    trm_status status = use_locked(args, workspace_size, tactic);
    pthread_mutex_unlock(&state.mutex);
    return status;
}

bool trm_cudnn_convolution_is_tuned(const trm_convolution_args *args, size_t workspace_size)
{
    int device;
    cudnnHandle_t handle = NULL;
    problem_key key;
    pthread_mutex_lock(&state.mutex);
    bool tuned = false;
    if (handle_get(&device, &handle) == TRM_OK && key_fill(args, device, workspace_size, &key)) {
        const slot_state now = slot_get(&key)->state;
        tuned = now == SLOT_TUNED || now == SLOT_NONE;
    }
    pthread_mutex_unlock(&state.mutex);
    return tuned;
}

size_t trm_cudnn_version(void)
{
    int device;
    cudnnHandle_t handle = NULL;
    pthread_mutex_lock(&state.mutex);
    size_t version = handle_get(&device, &handle) == TRM_OK ? dnn.cudnnGetVersion() : 0;
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

size_t trm_cudnn_version(void)
{
    return 0;
}

#endif
