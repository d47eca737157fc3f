/*
 * Kinds that normalize: norm, group_norm, lrn.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"

static trm_status infer_norm(const trm_infer_call *call)
{
    const trm_norm_params *norm = &call->desc->norm;
    int32_t weight = norm->residual ? 2 : 1;
    if ((unsigned)norm->op > TRM_NORM_LAYER) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found norm op %d, expected 0 to %d", (int)norm->op, (int)TRM_NORM_LAYER);
    }
    TRM_TRY(trm_infer_require_inputs(call, weight, weight + (norm->op == TRM_NORM_LAYER ? 2 : 1)));
    if (!(norm->eps >= 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "eps is %g, expected at least 0", (double)norm->eps);
    }
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    trm_dims out = *call->dims[0];
    char text[TRM_DIMS_TEXT_SIZE];
    if (out.n < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has dims %s, expected at least 1 dimension",
                 trm_dims_format(&out, text));
    }
    if (norm->residual) {
        TRM_TRY(trm_infer_require_dims(call, 1, "residual", out));
        TRM_TRY(trm_infer_require_dtype(call, 1, "residual", call->dtypes[0]));
        for (int32_t i = 0; i < out.n; i++) {
            out.d[i] = trm_dim_known(out.d[i], call->dims[1]->d[i]);
        }
    }
    for (int32_t i = weight; i < call->n_inputs; i++) {
        const char *what = i == weight ? "weight" : "bias";
        if (!trm_infer_has(call, i)) {
            continue;
        }
        TRM_TRY(trm_infer_require_dims(call, i, what, trm_dims1(out.d[out.n - 1])));
        TRM_TRY(trm_infer_require_dtype(call, i, what, call->dtypes[0]));
        out.d[out.n - 1] = trm_dim_known(out.d[out.n - 1], call->dims[i]->d[0]);
    }
    for (int32_t i = 0; i < (norm->residual ? 2 : 1); i++) {
        call->output_dims[i] = out;
        call->output_dtypes[i] = call->dtypes[0];
    }
    return TRM_OK;
}

static int32_t link_norm(const trm_layer *layer, int32_t k, int32_t i)
{
    const bool is_last = k == layer->outputs[0]->dims.n - 1;
    return is_last ? TRM_LINK_NEVER : i < trm_layer_output_count(&layer->desc) ? k : TRM_LINK_WHOLE;
}

trm_status trm_kind_infer_norm(const trm_infer_call *call, const trm_norm_params *params, int32_t residual,
                               int32_t weight, trm_dims *output_dims, trm_dtype *output_dtypes)
{
    const int32_t inputs[] = {0, params->residual ? residual : weight, weight};
    const trm_layer_desc desc = {.kind = TRM_LAYER_NORM, .norm = *params};
    const trm_dims *dims[3];
    trm_dtype dtypes[3];
    for (int32_t i = 0; i < 3; i++) {
        const bool given = trm_infer_has(call, inputs[i]);
        dims[i] = given ? call->dims[inputs[i]] : NULL;
        dtypes[i] = given ? call->dtypes[inputs[i]] : TRM_DTYPE_NONE;
    }
    trm_infer_call inner = *call;
    inner.desc = &desc;
    inner.values = NULL;
    inner.dims = dims;
    inner.dtypes = dtypes;
    inner.n_inputs = params->residual ? 3 : 2;
    inner.output_dims = output_dims;
    inner.output_dtypes = output_dtypes;
    return infer_norm(&inner);
}

const trm_kind trm_kind_norm = {
    TRM_FIELDS(TRM_FIELD(ENUM, norm, op, .always = true, .values = TRM_NAMES(TRM_NORM_OPS)),
               TRM_FIELD(BOOL, norm, residual), TRM_FIELD(FLOAT, norm, eps, .always = true),
               TRM_FIELD(FLOAT, norm, weight_offset)),
    .infer = infer_norm,
    .second_output = TRM_AT(norm.residual),
    .link = link_norm,
    .sizes = trm_sizes_same,
};

static trm_status infer_norm_quantize(const trm_infer_call *call)
{
    const trm_norm_quantize_params *p = &call->desc->norm_quantize;
    const int32_t numbers = p->norm.residual ? 2 : 1;
    trm_infer_call norm = *call;
    const trm_layer_desc desc = {.kind = TRM_LAYER_NORM, .norm = p->norm};
    norm.desc = &desc;
    TRM_TRY(infer_norm(&norm));
    if (call->dtypes[0] == TRM_F64 || !(p->scale > 0.0f)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "x of type %s is quantized by scale %g, expected f32, f16 or bf16 and a "
                 "positive scale",
                 trm_dtype_name(call->dtypes[0]), (double)p->scale);
    }
    call->output_dims[numbers] = call->output_dims[0];
    call->output_dtypes[numbers] = TRM_I8;
    return TRM_OK;
}

static int32_t norm_quantize_outputs(const trm_layer_desc *desc)
{
    return desc->norm_quantize.norm.residual ? 3 : 2;
}

const trm_kind trm_kind_norm_quantize = {
    TRM_FIELDS(TRM_FIELD(ENUM, norm_quantize.norm, op, .always = true, .values = TRM_NAMES(TRM_NORM_OPS)),
               TRM_FIELD(BOOL, norm_quantize.norm, residual), TRM_FIELD(FLOAT, norm_quantize.norm, eps, .always = true),
               TRM_FIELD(FLOAT, norm_quantize.norm, weight_offset),
               TRM_FIELD(FLOAT, norm_quantize, scale, .always = true)),
    .infer = infer_norm_quantize,
    .output_count = norm_quantize_outputs,
    .sizes = trm_sizes_same,
};

/* ---- channels ---------------------------------------------------------------------------------- */

static trm_status require_channels(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    if (call->dims[0]->n < 2) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has dims %s, expected a batch and channels",
                 trm_dims_format(call->dims[0], text));
    }
    return TRM_OK;
}

static trm_status infer_group_norm(const trm_infer_call *call)
{
    static const char *const names[] = {"x", "scale", "bias"};
    const trm_group_norm_params *p = &call->desc->group_norm;
    TRM_TRY(trm_infer_require_inputs(call, 1, 3));
    TRM_TRY(require_channels(call));
    TRM_TRY(trm_infer_require_activation(p->activation));
    const int64_t channels = call->dims[0]->d[1];
    if (p->groups < 0 || (p->groups > 0 && channels != -1 && channels % p->groups != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%" PRId64 " channels cannot be divided into %" PRId32 " groups", channels,
                 p->groups);
    }
    for (int32_t i = 1; i < call->n_inputs; i++) {
        if (trm_infer_has(call, i)) {
            TRM_TRY(trm_infer_require_dtype(call, i, names[i], call->dtypes[0]));
            TRM_TRY(trm_infer_require_dims(call, i, names[i], (trm_dims){1, {channels}}));
        }
    }
    return trm_infer_same(call, 0);
}

/* A channel by itself; groups of them are dealt with apart. */
static int32_t link_group_norm(const trm_layer *layer, int32_t k, int32_t i)
{
    const bool is_alone = k == 1 && layer->desc.group_norm.groups == 0;
    return k == 0 ? (i == 0 ? 0 : TRM_LINK_WHOLE) : is_alone ? (i == 0 ? 1 : 0) : TRM_LINK_NEVER;
}

/* Groups of channels are normalized each by itself. */
static trm_status shard_groups(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    int32_t groups = layer->desc.group_norm.groups;
    trm_way way = trm_way_whole();
    way.in[0] = way.out[0] = trm_split(1, parts);
    way.in[1] = way.in[2] = trm_split(0, parts);
    return groups == 0 || groups % parts != 0 ? TRM_OK : taker->take(taker, layer, &way);
}

static void localize_groups(const trm_layer *layer, const trm_sharding *out, int64_t first_row, trm_layer_desc *desc)
{
    (void)layer;
    (void)first_row;
    bool by_groups = out->kind == TRM_SPLIT && out->axis == 1 && desc->group_norm.groups > 0;
    desc->group_norm.groups /= by_groups ? out->parts : 1;
}

const trm_kind trm_kind_group_norm = {
    TRM_FIELDS(TRM_FIELD(INT32, group_norm, groups, .always = true), TRM_FIELD(FLOAT, group_norm, eps, .always = true),
               TRM_FIELD(ENUM, group_norm, activation, .values = TRM_NAMES(TRM_ACTIVATIONS))),
    .infer = infer_group_norm,
    .link = link_group_norm,
    .sizes = trm_sizes_same,
    .shard = shard_groups,
    .localize = localize_groups,
};

static trm_status infer_lrn(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    TRM_TRY(require_channels(call));
    if (call->desc->lrn.size < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %" PRId32 " neighbouring channels, expected at least 1",
                 call->desc->lrn.size);
    }
    return trm_infer_same(call, 0);
}

static int32_t link_lrn(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)layer;
    (void)i;
    return k == 1 ? TRM_LINK_NEVER : k;
}

const trm_kind trm_kind_lrn = {
    TRM_FIELDS(TRM_FIELD(INT32, lrn, size, .always = true), TRM_FIELD(FLOAT, lrn, alpha, .always = true),
               TRM_FIELD(FLOAT, lrn, beta, .always = true), TRM_FIELD(FLOAT, lrn, bias, .always = true)),
    .infer = infer_lrn,
    .link = link_lrn,
    .sizes = trm_sizes_same,
};
