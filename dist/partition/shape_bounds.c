/* Bounds and their values at the points of profiles. */
#include "dist/partition/shape_bounds.h"

#include <string.h>

const char *trm_plan_point_name(trm_plan_point point)
{
    static const char *const names[] = {"min", "opt", "max"};
    return names[point];
}

const trm_shape_bound *trm_shape_bound_find(const trm_shape_bound *bounds, int32_t n_bounds, const char *tensor,
                                            int32_t profile)
{
    const trm_shape_bound *found = NULL;
    for (int32_t i = 0; i < n_bounds; i++) {
        const trm_shape_bound *bound = &bounds[i];
        bool is_next = bound->profile == profile || (bound->profile == 0 && found == NULL);
        found = is_next && strcmp(bound->tensor, tensor) == 0 ? bound : found;
    }
    return found;
}

const trm_dims *trm_shape_bound_dims(const trm_shape_bound *bound, trm_plan_point point)
{
    const trm_dims *dims = point == TRM_POINT_MIN ? &bound->min : point == TRM_POINT_OPT ? &bound->opt : &bound->max;
    return dims->n == 0 ? &bound->max : dims;
}

const void *trm_shape_bound_values(const trm_shape_bound *bound, trm_plan_point point)
{
    const void *values = point == TRM_POINT_MIN   ? bound->min_values
                         : point == TRM_POINT_OPT ? bound->opt_values
                                                  : bound->max_values;
    return values == NULL ? bound->max_values : values;
}

bool trm_shape_bound_says(const trm_shape_bound *bound, trm_plan_point point)
{
    return point == TRM_POINT_MAX || (point == TRM_POINT_MIN ? bound->min.n > 0 || bound->min_values != NULL
                                                             : bound->opt.n > 0 || bound->opt_values != NULL);
}
