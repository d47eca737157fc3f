/* Attention of a block: projections to heads, norms of q and k, rope, the paged cache. */
#include "graph/import/hf/parts.h"

#include <stdio.h>
#include <string.h>

#include <trireme/model.h>

#include "base/error.h"

enum { QUERY = 0, KEY, VALUE };

/* Projects x [T, hidden] to heads [T, heads, head_dim] of queries, keys or values. */
static trm_status add_heads(trm_hf_decoder *d, int64_t layer, int which, trm_tensor *x, trm_tensor **heads)
{
    static const char *const parts[3] = {".q", ".k", ".v"};
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    const int64_t dim = trm_hf_head_dim(c, layer), n = which == QUERY ? c->heads : trm_hf_kv_heads(c, layer);
    const int64_t all = (c->heads + 2 * c->kv_heads) * dim;
    const char *const separate[3] = {names->q, names->k, names->v};
    trm_tensor *projected;
    switch (c->qkv_layout) {
    case TRM_HF_QKV_SEPARATE: {
        trm_hf_rows range = trm_hf_whole;
        int64_t rows = n * dim;
        if (c->output_gate && which == QUERY) {
            range = (trm_hf_rows){.suffix = ".q", .view = trm_dims3(n, 2, dim), .axis = 1, .first = 0, .count = 1};
            rows *= 2;
        }
        if (c->interleaved_rope && which != VALUE && !c->unrotated[layer]) {
            range.head_dim = dim;
            range.pairs = c->rope[c->sliding_rope && c->sliding[layer]].dim / 2;
        }
        TRM_TRY(trm_hf_add_linear(d, separate[which], &range, c->qkv_bias, rows, x->dims.d[1], x, &projected));
        if (c->norm_all_heads && which != VALUE) {
            const char *norm = which == QUERY ? names->q_norm : names->k_norm;
            TRM_TRY(trm_hf_add_norm(d, norm, n * dim, projected, &projected));
        }
        return trm_hf_add_reshape(d, separate[which], ".heads", projected, trm_dims3(0, n, dim), heads);
    }
    case TRM_HF_QKV_STACKED: {
        int64_t first = which == QUERY ? 0 : (c->heads + (which == VALUE ? c->kv_heads : 0)) * dim;
        trm_hf_rows range = {.suffix = parts[which], .view = trm_dims1(all), .first = first, .count = n * dim};
        TRM_TRY(trm_hf_add_linear(d, names->qkv, &range, c->qkv_bias, all, c->hidden, x, &projected));
        break;
    }
    case TRM_HF_QKV_PER_HEAD: {
        trm_hf_rows range = {
            .suffix = parts[which], .view = trm_dims3(c->heads, 3, dim), .axis = 1, .first = which, .count = 1};
        TRM_TRY(trm_hf_add_linear(d, names->qkv, &range, c->qkv_bias, all, c->hidden, x, &projected));
        break;
    }
    }
    char suffix[16];
    snprintf(suffix, sizeof(suffix), "%s.heads", parts[which]);
    return trm_hf_add_reshape(d, names->qkv, suffix, projected, trm_dims3(0, n, dim), heads);
}

/* Of the heads of q and k among attention's inputs; k may be another layer's. */
static trm_status add_head_norms(trm_hf_decoder *d, int64_t dim, trm_tensor **inputs)
{
    TRM_TRY(trm_hf_add_norm(d, d->names->q_norm, dim, inputs[TRM_ATTENTION_Q], &inputs[TRM_ATTENTION_Q]));
    return inputs[TRM_ATTENTION_K] == NULL
               ? TRM_OK
               : trm_hf_add_norm(d, d->names->k_norm, dim, inputs[TRM_ATTENTION_K], &inputs[TRM_ATTENTION_K]);
}

/* A norm without a weight. */
static trm_status add_unit_norm(trm_hf_decoder *d, const char *part, trm_tensor **x)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_NORM,
                                 .norm = {.op = TRM_NORM_RMS, .eps = (float)d->config->norm_eps}};
    return trm_hf_add_layer(d, part, "", &desc, x, 1, x);
}

trm_status trm_hf_add_rope(trm_hf_decoder *d, const char *part, bool sliding, int64_t first, trm_tensor *x,
                           trm_tensor **output)
{
    const int which = sliding && d->config->sliding_rope;
    const trm_hf_rope *rope = &d->config->rope[which];
    trm_layer_desc desc = {.kind = TRM_LAYER_ROPE,
                           .rope = {.scaling = TRM_ROPE_PLAIN,
                                    .rotary_dim = rope->dim,
                                    .magnitude = (float)rope->attention_factor,
                                    .base = (float)rope->theta,
                                    .factor = (float)rope->factor,
                                    .original_length = rope->original_length,
                                    .first = (int32_t)first}};
    if (rope->type == TRM_HF_ROPE_DYNAMIC) {
        desc.rope.scaling = TRM_ROPE_DYNAMIC;
    } else if (rope->type == TRM_HF_ROPE_LONGROPE) {
        desc.rope.scaling = TRM_ROPE_LONG;
    }
    trm_tensor *inputs[4] = {x, d->positions, d->inv_freq[which], NULL};
    if (desc.rope.scaling != TRM_ROPE_PLAIN) {
        inputs[3] = d->rope_lengths;
    }
    return trm_hf_add_layer(d, part, "", &desc, inputs, 4, output);
}

/* positions -> 1 + query_scale * log(1 + (position + first) / length), division as of integers, [T, 1, 1]; once for all
 * layers. */
static trm_status add_query_scale(trm_hf_decoder *d, trm_tensor **scale)
{
    const trm_hf_config *c = d->config;
    const int32_t first = (int32_t)c->query_scale_first, length = (int32_t)c->query_scale_length;
    trm_tensor *added, *divisor, *x = d->positions;
    if (first != 0) {
        const trm_layer_desc add = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_ADD}};
        TRM_TRY(trm_network_add_constant(d->network, "query_scale.first", TRM_I32, trm_dims1(1), &first, &added));
        TRM_TRY(trm_network_add_layer(d->network, "query_scale.place", &add, (trm_tensor *[]){x, added}, 2, &x));
    }
    TRM_TRY(trm_network_add_constant(d->network, "query_scale.length", TRM_I32, trm_dims1(1), &length, &divisor));
    const struct {
        const char *name;
        trm_layer_desc desc;
    } steps[] = {
        {"query_scale.rounds", {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_DIV}}},
        {"query_scale.real", {.kind = TRM_LAYER_CAST, .cast = {.to = TRM_F32}}},
        {"query_scale.more", {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_LINEAR, .alpha = 1.0f, .beta = 1.0f}}},
        {"query_scale.log", {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_LOG}}},
        {"query_scale.factor",
         {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_LINEAR, .alpha = (float)c->query_scale, .beta = 1.0f}}},
        {"query_scale.rounded", {.kind = TRM_LAYER_CAST, .cast = {.to = d->dtype}}},
        {"query_scale", {.kind = TRM_LAYER_RESHAPE, .reshape = {trm_dims3(0, 1, 1)}}},
    };
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        trm_tensor *inputs[2] = {x, divisor};
        TRM_TRY(trm_network_add_layer(d->network, steps[i].name, &steps[i].desc, inputs, i == 0 ? 2 : 1, &x));
    }
    *scale = x;
    return TRM_OK;
}

static trm_status add_cache(trm_hf_decoder *d, int64_t layer, const char *which, trm_tensor **cache)
{
    const trm_hf_config *c = d->config;
    char text[64];
    snprintf(text, sizeof(text), "layers.%lld.%s_cache", (long long)layer, which);
    trm_dims dims = {4, {-1, TRM_KV_BLOCK_SIZE, trm_hf_kv_heads(c, layer), trm_hf_head_dim(c, layer)}};
    return trm_network_add_state(d->network, text, d->cache_dtype, dims, cache);
}

/* The scale of cached keys or values that the checkpoint gives, under one of the names in use; else 0, which means 1.
 */
static trm_status find_cache_scale(trm_hf_decoder *d, int which, float *scale)
{
    static const char *const names[][4] = {{".k_scale", ".k_proj.k_scale", ".attn.k_scale", ".kv_scale"},
                                           {".v_scale", ".v_proj.v_scale", ".attn.v_scale", ".kv_scale"}};
    const char *projection = d->names->k != NULL ? d->names->k : d->names->qkv;
    char module[64];
    *scale = 0.0f;
    if (d->cache_dtype != TRM_F8E4M3 || d->checkpoint->stored == NULL) {
        return TRM_OK;
    }
    snprintf(module, sizeof(module), "%.*s", (int)strcspn(projection, "."), projection); /* "self_attn" */
    for (int i = 0; i < 4; i++) {
        const char *full = trm_hf_name(d, module, names[which == VALUE][i]);
        if (trm_hf_checkpoint_has(d->checkpoint, full)) {
            return trm_hf_checkpoint_take_scale(d->checkpoint, full, scale);
        }
    }
    return TRM_OK;
}

static trm_status add_keys_and_values(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **inputs)
{
    const trm_hf_config *c = d->config;
    TRM_TRY(add_heads(d, layer, KEY, x, &inputs[TRM_ATTENTION_K]));
    inputs[TRM_ATTENTION_V] = inputs[TRM_ATTENTION_K];
    if (c->sliding[layer] || !c->keys_as_values) {
        TRM_TRY(add_heads(d, layer, VALUE, x, &inputs[TRM_ATTENTION_V]));
    }
    return c->unit_values ? add_unit_norm(d, "attention.v_norm", &inputs[TRM_ATTENTION_V]) : TRM_OK;
}

/* attended [T, heads * head_dim] times the sigmoid of the gates, which are behind the queries of their heads. */
static trm_status add_output_gate(trm_hf_decoder *d, int64_t dim, trm_tensor *x, trm_tensor *attended,
                                  trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_rows range = {
        .suffix = ".gate", .view = trm_dims3(c->heads, 2, dim), .axis = 1, .first = 1, .count = 1};
    const trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {TRM_ACTIVATION_SIGMOID}};
    trm_tensor *gate;
    TRM_TRY(trm_hf_add_linear(d, d->names->q, &range, c->qkv_bias, 2 * c->heads * dim, c->hidden, x, &gate));
    return trm_hf_add_layer(d, "attention.gated", "", &glu, (trm_tensor *[]){gate, attended}, 2, output);
}

/* x [T, hidden], normalized -> [T, heads * head_dim], before the output projection */
trm_status trm_hf_add_attention(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    const bool sliding = c->sliding[layer];
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {NULL};
    const int64_t dim = trm_hf_head_dim(c, layer);
    const bool borrows = trm_hf_borrows(c, layer);
    TRM_TRY(add_heads(d, layer, QUERY, x, &inputs[TRM_ATTENTION_Q]));
    if (!borrows) {
        TRM_TRY(add_keys_and_values(d, layer, x, inputs));
    }
    const bool normed = names->q_norm != NULL && !c->norm_all_heads && !c->plain_heads;
    if (normed && !c->norm_after_rope) {
        TRM_TRY(add_head_norms(d, dim, inputs));
    }
    const bool rotated = c->rotary && !c->unrotated[layer];
    if (rotated) {
        TRM_TRY(trm_hf_add_rope(d, "attention.q_rope", sliding, 0, inputs[TRM_ATTENTION_Q], &inputs[TRM_ATTENTION_Q]));
    }
    if (rotated && !borrows) {
        TRM_TRY(trm_hf_add_rope(d, "attention.k_rope", sliding, 0, inputs[TRM_ATTENTION_K], &inputs[TRM_ATTENTION_K]));
    }
    if (rotated && c->unit_heads) {
        TRM_TRY(add_unit_norm(d, "attention.q_norm", &inputs[TRM_ATTENTION_Q]));
        TRM_TRY(add_unit_norm(d, "attention.k_norm", &inputs[TRM_ATTENTION_K]));
    }
    if (normed && c->norm_after_rope) {
        TRM_TRY(add_head_norms(d, dim, inputs));
    }
    if (borrows) {
        inputs[TRM_ATTENTION_K] = d->lent[sliding][0];
        inputs[TRM_ATTENTION_V] = d->lent[sliding][1];
    }
    d->lent[sliding][0] = inputs[TRM_ATTENTION_K];
    d->lent[sliding][1] = inputs[TRM_ATTENTION_V];
    if (c->query_scale != 0.0 && !(c->query_scale_unrotated && rotated)) {
        if (d->query_scale == NULL) {
            TRM_TRY(add_query_scale(d, &d->query_scale));
        }
        TRM_TRY(trm_hf_add_product(d, "attention.q_scaled", inputs[TRM_ATTENTION_Q], d->query_scale,
                                   &inputs[TRM_ATTENTION_Q]));
    }
    inputs[TRM_ATTENTION_SEQUENCE_STARTS] = d->starts;
    inputs[TRM_ATTENTION_SEQUENCE_LENGTHS] = d->lengths;
    inputs[TRM_ATTENTION_BLOCK_TABLE] = d->block_table;
    if (names->sinks != NULL) {
        TRM_TRY(trm_hf_add_exact(d, names->sinks, "", TRM_HF_BIAS, trm_dims1(c->heads), TRM_F32,
                                 &inputs[TRM_ATTENTION_SINKS]));
    }
    TRM_TRY(add_cache(d, layer, "key", &inputs[TRM_ATTENTION_KEY_CACHE]));
    TRM_TRY(add_cache(d, layer, "value", &inputs[TRM_ATTENTION_VALUE_CACHE]));
    double scale = c->scale_by_layer ? c->attention_scale / (double)(layer + 1) : c->attention_scale;
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                           .attention = {.form = TRM_ATTENTION_PACKED_NHD,
                                         .causal = TRM_CAUSAL_LOWER_RIGHT,
                                         .window = sliding ? (int32_t)c->window : 0,
                                         .chunked = sliding && c->chunked,
                                         .scale = (float)scale,
                                         .softcap = (float)c->attention_softcap,
                                         .n_ranks = 1}};
    TRM_TRY(find_cache_scale(d, KEY, &desc.attention.k_scale));
    TRM_TRY(find_cache_scale(d, VALUE, &desc.attention.v_scale));
    trm_tensor *x1;
    TRM_TRY(trm_hf_add_layer(d, "attention", "", &desc, inputs, TRM_ATTENTION_INPUT_COUNT, &x1));
    TRM_TRY(trm_hf_add_reshape(d, "attention", ".joined", x1, trm_dims2(0, c->heads * dim), output));
    return c->output_gate ? add_output_gate(d, dim, x, *output, output) : TRM_OK;
}
