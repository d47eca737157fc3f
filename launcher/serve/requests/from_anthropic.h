/*
 * Reads requests of Anthropic's API: messages, tools and tool_choice become those of a chat.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_FROM_ANTHROPIC_H
#define TRM_LAUNCHER_SERVE_REQUESTS_FROM_ANTHROPIC_H

#include "launcher/serve/json/json_text.h"
#include "launcher/serve/requests/api_request.h"

/* Writes a chat's messages, tools, tool_choice and parallel_tool_calls as members of an object. */
bool from_anthropic_write(const trm_json *root, json_text *json, api_error *error);

#endif
