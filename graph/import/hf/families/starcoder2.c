/* StarCoder2: LayerNorm, biases everywhere, MLP without a gate. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_starcoder2(const trm_hf_reader *reader, trm_hf_config *config)
{
    bool bias = true;
    config->activation = TRM_ACTIVATION_GELU_TANH;
    config->norm = TRM_NORM_LAYER;
    config->norm_eps = 1e-5;
    config->norm_bias = true;
    config->tied = true;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "norm_epsilon", &config->norm_eps));
    TRM_TRY(trm_hf_read_bool(reader, "use_bias", &bias));
    config->qkv_bias = config->o_bias = config->mlp_bias = bias;
    TRM_TRY(trm_hf_read_windows(reader, config, 0));
    return trm_hf_read_rope(reader, config);
}

const trm_hf_family trm_hf_starcoder2 = {
    .architecture = "Starcoder2ForCausalLM",
    .model_type = "starcoder2",
    .models = "StarCoder2",
    .details = "LayerNorm, biases everywhere, `sliding_window`",
    .read = read_starcoder2,
    .names =
        {
            TRM_HF_MODEL_NAMES,
            TRM_HF_ATTENTION_NAMES,
            TRM_HF_NORM_NAMES,
            .up = "mlp.c_fc",
            .down = "mlp.c_proj",
        },
};
