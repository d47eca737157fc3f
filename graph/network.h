/*
 * The network: layers and tensors, the one form that all importers produce and all stages take.
 *
 * A network owns its tensors and layers (in its arena) and keeps layers in an order in which every layer follows those
 * that it reads. The public calls are in <trireme/network.h>; this header is for importers, passes, the partitioner and
 * the engine.
 */
#ifndef TRM_GRAPH_NETWORK_H
#define TRM_GRAPH_NETWORK_H

#include <trireme/network.h>

#include "base/arena.h"
#include "base/map.h"
#include "kernels/device/device.h"
#include "weight_stream/weight.h"

typedef enum trm_tensor_role {
    TRM_TENSOR_INPUT,     /* set by the caller for each run */
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
    const char **dim_names; /* INPUT: [dims.n] of named_dims, NULL if one has no name; or NULL */
    const char *pin;        /* sharding asked for by the user, or NULL; see <trireme/mesh.h> */
    trm_tensor_part part;   /* part of which tensor, in a rank's network; else UNKNOWN */
    int32_t batch_ranks; /* INPUT: number of ranks that split its first axis, of unknown size, which they must divide;
                            or 0 */
};

/* Whether a state has a place for each sequence, [slots, versions, ...], of both of which only a generator knows the
 * number; other states of unknown size consist of cache blocks, [blocks, ...]. */
static inline bool trm_tensor_is_by_sequence(const trm_tensor *tensor)
{
    return tensor->role == TRM_TENSOR_STATE && tensor->dims.n > 1 && tensor->dims.d[0] < 0 && tensor->dims.d[1] < 0;
}
static inline bool trm_tensor_is_by_block(const trm_tensor *tensor)
{
    return tensor->role == TRM_TENSOR_STATE && tensor->dims.n > 0 && tensor->dims.d[0] < 0 &&
           !trm_tensor_is_by_sequence(tensor);
}

/* A named dimension of an input. */
typedef struct trm_named_dim {
    const char *name; /* the same address for the same name */
    trm_tensor *input;
    int32_t axis;
    int32_t previous; /* the one before of the same name, or -1 */
    bool is_last;     /* of its name */
} trm_named_dim;

struct trm_layer {
    const char *name; /* unique in the network; the first output's name unless a pass renames that */
    int32_t index;    /* position in network->layers */
    trm_layer_desc desc;
    int32_t n_inputs, n_outputs;
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS]; /* NULL if an optional input is not given */
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
};

struct trm_network {
    trm_arena arena;
    trm_tensor **tensors; /* inputs, constants, states and activations, in order of creation */
    int32_t n_tensors, tensor_capacity;
    trm_layer **layers; /* in an order that can run */
    int32_t n_layers, layer_capacity;
    trm_tensor **outputs; /* in the order they were marked */
    int32_t n_outputs, output_capacity;
    trm_map names;         /* of tensors, to their index, and of layers, to TRM_NO_TENSOR */
    bool names_known;      /* whether `names` is complete; if not, names are looked up one by one */
    bool refittable;       /* weights may get other elements later, so no pass computes with them */
    trm_weight **deciding; /* read when the network was built; other elements would give another network */
    int32_t n_deciding, deciding_capacity;
    trm_map dim_names; /* index of the last of named_dims */
    trm_named_dim *named_dims;
    int32_t n_named_dims, named_dim_capacity;
};
#define TRM_NO_TENSOR UINT32_MAX

/* ---- building (importers, passes) ------------------------------------------------------------ */

/* A constant whose elements are read from `weight` when an engine is loaded; the network takes the
 * weight over, also when it fails. Its dims are the weight's; `dtype` is the type it is converted to on the way. */
trm_status trm_network_add_weight(trm_network *network, const char *name, trm_weight *weight, trm_dtype dtype,
                                  trm_tensor **tensor);

/* Notes a weight whose elements decided the network's structure; it stays the caller's. */
trm_status trm_network_note_deciding(trm_network *network, const trm_weight *weight);
/* The same for all weights that decided another network. */
trm_status trm_network_copy_deciding(trm_network *network, const trm_network *from);

/* Warns of names whose dimensions have several sizes in dims [n_tensors], or in the network (NULL), -1 for any size:
 * what exporters call by one name may be two. Returns whether there are any. `open`: only names of dimensions that may
 * differ from run to run; `where` begins the warning. named_dims.c */
bool trm_network_check_named_dims(const trm_network *network, const trm_dims *dims, bool open, const char *where);

/* Replaces every use of `from` (also as a network output) by `to`. */
void trm_network_replace_uses(trm_network *network, trm_tensor *from, trm_tensor *to);
/* Writes up to `capacity` layers that read `tensor`; returns their number. */
int32_t trm_network_consumers(const trm_network *network, const trm_tensor *tensor, trm_layer **layers,
                              int32_t capacity);
/* Rebuilds the index of names, after names or positions of tensors changed. */
void trm_network_index_names(trm_network *network);
/* Gives a tensor a name that no other tensor has; a layer may have it. Layers keep their names. */
trm_status trm_network_rename_tensor(trm_network *network, trm_tensor *tensor, const char *name);
/* Removes the layers marked in `remove` [n_layers] and all unused tensors except inputs, and renumbers the rest. */
void trm_network_remove_layers(trm_network *network, const bool *remove);
/* Moves a layer to before the one at `index`, which must not write what it reads. */
void trm_network_move_layer(trm_network *network, trm_layer *layer, int32_t index);
/* Sorts layers so that each follows what it reads, otherwise in the same order; fails on a cycle. */
trm_status trm_network_sort(trm_network *network);
/*
 * Restores a network from a file: first all tensors, outputs of layers too, then the layers in order. Names and dims
 * come from the file; the rule of the kind must agree with all dims that both know. A tensor whose name is taken gets
 * another one.
 */
trm_status trm_network_restore_output(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims,
                                      trm_tensor **tensor);
trm_status trm_network_restore_layer(trm_network *network, const char *name, const trm_layer_desc *desc,
                                     trm_tensor *const *inputs, int32_t n_inputs, trm_tensor *const *outputs,
                                     int32_t n_outputs);

/* A copy that owns everything except the weight files. */
trm_status trm_network_clone(const trm_network *network, trm_network **copy);

/* ---- shapes ------------------------------------------------------------------------------------ */

/*
 * The shape and type rule of a layer kind: from its inputs' dims and types to its outputs'. A dimension of -1 in is
 * unknown and may make dimensions out unknown. input_dims[i] is NULL if an optional input is not given. input_values
 * (may be NULL, and each may) are the elements of value inputs in their own type; without them dims that they decide
 * are -1. Fails with the shapes found and expected. Allocates nothing.
 */
trm_status trm_infer_layer(const trm_layer_desc *desc, int32_t n_inputs, const trm_dims *const *input_dims,
                           const trm_dtype *input_types, const void *const *input_values, int32_t n_outputs,
                           trm_dims *output_dims, trm_dtype *output_types);

/* Inputs of a kind that are value inputs (layers.h): bit i for input i. */
uint32_t trm_layer_value_inputs(const trm_layer_desc *desc);
/* Whether output dims depend on data: their rule gives -1, and the last output is the number of entries. */
bool trm_layer_is_data_dependent(const trm_layer_desc *desc);
/* The most entries such a layer can have, and its outputs' dims with `count` of them. */
int64_t trm_layer_largest_count(const trm_layer_desc *desc, const trm_dims *const *input_dims);
void trm_layer_set_count(const trm_layer_desc *desc, int64_t count, trm_dims *output_dims);

#define TRM_DIMS_TEXT_SIZE 200
/* "[2, ?, 4096]" into text [TRM_DIMS_TEXT_SIZE]; returns text. */
const char *trm_dims_format(const trm_dims *dims, char *text);
/* Bytes of a tensor of known, checked dims. */
size_t trm_dims_bytes(const trm_dims *dims, trm_dtype dtype);
bool trm_dims_equal(const trm_dims *a, const trm_dims *b);
/* Whether all dims are known. */
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

/* The collective parameters of a layer, or NULL. */
static inline const trm_collective_params *trm_layer_collective(const trm_layer_desc *desc)
{
    return desc->kind == TRM_LAYER_DIST_COLLECTIVE   ? &desc->collective
           : desc->kind == TRM_LAYER_ALL_REDUCE_NORM ? &desc->all_reduce_norm.collective
                                                     : NULL;
}

/* Number of outputs of a layer. */
int32_t trm_layer_output_count(const trm_layer_desc *desc);

/*
 * Runs the rules over the whole network with concrete dims: dims[tensor->index] must be set for inputs and states;
 * constants are taken from the network; activations are filled in, with -1 for dims decided by values that are not
 * constant (graph/inference.h handles those). Allocates nothing.
 */
trm_status trm_infer_network(const trm_network *network, trm_dims *dims);

/* ---- passes (graph/passes) --------------------------------------------------------------------- */

/* Each changes the network in place and adds the number of changes to *changes (may be NULL). None changes names, dims
 * or types of the network's inputs and outputs, or drops a pinned tensor. */

/* Removes unused layers. Collectives, and layers that read a state, stay: their effects are visible elsewhere. */
trm_status trm_pass_dead_code(trm_network *network, int32_t *changes);
/* Folds layers of constants: runs them on the host's reference kernels (weights of at most 64 KiB, results of at most 1
 * MiB), or replaces them by a view of the weight if elements only move. */
trm_status trm_pass_fold_constants(trm_network *network, int32_t *changes);
/* The same for the last layer added, for importers: if all its inputs are constant and small, runs it on `stream` of
 * the host device `device`, and its outputs become constants. */
trm_status trm_fold_last_layer(trm_network *network, trm_device *device, trm_stream *stream, bool *folded);
/* Removes layers without effect, pairs that undo each other or equal one layer, and computations of shapes that follow
 * from the network's structure; moves transposes past elementwise layers so that they meet. */
trm_status trm_pass_simplify(trm_network *network, int32_t *changes);
/* Moves GATHERs and SLICEs that keep at most half the entries of an axis before the products and other layers that
 * compute each entry from the same entry of their input, so that these compute only what is kept. Before partitioning.
 */
trm_status trm_pass_select_rows(trm_network *network, int32_t *changes);
/* Merges layers and constants that equal earlier ones. No pass merges, removes or reorders collectives. */
trm_status trm_pass_common_subexpressions(trm_network *network, int32_t *changes);

/* Before partitioning, weights keep their own matrix products, and products that may become partial sums have no
 * activation. After it, activations become epilogues, and products that share an input are joined. */
typedef enum trm_pass_stage { TRM_PASSES_BEFORE_PARTITION, TRM_PASSES_AFTER_PARTITION } trm_pass_stage;

/* Fuses activations, norms and attention that are written out in simpler layers (passes/pattern.h); residual add +
 * norm; matrix product + bias; activation of gate * up into GLU; after partitioning, matrix product + activation. */
trm_status trm_pass_fuse(trm_network *network, trm_pass_stage stage, int32_t *changes);
/* Merges a multiply and an add by channel after a convolution into its constants, and a residual sum and an activation
 * into the layer. After partitioning, since a convolution's sums may be partial before. */
trm_status trm_pass_fuse_convolutions(trm_network *network, int32_t *changes);
/* Joins products of one input with weights from files: gate and up of a GLU, which takes both halves; others such as q,
 * k, v with a SLICE for each. */
trm_status trm_pass_join_matmuls(trm_network *network, int32_t *changes);

/* Fuses chains of elementwise layers into FUSED_ELEMENTWISE, after all other passes, if the backend has kernels for
 * them (kernels/fused/fused.h). */
trm_status trm_pass_fuse_elementwise(trm_network *network, int32_t *changes);
/* Fuses slices of a joined product, norms of heads, rotary embeddings and attention over a cache into QKV_ATTENTION. */
trm_status trm_pass_fuse_qkv(trm_network *network, int32_t *changes);
/* The same of a gated DeltaNet, from the joined product to the GLU that ends it, into DELTA_NET. */
trm_status trm_pass_fuse_delta(trm_network *network, int32_t *changes);

/* Fuses products and convolutions between DEQUANTIZE and QUANTIZE of i8 into INT8_PRODUCT, for backends with fast ones
 * (kernels/int8/int8.h). After the passes of a rank's network, which must then run again. */
trm_status trm_pass_fuse_int8(trm_network *network, int32_t *changes);
/* Fuses attention and the QUANTIZE of it into ATTENTION_QUANTIZE, for the same backends; after trm_pass_layouts. */
trm_status trm_pass_quantize_attention(trm_network *network, int32_t *changes);
/* Uses channels-last layouts for convolutions of 16-bit floats (with `tf32` also f32) and the layers after them, and
 * attention with the heads of a row together. For CUDA, after the passes of a rank's network, which must then run
 * again. */
trm_status trm_pass_layouts(trm_network *network, bool tf32, int32_t *changes);
/* Fuses all-reduce + norm. Only if every rank has the same network: the fused and the plain exchange do not match each
 * other. */
trm_status trm_pass_fuse_exchanges(trm_network *network, int32_t *changes);
/* Fuses RMS norms, also with residual, and the products that read them: into NORM_MATMUL, into NORM_DEQUANT_MATMUL
 * where x is quantized, and into NORM_ROUTER; likewise GLU_DEQUANT_MATMUL. After all passes that look for norms or
 * products. */
trm_status trm_pass_fuse_norm_products(trm_network *network, int32_t *changes);
/* Runs the passes of a stage in order, until nothing changes. */
trm_status trm_run_passes(trm_network *network, trm_pass_stage stage);

#endif
