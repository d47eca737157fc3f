/*
 * Kernels: how one layer kind runs on one backend. A table of them per file; a tactic is a choice
 * among those that accept a call.
 */
#ifndef TRM_KERNELS_KERNEL_H
#define TRM_KERNELS_KERNEL_H

#include <trireme/layers.h>

#include "kernels/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A contiguous row-major tensor in device memory. data == NULL: input not given. */
typedef struct trm_view {
    void *data;
    trm_dtype dtype;
    trm_dims dims; /* all known */
} trm_view;

/* Elements of a view (1 for a scalar), and its bytes. */
static inline int64_t trm_dims_count(const trm_dims *dims)
{
    int64_t count = 1;
    for (int32_t i = 0; i < dims->n; i++) {
        count *= dims->d[i];
    }
    return count;
}

struct trm_communicator; /* collectives/communicator.h */
struct trm_program;      /* kernels/program.h */

typedef struct trm_kernel_call {
    const trm_layer_desc *layer;
    int32_t n_inputs, n_outputs;
    trm_view inputs[TRM_MAX_LAYER_INPUTS];
    trm_view outputs[TRM_MAX_LAYER_OUTPUTS];
    void *workspace; /* device memory of at least what the kernel's workspace() said */
    size_t workspace_size;
    trm_stream *stream;
    struct trm_communicator *communicator; /* DIST_COLLECTIVE and attention over ranks only */
    bool allow_tf32;                       /* f32 products and convolutions may round their factors to TF32 */
    bool batch_invariant;                  /* a token's results have the same bits whatever other tokens are there */
    /* bit i: input i is complete before a run's first kernel starts, and no kernel writes it, or one that ends before
     * the next may start (trm_sample_advance) */
    uint32_t constants;
    uint32_t unread; /* bit i: nothing reads output i, so that it need not be written; there is memory for it */
    /* Elements of value inputs (layers.h) in host memory while `run` is called: always there then, on every backend,
     * for what a kernel must know before it starts. NULL for other inputs, and in questions about a call. */
    const void *values[TRM_MAX_LAYER_INPUTS];
} trm_kernel_call;

/*
 * One implementation: `run`, which is one launch, or `prepare`, which makes several. Outputs never overlap inputs,
 * except that a RESHAPE may be given the same address. Empty tensors (a dimension of 0) are legal and do nothing.
 * `accepts` looks at kinds, types and dims only (data may be NULL) and must hold for every call made.
 * `workspace` does not fall when dims grow, whichever kernel is chosen for them: plans ask with the largest dims.
 * `run` enqueues on call->stream: no allocation, no synchronization, capturable on CUDA.
 * `prepare` decides how a call with real addresses is done, whenever these or the dims are new, and appends launches
 * that enqueue as `run` does. The call is gone when they run.
 */
typedef struct trm_kernel {
    const char *name; /* "host.matmul", "cublaslt.matmul" */
    trm_layer_kind kind;
    trm_backend backend;
    bool (*accepts)(const trm_kernel_call *call);
    size_t (*workspace)(const trm_kernel_call *call); /* NULL: none */
    trm_status (*run)(const trm_kernel_call *call);
    trm_status (*prepare)(const trm_kernel_call *call, struct trm_program *program);
    /* Whether it chooses among variants where a program that is prepared tunes (kernels/program.h). */
    bool is_tuned;
} trm_kernel;

/* A table of kernels, best first. */
typedef struct trm_kernel_table {
    const trm_kernel *kernels;
    int32_t count;
} trm_kernel_table;

extern const trm_kernel_table trm_host_kernels;       /* the reference of every kind */
extern const trm_kernel_table trm_cuda_kernels;       /* empty in a build without CUDA */
extern const trm_kernel_table trm_attention_kernels;  /* attention/ */
extern const trm_kernel_table trm_collective_kernels; /* collectives/ */

/* The first kernel of the tables that runs this call on `backend`, or NULL. */
const trm_kernel *trm_kernel_find(const trm_kernel_table *const *tables, int32_t n_tables, trm_backend backend,
                                  const trm_kernel_call *call);

#ifdef __cplusplus
}
#endif
#endif
