/* Hunyuan without experts: Llama with norms on the heads of q and k behind their rope, which may have a fixed alpha. */
#include "graph/import/hf/families.h"

#include <math.h>

#include "base/error.h"

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
            .q_norm = "self_attn.query_layernorm",
            .k_norm = "self_attn.key_layernorm",
        },
};
