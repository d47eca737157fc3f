/*
 * Writes the turns of a conversation as messages of OpenAI's chats. Text, reasoning and calls of one role that follow
 * each other are one message, as Anthropic's API defines it and as templates expect it.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_TURNS_H
#define TRM_LAUNCHER_SERVE_REQUESTS_TURNS_H

#include "base/json.h"
#include "launcher/serve/json/json_text.h"

/* The beginning of what the server gives clients to send back in place of reasoning: its text follows. */
#define TURNS_KEPT "trireme:"

typedef struct turns {
    json_text *json;               /* inside an array of messages */
    const char *role;              /* of the message that has begun; NULL: none */
    trm_bytes content, reasoning;  /* of it */
    json_text calls;               /* of it: the elements of an array */
    bool begun, any_calls, any_of; /* content was added; calls; text of the present source message */
    bool past_system;              /* a message other than the system's has begun */
} turns;

/* A message of the source begins: its texts are lines of one text, other messages begin a paragraph. */
void turns_begin(turns *t);
/* Each adds to the message of its role; NULL texts are ignored. The system's after others become the user's: few
 * templates print them there. */
void turns_text(turns *t, const char *role, const char *text);
void turns_reasoning(turns *t, const char *text);
void turns_kept(turns *t, const char *kept); /* what other servers gave is ignored */
/* `arguments` are an object or its text. */
void turns_call(turns *t, const char *id, const char *name, const trm_json *arguments);
/* The answer to a call: the texts of `content`, a string or an array of parts, and the tools that parts refer to. */
void turns_answer(turns *t, const char *id, const trm_json *content, bool is_error);
/* Ends the last message and frees what is held. */
void turns_end(turns *t);

#endif
