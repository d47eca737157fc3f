/*
 * What passes ask of a network: who uses a tensor, and which unknown dims are surely the same.
 */
#ifndef TRM_GRAPH_PASSES_ANALYSIS_H
#define TRM_GRAPH_PASSES_ANALYSIS_H

#include "graph/network.h"

/* A picture of the network at one moment; indices are those it had then. */
typedef struct trm_analysis {
    int32_t n_tensors, n_layers;
    int32_t *use_count; /* [n_tensors] places that read the tensor: inputs of layers and outputs of the network */
    trm_layer **user;   /* [n_tensors] the layer that reads it, where there is one place and it is a layer */
    int32_t (*dim_class)[TRM_MAX_DIMS]; /* [n_tensors] class of each unknown dimension */
    int32_t n_classes;
    bool *touched; /* [n_layers] changed since, so that what is known of it is stale */
} trm_analysis;

trm_status trm_analysis_init(const trm_network *network, trm_analysis *analysis);
void trm_analysis_fini(trm_analysis *analysis);

/* The only reader of a tensor that may vanish: no network output, not pinned, one use. NULL otherwise. */
trm_layer *trm_analysis_only_user(const trm_analysis *analysis, const trm_tensor *tensor);
/* The layer of `kind` that makes this tensor, if nothing but one layer reads it and it may vanish; else NULL. */
trm_layer *trm_analysis_private_producer(const trm_analysis *analysis, const trm_tensor *tensor, trm_layer_kind kind);
/* Whether two tensors have the same dims in every run. */
bool trm_analysis_same_dims(const trm_analysis *analysis, const trm_tensor *a, const trm_tensor *b);

/* Whether something besides its outputs depends on a layer: a peer that takes part in an exchange, or a state it
 * writes. */
bool trm_layer_has_effects(const trm_layer *layer);

#endif
