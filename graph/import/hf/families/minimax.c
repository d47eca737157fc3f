/* MiniMax-M2: norms over all heads of q and of k, partly rotated heads, a mixture of experts with corrections. */
#include "graph/import/hf/families.h"

#include "base/error.h"

/* Published files say how many elements of a head are rotated. */
static trm_status read_rope(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys keys = {.theta = "rope_theta", .partial = "partial_rotary_factor"};
    int64_t rotated = config->head_dim;
    TRM_TRY(trm_hf_read_size(reader, "rotary_dim", &rotated));
    config->rope[0].theta = 5e6;
    config->rope[0].partial = (double)rotated / (double)config->head_dim;
    return trm_hf_read_rope_keys(reader, &keys, config);
}

static trm_status read_minimax_m2(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {.experts = "num_local_experts", .k = "num_experts_per_tok"};
    trm_hf_moe *moe = &config->moe;
    config->head_dim = 128;
    config->activation = TRM_ACTIVATION_SILU;
    config->norm_all_heads = true;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(read_rope(reader, config));
    moe->experts = 256;
    moe->router_f32 = moe->correction = true;
    moe->router = (trm_router_params){.k = 8, .scoring = TRM_ROUTER_SIGMOID, .renormalize = true};
    return trm_hf_read_moe(reader, &keys, config);
}

const trm_hf_family trm_hf_minimax_m2 = {
    .architecture = "MiniMaxM2ForCausalLM",
    .model_type = "minimax_m2",
    .models = "MiniMax-M2, M2.1, M2.5",
    .details = "norms over all heads of q and k, partial rotary heads, mixture of experts with corrections",
    .read = read_minimax_m2,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_NORM_NAMES,
              TRM_HF_MIXTRAL_EXPERT_NAMES, .correction = "block_sparse_moe.e_score_correction_bias"},
};
