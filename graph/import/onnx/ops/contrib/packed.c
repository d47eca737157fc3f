/* Operators of com.microsoft on weights of 2, 4 or 8 bits in blocks with a scale each, several of which share a byte.
 */
#include "graph/import/onnx/import.h"

/* Elements of x u8 [.., bytes] as u8 [.., count], the lowest bits of a byte first. The last axis must be known. */
static trm_tensor *unpack(trm_onnx_node *node, trm_tensor *x, int64_t bits, int64_t count)
{
    trm_tensor *parts[4];
    const int32_t n = (int32_t)(8 / bits), rank = x->dims.n;
    const int64_t bytes = rank > 0 ? x->dims.d[rank - 1] : -1;
    if (trm_onnx_failed(node) || x->dtype != TRM_U8 || bytes < 0 || bytes * n < count) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "packed elements are %s with %lld bytes, expected u8 with %lld",
                      trm_dtype_name(x->dtype), (long long)bytes, (long long)((count + n - 1) / n));
        return x;
    }
    if (n > 1) {
        for (int32_t i = 0; i < n; i++) {
            trm_tensor *part = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_SHIFT_RIGHT, x, (double)(i * bits));
            part = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_AND, part, (double)((1 << bits) - 1));
            parts[i] = trm_onnx_unsqueeze(node, part, &rank, 1);
        }
        trm_onnx_dim dims[TRM_MAX_DIMS];
        trm_onnx_dims_of(node, x, dims);
        dims[rank - 1] = trm_onnx_dim_known(bytes * n);
        x = trm_onnx_reshape_to(node, trm_onnx_concat(node, parts, n, rank), dims, rank);
    }
    return bytes * n == count ? x : trm_onnx_slice(node, x, rank - 1, 0, count, 1);
}

static int64_t read_bits(trm_onnx_node *node)
{
    const int64_t bits = trm_onnx_int(node, "bits", 4);
    if (bits != 2 && bits != 4 && bits != 8) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "elements have %lld bits, expected 2, 4 or 8", (long long)bits);
        return 8;
    }
    return bits;
}

/* (x - zero) * scale by blocks along the last of x's two axes; zero: as many as scale, u8 or of its type. */
static trm_tensor *restore(trm_onnx_node *node, trm_tensor *x, trm_tensor *scale, trm_tensor *zero, int64_t block)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_DEQUANTIZE,
                           .quantize = {.axis = x->dims.n - 1, .block_size = (int32_t)block, .to = scale->dtype}};
    if (zero->dtype == x->dtype) {
        return trm_onnx_add(node, &desc, x, scale, zero, NULL);
    }
    /* A zero point that is no integer: taken off behind the scale. */
    trm_tensor *ones = trm_onnx_add(node, &desc, x, scale, NULL, NULL);
    const trm_dtype wide = scale->dtype;
    zero = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MUL, trm_onnx_cast(node, zero, wide), scale);
    const int32_t rank = zero->dims.n;
    trm_onnx_dim dims[TRM_MAX_DIMS], flat[TRM_MAX_DIMS];
    trm_onnx_dims_of(node, zero, dims);
    dims[rank] = trm_onnx_dim_known(block);
    zero = trm_onnx_expand(node, trm_onnx_unsqueeze(node, zero, &rank, 1), dims, rank + 1);
    trm_onnx_dims_of(node, x, flat);
    return trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, ones, trm_onnx_reshape_to(node, zero, flat, rank));
}

/* A constant that is a view of its file, in another code; NULL if it is none. */
static trm_tensor *recoded(trm_onnx_node *node, trm_tensor *x, int64_t rows, trm_weight_code code)
{
    trm_tensor *made = NULL;
    trm_weight *shaped = NULL, *weight = NULL;
    if (x->role != TRM_TENSOR_CONSTANT || x->weight == NULL || x->pin != NULL) {
        return NULL;
    }
    const int64_t count = (int64_t)(trm_dims_bytes(&x->dims, x->dtype) / trm_dtype_size(x->dtype));
    const trm_dims dims = {2, {rows, count / rows}};
    if (count % rows != 0) {
        return NULL;
    }
    if (trm_weight_reshape(x->weight, &dims, &shaped) == TRM_OK && trm_weight_recode(shaped, code, &weight) == TRM_OK &&
        trm_network_add_weight(node->import->network, NULL, weight, trm_weight_dtype(weight), &made) != TRM_OK) {
        made = NULL;
    }
    trm_weight_destroy(shaped);
    return made;
}

/* a [.., K] times the transpose of a weight of 4 or 8 bits u8 [N, bytes], which stays as it is; zero: u8 [N, blocks],
 * of 4 bits, or NULL. */
static trm_tensor *product_with_bits(trm_onnx_node *node, trm_tensor *a, trm_tensor *weight, trm_tensor *scale,
                                     trm_tensor *zero, int64_t bits, int64_t block)
{
    const int64_t depth = a->dims.d[a->dims.n - 1];
    trm_tensor *known = bits == 8 ? recoded(node, weight, weight->dims.d[0], TRM_WEIGHT_CODE_SIGNED) : NULL;
    weight = known != NULL ? known : weight;
    if (weight->dims.d[1] != depth * bits / 8) {
        weight = trm_onnx_slice(node, weight, 1, 0, depth * bits / 8, 1);
    }
    if (bits == 8 && known == NULL) { /* less 128, what the zero points are */
        const trm_layer_desc same_bits = {.kind = TRM_LAYER_CAST, .cast = {.to = TRM_I8, .bits = true}};
        weight = trm_onnx_elementwise_scalar(node, TRM_ELEMENTWISE_XOR, weight, 128.0);
        weight = trm_onnx_add(node, &same_bits, weight, NULL, NULL, NULL);
    }
    const trm_layer_desc product = {.kind = TRM_LAYER_DEQUANT_MATMUL,
                                    .dequant_matmul = {.block_n = 1, .block_k = (int32_t)block}};
    trm_tensor *const bias = node->inputs[5];
    trm_tensor *inputs[TRM_DEQUANT_MATMUL_INPUT_COUNT] = {a, weight, scale, NULL, zero};
    inputs[TRM_DEQUANT_MATMUL_BIAS] = bias != NULL && bias->dims.n == 1 && bias->dtype == a->dtype ? bias : NULL;
    trm_tensor *y;
    trm_onnx_layer(node, &product, inputs, TRM_DEQUANT_MATMUL_INPUT_COUNT, &y);
    return bias == NULL || inputs[TRM_DEQUANT_MATMUL_BIAS] != NULL
               ? y
               : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, bias);
}

/* Whether DEQUANT_MATMUL does it: zero points, if any, are integers of 4 bits. */
static bool is_product_with_bits(const trm_onnx_node *node, int64_t bits, int64_t block, int64_t depth)
{
    const trm_tensor *a = node->inputs[0], *scale = node->inputs[2], *zero = node->inputs[3];
    return (bits == 4 ? depth % 2 == 0 && block % 2 == 0 : bits == 8 && zero == NULL) && a->dims.n > 0 &&
           a->dims.d[a->dims.n - 1] == depth && a->dtype != TRM_F64 && trm_dtype_is_float(a->dtype) &&
           scale->dtype != TRM_F64 && trm_dtype_is_float(scale->dtype) && (zero == NULL || zero->dtype == TRM_U8);
}

/* (a [.., K], b u8 [N, blocks, bytes], scales [N * blocks], zero points packed u8 or of a's type, g_idx, bias [N]) */
static void import_matmul_bits(trm_onnx_node *node)
{
    trm_tensor *a = node->inputs[0], *b = node->inputs[1], *scale = node->inputs[2], *zero = node->inputs[3];
    const int64_t bits = read_bits(node), block = trm_onnx_int(node, "block_size", 0);
    const int64_t columns = trm_onnx_int(node, "N", 0), depth = trm_onnx_int(node, "K", 0);
    if (block < 1 || block > INT32_MAX || columns < 1 || depth < 1 || depth > INT32_MAX - block) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "N is %lld, K %lld and block_size %lld, expected more than 0",
                      (long long)columns, (long long)depth, (long long)block);
        return;
    }
    if (node->inputs[4] != NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "reordered columns (g_idx) are not supported");
        return;
    }
    const int64_t blocks = (depth + block - 1) / block, wide = blocks * block;
    const int64_t bytes[] = {columns, wide * bits / 8}, each[] = {columns, blocks}, some[] = {columns, -1};
    scale = trm_onnx_reshape(node, scale, each, 2);
    if (!trm_onnx_failed(node) && b->dtype == TRM_U8 && is_product_with_bits(node, bits, block, depth)) {
        if (zero != NULL) {
            trm_tensor *known = recoded(node, zero, columns, TRM_WEIGHT_CODE_HALVES);
            zero = known == NULL                ? unpack(node, trm_onnx_reshape(node, zero, some, 2), bits, blocks)
                   : known->dims.d[1] == blocks ? known
                                                : trm_onnx_slice(node, known, 1, 0, blocks, 1);
        }
        b = trm_onnx_reshape(node, b, bytes, 2);
        if (!trm_onnx_failed(node)) {
            trm_onnx_set(node, 0, product_with_bits(node, a, b, scale, zero, bits, block));
        }
        return;
    }
    trm_tensor *w = unpack(node, trm_onnx_reshape(node, b, bytes, 2), bits, wide);
    if (zero == NULL) {
        const trm_onnx_dim dims[] = {trm_onnx_dim_known(columns), trm_onnx_dim_known(blocks)};
        zero = trm_onnx_expand(node, trm_onnx_scalar(node, TRM_U8, (double)(1 << (bits - 1))), dims, 2);
    } else if (zero->dtype == TRM_U8) {
        zero = unpack(node, trm_onnx_reshape(node, zero, some, 2), bits, blocks);
    } else {
        zero = trm_onnx_reshape(node, zero, each, 2);
    }
    w = restore(node, w, scale, zero, block);
    w = trm_onnx_cast(node, wide == depth ? w : trm_onnx_slice(node, w, 1, 0, depth, 1), a->dtype);
    trm_tensor *y = trm_onnx_matmul(node, a, w, false, true);
    trm_onnx_set(node, 0,
                 node->inputs[5] == NULL ? y : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, y, node->inputs[5]));
}

/* (data [rows, ..], indices, scales, zero points): rows, restored. Elements of 4 bits, or u8 with two in a byte. */
static void import_gather_blocks(trm_onnx_node *node)
{
    trm_tensor *data = node->inputs[0], *ids = node->inputs[1], *scale = node->inputs[2], *zero = node->inputs[3];
    const int64_t bits = read_bits(node), block = trm_onnx_int(node, "block_size", 128);
    const int32_t rank = data->dims.n;
    const int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "gather_axis", 0), rank);
    const int32_t along = trm_onnx_axis(node, trm_onnx_int(node, "quantize_axis", 1), rank);
    const bool packed = data->dtype == TRM_U8 && bits < 8;
    if (trm_onnx_failed(node) || axis != 0 || along != rank - 1 || rank < 2 || block < 1 || block > INT32_MAX) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "rows are gathered along axis %d with blocks of %lld along axis %d, "
                      "expected 0 and the last",
                      (int)axis, (long long)block, (int)along);
        return;
    }
    const int64_t width = data->dims.d[rank - 1] * (packed ? 8 / bits : 1), blocks = scale->dims.d[scale->dims.n - 1];
    if (width < 0 || blocks < 0) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the width of the data or of the scales is not known");
        return;
    }
    data = trm_onnx_gather(node, data, ids, 0);
    scale = trm_onnx_gather(node, scale, ids, 0);
    zero = zero == NULL ? NULL : trm_onnx_gather(node, zero, ids, 0);
    if (packed) {
        data = unpack(node, data, bits, width);
        zero = zero == NULL ? NULL : unpack(node, zero, bits, blocks);
    }
    if (zero == NULL) { /* of unsigned bytes the middle, else 0 */
        trm_onnx_dim dims[TRM_MAX_DIMS];
        const double middle = data->dtype == TRM_U8 ? (double)(1 << (bits - 1)) : 0.0;
        zero = trm_onnx_expand(node, trm_onnx_cast(node, trm_onnx_scalar(node, TRM_F32, middle), data->dtype), dims,
                               trm_onnx_dims_of(node, scale, dims));
    }
    trm_onnx_set(node, 0, restore(node, data, scale, zero, block));
}

const trm_onnx_operator trm_onnx_ops_packed[] = {
    {"com.microsoft", "MatMulNBits", 1, 3, import_matmul_bits, 0},
    {"com.microsoft", "GatherBlockQuantized", 1, 3, import_gather_blocks, 0},
    {0},
};
