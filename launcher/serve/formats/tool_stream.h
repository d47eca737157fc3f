/*
 * Streams tool calls while the model writes them. It streams only what is certainly a call, name first; everything else
 * waits for the end of the text (tool_format.h).
 */
#ifndef TRM_LAUNCHER_SERVE_FORMATS_TOOL_STREAM_H
#define TRM_LAUNCHER_SERVE_FORMATS_TOOL_STREAM_H

#include "launcher/serve/formats/tool_format.h"

typedef enum tool_stream_state {
    TOOL_STREAM_OPENING,   /* marks before a call, or after it */
    TOOL_STREAM_ARGUMENTS, /* within the arguments of a call */
    TOOL_STREAM_ENDED      /* no more calls, or not a call */
} tool_stream_state;

typedef struct tool_stream {
    tool_stream_state state;
    size_t at;                  /* length of the text handled so far */
    int32_t count;              /* calls begun so far */
    bool is_member, is_json;    /* the arguments of the last call, as in tool_opening */
    int32_t depth;              /* of brackets in JSON arguments */
    bool in_string, escaped;    /* in them */
    const trm_json *properties; /* of the called tool, for other arguments */
    json_text made;             /* JSON made of those, since the last piece */
} tool_stream;

/* A piece of a call: the name when it begins, and the next bytes of its arguments. */
typedef struct tool_piece {
    int32_t index;
    const char *name, *id; /* NULL: sent before; the format has no ids */
    size_t name_size, id_size;
    const char *arguments; /* [size], in the text or the stream, until the next call */
    size_t size;
} tool_piece;

void tool_stream_fini(tool_stream *stream);
/* The next piece of text [size], whose calls begin at `start`. Returns false if more text must come first. With
 * `whole`, a call whose arguments do not end is none. */
bool tool_stream_next(tool_stream *stream, const api_request *request, const char *text, size_t start, size_t size,
                      bool whole, tool_piece *piece);

#endif
