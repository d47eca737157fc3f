/*
 * The header of a safetensors file, checked against the size of the file.
 * https://huggingface.co/docs/safetensors#format
 */
#ifndef TRM_WEIGHT_STREAM_SAFETENSORS_HEADER_H
#define TRM_WEIGHT_STREAM_SAFETENSORS_HEADER_H

#include <trireme/types.h>

#include "base/arena.h"

#define TRM_SAFETENSORS_HEADER_LIMIT ((size_t)100000000)
#define TRM_SAFETENSORS_NAME_LIMIT   1024

typedef struct trm_safetensors_entry {
    const char *name;
    const char *type_name; /* "BF16" */
    trm_dtype dtype;       /* NONE: a type that we do not read */
    trm_dims dims;
    size_t begin, end; /* bytes of the file */
} trm_safetensors_entry;

/*
 * Reads and checks the header of a file of `size` bytes at `bytes`; `name` stands in errors. The entries live in the
 * arena, ordered by their place in the file. TRM_ERROR_INVALID_MODEL with what is wrong.
 */
trm_status trm_safetensors_header_read(const char *name, const unsigned char *bytes, size_t size, trm_arena *arena,
                                       trm_safetensors_entry **entries, size_t *count);

/* Whether a name of a tensor or file may appear in messages: no control characters, within the length limit. */
bool trm_safetensors_name_is_plain(const char *name);

#endif
