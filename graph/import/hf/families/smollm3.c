/* SmolLM3: Llama in which some layers, by default every fourth, know nothing of positions. */
#include "graph/import/hf/families.h"

#include "base/error.h"

/* With use_sliding_window, the layers that layer_types names; where it is absent, those without positions. */
static trm_status read_windows(const trm_hf_reader *reader, trm_hf_config *config)
{
    bool use_window = false;
    TRM_TRY(trm_hf_read_bool(reader, "use_sliding_window", &use_window));
    if (!use_window) {
        return TRM_OK;
    }
    TRM_TRY(trm_hf_read_windows(reader, config, 0));
    for (int64_t i = 0; i < config->layers; i++) {
        config->sliding[i] = config->sliding[i] && config->unrotated[i];
    }
    return trm_hf_read_layer_types(reader, config);
}

static trm_status read_smollm3(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->rope[0].theta = 2e6;
    config->tied = true;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias));
    TRM_TRY(trm_hf_read_unrotated_layers(reader, config));
    return read_windows(reader, config);
}

const trm_hf_family trm_hf_smollm3 = {
    .architecture = "SmolLM3ForCausalLM",
    .model_type = "smollm3",
    .models = "SmolLM3 3B",
    .details = "layers without rope",
    .read = read_smollm3,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};
