/* The list of families, and of models with images whose text part is one of them. */
#include "graph/import/hf/families.h"

#include <string.h>

#include "base/error.h"

#define MAX_EXPERTS (1 << 16)

#define ROW(row) &trm_hf_##row,
const trm_hf_family *const trm_hf_families[] = {TRM_HF_FAMILIES(ROW) NULL};
#undef ROW

/* Aya Vision and Command A Vision are not here: transformers leaves out the scale of logits that Cohere 2 has. */
const trm_hf_wrapper trm_hf_wrappers[] = {
    {"Gemma3ForConditionalGeneration", "gemma3", "Gemma 3 4B to 27B", true, NULL},
    {"Gemma4ForConditionalGeneration", "gemma4", "Gemma 4", true, NULL},
    {"Mistral3ForConditionalGeneration", "mistral3", "Mistral Small 3.1 and 3.2, Ministral 3, Devstral Small 2", true,
     NULL},
    {"LlavaForConditionalGeneration", "llava", "LLaVA 1.5, Pixtral", false, NULL},
    {"InternVLForConditionalGeneration", "internvl", "InternVL 2.5 to 3.5", true, NULL},
    {"Idefics3ForConditionalGeneration", "idefics3", "Idefics3, SmolVLM of 2024", false, NULL},
    {"SmolVLMForConditionalGeneration", "smolvlm", "SmolVLM2", false, NULL},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "Qwen2.5-VL", false, "qwen2_5_vl_text"},
    {"Qwen3VLForConditionalGeneration", "qwen3_vl", "Qwen3-VL 2B to 32B", false, NULL},
    {"Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "Qwen3-VL 30B-A3B and 235B-A22B", false, NULL},
    {"Qwen3_5ForConditionalGeneration", "qwen3_5", "Qwen3.5 and 3.6 0.8B to 27B", false, NULL},
    {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "Qwen3.5 and 3.6 35B-A3B to 397B-A17B", false, NULL},
    {"Glm4vMoeForConditionalGeneration", "glm4v_moe", "GLM-4.5V, 4.6V", false, NULL},
    {"Llama4ForConditionalGeneration", "llama4", "Llama 4 Scout and Maverick", false, NULL},
    {NULL, NULL, NULL, false, NULL},
};

trm_status trm_hf_read_common(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->activation = TRM_ACTIVATION_SILU;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    TRM_TRY(trm_hf_read_activation(reader, "hidden_act", config));
    TRM_TRY(trm_hf_read_real(reader, "rms_norm_eps", &config->norm_eps));
    return trm_hf_read_rope(reader, config);
}

trm_status trm_hf_read_attention_bias(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(trm_hf_read_bool(reader, "attention_bias", &config->qkv_bias));
    config->o_bias = config->qkv_bias;
    return TRM_OK;
}

trm_status trm_hf_set_dense_layers(const trm_hf_reader *reader, trm_hf_config *config,
                                   bool (*is_dense)(int64_t layer, const void *user), const void *user)
{
    config->moe.dense = trm_arena_array(reader->arena, (size_t)config->layers, sizeof(*config->moe.dense));
    if (config->moe.dense == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %lld layers", (long long)config->layers);
    }
    for (int64_t i = 0; i < config->layers; i++) {
        config->moe.dense[i] = is_dense(i, user);
    }
    return TRM_OK;
}

trm_status trm_hf_read_moe(const trm_hf_reader *reader, const trm_hf_moe_keys *keys, trm_hf_config *config)
{
    trm_hf_moe *moe = &config->moe;
    int64_t k = moe->router.k;
    TRM_TRY(trm_hf_read_size(reader, keys->experts, &moe->experts));
    TRM_TRY(trm_hf_read_size(reader, keys->k, &k));
    if (keys->width != NULL) {
        TRM_TRY(trm_hf_read_size(reader, keys->width, &moe->width));
    } else {
        moe->width = config->intermediate;
    }
    moe->router.k = (int32_t)(k < INT32_MAX ? k : INT32_MAX);
    return trm_hf_check_moe(config);
}

static bool is_before(int64_t layer, const void *user)
{
    return layer < *(const int64_t *)user;
}

/* The only value of a key that names a rule. */
static trm_status expect_name(const trm_hf_reader *reader, const char *key, const char *expected)
{
    const char *found = expected;
    TRM_TRY(trm_json_member_string(reader->document, reader->object, key, false, &found));
    if (found != NULL && strcmp(found, expected) != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: %s is \"%s\", expected \"%s\"", key, found, expected);
    }
    return TRM_OK;
}

trm_status trm_hf_read_sigmoid_moe(const trm_hf_reader *reader, int64_t dense_layers, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {
        .experts = "n_routed_experts", .k = "num_experts_per_tok", .width = "moe_intermediate_size"};
    trm_hf_moe *moe = &config->moe;
    trm_router_params *router = &moe->router;
    int64_t shared = 1, groups = router->groups > 0 ? router->groups : 1;
    int64_t top_groups = router->top_groups > 0 ? router->top_groups : 1;
    double scale = router->scale != 0.0f ? (double)router->scale : 1.0;
    TRM_TRY(expect_name(reader, "scoring_func", "sigmoid"));
    TRM_TRY(expect_name(reader, "topk_method", "noaux_tc"));
    TRM_TRY(trm_hf_read_size(reader, "n_group", &groups));
    TRM_TRY(trm_hf_read_size(reader, "topk_group", &top_groups));
    TRM_TRY(trm_hf_read_real(reader, "routed_scaling_factor", &scale));
    TRM_TRY(trm_hf_read_bool(reader, "norm_topk_prob", &router->renormalize));
    if (scale == 0.0 || groups > INT32_MAX || top_groups > groups) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: routed_scaling_factor is %g, n_group %lld and topk_group %lld, expected a factor other "
                 "than 0 and no more groups than there are",
                 scale, (long long)groups, (long long)top_groups);
    }
    moe->router_f32 = moe->correction = true;
    router->scoring = TRM_ROUTER_SIGMOID;
    router->groups = (int32_t)groups;
    router->top_groups = (int32_t)top_groups;
    router->group_sum = true;
    router->epsilon = 1e-20f;
    router->scale = (float)scale;
    TRM_TRY(trm_hf_read_moe(reader, &keys, config));
    TRM_TRY(trm_hf_read_count(reader, "n_shared_experts", &shared));
    moe->shared_width = shared * moe->width;
    TRM_TRY(trm_hf_read_count(reader, "first_k_dense_replace", &dense_layers));
    return trm_hf_set_dense_layers(reader, config, is_before, &dense_layers);
}

/* SILU stands for that of MLPs. */
static trm_status settle_activation(trm_hf_config *config)
{
    trm_hf_moe *moe = &config->moe;
    if (moe->activation != TRM_EXPERT_SILU) {
        return TRM_OK;
    }
    switch (config->squared ? TRM_ACTIVATION_NONE : config->activation) {
    case TRM_ACTIVATION_SILU:
        return TRM_OK;
    case TRM_ACTIVATION_GELU:
        moe->activation = TRM_EXPERT_GELU;
        return TRM_OK;
    case TRM_ACTIVATION_GELU_TANH:
        moe->activation = TRM_EXPERT_GELU_TANH;
        return TRM_OK;
    default:
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "config.json: the activation of experts is not silu, gelu or gelu_pytorch_tanh");
    }
}

trm_status trm_hf_check_moe(trm_hf_config *config)
{
    const trm_hf_moe *moe = &config->moe;
    const trm_router_params *router = &moe->router;
    if (moe->experts > MAX_EXPERTS) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: there are %lld experts, expected at most %d",
                 (long long)moe->experts, MAX_EXPERTS);
    }
    if (router->k > moe->experts) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: a token takes %d of %lld experts, expected at most all of them",
                 (int)router->k, (long long)moe->experts);
    }
    if (router->groups > 1 &&
        (moe->experts % router->groups != 0 || router->top_groups < 1 || router->top_groups > router->groups ||
         moe->experts / router->groups * router->top_groups < router->k)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: n_group is %d and topk_group %d, expected groups that divide %lld experts and have "
                 "the %d of a token",
                 (int)router->groups, (int)router->top_groups, (long long)moe->experts, (int)router->k);
    }
    return settle_activation(config);
}
