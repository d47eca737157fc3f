/*
 * Weights: where the elements of a constant come from, and how a rank gets only its part of them.
 *
 * A weight is a strided view of a tensor stored in a mapped file, of seeded random numbers, the concatenation of
 * several such views, or a value computed from them. Views are cheap: nothing is read until trm_weight_read().
 */
#ifndef TRM_WEIGHT_STREAM_WEIGHT_H
#define TRM_WEIGHT_STREAM_WEIGHT_H

#include <trireme/types.h>

#include "base/file.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_weight_file trm_weight_file; /* a mapped file; shared by the weights that view it */
typedef struct trm_weight trm_weight;

/* ---- sources ------------------------------------------------------------------------------------ */

/* A set of safetensors files as one: a folder's model.safetensors, or the shards listed in its
 * model.safetensors.index.json. */
typedef struct trm_safetensors trm_safetensors;

/*
 * Opens the weights of a model folder. Maps the files and checks their headers: header size against file size and the
 * limit of 100 MB, JSON, types, shapes against offsets, gaps and overlaps, files the index names.
 * TRM_ERROR_INVALID_MODEL or TRM_ERROR_IO with the file and what is wrong.
 */
trm_status trm_safetensors_open(const char *folder, trm_safetensors **set);
/* The same of one file in the folder. */
trm_status trm_safetensors_open_file(const char *folder, const char *name, trm_safetensors **set);
/* Weights made from the set stay valid after it is closed. */
void trm_safetensors_close(trm_safetensors *set);
int32_t trm_safetensors_count(const trm_safetensors *set);
const char *trm_safetensors_name(const trm_safetensors *set, int32_t index);
/* The index of a stored tensor; -1 if there is none. */
int32_t trm_safetensors_find(const trm_safetensors *set, const char *name);
bool trm_safetensors_has(const trm_safetensors *set, const char *name);
/* A weight of a whole stored tensor. TRM_ERROR_INVALID_MODEL if there is no such tensor. */
trm_status trm_safetensors_weight(const trm_safetensors *set, const char *name, trm_weight **weight);
/* Type and dims of a stored tensor; false if there is none. */
bool trm_safetensors_describe(const trm_safetensors *set, const char *name, trm_dtype *dtype, trm_dims *dims);
/* The type of a stored tensor as its file writes it ("BF16"); "none" if there is none. */
const char *trm_safetensors_type(const trm_safetensors *set, const char *name);
/* Bytes of all tensors. */
size_t trm_safetensors_bytes(const trm_safetensors *set);

/* Random numbers, uniform in [mean - spread, mean + spread], the same for each element whatever part of the weight is
 * read: element i (row-major in the whole) is trm_random_unit(seed, i) of kernels/sampling/random.h, rounded to
 * `dtype`: f32, f16, bf16; f8e4m3, i8 and u8, which saturate. */
trm_status trm_weight_random(trm_dtype dtype, const trm_dims *dims, uint64_t seed, float mean, float spread,
                             trm_weight **weight);

/* ---- files ---------------------------------------------------------------------------------------- */

/* Maps a file for weights to view; dumps show `name`. */
trm_status trm_weight_file_open(const char *path, const char *name, trm_weight_file **file);
void trm_weight_file_retain(trm_weight_file *file);
void trm_weight_file_release(trm_weight_file *file);
trm_mapping trm_weight_file_bytes(const trm_weight_file *file); /* they live as long as the file */

/* A weight of `dims` elements stored at byte `begin` of the file, which must hold them. Shares the file. */
trm_status trm_weight_from_file(trm_weight_file *file, size_t begin, const char *name, trm_dtype dtype,
                                const trm_dims *dims, trm_weight **weight);

/* ---- views: each returns a new weight; the given one stays the caller's --------------------------- */

trm_status trm_weight_clone(const trm_weight *weight, trm_weight **copy);
void trm_weight_destroy(trm_weight *weight); /* NULL is ignored */

/* Any reshape: [heads * 3 * dim, hidden] -> [heads, 3, dim, hidden] and, after a slice, back to
 * [heads * dim, hidden]. The number of elements must be the same. */
trm_status trm_weight_reshape(const trm_weight *weight, const trm_dims *dims, trm_weight **view);
trm_status trm_weight_transpose(const trm_weight *weight, const int32_t *perm, trm_weight **view);
/* Elements start .. start + length - 1 of an axis. */
trm_status trm_weight_slice(const trm_weight *weight, int32_t axis, int64_t start, int64_t length, trm_weight **view);
/* Weights of the same type joined along an axis. */
trm_status trm_weight_concat(const trm_weight *const *weights, int32_t n, int32_t axis, trm_weight **joined);
/* The axis lengthened to `length` with zeros at its end: for shards of equal size. */
trm_status trm_weight_pad(const trm_weight *weight, int32_t axis, int64_t length, trm_weight **padded);

/* Codes of integers stored differently from how kernels read them, for a weight [rows, columns]. */
typedef enum trm_weight_code {
    TRM_WEIGHT_CODE_BYTES = 0, /* i32 -> u8 [rows, 4 * columns], the lowest byte of each first */
    TRM_WEIGHT_CODE_SIGNED,    /* u8 -> i8: less 128 */
    TRM_WEIGHT_CODE_NEXT,      /* i32 -> i32: plus 1 in each 4 bits, modulo 2^32: 15 becomes 0 and carries over */
    TRM_WEIGHT_CODE_HALVES,    /* u8 -> u8 [rows, 2 * columns]: the low 4 bits of each, then the high ones */
    TRM_WEIGHT_CODE_PAIRS, /* u8 -> u8, or f4e2m1 one in a byte -> f4e2m1, [rows, columns / 2]: the low 4 bits of two,
                              the first one's low */
    TRM_WEIGHT_CODE_WORDS, /* i32 -> u8 [8 * rows, columns]: 4 bits of each, the lowest in the first row */
    TRM_WEIGHT_CODE_AWQ_WORDS, /* the same, the lowest in row 0, the next in rows 2, 4, 6, 1, 3, 5, 7 */
    TRM_WEIGHT_CODE_REPEAT,    /* of any type, one element -> [times, 1]: trm_weight_repeat */
    TRM_WEIGHT_CODE_LARGEST,   /* f32, f16 or bf16 -> f32 [rows, 1]: the largest magnitude of each row, above 0 */
    TRM_WEIGHT_CODE_E2M1,      /* u8 -> f4e2m1 [rows, columns]: the same bytes, of two numbers each */
    TRM_WEIGHT_CODE_TWICE,  /* f4e2m1, two in a byte -> i8 [rows, 2 * columns]: twice each number, the low bits first */
    TRM_WEIGHT_CODE_POWERS, /* u8 or f8e8m0 -> f32: 2^(n - 127) */
    TRM_WEIGHT_CODE_COUNT
} trm_weight_code;
/* INVALID_ARGUMENT if the code does not support the weight's type or shape. */
trm_status trm_weight_recode(const trm_weight *weight, trm_weight_code code, trm_weight **recoded);
/* Repeats one element `times` times: [times, 1]. */
trm_status trm_weight_repeat(const trm_weight *weight, int32_t times, trm_weight **repeated);

/*
 * Arithmetic on weights of f32, f16, bf16 and stored f8e4m3: computed in f32 and rounded to the result's type when
 * read, so that the inputs can change later. `b` is NULL for CAST and ROOT. Dims broadcast from the right, and the axes
 * along which an input is not repeated are adjacent: [8, 1, 1] and [16, 8, 3, 3]. INVALID_ARGUMENT for other types and
 * dims, UNSUPPORTED for too many inputs in total. QUANTIZE divides and rounds to the nearest number, half to even, of
 * f8e4m3, of f4e2m1 (one in a byte), of i8, or of 4 bits with 8 added, which are u8; all saturate. What 0 / 0 would be
 * is 0. To f8e8m0 it gives the exponent of the power of two that is the nearest where the ratio is 7/4 or more of one
 * below, else that one.
 */
typedef enum trm_weight_op {
    TRM_WEIGHT_CAST = 0,
    TRM_WEIGHT_ADD,
    TRM_WEIGHT_SUBTRACT,
    TRM_WEIGHT_MULTIPLY,
    TRM_WEIGHT_DIVIDE,
    TRM_WEIGHT_ROOT,
    TRM_WEIGHT_QUANTIZE,
    TRM_WEIGHT_OP_COUNT
} trm_weight_op;
trm_status trm_weight_compute(trm_weight_op op, trm_dtype dtype, const trm_weight *a, const trm_weight *b,
                              trm_weight **computed);

/* ---- use --------------------------------------------------------------------------------------------- */

trm_dtype trm_weight_dtype(const trm_weight *weight); /* as stored */
trm_dims trm_weight_dims(const trm_weight *weight);

/* Whether two weights name the same elements of the same source. */
bool trm_weight_equal(const trm_weight *a, const trm_weight *b);

/*
 * Reads elements first .. first + count - 1 (row-major in the weight's dims), converted to `dtype` (floats among each
 * other, rounding to nearest even; otherwise the stored type only), into host memory. Touches only the pages it
 * needs. May be called by several threads on one weight.
 */
trm_status trm_weight_read(const trm_weight *weight, trm_dtype dtype, size_t first, size_t count, void *to);
/* The same for weights that are read repeatedly and exceed memory: through a window of the call's own, long runs past
 * the system's file cache if the file system can, nothing through mappings. A file that has become shorter is an IO
 * error. */
#define TRM_WEIGHT_WINDOW ((size_t)2 << 20)
trm_status trm_weight_read_direct(const trm_weight *weight, trm_dtype dtype, size_t first, size_t count, void *to);
/* Reads `columns` of each of `rows` rows of a matrix in this way, contiguously. */
trm_status trm_weight_read_box_direct(const trm_weight *weight, trm_dtype dtype, int64_t row, int64_t rows,
                                      int64_t column, int64_t columns, void *to);
/* Whether the file stores a matrix transposed, so that a few columns of all rows read faster than a few rows. */
bool trm_weight_is_turned(const trm_weight *weight);

/* If the weight is one run of stored elements, aligned for their type, its address in the mapped file; else NULL. */
const void *trm_weight_mapped(const trm_weight *weight);

/* The source in a few words for dumps: "model-00001-of-00002.safetensors:model.norm.weight[0:64]". */
void trm_weight_describe(const trm_weight *weight, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
