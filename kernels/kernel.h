/*
 * Kernels: how one layer kind runs on one backend. A table of them per file; a tactic is a choice
 * among those that accept a call.
 */
#ifndef TRM_KERNELS_KERNEL_H
#define TRM_KERNELS_KERNEL_H

#include <trireme/layers.h>

#include "kernels/call.h"

#ifdef __cplusplus
extern "C" {
#endif

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
