/*
 * Kinds that take or place elements by position: pad, gather_elements, gather_nd, scatter, one_hot, reverse_sequence,
 * topk, arg_reduce.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"

static trm_status infer_pad(const trm_infer_call *call)
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
    trm_infer_same(call, 0);
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

/* Axes that a pad leaves alone. What pads that are an input hold is known if it is constant. */
static bool is_padded(const trm_layer *layer, int32_t axis)
{
    const trm_pad_params *pad = &layer->desc.pad;
    if (layer->n_inputs > 1 && layer->inputs[1] != NULL) {
        const int64_t *pads = layer->inputs[1]->dtype == TRM_I64 ? layer->inputs[1]->value : NULL;
        return pads == NULL || pads[axis] != 0 || pads[layer->inputs[0]->dims.n + axis] != 0;
    }
    return pad->before[axis] != 0 || pad->after[axis] != 0;
}

static int32_t link_pad(const trm_layer *layer, int32_t k, int32_t i)
{
    return i > 0 ? TRM_LINK_WHOLE : is_padded(layer, k) ? TRM_LINK_NEVER : k;
}

/* Of what is padded with a value it is not. */
static bool pad_is_linear(const trm_layer *layer, uint32_t set)
{
    (void)set;
    return layer->n_inputs < 3 || layer->inputs[2] == NULL || layer->desc.pad.mode != TRM_PAD_CONSTANT;
}

const trm_kind trm_kind_pad = {
    TRM_FIELDS(TRM_FIELD(ENUM, pad, mode, .values = TRM_NAMES(TRM_PAD_MODES)),
               TRM_FIELD(INT32, pad, before, .count = TRM_MAX_DIMS),
               TRM_FIELD(INT32, pad, after, .count = TRM_MAX_DIMS)),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_pad,
    .value_inputs = 1u << 1,
    .link = link_pad,
    .sizes = trm_sizes_of_first,
    .linear = {1},
    .is_linear = pad_is_linear,
};

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

static trm_status infer_gather_elements(const trm_infer_call *call)
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

static void sizes_of_indices(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_follow(walk, layer->outputs[0], layer->inputs[1], layer->outputs[0]->dims.n);
}

const trm_kind trm_kind_gather_elements = {
    TRM_FIELDS(TRM_FIELD(INT32, gather_elements, axis, .always = true)),
    .axis = TRM_AT(gather_elements.axis),
    .traits = TRM_KIND_EVALUATED | TRM_KIND_LOOSE_SIZES,
    .infer = infer_gather_elements,
    .link = trm_link_but_axis,
    .sizes = sizes_of_indices,
    .linear = {1},
};

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

static trm_status infer_gather_nd(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    TRM_TRY(rows_of_data(call, call->desc->gather_nd.batch_dims, &call->output_dims[0]));
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

static int32_t link_gather_nd(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_dims *indices = &layer->inputs[1]->dims;
    int32_t batch = layer->desc.gather_nd.batch_dims, rows = indices->n - 1;
    if (k < batch) {
        return k;
    }
    if (k < rows) {
        return i == 1 ? k : TRM_LINK_WHOLE;
    }
    int64_t depth = indices->d[rows];
    return depth < 0 ? TRM_LINK_NEVER : i == 0 ? batch + (int32_t)depth + k - rows : TRM_LINK_WHOLE;
}

const trm_kind trm_kind_gather_nd = {
    TRM_FIELDS(TRM_FIELD(INT32, gather_nd, batch_dims)),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_gather_nd,
    .link = link_gather_nd,
    .linear = {1},
};

static trm_status infer_scatter(const trm_infer_call *call)
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
    return trm_infer_same(call, 0);
}

static int32_t link_scatter(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_dims *indices = &layer->inputs[1]->dims;
    if (layer->desc.scatter.form == TRM_SCATTER_ELEMENTS) {
        return k == layer->desc.scatter.axis ? TRM_LINK_NEVER : k;
    }
    int64_t depth = indices->d[indices->n - 1];
    if (depth < 0 || k < depth) {
        return TRM_LINK_NEVER;
    }
    return i == 0 ? k : i == 1 ? TRM_LINK_WHOLE : indices->n - 1 + k - (int32_t)depth;
}

const trm_kind trm_kind_scatter = {
    TRM_FIELDS(TRM_FIELD(ENUM, scatter, form, .always = true, .values = TRM_NAMES(TRM_SCATTER_FORMS)),
               TRM_FIELD(ENUM, scatter, reduction, .values = TRM_NAMES(TRM_SCATTER_REDUCTIONS)),
               TRM_FIELD(INT32, scatter, axis)),
    .axis = TRM_AT(scatter.axis),
    .traits = TRM_KIND_EVALUATED | TRM_KIND_LOOSE_SIZES,
    .infer = infer_scatter,
    .link = link_scatter,
    .sizes = trm_sizes_same,
    .linear = {1u << 0 | 1u << 2},
    .linear_if = {TRM_AT(scatter.reduction), 1u << TRM_SCATTER_REPLACE | 1u << TRM_SCATTER_ADD},
};

/* ---- one-hot, reversed sequences --------------------------------------------------------------- */

static trm_status infer_one_hot(const trm_infer_call *call)
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

static int32_t link_one_hot(const trm_layer *layer, int32_t k, int32_t i)
{
    int32_t n = layer->outputs[0]->dims.n, axis = layer->desc.one_hot.axis;
    axis = axis < 0 ? axis + n : axis;
    return k == axis ? TRM_LINK_NEVER : i == 0 ? (k < axis ? k : k - 1) : TRM_LINK_WHOLE;
}

const trm_kind trm_kind_one_hot = {
    TRM_FIELDS(TRM_FIELD(INT32, one_hot, axis, .always = true)),
    .axis = TRM_AT(one_hot.axis),
    .axis_of_output = true,
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_one_hot,
    .value_inputs = 1u << 1,
    .link = link_one_hot,
};

static trm_status infer_reverse_sequence(const trm_infer_call *call)
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
    trm_infer_same(call, 0);
    call->output_dims[0].d[p->batch_axis] = trm_dim_known(x->d[p->batch_axis], call->dims[1]->d[0]);
    return TRM_OK;
}

static int32_t link_reverse_sequence(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_reverse_sequence_params *p = &layer->desc.reverse_sequence;
    return k == p->time_axis ? TRM_LINK_NEVER : i == 0 ? k : k == p->batch_axis ? 0 : TRM_LINK_WHOLE;
}

const trm_kind trm_kind_reverse_sequence = {
    TRM_FIELDS(TRM_FIELD(INT32, reverse_sequence, batch_axis, .always = true),
               TRM_FIELD(INT32, reverse_sequence, time_axis, .always = true)),
    .infer = infer_reverse_sequence,
    .link = link_reverse_sequence,
    .sizes = trm_sizes_same,
    .linear = {1},
};

/* ---- by order ---------------------------------------------------------------------------------- */

static trm_status infer_topk(const trm_infer_call *call)
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
    trm_infer_same(call, 0);
    call->output_dims[0].d[axis] = k;
    call->output_dims[1] = call->output_dims[0];
    call->output_dtypes[1] = TRM_I64;
    return TRM_OK;
}

const trm_kind trm_kind_topk = {
    TRM_FIELDS(TRM_FIELD(INT32, topk, axis, .always = true), TRM_FIELD(BOOL, topk, smallest),
               TRM_FIELD(BOOL, topk, sorted)),
    .axis = TRM_AT(topk.axis),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_topk,
    .n_outputs = 2,
    .value_inputs = 1u << 1,
    .link = trm_link_first_but_axis,
};

static trm_status infer_arg_reduce(const trm_infer_call *call)
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

static int32_t link_arg_reduce(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_arg_reduce_params *p = &layer->desc.arg_reduce;
    (void)i;
    return !p->keep_dims ? (k < p->axis ? k : k + 1) : k == p->axis ? TRM_LINK_NEVER : k;
}

const trm_kind trm_kind_arg_reduce = {
    TRM_FIELDS(TRM_FIELD(INT32, arg_reduce, axis, .always = true), TRM_FIELD(BOOL, arg_reduce, smallest),
               TRM_FIELD(BOOL, arg_reduce, last), TRM_FIELD(BOOL, arg_reduce, keep_dims)),
    .axis = TRM_AT(arg_reduce.axis),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_arg_reduce,
    .link = link_arg_reduce,
    .sizes = trm_sizes_of_first,
};
