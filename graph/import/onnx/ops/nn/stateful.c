/* Layers that carry a state from step to step: linear attention, causal convolution. */
#include <math.h>

#include "graph/import/onnx/ops/nn/attention_parts.h"
#include "graph/import/onnx/ops/ops.h"

/* ---- linear attention ----------------------------------------------------------------------------------------------
 */

typedef struct recurrence {
    trm_tensor *q, *k, *v;    /* [B, heads, T, width], f32 */
    trm_tensor *decay, *beta; /* [B, heads or 1, T, width or 1], f32, or NULL */
    trm_tensor *state;        /* [B, heads, width of keys, width of values], f32 */
    double scale;
} recurrence;

static trm_tensor *step_of(trm_onnx_node *node, trm_tensor *x, int64_t t)
{
    return trm_onnx_slice(node, x, 2, t, t + 1, 1);
}

/* One token: the state moves on, and is read. */
static trm_tensor *advance(trm_onnx_node *node, recurrence *r, int64_t t)
{
    static const int32_t swap[4] = {0, 1, 3, 2};
    trm_tensor *k = step_of(node, r->k, t), *v = step_of(node, r->v, t);
    if (r->decay != NULL) {
        trm_tensor *factor = trm_onnx_unary(node, TRM_UNARY_EXP, step_of(node, r->decay, t));
        r->state = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, r->state,
                                        trm_onnx_failed(node) ? factor : trm_onnx_transpose(node, factor, swap));
    }
    if (r->beta != NULL) {
        trm_tensor *known = trm_onnx_matmul(node, k, r->state, false, false);
        v = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, step_of(node, r->beta, t),
                                 trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, v, known));
    }
    r->state = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, r->state, trm_onnx_matmul(node, k, v, true, false));
    trm_tensor *y = trm_onnx_grouped_product(node, step_of(node, r->q, t), r->state, false);
    return trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, y, r->scale);
}

static trm_tensor *f32_heads(trm_onnx_node *node, trm_tensor *x, int64_t heads)
{
    return trm_onnx_split_heads(node, trm_onnx_cast(node, x, TRM_F32), heads);
}

static void import_linear_attention(trm_onnx_node *node)
{
    enum { MOST_TOKENS = 4096 };
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta", NULL};
    const int32_t rule = trm_onnx_choice(node, "update_rule", "gated_delta", rules);
    const int64_t q_heads = trm_onnx_int(node, "q_num_heads", 0), heads = trm_onnx_int(node, "kv_num_heads", 0);
    const double scale = (double)trm_onnx_float(node, "scale", 0.0f);
    trm_tensor *past = node->inputs[3], *decay = node->inputs[4], *beta = node->inputs[5];
    const bool gated = (rule & 1) != 0, delta = (rule & 2) != 0;
    if (heads < 1 || q_heads % heads != 0 || gated != (decay != NULL) || delta != (beta != NULL)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                      "%lld and %lld heads, with%s decay and with%s beta, do not fit rule %s", (long long)q_heads,
                      (long long)heads, decay != NULL ? "" : "out", beta != NULL ? "" : "out", rules[rule]);
        return;
    }
    recurrence r = {.q = f32_heads(node, node->inputs[0], q_heads),
                    .k = f32_heads(node, node->inputs[1], heads),
                    .v = f32_heads(node, node->inputs[2], heads)};
    if (trm_onnx_failed(node)) {
        return;
    }
    const int64_t tokens = r.q->dims.d[2];
    if (tokens < 1 || tokens > MOST_TOKENS || r.q->dims.d[3] < 1) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "%lld tokens of width %lld, expected known numbers, tokens up to %d",
                      (long long)tokens, (long long)r.q->dims.d[3], MOST_TOKENS);
        return;
    }
    if ((beta != NULL && beta->dims.n == 3 && beta->dims.d[2] < 0) ||
        (decay != NULL && decay->dims.n == 3 && decay->dims.d[2] < 0)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the width of decay and beta must be known");
        return;
    }
    r.scale = scale != 0.0 ? scale : 1.0 / sqrt((double)r.q->dims.d[3]);
    r.decay = decay == NULL ? NULL : f32_heads(node, decay, heads);
    r.beta = beta == NULL ? NULL : f32_heads(node, beta, beta->dims.n == 3 && beta->dims.d[2] == 1 ? 1 : heads);
    if (past != NULL) {
        r.state = trm_onnx_cast(node, past, TRM_F32);
    } else {
        const trm_onnx_dim dims[4] = {trm_onnx_dim_of(node, r.k, 0), trm_onnx_dim_known(heads),
                                      trm_onnx_dim_of(node, r.k, 3), trm_onnx_dim_of(node, r.v, 3)};
        r.state = trm_onnx_expand(node, trm_onnx_scalar(node, TRM_F32, 0.0), dims, 4);
    }
    trm_tensor *steps[MOST_TOKENS];
    for (int64_t t = 0; t < tokens && !trm_onnx_failed(node); t++) {
        steps[t] = advance(node, &r, t);
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    const trm_dtype out = node->inputs[0]->dtype;
    trm_tensor *y = trm_onnx_join_heads(node, trm_onnx_concat(node, steps, (int32_t)tokens, 2));
    trm_onnx_set(node, 0, trm_onnx_cast(node, y, out));
    trm_onnx_set(node, 1, trm_onnx_cast(node, r.state, past != NULL ? past->dtype : out));
}

/* ---- causal convolution
 * ---------------------------------------------------------------------------------------------- */

/* Each channel [B, C, L] with what came before it, or zeros, by a kernel of its own [C, 1, k]. */
static void import_causal_convolution(trm_onnx_node *node)
{
    static const char *const activations[] = {"none", "silu", "swish", NULL};
    trm_tensor *x = node->inputs[0], *weight = node->inputs[1], *past = node->inputs[3];
    const bool silu = trm_onnx_choice(node, "activation", "none", activations) > 0;
    if (x->dims.n != 3 || weight->dims.n != 3 || weight->dims.d[0] < 1 || weight->dims.d[2] < 1) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "inputs of %d and %d dimensions, expected 3, of known channels",
                      (int)x->dims.n, (int)weight->dims.n);
        return;
    }
    const int64_t channels = weight->dims.d[0], before = weight->dims.d[2] - 1;
    if (past == NULL) {
        const trm_onnx_dim dims[3] = {trm_onnx_dim_of(node, x, 0), trm_onnx_dim_known(channels),
                                      trm_onnx_dim_known(before)};
        past = trm_onnx_expand(node, trm_onnx_scalar(node, x->dtype, 0.0), dims, 3);
    }
    trm_tensor *parts[2] = {past, x}, *whole = before == 0 ? x : trm_onnx_concat(node, parts, 2, 2);
    const trm_layer_desc desc = {.kind = TRM_LAYER_CONVOLUTION,
                                 .convolution = {.groups = (int32_t)channels,
                                                 .stride = {1, 1, 1},
                                                 .dilation = {1, 1, 1},
                                                 .activation = silu ? TRM_ACTIVATION_SILU : TRM_ACTIVATION_NONE}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, whole, weight, node->inputs[2], NULL));
    trm_onnx_set(node, 1,
                 before == 0 ? trm_onnx_slice(node, whole, 2, 0, 0, 1)
                             : trm_onnx_slice(node, whole, 2, -before, INT64_MAX, 1));
}

const trm_onnx_operator trm_onnx_ops_stateful[] = {
    {"", "LinearAttention", 27, 3, import_linear_attention, 0},
    {"", "CausalConvWithState", 27, 2, import_causal_convolution, 0},
    {0},
};
