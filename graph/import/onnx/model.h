/* An open ONNX file: its messages, and the elements of its tensors. */
#ifndef TRM_GRAPH_IMPORT_ONNX_MODEL_H
#define TRM_GRAPH_IMPORT_ONNX_MODEL_H

#include <trireme/onnx.h>

#include <onnx.pb-c.h>

#include "base/arena.h"
#include "base/map.h"
#include "graph/network.h"

/* Text of a field that may be missing. */
static inline const char *trm_onnx_text(const char *text)
{
    return text == NULL ? "" : text;
}

/* Bytes of an external file that hold a tensor. */
typedef struct trm_onnx_range {
    int32_t file; /* in `external` of the model */
    size_t begin, end;
    const char *tensor;
} trm_onnx_range;

#define TRM_ONNX_IR_OF_DEFAULTS 4 /* IR version from which on an initializer may be an input's default */

struct trm_onnx {
    trm_arena arena;
    const char *path, *name; /* name: the file's own, for dumps */
    char *folder;            /* resolved; external data lies in it */
    trm_weight_file *file;
    Onnx__ModelProto *proto;
    Onnx__GraphProto *graph;
    const char *producer;
    trm_map initializers; /* names of the main graph's */
    trm_map functions;    /* domain, name and overload of each, to its index */
    trm_onnx_use *uses;   /* [n_uses] */
    int32_t n_uses, use_capacity;
    trm_map use_names;
    trm_map external_names; /* locations, and the paths that they mean, to positions in `external` */
    trm_weight_file **external;
    int32_t n_external, external_capacity;
    /* of the last build */
    trm_onnx_range *ranges; /* [n_ranges] of external files, as tensors were read */
    int32_t n_ranges, range_capacity;
    trm_arena issue_arena;
    trm_onnx_issue *issues;
    int32_t n_issues, issue_capacity;
};

/* Opens a model that lies in `file`, which stays the caller's; `folder` (may be NULL: none) is where external data may
 * lie. */
trm_status trm_onnx_open_file(trm_weight_file *file, const char *path, const char *folder, trm_onnx **model);

/* ---- uses.c ---------------------------------------------------------------------------------------------------- */

/* "" for ONNX's own domain, however it is written. */
const char *trm_onnx_domain(const char *domain);
/* The opset of a domain among those of a model or function; -1 if it is missing. */
int64_t trm_onnx_opset(Onnx__OperatorSetIdProto *const *opsets, size_t n, const char *domain);
/* The local function a node calls, or NULL. */
const Onnx__FunctionProto *trm_onnx_find_function(const trm_onnx *model, const Onnx__NodeProto *node);
/* Indexes the functions; fails where two are the same. */
trm_status trm_onnx_index_functions(trm_onnx *model);
/* Fills the table of operators that the model uses. */
trm_status trm_onnx_count_uses(trm_onnx *model);

/* ---- node_order.c ---------------------------------------------------------------------------------------------- */

/* Puts the nodes of every graph and function behind those they read from; lists that have cycles stay as they are. */
trm_status trm_onnx_sort_nodes(trm_onnx *model);

/* ---- types.c --------------------------------------------------------------------------------------------------- */

/* An element type by its ONNX number; NONE for those we do not have. */
trm_dtype trm_onnx_dtype(int64_t number);
/* Its name in ONNX: "float8e4m3fn"; "invalid" for a number that is none. */
const char *trm_onnx_dtype_name(int64_t number);
/* "sequence(f32)" into text [size]. */
void trm_onnx_type_format(const Onnx__TypeProto *type, char *text, size_t size);

/* ---- tensor.c -------------------------------------------------------------------------------------------------- */

/* What is in a tensor: checked type, dims and number of elements. */
typedef struct trm_onnx_elements {
    trm_dtype dtype;
    trm_dims dims;
    size_t count, bytes;
    /* In the file: types of fewer than 8 bits are packed there, and what counts is bytes of them. */
    size_t stored_count, stored_bytes;
} trm_onnx_elements;

/* Checks type and dims of a tensor. `what` names it in errors. */
trm_status trm_onnx_tensor_check(const Onnx__TensorProto *proto, const char *what, trm_onnx_elements *elements);
/* Whether the elements can be there at all, before memory is allocated for them: each takes a byte of the file at
 * least. Elements of external data are checked when they are read. */
bool trm_onnx_tensor_is_there(const Onnx__TensorProto *proto, const trm_onnx_elements *elements);
/* Tells the first two tensors read since the last call whose external data overlaps without being the same (tied
 * weights have the same bytes). The tensors' names must live until then. */
trm_status trm_onnx_check_ranges(trm_onnx *model);
/* Adds a tensor of the model as a constant: a view of the file if it is large, else a copy. */
trm_status trm_onnx_tensor_add(trm_onnx *model, const Onnx__TensorProto *proto, const char *name, trm_network *network,
                               trm_tensor **tensor);
/* The tensor that the import names so, as a weight: an initializer of the main graph, or "<output>/value" of a Constant
 * node there. *weight is NULL if the name is of neither. */
trm_status trm_onnx_find_weight(trm_onnx *model, const char *name, trm_weight **weight);
/* The same for a sparse tensor, which becomes a dense copy. */
trm_status trm_onnx_sparse_tensor_add(trm_onnx *model, const Onnx__SparseTensorProto *proto, const char *name,
                                      trm_network *network, trm_tensor **tensor);
/* Copies elements out [elements.bytes]; for tensors that may also come from a file of their own. */
trm_status trm_onnx_tensor_read(trm_onnx *model, const Onnx__TensorProto *proto, const char *what,
                                const trm_onnx_elements *elements, void *to);

#endif
