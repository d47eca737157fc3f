/*
 * Shape and type rules of the kinds that are about shapes: their dims follow from values, or from data.
 */
#include "graph/infer.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "base/half.h"

/* Rank that a value input of sizes stands for: the number of its elements. */
static trm_status rank_of_sizes(const trm_infer_call *call, int32_t input, const char *what, int32_t *rank)
{
    TRM_TRY(trm_infer_require_rank(call, input, what, 1));
    int64_t n = call->dims[input]->d[0];
    if (n < 0 || n > TRM_MAX_DIMS) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has dims %s, expected a known number of sizes, at most %d", what,
                 trm_dims_format(call->dims[input], text), TRM_MAX_DIMS);
    }
    *rank = (int32_t)n;
    return TRM_OK;
}

trm_status trm_infer_sizes(const trm_infer_call *call, int32_t input, const char *what, trm_dims *sizes, bool *known)
{
    *sizes = (trm_dims){0};
    TRM_TRY(rank_of_sizes(call, input, what, &sizes->n));
    return trm_infer_values(call, input, what, sizes->n, sizes->d, known);
}

trm_status trm_infer_shape(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    int64_t n = call->dims[0]->n, start = call->desc->shape.start, end = call->desc->shape.end;
    start = start < 0 ? start + n : start;
    end = end < 0 ? end + n : end;
    start = start < 0 ? 0 : start > n ? n : start;
    end = end < start ? start : end > n ? n : end;
    call->output_dims[0] = (trm_dims){1, {end - start}};
    call->output_dtypes[0] = TRM_I64;
    return TRM_OK;
}

trm_status trm_infer_expand(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 2));
    const trm_dims *in = call->dims[0];
    trm_dims sizes = call->desc->expand.dims, *out = &call->output_dims[0];
    bool known = true;
    call->output_dtypes[0] = call->dtypes[0];
    if (trm_infer_has(call, 1)) {
        TRM_TRY(trm_infer_sizes(call, 1, "shape", &sizes, &known));
    }
    if (sizes.n < 0 || sizes.n > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "expand to %" PRId32 " dimensions, expected at most %d", sizes.n,
                 TRM_MAX_DIMS);
    }
    for (int32_t i = 0; i < sizes.n; i++) {
        if (known && sizes.d[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "expand to size %" PRId64 " at dimension %" PRId32 ", expected at least 0", sizes.d[i], i);
        }
    }
    if (known) {
        return trm_infer_broadcast(in, &sizes, 0, out);
    }
    const trm_dims *hints = &call->desc->expand.dims;
    out->n = sizes.n > in->n ? sizes.n : in->n;
    for (int32_t i = 0; i < out->n; i++) {
        int32_t own = i - (out->n - in->n), wanted = i - (out->n - sizes.n);
        int64_t hint = hints->n == sizes.n && wanted >= 0 ? hints->d[wanted] : -1;
        int64_t size = own >= 0 ? in->d[own] : 1;
        bool kept = size > 1 || size == 0 || wanted < 0 || hint == 1;
        out->d[i] = kept ? size : hint > 1 ? hint : -1;
    }
    return TRM_OK;
}

trm_status trm_infer_tile(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    const trm_dims *in = call->dims[0];
    trm_dims *out = &call->output_dims[0];
    int64_t repeats[TRM_MAX_DIMS];
    bool known;
    TRM_TRY(trm_infer_require_rank(call, 1, "repeats", 1));
    TRM_TRY(trm_infer_values(call, 1, "repeats", in->n, repeats, &known));
    out->n = in->n;
    call->output_dtypes[0] = call->dtypes[0];
    for (int32_t i = 0; i < in->n; i++) {
        out->d[i] = -1;
        if (!known) {
            continue;
        }
        if (repeats[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %" PRId64 " repeats of axis %" PRId32 ", expected at least 0",
                     repeats[i], i);
        }
        if (in->d[i] >= 0 && __builtin_mul_overflow(in->d[i], repeats[i], &out->d[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the size of axis %" PRId32 " overflows", i);
        }
    }
    return TRM_OK;
}

/* ---- range ------------------------------------------------------------------------------------- */

static double number_at(trm_dtype dtype, const void *value)
{
    switch (dtype) {
    case TRM_F32:
        return (double)*(const float *)value;
    case TRM_F64:
        return *(const double *)value;
    case TRM_F16:
        return (double)trm_f16_to_f32(*(const uint16_t *)value);
    case TRM_BF16:
        return (double)trm_bf16_to_f32(*(const uint16_t *)value);
    case TRM_I16:
        return (double)*(const int16_t *)value;
    case TRM_I32:
        return (double)*(const int32_t *)value;
    default:
        return (double)*(const int64_t *)value;
    }
}

/* max(0, ceil((limit - start) / delta)) without rounding. */
static int64_t count_integers(int64_t start, int64_t limit, int64_t delta)
{
    if (delta > 0 ? start >= limit : start <= limit) {
        return 0;
    }
    uint64_t span = delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
    uint64_t step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta;
    uint64_t count = (span - 1) / step + 1;
    return count > INT64_MAX ? INT64_MAX : (int64_t)count;
}

trm_status trm_infer_range(const trm_infer_call *call)
{
    static const char *const names[] = {"start", "limit", "delta"};
    TRM_TRY(trm_infer_require_inputs(call, 3, 3));
    trm_dtype dtype = call->dtypes[0];
    if (!trm_dtype_is_float(dtype) && dtype != TRM_I16 && dtype != TRM_I32 && dtype != TRM_I64) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "start has type %s, expected a float type, i16, i32 or i64",
                 trm_dtype_name(dtype));
    }
    bool known = call->values != NULL;
    double values[3] = {0, 0, 1};
    for (int32_t i = 0; i < 3; i++) {
        TRM_TRY(trm_infer_require_dtype(call, i, names[i], dtype));
        if (call->dims[i]->n > 1 || (call->dims[i]->n == 1 && !trm_dim_fits(call->dims[i]->d[0], 1))) {
            char text[TRM_DIMS_TEXT_SIZE];
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has dims %s, expected one element", names[i],
                     trm_dims_format(call->dims[i], text));
        }
        known = known && call->values[i] != NULL;
        if (known) {
            values[i] = number_at(dtype, call->values[i]);
        }
    }
    call->output_dims[0] = (trm_dims){1, {-1}};
    call->output_dtypes[0] = dtype;
    if (!known) {
        return TRM_OK;
    }
    if (values[2] == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "delta is 0");
    }
    double count = ceil((values[1] - values[0]) / values[2]);
    if (dtype == TRM_I64) {
        const int64_t *const *v = (const int64_t *const *)call->values;
        call->output_dims[0].d[0] = count_integers(*v[0], *v[1], *v[2]);
    } else if (!(count < 0x1p62)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the range from %g to %g by %g has too many elements", values[0],
                 values[1], values[2]);
    } else {
        call->output_dims[0].d[0] = count > 0 ? (int64_t)count : 0;
    }
    return TRM_OK;
}

/* ---- data-dependent ---------------------------------------------------------------------------- */

trm_status trm_infer_non_zero(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    call->output_dims[0] = (trm_dims){2, {call->dims[0]->n, -1}};
    call->output_dims[1] = (trm_dims){0};
    call->output_dtypes[0] = call->output_dtypes[1] = TRM_I64;
    return TRM_OK;
}

/* Elements of dims, -1 if one of them is unknown. */
static int64_t count_known(const trm_dims *dims)
{
    int64_t count = 1;
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] == -1) {
            return -1;
        }
        count *= dims->d[i];
    }
    return count;
}

trm_status trm_infer_unique(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    const trm_unique_params *unique = &call->desc->unique;
    const trm_dims *x = call->dims[0];
    int32_t axis = 0;
    if (!unique->flatten) {
        TRM_TRY(trm_infer_axis(unique->axis, x->n, &axis));
    }
    call->output_dims[0] = unique->flatten ? (trm_dims){1, {-1}} : *x;
    call->output_dims[0].d[axis] = -1;
    call->output_dims[1] = call->output_dims[3] = (trm_dims){1, {-1}};
    call->output_dims[2] = (trm_dims){1, {unique->flatten ? count_known(x) : x->d[axis]}};
    call->output_dims[4] = (trm_dims){0};
    call->output_dtypes[0] = call->dtypes[0];
    for (int32_t i = 1; i < 5; i++) {
        call->output_dtypes[i] = TRM_I64;
    }
    return TRM_OK;
}

int64_t trm_layer_largest_count(const trm_layer_desc *desc, const trm_dims *const *input_dims)
{
    const trm_dims *x = input_dims[0];
    switch (desc->kind) {
    case TRM_LAYER_UNIQUE:
        return desc->unique.flatten ? count_known(x)
                                    : x->d[desc->unique.axis < 0 ? desc->unique.axis + x->n : desc->unique.axis];
    case TRM_LAYER_NON_MAX_SUPPRESSION:
        return count_known(input_dims[1]); /* every box of every class */
    default:
        return count_known(x);
    }
}

void trm_layer_set_count(const trm_layer_desc *desc, int64_t count, trm_dims *output_dims)
{
    switch (desc->kind) {
    case TRM_LAYER_NON_ZERO:
        output_dims[0].d[1] = count;
        break;
    case TRM_LAYER_UNIQUE: {
        int32_t rank = output_dims[0].n;
        output_dims[0].d[desc->unique.flatten    ? 0
                         : desc->unique.axis < 0 ? desc->unique.axis + rank
                                                 : desc->unique.axis] = count;
        output_dims[1].d[0] = output_dims[3].d[0] = count;
        break;
    }
    default:
        output_dims[0].d[0] = count;
        break;
    }
}
