/*
 * GPT-2 and GPT-NeoX: LayerNorm with bias, MLP without a gate. GPT-2 learns its positions and stores linear weights as
 * [in, out]; NeoX rotates part of each head, interleaves q, k, v by head and may run attention and MLP in parallel.
 */
#include "graph/import/hf/families.h"

#include <math.h>

#include "base/error.h"

static trm_status read_gpt2(const trm_hf_reader *reader, trm_hf_config *config)
{
    bool scale_weights = true;
    config->activation = TRM_ACTIVATION_GELU_TANH;
    config->norm = TRM_NORM_LAYER;
    config->norm_eps = 1e-5;
    config->norm_bias = config->qkv_bias = config->o_bias = config->mlp_bias = true;
    config->qkv_layout = TRM_HF_QKV_STACKED;
    config->rotary = false;
    config->tied = true;
    TRM_TRY(trm_hf_read_size(reader, "n_embd", &config->hidden));
    TRM_TRY(trm_hf_read_size(reader, "n_layer", &config->layers));
    TRM_TRY(trm_hf_read_size(reader, "n_head", &config->heads));
    TRM_TRY(trm_hf_read_size(reader, "n_positions", &config->context_length));
    TRM_TRY(trm_hf_read_size(reader, "vocab_size", &config->vocab));
    config->intermediate = 4 * config->hidden;
    TRM_TRY(trm_hf_read_size(reader, "n_inner", &config->intermediate));
    TRM_TRY(trm_hf_read_bool(reader, "tie_word_embeddings", &config->tied));
    TRM_TRY(trm_hf_check_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "activation_function", config));
    TRM_TRY(trm_hf_read_real(reader, "layer_norm_epsilon", &config->norm_eps));
    TRM_TRY(trm_hf_read_bool(reader, "scale_attn_weights", &scale_weights));
    TRM_TRY(trm_hf_read_bool(reader, "scale_attn_by_inverse_layer_idx", &config->scale_by_layer));
    config->attention_scale = scale_weights ? 1.0 / sqrt((double)config->head_dim) : 1.0;
    return trm_hf_refuse(reader, "add_cross_attention");
}

const trm_hf_family trm_hf_gpt2 = {
    .architecture = "GPT2LMHeadModel",
    .model_type = "gpt2",
    .models = "GPT-2",
    .details = "learned positions, `scale_attn_by_inverse_layer_idx`; no quantized weights",
    .read = read_gpt2,
    .names =
        {
            .roots = {"transformer.", ""},
            .embedding = "wte",
            .positions = "wpe",
            .layers = "h",
            .qkv = "attn.c_attn",
            .o = "attn.c_proj",
            .up = "mlp.c_fc",
            .down = "mlp.c_proj",
            .attention_norm = "ln_1",
            .mlp_norm = "ln_2",
            .final_norm = "ln_f",
            .heads = {"lm_head"},
            .transposed = true,
        },
};

static trm_status read_gpt_neox(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {.theta = "rotary_emb_base", .partial = "rotary_pct"};
    config->activation = TRM_ACTIVATION_GELU;
    config->norm = TRM_NORM_LAYER;
    config->norm_eps = 1e-5;
    config->norm_bias = config->qkv_bias = config->mlp_bias = true;
    config->qkv_layout = TRM_HF_QKV_PER_HEAD;
    config->parallel_residual = true;
    config->rope[0].partial = 0.25;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    if (config->kv_heads != config->heads) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: GPT-NeoX with %lld key-value heads, expected all %lld",
                 (long long)config->kv_heads, (long long)config->heads);
    }
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "layer_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_bool(reader, "attention_bias", &config->qkv_bias));
    config->o_bias = config->qkv_bias;
    TRM_TRY(trm_hf_read_bool(reader, "use_parallel_residual", &config->parallel_residual));
    return trm_hf_read_rope_keys(reader, &rope_keys, config);
}

const trm_hf_family trm_hf_gpt_neox = {
    .architecture = "GPTNeoXForCausalLM",
    .model_type = "gpt_neox",
    .models = "GPT-NeoX, Pythia",
    .details = "interleaved q, k, v, parallel residual or not, partial rotary heads",
    .read = read_gpt_neox,
    .names =
        {
            .roots = {"gpt_neox.", ""},
            .embedding = "embed_in",
            .layers = "layers",
            .qkv = "attention.query_key_value",
            .o = "attention.dense",
            .up = "mlp.dense_h_to_4h",
            .down = "mlp.dense_4h_to_h",
            .attention_norm = "input_layernorm",
            .mlp_norm = "post_attention_layernorm",
            .final_norm = "final_layer_norm",
            .heads = {"embed_out", "lm_head"},
        },
};

/* gpt-oss: a mixture of experts in every layer, with biases and a clamped SwiGLU; attention sinks; a window on every
 * other layer, beginning with the first. */
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
