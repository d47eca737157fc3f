/*
 * Replies of /v1/responses: messages, reasoning and calls of functions, complete or as stream events. Nothing is
 * stored.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_RESPONSE_H
#define TRM_LAUNCHER_SERVE_RESPONSES_RESPONSE_H

#include "launcher/serve/responses/completion.h"

/* Writes the response object of a finished request. */
void response_write(const completion *c, json_text *json);
/* Write stream events: the beginning, what is complete, the end, or an error in its place. */
void response_begin(completion *c);
trm_status response_delta(completion *c);
void response_end(completion *c);
void response_fail(completion *c, const api_error *error);

#endif
