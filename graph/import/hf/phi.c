/* Phi-3 and Phi-4: Llama with q, k, v and gate, up stored fused, longrope, partly rotated heads. */
#include "graph/import/hf/families.h"

#include "base/error.h"

const trm_hf_names trm_hf_phi3_names = {
    .roots = {"model."},
    .embedding = "embed_tokens",
    .layers = "layers",
    .qkv = "self_attn.qkv_proj",
    .o = "self_attn.o_proj",
    .gate_up = "mlp.gate_up_proj",
    .down = "mlp.down_proj",
    .attention_norm = "input_layernorm",
    .mlp_norm = "post_attention_layernorm",
    .final_norm = "norm",
    .heads = {"lm_head"},
};

trm_status trm_hf_read_phi3(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->activation = TRM_ACTIVATION_SILU;
    config->norm_eps = 1e-5;
    config->qkv_layout = TRM_HF_QKV_STACKED;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", &config->activation));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_rope(reader, config));
    return trm_hf_read_windows(reader, config, 0);
}
