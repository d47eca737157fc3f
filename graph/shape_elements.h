/*
 * Elements of small integer tensors that follow from the structure of a network: numbers, or dims of tensors.
 */
#ifndef TRM_GRAPH_SHAPE_ELEMENTS_H
#define TRM_GRAPH_SHAPE_ELEMENTS_H

#include "graph/network.h"

#define TRM_MAX_SHAPE_ELEMENTS 16

/* One element: `value` if known; else dimension `axis` of `of`; unknown if `of` is NULL. */
typedef struct trm_shape_element {
    bool known;
    int64_t value;
    const trm_tensor *of;
    int32_t axis;
} trm_shape_element;

/* Writes the elements [TRM_MAX_SHAPE_ELEMENTS] of an i32 or i64 tensor of rank 0 or 1 and returns their number; -1 for
 * other or larger tensors. Follows the layers of shape computations. */
int32_t trm_shape_elements(const trm_tensor *tensor, trm_shape_element *elements);

#endif
