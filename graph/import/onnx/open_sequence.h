/*
 * Sequences whose length only a run knows: those that loops carry on and branches choose. Their elements lie one after
 * another in one tensor, their dims in another, so that they are two tensors of the network. All elements have one type
 * and number of dimensions.
 */
#ifndef TRM_GRAPH_IMPORT_ONNX_OPEN_SEQUENCE_H
#define TRM_GRAPH_IMPORT_ONNX_OPEN_SEQUENCE_H

#include "graph/import/onnx/import.h"

/* What is known of the elements. */
typedef struct trm_onnx_element_type {
    trm_dtype dtype; /* NONE: nothing; the sequence is empty, or a body has not been read yet */
    trm_dims dims;   /* -1: unknown, or not the same in all */
} trm_onnx_element_type;

/* Whether a value is a sequence of either kind. */
bool trm_onnx_is_sequence(const trm_onnx_value *value);
trm_onnx_element_type trm_onnx_element_type_of(trm_onnx_node *node, const trm_onnx_value *sequence);
/* What is known of elements of both; fails if they have different types or numbers of dimensions. */
trm_onnx_element_type trm_onnx_join_element_types(trm_onnx_node *node, const trm_onnx_element_type *a,
                                                  const trm_onnx_element_type *b);
bool trm_onnx_same_element_types(const trm_onnx_element_type *a, const trm_onnx_element_type *b);

/* elements [all], shapes i64 [n, dims] as a value. */
trm_onnx_value *trm_onnx_open_sequence(trm_onnx_node *node, trm_onnx_element_type type, trm_tensor *elements,
                                       trm_tensor *shapes);
/* A sequence of either kind as an open one whose elements are of the type. */
trm_onnx_value *trm_onnx_as_open(trm_onnx_node *node, const trm_onnx_value *sequence,
                                 const trm_onnx_element_type *type);

/* Operators. Positions are i64 scalars or [1], from the end if negative; NULL is the end. */
trm_tensor *trm_onnx_open_length(trm_onnx_node *node, const trm_onnx_value *sequence); /* i64 [1] */
trm_tensor *trm_onnx_open_at(trm_onnx_node *node, const trm_onnx_value *sequence, trm_tensor *position);
trm_onnx_value *trm_onnx_open_insert(trm_onnx_node *node, const trm_onnx_value *sequence, trm_tensor *added,
                                     trm_tensor *position);
trm_onnx_value *trm_onnx_open_erase(trm_onnx_node *node, const trm_onnx_value *sequence, trm_tensor *position);
/* All elements along an axis, which is a new one if `stack`. Along another axis than the first, all have the same dims.
 */
trm_tensor *trm_onnx_open_concat(trm_onnx_node *node, const trm_onnx_value *sequence, int64_t axis, bool stack);
/* x along an axis of any size, one entry an element, with that axis if `keep`. */
trm_onnx_value *trm_onnx_open_split(trm_onnx_node *node, trm_tensor *x, int32_t axis, bool keep);

#endif
