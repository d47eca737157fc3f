/*
 * Which axis of a layer's outputs follows which axis of its inputs: entries along the one are computed from the same
 * entries along the other. This decides what can be split over ranks, and what can be computed for a part of the
 * entries. Also, which unknown sizes of outputs equal those of inputs.
 */
#ifndef TRM_GRAPH_AXIS_LINKS_H
#define TRM_GRAPH_AXIS_LINKS_H

#include "graph/network.h"

enum {
    TRM_LINK_WHOLE = -1, /* each entry takes the whole input */
    TRM_LINK_NEVER = -2  /* entries along this axis of the outputs depend on each other */
};

/*
 * The axis of input `i`, which is given, that axis `k` of the outputs follows. Their sizes may differ: an input of
 * unknown dims may have size 1 in a run and be broadcast, and the two axes of a RESHAPE may be the first of groups, of
 * which blocks correspond. Considers only the first output of a layer.
 */
int32_t trm_layer_axis_link(const trm_layer *layer, int32_t k, int32_t i);
/* The same for an input that is broadcast to `out`. */
int32_t trm_broadcast_axis_link(const trm_dims *in, const trm_dims *out, int32_t k);

typedef int32_t (*trm_axis_link)(const trm_layer *layer, int32_t k, int32_t i);

/* Links of kinds: every axis follows the same axis of every input; inputs are broadcast; all axes except that of the
 * kind's parameters follow the same axis, of every input or of the first. */
int32_t trm_link_same(const trm_layer *layer, int32_t k, int32_t i);
int32_t trm_link_broadcast(const trm_layer *layer, int32_t k, int32_t i);
int32_t trm_link_but_axis(const trm_layer *layer, int32_t k, int32_t i);
int32_t trm_link_first_but_axis(const trm_layer *layer, int32_t k, int32_t i);

/* ---- unknown sizes ----------------------------------------------------------------------------- */

/* Two unknown dimensions of one class are equal in every run. A class starts at an input or state and follows the
 * layers; a layer that makes a new size starts a new class. No sizes are computed. */
typedef struct trm_size_walk {
    int32_t (*dim_class)[TRM_MAX_DIMS]; /* [n_tensors] */
    int32_t next;                       /* the next unused class */
} trm_size_walk;

/* Axis `to` of `out` is axis `from` of `in`, or a new size if `in` is NULL. */
void trm_size_set(trm_size_walk *walk, const trm_tensor *out, int32_t to, const trm_tensor *in, int32_t from);
/* The axes of `out` are those of `in` before `rank`; the others are new. */
void trm_sizes_follow(trm_size_walk *walk, const trm_tensor *out, const trm_tensor *in, int32_t rank);

/* Sizes of kinds. All outputs have the dims of the first input. */
void trm_sizes_same(trm_size_walk *walk, const trm_layer *layer);
/* The first output's axes have the sizes of the linked axes of the first input. */
void trm_sizes_of_first(trm_size_walk *walk, const trm_layer *layer);
/* The same for all inputs: a size is known if the unknown ones agree. */
void trm_sizes_linked(trm_size_walk *walk, const trm_layer *layer);
/* The same for the first `n` inputs, by these links. */
void trm_sizes_linked_to(trm_size_walk *walk, const trm_layer *layer, trm_axis_link link, int32_t n);

#endif
