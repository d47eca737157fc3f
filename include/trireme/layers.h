/*
 * The catalogue of layer kinds and their parameters.
 *
 * A layer is a trm_layer_desc, its input tensors and its output tensors. The row of each
 * kind in graph/kinds has its shape and type rule; its meaning is its host reference kernel. Arithmetic on f16 and
 * bf16 is done in f32 and rounded once when a layer's output is stored.
 *
 * Shapes below are row-major; T is tokens (all sequences of a step, one after the other), S sequences.
 */
#ifndef TRIREME_LAYERS_H
#define TRIREME_LAYERS_H

#include <trireme/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_MAX_LAYER_INPUTS  16
#define TRM_MAX_LAYER_OUTPUTS 5
#define TRM_MAX_RANKS         64

/* Lists below name the values of parameters that are enums: X(value, "name"), the name as dumps and plans write it. */
#define TRM_ENUMERATOR(value, name) value,
#define TRM_ENUM_NAME(value, name)  name,

#define TRM_CAST_ROUNDS(X)                                                                                             \
    X(TRM_CAST_ROUND_UP, "up")                                                                                         \
    X(TRM_CAST_ROUND_DOWN, "down")                                                                                     \
    X(TRM_CAST_ROUND_NEAREST, "nearest")
typedef enum trm_cast_round { TRM_CAST_ROUNDS(TRM_ENUMERATOR) } trm_cast_round;

/* (x [any]) -> [same dims] of type `to`. Floats to integers truncate toward zero and saturate; integers to narrower
 * ones, and anything to those of 4 and 2 bits, keep the low bits. To floats: to the nearest, half to even. */
typedef struct trm_cast_params {
    trm_dtype to;
    bool unsaturated;     /* to the F8 types: what is out of range becomes infinity or NaN, not the largest number */
    trm_cast_round round; /* to F8E8M0: to which power of 2 */
    bool bits;            /* keeps the bits, not the value: both types have as many */
} trm_cast_params;

/* (x, shape i32|i64 [r], value input, optional) -> the same elements under other dims: `dims`, or the values of `shape`
 * where it is given; `dims`, if it has as many, then holds what is known of those, -1 elsewhere. 0 copies the input's
 * dimension at that position, unless `zero_is_zero`, and one -1 is inferred. */
typedef struct trm_reshape_params {
    trm_dims dims;
    bool zero_is_zero;
} trm_reshape_params;

/* (x) -> axes permuted: out.d[i] = in.d[perm[i]]. */
typedef struct trm_transpose_params {
    int32_t perm[TRM_MAX_DIMS];
} trm_transpose_params;

/* (x, start, end, step: i32|i64 [1] or scalar, value inputs, optional) -> elements start, start+step, ... before end of
 * one axis. Negative start or end count from the end of the axis and are clamped to it; `end` INT64_MAX means to the
 * end. A negative step runs backwards, then `end` INT64_MIN means past the first element. Inputs that are given replace
 * the parameters. */
typedef struct trm_slice_params {
    int32_t axis;
    int64_t start, end, step;
} trm_slice_params;

/* (x0, x1, ...) -> joined along `axis` (may be negative). */
typedef struct trm_concat_params {
    int32_t axis;
} trm_concat_params;

/* (data, indices i32|i64) -> data indexed along `axis`: dims data[:axis] + indices + data[axis+1:].
 * Negative indices count from the end; an index out of range yields zeros. */
typedef struct trm_gather_params {
    int32_t axis;
} trm_gather_params;

/* (table [rows, width], ids i32 [T]) -> [T, width]: row ids[t] - first_row of the table, or zeros
 * where that is outside it, so that tables sharded by row sum to the whole. */
typedef struct trm_embedding_params {
    int64_t first_row;
} trm_embedding_params;

#define TRM_ACTIVATIONS(X)                                                                                             \
    X(TRM_ACTIVATION_NONE, "none")                                                                                     \
    X(TRM_ACTIVATION_RELU, "relu")                                                                                     \
    X(TRM_ACTIVATION_SILU, "silu")                                                                                     \
    X(TRM_ACTIVATION_GELU, "gelu")           /* by erf */                                                              \
    X(TRM_ACTIVATION_GELU_TANH, "gelu_tanh") /* by the tanh approximation */                                           \
    X(TRM_ACTIVATION_SIGMOID, "sigmoid")                                                                               \
    X(TRM_ACTIVATION_TANH, "tanh")                                                                                     \
    X(TRM_ACTIVATION_QUICK_GELU, "quick_gelu") /* x * sigmoid(1.702 x) */                                              \
    X(TRM_ACTIVATION_HARD_SWISH, "hard_swish") /* x * max(0, min(1, x / 6 + 0.5)) */                                   \
    X(TRM_ACTIVATION_MISH, "mish")             /* x * tanh(log(1 + e^x)) */                                            \
    X(TRM_ACTIVATION_SOFTPLUS, "softplus")     /* log(1 + e^x) */                                                      \
    X(TRM_ACTIVATION_SOFTSIGN, "softsign")     /* x / (1 + |x|) */
typedef enum trm_activation { TRM_ACTIVATIONS(TRM_ENUMERATOR) } trm_activation;

/* (a [..., M, K], b [..., K, N], bias [N] optional) -> [..., M, N]; leading dims broadcast. The bias may have b's
 * leading dims, too: [..., 1, N]. With transpose_a a is [..., K, M], with transpose_b b is [..., N, K] (a linear
 * layer's weight). Accumulates in f32, adds the bias, applies the activation, stores as `out` (NONE: type of a). f64 is
 * computed in f64, integers wrap around and have no activation; both have no other `out`. */
typedef struct trm_matmul_params {
    bool transpose_a, transpose_b;
    trm_activation activation;
    trm_dtype out;
} trm_matmul_params;

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

/* (gate [..., n], up [..., n]) -> activation(gate) * up; or one input (gate_up [..., 2n], the gate in
 * the first half) -> [..., n]. */
typedef struct trm_glu_params {
    trm_activation activation;
} trm_glu_params;

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

/* Positions of a DEQUANT_MATMUL's inputs. */
enum {
    TRM_DEQUANT_MATMUL_X = 0,
    TRM_DEQUANT_MATMUL_WEIGHT,
    TRM_DEQUANT_MATMUL_SCALE,
    TRM_DEQUANT_MATMUL_BIAS,
    TRM_DEQUANT_MATMUL_ZERO_POINT,
    TRM_DEQUANT_MATMUL_INPUT_COUNT
};

/* How a DEQUANT_MATMUL quantizes x before it multiplies. */
/* clang-format off */
#define TRM_X_QUANTIZATIONS(X)                                                                                         \
    X(TRM_X_AS_IS, "none")                                                                                             \
    X(TRM_X_STATIC, "static")   /* one scale for all: x_scale */                                                       \
    X(TRM_X_DYNAMIC, "dynamic") /* a scale for block_k columns of a row, from the largest of them */
/* clang-format on */
typedef enum trm_x_quantization { TRM_X_QUANTIZATIONS(TRM_ENUMERATOR) } trm_x_quantization;

/* (x [..., K] f32|f16|bf16, weight, scale [ceil(N / block_n), ceil(K / block_k)] f32|f16|bf16, bias [N] of x's type,
 * optional, zero_point u8, dims of scale, optional) -> [..., N]: x times the transpose of a quantized weight, whose
 * elements are numbers times the scale of their block. The weight is F8E4M3 [N, K] or I8 [N, K]; or it is U8 or F4E2M1
 * [N, K / 2], K even, with two numbers of 4 bits a byte, the one of the even column in the low bits. With U8, number =
 * bits - zero_point, or bits - 8 without a zero point. No others have zero points. Accumulates in f32, adds the
 * bias, stores as `out`.
 *
 * With a weight of F8E4M3, x may be quantized too: number * s takes its place, where number is x / s rounded to F8E4M3,
 * saturated. Static: s = x_scale. Dynamic: s = max(largest |x|, 2^-100) / 448, at most x_scale unless that is 0. A
 * kernel may leave x of few rows unquantized, which is nearer to the exact product. */
typedef struct trm_dequant_matmul_params {
    int32_t block_n; /* rows of the weight that share a scale; the last block may have fewer */
    int32_t block_k; /* columns that do, even where numbers have 4 bits; 0: all */
    trm_dtype out;   /* NONE: type of x */
    trm_x_quantization x_quantization;
    float x_scale;
} trm_dequant_matmul_params;

/* Positions of a LORA's inputs. */
enum {
    TRM_LORA_X = 0, /* [T, K] f32|f16|bf16 */
    TRM_LORA_SLOTS, /* i32 [T]: the adapter of a token; negative, or none of them: the token has none */
    TRM_LORA_Y,     /* [T, N] of x's type: the product that adapters are beside */
    TRM_LORA_A,     /* [adapters, R, K] of x's type */
    TRM_LORA_B,     /* [adapters, N, R] of x's type */
    TRM_LORA_INPUT_COUNT
};
/* Adapters of several products of one x that lie side by side in y: further pairs of A and B follow, whose N add up to
 * that of y. */
#define TRM_LORA_MAX_PAIRS 6

/* Low-rank adapters (LoRA, arXiv 2106.09685), without parameters: the inputs above -> [T, N], y + B (A x) with the
 * matrices of a token's adapter; tokens without one keep y. Accumulates in f32 and rounds once. Scales are part of B.
 */

/* How a router's logits become scores. */
/* clang-format off */
#define TRM_ROUTER_SCORINGS(X)                                                                                         \
    X(TRM_ROUTER_SOFTMAX, "softmax")               /* over all experts */                                              \
    X(TRM_ROUTER_SOFTMAX_CHOSEN, "softmax_chosen") /* over the logits of the chosen ones */                            \
    X(TRM_ROUTER_SIGMOID, "sigmoid")                                                                                   \
    X(TRM_ROUTER_SQRT_SOFTPLUS, "sqrt_softplus")   /* sqrt(log(1 + e^logit)) */                                           \
    X(TRM_ROUTER_SPARSE_MIXER, "sparse_mixer")     /* one after another, see below */
/* clang-format on */
typedef enum trm_router_scoring { TRM_ROUTER_SCORINGS(TRM_ENUMERATOR) TRM_ROUTER_SCORING_COUNT } trm_router_scoring;

/* Positions of a ROUTER's inputs. */
enum {
    TRM_ROUTER_X = 0,
    TRM_ROUTER_WEIGHT,
    TRM_ROUTER_BIAS,
    TRM_ROUTER_CORRECTION,
    TRM_ROUTER_EXPERT_SCALE,
    TRM_ROUTER_INPUT_COUNT
};

/* (x [T, H] f32|f16|bf16, weight [E, H] f32|f16|bf16, bias [E] f32, correction [E] f32, expert_scale [E] f32, the last
 * three optional) -> ids [T, k] i32, weights [T, k] f32: the experts of each token and the weights of their outputs.
 *
 * Logits are x times the transpose of the weight, plus the bias, in f32. Experts are chosen by score + correction, best
 * first; of equals the lower id. With groups > 1 the experts lie in that many groups of neighbours and those of the
 * top_groups best groups can be chosen; a group counts as its best expert, or with group_sum as the sum of its two
 * best. A weight is the score of its expert, without the correction; divided by (the sum of the k + epsilon) if
 * renormalize; times scale; times the expert's expert_scale.
 *
 * SPARSE_MIXER (arXiv 2409.12136), without groups, corrections and renormalize: each of the k experts is the best of
 * those left, and its weight its part of a softmax over those left whose logit l is near its own, b: (b - l) / max(|l|,
 * b) is at most 2 epsilon. */
typedef struct trm_router_params {
    int32_t k; /* experts of a token */
    trm_router_scoring scoring;
    int32_t groups, top_groups; /* groups up to 1: none */
    bool group_sum;
    bool renormalize;
    float epsilon;
    float scale; /* 0: 1 */
} trm_router_params;

/* What an expert makes of its gate g and its up u. */
#define TRM_EXPERT_ACTIVATIONS(X)                                                                                      \
    X(TRM_EXPERT_SILU, "silu")             /* silu(g) * u */                                                           \
    X(TRM_EXPERT_GELU, "gelu")             /* gelu(g) * u, by erf */                                                   \
    X(TRM_EXPERT_GELU_TANH, "gelu_tanh")   /* by the tanh approximation */                                             \
    X(TRM_EXPERT_SWIGLU_OAI, "swiglu_oai") /* g * sigmoid(alpha * g) * (u + 1) */                                      \
    X(TRM_EXPERT_RELU2, "relu2")           /* max(u, 0)^2, without a gate */
typedef enum trm_expert_activation {
    TRM_EXPERT_ACTIVATIONS(TRM_ENUMERATOR) TRM_EXPERT_ACTIVATION_COUNT
} trm_expert_activation;

/* Positions of an EXPERTS layer's inputs. */
enum {
    TRM_EXPERTS_X = 0,
    TRM_EXPERTS_IDS,
    TRM_EXPERTS_WEIGHTS,
    TRM_EXPERTS_GATE_UP,
    TRM_EXPERTS_DOWN,
    TRM_EXPERTS_GATE_UP_SCALE,
    TRM_EXPERTS_DOWN_SCALE,
    TRM_EXPERTS_GATE_UP_BIAS,
    TRM_EXPERTS_DOWN_BIAS,
    TRM_EXPERTS_GATE_UP_ZERO_POINT,
    TRM_EXPERTS_DOWN_ZERO_POINT,
    TRM_EXPERTS_INPUT_COUNT
};

/* (x [T, H] f32|f16|bf16, ids [T, k] i32, weights [T, k] f32, gate_up, down, gate_up_scale, down_scale, gate_up_bias
 * and down_bias of x's type, gate_up_zero_point, down_zero_point, the last six optional) -> [T, H]: the sum over the k
 * experts of a token of weight * (down * act(gate * x, up * x)), in f32 in the order of ids, rounded once; the
 * activation's result is rounded to x's type.
 *
 * Experts are stacked, I wide each. gate_up is [E, 2, I, H], gates first; [E, I, 2, H] if interleaved; [E, 1, I, H]
 * under an activation without a gate. Its bias has the same dims but the last. down is [E, H, I], its bias [E, H].
 * Weights are of x's type, without scales; or
 *   F8E4M3 with scales f32 of each row, [E, 2, I, 1] and [E, H, 1], or of blocks of 128 x 128 numbers,
 *   [E, 2, ceil(I / 128), ceil(H / 128)] and [E, ceil(H / 128), ceil(I / 128)], I then a multiple of 128;
 *   U8 with two numbers e2m1 a byte, the one of the even column in the low bits, [E, 2, I, H / 2] and [E, H, I / 2],
 *   and scales U8 (e8m0) of 32 columns, [E, 2, I, H / 32] and [E, H, I / 32]: MXFP4;
 *   I8, or U8 with two integers of 4 bits a byte as above, with scales f32|f16|bf16 of groups of columns, [E, 2, I, g]
 *   and [E, H, g'], g and g' groups of equal size. Those of 4 bits count from their zero points u8, with the dims of
 *   the scales, or from 8 if there are none.
 *
 * Ids outside first .. first + E - 1 add nothing: a rank with some of the experts gives its summand. */
typedef struct trm_experts_params {
    trm_expert_activation activation;
    bool interleaved;
    bool weighted_input; /* the weight multiplies gate and up products instead of the output */
    float limit;         /* g is at most limit, u within -limit .. limit, before the activation; 0: no limit */
    float alpha;         /* SWIGLU_OAI */
    int64_t first;       /* the id of the first expert that is here */
} trm_experts_params;

/* (x) -> softmax along `axis` (may be negative). */
typedef struct trm_softmax_params {
    int32_t axis;
} trm_softmax_params;

#define TRM_REDUCE_OPS(X)                                                                                              \
    X(TRM_REDUCE_SUM, "sum")                                                                                           \
    X(TRM_REDUCE_PROD, "prod")                                                                                         \
    X(TRM_REDUCE_MAX, "max")                                                                                           \
    X(TRM_REDUCE_MIN, "min")                                                                                           \
    X(TRM_REDUCE_AVG, "avg")                                                                                           \
    X(TRM_REDUCE_NONE, "none") /* collectives that do not reduce */
typedef enum trm_reduce_op { TRM_REDUCE_OPS(TRM_ENUMERATOR) } trm_reduce_op;

/* (x) -> reduced along `axis` (may be negative); the axis stays as 1 with keep_dims. Of bools MAX and MIN only. Of an
 * axis of size 0: 0, 1, the smallest and the largest of the type, NaN (integers 0). */
typedef struct trm_reduce_params {
    trm_reduce_op op;
    int32_t axis;
    bool keep_dims;
} trm_reduce_params;

#define TRM_ROPE_SCALINGS(X)                                                                                           \
    X(TRM_ROPE_PLAIN, "plain")     /* inv_freq [rotary_dim / 2]: default, linear, llama3 and yarn fold into it */      \
    X(TRM_ROPE_DYNAMIC, "dynamic") /* base rescaled where lengths[t] > original_length (NTK) */                        \
    X(TRM_ROPE_LONG, "long")       /* inv_freq [2, rotary_dim / 2]: row 1 where lengths[t] > original_length */
typedef enum trm_rope_scaling { TRM_ROPE_SCALINGS(TRM_ENUMERATOR) } trm_rope_scaling;

/* (x [T, heads, head_dim], positions i32 [T], inv_freq f32, lengths i32 [T] unless PLAIN) -> same.
 * Rotates rotary_dim elements of each head, from element `first` on, by positions[t] * inv_freq[i]; pairs are
 * (i, i + rotary_dim/2), or (2i, 2i+1) if interleaved. cos and sin are multiplied by `magnitude`.
 * lengths[t]: tokens in t's sequence after this step. */
typedef struct trm_rope_params {
    trm_rope_scaling scaling;
    int32_t rotary_dim;
    bool interleaved;
    float magnitude;         /* yarn and longrope attention factor; 1 otherwise */
    float base, factor;      /* DYNAMIC */
    int64_t original_length; /* DYNAMIC, LONG */
    int32_t first;
} trm_rope_params;

#define TRM_CAUSALS(X)                                                                                                 \
    X(TRM_CAUSAL_NONE, "none")                                                                                         \
    X(TRM_CAUSAL_UPPER_LEFT, "upper_left")   /* query i sees keys 0..i */                                              \
    X(TRM_CAUSAL_LOWER_RIGHT, "lower_right") /* query i sees keys 0..i + (keys - queries): right for decoding */
typedef enum trm_causal { TRM_CAUSALS(TRM_ENUMERATOR) } trm_causal;

#define TRM_ATTENTION_FORMS(X)                                                                                         \
    X(TRM_ATTENTION_PACKED_NHD, "packed_nhd") /* q [T, Hq, D], k [T, Hkv, D], v [T, Hkv, Dv] -> [T, Hq, Dv] */         \
    X(TRM_ATTENTION_PADDED_BHND,                                                                                       \
      "padded_bhnd") /* q [B, Hq, N, D], k [B, Hkv, M, D], v [B, Hkv, M, Dv] -> [B, Hq, N, Dv] */                      \
    X(TRM_ATTENTION_PADDED_BNHD,                                                                                       \
      "padded_bnhd") /* q [B, N, Hq, D], k [B, M, Hkv, D], v [B, M, Hkv, Dv] -> [B, N, Hq, Dv] */
typedef enum trm_attention_form { TRM_ATTENTION_FORMS(TRM_ENUMERATOR) } trm_attention_form;

/* Positions of a layer's inputs; absent trailing inputs are left out, absent inner ones are NULL. */
enum {
    TRM_ATTENTION_Q = 0,
    TRM_ATTENTION_K,
    TRM_ATTENTION_V,
    TRM_ATTENTION_SEQUENCE_STARTS,  /* i32 [S + 1]: first token of each sequence in q, PACKED_NHD */
    TRM_ATTENTION_SEQUENCE_LENGTHS, /* i32 [S]: keys of each sequence after this step; with a cache */
    TRM_ATTENTION_BLOCK_TABLE,      /* i32 [S, blocks]: block of the cache for each run of block_size keys */
    TRM_ATTENTION_KEY_CACHE,        /* state [blocks, block_size, Hkv, D], of q's type or F8E4M3 */
    TRM_ATTENTION_VALUE_CACHE,      /* state [blocks, block_size, Hkv, Dv], of the same */
    TRM_ATTENTION_MASK,             /* PADDED forms: bool (true = attend) or float added, broadcast to [B, Hq, N, M] */
    TRM_ATTENTION_SINKS,            /* f32 [Hq]: of each head a score that takes part in the softmax, without a value */
    TRM_ATTENTION_INPUT_COUNT
};

/* Scaled dot-product attention, query head h reading key-value head h * Hkv / Hq. With a cache the layer first stores k
 * and v of the step's tokens at positions sequence_lengths[s] - queries .. sequence_lengths[s] - 1 of each sequence,
 * then attends to all sequence_lengths[s] cached keys. Without one, PACKED_NHD sequences attend to themselves. A
 * sequence with no queries is skipped. Entries of the block table past the sequence are not read. Of an F8E4M3 cache: a
 * key is stored as k * (1 / k_scale), computed in f32 and rounded to the nearest e4m3, at most +-448, and stands for
 * what is stored times k_scale, also in the step that stores it; values with v_scale likewise. A sink is compared with
 * scores as they enter the softmax: scaled, capped and masked. With n_ranks > 1: query i and key j of rank r are query
 * r N + i and key r M + j of one layer over n_ranks N and n_ranks M of them. With cache_ranks > 1 the cache has a share
 * of the keys: a block of the table is a run of cache_ranks * block_size keys, of which the cache has block_size, those
 * from cache_rank * block_size on. Only these are stored and attended to, and a second output, f32 [T, Hq], has the
 * log2 of each query's sum of weights, -infinity for a query that sees none of them; PACKED_NHD with a cache and
 * without sinks. */
typedef struct trm_attention_params {
    trm_attention_form form;
    trm_causal causal;
    int32_t window;         /* a query sees at most the last `window` keys, itself included; 0 = all */
    bool chunked;           /* keys lie in chunks of `window`, and a query sees only those of its own chunk */
    float scale;            /* scores = scale * q.k; 0 means 1/sqrt(D) */
    float softcap;          /* scores = softcap * tanh(scores / softcap); 0 = off */
    int32_t n_ranks;        /* > 1: q, k, v and the result are this rank's rows, PADDED forms only; a mask has its
                               queries and all keys. Of all ranks or the mesh's axis cp; 0 is 1 */
    float k_scale, v_scale; /* of an F8E4M3 cache, else unused: what one unit of what is stored stands for; positive,
                               with a finite reciprocal; 0 means 1 */
    int32_t cache_ranks, cache_rank; /* the share of the keys that the cache has; 0 is 1, all of them */
} trm_attention_params;

enum {
    TRM_LATENT_ATTENTION_Q = 0,
    TRM_LATENT_ATTENTION_LATENT,          /* [T, R] */
    TRM_LATENT_ATTENTION_ROPE_KEY,        /* [T, 1, P] */
    TRM_LATENT_ATTENTION_WEIGHT,          /* [H, N + Dv, R]: rows that make keys, then those that make values */
    TRM_LATENT_ATTENTION_SEQUENCE_STARTS, /* this and the next two as for ATTENTION */
    TRM_LATENT_ATTENTION_SEQUENCE_LENGTHS,
    TRM_LATENT_ATTENTION_BLOCK_TABLE,
    TRM_LATENT_ATTENTION_CACHE, /* state [blocks, block_size, R + P], of q's type */
    TRM_LATENT_ATTENTION_INPUT_COUNT
};

/* Multi-head latent attention (arXiv 2405.04434): q [T, H, N + P] and the inputs above -> [T, H, Dv]. A token's key of
 * head h is weight[h, :N] times its latent, then its rope key; its value is weight[h, N:] times its latent. The cache
 * holds latents and rope keys, which all heads share. Otherwise ATTENTION over packed sequences with a cache, causal.
 */
typedef struct trm_latent_attention_params {
    float scale; /* scores = scale * q.k; 0 means 1/sqrt(N + P) */
} trm_latent_attention_params;

enum {
    TRM_SHORT_CONVOLUTION_X = 0,            /* [T, C] */
    TRM_SHORT_CONVOLUTION_WEIGHT,           /* [C, K], of x's type */
    TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS,  /* i32 [S + 1]: first token of each sequence in x */
    TRM_SHORT_CONVOLUTION_SEQUENCE_LENGTHS, /* i32 [S]: tokens of each sequence after this step */
    TRM_SHORT_CONVOLUTION_SEQUENCE_SLOTS,   /* i32 [S, 2]: of the cache, the slot that is read and the one that is
                                               written, perhaps the same; nothing else uses what is written */
    TRM_SHORT_CONVOLUTION_CACHE,            /* state [slots, P, C], P >= K - 1, of x's type */
    TRM_SHORT_CONVOLUTION_BIAS,             /* optional [C], of x's type */
    TRM_SHORT_CONVOLUTION_INPUT_COUNT
};

/* A causal convolution of each channel over the last K tokens of its sequence: the inputs above -> [T, C], activation
 * of the bias and the sum over j < K of weight[c, j] * x at K - 1 - j tokens before, which is zero before the
 * sequence's first token. The cache has x at position p of a sequence at place p mod P of its slot: a step reads what
 * lies before its tokens in the one slot, then the other one has the sequence's last P tokens. A sequence with no
 * tokens is skipped. Accumulates in f32. */
typedef struct trm_short_convolution_params {
    trm_activation activation;
} trm_short_convolution_params;

enum {
    TRM_GATED_DELTA_Q = 0,           /* [T, Hk, Dk] */
    TRM_GATED_DELTA_K,               /* [T, Hk, Dk] */
    TRM_GATED_DELTA_V,               /* [T, Hv, Dv], Hv a multiple of Hk */
    TRM_GATED_DELTA_A,               /* [T, Hv]: of the decay */
    TRM_GATED_DELTA_B,               /* [T, Hv]: of the strength of a write */
    TRM_GATED_DELTA_A_LOG,           /* f32 [Hv] */
    TRM_GATED_DELTA_A_BIAS,          /* f32 [Hv] */
    TRM_GATED_DELTA_SEQUENCE_STARTS, /* this and the next two as for SHORT_CONVOLUTION */
    TRM_GATED_DELTA_SEQUENCE_LENGTHS,
    TRM_GATED_DELTA_SEQUENCE_SLOTS,
    TRM_GATED_DELTA_STATE, /* state f32 [slots, P, Hv, Dk, Dv], P >= 1 */
    TRM_GATED_DELTA_INPUT_COUNT
};

/*
 * Gated delta rule (Gated DeltaNet, arXiv 2412.06464): the inputs above -> [T, Hv, Dv]. Value head h has key head
 * h * Hk / Hv and a matrix S [Dk, Dv], zero before its sequence's first token. q and k are divided by their length,
 * sqrt(sum of squares + eps), and q also by sqrt(Dk). A token computes in f32
 *     S = exp(-exp(a_log) * softplus(a + a_bias)) * S;  S += k (sigmoid(b) * (v - S^T k))^T;  output = S^T q.
 * The state has S after n tokens of a sequence at place n mod P of its slot: a step reads S before its tokens from the
 * one slot, then stores S after each of its last P tokens in the other. So up to P - 1 of the tokens just run can be
 * taken back. A sequence with no tokens is skipped.
 */
typedef struct trm_gated_delta_params {
    float eps;
} trm_gated_delta_params;

enum {
    TRM_SELECTIVE_SCAN_X = 0,           /* [T, H, D] */
    TRM_SELECTIVE_SCAN_B,               /* [T, G, N], H a multiple of G */
    TRM_SELECTIVE_SCAN_C,               /* [T, G, N] */
    TRM_SELECTIVE_SCAN_STEP,            /* [T, H] */
    TRM_SELECTIVE_SCAN_A_LOG,           /* f32 [H] */
    TRM_SELECTIVE_SCAN_STEP_BIAS,       /* f32 [H] */
    TRM_SELECTIVE_SCAN_SKIP,            /* f32 [H] */
    TRM_SELECTIVE_SCAN_SEQUENCE_STARTS, /* this and the next two as for SHORT_CONVOLUTION */
    TRM_SELECTIVE_SCAN_SEQUENCE_LENGTHS,
    TRM_SELECTIVE_SCAN_SEQUENCE_SLOTS,
    TRM_SELECTIVE_SCAN_STATE, /* state f32 [slots, P, H, D, N], P >= 1 */
    TRM_SELECTIVE_SCAN_INPUT_COUNT
};

/*
 * Selective scan of a state space (Mamba-2, arXiv 2405.21060): the inputs above -> [T, H, D]. Head h has group h * G /
 * H and a matrix S [D, N], zero before its sequence's first token. A token computes in f32 dt = clamp(softplus(step +
 * step_bias), step_min, step_max); S = exp(-exp(a_log) * dt) * S + dt * x b^T;  output = S c + skip * x. The state has
 * S after n tokens of a sequence at place n mod P of its slot, as that of GATED_DELTA.
 */
typedef struct trm_selective_scan_params {
    float step_min;
    float step_max; /* 0: none */
} trm_selective_scan_params;

#define TRM_COLLECTIVE_OPS(X)                                                                                          \
    X(TRM_ALL_REDUCE, "all_reduce")                                                                                    \
    X(TRM_ALL_GATHER, "all_gather")                                                                                    \
    X(TRM_BROADCAST, "broadcast")                                                                                      \
    X(TRM_REDUCE, "reduce")                                                                                            \
    X(TRM_REDUCE_SCATTER, "reduce_scatter")                                                                            \
    X(TRM_ALL_TO_ALL, "all_to_all")                                                                                    \
    X(TRM_GATHER, "gather")                                                                                            \
    X(TRM_SCATTER, "scatter")                                                                                          \
    X(TRM_SEND, "send") /* to `root`; the output is the input */                                                       \
    X(TRM_RECV, "recv") /* from `root`; the output holds what came, the inputs give its dims and type */
typedef enum trm_collective_op { TRM_COLLECTIVE_OPS(TRM_ENUMERATOR) } trm_collective_op;

/*
 * One exchange between the ranks of a group; n is the group's size.
 *
 *   op              reduce   root     output along `axis`   content
 *   ALL_REDUCE      yes      -        same                  the reduction, on every rank
 *   ALL_GATHER      no       -        n * d                 all inputs in group order, on every rank
 *   BROADCAST       no       yes      same                  the root's input
 *   REDUCE          yes      yes      same                  the reduction on the root; elsewhere undefined
 *   REDUCE_SCATTER  yes      -        d / n                 rank i gets slice i of the reduction
 *   ALL_TO_ALL      no       -        same                  slice j of rank i becomes slice i of rank j
 *   GATHER          no       yes      n * d                 all inputs on the root; elsewhere undefined
 *   SCATTER         no       yes      d / n                 slice i of the root's input on rank i
 *   SEND, RECV      no       peer     same
 *
 * groups lists global ranks; n_groups groups of group_size each, and a rank runs the layer in the group
 * that names it. n_groups 0 is one group of all ranks. root is a global rank of the group (for several groups, an
 * index into the group). avg divides by n; on integers it truncates. Of bools max
 * (or) and min (and) only.
 *
 * RECV's output has the type and dims of its input, or, if `dtype` is set, that type and `dims`: a rank needs no tensor
 * like what it receives. A negative entry -m stands for axes of the inputs (up to 16, their axes counted one after the
 * other): that of number k where bit k of m is set, and if several are, what they broadcast to.
 */
typedef struct trm_collective_params {
    trm_collective_op op;
    trm_reduce_op reduce;
    int32_t axis;
    int32_t root;
    int32_t n_ranks; /* n, so that shapes follow without a communicator */
    int32_t n_groups, group_size;
    int32_t groups[TRM_MAX_RANKS];
    trm_dtype dtype; /* RECV only; NONE: like the input */
    trm_dims dims;
} trm_collective_params;

/* ---- kinds of general networks ----------------------------------------------------------------- */

/*
 * A value input is a small tensor whose values, not only dims, decide the dims of the outputs. A context knows them
 * on the host before the layer is enqueued: they are constants, inputs of the network, or follow from dims and
 * those. Where the value is not known (a network is being defined), the dims it decides are -1.
 *
 * Kinds whose output dims depend on data (NON_ZERO, UNIQUE, NON_MAX_SUPPRESSION) have as their last output the number
 * of entries, i64 scalar: memory is planned for the largest number, and a context reads the actual one and continues
 * with it.
 */

/* (x) -> i64 [end - start]: dims start .. end - 1 of x. Negative positions count from the end; both are clamped. */
typedef struct trm_shape_params {
    int32_t start, end; /* end INT32_MAX: all */
} trm_shape_params;

/* (x, shape i32|i64 [r], value input, optional) -> x repeated to what its dims and `dims` (or the values of `shape`)
 * broadcast to, as numpy does. With `shape`, `dims` is what is known of it, as for RESHAPE. */
typedef struct trm_expand_params {
    trm_dims dims;
} trm_expand_params;

/* (x [n dims], repeats i64 [n], value input) -> x repeated repeats[i] times along axis i. No parameters. */

#define TRM_PAD_MODES(X)                                                                                               \
    X(TRM_PAD_CONSTANT, "constant")                                                                                    \
    X(TRM_PAD_REFLECT, "reflect") /* without the edge: c b | a b c | b a */                                            \
    X(TRM_PAD_EDGE, "edge")                                                                                            \
    X(TRM_PAD_WRAP, "wrap")
typedef enum trm_pad_mode { TRM_PAD_MODES(TRM_ENUMERATOR) } trm_pad_mode;

/* (x, pads i64 [2 n], value input, optional; value: scalar of x's type, optional) -> x with before[i] elements before
 * and after[i] after those of axis i; negative numbers cut. `pads` replaces both: all befores, then all afters.
 * Constant padding takes `value`, or 0. */
typedef struct trm_pad_params {
    trm_pad_mode mode;
    int32_t before[TRM_MAX_DIMS], after[TRM_MAX_DIMS];
} trm_pad_params;

/* (start, limit, delta: scalars of one type, value inputs) -> [max(0, ceil((limit - start) / delta))]: start + i *
 * delta. No parameters. */

/* (condition bool, a, b of one type) -> condition ? a : b, the three broadcast. No parameters. */

/* (data, indices i32|i64 of as many axes) -> like indices: data with position `axis` replaced by the index there.
 * Negative indices count from the end; out of range yields zeros. */
typedef struct trm_gather_elements_params {
    int32_t axis;
} trm_gather_elements_params;

/* (data, indices i64 [..., k]) -> indices[:-1] + data[batch_dims + k:]: rows of indices address data behind batch_dims
 * axes that both share. */
typedef struct trm_gather_nd_params {
    int32_t batch_dims;
} trm_gather_nd_params;

#define TRM_SCATTER_FORMS(X)                                                                                           \
    X(TRM_SCATTER_ELEMENTS, "elements") /* indices like updates: position `axis` replaced by the index */              \
    X(TRM_SCATTER_ND, "nd")             /* indices i64 [..., k], updates indices[:-1] + data[k:] */
typedef enum trm_scatter_form { TRM_SCATTER_FORMS(TRM_ENUMERATOR) } trm_scatter_form;

#define TRM_SCATTER_REDUCTIONS(X)                                                                                      \
    X(TRM_SCATTER_REPLACE, "replace")                                                                                  \
    X(TRM_SCATTER_ADD, "add")                                                                                          \
    X(TRM_SCATTER_MUL, "mul")                                                                                          \
    X(TRM_SCATTER_MIN, "min")                                                                                          \
    X(TRM_SCATTER_MAX, "max")
typedef enum trm_scatter_reduction { TRM_SCATTER_REDUCTIONS(TRM_ENUMERATOR) } trm_scatter_reduction;

/* (data, indices i32|i64, updates) -> data with updates written, or combined, at indices. Which of two writes to one
 * place wins is not defined; indices out of range are left out. */
typedef struct trm_scatter_params {
    trm_scatter_form form;
    trm_scatter_reduction reduction;
    int32_t axis; /* ELEMENTS */
} trm_scatter_params;

/* (indices of any number type, depth: scalar, value input; values [2]) -> a new axis of `depth` at `axis` of the
 * output: values[1] at the index, values[0] elsewhere. Negative indices count from depth; out of range is all
 * values[0]. */
typedef struct trm_one_hot_params {
    int32_t axis;
} trm_one_hot_params;

/* (x, lengths i64 [batch]) -> the first lengths[b] elements along time_axis of each batch entry reversed. */
typedef struct trm_reverse_sequence_params {
    int32_t batch_axis, time_axis; /* 0 and 1, or 1 and 0 */
} trm_reverse_sequence_params;

/* (x, k: i64 [1] or scalar, value input) -> (values, indices i64): the k largest (or smallest) along `axis`, in order
 * if sorted; of equal ones the lower index first. NaN counts as largest. */
typedef struct trm_topk_params {
    int32_t axis;
    bool smallest, sorted;
} trm_topk_params;

/* (x) -> i64: index of the largest (or smallest) along `axis`, the first or last of equal ones. */
typedef struct trm_arg_reduce_params {
    int32_t axis;
    bool smallest, last, keep_dims;
} trm_arg_reduce_params;

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

/* (x [n dims]) -> (i64 [n, count], count): positions of elements that are not 0, in row-major order. No parameters. */

/* (x) -> (y, indices i64 [u], inverse i64 [d], counts i64 [u], u is data-dependent): the different elements of x
 * flattened, or slices along `axis`: in order of value if sorted, else of first occurrence. The number u is the fifth
 * output. */
typedef struct trm_unique_params {
    bool flatten; /* `axis` is not read */
    bool sorted;
    int32_t axis;
} trm_unique_params;

/* (boxes f32 [B, N, 4], scores f32 [B, C, N], most per class i64 scalar, value input, optional: 0; iou threshold f32
 * scalar optional: 0, score threshold f32 scalar optional) -> (i64 [count, 3]: batch, class, box; count). By batch,
 * then class, then falling score. */
typedef struct trm_non_max_suppression_params {
    bool center_point; /* boxes are x, y of the centre, width, height; else y1, x1, y2, x2 in any order */
} trm_non_max_suppression_params;

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

/* (x [N, C * k1 * .., L]) -> [N, C, image1 ..]: columns added to their places in the image. */
typedef struct trm_col2im_params {
    trm_dims image; /* 1 to 3 spatial axes */
    int32_t kernel[TRM_MAX_SPATIAL], stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL];
    int32_t before[TRM_MAX_SPATIAL], after[TRM_MAX_SPATIAL];
} trm_col2im_params;

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

/* (x of integers or small floats, scale float, zero_point like x, optional) -> (x - zero_point) * scale, of the float
 * type `to` (NONE: that of scale). Shapes as for QUANTIZE, with the same parameters. */

/* (x [..., n, n]) -> [...]. No parameters. */

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

/*
 * Control flow (docs/internals/graph.md): layers between IF and END_IF, and between LOOP and END_LOOP, are a region.
 * Conditions that only a run knows decide whether it runs, and how often. Conditions are bool scalars and value inputs.
 * Regions lie within each other. What a layer of a region reads is a constant, made in the region, or comes in by an
 * ENTER of the region; of a loop it may be a RECURRENCE, too. What is made in a region is read outside by MERGE alone.
 *
 * IF (condition) -> the condition: the region runs where it holds, or with `negated` where it does not.
 * END_IF (output of the IF) -> the same.
 * MERGE (condition, a, b, outputs of END_IFs, optional) -> a where the condition holds, else b: of one type and as many
 * dimensions. The result has the dims of the one taken; the other need not exist.
 *
 * RECURRENCE (initial), before the LOOP -> what a loop carries from pass to pass: in the first pass `initial`.
 * LOOP (condition) -> the condition: whether the region runs at all.
 * NEXT (value, output of a RECURRENCE), in the loop's region -> value: the RECURRENCE's value after the pass.
 * END_LOOP (condition, output of the LOOP) -> the condition: whether the region runs again.
 * LOOP_OUTPUT (output of a RECURRENCE, of the END_LOOP) -> the RECURRENCE's last value.
 * ENTER (x) -> x.
 */
typedef struct trm_if_params {
    bool negated;
} trm_if_params;

/* A layer of a plugin (plugin.h): (inputs, as the plugin says) -> its outputs. */
typedef struct trm_plugin_params {
    int32_t layer; /* what trm_plugin_make_layer gave; only this process knows it */
} trm_plugin_params;

/* Of RECURRENCE and NEXT. */
typedef struct trm_recurrence_params {
    int32_t open; /* bit i: axis i may have another size in every pass */
} trm_recurrence_params;

/* The kinds: X(KIND, name). A kind has its row in graph/kinds. */
#define TRM_LAYER_KINDS(X)                                                                                             \
    X(CAST, cast)                                                                                                      \
    X(RESHAPE, reshape)                                                                                                \
    X(TRANSPOSE, transpose)                                                                                            \
    X(SLICE, slice)                                                                                                    \
    X(CONCAT, concat)                                                                                                  \
    X(GATHER, gather)                                                                                                  \
    X(EMBEDDING, embedding)                                                                                            \
    X(MATMUL, matmul)                                                                                                  \
    X(ELEMENTWISE, elementwise)                                                                                        \
    X(UNARY, unary)                                                                                                    \
    X(GLU, glu)                                                                                                        \
    X(NORM, norm)                                                                                                      \
    X(SOFTMAX, softmax)                                                                                                \
    X(REDUCE, reduce)                                                                                                  \
    X(ROPE, rope)                                                                                                      \
    X(ATTENTION, attention)                                                                                            \
    X(DIST_COLLECTIVE, dist_collective)                                                                                \
    X(SHAPE, shape)                                                                                                    \
    X(EXPAND, expand)                                                                                                  \
    X(TILE, tile)                                                                                                      \
    X(PAD, pad)                                                                                                        \
    X(RANGE, range)                                                                                                    \
    X(SELECT, select)                                                                                                  \
    X(GATHER_ELEMENTS, gather_elements)                                                                                \
    X(GATHER_ND, gather_nd)                                                                                            \
    X(SCATTER, scatter)                                                                                                \
    X(ONE_HOT, one_hot)                                                                                                \
    X(REVERSE_SEQUENCE, reverse_sequence)                                                                              \
    X(TOPK, topk)                                                                                                      \
    X(ARG_REDUCE, arg_reduce)                                                                                          \
    X(CUMULATIVE, cumulative)                                                                                          \
    X(NON_ZERO, non_zero)                                                                                              \
    X(UNIQUE, unique)                                                                                                  \
    X(NON_MAX_SUPPRESSION, non_max_suppression)                                                                        \
    X(CONVOLUTION, convolution)                                                                                        \
    X(DECONVOLUTION, deconvolution)                                                                                    \
    X(DEFORMABLE_CONVOLUTION, deformable_convolution)                                                                  \
    X(POOL, pool)                                                                                                      \
    X(RESIZE, resize)                                                                                                  \
    X(GRID_SAMPLE, grid_sample)                                                                                        \
    X(ROI_POOL, roi_pool)                                                                                              \
    X(COL2IM, col2im)                                                                                                  \
    X(GROUP_NORM, group_norm)                                                                                          \
    X(LRN, lrn)                                                                                                        \
    X(RECURRENT, recurrent)                                                                                            \
    X(QUANTIZE, quantize)                                                                                              \
    X(DEQUANTIZE, dequantize)                                                                                          \
    X(DETERMINANT, determinant)                                                                                        \
    X(FOURIER, fourier)                                                                                                \
    X(RANDOM, random)                                                                                                  \
    X(IF, if)                                                                                                          \
    X(END_IF, end_if)                                                                                                  \
    X(LOOP, loop)                                                                                                      \
    X(END_LOOP, end_loop)                                                                                              \
    X(ENTER, enter)                                                                                                    \
    X(RECURRENCE, recurrence)                                                                                          \
    X(NEXT, next)                                                                                                      \
    X(LOOP_OUTPUT, loop_output)                                                                                        \
    X(MERGE, merge)                                                                                                    \
    X(DEQUANT_MATMUL, dequant_matmul)                                                                                  \
    X(ROUTER, router)                                                                                                  \
    X(EXPERTS, experts)                                                                                                \
    X(LATENT_ATTENTION, latent_attention)                                                                              \
    X(SHORT_CONVOLUTION, short_convolution)                                                                            \
    X(GATED_DELTA, gated_delta)                                                                                        \
    X(SELECTIVE_SCAN, selective_scan)                                                                                  \
    X(LORA, lora)                                                                                                      \
    X(PLUGIN, plugin)

/* Behind these are the kinds that only passes and the partitioner make, which the engine's own sources see. */
#ifdef TRM_PASS_KINDS
#include TRM_PASS_KINDS
#else
#define TRM_PASS_LAYER_KINDS(X)
#define TRM_PASS_LAYER_PARAMS
#endif

#define TRM_LAYER_ENUMERATOR(kind, name) TRM_LAYER_##kind,
typedef enum trm_layer_kind {
    TRM_LAYER_KINDS(TRM_LAYER_ENUMERATOR) TRM_LAYER_KIND_COUNT,
    TRM_PASS_LAYER_KINDS(TRM_LAYER_ENUMERATOR)
} trm_layer_kind;

/* A kind and its parameters. */
typedef struct trm_layer_desc {
    trm_layer_kind kind;
    union {
        trm_cast_params cast;
        trm_reshape_params reshape;
        trm_transpose_params transpose;
        trm_slice_params slice;
        trm_concat_params concat;
        trm_gather_params gather;
        trm_embedding_params embedding;
        trm_matmul_params matmul;
        trm_elementwise_params elementwise;
        trm_unary_params unary;
        trm_glu_params glu;
        trm_norm_params norm;
        trm_dequant_matmul_params dequant_matmul;
        trm_router_params router;
        trm_experts_params experts;
        trm_softmax_params softmax;
        trm_reduce_params reduce;
        trm_rope_params rope;
        trm_attention_params attention;
        trm_latent_attention_params latent_attention;
        trm_short_convolution_params short_convolution;
        trm_gated_delta_params gated_delta;
        trm_selective_scan_params selective_scan;
        trm_collective_params collective;
        trm_shape_params shape;
        trm_expand_params expand;
        trm_pad_params pad;
        trm_gather_elements_params gather_elements;
        trm_gather_nd_params gather_nd;
        trm_scatter_params scatter;
        trm_one_hot_params one_hot;
        trm_reverse_sequence_params reverse_sequence;
        trm_topk_params topk;
        trm_arg_reduce_params arg_reduce;
        trm_cumulative_params cumulative;
        trm_unique_params unique;
        trm_non_max_suppression_params non_max_suppression;
        trm_convolution_params convolution; /* and DECONVOLUTION */
        trm_deformable_convolution_params deformable_convolution;
        trm_pool_params pool;
        trm_resize_params resize;
        trm_grid_sample_params grid_sample;
        trm_roi_pool_params roi_pool;
        trm_col2im_params col2im;
        trm_group_norm_params group_norm;
        trm_lrn_params lrn;
        trm_recurrent_params recurrent;
        trm_quantize_params quantize; /* and DEQUANTIZE */
        trm_fourier_params fourier;
        trm_random_params random;
        trm_if_params branch;             /* IF */
        trm_recurrence_params recurrence; /* and NEXT */
        trm_plugin_params plugin;
        uint64_t reserved[88]; /* for what passes make */
        TRM_PASS_LAYER_PARAMS
    };
} trm_layer_desc;

/* "matmul", "dist_collective", ...; "invalid" out of range. */
TRM_API const char *trm_layer_kind_name(trm_layer_kind kind);
/* "all_reduce", ...; "sum", ..., "none"; "invalid" out of range. */
TRM_API const char *trm_collective_op_name(trm_collective_op op);
TRM_API const char *trm_reduce_op_name(trm_reduce_op op);

#ifdef __cplusplus
}
#endif
#endif
