/*
 * The decoder: token embedding, blocks of attention and MLP with their norms and residuals, output projection.
 *
 * One description for all families: config.h has the switches, the family's table the names of weights. Where
 * transformers rounds to the model's type (between projection, norm, rope, activation, residual), a layer ends, so that
 * 16-bit results agree. What a block is made of is in linear.c, attention.c, latent.c, delta.c, scan.c and mlp.c.
 */
#include "graph/import/hf/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "graph/import/hf/parts.h"

/* ---- names, weights, layers --------------------------------------------------------------------------- */

/* <prefix><part><suffix>, valid until the next call. */
const char *trm_hf_name(trm_hf_decoder *d, const char *part, const char *suffix)
{
    snprintf(d->text, sizeof(d->text), "%s%s%s", d->prefix, part, suffix);
    return d->text;
}

/* Takes a whole weight into the network. */
trm_status trm_hf_add_exact(trm_hf_decoder *d, const char *part, const char *suffix, trm_hf_weight_use use,
                            trm_dims dims, trm_dtype dtype, trm_tensor **tensor)
{
    const char *full = trm_hf_name(d, part, suffix);
    trm_weight *weight;
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, full, use, &dims, &weight));
    return trm_network_add_weight(d->network, full, weight, dtype, tensor);
}

trm_status trm_hf_add_weight(trm_hf_decoder *d, const char *part, const char *suffix, trm_hf_weight_use use,
                             trm_dims dims, trm_tensor **tensor)
{
    return trm_hf_add_exact(d, part, suffix, use, dims, d->dtype, tensor);
}

/* The layer <prefix><part><suffix> with one output. */
trm_status trm_hf_add_layer(trm_hf_decoder *d, const char *part, const char *suffix, const trm_layer_desc *desc,
                            trm_tensor *const *inputs, int32_t n_inputs, trm_tensor **output)
{
    return trm_network_add_layer(d->network, trm_hf_name(d, part, suffix), desc, inputs, n_inputs, output);
}

float trm_hf_round(trm_dtype dtype, double value)
{
    switch (dtype) {
    case TRM_BF16:
        return trm_bf16_to_f32(trm_f32_to_bf16((float)value));
    case TRM_F16:
        return trm_f16_to_f32(trm_f32_to_f16((float)value));
    default:
        return (float)value;
    }
}

trm_status trm_hf_add_sum(trm_hf_decoder *d, const char *part, trm_tensor *a, trm_tensor *b, trm_tensor **sum)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_ADD}};
    return trm_hf_add_layer(d, part, "", &desc, (trm_tensor *[]){a, b}, 2, sum);
}

trm_status trm_hf_add_product(trm_hf_decoder *d, const char *part, trm_tensor *a, trm_tensor *b, trm_tensor **product)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_MUL}};
    return trm_hf_add_layer(d, part, "", &desc, (trm_tensor *[]){a, b}, 2, product);
}

trm_status trm_hf_add_scale(trm_hf_decoder *d, const char *part, const char *suffix, double factor, trm_tensor *x,
                            trm_tensor **output)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_LINEAR, .alpha = (float)factor}};
    return trm_hf_add_layer(d, part, suffix, &desc, &x, 1, output);
}

trm_status trm_hf_add_reshape(trm_hf_decoder *d, const char *part, const char *suffix, trm_tensor *x, trm_dims dims,
                              trm_tensor **output)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_RESHAPE, .reshape = {dims}};
    return trm_hf_add_layer(d, part, suffix, &desc, &x, 1, output);
}

trm_status trm_hf_add_norm(trm_hf_decoder *d, const char *part, int64_t width, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    trm_tensor *inputs[3] = {x, NULL, NULL};
    TRM_TRY(trm_hf_add_weight(d, part, ".weight", c->norm_offset != 0.0f ? TRM_HF_OFFSET_NORM : TRM_HF_NORM,
                              trm_dims1(width), &inputs[1]));
    if (c->norm_bias) {
        TRM_TRY(trm_hf_add_weight(d, part, ".bias", TRM_HF_BIAS, trm_dims1(width), &inputs[2]));
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_NORM, .norm = {c->norm, false, (float)c->norm_eps, c->norm_offset}};
    return trm_hf_add_layer(d, part, "", &desc, inputs, 3, output);
}

/* ---- blocks ---------------------------------------------------------------------------------------------- */

trm_status trm_hf_add_wanted(trm_hf_decoder *d, const char *part, trm_tensor *x, trm_tensor **output)
{
    const trm_layer_desc gather = {.kind = TRM_LAYER_GATHER, .gather = {0}};
    return trm_hf_add_layer(d, part, "", &gather, (trm_tensor *[]){x, d->logit_rows}, 2, output);
}

/* x + branch, which may be scaled before. */
static trm_status add_residual(trm_hf_decoder *d, const char *part, trm_tensor *x, trm_tensor *branch, trm_tensor **sum)
{
    if (d->config->residual_scale != 0.0) {
        TRM_TRY(trm_hf_add_scale(d, part, ".scaled", d->config->residual_scale, branch, &branch));
    }
    return trm_hf_add_sum(d, part, x, branch, sum);
}

/* Whether a block goes on with the tokens that are wanted. */
static bool ends(const trm_hf_decoder *d, int64_t layer)
{
    return layer == d->config->layers - 1 && !trm_hf_draft_wants_final(d->draft);
}

/* x + norm(out(activation(gate(x)) * the layer's embedding)) */
static trm_status add_layer_embedding(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {1, layer, layer + 1, 1}};
    trm_tensor *own, *inner;
    TRM_TRY(trm_hf_add_layer(d, names->layer_gate, ".slice", &slice, &d->by_layer, 1, &own));
    TRM_TRY(trm_hf_add_reshape(d, names->layer_gate, ".embedding", own, trm_dims2(0, c->layer_width), &own));
    if (ends(d, layer)) {
        TRM_TRY(trm_hf_add_wanted(d, "embedding.wanted", own, &own));
    }
    TRM_TRY(trm_hf_add_linear(d, names->layer_gate, &trm_hf_whole, false, c->layer_width, c->hidden, x, &inner));
    TRM_TRY(trm_hf_add_activation(d, "embedding.activation", inner, &inner));
    TRM_TRY(trm_hf_add_product(d, "embedding.gated", inner, own, &inner));
    TRM_TRY(trm_hf_add_linear(d, names->layer_out, &trm_hf_whole, false, c->hidden, c->layer_width, inner, &inner));
    TRM_TRY(trm_hf_add_norm(d, names->layer_out_norm, c->hidden, inner, &inner));
    return trm_hf_add_sum(d, "embedding_residual", x, inner, output);
}

/* The adapters of those tokens. */
static trm_status want_adapters(trm_hf_decoder *d)
{
    return d->adapters == 0 ? TRM_OK : trm_hf_add_wanted(d, "adapters.wanted", d->adapter_slots, &d->adapter_slots);
}

/* A block without attention. The last one takes the tokens that are wanted at once. */
static trm_status add_mlp_block(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    trm_tensor *mixed;
    if (ends(d, layer)) {
        TRM_TRY(trm_hf_add_wanted(d, "wanted", x, &x));
        TRM_TRY(want_adapters(d));
    }
    TRM_TRY(trm_hf_add_norm(d, d->names->mlp_norm, d->config->hidden, x, &mixed));
    TRM_TRY(trm_hf_add_mlp(d, layer, mixed, &mixed));
    return add_residual(d, "mlp_residual", x, mixed, output);
}

trm_status trm_hf_add_block(trm_hf_decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    snprintf(d->prefix, sizeof(d->prefix), "%s%s.%lld.", d->root, names->layers, (long long)(d->first_layer + layer));
    trm_tensor *normed = x, *attended, *mixed;
    if (c->halves != NULL && c->halves[layer] == TRM_HF_MLP_ONLY) {
        return add_mlp_block(d, layer, x, output);
    }
    if (names->attention_norm != NULL) {
        TRM_TRY(trm_hf_add_norm(d, names->attention_norm, c->hidden, x, &normed));
    }
    const bool delta = trm_hf_is_delta(c, layer), scan = trm_hf_is_scan(c, layer);
    TRM_TRY(delta                ? trm_hf_add_delta(d, layer, normed, &attended)
            : scan               ? trm_hf_add_scan(d, layer, normed, &attended)
            : c->latent.rank > 0 ? trm_hf_add_latent_attention(d, layer, normed, &attended)
                                 : trm_hf_add_attention(d, layer, normed, &attended));
    if (ends(d, layer)) {
        TRM_TRY(trm_hf_add_wanted(d, "wanted", x, &x));
        TRM_TRY(trm_hf_add_wanted(d, "attention.wanted", attended, &attended));
        TRM_TRY(want_adapters(d));
        if (c->parallel_residual && names->mlp_norm == NULL) {
            TRM_TRY(trm_hf_add_wanted(d, "mlp.wanted", normed, &normed));
        }
    }
    const char *out = delta ? names->delta_out : scan ? names->scan_out : names->o;
    TRM_TRY(trm_hf_add_linear(d, out, &trm_hf_whole, scan ? c->scan.bias : c->o_bias && !delta, c->hidden,
                              attended->dims.d[1], attended, &attended));
    if (names->attention_post_norm != NULL) {
        TRM_TRY(trm_hf_add_norm(d, names->attention_post_norm, c->hidden, attended, &attended));
    }
    if (c->parallel_residual) { /* one norm for both branches, or two */
        if (names->mlp_norm != NULL) {
            TRM_TRY(trm_hf_add_norm(d, names->mlp_norm, c->hidden, x, &normed));
        }
        TRM_TRY(trm_hf_add_mlp(d, layer, normed, &mixed));
        TRM_TRY(trm_hf_add_sum(d, "branches", mixed, attended, &mixed));
        return trm_hf_add_sum(d, "residual", x, mixed, output);
    }
    TRM_TRY(add_residual(d, "attention_residual", x, attended, &x));
    if (c->halves != NULL && c->halves[layer] == TRM_HF_ATTENTION_ONLY) {
        *output = x;
        return TRM_OK;
    }
    normed = x;
    if (names->mlp_norm != NULL) {
        TRM_TRY(trm_hf_add_norm(d, names->mlp_norm, c->hidden, x, &normed));
    }
    TRM_TRY(trm_hf_add_mlp(d, layer, normed, &mixed));
    if (c->moe.experts > 0 && c->moe.beside) {
        TRM_TRY(trm_hf_add_moe_beside(d, x, mixed, &mixed));
    }
    if (names->mlp_post_norm != NULL) {
        TRM_TRY(trm_hf_add_norm(d, names->mlp_post_norm, c->hidden, mixed, &mixed));
    }
    TRM_TRY(add_residual(d, "mlp_residual", x, mixed, output));
    if (c->layer_width > 0) {
        TRM_TRY(add_layer_embedding(d, layer, *output, output));
    }
    if (names->layer_scale == NULL) {
        return TRM_OK;
    }
    trm_tensor *scale;
    TRM_TRY(trm_hf_add_weight(d, names->layer_scale, "", TRM_HF_NORM, trm_dims1(1), &scale));
    return trm_hf_add_product(d, "scaled", *output, scale, output);
}

/* ---- ends --------------------------------------------------------------------------------------------------- */

static trm_status add_inv_freq(trm_hf_decoder *d, int which)
{
    const trm_hf_rope *rope = &d->config->rope[which];
    int32_t rows = trm_hf_rope_rows(rope);
    float *values = malloc((size_t)rows * (size_t)(rope->dim / 2) * sizeof(float));
    if (values == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %d inverse frequencies", rows * rope->dim / 2);
    }
    trm_hf_rope_frequencies(rope, values);
    trm_dims dims = rows > 1 ? trm_dims2(rows, rope->dim / 2) : trm_dims1(rope->dim / 2);
    trm_status status = trm_network_add_constant(d->network, which == 0 ? "rope.inv_freq" : "rope.sliding_inv_freq",
                                                 TRM_F32, dims, values, &d->inv_freq[which]);
    free(values);
    return status;
}

static bool needs_lengths(const trm_hf_rope *rope)
{
    return rope->type == TRM_HF_ROPE_DYNAMIC || rope->type == TRM_HF_ROPE_LONGROPE;
}

trm_status trm_hf_add_inputs(trm_hf_decoder *d)
{
    const struct {
        const char *name;
        trm_dims dims;
        trm_tensor **tensor;
    } inputs[] = {
        {"token_ids", trm_dims1(-1), &d->token_ids},         {"positions", trm_dims1(-1), &d->positions},
        {"sequence_starts", trm_dims1(-1), &d->starts},      {"sequence_lengths", trm_dims1(-1), &d->lengths},
        {"block_table", trm_dims2(-1, -1), &d->block_table}, {"logit_rows", trm_dims1(-1), &d->logit_rows},
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        TRM_TRY(trm_network_add_input(d->network, inputs[i].name, TRM_I32, inputs[i].dims, inputs[i].tensor));
    }
    if (d->config->delta.layers != NULL || d->config->scan.layers != NULL) {
        TRM_TRY(trm_network_add_input(d->network, "sequence_slots", TRM_I32, trm_dims2(-1, 2), &d->slots));
    }
    if (d->adapters > 0) {
        TRM_TRY(trm_network_add_input(d->network, "adapter_slots", TRM_I32, trm_dims1(-1), &d->adapter_slots));
    }
    if (!d->config->rotary) {
        return TRM_OK;
    }
    const int ropes = d->config->sliding_rope ? 2 : 1;
    if (needs_lengths(&d->config->rope[0]) || (ropes > 1 && needs_lengths(&d->config->rope[1]))) {
        TRM_TRY(trm_network_add_input(d->network, "rope_lengths", TRM_I32, trm_dims1(-1), &d->rope_lengths));
    }
    for (int i = 0; i < ropes; i++) {
        TRM_TRY(add_inv_freq(d, i));
    }
    return TRM_OK;
}

trm_status trm_hf_add_embedding(trm_hf_decoder *d, trm_tensor **x)
{
    const trm_hf_config *c = d->config;
    const trm_layer_desc embedding = {.kind = TRM_LAYER_EMBEDDING};
    snprintf(d->prefix, sizeof(d->prefix), "%s", d->root);
    TRM_TRY(trm_hf_add_weight(d, d->names->embedding, ".weight", c->tied ? TRM_HF_TIED_EMBEDDING : TRM_HF_EMBEDDING,
                              trm_dims2(c->vocab, c->hidden), &d->embedding));
    TRM_TRY(
        trm_hf_add_layer(d, d->names->embedding, "", &embedding, (trm_tensor *[]){d->embedding, d->token_ids}, 2, x));
    if (c->embedding_scale != 0.0) {
        TRM_TRY(trm_hf_add_scale(d, d->names->embedding, ".scaled", trm_hf_round(d->dtype, c->embedding_scale), *x, x));
    }
    if (d->names->positions != NULL) {
        trm_tensor *table, *rows;
        TRM_TRY(trm_hf_add_weight(d, d->names->positions, ".weight", TRM_HF_EMBEDDING,
                                  trm_dims2(c->context_length, c->hidden), &table));
        TRM_TRY(
            trm_hf_add_layer(d, d->names->positions, "", &embedding, (trm_tensor *[]){table, d->positions}, 2, &rows));
        TRM_TRY(trm_hf_add_sum(d, "embeddings", *x, rows, x));
    }
    return TRM_OK;
}

/* x [T, hidden], the embeddings -> d->by_layer: (embeddings of their own + norm(projection of x)) / sqrt(2). */
static trm_status add_layer_embeddings(trm_hf_decoder *d, trm_tensor *x)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    const trm_layer_desc embedding = {.kind = TRM_LAYER_EMBEDDING};
    const int64_t width = c->layers * c->layer_width;
    const trm_dims dims = trm_dims3(0, c->layers, c->layer_width);
    trm_tensor *table, *own, *projected;
    TRM_TRY(trm_hf_add_weight(d, names->layer_embedding, ".weight", TRM_HF_EMBEDDING, trm_dims2(c->layer_vocab, width),
                              &table));
    TRM_TRY(
        trm_hf_add_layer(d, names->layer_embedding, "", &embedding, (trm_tensor *[]){table, d->token_ids}, 2, &own));
    TRM_TRY(trm_hf_add_scale(d, names->layer_embedding, ".scaled", trm_hf_round(d->dtype, sqrt((double)c->layer_width)),
                             own, &own));
    TRM_TRY(trm_hf_add_linear(d, names->layer_projection, &trm_hf_whole, false, width, c->hidden, x, &projected));
    TRM_TRY(
        trm_hf_add_scale(d, names->layer_projection, ".scaled", 1.0 / sqrt((double)c->hidden), projected, &projected));
    TRM_TRY(trm_hf_add_reshape(d, names->layer_embedding, ".layers", own, dims, &own));
    TRM_TRY(trm_hf_add_reshape(d, names->layer_projection, ".layers", projected, dims, &projected));
    TRM_TRY(trm_hf_add_norm(d, names->layer_projection_norm, c->layer_width, projected, &projected));
    TRM_TRY(trm_hf_add_sum(d, "layer_embeddings", projected, own, &own));
    return trm_hf_add_scale(d, "layer_embeddings", ".scaled", sqrt(0.5), own, &d->by_layer);
}

/* A stored output projection that equals the embedding, so that it is tied: other elements would be another model. */
static trm_status note_tied_head(trm_hf_decoder *d)
{
    const trm_hf_names *names = d->names;
    const trm_dims expected = trm_dims2(d->config->vocab, d->config->hidden);
    for (size_t i = 0; i < sizeof(names->heads) / sizeof(names->heads[0]) && names->heads[i] != NULL; i++) {
        const char *full = trm_hf_name(d, names->heads[i], ".weight");
        if (!trm_hf_checkpoint_has_floats(d->checkpoint, full, &expected)) {
            continue;
        }
        trm_weight *head;
        TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, full, TRM_HF_MATRIX, &expected, &head));
        trm_status status = trm_network_note_deciding(d->network, head);
        trm_weight_destroy(head);
        TRM_TRY(status);
    }
    return TRM_OK;
}

trm_status trm_hf_add_logits(trm_hf_decoder *d, trm_tensor *x)
{
    const trm_hf_config *c = d->config;
    const bool capped = c->logit_softcap != 0.0, scaled = c->logit_scale != 0.0;
    trm_tensor *inputs[TRM_DEQUANT_MATMUL_INPUT_COUNT] = {x, d->embedding};
    trm_layer_desc product = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true, .out = TRM_F32}};
    d->prefix[0] = '\0';
    if (d->head != NULL && d->checkpoint->stored != NULL && !c->quantization.online &&
        trm_hf_part_is_quantized(d, d->head)) {
        TRM_TRY(trm_hf_add_quantized(d, d->head, &trm_hf_whole, c->vocab, c->hidden, inputs, &product));
        product.dequant_matmul.out = TRM_F32;
    } else if (d->head != NULL) {
        TRM_TRY(trm_hf_add_weight(d, d->head, ".weight", TRM_HF_MATRIX, trm_dims2(c->vocab, c->hidden), &inputs[1]));
    } else {
        TRM_TRY(note_tied_head(d));
    }
    if (c->head_bias && d->head != NULL) {
        const bool is_quantized = product.kind == TRM_LAYER_DEQUANT_MATMUL;
        TRM_TRY(trm_hf_add_weight(d, d->head, ".bias", TRM_HF_BIAS, trm_dims1(c->vocab),
                                  &inputs[is_quantized ? TRM_DEQUANT_MATMUL_BIAS : 2]));
    }
    TRM_TRY(trm_hf_add_layer(d, capped || scaled ? "raw_logits" : "logits", "", &product, inputs,
                             TRM_DEQUANT_MATMUL_INPUT_COUNT, &x));
    if (scaled) {
        TRM_TRY(trm_hf_add_scale(d, capped ? "scaled_logits" : "logits", "", c->logit_scale, x, &x));
    }
    if (capped) {
        trm_layer_desc cap = {.kind = TRM_LAYER_UNARY,
                              .unary = {.op = TRM_UNARY_SOFTCAP, .alpha = (float)c->logit_softcap}};
        TRM_TRY(trm_hf_add_layer(d, "logits", "", &cap, &x, 1, &x));
    }
    return trm_network_mark_output(d->network, x);
}

/* ---- entry ---------------------------------------------------------------------------------------------------- */

/* Whether the output projection is there under a name, quantized or not. */
static bool has_head(const trm_hf_checkpoint *checkpoint, const char *head)
{
    static const char *const suffixes[] = {"weight", "weight_packed", "qweight"};
    char text[256];
    bool has = false;
    for (size_t i = 0; !has && i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        snprintf(text, sizeof(text), "%s.%s", head, suffixes[i]);
        has = trm_hf_checkpoint_has(checkpoint, text);
    }
    return has;
}

trm_status trm_hf_decoder_find(const trm_hf_config *config, const trm_hf_checkpoint *checkpoint, const char **root,
                               const char **head)
{
    const trm_hf_names *names = &config->family->names;
    const int n_roots = sizeof(names->roots) / sizeof(names->roots[0]);
    const int n_heads = sizeof(names->heads) / sizeof(names->heads[0]);
    char text[256];
    *root = NULL;
    *head = NULL;
    for (int i = 0; i < n_roots && names->roots[i] != NULL && *root == NULL; i++) {
        snprintf(text, sizeof(text), "%s%s.weight", names->roots[i], names->embedding);
        *root = trm_hf_checkpoint_has(checkpoint, text) ? names->roots[i] : NULL;
    }
    if (*root == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s%s.weight is missing from the checkpoint", names->roots[0],
                 names->embedding);
    }
    for (int i = 0; i < n_heads && names->heads[i] != NULL && !config->tied && *head == NULL; i++) {
        *head = has_head(checkpoint, names->heads[i]) ? names->heads[i] : NULL;
    }
    if (*head == NULL && !config->tied) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "weight %s.weight is missing from the checkpoint, and tie_word_embeddings is false", names->heads[0]);
    }
    return TRM_OK;
}

static trm_status build(trm_hf_decoder *d)
{
    trm_tensor *x;
    TRM_TRY(trm_hf_decoder_find(d->config, d->checkpoint, &d->root, &d->head));
    TRM_TRY(trm_hf_add_inputs(d));
    TRM_TRY(trm_hf_add_embedding(d, &x));
    if (d->config->layer_width > 0) {
        TRM_TRY(add_layer_embeddings(d, x));
    }
    for (int64_t layer = 0; layer < d->config->layers; layer++) {
        trm_hf_draft_tap(d, layer, x);
        TRM_TRY(trm_hf_add_block(d, layer, x, &x));
    }
    snprintf(d->prefix, sizeof(d->prefix), "%s", d->root);
    TRM_TRY(trm_hf_add_norm(d, d->names->final_norm, d->config->hidden, x, &x));
    trm_tensor *hidden = x;
    if (trm_hf_draft_wants_final(d->draft)) {
        TRM_TRY(trm_hf_add_wanted(d, "wanted", x, &x));
    }
    TRM_TRY(trm_hf_add_logits(d, x));
    return d->draft == NULL ? TRM_OK : trm_hf_add_draft_hidden(d, hidden);
}

trm_status trm_hf_decoder_build(const trm_hf_config *config, trm_hf_checkpoint *checkpoint, trm_dtype dtype,
                                trm_dtype cache_dtype, const trm_hf_adapters *adapters, trm_hf_targets *targets,
                                const trm_hf_draft *draft, trm_network **network)
{
    trm_hf_decoder d = {.config = config,
                        .names = &config->family->names,
                        .checkpoint = checkpoint,
                        .dtype = dtype,
                        .cache_dtype = cache_dtype,
                        .adapters = adapters == NULL ? 0 : adapters->slots,
                        .adapter_rank = adapters == NULL ? 0 : adapters->rank,
                        .targets = targets,
                        .draft = draft};
    trm_hf_checkpoint_reset(checkpoint);
    TRM_TRY(trm_network_create(&d.network));
    trm_status status = build(&d);
    if (status != TRM_OK) {
        trm_network_destroy(d.network);
        return status;
    }
    *network = d.network;
    return TRM_OK;
}
