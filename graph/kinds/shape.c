/*
 * Kinds that are about shapes, whose dims follow from values or from data: shape, expand, tile, range, non_zero,
 * unique.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "base/half.h"

static trm_status infer_shape(const trm_infer_call *call)
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

/* Dims are known on every rank wherever they are not split, whatever the elements are. */
static trm_status shard_shape(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    int32_t n = layer->inputs[0]->dims.n, start = layer->desc.shape.start, end = layer->desc.shape.end;
    start = start < 0 ? start + n : start;
    end = end < 0 ? end + n : end;
    trm_way way = trm_way_whole();
    for (int32_t k = 0; k < n; k++) {
        if (k < start || k >= end) {
            way.in[0] = trm_split(k, parts);
            TRM_TRY(taker->take(taker, layer, &way));
        }
    }
    way.in[0] = trm_partial(parts);
    return taker->take(taker, layer, &way);
}

/* Where it asks for the batch, that of a part is multiplied. */
static trm_status shard_shape_of_batch(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    trm_way way = trm_way_whole();
    way.in[0] = taker->batch_axis < 0 ? trm_partial(parts) : trm_split(taker->batch_axis, parts);
    return taker->take(taker, layer, &way);
}

const trm_kind trm_kind_shape = {
    TRM_FIELDS(TRM_FIELD(INT32, shape, start), TRM_FIELD(INT32, shape, end, .normal = INT32_MAX)),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_shape,
    .shard = shard_shape,
    .shard_batch = shard_shape_of_batch,
};

static trm_status infer_expand(const trm_infer_call *call)
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

/* A shape that is an input is that of the whole. */
static int32_t link_expand(const trm_layer *layer, int32_t k, int32_t i)
{
    return layer->n_inputs > 1 ? TRM_LINK_NEVER : trm_link_broadcast(layer, k, i);
}

static void localize_expand(const trm_layer *layer, const trm_sharding *out, int64_t first_row, trm_layer_desc *desc)
{
    const trm_dims dims = trm_sharding_local_dims(&layer->outputs[0]->dims, out);
    const int32_t axis = out->axis - (dims.n - desc->expand.dims.n);
    (void)first_row;
    if (out->kind == TRM_SPLIT && axis >= 0 && desc->expand.dims.d[axis] > 1) {
        desc->expand.dims.d[axis] = dims.d[out->axis];
    }
}

const trm_kind trm_kind_expand = {
    TRM_FIELDS(TRM_FIELD(DIMS, expand, dims)),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_expand,
    .value_inputs = 1u << 1,
    .link = link_expand,
    .sizes = trm_sizes_of_first,
    .linear = {1},
    .localize = localize_expand,
};

static trm_status infer_tile(const trm_infer_call *call)
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

/* Whether an axis stays as long as it is: of an unknown size that shows in the repeats alone. */
static bool is_tiled(const trm_layer *layer, int32_t axis)
{
    const trm_dims *in = &layer->inputs[0]->dims, *out = &layer->outputs[0]->dims;
    const trm_tensor *repeats = layer->n_inputs > 1 ? layer->inputs[1] : NULL;
    const int64_t *values = repeats != NULL && repeats->dtype == TRM_I64 ? repeats->value : NULL;
    return in->d[axis] >= 0 ? in->d[axis] != out->d[axis] : values == NULL || values[axis] != 1;
}

static int32_t link_tile(const trm_layer *layer, int32_t k, int32_t i)
{
    return i == 1 ? TRM_LINK_WHOLE : is_tiled(layer, k) ? TRM_LINK_NEVER : k;
}

const trm_kind trm_kind_tile = {
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_tile,
    .value_inputs = 1u << 1,
    .link = link_tile,
    .sizes = trm_sizes_of_first,
    .linear = {1},
};

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

static trm_status infer_range(const trm_infer_call *call)
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

const trm_kind trm_kind_range = {
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_range,
    .value_inputs = 1u << 0 | 1u << 1 | 1u << 2,
};

/* ---- data-dependent ---------------------------------------------------------------------------- */

static trm_status infer_non_zero(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    call->output_dims[0] = (trm_dims){2, {call->dims[0]->n, -1}};
    call->output_dims[1] = (trm_dims){0};
    call->output_dtypes[0] = call->output_dtypes[1] = TRM_I64;
    return TRM_OK;
}

static int64_t most_non_zero(const trm_layer_desc *desc, const trm_dims *const *input_dims)
{
    (void)desc;
    return trm_dims_count_known(input_dims[0]);
}

static void set_non_zero(const trm_layer_desc *desc, int64_t count, trm_dims *output_dims)
{
    (void)desc;
    output_dims[0].d[1] = count;
}

const trm_kind trm_kind_non_zero = {
    .infer = infer_non_zero,
    .n_outputs = 2,
    .largest_count = most_non_zero,
    .set_count = set_non_zero,
};

static trm_status infer_unique(const trm_infer_call *call)
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
    call->output_dims[2] = (trm_dims){1, {unique->flatten ? trm_dims_count_known(x) : x->d[axis]}};
    call->output_dims[4] = (trm_dims){0};
    call->output_dtypes[0] = call->dtypes[0];
    for (int32_t i = 1; i < 5; i++) {
        call->output_dtypes[i] = TRM_I64;
    }
    return TRM_OK;
}

static int32_t unique_axis(const trm_unique_params *p, int32_t rank)
{
    return p->flatten ? 0 : p->axis < 0 ? p->axis + rank : p->axis;
}

static int64_t most_unique(const trm_layer_desc *desc, const trm_dims *const *input_dims)
{
    const trm_dims *x = input_dims[0];
    return desc->unique.flatten ? trm_dims_count_known(x) : x->d[unique_axis(&desc->unique, x->n)];
}

static void set_unique(const trm_layer_desc *desc, int64_t count, trm_dims *output_dims)
{
    output_dims[0].d[unique_axis(&desc->unique, output_dims[0].n)] = count;
    output_dims[1].d[0] = output_dims[3].d[0] = count;
}

const trm_kind trm_kind_unique = {
    TRM_FIELDS(TRM_FIELD(BOOL, unique, flatten), TRM_FIELD(BOOL, unique, sorted), TRM_FIELD(INT32, unique, axis)),
    .axis = TRM_AT(unique.axis),
    .infer = infer_unique,
    .n_outputs = 5,
    .largest_count = most_unique,
    .set_count = set_unique,
};
