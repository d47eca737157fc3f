/*
 * The network: layers and tensors, the one form every importer ends in and every stage starts from.
 *
 * A network owns its tensors and layers (in its arena) and keeps layers in an order in which every
 * layer follows those it reads. The public calls are in <trireme/network.h>; this header is for
 * importers, passes, the partitioner and the engine.
 */
#ifndef TRM_GRAPH_NETWORK_H
#define TRM_GRAPH_NETWORK_H

#include <trireme/network.h>

#include "base/arena.h"
#include "base/map.h"
#include "kernels/device/device.h"
#include "weight_stream/weight.h"

typedef enum trm_tensor_role {
    TRM_TENSOR_INPUT,     /* given by the caller at each run */
    TRM_TENSOR_CONSTANT,  /* weights: `value` or `weight` */
    TRM_TENSOR_STATE,     /* memory of the context that layers read and write, such as a KV cache */
    TRM_TENSOR_ACTIVATION /* output of `producer` */
} trm_tensor_role;

typedef struct trm_layer trm_layer;

struct trm_tensor {
    trm_network *network;
    const char *name; /* unique in the network */
    int32_t index;    /* position in network->tensors */
    trm_tensor_role role;
    trm_dtype dtype;
    trm_dims dims; /* -1: unknown until a context runs */
    bool is_output;
    trm_layer *producer;    /* ACTIVATION only */
    const void *value;      /* CONSTANT: elements in host memory owned by the arena, or NULL */
    trm_weight *weight;     /* CONSTANT: where to read the elements, or NULL */
    const char **dim_names; /* INPUT: [dims.n] of named_dims, NULL where one has no name; or NULL */
    const char *pin;        /* sharding asked for by the user, or NULL; see <trireme/mesh.h> */
    trm_tensor_part part;   /* of what, in a rank's network; in others UNKNOWN */
    int32_t batch_ranks; /* INPUT: the ranks that share its first axis, of unknown size, which they must divide; or 0 */
};

/* A dimension of an input that has a name. */
typedef struct trm_named_dim {
    const char *name; /* one address for one name */
    trm_tensor *input;
    int32_t axis;
    int32_t previous; /* the one before of the same name, or -1 */
    bool is_last;     /* of its name */
} trm_named_dim;

struct trm_layer {
    const char *name; /* unique in the network; that of the first output while no pass renames it */
    int32_t index;    /* position in network->layers */
    trm_layer_desc desc;
    int32_t n_inputs, n_outputs;
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS]; /* NULL where an optional input is not given */
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
};

struct trm_network {
    trm_arena arena;
    trm_tensor **tensors; /* inputs, constants, states and activations, in order of creation */
    int32_t n_tensors, tensor_capacity;
    trm_layer **layers; /* in an order that can be run */
    int32_t n_layers, layer_capacity;
    trm_tensor **outputs; /* in the order they were marked */
    int32_t n_outputs, output_capacity;
    trm_map names;         /* of tensors, to their index, and of layers, to TRM_NO_TENSOR */
    bool names_known;      /* whether `names` is complete; looked up one by one where it is not */
    bool refittable;       /* weights may get other elements later: no pass computes from those of a weight */
    trm_weight **deciding; /* read when the network was made, which would be another one with other elements */
    int32_t n_deciding, deciding_capacity;
    trm_map dim_names; /* to the last of named_dims */
    trm_named_dim *named_dims;
    int32_t n_named_dims, named_dim_capacity;
};
#define TRM_NO_TENSOR UINT32_MAX

/* ---- building (importers, passes) ------------------------------------------------------------ */

/* A constant whose elements are read from `weight` when an engine is loaded; the network takes the
 * weight over, also when it fails. Its dims are the weight's; `dtype` is the type it is converted to on the way. */
trm_status trm_network_add_weight(trm_network *network, const char *name, trm_weight *weight, trm_dtype dtype,
                                  trm_tensor **tensor);

/* Notes a weight that what the network is was decided by, other than by its tensors; it stays the caller's. */
trm_status trm_network_note_deciding(trm_network *network, const trm_weight *weight);
/* The same of all that decided another network. */
trm_status trm_network_copy_deciding(trm_network *network, const trm_network *from);

/* Whether dimensions of one name have one size, in dims [n_tensors], or as the network has them (NULL), where -1 may be
 * any; fails with the name, the inputs and both sizes. named_dims.c */
trm_status trm_network_check_named_dims(const trm_network *network, const trm_dims *dims);

/* Replaces every use of `from` (also as a network output) by `to`. */
void trm_network_replace_uses(trm_network *network, trm_tensor *from, trm_tensor *to);
/* Layers that read `tensor`, up to `capacity`; returns how many there are. */
int32_t trm_network_consumers(const trm_network *network, const trm_tensor *tensor, trm_layer **layers,
                              int32_t capacity);
/* Fills the index of names anew, after names or positions of tensors changed. */
void trm_network_index_names(trm_network *network);
/* Gives a tensor a name that no other tensor has; a layer may. Layers keep their names. */
trm_status trm_network_rename_tensor(trm_network *network, trm_tensor *tensor, const char *name);
/* Drops the layers marked in `remove` [n_layers], and every tensor nothing uses any more except
 * inputs, and renumbers the rest. */
void trm_network_remove_layers(trm_network *network, const bool *remove);
/* Moves a layer forward, to before the one at `index`, which does not make what it reads. */
void trm_network_move_layer(trm_network *network, trm_layer *layer, int32_t index);
/* Moves layers so that each follows what it reads, keeping the order otherwise; fails on a cycle. */
trm_status trm_network_sort(trm_network *network);
/*
 * A network as it was, from what a file says of it: all tensors first, outputs of layers too, then the layers in their
 * order. Names and dims are taken as they are given; the rule of the kind must agree with them, on dims as far as both
 * know them. A tensor whose name is taken gets another one.
 */
trm_status trm_network_restore_output(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims,
                                      trm_tensor **tensor);
trm_status trm_network_restore_layer(trm_network *network, const char *name, const trm_layer_desc *desc,
                                     trm_tensor *const *inputs, int32_t n_inputs, trm_tensor *const *outputs,
                                     int32_t n_outputs);

/* A copy that owns everything it has but the weight files. */
trm_status trm_network_clone(const trm_network *network, trm_network **copy);

/* ---- shapes ------------------------------------------------------------------------------------ */

/*
 * The shape and type rule of a layer kind: from its inputs' dims and types to its outputs'. A dimension
 * of -1 in is unknown and may make dimensions out unknown. input_dims[i] is NULL where an optional input is not
 * given. input_values (may be NULL, as may be each) are the elements of value inputs, in their own type, where they are
 * known: dims they decide are -1 otherwise. Fails with a cause that names shapes found and expected. Allocates nothing.
 */
trm_status trm_infer_layer(const trm_layer_desc *desc, int32_t n_inputs, const trm_dims *const *input_dims,
                           const trm_dtype *input_types, const void *const *input_values, int32_t n_outputs,
                           trm_dims *output_dims, trm_dtype *output_types);

/* Inputs of a kind that are value inputs (layers.h): bit i for input i. */
uint32_t trm_layer_value_inputs(const trm_layer_desc *desc);
/* Whether output dims depend on data: their rule gives -1, and the last output tells how many entries there are. */
bool trm_layer_is_data_dependent(const trm_layer_desc *desc);
/* The most entries such a layer can have, and its outputs' dims with `count` of them. */
int64_t trm_layer_largest_count(const trm_layer_desc *desc, const trm_dims *const *input_dims);
void trm_layer_set_count(const trm_layer_desc *desc, int64_t count, trm_dims *output_dims);

#define TRM_DIMS_TEXT_SIZE 200
/* "[2, ?, 4096]" into text [TRM_DIMS_TEXT_SIZE]; returns text. */
const char *trm_dims_format(const trm_dims *dims, char *text);
/* Bytes of a tensor whose dims are known and were checked. */
size_t trm_dims_bytes(const trm_dims *dims, trm_dtype dtype);
bool trm_dims_equal(const trm_dims *a, const trm_dims *b);
/* Whether none of them is unknown. */
bool trm_dims_are_known(const trm_dims *dims);
static inline trm_dims trm_dims1(int64_t a)
{
    return (trm_dims){1, {a}};
}
static inline trm_dims trm_dims2(int64_t a, int64_t b)
{
    return (trm_dims){2, {a, b}};
}
static inline trm_dims trm_dims3(int64_t a, int64_t b, int64_t c)
{
    return (trm_dims){3, {a, b, c}};
}
static inline trm_dims trm_dims4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (trm_dims){4, {a, b, c, d}};
}
/* Types that layers compute on: f32, f16, bf16, f64; i8 to u64. Neither: bool, and types that are only stored. */
bool trm_dtype_is_float(trm_dtype dtype);
bool trm_dtype_is_integer(trm_dtype dtype);

/* The exchange that a layer makes, or NULL. */
static inline const trm_collective_params *trm_layer_collective(const trm_layer_desc *desc)
{
    return desc->kind == TRM_LAYER_DIST_COLLECTIVE   ? &desc->collective
           : desc->kind == TRM_LAYER_ALL_REDUCE_NORM ? &desc->all_reduce_norm.collective
                                                     : NULL;
}

/* How many outputs a layer has. */
int32_t trm_layer_output_count(const trm_layer_desc *desc);

/*
 * Runs the rules over the whole network with concrete dims: dims[tensor->index] must be set for inputs
 * and states; constants are taken from the network; activations are filled in, with -1 where values decide that are
 * no constants' (graph/inference.h knows those too). Allocates nothing.
 */
trm_status trm_infer_network(const trm_network *network, trm_dims *dims);

/* ---- passes (graph/passes) --------------------------------------------------------------------- */

/* Each changes the network in place and adds the number of changes to *changes (may be NULL). None changes names, dims
 * or types of the network's inputs and outputs, or drops a pinned tensor. */

/* Layers that nothing needs. Collectives, and layers that read a state, stay: others see what they do. */
trm_status trm_pass_dead_code(trm_network *network, int32_t *changes);
/* Layers of constants, run on the host's reference kernels (weights of at most 64 KiB, results of at most 1 MiB), or
 * done by a view of the weight where only elements move. */
trm_status trm_pass_fold_constants(trm_network *network, int32_t *changes);
/* The same for the layer added last, for importers: if all it reads is constant and small, it is run on `stream` of
 * `device`, which is the host's, and its outputs become constants. */
trm_status trm_fold_last_layer(trm_network *network, trm_device *device, trm_stream *stream, bool *folded);
/* Layers that change nothing, pairs that undo each other or are one layer, shapes that follow from the network's
 * structure; transposes meet behind what takes elements one by one. */
trm_status trm_pass_simplify(trm_network *network, int32_t *changes);
/* GATHERs and SLICEs that take at most half the entries of an axis of one tensor move before the products, and what
 * lies between, that make each entry from the same entry of what they read, so that they make no others. Before
 * partitioning. */
trm_status trm_pass_select_rows(trm_network *network, int32_t *changes);
/* Layers and constants that are the same as earlier ones. Collectives are never merged, removed or reordered by any
 * pass. */
trm_status trm_pass_common_subexpressions(trm_network *network, int32_t *changes);

/* Before partitioning, weights keep their own matrix products, and products that may become partial sums no activation;
 * after it, activations become epilogues, and products that share their input are joined. */
typedef enum trm_pass_stage { TRM_PASSES_BEFORE_PARTITION, TRM_PASSES_AFTER_PARTITION } trm_pass_stage;

/* Activations, norms and attention written out by simpler layers (passes/pattern.h); residual add + norm; matrix
 * product
 * + bias; activation of gate * up into GLU; and after partitioning, matrix product + activation. */
trm_status trm_pass_fuse(trm_network *network, trm_pass_stage stage, int32_t *changes);
/* A multiply and an add by channel behind a convolution become part of its constants, a residual sum and an activation
 * part of the layer. After partitioning, as a convolution's sums may be partial before. */
trm_status trm_pass_fuse_convolutions(trm_network *network, int32_t *changes);
/* Products of one input with weights that are read from files, joined into one product: gate and up of a GLU, which
 * takes both halves; and others such as q, k, v, with a SLICE for each. */
trm_status trm_pass_join_matmuls(trm_network *network, int32_t *changes);

/* Chains of layers that take elements one by one into FUSED_ELEMENTWISE layers, after all other passes, where the
 * backend has kernels for them (kernels/fused/fused.h). */
trm_status trm_pass_fuse_elementwise(trm_network *network, int32_t *changes);
/* Slices of a joined product, norms of heads, rotary embeddings and attention over a cache: QKV_ATTENTION. */
trm_status trm_pass_fuse_qkv(trm_network *network, int32_t *changes);

/* Channels last for convolutions of 16-bit floats, with `tf32` of f32 too, and what follows them; attention with a
 * row's heads together. For CUDA, after the passes of a rank's network, which are then to be run again. */
trm_status trm_pass_layouts(trm_network *network, bool tf32, int32_t *changes);
/* All-reduce + norm. For networks of which every rank has the same: the two ways to exchange do not match each other.
 */
trm_status trm_pass_fuse_exchanges(trm_network *network, int32_t *changes);
/* RMS norms, those that add a residual, too, and the products that read them: NORM_MATMUL. After all passes that look
 * for norms or products. */
trm_status trm_pass_fuse_norm_products(trm_network *network, int32_t *changes);
/* The passes of a stage in their order, until nothing changes. */
trm_status trm_run_passes(trm_network *network, trm_pass_stage stage);

#endif
