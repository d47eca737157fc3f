/*
 * GPT-2's byte alphabet: printable Latin characters for themselves, U+0100 and up for the rest, so that any bytes
 * become text without spaces and controls.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_BYTE_LEVEL_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_BYTE_LEVEL_H

#include <stdint.h>

#include "launcher/text/strings/buffer.h"

/* The byte of a code point, -1 if none. */
int trm_byte_level_byte(int32_t codepoint);
/* Appends bytes[size] in the byte alphabet. */
trm_status trm_byte_level_append(trm_bytes *out, const char *bytes, size_t size);

#endif
