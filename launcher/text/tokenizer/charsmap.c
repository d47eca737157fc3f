/* SentencePiece's precompiled character map. */
#include "launcher/text/tokenizer/charsmap.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/base64.h"
#include "launcher/text/strings/unicode.h"
#include "launcher/text/strings/utf8.h"

#define LONGEST_CLUSTER ((size_t)5) /* longer clusters are looked up character by character, as in SentencePiece */

static uint32_t read_u32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

trm_status trm_charsmap_load(const trm_text_loader *loader, const char *base64, trm_charsmap *charsmap)
{
    size_t size = 0;
    unsigned char *blob = trm_arena_alloc(loader->arena, strlen(base64) / 4 * 3 + 3);
    if (blob == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (!trm_base64_decode(base64, blob, &size)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: precompiled_charsmap is not base64", loader->name);
    }
    size_t trie_size = size < 4 ? 0 : read_u32(blob);
    if (trie_size < 4 || trie_size % 4 != 0 || trie_size > size - 4) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: precompiled_charsmap has %zu bytes, too few for its trie of %zu bytes",
                 loader->name, size, trie_size);
    }
    charsmap->unit_count = trie_size / 4;
    charsmap->units = trm_arena_array(loader->arena, charsmap->unit_count, sizeof(*charsmap->units));
    if (charsmap->units == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < charsmap->unit_count; i++) {
        charsmap->units[i] = read_u32(blob + 4 + 4 * i);
    }
    charsmap->texts = (const char *)blob + 4 + trie_size;
    charsmap->texts_size = size - 4 - trie_size;
    if (trm_utf8_valid_prefix(charsmap->texts, charsmap->texts_size) != charsmap->texts_size) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the replacements of precompiled_charsmap are not UTF-8", loader->name);
    }
    return TRM_OK;
}

static size_t unit_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* Offset of the replacement for the shortest prefix of text[size] in the map; -1 if there is none. */
static int64_t find(const trm_charsmap *charsmap, const char *text, size_t size)
{
    size_t node = unit_offset(charsmap->units[0]);
    for (size_t i = 0; i < size && text[i] != '\0'; i++) {
        unsigned char byte = (unsigned char)text[i];
        node ^= byte;
        if (node >= charsmap->unit_count) {
            return -1;
        }
        uint32_t unit = charsmap->units[node];
        if ((unit & (1u << 31 | 0xFF)) != byte) {
            return -1;
        }
        node ^= unit_offset(unit);
        if ((unit >> 8 & 1) != 0) {
            return node < charsmap->unit_count ? (int64_t)(charsmap->units[node] & ((1u << 31) - 1)) : -1;
        }
    }
    return -1;
}

static trm_status append_mapped(const trm_charsmap *charsmap, trm_bytes *out, const char *text, size_t size,
                                bool *mapped)
{
    int64_t offset = find(charsmap, text, size);
    *mapped = offset >= 0;
    if (!*mapped) {
        return TRM_OK;
    }
    size_t begin = (size_t)offset;
    if (begin > charsmap->texts_size ||
        (begin < charsmap->texts_size && trm_utf8_is_continuation(charsmap->texts[begin]))) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "precompiled_charsmap refers to replacement %zu of %zu bytes", begin,
                 charsmap->texts_size);
    }
    return trm_bytes_append(out, charsmap->texts + begin,
                            strnlen(charsmap->texts + begin, charsmap->texts_size - begin));
}

static trm_status append_cluster(const trm_charsmap *charsmap, trm_bytes *out, const char *text, size_t size)
{
    bool mapped = false;
    if (size <= LONGEST_CLUSTER) {
        TRM_TRY(append_mapped(charsmap, out, text, size, &mapped));
        if (mapped) {
            return TRM_OK;
        }
    }
    for (size_t at = 0, step; at < size; at += step) {
        step = trm_utf8_size(text[at]);
        TRM_TRY(append_mapped(charsmap, out, text + at, step, &mapped));
        if (!mapped) {
            TRM_TRY(trm_bytes_append(out, text + at, step));
        }
    }
    return TRM_OK;
}

trm_status trm_charsmap_append(const trm_charsmap *charsmap, trm_bytes *out, const char *text, size_t size)
{
    int32_t state = 0, before = 0;
    size_t begin = 0;
    for (size_t at = 0, step; at < size; at += step) {
        int32_t c = trm_utf8_read(text + at, &step);
        if (at > 0 && trm_unicode_breaks(before, c, &state)) {
            TRM_TRY(append_cluster(charsmap, out, text + begin, at - begin));
            begin = at;
        }
        before = c;
    }
    return append_cluster(charsmap, out, text + begin, size - begin);
}
