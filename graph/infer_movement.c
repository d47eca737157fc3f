/*
 * Shape and type rules of the kinds that take or place elements by position.
 */
#include "graph/infer.h"

#include <inttypes.h>

#include "base/error.h"

/* One output with the dims and type of an input. */
static void same_as_input(const trm_infer_call *call, int32_t input)
{
    call->output_dims[0] = *call->dims[input];
    call->output_dtypes[0] = call->dtypes[input];
}

/* ---- pad --------------------------------------------------------------------------------------- */

trm_status trm_infer_pad(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 3));
    const trm_pad_params *pad = &call->desc->pad;
    const trm_dims *x = call->dims[0];
    int64_t pads[2 * TRM_MAX_DIMS];
    bool known = true;
    if ((unsigned)pad->mode > TRM_PAD_WRAP) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found pad mode %d, expected 0 to %d", (int)pad->mode, (int)TRM_PAD_WRAP);
    }
    for (int32_t i = 0; i < x->n; i++) {
        pads[i] = pad->before[i];
        pads[x->n + i] = pad->after[i];
    }
    if (trm_infer_has(call, 1)) {
        TRM_TRY(trm_infer_require_dtype(call, 1, "pads", TRM_I64));
        TRM_TRY(trm_infer_values(call, 1, "pads", 2 * x->n, pads, &known));
    }
    if (trm_infer_has(call, 2)) {
        TRM_TRY(trm_infer_require_dtype(call, 2, "value", call->dtypes[0]));
    }
    same_as_input(call, 0);
    trm_dims *out = &call->output_dims[0];
    for (int32_t i = 0; i < x->n; i++) {
        if (!known || x->d[i] == -1) {
            out->d[i] = -1;
        } else if (__builtin_add_overflow(x->d[i], pads[i], &out->d[i]) ||
                   __builtin_add_overflow(out->d[i], pads[x->n + i], &out->d[i]) || out->d[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "axis %" PRId32 " of size %" PRId64 " is padded by %" PRId64 " and %" PRId64
                     ", expected a size of at least 0",
                     i, x->d[i], pads[i], pads[x->n + i]);
        } else if (pad->mode != TRM_PAD_CONSTANT && out->d[i] > 0 && x->d[i] == 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "axis %" PRId32 " has size 0, expected elements to pad it with", i);
        }
    }
    return TRM_OK;
}

/* ---- by indices -------------------------------------------------------------------------------- */

static trm_status require_indices(const trm_infer_call *call, int32_t input, const char *what)
{
    if (call->dtypes[input] != TRM_I32 && call->dtypes[input] != TRM_I64) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has type %s, expected i32 or i64", what,
                 trm_dtype_name(call->dtypes[input]));
    }
    return TRM_OK;
}

/* `small` is nowhere larger than `large` but along `axis`. */
static trm_status require_within(const trm_dims *small, const trm_dims *large, int32_t axis)
{
    bool fits = small->n == large->n;
    for (int32_t i = 0; fits && i < small->n; i++) {
        fits = i == axis || small->d[i] == -1 || large->d[i] == -1 || small->d[i] <= large->d[i];
    }
    if (!fits) {
        char found[TRM_DIMS_TEXT_SIZE], expected[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "indices has dims %s, expected as many axes as data %s has, none larger but axis %" PRId32,
                 trm_dims_format(small, found), trm_dims_format(large, expected), axis);
    }
    return TRM_OK;
}

trm_status trm_infer_gather_elements(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    int32_t axis;
    TRM_TRY(trm_infer_axis(call->desc->gather_elements.axis, call->dims[0]->n, &axis));
    TRM_TRY(require_indices(call, 1, "indices"));
    TRM_TRY(require_within(call->dims[1], call->dims[0], axis));
    call->output_dims[0] = *call->dims[1];
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

/* Rows of indices in input 1 that address data: dims without the last axis, then data's behind what is addressed. */
static trm_status rows_of_data(const trm_infer_call *call, int32_t batch_dims, trm_dims *out)
{
    const trm_dims *data = call->dims[0], *indices = call->dims[1];
    char text[TRM_DIMS_TEXT_SIZE];
    TRM_TRY(require_indices(call, 1, "indices"));
    if (batch_dims < 0 || batch_dims >= indices->n || indices->d[indices->n - 1] < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "indices has dims %s, expected a known last axis behind %" PRId32 " batch axes",
                 trm_dims_format(indices, text), batch_dims);
    }
    const int64_t k = indices->d[indices->n - 1];
    if (batch_dims + k > data->n) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "indices address %" PRId64 " axes behind %" PRId32 " batch axes, expected at most the %" PRId32
                 " of data",
                 k, batch_dims, data->n);
    }
    if (indices->n - 1 + data->n - batch_dims - k > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the rows have %" PRId64 " dimensions, expected at most %d",
                 indices->n - 1 + data->n - batch_dims - k, TRM_MAX_DIMS);
    }
    out->n = 0;
    for (int32_t i = 0; i < indices->n - 1; i++) {
        if (i < batch_dims && !trm_dim_fits(indices->d[i], data->d[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "batch axis %" PRId32 " of indices is %" PRId64 ", expected %" PRId64,
                     i, indices->d[i], data->d[i]);
        }
        out->d[out->n++] = i < batch_dims ? trm_dim_known(indices->d[i], data->d[i]) : indices->d[i];
    }
    for (int32_t i = batch_dims + (int32_t)k; i < data->n; i++) {
        out->d[out->n++] = data->d[i];
    }
    return TRM_OK;
}

trm_status trm_infer_gather_nd(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    TRM_TRY(rows_of_data(call, call->desc->gather_nd.batch_dims, &call->output_dims[0]));
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

trm_status trm_infer_scatter(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 3, 3));
    const trm_scatter_params *scatter = &call->desc->scatter;
    if ((unsigned)scatter->form > TRM_SCATTER_ND || (unsigned)scatter->reduction > TRM_SCATTER_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found scatter form %d and reduction %d, expected 0 to %d and 0 to %d",
                 (int)scatter->form, (int)scatter->reduction, (int)TRM_SCATTER_ND, (int)TRM_SCATTER_MAX);
    }
    TRM_TRY(trm_infer_require_dtype(call, 2, "updates", call->dtypes[0]));
    if (scatter->form == TRM_SCATTER_ELEMENTS) {
        int32_t axis;
        TRM_TRY(trm_infer_axis(scatter->axis, call->dims[0]->n, &axis));
        TRM_TRY(require_indices(call, 1, "indices"));
        TRM_TRY(require_within(call->dims[1], call->dims[0], axis));
        TRM_TRY(trm_infer_require_dims(call, 2, "updates", *call->dims[1]));
    } else {
        trm_dims rows;
        TRM_TRY(rows_of_data(call, 0, &rows));
        TRM_TRY(trm_infer_require_dims(call, 2, "updates", rows));
    }
    same_as_input(call, 0);
    return TRM_OK;
}

/* ---- one-hot, reversed sequences --------------------------------------------------------------- */

trm_status trm_infer_one_hot(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 3, 3));
    const trm_dims *indices = call->dims[0];
    if (call->dtypes[0] == TRM_BOOL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "indices has type bool, expected numbers");
    }
    if (indices->n == TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "indices has %d dimensions, expected fewer", TRM_MAX_DIMS);
    }
    int32_t axis;
    int64_t depth = -1;
    bool known;
    TRM_TRY(trm_infer_axis(call->desc->one_hot.axis, indices->n + 1, &axis));
    TRM_TRY(trm_infer_values(call, 1, "depth", 1, &depth, &known));
    if (known && depth < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "depth is %" PRId64 ", expected at least 0", depth);
    }
    TRM_TRY(trm_infer_require_dims(call, 2, "values", (trm_dims){1, {2}}));
    trm_dims *out = &call->output_dims[0];
    for (int32_t i = 0; i <= indices->n; i++) {
        out->d[i] = i < axis ? indices->d[i] : i == axis ? depth : indices->d[i - 1];
    }
    out->n = indices->n + 1;
    call->output_dtypes[0] = call->dtypes[2];
    return TRM_OK;
}

trm_status trm_infer_reverse_sequence(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    const trm_reverse_sequence_params *p = &call->desc->reverse_sequence;
    const trm_dims *x = call->dims[0];
    if (x->n < 2) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has dims %s, expected at least 2 dimensions", trm_dims_format(x, text));
    }
    if ((p->batch_axis != 0 || p->time_axis != 1) && (p->batch_axis != 1 || p->time_axis != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "batch axis is %" PRId32 " and time axis %" PRId32 ", expected 0 and 1, or 1 and 0", p->batch_axis,
                 p->time_axis);
    }
    TRM_TRY(trm_infer_require_dtype(call, 1, "lengths", TRM_I64));
    TRM_TRY(trm_infer_require_dims(call, 1, "lengths", (trm_dims){1, {x->d[p->batch_axis]}}));
    same_as_input(call, 0);
    call->output_dims[0].d[p->batch_axis] = trm_dim_known(x->d[p->batch_axis], call->dims[1]->d[0]);
    return TRM_OK;
}

/* ---- by order ---------------------------------------------------------------------------------- */

trm_status trm_infer_topk(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    int32_t axis;
    int64_t k = -1;
    bool known;
    TRM_TRY(trm_infer_axis(call->desc->topk.axis, call->dims[0]->n, &axis));
    TRM_TRY(trm_infer_values(call, 1, "k", 1, &k, &known));
    const int64_t size = call->dims[0]->d[axis];
    if (known && (k < 0 || (size != -1 && k > size))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "k is %" PRId64 ", expected 0 to the %" PRId64 " of axis %" PRId32, k,
                 size, axis);
    }
    same_as_input(call, 0);
    call->output_dims[0].d[axis] = k;
    call->output_dims[1] = call->output_dims[0];
    call->output_dtypes[1] = TRM_I64;
    return TRM_OK;
}

trm_status trm_infer_arg_reduce(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    int32_t axis;
    TRM_TRY(trm_infer_axis(call->desc->arg_reduce.axis, call->dims[0]->n, &axis));
    trm_dims *out = &call->output_dims[0];
    *out = *call->dims[0];
    out->d[axis] = 1;
    for (int32_t i = axis; !call->desc->arg_reduce.keep_dims && i + 1 < out->n; i++) {
        out->d[i] = out->d[i + 1];
    }
    out->n -= call->desc->arg_reduce.keep_dims ? 0 : 1;
    call->output_dtypes[0] = TRM_I64;
    return TRM_OK;
}
