#include "launcher/cli/quantize/beside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

void beside_parent(const char *path, char parent[512])
{
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') {
        size--;
    }
    while (size > 0 && path[size - 1] != '/') {
        size--;
    }
    snprintf(parent, 512, "%.*s", size > 0 ? (int)size : 1, size > 0 ? path : ".");
}

trm_status beside_file(const char *path, FILE **file)
{
    char parent[512], name[600];
    beside_parent(path, parent);
    snprintf(name, sizeof(name), "%s/.trireme-XXXXXX", parent);
    const int fd = mkstemp(name);
    *file = fd >= 0 ? fdopen(fd, "w+") : NULL;
    const int cause = errno;
    if (fd >= 0) {
        unlink(name);
    }
    if (*file == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        TRM_FAIL(TRM_ERROR_IO, "cannot make a temporary file in %s: %s", parent, strerror(cause));
    }
    return TRM_OK;
}
