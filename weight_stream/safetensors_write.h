/*
 * Writes a folder of safetensors: shards of bounded size, with an index if there are several.
 */
#ifndef TRM_WEIGHT_STREAM_SAFETENSORS_WRITE_H
#define TRM_WEIGHT_STREAM_SAFETENSORS_WRITE_H

#include <stdio.h>

#include <trireme/types.h>

typedef struct trm_safetensors_output {
    const char *name;
    const char *type; /* as files write it: "BF16" */
    trm_dims dims;
    size_t element_size; /* bytes */
} trm_safetensors_output;

/* Writes the bytes of a tensor. */
typedef trm_status (*trm_safetensors_write_fn)(void *user, size_t index, FILE *file);

/* Calls `write` once for each of `count` tensors, shard by shard, those of wide elements first, so that all are
 * aligned. A shard has more than `most` bytes only if it is one tensor. */
trm_status trm_safetensors_write(const char *folder, const trm_safetensors_output *outputs, size_t count, size_t most,
                                 trm_safetensors_write_fn write, void *user);
/* fwrite; IO unless all is written. */
trm_status trm_safetensors_put(FILE *file, const void *bytes, size_t size);

#endif
