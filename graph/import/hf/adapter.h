/*
 * LoRA adapters in PEFT's folders: adapter_config.json and adapter_model.safetensors.
 *
 * The network of a model that was built for adapters has a LORA layer behind each linear layer, whose A and B are
 * states. A target is such a pair of states.
 */
#ifndef TRM_GRAPH_IMPORT_HF_ADAPTER_H
#define TRM_GRAPH_IMPORT_HF_ADAPTER_H

#include "graph/import/hf/parts.h"

/* How many adapters a network has room for, and of which rank. */
typedef struct trm_hf_adapters {
    int32_t slots, rank; /* 0 slots: none */
} trm_hf_adapters;

/* A pair of states, and what an adapter's file has for it. */
typedef struct trm_hf_target {
    const char *module; /* of the linear layer, behind the root: "layers.3.self_attn.q_proj" */
    const char *a, *b;  /* names of the states [slots, rank, in] and [slots, rows of `rows`, rank] */
    int64_t out, in;    /* of the whole layer */
    trm_hf_rows rows;   /* that B has of it */
} trm_hf_target;

typedef struct trm_hf_targets {
    trm_arena arena;
    trm_hf_target *items; /* [n] */
    int32_t n, capacity;
} trm_hf_targets;

void trm_hf_targets_fini(trm_hf_targets *targets);
/* Adds a copy. */
trm_status trm_hf_targets_add(trm_hf_targets *targets, const trm_hf_target *target);

/* An open folder. */
typedef struct trm_hf_adapter trm_hf_adapter;

/*
 * Opens a folder for a model with these names, whose network has these targets with room for `rank`. Reads the
 * configuration and the header of the file. Errors: IO, INVALID_MODEL (it does not fit the model), UNSUPPORTED, each
 * with what was found and expected. The targets must live on.
 */
trm_status trm_hf_adapter_open(const char *folder, const trm_hf_names *names, const trm_hf_targets *targets,
                               int32_t rank, trm_hf_adapter **adapter);
void trm_hf_adapter_close(trm_hf_adapter *adapter);

/* The elements of a slot of the state of this name: of A [r, in], of B [rows, r], which are to be multiplied by
 * *scale. *weight is the caller's; NULL if the adapter leaves the layer as it is. INTERNAL if no target has the state.
 */
trm_status trm_hf_adapter_take(const trm_hf_adapter *adapter, const char *state, trm_weight **weight, float *scale);

#endif
