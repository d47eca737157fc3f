/*
 * Shape inference of a network for the dims of one run, with the values that decide dims.
 *
 * The walk goes through the layers in order. If a rule needs elements of a value input (layers.h), the walk takes them
 * from constants and inputs, or computes them here, on the host, if they follow from those and from dims by small
 * layers (at most TRM_LARGEST_VALUE bytes each). If other layers compute them, or a data-dependent layer's number of
 * entries is needed, the walk stops until the caller supplies it.
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
    TRM_INFERENCE_VALUES, /* needs elements of `tensor` for the dims of `layer` */
    TRM_INFERENCE_COUNT,  /* `layer` is data-dependent: needs its number of entries; its outputs have dims for the most
                           */
    TRM_INFERENCE_JUMP    /* trm_inference_jump says where the walk continues after `layer` */
} trm_inference_state;

typedef struct trm_inference_stop {
    trm_inference_state state;
    const trm_layer *layer;
    const trm_tensor *tensor; /* VALUES: the tensor needed; COUNT: the output that holds the number */
} trm_inference_stop;

/* The network must not change while the inference is in use. */
trm_status trm_inference_create(const trm_network *network, trm_inference **inference);
void trm_inference_destroy(trm_inference *inference);

/*
 * Without this call the walk goes through regions (graph/regions.h) once, whatever their conditions, and loop-carried
 * values are unknown. After it the walk follows the conditions and asks for them: it skips branches that are not taken
 * and repeats loops.
 */
void trm_inference_follow_conditions(trm_inference *inference);
const trm_regions *trm_inference_regions(const trm_inference *inference);

/* Whether values of an input of the network may decide dims. */
bool trm_inference_wants(const trm_inference *inference, const trm_tensor *input);
/* Whether the walk of any dims can stop: not all values follow from dims, constants and inputs. */
bool trm_inference_may_stop(const trm_inference *inference);

/*
 * Starts a walk. dims [n_tensors] must be set for inputs and states; the walk fills in the others, -1 if they depend on
 * unknown values. Values of inputs stay from earlier walks.
 */
trm_status trm_inference_begin(trm_inference *inference, trm_dims *dims);
trm_status trm_inference_run(trm_inference *inference, trm_inference_stop *stop);

/* Sets the elements of an input, before begin, or of the tensor that the walk stopped at; they are copied. NULL:
 * unknown, and dims that depend on them are -1. */
trm_status trm_inference_give(trm_inference *inference, const trm_tensor *tensor, const trm_dims *dims,
                              const void *elements);
#define TRM_COUNT_LARGEST (-1) /* the largest possible number */
#define TRM_COUNT_OPEN    (-2) /* unknown: dims that depend on it are -1 */
/* Sets the number of entries that the walk stopped at, or one of these. */
trm_status trm_inference_give_count(trm_inference *inference, int64_t count);

/* Continues after a JUMP, once its layer and those before it have run: dims and values that an END_LOOP carries on
 * become those of the next pass. *next is the layer at which the walk is then. */
trm_status trm_inference_jump(trm_inference *inference, int32_t *next);

/* Elements of a tensor if the walk knows them, else NULL. */
const void *trm_inference_values(const trm_inference *inference, const trm_tensor *tensor);
/* Whether they were computed here. */
bool trm_inference_computed(const trm_inference *inference, const trm_tensor *tensor);
/* Whether these are the elements set for an input. */
bool trm_inference_has(const trm_inference *inference, const trm_tensor *input, const trm_dims *dims,
                       const void *elements);

#endif
