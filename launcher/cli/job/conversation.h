/*
 * A conversation with a model: its messages so far, and the prompt that the chat template renders from them.
 */
#ifndef TRM_LAUNCHER_CLI_JOB_CONVERSATION_H
#define TRM_LAUNCHER_CLI_JOB_CONVERSATION_H

#include <trireme/chat.h>

#include "launcher/cli/job/report.h"

typedef struct conversation_message {
    const char *role; /* a literal */
    char *text;
    size_t size;
} conversation_message;

/* Zero-initialized is closed. */
typedef struct conversation {
    trm_chat_template *chat;
    conversation_message *messages; /* [count] */
    size_t count, capacity;
    const char *effort; /* of reasoning, for the template; NULL: its own */
} conversation;

/* `path`: a model folder or a template file. `system`: the first message; NULL: none. */
trm_status conversation_open(conversation *talk, const char *path, const char *system);
void conversation_close(conversation *talk);
/* Appends a message; `role` must be a string literal. */
trm_status conversation_say(conversation *talk, const char *role, const char *text, size_t size);
/* Removes the last message. */
void conversation_unsay(conversation *talk);
/* Makes a text the system message, in place of the one there is; "": none. */
trm_status conversation_set_system(conversation *talk, const char *text);
/* Writes the messages as a member of the object that is open. */
void conversation_write(const conversation *talk, report *r);
/* Renders the prompt for the assistant's next message; release with trm_free. */
trm_status conversation_prompt(const conversation *talk, char **text, size_t *size);

#endif
