/* Llama 4: layers with rope see chunks and have unit heads, the others see all and scale their queries by position; a
 * mixture whose experts' inputs are weighted, beside one for all tokens. */
#include "graph/import/hf/families.h"

#include "base/error.h"

/* In layers without rope. The first published files have a number in place of attn_temperature_tuning. */
static trm_status read_query_scale(const trm_hf_reader *reader, trm_hf_config *config)
{
    double scale = 0.1, length = 8192.0;
    int64_t number;
    bool is_on = true;
    if (trm_json_integer(trm_json_get(reader->object, "attn_temperature_tuning"), &number)) {
        is_on = number != 0;
    } else {
        TRM_TRY(trm_hf_read_bool(reader, "attn_temperature_tuning", &is_on));
    }
    TRM_TRY(trm_hf_read_real(reader, "attn_scale", &scale));
    TRM_TRY(trm_hf_read_real(reader, "floor_scale", &length));
    if (!(length >= 1.0 && length <= INT32_MAX) || length != (double)(int64_t)length) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: floor_scale is %g, expected a whole number of 1 to %d", length,
                 INT32_MAX);
    }
    config->query_scale = is_on ? scale : 0.0;
    config->query_scale_first = 1;
    config->query_scale_length = (int64_t)length;
    config->query_scale_unrotated = true;
    return TRM_OK;
}

static trm_status read_attention(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->unit_heads = true;
    config->chunked = true;
    config->window = 8192;
    config->interleaved_rope = true;
    config->rope[0].theta = 500000.0;
    TRM_TRY(trm_hf_read_rope(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "use_qk_norm", &config->unit_heads));
    TRM_TRY(trm_hf_read_size(reader, "attention_chunk_size", &config->window));
    if (config->window > INT32_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: attention_chunk_size is %lld, expected 1 to %d",
                 (long long)config->window, INT32_MAX);
    }
    TRM_TRY(trm_hf_read_unrotated_layers(reader, config));
    for (int64_t i = 0; i < config->layers; i++) {
        config->sliding[i] = !config->unrotated[i];
    }
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    return read_query_scale(reader, config);
}

/* Layers with experts: those listed, or every step-th. */
typedef struct expert_layers {
    const trm_json *list; /* may be NULL */
    int64_t step;
} expert_layers;

static bool is_dense(int64_t layer, const void *user)
{
    const expert_layers *experts = user;
    bool listed = false;
    for (const trm_json *item = trm_json_first(experts->list); item != NULL && !listed; item = trm_json_next(item)) {
        int64_t value;
        listed = trm_json_integer(item, &value) && value == layer;
    }
    return trm_json_is_array(experts->list) ? !listed : (layer + 1) % experts->step != 0;
}

static trm_status read_experts(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {.experts = "num_local_experts", .k = "num_experts_per_tok"};
    expert_layers experts = {.list = trm_json_get(reader->object, "moe_layers"), .step = 1};
    trm_hf_moe *moe = &config->moe;
    moe->experts = 16;
    moe->weighted_input = moe->turned = true;
    moe->router = (trm_router_params){.k = 1, .scoring = TRM_ROUTER_SIGMOID};
    TRM_TRY(trm_hf_read_moe(reader, &keys, config));
    moe->shared_width = moe->width;
    config->intermediate = 16384; /* of layers without experts */
    TRM_TRY(trm_hf_read_size(reader, "intermediate_size_mlp", &config->intermediate));
    TRM_TRY(trm_hf_read_size(reader, "interleave_moe_layer_step", &experts.step));
    return trm_hf_set_dense_layers(reader, config, is_dense, &experts);
}

static trm_status read_llama4(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->activation = TRM_ACTIVATION_SILU;
    config->norm_eps = 1e-5;
    config->head_dim = 128;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(read_attention(reader, config));
    return read_experts(reader, config);
}

const trm_hf_family trm_hf_llama4 = {
    .architecture = "Llama4ForCausalLM",
    .model_type = "llama4_text",
    .models = "Llama 4 text models",
    .details = "chunks by layer, full layers without rope, mixture of experts with weighted inputs, one shared",
    .read = read_llama4,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_NORM_NAMES, .gate = "feed_forward.gate_proj",
              .up = "feed_forward.up_proj", .down = "feed_forward.down_proj", .router = "feed_forward.router",
              .experts = "feed_forward.experts", .expert_gate = "gate_proj", .expert_up = "up_proj",
              .expert_down = "down_proj", .experts_gate_up = "feed_forward.experts.gate_up_proj",
              .experts_down = "feed_forward.experts.down_proj", .shared_gate = "feed_forward.shared_expert.gate_proj",
              .shared_up = "feed_forward.shared_expert.up_proj", .shared_down = "feed_forward.shared_expert.down_proj"},
};
