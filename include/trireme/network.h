/*
 * Network definition: strongly typed layers over named tensors.
 *
 * One thread at a time uses a network. Tensors belong to their network and live as long as it. A name that is taken
 * gets ".1", ".2", ... appended. Every call checks shapes and types at once and leaves the network unchanged if it
 * fails.
 */
#ifndef TRIREME_NETWORK_H
#define TRIREME_NETWORK_H

#include <trireme/layers.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_network trm_network;
typedef struct trm_tensor trm_tensor;

TRM_API trm_status trm_network_create(trm_network **network);
TRM_API void trm_network_destroy(trm_network *network);

/* A tensor that the caller sets for each run. Dimensions of -1 may differ from run to run. */
TRM_API trm_status trm_network_add_input(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims,
                                         trm_tensor **tensor);
/* Names a dimension of an input: a dimension whose size a profile does not give has that of others of its name.
 * Profiles and runs in which dimensions of one name have several sizes keep them and warn. */
TRM_API trm_status trm_network_name_dim(trm_network *network, trm_tensor *input, int32_t axis, const char *name);
/* A constant; `data` [product of dims] is copied. */
TRM_API trm_status trm_network_add_constant(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims,
                                            const void *data, trm_tensor **tensor);
/* Memory of the execution context that layers may update, such as a KV cache; zero at first. */
TRM_API trm_status trm_network_add_state(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims,
                                         trm_tensor **tensor);

/*
 * Adds a layer. inputs [n_inputs] may hold NULL for inputs that are optional (layers.h). `outputs` receives the layer's
 * outputs in order: one for most kinds, two for a norm with residual. The first output has the layer's name, a second
 * one "<name>:1". Error: INVALID_ARGUMENT (shapes, types or parameters do not fit, with what was found and expected).
 */
TRM_API trm_status trm_network_add_layer(trm_network *network, const char *name, const trm_layer_desc *desc,
                                         trm_tensor *const *inputs, int32_t n_inputs, trm_tensor **outputs);

/* Short forms of trm_network_add_layer for common layers. `bias` may be NULL. */
TRM_API trm_status trm_network_add_matmul(trm_network *network, const char *name, trm_tensor *a, trm_tensor *b,
                                          trm_tensor *bias, bool transpose_b, trm_tensor **output);
TRM_API trm_status trm_network_add_elementwise(trm_network *network, const char *name, trm_elementwise_op op,
                                               trm_tensor *a, trm_tensor *b, trm_tensor **output);
TRM_API trm_status trm_network_add_activation(trm_network *network, const char *name, trm_activation activation,
                                              trm_tensor *input, trm_tensor **output);
TRM_API trm_status trm_network_add_reshape(trm_network *network, const char *name, trm_tensor *input, trm_dims dims,
                                           trm_tensor **output);
TRM_API trm_status trm_network_add_collective(trm_network *network, const char *name,
                                              const trm_collective_params *params, trm_tensor *input,
                                              trm_tensor **output);

/* Marks a tensor as an output of the network, once; states cannot be outputs. Outputs keep the order in which they are
 * marked. */
TRM_API trm_status trm_network_mark_output(trm_network *network, trm_tensor *tensor);

/* Fixes the sharding of a tensor: "replicate" or "split <axis>"; NULL lets the partitioner choose. */
TRM_API trm_status trm_network_pin(trm_network *network, trm_tensor *tensor, const char *sharding);

/* Tensors by name or position; NULL if the network has no such tensor. */
TRM_API trm_tensor *trm_network_find_tensor(const trm_network *network, const char *name);
TRM_API int32_t trm_network_input_count(const trm_network *network);
TRM_API trm_tensor *trm_network_input(const trm_network *network, int32_t index);
TRM_API int32_t trm_network_output_count(const trm_network *network);
TRM_API trm_tensor *trm_network_output(const trm_network *network, int32_t index);
TRM_API int32_t trm_network_layer_count(const trm_network *network);

/* A layer of a network. Layers stand in an order in which they can run. */
typedef struct trm_layer_info {
    const char *name;
    const trm_layer_desc *desc;
    int32_t n_inputs, n_outputs;
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS]; /* NULL: an optional input that is not given */
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
} trm_layer_info;
/* False past the last layer. */
TRM_API bool trm_network_get_layer(const trm_network *network, int32_t index, trm_layer_info *info);

/* How a tensor of one rank's network (engine.h) is distributed over the n ranks of the mesh's tp or cp axis; if that
 * has one rank, of its dp axis, whose ranks may share a batch. */
typedef enum trm_part_kind {
    TRM_PART_UNKNOWN = 0, /* made by a pass after partitioning, or part of a network with collectives of its own */
    TRM_PART_WHOLE,       /* the same on every rank */
    TRM_PART_SPLIT,  /* rank r has part r * parts / n along `axis`; parts are ceil(d / parts) long, zeros after d */
    TRM_PART_SUMMAND /* rank r has summand r * parts / n; the tensor is their sum */
} trm_part_kind;
typedef struct trm_tensor_part {
    trm_part_kind kind;
    int32_t axis, parts; /* parts divides n; WHOLE has 1 */
    const char *of;      /* name of the tensor in the network that was partitioned; NULL if UNKNOWN */
    int64_t whole;       /* SPLIT: elements along `axis` of the whole tensor; -1: unknown until a context runs */
} trm_tensor_part;
TRM_API const char *trm_part_kind_name(trm_part_kind kind); /* "unknown", "whole", "split", "summand" */

TRM_API const char *trm_tensor_name(const trm_tensor *tensor);
TRM_API trm_dtype trm_tensor_dtype(const trm_tensor *tensor);
TRM_API trm_dims trm_tensor_dims(const trm_tensor *tensor);
TRM_API const char *trm_tensor_dim_name(const trm_tensor *tensor, int32_t axis); /* NULL: not an input, or no name */

/* The network as text, one line per tensor or layer; release with trm_free. NULL if memory is out. */
TRM_API char *trm_network_to_text(const trm_network *network);
/* Frees memory whose comment says "release with trm_free". */
TRM_API void trm_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
