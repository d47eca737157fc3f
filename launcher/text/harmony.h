/*
 * Replies in the harmony format of gpt-oss: messages with headers, each on a channel.
 *
 *   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
 *
 * The prompt ends with "<|start|>assistant". A header names the channel, the recipient (to=functions.NAME: a call) and
 * the type of the text, in any order. The text must come with its special tokens. Text that does not follow the format
 * is content: only marks and words of headers are dropped.
 * Source: openai/harmony, docs/format.md.
 */
#ifndef TRM_LAUNCHER_TEXT_HARMONY_H
#define TRM_LAUNCHER_TEXT_HARMONY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/chat.h>

typedef enum harmony_kind {
    HARMONY_CONTENT,   /* channels final and commentary, and text without a channel */
    HARMONY_REASONING, /* channel analysis */
    HARMONY_CALL       /* a message to a function */
} harmony_kind;

/* Reads a text that grows. Zero-initialized is at its beginning. */
typedef struct harmony_reader {
    size_t at;       /* length of the text handled so far */
    int32_t n_calls; /* begun so far */
    harmony_kind kind;
    bool in_body; /* within the text of a message, which is of `kind` */
    bool begun;   /* a piece of that text was given */
    bool blank;   /* that text is white space so far */
} harmony_reader;

/* A piece of a message's text: bytes begin to end. */
typedef struct harmony_piece {
    harmony_kind kind;
    bool begins;  /* it is the first of its message */
    bool blank;   /* the message ends and is nothing but white space; calls only, others have no pieces then */
    int32_t call; /* index of the call; of CALL */
    size_t name, name_size; /* the function's name, in the text; of a CALL that begins */
    size_t begin, end;
} harmony_piece;

/* Whether a model with this template replies in this format. */
bool harmony_is_written(const trm_chat_template *chat);
/* Reads the next piece of text [size]; false if more text must come first. However the text grows, its pieces hold the
 * same bytes; only the cuts between them differ. With `at_end` nothing is held back. */
bool harmony_next(harmony_reader *reader, const char *text, size_t size, bool at_end, harmony_piece *piece);

#endif
