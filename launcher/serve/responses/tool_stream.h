/*
 * Streams tool calls while the model writes them. It streams only what is certainly a call of a declared tool, name
 * first; everything else waits for the end of the text (tools.h).
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_TOOL_STREAM_H
#define TRM_LAUNCHER_SERVE_RESPONSES_TOOL_STREAM_H

#include "launcher/serve/requests/api_request.h"

typedef enum tool_stream_state {
    TOOL_STREAM_OPENING,   /* marks before a call */
    TOOL_STREAM_ARGUMENTS, /* within the arguments of a call */
    TOOL_STREAM_CLOSING,   /* marks after it */
    TOOL_STREAM_ENDED      /* no more calls, or not a call */
} tool_stream_state;

typedef struct tool_stream {
    tool_stream_state state;
    size_t at;     /* length of the text handled so far */
    int32_t count; /* calls begun so far */
    int32_t depth; /* depth of brackets in the arguments */
    bool in_string, escaped;
} tool_stream;

/* A piece of a call: the name when it begins, and bytes begin to end of the text as arguments. */
typedef struct tool_piece {
    int32_t index;
    const char *name; /* [name_size], in the text; NULL: sent before */
    size_t name_size, begin, end;
} tool_piece;

/* The next piece of text [size], whose calls begin at `start`. Returns false if there is none yet. */
bool tool_stream_next(tool_stream *stream, const api_request *request, const char *text, size_t start, size_t size,
                      tool_piece *piece);

#endif
