/*
 * Shape and type rules of the kinds that take elements one by one.
 */
#include <inttypes.h>

#include "base/error.h"
#include "graph/infer.h"
#include "kernels/signal/fourier.h"

static trm_status require(bool fits, const trm_infer_call *call, const char *expected)
{
    if (!fits) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has type %s, expected %s", call->n_inputs == 1 ? "x" : "a",
                 trm_dtype_name(call->dtypes[0]), expected);
    }
    return TRM_OK;
}

trm_status trm_infer_elementwise(const trm_infer_call *call)
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

trm_status trm_infer_unary(const trm_infer_call *call)
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

trm_status trm_infer_select(const trm_infer_call *call)
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

trm_status trm_infer_rotate(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 3, 3));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    const trm_dims *x = call->dims[0], *angles = call->dims[1];
    const int32_t rotary = call->desc->rotate.rotary_dim;
    const int64_t width = x->n > 0 ? x->d[x->n - 1] : 0, columns = angles->n > 0 ? angles->d[angles->n - 1] : 0;
    if (rotary < 2 || rotary % 2 != 0 || (width != -1 && rotary > width)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "rotary_dim is %" PRId32 ", expected an even number of 2 to the last dimension %" PRId64, rotary,
                 width);
    }
    bool fits = angles->n <= x->n && (columns == -1 || columns == rotary || columns == rotary / 2);
    for (int32_t i = 0; fits && i < angles->n - 1; i++) {
        fits = angles->d[i] == 1 || trm_dim_fits(angles->d[i], x->d[i + x->n - angles->n]);
    }
    if (!fits) {
        char text[TRM_DIMS_TEXT_SIZE], other[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "cos has dims %s, expected %" PRId32 " or %" PRId32
                 " columns and dims that broadcast to those of x %s",
                 trm_dims_format(angles, text), rotary, rotary / 2, trm_dims_format(x, other));
    }
    TRM_TRY(trm_infer_require_dtype(call, 1, "cos", call->dtypes[0]));
    TRM_TRY(trm_infer_require_dims(call, 2, "sin", *angles));
    TRM_TRY(trm_infer_require_dtype(call, 2, "sin", call->dtypes[0]));
    call->output_dims[0] = *x;
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

trm_status trm_infer_cumulative(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    int32_t axis;
    TRM_TRY(trm_infer_axis(call->desc->cumulative.axis, call->dims[0]->n, &axis));
    TRM_TRY(require(trm_dtype_is_integer(call->dtypes[0]) || trm_dtype_is_float(call->dtypes[0]), call, "numbers"));
    call->output_dims[0] = *call->dims[0];
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

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

trm_status trm_infer_quantize(const trm_infer_call *call)
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

trm_status trm_infer_dequantize(const trm_infer_call *call)
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

/* ---- signals, determinants, random numbers ------------------------------------------------------ */

trm_status trm_infer_fourier(const trm_infer_call *call)
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

trm_status trm_infer_determinant(const trm_infer_call *call)
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

trm_status trm_infer_random(const trm_infer_call *call)
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
