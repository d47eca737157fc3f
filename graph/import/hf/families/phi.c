/* Phi-3 and Phi-4: Llama with q, k, v and gate, up stored fused, longrope, partly rotated heads. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_phi3(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {
        .theta = "rope_theta", .partial = "partial_rotary_factor", .is_longrope = true};
    config->activation = TRM_ACTIVATION_SILU;
    config->rope[0].original_length = 4096;
    config->norm_eps = 1e-5;
    config->qkv_layout = TRM_HF_QKV_STACKED;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_rope_keys(reader, &rope_keys, config));
    return trm_hf_read_windows(reader, config, 0);
}

const trm_hf_family trm_hf_phi3 = {
    .architecture = "Phi3ForCausalLM",
    .model_type = "phi3",
    .models = "Phi-3, Phi-3.5, Phi-4, Phi-4-mini",
    .details = "fused weights, longrope, partial rotary heads, `sliding_window`",
    .read = read_phi3,
    .names =
        {
            TRM_HF_MODEL_NAMES,
            TRM_HF_NORM_NAMES,
            .qkv = "self_attn.qkv_proj",
            .o = "self_attn.o_proj",
            .gate_up = "mlp.gate_up_proj",
            .down = "mlp.down_proj",
        },
};
