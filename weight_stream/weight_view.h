/*
 * Strided views of a row-major index space: which element of a base each element of a weight is. Only arithmetic;
 * weight.c owns bases and handles operations without a strided result.
 */
#ifndef TRM_WEIGHT_STREAM_WEIGHT_VIEW_H
#define TRM_WEIGHT_STREAM_WEIGHT_VIEW_H

#include <trireme/types.h>

/* A dimension may need several steps: a reshape after a transpose joins dimensions that are not contiguous. */
#define TRM_WEIGHT_MAX_STEPS 16

typedef struct trm_weight_step {
    int64_t size, stride; /* in elements of the base; size > 1, stride > 0 */
} trm_weight_step;

/* None of the dims is 0 when there are steps. */
typedef struct trm_weight_view {
    trm_dims dims;
    int64_t offset;
    trm_weight_step steps[TRM_WEIGHT_MAX_STEPS]; /* outermost first; no two of one dimension could be one */
    int32_t first[TRM_MAX_DIMS + 1];             /* steps of dimension i: first[i] .. first[i + 1] - 1 */
} trm_weight_view;

/* The steps of all dimensions, made one wherever they can be: what reading walks. */
typedef struct trm_weight_runs {
    int32_t n;
    trm_weight_step steps[TRM_WEIGHT_MAX_STEPS];
} trm_weight_runs;

/* All elements of row-major dims in order. */
void trm_weight_view_whole(const trm_dims *dims, trm_weight_view *view);
void trm_weight_view_runs(const trm_weight_view *view, trm_weight_runs *runs);
bool trm_weight_view_equal(const trm_weight_view *a, const trm_weight_view *b);

/* The view with other dims of the same number of elements; false if strides cannot express it, or it needs too many
 * steps. */
bool trm_weight_view_reshape(const trm_weight_view *view, const trm_dims *dims, trm_weight_view *result);
void trm_weight_view_transpose(const trm_weight_view *view, const int32_t *perm, trm_weight_view *result);
/* A range of length > 0 inside a dimension; false if the dimension has several steps and the range is not a box of
 * them. */
bool trm_weight_view_slice(const trm_weight_view *view, int32_t axis, int64_t start, int64_t length,
                           trm_weight_view *result);
/* Two views of one base joined along an axis; false if the result is not a view. */
bool trm_weight_view_join(const trm_weight_view *a, const trm_weight_view *b, int32_t axis, trm_weight_view *result);

#endif
