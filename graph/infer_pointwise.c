/*
 * Shape and type rules of the kinds that take elements one by one.
 */
#include <inttypes.h>

#include "base/error.h"
#include "graph/infer.h"

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
