/* Operators that move whole axes: transpose, blocks to depth and back, pad, crop, updates of a cache. */
#include <string.h>

#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

static void import_transpose(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    int64_t perm[TRM_MAX_DIMS];
    int32_t order[TRM_MAX_DIMS] = {0}, rank = x->dims.n;
    int32_t n = trm_onnx_ints(node, "perm", perm, TRM_MAX_DIMS);
    if (n >= 0 && n != rank) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute perm has %d values, expected %d", (int)n, (int)rank);
        return;
    }
    for (int32_t i = 0; i < rank; i++) {
        order[i] = n < 0 ? rank - 1 - i : trm_onnx_axis(node, perm[i], rank);
    }
    trm_onnx_set(node, 0, trm_onnx_transpose(node, x, order));
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

static const char *const block_modes[] = {"DCR", "CRD", NULL};

static int64_t block_size(trm_onnx_node *node)
{
    int64_t size = trm_onnx_int(node, "blocksize", 0);
    if (size < 1 || size > INT32_MAX || node->inputs[0]->dims.n != 4) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                      "blocksize is %lld and the input has %d dimensions, expected at least 1 and 4", (long long)size,
                      (int)node->inputs[0]->dims.n);
    }
    return size;
}

static void import_depth_to_space(trm_onnx_node *node)
{
    static const int32_t orders[2][6] = {{0, 3, 4, 1, 5, 2}, {0, 1, 4, 2, 5, 3}};
    trm_tensor *x = node->inputs[0];
    const int64_t size = block_size(node);
    const int32_t mode = trm_onnx_choice(node, "mode", "DCR", block_modes);
    if (trm_onnx_failed(node)) {
        return;
    }
    const trm_onnx_dim b = trm_onnx_dim_known(size), n = trm_onnx_dim_of(node, x, 0), h = trm_onnx_dim_of(node, x, 2);
    const trm_onnx_dim w = trm_onnx_dim_of(node, x, 3);
    const trm_onnx_dim c =
        trm_onnx_dim_combine(node, TRM_ELEMENTWISE_DIV, trm_onnx_dim_of(node, x, 1), trm_onnx_dim_known(size * size));
    const trm_onnx_dim split[2][6] = {{n, b, b, c, h, w}, {n, c, b, b, h, w}};
    const trm_onnx_dim joined[4] = {n, c, trm_onnx_dim_combine(node, TRM_ELEMENTWISE_MUL, h, b),
                                    trm_onnx_dim_combine(node, TRM_ELEMENTWISE_MUL, w, b)};
    trm_tensor *y = trm_onnx_transpose(node, trm_onnx_reshape_to(node, x, split[mode], 6), orders[mode]);
    trm_onnx_set(node, 0, trm_onnx_reshape_to(node, y, joined, 4));
}

static void import_space_to_depth(trm_onnx_node *node)
{
    static const int32_t orders[2][6] = {{0, 3, 5, 1, 2, 4}, {0, 1, 3, 5, 2, 4}};
    trm_tensor *x = node->inputs[0];
    const int64_t size = block_size(node);
    const int32_t mode = trm_onnx_choice(node, "mode", "DCR", block_modes);
    if (trm_onnx_failed(node)) {
        return;
    }
    const trm_onnx_dim b = trm_onnx_dim_known(size), n = trm_onnx_dim_of(node, x, 0), c = trm_onnx_dim_of(node, x, 1);
    const trm_onnx_dim h = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_DIV, trm_onnx_dim_of(node, x, 2), b);
    const trm_onnx_dim w = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_DIV, trm_onnx_dim_of(node, x, 3), b);
    const trm_onnx_dim split[6] = {n, c, h, b, w, b};
    const trm_onnx_dim joined[4] = {
        n, trm_onnx_dim_combine(node, TRM_ELEMENTWISE_MUL, c, trm_onnx_dim_known(size * size)), h, w};
    trm_tensor *y = trm_onnx_transpose(node, trm_onnx_reshape_to(node, x, split, 6), orders[mode]);
    trm_onnx_set(node, 0, trm_onnx_reshape_to(node, y, joined, 4));
}

/* ---- pad ------------------------------------------------------------------------------------------------------- */

/* PAD of x by pads [2 n]: befores, then afters. */
static trm_tensor *pad_by(trm_onnx_node *node, trm_tensor *x, trm_pad_mode mode, const trm_onnx_dim *pads,
                          trm_tensor *value)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_PAD, .pad = {.mode = mode}};
    const int32_t n = x->dims.n;
    bool known = true, changes = false;
    for (int32_t i = 0; i < 2 * n; i++) {
        known = known && pads[i].tensor == NULL && pads[i].value >= INT32_MIN && pads[i].value <= INT32_MAX;
        changes = changes || pads[i].tensor != NULL || pads[i].value != 0;
        if (known) {
            (i < n ? desc.pad.before : desc.pad.after)[i % n] = (int32_t)pads[i].value;
        }
    }
    if (!changes) {
        return x;
    }
    trm_tensor *given = NULL;
    if (!known) {
        trm_tensor *halves[2] = {trm_onnx_shape(node, pads, n), trm_onnx_shape(node, pads + n, n)};
        given = trm_onnx_concat(node, halves, 2, 0);
        memset(desc.pad.before, 0, sizeof(desc.pad.before));
        memset(desc.pad.after, 0, sizeof(desc.pad.after));
    }
    return trm_onnx_add(node, &desc, x, given, value, NULL);
}

/* Element i of a vector i64 as a dimension. */
static trm_onnx_dim element_of(trm_onnx_node *node, trm_tensor *vector, int32_t i)
{
    int64_t values[2 * TRM_MAX_DIMS];
    int32_t count;
    if (trm_onnx_known_ints(node, vector, values, 2 * TRM_MAX_DIMS, &count) && i < count) {
        return trm_onnx_dim_known(values[i]);
    }
    return (trm_onnx_dim){.value = -1, .tensor = trm_onnx_slice(node, vector, 0, i, i + 1, 1)};
}

static void import_pad(trm_onnx_node *node)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap", NULL};
    const trm_pad_mode mode = (trm_pad_mode)trm_onnx_choice(node, "mode", "constant", modes);
    trm_tensor *x = node->inputs[0], *value = node->inputs[2];
    const int32_t n = x->dims.n;
    int32_t axes[TRM_MAX_DIMS] = {0}, count = trm_onnx_axes(node, NULL, 3, n, axes);
    trm_onnx_dim pads[2 * TRM_MAX_DIMS];
    for (int32_t i = 0; i < 2 * n; i++) {
        pads[i] = trm_onnx_dim_known(0);
    }
    for (int32_t i = 0; count < 0 && i < n; i++) {
        axes[i] = i;
    }
    count = count < 0 ? n : count;
    if (node->row->since < 11) {
        int64_t given[2 * TRM_MAX_DIMS] = {0};
        const int32_t found =
            trm_onnx_ints(node, trm_onnx_has(node, "paddings") ? "paddings" : "pads", given, 2 * TRM_MAX_DIMS);
        if (found != 2 * n) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute pads has %d values, expected %d", (int)found,
                          (int)(2 * n));
        }
        for (int32_t i = 0; i < 2 * n; i++) {
            pads[i] = trm_onnx_dim_known(given[i]);
        }
        value = trm_onnx_scalar(node, x->dtype, (double)trm_onnx_float(node, "value", 0.0f));
    } else {
        trm_tensor *given = trm_onnx_cast(node, node->inputs[1], TRM_I64);
        if (given->dims.n != 1 || (given->dims.d[0] != -1 && given->dims.d[0] != 2 * count)) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "input 1 (pads) has %lld values, expected %d",
                          (long long)given->dims.d[0], (int)(2 * count));
        }
        for (int32_t i = 0; i < count && !trm_onnx_failed(node); i++) {
            pads[axes[i]] = element_of(node, given, i);
            pads[n + axes[i]] = element_of(node, given, count + i);
        }
    }
    if (!trm_onnx_failed(node)) {
        trm_onnx_set(node, 0, pad_by(node, x, mode, pads, mode == TRM_PAD_CONSTANT ? value : NULL));
    }
}

/* Half of the difference on either side, the smaller half before: to pad, and with a negative difference to crop. */
static void import_center_crop_pad(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *shape = trm_onnx_cast(node, node->inputs[1], TRM_I64);
    const int32_t n = x->dims.n;
    int32_t axes[TRM_MAX_DIMS] = {0}, count = trm_onnx_axes(node, "axes", -1, n, axes);
    trm_onnx_dim pads[2 * TRM_MAX_DIMS];
    for (int32_t i = 0; i < 2 * n; i++) {
        pads[i] = trm_onnx_dim_known(0);
    }
    for (int32_t i = 0; count < 0 && i < n; i++) {
        axes[i] = i;
    }
    count = count < 0 ? n : count;
    for (int32_t i = 0; i < count && !trm_onnx_failed(node); i++) {
        const trm_onnx_dim more = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_SUB, element_of(node, shape, i),
                                                       trm_onnx_dim_of(node, x, axes[i]));
        pads[axes[i]] = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_DIV, more, trm_onnx_dim_known(2));
        pads[n + axes[i]] = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_SUB, more, pads[axes[i]]);
    }
    if (!trm_onnx_failed(node)) {
        trm_onnx_set(node, 0, pad_by(node, x, TRM_PAD_CONSTANT, pads, NULL));
    }
}

/* ---- updates of a cache ---------------------------------------------------------------------------------------- */

static void import_tensor_scatter(trm_onnx_node *node)
{
    static const char *const modes[] = {"linear", "circular", NULL};
    trm_tensor *cache = node->inputs[0], *update = node->inputs[1], *start = node->inputs[2];
    const bool circular = trm_onnx_choice(node, "mode", "linear", modes) == 1;
    const int32_t n = cache->dims.n, axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", -2), n);
    if (trm_onnx_failed(node) || update->dims.n != n) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "the update has %d dimensions, expected the %d of the cache",
                      (int)update->dims.n, (int)n);
        return;
    }
    int64_t alone[TRM_MAX_DIMS], batch[TRM_MAX_DIMS];
    for (int32_t i = 0; i < n; i++) {
        alone[i] = batch[i] = 1;
    }
    alone[axis] = batch[0] = -1;
    trm_tensor *position =
        trm_onnx_reshape(node, trm_onnx_positions(node, trm_onnx_dim_of(node, update, axis)), alone, n);
    if (start != NULL) {
        start = trm_onnx_reshape(node, trm_onnx_cast(node, start, TRM_I64), batch, n);
        position = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, position, start);
    }
    if (circular) {
        const trm_onnx_dim size = trm_onnx_dim_of(node, cache, axis);
        position = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MOD, position, trm_onnx_shape(node, &size, 1));
    }
    trm_onnx_dim dims[TRM_MAX_DIMS];
    trm_onnx_dims_of(node, update, dims);
    trm_layer_desc desc = {.kind = TRM_LAYER_SCATTER, .scatter = {.form = TRM_SCATTER_ELEMENTS, .axis = axis}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, cache, trm_onnx_expand(node, position, dims, n), update, NULL));
}

const trm_onnx_operator trm_onnx_ops_movement[] = {
    {"", "Transpose", 1, 1, import_transpose, 0},
    {"", "DepthToSpace", 1, 1, import_depth_to_space, 0},
    {"", "SpaceToDepth", 1, 1, import_space_to_depth, 0},
    {"", "Pad", 1, 1, import_pad, 0},
    {"", "Pad", 11, 2, import_pad, 0},
    {"", "CenterCropPad", 18, 2, import_center_crop_pad, 0},
    {"", "TensorScatter", 24, 2, import_tensor_scatter, 0},
    {0},
};
