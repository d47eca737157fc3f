/*
 * One import: values, scopes, and the walk over a graph's nodes.
 *
 * A scope maps the names of one graph: the main graph, a body of a control-flow node (which sees the names around it),
 * or a local function (which does not). A name stands for a value: a tensor of the network, or a list of values known
 * at build time, for sequences and optionals, or a sequence whose length only a run knows.
 */
#ifndef TRM_GRAPH_IMPORT_ONNX_IMPORT_H
#define TRM_GRAPH_IMPORT_ONNX_IMPORT_H

#include "graph/import/onnx/model.h"
#include "graph/import/onnx/ops/ops.h"
#include "kernels/device/device.h"

typedef enum trm_onnx_value_kind {
    TRM_ONNX_VALUE_TENSOR = 0,
    TRM_ONNX_VALUE_SEQUENCE,      /* items [n_items] */
    TRM_ONNX_VALUE_OPEN_SEQUENCE, /* of unknown length: open_sequence.h */
    TRM_ONNX_VALUE_NONE,          /* an optional that holds nothing */
    TRM_ONNX_VALUE_ABSENT,        /* input of a function that its caller leaves out */
    TRM_ONNX_VALUE_STORED,        /* an initializer that was not read yet */
    TRM_ONNX_VALUE_FAILED         /* output of a node that could not be imported, or an input that could not be made */
} trm_onnx_value_kind;

struct trm_onnx_value {
    trm_onnx_value_kind kind;
    trm_tensor *tensor;
    trm_onnx_value **items;
    int32_t n_items;
    trm_tensor *elements, *shapes; /* OPEN_SEQUENCE: all elements, flat; i64 [n, dims] */
    trm_dtype dtype;               /* and what is known of its elements: NONE and no dims if nothing is */
    trm_dims dims;
    Onnx__TensorProto *stored;
    const Onnx__SparseTensorProto *stored_sparse;
};

typedef struct trm_onnx_scope {
    const struct trm_onnx_scope *around; /* whose names are seen, too; NULL for the main graph and functions */
    const trm_onnx_node *caller;         /* the node that stands for this function or body; NULL for the main graph */
    bool is_function;
    const Onnx__FunctionProto *function; /* is_function */
    const char *place;                   /* for issues; "" for the main graph */
    const char *prefix;                  /* names of tensors begin with it; "" for the main graph */
    int32_t depth;
    Onnx__OperatorSetIdProto **opsets; /* [n_opsets] */
    size_t n_opsets;
    trm_map names; /* to positions in `values` */
    trm_onnx_value **values;
    int32_t n_values, capacity;
    struct trm_onnx_region *region; /* in which its tensors are made; NULL: none */
} trm_onnx_scope;

#define TRM_ONNX_MOST_STEPS ((int64_t)1 << 18) /* of an import; each may cost a layer */

typedef struct trm_onnx_import {
    trm_onnx *model;
    const trm_onnx_options *options;
    trm_network *network;
    trm_arena arena;    /* values and scopes; gone when the import ends */
    trm_device *device; /* host, for layers of constants; opened when first needed */
    trm_stream *stream;
    int64_t steps;       /* done so far: nodes, those of unrolled loops each time, and elements of sequences */
    size_t folded;       /* bytes of constants made by folding */
    trm_map constants;   /* tensors of the file that are in the network already, by address, to their index */
    trm_tensor *nothing; /* what calls of a failed node return */
    struct trm_onnx_region *region; /* in which layers are added; NULL: none */
    trm_layer **discarded;          /* [n_discarded] to be removed in the end */
    int32_t n_discarded, discarded_capacity;
} trm_onnx_import;

/* ---- import.c -------------------------------------------------------------------------------------------------- */

/* Names of a scope. The scope is the caller's; its memory is the import's. */
void trm_onnx_scope_fini(trm_onnx_scope *scope);
trm_status trm_onnx_define(trm_onnx_import *import, trm_onnx_scope *scope, const char *name, trm_onnx_value *value);
/* The value of a name, in this or an outer scope; NULL if unknown. */
trm_onnx_value *trm_onnx_find(const trm_onnx_scope *scope, const char *name);

/* A value in the import's memory; NULL when out of memory. */
trm_onnx_value *trm_onnx_import_value(trm_onnx_import *import, trm_onnx_value_kind kind);
/* Keeps the last error as an issue of a graph, not of a node. */
trm_status trm_onnx_record_graph_issue(trm_onnx_import *import, const trm_onnx_scope *scope, trm_status status);

/* Imports the nodes in order. Failed nodes become issues; returns only failures of the import itself (memory). */
trm_status trm_onnx_import_nodes(trm_onnx_import *import, trm_onnx_scope *scope, Onnx__NodeProto *const *nodes,
                                 size_t n);
/* Makes the initializers of a graph known in the scope. */
trm_status trm_onnx_define_initializers(trm_onnx_import *import, trm_onnx_scope *scope, const Onnx__GraphProto *graph);
/* The elements behind a value that is an initializer; what else it is stays. */
trm_status trm_onnx_load(trm_onnx_import *import, trm_onnx_value *value, const char *name);

/* Adds a tensor of the file to the network, or finds it there: bodies of loops read the same ones every time. `key`
 * holds its address and lives as long as the import. */
trm_status trm_onnx_add_stored(trm_onnx_import *import, Onnx__TensorProto *const *key, const char *name,
                               trm_tensor **tensor);
/* Layers from `first` on are to be removed when the import ends: nothing else reads what they make. */
void trm_onnx_discard(trm_onnx_import *import, int32_t first);
/* Counts steps of the import; fails the node and returns false if there are too many for a real model. */
bool trm_onnx_spend(trm_onnx_node *node, int64_t steps);

/* ---- ports.c --------------------------------------------------------------------------------------------------- */

/* Checks that the model has the ports that the caller sets types for. */
trm_status trm_onnx_check_types(const trm_onnx_import *import);
/* Adds the inputs of the network; marks its outputs, under their names. What fails becomes an issue. */
trm_status trm_onnx_define_inputs(trm_onnx_import *import, trm_onnx_scope *scope);
trm_status trm_onnx_mark_outputs(trm_onnx_import *import, trm_onnx_scope *scope);

/* ---- values: for operators that read or make lists ------------------------------------------------------------- */

trm_onnx_value *trm_onnx_value_tensor(trm_onnx_node *node, trm_tensor *tensor);
/* A list of the items, which are copied as pointers. */
trm_onnx_value *trm_onnx_value_sequence(trm_onnx_node *node, trm_onnx_value *const *items, int32_t n);
trm_onnx_value *trm_onnx_value_none(trm_onnx_node *node);
void trm_onnx_set_value(trm_onnx_node *node, int32_t index, trm_onnx_value *value);

/* Checks that a body has this many inputs and at least this many outputs; fails the node if not. trm_onnx_run_body
 * checks itself; callers that read a body's declarations without running it call this. */
bool trm_onnx_body_fits(trm_onnx_node *node, const Onnx__GraphProto *graph, const char *part, int32_t n_inputs,
                        int32_t n_outputs);
/* Runs a body with values for its inputs, seeing the names around the node; outputs [capacity] receive its outputs.
 * `part` names the body in issues. Issues in the body make the node fail. */
void trm_onnx_run_body(trm_onnx_node *node, const Onnx__GraphProto *graph, const char *part,
                       trm_onnx_value *const *inputs, int32_t n_inputs, trm_onnx_value **outputs, int32_t n_outputs);

/* ---- node.c ---------------------------------------------------------------------------------------------------- */

/* The attribute of a name: the node's own, that of the function's caller, or the function's default; NULL if absent. */
const Onnx__AttributeProto *trm_onnx_attribute(trm_onnx_node *node, const char *name);
const Onnx__GraphProto *trm_onnx_graph(trm_onnx_node *node, const char *name); /* fails if it is missing */

#endif
