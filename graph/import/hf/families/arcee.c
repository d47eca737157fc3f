/* Arcee: Llama whose MLP has no gate and the activation relu^2. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_arcee(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->norm_eps = 1e-5;
    TRM_TRY(trm_hf_read_common(reader, config));
    if (trm_json_get(reader->object, "hidden_act") == NULL) {
        config->activation = TRM_ACTIVATION_RELU;
        config->squared = true;
    }
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    return trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias);
}

const trm_hf_family trm_hf_arcee = {
    .architecture = "ArceeForCausalLM",
    .model_type = "arcee",
    .models = "AFM 4.5B",
    .details = "relu^2 without a gate",
    .read = read_arcee,
    .names =
        {
            TRM_HF_MODEL_NAMES,
            TRM_HF_ATTENTION_NAMES,
            TRM_HF_NORM_NAMES,
            .up = "mlp.up_proj",
            .down = "mlp.down_proj",
        },
};
