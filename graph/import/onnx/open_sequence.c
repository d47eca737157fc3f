/* Sequences whose length only a run knows, as two tensors: elements one after another, and their dims. */
#include "graph/import/onnx/open_sequence.h"

#include "kernels/kernel.h"

static const int64_t one[1] = {1};

/* ---- types of elements ----------------------------------------------------------------------------------------- */

bool trm_onnx_is_sequence(const trm_onnx_value *value)
{
    return value != NULL && (value->kind == TRM_ONNX_VALUE_SEQUENCE || value->kind == TRM_ONNX_VALUE_OPEN_SEQUENCE);
}

bool trm_onnx_same_element_types(const trm_onnx_element_type *a, const trm_onnx_element_type *b)
{
    return a->dtype == b->dtype && (a->dtype == TRM_DTYPE_NONE || trm_dims_equal(&a->dims, &b->dims));
}

trm_onnx_element_type trm_onnx_join_element_types(trm_onnx_node *node, const trm_onnx_element_type *a,
                                                  const trm_onnx_element_type *b)
{
    if (a->dtype == TRM_DTYPE_NONE || b->dtype == TRM_DTYPE_NONE) {
        return a->dtype == TRM_DTYPE_NONE ? *b : *a;
    }
    trm_onnx_element_type joined = *a;
    if (a->dtype != b->dtype || a->dims.n != b->dims.n) {
        char of_a[TRM_DIMS_TEXT_SIZE], of_b[TRM_DIMS_TEXT_SIZE];
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "a sequence whose length is not known when the network is built has elements %s %s and %s %s, "
                      "expected one type and number of dimensions",
                      trm_dtype_name(a->dtype), trm_dims_format(&a->dims, of_a), trm_dtype_name(b->dtype),
                      trm_dims_format(&b->dims, of_b));
        return joined;
    }
    for (int32_t i = 0; i < joined.dims.n; i++) {
        joined.dims.d[i] = a->dims.d[i] == b->dims.d[i] ? a->dims.d[i] : -1;
    }
    return joined;
}

trm_onnx_element_type trm_onnx_element_type_of(trm_onnx_node *node, const trm_onnx_value *sequence)
{
    trm_onnx_element_type type = {TRM_DTYPE_NONE, {0}};
    if (sequence->kind == TRM_ONNX_VALUE_OPEN_SEQUENCE) {
        return (trm_onnx_element_type){sequence->dtype, sequence->dims};
    }
    for (int32_t i = 0; i < sequence->n_items && !trm_onnx_failed(node); i++) {
        const trm_onnx_value *item = sequence->items[i];
        if (item->kind != TRM_ONNX_VALUE_TENSOR) {
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "element %d of a sequence is not a tensor", (int)i);
            return type;
        }
        const trm_onnx_element_type own = {item->tensor->dtype, item->tensor->dims};
        type = trm_onnx_join_element_types(node, &type, &own);
    }
    return type;
}

/* ---- making them ----------------------------------------------------------------------------------------------- */

trm_onnx_value *trm_onnx_open_sequence(trm_onnx_node *node, trm_onnx_element_type type, trm_tensor *elements,
                                       trm_tensor *shapes)
{
    trm_onnx_value *value = trm_onnx_import_value(node->import, TRM_ONNX_VALUE_OPEN_SEQUENCE);
    if (value == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    value->dtype = type.dtype;
    value->dims = type.dims;
    value->elements = elements;
    value->shapes = shapes;
    return value;
}

static trm_onnx_value *changed(trm_onnx_node *node, const trm_onnx_value *from, trm_tensor *elements,
                               trm_tensor *shapes)
{
    return trm_onnx_open_sequence(node, (trm_onnx_element_type){from->dtype, from->dims}, elements, shapes);
}

static trm_tensor *flat(trm_onnx_node *node, trm_tensor *x)
{
    static const int64_t dims[1] = {-1};
    return trm_onnx_reshape(node, x, dims, 1);
}

/* The dims of a tensor, i64 [1, dims]. */
static trm_tensor *shape_row(trm_onnx_node *node, trm_tensor *x)
{
    static const int32_t front = 0;
    trm_onnx_dim dims[TRM_MAX_DIMS];
    const int32_t n = trm_onnx_dims_of(node, x, dims);
    return trm_onnx_unsqueeze(node, trm_onnx_shape(node, dims, n), &front, 1);
}

trm_onnx_value *trm_onnx_as_open(trm_onnx_node *node, const trm_onnx_value *sequence, const trm_onnx_element_type *type)
{
    const bool open = sequence->kind == TRM_ONNX_VALUE_OPEN_SEQUENCE;
    const int32_t n = open ? 0 : sequence->n_items;
    if (trm_onnx_failed(node)) {
        return NULL;
    }
    if (open && (sequence->dtype != TRM_DTYPE_NONE || type->dtype == TRM_DTYPE_NONE)) {
        return trm_onnx_open_sequence(node, *type, sequence->elements, sequence->shapes);
    }
    if (n == 0) {
        const trm_dtype dtype = type->dtype == TRM_DTYPE_NONE ? TRM_F32 : type->dtype;
        const trm_dims none = {.n = 1}, no_shapes = {.n = 2, .d = {0, type->dims.n}};
        return trm_onnx_open_sequence(node, *type, trm_onnx_constant(node, dtype, none, ""),
                                      trm_onnx_constant(node, TRM_I64, no_shapes, ""));
    }
    if (!trm_onnx_spend(node, n)) {
        return NULL;
    }
    trm_tensor **elements = trm_arena_array(&node->import->arena, (size_t)n, sizeof(trm_tensor *));
    trm_tensor **shapes = trm_arena_array(&node->import->arena, (size_t)n, sizeof(trm_tensor *));
    if (elements == NULL || shapes == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    for (int32_t i = 0; i < n; i++) {
        elements[i] = flat(node, sequence->items[i]->tensor);
        shapes[i] = shape_row(node, sequence->items[i]->tensor);
    }
    return trm_onnx_open_sequence(node, *type, trm_onnx_concat(node, elements, n, 0),
                                  trm_onnx_concat(node, shapes, n, 0));
}

/* ---- places ---------------------------------------------------------------------------------------------------- */

trm_tensor *trm_onnx_open_length(trm_onnx_node *node, const trm_onnx_value *sequence)
{
    const trm_layer_desc shape = {.kind = TRM_LAYER_SHAPE, .shape = {0, 1}};
    return trm_onnx_add(node, &shape, sequence->shapes, NULL, NULL, NULL);
}

/* A position counted from the front, i64 [1]. */
static trm_tensor *from_front(trm_onnx_node *node, const trm_onnx_value *sequence, trm_tensor *position)
{
    int64_t known = 0;
    int32_t count = 0;
    trm_tensor *at = trm_onnx_reshape(node, trm_onnx_cast(node, position, TRM_I64), one, 1);
    const bool is_known = !trm_onnx_failed(node) && trm_onnx_known_ints(node, at, &known, 1, &count);
    if (is_known && known >= 0) {
        return at;
    }
    trm_tensor *counted = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, at, trm_onnx_open_length(node, sequence));
    const int64_t zero[1] = {0};
    return is_known
               ? counted
               : trm_onnx_select(node,
                                 trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS, at, trm_onnx_i64s(node, zero, 1)),
                                 counted, at);
}

static trm_tensor *cut(trm_onnx_node *node, trm_tensor *x, trm_tensor *start, trm_tensor *end)
{
    const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {.step = 1}};
    return trm_onnx_add(node, &slice, x, start, end, NULL);
}

/* Rows 0 .. end - 1, or those from start on. */
static trm_tensor *head(trm_onnx_node *node, trm_tensor *x, trm_tensor *end)
{
    const int64_t zero[1] = {0};
    return cut(node, x, trm_onnx_i64s(node, zero, 1), end);
}

static trm_tensor *tail(trm_onnx_node *node, trm_tensor *x, trm_tensor *start)
{
    const int64_t most[1] = {INT64_MAX};
    return cut(node, x, start, trm_onnx_i64s(node, most, 1));
}

static trm_tensor *next(trm_onnx_node *node, trm_tensor *at)
{
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, at, trm_onnx_i64s(node, one, 1));
}

/* Where the element at a position begins among all, i64 [1]. */
static trm_tensor *begin_of(trm_onnx_node *node, const trm_onnx_value *sequence, trm_tensor *at)
{
    static const int32_t rows = 0, columns = 1;
    trm_tensor *sizes = trm_onnx_reduce(node, TRM_REDUCE_PROD, sequence->shapes, &columns, 1, false);
    return trm_onnx_reduce(node, TRM_REDUCE_SUM, head(node, sizes, at), &rows, 1, true);
}

/* Dims of an element, as far as all have the same, else those of a row of shapes. */
static void dims_in(trm_onnx_node *node, const trm_onnx_value *sequence, trm_tensor *row, trm_onnx_dim *dims)
{
    const int64_t rank[1] = {sequence->dims.n};
    trm_tensor *listed = rank[0] == 0 ? row : trm_onnx_reshape(node, row, rank, 1);
    for (int32_t i = 0; i < sequence->dims.n; i++) {
        const int64_t known = sequence->dims.d[i];
        dims[i] =
            known >= 0 ? trm_onnx_dim_known(known) : (trm_onnx_dim){-1, trm_onnx_slice(node, listed, 0, i, i + 1, 1)};
    }
}

/* Fails where nothing was ever put into the sequence that is known when the network is built. */
static bool has_type(trm_onnx_node *node, const trm_onnx_value *sequence)
{
    if (!trm_onnx_failed(node) && sequence->dtype == TRM_DTYPE_NONE) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "its sequence is empty before the loop, and what is put into it is "
                      "not known before it is read");
    }
    return !trm_onnx_failed(node);
}

/* ---- operators ------------------------------------------------------------------------------------------------- */

trm_tensor *trm_onnx_open_at(trm_onnx_node *node, const trm_onnx_value *sequence, trm_tensor *position)
{
    trm_onnx_dim dims[TRM_MAX_DIMS];
    if (!has_type(node, sequence)) {
        return node->import->nothing;
    }
    trm_tensor *at = from_front(node, sequence, position), *after = next(node, at);
    dims_in(node, sequence, cut(node, sequence->shapes, at, after), dims);
    trm_tensor *element = cut(node, sequence->elements, begin_of(node, sequence, at), begin_of(node, sequence, after));
    return trm_onnx_reshape_to(node, element, dims, sequence->dims.n);
}

trm_onnx_value *trm_onnx_open_insert(trm_onnx_node *node, const trm_onnx_value *sequence, trm_tensor *added,
                                     trm_tensor *position)
{
    const trm_onnx_element_type own = {added->dtype, added->dims}, known = trm_onnx_element_type_of(node, sequence);
    const trm_onnx_element_type type = trm_onnx_join_element_types(node, &known, &own);
    trm_tensor *element = flat(node, added), *shape = shape_row(node, added);
    if (trm_onnx_failed(node) || known.dtype == TRM_DTYPE_NONE) {
        return trm_onnx_failed(node) ? NULL : trm_onnx_open_sequence(node, type, element, shape);
    }
    if (position == NULL) {
        trm_tensor *elements[] = {sequence->elements, element}, *shapes[] = {sequence->shapes, shape};
        return trm_onnx_open_sequence(node, type, trm_onnx_concat(node, elements, 2, 0),
                                      trm_onnx_concat(node, shapes, 2, 0));
    }
    trm_tensor *at = from_front(node, sequence, position), *begin = begin_of(node, sequence, at);
    trm_tensor *elements[] = {head(node, sequence->elements, begin), element, tail(node, sequence->elements, begin)};
    trm_tensor *shapes[] = {head(node, sequence->shapes, at), shape, tail(node, sequence->shapes, at)};
    return trm_onnx_open_sequence(node, type, trm_onnx_concat(node, elements, 3, 0),
                                  trm_onnx_concat(node, shapes, 3, 0));
}

trm_onnx_value *trm_onnx_open_erase(trm_onnx_node *node, const trm_onnx_value *sequence, trm_tensor *position)
{
    if (!has_type(node, sequence)) {
        return NULL;
    }
    trm_tensor *at = from_front(node, sequence, position == NULL ? trm_onnx_i64(node, -1) : position);
    trm_tensor *after = next(node, at);
    trm_tensor *elements[] = {head(node, sequence->elements, begin_of(node, sequence, at)),
                              tail(node, sequence->elements, begin_of(node, sequence, after))};
    trm_tensor *shapes[] = {head(node, sequence->shapes, at), tail(node, sequence->shapes, after)};
    return changed(node, sequence, trm_onnx_concat(node, elements, 2, 0), trm_onnx_concat(node, shapes, 2, 0));
}

trm_tensor *trm_onnx_open_concat(trm_onnx_node *node, const trm_onnx_value *sequence, int64_t axis, bool stack)
{
    static const int32_t rows = 0;
    if (!has_type(node, sequence)) {
        return node->import->nothing;
    }
    const int32_t rank = sequence->dims.n, at = trm_onnx_axis(node, axis, rank + stack);
    trm_onnx_dim dims[TRM_MAX_DIMS + 1];
    if (trm_onnx_failed(node) || rank == TRM_MAX_DIMS) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "elements of its sequence have %d dimensions, expected fewer",
                      (int)rank);
        return node->import->nothing;
    }
    const trm_onnx_dim n = {-1, trm_onnx_open_length(node, sequence)};
    dims_in(node, sequence, trm_onnx_slice(node, sequence->shapes, 0, 0, 1, 1), dims + 1);
    if (!stack && at == 0) { /* of any size along the axis */
        trm_tensor *sizes = trm_onnx_slice(node, sequence->shapes, 1, 0, 1, 1);
        static const int64_t all[1] = {-1};
        sizes = trm_onnx_reshape(node, sizes, all, 1);
        dims[1] = (trm_onnx_dim){-1, trm_onnx_reduce(node, TRM_REDUCE_SUM, sizes, &rows, 1, true)};
        return trm_onnx_reshape_to(node, sequence->elements, dims + 1, rank);
    }
    dims[0] = n;
    trm_tensor *all = trm_onnx_reshape_to(node, sequence->elements, dims, rank + 1);
    int32_t perm[TRM_MAX_DIMS];
    for (int32_t i = 0; i <= rank; i++) {
        perm[i] = i < at ? i + 1 : i == at ? 0 : i;
    }
    all = trm_onnx_transpose(node, all, perm);
    if (!stack && !trm_onnx_failed(node)) {
        for (int32_t i = 0; i < at; i++) {
            dims[i] = dims[i + 1];
        }
        dims[at] = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_MUL, n, dims[at + 1]);
        for (int32_t i = at + 1; i < rank; i++) {
            dims[i] = dims[i + 1];
        }
        all = trm_onnx_reshape_to(node, all, dims, rank);
    }
    return all;
}

trm_onnx_value *trm_onnx_open_split(trm_onnx_node *node, trm_tensor *x, int32_t axis, bool keep)
{
    const int32_t rank = x->dims.n;
    trm_onnx_element_type type = {x->dtype, {.n = rank - !keep}};
    trm_onnx_dim dims[TRM_MAX_DIMS], both[2];
    int32_t perm[TRM_MAX_DIMS], n = 0;
    for (int32_t i = 0; i < rank; i++) {
        perm[i] = i == 0 ? axis : i <= axis ? i - 1 : i;
        if (i != axis || keep) {
            dims[n] = i == axis ? trm_onnx_dim_known(1) : trm_onnx_dim_of(node, x, i);
            type.dims.d[n] = i == axis ? 1 : x->dims.d[i];
            n++;
        }
    }
    both[0] = trm_onnx_dim_of(node, x, axis);
    both[1] = trm_onnx_dim_known(n);
    trm_tensor *shapes = trm_onnx_expand(node, trm_onnx_shape(node, dims, n), both, 2);
    return trm_onnx_open_sequence(node, type, flat(node, trm_onnx_transpose(node, x, perm)), shapes);
}
