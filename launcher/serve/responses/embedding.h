/* Embeddings: how a model pools hidden states, and the replies. */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_EMBEDDING_H
#define TRM_LAUNCHER_SERVE_RESPONSES_EMBEDDING_H

#include "launcher/serve/responses/completion.h"

/* How the model in a folder pools, according to 1_Pooling/config.json of sentence-transformers: by mean, or by last
 * token, also without that file; NONE for any other way. Errors: IO, INVALID_MODEL. */
trm_status embedding_pooling(const char *folder, trm_embedding *pooling);

/* Keeps the embedding of an event, truncated as requested and scaled to length 1. */
trm_status embedding_keep(choice *ch, const float *values, int64_t n);
/* Writes the complete reply. */
void embedding_write(const completion *c, json_text *json);

#endif
