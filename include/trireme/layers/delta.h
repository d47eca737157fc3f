/* Layers that keep a state of each sequence: short convolutions, the gated delta rule, selective scans. */
#ifndef TRIREME_LAYERS_DELTA_H
#define TRIREME_LAYERS_DELTA_H

#include <trireme/layers/common.h>

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

#endif
