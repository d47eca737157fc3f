/* Growing buffers of bytes and of token ids. */
#include "launcher/text/strings/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "launcher/text/strings/utf8.h"

trm_status trm_array_grow(void **data, size_t *capacity, size_t count, size_t element)
{
    if (count <= *capacity) {
        return TRM_OK;
    }
    size_t larger = *capacity < 16 ? 16 : *capacity;
    while (larger < count) {
        if (!trm_checked_mul(larger, 2, &larger)) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot hold %zu entries of %zu bytes", count, element);
        }
    }
    size_t bytes;
    void *grown = trm_checked_mul(larger, element, &bytes) ? realloc(*data, bytes) : NULL;
    if (grown == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu entries of %zu bytes", larger, element);
    }
    *data = grown;
    *capacity = larger;
    return TRM_OK;
}

trm_status trm_bytes_reserve(trm_bytes *bytes, size_t more)
{
    if (bytes->data != NULL && bytes->capacity - bytes->size >= more) {
        return TRM_OK;
    }
    size_t count;
    if (!trm_checked_add(bytes->size, more == 0 ? 1 : more, &count)) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot hold %zu more bytes of text", more);
    }
    void *data = bytes->data;
    TRM_TRY(trm_array_grow(&data, &bytes->capacity, count, 1));
    bytes->data = data;
    return TRM_OK;
}

trm_status trm_bytes_append(trm_bytes *bytes, const char *data, size_t size)
{
    TRM_TRY(trm_bytes_reserve(bytes, size));
    if (size > 0) {
        memcpy(bytes->data + bytes->size, data, size);
        bytes->size += size;
    }
    return TRM_OK;
}

trm_status trm_bytes_append_codepoint(trm_bytes *bytes, int32_t codepoint)
{
    TRM_TRY(trm_bytes_reserve(bytes, 4));
    bytes->size += trm_utf8_write(bytes->data + bytes->size, codepoint);
    return TRM_OK;
}

void trm_bytes_fini(trm_bytes *bytes)
{
    free(bytes->data);
    *bytes = (trm_bytes){0};
}

trm_status trm_ids_reserve(trm_ids *ids, size_t more)
{
    if (ids->capacity - ids->size >= more) {
        return TRM_OK;
    }
    void *data = ids->data;
    TRM_TRY(trm_array_grow(&data, &ids->capacity, ids->size + more, sizeof(*ids->data)));
    ids->data = data;
    return TRM_OK;
}

trm_status trm_ids_append(trm_ids *ids, int32_t id)
{
    TRM_TRY(trm_ids_reserve(ids, 1));
    ids->data[ids->size++] = id;
    return TRM_OK;
}

void trm_ids_fini(trm_ids *ids)
{
    free(ids->data);
    *ids = (trm_ids){0};
}
