/* gpt-oss: a mixture of experts in every layer, with biases and a clamped SwiGLU; attention sinks; a window on every
 * other layer, beginning with the first. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_gpt_oss(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {"num_local_experts", "num_experts_per_tok", NULL};
    trm_hf_moe *moe = &config->moe;
    config->head_dim = 64;
    config->norm_eps = 1e-5;
    config->rope[0].theta = 150000.0;
    config->qkv_bias = true;
    config->window = 128;
    *moe = (trm_hf_moe){.experts = 128,
                        .router = {.k = 4, .scoring = TRM_ROUTER_SOFTMAX_CHOSEN},
                        .router_bias = true,
                        .activation = TRM_EXPERT_SWIGLU_OAI,
                        .expert_bias = true,
                        .interleaved = true,
                        .turned = true,
                        .limit = 7.0,
                        .alpha = 1.702};
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_windows(reader, config, 2));
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    TRM_TRY(trm_hf_read_real(reader, "swiglu_limit", &moe->limit));
    TRM_TRY(trm_hf_read_real(reader, "swiglu_alpha", &moe->alpha));
    return trm_hf_read_moe(reader, &keys, config);
}

const trm_hf_family trm_hf_gpt_oss = {
    .architecture = "GptOssForCausalLM",
    .model_type = "gpt_oss",
    .models = "gpt-oss-20b, gpt-oss-120b",
    .details = "mixture of experts with biases, in MXFP4; attention sinks; windows by layer",
    .read = read_gpt_oss,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_NORM_NAMES, .sinks = "self_attn.sinks",
              .router = "mlp.router", .experts = "mlp.experts", .experts_gate_up = "mlp.experts.gate_up_proj",
              .experts_down = "mlp.experts.down_proj"},
};
