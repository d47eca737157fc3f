/* Apertus: norms on the heads of q and k, an MLP of xIELU without a gate. */
#include "graph/import/hf/families.h"

#include <string.h>

#include "base/error.h"

static trm_status read_apertus(const trm_hf_reader *reader, trm_hf_config *config)
{
    const char *activation = "xielu";
    config->norm_eps = 1e-5;
    config->rope[0].theta = 12e6;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_json_member_string(reader->document, reader->object, "hidden_act", false, &activation));
    if (strcmp(activation, "xielu") != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: hidden_act is \"%s\", expected xielu", activation);
    }
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    return trm_hf_read_rope(reader, config);
}

const trm_hf_family trm_hf_apertus = {
    .architecture = "ApertusForCausalLM",
    .model_type = "apertus",
    .models = "Apertus 8B and 70B",
    .details = "norms on q and k, xIELU without a gate",
    .read = read_apertus,
    .names =
        {
            TRM_HF_MODEL_NAMES,
            TRM_HF_ATTENTION_NAMES,
            TRM_HF_QK_NORM_NAMES,
            .attention_norm = "attention_layernorm",
            .mlp_norm = "feedforward_layernorm",
            .up = "mlp.up_proj",
            .down = "mlp.down_proj",
            .xielu = "mlp.act_fn",
        },
};
