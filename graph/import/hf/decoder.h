/* The network of a decoder, from its configuration and its weights. */
#ifndef TRM_GRAPH_IMPORT_HF_DECODER_H
#define TRM_GRAPH_IMPORT_HF_DECODER_H

#include "graph/import/hf/adapter.h"
#include "graph/import/hf/checkpoint.h"
#include "graph/import/hf/config.h"
#include "graph/import/hf/draft_head.h"
#include "graph/network.h"

/* What the names in this checkpoint begin with, and its output projection (NULL where tied). INVALID_MODEL if the
 * embedding is missing. */
trm_status trm_hf_decoder_find(const trm_hf_config *config, const trm_hf_checkpoint *checkpoint, const char **root,
                               const char **head);

/* Builds the network that <trireme/model.h> describes, computing in `dtype`, with caches of that type or F8E4M3. With
 * room for `adapters`, which may be NULL, it has the input adapter_slots [T] and adds what takes one to `targets`. With
 * `draft`, which may be NULL, it has a second output, the hidden states [T, hidden] that a draft head begins with. */
trm_status trm_hf_decoder_build(const trm_hf_config *config, trm_hf_checkpoint *checkpoint, trm_dtype dtype,
                                trm_dtype cache_dtype, const trm_hf_adapters *adapters, trm_hf_targets *targets,
                                const trm_hf_draft *draft, trm_network **network);

#endif
