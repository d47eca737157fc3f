/*
 * An input as a file, for parsers that take a path.
 */
#ifndef TESTS_FUZZ_INPUT_FILE_H
#define TESTS_FUZZ_INPUT_FILE_H

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

typedef struct fuzz_file {
    int descriptor;
    char path[40];
} fuzz_file;

static inline fuzz_file fuzz_file_open(const uint8_t *data, size_t size)
{
    fuzz_file file = {.descriptor = memfd_create("input", MFD_CLOEXEC)};
    FUZZ_REQUIRE(file.descriptor >= 0 && write(file.descriptor, data, size) == (ssize_t)size);
    snprintf(file.path, sizeof(file.path), "/proc/self/fd/%d", file.descriptor);
    return file;
}

static inline void fuzz_file_close(const fuzz_file *file)
{
    FUZZ_REQUIRE(close(file->descriptor) == 0);
}

/* Reads them all, so that a sanitizer sees those that are not there. */
static inline void fuzz_touch(const void *bytes, size_t size)
{
    static volatile unsigned char sum;
    for (size_t i = 0; i < size; i++) {
        sum ^= ((const unsigned char *)bytes)[i];
    }
    (void)sum;
}

#endif
