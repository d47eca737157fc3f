/*
 * Reads requests of OpenAI's responses: input items, tools and tool_choice become those of a chat.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_FROM_RESPONSES_H
#define TRM_LAUNCHER_SERVE_REQUESTS_FROM_RESPONSES_H

#include "launcher/serve/json/json_text.h"
#include "launcher/serve/requests/api_request.h"

/* Whether the model can be shown a tool: a function, or a namespace of functions. */
bool from_responses_takes(const trm_json *tool);
/* Writes the name of a called function as the request declares it: "name", and "namespace" if it has one. */
void from_responses_write_name(json_text *json, const trm_json *root, const char *name, size_t size);
/* Writes a chat's messages, tools, tool_choice and parallel_tool_calls as members of an object. */
bool from_responses_write(const trm_json *root, json_text *json, api_error *error);

#endif
