/*
 * Models with what only the importer gives: ways to quantize that have no name, and their weights.
 */
#ifndef TRM_GRAPH_IMPORT_HF_MODEL_H
#define TRM_GRAPH_IMPORT_HF_MODEL_H

#include <trireme/model.h>

#include "graph/import/hf/adapter.h"
#include "graph/import/hf/checkpoint.h"
#include "graph/import/hf/quantization/quantization.h"

/* trm_model_open, with the linear layers quantized as `how` says, if it is not NULL; its patterns must live on. */
trm_status trm_hf_open(const char *path, const trm_hf_quantization *how, trm_model **model);
trm_hf_checkpoint *trm_hf_model_checkpoint(trm_model *model);

/* A draft head that a network is to feed. */
typedef struct trm_hf_drafting {
    trm_model *head; /* EAGLE-3; NULL: the model's own MTP layer */
} trm_hf_drafting;

/* trm_model_build_network_with_cache, with room for adapters, and with a second output for a draft head, the hidden
 * states [T, hidden]; both may be NULL. Besides the inputs that <trireme/model.h> lists it has
 * adapter_slots [T], the slot of each token's adapter, or -1; and for each linear layer two states of fixed dims. */
trm_status trm_hf_build_network(trm_model *model, trm_dtype dtype, trm_dtype cache_dtype,
                                const trm_hf_adapters *adapters, const trm_hf_drafting *drafting,
                                trm_network **network);
/* The network of the head, which draft_head.h describes. Errors also: UNSUPPORTED (the model has no MTP layer). */
trm_status trm_hf_build_draft_head(trm_model *model, const trm_hf_drafting *drafting, trm_dtype dtype,
                                   trm_dtype cache_dtype, trm_network **network);
/* The model's token for each token of an EAGLE-3 head; the caller frees them. */
trm_status trm_hf_draft_tokens(trm_model *head, int32_t **tokens);
/* Opens the folder of an adapter for the network that was built last. */
trm_status trm_hf_model_open_adapter(const trm_model *model, const char *folder, int32_t rank,
                                     trm_hf_adapter **adapter);

#endif
