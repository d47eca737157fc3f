/* Llama 1 to 3.x, Mistral and Ministral: RMS norms, gated MLP, grouped queries. */
#include "graph/import/hf/families.h"

#include "base/error.h"

const trm_hf_names trm_hf_llama_names = {
    .roots = {"model.", ""},
    .embedding = "embed_tokens",
    .layers = "layers",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .o = "self_attn.o_proj",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .attention_norm = "input_layernorm",
    .mlp_norm = "post_attention_layernorm",
    .final_norm = "norm",
    .heads = {"lm_head"},
};

static trm_status read_common(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->activation = TRM_ACTIVATION_SILU;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", &config->activation));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    return trm_hf_read_rope(reader, config);
}

trm_status trm_hf_read_llama(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(read_common(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "attention_bias", &config->qkv_bias));
    config->o_bias = config->qkv_bias;
    return trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias);
}

trm_status trm_hf_read_mistral(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(read_common(reader, config));
    config->window = 4096; /* null switches it off */
    TRM_TRY(trm_hf_read_windows(reader, config, 0));
    return trm_hf_read_layer_types(reader, config); /* Ministral, under either name */
}
