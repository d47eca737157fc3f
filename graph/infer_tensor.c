/*
 * Shape and type rules of the kinds that move elements.
 */
#include "graph/infer.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "kernels/small_types.h"
#include "kernels/movement/slice.h"

/* One output with the dims and type of an input. */
static void same_as_input(const trm_infer_call *call, int32_t input)
{
    call->output_dims[0] = *call->dims[input];
    call->output_dtypes[0] = call->dtypes[input];
}

trm_status trm_infer_cast(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    trm_dtype to = call->desc->cast.to;
    if (trm_dtype_size(to) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cast to type %s (%d), expected an element type", trm_dtype_name(to),
                 (int)to);
    }
    if (call->desc->cast.bits && trm_element_bits(to) != trm_element_bits(call->dtypes[0])) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cast of the bits of %s to %s, expected types of one size",
                 trm_dtype_name(call->dtypes[0]), trm_dtype_name(to));
    }
    same_as_input(call, 0);
    call->output_dtypes[0] = to;
    return TRM_OK;
}

/* ---- reshape ----------------------------------------------------------------------------------- */

/* Elements of the dims that a reshape does not copy: the product of the known ones, and whether all are. */
typedef struct element_count {
    int64_t known;
    bool complete;
} element_count;

static trm_status count_dim(element_count *count, int64_t dim)
{
    if (dim == -1) {
        count->complete = false;
    } else if (__builtin_mul_overflow(count->known, dim, &count->known)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the number of elements overflows");
    }
    return TRM_OK;
}

/* Whether a dimension of size 0 is copied, so that there are no elements before and after. */
static bool copies_nothing(const trm_dims *in, const trm_dims *wanted)
{
    bool nothing = false;
    for (int32_t i = 0; i < wanted->n; i++) {
        nothing = nothing || (wanted->d[i] == 0 && in->d[i] == 0);
    }
    return nothing;
}

/* Writes the dims that are given or copied, -1 where one is inferred, and counts what is not copied. */
static trm_status fill_reshape(const trm_dims *in, const trm_dims *wanted, bool zero_is_zero, trm_dims *out,
                               int32_t *inferred, element_count *from, element_count *to)
{
    char text[TRM_DIMS_TEXT_SIZE];
    if (wanted->n < 0 || wanted->n > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "reshape to %" PRId32 " dimensions, expected at most %d", wanted->n,
                 TRM_MAX_DIMS);
    }
    out->n = wanted->n;
    for (int32_t i = 0; i < wanted->n; i++) {
        out->d[i] = wanted->d[i];
        bool copied = wanted->d[i] == 0 && !zero_is_zero;
        if (copied && i >= in->n) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "reshape of %s copies dimension %" PRId32 ", which it does not have",
                     trm_dims_format(in, text), i);
        }
        if (wanted->d[i] < -1 || (wanted->d[i] == -1 && *inferred >= 0)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "reshape to %s, expected sizes of at least 0 and at most one -1",
                     trm_dims_format(wanted, text));
        }
        if (copied) {
            out->d[i] = in->d[i];
        } else if (wanted->d[i] == -1) {
            *inferred = i;
        } else {
            TRM_TRY(count_dim(to, wanted->d[i]));
        }
    }
    for (int32_t i = 0; i < in->n; i++) {
        if (i >= wanted->n || wanted->d[i] != 0 || zero_is_zero) {
            TRM_TRY(count_dim(from, in->d[i]));
        }
    }
    return TRM_OK;
}

trm_status trm_infer_reshape(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 2));
    const trm_dims *in = call->dims[0];
    trm_dims given = call->desc->reshape.dims, *wanted = &given, *out = &call->output_dims[0];
    bool known = true;
    call->output_dtypes[0] = call->dtypes[0];
    if (trm_infer_has(call, 1)) {
        TRM_TRY(trm_infer_sizes(call, 1, "shape", &given, &known));
    }
    if (!known) {
        const trm_dims *hints = &call->desc->reshape.dims;
        *out = given;
        for (int32_t i = 0; i < out->n; i++) {
            out->d[i] = hints->n == out->n && hints->d[i] > 0 ? hints->d[i] : -1;
        }
        return TRM_OK;
    }
    element_count from = {1, true}, to = {1, true};
    int32_t inferred = -1;
    TRM_TRY(fill_reshape(in, wanted, call->desc->reshape.zero_is_zero, out, &inferred, &from, &to));
    bool fits;
    if (inferred >= 0 && to.known == 0) {
        fits = false;
    } else if (inferred >= 0) {
        fits = !from.complete || from.known % to.known == 0;
        out->d[inferred] = from.complete ? from.known / to.known : -1;
    } else if (!call->desc->reshape.zero_is_zero && copies_nothing(in, wanted)) {
        fits = true;
    } else if (to.known == 0) { /* unknown dims may be 0 */
        fits = !from.complete || from.known == 0;
    } else if (from.complete) {
        fits = from.known == to.known;
    } else {
        fits = from.known != 0 && to.known % from.known == 0;
    }
    if (!fits) {
        char found[TRM_DIMS_TEXT_SIZE], expected[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "dims %s cannot be reshaped to %s: the numbers of elements differ",
                 trm_dims_format(in, found), trm_dims_format(wanted, expected));
    }
    return TRM_OK;
}

/* ---- moving ------------------------------------------------------------------------------------ */

trm_status trm_infer_transpose(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    const trm_dims *in = call->dims[0];
    const int32_t *perm = call->desc->transpose.perm;
    bool seen[TRM_MAX_DIMS] = {false};
    same_as_input(call, 0);
    for (int32_t i = 0; i < in->n; i++) {
        if (perm[i] < 0 || perm[i] >= in->n || seen[perm[i]]) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "perm[%" PRId32 "] is %" PRId32 ", expected each of the %" PRId32 " axes once", i, perm[i], in->n);
        }
        seen[perm[i]] = true;
        call->output_dims[0].d[i] = in->d[perm[i]];
    }
    return TRM_OK;
}

trm_status trm_infer_slice(const trm_infer_call *call)
{
    static const char *const names[] = {"start", "end", "step"};
    TRM_TRY(trm_infer_require_inputs(call, 1, 4));
    trm_slice_params slice = call->desc->slice;
    int64_t *fields[] = {&slice.start, &slice.end, &slice.step};
    int32_t axis;
    bool all_known = true;
    TRM_TRY(trm_infer_axis(slice.axis, call->dims[0]->n, &axis));
    same_as_input(call, 0);
    for (int32_t i = 1; i < 4; i++) {
        bool known = true;
        if (trm_infer_has(call, i)) {
            TRM_TRY(trm_infer_values(call, i, names[i - 1], 1, fields[i - 1], &known));
        }
        all_known = all_known && known;
    }
    if (all_known && slice.step == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "slice has step 0");
    }
    int64_t size = call->dims[0]->d[axis], first;
    call->output_dims[0].d[axis] = size == -1 || !all_known ? -1 : trm_slice_range(&slice, size, &first);
    return TRM_OK;
}

trm_status trm_infer_concat(const trm_infer_call *call)
{
    int32_t n = call->n_inputs, axis;
    TRM_TRY(trm_infer_require_inputs(call, n < 1 ? 1 : n, TRM_MAX_LAYER_INPUTS));
    TRM_TRY(trm_infer_axis(call->desc->concat.axis, call->dims[0]->n, &axis));
    trm_dims out = *call->dims[0];
    for (int32_t i = 1; i < n; i++) {
        const trm_dims *in = call->dims[i];
        trm_dims expected = out;
        expected.d[axis] = -1;
        TRM_TRY(trm_infer_require_dims(call, i, "an input of concat", expected));
        TRM_TRY(trm_infer_require_dtype(call, i, "an input of concat", call->dtypes[0]));
        for (int32_t j = 0; j < out.n; j++) {
            if (j != axis) {
                out.d[j] = trm_dim_known(out.d[j], in->d[j]);
            } else if (out.d[j] == -1 || in->d[j] == -1) {
                out.d[j] = -1;
            } else if (__builtin_add_overflow(out.d[j], in->d[j], &out.d[j])) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the size of axis %" PRId32 " overflows", axis);
            }
        }
    }
    call->output_dims[0] = out;
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

trm_status trm_infer_gather(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    const trm_dims *data = call->dims[0], *indices = call->dims[1];
    int32_t axis;
    TRM_TRY(trm_infer_axis(call->desc->gather.axis, data->n, &axis));
    if (call->dtypes[1] != TRM_I32 && call->dtypes[1] != TRM_I64) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "indices has type %s, expected i32 or i64",
                 trm_dtype_name(call->dtypes[1]));
    }
    int32_t rank = data->n - 1 + indices->n;
    if (rank > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the output has %" PRId32 " dimensions, expected at most %d", rank,
                 TRM_MAX_DIMS);
    }
    trm_dims *out = &call->output_dims[0];
    for (int32_t i = 0; i < axis; i++) {
        out->d[out->n++] = data->d[i];
    }
    for (int32_t i = 0; i < indices->n; i++) {
        out->d[out->n++] = indices->d[i];
    }
    for (int32_t i = axis + 1; i < data->n; i++) {
        out->d[out->n++] = data->d[i];
    }
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

trm_status trm_infer_softmax(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    int32_t axis;
    TRM_TRY(trm_infer_axis(call->desc->softmax.axis, call->dims[0]->n, &axis));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    same_as_input(call, 0);
    return TRM_OK;
}

trm_status trm_infer_reduce(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    const trm_reduce_params *reduce = &call->desc->reduce;
    if ((unsigned)reduce->op >= TRM_REDUCE_NONE) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found reduce op %d, expected 0 to %d", (int)reduce->op,
                 TRM_REDUCE_NONE - 1);
    }
    const trm_dtype type = call->dtypes[0];
    const bool ordered = reduce->op == TRM_REDUCE_MAX || reduce->op == TRM_REDUCE_MIN;
    if (type > TRM_BOOL || (type == TRM_BOOL && !ordered)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has type %s, expected numbers", trm_dtype_name(type));
    }
    int32_t axis;
    TRM_TRY(trm_infer_axis(reduce->axis, call->dims[0]->n, &axis));
    same_as_input(call, 0);
    trm_dims *out = &call->output_dims[0];
    if (reduce->keep_dims) {
        out->d[axis] = 1;
        return TRM_OK;
    }
    for (int32_t i = axis; i + 1 < out->n; i++) {
        out->d[i] = out->d[i + 1];
    }
    out->n--;
    return TRM_OK;
}
