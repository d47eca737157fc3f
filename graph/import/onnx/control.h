/* Helpers for control flow operators: lists of results of passes, and selected results. */
#ifndef TRM_GRAPH_IMPORT_ONNX_CONTROL_H
#define TRM_GRAPH_IMPORT_ONNX_CONTROL_H

#include "graph/import/onnx/region.h"

/* A list that grows, in the memory of the import. */
typedef struct trm_onnx_list {
    trm_onnx_value **items;
    int32_t n, capacity;
} trm_onnx_list;

void trm_onnx_list_add(trm_onnx_node *node, trm_onnx_list *list, trm_onnx_value *value);
trm_onnx_value **trm_onnx_new_values(trm_onnx_node *node, size_t n);
/* The tensor of a body's value; fails for a sequence or an optional. */
trm_tensor *trm_onnx_body_tensor(trm_onnx_node *node, const trm_onnx_value *value, const char *what);
/* Tensors of every pass through a body, at least one, joined along a new axis. */
trm_tensor *trm_onnx_stack(trm_onnx_node *node, const trm_onnx_list *list, int32_t axis, bool backwards);
/* The same as an output of the node; of no passes, as the body declares it. */
void trm_onnx_set_stacked(trm_onnx_node *node, int32_t output, const trm_onnx_list *list, int32_t axis, bool backwards,
                          const Onnx__ValueInfoProto *declared);
/* a or b, whose dims may differ: a part of the elements of both, laid out as the condition says. */
trm_tensor *trm_onnx_either(trm_onnx_node *node, trm_tensor *condition, trm_tensor *a, trm_tensor *b);
/* new where the pass runs, old otherwise. */
trm_onnx_value *trm_onnx_choose(trm_onnx_node *node, trm_tensor *runs, const trm_onnx_value *made, trm_onnx_value *old);
/* Of what passes made, elements start .. end - 1 of an axis, i64 [1] each. */
void trm_onnx_cut_output(trm_onnx_node *node, int32_t output, int32_t axis, trm_tensor *start, trm_tensor *end);
/* If a run needs more passes than were unrolled, it fails, with this in the layer's name. */
void trm_onnx_check_passes(trm_onnx_node *node, trm_tensor *missing, int64_t made);

#endif
