/*
 * Replies of /v1/messages, as Anthropic's clients read them: one message of text, whole or as the events of a stream.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_ANTHROPIC_H
#define TRM_LAUNCHER_SERVE_RESPONSES_ANTHROPIC_H

#include "launcher/serve/responses/completion.h"

/* The whole message of a finished request. */
void anthropic_write(const completion *c, json_text *json);
/* Events of a stream: its beginning, a piece of text, its end, or an error in its place. */
void anthropic_begin(completion *c);
void anthropic_delta(completion *c, const char *text, size_t size);
void anthropic_end(completion *c);
void anthropic_fail(completion *c, const api_error *error);

#endif
