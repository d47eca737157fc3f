/* Files that weights view: mapped whole, reference counted, and read without the mapping if bytes may be gone. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "weight_stream/weight_internal.h"

trm_status trm_weight_file_open(const char *path, const char *name, trm_weight_file **file)
{
    trm_weight_file *result = calloc(1, sizeof(*result));
    char *copy = strdup(name), resolved[PATH_MAX];
    char *full = strdup(realpath(path, resolved) == NULL ? path : resolved);
    if (result == NULL || copy == NULL || full == NULL) {
        free(result);
        free(copy);
        free(full);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the record of file %s", path);
    }
    atomic_init(&result->references, 1);
    result->name = copy;
    result->path = full;
    trm_status status = trm_file_map(path, &result->mapping);
    result->descriptor = status == TRM_OK ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    result->direct = status == TRM_OK ? open(path, O_RDONLY | O_CLOEXEC | O_DIRECT) : -1;
    if (status == TRM_OK && result->descriptor < 0) {
        status = trm_fail(TRM_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
    }
    if (status != TRM_OK) {
        trm_weight_file_release(result);
        return status;
    }
    *file = result;
    return TRM_OK;
}

void trm_weight_file_retain(trm_weight_file *file)
{
    atomic_fetch_add_explicit(&file->references, 1, memory_order_relaxed);
}

void trm_weight_file_release(trm_weight_file *file)
{
    if (file != NULL && atomic_fetch_sub_explicit(&file->references, 1, memory_order_acq_rel) == 1) {
        trm_file_unmap(&file->mapping);
        if (file->descriptor >= 0) {
            close(file->descriptor);
        }
        if (file->direct >= 0) {
            close(file->direct);
        }
        free(file->name);
        free(file->path);
        free(file);
    }
}

trm_status trm_weight_file_read(const trm_weight_file *file, size_t begin, size_t size, void *to)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(file->descriptor, (unsigned char *)to + done, size - done, (off_t)(begin + done));
        if (got < 0 && errno != EINTR) {
            TRM_FAIL(TRM_ERROR_IO, "cannot read %s: %s", file->path, strerror(errno));
        }
        if (got == 0) {
            TRM_TRY(trm_weight_file_check(file));
            TRM_FAIL(TRM_ERROR_IO, "%s ends at byte %zu, expected %zu bytes as when it was opened", file->path,
                     begin + done, file->mapping.size);
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return TRM_OK;
}

trm_status trm_weight_file_read_direct(const trm_weight_file *file, size_t begin, size_t size, unsigned char *window,
                                       const unsigned char **at)
{
    const size_t alignment = TRM_WEIGHT_WINDOW_ALIGNMENT;
    const size_t from = begin / alignment * alignment, needed = begin - from + size;
    const size_t asked = (needed + alignment - 1) / alignment * alignment;
    size_t done = 0;
    while (file->direct >= 0 && done < needed) {
        ssize_t got = pread(file->direct, window + done, asked - done, (off_t)(from + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        done += got > 0 ? (size_t)got : 0;
        if (got <= 0 || done % alignment != 0) {
            break; /* the file system cannot, or the file ends */
        }
    }
    *at = window + (begin - from);
    return done >= needed ? TRM_OK : trm_weight_file_read(file, begin, size, window + (begin - from)); /* it tells */
}

/* Lines with gaps up to this size are read at once. */
#define EXPECTED_GAP ((size_t)64 << 10)
/* Of one request the system reads no more than its read-ahead or its largest request to the device: at least this much
 * by default. */
#define EXPECTED_STRETCH ((size_t)128 << 10)

void trm_weight_file_expect(const trm_weight_file *file, size_t begin, size_t stride, size_t lines, size_t width)
{
    if (stride - width <= EXPECTED_GAP) {
        width += (lines - 1) * stride;
        lines = 1;
    }
    for (size_t k = 0; k < lines; k++) {
        const size_t end = begin + k * stride + width;
        for (size_t at = end - width, size; at < end; at += size) {
            size = EXPECTED_STRETCH - at % EXPECTED_STRETCH; /* no page more than that has */
            size = size < end - at ? size : end - at;
            (void)posix_fadvise(file->descriptor, (off_t)at, (off_t)size, POSIX_FADV_WILLNEED);
        }
    }
}

trm_status trm_weight_file_check(const trm_weight_file *file)
{
    struct stat now;
    if (file->descriptor < 0) {
        return TRM_OK;
    }
    if (fstat(file->descriptor, &now) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot stat %s: %s", file->path, strerror(errno));
    }
    if ((uintmax_t)now.st_size < file->mapping.size) {
        TRM_FAIL(TRM_ERROR_IO, "%s has %jd bytes, it had %zu when it was opened", file->path, (intmax_t)now.st_size,
                 file->mapping.size);
    }
    return TRM_OK;
}

trm_mapping trm_weight_file_bytes(const trm_weight_file *file)
{
    return file->mapping;
}

const char *trm_weight_file_path(const trm_weight_file *file)
{
    return file->path;
}

const char *trm_weight_file_name(const trm_weight_file *file)
{
    return file->name;
}

trm_status trm_weight_file_from_bytes(const void *bytes, size_t size, const char *name, trm_weight_file **file)
{
    char path[64];
    int memory = memfd_create("weight", MFD_CLOEXEC);
    if (memory < 0) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate memory for weight %s: %s", name, strerror(errno));
    }
    for (size_t done = 0; done < size;) {
        ssize_t put = write(memory, (const unsigned char *)bytes + done, size - done);
        if (put <= 0 && errno != EINTR) {
            close(memory);
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for weight %s: %s", size, name,
                     strerror(errno));
        }
        done += put > 0 ? (size_t)put : 0;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
    trm_status status = trm_weight_file_open(path, name, file);
    close(memory);
    return status;
}
