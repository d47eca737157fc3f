/*
 * What a weight is made of. A weight is an immutable strided view over the row-major index space of a base: a
 * tensor in a file, random numbers, zeros, or weights joined along an axis. Bases are shared and counted.
 */
#ifndef TRM_WEIGHT_STREAM_WEIGHT_INTERNAL_H
#define TRM_WEIGHT_STREAM_WEIGHT_INTERNAL_H

#include <stdatomic.h>

#include "base/file.h"
#include "weight_stream/weight.h"
#include "weight_stream/weight_form.h"
#include "weight_stream/weight_view.h"

struct trm_weight_file {
    atomic_int references;
    trm_mapping mapping;
    int descriptor; /* -1: bytes that are in no file */
    int direct;     /* the same file, read past the system's cache; -1: it cannot be */
    char *name;     /* for dumps and errors */
    char *path;     /* with no links in it */
};

typedef struct trm_weight_base {
    atomic_int references;
    trm_weight_base_kind kind;
    int32_t depth; /* of what it is made of: 0 of none, else 1 more than the deepest part */
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
    /* RECODED: n_parts is 1 */
    trm_weight_code code;
    int32_t times; /* of REPEAT */
} trm_weight_base;

struct trm_weight {
    trm_weight_base *base;
    trm_weight_view view;
    size_t count; /* elements */
    trm_weight_runs runs;
};

/* Reads bytes begin .. begin + size - 1 without touching the mapping: what is no longer there is an error, not a
 * signal.
 */
trm_status trm_weight_file_read(const trm_weight_file *file, size_t begin, size_t size, void *to);
/* The same past the system's file cache, where the file system can. */
trm_status trm_weight_file_read_direct(const trm_weight_file *file, size_t begin, size_t size, void *to);
/* Whether the file still has the bytes that were mapped. */
trm_status trm_weight_file_check(const trm_weight_file *file);

/* ---- making weights of bases, in weight.c ---- */

/* Refuses dims whose bytes do not fit into half the address space. */
trm_status trm_weight_count_elements(trm_dtype dtype, const trm_dims *dims, size_t *count);
/* Type and dims of a weight under a code; refuses what the code is not for. */
trm_status trm_weight_check_recode(const trm_weight *weight, trm_weight_code code, int32_t times, trm_dtype *dtype,
                                   trm_dims *dims);
/* "awq_words"; "unknown" out of range. */
const char *trm_weight_code_name(trm_weight_code code);
/* Reads elements of a weight into `to`, which a status of the reading is kept for. */
typedef void (*trm_weight_read_part_fn)(void *call, const trm_weight *part, size_t first, size_t count, void *to);
/* Elements start .. start + count - 1 of what a code makes of a weight, whose elements come from `read`. */
void trm_weight_read_recoded(const trm_weight *part, trm_weight_code code, size_t start, size_t count,
                             unsigned char *to, trm_weight_read_part_fn read, void *call);
/* Zeros, which also stand for every weight with no elements. */
trm_status trm_weight_zeros(trm_dtype dtype, const trm_dims *dims, trm_weight **weight);
/* Whether weights can be joined along an axis. */
trm_status trm_weight_check_concat(const trm_weight *const *weights, int32_t n, int32_t axis);
/* A weight of a view of another one's base, as the view was made. */
trm_status trm_weight_of_view(const trm_weight *weight, const trm_weight_view *view, trm_weight **result);
/* A view of the join of the parts as they are, not made fewer or flat; the parts stay the caller's. */
trm_status trm_weight_of_join(const trm_weight *const *parts, int32_t n, int32_t axis, const trm_weight_view *view,
                              trm_weight **result);

#endif
