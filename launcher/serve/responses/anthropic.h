/*
 * Replies of /v1/messages (Anthropic's API): text, thinking and calls of tools, complete or as stream events.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_ANTHROPIC_H
#define TRM_LAUNCHER_SERVE_RESPONSES_ANTHROPIC_H

#include "launcher/serve/responses/completion.h"

/* Writes the message of a finished request. */
void anthropic_write(const completion *c, json_text *json);
/* Write stream events: the beginning, what is complete, the end, or an error in its place. */
void anthropic_begin(completion *c);
trm_status anthropic_delta(completion *c);
void anthropic_end(completion *c);
void anthropic_fail(completion *c, const api_error *error);

#endif
