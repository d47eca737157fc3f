/* ERNIE 4.5 without experts: Llama with interleaved rope. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_ernie4_5(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->head_dim = 128;
    config->norm_eps = 1e-5;
    config->interleaved_rope = true;
    config->rope[0].theta = 500000.0;
    config->tied = true;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "use_bias", &config->qkv_bias));
    config->o_bias = config->mlp_bias = config->qkv_bias;
    return TRM_OK;
}

const trm_hf_family trm_hf_ernie4_5 = {
    .architecture = "Ernie4_5ForCausalLM",
    .model_type = "ernie4_5",
    .models = "ERNIE 4.5 0.3B",
    .details = "interleaved rope",
    .read = read_ernie4_5,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};
