/*
 * Collectives, alone and with a following norm: dist_collective, all_reduce_norm.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"
#include "collectives/reduce.h"

/* The effect of an op on the axis, and which of its params it uses. */
typedef struct collective_rule {
    bool multiplies, divides; /* the axis becomes n * d, d / n */
    bool needs_divisible;     /* the axis is cut into n slices */
    bool reduces, has_root, is_peer;
} collective_rule;

static const collective_rule collective_rules[] = {
    [TRM_ALL_REDUCE] = {.reduces = true},
    [TRM_ALL_GATHER] = {.multiplies = true},
    [TRM_BROADCAST] = {.has_root = true},
    [TRM_REDUCE] = {.reduces = true, .has_root = true},
    [TRM_REDUCE_SCATTER] = {.divides = true, .needs_divisible = true, .reduces = true},
    [TRM_ALL_TO_ALL] = {.needs_divisible = true},
    [TRM_GATHER] = {.multiplies = true, .has_root = true},
    [TRM_SCATTER] = {.divides = true, .needs_divisible = true, .has_root = true},
    [TRM_SEND] = {.is_peer = true},
    [TRM_RECV] = {.is_peer = true},
};

static trm_status check_groups(const trm_collective_params *params)
{
    if (params->n_groups == 0) {
        return TRM_OK;
    }
    if (params->n_groups < 0 || params->group_size < 1 || params->n_groups > TRM_MAX_RANKS ||
        params->group_size > TRM_MAX_RANKS || params->n_groups * params->group_size > TRM_MAX_RANKS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId32 " groups of %" PRId32 " ranks, expected at most %d ranks in all", params->n_groups,
                 params->group_size, TRM_MAX_RANKS);
    }
    int32_t n = params->n_groups * params->group_size;
    for (int32_t i = 0; i < n; i++) {
        if (params->groups[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found rank %" PRId32 " in a group, expected at least 0",
                     params->groups[i]);
        }
        for (int32_t j = 0; j < i; j++) {
            if (params->groups[i] == params->groups[j]) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "rank %" PRId32 " is twice in the groups", params->groups[i]);
            }
        }
    }
    return TRM_OK;
}

static trm_status check_root(const trm_collective_params *params)
{
    bool valid = params->root >= 0;
    if (params->n_groups == 1) {
        valid = false;
        for (int32_t i = 0; i < params->group_size; i++) {
            valid = valid || params->groups[i] == params->root;
        }
    } else {
        valid = valid && params->root < params->n_ranks;
    }
    if (!valid) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found root %" PRId32 ", expected %s", params->root,
                 params->n_groups > 1 ? "an index into the group" : "a rank of the group");
    }
    return TRM_OK;
}

static trm_status check_params(const trm_collective_params *params, const collective_rule *rule, trm_dtype dtype)
{
    if ((unsigned)params->reduce > TRM_REDUCE_NONE - (rule->reduces ? 1u : 0u)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found reduce op %d, expected 0 to %d", (int)params->reduce,
                 TRM_REDUCE_NONE - (rule->reduces ? 1 : 0));
    }
    TRM_TRY(check_groups(params));
    if (rule->is_peer) {
        if (params->root < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found peer %" PRId32 ", expected a rank of at least 0", params->root);
        }
        return TRM_OK;
    }
    if (params->n_ranks < 1 || params->n_ranks > TRM_MAX_RANKS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "n_ranks is %" PRId32 ", expected 1 to %d", params->n_ranks,
                 TRM_MAX_RANKS);
    }
    if (params->n_groups > 0 && params->group_size != params->n_ranks) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "n_ranks is %" PRId32 ", expected the group size of %" PRId32,
                 params->n_ranks, params->group_size);
    }
    if (rule->has_root) {
        TRM_TRY(check_root(params));
    }
    if (rule->reduces && !trm_reduce_supported(dtype, params->reduce)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has type %s, expected %s", trm_dtype_name(dtype),
                 dtype == TRM_BOOL ? "numbers, or bool with max or min" : "numbers to reduce");
    }
    return TRM_OK;
}

/* What the axes of the inputs whose bits are set in `axes` broadcast to; -2 if one is not there or two do not fit. */
static int64_t broadcast_axes(const trm_infer_call *call, int64_t axes)
{
    int64_t size = 1;
    int32_t k = 0;
    for (int32_t i = 0; i < call->n_inputs; i++) {
        for (int32_t axis = 0; axis < call->dims[i]->n && k < 63; axis++, k++) {
            int64_t other = (axes >> k & 1) != 0 ? call->dims[i]->d[axis] : 1;
            axes &= ~((int64_t)1 << k);
            if (other != 1 && size != 1 && !trm_dim_fits(size, other)) {
                return -2;
            }
            size = size == 1 ? other : other == 1 ? size : size == -1 || other == -1 ? -1 : size;
        }
    }
    return axes == 0 ? size : -2;
}

/* A RECV with its own type and dims. */
static trm_status infer_receive(const trm_infer_call *call)
{
    const trm_collective_params *params = &call->desc->collective;
    TRM_TRY(
        trm_infer_require_inputs(call, call->n_inputs > 0 ? call->n_inputs : 1, TRM_MAX_LAYER_INPUTS)); /* all given */
    if (trm_dtype_size(params->dtype) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "recv has type %s (%d), expected an element type",
                 trm_dtype_name(params->dtype), (int)params->dtype);
    }
    if (params->dims.n < 0 || params->dims.n > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "recv of %" PRId32 " dimensions, expected at most %d", params->dims.n,
                 TRM_MAX_DIMS);
    }
    trm_dims out = params->dims;
    for (int32_t i = 0; i < out.n; i++) {
        out.d[i] = out.d[i] < 0 ? broadcast_axes(call, -out.d[i]) : out.d[i];
        if (out.d[i] < -1) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "dimension %" PRId32 " of recv is %" PRId64 ": the inputs have no such axes that fit each other",
                     i, params->dims.d[i]);
        }
    }
    call->output_dims[0] = out;
    call->output_dtypes[0] = params->dtype;
    return check_params(params, &collective_rules[TRM_RECV], params->dtype);
}

static trm_status infer_collective(const trm_infer_call *call)
{
    const trm_collective_params *params = &call->desc->collective;
    if (params->op == TRM_RECV && params->dtype != TRM_DTYPE_NONE) {
        return infer_receive(call);
    }
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    if ((unsigned)params->op > TRM_RECV) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found collective op %d, expected 0 to %d", (int)params->op,
                 (int)TRM_RECV);
    }
    const collective_rule *rule = &collective_rules[params->op];
    TRM_TRY(check_params(params, rule, call->dtypes[0]));
    call->output_dims[0] = *call->dims[0];
    call->output_dtypes[0] = call->dtypes[0];
    if (!rule->multiplies && !rule->needs_divisible) {
        return TRM_OK;
    }
    int32_t axis;
    TRM_TRY(trm_infer_axis(params->axis, call->dims[0]->n, &axis));
    int64_t *size = &call->output_dims[0].d[axis];
    if (*size == -1) {
        return TRM_OK;
    }
    if (rule->multiplies && __builtin_mul_overflow(*size, (int64_t)params->n_ranks, size)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the size of axis %" PRId32 " overflows", axis);
    }
    if (rule->needs_divisible && *size % params->n_ranks != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "axis %" PRId32 " has size %" PRId64 ", expected a multiple of %" PRId32,
                 axis, *size, params->n_ranks);
    }
    if (rule->divides) {
        *size /= params->n_ranks;
    }
    return TRM_OK;
}

/* Dims of a RECV that names axes of its inputs. */
static void sizes_of_receive(trm_size_walk *walk, const trm_layer *layer)
{
    const trm_tensor *out = layer->outputs[0];
    for (int32_t i = 0; i < out->dims.n; i++) {
        int64_t axes = -layer->desc.collective.dims.d[i], k = 0;
        int32_t j = 0;
        bool is_one = axes > 0 && (axes & (axes - 1)) == 0;
        while (is_one && axes >> k != 1) {
            k++;
        }
        for (; is_one && j < layer->n_inputs && k >= layer->inputs[j]->dims.n; j++) {
            k -= layer->inputs[j]->dims.n;
        }
        bool follows = is_one && j < layer->n_inputs;
        trm_size_set(walk, out, i, follows ? layer->inputs[j] : NULL, follows ? (int32_t)k : 0);
    }
}

static void sizes_of_collective(trm_size_walk *walk, const trm_layer *layer)
{
    const trm_collective_params *p = &layer->desc.collective;
    if (p->op == TRM_RECV && p->dtype != TRM_DTYPE_NONE) {
        sizes_of_receive(walk, layer);
        return;
    }
    trm_sizes_same(walk, layer);
    if (collective_rules[p->op].multiplies || collective_rules[p->op].divides) {
        trm_size_set(walk, layer->outputs[0], p->axis, NULL, 0);
    }
}

/* Entries along other axes are exchanged apart. */
static int32_t link_collective(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_collective_params *p = &layer->desc.collective;
    const bool cuts = p->op == TRM_ALL_GATHER || p->op == TRM_ALL_TO_ALL;
    return cuts && i == 0 && k != p->axis ? k : TRM_LINK_NEVER;
}

const trm_kind trm_kind_dist_collective = {
    TRM_FIELDS(TRM_FIELD(ENUM, collective, op, .always = true, .values = TRM_NAMES(TRM_COLLECTIVE_OPS)),
               TRM_FIELD(ENUM, collective, reduce, .values = TRM_NAMES(TRM_REDUCE_OPS)),
               TRM_FIELD(INT32, collective, axis), TRM_FIELD(INT32, collective, root),
               TRM_FIELD(INT32, collective, n_ranks, .always = true), TRM_FIELD(INT32, collective, n_groups),
               TRM_FIELD(INT32, collective, group_size), TRM_FIELD(GROUPS, collective, groups),
               TRM_FIELD(DTYPE, collective, dtype), TRM_FIELD(DIMS, collective, dims)),
    .axis = TRM_AT(collective.axis),
    .infer = infer_collective,
    .link = link_collective,
    .sizes = sizes_of_collective,
};

static trm_status infer_all_reduce_norm(const trm_infer_call *call)
{
    const trm_all_reduce_norm_params *params = &call->desc->all_reduce_norm;
    trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = params->norm};
    trm_infer_call of_norm = *call;
    of_norm.desc = &norm;
    if (params->collective.op != TRM_ALL_REDUCE || params->collective.reduce != TRM_REDUCE_SUM) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found collective op %d and reduce op %d, expected all_reduce and sum",
                 (int)params->collective.op, (int)params->collective.reduce);
    }
    TRM_TRY(check_params(&params->collective, &collective_rules[TRM_ALL_REDUCE], TRM_F32));
    return trm_kind_norm.infer(&of_norm);
}

const trm_kind trm_kind_all_reduce_norm = {
    TRM_FIELDS(
        TRM_FIELD(INT32, all_reduce_norm.collective, n_ranks, .always = true),
        TRM_FIELD(INT32, all_reduce_norm.collective, n_groups),
        TRM_FIELD(INT32, all_reduce_norm.collective, group_size), TRM_FIELD(GROUPS, all_reduce_norm.collective, groups),
        TRM_FIELD(ENUM, all_reduce_norm.norm, op, .always = true, .values = TRM_NAMES(TRM_NORM_OPS)),
        TRM_FIELD(BOOL, all_reduce_norm.norm, residual), TRM_FIELD(FLOAT, all_reduce_norm.norm, eps, .always = true),
        TRM_FIELD(FLOAT, all_reduce_norm.norm, weight_offset)),
    .infer = infer_all_reduce_norm,
    .second_output = TRM_AT(all_reduce_norm.norm.residual),
};
