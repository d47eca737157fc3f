/* Mixtures of experts. */
#ifndef TRIREME_LAYERS_MOE_H
#define TRIREME_LAYERS_MOE_H

#include <trireme/layers/common.h>

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

#endif
