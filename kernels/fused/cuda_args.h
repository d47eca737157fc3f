/* The arguments of a generated kernel, for the code that launches it and for itself. */
#ifndef TRM_KERNELS_FUSED_CUDA_ARGS_H
#define TRM_KERNELS_FUSED_CUDA_ARGS_H

#include <trireme/layers/common.h>

/* A loop over n axes of sizes d, outermost first, of `count` runs of neighbouring elements: one element, or as many as
 * a vector has. stride[k][i]: input k's step along axis i, in elements. */
typedef struct trm_fused_args {
    const void *in[TRM_MAX_LAYER_INPUTS];
    void *out[TRM_MAX_LAYER_OUTPUTS];
    long long count;
    long long d[TRM_MAX_DIMS];
    long long stride[TRM_MAX_LAYER_INPUTS][TRM_MAX_DIMS];
    int n;
    unsigned advances; /* bit k: input k moves on along the last axis; else one element stands for a run */
} trm_fused_args;

#endif
