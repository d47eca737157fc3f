/* Seed-OSS: Llama with biases on q, k, v and heads wider than hidden / heads. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_seed_oss(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->head_dim = 128;
    config->qkv_bias = true;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "attention_bias", &config->qkv_bias));
    TRM_TRY(trm_hf_read_bool(reader, "attention_out_bias", &config->o_bias));
    return trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias);
}

const trm_hf_family trm_hf_seed_oss = {
    .architecture = "SeedOssForCausalLM",
    .model_type = "seed_oss",
    .models = "Seed-OSS 36B",
    .details = "bias on q, k, v",
    .read = read_seed_oss,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};
