/*
 * Tools: what a request declares and asks for, and calls found in what a model has written. Models write calls in one
 * of three ways:
 *
 *   HERMES (Qwen 2.5, Qwen 3)  <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of times
 *   MISTRAL                    [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
 *   LLAMA (3.1 and later)      {"name": ..., "parameters": {...}} and nothing else, after <|python_tag|> or not
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_TOOLS_H
#define TRM_LAUNCHER_SERVE_REQUESTS_TOOLS_H

#include <trireme/tokenizer.h>

#include "launcher/serve/requests/api_request.h"

#define TOOLS_MOST_CALLS 64

/* The way of a model, by the tokens it has for it; HERMES if it has none. */
tool_style tools_style(const trm_tokenizer *tokenizer);

/* Reads tools and tool_choice of a chat request into request->tool_mode, ->tool_name, and the grammar that a forced
 * call follows. */
bool tools_read(api_request *request, api_error *error);

/* White space of JSON. */
static inline bool tools_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* How many bytes at the beginning of text [size] are no call and cannot become one. At the end of a text nothing more
 * can follow. */
size_t tools_content_size(tool_style style, const char *text, size_t size, bool at_end);

typedef struct tool_call {
    char *name, *arguments; /* arguments are JSON */
} tool_call;
typedef struct tool_calls {
    tool_call calls[TOOLS_MOST_CALLS];
    int32_t count;
} tool_calls;
void tool_calls_fini(tool_calls *calls);

/* Reads the calls of text [size], which begins where tools_content_size said. Returns false, and no calls, if the text
 * is something else. */
bool tools_parse(tool_style style, const char *text, size_t size, tool_calls *calls);
/* Reads what a grammar of TOOL_REQUIRED lets pass: an array of {"name": ..., "parameters": ...}. */
bool tools_parse_required(const char *text, size_t size, tool_calls *calls);

#endif
