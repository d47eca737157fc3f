/*
 * Operators of the domain com.microsoft that onnxruntime's optimizers write for networks of images, T5 and WavLM, and
 * weights in 4 bits by a table: taken apart into what they were made of.
 */
#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

/* ---- channels behind positions --------------------------------------------------------------------------------- */

trm_tensor *trm_onnx_channels_first(trm_onnx_node *node, trm_tensor *x)
{
    int32_t perm[TRM_MAX_DIMS];
    const int32_t rank = x->dims.n;
    for (int32_t i = 0; i < rank; i++) {
        perm[i] = i == 0 ? 0 : i == 1 ? rank - 1 : i - 1;
    }
    return rank < 3 ? x : trm_onnx_transpose(node, x, perm);
}

trm_tensor *trm_onnx_channels_last(trm_onnx_node *node, trm_tensor *x)
{
    int32_t perm[TRM_MAX_DIMS];
    const int32_t rank = x->dims.n;
    for (int32_t i = 0; i < rank; i++) {
        perm[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
    }
    return rank < 3 ? x : trm_onnx_transpose(node, x, perm);
}

/* The weights, too, have their channels last. */
static void import_nhwc_conv(trm_onnx_node *node)
{
    trm_tensor *x = trm_onnx_channels_first(node, node->inputs[0]);
    trm_tensor *w = trm_onnx_channels_first(node, node->inputs[1]);
    trm_onnx_set(node, 0, trm_onnx_channels_last(node, trm_onnx_convolution(node, x, w, node->inputs[2], false)));
}

static void import_nhwc_max_pool(trm_onnx_node *node)
{
    trm_tensor *x = trm_onnx_channels_first(node, node->inputs[0]);
    trm_onnx_set(node, 0, trm_onnx_channels_last(node, trm_onnx_max_pool(node, x)));
}

/* x [N, C] or [C] as [N or 1, 1 .., C], of the rank of `like`. */
static trm_tensor *beside_positions(trm_onnx_node *node, trm_tensor *x, const trm_tensor *like)
{
    int32_t axes[TRM_MAX_DIMS], n = 0;
    for (int32_t i = 1; x->dims.n == 2 && i < like->dims.n - 1; i++) {
        axes[n++] = i;
    }
    return n == 0 ? x : trm_onnx_unsqueeze(node, x, axes, n);
}

/* (x, gamma, beta) -> y; data: (x, gamma, beta, skip, bias) -> (y, the sum of x, skip and bias). */
static void import_group_norm(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    const bool last = trm_onnx_flag(node, "channels_last", true), sums = node->row->data != 0;
    const int64_t groups = trm_onnx_int(node, "groups", 0);
    if (!trm_onnx_failed(node) && (groups < 1 || groups > INT32_MAX || x->dims.n < 3)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "%lld groups and %d dimensions", (long long)groups,
                      (int)x->dims.n);
    }
    if (!trm_onnx_failed(node) && sums && !last) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "channels_last is 0, expected 1");
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    if (sums) {
        x = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, x, beside_positions(node, node->inputs[3], x));
        x = node->inputs[4] == NULL ? x : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, x, node->inputs[4]);
        trm_onnx_set(node, 1, x);
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_GROUP_NORM,
                                 .group_norm = {.groups = (int32_t)groups,
                                                .eps = trm_onnx_float(node, "epsilon", 1e-5f),
                                                .activation = trm_onnx_flag(node, "activation", false)
                                                                  ? TRM_ACTIVATION_SILU
                                                                  : TRM_ACTIVATION_NONE}};
    trm_tensor *y = trm_onnx_add(node, &desc, last ? trm_onnx_channels_first(node, x) : x,
                                 trm_onnx_cast(node, node->inputs[1], x->dtype),
                                 trm_onnx_cast(node, node->inputs[2], x->dtype), NULL);
    trm_onnx_set(node, 0, last ? trm_onnx_channels_last(node, y) : y);
}

/* ---- biases ---------------------------------------------------------------------------------------------------- */

static void import_bias_add(trm_onnx_node *node)
{
    trm_tensor *x = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, node->inputs[0], node->inputs[1]);
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, x, node->inputs[2]));
}

/* The first half of x + bias, times the GELU of the second. */
static void import_bias_split_gelu(trm_onnx_node *node)
{
    trm_tensor *x = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, node->inputs[0], node->inputs[1]);
    const int32_t axis = x->dims.n - 1;
    const int64_t width = axis < 0 ? -1 : x->dims.d[axis];
    if (!trm_onnx_failed(node) && (width < 0 || width % 2 != 0)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the last axis has %lld elements, expected an even number",
                      (long long)width);
    }
    trm_tensor *gate = trm_onnx_slice(node, x, axis, width / 2, INT64_MAX, 1);
    trm_onnx_set(node, 0,
                 trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, trm_onnx_slice(node, x, axis, 0, width / 2, 1),
                                      trm_onnx_activation(node, TRM_ACTIVATION_GELU, gate)));
}

static void import_gemm_fast_gelu(trm_onnx_node *node)
{
    trm_tensor *y = trm_onnx_matmul(node, node->inputs[0], node->inputs[1], false, false);
    y = node->inputs[2] == NULL ? y : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, node->inputs[2]);
    trm_onnx_set(node, 0, trm_onnx_activation(node, TRM_ACTIVATION_GELU_TANH, y));
}

/* Of the sum, over all axes from `axis` on. How the bias repeats, its dims tell. */
static void import_bias_softmax(trm_onnx_node *node)
{
    trm_tensor *x = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, node->inputs[0], node->inputs[1]);
    const int32_t rank = x->dims.n, axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 1), rank);
    if (trm_onnx_failed(node)) {
        return;
    }
    if (axis == rank - 1) {
        trm_onnx_set(node, 0, trm_onnx_softmax(node, x, axis));
        return;
    }
    trm_onnx_dim dims[TRM_MAX_DIMS];
    trm_tensor *y = trm_onnx_softmax(node, trm_onnx_flatten(node, x, axis), 1);
    trm_onnx_set(node, 0, trm_onnx_reshape_to(node, y, dims, trm_onnx_dims_of(node, x, dims)));
}

/* ---- matrices -------------------------------------------------------------------------------------------------- */

#define LARGEST_INVERSE 16 /* rows; each element is a determinant */

/* x [.., n, n]: determinants of all matrices that lack one row and one column, by that of x. */
static void import_inverse(trm_onnx_node *node)
{
    const trm_layer_desc determinant = {.kind = TRM_LAYER_DETERMINANT};
    trm_tensor *x = node->inputs[0];
    const int32_t rank = x->dims.n;
    const int64_t n = rank < 2 ? -1 : x->dims.d[rank - 1];
    if (n < 1 || n > LARGEST_INVERSE || n != x->dims.d[rank - 2] || rank + 2 > TRM_MAX_DIMS) {
        char text[TRM_DIMS_TEXT_SIZE];
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "a matrix of dims %s, expected as many rows as columns, at most %d, and %d dimensions at most",
                      trm_dims_format(&x->dims, text), LARGEST_INVERSE, TRM_MAX_DIMS - 2);
        return;
    }
    if (n == 1) {
        trm_onnx_set(node, 0, trm_onnx_unary(node, TRM_UNARY_RECIPROCAL, x));
        return;
    }
    int64_t others[LARGEST_INVERSE * LARGEST_INVERSE] = {0};
    float signs[LARGEST_INVERSE * LARGEST_INVERSE] = {0};
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < n; k++) {
            signs[i * n + k] = (i + k) % 2 == 0 ? 1 : -1;
            if (k < n - 1) {
                others[i * (n - 1) + k] = k < i ? k : k + 1;
            }
        }
    }
    const trm_dims all = {2, {n, n - 1}}, square = {2, {n, n}};
    trm_tensor *rest = trm_onnx_constant(node, TRM_I64, all, others);
    trm_tensor *sign = trm_onnx_cast(node, trm_onnx_constant(node, TRM_F32, square, signs), x->dtype);
    trm_tensor *minors = trm_onnx_gather(node, trm_onnx_gather(node, x, rest, rank - 2), rest, rank);
    int32_t perm[TRM_MAX_DIMS]; /* [.., row, rows, column, columns] to [.., column, row, rows, columns] */
    for (int32_t i = 0; i < rank + 2; i++) {
        perm[i] = i;
    }
    perm[rank - 2] = rank;
    perm[rank - 1] = rank - 2;
    perm[rank] = rank - 1;
    minors = trm_onnx_transpose(node, minors, perm);
    trm_tensor *y = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL,
                                         trm_onnx_add(node, &determinant, minors, NULL, NULL, NULL), sign);
    const int32_t axes[] = {rank - 2, rank - 1};
    trm_tensor *whole = trm_onnx_add(node, &determinant, x, NULL, NULL, NULL);
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, TRM_ELEMENTWISE_DIV, y, trm_onnx_unsqueeze(node, whole, axes, 2)));
}

/* bitsandbytes' types of 4 bits, as fractions of the largest of a block. */
static const float fp4[16] = {0,  0.005208333333f,  2.0f / 3,  1,  1.0f / 3,  0.5f,  1.0f / 6,  0.25f,
                              -0, -0.005208333333f, -2.0f / 3, -1, -1.0f / 3, -0.5f, -1.0f / 6, -0.25f};
static const float nf4[16] = {-1.0f,         -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f,
                              -0.091050036f, 0.0f,        0.0795803f,   0.1609302f,  0.2461123f,   0.33791524f,
                              0.44070983f,   0.562617f,   0.72295684f,  1.0f};

/* (a [.., K], b u8 [(N * K + 1) / 2], the largest of each block [blocks]): two elements in a byte, the first in its
 * upper half; blocks run on over rows. */
static void import_matmul_bnb4(trm_onnx_node *node)
{
    static const int64_t flat[1] = {-1};
    static const int32_t behind = 1;
    const int64_t block = trm_onnx_int(node, "block_size", 0), type = trm_onnx_int(node, "quant_type", 0);
    const int64_t columns = trm_onnx_int(node, "N", 0), depth = trm_onnx_int(node, "K", 0);
    trm_tensor *a = node->inputs[0], *b = node->inputs[1], *largest = node->inputs[2];
    if (trm_onnx_failed(node) || block < 2 || block % 2 != 0 || columns < 1 || depth < 1 || block > INT32_MAX ||
        columns > INT32_MAX || depth > INT32_MAX || type < 0 || type > 1 || b->dtype != TRM_U8 || b->dims.n != 1 ||
        b->dims.d[0] != (columns * depth + 1) / 2) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                      "N is %lld, K %lld, block_size %lld, quant_type %lld, with %lld bytes", (long long)columns,
                      (long long)depth, (long long)block, (long long)type, (long long)b->dims.d[0]);
        return;
    }
    trm_tensor *halves[] = {trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_SHIFT_RIGHT, b, 4.0),
                            trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_AND, b, 15.0)};
    for (int32_t i = 0; i < 2; i++) {
        halves[i] = trm_onnx_unsqueeze(node, halves[i], &behind, 1);
    }
    const trm_dims sixteen = {1, {16}};
    const int64_t weights[] = {columns, depth}, count = columns * depth, rest = count % block;
    trm_tensor *table =
        trm_onnx_cast(node, trm_onnx_constant(node, TRM_F32, sixteen, type == 0 ? fp4 : nf4), largest->dtype);
    trm_tensor *w = trm_onnx_cast(node, trm_onnx_reshape(node, trm_onnx_concat(node, halves, 2, 1), flat, 1), TRM_I32);
    const trm_onnx_dim each[] = {trm_onnx_dim_known((count + block - 1) / block), trm_onnx_dim_known(block)};
    trm_tensor *scale = trm_onnx_expand(node, trm_onnx_unsqueeze(node, largest, &behind, 1), each, 2);
    scale = trm_onnx_reshape(node, scale, flat, 1);
    scale = rest == 0 ? scale : trm_onnx_slice(node, scale, 0, 0, count, 1);
    w = trm_onnx_gather(node, table, count % 2 == 0 ? w : trm_onnx_slice(node, w, 0, 0, count, 1), 0);
    w = trm_onnx_reshape(node, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, w, scale), weights, 2);
    trm_onnx_set(
        node, 0,
        trm_onnx_matmul(node, a, trm_onnx_cast(node, w, a->dtype), false, trm_onnx_flag(node, "transB", true)));
}

/* ---- biases by position ---------------------------------------------------------------------------------------- */

/* A length that is an input: a number if it is known. */
static trm_onnx_dim length_input(trm_onnx_node *node, int32_t index)
{
    static const int64_t one[1] = {1};
    int64_t value = 0;
    int32_t count = 0;
    if (trm_onnx_known_ints(node, node->inputs[index], &value, 1, &count) && count == 1) {
        return trm_onnx_dim_known(value);
    }
    return (trm_onnx_dim){.value = -1,
                          .tensor = trm_onnx_reshape(node, trm_onnx_cast(node, node->inputs[index], TRM_I64), one, 1)};
}

/* T5's: keys that lie apart by less than half of the buckets have one each, farther ones share those that are left, by
 * the logarithm of the distance. distance f32, not negative. */
static trm_tensor *bucket_of(trm_onnx_node *node, trm_tensor *distance, int64_t buckets, int64_t most)
{
    const double exact = (double)(buckets / 2);
    trm_tensor *far = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MAX, distance, exact);
    far = trm_onnx_unary(node, TRM_UNARY_LOG, trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_DIV, far, exact));
    far =
        trm_onnx_elementwise(node, TRM_ELEMENTWISE_DIV, far,
                             trm_onnx_unary(node, TRM_UNARY_LOG, trm_onnx_scalar(node, TRM_F32, (double)most / exact)));
    far = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MUL, far, (double)buckets - exact);
    far = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, trm_onnx_unary(node, TRM_UNARY_FLOOR, far), exact);
    far = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MIN, far, (double)(buckets - 1));
    return trm_onnx_select(node, trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_LESS, distance, exact), distance,
                           far);
}

/* (table of dims [buckets, heads] whose elements lie as [heads, buckets], queries, keys) -> [1, heads, N, M] */
static void import_relative_bias(trm_onnx_node *node)
{
    static const int64_t column[2] = {-1, 1};
    static const int32_t front = 0;
    trm_tensor *table = node->inputs[0];
    const int64_t most = trm_onnx_int(node, "max_distance", 128);
    const bool both_ways = trm_onnx_flag(node, "is_bidirectional", false);
    int64_t buckets = table->dims.n == 2 ? table->dims.d[0] : -1;
    const int64_t by_head[2] = {table->dims.n == 2 ? table->dims.d[1] : -1, buckets};
    if (trm_onnx_failed(node) || buckets < 4 || by_head[0] < 1 || most <= buckets / 2) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "max_distance is %lld, and the table has %lld rows, expected at least 4 that are known",
                      (long long)most, (long long)buckets);
        return;
    }
    trm_tensor *keys = trm_onnx_positions(node, length_input(node, 2));
    trm_tensor *queries = trm_onnx_reshape(node, trm_onnx_positions(node, length_input(node, 1)), column, 2);
    trm_tensor *ahead = trm_onnx_cast(node, trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, keys, queries), TRM_F32);
    trm_tensor *distance = both_ways ? trm_onnx_unary(node, TRM_UNARY_ABS, ahead)
                                     : trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_MAX,
                                                                   trm_onnx_unary(node, TRM_UNARY_NEG, ahead), 0.0);
    buckets = both_ways ? buckets / 2 : buckets;
    trm_tensor *bucket = bucket_of(node, distance, buckets, most);
    if (both_ways) { /* keys behind the query have buckets of their own */
        trm_tensor *more =
            trm_onnx_select(node, trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_GREATER, ahead, 0.0),
                            trm_onnx_scalar(node, TRM_F32, (double)buckets), trm_onnx_scalar(node, TRM_F32, 0.0));
        bucket = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, bucket, more);
    }
    trm_tensor *y =
        trm_onnx_gather(node, trm_onnx_reshape(node, table, by_head, 2), trm_onnx_cast(node, bucket, TRM_I64), 1);
    trm_onnx_set(node, 0, trm_onnx_unsqueeze(node, y, &front, 1));
}

/* WavLM's: (query [B, N, H * d], its bias, rel_pos [1, H, N, N], weight [d, D], its bias, eco_a [1, H, 1, 1]) */
static void import_gated_bias(trm_onnx_node *node)
{
    static const int32_t last = 4;
    trm_tensor **in = node->inputs;
    if (in[6] != NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "tokens without padding (token_offset) are not supported");
        return;
    }
    trm_tensor *q = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, in[0], in[1]);
    q = trm_onnx_split_heads(node, q, trm_onnx_int(node, "num_heads", 0));
    trm_tensor *gates =
        trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, trm_onnx_matmul(node, q, in[3], false, false), in[4]);
    if (trm_onnx_failed(node)) {
        return;
    }
    const int64_t halves[5] = {0, 0, 0, 2, -1};
    gates = trm_onnx_reduce(node, TRM_REDUCE_SUM, trm_onnx_reshape(node, gates, halves, 5), &last, 1, false);
    gates = trm_onnx_activation(node, TRM_ACTIVATION_SIGMOID, gates);
    trm_tensor *gate = trm_onnx_slice(node, gates, 3, 1, 2, 1);
    gate = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, gate, in[5]);
    gate = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_SUB, gate, 1.0);
    gate = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, trm_onnx_slice(node, gates, 3, 0, 1, 1), gate);
    gate = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_ADD, gate, 2.0);
    trm_onnx_set(node, 0, trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, gate, in[2]));
}

const trm_onnx_operator trm_onnx_ops_fused[] = {
    {"com.microsoft", "NhwcConv", 1, 2, import_nhwc_conv, 0},
    {"com.microsoft", "NhwcMaxPool", 1, 1, import_nhwc_max_pool, 0},
    {"com.microsoft", "GroupNorm", 1, 3, import_group_norm, 0},
    {"com.microsoft", "SkipGroupNorm", 1, 4, import_group_norm, 1},
    {"com.microsoft", "BiasAdd", 1, 3, import_bias_add, 0},
    {"com.microsoft", "BiasSplitGelu", 1, 2, import_bias_split_gelu, 0},
    {"com.microsoft", "GemmFastGelu", 1, 2, import_gemm_fast_gelu, 0},
    {"com.microsoft", "BiasSoftmax", 1, 2, import_bias_softmax, 0},
    {"com.microsoft", "Inverse", 1, 1, import_inverse, 0},
    {"com.microsoft", "MatMulBnb4", 1, 3, import_matmul_bnb4, 0},
    {"com.microsoft", "RelativePositionBias", 1, 3, import_relative_bias, 0},
    {"com.microsoft", "GatedRelativePositionBias", 1, 6, import_gated_bias, 0},
    {0},
};
