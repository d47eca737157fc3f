/* GPT-2's byte alphabet. */
#include "launcher/text/tokenizer/byte_level.h"

#include "base/error.h"

/* Bytes that are themselves: 21..7E, A1..AC, AE..FF. The others, in order, are U+0100 and up. */
static int32_t codepoint_of(unsigned char byte)
{
    if (byte <= 0x20) {
        return 0x100 + byte;
    }
    if (byte <= 0x7E || (byte >= 0xA1 && byte != 0xAD)) {
        return byte;
    }
    return byte == 0xAD ? 0x143 : 0x121 + (byte - 0x7F);
}

int trm_byte_level_byte(int32_t c)
{
    if (c >= 0x100 && c <= 0x120) {
        return c - 0x100;
    }
    if (c >= 0x121 && c <= 0x142) {
        return c - 0x121 + 0x7F;
    }
    if (c == 0x143) {
        return 0xAD;
    }
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD) ? c : -1;
}

trm_status trm_byte_level_append(trm_bytes *out, const char *bytes, size_t size)
{
    TRM_TRY(trm_bytes_reserve(out, size * 2));
    char *to = out->data + out->size;
    for (size_t i = 0; i < size; i++) {
        int32_t c = codepoint_of((unsigned char)bytes[i]);
        if (c < 0x80) {
            *to++ = (char)c;
        } else {
            *to++ = (char)(0xC0 | c >> 6);
            *to++ = (char)(0x80 | (c & 0x3F));
        }
    }
    out->size = (size_t)(to - out->data);
    return TRM_OK;
}
