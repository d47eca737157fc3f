/* Operators that slide windows over images: convolutions, pools, and what undoes them. */
#include <string.h>

#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

/* ---- attributes they share --------------------------------------------------------------------- */

typedef struct window {
    int32_t n; /* spatial axes */
    int32_t kernel[TRM_MAX_SPATIAL], stride[TRM_MAX_SPATIAL], dilation[TRM_MAX_SPATIAL];
    int32_t before[TRM_MAX_SPATIAL], after[TRM_MAX_SPATIAL];
    trm_auto_pad auto_pad;
} window;

/* Number of spatial axes of input `index`, 0 after a failure. */
static int32_t spatial_axes(trm_onnx_node *node, int32_t index)
{
    const int32_t n = node->inputs[index]->dims.n - 2;
    if (!trm_onnx_failed(node) && (n < 1 || n > TRM_MAX_SPATIAL)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "input %d has %d dimensions, expected 3 to %d", (int)index,
                      (int)n + 2, TRM_MAX_SPATIAL + 2);
    }
    return trm_onnx_failed(node) ? 0 : n;
}

/* strides, dilations, pads, auto_pad. */
static window read_window(trm_onnx_node *node, int32_t n)
{
    static const char *const names[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", NULL};
    window w = {.n = n};
    int32_t pads[2 * TRM_MAX_SPATIAL] = {0};
    const int32_t auto_pad = trm_onnx_choice(node, "auto_pad", "NOTSET", names);
    trm_onnx_ints32(node, "strides", n, 1, w.stride);
    trm_onnx_ints32(node, "dilations", n, 1, w.dilation);
    if (auto_pad == 0) {
        trm_onnx_ints32(node, "pads", 2 * n, 0, pads);
        memcpy(w.before, pads, (size_t)n * sizeof(int32_t));
        memcpy(w.after, pads + n, (size_t)n * sizeof(int32_t));
    }
    w.auto_pad = auto_pad == 1 ? TRM_AUTO_PAD_SAME_UPPER : auto_pad == 2 ? TRM_AUTO_PAD_SAME_LOWER : TRM_AUTO_PAD_NONE;
    return w;
}

/* kernel_shape of pools, which must be there. */
static void read_kernel(trm_onnx_node *node, window *w)
{
    if (!trm_onnx_failed(node) && !trm_onnx_has(node, "kernel_shape")) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute kernel_shape is missing");
    }
    trm_onnx_ints32(node, "kernel_shape", w->n, 1, w->kernel);
}

/* kernel_shape of convolutions, which the weight says again. */
static void check_kernel(trm_onnx_node *node, const trm_tensor *weight, int32_t n)
{
    int32_t kernel[TRM_MAX_SPATIAL];
    trm_onnx_ints32(node, "kernel_shape", n, 0, kernel);
    for (int32_t i = 0; i < n && !trm_onnx_failed(node) && trm_onnx_has(node, "kernel_shape"); i++) {
        const int64_t found = weight->dims.n == n + 2 ? weight->dims.d[2 + i] : kernel[i];
        if (found != -1 && found != kernel[i]) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "kernel_shape is %d along spatial axis %d, the weight's %lld",
                          (int)kernel[i], (int)i, (long long)found);
        }
    }
}

/* ---- convolutions ------------------------------------------------------------------------------ */

static int32_t read_groups(trm_onnx_node *node, const char *name)
{
    const int64_t groups = trm_onnx_int(node, name, 1);
    if (groups < 1 || groups > INT32_MAX) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "%s is %lld, expected at least 1", name, (long long)groups);
    }
    return (int32_t)groups;
}

static trm_convolution_params convolution_params(trm_onnx_node *node, const window *w)
{
    trm_convolution_params p = {.groups = read_groups(node, "group"), .auto_pad = w->auto_pad};
    memcpy(p.stride, w->stride, sizeof(p.stride));
    memcpy(p.dilation, w->dilation, sizeof(p.dilation));
    memcpy(p.before, w->before, sizeof(p.before));
    memcpy(p.after, w->after, sizeof(p.after));
    return p;
}

trm_tensor *trm_onnx_convolution(trm_onnx_node *node, trm_tensor *x, trm_tensor *weight, trm_tensor *bias,
                                 bool whole_numbers)
{
    const int32_t n = spatial_axes(node, 0);
    const window w = read_window(node, n);
    check_kernel(node, weight, n);
    trm_layer_desc desc = {.kind = TRM_LAYER_CONVOLUTION, .convolution = convolution_params(node, &w)};
    desc.convolution.whole_numbers = whole_numbers;
    return trm_onnx_add(node, &desc, x, weight, bias, NULL);
}

static void import_conv(trm_onnx_node *node)
{
    trm_onnx_set(node, 0, trm_onnx_convolution(node, node->inputs[0], node->inputs[1], node->inputs[2], false));
}

/* (x, w, bias, summand) -> activation(convolution + summand) */
static void import_fused_conv(trm_onnx_node *node)
{
    trm_tensor *y = trm_onnx_convolution(node, node->inputs[0], node->inputs[1], node->inputs[2], false);
    y = node->inputs[3] == NULL ? y : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, node->inputs[3]);
    trm_onnx_set(node, 0, trm_onnx_fused_activation(node, y));
}

static void import_conv_transpose(trm_onnx_node *node)
{
    const int32_t n = spatial_axes(node, 0);
    const window w = read_window(node, n);
    check_kernel(node, node->inputs[1], n);
    trm_layer_desc desc = {.kind = TRM_LAYER_DECONVOLUTION, .convolution = convolution_params(node, &w)};
    trm_onnx_ints32(node, "output_padding", n, 0, desc.convolution.output_padding);
    trm_tensor *sizes = NULL;
    int64_t given[TRM_MAX_SPATIAL + 2];
    const int32_t count = trm_onnx_ints(node, "output_shape", given, TRM_MAX_SPATIAL + 2);
    if (count == n || count == n + 2) { /* older exporters also gave batch and channels */
        sizes = trm_onnx_i64s(node, given + count - n, n);
    } else if (count >= 0) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "output_shape has %d values, expected %d", (int)count, (int)n);
    }
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], node->inputs[1], node->inputs[2], sizes));
}

static void import_deform_conv(trm_onnx_node *node)
{
    const int32_t n = spatial_axes(node, 0);
    if (!trm_onnx_failed(node) && n != 2) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "deformable convolution over %d spatial dimensions, expected 2",
                      (int)n);
        return;
    }
    const window w = read_window(node, n);
    check_kernel(node, node->inputs[1], n);
    trm_layer_desc desc = {.kind = TRM_LAYER_DEFORMABLE_CONVOLUTION,
                           .deformable_convolution = {.groups = read_groups(node, "group"),
                                                      .offset_groups = read_groups(node, "offset_group")}};
    memcpy(desc.deformable_convolution.stride, w.stride, 2 * sizeof(int32_t));
    memcpy(desc.deformable_convolution.dilation, w.dilation, 2 * sizeof(int32_t));
    memcpy(desc.deformable_convolution.before, w.before, 2 * sizeof(int32_t));
    memcpy(desc.deformable_convolution.after, w.after, 2 * sizeof(int32_t));
    trm_tensor *y = NULL;
    trm_onnx_layer(node, &desc, node->inputs, 5, &y);
    trm_onnx_set(node, 0, y);
}

/* ---- pools ------------------------------------------------------------------------------------- */

static trm_layer_desc describe_pool(trm_onnx_node *node, trm_pool_op op)
{
    window w = read_window(node, spatial_axes(node, 0));
    read_kernel(node, &w);
    trm_layer_desc desc = {.kind = TRM_LAYER_POOL, .pool = {.op = op, .auto_pad = w.auto_pad}};
    trm_pool_params *p = &desc.pool;
    memcpy(p->kernel, w.kernel, sizeof(p->kernel));
    memcpy(p->stride, w.stride, sizeof(p->stride));
    memcpy(p->dilation, w.dilation, sizeof(p->dilation));
    memcpy(p->before, w.before, sizeof(p->before));
    memcpy(p->after, w.after, sizeof(p->after));
    p->ceil = trm_onnx_flag(node, "ceil_mode", false);
    p->count_padding = op == TRM_POOL_AVERAGE && trm_onnx_flag(node, "count_include_pad", false);
    return desc;
}

trm_tensor *trm_onnx_average_pool(trm_onnx_node *node, trm_tensor *x)
{
    const trm_layer_desc desc = describe_pool(node, TRM_POOL_AVERAGE);
    return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

trm_tensor *trm_onnx_max_pool(trm_onnx_node *node, trm_tensor *x)
{
    const trm_layer_desc desc = describe_pool(node, TRM_POOL_MAX);
    return trm_onnx_add(node, &desc, x, NULL, NULL, NULL);
}

static void import_pool(trm_onnx_node *node)
{
    trm_layer_desc desc = describe_pool(node, (trm_pool_op)node->row->data);
    trm_pool_params *p = &desc.pool;
    if (p->op == TRM_POOL_MAX) {
        p->indices = trm_onnx_wants(node, 1);
        p->indices_by_column = trm_onnx_flag(node, "storage_order", false);
    } else if (p->op == TRM_POOL_LP) {
        p->p = (float)trm_onnx_int(node, "p", 2);
    }
    trm_tensor *outputs[2] = {NULL};
    trm_onnx_layer(node, &desc, node->inputs, 1, outputs);
    trm_onnx_set(node, 0, outputs[0]);
    if (p->indices) {
        trm_onnx_set(node, 1, outputs[1]);
    }
}

/* Reduced over all spatial positions, which stay as ones. */
static trm_tensor *reduce_spatial(trm_onnx_node *node, trm_reduce_op op, trm_tensor *x)
{
    const int64_t flat[] = {0, 0, -1};
    const int32_t axis = 2;
    int64_t ones[TRM_MAX_DIMS] = {0, 0};
    for (int32_t i = 2; i < TRM_MAX_DIMS; i++) {
        ones[i] = 1;
    }
    const int32_t rank = x->dims.n;
    trm_tensor *y = trm_onnx_reduce(node, op, trm_onnx_reshape(node, x, flat, 3), &axis, 1, true);
    return trm_onnx_reshape(node, y, ones, rank);
}

static void import_global_pool(trm_onnx_node *node)
{
    spatial_axes(node, 0);
    trm_onnx_set(node, 0, reduce_spatial(node, (trm_reduce_op)node->row->data, node->inputs[0]));
}

static void import_global_lp_pool(trm_onnx_node *node)
{
    spatial_axes(node, 0);
    const double p = node->opset < 2 ? (double)trm_onnx_float(node, "p", 2.0f) : (double)trm_onnx_int(node, "p", 2);
    trm_tensor *x = node->inputs[0];
    if (p == 2.0) {
        x = reduce_spatial(node, TRM_REDUCE_SUM, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, x, x));
        trm_onnx_set(node, 0, trm_onnx_unary(node, TRM_UNARY_SQRT, x));
        return;
    }
    if (!(p > 0.0)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "p is %g, expected more than 0", p);
        return;
    }
    x = trm_onnx_unary(node, TRM_UNARY_ABS, x);
    x = p == 1.0 ? x : trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_POW, x, p);
    x = reduce_spatial(node, TRM_REDUCE_SUM, x);
    trm_onnx_set(node, 0, p == 1.0 ? x : trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_POW, x, 1.0 / p));
}

/* ---- what undoes them -------------------------------------------------------------------------- */

static void import_col2im(trm_onnx_node *node)
{
    int64_t image[TRM_MAX_SPATIAL] = {0}, block[TRM_MAX_SPATIAL] = {0};
    const int32_t n = trm_onnx_input_ints(node, 1, image, TRM_MAX_SPATIAL);
    const int32_t blocks = trm_onnx_input_ints(node, 2, block, TRM_MAX_SPATIAL);
    if (trm_onnx_failed(node)) {
        return;
    }
    if (n < 1 || blocks != n) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "image_shape has %d values and block_shape %d", (int)n,
                      (int)blocks);
        return;
    }
    const window w = read_window(node, n);
    trm_layer_desc desc = {.kind = TRM_LAYER_COL2IM, .col2im = {.image.n = n}};
    for (int32_t i = 0; i < n; i++) {
        if (block[i] < 1 || block[i] > INT32_MAX) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "block_shape has %lld, expected at least 1",
                          (long long)block[i]);
            return;
        }
        desc.col2im.image.d[i] = image[i];
        desc.col2im.kernel[i] = (int32_t)block[i];
    }
    memcpy(desc.col2im.stride, w.stride, sizeof(w.stride));
    memcpy(desc.col2im.dilation, w.dilation, sizeof(w.dilation));
    memcpy(desc.col2im.before, w.before, sizeof(w.before));
    memcpy(desc.col2im.after, w.after, sizeof(w.after));
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], NULL, NULL, NULL));
}

/* x [...] written into zeros [dims] at flat positions. */
static trm_tensor *place_in_zeros(trm_onnx_node *node, trm_tensor *x, trm_tensor *positions, const trm_onnx_dim *dims,
                                  int32_t n)
{
    const trm_layer_desc scatter = {.kind = TRM_LAYER_SCATTER,
                                    .scatter = {TRM_SCATTER_ELEMENTS, TRM_SCATTER_REPLACE, 0}};
    const int64_t flat[] = {-1};
    trm_onnx_dim total = trm_onnx_dim_known(1);
    for (int32_t i = 0; i < n; i++) {
        total = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_MUL, total, dims[i]);
    }
    trm_tensor *zeros = trm_onnx_expand(node, trm_onnx_scalar(node, x->dtype, 0.0), &total, 1);
    trm_tensor *y = trm_onnx_add(node, &scatter, zeros, trm_onnx_reshape(node, positions, flat, 1),
                                 trm_onnx_reshape(node, x, flat, 1), NULL);
    return trm_onnx_reshape_to(node, y, dims, n);
}

/* y with zeros after it, up to the dims of `shape`. */
static trm_tensor *extend_to(trm_onnx_node *node, trm_tensor *y, const trm_onnx_dim *dims, const int64_t *shape,
                             int32_t n)
{
    const trm_layer_desc pad = {.kind = TRM_LAYER_PAD, .pad = {.mode = TRM_PAD_CONSTANT}};
    trm_onnx_dim pads[2 * TRM_MAX_DIMS];
    bool longer = false;
    for (int32_t i = 0; i < n; i++) {
        pads[i] = trm_onnx_dim_known(0);
        pads[n + i] = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_SUB, trm_onnx_dim_known(shape[i]), dims[i]);
        longer = longer || pads[n + i].tensor != NULL || pads[n + i].value != 0;
    }
    return longer ? trm_onnx_add(node, &pad, y, trm_onnx_shape(node, pads, 2 * n), NULL, NULL) : y;
}

/* The positions in I are those of the image the attributes give; output_shape adds to the end of it. */
static void import_max_unpool(trm_onnx_node *node)
{
    const int32_t n = spatial_axes(node, 0);
    window w = read_window(node, n);
    read_kernel(node, &w);
    trm_onnx_dim dims[TRM_MAX_DIMS];
    const int32_t rank = trm_onnx_dims_of(node, node->inputs[0], dims);
    if (trm_onnx_failed(node)) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        trm_onnx_dim *dim = &dims[2 + i];
        /* (d - 1) * stride + kernel - pads, with every number that is subtracted positive */
        *dim = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_MUL, *dim, trm_onnx_dim_known(w.stride[i]));
        *dim = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_ADD, *dim, trm_onnx_dim_known(w.kernel[i]));
        *dim = trm_onnx_dim_combine(node, TRM_ELEMENTWISE_SUB, *dim,
                                    trm_onnx_dim_known((int64_t)w.stride[i] + w.before[i] + w.after[i]));
    }
    trm_tensor *y = place_in_zeros(node, node->inputs[0], node->inputs[1], dims, rank);
    if (node->inputs[2] != NULL) {
        int64_t shape[TRM_MAX_DIMS];
        const int32_t count = trm_onnx_input_ints(node, 2, shape, TRM_MAX_DIMS);
        if (!trm_onnx_failed(node) && count != rank) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "output_shape has %d values, expected %d", (int)count,
                          (int)rank);
        }
        y = trm_onnx_failed(node) ? y : extend_to(node, y, dims, shape, rank);
    }
    trm_onnx_set(node, 0, y);
}

const trm_onnx_operator trm_onnx_ops_window[] = {
    {"", "Conv", 1, 2, import_conv, 0},
    {"com.microsoft", "FusedConv", 1, 2, import_fused_conv, 0},
    {"", "ConvTranspose", 1, 2, import_conv_transpose, 0},
    {"", "DeformConv", 19, 3, import_deform_conv, 0},
    {"", "MaxPool", 1, 1, import_pool, TRM_POOL_MAX},
    {"", "AveragePool", 1, 1, import_pool, TRM_POOL_AVERAGE},
    {"", "LpPool", 2, 1, import_pool, TRM_POOL_LP},
    {"", "GlobalAveragePool", 1, 1, import_global_pool, TRM_REDUCE_AVG},
    {"", "GlobalMaxPool", 1, 1, import_global_pool, TRM_REDUCE_MAX},
    {"", "GlobalLpPool", 1, 1, import_global_lp_pool, 0},
    {"", "Col2Im", 18, 3, import_col2im, 0},
    {"", "MaxUnpool", 9, 2, import_max_unpool, 0},
    {0},
};
