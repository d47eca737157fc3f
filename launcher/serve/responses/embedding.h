/* Embeddings: how a model's hidden states are pooled, and replies of them. */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_EMBEDDING_H
#define TRM_LAUNCHER_SERVE_RESPONSES_EMBEDDING_H

#include "launcher/serve/responses/completion.h"

/* How the model in a folder pools: as 1_Pooling/config.json says, which sentence-transformers writes; the last token
 * without one; NONE for a way that is neither that nor the mean. Errors: IO, INVALID_MODEL. */
trm_status embedding_pooling(const char *folder, trm_embedding *pooling);

/* Keeps the embedding of an event, cut to what was asked for and of length 1. */
trm_status embedding_keep(choice *ch, const float *values, int64_t n);
/* The whole reply. */
void embedding_write(const completion *c, json_text *json);

#endif
