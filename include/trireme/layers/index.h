/* Layers that read and write elements by index, pad, sort and find the largest. */
#ifndef TRIREME_LAYERS_INDEX_H
#define TRIREME_LAYERS_INDEX_H

#include <trireme/layers/common.h>

#define TRM_PAD_MODES(X)                                                                                               \
    X(TRM_PAD_CONSTANT, "constant")                                                                                    \
    X(TRM_PAD_REFLECT, "reflect") /* without the edge: c b | a b c | b a */                                            \
    X(TRM_PAD_EDGE, "edge")                                                                                            \
    X(TRM_PAD_WRAP, "wrap")
typedef enum trm_pad_mode { TRM_PAD_MODES(TRM_ENUMERATOR) } trm_pad_mode;

/* (x, pads i64 [2 n], value input, optional; value: scalar of x's type, optional) -> x with before[i] elements before
 * and after[i] after those of axis i; negative numbers cut. `pads` replaces both: all befores, then all afters.
 * Constant padding takes `value`, or 0. */
typedef struct trm_pad_params {
    trm_pad_mode mode;
    int32_t before[TRM_MAX_DIMS], after[TRM_MAX_DIMS];
} trm_pad_params;

/* (data, indices i32|i64 of as many axes) -> like indices: data with position `axis` replaced by the index there.
 * Negative indices count from the end; out of range yields zeros. */
typedef struct trm_gather_elements_params {
    int32_t axis;
} trm_gather_elements_params;

/* (data, indices i64 [..., k]) -> indices[:-1] + data[batch_dims + k:]: rows of indices address data behind batch_dims
 * axes that both share. */
typedef struct trm_gather_nd_params {
    int32_t batch_dims;
} trm_gather_nd_params;

#define TRM_SCATTER_FORMS(X)                                                                                           \
    X(TRM_SCATTER_ELEMENTS, "elements") /* indices like updates: position `axis` replaced by the index */              \
    X(TRM_SCATTER_ND, "nd")             /* indices i64 [..., k], updates indices[:-1] + data[k:] */
typedef enum trm_scatter_form { TRM_SCATTER_FORMS(TRM_ENUMERATOR) } trm_scatter_form;

#define TRM_SCATTER_REDUCTIONS(X)                                                                                      \
    X(TRM_SCATTER_REPLACE, "replace")                                                                                  \
    X(TRM_SCATTER_ADD, "add")                                                                                          \
    X(TRM_SCATTER_MUL, "mul")                                                                                          \
    X(TRM_SCATTER_MIN, "min")                                                                                          \
    X(TRM_SCATTER_MAX, "max")
typedef enum trm_scatter_reduction { TRM_SCATTER_REDUCTIONS(TRM_ENUMERATOR) } trm_scatter_reduction;

/* (data, indices i32|i64, updates) -> data with updates written, or combined, at indices. Which of two writes to one
 * place wins is not defined; indices out of range are left out. */
typedef struct trm_scatter_params {
    trm_scatter_form form;
    trm_scatter_reduction reduction;
    int32_t axis; /* ELEMENTS */
} trm_scatter_params;

/* (indices of any number type, depth: scalar, value input; values [2]) -> a new axis of `depth` at `axis` of the
 * output: values[1] at the index, values[0] elsewhere. Negative indices count from depth; out of range is all
 * values[0]. */
typedef struct trm_one_hot_params {
    int32_t axis;
} trm_one_hot_params;

/* (x, lengths i64 [batch]) -> the first lengths[b] elements along time_axis of each batch entry reversed. */
typedef struct trm_reverse_sequence_params {
    int32_t batch_axis, time_axis; /* 0 and 1, or 1 and 0 */
} trm_reverse_sequence_params;

/* (x, k: i64 [1] or scalar, value input) -> (values, indices i64): the k largest (or smallest) along `axis`, in order
 * if sorted; of equal ones the lower index first. NaN counts as largest. */
typedef struct trm_topk_params {
    int32_t axis;
    bool smallest, sorted;
} trm_topk_params;

/* (x) -> i64: index of the largest (or smallest) along `axis`, the first or last of equal ones. */
typedef struct trm_arg_reduce_params {
    int32_t axis;
    bool smallest, last, keep_dims;
} trm_arg_reduce_params;

#endif
