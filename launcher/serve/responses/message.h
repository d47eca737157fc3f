/*
 * What the text of a chat's choice comes to: reasoning, content and tool calls, as a message or as the pieces of a
 * stream.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_MESSAGE_H
#define TRM_LAUNCHER_SERVE_RESPONSES_MESSAGE_H

#include "launcher/serve/responses/completion.h"

/* The message of a finished choice; its finish reason may become "tool_calls". */
void message_write(json_text *json, choice *ch);
/* What a stream has not told yet and is certain, as "delta". With `json` NULL only whether there is anything. At the
 * end the finish reason may become "tool_calls". */
bool message_has_more(const choice *ch);
void message_write_delta(json_text *json, choice *ch);

#endif
