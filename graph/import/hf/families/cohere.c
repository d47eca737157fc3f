/* Cohere 2 (Command R7B, Command A): attention and MLP in parallel behind one LayerNorm without bias, interleaved rope
 * in layers with a window and none in the others, scaled logits. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_cohere2(const trm_hf_reader *reader, trm_hf_config *config)
{
    int64_t pattern = 4;
    config->activation = TRM_ACTIVATION_SILU;
    config->norm = TRM_NORM_LAYER;
    config->norm_eps = 1e-5;
    config->parallel_residual = true;
    config->interleaved_rope = true;
    config->logit_scale = 0.0625;
    config->tied = true;
    config->window = 4096;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "layer_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_real(reader, "logit_scale", &config->logit_scale));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_size(reader, "sliding_window_pattern", &pattern));
    TRM_TRY(trm_hf_read_windows(reader, config, pattern));
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    for (int64_t i = 0; i < config->layers; i++) {
        config->unrotated[i] = !config->sliding[i];
    }
    return trm_hf_read_rope(reader, config);
}

const trm_hf_family trm_hf_cohere2 = {
    .architecture = "Cohere2ForCausalLM",
    .model_type = "cohere2",
    .models = "Command R7B, Command A",
    .details = "LayerNorm, parallel branches, interleaved rope in layers with a window only, scaled logits",
    .read = read_cohere2,
    .names =
        {
            TRM_HF_MODEL_NAMES,
            TRM_HF_ATTENTION_NAMES,
            TRM_HF_MLP_NAMES,
            .attention_norm = "input_layernorm",
        },
};
