/* Phi-3 and Phi-4: Llama with q, k, v and gate, up stored fused, longrope, partly rotated heads. Phi-3.5-MoE has
 * LayerNorm with biases, and a mixture of experts whose router is a sparse mixer. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_phi3(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {
        .theta = "rope_theta", .partial = "partial_rotary_factor", .is_longrope = true};
    config->activation = TRM_ACTIVATION_SILU;
    config->rope[0].original_length = 4096;
    config->norm_eps = 1e-5;
    config->qkv_layout = TRM_HF_QKV_STACKED;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_rope_keys(reader, &rope_keys, config));
    return trm_hf_read_windows(reader, config, 0);
}

const trm_hf_family trm_hf_phi3 = {
    .architecture = "Phi3ForCausalLM",
    .model_type = "phi3",
    .models = "Phi-3, Phi-3.5, Phi-4, Phi-4-mini",
    .details = "fused weights, longrope, partial rotary heads, `sliding_window`",
    .read = read_phi3,
    .names =
        {
            TRM_HF_MODEL_NAMES,
            TRM_HF_NORM_NAMES,
            .qkv = "self_attn.qkv_proj",
            .o = "self_attn.o_proj",
            .gate_up = "mlp.gate_up_proj",
            .down = "mlp.down_proj",
        },
};

/* transformers takes short_factor at every length, and one of two magnitudes: those that differ are refused. */
static trm_status read_phimoe_rope(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *object = trm_json_get(reader->object, "rope_scaling");
    object = trm_json_is_object(object) ? object : trm_json_get(reader->object, "rope_parameters");
    trm_hf_rope *rope = &config->rope[0];
    double magnitudes[2] = {0.0, 0.0};
    config->rope[0].theta = 1e6;
    TRM_TRY(trm_hf_read_rope(reader, config));
    if (rope->type == TRM_HF_ROPE_DEFAULT) {
        return TRM_OK;
    }
    TRM_TRY(trm_json_member_number(reader->document, object, "short_mscale", true, &magnitudes[0]));
    TRM_TRY(trm_json_member_number(reader->document, object, "long_mscale", true, &magnitudes[1]));
    if (rope->type != TRM_HF_ROPE_LONGROPE || magnitudes[0] != magnitudes[1] || !(magnitudes[0] > 0.0)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "config.json: rope has short_mscale %g and long_mscale %g, expected longrope with equal ones",
                 magnitudes[0], magnitudes[1]);
    }
    rope->attention_factor = magnitudes[0];
    rope->long_factor = rope->short_factor;
    return TRM_OK;
}

static trm_status read_phimoe(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {.experts = "num_local_experts", .k = "num_experts_per_tok"};
    double noise = 0.01;
    config->activation = TRM_ACTIVATION_SILU;
    config->norm = TRM_NORM_LAYER;
    config->norm_bias = true;
    config->norm_eps = 1e-5;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "lm_head_bias", &config->head_bias));
    TRM_TRY(read_phimoe_rope(reader, config));
    TRM_TRY(trm_hf_read_windows(reader, config, 0));
    TRM_TRY(trm_hf_read_real(reader, "router_jitter_noise", &noise));
    if (!(noise >= 0.0 && noise < 1.0)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: router_jitter_noise is %g, expected 0 to 1", noise);
    }
    config->moe.experts = 16;
    config->moe.router = (trm_router_params){.k = 2, .scoring = TRM_ROUTER_SPARSE_MIXER, .epsilon = (float)noise};
    TRM_TRY(trm_hf_read_moe(reader, &keys, config));
    if (config->moe.router.k != 2) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: num_experts_per_tok is %d, expected 2 of a sparse mixer",
                 (int)config->moe.router.k);
    }
    return TRM_OK;
}

const trm_hf_family trm_hf_phimoe = {
    .architecture = "PhimoeForCausalLM",
    .model_type = "phimoe",
    .other_architecture = "PhiMoEForCausalLM",
    .models = "Phi-3.5-MoE",
    .details = "LayerNorm, biases, mixture of experts by a sparse mixer",
    .read = read_phimoe,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_NORM_NAMES, TRM_HF_MIXTRAL_EXPERT_NAMES},
};
