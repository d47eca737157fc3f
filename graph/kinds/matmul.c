/*
 * Matrix products and what passes join to them: matmul, glu, matmul_glu, norm_matmul, dequant_matmul and that of a
 * norm or a GLU.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"

static trm_status infer_matmul(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 3));
    const trm_matmul_params *matmul = &call->desc->matmul;
    const trm_dims *a = call->dims[0], *b = call->dims[1];
    char text_a[TRM_DIMS_TEXT_SIZE], text_b[TRM_DIMS_TEXT_SIZE];
    if (a->n < 2 || b->n < 2) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a has dims %s and b %s, expected at least 2 dimensions each",
                 trm_dims_format(a, text_a), trm_dims_format(b, text_b));
    }
    const trm_dtype type = call->dtypes[0];
    const bool narrow = type == TRM_F32 || type == TRM_F16 || type == TRM_BF16;
    if (type == TRM_DTYPE_NONE || type >= TRM_BOOL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a has type %s, expected numbers", trm_dtype_name(type));
    }
    TRM_TRY(trm_infer_require_dtype(call, 1, "b", type));
    TRM_TRY(trm_infer_require_activation(matmul->activation));
    if (!trm_dtype_is_float(type) && matmul->activation != TRM_ACTIVATION_NONE) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a has type %s and the product an activation, expected a float type",
                 trm_dtype_name(type));
    }
    if (!narrow && matmul->out != TRM_DTYPE_NONE && matmul->out != type) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "out is %s, expected %s", trm_dtype_name(matmul->out),
                 trm_dtype_name(type));
    }
    if (narrow && matmul->out != TRM_DTYPE_NONE && !trm_dtype_is_float(matmul->out)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "out is %s, expected a float type", trm_dtype_name(matmul->out));
    }
    int64_t rows = a->d[a->n - (matmul->transpose_a ? 1 : 2)], depth_a = a->d[a->n - (matmul->transpose_a ? 2 : 1)];
    int64_t depth_b = b->d[b->n - (matmul->transpose_b ? 1 : 2)], columns = b->d[b->n - (matmul->transpose_b ? 2 : 1)];
    if (!trm_dim_fits(depth_a, depth_b)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a %s%s has K %" PRId64 ", b %s%s has K %" PRId64 ", expected the same",
                 trm_dims_format(a, text_a), matmul->transpose_a ? " transposed" : "", depth_a,
                 trm_dims_format(b, text_b), matmul->transpose_b ? " transposed" : "", depth_b);
    }
    trm_dims *out = &call->output_dims[0];
    TRM_TRY(trm_infer_broadcast(a, b, 2, out));
    out->d[out->n++] = rows;
    out->d[out->n++] = columns;
    if (trm_infer_has(call, 2)) {
        const trm_dims *bias = call->dims[2];
        trm_dims expected = bias->n > 1 ? *b : trm_dims1(columns);
        if (bias->n > 1) {
            expected.d[expected.n - 2] = 1;
            expected.d[expected.n - 1] = columns;
        }
        TRM_TRY(trm_infer_require_dims(call, 2, "bias", expected));
        TRM_TRY(trm_infer_require_dtype(call, 2, "bias", call->dtypes[0]));
        out->d[out->n - 1] = trm_dim_known(columns, bias->d[bias->n - 1]);
    }
    call->output_dtypes[0] = matmul->out == TRM_DTYPE_NONE ? call->dtypes[0] : matmul->out;
    return TRM_OK;
}

static int32_t link_matmul(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_matmul_params *matmul = &layer->desc.matmul;
    const trm_dims *in = &layer->inputs[i]->dims, *out = &layer->outputs[0]->dims;
    if (k == out->n - 1) {
        return i == 0 ? TRM_LINK_WHOLE : i == 1 ? in->n - (matmul->transpose_b ? 2 : 1) : in->n - 1;
    }
    if (k == out->n - 2) {
        return i == 0 ? in->n - (matmul->transpose_a ? 1 : 2) : TRM_LINK_WHOLE;
    }
    return i == 2 && in->n == 1 ? TRM_LINK_WHOLE : trm_broadcast_axis_link(in, out, k);
}
static void sizes_of_matmul(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_linked_to(walk, layer, link_matmul, 2);
}

static bool matmul_keeps_zero(const trm_layer *layer, uint32_t split)
{
    return trm_activation_keeps_zero(layer->desc.matmul.activation) && (layer->n_inputs < 3 || (split >> 2 & 1) != 0);
}

static int32_t inner_axis(const trm_layer *layer)
{
    return layer->inputs[0]->dims.n - (layer->desc.matmul.transpose_a ? 2 : 1);
}

/* The inner axis split on both sides: every rank has a summand of the product. A bias goes into the first. */
static trm_status shard_inner(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    const int32_t axis_a = inner_axis(layer);
    const int32_t axis_b = layer->inputs[1]->dims.n - (layer->desc.matmul.transpose_b ? 1 : 2);
    if (layer->desc.matmul.activation != TRM_ACTIVATION_NONE ||
        layer->inputs[0]->dims.d[axis_a] != layer->inputs[1]->dims.d[axis_b]) {
        return TRM_OK;
    }
    trm_way way = trm_way_whole();
    way.in[0] = trm_split(axis_a, parts);
    way.in[1] = trm_split(axis_b, parts);
    way.out[0] = trm_partial(parts);
    return taker->take(taker, layer, &way);
}

static bool matmul_has_weight(const trm_layer_desc *desc)
{
    return desc->matmul.transpose_b && !desc->matmul.transpose_a;
}

static double matmul_depth(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    return trm_known_dim(in[0].d[inner_axis(layer)], unknown);
}

const trm_kind trm_kind_matmul = {
    TRM_FIELDS(TRM_FIELD(BOOL, matmul, transpose_a), TRM_FIELD(BOOL, matmul, transpose_b),
               TRM_FIELD(ENUM, matmul, activation, .values = TRM_NAMES(TRM_ACTIVATIONS)),
               TRM_FIELD(DTYPE, matmul, out)),
    .traits = TRM_KIND_PRODUCT | TRM_KIND_TAKES_TIME,
    .infer = infer_matmul,
    .link = link_matmul,
    .sizes = sizes_of_matmul,
    .linear = {1, 2},
    .linear_if = {TRM_AT(matmul.activation), 1u << TRM_ACTIVATION_NONE},
    .added = 1u << 2,
    .keeps_zero = matmul_keeps_zero,
    .shard = shard_inner,
    .shard_batch = shard_inner,
    .weight = 1,
    .has_weight = matmul_has_weight,
    .multiplications = matmul_depth,
};

static trm_status infer_glu(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 2));
    TRM_TRY(trm_infer_require_float(call, 0, "gate"));
    TRM_TRY(trm_infer_require_activation(call->desc->glu.activation));
    const trm_dims *gate = call->dims[0];
    trm_dims *out = &call->output_dims[0];
    *out = *gate;
    call->output_dtypes[0] = call->dtypes[0];
    if (call->n_inputs == 2) {
        TRM_TRY(trm_infer_require_dims(call, 1, "up", *gate));
        TRM_TRY(trm_infer_require_dtype(call, 1, "up", call->dtypes[0]));
        for (int32_t i = 0; i < gate->n; i++) {
            out->d[i] = trm_dim_known(gate->d[i], call->dims[1]->d[i]);
        }
        return TRM_OK;
    }
    char text[TRM_DIMS_TEXT_SIZE];
    if (gate->n < 1 || (gate->d[gate->n - 1] != -1 && gate->d[gate->n - 1] % 2 != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "gate_up has dims %s, expected an even last dimension",
                 trm_dims_format(gate, text));
    }
    if (gate->d[gate->n - 1] != -1) {
        out->d[gate->n - 1] /= 2;
    }
    return TRM_OK;
}

static int32_t link_glu(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)i;
    return k == layer->outputs[0]->dims.n - 1 && layer->n_inputs == 1 ? TRM_LINK_NEVER : k;
}

static bool glu_is_linear(const trm_layer *layer, uint32_t set)
{
    (void)set;
    return layer->n_inputs == 2;
}

static const trm_field glu_fields[] = {
    TRM_FIELD(ENUM, glu, activation, .always = true, .values = TRM_NAMES(TRM_ACTIVATIONS)),
};
const trm_kind trm_kind_glu = {
    TRM_FIELDS_OF(glu_fields),    .infer = infer_glu,  .link = link_glu,
    .sizes = trm_sizes_of_first,  .linear = {1u << 1}, .is_linear = glu_is_linear,
    .keeps_zero = trm_keeps_zero,
};

/* A product, then a GLU of it. */
static trm_status infer_matmul_glu(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    TRM_TRY(trm_infer_require_rank(call, 1, "weight", 2));
    trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_infer_call inner = *call;
    inner.desc = &desc;
    TRM_TRY(infer_matmul(&inner));
    const trm_dims product = call->output_dims[0], *given = &product;
    desc = (trm_layer_desc){.kind = TRM_LAYER_GLU, .glu = call->desc->glu};
    inner.dims = &given;
    inner.dtypes = call->dtypes;
    inner.values = NULL;
    inner.n_inputs = 1;
    return infer_glu(&inner);
}

/* All axes of x but the last; the sum of a norm has that, too. */
static void sizes_of_product(trm_size_walk *walk, const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        trm_sizes_follow(walk, layer->outputs[i], layer->inputs[0], layer->inputs[0]->dims.n - (i == 0));
    }
}

const trm_kind trm_kind_matmul_glu = {
    TRM_FIELDS_OF(glu_fields),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_matmul_glu,
    .sizes = sizes_of_product,
    .weight = 1,
};

/* The rule of a norm, then that of a product or of one with its GLU. */
static trm_status infer_norm_matmul(const trm_infer_call *call)
{
    const trm_norm_matmul_params *p = &call->desc->norm_matmul;
    TRM_TRY(
        trm_infer_require_inputs(call, 2, p->residual ? TRM_NORM_MATMUL_INPUT_COUNT : TRM_NORM_MATMUL_INPUT_COUNT - 1));
    if (p->residual && !trm_infer_has(call, TRM_NORM_MATMUL_RESIDUAL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "residual is not given");
    }
    TRM_TRY(trm_infer_require_rank(call, TRM_NORM_MATMUL_WEIGHT, "weight", 2));
    const bool has_bias = trm_infer_has(call, TRM_NORM_MATMUL_BIAS);
    if (p->gated && (has_bias || (p->out != TRM_DTYPE_NONE && p->out != call->dtypes[0]))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a gated product has %s, expected none",
                 has_bias ? "a bias" : "another type of output");
    }
    const trm_norm_params norm = {.residual = p->residual, .eps = p->eps, .weight_offset = p->weight_offset};
    trm_dims norm_dims[2];
    trm_dtype norm_dtypes[2];
    TRM_TRY(trm_kind_infer_norm(call, &norm, TRM_NORM_MATMUL_RESIDUAL, TRM_NORM_MATMUL_NORM_WEIGHT, norm_dims,
                                norm_dtypes));
    const trm_dims *product_dims[] = {&norm_dims[0], call->dims[1], has_bias ? call->dims[2] : NULL};
    const trm_dtype product_dtypes[] = {norm_dtypes[0], call->dtypes[1], has_bias ? call->dtypes[2] : TRM_DTYPE_NONE};
    const trm_layer_desc desc =
        p->gated ? (trm_layer_desc){.kind = TRM_LAYER_MATMUL_GLU, .glu = {p->activation}}
                 : (trm_layer_desc){.kind = TRM_LAYER_MATMUL,
                                    .matmul = {.transpose_b = true, .activation = p->activation, .out = p->out}};
    trm_infer_call inner = *call;
    inner.desc = &desc;
    inner.values = NULL;
    inner.dims = product_dims;
    inner.dtypes = product_dtypes;
    inner.n_inputs = has_bias ? 3 : 2;
    TRM_TRY(p->gated ? infer_matmul_glu(&inner) : infer_matmul(&inner));
    if (p->residual) {
        call->output_dims[1] = norm_dims[1];
        call->output_dtypes[1] = norm_dtypes[1];
    }
    return TRM_OK;
}

const trm_kind trm_kind_norm_matmul = {
    TRM_FIELDS(TRM_FIELD(BOOL, norm_matmul, residual), TRM_FIELD(BOOL, norm_matmul, gated),
               TRM_FIELD(FLOAT, norm_matmul, eps, .always = true), TRM_FIELD(FLOAT, norm_matmul, weight_offset),
               TRM_FIELD(ENUM, norm_matmul, activation, .values = TRM_NAMES(TRM_ACTIVATIONS)),
               TRM_FIELD(DTYPE, norm_matmul, out)),
    .infer = infer_norm_matmul,
    .second_output = TRM_AT(norm_matmul.residual),
    .sizes = sizes_of_product,
    .weight = TRM_NORM_MATMUL_WEIGHT,
};

/* ---- quantized weights ------------------------------------------------------------------------- */

/* Positive, and even where numbers have 4 bits: a block begins with a byte. */
static trm_status check_blocks(const trm_dequant_matmul_params *p, bool packed)
{
    if (p->block_n < 1 || p->block_k < 0 || (packed && p->block_k % 2 != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "block_n is %" PRId32 " and block_k %" PRId32 ", expected at least 1 and 0%s", p->block_n, p->block_k,
                 packed ? ", block_k even" : "");
    }
    return TRM_OK;
}

/* x is quantized to the type of the weight, by a scale that is there. */
static trm_status check_x_quantization(const trm_dequant_matmul_params *p, trm_dtype weight)
{
    const bool is_static = p->x_quantization == TRM_X_STATIC;
    if ((uint32_t)p->x_quantization > TRM_X_DYNAMIC) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x_quantization is %d, expected 0 to %d", (int)p->x_quantization,
                 (int)TRM_X_DYNAMIC);
    }
    if (p->x_quantization != TRM_X_AS_IS && weight != TRM_F8E4M3 && weight != TRM_I8) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x is quantized and the weight of type %s, expected f8e4m3 or i8",
                 trm_dtype_name(weight));
    }
    if (!(p->x_scale >= 0.0f) || isinf(p->x_scale) || (is_static && p->x_scale == 0.0f)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x_scale is %g, expected a number %s 0", (double)p->x_scale,
                 is_static ? "above" : "of at least");
    }
    return TRM_OK;
}

static int64_t blocks_of(int64_t size, int32_t block)
{
    return size < 0 ? -1 : block == 0 ? 1 : (size + block - 1) / block;
}

static trm_status infer_dequant_matmul(const trm_infer_call *call)
{
    enum {
        X = TRM_DEQUANT_MATMUL_X,
        WEIGHT = TRM_DEQUANT_MATMUL_WEIGHT,
        SCALE = TRM_DEQUANT_MATMUL_SCALE,
        BIAS = TRM_DEQUANT_MATMUL_BIAS,
        ZERO_POINT = TRM_DEQUANT_MATMUL_ZERO_POINT
    };
    const trm_dequant_matmul_params *p = &call->desc->dequant_matmul;
    TRM_TRY(trm_infer_require_inputs(call, 3, TRM_DEQUANT_MATMUL_INPUT_COUNT));
    TRM_TRY(trm_infer_require_float(call, X, "x"));
    TRM_TRY(trm_infer_require_float(call, SCALE, "scale"));
    TRM_TRY(trm_infer_require_rank(call, WEIGHT, "weight", 2));
    const trm_dtype type = call->dtypes[WEIGHT];
    const bool packed = type == TRM_U8 || type == TRM_F4E2M1;
    if ((!packed && type != TRM_I8 && type != TRM_F8E4M3) || call->dtypes[X] == TRM_F64 ||
        call->dtypes[SCALE] == TRM_F64 || p->out == TRM_F64) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "x has type %s, weight %s, scale %s, expected f32, f16 or bf16, and f8e4m3, f4e2m1, i8 or u8 for "
                 "the weight",
                 trm_dtype_name(call->dtypes[X]), trm_dtype_name(type), trm_dtype_name(call->dtypes[SCALE]));
    }
    if (p->out != TRM_DTYPE_NONE && !trm_dtype_is_float(p->out)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "out is %s, expected f32, f16 or bf16", trm_dtype_name(p->out));
    }
    TRM_TRY(check_blocks(p, packed));
    TRM_TRY(check_x_quantization(p, type));
    const trm_dims *x = call->dims[X], *weight = call->dims[WEIGHT];
    trm_dims *out = &call->output_dims[0];
    const int64_t stored = weight->d[1], columns = packed && stored > 0 ? 2 * stored : stored;
    char text[TRM_DIMS_TEXT_SIZE];
    if (x->n < 1 || !trm_dim_fits(x->d[x->n - 1], columns)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has dims %s, expected [..., %" PRId64 "], what the weight has columns",
                 trm_dims_format(x, text), columns);
    }
    const trm_dims blocks = {2, {blocks_of(weight->d[0], p->block_n), blocks_of(columns, p->block_k)}};
    TRM_TRY(trm_infer_require_dims(call, SCALE, "scale", blocks));
    *out = *x;
    out->d[out->n - 1] = weight->d[0];
    if (trm_infer_has(call, BIAS)) {
        TRM_TRY(trm_infer_require_dims(call, BIAS, "bias", trm_dims1(weight->d[0])));
        TRM_TRY(trm_infer_require_dtype(call, BIAS, "bias", call->dtypes[X]));
    }
    if (trm_infer_has(call, ZERO_POINT)) {
        TRM_TRY(trm_infer_require_dims(call, ZERO_POINT, "zero_point", blocks));
        TRM_TRY(trm_infer_require_dtype(call, ZERO_POINT, "zero_point", TRM_U8));
        if (type != TRM_U8) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a weight of type %s has zero points, expected none",
                     trm_dtype_name(type));
        }
    }
    call->output_dtypes[0] = p->out == TRM_DTYPE_NONE ? call->dtypes[X] : p->out;
    return TRM_OK;
}

/* Rows of x; those of the weight are dealt with apart, as its scales may have fewer. */
static int32_t link_dequant_matmul(const trm_layer *layer, int32_t k, int32_t i)
{
    return k == layer->outputs[0]->dims.n - 1 ? TRM_LINK_NEVER : i == TRM_DEQUANT_MATMUL_X ? k : TRM_LINK_WHOLE;
}

/* How scales and zero points are cut when an axis of `size` is cut into parts: not at all if there is one along it,
 * else like it, in whole blocks. False if a part would have a piece of a block, or if elements behind the end would not
 * be zeros: numbers of 4 bits are zero only with a scale of zero, which a scale that is not cut does not have there. */
static bool cut_blocks(const trm_layer *layer, int32_t axis, int64_t size, int64_t block, int32_t parts,
                       trm_sharding *scales)
{
    const int64_t blocks = layer->inputs[TRM_DEQUANT_MATMUL_SCALE]->dims.d[axis];
    const bool packed = layer->inputs[TRM_DEQUANT_MATMUL_WEIGHT]->dtype == TRM_U8;
    *scales = blocks == 1 ? trm_replicated() : trm_split(axis, parts);
    return blocks == 1 ? !packed || size % parts == 0 : block == 1 || size % (block * parts) == 0;
}

/* A quantized weight by rows, and by columns, where every rank has a summand of the product. Where the scales of x are
 * of whole rows, each rank has its own, of its columns, which is at most the whole row's. */
static trm_status shard_dequant_matmul(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    const trm_dequant_matmul_params *p = &layer->desc.dequant_matmul;
    const trm_tensor *x = layer->inputs[TRM_DEQUANT_MATMUL_X], *weight = layer->inputs[TRM_DEQUANT_MATMUL_WEIGHT];
    const int32_t last = x->dims.n - 1;
    const int64_t k = weight->dims.d[1] * (weight->dtype == TRM_U8 || weight->dtype == TRM_F4E2M1 ? 2 : 1);
    trm_sharding scales;
    if (cut_blocks(layer, 0, weight->dims.d[0], p->block_n, parts, &scales)) {
        trm_way way = trm_way_whole();
        way.in[TRM_DEQUANT_MATMUL_WEIGHT] = way.in[TRM_DEQUANT_MATMUL_BIAS] = trm_split(0, parts);
        way.in[TRM_DEQUANT_MATMUL_SCALE] = way.in[TRM_DEQUANT_MATMUL_ZERO_POINT] = scales;
        way.out[0] = trm_split(last, parts);
        TRM_TRY(taker->take(taker, layer, &way));
    }
    if (x->dims.d[last] == k && weight->dims.d[1] % parts == 0 && cut_blocks(layer, 1, k, p->block_k, parts, &scales)) {
        trm_way way = trm_way_whole();
        way.in[TRM_DEQUANT_MATMUL_X] = trm_split(last, parts);
        way.in[TRM_DEQUANT_MATMUL_WEIGHT] = trm_split(1, parts);
        way.in[TRM_DEQUANT_MATMUL_SCALE] = way.in[TRM_DEQUANT_MATMUL_ZERO_POINT] = scales;
        way.out[0] = trm_partial(parts);
        TRM_TRY(taker->take(taker, layer, &way));
    }
    return TRM_OK;
}

static double dequant_matmul_depth(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    (void)layer;
    return trm_known_dim(in[0].d[in[0].n - 1], unknown);
}

const trm_kind trm_kind_dequant_matmul = {
    TRM_FIELDS(TRM_FIELD(INT32, dequant_matmul, block_n, .always = true), TRM_FIELD(INT32, dequant_matmul, block_k),
               TRM_FIELD(DTYPE, dequant_matmul, out),
               TRM_FIELD(ENUM, dequant_matmul, x_quantization, .values = TRM_NAMES(TRM_X_QUANTIZATIONS)),
               TRM_FIELD(FLOAT, dequant_matmul, x_scale)),
    .traits = TRM_KIND_PRODUCT | TRM_KIND_TAKES_TIME,
    .infer = infer_dequant_matmul,
    .link = link_dequant_matmul,
    .sizes = trm_sizes_of_first,
    .linear = {1u << TRM_DEQUANT_MATMUL_X},
    .linear_if = {TRM_AT(dequant_matmul.x_quantization), 1u << TRM_X_AS_IS},
    .added = 1u << TRM_DEQUANT_MATMUL_BIAS,
    .shard = shard_dequant_matmul,
    .weight = TRM_DEQUANT_MATMUL_WEIGHT,
    .multiplications = dequant_matmul_depth,
};

/* ---- quantized weights, and a norm or a GLU before them ---------------------------------------- */

/* The rule of a product whose x has other dims than the layer's first input. */
static trm_status infer_product_of(const trm_infer_call *call, const trm_dims *x, const trm_dequant_matmul_params *p)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_DEQUANT_MATMUL, .dequant_matmul = *p};
    const trm_dims *dims[TRM_DEQUANT_MATMUL_INPUT_COUNT];
    trm_dtype dtypes[TRM_DEQUANT_MATMUL_INPUT_COUNT];
    trm_infer_call inner = *call;
    for (int32_t i = 0; i < TRM_DEQUANT_MATMUL_INPUT_COUNT; i++) {
        const bool given = trm_infer_has(call, i);
        dims[i] = i == TRM_DEQUANT_MATMUL_X ? x : given ? call->dims[i] : NULL;
        dtypes[i] = given ? call->dtypes[i] : TRM_DTYPE_NONE;
    }
    inner.desc = &desc;
    inner.values = NULL;
    inner.dims = dims;
    inner.dtypes = dtypes;
    inner.n_inputs = call->n_inputs < TRM_DEQUANT_MATMUL_INPUT_COUNT ? call->n_inputs : TRM_DEQUANT_MATMUL_INPUT_COUNT;
    return infer_dequant_matmul(&inner);
}

static trm_status infer_norm_dequant_matmul(const trm_infer_call *call)
{
    const trm_norm_dequant_matmul_params *p = &call->desc->norm_dequant_matmul;
    const bool residual = trm_infer_has(call, TRM_NORM_DEQUANT_MATMUL_RESIDUAL);
    TRM_TRY(trm_infer_require_inputs(call, 3, TRM_NORM_DEQUANT_MATMUL_INPUT_COUNT));
    if (p->residual != residual) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "residual is %sgiven, expected %s", residual ? "" : "not ",
                 p->residual ? "one" : "none");
    }
    const trm_norm_params norm = {.residual = residual, .eps = p->eps, .weight_offset = p->weight_offset};
    trm_dims norm_dims[2];
    trm_dtype norm_dtypes[2];
    TRM_TRY(trm_kind_infer_norm(call, &norm, TRM_NORM_DEQUANT_MATMUL_RESIDUAL, TRM_NORM_DEQUANT_MATMUL_NORM_WEIGHT,
                                norm_dims, norm_dtypes));
    TRM_TRY(infer_product_of(call, &norm_dims[0], &p->product));
    if (residual) {
        call->output_dims[1] = norm_dims[1];
        call->output_dtypes[1] = norm_dtypes[1];
    }
    return TRM_OK;
}

static trm_status infer_glu_dequant_matmul(const trm_infer_call *call)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_GLU, .glu = {call->desc->glu_dequant_matmul.activation}};
    trm_dims glu_dims;
    trm_dtype glu_dtype;
    trm_infer_call inner = *call;
    TRM_TRY(trm_infer_require_inputs(call, 3, TRM_DEQUANT_MATMUL_INPUT_COUNT));
    inner.desc = &desc;
    inner.values = NULL;
    inner.n_inputs = 1;
    inner.output_dims = &glu_dims;
    inner.output_dtypes = &glu_dtype;
    TRM_TRY(infer_glu(&inner));
    return infer_product_of(call, &glu_dims, &call->desc->glu_dequant_matmul.product);
}

#define PRODUCT_FIELDS(params)                                                                                         \
    TRM_FIELD(INT32, params, product.block_n, .always = true), TRM_FIELD(INT32, params, product.block_k),              \
        TRM_FIELD(DTYPE, params, product.out),                                                                         \
        TRM_FIELD(ENUM, params, product.x_quantization, .values = TRM_NAMES(TRM_X_QUANTIZATIONS)),                     \
        TRM_FIELD(FLOAT, params, product.x_scale)

const trm_kind trm_kind_norm_dequant_matmul = {
    TRM_FIELDS(PRODUCT_FIELDS(norm_dequant_matmul), TRM_FIELD(BOOL, norm_dequant_matmul, residual),
               TRM_FIELD(FLOAT, norm_dequant_matmul, eps, .always = true),
               TRM_FIELD(FLOAT, norm_dequant_matmul, weight_offset)),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_norm_dequant_matmul,
    .second_output = TRM_AT(norm_dequant_matmul.residual),
    .sizes = sizes_of_product,
    .weight = TRM_DEQUANT_MATMUL_WEIGHT,
};

const trm_kind trm_kind_glu_dequant_matmul = {
    TRM_FIELDS(PRODUCT_FIELDS(glu_dequant_matmul),
               TRM_FIELD(ENUM, glu_dequant_matmul, activation, .always = true, .values = TRM_NAMES(TRM_ACTIVATIONS))),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_glu_dequant_matmul,
    .sizes = sizes_of_product,
    .weight = TRM_DEQUANT_MATMUL_WEIGHT,
};
