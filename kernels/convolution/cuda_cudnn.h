/*
 * cuDNN's backend interface as convolution needs it: its functions, groups of descriptors, the graph of a problem, what
 * engines the library proposes for it and plans of them. The cache of engines and running them is in cuda_cudnn.c.
 *
 * Only where the library's headers were found when this was built.
 */
#ifndef TRM_KERNELS_CONVOLUTION_CUDA_CUDNN_H
#define TRM_KERNELS_CONVOLUTION_CUDA_CUDNN_H

#include <cudnn.h>

#include "kernels/convolution/cuda.h"

/* The version from which on graphs are planned for a description of a device. */
#define TRM_CUDNN_DESCRIBES_DEVICES 90800
#if CUDNN_VERSION < TRM_CUDNN_DESCRIBES_DEVICES /* the headers; the library that is found may be newer */
#define CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR  ((cudnnBackendDescriptorType_t)38)
#define CUDNN_ATTR_ENGINEHEUR_DEVICEPROP     ((cudnnBackendAttributeName_t)204)
#define CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP ((cudnnBackendAttributeName_t)407)
#define CUDNN_ATTR_ENGINE_DEVICEPROP         ((cudnnBackendAttributeName_t)1307)
#define CUDNN_ATTR_DEVICEPROP_HANDLE         ((cudnnBackendAttributeName_t)2701)
#endif

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

#define MAX_PIECES    (32 + 2 * TRM_MOST_TACTICS) /* a graph has up to 20, proposals come twice at most */
#define MAX_PROPOSALS TRM_MOST_TACTICS

/* Filled in when the library is loaded. */
typedef struct trm_cudnn_functions {
#define FIELD(name) __typeof__(&name) name;
    CUDNN_FUNCTIONS(FIELD)
#undef FIELD
} trm_cudnn_functions;
extern trm_cudnn_functions trm_cudnn;

/* What an engine is chosen for. Compared as bytes: always zeroed before it is filled. */
typedef struct trm_cudnn_problem {
    int64_t batch, channels_in, channels, outputs, groups;
    int64_t in[TRM_MAX_SPATIAL], out[TRM_MAX_SPATIAL], kernel[TRM_MAX_SPATIAL];
    int64_t stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL], before[TRM_MAX_SPATIAL];
    uint64_t workspace, alignment;
    int32_t device, dtype, activation, bias, residual, tf32, channels_last, whole_numbers;
} trm_cudnn_problem;

/* For whom graphs are planned: a description of the device, which several threads may plan with at a time, or, of a
 * library that has none (before 9.8), NULL and a handle, with which one thread may. */
typedef struct trm_cudnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
} trm_cudnn_target;

/* Descriptors that live and die together. After the first error nothing more is done. */
typedef struct trm_cudnn_pieces {
    cudnnBackendDescriptor_t items[MAX_PIECES];
    int32_t n;
    cudnnStatus_t error;
} trm_cudnn_pieces;

cudnnBackendDescriptor_t trm_cudnn_make(trm_cudnn_pieces *p, cudnnBackendDescriptorType_t type);
void trm_cudnn_set(trm_cudnn_pieces *p, cudnnBackendDescriptor_t piece, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t count, const void *values);
void trm_cudnn_finish(trm_cudnn_pieces *p, cudnnBackendDescriptor_t piece);
void trm_cudnn_destroy(trm_cudnn_pieces *p);

/* Tensors of a graph. VIRTUAL: the first of those that exist only inside it. */
enum { UID_X = 'x', UID_W = 'w', UID_B = 'b', UID_R = 'r', UID_Y = 'y', UID_VIRTUAL = 'A' };

/* The graph of a problem, without `fused` of the convolution alone, and what the library proposes for it, best first;
 * both belong to `graph`. Returns how many. */
int32_t trm_cudnn_open_graph(const trm_cudnn_problem *key, const trm_cudnn_target *target, bool fused,
                             trm_cudnn_pieces *graph, cudnnBackendDescriptor_t proposals[MAX_PROPOSALS],
                             int32_t wanted);
/* The configuration of this name (below) for a graph of its own, without asking what is proposed; both belong to
 * `graph`. False if the library does not take it. */
bool trm_cudnn_open_engine(const trm_cudnn_problem *key, const trm_cudnn_target *target, bool fused, const char *name,
                           trm_cudnn_pieces *graph, cudnnBackendDescriptor_t *configuration);
/* Whether an engine keeps to the type's precision, always gives the same, and of whole numbers just that. */
bool trm_cudnn_is_exact(const trm_cudnn_problem *key, cudnnBackendDescriptor_t configuration);
/* Whether the library compiles the engine for the problem when it is planned, which takes about 0.1 s. */
bool trm_cudnn_is_compiled(cudnnBackendDescriptor_t configuration);
/* Whether the engine of this name picks a kernel by the dims: it passes a matrix product on to cuBLASLt. Such have one
 * knob, for how much workspace that may use; the behaviour note for it is not set (9.19). */
bool trm_cudnn_picks_kernels(const char *name);
/* How many of those to try, of `wanted` engines in all: few for what takes microseconds however it is done. */
int32_t trm_cudnn_most_compiled(const trm_cudnn_problem *key, int32_t wanted);
/* A plan of a configuration, if the library makes one that fits into the workspace. */
bool trm_cudnn_make_plan(const trm_cudnn_problem *key, const trm_cudnn_target *target,
                         cudnnBackendDescriptor_t configuration, trm_cudnn_pieces *p,
                         cudnnBackendDescriptor_t *execution);
/* "cudnn.fused:engine,knob=value,..." of a configuration; empty if the library does not tell. */
void trm_cudnn_name_engine(cudnnBackendDescriptor_t configuration, bool fused, char name[TRM_TACTIC_NAME_SIZE]);

#endif
