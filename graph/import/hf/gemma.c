/*
 * Gemma 1 to 3: scaled embeddings tied to the output, norms by 1 + weight, tanh GELU gates. Gemma 2 adds norms on the
 * outputs of attention and MLP, soft caps and a window on every other layer; Gemma 3 has q and k norms in place of
 * the caps, five windowed layers to a full one, and a rope of its own for the windowed ones.
 */
#include "graph/import/hf/families.h"

#include <math.h>

#include "base/error.h"

#define GEMMA_NAMES                                                                                                    \
    .embedding = "embed_tokens", .layers = "layers", .q = "self_attn.q_proj", .k = "self_attn.k_proj",                 \
    .v = "self_attn.v_proj", .o = "self_attn.o_proj", .gate = "mlp.gate_proj", .up = "mlp.up_proj",                    \
    .down = "mlp.down_proj", .attention_norm = "input_layernorm", .final_norm = "norm"
#define GEMMA2_NORMS                                                                                                   \
    .attention_post_norm = "post_attention_layernorm", .mlp_norm = "pre_feedforward_layernorm",                        \
    .mlp_post_norm = "post_feedforward_layernorm"

const trm_hf_names trm_hf_gemma_names = {
    .roots = {"model.", ""}, GEMMA_NAMES, .mlp_norm = "post_attention_layernorm", .heads = {"lm_head"}};

const trm_hf_names trm_hf_gemma2_names = {.roots = {"model.", ""}, GEMMA_NAMES, GEMMA2_NORMS, .heads = {"lm_head"}};

const trm_hf_names trm_hf_gemma3_names = {
    .roots = {"model.", "language_model.model.", "model.language_model.", ""}, /* the middle ones with images */
    GEMMA_NAMES,
    GEMMA2_NORMS,
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .heads = {"lm_head", "language_model.lm_head"}};

static trm_status read_common(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->activation = TRM_ACTIVATION_GELU_TANH;
    config->head_dim = 256;
    config->tied = true;
    config->norm_offset = 1.0f;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    if (reader->object != reader->root) { /* with images the file's own key decides, and true where it is absent */
        config->tied = true;
        TRM_TRY(trm_json_member_bool(reader->document, reader->root, "tie_word_embeddings", false, &config->tied));
    }
    config->embedding_scale = sqrt((double)config->hidden);
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_bool(reader, "attention_bias", &config->qkv_bias));
    config->o_bias = config->qkv_bias;
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

trm_status trm_hf_read_gemma(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(read_common(reader, config));
    /* The first releases say hidden_act "gelu" and mean the tanh form; transformers reads no hidden_activation. */
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", &config->activation));
    if (config->activation == TRM_ACTIVATION_GELU) {
        config->activation = TRM_ACTIVATION_GELU_TANH;
    }
    return trm_hf_read_rope(reader, config);
}

trm_status trm_hf_read_gemma2(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->window = 4096;
    config->attention_softcap = 50.0;
    config->logit_softcap = 30.0;
    TRM_TRY(read_common(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_activation", &config->activation));
    TRM_TRY(read_attention_scale(reader, config));
    TRM_TRY(read_softcaps(reader, config));
    TRM_TRY(trm_hf_read_windows(reader, config, 2));
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    return trm_hf_read_rope(reader, config);
}

trm_status trm_hf_read_gemma3(const trm_hf_reader *reader, trm_hf_config *config)
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
    TRM_TRY(read_common(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_activation", &config->activation));
    TRM_TRY(read_attention_scale(reader, config));
    TRM_TRY(read_softcaps(reader, config));
    config->attention_softcap = 0.0; /* transformers has the key, and norms of q and k in its place */
    TRM_TRY(trm_hf_read_size(reader, "sliding_window_pattern", &pattern));
    TRM_TRY(trm_hf_read_windows(reader, config, pattern));
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    return trm_hf_read_rope_keys(reader, &rope_keys, config);
}
