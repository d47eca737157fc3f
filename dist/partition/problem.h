/*
 * What the parts of the partitioner share: tensors with the shardings they may have, layers with their strategies.
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
 * A tensor's possible shardings are its forms; form 0 is always REPLICATED. A tensor may lie on the ranks in several
 * forms at once: a partial sum stays where it is when its all-reduce is made. The set of them is a bit mask.
 */
#ifndef TRM_DIST_PARTITION_PROBLEM_H
#define TRM_DIST_PARTITION_PROBLEM_H

#include "dist/partition/partition.h"
#include "graph/inference.h"

#define TRM_MAX_FORMS 32

typedef uint32_t trm_form_set; /* bit f: the tensor is there in form f */

/* A step that makes one form of a tensor from another. */
typedef struct trm_conversion {
    int32_t from, to;
} trm_conversion;

typedef struct trm_partition_tensor {
    const trm_tensor *tensor;
    trm_sharding forms[TRM_MAX_FORMS];
    int32_t n_forms;
    int32_t first_use, last_use; /* layers that read it; -1: none */
    int32_t n_uses;              /* how many layers read it */
    int32_t pin;                 /* the only form it may have once made, or -1 */
    bool tracked;                /* its forms are part of the search's state */
    int32_t batch_axis;          /* where the batch is shared: the one axis that may be split, or -1 */
    bool can_be_sent;            /* sent_dims is known */
    trm_dims sent_dims;          /* as a RECV writes them that has the network's inputs as its inputs */
    double *conversion;          /* [n_forms, n_forms] seconds, INFINITY where there is no direct step */
} trm_partition_tensor;

/* One way to run a layer: the form each input must have, the form each output gets. */
typedef struct trm_strategy {
    uint8_t inputs[TRM_MAX_LAYER_INPUTS];
    uint8_t outputs[TRM_MAX_LAYER_OUTPUTS];
    double cost; /* seconds and price */
} trm_strategy;

/* The axes of its tensors along which a layer works on entries of the batch by themselves; -1: a tensor is whole. */
typedef struct trm_batch_axes {
    bool can; /* there is such a way to run it */
    int8_t inputs[TRM_MAX_LAYER_INPUTS], outputs[TRM_MAX_LAYER_OUTPUTS];
} trm_batch_axes;

typedef struct trm_partition_layer {
    trm_strategy *strategies;
    int32_t n_strategies, capacity;
    int32_t chosen;
    int32_t written;      /* its position in the network that was written last */
    trm_batch_axes batch; /* where the batch is shared */
} trm_partition_layer;

typedef struct trm_partitioner {
    const trm_network *network;
    trm_cost_model model;          /* with `runs` of all layers */
    int32_t n;                     /* ranks the tensors are spread over */
    bool shares_rows;              /* along cp: of attention rows are cut, not heads */
    bool shares_batch;             /* along dp: nothing is cut but the batch, whose size may be unknown */
    bool has_batch;                /* there is one; known when strategies are enumerated */
    double discount;               /* what conversions cost, as a share of what they would; 0: all of it */
    bool is_share;                 /* the network is that of a rank that shares the batch with others along dp */
    const trm_shape_bound *bounds; /* what inputs may be like, where that is known: which of them have the batch */
    int32_t n_bounds;
    int32_t parts[8]; /* numbers of parts worth trying: n, and divisors of it that attention heads ask for */
    int32_t n_parts;
    int32_t n_stages;
    int32_t stage_begins[TRM_MAX_RANKS + 1]; /* stage s has layers stage_begins[s] .. stage_begins[s + 1] - 1 */
    trm_partition_tensor *tensors;           /* [network->n_tensors] */
    trm_partition_layer *layers;             /* [network->n_layers] */
    trm_inference *inference;                /* while strategies are enumerated: what decides dims stays whole */
    trm_arena arena;
} trm_partitioner;

/* Whether every part is of the same size with no zeros behind it. */
bool trm_sharding_is_even(const trm_dims *dims, const trm_sharding *sharding);
/* Whether a tensor can lie like this at all: sums are of floats, every part has something in it, and only activations
 * and constants can end in zeros. */
bool trm_sharding_is_possible(const trm_tensor *tensor, const trm_sharding *sharding);

/* ---- rules ------------------------------------------------------------------------------------- */

/* The index of a sharding among the tensor's forms, added if it is new; -1 when there is no room for more. */
int32_t trm_partition_form(trm_partition_tensor *tensor, const trm_sharding *sharding);
/* Fills in parts[] and the strategies of every layer, forms of their tensors included. */
trm_status trm_partition_enumerate(trm_partitioner *partitioner);
/* ---- the batch --------------------------------------------------------------------------------- */

/*
 * Fills in batch_axis of all tensors and `batch` of all layers, for `n` ranks that share the batch. Every unknown
 * dimension that a tensor may be split along is a multiple of n in every run whose inputs have such batches.
 * TRM_ERROR_INVALID_ARGUMENT where a batch of known size is none. *found is false where no input has a batch.
 */
trm_status trm_partition_find_batch(trm_partitioner *partitioner, bool *found);
/* The position in its shape that says how long the split axis `k` of a RESHAPE's or EXPAND's output is, and so has to
 * be divided by n for a part; -1: none. */
int32_t trm_partition_shape_divides(const trm_layer *layer, int32_t k);

/* ---- cost -------------------------------------------------------------------------------------- */

/* Seconds of the layer on one rank. */
double trm_partition_layer_seconds(const trm_partitioner *partitioner, const trm_layer *layer,
                                   const trm_strategy *strategy);
/* What weighs against the strategy besides: keeping the constants and states that this layer alone reads. */
double trm_partition_layer_price(const trm_partitioner *partitioner, const trm_layer *layer,
                                 const trm_strategy *strategy);
/* The price of keeping a constant or state in memory in this form. */
double trm_partition_rent(const trm_partitioner *partitioner, const trm_tensor *tensor, const trm_sharding *sharding);
/* Seconds of one direct conversion step; INFINITY where there is none. */
double trm_partition_conversion_seconds(const trm_partitioner *partitioner, const trm_tensor *tensor,
                                        const trm_sharding *from, const trm_sharding *to);
/* Seconds of sending a tensor to the next stage, in one form. */
double trm_partition_send_seconds(const trm_partitioner *partitioner, const trm_tensor *tensor,
                                  const trm_sharding *sharding);
/* Bytes a rank sends in a conversion. */
double trm_partition_conversion_bytes(const trm_partitioner *partitioner, const trm_tensor *tensor,
                                      const trm_sharding *from, const trm_sharding *to);

/* ---- stages ------------------------------------------------------------------------------------ */

/* Whether an activation is made before layer `cut` and read by it or later ones. */
bool trm_partition_crosses(const trm_partition_tensor *tensor, int32_t cut);
/* Fills in n_stages and stage_begins. */
trm_status trm_partition_cut_stages(trm_partitioner *partitioner, int32_t stages);

/* ---- partition.c ------------------------------------------------------------------------------- */

/* Fills in all but what is chosen, from `network`, `model` and `n`. */
trm_status trm_partition_prepare(trm_partitioner *partitioner, int32_t stages);

/* ---- search ------------------------------------------------------------------------------------ */

/*
 * Makes the form `wanted` of a tensor from those it has, the cheapest way: adds it, and what lies on the way, to *set
 * and returns the seconds; INFINITY if there is no way. `steps` [2] receives the conversions made, *n_steps how many.
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
