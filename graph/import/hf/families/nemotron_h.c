/* Nemotron-H: blocks of one half each, a selective scan (Mamba-2), attention without positions, an MLP of relu^2 or a
 * mixture of such experts. Shared parts of Granite's hybrid are here, too. */
#include "graph/import/hf/families.h"

#include <string.h>

#include "base/error.h"

trm_status trm_hf_read_scan_layers(const trm_hf_reader *reader, const trm_json *types, trm_hf_config *config)
{
    const trm_json *type = trm_json_first(types);
    if (types != NULL && (!trm_json_is_array(types) || (int64_t)trm_json_count(types) < config->layers)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: the types of layers have %zu elements, expected a list of %lld",
                 trm_json_count(types), (long long)config->layers);
    }
    config->scan.layers = trm_arena_array(reader->arena, (size_t)config->layers, sizeof(*config->scan.layers));
    if (config->scan.layers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %lld layers", (long long)config->layers);
    }
    for (int64_t i = 0; i < config->layers; i++) {
        const char *name = types == NULL ? "mamba" : trm_json_string(type);
        config->scan.layers[i] = name != NULL && (strcmp(name, "mamba") == 0 || strcmp(name, "linear_attention") == 0);
        if (!config->scan.layers[i] &&
            (name == NULL || (strcmp(name, "attention") != 0 && strcmp(name, "full_attention") != 0))) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                     "config.json: the type of layer %lld is %s, expected mamba, linear_attention, attention or "
                     "full_attention",
                     (long long)i, name == NULL ? "no string" : name);
        }
        type = types == NULL ? NULL : trm_json_next(type);
    }
    return TRM_OK;
}

trm_status trm_hf_read_step_limit(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *limit = trm_json_get(reader->object, "time_step_limit"), *most = trm_json_at(limit, 1);
    if (limit == NULL) {
        return TRM_OK;
    }
    config->scan.step_min = trm_json_number(trm_json_at(limit, 0), -1.0);
    config->scan.step_max = trm_json_number(most, 0.0); /* infinite ones are no number of JSON */
    if (trm_json_count(limit) != 2 || !(config->scan.step_min >= 0.0) ||
        (trm_json_is_number(most) &&
         !(config->scan.step_max >= config->scan.step_min && config->scan.step_max > 0.0))) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: time_step_limit is not a list of two numbers in order, from 0 on");
    }
    config->scan.step_max = config->scan.step_max < 1e30 ? config->scan.step_max : 0.0;
    return TRM_OK;
}

trm_status trm_hf_check_scan(trm_hf_config *config)
{
    const trm_hf_scan *scan = &config->scan;
    const int64_t most = 1 << 20;
    if (scan->heads % scan->groups != 0 || scan->heads > most || scan->head_dim > most || scan->groups > most ||
        scan->columns > most || scan->taps > most) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: a selective scan has %lld groups, %lld heads of %lld, %lld states and %lld taps, "
                 "expected groups that divide the heads, and at most %lld of each",
                 (long long)scan->groups, (long long)scan->heads, (long long)scan->head_dim, (long long)scan->columns,
                 (long long)scan->taps, (long long)most);
    }
    return TRM_OK;
}

/* The type of block i: M, *, - or E, as hybrid_override_pattern spells it; 0: none of these. */
static char type_of(const char *pattern, const trm_json *types, int64_t i)
{
    static const struct {
        const char *name;
        char type;
    } known[] = {{"mamba", 'M'}, {"linear_attention", 'M'}, {"attention", '*'}, {"full_attention", '*'}, {"mlp", '-'},
                 {"moe", 'E'}};
    if (types == NULL) {
        return strchr("M*-E", pattern[i]) != NULL ? pattern[i] : '\0';
    }
    const char *name = trm_json_string(trm_json_at(types, (size_t)i));
    for (size_t k = 0; name != NULL && k < sizeof(known) / sizeof(known[0]); k++) {
        if (strcmp(name, known[k].name) == 0) {
            return known[k].type;
        }
    }
    return '\0';
}

/* What each block has: layers_block_type, or hybrid_override_pattern. */
static trm_status read_blocks(const trm_hf_reader *reader, const char *pattern, const trm_json *types,
                              trm_hf_config *config, bool *has_experts)
{
    const size_t layers = (size_t)config->layers;
    config->halves = trm_arena_array(reader->arena, layers, sizeof(*config->halves));
    config->scan.layers = trm_arena_array(reader->arena, layers, sizeof(*config->scan.layers));
    config->moe.dense = trm_arena_array(reader->arena, layers, sizeof(*config->moe.dense));
    if (config->halves == NULL || config->scan.layers == NULL || config->moe.dense == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for %lld layers", (long long)config->layers);
    }
    for (int64_t i = 0; i < config->layers; i++) {
        const char type = type_of(pattern, types, i);
        if (type == '\0') {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                     "config.json: the type of block %lld is not known, expected mamba (M), attention (*), mlp (-) or "
                     "moe (E)",
                     (long long)i);
        }
        config->halves[i] = type == 'M' || type == '*' ? TRM_HF_ATTENTION_ONLY : TRM_HF_MLP_ONLY;
        config->scan.layers[i] = type == 'M';
        config->moe.dense[i] = type == '-';
        *has_experts = *has_experts || type == 'E';
    }
    return TRM_OK;
}

static trm_status read_scan(const trm_hf_reader *reader, trm_hf_config *config)
{
    trm_hf_scan *scan = &config->scan;
    const char *activation = "silu";
    scan->heads = 128;
    scan->head_dim = 64;
    scan->groups = 8;
    scan->columns = 128;
    scan->taps = 4;
    scan->convolution_bias = true;
    TRM_TRY(trm_hf_read_size(reader, "mamba_num_heads", &scan->heads));
    TRM_TRY(trm_hf_read_size(reader, "mamba_head_dim", &scan->head_dim));
    TRM_TRY(trm_hf_read_size(reader, "n_groups", &scan->groups));
    TRM_TRY(trm_hf_read_size(reader, "ssm_state_size", &scan->columns));
    TRM_TRY(trm_hf_read_size(reader, "conv_kernel", &scan->taps));
    TRM_TRY(trm_hf_read_bool(reader, "use_bias", &scan->bias));
    TRM_TRY(trm_hf_read_bool(reader, "use_conv_bias", &scan->convolution_bias));
    TRM_TRY(trm_hf_read_step_limit(reader, config));
    TRM_TRY(trm_json_member_string(reader->document, reader->object, "mamba_hidden_act", false, &activation));
    if (activation != NULL && strcmp(activation, "silu") != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: mamba_hidden_act is \"%s\", expected \"silu\"", activation);
    }
    return trm_hf_check_scan(config);
}

static trm_status read_experts(const trm_hf_reader *reader, trm_hf_config *config)
{
    trm_hf_moe *moe = &config->moe;
    bool *const dense = moe->dense;
    if (!config->squared || config->activation != TRM_ACTIVATION_RELU) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: experts have another mlp_hidden_act than relu2");
    }
    moe->experts = 8;
    moe->width = 7688;
    moe->activation = TRM_EXPERT_RELU2;
    moe->router = (trm_router_params){.k = 2, .renormalize = true};
    TRM_TRY(trm_hf_read_sigmoid_moe(reader, 0, config));
    moe->dense = dense;
    moe->shared_width = 7688;
    TRM_TRY(trm_hf_read_size(reader, "moe_shared_expert_intermediate_size", &moe->shared_width));
    return trm_hf_read_count(reader, "moe_latent_size", &moe->latent);
}

static trm_status read_nemotron_h(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *types = trm_json_get(reader->object, "layers_block_type");
    const char *pattern = NULL;
    bool has_experts = false;
    types = types != NULL ? types : trm_json_get(reader->object, "layer_types");
    TRM_TRY(trm_json_member_string(reader->document, reader->object, "hybrid_override_pattern", false, &pattern));
    const int64_t blocks = (int64_t)(types != NULL ? trm_json_count(types) : pattern != NULL ? strlen(pattern) : 0);
    if (blocks == 0 || (types != NULL && !trm_json_is_array(types))) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "config.json: neither layers_block_type nor hybrid_override_pattern says what blocks have");
    }
    config->layers = blocks;
    config->intermediate = 21504;
    config->head_dim = 128;
    config->activation = TRM_ACTIVATION_RELU;
    config->squared = true;
    config->norm_eps = 1e-5;
    config->rotary = false;
    TRM_TRY(trm_hf_read_sizes(reader, config));
    if (config->n_stored != blocks) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: num_hidden_layers is %lld, but %lld blocks have a type",
                 (long long)config->n_stored, (long long)blocks);
    }
    TRM_TRY(trm_hf_read_activation(reader, "mlp_hidden_act", config));
    TRM_TRY(trm_hf_read_bool(reader, "mlp_bias", &config->mlp_bias));
    TRM_TRY(trm_hf_read_real(reader, "layer_norm_epsilon", &config->norm_eps));
    TRM_TRY(read_scan(reader, config));
    TRM_TRY(read_blocks(reader, pattern, types, config, &has_experts));
    return has_experts ? read_experts(reader, config) : TRM_OK;
}

const trm_hf_family trm_hf_nemotron_h = {
    .architecture = "NemotronHForCausalLM",
    .model_type = "nemotron_h",
    .models = "Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano and Super",
    .details = "selective scans (Mamba-2), attention without positions, relu^2 without a gate, mixture of experts",
    .read = read_nemotron_h,
    .names = {.roots = {"backbone.", "model.", "language_model.backbone.", "language_model.model."},
              .embedding = "embeddings",
              .layers = "layers",
              .final_norm = "norm_f",
              .heads = {"lm_head", "language_model.lm_head"},
              .q = "mixer.q_proj",
              .k = "mixer.k_proj",
              .v = "mixer.v_proj",
              .o = "mixer.o_proj",
              .up = "mixer.up_proj",
              .down = "mixer.down_proj",
              .attention_norm = "norm",
              .mlp_norm = "norm",
              .router = "mixer.gate",
              .correction = "mixer.gate.e_score_correction_bias",
              .experts = "mixer.experts",
              .expert_up = "up_proj",
              .expert_down = "down_proj",
              .experts_gate_up = "mixer.experts.up_proj",
              .experts_down = "mixer.experts.down_proj",
              .shared_up = "mixer.shared_experts.up_proj",
              .shared_down = "mixer.shared_experts.down_proj",
              .latent_in = "mixer.fc1_latent_proj",
              .latent_out = "mixer.fc2_latent_proj",
              .scan_in = "mixer.in_proj",
              .scan_convolution = "mixer.conv1d",
              .scan_a_log = "mixer.A_log",
              .scan_step_bias = "mixer.dt_bias",
              .scan_skip = "mixer.D",
              .scan_norm = "mixer.norm",
              .scan_out = "mixer.out_proj"},
};
