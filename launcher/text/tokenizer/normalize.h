/*
 * Normalizers: a sequence of steps, each from text to text, before the text is split.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_NORMALIZE_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"
#include "launcher/text/tokenizer/charsmap.h"
#include "launcher/text/tokenizer/loader.h"

typedef enum trm_normalizer_kind {
    TRM_NORMALIZER_NFC,
    TRM_NORMALIZER_NFD,
    TRM_NORMALIZER_NFKC,
    TRM_NORMALIZER_NFKD,
    TRM_NORMALIZER_LOWERCASE,
    TRM_NORMALIZER_STRIP,
    TRM_NORMALIZER_STRIP_ACCENTS,
    TRM_NORMALIZER_PREPEND,
    TRM_NORMALIZER_REPLACE,
    TRM_NORMALIZER_BERT,
    TRM_NORMALIZER_PRECOMPILED,
    TRM_NORMALIZER_NMT,
    TRM_NORMALIZER_BYTE_LEVEL
} trm_normalizer_kind;

typedef struct trm_normalizer {
    trm_normalizer_kind kind;
    const char *text;    /* Prepend, Replace: the inserted text */
    trm_pattern pattern; /* Replace */
    trm_charsmap charsmap;
    bool left, right;                                                /* Strip */
    bool clean_text, handle_chinese_chars, strip_accents, lowercase; /* Bert */
} trm_normalizer;

typedef struct trm_normalizers {
    trm_normalizer *items;
    size_t count, capacity;
} trm_normalizers;

/* Loads the member "normalizer" (NULL: none), sequences flattened. UNSUPPORTED naming an unknown type. */
trm_status trm_normalizers_load(const trm_text_loader *loader, const trm_json *json, trm_normalizers *normalizers);
void trm_normalizers_fini(trm_normalizers *normalizers);

/* Runs all steps on `text`, with `spare` as a second buffer. *start_cut becomes true if the first character was
 * removed. */
trm_status trm_normalizers_apply(const trm_normalizers *normalizers, trm_bytes *text, trm_bytes *spare,
                                 bool *start_cut);

#endif
