/* Which architecture is read by whom. A new family is a row here, a reader and a table of names. */
#include "graph/import/hf/families.h"

const trm_hf_family trm_hf_families[] = {
    {"LlamaForCausalLM", "llama", trm_hf_read_llama, &trm_hf_llama_names},
    {"MistralForCausalLM", "mistral", trm_hf_read_mistral, &trm_hf_llama_names},
    {"MinistralForCausalLM", "ministral", trm_hf_read_mistral, &trm_hf_llama_names},
    {"Qwen2ForCausalLM", "qwen2", trm_hf_read_qwen2, &trm_hf_llama_names},
    {"Qwen3ForCausalLM", "qwen3", trm_hf_read_qwen3, &trm_hf_qwen3_names},
    {"Phi3ForCausalLM", "phi3", trm_hf_read_phi3, &trm_hf_phi3_names},
    {"GemmaForCausalLM", "gemma", trm_hf_read_gemma, &trm_hf_gemma_names},
    {"Gemma2ForCausalLM", "gemma2", trm_hf_read_gemma2, &trm_hf_gemma2_names},
    {"Gemma3ForCausalLM", "gemma3_text", trm_hf_read_gemma3, &trm_hf_gemma3_names},
    {"Gemma3ForConditionalGeneration", "gemma3", trm_hf_read_gemma3, &trm_hf_gemma3_names}, /* its text part */
    {"GPT2LMHeadModel", "gpt2", trm_hf_read_gpt2, &trm_hf_gpt2_names},
    {"GPTNeoXForCausalLM", "gpt_neox", trm_hf_read_gpt_neox, &trm_hf_gpt_neox_names},
    {NULL, NULL, NULL, NULL},
};
