/*
 * The layer kinds that only passes and the partitioner make, with their parameters. <trireme/layers.h> includes this in
 * the engine's own sources, which are compiled with TRM_PASS_KINDS; programs see room for it.
 */
#ifndef TRM_KERNELS_PASS_KINDS_H
#define TRM_KERNELS_PASS_KINDS_H

/* X(KIND, name), as TRM_LAYER_KINDS. */
#define TRM_PASS_LAYER_KINDS(X)                                                                                        \
    X(MATMUL_GLU, matmul_glu)                                                                                          \
    X(NORM_MATMUL, norm_matmul)                                                                                        \
    X(NORM_DEQUANT_MATMUL, norm_dequant_matmul)                                                                        \
    X(GLU_DEQUANT_MATMUL, glu_dequant_matmul)                                                                          \
    X(QKV_ATTENTION, qkv_attention)                                                                                    \
    X(ALL_REDUCE_NORM, all_reduce_norm)                                                                                \
    X(FUSED_ELEMENTWISE, fused_elementwise)                                                                            \
    X(ROTATE, rotate)                                                                                                  \
    X(DELTA_NET, delta_net)                                                                                            \
    X(ATTENTION_JOIN, attention_join)                                                                                  \
    X(NORM_ROUTER, norm_router)                                                                                        \
    X(INT8_PRODUCT, int8_product)                                                                                      \
    X(NORM_QUANTIZE, norm_quantize)                                                                                    \
    X(ATTENTION_QUANTIZE, attention_quantize)
#define TRM_ALL_LAYER_KINDS(X) TRM_LAYER_KINDS(X) TRM_PASS_LAYER_KINDS(X)

/* MATMUL_GLU, with the parameters of GLU: (x [..., K], weight [2 * N, K]) -> [..., N], the GLU of x times the weight's
 * transpose: activation of the first N columns, times the others. The product is rounded to the type of x before. */

/* (x [..., K], weight [N, K], bias [N] optional, norm_weight [K] optional) -> [..., N]: an RMS norm and the MATMUL of
 * it by the weight's transpose, or with `gated` the MATMUL_GLU, whose weight is [2 * N, K], without a bias. What is
 * normalized need not be rounded to the type of x. With `residual`: (x, weight, bias, norm_weight, residual [..., K])
 * -> (product of norm(x + residual), x + residual), the sum rounded to the type of x before it is normalized. */
typedef struct trm_norm_matmul_params {
    bool residual, gated;
    float eps, weight_offset; /* of the norm, as in trm_norm_params */
    trm_activation activation;
    trm_dtype out; /* NONE: type of x; gated: has no other */
} trm_norm_matmul_params;

enum {
    TRM_NORM_MATMUL_X = 0,
    TRM_NORM_MATMUL_WEIGHT,
    TRM_NORM_MATMUL_BIAS,
    TRM_NORM_MATMUL_NORM_WEIGHT,
    TRM_NORM_MATMUL_RESIDUAL,
    TRM_NORM_MATMUL_INPUT_COUNT
};

/* A DEQUANT_MATMUL of an RMS norm or of a GLU, whose results are quantized where they are made. Its inputs begin with
 * those of the DEQUANT_MATMUL, but x [..., K] is what is normalized, or x [..., 2 * K] the gate and up of the GLU. With
 * `residual`: (..., norm_weight [K] optional, residual [..., K]) -> (product of norm(x + residual), x + residual), the
 * sum rounded to the type of x before it is normalized. The norm, and the GLU, are rounded to the type of x. */
typedef struct trm_norm_dequant_matmul_params {
    trm_dequant_matmul_params product;
    bool residual;
    float eps, weight_offset; /* of the norm, as in trm_norm_params */
} trm_norm_dequant_matmul_params;

typedef struct trm_glu_dequant_matmul_params {
    trm_dequant_matmul_params product;
    trm_activation activation;
} trm_glu_dequant_matmul_params;

enum {
    TRM_NORM_DEQUANT_MATMUL_NORM_WEIGHT = TRM_DEQUANT_MATMUL_INPUT_COUNT,
    TRM_NORM_DEQUANT_MATMUL_RESIDUAL,
    TRM_NORM_DEQUANT_MATMUL_INPUT_COUNT
};

/* A ROUTER of an RMS norm. Its inputs begin with those of the ROUTER, but x [T, H] is what is normalized: (x, weight,
 * bias, correction, expert_scale, norm_weight [H] optional) -> (ids, weights, norm of x); with `residual`: (...,
 * norm_weight, residual [T, H]) -> (ids, weights, norm of x + residual, x + residual), the sum rounded to the type of x
 * before it is normalized. What the router takes need not be rounded. */
typedef struct trm_norm_router_params {
    trm_router_params router;
    bool residual;
    float eps, weight_offset; /* of the norm, as in trm_norm_params */
} trm_norm_router_params;

enum { TRM_NORM_ROUTER_NORM_WEIGHT = TRM_ROUTER_INPUT_COUNT, TRM_NORM_ROUTER_RESIDUAL, TRM_NORM_ROUTER_INPUT_COUNT };

/* Outputs, behind those of the ROUTER. */
enum { TRM_NORM_ROUTER_NORM = 2, TRM_NORM_ROUTER_SUM };

/* Positions of a QKV_ATTENTION's inputs. */
enum {
    TRM_QKV_ATTENTION_QKV = 0,         /* [T, (query_heads + 2 * kv_heads) * D]: of each token its q, then k, then v;
                                          with head_dim perhaps more, which is not read */
    TRM_QKV_ATTENTION_SEQUENCE_STARTS, /* these five as in ATTENTION, caches of qkv's type or F8E4M3 */
    TRM_QKV_ATTENTION_SEQUENCE_LENGTHS,
    TRM_QKV_ATTENTION_BLOCK_TABLE,
    TRM_QKV_ATTENTION_KEY_CACHE,
    TRM_QKV_ATTENTION_VALUE_CACHE,
    TRM_QKV_ATTENTION_POSITIONS, /* these three as in ROPE */
    TRM_QKV_ATTENTION_INV_FREQ,
    TRM_QKV_ATTENTION_LENGTHS,
    TRM_QKV_ATTENTION_Q_NORM, /* [D], both or neither: weights of the norms of each head of q and k */
    TRM_QKV_ATTENTION_K_NORM,
    TRM_QKV_ATTENTION_SINKS, /* as in ATTENTION */
    TRM_QKV_ATTENTION_INPUT_COUNT
};

/* Attention over a paged cache from the joined product on, as one layer: q, k and v are cut out of it, q and k of each
 * head normalized (NORM_RMS with `eps` and `weight_offset`, where weights are given), both rotated (ROPE), and
 * ATTENTION is done -> [T, query_heads, D]. Each is rounded to the type of qkv, as by layers of their own. */
typedef struct trm_qkv_attention_params {
    trm_attention_params attention; /* PACKED_NHD, n_ranks at most 1 */
    trm_rope_params rope;
    int32_t query_heads, kv_heads;
    int32_t head_dim; /* D; 0: as wide as qkv makes it */
    float eps, weight_offset;
} trm_qkv_attention_params;

enum {
    TRM_ATTENTION_JOIN_RESULTS = 0, /* [n_ranks * T, H, Dv]: of each rank's keys in turn, those of T queries */
    TRM_ATTENTION_JOIN_LOGS,        /* f32 [n_ranks * T, H]: log2 of their sums of weights */
    TRM_ATTENTION_JOIN_SINKS,       /* optional, as in ATTENTION */
    TRM_ATTENTION_JOIN_INPUT_COUNT
};

/* Joins the results of ATTENTION over shares of the keys, in rank order -> [T, H, Dv], each divided by the sum of its
 * weights before. A query that sees no key of any share gives zeros. Computes in f32. */
typedef struct trm_attention_join_params {
    int32_t n_ranks;
} trm_attention_join_params;

/* An ALL_REDUCE of x by sum and the NORM of what it gives, as one layer: inputs and outputs are those of the norm, x
 * being what each rank has of the sum. Of the collective only the group counts; op and reduce are 0, ALL_REDUCE and
 * SUM. */
typedef struct trm_all_reduce_norm_params {
    trm_collective_params collective;
    trm_norm_params norm;
} trm_all_reduce_norm_params;

/* Operations of FUSED_ELEMENTWISE: TRM_FUSED_ELEMENTWISE + a trm_elementwise_op, TRM_FUSED_UNARY + a trm_unary_op but
 * ACTIVATION, TRM_FUSED_ACTIVATION + a trm_activation, and these. */
typedef enum trm_fused_op {
    TRM_FUSED_ELEMENTWISE = 0,
    TRM_FUSED_UNARY = TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_PRELU + 1,
    TRM_FUSED_ACTIVATION = TRM_FUSED_UNARY + TRM_UNARY_SWISH + 1,
    TRM_FUSED_CAST = TRM_FUSED_ACTIVATION + TRM_ACTIVATION_SOFTSIGN + 1,
    TRM_FUSED_SELECT,
    TRM_FUSED_VALUE, /* the number alpha */
    TRM_FUSED_OP_COUNT
} trm_fused_op;

#define TRM_MAX_FUSED_STEPS 24

/* What a step makes of values a, b, c, of those that its operation has: below TRM_MAX_LAYER_INPUTS an input of the
 * layer, from there on the result of an earlier step. alpha and beta are those of UNARY. */
typedef struct trm_fused_step {
    trm_fused_op op;
    trm_dtype type; /* of the result */
    int32_t a, b, c;
    float alpha, beta;
} trm_fused_step;

/* (x0, x1, ...) -> one or more results, all of the dims that the inputs broadcast to. Layers that take elements one by
 * one as one layer: each step is what its layer is, its result rounded to its type, so that the numbers are the same.
 * Types up to BOOL; casts are those that trm_fused_can_cast (kernels/fused/fused.h) knows. */
typedef struct trm_fused_elementwise_params {
    int32_t n_steps, n_outputs;
    int32_t outputs[TRM_MAX_LAYER_OUTPUTS]; /* steps */
    trm_fused_step steps[TRM_MAX_FUSED_STEPS];
} trm_fused_elementwise_params;

/* (x [..., d], cos [..., c], sin like cos) -> like x: pairs a, b of the first rotary_dim elements of the last axis
 * become a cos - b sin, b cos + a sin. Pairs are (i, i + rotary_dim / 2), or (2i, 2i + 1) if interleaved. c is
 * rotary_dim, an angle for each element, or half of it, one for each pair; the other axes of cos broadcast to those of
 * x. */
typedef struct trm_rotate_params {
    int32_t rotary_dim;
    bool interleaved;
} trm_rotate_params;

/* Positions of a DELTA_NET's inputs. T is tokens, of which nothing else of a row is read. */
enum {
    TRM_DELTA_NET_X = 0,  /* [T, ...]: of each token q, k and v from column 0 on, and z from column `z` on */
    TRM_DELTA_NET_GATES,  /* [T, ...]: a and b from the columns `a` and `b` on; may be X */
    TRM_DELTA_NET_Q_TAPS, /* weights of the SHORT_CONVOLUTIONs of q, k and v */
    TRM_DELTA_NET_K_TAPS,
    TRM_DELTA_NET_V_TAPS,
    TRM_DELTA_NET_Q_CACHE, /* their caches */
    TRM_DELTA_NET_K_CACHE,
    TRM_DELTA_NET_V_CACHE,
    TRM_DELTA_NET_A_LOG, /* these six as in GATED_DELTA */
    TRM_DELTA_NET_A_BIAS,
    TRM_DELTA_NET_SEQUENCE_STARTS,
    TRM_DELTA_NET_SEQUENCE_LENGTHS,
    TRM_DELTA_NET_SEQUENCE_SLOTS,
    TRM_DELTA_NET_STATE,
    TRM_DELTA_NET_NORM, /* [value_dim]: weight of the norm */
    TRM_DELTA_NET_INPUT_COUNT
};

/* Gated DeltaNet from the joined product on, as one layer: q, k, v, z, a and b are cut out, q, k and v pass a
 * SHORT_CONVOLUTION each, GATED_DELTA is done, what it gives is normalized by heads (NORM_RMS with `norm_eps` and
 * `weight_offset`), and GLU of z and that -> [T, heads * value_dim]. Each is rounded to the type of x, as by layers of
 * their own. */
typedef struct trm_delta_net_params {
    int32_t key_heads, heads, key_dim, value_dim;
    int32_t z, a, b;
    trm_activation activation; /* of the convolutions */
    trm_activation gate;       /* of z */
    float eps;                 /* of GATED_DELTA */
    float norm_eps, weight_offset;
} trm_delta_net_params;

/* Positions of an INT8_PRODUCT's inputs. */
enum {
    TRM_INT8_PRODUCT_X = 0,    /* i8 [..., K], or [N, d1 .. dk, C] */
    TRM_INT8_PRODUCT_WEIGHT,   /* i8 [M, K], or [M, k1 .. kk, C]: a convolution */
    TRM_INT8_PRODUCT_SCALE,    /* f32 [M], or [1] */
    TRM_INT8_PRODUCT_BIAS,     /* f32 [M], optional */
    TRM_INT8_PRODUCT_RESIDUAL, /* like the output, i8 or a float type, optional */
    TRM_INT8_PRODUCT_INPUT_COUNT
};

/* What is between DEQUANTIZE and QUANTIZE as one layer: the product of x and the weight's transpose, or a convolution
 * with channels last -> [..., M]; with `parts` [parts, ..., M / parts], the columns of one part after those of another.
 * Sums are i32, all else is f32, and v is
 *     scale * sum + bias;  product_scale * to_i8(v / product_scale);  v + residual, or + residual_scale * residual;
 *     activation(v);  to_i8(v / out_scale)
 * where to_i8 rounds half to even and saturates. Division is multiplication by the f32 inverse; scale * sum + bias, and
 * v + residual_scale * residual, are rounded once. */
typedef struct trm_int8_product_params {
    int32_t stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL];
    int32_t before[TRM_MAX_SPATIAL], after[TRM_MAX_SPATIAL]; /* as those of CONVOLUTION */
    trm_activation activation;
    float product_scale;  /* 0: not rounded there */
    float residual_scale; /* of an i8 residual */
    float out_scale;      /* of an i8 output */
    trm_dtype out;        /* I8, F32, F16 or BF16 */
    int32_t parts;        /* of a product; 0: not divided */
} trm_int8_product_params;

/* A NORM, not in f64, and the QUANTIZE of it to i8 by one scale: inputs are those of the norm -> (the norm, with
 * residual the sum, i8 [...]). The norm is rounded to the type of x before. */
typedef struct trm_norm_quantize_params {
    trm_norm_params norm; /* first, so that a call is one of NORM, too */
    float scale;
} trm_norm_quantize_params;

/* An ATTENTION of one output without a cache, with its parameters and inputs, and the QUANTIZE of it to i8 by one
 * scale, a float [] or [1] behind them. The attention is rounded to the type of q before. */
enum { TRM_ATTENTION_QUANTIZE_SCALE = TRM_ATTENTION_INPUT_COUNT, TRM_ATTENTION_QUANTIZE_INPUT_COUNT };

/* Members of the union of parameters. */
#define TRM_PASS_LAYER_PARAMS                                                                                          \
    trm_norm_matmul_params norm_matmul;                                                                                \
    trm_norm_dequant_matmul_params norm_dequant_matmul;                                                                \
    trm_glu_dequant_matmul_params glu_dequant_matmul;                                                                  \
    trm_norm_router_params norm_router;                                                                                \
    trm_qkv_attention_params qkv_attention;                                                                            \
    trm_all_reduce_norm_params all_reduce_norm; /* begins as `collective` does */                                      \
    trm_fused_elementwise_params fused_elementwise;                                                                    \
    trm_rotate_params rotate;                                                                                          \
    trm_attention_join_params attention_join;                                                                          \
    trm_delta_net_params delta_net;                                                                                    \
    trm_int8_product_params int8_product;                                                                              \
    trm_norm_quantize_params norm_quantize;

#endif
