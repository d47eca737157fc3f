/*
 * Kinds that move elements, or sum them along an axis: cast, reshape, transpose, slice, concat, gather, embedding,
 * softmax, reduce.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"
#include "kernels/movement/slice.h"
#include "kernels/small_types.h"

static trm_status infer_cast(const trm_infer_call *call)
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
    trm_infer_same(call, 0);
    call->output_dtypes[0] = to;
    return TRM_OK;
}

const trm_kind trm_kind_cast = {
    TRM_FIELDS(TRM_FIELD(DTYPE, cast, to, .always = true), TRM_FIELD(BOOL, cast, unsaturated),
               TRM_FIELD(ENUM, cast, round, .values = TRM_NAMES(TRM_CAST_ROUNDS)), TRM_FIELD(BOOL, cast, bits)),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_cast,
    .link = trm_link_same,
    .sizes = trm_sizes_same,
    .linear = {1},
    .keeps_zero = trm_keeps_zero,
};

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

static trm_status infer_reshape(const trm_infer_call *call)
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

/*
 * A reshape is a row of groups: the fewest input axes and output axes with the same number of elements. The first axes
 * of a group longer than 1 follow each other, as blocks of them are blocks of the group. An unknown axis is a group
 * with an unknown axis; that such a pairing is right shows in that all groups after it close. Nothing follows from a
 * shape that is an input: it is that of the whole tensor.
 */
static int32_t link_groups(const trm_dims *in, const trm_dims *out, int32_t k)
{
    int32_t i = 0, j = 0, found = TRM_LINK_NEVER;
    while (i < in->n && j < out->n) {
        int32_t lead_in = i, lead_out = j;
        int64_t size_in = in->d[i++], size_out = out->d[j++];
        while (size_in != size_out) {
            bool grow_in = size_out == -1 || (size_in != -1 && size_in < size_out);
            int64_t *size = grow_in ? &size_in : &size_out;
            if (grow_in ? i == in->n : j == out->n) {
                return TRM_LINK_NEVER;
            }
            int64_t next = grow_in ? in->d[i++] : out->d[j++];
            if (*size != 1 && (next <= 0 || size_in == -1 || size_out == -1)) {
                return TRM_LINK_NEVER;
            }
            *size *= next;
        }
        while (lead_in < i - 1 && in->d[lead_in] == 1) {
            lead_in++;
        }
        while (lead_out < j - 1 && out->d[lead_out] == 1) {
            lead_out++;
        }
        found = lead_out == k ? lead_in : found;
    }
    for (; i < in->n; i++) {
        found = in->d[i] == 1 ? found : TRM_LINK_NEVER;
    }
    for (; j < out->n; j++) {
        found = out->d[j] == 1 ? found : TRM_LINK_NEVER;
    }
    return found;
}

static int32_t link_reshape(const trm_layer *layer, int32_t k, int32_t i)
{
    return layer->n_inputs > 1 ? TRM_LINK_NEVER : link_groups(&layer->inputs[i]->dims, &layer->outputs[0]->dims, k);
}

/* The one axis of a reshape's input that its -1 stands for, or -1. */
static int32_t inferred_from(const trm_dims *in, const trm_dims *wanted)
{
    int64_t from = 1, to = 1;
    int32_t axis = -1;
    for (int32_t i = 0; i < in->n; i++) {
        if (i < wanted->n && wanted->d[i] == 0) {
            continue;
        }
        if (in->d[i] == -1) {
            if (axis >= 0) {
                return -1;
            }
            axis = i;
        } else {
            from *= in->d[i];
        }
    }
    for (int32_t i = 0; i < wanted->n; i++) {
        to *= wanted->d[i] > 0 ? wanted->d[i] : 1;
    }
    return from == to && from != 0 ? axis : -1;
}

static void sizes_of_reshape(trm_size_walk *walk, const trm_layer *layer)
{
    const trm_tensor *in = layer->inputs[0], *out = layer->outputs[0];
    const trm_dims *wanted = &layer->desc.reshape.dims;
    const bool given = layer->n_inputs > 1;
    int32_t inferred = given ? -1 : inferred_from(&in->dims, wanted);
    for (int32_t i = 0; i < out->dims.n; i++) {
        const bool copied = !given && wanted->d[i] == 0;
        const bool follows = copied || (inferred >= 0 && wanted->d[i] == -1);
        trm_size_set(walk, out, i, follows ? in : NULL, copied ? i : inferred);
    }
}

static void localize_reshape(const trm_layer *layer, const trm_sharding *out, int64_t first_row, trm_layer_desc *desc)
{
    const trm_dims dims = trm_sharding_local_dims(&layer->outputs[0]->dims, out);
    (void)first_row;
    for (int32_t i = 0; i < dims.n; i++) {
        desc->reshape.dims.d[i] = dims.d[i] > 0 ? dims.d[i] : desc->reshape.dims.d[i];
    }
}
const trm_kind trm_kind_reshape = {
    TRM_FIELDS(TRM_FIELD(DIMS, reshape, dims, .always = true), TRM_FIELD(BOOL, reshape, zero_is_zero)),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_reshape,
    .value_inputs = 1u << 1,
    .link = link_reshape,
    .sizes = sizes_of_reshape,
    .linear = {1},
    .keeps_zero = trm_keeps_zero,
    .localize = localize_reshape,
};

/* ---- moving ------------------------------------------------------------------------------------ */

static trm_status infer_transpose(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    const trm_dims *in = call->dims[0];
    const int32_t *perm = call->desc->transpose.perm;
    bool seen[TRM_MAX_DIMS] = {false};
    trm_infer_same(call, 0);
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

static int32_t link_transpose(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)i;
    return layer->desc.transpose.perm[k];
}

const trm_kind trm_kind_transpose = {
    TRM_FIELDS(TRM_FIELD(PERM, transpose, perm, .always = true)),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_transpose,
    .link = link_transpose,
    .sizes = trm_sizes_of_first,
    .linear = {1},
    .keeps_zero = trm_keeps_zero,
};

static trm_status infer_slice(const trm_infer_call *call)
{
    static const char *const names[] = {"start", "end", "step"};
    TRM_TRY(trm_infer_require_inputs(call, 1, 4));
    trm_slice_params slice = call->desc->slice;
    int64_t *fields[] = {&slice.start, &slice.end, &slice.step};
    int32_t axis;
    bool all_known = true;
    TRM_TRY(trm_infer_axis(slice.axis, call->dims[0]->n, &axis));
    trm_infer_same(call, 0);
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

const trm_kind trm_kind_slice = {
    TRM_FIELDS(TRM_FIELD(INT32, slice, axis, .always = true), TRM_FIELD(INT64, slice, start),
               TRM_FIELD(INT64, slice, end, .normal = INT64_MAX), TRM_FIELD(INT64, slice, step, .normal = 1)),
    .axis = TRM_AT(slice.axis),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_slice,
    .value_inputs = 1u << 1 | 1u << 2 | 1u << 3,
    .link = trm_link_first_but_axis,
    .sizes = trm_sizes_of_first,
    .linear = {1},
    .keeps_zero = trm_keeps_zero,
};

static trm_status infer_concat(const trm_infer_call *call)
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

const trm_kind trm_kind_concat = {
    TRM_FIELDS(TRM_FIELD(INT32, concat, axis, .always = true)),
    .axis = TRM_AT(concat.axis),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_concat,
    .link = trm_link_but_axis,
    .sizes = trm_sizes_of_first,
    .linear = {UINT32_MAX},
    .keeps_zero = trm_keeps_zero,
};

/* ---- rows of a table --------------------------------------------------------------------------- */

/* Rows of zeros behind the table's, and none behind the indices that are not cut. */
static bool rows_keep_zero(const trm_layer *layer, uint32_t split)
{
    (void)layer;
    return (split & 1) != 0;
}

static trm_status infer_gather(const trm_infer_call *call)
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

static int32_t link_gather(const trm_layer *layer, int32_t k, int32_t i)
{
    int32_t axis = layer->desc.gather.axis, n = layer->inputs[1]->dims.n;
    if (k >= axis && k < axis + n) {
        return i == 0 ? TRM_LINK_WHOLE : k - axis;
    }
    return i == 1 ? TRM_LINK_WHOLE : k < axis ? k : k - n + 1;
}
const trm_kind trm_kind_gather = {
    TRM_FIELDS(TRM_FIELD(INT32, gather, axis, .always = true)),
    .axis = TRM_AT(gather.axis),
    .traits = TRM_KIND_EVALUATED | TRM_KIND_LOOKS_UP,
    .infer = infer_gather,
    .link = link_gather,
    .sizes = trm_sizes_linked,
    .linear = {1},
    .keeps_zero = rows_keep_zero,
};

static trm_status infer_embedding(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    TRM_TRY(trm_infer_require_rank(call, 0, "table", 2));
    TRM_TRY(trm_infer_require_rank(call, 1, "ids", 1));
    TRM_TRY(trm_infer_require_dtype(call, 1, "ids", TRM_I32));
    call->output_dims[0] = trm_dims2(call->dims[1]->d[0], call->dims[0]->d[1]);
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

static int32_t link_embedding(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)layer;
    return (k == 0) == (i == 1) ? k : TRM_LINK_WHOLE;
}

/* Rows that a rank lacks are zeros, so that the ranks' results add up. */
static trm_status shard_rows(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    trm_way way = trm_way_whole();
    way.in[0] = trm_split(0, parts);
    way.out[0] = trm_partial(parts);
    return taker->take(taker, layer, &way);
}

static void localize_embedding(const trm_layer *layer, const trm_sharding *out, int64_t first_row, trm_layer_desc *desc)
{
    (void)layer;
    (void)out;
    desc->embedding.first_row += first_row;
}

const trm_kind trm_kind_embedding = {
    TRM_FIELDS(TRM_FIELD(INT64, embedding, first_row)),
    .traits = TRM_KIND_LOOKS_UP,
    .infer = infer_embedding,
    .link = link_embedding,
    .sizes = trm_sizes_linked,
    .keeps_zero = rows_keep_zero,
    .shard = shard_rows,
    .localize = localize_embedding,
};

/* ---- along an axis ----------------------------------------------------------------------------- */

static trm_status infer_softmax(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    int32_t axis;
    TRM_TRY(trm_infer_axis(call->desc->softmax.axis, call->dims[0]->n, &axis));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    return trm_infer_same(call, 0);
}

const trm_kind trm_kind_softmax = {
    TRM_FIELDS(TRM_FIELD(INT32, softmax, axis, .always = true)),
    .axis = TRM_AT(softmax.axis),
    .infer = infer_softmax,
    .link = trm_link_but_axis,
    .sizes = trm_sizes_same,
};

static trm_status infer_reduce(const trm_infer_call *call)
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
    trm_infer_same(call, 0);
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

static int32_t link_reduce(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_reduce_params *reduce = &layer->desc.reduce;
    (void)i;
    return !reduce->keep_dims ? (k < reduce->axis ? k : k + 1) : k == reduce->axis ? TRM_LINK_NEVER : k;
}

static trm_status shard_sum(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    trm_way way = trm_way_whole();
    way.in[0] = trm_split(layer->desc.reduce.axis, parts);
    way.out[0] = trm_partial(parts);
    return layer->desc.reduce.op == TRM_REDUCE_SUM ? taker->take(taker, layer, &way) : TRM_OK;
}

const trm_kind trm_kind_reduce = {
    TRM_FIELDS(TRM_FIELD(ENUM, reduce, op, .always = true, .values = TRM_NAMES(TRM_REDUCE_OPS)),
               TRM_FIELD(INT32, reduce, axis, .always = true), TRM_FIELD(BOOL, reduce, keep_dims)),
    .axis = TRM_AT(reduce.axis),
    .traits = TRM_KIND_EVALUATED,
    .infer = infer_reduce,
    .link = link_reduce,
    .sizes = trm_sizes_of_first,
    .linear = {1},
    .linear_if = {TRM_AT(reduce.op), 1u << TRM_REDUCE_SUM | 1u << TRM_REDUCE_AVG},
    .keeps_zero = trm_keeps_zero,
    .shard = shard_sum,
    .shard_batch = shard_sum,
};
