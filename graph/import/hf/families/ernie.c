/* ERNIE 4.5: Llama with interleaved rope; also with a mixture of experts. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_ernie4_5(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->head_dim = 128;
    config->norm_eps = 1e-5;
    config->interleaved_rope = true;
    config->rope[0].theta = 500000.0;
    config->tied = true;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "use_bias", &config->qkv_bias));
    config->o_bias = config->mlp_bias = config->qkv_bias;
    return TRM_OK;
}

const trm_hf_family trm_hf_ernie4_5 = {
    .architecture = "Ernie4_5ForCausalLM",
    .model_type = "ernie4_5",
    .models = "ERNIE 4.5 0.3B",
    .details = "interleaved rope",
    .read = read_ernie4_5,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

/* Layers with experts: from the first to the last, those whose number and 1 more is a multiple of the interval. */
typedef struct expert_layers {
    int64_t first, last, interval;
} expert_layers;

static bool is_dense(int64_t layer, const void *user)
{
    const expert_layers *experts = user;
    return layer < experts->first || layer > experts->last || (layer + 1) % experts->interval != 0;
}

static trm_status read_expert_layers(const trm_hf_reader *reader, trm_hf_config *config)
{
    expert_layers experts = {.first = 1, .last = -1, .interval = 1};
    TRM_TRY(trm_hf_read_count(reader, "moe_layer_start_index", &experts.first));
    TRM_TRY(trm_json_member_integer(reader->document, reader->object, "moe_layer_end_index", false, &experts.last));
    TRM_TRY(trm_hf_read_size(reader, "moe_layer_interval", &experts.interval));
    experts.last = experts.last == -1 ? config->layers - 1 : experts.last;
    return trm_hf_set_dense_layers(reader, config, is_dense, &experts);
}

static trm_status read_ernie4_5_moe(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {.experts = "moe_num_experts", .k = "moe_k", .width = "moe_intermediate_size"};
    trm_hf_moe *moe = &config->moe;
    int64_t shared = 2;
    double least = 1e-12;
    config->norm_eps = 1e-5;
    config->interleaved_rope = true;
    config->rope[0].theta = 500000.0;
    config->tied = true;
    TRM_TRY(trm_hf_read_common(reader, config)); /* head_dim follows from the heads where absent */
    TRM_TRY(trm_hf_read_bool(reader, "use_bias", &config->qkv_bias));
    config->o_bias = config->mlp_bias = config->qkv_bias;
    TRM_TRY(trm_hf_read_real(reader, "moe_norm_min", &least));
    if (!(least >= 0.0 && least <= 1e-6)) { /* the scores of a token's experts sum to more */
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: moe_norm_min is %g, expected 0 to 1e-6", least);
    }
    moe->experts = 64;
    moe->width = 1536;
    moe->router_f32 = moe->correction = true;
    moe->router = (trm_router_params){.k = 6, .scoring = TRM_ROUTER_SOFTMAX, .renormalize = true};
    TRM_TRY(trm_hf_read_moe(reader, &keys, config));
    TRM_TRY(trm_hf_read_count(reader, "moe_num_shared_experts", &shared));
    moe->shared_width = shared * moe->width;
    return read_expert_layers(reader, config);
}

const trm_hf_family trm_hf_ernie4_5_moe = {
    .architecture = "Ernie4_5_MoeForCausalLM",
    .model_type = "ernie4_5_moe",
    .models = "ERNIE 4.5 21B-A3B, 300B-A47B",
    .details = "interleaved rope, mixture of experts with corrections, shared ones",
    .read = read_ernie4_5_moe,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES, TRM_HF_EXPERT_NAMES,
              TRM_HF_SHARED_NAMES, .correction = "mlp.moe_statics.e_score_correction_bias"},
};
