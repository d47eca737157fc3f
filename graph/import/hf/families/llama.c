/* Llama, by which other families are described, and families that differ from it in a few switches. */
#include "graph/import/hf/families.h"

#include "base/error.h"

/* RMS norms, gated MLP, grouped queries. */
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

/* Arcee: Llama whose MLP has no gate and the activation relu^2. */
static trm_status read_arcee(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->norm_eps = 1e-5;
    TRM_TRY(trm_hf_read_common(reader, config));
    if (trm_json_get(reader->object, "hidden_act") == NULL) {
        config->activation = TRM_ACTIVATION_RELU;
        config->squared = true;
    }
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    return trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias);
}

const trm_hf_family trm_hf_arcee = {
    .architecture = "ArceeForCausalLM",
    .model_type = "arcee",
    .models = "AFM 4.5B",
    .details = "relu^2 without a gate",
    .read = read_arcee,
    .names =
        {
            TRM_HF_MODEL_NAMES,
            TRM_HF_ATTENTION_NAMES,
            TRM_HF_NORM_NAMES,
            .up = "mlp.up_proj",
            .down = "mlp.down_proj",
        },
};

/* Seed-OSS: Llama with biases on q, k, v and heads wider than hidden / heads. */
static trm_status read_seed_oss(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->head_dim = 128;
    config->qkv_bias = true;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "attention_bias", &config->qkv_bias));
    TRM_TRY(trm_hf_read_bool(reader, "attention_out_bias", &config->o_bias));
    return trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias);
}

const trm_hf_family trm_hf_seed_oss = {
    .architecture = "SeedOssForCausalLM",
    .model_type = "seed_oss",
    .models = "Seed-OSS 36B",
    .details = "bias on q, k, v",
    .read = read_seed_oss,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

/* SmolLM3: Llama in which some layers, by default every fourth, know nothing of positions. */
/* With use_sliding_window, the layers that layer_types names; if it is absent, those without positions. */
static trm_status read_windows(const trm_hf_reader *reader, trm_hf_config *config)
{
    bool use_window = false;
    TRM_TRY(trm_hf_read_bool(reader, "use_sliding_window", &use_window));
    if (!use_window) {
        return TRM_OK;
    }
    TRM_TRY(trm_hf_read_windows(reader, config, 0));
    for (int64_t i = 0; i < config->layers; i++) {
        config->sliding[i] = config->sliding[i] && config->unrotated[i];
    }
    return trm_hf_read_layer_types(reader, config);
}

static trm_status read_smollm3(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->rope[0].theta = 2e6;
    config->tied = true;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias));
    TRM_TRY(trm_hf_read_unrotated_layers(reader, config));
    return read_windows(reader, config);
}

const trm_hf_family trm_hf_smollm3 = {
    .architecture = "SmolLM3ForCausalLM",
    .model_type = "smollm3",
    .models = "SmolLM3 3B",
    .details = "layers without rope",
    .read = read_smollm3,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};
