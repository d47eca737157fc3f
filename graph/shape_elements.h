/*
 * What the structure of a network tells of a small integer tensor's elements: numbers, or dims of tensors.
 */
#ifndef TRM_GRAPH_SHAPE_ELEMENTS_H
#define TRM_GRAPH_SHAPE_ELEMENTS_H

#include "graph/network.h"

#define TRM_MAX_SHAPE_ELEMENTS 16

/* One element: `value` if it is known; else dimension `axis` of `of`, or nothing is known where `of` is NULL. */
typedef struct trm_shape_element {
    bool known;
    int64_t value;
    const trm_tensor *of;
    int32_t axis;
} trm_shape_element;

/* Elements [TRM_MAX_SHAPE_ELEMENTS] of an i32 or i64 tensor of rank 0 or 1, and how many; -1 where it is another, or
 * larger. Sees through what shapes are computed with. */
int32_t trm_shape_elements(const trm_tensor *tensor, trm_shape_element *elements);

#endif
