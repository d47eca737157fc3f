/*
 * Gemma 1 to 3: scaled embeddings tied to the output, norms by 1 + weight, tanh GELU gates. Gemma 2 adds norms on the
 * outputs of attention and MLP, soft caps and a window on every other layer; Gemma 3 has q and k norms in place of
 * the caps, five windowed layers to a full one, and a rope of its own for the windowed ones.
 */
#include "graph/import/hf/families.h"

#include <math.h>

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
