/* Layers of vision networks that sample images and choose boxes, and recurrent networks. */
#ifndef TRIREME_LAYERS_VISION_H
#define TRIREME_LAYERS_VISION_H

#include <trireme/layers/common.h>

#define TRM_RESIZE_MODES(X)                                                                                            \
    X(TRM_RESIZE_NEAREST, "nearest")                                                                                   \
    X(TRM_RESIZE_LINEAR, "linear")                                                                                     \
    X(TRM_RESIZE_CUBIC, "cubic")
typedef enum trm_resize_mode { TRM_RESIZE_MODES(TRM_ENUMERATOR) } trm_resize_mode;
#define TRM_RESIZE_COORDINATES(X)                                                                                      \
    X(TRM_RESIZE_HALF_PIXEL, "half_pixel")                                                                             \
    X(TRM_RESIZE_HALF_PIXEL_SYMMETRIC, "half_pixel_symmetric")                                                         \
    X(TRM_RESIZE_PYTORCH_HALF_PIXEL, "pytorch_half_pixel")                                                             \
    X(TRM_RESIZE_ALIGN_CORNERS, "align_corners")                                                                       \
    X(TRM_RESIZE_ASYMMETRIC, "asymmetric")                                                                             \
    X(TRM_RESIZE_HALF_PIXEL_FOR_NN, "half_pixel_for_nn") /* tf_half_pixel_for_nn */                                    \
    X(TRM_RESIZE_CROP, "crop")                           /* tf_crop_and_resize */
typedef enum trm_resize_coordinates { TRM_RESIZE_COORDINATES(TRM_ENUMERATOR) } trm_resize_coordinates;
#define TRM_RESIZE_NEARESTS(X)                                                                                         \
    X(TRM_RESIZE_ROUND_PREFER_FLOOR, "round_prefer_floor")                                                             \
    X(TRM_RESIZE_ROUND_PREFER_CEIL, "round_prefer_ceil")                                                               \
    X(TRM_RESIZE_FLOOR, "floor")                                                                                       \
    X(TRM_RESIZE_CEIL, "ceil")
typedef enum trm_resize_nearest { TRM_RESIZE_NEARESTS(TRM_ENUMERATOR) } trm_resize_nearest;
#define TRM_RESIZE_ASPECTS(X)                                                                                          \
    X(TRM_RESIZE_STRETCH, "stretch")                                                                                   \
    X(TRM_RESIZE_NOT_LARGER, "not_larger")                                                                             \
    X(TRM_RESIZE_NOT_SMALLER, "not_smaller")
typedef enum trm_resize_aspect { TRM_RESIZE_ASPECTS(TRM_ENUMERATOR) } trm_resize_aspect;

/* (x, roi f32 [2 n] optional, scales f32 [n] value input optional, sizes i64 [n] value input optional) -> x sampled to
 * other sizes; exactly one of scales and sizes, n the number of bits in `axes`. Everything as ONNX Resize defines it.
 */
typedef struct trm_resize_params {
    trm_resize_mode mode;
    trm_resize_coordinates coordinates;
    trm_resize_nearest nearest;
    trm_resize_aspect aspect; /* with sizes */
    uint32_t axes;            /* bit i: axis i is resized */
    bool antialias, exclude_outside;
    float cubic_a, extrapolation;
} trm_resize_params;

#define TRM_GRID_PADDINGS(X)                                                                                           \
    X(TRM_GRID_ZEROS, "zeros")                                                                                         \
    X(TRM_GRID_BORDER, "border")                                                                                       \
    X(TRM_GRID_REFLECTION, "reflection")
typedef enum trm_grid_padding { TRM_GRID_PADDINGS(TRM_ENUMERATOR) } trm_grid_padding;

/* (x [N, C, d1 .. dk], grid [N, o1 .. ok, k], coordinates in -1 .. 1, last spatial axis first) -> [N, C, o1 .. ok], k =
 * 2 or 3. */
typedef struct trm_grid_sample_params {
    trm_resize_mode mode;
    trm_grid_padding padding;
    bool align_corners;
} trm_grid_sample_params;

#define TRM_ROI_OPS(X)                                                                                                 \
    X(TRM_ROI_ALIGN_AVERAGE, "align_average")                                                                          \
    X(TRM_ROI_ALIGN_MAX, "align_max")                                                                                  \
    X(TRM_ROI_POOL_MAX, "pool_max")
typedef enum trm_roi_op { TRM_ROI_OPS(TRM_ENUMERATOR) } trm_roi_op;

/* (x [N, C, H, W], rois, batch i64 [R]) -> [R, C, height, width]. ALIGN: rois [R, 4] x1, y1, x2, y2 with `batch`;
 * POOL_MAX: rois [R, 5] batch first, no third input. */
typedef struct trm_roi_pool_params {
    trm_roi_op op;
    int32_t height, width, sampling_ratio;
    float spatial_scale;
    bool half_pixel;
} trm_roi_pool_params;

/* (boxes f32 [B, N, 4], scores f32 [B, C, N], most per class i64 scalar, value input, optional: 0; iou threshold f32
 * scalar optional: 0, score threshold f32 scalar optional) -> (i64 [count, 3]: batch, class, box; count). By batch,
 * then class, then falling score. */
typedef struct trm_non_max_suppression_params {
    bool center_point; /* boxes are x, y of the centre, width, height; else y1, x1, y2, x2 in any order */
} trm_non_max_suppression_params;

#define TRM_RECURRENT_CELLS(X)                                                                                         \
    X(TRM_RECURRENT_RNN, "rnn")                                                                                        \
    X(TRM_RECURRENT_GRU, "gru")                                                                                        \
    X(TRM_RECURRENT_LSTM, "lstm")
typedef enum trm_recurrent_cell { TRM_RECURRENT_CELLS(TRM_ENUMERATOR) } trm_recurrent_cell;
#define TRM_RECURRENT_DIRECTIONS(X)                                                                                    \
    X(TRM_RECURRENT_FORWARD, "forward")                                                                                \
    X(TRM_RECURRENT_REVERSE, "reverse")                                                                                \
    X(TRM_RECURRENT_BIDIRECTIONAL, "bidirectional")
typedef enum trm_recurrent_direction { TRM_RECURRENT_DIRECTIONS(TRM_ENUMERATOR) } trm_recurrent_direction;
#define TRM_RECURRENT_ACTIVATIONS(X)                                                                                   \
    X(TRM_RECURRENT_SIGMOID, "sigmoid")                                                                                \
    X(TRM_RECURRENT_TANH, "tanh")                                                                                      \
    X(TRM_RECURRENT_RELU, "relu")                                                                                      \
    X(TRM_RECURRENT_AFFINE, "affine") /* alpha x + beta */                                                             \
    X(TRM_RECURRENT_LEAKY_RELU, "leaky_relu")                                                                          \
    X(TRM_RECURRENT_THRESHOLDED_RELU, "thresholded_relu")                                                              \
    X(TRM_RECURRENT_SCALED_TANH, "scaled_tanh")                                                                        \
    X(TRM_RECURRENT_HARD_SIGMOID, "hard_sigmoid")                                                                      \
    X(TRM_RECURRENT_ELU, "elu")                                                                                        \
    X(TRM_RECURRENT_SOFTSIGN, "softsign")                                                                              \
    X(TRM_RECURRENT_SOFTPLUS, "softplus")
typedef enum trm_recurrent_activation { TRM_RECURRENT_ACTIVATIONS(TRM_ENUMERATOR) } trm_recurrent_activation;

/* ONNX RNN, GRU and LSTM: (x [T, B, I], w [D, g H, I], r [D, g H, H], bias [D, 2 g H] optional, lengths i32 [B]
 * optional, initial h [D, B, H] optional, initial c [D, B, H] optional, peepholes [D, 3 H] optional) -> (y [T, D, B,
 * H], last h [D, B, H], LSTM: last c [D, B, H]); g = 1, 3 (zrh), 4 (iofc) rows of gates. */
typedef struct trm_recurrent_params {
    trm_recurrent_cell cell;
    trm_recurrent_direction direction;
    int32_t hidden;
    bool linear_before_reset; /* GRU */
    bool input_forget;        /* LSTM */
    float clip;               /* 0: off */
    trm_recurrent_activation activations[6];
    float alpha[6], beta[6];
} trm_recurrent_params;

#endif
