/*
 * The decoder: token embedding, blocks of attention and MLP with their norms and residuals, output projection.
 *
 * One description for all families: config.h has the switches, the family's table the names of weights. Fused
 * weights are taken apart by views so that the partitioner meets q, k, v, gate and up as matrix products of their
 * own. Where transformers rounds to the model's type (between projection, norm, rope, activation, residual), a layer
 * ends, so that 16-bit results agree.
 */
#include "graph/import/hf/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/model.h>

#include "base/error.h"
#include "base/half.h"

typedef struct decoder {
    const trm_hf_config *config;
    const trm_hf_names *names;
    trm_hf_checkpoint *checkpoint;
    trm_network *network;
    trm_dtype dtype, cache_dtype;
    const char *root, *head;
    char prefix[128]; /* "model.layers.3." */
    char text[512];   /* the name made last */
    trm_tensor *token_ids, *positions, *starts, *lengths, *block_table, *logit_rows, *rope_lengths;
    trm_tensor *inv_freq[2]; /* of full and of sliding layers */
    trm_tensor *embedding;   /* [vocab, hidden] */
} decoder;

/* ---- names, weights, layers --------------------------------------------------------------------------- */

/* <prefix><part><suffix>, valid until the next call. */
static const char *name(decoder *d, const char *part, const char *suffix)
{
    snprintf(d->text, sizeof(d->text), "%s%s%s", d->prefix, part, suffix);
    return d->text;
}

/* Takes a whole weight into the network. */
static trm_status add_weight(decoder *d, const char *part, const char *suffix, trm_hf_weight_use use, trm_dims dims,
                             trm_tensor **tensor)
{
    const char *full = name(d, part, suffix);
    trm_weight *weight;
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, full, use, &dims, &weight));
    return trm_network_add_weight(d->network, full, weight, d->dtype, tensor);
}

/* The layer <prefix><part><suffix> with one output. */
static trm_status add_layer(decoder *d, const char *part, const char *suffix, const trm_layer_desc *desc,
                            trm_tensor *const *inputs, int32_t n_inputs, trm_tensor **output)
{
    return trm_network_add_layer(d->network, name(d, part, suffix), desc, inputs, n_inputs, output);
}

static trm_status add_sum(decoder *d, const char *part, trm_tensor *a, trm_tensor *b, trm_tensor **sum)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_ADD}};
    return add_layer(d, part, "", &desc, (trm_tensor *[]){a, b}, 2, sum);
}

static trm_status add_reshape(decoder *d, const char *part, const char *suffix, trm_tensor *x, trm_dims dims,
                              trm_tensor **output)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_RESHAPE, .reshape = {dims}};
    return add_layer(d, part, suffix, &desc, &x, 1, output);
}

static trm_status add_norm(decoder *d, const char *part, int64_t width, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    trm_tensor *inputs[3] = {x, NULL, NULL};
    TRM_TRY(add_weight(d, part, ".weight", c->norm_offset != 0.0f ? TRM_HF_OFFSET_NORM : TRM_HF_NORM, trm_dims1(width),
                       &inputs[1]));
    if (c->norm_bias) {
        TRM_TRY(add_weight(d, part, ".bias", TRM_HF_BIAS, trm_dims1(width), &inputs[2]));
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_NORM, .norm = {c->norm, false, (float)c->norm_eps, c->norm_offset}};
    return add_layer(d, part, "", &desc, inputs, 3, output);
}

/* ---- linear layers, and parts of fused ones --------------------------------------------------------- */

/* Which rows of a stored linear layer to use. A weight [rows, in] is seen as [outer, parts, inner, in]; rows
 * first .. first + count - 1 of axis `axis` are taken. */
typedef struct row_range {
    const char *suffix; /* of the part's name; "" for the whole */
    trm_dims view;      /* dims of the rows, n == 0: the whole */
    int32_t axis;
    int64_t first, count;
} row_range;

static const row_range whole = {.suffix = ""};

/* weight [rows, rest...] -> the rows of `range`, [n, rest...]. Takes the weight over. */
static trm_status take_rows(trm_weight *weight, const row_range *range, trm_weight **rows)
{
    if (range->view.n == 0) {
        *rows = weight;
        return TRM_OK;
    }
    trm_dims stored = trm_weight_dims(weight);
    trm_dims split = range->view, joined = stored;
    joined.d[0] = 1;
    for (int32_t i = 0; i < split.n; i++) {
        joined.d[0] *= i == range->axis ? range->count : split.d[i];
    }
    for (int32_t i = 1; i < stored.n; i++) {
        split.d[split.n++] = stored.d[i];
    }
    trm_weight *seen = NULL, *part = NULL;
    trm_status status;
    TRM_TRY_GOTO(status, trm_weight_reshape(weight, &split, &seen), done);
    TRM_TRY_GOTO(status, trm_weight_slice(seen, range->axis, range->first, range->count, &part), done);
    status = trm_weight_reshape(part, &joined, rows);
done:
    trm_weight_destroy(part);
    trm_weight_destroy(seen);
    trm_weight_destroy(weight);
    return status;
}

/* Takes a linear weight, [out, in] however it is stored. */
static trm_status take_matrix(decoder *d, const char *part, int64_t out, int64_t in, trm_weight **weight)
{
    trm_dims dims = d->config->transposed ? trm_dims2(in, out) : trm_dims2(out, in);
    trm_weight *stored;
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, name(d, part, ".weight"), TRM_HF_MATRIX, &dims, &stored));
    if (!d->config->transposed) {
        *weight = stored;
        return TRM_OK;
    }
    trm_status status = trm_weight_transpose(stored, (const int32_t[]){1, 0}, weight);
    trm_weight_destroy(stored);
    return status;
}

/* The rows of `range` among scales or zero points of blocks of `block` rows. */
static trm_status block_rows(decoder *d, const row_range *range, int64_t block, row_range *blocks)
{
    *blocks = *range;
    if (range->view.n == 0 || block == 1) {
        return TRM_OK;
    }
    const int32_t last = range->view.n - 1;
    const bool is_cut = range->axis == last;
    if (range->view.d[last] % block != 0 || (is_cut && (range->first % block != 0 || range->count % block != 0))) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "weight %s: blocks of %lld rows with a scale each do not fit its parts, which begin at row %lld and "
                 "have %lld",
                 d->text, (long long)block, (long long)range->first, (long long)range->count);
    }
    blocks->view.d[last] /= block;
    blocks->first /= is_cut ? block : 1;
    blocks->count /= is_cut ? block : 1;
    return TRM_OK;
}

/* Takes rows of a tensor of a quantized layer into the network; the weight over. */
static trm_status add_quantized_part(decoder *d, const char *part, const row_range *range, const char *suffix,
                                     trm_weight **weight, trm_tensor **tensor)
{
    char text[64];
    trm_weight *taken = *weight, *rows = NULL;
    *weight = NULL;
    TRM_TRY(take_rows(taken, range, &rows));
    snprintf(text, sizeof(text), "%s.%s", range->suffix, suffix);
    return trm_network_add_weight(d->network, name(d, part, text), rows, trm_weight_dtype(rows), tensor);
}

/* The tensors of the quantized layer `part` [out, in], rows of `range`. */
static trm_status add_quantized(decoder *d, const char *part, const row_range *range, int64_t out, int64_t in,
                                trm_tensor **inputs, trm_layer_desc *desc)
{
    trm_hf_quantized taken;
    row_range blocks;
    TRM_TRY(trm_hf_quantized_take(d->checkpoint, &d->config->quantization, name(d, part, ""), out, in, &taken));
    trm_status status = block_rows(d, range, taken.block_n, &blocks);
    if (status == TRM_OK) {
        status = add_quantized_part(d, part, range, "weight", &taken.weight, &inputs[TRM_DEQUANT_MATMUL_WEIGHT]);
    }
    if (status == TRM_OK) {
        status = add_quantized_part(d, part, &blocks, "scale", &taken.scale, &inputs[TRM_DEQUANT_MATMUL_SCALE]);
    }
    if (status == TRM_OK && taken.zero_point != NULL) {
        status = add_quantized_part(d, part, &blocks, "zero_point", &taken.zero_point,
                                    &inputs[TRM_DEQUANT_MATMUL_ZERO_POINT]);
    }
    if (status == TRM_OK && taken.order != NULL) {
        status = trm_network_note_deciding(d->network, taken.order);
    }
    if (status == TRM_OK && taken.middle != NULL) {
        status = trm_network_note_deciding(d->network, taken.middle);
    }
    *desc = (trm_layer_desc){.kind = TRM_LAYER_DEQUANT_MATMUL,
                             .dequant_matmul = {.block_n = taken.block_n, .block_k = taken.block_k}};
    trm_hf_quantized_fini(&taken);
    return status;
}

static bool is_quantized(decoder *d, const char *part)
{
    return trm_hf_is_quantized(d->checkpoint, &d->config->quantization, name(d, part, ""));
}

/* x [T, in] -> [T, rows of range]: those rows of the linear layer `part` [out, in]. */
static trm_status add_linear(decoder *d, const char *part, const row_range *range, bool bias, int64_t out, int64_t in,
                             trm_tensor *x, trm_tensor **output)
{
    char suffix[32];
    trm_weight *weight;
    trm_tensor *inputs[TRM_DEQUANT_MATMUL_INPUT_COUNT] = {x}, **added = &inputs[2];
    trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    if (is_quantized(d, part)) {
        TRM_TRY(add_quantized(d, part, range, out, in, inputs, &desc));
        added = &inputs[TRM_DEQUANT_MATMUL_BIAS];
    } else {
        TRM_TRY(take_matrix(d, part, out, in, &weight));
        TRM_TRY(take_rows(weight, range, &weight));
        snprintf(suffix, sizeof(suffix), "%s.weight", range->suffix);
        TRM_TRY(trm_network_add_weight(d->network, name(d, part, suffix), weight, d->dtype, &inputs[1]));
    }
    if (bias) {
        trm_dims dims = trm_dims1(out);
        TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, name(d, part, ".bias"), TRM_HF_BIAS, &dims, &weight));
        TRM_TRY(take_rows(weight, range, &weight));
        snprintf(suffix, sizeof(suffix), "%s.bias", range->suffix);
        TRM_TRY(trm_network_add_weight(d->network, name(d, part, suffix), weight, d->dtype, added));
    }
    return add_layer(d, part, range->suffix, &desc, inputs, TRM_DEQUANT_MATMUL_INPUT_COUNT, output);
}

/* ---- attention ------------------------------------------------------------------------------------------ */

enum { QUERY = 0, KEY, VALUE };

/* Projects x [T, hidden] to heads [T, heads, head_dim] of queries, keys or values. */
static trm_status add_heads(decoder *d, int which, trm_tensor *x, trm_tensor **heads)
{
    static const char *const parts[3] = {".q", ".k", ".v"};
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    const int64_t dim = c->head_dim, n = which == QUERY ? c->heads : c->kv_heads;
    const int64_t all = (c->heads + 2 * c->kv_heads) * dim;
    const char *const separate[3] = {names->q, names->k, names->v};
    trm_tensor *projected;
    switch (c->qkv_layout) {
    case TRM_HF_QKV_SEPARATE:
        TRM_TRY(add_linear(d, separate[which], &whole, c->qkv_bias, n * dim, c->hidden, x, &projected));
        return add_reshape(d, separate[which], ".heads", projected, trm_dims3(0, n, dim), heads);
    case TRM_HF_QKV_STACKED: {
        int64_t first = which == QUERY ? 0 : (c->heads + (which == VALUE ? c->kv_heads : 0)) * dim;
        row_range range = {parts[which], trm_dims1(all), 0, first, n * dim};
        TRM_TRY(add_linear(d, names->qkv, &range, c->qkv_bias, all, c->hidden, x, &projected));
        break;
    }
    case TRM_HF_QKV_PER_HEAD: {
        row_range range = {parts[which], trm_dims3(c->heads, 3, dim), 1, which, 1};
        TRM_TRY(add_linear(d, names->qkv, &range, c->qkv_bias, all, c->hidden, x, &projected));
        break;
    }
    }
    char suffix[16];
    snprintf(suffix, sizeof(suffix), "%s.heads", parts[which]);
    return add_reshape(d, names->qkv, suffix, projected, trm_dims3(0, n, dim), heads);
}

static trm_status add_rope(decoder *d, const char *part, bool sliding, trm_tensor *x, trm_tensor **output)
{
    const int which = sliding && d->config->sliding_rope;
    const trm_hf_rope *rope = &d->config->rope[which];
    trm_layer_desc desc = {.kind = TRM_LAYER_ROPE,
                           .rope = {.scaling = TRM_ROPE_PLAIN,
                                    .rotary_dim = rope->dim,
                                    .magnitude = (float)rope->attention_factor,
                                    .base = (float)rope->theta,
                                    .factor = (float)rope->factor,
                                    .original_length = rope->original_length}};
    if (rope->type == TRM_HF_ROPE_DYNAMIC) {
        desc.rope.scaling = TRM_ROPE_DYNAMIC;
    } else if (rope->type == TRM_HF_ROPE_LONGROPE) {
        desc.rope.scaling = TRM_ROPE_LONG;
    }
    trm_tensor *inputs[4] = {x, d->positions, d->inv_freq[which], NULL};
    if (desc.rope.scaling != TRM_ROPE_PLAIN) {
        inputs[3] = d->rope_lengths;
    }
    return add_layer(d, part, "", &desc, inputs, 4, output);
}

static trm_status add_cache(decoder *d, int64_t layer, const char *which, trm_tensor **cache)
{
    char text[64];
    snprintf(text, sizeof(text), "layers.%lld.%s_cache", (long long)layer, which);
    trm_dims dims = {4, {-1, TRM_KV_BLOCK_SIZE, d->config->kv_heads, d->config->head_dim}};
    return trm_network_add_state(d->network, text, d->cache_dtype, dims, cache);
}

/* The scale of cached keys or values that the checkpoint gives, under one of the names in use; else 0, which means 1.
 */
static trm_status find_cache_scale(decoder *d, int which, float *scale)
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
        const char *full = name(d, module, names[which == VALUE][i]);
        if (trm_hf_checkpoint_has(d->checkpoint, full)) {
            return trm_hf_checkpoint_take_scale(d->checkpoint, full, scale);
        }
    }
    return TRM_OK;
}

/* x [T, hidden], normalized -> [T, heads * head_dim], before the output projection */
static trm_status add_attention(decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    const bool sliding = c->sliding[layer];
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {NULL};
    for (int which = QUERY; which <= VALUE; which++) {
        TRM_TRY(add_heads(d, which, x, &inputs[TRM_ATTENTION_Q + which]));
    }
    if (names->q_norm != NULL) {
        TRM_TRY(add_norm(d, names->q_norm, c->head_dim, inputs[TRM_ATTENTION_Q], &inputs[TRM_ATTENTION_Q]));
        TRM_TRY(add_norm(d, names->k_norm, c->head_dim, inputs[TRM_ATTENTION_K], &inputs[TRM_ATTENTION_K]));
    }
    if (c->rotary) {
        TRM_TRY(add_rope(d, "attention.q_rope", sliding, inputs[TRM_ATTENTION_Q], &inputs[TRM_ATTENTION_Q]));
        TRM_TRY(add_rope(d, "attention.k_rope", sliding, inputs[TRM_ATTENTION_K], &inputs[TRM_ATTENTION_K]));
    }
    inputs[TRM_ATTENTION_SEQUENCE_STARTS] = d->starts;
    inputs[TRM_ATTENTION_SEQUENCE_LENGTHS] = d->lengths;
    inputs[TRM_ATTENTION_BLOCK_TABLE] = d->block_table;
    TRM_TRY(add_cache(d, layer, "key", &inputs[TRM_ATTENTION_KEY_CACHE]));
    TRM_TRY(add_cache(d, layer, "value", &inputs[TRM_ATTENTION_VALUE_CACHE]));
    double scale = c->scale_by_layer ? c->attention_scale / (double)(layer + 1) : c->attention_scale;
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                           .attention = {.form = TRM_ATTENTION_PACKED_NHD,
                                         .causal = TRM_CAUSAL_LOWER_RIGHT,
                                         .window = sliding ? (int32_t)c->window : 0,
                                         .scale = (float)scale,
                                         .softcap = (float)c->attention_softcap,
                                         .n_ranks = 1}};
    TRM_TRY(find_cache_scale(d, KEY, &desc.attention.k_scale));
    TRM_TRY(find_cache_scale(d, VALUE, &desc.attention.v_scale));
    trm_tensor *x1;
    TRM_TRY(add_layer(d, "attention", "", &desc, inputs, TRM_ATTENTION_VALUE_CACHE + 1, &x1));
    return add_reshape(d, "attention", ".joined", x1, trm_dims2(0, c->heads * c->head_dim), output);
}

/* ---- MLP and block --------------------------------------------------------------------------------------- */

/* x [T, hidden], normalized -> [T, hidden] */
static trm_status add_mlp(decoder *d, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    trm_tensor *gate = NULL, *up, *inner;
    if (names->gate_up != NULL) {
        row_range range = {".gate", trm_dims1(2 * c->intermediate), 0, 0, c->intermediate};
        TRM_TRY(add_linear(d, names->gate_up, &range, c->mlp_bias, 2 * c->intermediate, c->hidden, x, &gate));
        range.suffix = ".up";
        range.first = c->intermediate;
        TRM_TRY(add_linear(d, names->gate_up, &range, c->mlp_bias, 2 * c->intermediate, c->hidden, x, &up));
    } else {
        if (names->gate != NULL) {
            TRM_TRY(add_linear(d, names->gate, &whole, c->mlp_bias, c->intermediate, c->hidden, x, &gate));
        }
        TRM_TRY(add_linear(d, names->up, &whole, c->mlp_bias, c->intermediate, c->hidden, x, &up));
    }
    if (gate != NULL) {
        trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {c->activation}};
        TRM_TRY(add_layer(d, "mlp.activation", "", &glu, (trm_tensor *[]){gate, up}, 2, &inner));
    } else {
        trm_layer_desc unary = {.kind = TRM_LAYER_UNARY, .unary = {TRM_UNARY_ACTIVATION, c->activation, 0.0f, 0.0f}};
        TRM_TRY(add_layer(d, "mlp.activation", "", &unary, &up, 1, &inner));
    }
    return add_linear(d, names->down, &whole, c->mlp_bias, c->hidden, c->intermediate, inner, output);
}

/* x [T, n] -> [R, n], the tokens whose logits are wanted. */
static trm_status add_wanted(decoder *d, const char *part, trm_tensor *x, trm_tensor **output)
{
    const trm_layer_desc gather = {.kind = TRM_LAYER_GATHER, .gather = {0}};
    return add_layer(d, part, "", &gather, (trm_tensor *[]){x, d->logit_rows}, 2, output);
}

/* x [T, hidden] -> [T, hidden], through one block. The last one goes on with the tokens that are wanted behind its
 * attention, [R, hidden]: of the others only keys and values are needed. */
static trm_status add_block(decoder *d, int64_t layer, trm_tensor *x, trm_tensor **output)
{
    const trm_hf_config *c = d->config;
    const trm_hf_names *names = d->names;
    snprintf(d->prefix, sizeof(d->prefix), "%s%s.%lld.", d->root, names->layers, (long long)layer);
    trm_tensor *normed, *attended, *mixed;
    TRM_TRY(add_norm(d, names->attention_norm, c->hidden, x, &normed));
    TRM_TRY(add_attention(d, layer, normed, &attended));
    if (layer == c->layers - 1) {
        TRM_TRY(add_wanted(d, "wanted", x, &x));
        TRM_TRY(add_wanted(d, "attention.wanted", attended, &attended));
    }
    TRM_TRY(add_linear(d, names->o, &whole, c->o_bias, c->hidden, c->heads * c->head_dim, attended, &attended));
    if (names->attention_post_norm != NULL) {
        TRM_TRY(add_norm(d, names->attention_post_norm, c->hidden, attended, &attended));
    }
    if (c->parallel_residual) {
        TRM_TRY(add_norm(d, names->mlp_norm, c->hidden, x, &normed));
        TRM_TRY(add_mlp(d, normed, &mixed));
        TRM_TRY(add_sum(d, "branches", mixed, attended, &mixed));
        return add_sum(d, "residual", x, mixed, output);
    }
    TRM_TRY(add_sum(d, "attention_residual", x, attended, &x));
    TRM_TRY(add_norm(d, names->mlp_norm, c->hidden, x, &normed));
    TRM_TRY(add_mlp(d, normed, &mixed));
    if (names->mlp_post_norm != NULL) {
        TRM_TRY(add_norm(d, names->mlp_post_norm, c->hidden, mixed, &mixed));
    }
    return add_sum(d, "mlp_residual", x, mixed, output);
}

/* ---- ends --------------------------------------------------------------------------------------------------- */

static trm_status add_inv_freq(decoder *d, int which)
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

static trm_status add_inputs(decoder *d)
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

/* `value` as the compute type holds it: transformers multiplies by a scalar of the model's type. */
static float round_to(trm_dtype dtype, double value)
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

/* token_ids -> [T, hidden] */
static trm_status add_embedding(decoder *d, trm_tensor **x)
{
    const trm_hf_config *c = d->config;
    const trm_layer_desc embedding = {.kind = TRM_LAYER_EMBEDDING};
    snprintf(d->prefix, sizeof(d->prefix), "%s", d->root);
    TRM_TRY(add_weight(d, d->names->embedding, ".weight", c->tied ? TRM_HF_TIED_EMBEDDING : TRM_HF_EMBEDDING,
                       trm_dims2(c->vocab, c->hidden), &d->embedding));
    TRM_TRY(add_layer(d, d->names->embedding, "", &embedding, (trm_tensor *[]){d->embedding, d->token_ids}, 2, x));
    if (c->embedding_scale != 0.0) {
        trm_layer_desc scale = {.kind = TRM_LAYER_UNARY,
                                .unary = {.op = TRM_UNARY_LINEAR, .alpha = round_to(d->dtype, c->embedding_scale)}};
        TRM_TRY(add_layer(d, d->names->embedding, ".scaled", &scale, x, 1, x));
    }
    if (d->names->positions != NULL) {
        trm_tensor *table, *rows;
        TRM_TRY(add_weight(d, d->names->positions, ".weight", TRM_HF_EMBEDDING, trm_dims2(c->context_length, c->hidden),
                           &table));
        TRM_TRY(add_layer(d, d->names->positions, "", &embedding, (trm_tensor *[]){table, d->positions}, 2, &rows));
        TRM_TRY(add_sum(d, "embeddings", *x, rows, x));
    }
    return TRM_OK;
}

/* A stored output projection that equals the embedding, so that it is tied: other elements would be another model. */
static trm_status note_tied_head(decoder *d)
{
    const trm_hf_names *names = d->names;
    const trm_dims expected = trm_dims2(d->config->vocab, d->config->hidden);
    for (size_t i = 0; i < sizeof(names->heads) / sizeof(names->heads[0]) && names->heads[i] != NULL; i++) {
        const char *full = name(d, names->heads[i], ".weight");
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

/* x [R, hidden] -> the output logits f32 [R, vocab] */
static trm_status add_output(decoder *d, trm_tensor *x)
{
    const trm_hf_config *c = d->config;
    const bool capped = c->logit_softcap != 0.0;
    snprintf(d->prefix, sizeof(d->prefix), "%s", d->root);
    TRM_TRY(add_norm(d, d->names->final_norm, c->hidden, x, &x));
    trm_tensor *inputs[TRM_DEQUANT_MATMUL_INPUT_COUNT] = {x, d->embedding};
    trm_layer_desc product = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true, .out = TRM_F32}};
    d->prefix[0] = '\0';
    if (d->head != NULL && d->checkpoint->stored != NULL && is_quantized(d, d->head)) {
        TRM_TRY(add_quantized(d, d->head, &whole, c->vocab, c->hidden, inputs, &product));
        product.dequant_matmul.out = TRM_F32;
    } else if (d->head != NULL) {
        TRM_TRY(add_weight(d, d->head, ".weight", TRM_HF_MATRIX, trm_dims2(c->vocab, c->hidden), &inputs[1]));
    } else {
        TRM_TRY(note_tied_head(d));
    }
    TRM_TRY(add_layer(d, capped ? "raw_logits" : "logits", "", &product, inputs, TRM_DEQUANT_MATMUL_INPUT_COUNT, &x));
    if (capped) {
        trm_layer_desc cap = {.kind = TRM_LAYER_UNARY,
                              .unary = {.op = TRM_UNARY_SOFTCAP, .alpha = (float)c->logit_softcap}};
        TRM_TRY(add_layer(d, "logits", "", &cap, &x, 1, &x));
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
    const trm_hf_names *names = config->family->names;
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

static trm_status build(decoder *d)
{
    trm_tensor *x;
    TRM_TRY(trm_hf_decoder_find(d->config, d->checkpoint, &d->root, &d->head));
    TRM_TRY(add_inputs(d));
    TRM_TRY(add_embedding(d, &x));
    for (int64_t layer = 0; layer < d->config->layers; layer++) {
        TRM_TRY(add_block(d, layer, x, &x));
    }
    return add_output(d, x);
}

trm_status trm_hf_decoder_build(const trm_hf_config *config, trm_hf_checkpoint *checkpoint, trm_dtype dtype,
                                trm_dtype cache_dtype, trm_network **network)
{
    decoder d = {.config = config,
                 .names = config->family->names,
                 .checkpoint = checkpoint,
                 .dtype = dtype,
                 .cache_dtype = cache_dtype};
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
