/*
 * Network definition: strongly typed layers over named tensors.
 *
 * A network is used by one thread at a time. Tensors belong to their network and are valid as long as it
 * is. Names are copied; a name already taken gets ".1", ".2", ... appended. Every call checks shapes and types at
 * once and leaves the network unchanged when it fails.
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

/* A tensor the caller gives at each run. Dimensions of -1 are set per context run. */
TRM_API trm_status trm_network_add_input(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims,
                                         trm_tensor **tensor);
/* Names a dimension of an input: those of one name have one size in every run. A build whose bounds, and a run whose
 * inputs contradict that are refused. */
TRM_API trm_status trm_network_name_dim(trm_network *network, trm_tensor *input, int32_t axis, const char *name);
/* A constant; `data` [product of dims] is copied. */
TRM_API trm_status trm_network_add_constant(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims,
                                            const void *data, trm_tensor **tensor);
/* Memory of the execution context, zero at first, that layers may update: KV caches. */
TRM_API trm_status trm_network_add_state(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims,
                                         trm_tensor **tensor);

/*
 * Adds a layer. inputs [n_inputs] may hold NULL where the catalogue (layers.h) says an input is optional.
 * `outputs` receives the layer's outputs in order: one for most kinds, two for a norm with residual.
 * The first output is named like the layer, a second one "<name>:1".
 * TRM_ERROR_INVALID_ARGUMENT with what was found and expected when the rule of the kind refuses it.
 */
TRM_API trm_status trm_network_add_layer(trm_network *network, const char *name, const trm_layer_desc *desc,
                                         trm_tensor *const *inputs, int32_t n_inputs, trm_tensor **outputs);

/* The layers people add by hand most often; each is trm_network_add_layer with a filled-in desc. */
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

/* Marks a tensor as an output of the network: any but a state, once. Outputs keep the order in which they are marked.
 */
TRM_API trm_status trm_network_mark_output(trm_network *network, trm_tensor *tensor);

/* Asks the partitioner for a sharding of a tensor: "replicate", "split <axis>", or NULL to leave it free. */
TRM_API trm_status trm_network_pin(trm_network *network, trm_tensor *tensor, const char *sharding);

/* Tensors by name and position. NULL when there is none. */
TRM_API trm_tensor *trm_network_find_tensor(const trm_network *network, const char *name);
TRM_API int32_t trm_network_input_count(const trm_network *network);
TRM_API trm_tensor *trm_network_input(const trm_network *network, int32_t index);
TRM_API int32_t trm_network_output_count(const trm_network *network);
TRM_API trm_tensor *trm_network_output(const trm_network *network, int32_t index);
TRM_API int32_t trm_network_layer_count(const trm_network *network);

/* A layer: its parameters, what it reads and makes; false past the last. Layers stand in an order that can be run. */
typedef struct trm_layer_info {
    const char *name;
    const trm_layer_desc *desc;
    int32_t n_inputs, n_outputs;
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS]; /* NULL where an optional input is not given */
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
} trm_layer_info;
TRM_API bool trm_network_get_layer(const trm_network *network, int32_t index, trm_layer_info *info);

/* How a tensor of one rank's network (engine.h) lies on the n ranks of the mesh's tp or cp axis; where that has one, of
 * dp, whose ranks may share a batch. */
typedef enum trm_part_kind {
    TRM_PART_UNKNOWN = 0, /* made by a pass after the partition, or by the author of a network with collectives */
    TRM_PART_WHOLE,       /* the same on every rank */
    TRM_PART_SPLIT,       /* rank r has part r * parts / n along `axis`: ceil(d / parts) long each, zeros behind d */
    TRM_PART_SUMMAND      /* rank r has summand r * parts / n: the tensor is the sum of all */
} trm_part_kind;
typedef struct trm_tensor_part {
    trm_part_kind kind;
    int32_t axis, parts; /* parts divides n; WHOLE has 1 */
    const char *of;      /* name of the tensor in the network that was partitioned; NULL: UNKNOWN */
    int64_t whole;       /* SPLIT: elements along `axis` of the whole tensor; -1: unknown until a context runs */
} trm_tensor_part;
TRM_API const char *trm_part_kind_name(trm_part_kind kind); /* "unknown", "whole", "split", "summand" */

TRM_API const char *trm_tensor_name(const trm_tensor *tensor);
TRM_API trm_dtype trm_tensor_dtype(const trm_tensor *tensor);
TRM_API trm_dims trm_tensor_dims(const trm_tensor *tensor);
TRM_API const char *trm_tensor_dim_name(const trm_tensor *tensor, int32_t axis); /* of an input; NULL: it has none */

/* The network as text, one line per tensor or layer; release with trm_free. NULL when out of memory. */
TRM_API char *trm_network_to_text(const trm_network *network);
/* Frees memory that a call of this library handed over as "release with trm_free". */
TRM_API void trm_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
