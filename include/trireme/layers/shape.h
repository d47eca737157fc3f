/* Layers that read, make or change dims, and those whose output dims depend on data. */
#ifndef TRIREME_LAYERS_SHAPE_H
#define TRIREME_LAYERS_SHAPE_H

#include <trireme/layers/common.h>

/* (x) -> i64 [end - start]: dims start .. end - 1 of x. Negative positions count from the end; both are clamped. */
typedef struct trm_shape_params {
    int32_t start, end; /* end INT32_MAX: all */
} trm_shape_params;

/* (x, shape i32|i64 [r], value input, optional) -> x repeated to what its dims and `dims` (or the values of `shape`)
 * broadcast to, as numpy does. With `shape`, `dims` is what is known of it, as for RESHAPE. */
typedef struct trm_expand_params {
    trm_dims dims;
} trm_expand_params;

/* TILE: (x [n dims], repeats i64 [n], value input) -> x repeated repeats[i] times along axis i. No parameters. */

/* RANGE: (start, limit, delta: scalars of one type, value inputs) -> [max(0, ceil((limit - start) / delta))]: start +
 * i * delta. No parameters. */

/* NON_ZERO: (x [n dims]) -> (i64 [n, count], count): positions of elements that are not 0, in row-major order. No
 * parameters. */

/* (x) -> (y, indices i64 [u], inverse i64 [d], counts i64 [u], u is data-dependent): the different elements of x
 * flattened, or slices along `axis`: in order of value if sorted, else of first occurrence. The number u is the fifth
 * output. */
typedef struct trm_unique_params {
    bool flatten; /* `axis` is not read */
    bool sorted;
    int32_t axis;
} trm_unique_params;

#endif
