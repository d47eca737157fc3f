/*
 * Analysis for passes: users of tensors, and which unknown dims are equal in every run.
 */
#ifndef TRM_GRAPH_PASSES_ANALYSIS_H
#define TRM_GRAPH_PASSES_ANALYSIS_H

#include "graph/network.h"

/* A snapshot of the network; indices are those of that moment. */
typedef struct trm_analysis {
    int32_t n_tensors, n_layers;
    int32_t *use_count; /* [n_tensors] places that read the tensor: inputs of layers and outputs of the network */
    trm_layer **user;   /* [n_tensors] the layer that reads it, if that is its only use */
    int32_t (*dim_class)[TRM_MAX_DIMS]; /* [n_tensors] class of each unknown dimension */
    int32_t n_classes;
    bool *touched; /* [n_layers] changed since, so that its analysis is stale */
} trm_analysis;

trm_status trm_analysis_init(const trm_network *network, trm_analysis *analysis);
void trm_analysis_fini(trm_analysis *analysis);

/* The only reader of a tensor that may vanish (not a network output, not pinned, one use); else NULL. */
trm_layer *trm_analysis_only_user(const trm_analysis *analysis, const trm_tensor *tensor);
/* The layer of `kind` that writes this tensor, if only one layer reads it and it may vanish; else NULL. */
trm_layer *trm_analysis_private_producer(const trm_analysis *analysis, const trm_tensor *tensor, trm_layer_kind kind);
/* Whether two tensors have the same dims in every run. */
bool trm_analysis_same_dims(const trm_analysis *analysis, const trm_tensor *a, const trm_tensor *b);

/* Whether a layer has effects besides its outputs: a peer in an exchange, or a state that it writes. */
bool trm_layer_has_effects(const trm_layer *layer);

#endif
