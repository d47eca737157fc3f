/* Graphs of convolutions in cuDNN's backend interface, and what engines the library has for them. */
#include "kernels/convolution/cuda.h"

#if defined(__has_include) && __has_include(<cudnn.h>)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/convolution/cuda_cudnn.h"

#define MAX_KNOBS          32
#define CHEAP_MICROSECONDS 10.0

trm_cudnn_functions trm_cudnn;

/* ---- descriptors ---- */

cudnnBackendDescriptor_t trm_cudnn_make(trm_cudnn_pieces *p, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (p->error == CUDNN_STATUS_SUCCESS && p->n < MAX_PIECES) {
        p->error = trm_cudnn.cudnnBackendCreateDescriptor(type, &made);
        if (p->error == CUDNN_STATUS_SUCCESS) {
            p->items[p->n++] = made;
        }
    } else if (p->error == CUDNN_STATUS_SUCCESS) {
        p->error = CUDNN_STATUS_NOT_SUPPORTED;
    }
    return made;
}

void trm_cudnn_set(trm_cudnn_pieces *p, cudnnBackendDescriptor_t piece, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (p->error == CUDNN_STATUS_SUCCESS) {
        p->error = trm_cudnn.cudnnBackendSetAttribute(piece, name, type, count, values);
    }
}

static void get(trm_cudnn_pieces *p, cudnnBackendDescriptor_t piece, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *values)
{
    if (p->error == CUDNN_STATUS_SUCCESS) {
        p->error = trm_cudnn.cudnnBackendGetAttribute(piece, name, type, wanted, count, values);
    }
}

void trm_cudnn_finish(trm_cudnn_pieces *p, cudnnBackendDescriptor_t piece)
{
    if (p->error == CUDNN_STATUS_SUCCESS) {
        p->error = trm_cudnn.cudnnBackendFinalize(piece);
    }
}

void trm_cudnn_destroy(trm_cudnn_pieces *p)
{
    for (int32_t i = p->n - 1; i >= 0; i--) {
        trm_cudnn.cudnnBackendDestroyDescriptor(p->items[i]);
    }
    memset(p, 0, sizeof(*p));
}

static cudnnDataType_t data_type(trm_dtype dtype)
{
    return dtype == TRM_F16 ? CUDNN_DATA_HALF : dtype == TRM_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* A tensor, row-major, or of that order with axis 1 after all others; virtual ones are f32. */
static cudnnBackendDescriptor_t tensor(trm_cudnn_pieces *p, int64_t uid, const trm_cudnn_problem *key,
                                       const int64_t *dims, int64_t n)
{
    int64_t strides[2 + TRM_MAX_SPATIAL], step = 1;
    const int64_t alignment = (int64_t)key->alignment;
    const bool is_virtual = uid < 'a';
    cudnnDataType_t type = is_virtual ? CUDNN_DATA_FLOAT : data_type((trm_dtype)key->dtype);
    cudnnBackendDescriptor_t made = trm_cudnn_make(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (key->channels_last) {
        strides[1] = step;
        step *= dims[1];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        if (i != 1 || !key->channels_last) {
            strides[i] = step;
            step *= dims[i];
        }
    }
    trm_cudnn_set(p, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    trm_cudnn_set(p, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dims);
    trm_cudnn_set(p, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, strides);
    trm_cudnn_set(p, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    trm_cudnn_set(p, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    trm_cudnn_set(p, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    trm_cudnn_finish(p, made);
    return made;
}

static cudnnBackendDescriptor_t convolution_op(trm_cudnn_pieces *p, const trm_cudnn_problem *key,
                                               cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w,
                                               cudnnBackendDescriptor_t y, int32_t skip)
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
    cudnnBackendDescriptor_t window = trm_cudnn_make(p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    trm_cudnn_set(p, window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    trm_cudnn_set(p, window, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    trm_cudnn_set(p, window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n);
    trm_cudnn_set(p, window, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, key->dilation + skip);
    trm_cudnn_set(p, window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, key->stride + skip);
    trm_cudnn_set(p, window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, key->before + skip);
    trm_cudnn_set(p, window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, after + skip);
    trm_cudnn_finish(p, window);
    cudnnBackendDescriptor_t op = trm_cudnn_make(p, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &window);
    trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
    trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    trm_cudnn_finish(p, op);
    return op;
}

/* y = mode(x) or mode(x, other). */
static cudnnBackendDescriptor_t pointwise_op(trm_cudnn_pieces *p, cudnnPointwiseMode_t mode, double swish,
                                             cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t other,
                                             cudnnBackendDescriptor_t y)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what = trm_cudnn_make(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    trm_cudnn_set(p, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    trm_cudnn_set(p, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (mode == CUDNN_POINTWISE_SWISH_FWD) {
        trm_cudnn_set(p, what, CUDNN_ATTR_POINTWISE_SWISH_BETA, CUDNN_TYPE_DOUBLE, 1, &swish);
    }
    trm_cudnn_finish(p, what);
    cudnnBackendDescriptor_t op = trm_cudnn_make(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &what);
    trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    if (other != NULL) {
        trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
    }
    trm_cudnn_set(p, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    trm_cudnn_finish(p, op);
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
static cudnnBackendDescriptor_t build_graph(trm_cudnn_pieces *p, const trm_cudnn_target *target,
                                            const trm_cudnn_problem *key, bool fused)
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
    cudnnBackendDescriptor_t graph = trm_cudnn_make(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (target->device == NULL) {
        trm_cudnn_set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    }
    trm_cudnn_set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n_ops, ops);
    trm_cudnn_finish(p, graph);
    return graph;
}

/* ---- engines ---- */

/* The engines the library proposes for a graph, as configurations, best first; they belong to `p`. */
static int32_t propose(trm_cudnn_pieces *p, const trm_cudnn_target *target, cudnnBackendDescriptor_t graph,
                       cudnnBackendHeurMode_t mode, int32_t wanted, cudnnBackendDescriptor_t *configurations)
{
    int64_t count = 0;
    cudnnBackendDescriptor_t heuristic = trm_cudnn_make(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    trm_cudnn_set(p, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    trm_cudnn_set(p, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (target->device != NULL) {
        trm_cudnn_set(p, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                      &target->device);
    }
    trm_cudnn_finish(p, heuristic);
    for (int32_t i = 0; i < wanted; i++) {
        configurations[i] = trm_cudnn_make(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    get(p, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, wanted, &count, configurations);
    return p->error == CUDNN_STATUS_SUCCESS ? (int32_t)(count < wanted ? count : wanted) : 0;
}

/* Whether an engine computes with other numbers than those of the tensors, whose sums are nearly the same. */
static bool transforms(cudnnBackendNumericalNote_t note)
{
    return note == CUDNN_NUMERICAL_NOTE_FFT || note == CUDNN_NUMERICAL_NOTE_WINOGRAD ||
           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 || note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 ||
           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
}

/* Whether an engine keeps to the type's precision and always gives the same. */
bool trm_cudnn_is_exact(const trm_cudnn_problem *key, cudnnBackendDescriptor_t configuration)
{
    trm_cudnn_pieces p = {.n = 0};
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0, n = 0;
    cudnnBackendDescriptor_t found = trm_cudnn_make(&p, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    get(&p, configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &found);
    get(&p, found, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
        notes);
    bool exact = p.error == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; exact && i < count; i++) {
        const bool f32 = key->dtype == TRM_F32;
        exact = notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
                notes[i] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION &&
                notes[i] != CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 &&
                notes[i] != CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 && !(key->whole_numbers && transforms(notes[i])) &&
                !(notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS && f32 && key->tf32 == 0) &&
                !(notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && f32 && key->tf32 == 0);
    }
    trm_cudnn_destroy(&p);
    return exact;
}

bool trm_cudnn_is_compiled(cudnnBackendDescriptor_t configuration)
{
    trm_cudnn_pieces p = {.n = 0};
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t count = 0, n = 0;
    cudnnBackendDescriptor_t found = trm_cudnn_make(&p, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    get(&p, configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &found);
    get(&p, found, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count,
        notes);
    bool compiled = false;
    for (int64_t i = 0; p.error == CUDNN_STATUS_SUCCESS && i < count; i++) {
        compiled = compiled || notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    }
    trm_cudnn_destroy(&p);
    return compiled;
}

/* By what the problem takes at least: its bytes at 4 TB/s, its operations at half of a tensor core's usual rate. Of
 * EfficientNet-B0's (batch 1) the best of three engines takes 2 % longer than that of eight, timed one by one. */
int32_t trm_cudnn_most_compiled(const trm_cudnn_problem *key, int32_t wanted)
{
    const double element = (double)trm_dtype_size((trm_dtype)key->dtype);
    double in = (double)(key->batch * key->channels_in), out = (double)(key->batch * key->outputs * key->groups);
    double window = (double)key->channels;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        in *= (double)key->in[i];
        out *= (double)key->out[i];
        window *= (double)key->kernel[i];
    }
    const double weight = window * (double)(key->outputs * key->groups);
    const double rate = key->dtype == TRM_F32 ? (key->tf32 ? 2e8 : 3e7) : 4e8; /* operations in a microsecond */
    const double for_bytes = element * (in + weight + out * (1 + key->residual)) / 4e6;
    const double for_operations = 2 * out * window / rate;
    const bool cheap = for_bytes < CHEAP_MICROSECONDS && for_operations < CHEAP_MICROSECONDS;
    return cheap && wanted > 3 && wanted < TRM_MOST_TACTICS ? 3 : wanted;
}

/* A plan of a configuration, if the library makes one that fits into the workspace. */
bool trm_cudnn_make_plan(const trm_cudnn_problem *key, const trm_cudnn_target *target,
                         cudnnBackendDescriptor_t configuration, trm_cudnn_pieces *p,
                         cudnnBackendDescriptor_t *execution)
{
    int64_t need = 0, count = 0;
    memset(p, 0, sizeof(*p));
    *execution = trm_cudnn_make(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (target->device != NULL) {
        trm_cudnn_set(p, *execution, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                      &target->device);
    } else {
        trm_cudnn_set(p, *execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    }
    trm_cudnn_set(p, *execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                  &configuration);
    trm_cudnn_finish(p, *execution);
    get(p, *execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &need);
    if (p->error != CUDNN_STATUS_SUCCESS || need < 0 || (uint64_t)need > key->workspace) {
        trm_cudnn_destroy(p);
        return false;
    }
    return true;
}

/* "cudnn.fused:engine,knob=value,..." of a configuration; empty if the library does not tell. */
void trm_cudnn_name_engine(cudnnBackendDescriptor_t configuration, bool fused, char name[TRM_TACTIC_NAME_SIZE])
{
    trm_cudnn_pieces p = {.n = 0};
    int64_t index = 0, count = 0, n = 0;
    cudnnBackendDescriptor_t knobs[MAX_KNOBS], found = trm_cudnn_make(&p, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    for (int i = 0; i < MAX_KNOBS; i++) {
        knobs[i] = trm_cudnn_make(&p, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
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
    trm_cudnn_destroy(&p);
}

/* Reads ",knob=value" after ",knob=value" into choices; -1 if the text is no such list. */
static int64_t read_knobs(trm_cudnn_pieces *p, const char *text, cudnnBackendDescriptor_t choices[MAX_KNOBS])
{
    int64_t n = 0;
    while (*text == ',' && n < MAX_KNOBS) {
        char *at;
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)strtol(text + 1, &at, 10);
        const int64_t value = *at == '=' ? strtoll(at + 1, &at, 10) : 0;
        choices[n] = trm_cudnn_make(p, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        trm_cudnn_set(p, choices[n], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        trm_cudnn_set(p, choices[n], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
        trm_cudnn_finish(p, choices[n++]);
        text = at;
    }
    return *text == '\0' ? n : -1;
}

bool trm_cudnn_picks_kernels(const char *name)
{
    const char *knobs = strchr(name, ',');
    char *end;
    return knobs != NULL && strtol(knobs + 1, &end, 10) == CUDNN_KNOB_TYPE_WORKSPACE && strchr(end, ',') == NULL;
}

bool trm_cudnn_open_engine(const trm_cudnn_problem *key, const trm_cudnn_target *target, bool fused, const char *name,
                           trm_cudnn_pieces *graph, cudnnBackendDescriptor_t *configuration)
{
    static const char *const prefixes[] = {"cudnn.alone:", "cudnn.fused:"};
    const size_t prefix = strlen(prefixes[fused]);
    if (strncmp(name, prefixes[fused], prefix) != 0) {
        return false;
    }
    char *at;
    cudnnBackendDescriptor_t knobs[MAX_KNOBS], whole = build_graph(graph, target, key, fused);
    const int64_t index = strtoll(name + prefix, &at, 10), n = read_knobs(graph, at, knobs);
    cudnnBackendDescriptor_t named = trm_cudnn_make(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    trm_cudnn_set(graph, named, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &whole);
    trm_cudnn_set(graph, named, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
    if (target->device != NULL) {
        trm_cudnn_set(graph, named, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->device);
    }
    trm_cudnn_finish(graph, named);
    *configuration = trm_cudnn_make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    trm_cudnn_set(graph, *configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &named);
    if (n > 0) {
        trm_cudnn_set(graph, *configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                      knobs);
    }
    trm_cudnn_finish(graph, *configuration);
    return n >= 0 && graph->error == CUDNN_STATUS_SUCCESS;
}

/* The graph of a problem and what the library proposes for it, best first; both belong to `graph`. */
int32_t trm_cudnn_open_graph(const trm_cudnn_problem *key, const trm_cudnn_target *target, bool fused,
                             trm_cudnn_pieces *graph, cudnnBackendDescriptor_t proposals[MAX_PROPOSALS], int32_t wanted)
{
    cudnnBackendDescriptor_t whole = build_graph(graph, target, key, fused);
    int32_t n = propose(graph, target, whole, CUDNN_HEUR_MODE_A, wanted, proposals);
    if (n == 0 && graph->error == CUDNN_STATUS_SUCCESS) {
        n = propose(graph, target, whole, CUDNN_HEUR_MODE_FALLBACK, wanted, proposals);
    }
    return n;
}

#endif
