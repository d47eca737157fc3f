/* Layers that import functions add, and dims that are numbers or tensors. */
#include "graph/import/onnx/import.h"
#include "graph/shape_elements.h"

#include <string.h>

#include "base/element.h"
#include "kernels/kernel.h"

#define MOST_FOLDED ((size_t)256 << 20) /* bytes of constants that are made, after which layers stay */

/* ---- layers -------------------------------------------------------------------------------------------- */

/* Numbered behind the first, for nodes that add many: looking for a free name takes a while when many are taken. */
static const char *layer_name(trm_onnx_node *node, const char *what)
{
    int32_t number = ++node->n_names;
    const char *name = number == 1 ? trm_arena_printf(&node->import->arena, "%s/%s", node->label, what)
                                   : trm_arena_printf(&node->import->arena, "%s/%s.%d", node->label, what, (int)number);
    return name == NULL ? node->label : name;
}

static trm_status open_device(trm_onnx_import *import)
{
    if (import->device == NULL) {
        TRM_TRY(trm_device_open(TRM_BACKEND_HOST, 0, 1, &import->device));
    }
    return import->stream == NULL ? trm_stream_create(import->device, &import->stream) : TRM_OK;
}

static bool is_constant(trm_tensor *const *inputs, int32_t n_inputs)
{
    for (int32_t i = 0; i < n_inputs; i++) {
        if (inputs[i] != NULL && inputs[i]->role != TRM_TENSOR_CONSTANT) {
            return false;
        }
    }
    return n_inputs > 0;
}

/* SHAPE of dims that are all known. */
static trm_tensor *known_shape(trm_onnx_node *node, const trm_shape_params *shape, const trm_tensor *x)
{
    int64_t start = shape->start < 0 ? shape->start + (int64_t)x->dims.n : shape->start;
    int64_t end = shape->end < 0 ? shape->end + (int64_t)x->dims.n : shape->end;
    start = start < 0 ? 0 : start > x->dims.n ? x->dims.n : start;
    end = end < start ? start : end > x->dims.n ? x->dims.n : end;
    for (int64_t i = start; i < end; i++) {
        if (x->dims.d[i] < 0) {
            return NULL;
        }
    }
    return trm_onnx_i64s(node, x->dims.d + start, (int32_t)(end - start));
}

/* A constant for a shape computation whose elements are all known; the layer stays, and is dead. */
static trm_tensor *known_elements(trm_onnx_node *node, trm_tensor *tensor)
{
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    int64_t values[TRM_MAX_SHAPE_ELEMENTS];
    int32_t n = tensor->dtype == TRM_I64 ? trm_shape_elements(tensor, elements) : -1;
    for (int32_t i = 0; i < n; i++) {
        if (!elements[i].known) {
            return tensor;
        }
        values[i] = elements[i].value;
    }
    return n < 1 ? tensor : trm_onnx_constant(node, TRM_I64, tensor->dims, values);
}

void trm_onnx_layer(trm_onnx_node *node, const trm_layer_desc *desc, trm_tensor *const *inputs, int32_t n_inputs,
                    trm_tensor **outputs)
{
    for (int32_t i = 0; i < TRM_MAX_LAYER_OUTPUTS && i < trm_layer_output_count(desc); i++) {
        outputs[i] = node->import->nothing;
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    if (desc->kind == TRM_LAYER_SHAPE && n_inputs == 1 && inputs[0] != NULL) {
        trm_tensor *known = known_shape(node, &desc->shape, inputs[0]);
        if (known != NULL) {
            outputs[0] = known;
            return;
        }
    }
    trm_tensor *added[TRM_MAX_LAYER_OUTPUTS];
    const char *name = layer_name(node, trm_layer_kind_name(desc->kind));
    node->status = trm_network_add_layer(node->network, name, desc, inputs, n_inputs, added);
    trm_onnx_import *import = node->import;
    if (node->status == TRM_OK && is_constant(inputs, n_inputs) && import->folded <= MOST_FOLDED) {
        bool folded = false;
        node->status = open_device(import);
        if (node->status == TRM_OK) {
            node->status = trm_fold_last_layer(node->network, import->device, import->stream, &folded);
        }
        for (int32_t i = 0; folded && i < trm_layer_output_count(desc); i++) {
            import->folded += trm_dims_bytes(&added[i]->dims, added[i]->dtype);
        }
    }
    for (int32_t i = 0; node->status == TRM_OK && i < trm_layer_output_count(desc); i++) {
        outputs[i] = added[i];
    }
    if (node->status == TRM_OK && trm_layer_output_count(desc) == 1 && added[0]->role == TRM_TENSOR_ACTIVATION) {
        outputs[0] = known_elements(node, added[0]);
    }
}

trm_tensor *trm_onnx_add(trm_onnx_node *node, const trm_layer_desc *desc, trm_tensor *a, trm_tensor *b, trm_tensor *c,
                         trm_tensor *d)
{
    trm_tensor *inputs[] = {a, b, c, d};
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
    trm_onnx_layer(node, desc, inputs, d != NULL ? 4 : c != NULL ? 3 : b != NULL ? 2 : 1, outputs);
    return outputs[0];
}

trm_tensor *trm_onnx_cast(trm_onnx_node *node, trm_tensor *x, trm_dtype to)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_CAST, .cast = {to}};
    return x->dtype == to ? x : trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

trm_tensor *trm_onnx_elementwise(trm_onnx_node *node, trm_elementwise_op op, trm_tensor *a, trm_tensor *b)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {op}};
    return trm_onnx_add(node, &desc, a, b, NULL, NULL);
}

trm_tensor *trm_onnx_elementwise_scalar(trm_onnx_node *node, trm_elementwise_op op, trm_tensor *a, double b)
{
    return trm_onnx_elementwise(node, op, a, trm_onnx_scalar(node, a->dtype, b));
}

trm_tensor *trm_onnx_unary_with(trm_onnx_node *node, trm_unary_op op, trm_tensor *x, float alpha, float beta)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_UNARY, .unary = {.op = op, .alpha = alpha, .beta = beta}};
    return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

trm_tensor *trm_onnx_unary(trm_onnx_node *node, trm_unary_op op, trm_tensor *x)
{
    return trm_onnx_unary_with(node, op, x, 0, 0);
}

trm_tensor *trm_onnx_activation(trm_onnx_node *node, trm_activation activation, trm_tensor *x)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_ACTIVATION, .activation = activation}};
    return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

trm_tensor *trm_onnx_matmul(trm_onnx_node *node, trm_tensor *a, trm_tensor *b, bool transpose_a, bool transpose_b)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL,
                           .matmul = {.transpose_a = transpose_a, .transpose_b = transpose_b}};
    return trm_onnx_add(node, &desc, a, b, NULL, NULL);
}

trm_tensor *trm_onnx_transpose(trm_onnx_node *node, trm_tensor *x, const int32_t *perm)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_TRANSPOSE};
    bool moves = false;
    for (int32_t i = 0; i < x->dims.n; i++) {
        desc.transpose.perm[i] = perm[i];
        moves = moves || perm[i] != i;
    }
    return moves ? trm_onnx_add(node, &desc, x, NULL, NULL, NULL) : x;
}

trm_tensor *trm_onnx_reshape(trm_onnx_node *node, trm_tensor *x, const int64_t *dims, int32_t n)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_RESHAPE};
    if (n < 0 || n > TRM_MAX_DIMS) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "reshape to %d dimensions, at most %d are supported", (int)n,
                      TRM_MAX_DIMS);
        return node->import->nothing;
    }
    desc.reshape.dims.n = n;
    bool same = n == x->dims.n;
    for (int32_t i = 0; i < n; i++) {
        desc.reshape.dims.d[i] = dims[i];
        same = same && dims[i] == x->dims.d[i] && dims[i] > 0;
    }
    return same ? x : trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

trm_tensor *trm_onnx_slice(trm_onnx_node *node, trm_tensor *x, int32_t axis, int64_t start, int64_t end, int64_t step)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_SLICE, .slice = {axis, start, end, step}};
    return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

trm_tensor *trm_onnx_concat(trm_onnx_node *node, trm_tensor *const *parts, int32_t n, int32_t axis)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_CONCAT, .concat = {axis}};
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS] = {node->import->nothing};
    if (n == 1) {
        return parts[0];
    }
    if (n <= TRM_MAX_LAYER_INPUTS) {
        trm_onnx_layer(node, &desc, parts, n, outputs);
        return outputs[0];
    }
    /* Runs of parts, then those joined in turn. */
    trm_tensor *joined[TRM_MAX_LAYER_INPUTS];
    int32_t run = (n + TRM_MAX_LAYER_INPUTS - 1) / TRM_MAX_LAYER_INPUTS, count = 0;
    for (int32_t first = 0; first < n; first += run) {
        joined[count++] = trm_onnx_concat(node, parts + first, n - first < run ? n - first : run, axis);
    }
    trm_onnx_layer(node, &desc, joined, count, outputs);
    return outputs[0];
}

trm_tensor *trm_onnx_gather(trm_onnx_node *node, trm_tensor *data, trm_tensor *indices, int32_t axis)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_GATHER, .gather = {axis}};
    return trm_onnx_add(node, &desc, data, indices, NULL, NULL);
}

/* Axes first .. last as one. */
static trm_tensor *join_axes(trm_onnx_node *node, trm_tensor *x, int32_t first, int32_t last)
{
    const int32_t rank = x->dims.n;
    if (trm_onnx_failed(node)) {
        return x;
    }
    if (last == rank - 1) {
        int64_t copied[TRM_MAX_DIMS] = {0};
        copied[first] = -1;
        return trm_onnx_reshape(node, x, copied, first + 1);
    }
    trm_onnx_dim dims[TRM_MAX_DIMS];
    for (int32_t i = 0; i < rank; i++) {
        if (i <= first || i > last) {
            dims[i <= first ? i : i - (last - first)] = trm_onnx_dim_of(node, x, i);
        }
    }
    dims[first] = trm_onnx_dim_product(node, x, first, last + 1);
    return trm_onnx_reshape_to(node, x, dims, rank - (last - first));
}

trm_tensor *trm_onnx_reduce(trm_onnx_node *node, trm_reduce_op op, trm_tensor *x, const int32_t *axes, int32_t n,
                            bool keep_dims)
{
    int32_t rank = x->dims.n, reduced[TRM_MAX_DIMS], count = 0;
    for (int32_t axis = 0; axis < rank; axis++) {
        bool take = n < 0;
        for (int32_t i = 0; i < n; i++) {
            take = take || axes[i] == axis;
        }
        if (take) {
            reduced[count++] = axis;
        }
    }
    /* Neighbouring axes are joined, so that they are summed up and rounded once. From the last run of them, so that the
     * others keep their places. */
    const bool joins = count > 1;
    for (int32_t i = count; i > 0;) {
        int32_t last = reduced[i - 1], first = last;
        for (i--; i > 0 && reduced[i - 1] == first - 1; i--) {
            first--;
        }
        x = first < last ? join_axes(node, x, first, last) : x;
        trm_layer_desc desc = {.kind = TRM_LAYER_REDUCE, .reduce = {op, first, keep_dims && !joins}};
        x = trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
    }
    return joins && keep_dims ? trm_onnx_unsqueeze(node, x, reduced, count) : x;
}

trm_tensor *trm_onnx_softmax(trm_onnx_node *node, trm_tensor *x, int32_t axis)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_SOFTMAX, .softmax = {axis}};
    return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

trm_tensor *trm_onnx_select(trm_onnx_node *node, trm_tensor *condition, trm_tensor *a, trm_tensor *b)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_SELECT};
    return trm_onnx_add(node, &desc, condition, a, b, NULL);
}

/* ---- constants ----------------------------------------------------------------------------------------- */

trm_tensor *trm_onnx_constant(trm_onnx_node *node, trm_dtype dtype, trm_dims dims, const void *data)
{
    trm_tensor *tensor = NULL;
    if (!trm_onnx_failed(node)) {
        node->status =
            trm_network_add_constant(node->network, layer_name(node, "constant"), dtype, dims, data, &tensor);
    }
    return trm_onnx_failed(node) ? node->import->nothing : tensor;
}

trm_tensor *trm_onnx_scalar(trm_onnx_node *node, trm_dtype dtype, double value)
{
    uint64_t data = 0;
    trm_element_set_double(dtype, &data, 0, value);
    return trm_onnx_constant(node, dtype, (trm_dims){0}, &data);
}

trm_tensor *trm_onnx_i64(trm_onnx_node *node, int64_t value)
{
    return trm_onnx_constant(node, TRM_I64, (trm_dims){0}, &value);
}

trm_tensor *trm_onnx_i64s(trm_onnx_node *node, const int64_t *values, int32_t n)
{
    static const int64_t none[1] = {0};
    return trm_onnx_constant(node, TRM_I64, (trm_dims){.n = 1, .d = {n}}, n == 0 ? none : values);
}

/* ---- dims ---------------------------------------------------------------------------------------------- */

trm_onnx_dim trm_onnx_dim_known(int64_t value)
{
    return (trm_onnx_dim){.value = value};
}

trm_onnx_dim trm_onnx_dim_of(trm_onnx_node *node, trm_tensor *x, int32_t axis)
{
    if (trm_onnx_failed(node) || x->dims.d[axis] >= 0) {
        return trm_onnx_dim_known(x->dims.d[axis]);
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_SHAPE, .shape = {axis, axis + 1}};
    return (trm_onnx_dim){.value = -1, .tensor = trm_onnx_add(node, &desc, x, NULL, NULL, NULL)};
}

static trm_tensor *dim_tensor(trm_onnx_node *node, trm_onnx_dim dim)
{
    return dim.tensor != NULL ? dim.tensor : trm_onnx_i64s(node, &dim.value, 1);
}

trm_onnx_dim trm_onnx_dim_combine(trm_onnx_node *node, trm_elementwise_op op, trm_onnx_dim a, trm_onnx_dim b)
{
    if (a.tensor == NULL && b.tensor == NULL) {
        int64_t value = 0;
        bool overflow = false;
        switch (op) {
        case TRM_ELEMENTWISE_ADD:
            overflow = __builtin_add_overflow(a.value, b.value, &value);
            break;
        case TRM_ELEMENTWISE_SUB:
            overflow = __builtin_sub_overflow(a.value, b.value, &value);
            break;
        case TRM_ELEMENTWISE_MUL:
            overflow = __builtin_mul_overflow(a.value, b.value, &value);
            break;
        default:
            overflow = b.value == 0 || (a.value == INT64_MIN && b.value == -1);
            value = overflow ? 0 : a.value / b.value;
            break;
        }
        if (overflow) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "dimensions %lld and %lld cannot be combined",
                          (long long)a.value, (long long)b.value);
        }
        return trm_onnx_dim_known(value);
    }
    bool one = b.tensor == NULL && b.value == 1, zero = b.tensor == NULL && b.value == 0;
    if ((one && (op == TRM_ELEMENTWISE_MUL || op == TRM_ELEMENTWISE_DIV)) ||
        (zero && (op == TRM_ELEMENTWISE_ADD || op == TRM_ELEMENTWISE_SUB))) {
        return a;
    }
    return (trm_onnx_dim){.value = -1,
                          .tensor = trm_onnx_elementwise(node, op, dim_tensor(node, a), dim_tensor(node, b))};
}

trm_onnx_dim trm_onnx_dim_product(trm_onnx_node *node, trm_tensor *x, int32_t start, int32_t end)
{
    trm_onnx_dim known = trm_onnx_dim_known(1), unknown = trm_onnx_dim_known(1);
    for (int32_t i = start; i < end && !trm_onnx_failed(node); i++) {
        trm_onnx_dim dim = trm_onnx_dim_of(node, x, i);
        trm_onnx_dim *to = dim.tensor == NULL ? &known : &unknown;
        *to = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_MUL, dim, *to);
    }
    return trm_onnx_dim_combine(node, TRM_ELEMENTWISE_MUL, unknown, known);
}

int32_t trm_onnx_dims_of(trm_onnx_node *node, trm_tensor *x, trm_onnx_dim dims[TRM_MAX_DIMS])
{
    for (int32_t i = 0; i < x->dims.n; i++) {
        dims[i] = trm_onnx_dim_of(node, x, i);
    }
    return x->dims.n;
}

trm_tensor *trm_onnx_shape(trm_onnx_node *node, const trm_onnx_dim *dims, int32_t n)
{
    trm_tensor *parts[TRM_MAX_DIMS];
    int64_t values[TRM_MAX_DIMS] = {0};
    int32_t n_parts = 0;
    if (n < 0 || n > TRM_MAX_DIMS) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "a shape of %d dimensions, at most %d are supported", (int)n,
                      TRM_MAX_DIMS);
        return node->import->nothing;
    }
    for (int32_t i = 0; i < n;) {
        int32_t run = 0;
        while (i + run < n && dims[i + run].tensor == NULL) {
            values[run] = dims[i + run].value;
            run++;
        }
        if (run > 0 || n == 0) {
            parts[n_parts++] = trm_onnx_i64s(node, values, run);
            i += run;
        } else {
            parts[n_parts++] = dims[i++].tensor;
        }
    }
    return n == 0 ? trm_onnx_i64s(node, values, 0) : trm_onnx_concat(node, parts, n_parts, 0);
}

trm_tensor *trm_onnx_reshape_to(trm_onnx_node *node, trm_tensor *x, const trm_onnx_dim *dims, int32_t n)
{
    int64_t values[TRM_MAX_DIMS] = {0};
    int32_t unknown = 0;
    bool empty = false;
    for (int32_t i = 0; i < n && i < TRM_MAX_DIMS; i++) {
        values[i] = dims[i].tensor == NULL ? dims[i].value : -1;
        unknown += dims[i].tensor != NULL;
        empty = empty || values[i] == 0;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_RESHAPE, .reshape = {.zero_is_zero = true}};
    if (unknown > 1 ||
        (unknown == 1 && empty)) { /* one unknown dimension follows from the others, unless they contain 0 */
        desc.reshape.dims.n = n;
        memcpy(desc.reshape.dims.d, values, (size_t)n * sizeof(values[0]));
        return trm_onnx_add(node, &desc, x, trm_onnx_shape(node, dims, n), NULL, NULL);
    }
    if (!empty) {
        return trm_onnx_reshape(node, x, values, n);
    }
    desc.reshape.dims.n = n;
    memcpy(desc.reshape.dims.d, values, (size_t)n * sizeof(values[0]));
    return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

trm_tensor *trm_onnx_expand(trm_onnx_node *node, trm_tensor *x, const trm_onnx_dim *dims, int32_t n)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_EXPAND};
    bool known = true, same = n == x->dims.n;
    for (int32_t i = 0; i < n && i < TRM_MAX_DIMS; i++) {
        known = known && dims[i].tensor == NULL;
        same = same && dims[i].tensor == NULL && dims[i].value == x->dims.d[i];
        desc.expand.dims.d[i] = dims[i].tensor == NULL ? dims[i].value : -1;
    }
    if (same) {
        return x;
    }
    desc.expand.dims.n = n;
    return trm_onnx_add(node, &desc, x, known ? NULL : trm_onnx_shape(node, dims, n), NULL, NULL);
}

trm_tensor *trm_onnx_flatten(trm_onnx_node *node, trm_tensor *x, int32_t axis)
{
    trm_onnx_dim dims[2] = {trm_onnx_dim_product(node, x, 0, axis), trm_onnx_dim_product(node, x, axis, x->dims.n)};
    return trm_onnx_reshape_to(node, x, dims, 2);
}

/* Where all dims but one are known, RESHAPE infers it; where more are not, 0 copies those that stay in their place. */
static trm_tensor *change_axes(trm_onnx_node *node, trm_tensor *x, const int32_t *axes, int32_t n, bool insert)
{
    trm_onnx_dim dims[TRM_MAX_DIMS];
    int32_t rank = insert ? x->dims.n + n : x->dims.n, count = 0, from = 0;
    if (rank > TRM_MAX_DIMS) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "%d dimensions, at most %d are supported", (int)rank, TRM_MAX_DIMS);
        return node->import->nothing;
    }
    for (int32_t i = 0; i < rank; i++) {
        bool named = false;
        for (int32_t j = 0; j < n; j++) {
            named = named || axes[j] == i;
        }
        if (insert && named) {
            dims[count++] = trm_onnx_dim_known(1);
        } else if (insert || !named) {
            dims[count++] = trm_onnx_dim_of(node, x, from++);
        } else {
            from++;
        }
    }
    return n == 0 ? x : trm_onnx_reshape_to(node, x, dims, count);
}

trm_tensor *trm_onnx_squeeze(trm_onnx_node *node, trm_tensor *x, const int32_t *axes, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (trm_onnx_failed(node) || axes[i] < 0 || axes[i] >= x->dims.n) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %d to be left out of %d dimensions", (int)axes[i],
                          (int)x->dims.n);
            return x;
        }
        if (x->dims.d[axes[i]] > 1 || x->dims.d[axes[i]] == 0) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %d to be left out has size %lld, expected 1",
                          (int)axes[i], (long long)x->dims.d[axes[i]]);
        }
    }
    return change_axes(node, x, axes, n, false);
}

trm_tensor *trm_onnx_unsqueeze(trm_onnx_node *node, trm_tensor *x, const int32_t *axes, int32_t n)
{
    return change_axes(node, x, axes, n, true);
}
