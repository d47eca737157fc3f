/* Reading option structs of any version, and writing such structs of results. */
#include "base/options.h"

#include <stdbool.h>
#include <string.h>

/* No option struct is larger: a larger size was never set. */
#define MOST_BYTES 4096

static trm_status read_sizes(const char *name, const void *given, const void *own, size_t *size, size_t *known)
{
    memcpy(size, given, sizeof(*size));
    memcpy(known, own, sizeof(*known));
    if (*size < sizeof(*size) || *size % sizeof(*size) != 0 || *size > MOST_BYTES) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s have size %zu, expected %zu: start from their _INIT macro", name,
                 *size, *known);
    }
    return TRM_OK;
}

trm_status trm_options_read(const char *name, const void *given, void *own)
{
    size_t size, known;
    if (given == NULL) {
        return TRM_OK;
    }
    TRM_TRY(read_sizes(name, given, own, &size, &known));
    const unsigned char *bytes = given;
    for (size_t i = known; i < size; i++) {
        if (bytes[i] != 0) {
            TRM_FAIL(
                TRM_ERROR_INVALID_ARGUMENT,
                "%s have size %zu, this library knows %zu bytes and byte %zu is not zero: the program was compiled "
                "for a newer Trireme and sets an option that this library lacks",
                name, size, known, i);
        }
    }
    memcpy((unsigned char *)own + sizeof(size), bytes + sizeof(size), (size < known ? size : known) - sizeof(size));
    return TRM_OK;
}

trm_status trm_options_write(const char *name, const void *own, void *given)
{
    size_t size, known;
    TRM_TRY(read_sizes(name, given, own, &size, &known));
    const size_t common = size < known ? size : known;
    memcpy((unsigned char *)given + sizeof(size), (const unsigned char *)own + sizeof(size), common - sizeof(size));
    memset((unsigned char *)given + common, 0, size - common);
    return TRM_OK;
}
