/*
 * Pre-tokenizers: cut normalized text into the pieces that the model sees. A sequence of steps over pieces; some also
 * change the text (ByteLevel, Metaspace).
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_PRETOKENIZE_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/tokenizer/loader.h"
#include "launcher/text/tokenizer/pieces.h"

typedef enum trm_pretokenizer_kind {
    TRM_PRETOKENIZER_BYTE_LEVEL,
    TRM_PRETOKENIZER_SPLIT, /* also Whitespace, by its pattern */
    TRM_PRETOKENIZER_METASPACE,
    TRM_PRETOKENIZER_WHITESPACE_SPLIT,
    TRM_PRETOKENIZER_BERT,
    TRM_PRETOKENIZER_PUNCTUATION,
    TRM_PRETOKENIZER_DIGITS,
    TRM_PRETOKENIZER_DELIMITER,
    TRM_PRETOKENIZER_FIXED_LENGTH
} trm_pretokenizer_kind;

/* When Metaspace and its decoder treat the start of a text as the start of a word. */
typedef enum trm_prepend_scheme { TRM_PREPEND_ALWAYS, TRM_PREPEND_FIRST, TRM_PREPEND_NEVER } trm_prepend_scheme;

typedef struct trm_pretokenizer {
    trm_pretokenizer_kind kind;
    trm_pattern pattern;         /* Split, ByteLevel */
    trm_split_behavior behavior; /* Split, Punctuation, Digits */
    bool invert;                 /* Split */
    bool split;                  /* ByteLevel: use_regex; Metaspace */
    bool add_prefix_space;       /* ByteLevel */
    trm_prepend_scheme prepend;  /* Metaspace */
    int32_t character;           /* Metaspace: replacement; CharDelimiterSplit */
    size_t length;               /* FixedLength, in characters */
} trm_pretokenizer;

typedef struct trm_pretokenizers {
    trm_pretokenizer *items;
    size_t count, capacity;
} trm_pretokenizers;

/* Loads the member "pre_tokenizer" (NULL: none), sequences flattened. UNSUPPORTED naming an unknown type. */
trm_status trm_pretokenizers_load(const trm_text_loader *loader, const trm_json *json,
                                  trm_pretokenizers *pretokenizers);
void trm_pretokenizers_fini(trm_pretokenizers *pretokenizers);
/* Runs all steps over the pieces that are not tokens. */
trm_status trm_pretokenizers_apply(const trm_pretokenizers *pretokenizers, trm_pieces *pieces);

/* The replacement character and scheme of Metaspace, pre-tokenizer or decoder. */
trm_status trm_metaspace_load(const trm_text_loader *loader, const trm_json *json, int32_t *replacement,
                              trm_prepend_scheme *prepend, bool *split);

#endif
