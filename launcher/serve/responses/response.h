/*
 * Replies of /v1/responses: one message of text, whole or as the events of a stream. Nothing is stored.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_RESPONSE_H
#define TRM_LAUNCHER_SERVE_RESPONSES_RESPONSE_H

#include "launcher/serve/responses/completion.h"

/* The whole response object of a finished request. */
void response_write(const completion *c, json_text *json);
/* Events of a stream: its beginning, a piece of text, its end. */
void response_begin(completion *c);
void response_delta(completion *c, const char *text, size_t size);
void response_end(completion *c);

#endif
