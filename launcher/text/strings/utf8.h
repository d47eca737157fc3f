/*
 * UTF-8: reading, writing and checking. Everything behind the public calls works on valid UTF-8; the calls here that
 * take unchecked bytes say so.
 */
#ifndef TRM_LAUNCHER_TEXT_STRINGS_UTF8_H
#define TRM_LAUNCHER_TEXT_STRINGS_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"

#define TRM_REPLACEMENT_TEXT "\xEF\xBF\xBD" /* U+FFFD */
#define TRM_REPLACEMENT_SIZE ((size_t)3)

/* Length of the character that begins with `lead`; valid text. */
static inline size_t trm_utf8_size(char lead)
{
    unsigned char byte = (unsigned char)lead;
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

static inline bool trm_utf8_is_continuation(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* The code point at text[0]; valid text. Its size goes to *size. */
static inline int32_t trm_utf8_read(const char *text, size_t *size)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) {
        *size = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *size = 2;
        return (p[0] & 0x1F) << 6 | (p[1] & 0x3F);
    }
    if (p[0] < 0xF0) {
        *size = 3;
        return (p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    }
    *size = 4;
    return (p[0] & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6 | (p[3] & 0x3F);
}

/* The code point that ends before `end` (end > text); valid text. */
int32_t trm_utf8_read_back(const char *text, const char *end, size_t *size);
/* Writes up to 4 bytes; returns their number. */
size_t trm_utf8_write(char *out, int32_t codepoint);
size_t trm_utf8_count(const char *text, size_t size);

typedef enum trm_utf8_kind {
    TRM_UTF8_VALID,     /* a character of *length bytes */
    TRM_UTF8_INVALID,   /* *length bytes that become one U+FFFD (maximal subpart, Unicode 3.9) */
    TRM_UTF8_INCOMPLETE /* the text ends within a character, of which *length bytes are there */
} trm_utf8_kind;

/* Examines unchecked bytes at text[0]; size >= 1. */
trm_utf8_kind trm_utf8_examine(const char *text, size_t size, size_t *length);
/* Length of the longest valid prefix of unchecked bytes. */
size_t trm_utf8_valid_prefix(const char *text, size_t size);
/* Appends unchecked bytes, with invalid and incomplete parts as U+FFFD. */
trm_status trm_utf8_append_lossy(trm_bytes *out, const char *text, size_t size);

#endif
