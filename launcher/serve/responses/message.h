/*
 * The parts of a chat choice's text, reasoning, content and tool calls, as a message or as deltas of a stream.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_MESSAGE_H
#define TRM_LAUNCHER_SERVE_RESPONSES_MESSAGE_H

#include "launcher/serve/responses/completion.h"

/* Writes the message of a finished choice; may change its finish reason to "tool_calls". */
void message_write(json_text *json, choice *ch);
/* Writes what is complete and not yet streamed as "delta". If `json` is NULL, only says whether there is anything. At
 * the end it may change the finish reason to "tool_calls". */
bool message_has_more(const choice *ch);
void message_write_delta(json_text *json, choice *ch);

#endif
