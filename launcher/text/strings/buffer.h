/*
 * Growing buffers of bytes and of token ids. Zero-initialized is empty and ready.
 */
#ifndef TRM_LAUNCHER_TEXT_STRINGS_BUFFER_H
#define TRM_LAUNCHER_TEXT_STRINGS_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

typedef struct trm_bytes {
    char *data;
    size_t size, capacity;
} trm_bytes;

/* Makes room for `more` bytes after the present ones. After this and the calls below `data` is not NULL, even if empty.
 */
trm_status trm_bytes_reserve(trm_bytes *bytes, size_t more);
trm_status trm_bytes_append(trm_bytes *bytes, const char *data, size_t size);
/* Appends one code point as UTF-8. */
trm_status trm_bytes_append_codepoint(trm_bytes *bytes, int32_t codepoint);
void trm_bytes_fini(trm_bytes *bytes);

typedef struct trm_ids {
    int32_t *data;
    size_t size, capacity;
} trm_ids;

trm_status trm_ids_reserve(trm_ids *ids, size_t more);
trm_status trm_ids_append(trm_ids *ids, int32_t id);
void trm_ids_fini(trm_ids *ids);

/* Grows an array with elements of `element` bytes to hold `count` of them, by doubling; OUT_OF_MEMORY keeps the old
 * array. */
trm_status trm_array_grow(void **data, size_t *capacity, size_t count, size_t element);

#endif
