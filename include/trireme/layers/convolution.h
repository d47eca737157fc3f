/* Convolutions and pooling. */
#ifndef TRIREME_LAYERS_CONVOLUTION_H
#define TRIREME_LAYERS_CONVOLUTION_H

#include <trireme/layers/common.h>

/* (x [N, C, d1 .. dk], w [M, C / groups, k1 .. kk], bias [M] optional, residual like the output, optional) -> [N, M, o1
 * .. ok], k = 1 to 3. o = (d + before + after - dilation * (kernel - 1) - 1) / stride + 1. Accumulates in f32, adds
 * bias and residual, applies the activation. `same` SAME_UPPER or SAME_LOWER computes pads from dims: o = ceil(d /
 * stride). */
#define TRM_MAX_SPATIAL 3
#define TRM_AUTO_PADS(X)                                                                                               \
    X(TRM_AUTO_PAD_NONE, "none")                                                                                       \
    X(TRM_AUTO_PAD_SAME_UPPER, "same_upper")                                                                           \
    X(TRM_AUTO_PAD_SAME_LOWER, "same_lower")
typedef enum trm_auto_pad { TRM_AUTO_PADS(TRM_ENUMERATOR) } trm_auto_pad;
typedef struct trm_convolution_params {
    int32_t groups;
    int32_t stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL];
    int32_t before[TRM_MAX_SPATIAL], after[TRM_MAX_SPATIAL];
    int32_t output_padding[TRM_MAX_SPATIAL]; /* DECONVOLUTION only */
    trm_auto_pad auto_pad;
    trm_activation activation;
    bool channels_last; /* CONVOLUTION: x [N, d1 .. dk, C], w [M, k1 .. kk, C / groups], output and residual
                           [N, o1 .. ok, M] */
    bool whole_numbers; /* CONVOLUTION: x and w are whole numbers below 2^11: kernels multiply and add as they are, so
                           that a sum is exact if the absolute values of its products add up to less than 2^24 */
} trm_convolution_params;

/* DECONVOLUTION, with the same parameters: (x [N, C, d1 .. dk], w [C, M / groups, k1 .. kk], bias [M] optional, output
 * sizes i64 [k], value input, optional)
 * -> [N, M, o1 .. ok], the transpose of the convolution: o = stride * (d - 1) + output_padding + dilation * (kernel -
 * 1) + 1 - before - after. */

/* (x [N, C, H, W], w [M, C / groups, kh, kw], offset [N, offset_groups * kh * kw * 2, oh, ow], bias [M] optional, mask
 * [N, offset_groups * kh * kw, oh, ow] optional) -> [N, M, oh, ow]: taps moved by offset (bilinear) and weighted by
 * mask. */
typedef struct trm_deformable_convolution_params {
    int32_t groups, offset_groups;
    int32_t stride[2], dilation[2], before[2], after[2];
} trm_deformable_convolution_params;

#define TRM_POOL_OPS(X)                                                                                                \
    X(TRM_POOL_MAX, "max")                                                                                             \
    X(TRM_POOL_AVERAGE, "average")                                                                                     \
    X(TRM_POOL_LP, "lp")
typedef enum trm_pool_op { TRM_POOL_OPS(TRM_ENUMERATOR) } trm_pool_op;

/* (x [N, C, d1 .. dk]) -> [N, C, o1 .. ok], k = 1 to 3; with `indices` (MAX) also i64 positions in x flattened. */
typedef struct trm_pool_params {
    trm_pool_op op;
    int32_t kernel[TRM_MAX_SPATIAL], stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL];
    int32_t before[TRM_MAX_SPATIAL], after[TRM_MAX_SPATIAL];
    trm_auto_pad auto_pad;
    bool ceil;              /* o rounds up; a window that would start in the padding after is left out */
    bool count_padding;     /* AVERAGE divides by the whole window */
    bool indices;           /* MAX */
    bool indices_by_column; /* positions count columns first */
    float p;                /* LP: (sum |x|^p)^(1/p) */
    bool channels_last;     /* x [N, d1 .. dk, C], output [N, o1 .. ok, C]; not with indices */
} trm_pool_params;

/* (x [N, C * k1 * .., L]) -> [N, C, image1 ..]: columns added to their places in the image. */
typedef struct trm_col2im_params {
    trm_dims image; /* 1 to 3 spatial axes */
    int32_t kernel[TRM_MAX_SPATIAL], stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL];
    int32_t before[TRM_MAX_SPATIAL], after[TRM_MAX_SPATIAL];
} trm_col2im_params;

#endif
