/*
 * What a request says its text must look like: OpenAI's response_format, and guides under vLLM's and llama-server's
 * names. They are read into its format and grammar, which are compiled elsewhere (grammar_cache.h).
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_API_FORMAT_H
#define TRM_LAUNCHER_SERVE_REQUESTS_API_FORMAT_H

#include "launcher/serve/requests/api_request.h"

/* response_format of completions and chats, text.format of responses; and guides of all of them. */
bool api_read_format(api_request *request, api_error *error);

#endif
