/*
 * Constants computed from refittable weights: they become weights that are computed when read (weight_stream/weight.h),
 * where other networks have numbers.
 */
#ifndef TRM_GRAPH_PASSES_WEIGHT_MATH_H
#define TRM_GRAPH_PASSES_WEIGHT_MATH_H

#include "graph/network.h"

/* The constant, rounded to its type, as a weight with these dims (NULL: its own), which have as many elements. *weight
 * stays NULL for one of another type, or of elements in the network that are not all equal: a refit must not ask for
 * them. */
trm_status trm_weight_math_operand(const trm_tensor *constant, const trm_dims *dims, trm_weight **weight);

/* trm_weight_compute; *computed stays NULL where there is no such weight, or it is made of too many. */
trm_status trm_weight_math_compute(trm_weight_op op, trm_dtype dtype, const trm_weight *a, const trm_weight *b,
                                   trm_weight **computed);

/* The result of a layer of constants, one of them a weight; *computed stays NULL if it is not such arithmetic. */
trm_status trm_weight_math_of_layer(const trm_layer *layer, trm_weight **computed);

#endif
