/*
 * Tool calls as they are written: names and arguments go out while the model still writes. Only what is plainly a call
 * of a declared tool is taken, name first; the rest waits for the end of the text (tools.h).
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_TOOL_STREAM_H
#define TRM_LAUNCHER_SERVE_RESPONSES_TOOL_STREAM_H

#include "launcher/serve/requests/api_request.h"

typedef enum tool_stream_state {
    TOOL_STREAM_OPENING,   /* marks before a call */
    TOOL_STREAM_ARGUMENTS, /* within the arguments of one */
    TOOL_STREAM_CLOSING,   /* marks behind it */
    TOOL_STREAM_ENDED      /* no more calls, or what is written is none */
} tool_stream_state;

typedef struct tool_stream {
    tool_stream_state state;
    size_t at;     /* text before that is dealt with */
    int32_t count; /* calls that have begun */
    int32_t depth; /* of brackets in the arguments */
    bool in_string, escaped;
} tool_stream;

/* A piece of a call: with its name when it begins; and arguments, bytes begin to end of the text. */
typedef struct tool_piece {
    int32_t index;
    const char *name; /* [name_size], in the text; NULL: it has been told */
    size_t name_size, begin, end;
} tool_piece;

/* The next piece that text [size] has, where calls begin at `start`. Returns false when there is none yet. */
bool tool_stream_next(tool_stream *stream, const api_request *request, const char *text, size_t start, size_t size,
                      tool_piece *piece);

#endif
