/*
 * The output format that a request asks for: OpenAI's response_format, and the fields of vLLM and llama-server. They
 * become the format and grammar of the request; grammar_cache.h compiles them.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_API_FORMAT_H
#define TRM_LAUNCHER_SERVE_REQUESTS_API_FORMAT_H

#include "launcher/serve/requests/api_request.h"

/* Reads response_format of completions and chats, text.format of responses, output_config.format of messages, and the
 * guided_... fields of all. */
bool api_read_format(api_request *request, api_error *error);

#endif
