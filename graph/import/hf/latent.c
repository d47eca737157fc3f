/* Latent attention of a block: queries, perhaps through fewer dimensions; one latent vector and one rope key for all
 * heads; the weight that makes keys and values of latents. */
#include "graph/import/hf/parts.h"

#include <stdio.h>

#include <trireme/model.h>

#include "base/error.h"

#define NORM_EPS 1e-6f /* of these norms, whatever that of the others is */

static trm_status add_norm(trm_hf_decoder *d, const char *part, int64_t width, trm_tensor *x, trm_tensor **output)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_NORM, .norm = {.op = TRM_NORM_RMS, .eps = NORM_EPS}};
    trm_tensor *inputs[2] = {x, NULL};
    TRM_TRY(trm_hf_add_weight(d, part, ".weight", TRM_HF_NORM, trm_dims1(width), &inputs[1]));
    return trm_hf_add_layer(d, part, "", &desc, inputs, 2, output);
}

/* x [T, hidden] -> [T, heads, plain + rotated] */
static trm_status add_queries(trm_hf_decoder *d, trm_tensor *x, trm_tensor **queries)
{
    const trm_hf_config *c = d->config;
    const trm_hf_latent *l = &c->latent;
    const trm_hf_names *names = d->names;
    const int64_t width = l->plain + l->rotated;
    const char *part = l->query_rank > 0 ? names->q_b : names->q;
    int64_t in = c->hidden;
    trm_hf_rows rows = {.suffix = ""};
    if (l->query_rank > 0) {
        in = l->query_rank;
        TRM_TRY(trm_hf_add_linear(d, names->q_a, &trm_hf_whole, c->qkv_bias, in, c->hidden, x, &x));
        TRM_TRY(add_norm(d, names->q_a_norm, in, x, &x));
    }
    if (c->interleaved_rope) {
        rows.head_dim = width;
        rows.first_pair = l->plain;
        rows.pairs = l->rotated / 2;
    }
    TRM_TRY(trm_hf_add_linear(d, part, &rows, false, c->heads * width, in, x, &x));
    TRM_TRY(trm_hf_add_reshape(d, part, ".heads", x, trm_dims3(0, c->heads, width), &x));
    return trm_hf_add_rope(d, "attention.q_rope", false, l->plain, x, queries);
}

/* Columns start .. end - 1 of x. */
static trm_status add_columns(trm_hf_decoder *d, const char *suffix, trm_tensor *x, int64_t start, int64_t end,
                              trm_tensor **output)
{
    const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {.axis = 1, .start = start, .end = end, .step = 1}};
    return trm_hf_add_layer(d, d->names->kv_a, suffix, &slice, &x, 1, output);
}

/* x [T, hidden] -> latents [T, rank] and rope keys [T, 1, rotated] */
static trm_status add_keys(trm_hf_decoder *d, trm_tensor *x, trm_tensor **latent, trm_tensor **rope_key)
{
    const trm_hf_config *c = d->config;
    const trm_hf_latent *l = &c->latent;
    const char *part = d->names->kv_a;
    const int64_t all = l->rank + l->rotated;
    trm_hf_rows rows = {.suffix = ""};
    if (c->interleaved_rope) {
        rows.head_dim = all;
        rows.first_pair = l->rank;
        rows.pairs = l->rotated / 2;
    }
    TRM_TRY(trm_hf_add_linear(d, part, &rows, c->qkv_bias, all, c->hidden, x, &x));
    TRM_TRY(add_columns(d, ".latent", x, 0, l->rank, latent));
    TRM_TRY(add_norm(d, d->names->kv_a_norm, l->rank, *latent, latent));
    TRM_TRY(add_columns(d, ".rope", x, l->rank, all, rope_key));
    TRM_TRY(trm_hf_add_reshape(d, part, ".rope.heads", *rope_key, trm_dims3(0, 1, l->rotated), rope_key));
    return trm_hf_add_rope(d, "attention.k_rope", false, 0, *rope_key, rope_key);
}

/* [heads, plain + values, rank] */
static trm_status add_key_values(trm_hf_decoder *d, trm_tensor **weight)
{
    const trm_hf_config *c = d->config;
    const trm_hf_latent *l = &c->latent;
    const trm_dims dims = trm_dims3(c->heads, l->plain + c->head_dim, l->rank);
    const char *part = d->names->kv_b;
    trm_weight *taken, *seen = NULL;
    TRM_TRY(trm_hf_take_dequantized(d->checkpoint, &c->quantization, trm_hf_name(d, part, ""), dims.d[0] * dims.d[1],
                                    l->rank, d->dtype, &taken));
    trm_status status = trm_weight_reshape(taken, &dims, &seen);
    trm_weight_destroy(taken);
    TRM_TRY(status);
    return trm_network_add_weight(d->network, trm_hf_name(d, part, ".weight"), seen, d->dtype, weight);
}

/* x [T, hidden], normalized -> [T, heads * head_dim], before the output projection */
trm_status trm_hf_add_latent_attention(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_latent *l = &c->latent;
    const trm_layer_desc desc = {.kind = TRM_LAYER_LATENT_ATTENTION,
                                 .latent_attention = {.scale = (float)c->attention_scale}};
    trm_tensor *inputs[TRM_LATENT_ATTENTION_INPUT_COUNT] = {NULL};
    if (d->cache_dtype != d->dtype) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cannot cache the latents of a model in %s, expected %s",
                 trm_dtype_name(d->cache_dtype), trm_dtype_name(d->dtype));
    }
    TRM_TRY(add_queries(d, x, &inputs[TRM_LATENT_ATTENTION_Q]));
    TRM_TRY(add_keys(d, x, &inputs[TRM_LATENT_ATTENTION_LATENT], &inputs[TRM_LATENT_ATTENTION_ROPE_KEY]));
    TRM_TRY(add_key_values(d, &inputs[TRM_LATENT_ATTENTION_WEIGHT]));
    inputs[TRM_LATENT_ATTENTION_SEQUENCE_STARTS] = d->starts;
    inputs[TRM_LATENT_ATTENTION_SEQUENCE_LENGTHS] = d->lengths;
    inputs[TRM_LATENT_ATTENTION_BLOCK_TABLE] = d->block_table;
    char text[64];
    snprintf(text, sizeof(text), "layers.%lld.latent_cache", (long long)layer);
    TRM_TRY(trm_network_add_state(d->network, text, d->cache_dtype,
                                  trm_dims3(-1, TRM_KV_BLOCK_SIZE, l->rank + l->rotated),
                                  &inputs[TRM_LATENT_ATTENTION_CACHE]));
    TRM_TRY(trm_hf_add_layer(d, "attention", "", &desc, inputs, TRM_LATENT_ATTENTION_INPUT_COUNT, output));
    return trm_hf_add_reshape(d, "attention", ".joined", *output, trm_dims2(0, c->heads * c->head_dim), output);
}
