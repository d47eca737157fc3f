/*
 * Places activations in one arena, in which tensors share memory if their lifetimes do not overlap.
 */
#ifndef TRM_GRAPH_MEMORY_PLAN_H
#define TRM_GRAPH_MEMORY_PLAN_H

#include "graph/network.h"

/* Alignment of every tensor in device memory. */
#define TRM_TENSOR_ALIGNMENT ((size_t)256)

/* Bytes of a tensor of known dims. TRM_ERROR_INVALID_ARGUMENT if a dimension is negative or the product overflows. */
trm_status trm_tensor_bytes(const trm_tensor *tensor, const trm_dims *dims, size_t *bytes);

/* Whether the output of a layer is its first input in place, for any dims: RESHAPE and the like. */
bool trm_layer_hands_on(const trm_layer *layer);
/* The tensor whose memory `tensor` uses: itself, or through such layers the one it is a view of. */
const trm_tensor *trm_tensor_storage(const trm_tensor *tensor);

/* Whether `layer` is a SLICE of the first axis that is not 1, by parameters alone, whose output is a part of its input
 * at an aligned address. *offset is the position in elements. `dims` [n_tensors] are those of the run. */
bool trm_layer_is_view(const trm_layer *layer, const trm_dims *dims, int64_t *offset);

/* The offset of a tensor without memory in the arena. */
#define TRM_NO_PLACE SIZE_MAX

/*
 * Offsets of activations for sizes [n_tensors] in bytes, which are TRM_NO_PLACE for tensors without memory: tensors
 * alive at the same time do not overlap, outputs of the network live to the end, and a RESHAPE shares its input's
 * memory. The size of a view is that of its base. `ends` [n_tensors], or NULL: the layer up to which the memory of a
 * tensor is in use at least (graph/streams.h). offsets [n_tensors] is SIZE_MAX for tensors that are not activations or
 * are views; *total is the size of the arena. Largest tensors are placed first, each at the lowest address that is free
 * for its whole life.
 */
trm_status trm_memory_plan_place(const trm_network *network, const size_t *sizes, const int32_t *ends, size_t *offsets,
                                 size_t *total);

#endif
