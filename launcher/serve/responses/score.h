/*
 * Replies of /score and /rerank: the cosine between the embeddings of a query and of documents.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_SCORE_H
#define TRM_LAUNCHER_SERVE_RESPONSES_SCORE_H

#include "launcher/serve/responses/completion.h"

/* Writes the reply of a finished request. */
void score_write(const completion *c, json_text *json);

#endif
