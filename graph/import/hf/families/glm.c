/* GLM-4 (9B and 32B): interleaved rope on half of each head, gate and up fused; the releases of 2025 also have norms on
 * the outputs of attention and MLP. GLM-4.5 is Llama with rope on half of each head and the mixture of DeepSeek-V3. */
#include "graph/import/hf/families.h"

#include "base/error.h"

#define GLM_NAMES                                                                                                      \
    TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_NORM_NAMES, .gate_up = "mlp.gate_up_proj",                      \
                                                                   .down = "mlp.down_proj"

static trm_status read_glm(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {.theta = "rope_theta", .partial = "partial_rotary_factor"};
    config->activation = TRM_ACTIVATION_SILU;
    config->norm_eps = 1.5625e-7;
    config->head_dim = 128;
    config->qkv_bias = true;
    config->interleaved_rope = true;
    config->rope[0].partial = 0.5;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_bool(reader, "attention_bias", &config->qkv_bias));
    return trm_hf_read_rope_keys(reader, &rope_keys, config);
}

const trm_hf_family trm_hf_glm = {
    .architecture = "GlmForCausalLM",
    .model_type = "glm",
    .models = "GLM-4 9B of 2024, GLM-Edge",
    .details = "interleaved rope on half of each head, fused gate and up",
    .read = read_glm,
    .names = {GLM_NAMES},
};

const trm_hf_family trm_hf_glm4 = {
    .architecture = "Glm4ForCausalLM",
    .model_type = "glm4",
    .models = "GLM-4-0414, GLM-Z1",
    .details = "as GLM, four norms a layer",
    .read = read_glm,
    .names = {GLM_NAMES, .attention_post_norm = "post_self_attn_layernorm", .mlp_post_norm = "post_mlp_layernorm"},
};

static trm_status read_glm4_moe(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {.theta = "rope_theta", .partial = "partial_rotary_factor"};
    bool has_norms = false;
    config->activation = TRM_ACTIVATION_SILU;
    config->norm_eps = 1e-5;
    config->rope[0].partial = 0.5;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_bool(reader, "attention_bias", &config->qkv_bias));
    TRM_TRY(trm_hf_read_bool(reader, "use_qk_norm", &has_norms));
    config->plain_heads = !has_norms;
    TRM_TRY(trm_hf_read_rope_keys(reader, &rope_keys, config));
    TRM_TRY(trm_hf_read_count(reader, "num_nextn_predict_layers", &config->n_predicting));
    config->moe.experts = 128;
    config->moe.width = 1408;
    config->moe.router = (trm_router_params){.k = 8, .renormalize = true};
    return trm_hf_read_sigmoid_moe(reader, 1, config);
}

const trm_hf_family trm_hf_glm4_moe = {
    .architecture = "Glm4MoeForCausalLM",
    .model_type = "glm4_moe",
    .text_type = "glm4v_moe_text", /* has attention_bias by default, which files give */
    .models = "GLM-4.5, 4.5-Air, 4.6, 4.7",
    .details = "rope on half of each head, mixture of experts with corrections, a shared one",
    .read = read_glm4_moe,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES,
              TRM_HF_EXPERT_NAMES, TRM_HF_SHARED_NAMES, TRM_HF_MTP_LAYER_NAMES,
              .correction = "mlp.gate.e_score_correction_bias"},
};
