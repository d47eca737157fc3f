/* Hunyuan: Llama with norms on the heads of q and k behind their rope, which may have a fixed alpha; also with a
 * mixture of experts. */
#include "graph/import/hf/families.h"

#include <math.h>

#include "base/error.h"

#define HUNYUAN_QK_NORM_NAMES .q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm"

/* Files call it dynamic; with an alpha it is the same at every length. */
static trm_status read_alpha(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *object = trm_json_get(reader->object, "rope_scaling");
    object = object != NULL ? object : trm_json_get(reader->object, "rope_parameters");
    trm_hf_rope *rope = &config->rope[0];
    double alpha = 0.0;
    if (rope->type != TRM_HF_ROPE_DYNAMIC) {
        return TRM_OK;
    }
    TRM_TRY(trm_json_member_number(reader->document, object, "alpha", false, &alpha));
    if (alpha < 0.0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: alpha is %g, expected a positive number", alpha);
    }
    if (alpha > 0.0) {
        rope->type = TRM_HF_ROPE_DEFAULT;
        rope->theta *= pow(alpha, (double)rope->dim / (double)(rope->dim - 2));
    }
    return TRM_OK;
}

static trm_status read_hunyuan(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->norm_eps = 1e-5;
    config->norm_after_rope = true;
    TRM_TRY(trm_hf_read_common(reader, config));
    TRM_TRY(trm_hf_read_attention_bias(reader, config));
    return read_alpha(reader, config);
}

const trm_hf_family trm_hf_hunyuan_v1_dense = {
    .architecture = "HunYuanDenseV1ForCausalLM",
    .model_type = "hunyuan_v1_dense",
    .models = "Hunyuan 0.5B to 7B, HY-MT",
    .details = "norms on q and k behind rope",
    .read = read_hunyuan,
    .names =
        {
            TRM_HF_MODEL_NAMES,
            TRM_HF_ATTENTION_NAMES,
            TRM_HF_MLP_NAMES,
            TRM_HF_NORM_NAMES,
            HUNYUAN_QK_NORM_NAMES,
        },
};

/* A number, or a list of one for each layer, which must be the same. */
static trm_status read_by_layer(const trm_hf_reader *reader, const char *key, int64_t *value)
{
    const trm_json *list = trm_json_get(reader->object, key);
    if (!trm_json_is_array(list)) {
        return trm_hf_read_size(reader, key, value);
    }
    for (const trm_json *item = trm_json_first(list); item != NULL; item = trm_json_next(item)) {
        int64_t number;
        if (!trm_json_integer(item, &number) || number < 1 || number > INT32_MAX) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "config.json: %s lists what is no positive integer", key);
        }
        if (item != trm_json_first(list) && number != *value) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: %s lists %lld and %lld, expected the same for all layers",
                     key, (long long)*value, (long long)number);
        }
        *value = number;
    }
    return TRM_OK;
}

static trm_status read_hunyuan_moe(const trm_hf_reader *reader, trm_hf_config *config)
{
    trm_hf_moe *moe = &config->moe;
    int64_t k = 1;
    TRM_TRY(read_hunyuan(reader, config));
    moe->experts = 1;
    TRM_TRY(read_by_layer(reader, "num_experts", &moe->experts));
    TRM_TRY(read_by_layer(reader, "moe_topk", &k));
    moe->width = moe->shared_width = config->intermediate;
    moe->router_f32 = true;
    moe->router = (trm_router_params){.k = (int32_t)k, .scoring = TRM_ROUTER_SOFTMAX_CHOSEN};
    return trm_hf_check_moe(config);
}

const trm_hf_family trm_hf_hunyuan_v1_moe = {
    .architecture = "HunYuanMoEV1ForCausalLM",
    .model_type = "hunyuan_v1_moe",
    .models = "Hunyuan-A13B",
    .details = "norms on q and k behind rope, mixture of experts, one shared",
    .read = read_hunyuan_moe,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_NORM_NAMES, HUNYUAN_QK_NORM_NAMES,
              .router = "mlp.gate.wg", .experts = "mlp.experts", .expert_gate = "gate_proj", .expert_up = "up_proj",
              .expert_down = "down_proj", .experts_gate_up = "mlp.experts.gate_up_proj",
              .experts_down = "mlp.experts.down_proj", .shared_gate = "mlp.shared_mlp.gate_proj",
              .shared_up = "mlp.shared_mlp.up_proj", .shared_down = "mlp.shared_mlp.down_proj"},
};
