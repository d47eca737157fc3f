/* Qwen2 (bias on q, k, v) and Qwen3 (norms on q and k); a window on the layers from max_window_layers on. */
#include "graph/import/hf/families.h"

#include "base/error.h"

const trm_hf_names trm_hf_qwen3_names = {
    .roots = {"model.", ""},
    .embedding = "embed_tokens",
    .layers = "layers",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .o = "self_attn.o_proj",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .attention_norm = "input_layernorm",
    .mlp_norm = "post_attention_layernorm",
    .final_norm = "norm",
    .heads = {"lm_head"},
};

static trm_status read_windows(const trm_hf_reader *reader, trm_hf_config *config)
{
    bool use_window = false;
    int64_t full_layers = 28;
    TRM_TRY(trm_hf_read_bool(reader, "use_sliding_window", &use_window));
    TRM_TRY(trm_json_member_integer(reader->document, reader->object, "max_window_layers", false, &full_layers));
    if (use_window) {
        config->window = 4096;
        TRM_TRY(trm_hf_read_windows(reader, config, 0)); /* all layers that may have one */
        for (int64_t i = 0; i < config->layers && i < full_layers; i++) {
            config->sliding[i] = false;
        }
    }
    return trm_hf_read_layer_types(reader, config);
}

static trm_status read_common(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->activation = TRM_ACTIVATION_SILU;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", &config->activation));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_rope(reader, config));
    return read_windows(reader, config);
}

trm_status trm_hf_read_qwen2(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->qkv_bias = true;
    return read_common(reader, config);
}

trm_status trm_hf_read_qwen3(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->head_dim = 128;
    TRM_TRY(read_common(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "attention_bias", &config->qkv_bias));
    config->o_bias = config->qkv_bias;
    return TRM_OK;
}
