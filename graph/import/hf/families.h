/*
 * The families: each is a file of families/ with a row for every architecture in it, trm_hf_<row>.
 *
 * A new family is a file, its rows in the list below and goldens (tests/goldens/hf/make_goldens.py).
 */
#ifndef TRM_GRAPH_IMPORT_HF_FAMILIES_H
#define TRM_GRAPH_IMPORT_HF_FAMILIES_H

#include "graph/import/hf/config.h"

#define TRM_HF_FAMILIES(X)                                                                                             \
    X(llama)                                                                                                           \
    X(mistral)                                                                                                         \
    X(ministral)                                                                                                       \
    X(ministral3)                                                                                                      \
    X(qwen2)                                                                                                           \
    X(qwen3)                                                                                                           \
    X(phi3)                                                                                                            \
    X(gemma)                                                                                                           \
    X(gemma2)                                                                                                          \
    X(gemma3)                                                                                                          \
    X(gpt2)                                                                                                            \
    X(gpt_neox)                                                                                                        \
    X(seed_oss)                                                                                                        \
    X(starcoder2)                                                                                                      \
    X(smollm3)                                                                                                         \
    X(granite)                                                                                                         \
    X(arcee)                                                                                                           \
    X(nemotron)                                                                                                        \
    X(olmo2)                                                                                                           \
    X(olmo3)                                                                                                           \
    X(exaone4)                                                                                                         \
    X(cohere2)                                                                                                         \
    X(glm)                                                                                                             \
    X(glm4)                                                                                                            \
    X(ernie4_5)                                                                                                        \
    X(apertus)                                                                                                         \
    X(hunyuan_v1_dense)                                                                                                \
    X(mixtral)                                                                                                         \
    X(qwen2_moe)                                                                                                       \
    X(qwen3_moe)                                                                                                       \
    X(olmoe)                                                                                                           \
    X(granitemoe)                                                                                                      \
    X(granitemoeshared)                                                                                                \
    X(ernie4_5_moe)                                                                                                    \
    X(hunyuan_v1_moe)                                                                                                  \
    X(minimax_m2)                                                                                                      \
    X(glm4_moe)                                                                                                        \
    X(dots1)                                                                                                           \
    X(gpt_oss)                                                                                                         \
    X(llama4)                                                                                                          \
    X(gemma4)                                                                                                          \
    X(phimoe)                                                                                                          \
    X(deepseek_v2)                                                                                                     \
    X(deepseek_v3)                                                                                                     \
    X(qwen3_next)                                                                                                      \
    X(qwen3_5)                                                                                                         \
    X(qwen3_5_moe)                                                                                                     \
    X(deepseek_v32)                                                                                                    \
    X(glm_moe_dsa)                                                                                                     \
    X(granitemoehybrid)                                                                                                \
    X(nemotron_h)

#define TRM_HF_DECLARE(row) extern const trm_hf_family trm_hf_##row;
TRM_HF_FAMILIES(TRM_HF_DECLARE)
#undef TRM_HF_DECLARE

/* Names that many families share. */
#define TRM_HF_MODEL_NAMES                                                                                             \
    .roots = TRM_HF_TEXT_ROOTS, .embedding = "embed_tokens", .layers = "layers", .final_norm = "norm",                 \
    .heads = {"lm_head", "language_model.lm_head"}
/* Text models, and those of models with images. */
#define TRM_HF_TEXT_ROOTS                                                                                              \
    {                                                                                                                  \
        "model.", "model.language_model.", "language_model.model.", "model.text_model.", ""                            \
    }
#define TRM_HF_ATTENTION_NAMES                                                                                         \
    .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj", .o = "self_attn.o_proj"
#define TRM_HF_QK_NORM_NAMES .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"
#define TRM_HF_MLP_NAMES     .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"
#define TRM_HF_EXPERT_NAMES                                                                                            \
    .router = "mlp.gate", .experts = "mlp.experts", .expert_gate = "gate_proj", .expert_up = "up_proj",                \
    .expert_down = "down_proj", .experts_gate_up = "mlp.experts.gate_up_proj", .experts_down = "mlp.experts.down_proj"
#define TRM_HF_MIXTRAL_EXPERT_NAMES                                                                                    \
    .router = "block_sparse_moe.gate", .experts = "block_sparse_moe.experts", .expert_gate = "w1", .expert_up = "w3",  \
    .expert_down = "w2", .experts_gate_up = "mlp.experts.gate_up_proj", .experts_down = "mlp.experts.down_proj"
#define TRM_HF_SHARED_NAMES                                                                                            \
    .shared_gate = "mlp.shared_experts.gate_proj", .shared_up = "mlp.shared_experts.up_proj",                          \
    .shared_down = "mlp.shared_experts.down_proj"
/* An MTP layer behind the last one, as DeepSeek and GLM store it; and as Qwen does. */
#define TRM_HF_MTP_LAYER_NAMES                                                                                         \
    .mtp_embedding_norm = "enorm", .mtp_hidden_norm = "hnorm", .mtp_join = "eh_proj", .mtp_norm = "shared_head.norm"
#define TRM_HF_MTP_ROOT_NAMES                                                                                          \
    .mtp_root = "mtp.", .mtp_embedding_norm = "pre_fc_norm_embedding", .mtp_hidden_norm = "pre_fc_norm_hidden",        \
    .mtp_join = "fc", .mtp_norm = "norm"
#define TRM_HF_NORM_NAMES .attention_norm = "input_layernorm", .mlp_norm = "post_attention_layernorm"
#define TRM_HF_POST_NORM_NAMES                                                                                         \
    .attention_post_norm = "post_attention_layernorm", .mlp_post_norm = "post_feedforward_layernorm"

/* What Llama and many others read: sizes, hidden_act (silu), rms_norm_eps, rope. */
trm_status trm_hf_read_common(const trm_hf_reader *reader, trm_hf_config *config);
/* The sizes of a mixture of experts, by the family's keys; NULL: it has none. Values of config->moe are defaults;
 * without a key for the width it is intermediate_size. Call it after trm_hf_read_sizes. */
typedef struct trm_hf_moe_keys {
    const char *experts, *k, *width;
} trm_hf_moe_keys;
trm_status trm_hf_read_moe(const trm_hf_reader *reader, const trm_hf_moe_keys *keys, trm_hf_config *config);
/* The mixture of DeepSeek-V3 behind its first dense layers: sigmoid router with corrections, groups, shared experts.
 * Defaults as above. */
trm_status trm_hf_read_sigmoid_moe(const trm_hf_reader *reader, int64_t dense_layers, trm_hf_config *config);
/* Refuses sizes of a mixture of experts that do not fit together, and settles the activation of experts. */
trm_status trm_hf_check_moe(trm_hf_config *config);
/* Which layers have a selective scan, by their names in `types`: mamba or linear_attention; the others are attention or
 * full_attention. NULL: all do. */
trm_status trm_hf_read_scan_layers(const trm_hf_reader *reader, const trm_json *types, trm_hf_config *config);
/* time_step_limit, a list of two numbers, of which the second may be infinite. */
trm_status trm_hf_read_step_limit(const trm_hf_reader *reader, trm_hf_config *config);
/* Refuses sizes of a selective scan that do not fit together. */
trm_status trm_hf_check_scan(trm_hf_config *config);
/* attention_bias, for all four projections. */
trm_status trm_hf_read_attention_bias(const trm_hf_reader *reader, trm_hf_config *config);

#endif
