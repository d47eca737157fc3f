/*
 * What import functions of operators use: the node, its inputs and attributes, and calls that add layers.
 *
 * An operator is one row of a table: its name, the first opset of the row, and a function that adds the layers of a
 * node and sets the node's outputs. TRM_ONNX_FAMILIES lists the tables; each family has a table and a file, <family>.c.
 *
 *     static void import_hard_swish(trm_onnx_node *node)
 *     {
 *         trm_onnx_set(node, 0, trm_onnx_activation(node, TRM_ACTIVATION_HARD_SWISH, node->inputs[0]));
 *     }
 *     const trm_onnx_operator trm_onnx_ops_example[] = {{"", "HardSwish", 14, 1, import_hard_swish, 0}, {0}};
 *
 * A node keeps its first failure. After it every call below does nothing and returns a placeholder tensor (rank 0,
 * f32), never NULL, so that functions need no checks between calls. A function that loops over counts or axes of a node
 * stops if trm_onnx_failed() is true. The importer records the cause with the file, the node and its place, and goes on
 * with the next node.
 *
 * A layer whose inputs are all constants runs at once, on the host; small outputs become constants. So functions know
 * what the graph computes from constants and known dims.
 */
#ifndef TRM_GRAPH_IMPORT_ONNX_OPS_OPS_H
#define TRM_GRAPH_IMPORT_ONNX_OPS_OPS_H

#include "base/error.h"
#include "graph/network.h"

typedef struct trm_onnx_node trm_onnx_node;
typedef struct trm_onnx_operator trm_onnx_operator;
typedef struct trm_onnx_value trm_onnx_value; /* import.h */

struct trm_onnx_operator {
    const char *domain; /* "" is ONNX's own */
    const char *name;   /* NULL ends a table */
    int32_t since;      /* first opset of the row, which holds up to the next row of the name */
    int32_t least;      /* inputs 0 .. least - 1 are required, as tensors */
    void (*import)(trm_onnx_node *node);
    int32_t data; /* for functions that several rows share, such as an enumerator of the layer catalogue */
};

struct trm_onnx_node {
    trm_network *network;
    const trm_onnx_operator *row;
    int32_t opset; /* of the operator's domain */
    int32_t n_inputs, n_outputs;
    /* [n_inputs], NULL if an input is absent or not a tensor (for a sequence see `values` of import.h). NULL too from
     * n_inputs to TRM_ONNX_FIXED_INPUTS, so that optional inputs can be read without comparing with n_inputs. */
    trm_tensor **inputs;

    /* The rest belongs to the importer. */
    const struct trm_onnx_scope *scope;
    struct trm_onnx_import *import;
    const struct Onnx__NodeProto *proto;
    trm_onnx_value **input_values; /* [n_inputs] */
    trm_onnx_value **outputs;      /* [n_outputs], NULL until set */
    const char *label;             /* prefix of its layers' names */
    int32_t n_names, n_bodies;     /* names given and bodies imported so far */
    trm_status status;
};
#define TRM_ONNX_FIXED_INPUTS 16

/* ---- failures and outputs ------------------------------------------------------------------------------------- */

/* Fails the import of the node: UNSUPPORTED for what ONNX allows and we do not, INVALID_MODEL for what ONNX does not
 * allow. The text says what is wrong, found and expected; the importer adds the node. */
void trm_onnx_fail(trm_onnx_node *node, trm_status status, const char *format, ...) TRM_PRINTF(3, 4);
bool trm_onnx_failed(const trm_onnx_node *node);

/* Sets output `index`, unless the node does not have it. The tensor takes the output's name. */
void trm_onnx_set(trm_onnx_node *node, int32_t index, trm_tensor *tensor);
/* Whether the node has this output and names it. */
bool trm_onnx_wants(const trm_onnx_node *node, int32_t index);

/* ---- attributes ------------------------------------------------------------------------------------------------- */

/* An attribute's value, or `normal` if it is absent. Fails if it has another type. Strings live with the model. */
bool trm_onnx_has(trm_onnx_node *node, const char *name);
int64_t trm_onnx_int(trm_onnx_node *node, const char *name, int64_t normal);
bool trm_onnx_flag(trm_onnx_node *node, const char *name, bool normal); /* an int, 0 or not */
float trm_onnx_float(trm_onnx_node *node, const char *name, float normal);
const char *trm_onnx_string(trm_onnx_node *node, const char *name, const char *normal);
/* The position of a string attribute in `names`, which NULL ends; fails if it is not one of them. `normal` is one. */
int32_t trm_onnx_choice(trm_onnx_node *node, const char *name, const char *normal, const char *const *names);
/* Reads a list and returns its length; -1 if the attribute is absent. Fails if it is longer than `capacity`. */
int32_t trm_onnx_ints(trm_onnx_node *node, const char *name, int64_t *values, int32_t capacity);
int32_t trm_onnx_floats(trm_onnx_node *node, const char *name, float *values, int32_t capacity);
/* Length of a list of strings; -1 if it is absent. */
int32_t trm_onnx_string_count(trm_onnx_node *node, const char *name);
const char *trm_onnx_string_at(trm_onnx_node *node, const char *name, int32_t index);
/* A list of exactly `count` ints that fit int32; all `normal` if it is absent. */
void trm_onnx_ints32(trm_onnx_node *node, const char *name, int32_t count, int32_t normal, int32_t *values);
/* An element type by its ONNX number (attributes `to`, `dtype`); `normal` if it is absent. Fails on unsupported types.
 */
trm_dtype trm_onnx_type(trm_onnx_node *node, const char *name, trm_dtype normal);
/* A tensor attribute as a constant; NULL if it is absent. */
trm_tensor *trm_onnx_tensor(trm_onnx_node *node, const char *name);

/* ---- what is known ---------------------------------------------------------------------------------------------- */

/* Elements of a constant in its own type; NULL if the tensor is not a constant or larger than 64 KiB. They live with
 * the import. */
const void *trm_onnx_data(trm_onnx_node *node, const trm_tensor *tensor);
/* Whether the elements of a number or bool tensor are known. If so, sets *count (may be NULL) to their number and
 * writes the first `capacity` of them to `values`. */
bool trm_onnx_known_ints(trm_onnx_node *node, const trm_tensor *tensor, int64_t *values, int32_t capacity,
                         int32_t *count);
bool trm_onnx_known_float(trm_onnx_node *node, const trm_tensor *tensor, double *value); /* one element */
/* Reads the ints of input `index` and returns their number; -1 if the input is absent. Fails if they are not known when
 * the network is built, or more than `capacity`. */
int32_t trm_onnx_input_ints(trm_onnx_node *node, int32_t index, int64_t *values, int32_t capacity);
/* The single number of input `index`, or `normal` if it is absent. */
int64_t trm_onnx_input_int(trm_onnx_node *node, int32_t index, int64_t normal);
double trm_onnx_input_float(trm_onnx_node *node, int32_t index, double normal);

/* `axis` counted from the front; fails outside -rank .. rank - 1. */
int32_t trm_onnx_axis(trm_onnx_node *node, int64_t axis, int32_t rank);
/* Axes of an attribute, or of input `index` if that is >= 0 and given: counted from the front, in the order given, all
 * different. Returns their number; -1 if they are absent. */
int32_t trm_onnx_axes(trm_onnx_node *node, const char *attribute, int32_t index, int32_t rank,
                      int32_t axes[TRM_MAX_DIMS]);

/* ---- constants -------------------------------------------------------------------------------------------------- */

trm_tensor *trm_onnx_constant(trm_onnx_node *node, trm_dtype dtype, trm_dims dims, const void *data);
/* A scalar (rank 0) of any number type or bool, rounded to it. */
trm_tensor *trm_onnx_scalar(trm_onnx_node *node, trm_dtype dtype, double value);
trm_tensor *trm_onnx_i64(trm_onnx_node *node, int64_t value);                     /* rank 0 */
trm_tensor *trm_onnx_i64s(trm_onnx_node *node, const int64_t *values, int32_t n); /* [n] */

/* ---- layers ----------------------------------------------------------------------------------------------------- */

/* Adds any layer: desc, inputs [n_inputs] with NULL for optional ones, outputs as the catalogue says. */
void trm_onnx_layer(trm_onnx_node *node, const trm_layer_desc *desc, trm_tensor *const *inputs, int32_t n_inputs,
                    trm_tensor **outputs);
/* Adds a layer of up to four inputs and returns its first output. */
trm_tensor *trm_onnx_add(trm_onnx_node *node, const trm_layer_desc *desc, trm_tensor *a, trm_tensor *b, trm_tensor *c,
                         trm_tensor *d);

/* Common layers. A call that would change nothing adds no layer. */
trm_tensor *trm_onnx_cast(trm_onnx_node *node, trm_tensor *x, trm_dtype to);
trm_tensor *trm_onnx_elementwise(trm_onnx_node *node, trm_elementwise_op op, trm_tensor *a, trm_tensor *b);
/* b: a scalar of a's type */
trm_tensor *trm_onnx_elementwise_scalar(trm_onnx_node *node, trm_elementwise_op op, trm_tensor *a, double b);
trm_tensor *trm_onnx_unary(trm_onnx_node *node, trm_unary_op op, trm_tensor *x);
trm_tensor *trm_onnx_unary_with(trm_onnx_node *node, trm_unary_op op, trm_tensor *x, float alpha, float beta);
trm_tensor *trm_onnx_activation(trm_onnx_node *node, trm_activation activation, trm_tensor *x);
trm_tensor *trm_onnx_matmul(trm_onnx_node *node, trm_tensor *a, trm_tensor *b, bool transpose_a, bool transpose_b);
/* The node's attributes of a convolution, or of a pool, whose input 0 has as many dimensions as x. */
trm_tensor *trm_onnx_convolution(trm_onnx_node *node, trm_tensor *x, trm_tensor *w, trm_tensor *bias,
                                 bool whole_numbers);
trm_tensor *trm_onnx_average_pool(trm_onnx_node *node, trm_tensor *x);
trm_tensor *trm_onnx_max_pool(trm_onnx_node *node, trm_tensor *x);
trm_tensor *trm_onnx_transpose(trm_onnx_node *node, trm_tensor *x, const int32_t *perm); /* [rank of x] */
/* dims as RESHAPE takes them: 0 copies, one -1 is inferred. */
trm_tensor *trm_onnx_reshape(trm_onnx_node *node, trm_tensor *x, const int64_t *dims, int32_t n);
trm_tensor *trm_onnx_slice(trm_onnx_node *node, trm_tensor *x, int32_t axis, int64_t start, int64_t end, int64_t step);
trm_tensor *trm_onnx_concat(trm_onnx_node *node, trm_tensor *const *parts, int32_t n, int32_t axis); /* any number */
trm_tensor *trm_onnx_gather(trm_onnx_node *node, trm_tensor *data, trm_tensor *indices, int32_t axis);
/* Reduced along several axes (n < 0: all), counted from the front. */
trm_tensor *trm_onnx_reduce(trm_onnx_node *node, trm_reduce_op op, trm_tensor *x, const int32_t *axes, int32_t n,
                            bool keep_dims);
trm_tensor *trm_onnx_softmax(trm_onnx_node *node, trm_tensor *x, int32_t axis);
trm_tensor *trm_onnx_select(trm_onnx_node *node, trm_tensor *condition, trm_tensor *a, trm_tensor *b);
/* Without axes / with a 1 at each of them in the result, counted from the front. Dims may be unknown. */
trm_tensor *trm_onnx_squeeze(trm_onnx_node *node, trm_tensor *x, const int32_t *axes, int32_t n);
trm_tensor *trm_onnx_unsqueeze(trm_onnx_node *node, trm_tensor *x, const int32_t *axes, int32_t n);

/* ---- dims ------------------------------------------------------------------------------------------------------- */

/* A dimension while a network is being built: a number, or a tensor i64 [1] that a context evaluates. */
typedef struct trm_onnx_dim {
    int64_t value;      /* >= 0 if known */
    trm_tensor *tensor; /* NULL if known */
} trm_onnx_dim;

trm_onnx_dim trm_onnx_dim_known(int64_t value);
trm_onnx_dim trm_onnx_dim_of(trm_onnx_node *node, trm_tensor *x, int32_t axis);
/* op: ADD, SUB, MUL or DIV (towards zero). */
trm_onnx_dim trm_onnx_dim_combine(trm_onnx_node *node, trm_elementwise_op op, trm_onnx_dim a, trm_onnx_dim b);
/* The product of dims start .. end - 1 of x; 1 for none. */
trm_onnx_dim trm_onnx_dim_product(trm_onnx_node *node, trm_tensor *x, int32_t start, int32_t end);
/* All dims of x into dims [rank]; returns the rank. */
int32_t trm_onnx_dims_of(trm_onnx_node *node, trm_tensor *x, trm_onnx_dim dims[TRM_MAX_DIMS]);
/* dims as a tensor i64 [n]: a constant if all are known. */
trm_tensor *trm_onnx_shape(trm_onnx_node *node, const trm_onnx_dim *dims, int32_t n);
/* x under other dims, any of which may be unknown. */
trm_tensor *trm_onnx_reshape_to(trm_onnx_node *node, trm_tensor *x, const trm_onnx_dim *dims, int32_t n);
/* x broadcast to dims; x broadcast to the dims of `like`. */
trm_tensor *trm_onnx_expand(trm_onnx_node *node, trm_tensor *x, const trm_onnx_dim *dims, int32_t n);
/* x flattened to two dims: those before `axis`, and the rest. */
trm_tensor *trm_onnx_flatten(trm_onnx_node *node, trm_tensor *x, int32_t axis);

/* ---- tables ----------------------------------------------------------------------------------------------------- */

/* trm_onnx_ops_<family> is the table in <family>.c. */
/* clang-format off */
#define TRM_ONNX_FAMILIES(X) \
    X(attention) \
    X(basic) \
    X(collective) \
    X(contrib) \
    X(control) \
    X(fused) \
    X(index) \
    X(loss) \
    X(matmul) \
    X(movement) \
    X(norm) \
    X(packed) \
    X(pointwise) \
    X(quantize) \
    X(reduce) \
    X(sequence) \
    X(scan) \
    X(shape) \
    X(signal) \
    X(stateful) \
    X(recurrent) \
    X(vision) \
    X(window)
/* clang-format on */

#define TRM_ONNX_DECLARE(family) extern const trm_onnx_operator trm_onnx_ops_##family[];
TRM_ONNX_FAMILIES(TRM_ONNX_DECLARE)
#undef TRM_ONNX_DECLARE

/* The row for an operator at an opset, or NULL. *known (may be NULL) says whether the name has a row for any opset. */
const trm_onnx_operator *trm_onnx_find_operator(const char *domain, const char *name, int64_t opset, bool *known);
/* The row for nodes that a loaded plugin is for, or NULL: one of the domain and name whose version is at most the
 * domain's opset. ops/plugin.c. */
const trm_onnx_operator *trm_onnx_find_plugin(const char *domain, const char *name, int64_t opset);

#endif
