/*
 * One call of a kernel: a layer, its tensors, and what they are run with. Kernels that get parameters as a struct of
 * their own need no more than this; those that read call->layer include kernel.h.
 */
#ifndef TRM_KERNELS_CALL_H
#define TRM_KERNELS_CALL_H

#include <trireme/layers/common.h>

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

struct trm_layer_desc;   /* layers.h */
struct trm_communicator; /* collectives/communicator.h */
struct trm_program;      /* kernels/program.h */

typedef struct trm_kernel_call {
    const struct trm_layer_desc *layer;
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

/* Whether input i was given, by its type: data is NULL in questions about a call. */
static inline bool trm_kernel_call_has(const trm_kernel_call *call, int32_t i)
{
    return i < call->n_inputs && call->inputs[i].dtype != TRM_DTYPE_NONE;
}

/* The address of input i, or NULL. */
static inline const void *trm_kernel_call_input(const trm_kernel_call *call, int32_t i)
{
    return i < call->n_inputs ? call->inputs[i].data : NULL;
}

#ifdef __cplusplus
}
#endif
#endif
