/* Granite: Llama with multipliers on embeddings, branches, attention scores and logits. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_granite(const trm_hf_reader *reader, trm_hf_config *config)
{
    double logits_scaling = 1.0;
    config->embedding_scale = config->residual_scale = config->attention_scale = 1.0;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias));
    TRM_TRY(trm_hf_read_real(reader, "embedding_multiplier", &config->embedding_scale));
    TRM_TRY(trm_hf_read_real(reader, "residual_multiplier", &config->residual_scale));
    TRM_TRY(trm_hf_read_real(reader, "attention_multiplier", &config->attention_scale));
    TRM_TRY(trm_hf_read_real(reader, "logits_scaling", &logits_scaling));
    if (config->embedding_scale == 0.0 || config->residual_scale == 0.0 || !(config->attention_scale > 0.0) ||
        logits_scaling == 0.0) {
        TRM_FAIL(
            TRM_ERROR_INVALID_MODEL,
            "config.json: embedding_multiplier %g, residual_multiplier %g, attention_multiplier %g, logits_scaling "
            "%g, expected positive numbers",
            config->embedding_scale, config->residual_scale, config->attention_scale, logits_scaling);
    }
    config->logit_scale = 1.0 / logits_scaling;
    return TRM_OK;
}

const trm_hf_family trm_hf_granite = {
    .architecture = "GraniteForCausalLM",
    .model_type = "granite",
    .models = "Granite 3.0 to 3.3",
    .details = "multipliers on embeddings, branches, scores and logits",
    .read = read_granite,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};
