/*
 * The parts of a chat choice's text, reasoning, content and tool calls, as a message or as deltas of a stream.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_MESSAGE_H
#define TRM_LAUNCHER_SERVE_RESPONSES_MESSAGE_H

#include "launcher/serve/responses/completion.h"

/* What is complete and not yet taken of a choice. Zero-initialized is empty. */
typedef struct message_parts {
    trm_bytes reasoning, content;
    json_text calls; /* the elements of an array */
    bool any_calls;
} message_parts;

/* Takes what is complete; at the end it may change the finish reason to "tool_calls". `chunk`: for a delta. */
trm_status message_take(choice *ch, bool chunk, message_parts *parts);
bool message_is_empty(const message_parts *parts);
/* Writes them as "message", or with `chunk` as "delta". */
void message_write(json_text *json, bool chunk, const message_parts *parts);
void message_parts_fini(message_parts *parts);

#endif
