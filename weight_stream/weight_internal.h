/*
 * What a weight is made of. A weight is an immutable strided view over the row-major index space of a base: a
 * tensor in a file, random numbers, zeros, or weights joined along an axis. Bases are shared and counted.
 */
#ifndef TRM_WEIGHT_STREAM_WEIGHT_INTERNAL_H
#define TRM_WEIGHT_STREAM_WEIGHT_INTERNAL_H

#include <stdatomic.h>

#include "base/file.h"
#include "weight_stream/weight.h"
#include "weight_stream/weight_view.h"

struct trm_weight_file {
    atomic_int references;
    trm_mapping mapping;
    char *name; /* for dumps and errors */
};

typedef enum trm_weight_base_kind {
    TRM_WEIGHT_STORED,
    TRM_WEIGHT_RANDOM,
    TRM_WEIGHT_ZEROS,
    TRM_WEIGHT_JOINED /* one part or more */
} trm_weight_base_kind;

typedef struct trm_weight_base {
    atomic_int references;
    trm_weight_base_kind kind;
    trm_dtype dtype;
    trm_dims dims;
    /* STORED */
    trm_weight_file *file;
    const unsigned char *bytes;
    char *name;
    /* RANDOM */
    uint64_t seed;
    float mean, spread;
    /* JOINED */
    int32_t axis, n_parts;
    trm_weight **parts;  /* [n_parts] */
    size_t *part_starts; /* [n_parts + 1] elements before a part in one row: everything from the axis inwards */
} trm_weight_base;

struct trm_weight {
    trm_weight_base *base;
    trm_weight_view view;
    size_t count; /* elements */
    trm_weight_runs runs;
};

#endif
