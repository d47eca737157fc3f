/* Qwen2 (bias on q, k, v) and Qwen3 (norms on q and k); a window on the layers from max_window_layers on; both also
 * with a mixture of experts. Qwen3-Next and Qwen3.5: the gated delta rule in most layers, attention with an output gate
 * in the others. */
#include "graph/import/hf/families.h"

#include <string.h>

#include "base/error.h"

static trm_status read_windows(const trm_hf_reader *reader, trm_hf_config *config)
{
    bool use_window = false;
    int64_t full_layers = 28;
    TRM_TRY(trm_hf_read_bool(reader, "use_sliding_window", &use_window));
    TRM_TRY(trm_json_member_integer(reader->document, reader->object, "max_window_layers", false, &full_layers));
    if (use_window) {
        config->window = 4096;
        TRM_TRY(trm_hf_read_windows(reader, config, 0)); /* all layers that may have one */
        for (int64_t i = 0; i < config->layers && i < full_layers; i++) {
            config->sliding[i] = false;
        }
    }
    return trm_hf_read_layer_types(reader, config);
}

static trm_status read_qwen2(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {.theta = "rope_theta", .is_mrope = true};
    config->activation = TRM_ACTIVATION_SILU;
    config->qkv_bias = true;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_rope_keys(reader, &rope_keys, config));
    return read_windows(reader, config);
}

const trm_hf_family trm_hf_qwen2 = {
    .architecture = "Qwen2ForCausalLM",
    .model_type = "qwen2",
    .text_type = "qwen2_5_vl_text",
    .models = "Qwen 1.5, 2, 2.5, QwQ",
    .details = "bias on q, k, v; windows by layer",
    .read = read_qwen2,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

static trm_status read_qwen3(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->head_dim = 128;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    return read_windows(reader, config);
}

const trm_hf_family trm_hf_qwen3 = {
    .architecture = "Qwen3ForCausalLM",
    .model_type = "qwen3",
    .text_type = "qwen3_vl_text",
    .models = "Qwen3 0.6B to 32B",
    .details = "norms on q and k",
    .read = read_qwen3,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

/* ---- mixtures of experts -------------------------------------------------------------------------- */

#define SHARED_NAMES                                                                                                   \
    .shared_gate = "mlp.shared_expert.gate_proj", .shared_up = "mlp.shared_expert.up_proj",                            \
    .shared_down = "mlp.shared_expert.down_proj", .shared_router = "mlp.shared_expert_gate"

/* decoder_sparse_step and mlp_only_layers: which layers have an ordinary MLP. */
typedef struct dense_layers {
    int64_t step;
    const trm_json *listed; /* may be NULL */
} dense_layers;

static bool is_dense(int64_t layer, const void *user)
{
    const dense_layers *dense = user;
    bool listed = false;
    for (const trm_json *item = trm_json_first(dense->listed); item != NULL && !listed; item = trm_json_next(item)) {
        int64_t value;
        listed = trm_json_integer(item, &value) && value == layer;
    }
    return listed || (layer + 1) % dense->step != 0;
}

/* The arguments are defaults. */
static trm_status read_experts(const trm_hf_reader *reader, trm_hf_config *config, int64_t experts, int64_t k,
                               int64_t width)
{
    trm_hf_moe *moe = &config->moe;
    moe->experts = experts;
    moe->width = width;
    bool renormalize = false;
    dense_layers dense = {.step = 1, .listed = trm_json_get(reader->object, "mlp_only_layers")};
    TRM_TRY(trm_hf_read_size(reader, "num_local_experts", &moe->experts)); /* transformers 5 */
    TRM_TRY(trm_hf_read_size(reader, "num_experts", &moe->experts));
    TRM_TRY(trm_hf_read_size(reader, "num_experts_per_tok", &k));
    TRM_TRY(trm_hf_read_size(reader, "moe_intermediate_size", &moe->width));
    TRM_TRY(trm_hf_read_size(reader, "decoder_sparse_step", &dense.step));
    TRM_TRY(trm_hf_read_bool(reader, "norm_topk_prob", &renormalize));
    moe->router = (trm_router_params){.k = (int32_t)k, .scoring = TRM_ROUTER_SOFTMAX, .renormalize = renormalize};
    TRM_TRY(trm_hf_set_dense_layers(reader, config, is_dense, &dense));
    return trm_hf_check_moe(config);
}

static trm_status read_qwen2_moe(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(read_qwen2(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "qkv_bias", &config->qkv_bias));
    config->moe.shared_width = 5632;
    TRM_TRY(trm_hf_read_size(reader, "shared_expert_intermediate_size", &config->moe.shared_width));
    return read_experts(reader, config, 60, 4, 1408);
}

const trm_hf_family trm_hf_qwen2_moe = {
    .architecture = "Qwen2MoeForCausalLM",
    .model_type = "qwen2_moe",
    .models = "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
    .details = "mixture of experts, one shared",
    .read = read_qwen2_moe,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES, TRM_HF_EXPERT_NAMES,
              SHARED_NAMES},
};

/* Whether it is the text part of Qwen3-VL's mixture, which always renormalises and has its experts turned. */
static bool is_qwen3_vl_moe(const trm_hf_reader *reader)
{
    const char *type = trm_json_string(trm_json_get(reader->object, "model_type"));
    return type != NULL && strcmp(type, "qwen3_vl_moe_text") == 0;
}

static trm_status read_qwen3_moe(const trm_hf_reader *reader, trm_hf_config *config)
{
    if (is_qwen3_vl_moe(reader)) {
        config->tied = true;
        config->rope[0].theta = 500000.0;
        config->moe.turned = true;
        TRM_TRY(trm_hf_read_common(reader, config));
        TRM_TRY(trm_hf_read_attention_bias(reader, config));
        TRM_TRY(read_experts(reader, config, 60, 4, 1408));
        config->moe.router.renormalize = true;
        return TRM_OK;
    }
    TRM_TRY(trm_hf_read_common(reader, config)); /* head_dim follows from the heads where absent */
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(read_windows(reader, config));
    return read_experts(reader, config, 128, 8, 768);
}

const trm_hf_family trm_hf_qwen3_moe = {
    .architecture = "Qwen3MoeForCausalLM",
    .model_type = "qwen3_moe",
    .text_type = "qwen3_vl_moe_text",
    .models = "Qwen3-30B-A3B, 235B-A22B, Qwen3-Coder",
    .details = "norms on q and k, mixture of experts",
    .read = read_qwen3_moe,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES,
              TRM_HF_EXPERT_NAMES},
};

/* ---- the gated delta rule ------------------------------------------------------------------------- */

#define DELTA_NAMES                                                                                                    \
    .delta_convolution = "linear_attn.conv1d", .delta_a_log = "linear_attn.A_log",                                     \
    .delta_a_bias = "linear_attn.dt_bias", .delta_norm = "linear_attn.norm", .delta_out = "linear_attn.out_proj"
#define SEPARATE_DELTA_NAMES                                                                                           \
    DELTA_NAMES, .delta_qkv = "linear_attn.in_proj_qkv", .delta_z = "linear_attn.in_proj_z",                           \
                 .delta_b = "linear_attn.in_proj_b", .delta_a = "linear_attn.in_proj_a"

/* Which layers have the rule: layer_types, or all but every full_attention_interval-th. */
static trm_status read_delta_layers(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *types = trm_json_get(reader->object, "layer_types"), *type = trm_json_first(types);
    int64_t interval = 4;
    TRM_TRY(trm_hf_read_size(reader, "full_attention_interval", &interval));
    if (types != NULL && (!trm_json_is_array(types) || (int64_t)trm_json_count(types) < config->layers)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: layer_types has %zu elements, expected a list of %lld",
                 trm_json_count(types), (long long)config->layers);
    }
    config->delta.layers = trm_arena_array(reader->arena, (size_t)config->layers, sizeof(*config->delta.layers));
    if (config->delta.layers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %lld layers", (long long)config->layers);
    }
    for (int64_t i = 0; i < config->layers; i++) {
        const char *name = trm_json_string(type);
        config->delta.layers[i] =
            types == NULL ? (i + 1) % interval != 0 : name != NULL && strcmp(name, "linear_attention") == 0;
        if (types != NULL && !config->delta.layers[i] && (name == NULL || strcmp(name, "full_attention") != 0)) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                     "config.json: layer_types[%lld] is %s, expected full_attention or linear_attention", (long long)i,
                     name == NULL ? "no string" : name);
        }
        type = types == NULL ? NULL : trm_json_next(type);
    }
    return TRM_OK;
}

/* All but the MLP; where there is no key of its width, it is the default. */
static trm_status read_delta(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_rope_keys rope_keys = {
        .theta = "rope_theta", .partial = "partial_rotary_factor", .is_mrope = true};
    trm_hf_delta *delta = &config->delta;
    *delta = (trm_hf_delta){.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .taps = 4};
    config->activation = TRM_ACTIVATION_SILU;
    config->head_dim = 256;
    config->norm_offset = 1.0f;
    config->output_gate = true;
    config->rope[0].partial = 0.25;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_rope_keys(reader, &rope_keys, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_size(reader, "linear_num_key_heads", &delta->key_heads));
    TRM_TRY(trm_hf_read_size(reader, "linear_num_value_heads", &delta->value_heads));
    TRM_TRY(trm_hf_read_size(reader, "linear_key_head_dim", &delta->key_dim));
    TRM_TRY(trm_hf_read_size(reader, "linear_value_head_dim", &delta->value_dim));
    TRM_TRY(trm_hf_read_size(reader, "linear_conv_kernel_dim", &delta->taps));
    if (delta->value_heads % delta->key_heads != 0 || config->activation != TRM_ACTIVATION_SILU) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "config.json: linear_num_value_heads is %lld and linear_num_key_heads %lld, expected a multiple, and "
                 "hidden_act silu",
                 (long long)delta->value_heads, (long long)delta->key_heads);
    }
    return read_delta_layers(reader, config);
}

static trm_status read_shared_width(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->moe.shared_width = 512;
    return trm_hf_read_size(reader, "shared_expert_intermediate_size", &config->moe.shared_width);
}

static trm_status read_qwen3_next(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->intermediate = 5632;
    TRM_TRY(read_delta(reader, config));
    TRM_TRY(read_shared_width(reader, config));
    TRM_TRY(read_experts(reader, config, 512, 10, 512));
    config->moe.router.renormalize = true;
    return trm_hf_read_bool(reader, "norm_topk_prob", &config->moe.router.renormalize);
}

const trm_hf_family trm_hf_qwen3_next = {
    .architecture = "Qwen3NextForCausalLM",
    .model_type = "qwen3_next",
    .models = "Qwen3-Next-80B-A3B, Qwen3-Coder-Next",
    .details = "gated delta rule in 3 of 4 layers, output gate; mixture of experts, one shared",
    .read = read_qwen3_next,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES,
              TRM_HF_EXPERT_NAMES, SHARED_NAMES, DELTA_NAMES, TRM_HF_MTP_ROOT_NAMES,
              .delta_qkvz = "linear_attn.in_proj_qkvz", .delta_ba = "linear_attn.in_proj_ba"},
};

const trm_hf_family trm_hf_qwen3_5 = {
    .architecture = "Qwen3_5ForCausalLM",
    .model_type = "qwen3_5_text",
    .models = "text part of Qwen3.5 and 3.6 0.8B to 27B",
    .details = "gated delta rule in 3 of 4 layers, output gate",
    .read = read_delta,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES,
              SEPARATE_DELTA_NAMES, TRM_HF_MTP_ROOT_NAMES},
};

/* There is no ordinary MLP, and no key of its width. */
static trm_status read_qwen3_5_moe(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->intermediate = 512;
    TRM_TRY(trm_hf_read_size(reader, "moe_intermediate_size", &config->intermediate));
    TRM_TRY(read_delta(reader, config));
    TRM_TRY(read_shared_width(reader, config));
    TRM_TRY(read_experts(reader, config, 256, 8, 512));
    config->moe.router.renormalize = true;
    return TRM_OK;
}

const trm_hf_family trm_hf_qwen3_5_moe = {
    .architecture = "Qwen3_5MoeForCausalLM",
    .model_type = "qwen3_5_moe_text",
    .models = "text part of Qwen3.5 and 3.6 35B-A3B to 397B-A17B",
    .details = "gated delta rule in 3 of 4 layers, output gate; mixture of experts, one shared",
    .read = read_qwen3_5_moe,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES,
              TRM_HF_EXPERT_NAMES, SHARED_NAMES, SEPARATE_DELTA_NAMES, TRM_HF_MTP_ROOT_NAMES},
};
