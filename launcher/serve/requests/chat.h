/*
 * Renders chat messages into a prompt.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_CHAT_H
#define TRM_LAUNCHER_SERVE_REQUESTS_CHAT_H

#include <trireme/chat.h>

#include "launcher/serve/requests/api_request.h"

/* Renders the messages of a CHAT, RESPONSE or MESSAGES request into its only prompt, special tokens written as text.
 * Finds whether the reply is in the harmony format. `chat` is NULL if the model has no template. */
bool chat_prompt(const trm_chat_template *chat, api_request *request, api_error *error);

#endif
