/*
 * Gemma 1 to 4: scaled embeddings tied to the output, norms by 1 + weight, tanh GELU gates. Gemma 2 adds norms on the
 * outputs of attention and MLP, soft caps and a window on every other layer; Gemma 3 has q and k norms in place of
 * the caps, five windowed layers to a full one, and a rope of its own for the windowed ones. Gemma 4 scales norms by
 * their weight, has heads of another size in full layers, norms on values, and perhaps a mixture of experts beside the
 * MLP, or embeddings by layer.
 */
#include "graph/import/hf/families.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define GEMMA2_NORM_NAMES                                                                                              \
    .attention_norm = "input_layernorm", .attention_post_norm = "post_attention_layernorm",                            \
    .mlp_norm = "pre_feedforward_layernorm", .mlp_post_norm = "post_feedforward_layernorm"

static trm_status read_gemmas(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->activation = TRM_ACTIVATION_GELU_TANH;
    config->head_dim = 256;
    config->tied = true;
    config->norm_offset = 1.0f;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    config->embedding_scale = sqrt((double)config->hidden);
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    return trm_hf_refuse(reader, "use_bidirectional_attention");
}

static trm_status read_attention_scale(const trm_hf_reader *reader, trm_hf_config *config)
{
    double scalar = 256.0;
    TRM_TRY(trm_hf_read_real(reader, "query_pre_attn_scalar", &scalar));
    if (!(scalar > 0.0)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: query_pre_attn_scalar is %g, expected a positive number",
                 scalar);
    }
    config->attention_scale = 1.0 / sqrt(scalar);
    return TRM_OK;
}

static trm_status read_softcaps(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(trm_hf_read_real(reader, "attn_logit_softcapping", &config->attention_softcap));
    TRM_TRY(trm_hf_read_real(reader, "final_logit_softcapping", &config->logit_softcap));
    if (config->attention_softcap < 0.0 || config->logit_softcap < 0.0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: attn_logit_softcapping %g, final_logit_softcapping %g, expected positive numbers",
                 config->attention_softcap, config->logit_softcap);
    }
    return TRM_OK;
}

static trm_status read_gemma(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(read_gemmas(reader, config));
    /* The first releases say hidden_act "gelu" and mean the tanh form; transformers reads no hidden_activation. */
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    if (config->activation == TRM_ACTIVATION_GELU) {
        config->activation = TRM_ACTIVATION_GELU_TANH;
    }
    return trm_hf_read_rope(reader, config);
}

const trm_hf_family trm_hf_gemma = {
    .architecture = "GemmaForCausalLM",
    .model_type = "gemma",
    .models = "Gemma 1",
    .details = "scaled embeddings",
    .read = read_gemma,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

static trm_status read_gemma2(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->window = 4096;
    config->attention_softcap = 50.0;
    config->logit_softcap = 30.0;
    TRM_TRY(read_gemmas(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_activation", config));
    TRM_TRY(read_attention_scale(reader, config));
    TRM_TRY(read_softcaps(reader, config));
    TRM_TRY(trm_hf_read_windows(reader, config, 2));
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    return trm_hf_read_rope(reader, config);
}

const trm_hf_family trm_hf_gemma2 = {
    .architecture = "Gemma2ForCausalLM",
    .model_type = "gemma2",
    .models = "Gemma 2",
    .details = "four norms a layer, soft caps, windows by layer",
    .read = read_gemma2,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, GEMMA2_NORM_NAMES},
};

static trm_status read_gemma3(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {.theta = "rope_theta", .sliding_theta = "rope_local_base_freq"};
    int64_t pattern = 6;
    /* Published files leave out what equals the defaults of transformers' Gemma3TextConfig. */
    config->heads = 8;
    config->kv_heads = 4;
    config->vocab = 262208;
    config->context_length = 131072;
    config->window = 4096;
    config->rope[0].theta = 1e6;
    config->rope[1].theta = 1e4;
    TRM_TRY(read_gemmas(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_activation", config));
    TRM_TRY(read_attention_scale(reader, config));
    TRM_TRY(read_softcaps(reader, config));
    config->attention_softcap = 0.0; /* transformers has the key, and norms of q and k in its place */
    TRM_TRY(trm_hf_read_size(reader, "sliding_window_pattern", &pattern));
    TRM_TRY(trm_hf_read_windows(reader, config, pattern));
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    return trm_hf_read_rope_keys(reader, &rope_keys, config);
}

const trm_hf_family trm_hf_gemma3 = {
    .architecture = "Gemma3ForCausalLM",
    .model_type = "gemma3_text",
    .models = "Gemma 3",
    .details = "four norms a layer, norms on q and k, windows by layer with a rope of their own",
    .read = read_gemma3,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES, GEMMA2_NORM_NAMES},
};

/* What per_layer_config says of a full layer; all of them are alike. */
static trm_status read_full_layer(const trm_hf_reader *reader, const trm_json *layer, trm_hf_config *config)
{
    int64_t number = -1, kv_heads = config->kv_heads, head_dim = config->head_dim;
    for (int64_t i = 0; i < config->layers && number < 0; i++) {
        char text[32];
        snprintf(text, sizeof(text), "%lld", (long long)i);
        number = strcmp(text, trm_json_key(layer)) == 0 ? i : -1;
    }
    if (number < 0) { /* of a layer that is left out */
        return TRM_OK;
    }
    TRM_TRY(trm_json_member_integer(reader->document, layer, "num_key_value_heads", false, &kv_heads));
    TRM_TRY(trm_json_member_integer(reader->document, layer, "head_dim", false, &head_dim));
    if (config->sliding[number] ||
        (config->full_head_dim != 0 && (config->full_head_dim != head_dim || config->full_kv_heads != kv_heads))) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "config.json: per_layer_config of layer %lld is not that of full layers, which are alike",
                 (long long)number);
    }
    config->full_head_dim = head_dim;
    config->full_kv_heads = kv_heads;
    return TRM_OK;
}

/* Heads of full layers, in either spelling. */
static trm_status read_full_heads(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *by_layer = trm_json_get(reader->object, "per_layer_config");
    TRM_TRY(trm_hf_read_bool(reader, "attention_k_eq_v", &config->keys_as_values));
    if (trm_json_is_object(by_layer)) {
        for (const trm_json *layer = trm_json_first(by_layer); layer != NULL; layer = trm_json_next(layer)) {
            TRM_TRY(read_full_layer(reader, layer, config));
        }
    } else {
        config->full_head_dim = 512;
        config->full_kv_heads = config->kv_heads;
        TRM_TRY(trm_hf_read_size(reader, "global_head_dim", &config->full_head_dim));
        if (config->keys_as_values) {
            TRM_TRY(trm_hf_read_size(reader, "num_global_key_value_heads", &config->full_kv_heads));
        }
    }
    if (config->full_head_dim != 0 && (config->full_head_dim < 2 || config->full_head_dim > INT16_MAX ||
                                       config->full_kv_heads < 1 || config->heads % config->full_kv_heads != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: full layers have %lld key-value heads of %lld elements, expected heads that divide %lld",
                 (long long)config->full_kv_heads, (long long)config->full_head_dim, (long long)config->heads);
    }
    return TRM_OK;
}

/* The small models have embeddings by layer, and last layers that borrow keys and values. */
static trm_status read_small_ones(const trm_hf_reader *reader, trm_hf_config *config)
{
    double width = 256.0;
    bool lends[2] = {false, false};
    config->layer_vocab = 262144;
    TRM_TRY(trm_hf_read_real(reader, "hidden_size_per_layer_input", &width)); /* null: 0 */
    TRM_TRY(trm_hf_read_size(reader, "vocab_size_per_layer_input", &config->layer_vocab));
    TRM_TRY(trm_hf_read_count(reader, "num_kv_shared_layers", &config->borrowing));
    TRM_TRY(trm_hf_read_bool(reader, "use_double_wide_mlp", &config->borrowing_doubled));
    if (!(width >= 0.0 && width <= INT16_MAX) || width != (double)(int64_t)width) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: hidden_size_per_layer_input is %g, expected 0 to %d", width,
                 INT16_MAX);
    }
    config->layer_width = (int64_t)width;
    if (reader->layers > 0 && (config->layer_width > 0 || config->borrowing > 0)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "%lld layers were asked for, expected all: they share a table or keys and values",
                 (long long)reader->layers);
    }
    for (int64_t i = 0; i < config->layers - config->borrowing; i++) {
        lends[config->sliding[i]] = true;
    }
    for (int64_t i = 0; i < config->layers; i++) {
        if (!lends[config->sliding[i]]) {
            TRM_FAIL(
                TRM_ERROR_INVALID_MODEL,
                "config.json: num_kv_shared_layers is %lld, and no layer of the type of layer %lld is before those",
                (long long)config->borrowing, (long long)i);
        }
    }
    return TRM_OK;
}

static trm_status check_bidirectional(const trm_hf_reader *reader)
{
    const char *bidirectional = NULL;
    TRM_TRY(
        trm_json_member_string(reader->document, reader->object, "use_bidirectional_attention", false, &bidirectional));
    if (bidirectional != NULL && strcmp(bidirectional, "vision") != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: use_bidirectional_attention is \"%s\", expected null or vision",
                 bidirectional);
    }
    return TRM_OK;
}

static trm_status read_gemma4_rope(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys keys = {.theta = "rope_theta",
                                          .partial = "partial_rotary_factor",
                                          .sliding_theta = "rope_theta",
                                          .is_proportional = true};
    const trm_json *parameters = trm_json_get(reader->object, "rope_parameters");
    if (trm_json_get(parameters, "full_attention") == NULL || trm_json_get(parameters, "sliding_attention") == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: rope_parameters lacks full_attention or sliding_attention, expected both");
    }
    TRM_TRY(trm_hf_read_rope_keys(reader, &keys, config));
    for (int i = 0; i < 2; i++) {
        const trm_hf_rope *rope = &config->rope[i];
        if (rope->type != TRM_HF_ROPE_PROPORTIONAL && rope->partial != 1.0) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                     "config.json: partial_rotary_factor is %g for a rope that is not proportional, expected 1",
                     rope->partial);
        }
    }
    return TRM_OK;
}

static trm_status read_gemma4(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys moe_keys = {
        .experts = "num_experts", .k = "top_k_experts", .width = "moe_intermediate_size"};
    bool has_experts = false;
    config->activation = TRM_ACTIVATION_GELU_TANH;
    config->head_dim = 256;
    config->tied = true;
    config->window = 512;
    config->attention_scale = 1.0;
    config->unit_values = true;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(check_bidirectional(reader));
    config->embedding_scale = sqrt((double)config->hidden);
    TRM_TRY(trm_hf_read_activation(reader, "hidden_activation", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_real(reader, "final_logit_softcapping", &config->logit_softcap));
    TRM_TRY(trm_hf_read_windows(reader, config, 6));
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    if (reader->layers == 0) {
        config->sliding[config->layers - 1] = false; /* whatever layer_types says, as transformers does */
    }
    TRM_TRY(read_full_heads(reader, config));
    TRM_TRY(read_small_ones(reader, config));
    TRM_TRY(read_gemma4_rope(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "enable_moe_block", &has_experts));
    if (!has_experts) {
        return TRM_OK;
    }
    config->moe.beside = true;
    config->moe.router = (trm_router_params){.scoring = TRM_ROUTER_SOFTMAX, .renormalize = true};
    return trm_hf_read_moe(reader, &moe_keys, config);
}

const trm_hf_family trm_hf_gemma4 = {
    .architecture = "Gemma4ForCausalLM",
    .model_type = "gemma4_text",
    .models = "Gemma 4",
    .details = "heads and embeddings by layer, norms on q, k and v, mixture of experts beside the MLP",
    .read = read_gemma4,
    .names = {TRM_HF_MODEL_NAMES,
              TRM_HF_ATTENTION_NAMES,
              TRM_HF_QK_NORM_NAMES,
              TRM_HF_MLP_NAMES,
              GEMMA2_NORM_NAMES,
              .layer_scale = "layer_scalar",
              .layer_embedding = "embed_tokens_per_layer",
              .layer_projection = "per_layer_model_projection",
              .layer_projection_norm = "per_layer_projection_norm",
              .layer_gate = "per_layer_input_gate",
              .layer_out = "per_layer_projection",
              .layer_out_norm = "post_per_layer_input_norm",
              .router = "router.proj",
              .router_scale = "router.scale",
              .expert_scale = "router.per_expert_scale",
              .experts = "experts",
              .experts_gate_up = "experts.gate_up_proj",
              .experts_down = "experts.down_proj",
              .beside_mlp_norm = "post_feedforward_layernorm_1",
              .beside_norm = "pre_feedforward_layernorm_2",
              .beside_post_norm = "post_feedforward_layernorm_2"},
};
