/*
 * What a weight is made of. A weight is an immutable strided view over the row-major index space of a base: a
 * tensor in a file, random numbers, zeros, weights joined along an axis, or what is made of others. Bases are shared
 * and counted.
 */
#ifndef TRM_WEIGHT_STREAM_WEIGHT_INTERNAL_H
#define TRM_WEIGHT_STREAM_WEIGHT_INTERNAL_H

#include <stdatomic.h>
#include <string.h>

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
    int32_t terms; /* that an element is computed from: 1 of none */
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
    /* COMPUTED: n_parts is 1 or 2 */
    trm_weight_op op;
    size_t inner[2]; /* element i comes of element i / inner % count of a part */
} trm_weight_base;

struct trm_weight {
    trm_weight_base *base;
    trm_weight_view view;
    size_t count; /* elements */
    trm_weight_runs runs;
};

/* ---- files, in weight_file.c ---- */

/* Reads bytes begin .. begin + size - 1 without touching the mapping: what is no longer there is an error, not a
 * signal.
 */
trm_status trm_weight_file_read(const trm_weight_file *file, size_t begin, size_t size, void *to);
/* What is read past the system's cache begins at a multiple of this, in the file and in the window; a window has room
 * for so many bytes of any place. */
#define TRM_WEIGHT_WINDOW_ALIGNMENT ((size_t)4096)
#define TRM_WEIGHT_WINDOW_ROOM      (TRM_WEIGHT_WINDOW - 2 * TRM_WEIGHT_WINDOW_ALIGNMENT)
/* At most TRM_WEIGHT_WINDOW_ROOM bytes, past the system's file cache where the file system can; *at: where they are in
 * the window. */
trm_status trm_weight_file_read_direct(const trm_weight_file *file, size_t begin, size_t size, unsigned char *window,
                                       const unsigned char **at);
/* Lets the system read `lines` of `width` bytes, `stride` bytes apart, into its cache, without waiting for them. */
void trm_weight_file_expect(const trm_weight_file *file, size_t begin, size_t stride, size_t lines, size_t width);
/* Whether the file still has the bytes that were mapped. */
trm_status trm_weight_file_check(const trm_weight_file *file);

/* ---- dims ---- */

static inline bool trm_weight_same_dims(const trm_dims *a, const trm_dims *b)
{
    return a->n == b->n && memcmp(a->d, b->d, (size_t)a->n * sizeof(a->d[0])) == 0;
}

/* The product of dimensions from .. to - 1. */
static inline size_t trm_weight_extent(const trm_dims *dims, int32_t from, int32_t to)
{
    size_t count = 1;
    for (int32_t i = from; i < to; i++) {
        count *= (size_t)dims->d[i];
    }
    return count;
}

/* "[2, 4096]" */
void trm_weight_print_dims(const trm_dims *dims, char text[160]);
/* Refuses dims whose bytes do not fit into half the address space, so that later arithmetic cannot overflow. */
trm_status trm_weight_count_elements(trm_dtype dtype, const trm_dims *dims, size_t *count);

/* ---- weights of bases, in weight.c ---- */

/* Zeros, which stand for padding and for every weight with no elements, whatever it was cut from. */
trm_status trm_weight_zeros(trm_dtype dtype, const trm_dims *dims, trm_weight **weight);
static inline bool trm_weight_is_zeros(const trm_weight *weight)
{
    return weight->base->kind == TRM_WEIGHT_ZEROS;
}
/* Whether the weight is a join as a whole, so that a view of it can be made of views of its parts. */
bool trm_weight_is_join(const trm_weight *weight);
/* Whether two bases have the same elements. */
bool trm_weight_same_base(const trm_weight_base *a, const trm_weight_base *b);
/* A weight of a view of another one's base, as the view was made. */
trm_status trm_weight_of_view(const trm_weight *weight, const trm_weight_view *view, trm_weight **result);
/* A view of a base that stands for the weight: whatever its own view is, the new one begins anew. */
trm_status trm_weight_nest(const trm_weight *weight, const trm_weight_view *view, trm_weight **nested);
/* Room for parts; NULL when out of memory. Destroys the first n and the array. */
trm_weight **trm_weight_parts_create(int32_t n);
void trm_weight_parts_destroy(trm_weight **parts, int32_t n);
/* The parts as one weight, as they are; takes them over with their array, also when it fails. */
trm_status trm_weight_join(trm_weight **parts, int32_t n, int32_t axis, trm_weight **joined);
/* A view of the join of the parts as they are, not made fewer or flat; the parts stay the caller's. */
trm_status trm_weight_of_join(const trm_weight *const *parts, int32_t n, int32_t axis, const trm_weight_view *view,
                              trm_weight **result);
/* Whether weights can be joined along an axis; in weight_derive.c. */
trm_status trm_weight_check_concat(const trm_weight *const *weights, int32_t n, int32_t axis);

/* ---- codes, in weight_recode.c ---- */

/* Type and dims of a weight under a code; refuses what the code is not for. */
trm_status trm_weight_check_recode(const trm_weight *weight, trm_weight_code code, int32_t times, trm_dtype *dtype,
                                   trm_dims *dims);
/* "awq_words"; "unknown" out of range. */
const char *trm_weight_code_name(trm_weight_code code);
/* Dims of what is computed of `n` weights, and how each is repeated; refuses what cannot be. */
trm_status trm_weight_check_compute(trm_weight_op op, trm_dtype dtype, const trm_weight *const *parts, int32_t n,
                                    trm_dims *dims, size_t inner[2]);
/* "multiply"; "unknown" out of range. */
const char *trm_weight_op_name(trm_weight_op op);
/* Elements start .. start + count - 1 of what is computed, in the type of the base. */
void trm_weight_read_computed(const trm_weight_base *base, size_t start, size_t count, unsigned char *to,
                              void (*read)(void *call, const trm_weight *part, size_t first, size_t count, float *to),
                              void *call);
/* Elements of what is computed at places of its own, at most TRM_WEIGHT_MOST_APART; the rest as above. */
#define TRM_WEIGHT_MOST_APART 256
void trm_weight_compute_apart(const trm_weight_base *base, const size_t *places, size_t count, unsigned char *to,
                              void (*read)(void *call, const trm_weight *part, const size_t *elements, size_t count,
                                           float *to),
                              void *call);
/* Reads elements of a weight into `to`, which a status of the reading is kept for. */
typedef void (*trm_weight_read_part_fn)(void *call, const trm_weight *part, size_t first, size_t count, void *to);
/* Elements start .. start + count - 1 of what a code makes of a weight, whose elements come from `read`. */
void trm_weight_read_recoded(const trm_weight *part, trm_weight_code code, size_t start, size_t count,
                             unsigned char *to, trm_weight_read_part_fn read, void *call);

#endif
