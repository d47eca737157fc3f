/*
 * Shape and type rules of kinds over images other than windows (resize, samples, norms by channel, suppression), and of
 * recurrent layers.
 */
#include <inttypes.h>

#include "base/error.h"
#include "graph/infer.h"
#include "kernels/vision/resize.h"

static trm_status require_enum(int value, int last, const char *what)
{
    if (value < 0 || value > last) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %s %d, expected 0 to %d", what, value, last);
    }
    return TRM_OK;
}

static void same_as_x(const trm_infer_call *call)
{
    call->output_dims[0] = *call->dims[0];
    call->output_dtypes[0] = call->dtypes[0];
}

/* ---- resize ------------------------------------------------------------------------------------ */

static trm_status require_resize(const trm_infer_call *call)
{
    const trm_resize_params *p = &call->desc->resize;
    const int32_t rank = call->dims[0]->n;
    TRM_TRY(require_enum((int)p->mode, TRM_RESIZE_CUBIC, "resize mode"));
    TRM_TRY(require_enum((int)p->coordinates, TRM_RESIZE_CROP, "coordinate transformation"));
    TRM_TRY(require_enum((int)p->nearest, TRM_RESIZE_CEIL, "rounding to the nearest"));
    TRM_TRY(require_enum((int)p->aspect, TRM_RESIZE_NOT_SMALLER, "aspect policy"));
    if (p->axes >> rank != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found axes 0x%" PRIx32 ", expected some of %" PRId32 " dimensions",
                 p->axes, rank);
    }
    if (call->dtypes[0] == TRM_BOOL && p->mode != TRM_RESIZE_NEAREST) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has type bool, which has no values between two");
    }
    if (trm_infer_has(call, 2) == trm_infer_has(call, 3)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %s scales and sizes, expected one of them",
                 trm_infer_has(call, 2) ? "both" : "neither");
    }
    const int64_t count = trm_resize_count(p->axes, rank);
    if (trm_infer_has(call, 1)) {
        TRM_TRY(trm_infer_require_dtype(call, 1, "roi", TRM_F32));
        TRM_TRY(trm_infer_require_dims(call, 1, "roi", (trm_dims){1, {2 * count}}));
    }
    if (trm_infer_has(call, 2)) {
        TRM_TRY(trm_infer_require_dtype(call, 2, "scales", TRM_F32));
        return trm_infer_require_dims(call, 2, "scales", (trm_dims){1, {count}});
    }
    TRM_TRY(trm_infer_require_dtype(call, 3, "sizes", TRM_I64));
    return trm_infer_require_dims(call, 3, "sizes", (trm_dims){1, {count}});
}

trm_status trm_infer_resize(const trm_infer_call *call)
{
    const trm_resize_params *p = &call->desc->resize;
    TRM_TRY(trm_infer_require_inputs(call, 1, 4));
    TRM_TRY(require_resize(call));
    same_as_x(call);
    trm_dims *out = &call->output_dims[0];
    const int32_t from = trm_infer_has(call, 2) ? 2 : 3;
    const void *values = call->values != NULL ? call->values[from] : NULL;
    const trm_dims *x = call->dims[0];
    bool known = values != NULL;
    for (int32_t i = 0; i < x->n; i++) {
        known = known && (x->d[i] != -1 || (p->axes >> i & 1) == 0);
    }
    trm_resize_scale scale[TRM_MAX_DIMS];
    if (known) {
        if (!trm_resize_sizes(p, x, from == 2 ? values : NULL, from == 3 ? values : NULL, out, scale)) {
            char text[TRM_DIMS_TEXT_SIZE];
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "x of dims %s cannot be resized: found a size of 0 to be made larger, or %s out of range",
                     trm_dims_format(x, text), from == 2 ? "scales" : "sizes");
        }
        return TRM_OK;
    }
    for (int32_t i = 0, k = 0; i < x->n; i++) {
        if (p->axes >> i & 1) {
            /* Sizes are known without those of x, unless the aspect decides. */
            const bool given = values != NULL && from == 3 && p->aspect == TRM_RESIZE_STRETCH;
            out->d[i] = given ? ((const int64_t *)values)[k] : -1;
            if (out->d[i] < -1) {
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found size %" PRId64 ", expected at least 0", out->d[i]);
            }
            k++;
        }
    }
    return TRM_OK;
}

/* ---- samples ----------------------------------------------------------------------------------- */

trm_status trm_infer_grid_sample(const trm_infer_call *call)
{
    const trm_grid_sample_params *p = &call->desc->grid_sample;
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    TRM_TRY(trm_infer_require_float(call, 1, "grid"));
    TRM_TRY(require_enum((int)p->mode, TRM_RESIZE_CUBIC, "sampling mode"));
    TRM_TRY(require_enum((int)p->padding, TRM_GRID_REFLECTION, "padding"));
    const trm_dims *x = call->dims[0], *grid = call->dims[1];
    const int32_t n = x->n - 2;
    if (n < 1 || n > TRM_MAX_SPATIAL) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has dims %s, expected a batch, channels and 1 to %d spatial dims",
                 trm_dims_format(x, text), TRM_MAX_SPATIAL);
    }
    TRM_TRY(trm_infer_require_rank(call, 1, "grid", n + 2));
    if (!trm_dim_fits(grid->d[0], x->d[0]) || !trm_dim_fits(grid->d[n + 1], n)) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "grid has dims %s, expected a batch of %" PRId64 " and %" PRId32 " coordinates of each point",
                 trm_dims_format(grid, text), x->d[0], n);
    }
    trm_dims *out = &call->output_dims[0];
    *out = (trm_dims){.n = x->n, .d = {trm_dim_known(x->d[0], grid->d[0]), x->d[1]}};
    for (int32_t i = 0; i < n; i++) {
        out->d[2 + i] = grid->d[1 + i];
    }
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

trm_status trm_infer_roi_pool(const trm_infer_call *call)
{
    const trm_roi_pool_params *p = &call->desc->roi_pool;
    TRM_TRY(require_enum((int)p->op, TRM_ROI_POOL_MAX, "pooling of regions"));
    const bool align = p->op != TRM_ROI_POOL_MAX;
    TRM_TRY(trm_infer_require_inputs(call, align ? 3 : 2, align ? 3 : 2));
    TRM_TRY(trm_infer_require_rank(call, 0, "x", 4));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    TRM_TRY(trm_infer_require_dtype(call, 1, "rois", call->dtypes[0]));
    TRM_TRY(trm_infer_require_dims(call, 1, "rois", (trm_dims){2, {-1, align ? 4 : 5}}));
    int64_t count = call->dims[1]->d[0];
    if (align) {
        TRM_TRY(trm_infer_require_dtype(call, 2, "batch", TRM_I64));
        TRM_TRY(trm_infer_require_dims(call, 2, "batch", (trm_dims){1, {count}}));
        count = trm_dim_known(count, call->dims[2]->d[0]);
    }
    if (p->height < 1 || p->width < 1 || p->sampling_ratio < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found an output of %" PRId32 " x %" PRId32 " with sampling ratio %" PRId32
                 ", expected sizes of at least 1, a ratio of at least 0",
                 p->height, p->width, p->sampling_ratio);
    }
    call->output_dims[0] = (trm_dims){4, {count, call->dims[0]->d[1], p->height, p->width}};
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

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

trm_status trm_infer_group_norm(const trm_infer_call *call)
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
    same_as_x(call);
    return TRM_OK;
}

trm_status trm_infer_lrn(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    TRM_TRY(require_channels(call));
    if (call->desc->lrn.size < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %" PRId32 " neighbouring channels, expected at least 1",
                 call->desc->lrn.size);
    }
    same_as_x(call);
    return TRM_OK;
}

/* ---- suppression ------------------------------------------------------------------------------- */

trm_status trm_infer_non_max_suppression(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 5));
    TRM_TRY(trm_infer_require_dtype(call, 0, "boxes", TRM_F32));
    TRM_TRY(trm_infer_require_dtype(call, 1, "scores", TRM_F32));
    TRM_TRY(trm_infer_require_dims(call, 0, "boxes", (trm_dims){3, {-1, -1, 4}}));
    TRM_TRY(trm_infer_require_dims(call, 1, "scores", (trm_dims){3, {call->dims[0]->d[0], -1, call->dims[0]->d[1]}}));
    int64_t most;
    bool known;
    if (trm_infer_has(call, 2)) {
        TRM_TRY(trm_infer_require_dtype(call, 2, "the most per class", TRM_I64));
        TRM_TRY(trm_infer_values(call, 2, "the most per class", 1, &most, &known));
    }
    for (int32_t i = 3; i < 5; i++) {
        if (trm_infer_has(call, i)) {
            const int32_t rank = call->dims[i]->n;
            TRM_TRY(trm_infer_require_dtype(call, i, "a threshold", TRM_F32));
            TRM_TRY(trm_infer_require_dims(call, i, "a threshold", (trm_dims){rank == 0 ? 0 : 1, {1}}));
        }
    }
    call->output_dims[0] = (trm_dims){2, {-1, 3}};
    call->output_dims[1] = (trm_dims){0};
    call->output_dtypes[0] = call->output_dtypes[1] = TRM_I64;
    return TRM_OK;
}

/* ---- recurrent --------------------------------------------------------------------------------- */

trm_status trm_infer_recurrent(const trm_infer_call *call)
{
    static const char *const names[] = {"x", "w", "r", "bias", "lengths", "initial h", "initial c", "peepholes"};
    const trm_recurrent_params *p = &call->desc->recurrent;
    TRM_TRY(require_enum((int)p->cell, TRM_RECURRENT_LSTM, "recurrent cell"));
    TRM_TRY(require_enum((int)p->direction, TRM_RECURRENT_BIDIRECTIONAL, "direction"));
    const bool lstm = p->cell == TRM_RECURRENT_LSTM;
    TRM_TRY(trm_infer_require_inputs(call, 3, lstm ? 8 : 6));
    TRM_TRY(trm_infer_require_rank(call, 0, "x", 3));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    if (p->hidden < 1 || p->hidden > INT32_MAX / 8) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found a hidden size of %" PRId32 ", expected 1 to %d", p->hidden,
                 INT32_MAX / 8);
    }
    if (!(p->clip >= 0.0f)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found clip %g, expected at least 0", (double)p->clip);
    }
    for (int32_t i = 0; i < 6; i++) {
        TRM_TRY(require_enum((int)p->activations[i], TRM_RECURRENT_SOFTPLUS, "recurrent activation"));
    }
    const int64_t gates = p->cell == TRM_RECURRENT_RNN ? 1 : p->cell == TRM_RECURRENT_GRU ? 3 : 4, h = p->hidden;
    const int64_t d = p->direction == TRM_RECURRENT_BIDIRECTIONAL ? 2 : 1;
    const int64_t steps = call->dims[0]->d[0], batch = call->dims[0]->d[1], in = call->dims[0]->d[2];
    const trm_dims expected[] = {
        {3, {steps, batch, in}}, {3, {d, gates * h, in}}, {3, {d, gates * h, h}}, {2, {d, 2 * gates * h}}, {1, {batch}},
        {3, {d, batch, h}},      {3, {d, batch, h}},      {2, {d, 3 * h}}};
    for (int32_t i = 1; i < call->n_inputs; i++) {
        if (trm_infer_has(call, i)) {
            TRM_TRY(trm_infer_require_dtype(call, i, names[i], i == 4 ? TRM_I32 : call->dtypes[0]));
            TRM_TRY(trm_infer_require_dims(call, i, names[i], expected[i]));
        }
    }
    call->output_dims[0] = (trm_dims){4, {steps, d, batch, h}};
    call->output_dims[1] = (trm_dims){3, {d, batch, h}};
    call->output_dtypes[0] = call->output_dtypes[1] = call->dtypes[0];
    if (lstm) {
        call->output_dims[2] = call->output_dims[1];
        call->output_dtypes[2] = call->dtypes[0];
    }
    return TRM_OK;
}
