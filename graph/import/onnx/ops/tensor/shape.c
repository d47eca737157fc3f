/* Operators about dims: what they are, other dims for the same elements, and parts and repetitions of tensors. */
#include "graph/import/onnx/ops/ops.h"

#include "graph/shape_elements.h"

static trm_tensor *add_kind(trm_onnx_node *node, trm_layer_kind kind, trm_tensor *a, trm_tensor *b, trm_tensor *c)
{
    trm_layer_desc desc = {.kind = kind};
    return trm_onnx_add(node, &desc, a, b, c, NULL);
}

/* Whether the first dimension of a vector of sizes or axes is known; the node fails where it is not. */
static bool length_is_known(trm_onnx_node *node, const trm_tensor *vector, const char *what)
{
    if (vector->dims.n == 1 && vector->dims.d[0] >= 0 && vector->dims.d[0] <= TRM_MAX_DIMS) {
        return true;
    }
    char text[TRM_DIMS_TEXT_SIZE];
    trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "%s has dims %s, expected a known number of at most %d", what,
                  trm_dims_format(&vector->dims, text), TRM_MAX_DIMS);
    return false;
}

/* ---- dims as tensors ---------------------------------------------------------------------------- */

static void import_shape(trm_onnx_node *node)
{
    int64_t start = trm_onnx_int(node, "start", 0), end = trm_onnx_int(node, "end", INT32_MAX);
    trm_layer_desc desc = {.kind = TRM_LAYER_SHAPE};
    desc.shape.start = (int32_t)(start < INT32_MIN ? INT32_MIN : start > INT32_MAX ? INT32_MAX : start);
    desc.shape.end = (int32_t)(end < INT32_MIN ? INT32_MIN : end > INT32_MAX ? INT32_MAX : end);
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], NULL, NULL, NULL));
}

static void import_size(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    trm_onnx_dim size = trm_onnx_dim_product(node, x, 0, x->dims.n);
    trm_tensor *scalar =
        size.tensor == NULL ? trm_onnx_i64(node, size.value) : trm_onnx_reshape(node, size.tensor, NULL, 0);
    trm_onnx_set(node, 0, scalar);
}

/* ---- reshape ------------------------------------------------------------------------------------ */

/* What is known of the sizes goes into the layer; the tensor of sizes stays its input only where it must. */
static trm_tensor *reshape_by(trm_onnx_node *node, trm_tensor *x, trm_tensor *shape, bool zero_is_zero)
{
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    trm_layer_desc desc = {.kind = TRM_LAYER_RESHAPE, .reshape = {.zero_is_zero = zero_is_zero}};
    trm_dims *dims = &desc.reshape.dims;
    int32_t n_unknown = 0, at = -1;
    bool inferred = false, zero = false;
    if (!length_is_known(node, shape, "the shape")) {
        return x;
    }
    dims->n = trm_shape_elements(shape, elements);
    for (int32_t i = 0; i < dims->n; i++) {
        bool copied = !elements[i].known && elements[i].of == x && elements[i].axis == i && !zero_is_zero;
        dims->d[i] = elements[i].known ? elements[i].value : copied ? 0 : -1;
        inferred = inferred || (elements[i].known && elements[i].value == -1);
        zero = zero || (elements[i].known && elements[i].value == 0);
        if (!elements[i].known && !copied) {
            n_unknown++;
            at = i;
        }
    }
    if (n_unknown == 0) {
        return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
    }
    if (n_unknown == 1 && !inferred && !zero) {
        dims->d[at] = -1;
        return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
    }
    for (int32_t i = 0; i < dims->n; i++) { /* as what is known of the input */
        dims->d[i] = elements[i].known && elements[i].value > 0 ? elements[i].value : -1;
    }
    return trm_onnx_add(node, &desc, x, shape, NULL, NULL);
}

static void import_reshape(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, reshape_by(node, node->inputs[0], node->inputs[1], trm_onnx_flag(node, "allowzero", false)));
}

static void import_reshape_1(trm_onnx_node *node)
{
    int64_t dims[TRM_MAX_DIMS];
    int32_t n = trm_onnx_ints(node, "shape", dims, TRM_MAX_DIMS);
    trm_onnx_set(node, 0, trm_onnx_reshape(node, node->inputs[0], dims, n < 0 ? 0 : n));
}

static void import_squeeze(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    int32_t axes[TRM_MAX_DIMS];
    int32_t n = trm_onnx_axes(node, "axes", node->opset >= 13 ? 1 : -1, x->dims.n, axes);
    if (n < 0) {
        n = 0;
        for (int32_t i = 0; i < x->dims.n; i++) {
            if (x->dims.d[i] < 0) {
                trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "it has no axes, and dimension %d of its input is not known",
                              (int)i);
                return;
            }
            if (x->dims.d[i] == 1) {
                axes[n++] = i;
            }
        }
    }
    trm_onnx_set(node, 0, trm_onnx_squeeze(node, x, axes, n));
}

static void import_unsqueeze(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    int64_t values[TRM_MAX_DIMS];
    int32_t axes[TRM_MAX_DIMS];
    int32_t n = node->opset >= 13 ? trm_onnx_input_ints(node, 1, values, TRM_MAX_DIMS)
                                  : trm_onnx_ints(node, "axes", values, TRM_MAX_DIMS);
    if (n < 0 || x->dims.n + n > TRM_MAX_DIMS) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "found %d axes for an input of %d dimensions, expected 0 to %d",
                      (int)n, (int)x->dims.n, TRM_MAX_DIMS - (int)x->dims.n);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        axes[i] = trm_onnx_axis(node, values[i], x->dims.n + n);
        for (int32_t k = 0; k < i; k++) {
            if (axes[k] == axes[i] && !trm_onnx_failed(node)) {
                trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %d is inserted twice", (int)axes[i]);
            }
        }
    }
    if (!trm_onnx_failed(node)) {
        trm_onnx_set(node, 0, trm_onnx_unsqueeze(node, x, axes, n));
    }
}

static void import_flatten(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    int64_t axis = trm_onnx_int(node, "axis", 1);
    if (axis < -x->dims.n || axis > x->dims.n) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %lld, expected one of %d dimensions", (long long)axis,
                      (int)x->dims.n);
        return;
    }
    trm_onnx_set(node, 0, trm_onnx_flatten(node, x, (int32_t)(axis < 0 ? axis + x->dims.n : axis)));
}

/* ---- repetition --------------------------------------------------------------------------------- */

static trm_tensor *expand_by(trm_onnx_node *node, trm_tensor *x, trm_tensor *shape)
{
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    trm_layer_desc desc = {.kind = TRM_LAYER_EXPAND};
    bool known = true, same = true;
    if (!length_is_known(node, shape, "the shape")) {
        return x;
    }
    desc.expand.dims.n = trm_shape_elements(shape, elements);
    same = desc.expand.dims.n <= x->dims.n;
    for (int32_t i = 0; i < desc.expand.dims.n; i++) {
        int32_t own = i + x->dims.n - desc.expand.dims.n;
        desc.expand.dims.d[i] = elements[i].known ? elements[i].value : -1;
        known = known && elements[i].known;
        same = same && elements[i].known && (elements[i].value == 1 || elements[i].value == x->dims.d[own]);
    }
    return same ? x : trm_onnx_add(node, &desc, x, known ? NULL : shape, NULL, NULL);
}

static void import_expand(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, expand_by(node, node->inputs[0], node->inputs[1]));
}

static void import_constant_of_shape(trm_onnx_node *node)
{
    trm_tensor *value = trm_onnx_tensor(node, "value");
    value = value == NULL ? trm_onnx_scalar(node, TRM_F32, 0) : trm_onnx_reshape(node, value, NULL, 0);
    trm_onnx_set(node, 0, expand_by(node, value, node->inputs[0]));
}

static void import_tile(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, add_kind(node, TRM_LAYER_TILE, node->inputs[0], node->inputs[1], NULL));
}

/* (x, tiles, axis) */
static void import_tile_1(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    int64_t repeats[TRM_MAX_DIMS], tiles = trm_onnx_input_int(node, 1, 1);
    int32_t axis = trm_onnx_axis(node, trm_onnx_input_int(node, 2, 0), x->dims.n);
    for (int32_t i = 0; i < x->dims.n; i++) {
        repeats[i] = i == axis ? tiles : 1;
    }
    trm_onnx_set(node, 0, add_kind(node, TRM_LAYER_TILE, x, trm_onnx_i64s(node, repeats, x->dims.n), NULL));
}

static void import_range(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, add_kind(node, TRM_LAYER_RANGE, node->inputs[0], node->inputs[1], node->inputs[2]));
}

/* 0, 1, .. size - 1 along `axis` of two, the other of size 1. */
static trm_tensor *positions(trm_onnx_node *node, trm_tensor *x, int32_t of, int32_t axis)
{
    trm_onnx_dim size = trm_onnx_dim_of(node, x, of);
    trm_tensor *limit =
        size.tensor != NULL ? trm_onnx_reshape(node, size.tensor, NULL, 0) : trm_onnx_i64(node, size.value);
    trm_tensor *range = add_kind(node, TRM_LAYER_RANGE, trm_onnx_i64(node, 0), limit, trm_onnx_i64(node, 1));
    int32_t other = 1 - axis;
    return trm_onnx_unsqueeze(node, range, &other, 1);
}

static void import_eye_like(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    trm_dtype dtype = trm_onnx_type(node, "dtype", x->dtype);
    if (x->dims.n != 2) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its input has %d dimensions, expected 2", (int)x->dims.n);
        return;
    }
    trm_tensor *rows = positions(node, x, 0, 0), *columns = positions(node, x, 1, 1);
    trm_tensor *shifted =
        trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, rows, (double)trm_onnx_int(node, "k", 0));
    trm_onnx_set(node, 0,
                 trm_onnx_cast(node, trm_onnx_elementwise(node, TRM_ELEMENTWISE_EQUAL, shifted, columns), dtype));
}

/* Elements on one side of a diagonal, the others 0. */
static void import_trilu(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *k = node->inputs[1];
    if (x->dims.n < 2) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its input has %d dimensions, expected 2 or more", (int)x->dims.n);
        return;
    }
    k = k == NULL ? trm_onnx_i64(node, 0) : trm_onnx_reshape(node, k, NULL, 0);
    trm_tensor *rows = positions(node, x, x->dims.n - 2, 0), *columns = positions(node, x, x->dims.n - 1, 1);
    trm_tensor *diagonal = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, rows, k);
    trm_elementwise_op side =
        trm_onnx_flag(node, "upper", true) ? TRM_ELEMENTWISE_GREATER_EQUAL : TRM_ELEMENTWISE_LESS_EQUAL;
    trm_onnx_set(node, 0,
                 trm_onnx_select(node, trm_onnx_elementwise(node, side, columns, diagonal), x,
                                 trm_onnx_scalar(node, x->dtype, 0)));
}

/* ---- parts -------------------------------------------------------------------------------------- */

static void import_slice_1(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    int64_t starts[TRM_MAX_DIMS], ends[TRM_MAX_DIMS];
    int32_t axes[TRM_MAX_DIMS];
    int32_t n = trm_onnx_ints(node, "starts", starts, TRM_MAX_DIMS);
    int32_t n_ends = trm_onnx_ints(node, "ends", ends, TRM_MAX_DIMS);
    int32_t n_axes = trm_onnx_axes(node, "axes", -1, x->dims.n, axes);
    if (n < 0 || n_ends != n || (n_axes >= 0 && n_axes != n) || n > x->dims.n) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "found %d starts, %d ends and %d axes, expected as many", (int)n,
                      (int)n_ends, (int)n_axes);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        x = trm_onnx_slice(node, x, n_axes < 0 ? i : axes[i], starts[i], ends[i], 1);
    }
    trm_onnx_set(node, 0, x);
}

/* Element i of a vector of positions: in *value if it is known, else as a tensor [1]. */
static trm_tensor *position_at(trm_onnx_node *node, trm_tensor *vector, const trm_shape_element *elements, int32_t i,
                               int64_t *value)
{
    if (elements[i].known) {
        *value = elements[i].value;
        return NULL;
    }
    return vector->dims.d[0] == 1 ? vector : trm_onnx_slice(node, vector, 0, i, i + 1, 1);
}

/* Input `index` of a Slice, one number for each of its axes, as one for each of all axes; those it does not name have
 * `normal`. */
static trm_tensor *for_all_axes(trm_onnx_node *node, int32_t index, int64_t normal)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_SCATTER, .scatter = {.form = TRM_SCATTER_ELEMENTS}};
    int64_t normals[TRM_MAX_DIMS];
    for (int32_t i = 0; i < node->inputs[0]->dims.n; i++) {
        normals[i] = normal;
    }
    return trm_onnx_add(node, &desc, trm_onnx_i64s(node, normals, node->inputs[0]->dims.n),
                        trm_onnx_cast(node, node->inputs[3], TRM_I64),
                        trm_onnx_cast(node, node->inputs[index], TRM_I64), NULL);
}

/* Of axes that only a run tells: a part of each, which is all of those that are not named. */
static void slice_any_axes(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    trm_tensor *starts = for_all_axes(node, 1, 0), *ends = for_all_axes(node, 2, INT64_MAX);
    trm_tensor *steps = node->inputs[4] == NULL ? NULL : for_all_axes(node, 4, 1);
    for (int32_t i = 0; i < node->inputs[0]->dims.n; i++) {
        const trm_layer_desc desc = {.kind = TRM_LAYER_SLICE, .slice = {i, 0, INT64_MAX, 1}};
        x = trm_onnx_add(node, &desc, x, trm_onnx_slice(node, starts, 0, i, i + 1, 1),
                         trm_onnx_slice(node, ends, 0, i, i + 1, 1),
                         steps == NULL ? NULL : trm_onnx_slice(node, steps, 0, i, i + 1, 1));
    }
    trm_onnx_set(node, 0, x);
}

static void import_slice(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *steps = node->inputs[4];
    trm_shape_element starts[TRM_MAX_SHAPE_ELEMENTS], ends[TRM_MAX_SHAPE_ELEMENTS], by[TRM_MAX_SHAPE_ELEMENTS];
    int32_t axes[TRM_MAX_DIMS];
    if (!length_is_known(node, node->inputs[1], "starts") || !length_is_known(node, node->inputs[2], "ends") ||
        (steps != NULL && !length_is_known(node, steps, "steps")) ||
        (node->inputs[3] != NULL && !length_is_known(node, node->inputs[3], "axes"))) {
        return;
    }
    int32_t n = trm_shape_elements(node->inputs[1], starts), n_ends = trm_shape_elements(node->inputs[2], ends);
    int32_t n_steps = steps == NULL ? n : trm_shape_elements(steps, by);
    const bool any_axes = node->inputs[3] != NULL && !trm_onnx_known_ints(node, node->inputs[3], NULL, 0, NULL);
    int32_t n_axes = any_axes ? (int32_t)node->inputs[3]->dims.d[0] : trm_onnx_axes(node, "axes", 3, x->dims.n, axes);
    if (trm_onnx_failed(node)) {
        return;
    }
    if (n < 0 || n_ends != n || n_steps != n || (n_axes >= 0 && n_axes != n) || n > x->dims.n) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "found %d starts, %d ends, %d axes and %d steps, expected as many",
                      (int)n, (int)n_ends, (int)n_axes, (int)n_steps);
        return;
    }
    if (any_axes) {
        slice_any_axes(node);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        trm_layer_desc desc = {.kind = TRM_LAYER_SLICE, .slice = {n_axes < 0 ? i : axes[i], 0, INT64_MAX, 1}};
        trm_slice_params *slice = &desc.slice;
        trm_tensor *start = position_at(node, node->inputs[1], starts, i, &slice->start);
        trm_tensor *end = position_at(node, node->inputs[2], ends, i, &slice->end);
        trm_tensor *step = steps == NULL ? NULL : position_at(node, steps, by, i, &slice->step);
        bool is_whole = start == NULL && end == NULL && step == NULL && slice->start == 0 && slice->step == 1 &&
                        slice->end >= INT32_MAX && (x->dims.d[slice->axis] >= 0 || slice->end == INT64_MAX);
        x = is_whole ? x : trm_onnx_add(node, &desc, x, start, end, step);
    }
    trm_onnx_set(node, 0, x);
}

static void import_concat(trm_onnx_node *node)
{
    for (int32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] == NULL) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "input %d is missing", (int)i);
            return;
        }
    }
    int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 1), node->inputs[0]->dims.n);
    if (!trm_onnx_failed(node)) {
        trm_onnx_set(node, 0, trm_onnx_concat(node, node->inputs, node->n_inputs, axis));
    }
}

/* Parts of equal size, the last one smaller, of an axis whose size must be known. */
static void split_evenly(trm_onnx_node *node, trm_tensor *x, int32_t axis, int32_t n)
{
    int64_t size = x->dims.d[axis];
    if (size < 0 || n < 1) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "axis %d of unknown size is split into %d equal parts", (int)axis,
                      (int)n);
        return;
    }
    int64_t part = (size + n - 1) / n;
    if (node->opset < 18 && part * n != size) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %d of size %lld is split into %d equal parts", (int)axis,
                      (long long)size, (int)n);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        int64_t end = (i + 1) * part < size ? (i + 1) * part : size, start = i * part < size ? i * part : size;
        trm_onnx_set(node, i, trm_onnx_slice(node, x, axis, start, end, 1));
    }
}

/* The sizes of a split are an attribute, an input, or equal. */
/* Parts of sizes that only a run tells. */
static void split_by(trm_onnx_node *node, trm_tensor *x, int32_t axis)
{
    trm_tensor *sizes = node->inputs[1];
    trm_shape_element known[TRM_MAX_SHAPE_ELEMENTS];
    if (sizes->dims.n != 1 || sizes->dims.d[0] != node->n_outputs) {
        char text[TRM_DIMS_TEXT_SIZE];
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "sizes of parts have dims %s, expected one for each of %d outputs",
                      trm_dims_format(&sizes->dims, text), (int)node->n_outputs);
        return;
    }
    const int32_t n_known = trm_shape_elements(sizes, known);
    trm_onnx_dim start = trm_onnx_dim_known(0);
    for (int32_t i = 0; i < node->n_outputs; i++) {
        trm_layer_desc desc = {.kind = TRM_LAYER_SLICE, .slice = {axis, start.value, 0, 1}};
        trm_onnx_dim size = {.value = -1};
        if (i < n_known && known[i].known && known[i].value >= 0) {
            size.value = known[i].value;
        } else {
            size.tensor = sizes->dims.d[0] == 1 ? sizes : trm_onnx_slice(node, sizes, 0, i, i + 1, 1);
        }
        const trm_onnx_dim end = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_ADD, start, size);
        desc.slice.end = end.value;
        trm_onnx_set(node, i, trm_onnx_add(node, &desc, x, start.tensor, end.tensor, NULL));
        start = end;
    }
}

static void import_split(trm_onnx_node *node)
{
    enum { MOST_PARTS = 1024 };
    trm_tensor *x = node->inputs[0];
    int64_t sizes[MOST_PARTS];
    int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), x->dims.n);
    const bool has_input = node->row->data == 0 && node->inputs[1] != NULL;
    const bool sizes_are_open = has_input && !trm_onnx_known_ints(node, node->inputs[1], NULL, 0, NULL);
    int32_t n = node->row->data != 0 ? trm_onnx_ints(node, "split", sizes, MOST_PARTS)
                : sizes_are_open     ? -1
                                     : trm_onnx_input_ints(node, 1, sizes, MOST_PARTS);
    if (trm_onnx_failed(node)) {
        return;
    }
    if (sizes_are_open) {
        split_by(node, x, axis);
        return;
    }
    if (n < 0) {
        split_evenly(node, x, axis, (int32_t)trm_onnx_int(node, "num_outputs", node->n_outputs));
        return;
    }
    int64_t start = 0, size = x->dims.d[axis];
    for (int32_t i = 0; i < n; i++) {
        if (sizes[i] < 0 || (size >= 0 && sizes[i] > size - start)) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "part %d of axis %d has size %lld, the axis has %lld", (int)i,
                          (int)axis, (long long)sizes[i], (long long)size);
            return;
        }
        trm_onnx_set(node, i, trm_onnx_slice(node, x, axis, start, start + sizes[i], 1));
        start += sizes[i];
    }
}

/* ---- data-dependent ----------------------------------------------------------------------------- */

static trm_tensor *non_zero(trm_onnx_node *node, trm_tensor *x)
{
    return add_kind(node, TRM_LAYER_NON_ZERO, x, NULL, NULL);
}

static void import_non_zero(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, non_zero(node, node->inputs[0]));
}

static void import_compress(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    static const int64_t all = -1;
    int32_t axis = 0;
    if (trm_onnx_has(node, "axis")) {
        axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), x->dims.n);
    } else {
        x = trm_onnx_reshape(node, x, &all, 1);
    }
    trm_tensor *at = trm_onnx_reshape(node, non_zero(node, node->inputs[1]), &all, 1);
    trm_onnx_set(node, 0, trm_onnx_gather(node, x, at, axis));
}

static void import_unique(trm_onnx_node *node)
{
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS], *x = node->inputs[0];
    trm_layer_desc desc = {.kind = TRM_LAYER_UNIQUE};
    desc.unique.sorted = trm_onnx_flag(node, "sorted", true);
    desc.unique.flatten = !trm_onnx_has(node, "axis");
    desc.unique.axis = desc.unique.flatten ? 0 : trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), x->dims.n);
    trm_onnx_layer(node, &desc, &x, 1, outputs);
    for (int32_t i = 0; i < 4; i++) {
        trm_onnx_set(node, i, outputs[i]);
    }
}

const trm_onnx_operator trm_onnx_ops_shape[] = {
    {"", "Compress", 9, 2, import_compress, 0},
    {"", "Concat", 1, 1, import_concat, 0},
    {"", "ConstantOfShape", 9, 1, import_constant_of_shape, 0},
    {"", "Expand", 8, 2, import_expand, 0},
    {"", "EyeLike", 9, 1, import_eye_like, 0},
    {"", "Flatten", 1, 1, import_flatten, 0},
    {"", "NonZero", 9, 1, import_non_zero, 0},
    {"", "Range", 11, 3, import_range, 0},
    {"", "Reshape", 1, 1, import_reshape_1, 0},
    {"", "Reshape", 5, 2, import_reshape, 0},
    {"", "Shape", 1, 1, import_shape, 0},
    {"", "Size", 1, 1, import_size, 0},
    {"", "Slice", 1, 1, import_slice_1, 0},
    {"", "Slice", 10, 3, import_slice, 0},
    {"", "Split", 1, 1, import_split, 1},
    {"", "Split", 13, 1, import_split, 0},
    {"", "Squeeze", 1, 1, import_squeeze, 0},
    {"", "Tile", 1, 3, import_tile_1, 0},
    {"", "Tile", 6, 2, import_tile, 0},
    {"", "Trilu", 14, 1, import_trilu, 0},
    {"com.microsoft", "Trilu", 1, 1, import_trilu, 0},
    {"", "Unique", 11, 1, import_unique, 0},
    {"", "Unsqueeze", 1, 1, import_unsqueeze, 0},
    {0},
};
