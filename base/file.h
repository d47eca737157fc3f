/*
 * Files: mapped read-only, or read whole.
 */
#ifndef TRM_BASE_FILE_H
#define TRM_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

typedef struct trm_mapping {
    const unsigned char *bytes; /* NULL for an empty file */
    size_t size;
} trm_mapping;

/* Maps a regular file read-only. TRM_ERROR_IO: "cannot open <path>: No such file or directory". */
trm_status trm_file_map(const char *path, trm_mapping *mapping);
void trm_file_unmap(trm_mapping *mapping);
/* Reads a regular file of at most `limit` bytes into memory to free(), with a NUL after it. */
trm_status trm_file_read(const char *path, size_t limit, char **text, size_t *size);
/* The same for a file that may as well be a pipe or a device; waits for its end. */
trm_status trm_file_read_stream(const char *path, size_t limit, char **text, size_t *size);
bool trm_file_exists(const char *path);
/* Makes the folders that a file lies in. Writing the file says what is wrong if that is not possible. */
void trm_file_make_folders(const char *path);
/* Checks that a new file may replace `path`: it does not exist, or is a regular file, since replacing a device or a
 * pipe would lose it. TRM_ERROR_IO: "cannot write <path>: not a regular file". */
trm_status trm_file_check_replaceable(const char *path);

#endif
