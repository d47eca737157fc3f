/* Files: mapped read-only, or read whole. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define FIRST_READ ((size_t)64 << 10)

static trm_status fail_errno(const char *verb, const char *path)
{
    return trm_fail(TRM_ERROR_IO, "cannot %s %s: %s", verb, path, strerror(errno));
}

/* Opens a file to `verb` it. Unless it may be a stream, only a regular file: a FIFO would block, a device might be
 * endless. */
static trm_status open_file(const char *verb, const char *path, bool stream, int *fd, struct stat *info)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | (stream ? 0 : O_NONBLOCK));
    if (*fd < 0) {
        return fail_errno("open", path);
    }
    trm_status status = TRM_OK;
    if (fstat(*fd, info) != 0) {
        status = fail_errno("open", path);
    } else if (S_ISDIR(info->st_mode)) {
        errno = EISDIR;
        status = fail_errno("open", path);
    } else if (!stream && !S_ISREG(info->st_mode)) {
        status = trm_fail(TRM_ERROR_IO, "cannot %s %s: not a regular file", verb, path);
    }
    if (status != TRM_OK) {
        close(*fd);
    }
    return status;
}

trm_status trm_file_map(const char *path, trm_mapping *mapping)
{
    int fd;
    struct stat info = {0};
    TRM_TRY(open_file("map", path, false, &fd, &info));
    if ((uintmax_t)info.st_size > SIZE_MAX) {
        close(fd);
        TRM_FAIL(TRM_ERROR_IO, "cannot map %s: %jd bytes exceed the address space", path, (intmax_t)info.st_size);
    }
    trm_mapping result = {.size = (size_t)info.st_size};
    if (result.size > 0) {
        void *bytes = mmap(NULL, result.size, PROT_READ, MAP_SHARED, fd, 0);
        if (bytes == MAP_FAILED) {
            trm_status status = fail_errno("map", path);
            close(fd);
            return status;
        }
        result.bytes = bytes;
    }
    close(fd);
    *mapping = result;
    return TRM_OK;
}

void trm_file_unmap(trm_mapping *mapping)
{
    if (mapping->bytes != NULL) {
        munmap((void *)(uintptr_t)mapping->bytes, mapping->size);
    }
    *mapping = (trm_mapping){0};
}

static trm_status read_file(const char *path, bool stream, size_t limit, char **text, size_t *size)
{
    int fd;
    struct stat info = {0};
    char *buffer = NULL;
    size_t used = 0;
    TRM_TRY(open_file("read", path, stream, &fd, &info));
    trm_status status = TRM_OK;
    size_t capacity = FIRST_READ;
    if (S_ISREG(info.st_mode)) {
        if ((uintmax_t)info.st_size > limit) {
            status = trm_fail(TRM_ERROR_IO, "%s has %jd bytes, more than the limit of %zu", path,
                              (intmax_t)info.st_size, limit);
            goto out;
        }
        capacity = (size_t)info.st_size + 2; /* the NUL, and one more byte to detect the end */
    }
    /* The size may be unknown (a pipe) or change while we read, so read until the end. */
    for (;;) {
        if (buffer == NULL || capacity - used < 2) {
            capacity = buffer == NULL ? capacity : capacity * 2;
            char *larger = realloc(buffer, capacity);
            if (larger == NULL) {
                status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes to read %s", capacity, path);
                goto out;
            }
            buffer = larger;
        }
        ssize_t got = read(fd, buffer + used, capacity - used - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            status = fail_errno("read", path);
            goto out;
        }
        if (got == 0) {
            break;
        }
        used += (size_t)got;
        if (used > limit) {
            status = trm_fail(TRM_ERROR_IO, "%s has more than the limit of %zu bytes", path, limit);
            goto out;
        }
    }
    buffer[used] = '\0';
    *text = buffer;
    *size = used;
    buffer = NULL;
out:
    free(buffer);
    close(fd);
    return status;
}

trm_status trm_file_read(const char *path, size_t limit, char **text, size_t *size)
{
    return read_file(path, false, limit, text, size);
}

trm_status trm_file_read_stream(const char *path, size_t limit, char **text, size_t *size)
{
    return read_file(path, true, limit, text, size);
}

bool trm_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

void trm_file_make_folders(const char *path)
{
    char *folder = strdup(path);
    for (char *slash = folder == NULL ? NULL : strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(folder, 0777);
        *slash = '/';
    }
    free(folder);
}

trm_status trm_file_check_replaceable(const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: not a regular file", path);
    }
    return TRM_OK;
}
