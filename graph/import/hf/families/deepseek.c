/* DeepSeek-V2 and V3, and Kimi-K2, which is a V3: latent attention, and a mixture of experts in groups behind a few
 * dense layers. DeepSeek-V3.2 and GLM-5 besides have sparse attention, which is the usual one up to a length. */
#include "graph/import/hf/families.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

#define DEEPSEEK_NAMES                                                                                                 \
    TRM_HF_MODEL_NAMES, .q = "self_attn.q_proj", .q_a = "self_attn.q_a_proj", .q_a_norm = "self_attn.q_a_layernorm",   \
                        .q_b = "self_attn.q_b_proj", .kv_a = "self_attn.kv_a_proj_with_mqa",                           \
                        .kv_a_norm = "self_attn.kv_a_layernorm", .kv_b = "self_attn.kv_b_proj",                        \
                        .o = "self_attn.o_proj", TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES, TRM_HF_EXPERT_NAMES,             \
                        TRM_HF_SHARED_NAMES

#define MOST 65536 /* elements of a vector */

/* Yarn makes scores larger besides, by the square of its scale. */
static trm_status read_scale(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_hf_rope *rope = &config->rope[0];
    const trm_json *object = trm_json_get(reader->object, "rope_scaling");
    double all = 0.0;
    object = trm_json_is_object(object) ? object : trm_json_get(reader->object, "rope_parameters");
    config->attention_scale = 1.0 / sqrt((double)(config->latent.plain + config->latent.rotated));
    if (rope->type == TRM_HF_ROPE_DEFAULT) {
        return TRM_OK;
    }
    TRM_TRY(trm_json_member_number(reader->document, object, "mscale_all_dim", false, &all));
    if (all != 0.0 && rope->factor > 1.0) {
        const double scale = 0.1 * all * log(rope->factor) + 1.0;
        config->attention_scale *= scale * scale;
    }
    return TRM_OK;
}

/* Sizes of latents and heads, and the rope; a head is first what is rotated of it, in the end its value. */
static trm_status read_latent(const trm_hf_reader *reader, trm_hf_config *config)
{
    trm_hf_latent *l = &config->latent;
    int64_t value = 128;
    l->rank = 512;
    l->plain = 128;
    l->rotated = 64;
    config->head_dim = 1;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    if (trm_json_get(reader->object, "q_lora_rank") != NULL) { /* null: queries are made at once */
        l->query_rank = 1;
        TRM_TRY(trm_hf_read_size(reader, "q_lora_rank", &l->query_rank));
    }
    TRM_TRY(trm_hf_read_size(reader, "kv_lora_rank", &l->rank));
    TRM_TRY(trm_hf_read_size(reader, "qk_nope_head_dim", &l->plain));
    TRM_TRY(trm_hf_read_size(reader, "qk_rope_head_dim", &l->rotated));
    TRM_TRY(trm_hf_read_size(reader, "v_head_dim", &value));
    if (l->plain > MOST || l->rotated > MOST || value > MOST || l->rank > MOST) {
        TRM_FAIL(
            TRM_ERROR_INVALID_MODEL,
            "config.json: heads of %lld and %lld elements, values of %lld and latents of %lld, expected at most %d",
            (long long)l->plain, (long long)l->rotated, (long long)value, (long long)l->rank, MOST);
    }
    config->kv_heads = config->heads;
    config->head_dim = l->rotated;
    TRM_TRY(trm_hf_read_rope(reader, config));
    config->head_dim = value;
    return read_scale(reader, config);
}

/* Layers with an ordinary MLP: the first ones, and later those whose number is no multiple of `step`. */
typedef struct dense_layers {
    int64_t first, step;
} dense_layers;

static bool is_dense(int64_t layer, const void *user)
{
    const dense_layers *dense = user;
    return layer < dense->first || layer % dense->step != 0;
}

static trm_status read_dense_layers(const trm_hf_reader *reader, int64_t first, trm_hf_config *config)
{
    dense_layers dense = {first, 1};
    TRM_TRY(trm_hf_read_count(reader, "first_k_dense_replace", &dense.first));
    TRM_TRY(trm_hf_read_size(reader, "moe_layer_freq", &dense.step));
    return trm_hf_set_dense_layers(reader, config, is_dense, &dense);
}

/* All but the mixture. */
static trm_status read_decoder(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->activation = TRM_ACTIVATION_SILU;
    TRM_TRY(read_latent(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    TRM_TRY(trm_hf_read_count(reader, "num_nextn_predict_layers", &config->n_predicting));
    return trm_hf_read_attention_bias(reader, config);
}

/* Groups, by the best of each, where topk_method says so. */
static trm_status read_groups(const trm_hf_reader *reader, trm_router_params *router)
{
    const char *method = "greedy";
    int64_t groups = 0, top_groups = 0;
    TRM_TRY(trm_json_member_string(reader->document, reader->object, "topk_method", false, &method));
    if (method == NULL || strcmp(method, "greedy") == 0) {
        return TRM_OK;
    }
    if (strcmp(method, "group_limited_greedy") != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: topk_method is \"%s\", expected greedy or group_limited_greedy",
                 method);
    }
    TRM_TRY(trm_hf_read_size(reader, "n_group", &groups));
    TRM_TRY(trm_hf_read_size(reader, "topk_group", &top_groups));
    router->groups = (int32_t)(groups < INT32_MAX ? groups : INT32_MAX);
    router->top_groups = (int32_t)(top_groups < INT32_MAX ? top_groups : INT32_MAX);
    return TRM_OK;
}

static trm_status read_deepseek_v2(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {
        .experts = "n_routed_experts", .k = "num_experts_per_tok", .width = "moe_intermediate_size"};
    trm_hf_moe *moe = &config->moe;
    const char *scoring = "softmax";
    double scale = 1.0;
    int64_t shared = 2;
    config->interleaved_rope = true;
    TRM_TRY(read_decoder(reader, config));
    TRM_TRY(trm_json_member_string(reader->document, reader->object, "scoring_func", false, &scoring));
    if (scoring != NULL && strcmp(scoring, "softmax") != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: scoring_func is \"%s\", expected \"softmax\"", scoring);
    }
    TRM_TRY(trm_hf_refuse(reader, "norm_topk_prob"));
    TRM_TRY(trm_hf_read_real(reader, "routed_scaling_factor", &scale));
    if (scale == 0.0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: routed_scaling_factor is 0, expected another number");
    }
    moe->experts = 64;
    moe->width = 1407;
    moe->router_f32 = true;
    moe->router = (trm_router_params){.scoring = TRM_ROUTER_SOFTMAX, .scale = (float)scale};
    TRM_TRY(read_groups(reader, &moe->router));
    TRM_TRY(trm_hf_read_moe(reader, &keys, config));
    TRM_TRY(trm_hf_read_count(reader, "n_shared_experts", &shared));
    moe->shared_width = shared * moe->width;
    return read_dense_layers(reader, 0, config);
}

const trm_hf_family trm_hf_deepseek_v2 = {
    .architecture = "DeepseekV2ForCausalLM",
    .model_type = "deepseek_v2",
    .models = "DeepSeek-V2, V2-Lite, V2.5, Coder-V2",
    .details = "latent attention, mixture of experts in groups, shared ones",
    .read = read_deepseek_v2,
    .names = {DEEPSEEK_NAMES},
};

static trm_status read_deepseek_v3(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->interleaved_rope = true;
    TRM_TRY(trm_hf_read_bool(reader, "rope_interleave", &config->interleaved_rope));
    TRM_TRY(read_decoder(reader, config));
    config->moe.experts = 256;
    config->moe.width = 2048;
    config->moe.router = (trm_router_params){.k = 8, .groups = 8, .top_groups = 4, .renormalize = true, .scale = 2.5f};
    TRM_TRY(trm_hf_read_sigmoid_moe(reader, 3, config));
    return read_dense_layers(reader, 3, config);
}

const trm_hf_family trm_hf_deepseek_v3 = {
    .architecture = "DeepseekV3ForCausalLM",
    .model_type = "deepseek_v3",
    .models = "DeepSeek-V3, V3.1, R1, Kimi-K2, Moonlight",
    .details = "latent attention, mixture of experts in groups with corrections, a shared one",
    .read = read_deepseek_v3,
    .names = {DEEPSEEK_NAMES, TRM_HF_MTP_LAYER_NAMES, .correction = "mlp.gate.e_score_correction_bias"},
};

/* ---- with sparse attention -------------------------------------------------------------------------- */

/* A token attends to the index_topk tokens that an indexer rates highest, which are all tokens of a context of that
 * length. The context ends there, so the indexer is not needed. */
static trm_status read_sparse(const trm_hf_reader *reader, trm_hf_config *config)
{
    int64_t most = 2048;
    TRM_TRY(trm_hf_read_size(reader, "index_topk", &most));
    if (config->context_length > most) {
        TRM_WARN("sparse attention runs as full attention, which is the same for contexts of at most %lld tokens: the "
                 "context length is %lld, not %lld",
                 (long long)most, (long long)most, (long long)config->context_length);
        config->context_length = most;
    }
    return TRM_OK;
}

/* The list mlp_layer_types goes before first_k_dense_replace. */
static trm_status read_mlp_types(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *types = trm_json_get(reader->object, "mlp_layer_types");
    for (int64_t i = 0; types != NULL && i < config->layers; i++) {
        const char *name = trm_json_string(trm_json_at(types, (size_t)i));
        if (name == NULL || (strcmp(name, "dense") != 0 && strcmp(name, "sparse") != 0)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: mlp_layer_types[%lld] is %s, expected dense or sparse",
                     (long long)i, name == NULL ? "no string" : name);
        }
        config->moe.dense[i] = strcmp(name, "dense") == 0;
    }
    return TRM_OK;
}

static trm_status read_deepseek_v32(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(read_deepseek_v3(reader, config));
    config->interleaved_rope = true;
    TRM_TRY(read_mlp_types(reader, config));
    return read_sparse(reader, config);
}

const trm_hf_family trm_hf_deepseek_v32 = {
    .architecture = "DeepseekV32ForCausalLM",
    .model_type = "deepseek_v32",
    .models = "DeepSeek-V3.2, V3.2-Exp",
    .details =
        "as DeepSeek-V3; contexts of at most `index_topk` (2048) tokens, where sparse attention is full attention",
    .read = read_deepseek_v32,
    .names = {DEEPSEEK_NAMES, TRM_HF_MTP_LAYER_NAMES, .correction = "mlp.gate.e_score_correction_bias"},
};

static trm_status read_glm_moe_dsa(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->norm_eps = 1e-5;
    config->interleaved_rope = true;
    TRM_TRY(read_decoder(reader, config));
    config->moe.experts = 256;
    config->moe.width = 2048;
    config->moe.router = (trm_router_params){.k = 8, .renormalize = true, .scale = 2.5f};
    TRM_TRY(trm_hf_read_sigmoid_moe(reader, 3, config));
    TRM_TRY(read_mlp_types(reader, config));
    return read_sparse(reader, config);
}

const trm_hf_family trm_hf_glm_moe_dsa = {
    .architecture = "GlmMoeDsaForCausalLM",
    .model_type = "glm_moe_dsa",
    .models = "GLM-5, 5.1, 5.2",
    .details = "latent attention, mixture of experts with corrections, a shared one; contexts of at most `index_topk` "
               "(2048) tokens, where sparse attention is full attention",
    .read = read_glm_moe_dsa,
    .names = {DEEPSEEK_NAMES, TRM_HF_MTP_LAYER_NAMES, .correction = "mlp.gate.e_score_correction_bias"},
};
