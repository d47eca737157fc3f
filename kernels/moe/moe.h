/*
 * The two layers of a mixture of experts. The router chooses k experts for every token and gives each a weight; the
 * experts' layer adds up, per token, what the chosen experts make of it. host.c defines both; the CUDA kernels here
 * are for Hopper GPUs. C and CUDA C++.
 *
 * A CUDA entry enqueues kernels on a stream and does nothing else: it allocates nothing, reads nothing back and
 * can be captured in a CUDA graph. Results do not depend on timing.
 */
#ifndef TRM_KERNELS_MOE_MOE_H
#define TRM_KERNELS_MOE_MOE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/layers/moe.h>
#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- router --------------------------------------------------------------------------------------- */

#define TRM_MOE_MOST_EXPERTS 1024
#define TRM_MOE_MOST_CHOSEN  32

/*
 * A token's logits are x * weight^T + bias, summed in f32 or better. Experts are chosen by key = score + correction,
 * which is the logit itself where there is neither a correction nor a sum of groups: all scorings grow with it. Equal
 * keys: the lower id first. (torch.topk promises no order among them.) A key that is no number is the lowest.
 *
 * With groups > 1 the experts lie in that many groups of neighbours, and only those in the top_groups best groups can
 * be chosen. A group's key is its best key (DeepSeek-V2), or the sum of its two best (DeepSeek-V3).
 *
 * The weight of a chosen expert is its score, without the correction; then, in this order: / (sum of the k + epsilon)
 * if renormalized, * scale, * expert_scale[id] if there is one. Weights of SOFTMAX_CHOSEN sum to 1 before the scales.
 * SPARSE_MIXER is as <trireme/layers/moe.h> says.
 */
typedef struct trm_moe_router {
    int64_t tokens;
    int32_t hidden, experts, k;
    trm_dtype x_type, weight_type; /* F32, F16 or BF16 */
    trm_router_scoring scoring;
    int32_t groups, top_groups; /* groups <= 1: none */
    bool group_sum;             /* a group's key is the sum of its two best keys */
    bool renormalize;
    float epsilon, scale;
    const void *x;             /* [tokens, hidden] */
    const void *weight;        /* [experts, hidden] */
    const float *logits;       /* [tokens, experts] instead of x and weight, or NULL */
    const float *bias;         /* [experts] or NULL */
    const float *correction;   /* [experts] or NULL */
    const float *expert_scale; /* [experts] or NULL */
    int32_t *ids;              /* [tokens, k], by descending key */
    float *weights;            /* [tokens, k] */
} trm_moe_router;

/* Fails if sizes or types do not fit; addresses need not be there. */
trm_status trm_moe_router_check(const trm_moe_router *router);

trm_status trm_moe_router_host(const trm_moe_router *router);

/* One kernel: product and choice together. Made for a few tokens, right for any number; for more give `logits` of a
 * library's product. Takes `hidden` in multiples of 16 bytes and pointers so aligned. */
bool trm_cuda_moe_router_accepts(const trm_moe_router *router);
/* `stream` is a cudaStream_t. constant_weight: the weight was complete before anything now on the stream. */
trm_status trm_cuda_moe_router_run(const trm_moe_router *router, bool constant_weight, void *stream);

/* An RMS norm before the router, in the same kernel, of x or of its rounded sum with a residual. All are of x's type.
 * The router takes what is normalized without rounding it. */
typedef struct trm_moe_norm {
    const void *weight;   /* [hidden] or NULL */
    const void *residual; /* [tokens, hidden] or NULL */
    void *to;             /* [tokens, hidden]: the norm, rounded */
    void *sum;            /* [tokens, hidden] or NULL: what is normalized */
    float eps, offset;    /* offset: added to the weight */
} trm_moe_norm;

bool trm_cuda_moe_norm_router_accepts(const trm_moe_router *router, const trm_moe_norm *norm);
/* constant_weights: those of both. */
trm_status trm_cuda_moe_norm_router_run(const trm_moe_router *router, const trm_moe_norm *norm, bool constant_weights,
                                        void *stream);

/* ---- experts -------------------------------------------------------------------------------------- */

/* How the experts' weights are stored; a matrix is [rows, columns] per expert. */
typedef enum trm_moe_format {
    TRM_MOE_HALVES = 0, /* of the layer's type */
    TRM_MOE_MXFP4,      /* [rows, columns / 32, 16] bytes, number 2j in the low half of byte j; scales e8m0 [rows,
                           columns / 32] */
    TRM_MOE_F8_BLOCKS,  /* e4m3 [rows, columns]; scales f32 [ceil(rows / 128), ceil(columns / 128)] */
    TRM_MOE_F8_ROWS,    /* e4m3 [rows, columns]; scales f32 [rows] */
    TRM_MOE_INT4, /* [rows, columns / 2] bytes, the number of the even column in the low half; scales of scale_type
                     [rows, columns / group], and zero points u8 likewise, or 8 */
    TRM_MOE_INT8  /* [rows, columns]; scales as of INT4 */
} trm_moe_format;

/*
 * y[t] = residual[t] + sum over slots s of weights[t, s] * expert[ids[t, s]](x[t]), in f32, rounded once. An expert is
 * down * h + down_bias, h = activation(gate_up * x + gate_up_bias) rounded to the layer's type. With weighted_input the
 * weight multiplies gate_up * x and not the output (Llama 4).
 *
 * Ids outside [first, first + experts) contribute nothing: a rank that holds some of the experts gives its share of the
 * sum so. The experts of a token differ from each other.
 */
typedef struct trm_moe_experts {
    int64_t tokens;
    int32_t hidden, width;     /* of an expert: H and I */
    int32_t experts, first, k; /* experts: held here */
    trm_dtype type;            /* F16 or BF16: of x, y, biases, residual */
    trm_moe_format format;
    trm_expert_activation activation;
    float limit, alpha;           /* limit: INFINITY for none */
    trm_dtype scale_type;         /* INT4, INT8: F32, F16 or BF16 */
    int32_t up_group, down_group; /* INT4, INT8: columns that share a scale */
    bool interleaved;             /* rows of gate_up are gate, up, gate, up, ... instead of all gates first */
    bool weighted_input;
    bool batch_invariant;      /* a token's bits are the same whatever other tokens are there */
    bool constant_weights;     /* they were complete before anything now on the stream */
    const void *x;             /* [tokens, hidden] */
    const int32_t *ids;        /* [tokens, k] */
    const float *weights;      /* [tokens, k] */
    const void *gate_up;       /* [experts, 2 width, hidden] */
    const void *gate_up_scale; /* as the format says, [experts, ...]; NULL for HALVES */
    const void *gate_up_zero;  /* INT4: as the format says, or NULL */
    const void *gate_up_bias;  /* [experts, 2 width] or NULL */
    const void *down;          /* [experts, hidden, width] */
    const void *down_scale;
    const void *down_zero;
    const void *down_bias; /* [experts, hidden] or NULL */
    const void *residual;  /* [tokens, hidden] or NULL; may be y */
    void *y;               /* [tokens, hidden] */
} trm_moe_experts;

trm_status trm_moe_experts_check(const trm_moe_experts *experts);

trm_status trm_moe_experts_host(const trm_moe_experts *experts);

/* How a call is computed; a choice of the host by shapes alone, so that a captured step never changes it. */
typedef enum trm_moe_regime {
    TRM_MOE_PAIRS = 0, /* every pair of a token and an expert by itself */
    TRM_MOE_GROUPED    /* tokens in the order of their experts, by tiles */
} trm_moe_regime;

typedef struct trm_moe_plan {
    trm_moe_regime regime;
    int32_t up, down; /* PAIRS: numbers of forms */
    int32_t rows;     /* GROUPED: most tokens of a tile: 16, 32, 64, 128 or 256 */
} trm_moe_plan;

bool trm_cuda_moe_experts_accepts(const trm_moe_experts *experts);
trm_moe_plan trm_cuda_moe_experts_plan(const trm_moe_experts *experts);
/* Bytes of device memory, aligned to 256, that a run needs; nothing in them needs to be set. */
size_t trm_cuda_moe_experts_workspace(const trm_moe_experts *experts, const trm_moe_plan *plan);
trm_status trm_cuda_moe_experts_run(const trm_moe_experts *experts, const trm_moe_plan *plan, void *workspace,
                                    void *stream);
/* How many forms PAIRS has, for measurements. */
int32_t trm_cuda_moe_pairs_forms(void);

#ifdef __cplusplus
}
#endif
#endif
