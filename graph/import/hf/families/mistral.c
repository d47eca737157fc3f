/* Mistral: Llama with a window; Ministral has it on some layers. Ministral 3 scales queries by their position, Mixtral
 * has a mixture of experts. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_mistral(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(trm_hf_read_common(reader, config));
    config->window = 4096; /* null switches it off */
    TRM_TRY(trm_hf_read_windows(reader, config, 0));
    return trm_hf_read_layer_types(reader, config); /* Ministral, under either name */
}

const trm_hf_family trm_hf_mistral = {
    .architecture = "MistralForCausalLM",
    .model_type = "mistral",
    .models = "Mistral 7B, Nemo, Small, Large, Devstral, Magistral",
    .details = "`sliding_window`, `layer_types`",
    .read = read_mistral,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

const trm_hf_family trm_hf_ministral = {
    .architecture = "MinistralForCausalLM",
    .model_type = "ministral",
    .models = "Ministral 8B",
    .details = "windows by layer",
    .read = read_mistral,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

/* Beside the rope's parameters, under either name. */
static trm_status read_query_scale(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *object = trm_json_get(reader->object, "rope_parameters");
    object = object != NULL ? object : trm_json_get(reader->object, "rope_scaling");
    if (!trm_json_is_object(object)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: rope_parameters is missing, expected those of Ministral 3");
    }
    TRM_TRY(trm_json_member_number(reader->document, object, "llama_4_scaling_beta", true, &config->query_scale));
    TRM_TRY(trm_json_member_integer(reader->document, object, "original_max_position_embeddings", true,
                                    &config->query_scale_length));
    if (config->query_scale_length < 1 || config->query_scale_length > INT32_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: original_max_position_embeddings is %lld, expected 1 to %d",
                 (long long)config->query_scale_length, INT32_MAX);
    }
    return TRM_OK;
}

static trm_status read_ministral3(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->norm_eps = 1e-5;
    config->head_dim = 128;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_windows(reader, config, 0));
    return read_query_scale(reader, config);
}

const trm_hf_family trm_hf_ministral3 = {
    .architecture = "Ministral3ForCausalLM",
    .model_type = "ministral3",
    .models = "Ministral 3, Devstral 2",
    .details = "queries scaled by position",
    .read = read_ministral3,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

static trm_status read_mixtral(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {.experts = "num_local_experts", .k = "num_experts_per_tok"};
    TRM_TRY(read_mistral(reader, config));
    config->moe.experts = 8;
    config->moe.router = (trm_router_params){.k = 2, .scoring = TRM_ROUTER_SOFTMAX_CHOSEN};
    return trm_hf_read_moe(reader, &keys, config);
}

const trm_hf_family trm_hf_mixtral = {
    .architecture = "MixtralForCausalLM",
    .model_type = "mixtral",
    .models = "Mixtral 8x7B, 8x22B",
    .details = "mixture of experts",
    .read = read_mixtral,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_NORM_NAMES, TRM_HF_MIXTRAL_EXPERT_NAMES},
};
