/* OLMo 2 and 3: norms on the outputs of attention and MLP, not on their inputs, and one over all heads of q and of k.
 * OLMo 3 has a window on three layers of four; only the others' rope is scaled. OLMoE has the norms of Llama, those of
 * q and k, and a mixture of experts. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_olmo2(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->norm_eps = 1e-5;
    config->norm_all_heads = true;
    TRM_TRY(trm_hf_read_common(reader, config));
    return trm_hf_read_attention_bias(reader, config);
}

const trm_hf_family trm_hf_olmo2 = {
    .architecture = "Olmo2ForCausalLM",
    .model_type = "olmo2",
    .models = "OLMo 2",
    .details = "norms after attention and MLP, norms over all heads of q and k",
    .read = read_olmo2,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES,
              TRM_HF_POST_NORM_NAMES},
};

static trm_status read_olmo3(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {.theta = "rope_theta", .sliding_theta = "rope_theta"};
    config->activation = TRM_ACTIVATION_SILU;
    config->norm_eps = 1e-5;
    config->norm_all_heads = true;
    config->window = 4096;
    config->rope[0].theta = config->rope[1].theta = 500000.0;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_windows(reader, config, 4));
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    return trm_hf_read_rope_keys(reader, &rope_keys, config);
}

const trm_hf_family trm_hf_olmo3 = {
    .architecture = "Olmo3ForCausalLM",
    .model_type = "olmo3",
    .models = "OLMo 3",
    .details = "as OLMo 2, and windows by layer, rope scaling in full layers",
    .read = read_olmo3,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES,
              TRM_HF_POST_NORM_NAMES},
};

static trm_status read_olmoe(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {.experts = "num_experts", .k = "num_experts_per_tok"};
    double clip = 0.0;
    config->norm_eps = 1e-5;
    config->norm_all_heads = true;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_real(reader, "clip_qkv", &clip));
    if (clip != 0.0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: clip_qkv is %g, expected null", clip);
    }
    config->moe.experts = 64;
    config->moe.router = (trm_router_params){.k = 8, .scoring = TRM_ROUTER_SOFTMAX};
    TRM_TRY(trm_hf_read_bool(reader, "norm_topk_prob", &config->moe.router.renormalize));
    return trm_hf_read_moe(reader, &keys, config);
}

const trm_hf_family trm_hf_olmoe = {
    .architecture = "OlmoeForCausalLM",
    .model_type = "olmoe",
    .models = "OLMoE 1B-7B",
    .details = "norms over all heads of q and k, mixture of experts",
    .read = read_olmoe,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_NORM_NAMES, TRM_HF_EXPERT_NAMES},
};
