/*
 * Quantization: to small types and back, and operators on quantized numbers, which are products of integers between
 * the two.
 */
#include <string.h>

#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

/* ---- to small types and back -------------------------------------------------------------------- */

/* Parameters that both have. `x` decides how many axes there are. */
static trm_layer_desc describe(trm_onnx_node *node, trm_layer_kind kind, const trm_tensor *x, const trm_tensor *scale)
{
    trm_layer_desc desc = {.kind = kind};
    const int64_t axis = trm_onnx_int(node, "axis", 1), block = trm_onnx_int(node, "block_size", 0);
    const bool single = scale->dims.n == 0 || (scale->dims.n == 1 && scale->dims.d[0] == 1);
    if (block < 0 || block > INT32_MAX) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "block_size is %lld, expected at least 0", (long long)block);
    }
    desc.quantize.block_size = (int32_t)block;
    if (block != 0 || !single) { /* else the axis is not read, and may be none of x's */
        desc.quantize.axis = trm_onnx_axis(node, axis, x->dims.n);
    }
    return desc;
}

/* The zero point in the dims of the scale: one may be a scalar and the other [1]. */
static trm_tensor *zero_like(trm_onnx_node *node, trm_tensor *zero, const trm_tensor *scale)
{
    if (zero == NULL || zero->dims.n == scale->dims.n || zero->dims.n > 1 || scale->dims.n > 1) {
        return zero;
    }
    const int64_t one = 1;
    return trm_onnx_reshape(node, zero, &one, scale->dims.n);
}

static trm_tensor *quantize(trm_onnx_node *node, trm_tensor *x, trm_tensor *scale, trm_tensor *zero, trm_dtype to)
{
    trm_layer_desc desc = describe(node, TRM_LAYER_QUANTIZE, x, scale);
    desc.quantize.to = to;
    desc.quantize.unsaturated = !trm_onnx_flag(node, "saturate", true);
    return trm_onnx_add(node, &desc, x, scale, zero_like(node, zero, scale), NULL);
}

static void import_quantize(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *scale = node->inputs[1], *zero = node->inputs[2];
    const trm_dtype to = trm_onnx_type(node, "output_dtype", zero != NULL ? zero->dtype : TRM_U8);
    const trm_dtype precision = trm_onnx_type(node, "precision", TRM_DTYPE_NONE);
    if (zero != NULL && zero->dtype != to) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "output_dtype is %s, but the zero point is %s", trm_dtype_name(to),
                      trm_dtype_name(zero->dtype));
    }
    if (precision != TRM_DTYPE_NONE && trm_dtype_is_float(precision)) {
        x = trm_onnx_cast(node, x, precision);
        scale = trm_onnx_cast(node, scale, precision);
    } else if (!trm_dtype_is_float(x->dtype)) {
        x = trm_onnx_cast(node, x, TRM_F32);
    }
    if (!trm_dtype_is_float(scale->dtype) && scale->dtype != TRM_F8E8M0) {
        scale = trm_onnx_cast(node, scale, x->dtype);
    }
    trm_onnx_set(node, 0, quantize(node, x, scale, zero, to));
}

static void import_dequantize(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0], *scale = node->inputs[1];
    trm_layer_desc desc = describe(node, TRM_LAYER_DEQUANTIZE, x, scale);
    desc.quantize.to = trm_onnx_type(node, "output_dtype", trm_dtype_is_float(scale->dtype) ? scale->dtype : TRM_F32);
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, x, scale, zero_like(node, node->inputs[2], scale), NULL));
}

typedef struct dynamic_parts {
    trm_tensor *y, *scale, *zero;
} dynamic_parts;

/* Scale and zero point that make 0 and the extremes of x fit 0 .. 255. */
static dynamic_parts quantize_dynamically(trm_onnx_node *node, trm_tensor *x)
{
    trm_tensor *low = trm_onnx_reduce(node, TRM_REDUCE_MIN, x, NULL, -1, false);
    trm_tensor *high = trm_onnx_reduce(node, TRM_REDUCE_MAX, x, NULL, -1, false);
    low = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MIN, low, 0.0);
    high = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MAX, high, 0.0);
    trm_tensor *range = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, high, low);
    trm_tensor *flat = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_EQUAL, range, 0.0);
    range = trm_onnx_select(node, flat, trm_onnx_scalar(node, x->dtype, 1.0), range);
    trm_tensor *scale = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_DIV, range, 255.0);
    trm_tensor *zero = trm_onnx_elementwise(node, TRM_ELEMENTWISE_DIV, low, scale);
    zero = trm_onnx_unary_with(node, TRM_UNARY_CLIP, trm_onnx_unary(node, TRM_UNARY_NEG, zero), 0.0f, 255.0f);
    zero = trm_onnx_cast(node, trm_onnx_unary(node, TRM_UNARY_ROUND, zero), TRM_U8);
    const dynamic_parts parts = {quantize(node, x, scale, zero, TRM_U8), scale, zero};
    return parts;
}

static void import_dynamic_quantize(trm_onnx_node *node)
{
    const dynamic_parts parts = quantize_dynamically(node, node->inputs[0]);
    trm_onnx_set(node, 0, parts.y);
    trm_onnx_set(node, 1, parts.scale);
    trm_onnx_set(node, 2, parts.zero);
}

/* ---- products of integers ------------------------------------------------------------------------ */

/* x - zero in `to`, the zero point [n] laid along `axis` (NEVER: as it is). */
#define NEVER (-100)
static trm_tensor *centred(trm_onnx_node *node, trm_tensor *x, trm_tensor *zero, int32_t axis, trm_dtype to)
{
    x = trm_onnx_cast(node, x, to);
    if (zero == NULL) {
        return x;
    }
    zero = trm_onnx_cast(node, zero, to);
    if (axis != NEVER && zero->dims.n == 1 && axis >= 0 && axis < x->dims.n - 1) {
        int32_t axes[TRM_MAX_DIMS], n = 0;
        for (int32_t i = axis + 1; i < x->dims.n; i++) {
            axes[n] = n + 1;
            n++;
        }
        zero = trm_onnx_unsqueeze(node, zero, axes, n);
    }
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, x, zero);
}

/* Products of integers as MatMul means them: vectors get an axis for the time of the product. */
trm_tensor *trm_onnx_integer_product(trm_onnx_node *node, trm_tensor *a, trm_tensor *a_zero, trm_tensor *b,
                                     trm_tensor *b_zero)
{
    const bool row = a->dims.n == 1, column = b->dims.n == 1;
    const int32_t first = 0, second = 1;
    a = centred(node, a, a_zero, a->dims.n - 2, TRM_I32);
    b = centred(node, b, b_zero, NEVER, TRM_I32);
    a = row ? trm_onnx_unsqueeze(node, a, &first, 1) : a;
    b = column ? trm_onnx_unsqueeze(node, b, &second, 1) : b;
    trm_tensor *y = trm_onnx_matmul(node, a, b, false, false);
    const int32_t last = y->dims.n - 1, before = y->dims.n - 2;
    y = column ? trm_onnx_squeeze(node, y, &last, 1) : y;
    return row ? trm_onnx_squeeze(node, y, column ? &first : &before, 1) : y;
}

static void import_matmul_integer(trm_onnx_node *node)
{
    trm_onnx_set(node, 0,
                 trm_onnx_integer_product(node, node->inputs[0], node->inputs[2], node->inputs[1], node->inputs[3]));
}

static void import_qlinear_matmul(trm_onnx_node *node)
{
    trm_tensor **in = node->inputs, *a_scale = in[1], *b_scale = in[4], *y_zero = in[7];
    const trm_dtype to = y_zero == NULL ? in[0]->dtype : y_zero->dtype;
    trm_tensor *y = trm_onnx_integer_product(node, in[0], in[2], in[3], in[5]);
    if (a_scale->dims.n == 1 && a_scale->dims.d[0] != 1) { /* one per row */
        const int32_t second = 1;
        a_scale = trm_onnx_unsqueeze(node, a_scale, &second, 1);
    }
    a_scale = trm_onnx_cast(node, a_scale, TRM_F32);
    b_scale = trm_onnx_cast(node, b_scale, TRM_F32);
    trm_tensor *scale = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, a_scale, b_scale);
    y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, trm_onnx_cast(node, y, TRM_F32), scale);
    trm_onnx_set(node, 0, quantize(node, y, trm_onnx_cast(node, in[6], TRM_F32), y_zero, to));
}

/* ---- convolutions -------------------------------------------------------------------------------- */

/* A tensor [n] along the channels of y. */
static trm_tensor *along_channels(trm_onnx_node *node, trm_tensor *x, const trm_tensor *y)
{
    int32_t axes[TRM_MAX_DIMS], n = 0;
    for (int32_t i = 2; i < y->dims.n; i++) {
        axes[n] = n + 1;
        n++;
    }
    return trm_onnx_unsqueeze(node, x, axes, n);
}

/* Most products of 8 bits by at most 16 whose two sums are exact in f32, in any order: 2^24 / (255 * 16). */
#define MOST_EXACT_PRODUCTS 4112

/* Products of one output; -1: not known. */
static int64_t products_per_output(const trm_tensor *w)
{
    int64_t count = 1;
    for (int32_t i = 1; i < w->dims.n; i++) {
        count = w->dims.d[i] < 0 || count < 0 || count > MOST_EXACT_PRODUCTS ? -1 : count * w->dims.d[i];
    }
    return count;
}

/* A convolution of whole numbers in f32, which says so: no kernel may transform them, and those that round to TF32 lose
 * nothing. */
static trm_tensor *whole_convolution(trm_onnx_node *node, trm_tensor *x, trm_tensor *w)
{
    return trm_onnx_convolution(node, x, w, NULL, true);
}

/* Weights are taken apart into 16 times one part and another, each small enough for f32, which has fast kernels
 * everywhere; where there are more products than that bears, in f64. Exact either way. */
static void import_conv_integer(trm_onnx_node *node)
{
    trm_tensor **in = node->inputs, *y;
    const int64_t products = products_per_output(in[1]);
    if (products < 0 || products > MOST_EXACT_PRODUCTS) {
        y = trm_onnx_convolution(node, centred(node, in[0], in[2], NEVER, TRM_F64),
                                 centred(node, in[1], in[3], 0, TRM_F64), NULL, true);
        trm_onnx_set(node, 0, trm_onnx_cast(node, y, TRM_I32));
        return;
    }
    trm_tensor *x = centred(node, in[0], in[2], NEVER, TRM_F32), *w = centred(node, in[1], in[3], 0, TRM_F32);
    trm_tensor *high = trm_onnx_unary_with(node, TRM_UNARY_LINEAR, w, 1.0f / 16.0f, 0.0f);
    high = trm_onnx_unary(node, TRM_UNARY_ROUND, high);
    trm_tensor *low = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, w,
                                           trm_onnx_unary_with(node, TRM_UNARY_LINEAR, high, 16.0f, 0.0f));
    high = trm_onnx_cast(node, whole_convolution(node, x, high), TRM_I32);
    low = trm_onnx_cast(node, whole_convolution(node, x, low), TRM_I32);
    y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, high, trm_onnx_scalar(node, TRM_I32, 16.0));
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, low));
}

/* data: channels may stand last, but those of the weights. Sums in f32: exact if the absolute values of their products
 * add up to less than 2^24, and beyond that with an error far below a step of y; bias and scales in f64. */
static void import_qlinear_conv(trm_onnx_node *node)
{
    trm_tensor **in = node->inputs, *w_scale = trm_onnx_cast(node, in[4], TRM_F64), *y_zero = in[7];
    const trm_dtype to = y_zero == NULL ? in[0]->dtype : y_zero->dtype;
    const bool last = node->row->data != 0 && trm_onnx_flag(node, "channels_last", false);
    trm_tensor *x = centred(node, last ? trm_onnx_channels_first(node, in[0]) : in[0], in[2], NEVER, TRM_F32);
    trm_tensor *w = centred(node, in[3], in[5], 0, TRM_F32);
    trm_tensor *y = trm_onnx_cast(node, whole_convolution(node, x, w), TRM_F64);
    if (in[8] != NULL) {
        trm_tensor *bias = along_channels(node, trm_onnx_cast(node, in[8], TRM_F64), y);
        y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, bias);
    }
    if (w_scale->dims.n == 1 && w_scale->dims.d[0] != 1) { /* one per output channel */
        w_scale = along_channels(node, w_scale, y);
    }
    trm_tensor *scale = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, trm_onnx_cast(node, in[1], TRM_F64), w_scale);
    y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, y, scale);
    y = trm_onnx_cast(node, y, TRM_F32);
    y = quantize(node, y, trm_onnx_cast(node, in[6], TRM_F32), y_zero, to);
    trm_onnx_set(node, 0, last ? trm_onnx_channels_last(node, y) : y);
}

/* ---- com.microsoft: operators between a dequantization and a quantization ------------------------- */

/* Inputs index .. index + 2: x, scale and zero point of one for all. */
static trm_tensor *unpacked(trm_onnx_node *node, int32_t index)
{
    trm_tensor *x = node->inputs[index], *scale = node->inputs[index + 1], *zero = node->inputs[index + 2];
    if (x == NULL || scale == NULL) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "input %d or its scale is missing", (int)index);
        return node->inputs[0];
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_DEQUANTIZE, .quantize = {.to = TRM_F32}};
    return trm_onnx_add(node, &desc, x, scale, zero_like(node, zero, scale), NULL);
}

/* y quantized by inputs index and index + 1, scale and zero point. */
static void set_packed(trm_onnx_node *node, trm_tensor *y, int32_t index, trm_dtype normal)
{
    trm_tensor *scale = node->inputs[index], *zero = node->inputs[index + 1];
    if (scale == NULL) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "input %d is missing", (int)index);
        return;
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_QUANTIZE, .quantize = {.to = zero == NULL ? normal : zero->dtype}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, y, scale, zero_like(node, zero, scale), NULL));
}

static void import_qlinear_elementwise(trm_onnx_node *node)
{
    trm_tensor *a = unpacked(node, 0), *b = unpacked(node, 3);
    trm_tensor *y = trm_onnx_elementwise(node, (trm_elementwise_op)node->row->data, a, b);
    set_packed(node, y, 6, node->inputs[0]->dtype);
}

static void import_qlinear_sigmoid(trm_onnx_node *node)
{
    trm_tensor *y = trm_onnx_activation(node, TRM_ACTIVATION_SIGMOID, unpacked(node, 0));
    set_packed(node, y, 3, node->inputs[0]->dtype);
}

static void import_qlinear_leaky_relu(trm_onnx_node *node)
{
    const float alpha = trm_onnx_float(node, "alpha", 0.01f);
    trm_tensor *y = trm_onnx_unary_with(node, TRM_UNARY_LEAKY_RELU, unpacked(node, 0), alpha, 0.0f);
    set_packed(node, y, 3, node->inputs[0]->dtype);
}

static void import_qlinear_average(trm_onnx_node *node)
{
    trm_tensor *x = unpacked(node, 0);
    const bool channels_last = trm_onnx_flag(node, "channels_last", false);
    int32_t axes[TRM_MAX_DIMS], n = 0;
    for (int32_t i = channels_last ? 1 : 2; i < x->dims.n - (channels_last ? 1 : 0); i++) {
        axes[n++] = i;
    }
    set_packed(node, trm_onnx_reduce(node, TRM_REDUCE_AVG, x, axes, n, true), 3, node->inputs[0]->dtype);
}

/* Before opset 13 softmax is over all axes from `axis` on. */
static void import_qlinear_softmax(trm_onnx_node *node)
{
    trm_tensor *x = unpacked(node, 0), *flat = x;
    const int32_t rank = x->dims.n, axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", -1), rank);
    const bool joined = trm_onnx_int(node, "opset", 13) < 13 && axis != rank - 1;
    if (trm_onnx_failed(node)) {
        return;
    }
    trm_onnx_dim dims[TRM_MAX_DIMS];
    flat = joined ? trm_onnx_flatten(node, x, axis) : x;
    trm_tensor *y = trm_onnx_softmax(node, flat, joined ? 1 : axis);
    y = joined ? trm_onnx_reshape_to(node, y, dims, trm_onnx_dims_of(node, x, dims)) : y;
    set_packed(node, y, 3, node->inputs[0]->dtype);
}

static void import_qlinear_average_pool(trm_onnx_node *node)
{
    const bool last = trm_onnx_flag(node, "channels_last", false);
    trm_tensor *x = unpacked(node, 0);
    trm_tensor *y = trm_onnx_average_pool(node, last ? trm_onnx_channels_first(node, x) : x);
    set_packed(node, last ? trm_onnx_channels_last(node, y) : y, 3, node->inputs[0]->dtype);
}

static void import_qlinear_mean(trm_onnx_node *node)
{
    int32_t axes[TRM_MAX_DIMS];
    trm_tensor *x = unpacked(node, 0);
    const int32_t n = trm_onnx_axes(node, "axes", -1, x->dims.n, axes);
    const bool keep = trm_onnx_flag(node, "keepdims", true);
    set_packed(node, trm_onnx_reduce(node, TRM_REDUCE_AVG, x, axes, n, keep), 3, node->inputs[0]->dtype);
}

static void import_qlinear_where(trm_onnx_node *node)
{
    trm_tensor *y = trm_onnx_select(node, node->inputs[0], unpacked(node, 1), unpacked(node, 4));
    set_packed(node, y, 7, node->inputs[1]->dtype);
}

/* Output scale and zero point, then x, scale and zero point of each part. */
static void import_qlinear_concat(trm_onnx_node *node)
{
    trm_tensor *parts[TRM_MAX_LAYER_INPUTS * 4];
    const int32_t n = (node->n_inputs - 2) / 3;
    if (n < 1 || n > (int32_t)(sizeof(parts) / sizeof(parts[0])) || node->n_inputs != 2 + 3 * n) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "it has %d inputs, expected 2 and 3 for each of up to 64 parts",
                      (int)node->n_inputs);
        return;
    }
    for (int32_t i = 0; i < n && !trm_onnx_failed(node); i++) {
        parts[i] = unpacked(node, 2 + 3 * i);
    }
    if (!trm_onnx_failed(node)) {
        const int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), parts[0]->dims.n);
        set_packed(node, trm_onnx_concat(node, parts, n, axis), 0, node->inputs[2]->dtype);
    }
}

/* Products of integers times scales, in f32, with a bias that may be there. */
static void set_scaled(trm_onnx_node *node, trm_tensor *product, trm_tensor *a_scale, trm_tensor *b_scale,
                       trm_tensor *bias)
{
    trm_tensor *scale = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, a_scale, b_scale);
    trm_tensor *y = trm_onnx_cast(node, product, scale->dtype);
    y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, y, scale);
    trm_onnx_set(node, 0, bias == NULL ? y : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, bias));
}

static void import_matmul_to_float(trm_onnx_node *node)
{
    trm_tensor **in = node->inputs;
    set_scaled(node, trm_onnx_integer_product(node, in[0], in[4], in[1], in[5]), in[2], in[3], in[6]);
}

static void import_dynamic_matmul(trm_onnx_node *node)
{
    trm_tensor **in = node->inputs;
    const dynamic_parts a = quantize_dynamically(node, in[0]);
    set_scaled(node, trm_onnx_integer_product(node, a.y, a.zero, in[1], in[3]), a.scale, in[2], in[4]);
}

/* Gemm of quantized numbers, whose bias is in units of both scales. Without an output scale the result is f32. */
static void import_qgemm(trm_onnx_node *node)
{
    trm_tensor **in = node->inputs, *b_zero = in[5], *bias = in[6];
    trm_tensor *a = centred(node, in[0], in[2], NEVER, TRM_I32);
    const bool transpose_b = trm_onnx_flag(node, "transB", false);
    trm_tensor *b = centred(node, in[3], b_zero, transpose_b ? 0 : NEVER, TRM_I32);
    trm_tensor *y = trm_onnx_matmul(node, a, b, trm_onnx_flag(node, "transA", false), transpose_b);
    y = bias == NULL ? y : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, bias);
    trm_tensor *scale = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, in[1], in[4]);
    scale = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, scale, (double)trm_onnx_float(node, "alpha", 1.0f));
    y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, trm_onnx_cast(node, y, TRM_F32), scale);
    if (in[7] == NULL) {
        trm_onnx_set(node, 0, y);
    } else {
        set_packed(node, y, 7, in[0]->dtype);
    }
}

const trm_onnx_operator trm_onnx_ops_quantize[] = {
    {"", "QuantizeLinear", 10, 2, import_quantize, 0},
    {"", "DequantizeLinear", 10, 2, import_dequantize, 0},
    {"", "DynamicQuantizeLinear", 11, 1, import_dynamic_quantize, 0},
    {"", "MatMulInteger", 10, 2, import_matmul_integer, 0},
    {"", "QLinearMatMul", 10, 8, import_qlinear_matmul, 0},
    {"", "ConvInteger", 10, 2, import_conv_integer, 0},
    {"", "QLinearConv", 10, 8, import_qlinear_conv, 0},
    {"com.microsoft", "QuantizeLinear", 1, 2, import_quantize, 0},
    {"com.microsoft", "DequantizeLinear", 1, 2, import_dequantize, 0},
    {"com.microsoft", "QLinearAdd", 1, 2, import_qlinear_elementwise, TRM_ELEMENTWISE_ADD},
    {"com.microsoft", "QLinearMul", 1, 2, import_qlinear_elementwise, TRM_ELEMENTWISE_MUL},
    {"com.microsoft", "QLinearSigmoid", 1, 2, import_qlinear_sigmoid, 0},
    {"com.microsoft", "QLinearLeakyRelu", 1, 2, import_qlinear_leaky_relu, 0},
    {"com.microsoft", "QLinearGlobalAveragePool", 1, 2, import_qlinear_average, 0},
    {"com.microsoft", "QLinearSoftmax", 1, 4, import_qlinear_softmax, 0},
    {"com.microsoft", "QLinearAveragePool", 1, 4, import_qlinear_average_pool, 0},
    {"com.microsoft", "QLinearWhere", 1, 8, import_qlinear_where, 0},
    {"com.microsoft", "QLinearReduceMean", 1, 4, import_qlinear_mean, 0},
    {"com.microsoft", "QLinearConv", 1, 8, import_qlinear_conv, 1},
    {"com.microsoft", "QLinearConcat", 1, 5, import_qlinear_concat, 0},
    {"com.microsoft", "MatMulIntegerToFloat", 1, 4, import_matmul_to_float, 0},
    {"com.microsoft", "DynamicQuantizeMatMul", 1, 3, import_dynamic_matmul, 0},
    {"com.microsoft", "QGemm", 1, 6, import_qgemm, 0},
    {0},
};
