/*
 * Shape inference of a network for the dims of one run, with the values that decide dims.
 *
 * The walk goes through the layers in order. Where a rule needs elements of a value input (layers.h), they are found
 * among constants and inputs, and computed here, on the host, where they follow from those and from dims by small
 * layers (at most TRM_LARGEST_VALUE bytes each). Where they are made by other layers, and where the number of entries
 * of a data-dependent layer is asked for, the walk stops until it is told.
 *
 *     trm_inference_begin(self, dims);
 *     do trm_inference_run(self, &stop) and give what it asks for
 *     while (stop.state != TRM_INFERENCE_DONE);
 *
 * Memory of values is kept from walk to walk: nothing is allocated for dims that are not larger than before.
 */
#ifndef TRM_GRAPH_INFERENCE_H
#define TRM_GRAPH_INFERENCE_H

#include "graph/network.h"
#include "graph/regions.h"

#define TRM_LARGEST_VALUE ((size_t)64 << 10)

typedef struct trm_inference trm_inference;

typedef enum trm_inference_state {
    TRM_INFERENCE_DONE = 0,
    TRM_INFERENCE_VALUES, /* elements of `tensor` are needed before `layer`'s dims are known */
    TRM_INFERENCE_COUNT,  /* `layer` is data-dependent: its outputs have dims of the most entries; how many are there */
    TRM_INFERENCE_JUMP    /* behind `layer` the walk goes on elsewhere, trm_inference_jump says where */
} trm_inference_state;

typedef struct trm_inference_stop {
    trm_inference_state state;
    const trm_layer *layer;
    const trm_tensor *tensor; /* VALUES: what is needed; COUNT: the layer's output that holds the number */
} trm_inference_stop;

/* The network must not change while the inference is in use. */
trm_status trm_inference_create(const trm_network *network, trm_inference **inference);
void trm_inference_destroy(trm_inference *inference);

/*
 * Regions (graph/regions.h) are walked through once, whatever their conditions are, and what loops carry on has no
 * values; after this call as conditions say, which are asked for: those not taken are left out, and loops repeated.
 */
void trm_inference_follow_conditions(trm_inference *inference);
const trm_regions *trm_inference_regions(const trm_inference *inference);

/* Whether values of an input of the network may decide dims. */
bool trm_inference_wants(const trm_inference *inference, const trm_tensor *input);
/* Whether the walk of any dims can stop: not all values follow from dims, constants and inputs. */
bool trm_inference_may_stop(const trm_inference *inference);

/*
 * Starts a walk. dims [n_tensors] must be set for inputs and states and are filled in by the walk; those of values not
 * known are -1. Values of inputs given before stay given.
 */
trm_status trm_inference_begin(trm_inference *inference, trm_dims *dims);
trm_status trm_inference_run(trm_inference *inference, trm_inference_stop *stop);

/* Gives the elements of an input before begin, or of the tensor a walk stopped at; they are copied. NULL: not known,
 * dims that follow are -1. */
trm_status trm_inference_give(trm_inference *inference, const trm_tensor *tensor, const trm_dims *dims,
                              const void *elements);
#define TRM_COUNT_LARGEST (-1) /* the most there can be */
#define TRM_COUNT_OPEN    (-2) /* not known: dims that follow are -1 */
/* The number of entries a walk stopped at, or one of these. */
trm_status trm_inference_give_count(trm_inference *inference, int64_t count);

/* Goes on behind a JUMP, whose layer and those before it have been dealt with: dims and values of what an END_LOOP
 * carries on become those of the next pass. *next is the layer at which the walk is then. */
trm_status trm_inference_jump(trm_inference *inference, int32_t *next);

/* Elements of a tensor as far as the walk has come, or NULL. */
const void *trm_inference_values(const trm_inference *inference, const trm_tensor *tensor);
/* Whether they were computed here. */
bool trm_inference_computed(const trm_inference *inference, const trm_tensor *tensor);
/* Whether elements given for an input are these. */
bool trm_inference_has(const trm_inference *inference, const trm_tensor *input, const trm_dims *dims,
                       const void *elements);

#endif
