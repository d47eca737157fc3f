/* Norms. */
#ifndef TRIREME_LAYERS_NORM_H
#define TRIREME_LAYERS_NORM_H

#include <trireme/layers/common.h>

#define TRM_NORM_OPS(X)                                                                                                \
    X(TRM_NORM_RMS, "rms")     /* x / sqrt(mean(x^2) + eps) * (weight + weight_offset) */                              \
    X(TRM_NORM_LAYER, "layer") /* (x - mean) / sqrt(var + eps) * (weight + weight_offset) + bias */
typedef enum trm_norm_op { TRM_NORM_OPS(TRM_ENUMERATOR) } trm_norm_op;

/* (x [..., n], weight [n] optional, bias [n] optional) -> [..., n], over the last axis; without a weight the factor is
 * 1. With `residual`: (x, residual, weight optional, bias optional) -> (norm(x + residual), x + residual), the sum
 * rounded to the type of x before it is normalized. Statistics in f32, of f64 in f64. */
typedef struct trm_norm_params {
    trm_norm_op op;
    bool residual;
    float eps;
    float weight_offset; /* 1 for Gemma */
} trm_norm_params;

/* (x [N, C, ...], scale [C] optional, bias [C] optional) -> each group of C / groups channels of each n normalized to
 * mean 0, variance 1. groups = C (0 in the parameters) is instance normalization. Statistics in f32. */
typedef struct trm_group_norm_params {
    int32_t groups;
    float eps;
    trm_activation activation;
} trm_group_norm_params;

/* (x [N, C, ...]) -> x / (bias + alpha / size * sum over `size` neighbouring channels of x^2) ^ beta. */
typedef struct trm_lrn_params {
    int32_t size;
    float alpha, beta, bias;
} trm_lrn_params;

#endif
