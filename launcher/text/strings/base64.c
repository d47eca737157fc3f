/* Standard base64 with padding. */
#include "launcher/text/strings/base64.h"

#include <stdint.h>
#include <string.h>

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool trm_base64_decode(const char *text, unsigned char *out, size_t *size)
{
    size_t length = strlen(text), padding = 0;
    while (padding < 2 && padding < length && text[length - 1 - padding] == '=') {
        padding++;
    }
    if (length % 4 != 0) {
        return false;
    }
    *size = 0;
    for (size_t i = 0; i < length; i += 4) {
        size_t meaningful = i + 4 == length ? 4 - padding : 4;
        uint32_t group = 0;
        for (size_t j = 0; j < 4; j++) {
            int value = j < meaningful ? value_of(text[i + j]) : 0;
            if (value < 0) {
                return false;
            }
            group = group << 6 | (uint32_t)value;
        }
        for (size_t j = 0; j + 1 < meaningful; j++) {
            out[(*size)++] = (unsigned char)(group >> (16 - 8 * j));
        }
    }
    return true;
}
