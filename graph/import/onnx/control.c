/*
 * Helpers for control flow operators: lists of results of passes, and selection of results if it is unknown whether a
 * pass or a branch runs.
 */
#include "graph/import/onnx/control.h"
#include "graph/import/onnx/open_sequence.h"

#include <string.h>

#include "kernels/kernel.h"

void trm_onnx_list_add(trm_onnx_node *node, trm_onnx_list *list, trm_onnx_value *value)
{
    if (trm_onnx_failed(node)) {
        return;
    }
    if (list->n == list->capacity) {
        int32_t wanted = list->capacity * 2 + 8;
        trm_onnx_value **grown = trm_arena_array(&node->import->arena, (size_t)wanted, sizeof(trm_onnx_value *));
        if (grown == NULL) {
            node->status = TRM_ERROR_OUT_OF_MEMORY;
            return;
        }
        if (list->n > 0) {
            memcpy(grown, list->items, (size_t)list->n * sizeof(trm_onnx_value *));
        }
        list->items = grown;
        list->capacity = wanted;
    }
    list->items[list->n++] = value;
}

trm_onnx_value **trm_onnx_new_values(trm_onnx_node *node, size_t n)
{
    trm_onnx_value **values = trm_arena_array(&node->import->arena, n + 1, sizeof(trm_onnx_value *));
    if (values == NULL && node->status == TRM_OK) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
    }
    return values;
}

trm_tensor *trm_onnx_body_tensor(trm_onnx_node *node, const trm_onnx_value *value, const char *what)
{
    if (trm_onnx_failed(node)) {
        return node->import->nothing;
    }
    if (value == NULL || value->kind != TRM_ONNX_VALUE_TENSOR) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "%s is a sequence or an optional, expected a tensor", what);
        return node->import->nothing;
    }
    return value->tensor;
}

trm_tensor *trm_onnx_stack(trm_onnx_node *node, const trm_onnx_list *list, int32_t axis, bool backwards)
{
    trm_tensor **parts = trm_arena_array(&node->import->arena, (size_t)list->n, sizeof(trm_tensor *));
    if (parts == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return node->import->nothing;
    }
    for (int32_t i = 0; i < list->n; i++) {
        trm_tensor *tensor = trm_onnx_body_tensor(node, list->items[i], "a stacked output of the body");
        int32_t at = axis < 0 ? axis + tensor->dims.n + 1 : axis;
        if (at < 0 || at > tensor->dims.n) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %d of a stacked output, which has %d dimensions",
                          (int)axis, (int)tensor->dims.n + 1);
            return node->import->nothing;
        }
        parts[backwards ? list->n - 1 - i : i] = trm_onnx_unsqueeze(node, tensor, &at, 1);
    }
    int32_t rank = parts[0]->dims.n;
    return trm_onnx_concat(node, parts, list->n, axis < 0 ? axis + rank : axis);
}

void trm_onnx_set_stacked(trm_onnx_node *node, int32_t output, const trm_onnx_list *list, int32_t axis, bool backwards,
                          const Onnx__ValueInfoProto *declared)
{
    if (trm_onnx_failed(node) || !trm_onnx_wants(node, output)) {
        return;
    }
    if (list->n == 0) { /* nothing ran: only the body's declared dims are known */
        const Onnx__TypeProto__Tensor *type = declared->type == NULL ? NULL : declared->type->tensor_type;
        trm_dtype dtype = type == NULL ? TRM_DTYPE_NONE : trm_onnx_dtype(type->elem_type);
        trm_dims dims = {.n = 1};
        for (size_t i = 0; dtype != TRM_DTYPE_NONE && type->shape != NULL && i < type->shape->n_dim; i++) {
            int64_t size = type->shape->dim[i]->has_dim_value ? type->shape->dim[i]->dim_value : -1;
            dtype = size < 0 || dims.n == TRM_MAX_DIMS ? TRM_DTYPE_NONE : dtype;
            dims.d[dims.n < TRM_MAX_DIMS ? dims.n++ : 0] = size;
        }
        if (dtype == TRM_DTYPE_NONE || type->shape == NULL || axis != 0) {
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                          "its body never runs, and does not declare the dims of output %d", (int)output);
            return;
        }
        dims.d[0] = 0;
        trm_onnx_set(node, output, trm_onnx_constant(node, dtype, dims, ""));
        return;
    }
    trm_onnx_set(node, output, trm_onnx_stack(node, list, axis, backwards));
}

static trm_onnx_dim either_dim(trm_onnx_node *node, trm_tensor *condition, trm_onnx_dim a, trm_onnx_dim b)
{
    if (a.tensor == NULL && b.tensor == NULL && a.value == b.value) {
        return a;
    }
    return (trm_onnx_dim){-1,
                          trm_onnx_select(node, condition, trm_onnx_shape(node, &a, 1), trm_onnx_shape(node, &b, 1))};
}

trm_tensor *trm_onnx_either(trm_onnx_node *node, trm_tensor *condition, trm_tensor *a, trm_tensor *b)
{
    static const int64_t flat[1] = {-1};
    const trm_onnx_dim none = trm_onnx_dim_known(0), n_a = trm_onnx_dim_product(node, a, 0, a->dims.n);
    const trm_onnx_dim all =
        trm_onnx_dim_combine(node, TRM_ELEMENTWISE_ADD, n_a, trm_onnx_dim_product(node, b, 0, b->dims.n));
    trm_onnx_dim start = either_dim(node, condition, none, n_a), end = either_dim(node, condition, n_a, all);
    trm_onnx_dim dims[TRM_MAX_DIMS];
    for (int32_t i = 0; i < a->dims.n; i++) {
        dims[i] = either_dim(node, condition, trm_onnx_dim_of(node, a, i), trm_onnx_dim_of(node, b, i));
    }
    trm_tensor *parts[2] = {trm_onnx_reshape(node, a, flat, 1), trm_onnx_reshape(node, b, flat, 1)};
    const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {.step = 1}};
    trm_tensor *part = trm_onnx_add(node, &slice, trm_onnx_concat(node, parts, 2, 0), trm_onnx_shape(node, &start, 1),
                                    trm_onnx_shape(node, &end, 1), NULL);
    return trm_onnx_reshape_to(node, part, dims, a->dims.n);
}

/* One sequence or the other. */
static trm_onnx_value *choose_sequence(trm_onnx_node *node, trm_tensor *runs, const trm_onnx_value *made,
                                       const trm_onnx_value *old)
{
    const trm_onnx_element_type a = trm_onnx_element_type_of(node, made), b = trm_onnx_element_type_of(node, old);
    const trm_onnx_element_type type = trm_onnx_join_element_types(node, &a, &b);
    const trm_onnx_value *yes = trm_onnx_as_open(node, made, &type), *no = trm_onnx_as_open(node, old, &type);
    return trm_onnx_failed(node)
               ? NULL
               : trm_onnx_open_sequence(node, type, trm_onnx_either(node, runs, yes->elements, no->elements),
                                        trm_onnx_either(node, runs, yes->shapes, no->shapes));
}

trm_onnx_value *trm_onnx_choose(trm_onnx_node *node, trm_tensor *runs, const trm_onnx_value *made, trm_onnx_value *old)
{
    if (!trm_onnx_failed(node) && trm_onnx_is_sequence(made) && trm_onnx_is_sequence(old)) {
        return made == old ? old : choose_sequence(node, runs, made, old);
    }
    trm_tensor *a = trm_onnx_body_tensor(node, made, "a loop-carried value of a body that may not run");
    trm_tensor *b = trm_onnx_body_tensor(node, old, "a loop-carried value of a body that may not run");
    if (trm_onnx_failed(node) || a == b) {
        return old;
    }
    if (a->dims.n != b->dims.n || a->dtype != b->dtype) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "its body turns %s of %d dimensions into %s of %d, and it is not known whether it runs when the "
                      "network is built",
                      trm_dtype_name(a->dtype), (int)a->dims.n, trm_dtype_name(b->dtype), (int)b->dims.n);
        return old;
    }
    const bool same_dims = trm_dims_equal(&a->dims, &b->dims) && trm_dims_are_known(&a->dims);
    return trm_onnx_value_tensor(node,
                                 same_dims ? trm_onnx_select(node, runs, a, b) : trm_onnx_either(node, runs, a, b));
}

void trm_onnx_cut_output(trm_onnx_node *node, int32_t output, int32_t axis, trm_tensor *start, trm_tensor *end)
{
    const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {.axis = axis, .step = 1}};
    trm_onnx_value *value = node->outputs[output];
    if (!trm_onnx_failed(node) && trm_onnx_wants(node, output) && value != NULL) {
        trm_onnx_set(node, output, trm_onnx_add(node, &slice, value->tensor, start, end, NULL));
    }
}

/* The tensor as it is, in a run in which no pass is missing; others fail, as -1 copies of an axis are refused. */
static trm_tensor *refuse_missing(trm_onnx_node *node, trm_tensor *missing, trm_tensor *x)
{
    static const int64_t flat[1] = {-1}, refused[1] = {-1}, once[1] = {1};
    const trm_layer_desc tile = {.kind = TRM_LAYER_TILE};
    trm_onnx_dim dims[TRM_MAX_DIMS];
    for (int32_t i = 0; i < x->dims.n; i++) {
        dims[i] = trm_onnx_dim_of(node, x, i);
    }
    trm_tensor *copies = trm_onnx_select(node, missing, trm_onnx_i64s(node, refused, 1), trm_onnx_i64s(node, once, 1));
    trm_tensor *checked = trm_onnx_add(node, &tile, trm_onnx_reshape(node, x, flat, 1), copies, NULL, NULL);
    return trm_onnx_reshape_to(node, checked, dims, x->dims.n);
}

void trm_onnx_check_passes(trm_onnx_node *node, trm_tensor *missing, int64_t made)
{
    const char *label = node->label;
    if (trm_onnx_failed(node)) {
        return;
    }
    node->label = trm_arena_printf(&node->import->arena, "%s/more_than_%lld_trips", label, (long long)made);
    if (node->label == NULL) {
        node->label = label;
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    for (int32_t i = 0; i < node->n_outputs && !trm_onnx_failed(node); i++) {
        trm_onnx_value *value = node->outputs[i];
        if (trm_onnx_wants(node, i) && value != NULL && value->kind == TRM_ONNX_VALUE_TENSOR) {
            trm_onnx_set(node, i, refuse_missing(node, missing, value->tensor));
        }
    }
    node->label = label;
}
