/*
 * Safetensors files made by the tests.
 */
#ifndef TESTS_WEIGHT_STREAM_FILES_H
#define TESTS_WEIGHT_STREAM_FILES_H

#include <stdio.h>

#include "support/support.h"

/* Writes <folder>/<name>: the length of the header, the header, the data. */
static inline void write_safetensors(const char *folder, const char *name, const char *header, const void *data,
                                     size_t data_size)
{
    size_t length = strlen(header);
    unsigned char *bytes = malloc(8 + length + data_size);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    }
    memcpy(bytes + 8, header, length);
    if (data_size > 0) {
        memcpy(bytes + 8 + length, data, data_size);
    }
    char path[4400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    test_write_file(path, bytes, 8 + length + data_size);
    free(bytes);
}

#endif
