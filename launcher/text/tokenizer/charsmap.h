/*
 * SentencePiece's precompiled character map: a double-array trie (Darts-clone) from text to offsets into a blob of
 * NUL-terminated replacements, stored in base64 in the normalizer "Precompiled".
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_CHARSMAP_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"
#include "launcher/text/tokenizer/loader.h"

typedef struct trm_charsmap {
    uint32_t *units; /* [unit_count] of the double array */
    size_t unit_count;
    const char *texts; /* [texts_size] replacements, valid UTF-8 */
    size_t texts_size;
} trm_charsmap;

/* Decodes and checks the map. INVALID_MODEL for bad base64 or a truncated map. */
trm_status trm_charsmap_load(const trm_text_loader *loader, const char *base64, trm_charsmap *charsmap);
/* Appends text[size] with the map applied to each grapheme cluster of up to 5 bytes, otherwise to each character. */
trm_status trm_charsmap_append(const trm_charsmap *charsmap, trm_bytes *out, const char *text, size_t size);

#endif
