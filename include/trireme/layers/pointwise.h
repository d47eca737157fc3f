/* Layers that compute element by element, quantize, sum along an axis, transform and draw random numbers. */
#ifndef TRIREME_LAYERS_POINTWISE_H
#define TRIREME_LAYERS_POINTWISE_H

#include <trireme/layers/common.h>

#define TRM_ELEMENTWISE_OPS(X)                                                                                         \
    X(TRM_ELEMENTWISE_ADD, "add")                                                                                      \
    X(TRM_ELEMENTWISE_SUB, "sub")                                                                                      \
    X(TRM_ELEMENTWISE_MUL, "mul")                                                                                      \
    X(TRM_ELEMENTWISE_DIV, "div")                                                                                      \
    X(TRM_ELEMENTWISE_MIN, "min")                                                                                      \
    X(TRM_ELEMENTWISE_MAX, "max")                                                                                      \
    X(TRM_ELEMENTWISE_POW, "pow")                                                                                      \
    X(TRM_ELEMENTWISE_MOD, "mod")     /* sign of the divisor */                                                        \
    X(TRM_ELEMENTWISE_FMOD, "fmod")   /* sign of the dividend */                                                       \
    X(TRM_ELEMENTWISE_EQUAL, "equal") /* comparisons give bool */                                                      \
    X(TRM_ELEMENTWISE_LESS, "less")                                                                                    \
    X(TRM_ELEMENTWISE_LESS_EQUAL, "less_equal")                                                                        \
    X(TRM_ELEMENTWISE_GREATER, "greater")                                                                              \
    X(TRM_ELEMENTWISE_GREATER_EQUAL, "greater_equal")                                                                  \
    X(TRM_ELEMENTWISE_AND, "and") /* of bools; of integers, bit by bit */                                              \
    X(TRM_ELEMENTWISE_OR, "or")                                                                                        \
    X(TRM_ELEMENTWISE_XOR, "xor")                                                                                      \
    X(TRM_ELEMENTWISE_SHIFT_LEFT, "shift_left") /* integers */                                                         \
    X(TRM_ELEMENTWISE_SHIFT_RIGHT, "shift_right")                                                                      \
    X(TRM_ELEMENTWISE_PRELU, "prelu") /* a < 0 ? a * b : a */
typedef enum trm_elementwise_op { TRM_ELEMENTWISE_OPS(TRM_ENUMERATOR) } trm_elementwise_op;

/* (a, b) of one type -> elementwise with numpy broadcasting. Integers wrap around; their division truncates, and by 0
 * gives 0. Comparisons take numbers, EQUAL also bools; AND, OR and XOR integers or bools. A shift by at least the
 * type's width shifts everything out. NaN wins in MIN and MAX. */
typedef struct trm_elementwise_params {
    trm_elementwise_op op;
} trm_elementwise_params;

#define TRM_UNARY_OPS(X)                                                                                               \
    X(TRM_UNARY_ACTIVATION, "activation") /* `activation` */                                                           \
    X(TRM_UNARY_NEG, "neg")                                                                                            \
    X(TRM_UNARY_ABS, "abs")                                                                                            \
    X(TRM_UNARY_EXP, "exp")                                                                                            \
    X(TRM_UNARY_LOG, "log")                                                                                            \
    X(TRM_UNARY_SQRT, "sqrt")                                                                                          \
    X(TRM_UNARY_RECIPROCAL, "reciprocal")                                                                              \
    X(TRM_UNARY_ERF, "erf")                                                                                            \
    X(TRM_UNARY_LINEAR, "linear")   /* alpha * x + beta */                                                             \
    X(TRM_UNARY_SOFTCAP, "softcap") /* alpha * tanh(x / alpha) */                                                      \
    X(TRM_UNARY_SIGN, "sign")                                                                                          \
    X(TRM_UNARY_CEIL, "ceil")                                                                                          \
    X(TRM_UNARY_FLOOR, "floor")                                                                                        \
    X(TRM_UNARY_ROUND, "round") /* half to even */                                                                     \
    X(TRM_UNARY_SIN, "sin")                                                                                            \
    X(TRM_UNARY_COS, "cos")                                                                                            \
    X(TRM_UNARY_TAN, "tan")                                                                                            \
    X(TRM_UNARY_ASIN, "asin")                                                                                          \
    X(TRM_UNARY_ACOS, "acos")                                                                                          \
    X(TRM_UNARY_ATAN, "atan")                                                                                          \
    X(TRM_UNARY_SINH, "sinh")                                                                                          \
    X(TRM_UNARY_COSH, "cosh")                                                                                          \
    X(TRM_UNARY_ASINH, "asinh")                                                                                        \
    X(TRM_UNARY_ACOSH, "acosh")                                                                                        \
    X(TRM_UNARY_ATANH, "atanh")                                                                                        \
    X(TRM_UNARY_NOT, "not")                           /* of bool; of integers, bit by bit */                           \
    X(TRM_UNARY_IS_NAN, "is_nan")                     /* gives bool */                                                 \
    X(TRM_UNARY_IS_INF, "is_inf")                     /* gives bool; alpha != 0 counts -inf, beta != 0 +inf */         \
    X(TRM_UNARY_CLIP, "clip")                         /* min(beta, max(alpha, x)) */                                   \
    X(TRM_UNARY_ELU, "elu")                           /* x < 0 ? alpha * (e^x - 1) : x */                              \
    X(TRM_UNARY_SELU, "selu")                         /* beta * (x < 0 ? alpha * (e^x - 1) : x) */                     \
    X(TRM_UNARY_CELU, "celu")                         /* max(0, x) + min(0, alpha * (e^(x / alpha) - 1)) */            \
    X(TRM_UNARY_LEAKY_RELU, "leaky_relu")             /* x < 0 ? alpha * x : x */                                      \
    X(TRM_UNARY_HARD_SIGMOID, "hard_sigmoid")         /* max(0, min(1, alpha * x + beta)) */                           \
    X(TRM_UNARY_THRESHOLDED_RELU, "thresholded_relu") /* x > alpha ? x : 0 */                                          \
    X(TRM_UNARY_SHRINK, "shrink")                     /* x < -alpha ? x + beta : x > alpha ? x - beta : 0 */           \
    X(TRM_UNARY_SWISH, "swish")                       /* x * sigmoid(alpha * x) */
typedef enum trm_unary_op { TRM_UNARY_OPS(TRM_ENUMERATOR) } trm_unary_op;

/* (x) -> op(x), same dims and, unless stated otherwise, type. x is of a float type; NEG, ABS and SIGN also take
 * integers, NOT takes bool or integers only. NaN stays NaN. */
typedef struct trm_unary_params {
    trm_unary_op op;
    trm_activation activation;
    float alpha, beta;
} trm_unary_params;

/* SELECT: (condition bool, a, b of one type) -> condition ? a : b, the three broadcast. No parameters. */

#define TRM_CUMULATIVE_OPS(X)                                                                                          \
    X(TRM_CUMULATIVE_SUM, "sum")                                                                                       \
    X(TRM_CUMULATIVE_PROD, "prod")
typedef enum trm_cumulative_op { TRM_CUMULATIVE_OPS(TRM_ENUMERATOR) } trm_cumulative_op;

/* (x) -> running sum or product along `axis`; exclusive leaves out the element itself, reverse runs from the end. */
typedef struct trm_cumulative_params {
    trm_cumulative_op op;
    int32_t axis;
    bool exclusive, reverse;
} trm_cumulative_params;

/* (x, scale: floats; zero_point of type `to`, dims of scale, optional) -> x / scale rounded half to even + zero_point,
 * saturated to `to`, an integer type of up to 16 bits; of a small float type: x / scale + zero_point rounded to it.
 * scale is a scalar or [1], [d] for one per position of `axis`, or with block_size > 0 has the dims of x but one per
 * block along `axis`. */
typedef struct trm_quantize_params {
    int32_t axis;
    int32_t block_size;
    trm_dtype to;
    bool unsaturated; /* to the F8 types, as for CAST; not read by DEQUANTIZE */
} trm_quantize_params;

/* DEQUANTIZE: (x of integers or small floats, scale float, zero_point like x, optional) -> (x - zero_point) * scale, of
 * the float type `to` (NONE: that of scale). Shapes as for QUANTIZE, with the same parameters. */

/* DETERMINANT: (x [..., n, n]) -> [...]. No parameters. */

/* (x [..., n, ..., 2 or 1 real]) -> the discrete Fourier transform along `axis`, complex numbers as a last axis of 2.
 * The inverse divides by n. onesided: only the first n / 2 + 1 points; of an inverse, x is that half of a spectrum, and
 * the result real, with a last axis of 1. Sums in f64. */
typedef struct trm_fourier_params {
    int32_t axis;
    bool inverse, onesided;
    int64_t length; /* n; 0: that of the axis, or 2 (d - 1) for a onesided inverse. x is cut or padded with zeros */
} trm_fourier_params;

#define TRM_RANDOM_OPS(X)                                                                                              \
    X(TRM_RANDOM_UNIFORM, "uniform")         /* low .. high: a, b */                                                   \
    X(TRM_RANDOM_NORMAL, "normal")           /* mean a, deviation b */                                                 \
    X(TRM_RANDOM_BERNOULLI, "bernoulli")     /* 1 with probability x */                                                \
    X(TRM_RANDOM_MULTINOMIAL, "multinomial") /* x [B, C] unnormalized logs -> [B, samples], i32 or i64 */
typedef enum trm_random_op { TRM_RANDOM_OPS(TRM_ENUMERATOR) } trm_random_op;

/* (shape i64 [r], value input) for UNIFORM and NORMAL, (x) for the others -> random numbers of type `to`: the same for
 * the same seed and position, in every run. */
typedef struct trm_random_params {
    trm_random_op op;
    trm_dtype to;
    float a, b;
    uint64_t seed;
    int64_t samples;
} trm_random_params;

#endif
