/* Makes random networks. */
#include "support/random_network.h"

#include "support/random_layers.h"

/* ---- one layer of each kind; false where the tensor at hand does not suit --------------------- */

static bool make_matmul(gen *g, trm_tensor *x)
{
    if (x->dims.n < 2) {
        return false;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL};
    desc.matmul.transpose_b = below(g, 2) == 0;
    desc.matmul.activation = below(g, 3) == 0 ? pick_activation(g) : TRM_ACTIVATION_NONE;
    int32_t n = x->dims.n;
    if (below(g, 6) == 0) { /* with another tensor, over the tokens or the features */
        trm_tensor *y = pick_like(g, x);
        desc.matmul.transpose_a = !desc.matmul.transpose_b;
        add_n(g, &desc, (trm_tensor *[]){x, y}, 2);
        return true;
    }
    int64_t depth = x->dims.d[n - 1], columns = pick_size(g);
    if (below(g, 6) == 0 && x->dims.d[n - 2] > 0) {
        desc.matmul.transpose_a = true;
        depth = x->dims.d[n - 2];
    }
    if (depth < 1) {
        return false;
    }
    trm_dims dims = {2, {desc.matmul.transpose_b ? columns : depth, desc.matmul.transpose_b ? depth : columns}};
    if (below(g, 4) == 0 && n > 2 && x->dims.d[n - 3] > 0) {
        dims = (trm_dims){3, {below(g, 2) == 0 ? 1 : x->dims.d[n - 3], dims.d[0], dims.d[1]}};
    }
    float spread = 1.5f / (float)depth;
    trm_tensor *bias = below(g, 2) == 0 ? constant(g, (trm_dims){1, {columns}}, 0.5f) : NULL;
    add_n(g, &desc, (trm_tensor *[]){x, constant(g, dims, spread), bias}, 3);
    return true;
}

static trm_tensor *random_weight(gen *g, trm_dtype dtype, trm_dims dims, float mean, float spread)
{
    trm_weight *weight;
    trm_tensor *tensor;
    assert_ok(trm_weight_random(dtype, &dims, test_random(&g->seed), mean, spread, &weight));
    assert_ok(trm_network_add_weight(g->network, "weight", weight, dtype, &tensor));
    return tensor;
}

/* One to three products of x with quantized weights that differ only in their rows. */
static bool make_dequant_matmul(gen *g, trm_tensor *x)
{
    static const trm_dtype types[] = {TRM_F8E4M3, TRM_I8, TRM_U8};
    static const float spreads[] = {16.0f, 127.0f, 127.5f}, units[] = {16.0f, 127.0f, 8.0f};
    static const int32_t block_n[] = {1, 1, 1, 2, 3, 4}, block_k[] = {0, 1, 2, 2, 3, 4};
    const int64_t depth = x->dims.d[x->dims.n - 1], which = below(g, 3);
    trm_layer_desc desc = {.kind = TRM_LAYER_DEQUANT_MATMUL,
                           .dequant_matmul = {.block_n = block_n[below(g, 6)], .block_k = block_k[below(g, 6)]}};
    trm_dequant_matmul_params *p = &desc.dequant_matmul;
    const bool packed = types[which] == TRM_U8, has_bias = below(g, 2) == 0, has_zero = packed && below(g, 2) == 0;
    if (depth < 1 || (packed && (depth % 2 != 0 || p->block_k % 2 != 0))) {
        return false;
    }
    for (int64_t i = below(g, 3); i >= 0; i--) {
        const int64_t rows = pick_size(g) * (below(g, 2) == 0 ? p->block_n : 1);
        const trm_dims scale = {
            2, {(rows + p->block_n - 1) / p->block_n, p->block_k == 0 ? 1 : (depth + p->block_k - 1) / p->block_k}};
        const float unit = 1.0f / (units[which] * (float)depth);
        trm_tensor *inputs[TRM_DEQUANT_MATMUL_INPUT_COUNT] = {
            x, random_weight(g, types[which], (trm_dims){2, {rows, packed ? depth / 2 : depth}}, packed ? 127.5f : 0.0f,
                             spreads[which])};
        inputs[TRM_DEQUANT_MATMUL_SCALE] = random_weight(g, TRM_F32, scale, unit, unit / 2.0f);
        inputs[TRM_DEQUANT_MATMUL_BIAS] = has_bias ? constant(g, (trm_dims){1, {rows}}, 0.5f) : NULL;
        inputs[TRM_DEQUANT_MATMUL_ZERO_POINT] = has_zero ? random_weight(g, TRM_U8, scale, 8.0f, 7.5f) : NULL;
        add_n(g, &desc, inputs, TRM_DEQUANT_MATMUL_INPUT_COUNT);
    }
    return true;
}

static bool make_elementwise(gen *g, trm_tensor *x)
{
    static const trm_elementwise_op ops[] = {TRM_ELEMENTWISE_ADD, TRM_ELEMENTWISE_ADD, TRM_ELEMENTWISE_SUB,
                                             TRM_ELEMENTWISE_MUL, TRM_ELEMENTWISE_MIN, TRM_ELEMENTWISE_MAX};
    trm_layer_desc desc = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {ops[below(g, 6)]}};
    trm_tensor *y = pick_like(g, x);
    if (below(g, 2) == 0 || y == x) {
        trm_dims dims = x->dims;
        if (below(g, 3) == 0 && dims.n > 1) { /* fewer dimensions */
            dims.n--;
            memmove(dims.d, dims.d + 1, (size_t)dims.n * sizeof(dims.d[0]));
        }
        for (int32_t i = 0; i < dims.n; i++) {
            dims.d[i] = dims.d[i] < 0 || below(g, 3) == 0 ? 1 : dims.d[i];
        }
        y = constant(g, dims, 1.0f);
    }
    bool swap = below(g, 2) == 0;
    add_n(g, &desc, swap ? (trm_tensor *[]){y, x} : (trm_tensor *[]){x, y}, 2);
    return true;
}

static bool make_unary(gen *g, trm_tensor *x)
{
    static const trm_unary_op ops[] = {TRM_UNARY_ACTIVATION, TRM_UNARY_ACTIVATION, TRM_UNARY_NEG, TRM_UNARY_ABS,
                                       TRM_UNARY_LINEAR,     TRM_UNARY_LINEAR,     TRM_UNARY_ERF, TRM_UNARY_SOFTCAP};
    trm_layer_desc desc = {.kind = TRM_LAYER_UNARY, .unary = {.op = ops[below(g, 8)], .alpha = 0.75f}};
    desc.unary.activation = pick_activation(g);
    desc.unary.beta = desc.unary.op == TRM_UNARY_LINEAR && below(g, 2) == 0 ? 0.25f : 0.0f;
    if (desc.unary.activation == TRM_ACTIVATION_NONE && desc.unary.op == TRM_UNARY_ACTIVATION) {
        desc.unary.activation = TRM_ACTIVATION_SILU;
    }
    add(g, &desc, x);
    return true;
}

static bool make_glu(gen *g, trm_tensor *x)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_GLU, .glu = {pick_activation(g)}};
    if (below(g, 2) == 0) {
        add_n(g, &desc, (trm_tensor *[]){x, pick_like(g, x)}, 2);
        return true;
    }
    if (x->dims.d[x->dims.n - 1] < 2 || x->dims.d[x->dims.n - 1] % 2 != 0) {
        return false;
    }
    add(g, &desc, x);
    return true;
}

static bool make_norm(gen *g, trm_tensor *x)
{
    int64_t size = x->dims.d[x->dims.n - 1];
    if (size < 1) {
        return false;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_NORM, .norm = {.op = (trm_norm_op)below(g, 2), .eps = 0.1f}};
    desc.norm.residual = below(g, 2) == 0;
    desc.norm.weight_offset = below(g, 2) == 0 ? 1.0f : 0.0f;
    trm_tensor *inputs[4] = {x};
    int32_t n = 1;
    if (desc.norm.residual) {
        inputs[n++] = pick_like(g, x);
    }
    inputs[n++] = constant(g, (trm_dims){1, {size}}, 1.0f);
    if (desc.norm.op == TRM_NORM_LAYER && below(g, 2) == 0) {
        inputs[n++] = constant(g, (trm_dims){1, {size}}, 1.0f);
    }
    add_n(g, &desc, inputs, n);
    return true;
}

static bool make_softmax(gen *g, trm_tensor *x)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_SOFTMAX, .softmax = {pick_axis(g, x)}};
    add(g, &desc, x);
    return true;
}

static bool make_reduce(gen *g, trm_tensor *x)
{
    if (x->dims.n < 2) {
        return false;
    }
    static const trm_reduce_op ops[] = {TRM_REDUCE_SUM, TRM_REDUCE_SUM, TRM_REDUCE_AVG,
                                        TRM_REDUCE_MAX, TRM_REDUCE_MIN, TRM_REDUCE_PROD};
    trm_layer_desc desc = {.kind = TRM_LAYER_REDUCE, .reduce = {ops[below(g, 6)], pick_axis(g, x), below(g, 2) == 0}};
    trm_tensor *y = add(g, &desc, x);
    trm_layer_desc softcap = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_SOFTCAP, .alpha = 2.0f}};
    add(g, &softcap, y);
    return true;
}

/* Splits an axis in two, joins two, or puts a 1 somewhere. */
static bool make_reshape(gen *g, trm_tensor *x)
{
    trm_dims dims = x->dims, out = {0, {0}};
    int32_t axis = pick_axis(g, x);
    int64_t how = below(g, 3), factor = 1 + below(g, 4);
    bool joins = how == 0 && axis + 1 < dims.n && dims.d[axis] > 0 && dims.d[axis + 1] > 0;
    bool splits = how == 1 && dims.d[axis] > 0 && dims.d[axis] % factor == 0 && dims.n < 5;
    if (!joins && !splits && (how != 2 || dims.n > 4)) {
        return false;
    }
    for (int32_t i = 0; i < dims.n; i++) {
        bool copies = out.n == i && (dims.d[i] < 0 || below(g, 2) == 0);
        if (i == axis && joins) {
            out.d[out.n++] = dims.d[i] * dims.d[i + 1];
            i++;
        } else if (i == axis && splits) {
            out.d[out.n++] = factor;
            out.d[out.n++] = dims.d[i] / factor;
        } else {
            if (i == axis && how == 2) {
                copies = false;
                out.d[out.n++] = 1;
            }
            out.d[out.n++] = copies ? 0 : dims.d[i];
        }
    }
    int32_t inferred = 0;
    for (int32_t i = 0; i < out.n; i++) {
        inferred += out.d[i] < 0;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_RESHAPE, .reshape = {out}};
    if (inferred > 1) {
        return false;
    }
    add(g, &desc, x);
    return true;
}

static bool make_transpose(gen *g, trm_tensor *x)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_TRANSPOSE};
    for (int32_t i = 0; i < x->dims.n; i++) {
        int32_t j = (int32_t)below(g, i + 1);
        desc.transpose.perm[i] = desc.transpose.perm[j];
        desc.transpose.perm[j] = i;
    }
    add(g, &desc, x);
    return true;
}

static bool make_slice(gen *g, trm_tensor *x)
{
    int32_t axis = pick_axis(g, x);
    int64_t size = x->dims.d[axis];
    if (size < 2) {
        return false;
    }
    int64_t start = below(g, size), step = 1 + below(g, 2);
    int64_t end = below(g, 2) == 0 ? INT64_MAX : start + 1 + below(g, size - start);
    trm_layer_desc desc = {.kind = TRM_LAYER_SLICE,
                           .slice = {axis, below(g, 2) == 0 ? start : start - size, end, step}};
    add(g, &desc, x);
    return true;
}

static bool make_concat(gen *g, trm_tensor *x)
{
    int32_t axis = pick_axis(g, x);
    if (x->dims.d[axis] < 0) {
        return false;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_CONCAT, .concat = {axis}};
    trm_tensor *inputs[3] = {x, pick_like(g, x), x};
    add_n(g, &desc, inputs, 2 + (int32_t)below(g, 2));
    return true;
}

static bool make_gather(gen *g, trm_tensor *x)
{
    int32_t axis = pick_axis(g, x);
    if (x->dims.d[axis] < 0 || x->dims.n > 4) {
        return false;
    }
    trm_tensor *indices = g->ids;
    bool has_tokens = false;
    for (int32_t i = 0; i < x->dims.n; i++) {
        has_tokens = has_tokens || x->dims.d[i] < 0;
    }
    if (has_tokens || below(g, 2) == 0) {
        trm_dims dims = {1 + (int32_t)below(g, 2), {pick_size(g), 2}};
        int32_t values[32];
        for (int64_t i = 0; i < trm_dims_count(&dims); i++) {
            values[i] = (int32_t)(below(g, 2 * x->dims.d[axis] + 1) - x->dims.d[axis]);
        }
        assert_ok(trm_network_add_constant(g->network, "indices", TRM_I32, dims, values, &indices));
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_GATHER, .gather = {axis}};
    add_n(g, &desc, (trm_tensor *[]){x, indices}, 2);
    return true;
}

static bool make_embedding(gen *g, trm_tensor *x)
{
    (void)x;
    trm_layer_desc desc = {.kind = TRM_LAYER_EMBEDDING, .embedding = {below(g, 3) == 0 ? 1 : 0}};
    trm_dims dims = {2, {IDS - below(g, 2), pick_size(g)}};
    add_n(g, &desc, (trm_tensor *[]){constant(g, dims, 1.0f), g->ids}, 2);
    return true;
}

static bool make_cast(gen *g, trm_tensor *x)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_CAST, .cast = {TRM_F32}};
    add(g, &desc, x);
    return true;
}

/* ---- kinds of general networks ------------------------------------------------------------------ */

static trm_tensor *integers(gen *g, const int64_t *values, int64_t n)
{
    trm_tensor *tensor;
    assert_ok(trm_network_add_constant(g->network, "integers", TRM_I64, (trm_dims){1, {n}}, values, &tensor));
    return tensor;
}

/* A new axis in front, or one of size 1 repeated; sizes as parameters or as an input. */
static bool make_expand(gen *g, trm_tensor *x)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_EXPAND};
    if (has_unknown(x) || x->dims.n > 3) {
        return false;
    }
    trm_dims *dims = &desc.expand.dims;
    dims->n = x->dims.n + 1;
    dims->d[0] = 1 + below(g, 4);
    for (int32_t i = 0; i < x->dims.n; i++) {
        dims->d[i + 1] = x->dims.d[i] == 1 ? pick_size(g) : below(g, 2) == 0 ? 1 : x->dims.d[i];
    }
    if (below(g, 2) == 0) {
        add_n(g, &desc, (trm_tensor *[]){x, integers(g, dims->d, dims->n)}, 2);
    } else {
        add(g, &desc, x);
    }
    return true;
}

static bool make_tile(gen *g, trm_tensor *x)
{
    int64_t repeats[TRM_MAX_DIMS];
    for (int32_t i = 0; i < x->dims.n; i++) {
        repeats[i] = x->dims.d[i] > 0 && x->dims.d[i] < 4 ? 1 + below(g, 3) : 1;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_TILE};
    add_n(g, &desc, (trm_tensor *[]){x, integers(g, repeats, x->dims.n)}, 2);
    return true;
}

/* The last two axes joined, by a shape computed from the dims. */
static bool make_reshape_by_shape(gen *g, trm_tensor *x)
{
    int32_t n = x->dims.n;
    if (n < 3 || x->dims.d[n - 1] < 1 || x->dims.d[n - 2] < 1) {
        return false;
    }
    trm_layer_desc shape = {.kind = TRM_LAYER_SHAPE, .shape = {0, x->dims.n - 2}}, concat = {.kind = TRM_LAYER_CONCAT};
    trm_layer_desc reshape = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = x->dims}};
    reshape.reshape.dims.d[--reshape.reshape.dims.n - 1] *= x->dims.d[n - 1]; /* what is known of the result */
    static const int64_t rest = -1;
    trm_tensor *front = add(g, &shape, x);
    add_n(g, &reshape, (trm_tensor *[]){x, add_n(g, &concat, (trm_tensor *[]){front, integers(g, &rest, 1)}, 2)}, 2);
    return true;
}

static bool make_pad(gen *g, trm_tensor *x)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_PAD, .pad = {.mode = below(g, 2) == 0 ? TRM_PAD_CONSTANT : TRM_PAD_EDGE}};
    for (int32_t i = 0; i < x->dims.n; i++) {
        bool pads = x->dims.d[i] > 0 && below(g, 2) == 0;
        desc.pad.before[i] = pads ? (int32_t)below(g, 3) : 0;
        desc.pad.after[i] = pads ? (int32_t)below(g, 2) : 0;
    }
    add(g, &desc, x);
    return true;
}

static bool make_select(gen *g, trm_tensor *x)
{
    trm_layer_desc greater = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {TRM_ELEMENTWISE_GREATER}};
    trm_layer_desc select = {.kind = TRM_LAYER_SELECT};
    trm_dims dims = x->dims;
    for (int32_t i = 0; i < dims.n; i++) {
        dims.d[i] = dims.d[i] < 0 || below(g, 3) == 0 ? 1 : dims.d[i];
    }
    trm_tensor *of = constant(g, dims, 1.0f), *zero = constant(g, (trm_dims){1, {1}}, 0.0f);
    trm_tensor *condition = add_n(g, &greater, (trm_tensor *[]){of, zero}, 2); /* of constants: the same on all ranks */
    add_n(g, &select, (trm_tensor *[]){condition, x, pick_like(g, x)}, 3);
    return true;
}

static bool make_cumulative(gen *g, trm_tensor *x)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_CUMULATIVE, .cumulative = {.axis = pick_axis(g, x)}};
    trm_layer_desc softcap = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_SOFTCAP, .alpha = 2.0f}};
    desc.cumulative.reverse = below(g, 2) == 0;
    add(g, &softcap, add(g, &desc, x));
    return true;
}

static bool make_topk(gen *g, trm_tensor *x)
{
    int32_t axis = pick_axis(g, x);
    if (x->dims.d[axis] < 1) {
        return false;
    }
    int64_t k = 1 + below(g, x->dims.d[axis]);
    trm_layer_desc desc = {.kind = TRM_LAYER_TOPK, .topk = {.axis = axis, .sorted = true}};
    add_n(g, &desc, (trm_tensor *[]){x, integers(g, &k, 1)}, 2);
    return true;
}

/* Images [N, C, H, W]: convolved, with groups or none, bias, activation. */
static bool make_convolution(gen *g, trm_tensor *x)
{
    if (x->dims.n != 4 || has_unknown(x)) {
        return false;
    }
    int64_t channels = x->dims.d[1], groups = below(g, 2) == 0 && channels % 2 == 0 ? 2
                                              : below(g, 3) == 0                    ? channels
                                                                                    : 1;
    int64_t out = groups * (1 + below(g, 4));
    trm_layer_desc desc = {.kind = TRM_LAYER_CONVOLUTION};
    trm_convolution_params *p = &desc.convolution;
    p->groups = (int32_t)groups;
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        p->stride[i] = p->dilation[i] = 1;
        p->before[i] = p->after[i] = i < 2;
    }
    p->activation = below(g, 2) == 0 ? TRM_ACTIVATION_RELU : TRM_ACTIVATION_NONE;
    trm_dims w = {4, {out, channels / groups, 1 + below(g, 3), 1 + below(g, 3)}};
    float spread = 1.0f / (float)(w.d[1] * w.d[2] * w.d[3]);
    trm_tensor *bias = below(g, 2) == 0 ? constant(g, (trm_dims){1, {out}}, 0.5f) : NULL;
    add_n(g, &desc, (trm_tensor *[]){x, constant(g, w, spread), bias}, 3);
    return true;
}

static bool make_pool(gen *g, trm_tensor *x)
{
    if (x->dims.n != 4 || has_unknown(x)) {
        return false;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_POOL, .pool = {.op = below(g, 2) == 0 ? TRM_POOL_MAX : TRM_POOL_AVERAGE}};
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        desc.pool.kernel[i] = i < 2 ? 2 : 1;
        desc.pool.stride[i] = desc.pool.dilation[i] = 1;
        desc.pool.before[i] = i < 2;
    }
    add(g, &desc, x);
    return true;
}

static bool make_group_norm(gen *g, trm_tensor *x)
{
    if (x->dims.n < 3 || has_unknown(x)) {
        return false;
    }
    int64_t channels = x->dims.d[1];
    trm_layer_desc desc = {.kind = TRM_LAYER_GROUP_NORM, .group_norm = {.eps = 0.1f}};
    desc.group_norm.groups = below(g, 2) == 0 ? 0 : channels % 2 == 0 ? 2 : 1;
    trm_dims dims = {1, {channels}};
    add_n(g, &desc, (trm_tensor *[]){x, constant(g, dims, 1.0f), constant(g, dims, 1.0f)}, 3);
    return true;
}

/* Elements by index along an axis, and the same scattered back. */
static bool make_gather_elements(gen *g, trm_tensor *x)
{
    int32_t axis = pick_axis(g, x);
    if (has_unknown(x)) {
        return false;
    }
    int64_t count = trm_dims_count(&x->dims);
    int64_t *values = calloc((size_t)count, sizeof(*values));
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = below(g, x->dims.d[axis]);
    }
    trm_tensor *indices;
    assert_ok(trm_network_add_constant(g->network, "indices", TRM_I64, x->dims, values, &indices));
    free(values);
    trm_layer_desc gather = {.kind = TRM_LAYER_GATHER_ELEMENTS, .gather_elements = {axis}};
    trm_layer_desc scatter = {.kind = TRM_LAYER_SCATTER, .scatter = {TRM_SCATTER_ELEMENTS, TRM_SCATTER_ADD, axis}};
    trm_tensor *gathered = add_n(g, &gather, (trm_tensor *[]){x, indices}, 2);
    if (below(g, 2) == 0) {
        trm_layer_desc softcap = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_SOFTCAP, .alpha = 2.0f}};
        add(g, &softcap, add_n(g, &scatter, (trm_tensor *[]){x, indices, gathered}, 3));
    }
    return true;
}

/* A weight of all experts, whose last axis has the columns, and its scale and zero point where they are stored so:
 * inputs[0], [2] and [6], as those of an EXPERTS layer lie. */
static void make_experts_weight(gen *g, trm_dtype type, bool zeros, trm_dims dims, trm_tensor **inputs)
{
    const int64_t columns = dims.d[dims.n - 1], packed = type == TRM_U8 ? 2 : 1;
    const float spread = 2.0f / (float)columns;
    if (type == TRM_DTYPE_NONE) {
        inputs[0] = constant(g, dims, spread);
        return;
    }
    const float unit = spread / (type == TRM_F8E4M3 ? 16.0f : type == TRM_I8 ? 127.0f : 8.0f);
    const int64_t groups = type == TRM_F8E4M3 || below(g, 2) == 0 ? 1 : columns / packed; /* of a byte each */
    trm_dims scale = dims;
    dims.d[dims.n - 1] = columns / packed;
    scale.d[scale.n - 1] = groups;
    inputs[0] = random_weight(g, type, dims, packed == 2 ? 127.5f : 0.0f, packed == 2 ? 127.5f : 16.0f);
    inputs[2] = random_weight(g, TRM_F32, scale, unit, unit / 2.0f);
    inputs[6] = zeros ? random_weight(g, TRM_U8, scale, 8.0f, 7.5f) : NULL;
}

/* A router and its experts. Corrections far apart decide the choice, which the last bits of logits must not. */
static bool make_mixture(gen *g, trm_tensor *x)
{
    if (x->dims.n != 2 || x->dims.d[1] < 1) {
        return false;
    }
    const int64_t experts = 1 + below(g, 8), hidden = x->dims.d[1], width = 1 + below(g, 8);
    trm_layer_desc router = {.kind = TRM_LAYER_ROUTER,
                             .router = {.k = 1 + (int32_t)below(g, experts),
                                        .scoring = (trm_router_scoring)below(g, TRM_ROUTER_SCORING_COUNT),
                                        .renormalize = below(g, 2) == 0,
                                        .epsilon = 0.01f,
                                        .scale = 0.5f}};
    const bool mixes = router.router.scoring == TRM_ROUTER_SPARSE_MIXER; /* what is far apart is a bias then */
    router.router.renormalize = router.router.renormalize && !mixes;
    trm_layer_desc mixture = {.kind = TRM_LAYER_EXPERTS,
                              .experts = {.activation = (trm_expert_activation)below(g, TRM_EXPERT_ACTIVATION_COUNT),
                                          .interleaved = below(g, 2) == 0,
                                          .weighted_input = below(g, 4) == 0,
                                          .limit = below(g, 2) == 0 ? 0.5f : 0.0f,
                                          .alpha = 1.7f}};
    const int64_t halves = mixture.experts.activation == TRM_EXPERT_RELU2 ? 1 : 2;
    float *order = calloc((size_t)experts, sizeof(*order));
    assert_non_null(order);
    for (int64_t i = 0; i < experts; i++) {
        order[i] = 10.0f * (float)((i * 5 + experts) % 11);
    }
    trm_tensor *correction, *chosen[2], *outputs[1];
    assert_ok(
        trm_network_add_constant(g->network, "correction", TRM_F32, (trm_dims){1, {experts}}, order, &correction));
    free(order);
    const bool biased = below(g, 2) == 0;
    trm_tensor *router_inputs[TRM_ROUTER_INPUT_COUNT] = {x,
                                                         constant(g, trm_dims2(experts, hidden), 1.0f / (float)hidden),
                                                         mixes ? correction : NULL, mixes ? NULL : correction, NULL};
    assert_ok(trm_network_add_layer(g->network, "router", &router, router_inputs, TRM_ROUTER_INPUT_COUNT, chosen));
    trm_dims gate_up = {4, {experts, halves, width, hidden}}, bias = {3, {experts, halves, width}};
    if (mixture.experts.interleaved) {
        gate_up = (trm_dims){4, {experts, width, halves, hidden}};
        bias = (trm_dims){3, {experts, width, halves}};
    }
    static const trm_dtype types[] = {TRM_DTYPE_NONE, TRM_F8E4M3, TRM_I8, TRM_U8};
    trm_dtype type = types[below(g, 4)];
    type = type == TRM_U8 && (hidden % 2 != 0 || width % 2 != 0) ? TRM_I8 : type;
    const bool zeros = type == TRM_U8 && below(g, 2) == 0;
    trm_tensor *inputs[TRM_EXPERTS_INPUT_COUNT] = {x, chosen[0], chosen[1]};
    make_experts_weight(g, type, zeros, gate_up, &inputs[TRM_EXPERTS_GATE_UP]);
    make_experts_weight(g, type, zeros, trm_dims3(experts, hidden, width), &inputs[TRM_EXPERTS_DOWN]);
    inputs[TRM_EXPERTS_GATE_UP_BIAS] = biased ? constant(g, bias, 0.2f) : NULL;
    inputs[TRM_EXPERTS_DOWN_BIAS] = biased ? constant(g, trm_dims2(experts, hidden), 0.2f) : NULL;
    assert_ok(trm_network_add_layer(g->network, "experts", &mixture, inputs, TRM_EXPERTS_INPUT_COUNT, outputs));
    if (g->n_pool < MAX_POOL) {
        g->pool[g->n_pool++] = outputs[0];
    }
    return true;
}

/* ---- the network ------------------------------------------------------------------------------- */

typedef bool (*maker)(gen *g, trm_tensor *x);

static const maker makers[] = {
    make_matmul,
    make_matmul,
    make_matmul,
    make_matmul,
    make_dequant_matmul,
    make_dequant_matmul,
    make_elementwise,
    make_elementwise,
    make_unary,
    make_unary,
    make_glu,
    make_norm,
    make_softmax,
    make_reduce,
    make_reduce,
    make_reshape,
    make_reshape,
    make_reshape,
    make_transpose,
    make_slice,
    make_concat,
    make_gather,
    make_embedding,
    make_cast,
    test_make_rope,
    test_make_packed_attention,
    test_make_latent_attention,
    test_make_latent_attention,
    test_make_delta,
    test_make_delta,
    test_make_scan,
    test_make_lora,
    test_make_scan,
    test_make_lora,
    test_make_plugin,
    test_make_plugin,
    test_make_padded_attention,
    test_make_written_attention,
    test_make_rotate,
    make_expand,
    make_tile,
    make_reshape_by_shape,
    make_pad,
    make_select,
    make_cumulative,
    make_topk,
    make_convolution,
    make_convolution,
    make_pool,
    make_group_norm,
    make_gather_elements,
    make_mixture,
    make_mixture,
};

static void add_input(gen *g, const char *name, trm_dtype dtype, trm_dims dims, trm_tensor **tensor)
{
    assert_ok(trm_network_add_input(g->network, name, dtype, dims, tensor));
    if (dtype == TRM_F32) {
        g->pool[g->n_pool++] = *tensor;
    }
}

trm_network *test_random_network(uint64_t seed, int32_t n_layers)
{
    gen g = {.seed = seed};
    trm_tensor *x;
    assert_ok(trm_network_create(&g.network));
    const bool images_first = below(&g, 3) == 0; /* theirs is the batch */
    const trm_dims images = {4, {1 + below(&g, 4), pick_size(&g), pick_size(&g), 4}};
    if (images_first) {
        add_input(&g, "batch", TRM_F32, images, &x);
    }
    add_input(&g, "ids", TRM_I32, (trm_dims){1, {-1}}, &g.ids);
    add_input(&g, "positions", TRM_I32, (trm_dims){1, {-1}}, &g.positions);
    add_input(&g, "tokens", TRM_F32, (trm_dims){2, {-1, pick_size(&g)}}, &x);
    add_input(&g, "block", TRM_F32, (trm_dims){3, {pick_size(&g), pick_size(&g), pick_size(&g)}}, &x);
    if (!images_first) {
        add_input(&g, "batch", TRM_F32, images, &x);
    }
    for (int32_t i = 0; g.network->n_layers < n_layers && i < 20 * n_layers; i++) {
        trm_tensor *input = pick(&g);
        int64_t count = 1;
        for (int32_t k = 0; k < input->dims.n; k++) {
            count *= input->dims.d[k] < 0 ? 4 : input->dims.d[k];
        }
        if (count <= 4096 && input->dims.n > 0) {
            makers[below(&g, (int64_t)(sizeof(makers) / sizeof(makers[0])))](&g, input);
        }
    }
    for (int32_t i = 0; i < g.network->n_tensors; i++) {
        trm_tensor *tensor = g.network->tensors[i];
        if (tensor->role == TRM_TENSOR_ACTIVATION &&
            (trm_network_consumers(g.network, tensor, NULL, 0) == 0 || below(&g, 10) == 0) &&
            tensor->dtype == TRM_F32) {
            assert_ok(trm_network_mark_output(g.network, tensor));
        }
    }
    return g.network;
}

void test_random_input(const trm_tensor *input, int64_t tokens, uint64_t seed, trm_dims *dims, void *data)
{
    *dims = input->dims;
    for (int32_t i = 0; i < dims->n; i++) {
        dims->d[i] = dims->d[i] < 0 ? tokens : dims->d[i];
    }
    for (int64_t i = 0; i < trm_dims_count(dims); i++) {
        if (input->dtype == TRM_F32) {
            ((float *)data)[i] = test_random_float(&seed);
        } else if (strcmp(input->name, "starts") == 0) {
            ((int32_t *)data)[i] = i == 0 ? 0 : (int32_t)tokens;
        } else if (strcmp(input->name, "lengths") == 0) {
            ((int32_t *)data)[i] = (int32_t)tokens;
        } else if (strcmp(input->name, "table") == 0 || strcmp(input->name, "slots") == 0) {
            ((int32_t *)data)[i] = 0;
        } else {
            ((int32_t *)data)[i] = (int32_t)test_random_below(&seed, IDS);
        }
    }
}
