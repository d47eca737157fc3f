/* Llama: RMS norms, gated MLP, grouped queries. What other families are described by. */
#include "graph/import/hf/families.h"

#include "base/error.h"

static trm_status read_llama(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    return trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias);
}

const trm_hf_family trm_hf_llama = {
    .architecture = "LlamaForCausalLM",
    .model_type = "llama",
    .models = "Llama 1 to 3.3, and others of their architecture",
    .details = "`attention_bias`, `mlp_bias`, `head_dim`, tied embeddings",
    .read = read_llama,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};
