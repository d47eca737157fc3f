/*
 * Reads what a model has written as a reply: reasoning, content and tool calls, in any format, piece by piece. However
 * the text grows, its pieces hold the same bytes; only the cuts between them differ.
 */
#ifndef TRM_LAUNCHER_SERVE_FORMATS_REPLY_READER_H
#define TRM_LAUNCHER_SERVE_FORMATS_REPLY_READER_H

#include "launcher/serve/formats/tool_stream.h"
#include "launcher/text/harmony.h"

typedef enum reply_kind { REPLY_CONTENT, REPLY_REASONING, REPLY_CALL } reply_kind;

typedef struct reply_piece {
    reply_kind kind;
    bool begins;           /* it is the first of its part: of a message, of the reasoning, of a call */
    int32_t call;          /* index of the call; of CALL */
    const char *name, *id; /* of a CALL that begins; id NULL: the format has none */
    size_t name_size, id_size;
    const char *text; /* [size], a call's arguments; valid until the next piece, a text's in the text that is read */
    size_t size;
} reply_piece;

/* Zero-initialized is at the beginning. */
typedef struct reply_reader {
    bool whole;                /* the text is complete: a call that it cuts is none */
    harmony_reader channels;   /* of the harmony format */
    bool begins;               /* a message has begun without text so far; in other formats: */
    bool answers;              /* reads the answer: after the reasoning, or without one */
    size_t reasoning, content; /* end of what was given of each; 0: nothing */
    size_t answer;             /* where the answer begins */
    tool_stream stream;
    bool named;      /* the name of a forced call was given */
    bool ended;      /* the text was read to its end, and calls in it were looked for once more: */
    tool_calls late; /* those found */
    int32_t n_late;  /* those given */
} reply_reader;
void reply_reader_fini(reply_reader *reader);

/* The next piece of text [size]; false: more text must come first, or there is no more. */
bool reply_next(reply_reader *reader, const api_request *request, const char *text, size_t size, bool at_end,
                reply_piece *piece);
/* Number of calls begun so far. */
int32_t reply_calls(const reply_reader *reader, const api_request *request);
/* Whether the reply ends with calls that can be made. `stopped`: a stop string ended the text. */
bool reply_is_call(const reply_reader *reader, const api_request *request, bool stopped);

#endif
