/* Layers that convert, move, look up and reduce elements of tensors. */
#ifndef TRIREME_LAYERS_TENSOR_H
#define TRIREME_LAYERS_TENSOR_H

#include <trireme/layers/common.h>

#define TRM_CAST_ROUNDS(X)                                                                                             \
    X(TRM_CAST_ROUND_UP, "up")                                                                                         \
    X(TRM_CAST_ROUND_DOWN, "down")                                                                                     \
    X(TRM_CAST_ROUND_NEAREST, "nearest")
typedef enum trm_cast_round { TRM_CAST_ROUNDS(TRM_ENUMERATOR) } trm_cast_round;

/* (x [any]) -> [same dims] of type `to`. Floats to integers truncate toward zero and saturate; integers to narrower
 * ones, and anything to those of 4 and 2 bits, keep the low bits. To floats: to the nearest, half to even. */
typedef struct trm_cast_params {
    trm_dtype to;
    bool unsaturated;     /* to the F8 types: what is out of range becomes infinity or NaN, not the largest number */
    trm_cast_round round; /* to F8E8M0: to which power of 2 */
    bool bits;            /* keeps the bits, not the value: both types have as many */
} trm_cast_params;

/* (x, shape i32|i64 [r], value input, optional) -> the same elements under other dims: `dims`, or the values of `shape`
 * where it is given; `dims`, if it has as many, then holds what is known of those, -1 elsewhere. 0 copies the input's
 * dimension at that position, unless `zero_is_zero`, and one -1 is inferred. */
typedef struct trm_reshape_params {
    trm_dims dims;
    bool zero_is_zero;
} trm_reshape_params;

/* (x) -> axes permuted: out.d[i] = in.d[perm[i]]. */
typedef struct trm_transpose_params {
    int32_t perm[TRM_MAX_DIMS];
} trm_transpose_params;

/* (x, start, end, step: i32|i64 [1] or scalar, value inputs, optional) -> elements start, start+step, ... before end of
 * one axis. Negative start or end count from the end of the axis and are clamped to it; `end` INT64_MAX means to the
 * end. A negative step runs backwards, then `end` INT64_MIN means past the first element. Inputs that are given replace
 * the parameters. */
typedef struct trm_slice_params {
    int32_t axis;
    int64_t start, end, step;
} trm_slice_params;

/* (x0, x1, ...) -> joined along `axis` (may be negative). */
typedef struct trm_concat_params {
    int32_t axis;
} trm_concat_params;

/* (data, indices i32|i64) -> data indexed along `axis`: dims data[:axis] + indices + data[axis+1:].
 * Negative indices count from the end; an index out of range yields zeros. */
typedef struct trm_gather_params {
    int32_t axis;
} trm_gather_params;

/* (table [rows, width], ids i32 [T]) -> [T, width]: row ids[t] - first_row of the table, or zeros
 * where that is outside it, so that tables sharded by row sum to the whole. */
typedef struct trm_embedding_params {
    int64_t first_row;
} trm_embedding_params;

/* (x) -> softmax along `axis` (may be negative). */
typedef struct trm_softmax_params {
    int32_t axis;
} trm_softmax_params;

/* (x) -> reduced along `axis` (may be negative); the axis stays as 1 with keep_dims. Of bools MAX and MIN only. Of an
 * axis of size 0: 0, 1, the smallest and the largest of the type, NaN (integers 0). */
typedef struct trm_reduce_params {
    trm_reduce_op op;
    int32_t axis;
    bool keep_dims;
} trm_reduce_params;

#endif
