/*
 * Draft heads: networks of a few layers that predict a model's further tokens from its hidden states. MTP layers are
 * stored with the model (DeepSeek-V3, arXiv 2412.19437, section 2.2); an EAGLE-3 head (arXiv 2503.01840) has a folder
 * of its own.
 */
#ifndef TRM_GRAPH_IMPORT_HF_DRAFT_HEAD_H
#define TRM_GRAPH_IMPORT_HF_DRAFT_HEAD_H

#include "graph/import/hf/checkpoint.h"
#include "graph/import/hf/config.h"
#include "graph/network.h"

/* A head that drafts for a model. */
typedef struct trm_hf_draft {
    const trm_hf_config *eagle;    /* of an EAGLE-3 head; NULL: the model's MTP layer */
    trm_hf_checkpoint *checkpoint; /* with its weights: for MTP the model's */
} trm_hf_draft;

/* Whether a head wants the hidden states behind the final norm; else it wants those before some layers. */
static inline bool trm_hf_draft_wants_final(const trm_hf_draft *draft)
{
    return draft != NULL && draft->eagle == NULL;
}

/* Whether the checkpoint has an MTP layer of a kind that is known. */
bool trm_hf_has_mtp(const trm_hf_config *config, const trm_hf_checkpoint *checkpoint);

/*
 * Builds the network of a head for the model of `config`. Its inputs are those of a decoder, and
 *   hidden [N, hidden] in `dtype`: what the model, or the step before, gave;
 *   hidden_rows i32 [T]: for each token the row of the hidden state of the token before it.
 * Outputs: logits f32 [R, vocab], and the hidden states [R, hidden] for the token after these. Errors: INVALID_MODEL
 * (a weight is missing or has another shape, the head does not fit the model).
 */
trm_status trm_hf_draft_head_build(const trm_hf_config *config, trm_hf_checkpoint *checkpoint,
                                   const trm_hf_draft *draft, trm_dtype dtype, trm_dtype cache_dtype,
                                   trm_network **network);

/* Reads the model's token for each of the head's, `tokens` [eagle->vocab]. INVALID_MODEL if one is none of the model's.
 */
trm_status trm_hf_draft_read_tokens(const trm_hf_draft *draft, int32_t *tokens);

#endif
