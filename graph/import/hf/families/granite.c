/* Granite: Llama with multipliers on embeddings, branches, attention scores and logits; also with a mixture of experts,
 * beside which may be one for all tokens. */
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

static trm_status read_granitemoe(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {.experts = "num_local_experts", .k = "num_experts_per_tok"};
    TRM_TRY(read_granite(reader, config));
    config->moe.experts = 8;
    config->moe.router = (trm_router_params){.k = 2, .scoring = TRM_ROUTER_SOFTMAX_CHOSEN};
    return trm_hf_read_moe(reader, &keys, config);
}

#define GRANITE_MOE_NAMES                                                                                              \
    TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_NORM_NAMES,                                                     \
        .router = "block_sparse_moe.router.layer", .experts = "block_sparse_moe.experts",                              \
        .experts_gate_up = "block_sparse_moe.input_linear.weight",                                                     \
        .experts_down = "block_sparse_moe.output_linear.weight"

const trm_hf_family trm_hf_granitemoe = {
    .architecture = "GraniteMoeForCausalLM",
    .model_type = "granitemoe",
    .models = "Granite 3.0 and 3.1 1B-A400M, 3B-A800M",
    .details = "multipliers of Granite, mixture of experts",
    .read = read_granitemoe,
    .names = {GRANITE_MOE_NAMES},
};

/* shared_intermediate_size 0: there is no expert for all tokens. */
static trm_status read_granitemoeshared(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(read_granitemoe(reader, config));
    return trm_hf_read_count(reader, "shared_intermediate_size", &config->moe.shared_width);
}

const trm_hf_family trm_hf_granitemoeshared = {
    .architecture = "GraniteMoeSharedForCausalLM",
    .model_type = "granitemoeshared",
    .models = "Granite MoE with a shared expert",
    .details = "as Granite MoE, one shared",
    .read = read_granitemoeshared,
    .names = {GRANITE_MOE_NAMES, .shared_gate_up = "shared_mlp.input_linear",
              .shared_down = "shared_mlp.output_linear"},
};
