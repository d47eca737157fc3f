/*
 * The catalogue of layer kinds and their parameters.
 *
 * A layer is a trm_layer_desc, its input tensors and its output tensors. The shape and type rule of
 * each kind stands in graph/infer.c, its meaning is its host reference kernel. Arithmetic on f16 and
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
#define TRM_MAX_LAYER_OUTPUTS 4
#define TRM_MAX_RANKS         64

typedef enum trm_layer_kind {
    TRM_LAYER_CAST = 0,
    TRM_LAYER_RESHAPE,
    TRM_LAYER_TRANSPOSE,
    TRM_LAYER_SLICE,
    TRM_LAYER_CONCAT,
    TRM_LAYER_GATHER,
    TRM_LAYER_EMBEDDING,
    TRM_LAYER_MATMUL,
    TRM_LAYER_ELEMENTWISE,
    TRM_LAYER_UNARY,
    TRM_LAYER_GLU,
    TRM_LAYER_NORM,
    TRM_LAYER_SOFTMAX,
    TRM_LAYER_REDUCE,
    TRM_LAYER_ROPE,
    TRM_LAYER_ATTENTION,
    TRM_LAYER_DIST_COLLECTIVE,
    TRM_LAYER_KIND_COUNT
} trm_layer_kind;

/* (x [any]) -> [same dims] of type `to`. Floats to integers truncate toward zero. */
typedef struct trm_cast_params {
    trm_dtype to;
} trm_cast_params;

/* (x) -> the same elements under other dims. In `dims`, 0 copies the input's dimension at that
 * position and one -1 is inferred. */
typedef struct trm_reshape_params {
    trm_dims dims;
} trm_reshape_params;

/* (x) -> axes permuted: out.d[i] = in.d[perm[i]]. */
typedef struct trm_transpose_params {
    int32_t perm[TRM_MAX_DIMS];
} trm_transpose_params;

/* (x) -> elements start, start+step, ... before end of one axis. Negative start or end count from the
 * end of the axis; `end` INT64_MAX means to the end. step > 0. */
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

typedef enum trm_activation {
    TRM_ACTIVATION_NONE = 0,
    TRM_ACTIVATION_RELU,
    TRM_ACTIVATION_SILU,
    TRM_ACTIVATION_GELU,      /* by erf */
    TRM_ACTIVATION_GELU_TANH, /* by the tanh approximation */
    TRM_ACTIVATION_SIGMOID,
    TRM_ACTIVATION_TANH,
    TRM_ACTIVATION_QUICK_GELU /* x * sigmoid(1.702 x) */
} trm_activation;

/* (a [..., M, K], b [..., K, N], bias [N] optional) -> [..., M, N]; leading dims broadcast. With
 * transpose_a a is [..., K, M], with transpose_b b is [..., N, K] (a linear layer's weight).
 * Accumulates in f32, adds the bias, applies the activation, stores as `out` (NONE: type of a). */
typedef struct trm_matmul_params {
    bool transpose_a, transpose_b;
    trm_activation activation;
    trm_dtype out;
} trm_matmul_params;

typedef enum trm_elementwise_op {
    TRM_ELEMENTWISE_ADD = 0,
    TRM_ELEMENTWISE_SUB,
    TRM_ELEMENTWISE_MUL,
    TRM_ELEMENTWISE_DIV,
    TRM_ELEMENTWISE_MIN,
    TRM_ELEMENTWISE_MAX,
    TRM_ELEMENTWISE_POW
} trm_elementwise_op;

/* (a, b) of one type -> elementwise with numpy broadcasting. */
typedef struct trm_elementwise_params {
    trm_elementwise_op op;
} trm_elementwise_params;

typedef enum trm_unary_op {
    TRM_UNARY_ACTIVATION = 0, /* `activation` */
    TRM_UNARY_NEG,
    TRM_UNARY_ABS,
    TRM_UNARY_EXP,
    TRM_UNARY_LOG,
    TRM_UNARY_SQRT,
    TRM_UNARY_RECIPROCAL,
    TRM_UNARY_ERF,
    TRM_UNARY_LINEAR, /* alpha * x + beta */
    TRM_UNARY_SOFTCAP /* alpha * tanh(x / alpha) */
} trm_unary_op;

/* (x) -> op(x), same dims and type. */
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

typedef enum trm_norm_op {
    TRM_NORM_RMS = 0, /* x / sqrt(mean(x^2) + eps) * (weight + weight_offset) */
    TRM_NORM_LAYER    /* (x - mean) / sqrt(var + eps) * (weight + weight_offset) + bias */
} trm_norm_op;

/* (x [..., n], weight [n], bias [n] optional) -> [..., n], over the last axis. With `residual`:
 * (x, residual, weight, bias optional) -> (norm(x + residual), x + residual), the sum rounded to the
 * type of x before it is normalised. Statistics in f32. */
typedef struct trm_norm_params {
    trm_norm_op op;
    bool residual;
    float eps;
    float weight_offset; /* 1 for Gemma */
} trm_norm_params;

/* (x) -> softmax along `axis` (may be negative). */
typedef struct trm_softmax_params {
    int32_t axis;
} trm_softmax_params;

typedef enum trm_reduce_op {
    TRM_REDUCE_SUM = 0,
    TRM_REDUCE_PROD,
    TRM_REDUCE_MAX,
    TRM_REDUCE_MIN,
    TRM_REDUCE_AVG,
    TRM_REDUCE_NONE /* collectives that do not reduce */
} trm_reduce_op;

/* (x) -> reduced along `axis` (may be negative); the axis stays as 1 with keep_dims. */
typedef struct trm_reduce_params {
    trm_reduce_op op;
    int32_t axis;
    bool keep_dims;
} trm_reduce_params;

typedef enum trm_rope_scaling {
    TRM_ROPE_PLAIN = 0, /* inv_freq [rotary_dim / 2]: default, linear, llama3 and yarn fold into it */
    TRM_ROPE_DYNAMIC,   /* base rescaled where lengths[t] > original_length (NTK) */
    TRM_ROPE_LONG       /* inv_freq [2, rotary_dim / 2]: row 1 where lengths[t] > original_length */
} trm_rope_scaling;

/* (x [T, heads, head_dim], positions i32 [T], inv_freq f32, lengths i32 [T] unless PLAIN) -> same.
 * Rotates the first rotary_dim elements of each head by positions[t] * inv_freq[i]; pairs are
 * (i, i + rotary_dim/2), or (2i, 2i+1) if interleaved. cos and sin are multiplied by `magnitude`.
 * lengths[t]: tokens in t's sequence after this step. */
typedef struct trm_rope_params {
    trm_rope_scaling scaling;
    int32_t rotary_dim;
    bool interleaved;
    float magnitude;         /* yarn and longrope attention factor; 1 otherwise */
    float base, factor;      /* DYNAMIC */
    int64_t original_length; /* DYNAMIC, LONG */
} trm_rope_params;

typedef enum trm_causal {
    TRM_CAUSAL_NONE = 0,
    TRM_CAUSAL_UPPER_LEFT, /* query i sees keys 0..i */
    TRM_CAUSAL_LOWER_RIGHT /* query i sees keys 0..i + (keys - queries): right for decoding */
} trm_causal;

typedef enum trm_attention_form {
    TRM_ATTENTION_PACKED_NHD = 0, /* q [T, Hq, D], k [T, Hkv, D], v [T, Hkv, Dv] -> [T, Hq, Dv] */
    TRM_ATTENTION_PADDED_BHND     /* q [B, Hq, N, D], k [B, Hkv, M, D], v [B, Hkv, M, Dv] -> [B, Hq, N, Dv] */
} trm_attention_form;

/* Positions of a layer's inputs; absent trailing inputs are left out, absent inner ones are NULL. */
enum {
    TRM_ATTENTION_Q = 0,
    TRM_ATTENTION_K,
    TRM_ATTENTION_V,
    TRM_ATTENTION_SEQUENCE_STARTS,  /* i32 [S + 1]: first token of each sequence in q, PACKED_NHD */
    TRM_ATTENTION_SEQUENCE_LENGTHS, /* i32 [S]: keys of each sequence after this step; with a cache */
    TRM_ATTENTION_BLOCK_TABLE,      /* i32 [S, blocks]: block of the cache for each run of block_size keys */
    TRM_ATTENTION_KEY_CACHE,        /* state [blocks, block_size, Hkv, D] */
    TRM_ATTENTION_VALUE_CACHE,      /* state [blocks, block_size, Hkv, Dv] */
    TRM_ATTENTION_MASK,             /* PADDED_BHND: bool (true = attend) or float added, broadcast to [B, Hq, N, M] */
    TRM_ATTENTION_INPUT_COUNT
};

/* Scaled dot-product attention, query head h reading key-value head h * Hkv / Hq.
 * With a cache the layer first stores k and v of the step's tokens at positions
 * sequence_lengths[s] - queries .. sequence_lengths[s] - 1 of each sequence, then attends to all
 * sequence_lengths[s] cached keys. Without one, PACKED_NHD sequences attend to themselves.
 * A sequence with no queries is skipped. Entries of the block table past the sequence are not read. */
typedef struct trm_attention_params {
    trm_attention_form form;
    trm_causal causal;
    int32_t window;  /* a query sees at most the last `window` keys, itself included; 0 = all */
    float scale;     /* scores = scale * q.k; 0 means 1/sqrt(D) */
    float softcap;   /* scores = softcap * tanh(scores / softcap); 0 = off */
    int32_t n_ranks; /* > 1: keys are sharded over this many ranks (context parallel) */
} trm_attention_params;

typedef enum trm_collective_op {
    TRM_ALL_REDUCE = 0,
    TRM_ALL_GATHER,
    TRM_BROADCAST,
    TRM_REDUCE,
    TRM_REDUCE_SCATTER,
    TRM_ALL_TO_ALL,
    TRM_GATHER,
    TRM_SCATTER,
    TRM_SEND, /* to `root`; the output is the input */
    TRM_RECV  /* from `root`; the output holds what came, the inputs give its dims and type */
} trm_collective_op;

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
 * index into the group). avg divides by n; on integers it truncates.
 *
 * What RECV gets is like its input, or, with `dtype` set, has that type and `dims`: a rank may receive what it has
 * nothing like. A negative entry -m stands for axes of the inputs (up to 16, their axes counted one after the other):
 * that of number k where bit k of m is set, and if several are, what they broadcast to.
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
        trm_softmax_params softmax;
        trm_reduce_params reduce;
        trm_rope_params rope;
        trm_attention_params attention;
        trm_collective_params collective;
    };
} trm_layer_desc;

/* "matmul", "dist_collective", ...; "invalid" out of range. */
TRM_API const char *trm_layer_kind_name(trm_layer_kind kind);

#ifdef __cplusplus
}
#endif
#endif
