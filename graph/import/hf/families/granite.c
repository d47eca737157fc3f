/* Granite: Llama with multipliers on embeddings, branches, attention scores and logits; also with a mixture of experts,
 * beside which may be one for all tokens, and with selective scans in place of attention in most layers. */
#include "graph/import/hf/families.h"

#include <string.h>

#include "base/error.h"

static trm_status read_granite(const trm_hf_reader *reader, trm_hf_config *config)
{
    double logits_scaling = 1.0;
    config->embedding_scale = config->residual_scale = config->attention_scale = 1.0;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    TRM_TRY(trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias));
    TRM_TRY(trm_hf_read_real(reader, "embedding_multiplier", &config->embedding_scale));
    TRM_TRY(trm_hf_read_real(reader, "residual_multiplier", &config->residual_scale));
    TRM_TRY(trm_hf_read_real(reader, "attention_multiplier", &config->attention_scale));
    TRM_TRY(trm_hf_read_real(reader, "logits_scaling", &logits_scaling));
    if (config->embedding_scale == 0.0 || config->residual_scale == 0.0 || !(config->attention_scale > 0.0) ||
        logits_scaling == 0.0) {
        TRM_FAIL(
            TRM_ERROR_INVALID_MODEL,
            "config.json: embedding_multiplier %g, residual_multiplier %g, attention_multiplier %g, logits_scaling "
            "%g, expected positive numbers",
            config->embedding_scale, config->residual_scale, config->attention_scale, logits_scaling);
    }
    config->logit_scale = 1.0 / logits_scaling;
    return TRM_OK;
}

const trm_hf_family trm_hf_granite = {
    .architecture = "GraniteForCausalLM",
    .model_type = "granite",
    .models = "Granite 3.0 to 3.3",
    .details = "multipliers on embeddings, branches, scores and logits",
    .read = read_granite,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_MLP_NAMES, TRM_HF_NORM_NAMES},
};

static trm_status read_granitemoe(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {.experts = "num_local_experts", .k = "num_experts_per_tok"};
    TRM_TRY(read_granite(reader, config));
    config->moe.experts = 8;
    config->moe.router = (trm_router_params){.k = 2, .scoring = TRM_ROUTER_SOFTMAX_CHOSEN};
    return trm_hf_read_moe(reader, &keys, config);
}

#define GRANITE_MOE_NAMES                                                                                              \
    TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_NORM_NAMES,                                                     \
        .router = "block_sparse_moe.router.layer", .experts = "block_sparse_moe.experts",                              \
        .experts_gate_up = "block_sparse_moe.input_linear.weight",                                                     \
        .experts_down = "block_sparse_moe.output_linear.weight"

const trm_hf_family trm_hf_granitemoe = {
    .architecture = "GraniteMoeForCausalLM",
    .model_type = "granitemoe",
    .models = "Granite 3.0 and 3.1 1B-A400M, 3B-A800M",
    .details = "multipliers of Granite, mixture of experts",
    .read = read_granitemoe,
    .names = {GRANITE_MOE_NAMES},
};

/* shared_intermediate_size 0: there is no expert for all tokens. */
static trm_status read_granitemoeshared(const trm_hf_reader *reader, trm_hf_config *config)
{
    TRM_TRY(read_granitemoe(reader, config));
    return trm_hf_read_count(reader, "shared_intermediate_size", &config->moe.shared_width);
}

const trm_hf_family trm_hf_granitemoeshared = {
    .architecture = "GraniteMoeSharedForCausalLM",
    .model_type = "granitemoeshared",
    .models = "Granite MoE with a shared expert",
    .details = "as Granite MoE, one shared",
    .read = read_granitemoeshared,
    .names = {GRANITE_MOE_NAMES, .shared_gate_up = "shared_mlp.input_linear",
              .shared_down = "shared_mlp.output_linear"},
};

/* ---- with selective scans ------------------------------------------------------------------------- */

static trm_status read_scan(const trm_hf_reader *reader, trm_hf_config *config)
{
    trm_hf_scan *scan = &config->scan;
    const trm_json *dim = trm_json_get(reader->object, "mamba_d_head");
    int64_t expand = 2;
    scan->heads = 128;
    scan->groups = 1;
    scan->columns = 256;
    scan->taps = 4;
    scan->convolution_bias = true;
    TRM_TRY(trm_hf_read_size(reader, "mamba_n_heads", &scan->heads));
    TRM_TRY(trm_hf_read_size(reader, "mamba_n_groups", &scan->groups));
    TRM_TRY(trm_hf_read_size(reader, "mamba_d_state", &scan->columns));
    TRM_TRY(trm_hf_read_size(reader, "mamba_d_conv", &scan->taps));
    TRM_TRY(trm_hf_read_size(reader, "mamba_expand", &expand));
    TRM_TRY(trm_hf_read_bool(reader, "mamba_proj_bias", &scan->bias));
    TRM_TRY(trm_hf_read_bool(reader, "mamba_conv_bias", &scan->convolution_bias));
    TRM_TRY(trm_hf_read_step_limit(reader, config));
    scan->head_dim = expand * config->hidden / scan->heads;
    if (!trm_json_is_string(dim)) { /* "auto": what follows from the others */
        TRM_TRY(trm_hf_read_size(reader, "mamba_d_head", &scan->head_dim));
    }
    if (scan->head_dim * scan->heads != expand * config->hidden || config->activation != TRM_ACTIVATION_SILU) {
        TRM_FAIL(
            TRM_ERROR_INVALID_MODEL,
            "config.json: mamba_n_heads is %lld, mamba_d_head %lld and mamba_expand %lld, expected heads that have "
            "%lld elements in all, and hidden_act silu",
            (long long)scan->heads, (long long)scan->head_dim, (long long)expand, (long long)(expand * config->hidden));
    }
    return trm_hf_check_scan(config);
}

/* num_local_experts 0: all blocks have the shared MLP alone. position_embedding_type: rope, or none. */
static trm_status read_granitemoehybrid(const trm_hf_reader *reader, trm_hf_config *config)
{
    static const trm_hf_moe_keys keys = {.experts = "num_local_experts", .k = "num_experts_per_tok"};
    const trm_json *types = trm_json_get(reader->object, "layer_types");
    int64_t experts = 8, shared = 1024;
    const char *positions = NULL;
    TRM_TRY(read_granite(reader, config));
    TRM_TRY(read_scan(reader, config));
    TRM_TRY(trm_hf_read_scan_layers(reader, types != NULL ? types : trm_json_get(reader->object, "layers_block_type"),
                                    config));
    TRM_TRY(trm_json_member_string(reader->document, reader->object, "position_embedding_type", false, &positions));
    config->rotary = positions != NULL && strcmp(positions, "rope") == 0;
    TRM_TRY(trm_hf_read_count(reader, "num_local_experts", &experts));
    TRM_TRY(trm_hf_read_size(reader, "shared_intermediate_size", &shared));
    if (experts == 0) {
        config->intermediate = shared;
        return TRM_OK;
    }
    config->moe.experts = experts;
    config->moe.router = (trm_router_params){.k = 2, .scoring = TRM_ROUTER_SOFTMAX_CHOSEN};
    TRM_TRY(trm_hf_read_moe(reader, &keys, config));
    config->moe.shared_width = shared;
    return TRM_OK;
}

const trm_hf_family trm_hf_granitemoehybrid = {
    .architecture = "GraniteMoeHybridForCausalLM",
    .model_type = "granitemoehybrid",
    .models = "Granite 4.0 Micro, Tiny, Small, and their H variants",
    .details = "as Granite MoE with a shared expert, or that alone; selective scans (Mamba-2)",
    .read = read_granitemoehybrid,
    .names = {GRANITE_MOE_NAMES, .shared_gate_up = "shared_mlp.input_linear", .shared_down = "shared_mlp.output_linear",
              .gate_up = "shared_mlp.input_linear", .down = "shared_mlp.output_linear", .scan_in = "mamba.in_proj",
              .scan_convolution = "mamba.conv1d", .scan_a_log = "mamba.A_log", .scan_step_bias = "mamba.dt_bias",
              .scan_skip = "mamba.D", .scan_norm = "mamba.norm", .scan_out = "mamba.out_proj"},
};
