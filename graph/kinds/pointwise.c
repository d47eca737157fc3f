/*
 * Kinds that take elements one by one: elementwise, unary, select, cumulative, quantize, dequantize; and signals,
 * determinants and random numbers.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"
#include "kernels/signal/fourier.h"

static trm_status require(bool fits, const trm_infer_call *call, const char *expected)
{
    if (!fits) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has type %s, expected %s", call->n_inputs == 1 ? "x" : "a",
                 trm_dtype_name(call->dtypes[0]), expected);
    }
    return TRM_OK;
}

static trm_status infer_elementwise(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    const trm_elementwise_op op = call->desc->elementwise.op;
    if ((unsigned)op > TRM_ELEMENTWISE_PRELU) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found elementwise op %d, expected 0 to %d", (int)op,
                 (int)TRM_ELEMENTWISE_PRELU);
    }
    const trm_dtype dtype = call->dtypes[0];
    const bool integer = trm_dtype_is_integer(dtype), number = integer || trm_dtype_is_float(dtype);
    call->output_dtypes[0] = dtype;
    switch (op) {
    case TRM_ELEMENTWISE_AND:
    case TRM_ELEMENTWISE_OR:
    case TRM_ELEMENTWISE_XOR:
        TRM_TRY(require(integer || dtype == TRM_BOOL, call, "bool or integers"));
        break;
    case TRM_ELEMENTWISE_SHIFT_LEFT:
    case TRM_ELEMENTWISE_SHIFT_RIGHT:
        TRM_TRY(require(integer, call, "integers"));
        break;
    case TRM_ELEMENTWISE_EQUAL:
        TRM_TRY(require(number || dtype == TRM_BOOL, call, "bool or numbers"));
        call->output_dtypes[0] = TRM_BOOL;
        break;
    case TRM_ELEMENTWISE_LESS:
    case TRM_ELEMENTWISE_LESS_EQUAL:
    case TRM_ELEMENTWISE_GREATER:
    case TRM_ELEMENTWISE_GREATER_EQUAL:
        TRM_TRY(require(number, call, "numbers"));
        call->output_dtypes[0] = TRM_BOOL;
        break;
    default:
        TRM_TRY(require(number, call, "numbers"));
        break;
    }
    TRM_TRY(trm_infer_require_dtype(call, 1, "b", dtype));
    return trm_infer_broadcast(call->dims[0], call->dims[1], 0, &call->output_dims[0]);
}

static bool elementwise_is_linear(const trm_layer *layer, uint32_t set)
{
    switch (layer->desc.elementwise.op) {
    case TRM_ELEMENTWISE_ADD:
    case TRM_ELEMENTWISE_SUB:
        return set == 3;
    case TRM_ELEMENTWISE_MUL:
        return set != 3;
    default:
        return layer->desc.elementwise.op == TRM_ELEMENTWISE_DIV && set == 1;
    }
}

/* Where the inputs that are split end in zeros. */
static bool elementwise_keeps_zero(const trm_layer *layer, uint32_t split)
{
    switch (layer->desc.elementwise.op) {
    case TRM_ELEMENTWISE_DIV: /* 0 / 0 */
    case TRM_ELEMENTWISE_MOD:
    case TRM_ELEMENTWISE_FMOD:
    case TRM_ELEMENTWISE_POW: /* 0 ^ 0 */
    case TRM_ELEMENTWISE_EQUAL:
    case TRM_ELEMENTWISE_LESS_EQUAL:
    case TRM_ELEMENTWISE_GREATER_EQUAL:
        return false;
    case TRM_ELEMENTWISE_MUL:
    case TRM_ELEMENTWISE_AND:
        return true;
    case TRM_ELEMENTWISE_SHIFT_LEFT:
    case TRM_ELEMENTWISE_SHIFT_RIGHT:
    case TRM_ELEMENTWISE_PRELU:
        return (split & 1) != 0;
    default:
        return (split & 3) == 3;
    }
}

const trm_kind trm_kind_elementwise = {
    TRM_FIELDS(TRM_FIELD(ENUM, elementwise, op, .always = true, .values = TRM_NAMES(TRM_ELEMENTWISE_OPS))),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_elementwise,
    .link = trm_link_broadcast,
    .sizes = trm_sizes_linked,
    .linear = {3, 1, 2},
    .is_linear = elementwise_is_linear,
    .keeps_zero = elementwise_keeps_zero,
};

static trm_status infer_unary(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    const trm_unary_params *unary = &call->desc->unary;
    const trm_dtype dtype = call->dtypes[0];
    TRM_TRY(trm_infer_require_activation(unary->activation));
    if ((unsigned)unary->op > TRM_UNARY_SWISH) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found unary op %d, expected 0 to %d", (int)unary->op,
                 (int)TRM_UNARY_SWISH);
    }
    if (unary->op == TRM_UNARY_SOFTCAP && !(unary->alpha > 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "softcap has alpha %g, expected more than 0", (double)unary->alpha);
    }
    call->output_dims[0] = *call->dims[0];
    call->output_dtypes[0] = dtype;
    switch (unary->op) {
    case TRM_UNARY_NEG:
    case TRM_UNARY_ABS:
    case TRM_UNARY_SIGN:
        return require(trm_dtype_is_integer(dtype) || trm_dtype_is_float(dtype), call, "numbers");
    case TRM_UNARY_NOT:
        return require(trm_dtype_is_integer(dtype) || dtype == TRM_BOOL, call, "bool or integers");
    case TRM_UNARY_IS_NAN:
    case TRM_UNARY_IS_INF:
        call->output_dtypes[0] = TRM_BOOL;
        break;
    default:
        break;
    }
    return trm_infer_require_float(call, 0, "x");
}

static bool unary_is_linear(const trm_layer *layer, uint32_t set)
{
    const trm_unary_params *unary = &layer->desc.unary;
    (void)set;
    return unary->op == TRM_UNARY_NEG || (unary->op == TRM_UNARY_LINEAR && unary->beta == 0.0f);
}

static bool unary_keeps_zero(const trm_layer *layer, uint32_t split)
{
    const trm_unary_params *unary = &layer->desc.unary;
    (void)split;
    switch (unary->op) {
    case TRM_UNARY_ACTIVATION:
        return trm_activation_keeps_zero(unary->activation);
    case TRM_UNARY_LINEAR:
        return unary->beta == 0.0f;
    case TRM_UNARY_EXP:
    case TRM_UNARY_LOG:
    case TRM_UNARY_RECIPROCAL:
    case TRM_UNARY_COS:
    case TRM_UNARY_COSH:
    case TRM_UNARY_ACOS:
    case TRM_UNARY_ACOSH:
    case TRM_UNARY_NOT:
    case TRM_UNARY_HARD_SIGMOID:
        return false;
    case TRM_UNARY_CLIP:
        return unary->alpha <= 0.0f && unary->beta >= 0.0f;
    case TRM_UNARY_CELU:
        return unary->alpha != 0.0f;
    case TRM_UNARY_SHRINK:
        return unary->alpha >= 0.0f;
    default:
        return true;
    }
}

const trm_kind trm_kind_unary = {
    TRM_FIELDS(TRM_FIELD(ENUM, unary, op, .always = true, .values = TRM_NAMES(TRM_UNARY_OPS)),
               TRM_FIELD(ENUM, unary, activation, .values = TRM_NAMES(TRM_ACTIVATIONS)), TRM_FIELD(FLOAT, unary, alpha),
               TRM_FIELD(FLOAT, unary, beta)),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_unary,
    .link = trm_link_same,
    .sizes = trm_sizes_same,
    .linear = {1},
    .is_linear = unary_is_linear,
    .keeps_zero = unary_keeps_zero,
};

static trm_status infer_select(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 3, 3));
    TRM_TRY(trm_infer_require_dtype(call, 0, "condition", TRM_BOOL));
    TRM_TRY(trm_infer_require_dtype(call, 2, "b", call->dtypes[1]));
    trm_dims both;
    TRM_TRY(trm_infer_broadcast(call->dims[1], call->dims[2], 0, &both));
    TRM_TRY(trm_infer_broadcast(call->dims[0], &both, 0, &call->output_dims[0]));
    call->output_dtypes[0] = call->dtypes[1];
    return TRM_OK;
}

const trm_kind trm_kind_select = {
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_select,
    .link = trm_link_broadcast,
    .sizes = trm_sizes_linked,
    .linear = {1u << 1 | 1u << 2},
};

static trm_status infer_cumulative(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    int32_t axis;
    TRM_TRY(trm_infer_axis(call->desc->cumulative.axis, call->dims[0]->n, &axis));
    TRM_TRY(require(trm_dtype_is_integer(call->dtypes[0]) || trm_dtype_is_float(call->dtypes[0]), call, "numbers"));
    return trm_infer_same(call, 0);
}

const trm_kind trm_kind_cumulative = {
    TRM_FIELDS(TRM_FIELD(ENUM, cumulative, op, .always = true, .values = TRM_NAMES(TRM_CUMULATIVE_OPS)),
               TRM_FIELD(INT32, cumulative, axis, .always = true), TRM_FIELD(BOOL, cumulative, exclusive),
               TRM_FIELD(BOOL, cumulative, reverse)),
    .axis = TRM_AT(cumulative.axis),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_cumulative,
    .link = trm_link_first_but_axis,
    .sizes = trm_sizes_same,
    .linear = {1},
    .linear_if = {TRM_AT(cumulative.op), 1u << TRM_CUMULATIVE_SUM},
};

/* ---- quantization ------------------------------------------------------------------------------ */

static bool is_quantized(trm_dtype dtype)
{
    const bool integer = (dtype >= TRM_I8 && dtype <= TRM_U16) || (dtype >= TRM_I4 && dtype <= TRM_U2);
    return integer || (dtype >= TRM_F8E4M3 && dtype <= TRM_F8E5M2FNUZ) || dtype == TRM_F4E2M1 || dtype == TRM_F6E2M3 ||
           dtype == TRM_F6E3M2;
}

/* Scale and zero point of type `zero`, beside x. */
static trm_status check_scales(const trm_infer_call *call, trm_dtype zero)
{
    const trm_quantize_params *p = &call->desc->quantize;
    const trm_dims *x = call->dims[0], *scale = call->dims[1];
    if (call->dtypes[1] != TRM_F8E8M0) {
        TRM_TRY(trm_infer_require_float(call, 1, "scale"));
    }
    const bool single = scale->n == 0 || (scale->n == 1 && scale->d[0] == 1);
    if (p->block_size < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "block_size is %" PRId32 ", expected at least 0", p->block_size);
    }
    int32_t axis;
    if (p->block_size > 0) {
        TRM_TRY(trm_infer_axis(p->axis, x->n, &axis));
        trm_dims expected = *x;
        expected.d[axis] = x->d[axis] == -1 ? -1 : x->d[axis] / p->block_size + (x->d[axis] % p->block_size != 0);
        TRM_TRY(trm_infer_require_dims(call, 1, "scale", expected));
    } else if (!single) {
        TRM_TRY(trm_infer_axis(p->axis, x->n, &axis));
        TRM_TRY(trm_infer_require_dims(call, 1, "scale", (trm_dims){1, {x->d[axis]}}));
    }
    if (trm_infer_has(call, 2)) {
        TRM_TRY(trm_infer_require_dtype(call, 2, "zero_point", zero));
        TRM_TRY(trm_infer_require_dims(call, 2, "zero_point", *scale));
    }
    call->output_dims[0] = *x;
    return TRM_OK;
}

static trm_status infer_quantize(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 3));
    const trm_dtype to = call->desc->quantize.to;
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    if (!is_quantized(to)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "quantized to %s, expected integers of up to 16 bits or small floats",
                 trm_dtype_name(to));
    }
    call->output_dtypes[0] = to;
    return check_scales(call, to);
}

static trm_status infer_dequantize(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 3));
    const trm_dtype x = call->dtypes[0], to = call->desc->quantize.to;
    if (!is_quantized(x) && x != TRM_I32 && x != TRM_F8E8M0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has type %s, expected integers of up to 32 bits or small floats",
                 trm_dtype_name(x));
    }
    call->output_dtypes[0] = to == TRM_DTYPE_NONE ? call->dtypes[1] : to;
    if (!trm_dtype_is_float(call->output_dtypes[0])) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "dequantized to %s, expected a float type",
                 trm_dtype_name(call->output_dtypes[0]));
    }
    return check_scales(call, x);
}

static int32_t link_quantize(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_quantize_params *p = &layer->desc.quantize;
    const trm_dims *in = &layer->inputs[i]->dims;
    int32_t axis = p->axis < 0 ? p->axis + layer->inputs[0]->dims.n : p->axis;
    if (i == 0) {
        return k;
    }
    if (p->block_size > 0) {
        return k == axis ? TRM_LINK_NEVER : k;
    }
    return in->n == 1 && in->d[0] != 1 && k == axis ? 0 : TRM_LINK_WHOLE;
}

static const trm_field quantize_fields[] = {
    TRM_FIELD(INT32, quantize, axis, .always = true),
    TRM_FIELD(INT32, quantize, block_size),
    TRM_FIELD(DTYPE, quantize, to, .always = true),
    TRM_FIELD(BOOL, quantize, unsaturated),
};
const trm_kind trm_kind_quantize = {
    TRM_FIELDS_OF(quantize_fields), .axis = TRM_AT(quantize.axis), .infer = infer_quantize,
    .link = link_quantize,          .sizes = trm_sizes_same,
};
const trm_kind trm_kind_dequantize = {
    TRM_FIELDS_OF(quantize_fields), .axis = TRM_AT(quantize.axis), .infer = infer_dequantize,
    .link = link_quantize,          .sizes = trm_sizes_same,
};

/* ---- signals, determinants, random numbers ------------------------------------------------------ */

static trm_status infer_fourier(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    const trm_fourier_params *p = &call->desc->fourier;
    const trm_dims *x = call->dims[0];
    int32_t axis;
    TRM_TRY(trm_infer_axis(p->axis, x->n, &axis));
    const int32_t last = x->n - 1;
    if (axis == last || x->d[last] == 0 || x->d[last] > 2) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "x has dims %s and axis %" PRId32 ", expected 1 or 2 parts behind the axis", trm_dims_format(x, text),
                 axis);
    }
    if (p->length < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "length is %" PRId64 ", expected at least 0", p->length);
    }
    const bool real = p->inverse && p->onesided, unknown = p->length == 0 && x->d[axis] == -1;
    const int64_t points = unknown ? -1 : trm_fourier_points(p, x->d[axis]);
    if (!unknown && points < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has no points of a spectrum, expected at least 1");
    }
    call->output_dims[0] = *x;
    call->output_dims[0].d[axis] = unknown ? -1 : trm_fourier_outputs(p, points);
    call->output_dims[0].d[last] = real ? 1 : 2;
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

static int32_t link_fourier(const trm_layer *layer, int32_t k, int32_t i)
{
    return k == layer->outputs[0]->dims.n - 1 ? TRM_LINK_NEVER : trm_link_first_but_axis(layer, k, i);
}

const trm_kind trm_kind_fourier = {
    TRM_FIELDS(TRM_FIELD(INT32, fourier, axis, .always = true), TRM_FIELD(BOOL, fourier, inverse),
               TRM_FIELD(BOOL, fourier, onesided), TRM_FIELD(INT64, fourier, length)),
    .axis = TRM_AT(fourier.axis),
    .infer = infer_fourier,
    .link = link_fourier,
};

static trm_status infer_determinant(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    const trm_dims *x = call->dims[0];
    if (x->n < 2 || !trm_dim_fits(x->d[x->n - 1], x->d[x->n - 2])) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has dims %s, expected square matrices", trm_dims_format(x, text));
    }
    call->output_dims[0] = *x;
    call->output_dims[0].n -= 2;
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

const trm_kind trm_kind_determinant = {.infer = infer_determinant, .link = trm_link_same};

/* UNIFORM and NORMAL: dims from the values of the input. */
static trm_status random_of_shape(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_rank(call, 0, "shape", 1));
    trm_dims *out = &call->output_dims[0];
    const int64_t rank = call->dims[0]->d[0];
    if (rank < 0 || rank > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "shape has %" PRId64 " values, expected a known number up to %d", rank,
                 TRM_MAX_DIMS);
    }
    bool known;
    out->n = (int32_t)rank;
    TRM_TRY(trm_infer_values(call, 0, "shape", rank, out->d, &known));
    for (int32_t i = 0; i < out->n; i++) {
        if (known && out->d[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "shape has %" PRId64 ", expected sizes of at least 0", out->d[i]);
        }
        out->d[i] = known ? out->d[i] : -1;
    }
    return TRM_OK;
}

static trm_status infer_random(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    const trm_random_params *p = &call->desc->random;
    const bool integers = p->to == TRM_I32 || p->to == TRM_I64;
    call->output_dtypes[0] = p->to;
    if (p->op == TRM_RANDOM_MULTINOMIAL ? !integers : !trm_dtype_is_float(p->to)) {
        if (p->op != TRM_RANDOM_BERNOULLI || (!trm_dtype_is_integer(p->to) && p->to != TRM_BOOL)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "random numbers of type %s, expected %s", trm_dtype_name(p->to),
                     p->op == TRM_RANDOM_MULTINOMIAL ? "i32 or i64" : "a float type");
        }
    }
    if (p->op == TRM_RANDOM_UNIFORM || p->op == TRM_RANDOM_NORMAL) {
        return random_of_shape(call);
    }
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    call->output_dims[0] = *call->dims[0];
    if (p->op == TRM_RANDOM_MULTINOMIAL) {
        TRM_TRY(trm_infer_require_rank(call, 0, "x", 2));
        if (p->samples < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "samples is %" PRId64 ", expected at least 0", p->samples);
        }
        call->output_dims[0].d[1] = p->samples;
    }
    return TRM_OK;
}

static uint32_t random_value_inputs(const trm_layer_desc *desc)
{
    return desc->random.op == TRM_RANDOM_UNIFORM || desc->random.op == TRM_RANDOM_NORMAL ? 1u << 0 : 0;
}

const trm_kind trm_kind_random = {
    TRM_FIELDS(TRM_FIELD(ENUM, random, op, .always = true, .values = TRM_NAMES(TRM_RANDOM_OPS)),
               TRM_FIELD(DTYPE, random, to, .always = true), TRM_FIELD(FLOAT, random, a), TRM_FIELD(FLOAT, random, b),
               TRM_FIELD(INT64, random, seed, .always = true), TRM_FIELD(INT64, random, samples)),
    .infer = infer_random,
    .value_inputs_of = random_value_inputs,
};
