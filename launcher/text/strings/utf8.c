/* UTF-8: reading, writing and checking. */
#include "launcher/text/strings/utf8.h"

#include <string.h>

#include "base/error.h"

int32_t trm_utf8_read_back(const char *text, const char *end, size_t *size)
{
    const char *start = end - 1;
    while (start > text && trm_utf8_is_continuation(*start)) {
        start--;
    }
    return trm_utf8_read(start, size);
}

size_t trm_utf8_write(char *out, int32_t codepoint)
{
    uint32_t c = (uint32_t)codepoint;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

size_t trm_utf8_count(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++) {
        count += !trm_utf8_is_continuation(text[i]);
    }
    return count;
}

trm_utf8_kind trm_utf8_examine(const char *text, size_t size, size_t *length)
{
    const unsigned char *p = (const unsigned char *)text;
    *length = 1;
    if (p[0] < 0x80) {
        return TRM_UTF8_VALID;
    }
    if (p[0] < 0xC2 || p[0] > 0xF4) {
        return TRM_UTF8_INVALID;
    }
    size_t needed = trm_utf8_size(text[0]);
    /* Only the second byte has a range narrower than 80..BF (no overlong forms, surrogates, or values above U+10FFFF).
     */
    unsigned char low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    for (; *length < needed; (*length)++) {
        if (*length == size) {
            return TRM_UTF8_INCOMPLETE;
        }
        unsigned char byte = p[*length];
        if (byte < low || byte > high) {
            return TRM_UTF8_INVALID;
        }
        low = 0x80;
        high = 0xBF;
    }
    return TRM_UTF8_VALID;
}

size_t trm_utf8_valid_prefix(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        uint64_t block;
        if (size - at >= sizeof(block)) {
            memcpy(&block, text + at, sizeof(block));
            if ((block & 0x8080808080808080u) == 0) {
                at += sizeof(block);
                continue;
            }
        }
        size_t length;
        if (trm_utf8_examine(text + at, size - at, &length) != TRM_UTF8_VALID) {
            break;
        }
        at += length;
    }
    return at;
}

trm_status trm_utf8_append_lossy(trm_bytes *out, const char *text, size_t size)
{
    while (size > 0) {
        size_t valid = trm_utf8_valid_prefix(text, size);
        TRM_TRY(trm_bytes_append(out, text, valid));
        text += valid;
        size -= valid;
        if (size > 0) {
            size_t length;
            trm_utf8_examine(text, size, &length);
            TRM_TRY(trm_bytes_append(out, TRM_REPLACEMENT_TEXT, TRM_REPLACEMENT_SIZE));
            text += length;
            size -= length;
        }
    }
    return TRM_OK;
}
