/* The families, one block per file; families.c lists them by architecture. */
#ifndef TRM_GRAPH_IMPORT_HF_FAMILIES_H
#define TRM_GRAPH_IMPORT_HF_FAMILIES_H

#include "graph/import/hf/config.h"

/* llama.c */
extern const trm_hf_names trm_hf_llama_names;
trm_status trm_hf_read_llama(const trm_hf_reader *reader, trm_hf_config *config);
trm_status trm_hf_read_mistral(const trm_hf_reader *reader, trm_hf_config *config);

/* qwen.c */
extern const trm_hf_names trm_hf_qwen3_names;
trm_status trm_hf_read_qwen2(const trm_hf_reader *reader, trm_hf_config *config);
trm_status trm_hf_read_qwen3(const trm_hf_reader *reader, trm_hf_config *config);

/* phi.c */
extern const trm_hf_names trm_hf_phi3_names;
trm_status trm_hf_read_phi3(const trm_hf_reader *reader, trm_hf_config *config);

/* gemma.c */
extern const trm_hf_names trm_hf_gemma_names, trm_hf_gemma2_names, trm_hf_gemma3_names;
trm_status trm_hf_read_gemma(const trm_hf_reader *reader, trm_hf_config *config);
trm_status trm_hf_read_gemma2(const trm_hf_reader *reader, trm_hf_config *config);
trm_status trm_hf_read_gemma3(const trm_hf_reader *reader, trm_hf_config *config);

/* gpt.c */
extern const trm_hf_names trm_hf_gpt2_names, trm_hf_gpt_neox_names;
trm_status trm_hf_read_gpt2(const trm_hf_reader *reader, trm_hf_config *config);
trm_status trm_hf_read_gpt_neox(const trm_hf_reader *reader, trm_hf_config *config);

#endif
