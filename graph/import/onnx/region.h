/*
 * Regions (graph/regions.h) during import: branches and loops whose conditions are known only in a run.
 */
#ifndef TRM_GRAPH_IMPORT_ONNX_REGION_H
#define TRM_GRAPH_IMPORT_ONNX_REGION_H

#include "graph/import/onnx/import.h"

/* An open region: new layers are added to it. */
typedef struct trm_onnx_region {
    struct trm_onnx_region *around;
    trm_layer *first;                /* its first layer, or the first that stands before it for it */
    trm_tensor **outside, **entered; /* [n_entered] tensors of the region around it, and what they are here */
    int32_t n_entered, capacity;
} trm_onnx_region;

/* The value in the innermost open region for a value of region `from`. */
trm_onnx_value *trm_onnx_enter_value(trm_onnx_node *node, const trm_onnx_region *from, trm_onnx_value *value);
/* The same for a tensor of the region around the innermost one. */
trm_tensor *trm_onnx_enter(trm_onnx_node *node, trm_tensor *tensor);

/* One branch or the other, by input 0 of the node, as regions; sets the node's outputs. */
void trm_onnx_branch(trm_onnx_node *node, const Onnx__GraphProto *then_branch, const Onnx__GraphProto *else_branch);

/* A loop as a region. */
typedef struct trm_onnx_loop {
    int32_t n_states, n_stacked;
    trm_tensor **states;  /* [n_states] what is carried on: before the loop, then behind it */
    trm_tensor **stacked; /* [n_stacked] entries of passes made before, along axis 0, or NULL; then all */
    bool *backwards;      /* [n_stacked] whether the entry of a pass stands before those of earlier ones; may be NULL */
    int64_t first;        /* number of the first pass */
    trm_tensor *runs;     /* whether there is one, bool scalar; NULL: yes */
    trm_tensor *trips;    /* i64 scalar, how many passes there are at most; NULL: only the body says */
    /* One pass, in the region: its number (i64 scalar) and what is carried on, to what is carried on, entries and
     * whether the body runs again (bool scalar, or NULL: it does not say). */
    void (*pass)(trm_onnx_node *node, void *user, trm_tensor *number, trm_tensor *const *states, trm_tensor **next,
                 trm_tensor **entries, trm_tensor **again);
    void *user;
} trm_onnx_loop;

/* If the node fails, no layers of the loop stay. */
void trm_onnx_add_loop(trm_onnx_node *node, trm_onnx_loop *loop);

/* What there was before a loop that is being unrolled, and before its last pass. */
typedef struct trm_onnx_passes {
    int32_t first, layers; /* layers before the loop, and before the last pass */
    int64_t steps;         /* of the import before the last pass */
} trm_onnx_passes;

void trm_onnx_begin_pass(const trm_onnx_node *node, trm_onnx_passes *passes);
/* Whether the rest of a loop should be a region: `rest` more passes like the last would take thousands of layers, or
 * (*must) more steps than an import may take. */
bool trm_onnx_wants_region(const trm_onnx_node *node, const trm_onnx_passes *passes, int64_t rest, bool *must);
/* Drops issues of a failed node since there were n_issues, and continues; false if the import must end. */
bool trm_onnx_forget_failure(trm_onnx_node *node, int32_t n_issues);

#endif
