/* Nemotron: LayerNorm by 1 + weight, an MLP of relu^2 without a gate, heads that are rotated in part. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_nemotron(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {.theta = "rope_theta", .partial = "partial_rotary_factor"};
    config->activation = TRM_ACTIVATION_RELU;
    config->squared = true;
    config->norm = TRM_NORM_LAYER;
    config->norm_eps = 1e-5;
    config->norm_offset = 1.0f;
    config->norm_bias = true;
    config->rope[0].partial = 0.5;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias));
    return trm_hf_read_rope_keys(reader, &rope_keys, config);
}

const trm_hf_family trm_hf_nemotron = {
    .architecture = "NemotronForCausalLM",
    .model_type = "nemotron",
    .models = "Nemotron-3, Nemotron-4, Minitron",
    .details = "LayerNorm by 1 + weight, relu^2 without a gate, partial rotary heads",
    .read = read_nemotron,
    .names =
        {
            TRM_HF_MODEL_NAMES,
            TRM_HF_ATTENTION_NAMES,
            TRM_HF_NORM_NAMES,
            .up = "mlp.up_proj",
            .down = "mlp.down_proj",
        },
};
