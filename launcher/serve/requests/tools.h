/*
 * Tools that a request declares, and tool calls in the output of a model. Models write calls in one of three
 * syntaxes:
 *
 *   HERMES (Qwen 2.5, Qwen 3)  <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of times
 *   MISTRAL                    [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
 *   LLAMA (3.1 and later)      {"name": ..., "parameters": {...}} and nothing else, after an optional <|python_tag|>
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_TOOLS_H
#define TRM_LAUNCHER_SERVE_REQUESTS_TOOLS_H

#include <trireme/tokenizer.h>

#include "launcher/serve/requests/api_request.h"

#define TOOLS_MAX_CALLS 64

/* The syntax of a model, recognized by its special tokens; HERMES if it has none of them. */
tool_style tools_style(const trm_tokenizer *tokenizer);

/* Reads tools and tool_choice of a chat request into request->tool_mode, ->tool_name, and the grammar of a forced call.
 */
bool tools_read(api_request *request, api_error *error);

/* Puts the name of the tool into an error about the grammar of a forced call, with the path in the tool's schema. */
void tools_explain(const api_request *request, api_error *error);

/* JSON white space. */
static inline bool tools_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Number of leading bytes of text [size] that are not part of a call and cannot become one. At the end of a text
 * nothing can follow. */
size_t tools_content_size(tool_style style, const char *text, size_t size, bool at_end);

typedef struct tool_call {
    char *name, *arguments; /* arguments are JSON */
} tool_call;
typedef struct tool_calls {
    tool_call calls[TOOLS_MAX_CALLS];
    int32_t count;
} tool_calls;
void tool_calls_fini(tool_calls *calls);

/* Reads the calls in text [size], which begins at tools_content_size. Returns false, and no calls, if the text is
 * something else. */
bool tools_parse(tool_style style, const char *text, size_t size, tool_calls *calls);
/* Reads the output of a TOOL_REQUIRED grammar: an array of {"name": ..., "parameters": ...}. */
bool tools_parse_required(const char *text, size_t size, tool_calls *calls);

#endif
