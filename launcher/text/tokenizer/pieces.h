/*
 * A text on its way to tokens: cut into pieces, some of which are tokens already.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_PIECES_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"
#include "launcher/text/tokenizer/loader.h"

typedef struct trm_piece {
    size_t begin, end; /* in the text; never empty unless a token */
    int32_t id;        /* its token, -1 for text */
    bool at_start;     /* it begins at the start of the tokenizer's input */
} trm_piece;

typedef struct trm_piece_list {
    trm_piece *items;
    size_t count, capacity;
} trm_piece_list;

/* Two texts and two lists: a step reads the first, writes the second, and swaps them. Zero-initialized is ready. */
typedef struct trm_pieces {
    trm_bytes text, next_text;
    trm_piece_list list, next_list;
} trm_pieces;

void trm_pieces_fini(trm_pieces *pieces);
trm_status trm_piece_list_append(trm_piece_list *list, trm_piece piece);
/* Makes the next list current and, with `text`, the next text too. */
void trm_pieces_advance(trm_pieces *pieces, bool text);

/* What a split does with its delimiters, shown on "the-final--countdown": */
typedef enum trm_split_behavior {
    TRM_SPLIT_REMOVED,              /* the | final | countdown */
    TRM_SPLIT_ISOLATED,             /* the | - | final | - | - | countdown */
    TRM_SPLIT_MERGED_WITH_PREVIOUS, /* the- | final- | - | countdown */
    TRM_SPLIT_MERGED_WITH_NEXT,     /* the | -final | - | -countdown */
    TRM_SPLIT_CONTIGUOUS            /* the | - | final | -- | countdown */
} trm_split_behavior;

typedef bool (*trm_character_test)(int32_t codepoint);

/* The delimiters of a split: a pattern, the characters of a test, or one character. */
typedef struct trm_delimiter {
    const trm_pattern *pattern;
    trm_character_test test;
    int32_t character;
    bool invert; /* the text between matches is the delimiter */
} trm_delimiter;

/* Splits text[piece.begin .. piece.end) and appends the pieces to `list`. */
trm_status trm_piece_split(trm_piece_list *list, const char *text, trm_piece piece, const trm_delimiter *delimiter,
                           trm_split_behavior behavior);

#endif
