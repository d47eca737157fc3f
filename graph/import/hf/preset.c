/* Shapes of published models. The values are those of their config.json files; begin and end tokens are left out, since
 * random weights mean nothing by them. */
#include "graph/import/hf/preset.h"

#include <string.h>

#include <trireme/model.h>

#define LLAMA(hidden, intermediate, layers, heads, kv_heads, vocab, context, theta, rest)                              \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"hidden_"             \
    "size\":" hidden ",\"intermediate_size\":" intermediate ",\"num_hidden_layers\":" layers                           \
    ",\"num_attention_heads\":" heads ",\"num_key_value_heads\":" kv_heads ",\"vocab_size\":" vocab                    \
    ",\"max_position_embeddings\":" context ",\"rope_theta\":" theta ",\"rms_norm_eps\":1e-05" rest "}"
#define LLAMA3_ROPE(factor)                                                                                            \
    ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":" factor ",\"low_freq_factor\":1.0,"                       \
    "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"
#define QWEN2(hidden, intermediate, layers, heads, kv_heads, vocab, context, tied)                                     \
    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_act\":\"silu\",\"hidden_"             \
    "size\":" hidden ",\"intermediate_size\":" intermediate ",\"num_hidden_layers\":" layers                           \
    ",\"num_attention_heads\":" heads ",\"num_key_value_heads\":" kv_heads ",\"vocab_size\":" vocab                    \
    ",\"max_position_embeddings\":" context                                                                            \
    ",\"rope_theta\":1000000.0,\"rms_norm_eps\":1e-06,\"use_sliding_window\":false,\"tie_word_embeddings\":" tied "}"
#define QWEN3(hidden, intermediate, layers, heads, kv_heads, tied)                                                     \
    "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_act\":\"silu\",\"head_dim\":128,"     \
    "\"hidden_size\":" hidden ",\"intermediate_size\":" intermediate ",\"num_hidden_layers\":" layers                  \
    ",\"num_attention_heads\":" heads ",\"num_key_value_heads\":" kv_heads ",\"vocab_size\":151936,"                   \
    "\"max_position_embeddings\":40960,\"rope_theta\":1000000.0,\"rms_norm_eps\":1e-06,"                               \
    "\"use_sliding_window\":false,\"tie_word_embeddings\":" tied "}"
#define QWEN3_MOE(hidden, layers, heads, kv_heads, experts, width, dense)                                              \
    "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_act\":\"silu\","               \
    "\"head_dim\":128,\"hidden_size\":" hidden ",\"intermediate_size\":" dense ",\"num_hidden_layers\":" layers        \
    ",\"num_attention_heads\":" heads ",\"num_key_value_heads\":" kv_heads ",\"num_experts\":" experts                 \
    ",\"num_experts_per_tok\":8,\"moe_intermediate_size\":" width ",\"norm_topk_prob\":true,"                          \
    "\"vocab_size\":151936,\"max_position_embeddings\":40960,\"rope_theta\":1000000.0,"                                \
    "\"rms_norm_eps\":1e-06,\"use_sliding_window\":false,\"tie_word_embeddings\":false}"
/* Of Qwen3-Next and Qwen3.5. */
#define QWEN_DELTA(type, hidden, layers, heads, value_heads, experts, k, width, vocab)                                 \
    "{" type ",\"hidden_act\":\"silu\",\"head_dim\":256,\"hidden_size\":" hidden ",\"num_hidden_layers\":" layers      \
    ",\"num_attention_heads\":" heads ",\"num_key_value_heads\":2,"                                                    \
    "\"full_attention_interval\":4,\"linear_num_key_heads\":16,\"linear_num_value_heads\":" value_heads                \
    ",\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,\"linear_conv_kernel_dim\":4,"                         \
    "\"num_experts\":" experts ",\"num_experts_per_tok\":" k ",\"moe_intermediate_size\":" width                       \
    ",\"shared_expert_intermediate_size\":" width ",\"norm_topk_prob\":true,\"vocab_size\":" vocab                     \
    ",\"max_position_embeddings\":262144,\"rope_theta\":10000000,\"partial_rotary_factor\":0.25,"                      \
    "\"rms_norm_eps\":1e-06,\"tie_word_embeddings\":false}"
#define QWEN3_NEXT "\"architectures\":[\"Qwen3NextForCausalLM\"],\"model_type\":\"qwen3_next\""
#define QWEN3_5    "\"architectures\":[\"Qwen3_5MoeForCausalLM\"],\"model_type\":\"qwen3_5_moe_text\""
#define GPT_OSS(layers, experts)                                                                                       \
    "{\"architectures\":[\"GptOssForCausalLM\"],\"model_type\":\"gpt_oss\",\"hidden_act\":\"silu\",\"head_dim\":64,"   \
    "\"hidden_size\":2880,\"intermediate_size\":2880,\"num_hidden_layers\":" layers                                    \
    ",\"num_attention_heads\":64,\"num_key_value_heads\":8,\"num_local_experts\":" experts                             \
    ",\"num_experts_per_tok\":4,\"vocab_size\":201088,\"max_position_embeddings\":131072,\"rope_theta\":150000,"       \
    "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,\"beta_fast\":32.0,\"beta_slow\":1.0,"                   \
    "\"truncate\":false,\"original_max_position_embeddings\":4096},\"rms_norm_eps\":1e-05,"                            \
    "\"sliding_window\":128,\"swiglu_limit\":7.0,\"attention_bias\":true,\"tie_word_embeddings\":false,"               \
    "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}"
#define DEEPSEEK_V3(layers, heads, experts, groups, top_groups, dense_layers, scale, vocab, context, theta, rope)      \
    "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_act\":\"silu\","           \
    "\"hidden_size\":7168,\"intermediate_size\":18432,\"moe_intermediate_size\":2048,\"num_hidden_layers\":" layers    \
    ",\"num_attention_heads\":" heads ",\"q_lora_rank\":1536,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,"           \
    "\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"n_routed_experts\":" experts                                         \
    ",\"n_shared_experts\":1,\"num_experts_per_tok\":8,\"n_group\":" groups ",\"topk_group\":" top_groups              \
    ",\"first_k_dense_replace\":" dense_layers ",\"routed_scaling_factor\":" scale                                     \
    ",\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"vocab_size\":" vocab         \
    ",\"max_position_embeddings\":" context ",\"rope_theta\":" theta ",\"rms_norm_eps\":1e-06,"                        \
    "\"tie_word_embeddings\":false,\"rope_scaling\":{\"type\":\"yarn\"," rope                                          \
    ",\"original_max_position_embeddings\":4096,\"mscale\":1.0,\"mscale_all_dim\":1.0}}"
#define GEMMA3(hidden, intermediate, layers, heads, kv_heads, vocab, context, window, rest)                            \
    "{\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\",\"head_dim\":256,"                      \
    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":" hidden ",\"intermediate_size\":" intermediate       \
    ",\"num_hidden_layers\":" layers ",\"num_attention_heads\":" heads ",\"num_key_value_heads\":" kv_heads            \
    ",\"vocab_size\":" vocab ",\"max_position_embeddings\":" context ",\"sliding_window\":" window                     \
    ",\"sliding_window_pattern\":6,\"query_pre_attn_scalar\":256,\"rope_theta\":1000000.0,"                            \
    "\"rope_local_base_freq\":10000.0,\"rms_norm_eps\":1e-06" rest "}"

static const trm_hf_preset presets[] = {
    {"llama-3-8b", LLAMA("4096", "14336", "32", "32", "8", "128256", "8192", "500000.0", "")},
    {"llama-3-70b", LLAMA("8192", "28672", "80", "64", "8", "128256", "8192", "500000.0", "")},
    {"llama-3-8b-1m", LLAMA("4096", "14336", "32", "32", "8", "128256", "1048576", "3580165449.0", "")},
    {"llama-3.1-8b", LLAMA("4096", "14336", "32", "32", "8", "128256", "131072", "500000.0", LLAMA3_ROPE("8.0"))},
    {"llama-3.1-70b", LLAMA("8192", "28672", "80", "64", "8", "128256", "131072", "500000.0", LLAMA3_ROPE("8.0"))},
    {"llama-3.2-1b", LLAMA("2048", "8192", "16", "32", "8", "128256", "131072", "500000.0",
                           LLAMA3_ROPE("32.0") ",\"head_dim\":64,\"tie_word_embeddings\":true")},
    {"llama-3.2-3b", LLAMA("3072", "8192", "28", "24", "8", "128256", "131072", "500000.0",
                           LLAMA3_ROPE("32.0") ",\"head_dim\":128,\"tie_word_embeddings\":true")},
    {"llama-2-7b", LLAMA("4096", "11008", "32", "32", "32", "32000", "4096", "10000.0", "")},
    {"mistral-7b", "{\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\",\"hidden_act\":\"silu\","
                   "\"hidden_size\":4096,\"intermediate_size\":14336,\"num_hidden_layers\":32,"
                   "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"vocab_size\":32768,"
                   "\"max_position_embeddings\":32768,\"rope_theta\":1000000.0,\"rms_norm_eps\":1e-05,"
                   "\"sliding_window\":null}"},
    {"qwen2.5-0.5b", QWEN2("896", "4864", "24", "14", "2", "151936", "32768", "true")},
    {"qwen2.5-7b", QWEN2("3584", "18944", "28", "28", "4", "152064", "131072", "false")},
    {"qwen3-0.6b", QWEN3("1024", "3072", "28", "16", "8", "true")},
    {"qwen3-1.7b", QWEN3("2048", "6144", "28", "16", "8", "true")},
    {"qwen3-4b", QWEN3("2560", "9728", "36", "32", "8", "true")},
    {"qwen3-8b", QWEN3("4096", "12288", "36", "32", "8", "false")},
    {"qwen3-14b", QWEN3("5120", "17408", "40", "40", "8", "false")},
    {"qwen3-32b", QWEN3("5120", "25600", "64", "64", "8", "false")},
    {"qwen3-30b-a3b", QWEN3_MOE("2048", "48", "32", "4", "128", "768", "6144")},
    {"qwen3-235b-a22b", QWEN3_MOE("4096", "94", "64", "4", "128", "1536", "12288")},
    {"qwen3-next-80b-a3b", QWEN_DELTA(QWEN3_NEXT, "2048", "48", "16", "32", "512", "10", "512", "151936")},
    {"qwen3.5-35b-a3b", QWEN_DELTA(QWEN3_5, "2048", "40", "16", "32", "256", "8", "512", "248320")},
    {"qwen3.5-397b-a17b", QWEN_DELTA(QWEN3_5, "4096", "60", "32", "64", "512", "10", "1024", "248320")},
    {"mixtral-8x7b", "{\"architectures\":[\"MixtralForCausalLM\"],\"model_type\":\"mixtral\",\"hidden_act\":\"silu\","
                     "\"hidden_size\":4096,\"intermediate_size\":14336,\"num_hidden_layers\":32,"
                     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"num_local_experts\":8,"
                     "\"num_experts_per_tok\":2,\"vocab_size\":32000,\"max_position_embeddings\":32768,"
                     "\"rope_theta\":1000000.0,\"rms_norm_eps\":1e-05,\"sliding_window\":null}"},
    {"glm-4.5", "{\"architectures\":[\"Glm4MoeForCausalLM\"],\"model_type\":\"glm4_moe\",\"hidden_act\":\"silu\","
                "\"hidden_size\":5120,\"intermediate_size\":12288,\"num_hidden_layers\":92,"
                "\"num_attention_heads\":96,\"num_key_value_heads\":8,\"head_dim\":128,\"attention_bias\":true,"
                "\"use_qk_norm\":true,\"n_routed_experts\":160,\"num_experts_per_tok\":8,\"n_shared_experts\":1,"
                "\"moe_intermediate_size\":1536,\"first_k_dense_replace\":3,\"n_group\":1,\"topk_group\":1,"
                "\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,\"vocab_size\":151552,"
                "\"max_position_embeddings\":131072,\"rope_theta\":1000000.0,\"partial_rotary_factor\":0.5,"
                "\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":false}"},
    {"gpt-oss-20b", GPT_OSS("24", "32")},
    {"gpt-oss-120b", GPT_OSS("36", "128")},
    {"deepseek-v3", DEEPSEEK_V3("61", "128", "256", "8", "4", "3", "2.5", "129280", "163840", "10000.0",
                                "\"factor\":40.0,\"beta_fast\":32.0,\"beta_slow\":1.0")},
    {"kimi-k2", DEEPSEEK_V3("61", "64", "384", "1", "1", "1", "2.827", "163840", "131072", "50000.0",
                            "\"factor\":32.0,\"beta_fast\":1.0,\"beta_slow\":1.0")},
    {"gemma-2-2b",
     "{\"architectures\":[\"Gemma2ForCausalLM\"],\"model_type\":\"gemma2\",\"hidden_activation\":"
     "\"gelu_pytorch_tanh\",\"hidden_size\":2304,\"intermediate_size\":9216,\"num_hidden_layers\":26,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":256,\"vocab_size\":256000,"
     "\"max_position_embeddings\":8192,\"rope_theta\":10000.0,\"rms_norm_eps\":1e-06,\"sliding_window\":4096,"
     "\"query_pre_attn_scalar\":256,\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0}"},
    {"gemma-3-1b", GEMMA3("1152", "6912", "26", "4", "1", "262144", "32768", "512", "")},
    {"gemma-3-4b", GEMMA3("2560", "10240", "34", "8", "4", "262208", "131072", "1024",
                          ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}")},
    {"phi-3-mini", "{\"architectures\":[\"Phi3ForCausalLM\"],\"model_type\":\"phi3\",\"hidden_act\":\"silu\","
                   "\"hidden_size\":3072,\"intermediate_size\":8192,\"num_hidden_layers\":32,"
                   "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"vocab_size\":32064,"
                   "\"max_position_embeddings\":4096,\"original_max_position_embeddings\":4096,"
                   "\"rope_theta\":10000.0,\"rope_scaling\":null,\"rms_norm_eps\":1e-05,\"sliding_window\":2047}"},
    {"gpt2", "{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\",\"activation_function\":\"gelu_new\","
             "\"n_embd\":768,\"n_layer\":12,\"n_head\":12,\"n_positions\":1024,\"vocab_size\":50257,"
             "\"layer_norm_epsilon\":1e-05}"},
    {"gpt-neox-20b", "{\"architectures\":[\"GPTNeoXForCausalLM\"],\"model_type\":\"gpt_neox\",\"hidden_act\":"
                     "\"gelu_fast\",\"hidden_size\":6144,\"intermediate_size\":24576,\"num_hidden_layers\":44,"
                     "\"num_attention_heads\":64,\"vocab_size\":50432,\"max_position_embeddings\":2048,"
                     "\"rotary_pct\":0.25,\"rotary_emb_base\":10000,\"layer_norm_eps\":1e-05,"
                     "\"use_parallel_residual\":true,\"tie_word_embeddings\":false}"},
};

const trm_hf_preset *trm_hf_preset_find(const char *name)
{
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    return NULL;
}

const char *trm_model_preset_name(int32_t index)
{
    return index >= 0 && (size_t)index < sizeof(presets) / sizeof(presets[0]) ? presets[index].name : NULL;
}
