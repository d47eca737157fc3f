/* What several families of layers share: limits, lists of enumerators, activations and reductions. */
#ifndef TRIREME_LAYERS_COMMON_H
#define TRIREME_LAYERS_COMMON_H

#include <trireme/types.h>

#define TRM_MAX_LAYER_INPUTS  16
#define TRM_MAX_LAYER_OUTPUTS 5
#define TRM_MAX_RANKS         64

/* Lists below name the values of parameters that are enums: X(value, "name"), the name as dumps and plans write it. */
#define TRM_ENUMERATOR(value, name) value,
#define TRM_ENUM_NAME(value, name)  name,

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

#define TRM_REDUCE_OPS(X)                                                                                              \
    X(TRM_REDUCE_SUM, "sum")                                                                                           \
    X(TRM_REDUCE_PROD, "prod")                                                                                         \
    X(TRM_REDUCE_MAX, "max")                                                                                           \
    X(TRM_REDUCE_MIN, "min")                                                                                           \
    X(TRM_REDUCE_AVG, "avg")                                                                                           \
    X(TRM_REDUCE_NONE, "none") /* collectives that do not reduce */
typedef enum trm_reduce_op { TRM_REDUCE_OPS(TRM_ENUMERATOR) } trm_reduce_op;

#endif
