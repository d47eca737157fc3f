/* Qwen2 (bias on q, k, v) and Qwen3 (norms on q and k); a window on the layers from max_window_layers on. */
#include "graph/import/hf/families.h"

#include "base/error.h"

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

static trm_status read_qwen2(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {.theta = "rope_theta", .is_mrope = true};
    config->activation = TRM_ACTIVATION_SILU;
    config->qkv_bias = true;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_rope_keys(reader, &rope_keys, config));
    return read_windows(reader, config);
}

const trm_hf_family trm_hf_qwen2 = {
    .architecture = "Qwen2ForCausalLM",
    .model_type = "qwen2",
    .text_type = "qwen2_5_vl_text",
    .models = "Qwen 1.5, 2, 2.5, QwQ",
    .details = "bias on q, k, v; windows by layer",
    .read = read_qwen2,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

static trm_status read_qwen3(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->head_dim = 128;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    return read_windows(reader, config);
}

const trm_hf_family trm_hf_qwen3 = {
    .architecture = "Qwen3ForCausalLM",
    .model_type = "qwen3",
    .text_type = "qwen3_vl_text",
    .models = "Qwen3 0.6B to 32B",
    .details = "norms on q and k",
    .read = read_qwen3,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};
