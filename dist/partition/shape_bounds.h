/*
 * The caller's bounds of inputs: which bound applies, and its values at a point of its profile.
 */
#ifndef TRM_DIST_PARTITION_SHAPE_BOUNDS_H
#define TRM_DIST_PARTITION_SHAPE_BOUNDS_H

#include <trireme/engine.h>

/* The dims that memory is planned for in a profile. */
typedef enum trm_plan_point { TRM_POINT_MIN, TRM_POINT_OPT, TRM_POINT_MAX, TRM_POINT_COUNT } trm_plan_point;

/* "min", "opt" or "max". */
const char *trm_plan_point_name(trm_plan_point point);

/* The bound of a tensor in a profile, else in profile 0; NULL: none. */
const trm_shape_bound *trm_shape_bound_find(const trm_shape_bound *bounds, int32_t n_bounds, const char *tensor,
                                            int32_t profile);
/* Dims and elements (NULL: unknown) at a point; if it has none, those of max. */
const trm_dims *trm_shape_bound_dims(const trm_shape_bound *bound, trm_plan_point point);
const void *trm_shape_bound_values(const trm_shape_bound *bound, trm_plan_point point);
/* Whether the bound has values for a point. */
bool trm_shape_bound_says(const trm_shape_bound *bound, trm_plan_point point);

#endif
