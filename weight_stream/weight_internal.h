/*
 * The parts of a weight. A weight is an immutable strided view over the row-major index space of a base: a tensor in a
 * file, random numbers, zeros, weights joined along an axis, or weights recoded or computed from others. Bases are
 * reference counted.
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
    int descriptor; /* -1: bytes without a file */
    int direct;     /* the same file, read past the system's cache; -1: it cannot be */
    char *name;     /* for dumps and errors */
    char *path;     /* with no links in it */
};

typedef struct trm_weight_base {
    atomic_int references;
    trm_weight_base_kind kind;
    int32_t depth; /* nesting: 0 without parts, else 1 more than the deepest part */
    int32_t terms; /* number of elements that an element is computed from: 1 without parts */
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
    int32_t times;     /* of REPEAT */
    atomic_uint *memo; /* of LARGEST, [rows]: the bits of those found so far, 0 for others */
    /* COMPUTED: n_parts is 1 or 2 */
    trm_weight_op op;
    size_t inner[2]; /* element i uses element i / inner % count of a part */
} trm_weight_base;

struct trm_weight {
    trm_weight_base *base;
    trm_weight_view view;
    size_t count; /* elements */
    trm_weight_runs runs;
};

/* ---- files, in weight_file.c ---- */

/* Reads bytes begin .. begin + size - 1 without the mapping: missing bytes are an error, not a signal. */
trm_status trm_weight_file_read(const trm_weight_file *file, size_t begin, size_t size, void *to);
/* Reads past the system's cache start at a multiple of this, in the file and in the window; a window has room for this
 * many bytes from any offset. */
#define TRM_WEIGHT_WINDOW_ALIGNMENT ((size_t)4096)
#define TRM_WEIGHT_WINDOW_ROOM      (TRM_WEIGHT_WINDOW - 2 * TRM_WEIGHT_WINDOW_ALIGNMENT)
/* Reads at most TRM_WEIGHT_WINDOW_ROOM bytes, past the system's file cache if the file system can; *at is their address
 * in the window. */
trm_status trm_weight_file_read_direct(const trm_weight_file *file, size_t begin, size_t size, unsigned char *window,
                                       const unsigned char **at);
/* Asks the system to read `lines` of `width` bytes, `stride` bytes apart, into its cache, without waiting. */
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
/* Fails for dims whose bytes exceed half the address space, so that later arithmetic cannot overflow. */
trm_status trm_weight_count_elements(trm_dtype dtype, const trm_dims *dims, size_t *count);

/* ---- weights of bases, in weight.c ---- */

/* Zeros, for padding and for every weight without elements. */
trm_status trm_weight_zeros(trm_dtype dtype, const trm_dims *dims, trm_weight **weight);
static inline bool trm_weight_is_zeros(const trm_weight *weight)
{
    return weight->base->kind == TRM_WEIGHT_ZEROS;
}
/* Whether the weight is a whole join, so that a view of it can consist of views of its parts. */
bool trm_weight_is_join(const trm_weight *weight);
/* Whether two bases have the same elements. */
bool trm_weight_same_base(const trm_weight_base *a, const trm_weight_base *b);
/* A weight of a view of another weight's base. */
trm_status trm_weight_of_view(const trm_weight *weight, const trm_weight_view *view, trm_weight **result);
/* A view of a base that stands for the weight, so that the new view starts over. */
trm_status trm_weight_nest(const trm_weight *weight, const trm_weight_view *view, trm_weight **nested);
/* Room for parts; NULL when out of memory. Destroys the first n and the array. */
trm_weight **trm_weight_parts_create(int32_t n);
void trm_weight_parts_destroy(trm_weight **parts, int32_t n);
/* The parts as one weight; takes them over with their array, also on failure. */
trm_status trm_weight_join(trm_weight **parts, int32_t n, int32_t axis, trm_weight **joined);
/* A view of the join of the parts, without merging or flattening them; the caller keeps the parts. */
trm_status trm_weight_of_join(const trm_weight *const *parts, int32_t n, int32_t axis, const trm_weight_view *view,
                              trm_weight **result);
/* Whether weights can be joined along an axis; in weight_derive.c. */
trm_status trm_weight_check_concat(const trm_weight *const *weights, int32_t n, int32_t axis);

/* ---- codes, in weight_recode.c ---- */

/* Type and dims of a recoded weight; fails if the code does not support it. */
trm_status trm_weight_check_recode(const trm_weight *weight, trm_weight_code code, int32_t times, trm_dtype *dtype,
                                   trm_dims *dims);
/* "awq_words"; "unknown" out of range. */
const char *trm_weight_code_name(trm_weight_code code);
/* Dims of a value computed from `n` weights, and how each is repeated; fails if impossible. */
trm_status trm_weight_check_compute(trm_weight_op op, trm_dtype dtype, const trm_weight *const *parts, int32_t n,
                                    trm_dims *dims, size_t inner[2]);
/* "multiply"; "unknown" out of range. */
const char *trm_weight_op_name(trm_weight_op op);
/* Reads elements start .. start + count - 1 of a computed weight, in the base's type. */
void trm_weight_read_computed(const trm_weight_base *base, size_t start, size_t count, unsigned char *to,
                              void (*read)(void *call, const trm_weight *part, size_t first, size_t count, float *to),
                              void *call);
/* Reads up to TRM_WEIGHT_MOST_APART elements of a computed weight at any positions; otherwise as above. */
#define TRM_WEIGHT_MOST_APART 256
void trm_weight_compute_apart(const trm_weight_base *base, const size_t *places, size_t count, unsigned char *to,
                              void (*read)(void *call, const trm_weight *part, const size_t *elements, size_t count,
                                           float *to),
                              void *call);
/* Reads elements of a weight into `to`, and keeps a status. */
typedef void (*trm_weight_read_part_fn)(void *call, const trm_weight *part, size_t first, size_t count, void *to);
/* Recodes elements start .. start + count - 1 of a weight, whose elements `read` returns. */
void trm_weight_read_recoded(const trm_weight *part, trm_weight_code code, size_t start, size_t count,
                             unsigned char *to, trm_weight_read_part_fn read, void *call);

#endif
