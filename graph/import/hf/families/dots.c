/* dots.llm1: attention of Qwen3, the mixture of DeepSeek-V3. */
#include "graph/import/hf/families.h"

#include "base/error.h"

/* From max_window_layers on, unless layer_types says otherwise. */
static trm_status read_windows(const trm_hf_reader *reader, trm_hf_config *config)
{
    int64_t full_layers = 62;
    config->window = 4096;
    TRM_TRY(trm_hf_read_count(reader, "max_window_layers", &full_layers));
    TRM_TRY(trm_hf_read_windows(reader, config, 0));
    for (int64_t i = 0; i < config->layers && i < full_layers; i++) {
        config->sliding[i] = false;
    }
    return trm_hf_read_layer_types(reader, config);
}

static trm_status read_dots1(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(read_windows(reader, config));
    config->moe.width = 1408;
    return trm_hf_read_sigmoid_moe(reader, 0, config);
}

const trm_hf_family trm_hf_dots1 = {
    .architecture = "Dots1ForCausalLM",
    .model_type = "dots1",
    .models = "dots.llm1",
    .details = "norms on q and k, mixture of experts with corrections, shared ones",
    .read = read_dots1,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES,
              TRM_HF_EXPERT_NAMES, TRM_HF_SHARED_NAMES, .correction = "mlp.gate.e_score_correction_bias"},
};
