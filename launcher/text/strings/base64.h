/* Standard base64 (RFC 4648, 4) with padding. */
#ifndef TRM_LAUNCHER_TEXT_STRINGS_BASE64_H
#define TRM_LAUNCHER_TEXT_STRINGS_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Decodes a text; *size: the bytes written to `out`, which has room for 3 bytes for 4 characters. False: it is not
 * base64. */
bool trm_base64_decode(const char *text, unsigned char *out, size_t *size);

#endif
