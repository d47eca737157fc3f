/* Mistral: Llama with a window; Ministral has it on some layers. */
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
