/*
 * Data that the parts of the partitioner share: tensors with their possible shardings, layers with their strategies.
 *
 *   rules.c   enumerates for every layer the ways it can run on the ranks (strategies)
 *   batch.c   where the batch is in each tensor, for ranks that share it
 *   cost.c    what a strategy, and a change of a tensor's sharding, costs
 *   stages.c  cuts the layers into pipeline stages
 *   search.c  chooses a strategy per layer, by dynamic programming
 *   forms.c   makes the parts of tensors that a rank's network has, and converts between them
 *   emit.c    writes one rank's network
 *   partition.c         the entry: mesh, pins, report
 *
 * A tensor's possible shardings are its forms; form 0 is always REPLICATED. A tensor may exist in several forms at
 * once: a partial sum stays when its all-reduce is made. The set of forms is a bit mask.
 */
#ifndef TRM_DIST_PARTITION_PROBLEM_H
#define TRM_DIST_PARTITION_PROBLEM_H

#include "dist/partition/partition.h"
#include "graph/inference.h"

#define TRM_MAX_FORMS 32

typedef uint32_t trm_form_set; /* bit f: the tensor exists in form f */

/* A conversion of one form of a tensor to another. */
typedef struct trm_conversion {
    int32_t from, to;
} trm_conversion;

typedef struct trm_partition_tensor {
    const trm_tensor *tensor;
    trm_sharding forms[TRM_MAX_FORMS];
    int32_t n_forms;
    int32_t first_use, last_use; /* layers that read it; -1: none */
    int32_t n_uses;              /* number of layers that read it */
    int32_t pin;                 /* the only form that it may have, or -1 */
    bool tracked;                /* its forms are part of the search's state */
    int32_t batch_axis;          /* if the batch is split: the batch axis, or -1 */
    bool can_be_sent;            /* sent_dims is known */
    trm_dims sent_dims;          /* as a RECV with the network's inputs writes them */
    double *conversion;          /* [n_forms, n_forms] seconds, INFINITY if there is no direct conversion */
} trm_partition_tensor;

/* One way to run a layer: the form that each input needs and each output gets. */
typedef struct trm_strategy {
    uint8_t inputs[TRM_MAX_LAYER_INPUTS];
    uint8_t outputs[TRM_MAX_LAYER_OUTPUTS];
    double cost; /* seconds and price */
} trm_strategy;

/* The batch axes of a layer's tensors; -1: a tensor is whole. */
typedef struct trm_batch_axes {
    bool can; /* the layer can run on parts of the batch */
    int8_t inputs[TRM_MAX_LAYER_INPUTS], outputs[TRM_MAX_LAYER_OUTPUTS];
} trm_batch_axes;

typedef struct trm_partition_layer {
    trm_strategy *strategies;
    int32_t n_strategies, capacity;
    int32_t chosen;
    int32_t written;      /* its index in the last network written */
    trm_batch_axes batch; /* if the batch is split */
} trm_partition_layer;

typedef struct trm_partitioner {
    const trm_network *network;
    trm_cost_model model;          /* with `runs` of all layers */
    int32_t n;                     /* ranks the tensors are spread over */
    bool shares_rows;              /* along cp: attention splits rows, not heads */
    bool shares_batch;             /* along dp: only the batch is split, whose size may be unknown */
    bool shares_tokens;            /* with shares_batch: it is the tokens of packed sequences with a cache, along cp */
    bool has_batch;                /* there is one; known when strategies are enumerated */
    double discount;               /* factor on the cost of conversions; 0: full cost */
    bool is_share;                 /* the network is that of one rank along dp, with its part of the batch */
    const trm_shape_bound *bounds; /* bounds of inputs, if known: which of them have the batch */
    int32_t n_bounds;
    int32_t parts[8]; /* numbers of parts to try: n, and divisors that attention heads need */
    int32_t n_parts;
    int32_t n_stages;
    int32_t stage_begins[TRM_MAX_RANKS + 1]; /* stage s has layers stage_begins[s] .. stage_begins[s + 1] - 1 */
    trm_partition_tensor *tensors;           /* [network->n_tensors] */
    trm_partition_layer *layers;             /* [network->n_layers] */
    trm_inference *inference;                /* while strategies are enumerated: tensors that decide dims stay whole */
    trm_arena arena;
} trm_partitioner;

/* The axis of the mesh along which the batch is split. */
static inline trm_axis trm_partition_batch_mesh_axis(const trm_partitioner *partitioner)
{
    return partitioner->shares_tokens ? TRM_AXIS_CP : TRM_AXIS_DP;
}

/* ATTENTION over packed sequences with a cache. */
bool trm_partition_has_cache(const trm_layer *layer);

/* Whether all parts have the same size, without zeros at the end. */
bool trm_sharding_is_even(const trm_dims *dims, const trm_sharding *sharding);
/* Whether a tensor can have this sharding: summands are floats, no part is empty, and only activations and constants
 * may end in zeros. */
bool trm_sharding_is_possible(const trm_tensor *tensor, const trm_sharding *sharding);

/* ---- rules ------------------------------------------------------------------------------------- */

/* The index of a sharding among the tensor's forms, added if new; -1 if there is no room. */
int32_t trm_partition_form(trm_partition_tensor *tensor, const trm_sharding *sharding);
/* Fills in parts[], the strategies of every layer, and the forms of their tensors. */
trm_status trm_partition_enumerate(trm_partitioner *partitioner);
/* ---- the batch --------------------------------------------------------------------------------- */

/*
 * Fills in batch_axis of all tensors and `batch` of all layers, for `n` ranks that split the batch. Every unknown
 * dimension that a tensor may be split along is a multiple of n if the batches of the inputs are.
 * TRM_ERROR_INVALID_ARGUMENT if a known batch size is not. *found is false if no input has a batch.
 */
trm_status trm_partition_find_batch(trm_partitioner *partitioner, bool *found);
/* The position in the shape of a RESHAPE or EXPAND that gives the size of the split axis `k`, and must be divided by n
 * for a part; -1: none. */
int32_t trm_partition_shape_divides(const trm_layer *layer, int32_t k);

/* ---- cost -------------------------------------------------------------------------------------- */

/* Seconds of the layer on one rank. */
double trm_partition_layer_seconds(const trm_partitioner *partitioner, const trm_layer *layer,
                                   const trm_strategy *strategy);
/* Additional price of the strategy: keeping the constants and states that only this layer reads. */
double trm_partition_layer_price(const trm_partitioner *partitioner, const trm_layer *layer,
                                 const trm_strategy *strategy);
/* The price of keeping a constant or state in memory in this form. */
double trm_partition_rent(const trm_partitioner *partitioner, const trm_tensor *tensor, const trm_sharding *sharding);
/* Seconds of one direct conversion; INFINITY if it is not possible. */
double trm_partition_conversion_seconds(const trm_partitioner *partitioner, const trm_tensor *tensor,
                                        const trm_sharding *from, const trm_sharding *to);
/* Seconds of sending a tensor to the next stage, in one form. */
double trm_partition_send_seconds(const trm_partitioner *partitioner, const trm_tensor *tensor,
                                  const trm_sharding *sharding);
/* Bytes a rank sends in a conversion. */
double trm_partition_conversion_bytes(const trm_partitioner *partitioner, const trm_tensor *tensor,
                                      const trm_sharding *from, const trm_sharding *to);

/* ---- stages ------------------------------------------------------------------------------------ */

/* Whether an activation is written before layer `cut` and read by it or later layers. */
bool trm_partition_crosses(const trm_partition_tensor *tensor, int32_t cut);
/* Fills in n_stages and stage_begins. */
trm_status trm_partition_cut_stages(trm_partitioner *partitioner, int32_t stages);

/* ---- partition.c ------------------------------------------------------------------------------- */

/* Fills in everything except the choices, from `network`, `model` and `n`. */
trm_status trm_partition_prepare(trm_partitioner *partitioner, int32_t stages);

/* ---- search ------------------------------------------------------------------------------------ */

/*
 * Makes the form `wanted` of a tensor from existing forms in the cheapest way: adds it and intermediate forms to *set
 * and returns the seconds; INFINITY if impossible. `steps` [2] receives the conversions, *n_steps their number.
 */
double trm_partition_acquire(const trm_partitioner *partitioner, const trm_partition_tensor *tensor, int32_t wanted,
                             trm_form_set *set, trm_conversion *steps, int32_t *n_steps);
/* Sets layers[].chosen to the cheapest choice. */
trm_status trm_partition_search(trm_partitioner *partitioner);

/* ---- emission ---------------------------------------------------------------------------------- */

/* Writes the network of `rank` as chosen; adds to the report what is exchanged and the time it takes. */
trm_status trm_partition_emit(const trm_partitioner *partitioner, const trm_mesh *mesh, int32_t rank,
                              trm_network **local, trm_partition_report *report);

#endif
