/* Operators over images other than windows: normalizations by channel, resizing, sampling, boxes. */
#include <stdlib.h>
#include <string.h>

#include "graph/import/onnx/ops/ops.h"

/* ---- normalizations ---------------------------------------------------------------------------- */

/* A vector [C] as [C, 1, ...] so that it broadcasts over x [N, C, ...]. */
static trm_tensor *by_channel(trm_onnx_node *node, trm_tensor *vector, const trm_tensor *x)
{
    const int64_t dims[TRM_MAX_DIMS] = {-1, 1, 1, 1, 1, 1, 1, 1};
    return x->dims.n < 3 ? vector : trm_onnx_reshape(node, vector, dims, x->dims.n - 1);
}

/* x * factor + offset, channel by channel: what is left of (x - mean) / sqrt(variance + epsilon) * scale + bias. */
static trm_tensor *scale_channels(trm_onnx_node *node, trm_tensor *x, trm_tensor *mean, trm_tensor *variance,
                                  float epsilon)
{
    const trm_dtype work = x->dtype == TRM_F64 ? TRM_F64 : TRM_F32;
    trm_tensor *scale = trm_onnx_cast(node, node->inputs[1], work), *bias = trm_onnx_cast(node, node->inputs[2], work);
    mean = trm_onnx_cast(node, mean, work);
    variance = trm_onnx_cast(node, variance, work);
    trm_tensor *deviation = trm_onnx_unary(
        node, TRM_UNARY_SQRT, trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, variance, (double)epsilon));
    trm_tensor *factor = trm_onnx_elementwise(node, TRM_ELEMENTWISE_DIV, scale, deviation);
    trm_tensor *offset = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, bias,
                                              trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, mean, factor));
    factor = trm_onnx_cast(node, by_channel(node, factor, x), x->dtype);
    offset = trm_onnx_cast(node, by_channel(node, offset, x), x->dtype);
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, x, factor),
                                offset);
}

/* known * momentum + now * (1 - momentum), in the type of `known`. */
static trm_tensor *running(trm_onnx_node *node, trm_tensor *known, trm_tensor *now, float momentum)
{
    now = trm_onnx_cast(node, now, known->dtype);
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD,
                                trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, known, (double)momentum),
                                trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, now, 1.0 - (double)momentum));
}

static void import_batch_normalization(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    const float epsilon = trm_onnx_float(node, "epsilon", 1e-5f), momentum = trm_onnx_float(node, "momentum", 0.9f);
    if (x->dims.n < 2 && !trm_onnx_failed(node)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "input 0 has %d dimensions, expected at least 2", (int)x->dims.n);
        return;
    }
    if (!trm_onnx_flag(node, "spatial", true)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "statistics of every element (spatial 0) are not supported");
        return;
    }
    if (node->opset < 14 || !trm_onnx_flag(node, "training_mode", false)) {
        trm_onnx_set(node, 0, scale_channels(node, x, node->inputs[3], node->inputs[4], epsilon));
        return;
    }
    int32_t axes[TRM_MAX_DIMS] = {0};
    for (int32_t i = 2; i < x->dims.n; i++) {
        axes[i - 1] = i;
    }
    trm_tensor *wide = x->dtype == TRM_F64 ? x : trm_onnx_cast(node, x, TRM_F32);
    trm_tensor *mean = trm_onnx_reduce(node, TRM_REDUCE_AVG, wide, axes, x->dims.n - 1, false);
    trm_tensor *distance = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, wide, by_channel(node, mean, x));
    trm_tensor *variance =
        trm_onnx_reduce(node, TRM_REDUCE_AVG, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, distance, distance), axes,
                        x->dims.n - 1, false);
    trm_onnx_set(node, 0, scale_channels(node, x, mean, variance, epsilon));
    if (trm_onnx_wants(node, 1)) {
        trm_onnx_set(node, 1, running(node, node->inputs[3], mean, momentum));
    }
    if (trm_onnx_wants(node, 2)) {
        trm_onnx_set(node, 2, running(node, node->inputs[4], variance, momentum));
    }
}

static void import_instance_normalization(trm_onnx_node *node)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_GROUP_NORM,
                                 .group_norm = {.eps = trm_onnx_float(node, "epsilon", 1e-5f)}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], node->inputs[1], node->inputs[2], NULL));
}

/* Numbers of groups [G] as numbers of channels [C]. */
static trm_tensor *by_group(trm_onnx_node *node, trm_tensor *vector, trm_tensor *x, int64_t groups)
{
    const int64_t column[] = {-1, 1}, flat[] = {-1};
    const trm_onnx_dim dims[] = {
        trm_onnx_dim_known(groups),
        trm_onnx_dim_combine(node, TRM_ELEMENTWISE_DIV, trm_onnx_dim_of(node, x, 1), trm_onnx_dim_known(groups))};
    return trm_onnx_reshape(node, trm_onnx_expand(node, trm_onnx_reshape(node, vector, column, 2), dims, 2), flat, 1);
}

static void import_group_normalization(trm_onnx_node *node)
{
    const int64_t groups = trm_onnx_int(node, "num_groups", 0);
    if (!trm_onnx_failed(node) && (groups < 1 || groups > INT32_MAX || node->inputs[0]->dims.n < 2)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "%lld groups and %d dimensions", (long long)groups,
                      (int)node->inputs[0]->dims.n);
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    trm_tensor *scale = node->inputs[1], *bias = node->inputs[2];
    if (node->row->data != 0) { /* opset 18: one number for each group */
        scale = by_group(node, scale, node->inputs[0], groups);
        bias = by_group(node, bias, node->inputs[0], groups);
    }
    const trm_layer_desc desc = {
        .kind = TRM_LAYER_GROUP_NORM,
        .group_norm = {.groups = (int32_t)groups, .eps = trm_onnx_float(node, "epsilon", 1e-5f)}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], scale, bias, NULL));
}

static void import_lrn(trm_onnx_node *node)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_LRN,
                                 .lrn = {.size = (int32_t)trm_onnx_int(node, "size", 0),
                                         .alpha = trm_onnx_float(node, "alpha", 1e-4f),
                                         .beta = trm_onnx_float(node, "beta", 0.75f),
                                         .bias = trm_onnx_float(node, "bias", 1.0f)}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], NULL, NULL, NULL));
}

static void import_image_scaler(trm_onnx_node *node)
{
    float bias[256];
    trm_tensor *x = node->inputs[0];
    const int32_t n = trm_onnx_floats(node, "bias", bias, 256);
    x = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, x, (double)trm_onnx_float(node, "scale", 1.0f));
    if (n > 0 && !trm_onnx_failed(node)) {
        trm_tensor *vector = trm_onnx_constant(node, TRM_F32, (trm_dims){1, {n}}, bias);
        x = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, x,
                                 by_channel(node, trm_onnx_cast(node, vector, x->dtype), x));
    }
    trm_onnx_set(node, 0, x);
}

/* ---- resize ------------------------------------------------------------------------------------ */

/* An optional input; absent where it is there, but empty. */
static trm_tensor *optional_input(const trm_onnx_node *node, int32_t index)
{
    trm_tensor *x = node->inputs[index];
    return x != NULL && x->dims.n == 1 && x->dims.d[0] == 0 ? NULL : x;
}

/* The bits of `axes` for the layer; puts `vector`s, which are in the order of the attribute, into ascending order. */
typedef struct resize_axes {
    int32_t n;
    int32_t axes[TRM_MAX_DIMS];
    uint32_t bits;
    bool ascending;
} resize_axes;

static resize_axes read_resize_axes(trm_onnx_node *node, int32_t rank)
{
    resize_axes a = {.ascending = true};
    a.n = trm_onnx_axes(node, "axes", -1, rank, a.axes);
    if (a.n < 0) {
        a.n = rank;
        for (int32_t i = 0; i < rank; i++) {
            a.axes[i] = i;
        }
    }
    for (int32_t i = 0; i < a.n; i++) {
        a.bits |= 1u << a.axes[i];
        a.ascending = a.ascending && (i == 0 || a.axes[i] > a.axes[i - 1]);
    }
    return a;
}

/* `parts` runs of numbers by axis. */
static trm_tensor *in_order(trm_onnx_node *node, const resize_axes *a, trm_tensor *vector, int32_t parts)
{
    int64_t order[2 * TRM_MAX_DIMS];
    if (vector == NULL || a->ascending) {
        return vector;
    }
    for (int32_t axis = 0, k = 0; axis < TRM_MAX_DIMS; axis++) {
        for (int32_t i = 0; i < a->n; i++) {
            if (a->axes[i] == axis) {
                order[k] = i;
                order[a->n + k] = a->n + i;
                k++;
            }
        }
    }
    return trm_onnx_gather(node, vector, trm_onnx_i64s(node, order, parts * a->n), 0);
}

static trm_tensor *add_resize(trm_onnx_node *node, const trm_resize_params *p, trm_tensor *roi, trm_tensor *scales,
                              trm_tensor *sizes)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_RESIZE, .resize = *p};
    trm_tensor *const inputs[] = {node->inputs[0], roi, scales, sizes};
    trm_tensor *y = NULL;
    trm_onnx_layer(node, &desc, inputs, 4, &y);
    return y;
}

static void import_resize(trm_onnx_node *node)
{
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
    static const char *const coordinates[] = {
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
        "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize", NULL};
    static const char *const nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", NULL};
    static const char *const aspects[] = {"stretch", "not_larger", "not_smaller", NULL};
    const resize_axes a = read_resize_axes(node, node->inputs[0]->dims.n);
    trm_resize_params p = {
        .mode = (trm_resize_mode)trm_onnx_choice(node, "mode", "nearest", modes),
        .coordinates =
            (trm_resize_coordinates)trm_onnx_choice(node, "coordinate_transformation_mode", "half_pixel", coordinates),
        .nearest = (trm_resize_nearest)trm_onnx_choice(node, "nearest_mode", "round_prefer_floor", nearest),
        .aspect = (trm_resize_aspect)trm_onnx_choice(node, "keep_aspect_ratio_policy", "stretch", aspects),
        .axes = a.bits,
        .antialias = trm_onnx_flag(node, "antialias", false),
        .exclude_outside = trm_onnx_flag(node, "exclude_outside", false),
        .cubic_a = trm_onnx_float(node, "cubic_coeff_a", -0.75f),
        .extrapolation = trm_onnx_float(node, "extrapolation_value", 0.0f)};
    trm_tensor *roi = p.coordinates == TRM_RESIZE_CROP ? optional_input(node, 1) : NULL;
    trm_tensor *scales = optional_input(node, 2), *sizes = optional_input(node, 3);
    if (roi != NULL) {
        roi = in_order(node, &a, trm_onnx_cast(node, roi, TRM_F32), 2);
    }
    scales = sizes != NULL ? NULL : in_order(node, &a, scales, 1);
    trm_onnx_set(node, 0, add_resize(node, &p, roi, scales, in_order(node, &a, sizes, 1)));
}

/* Resize 10 and Upsample: scales from the corner. What is nearest rounds down, where Resize makes smaller up. */
static void import_resize_plain(trm_onnx_node *node)
{
    static const char *const modes[] = {"nearest", "linear", "bilinear", NULL};
    trm_tensor *x = node->inputs[0], *scales = node->inputs[1];
    const int32_t mode = trm_onnx_choice(node, "mode", "nearest", modes);
    trm_resize_params p = {.mode = mode == 0 ? TRM_RESIZE_NEAREST : TRM_RESIZE_LINEAR,
                           .coordinates = TRM_RESIZE_ASYMMETRIC,
                           .nearest = TRM_RESIZE_FLOOR,
                           .axes = (1u << x->dims.n) - 1};
    if (scales == NULL) {
        float values[TRM_MAX_DIMS];
        const int32_t n = trm_onnx_floats(node, "scales", values, TRM_MAX_DIMS);
        if (n < 0) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "found neither an input nor an attribute of scales");
            return;
        }
        scales = trm_onnx_constant(node, TRM_F32, (trm_dims){1, {n}}, values);
    }
    if (strcmp(node->row->name, "Resize") == 0 && p.mode == TRM_RESIZE_NEAREST) {
        const float *known = trm_onnx_data(node, scales);
        bool smaller = false, larger = false;
        for (int64_t i = 0; known != NULL && i < scales->dims.d[0]; i++) {
            smaller = smaller || known[i] < 1.0f;
            larger = larger || known[i] > 1.0f;
        }
        if (known == NULL || (smaller && larger)) {
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "scales %s, expected all at least 1 or all at most 1",
                          known == NULL ? "are not known when the network is built" : "make larger and smaller");
        }
        p.nearest = smaller ? TRM_RESIZE_CEIL : TRM_RESIZE_FLOOR;
    }
    trm_onnx_set(node, 0, add_resize(node, &p, NULL, scales, NULL));
}

/* ---- samples ----------------------------------------------------------------------------------- */

static void import_grid_sample(trm_onnx_node *node)
{
    static const char *const modes[] = {"bilinear", "nearest", "bicubic", "linear", "cubic", NULL};
    static const char *const paddings[] = {"zeros", "border", "reflection", NULL};
    const int32_t mode = trm_onnx_choice(node, "mode", "bilinear", modes);
    const trm_layer_desc desc = {
        .kind = TRM_LAYER_GRID_SAMPLE,
        .grid_sample = {.mode = mode == 1                ? TRM_RESIZE_NEAREST
                                : mode == 0 || mode == 3 ? TRM_RESIZE_LINEAR
                                                         : TRM_RESIZE_CUBIC,
                        .padding = (trm_grid_padding)trm_onnx_choice(node, "padding_mode", "zeros", paddings),
                        .align_corners = trm_onnx_flag(node, "align_corners", false)}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], node->inputs[1], NULL, NULL));
}

/* Points of an image [size...] in -1 .. 1, last axis first, and a 1: [points, n + 1], as f32. */
static float *make_points(const int64_t *size, int32_t n, int64_t count, bool align_corners)
{
    float *points = malloc((size_t)count * (size_t)(n + 1) * sizeof(float));
    for (int64_t i = 0; points != NULL && i < count; i++) {
        int64_t rest = i;
        for (int32_t axis = n - 1; axis >= 0; axis--) {
            const int64_t at = rest % size[axis];
            const double last = (double)(size[axis] - 1), d = (double)size[axis];
            rest /= size[axis];
            points[i * (n + 1) + (n - 1 - axis)] =
                (float)(align_corners ? (last > 0.0 ? -1.0 + 2.0 * (double)at / last : -1.0)
                                      : (2.0 * (double)at + 1.0) / d - 1.0);
        }
        points[i * (n + 1) + n] = 1.0f;
    }
    return points;
}

static void import_affine_grid(trm_onnx_node *node)
{
    int64_t size[TRM_MAX_DIMS] = {0};
    trm_tensor *theta = node->inputs[0];
    const int32_t rank = trm_onnx_input_ints(node, 1, size, TRM_MAX_DIMS), n = rank - 2;
    const bool align_corners = trm_onnx_flag(node, "align_corners", false);
    if (trm_onnx_failed(node)) {
        return;
    }
    int64_t count = 1;
    bool fits = n == 2 || n == 3;
    for (int32_t i = 0; fits && i < n; i++) {
        fits = size[2 + i] >= 1 && size[2 + i] <= 1 << 20;
        count *= fits ? size[2 + i] : 1;
    }
    if (!fits || count > 1 << 26) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                      "size of %d values and %lld points, expected 4 or 5 and at most %d", (int)rank, (long long)count,
                      1 << 26);
        return;
    }
    float *points = make_points(size + 2, n, count, align_corners);
    if (points == NULL) {
        trm_onnx_fail(node, TRM_ERROR_OUT_OF_MEMORY, "out of memory for %lld points", (long long)count);
        return;
    }
    trm_tensor *base = trm_onnx_constant(node, TRM_F32, (trm_dims){2, {count, n + 1}}, points);
    free(points);
    trm_tensor *y = trm_onnx_matmul(node, trm_onnx_cast(node, base, theta->dtype), theta, false, true);
    int64_t dims[TRM_MAX_DIMS] = {0};
    memcpy(dims + 1, size + 2, (size_t)n * sizeof(int64_t));
    dims[n + 1] = n;
    trm_onnx_set(node, 0, trm_onnx_reshape(node, y, dims, n + 2));
}

/* ---- regions and boxes ------------------------------------------------------------------------- */

static void import_roi_align(trm_onnx_node *node)
{
    static const char *const modes[] = {"avg", "max", NULL};
    static const char *const transformations[] = {"half_pixel", "output_half_pixel", NULL};
    trm_layer_desc desc = {.kind = TRM_LAYER_ROI_POOL,
                           .roi_pool = {.height = (int32_t)trm_onnx_int(node, "output_height", 1),
                                        .width = (int32_t)trm_onnx_int(node, "output_width", 1),
                                        .sampling_ratio = (int32_t)trm_onnx_int(node, "sampling_ratio", 0),
                                        .spatial_scale = trm_onnx_float(node, "spatial_scale", 1.0f)}};
    desc.roi_pool.op = trm_onnx_choice(node, "mode", "avg", modes) == 0 ? TRM_ROI_ALIGN_AVERAGE : TRM_ROI_ALIGN_MAX;
    desc.roi_pool.half_pixel = node->opset >= 16 && trm_onnx_choice(node, "coordinate_transformation_mode",
                                                                    "half_pixel", transformations) == 0;
    trm_onnx_set(node, 0,
                 trm_onnx_add(node, &desc, node->inputs[0],
                              trm_onnx_cast(node, node->inputs[1], node->inputs[0]->dtype), node->inputs[2], NULL));
}

static void import_max_roi_pool(trm_onnx_node *node)
{
    int32_t shape[2];
    trm_onnx_ints32(node, "pooled_shape", 2, 1, shape);
    const trm_layer_desc desc = {.kind = TRM_LAYER_ROI_POOL,
                                 .roi_pool = {.op = TRM_ROI_POOL_MAX,
                                              .height = shape[0],
                                              .width = shape[1],
                                              .spatial_scale = trm_onnx_float(node, "spatial_scale", 1.0f)}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], node->inputs[1], NULL, NULL));
}

static void import_non_max_suppression(trm_onnx_node *node)
{
    const trm_layer_desc desc = {
        .kind = TRM_LAYER_NON_MAX_SUPPRESSION,
        .non_max_suppression = {.center_point = trm_onnx_flag(node, "center_point_box", false)}};
    trm_tensor *outputs[2] = {NULL};
    trm_onnx_layer(node, &desc, node->inputs, 5, outputs);
    trm_onnx_set(node, 0, outputs[0]);
}

const trm_onnx_operator trm_onnx_ops_vision[] = {
    {"", "BatchNormalization", 1, 5, import_batch_normalization, 0},
    {"", "InstanceNormalization", 6, 3, import_instance_normalization, 0},
    {"", "GroupNormalization", 18, 3, import_group_normalization, 1},
    {"", "GroupNormalization", 21, 3, import_group_normalization, 0},
    {"", "LRN", 1, 1, import_lrn, 0},
    {"", "ImageScaler", 1, 1, import_image_scaler, 0},
    {"", "Upsample", 7, 1, import_resize_plain, 0},
    {"", "Resize", 10, 2, import_resize_plain, 0},
    {"", "Resize", 11, 1, import_resize, 0},
    {"", "GridSample", 16, 2, import_grid_sample, 0},
    {"", "AffineGrid", 20, 2, import_affine_grid, 0},
    {"", "RoiAlign", 10, 3, import_roi_align, 0},
    {"", "MaxRoiPool", 1, 2, import_max_roi_pool, 0},
    {"", "NonMaxSuppression", 10, 2, import_non_max_suppression, 0},
    {0},
};
