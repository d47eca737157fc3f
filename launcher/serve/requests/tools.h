/*
 * Tools that a request declares, and which of them must be called.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_TOOLS_H
#define TRM_LAUNCHER_SERVE_REQUESTS_TOOLS_H

#include "launcher/serve/requests/api_request.h"

/* Reads tools and tool_choice of a chat request into request->tool_mode, ->tool_name, and the grammar of a forced call.
 */
bool tools_read(api_request *request, api_error *error);

/* Puts the name of the tool into an error about the grammar of a forced call, with the path in the tool's schema. */
void tools_explain(const api_request *request, api_error *error);
/* The function that a request declares under a name [size]; NULL: none. */
const trm_json *tools_find(const api_request *request, const char *name, size_t size);

#endif
