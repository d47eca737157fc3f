/* Reading option structs of any version. */
#include "base/options.h"

#include <stdbool.h>
#include <string.h>

/* No option struct is larger: a larger size was never set. */
#define MOST_BYTES 4096

trm_status trm_options_read(const char *name, const void *given, void *own)
{
    size_t size, known;
    if (given == NULL) {
        return TRM_OK;
    }
    memcpy(&size, given, sizeof(size));
    memcpy(&known, own, sizeof(known));
    if (size < sizeof(size) || size % sizeof(size) != 0 || size > MOST_BYTES) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s have size %zu, expected %zu: start from their _INIT macro", name, size,
                 known);
    }
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
