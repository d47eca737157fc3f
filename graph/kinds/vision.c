/*
 * Other kinds over images: resize, grid_sample, roi_pool, non_max_suppression; and recurrent.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"
#include "kernels/vision/resize.h"

static trm_status require_enum(int value, int last, const char *what)
{
    if (value < 0 || value > last) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %s %d, expected 0 to %d", what, value, last);
    }
    return TRM_OK;
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

static trm_status infer_resize(const trm_infer_call *call)
{
    const trm_resize_params *p = &call->desc->resize;
    TRM_TRY(trm_infer_require_inputs(call, 1, 4));
    TRM_TRY(require_resize(call));
    trm_infer_same(call, 0);
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
                     "cannot resize x of dims %s: a dimension of 0 grows, or %s out of range", trm_dims_format(x, text),
                     from == 2 ? "scales" : "sizes");
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

static int32_t link_resize(const trm_layer *layer, int32_t k, int32_t i)
{
    return (layer->desc.resize.axes >> k & 1) != 0 ? TRM_LINK_NEVER : i == 0 ? k : TRM_LINK_WHOLE;
}

const trm_kind trm_kind_resize = {
    TRM_FIELDS(TRM_FIELD(ENUM, resize, mode, .always = true, .values = TRM_NAMES(TRM_RESIZE_MODES)),
               TRM_FIELD(ENUM, resize, coordinates, .always = true, .values = TRM_NAMES(TRM_RESIZE_COORDINATES)),
               TRM_FIELD(ENUM, resize, nearest, .values = TRM_NAMES(TRM_RESIZE_NEARESTS)),
               TRM_FIELD(ENUM, resize, aspect, .values = TRM_NAMES(TRM_RESIZE_ASPECTS)),
               TRM_FIELD(INT32, resize, axes, .always = true), TRM_FIELD(BOOL, resize, antialias),
               TRM_FIELD(BOOL, resize, exclude_outside), TRM_FIELD(FLOAT, resize, cubic_a),
               TRM_FIELD(FLOAT, resize, extrapolation)),
    .infer = infer_resize,
    .value_inputs = 1u << 2 | 1u << 3,
    .link = link_resize,
    .linear = {1},
    .linear_if = {TRM_AT(resize.coordinates), ~(1u << TRM_RESIZE_CROP)},
};

/* ---- samples ----------------------------------------------------------------------------------- */

static trm_status infer_grid_sample(const trm_infer_call *call)
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

static int32_t link_grid_sample(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)layer;
    return k == 0 ? 0 : k == 1 ? (i == 0 ? 1 : TRM_LINK_WHOLE) : i == 0 ? TRM_LINK_WHOLE : k - 1;
}

const trm_kind trm_kind_grid_sample = {
    TRM_FIELDS(TRM_FIELD(ENUM, grid_sample, mode, .always = true, .values = TRM_NAMES(TRM_RESIZE_MODES)),
               TRM_FIELD(ENUM, grid_sample, padding, .always = true, .values = TRM_NAMES(TRM_GRID_PADDINGS)),
               TRM_FIELD(BOOL, grid_sample, align_corners)),
    .infer = infer_grid_sample,
    .link = link_grid_sample,
    .sizes = trm_sizes_of_first,
    .linear = {1},
};

static trm_status infer_roi_pool(const trm_infer_call *call)
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

static int32_t link_roi_pool(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)layer;
    return k == 0 ? (i == 0 ? TRM_LINK_WHOLE : 0) : k == 1 ? (i == 0 ? 1 : TRM_LINK_WHOLE) : TRM_LINK_NEVER;
}

const trm_kind trm_kind_roi_pool = {
    TRM_FIELDS(TRM_FIELD(ENUM, roi_pool, op, .always = true, .values = TRM_NAMES(TRM_ROI_OPS)),
               TRM_FIELD(INT32, roi_pool, height, .always = true), TRM_FIELD(INT32, roi_pool, width, .always = true),
               TRM_FIELD(INT32, roi_pool, sampling_ratio), TRM_FIELD(FLOAT, roi_pool, spatial_scale, .always = true),
               TRM_FIELD(BOOL, roi_pool, half_pixel)),
    .infer = infer_roi_pool,
    .link = link_roi_pool,
};

/* ---- suppression ------------------------------------------------------------------------------- */

static trm_status infer_non_max_suppression(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 5));
    TRM_TRY(trm_infer_require_dtype(call, 0, "boxes", TRM_F32));
    TRM_TRY(trm_infer_require_dtype(call, 1, "scores", TRM_F32));
    TRM_TRY(trm_infer_require_dims(call, 0, "boxes", (trm_dims){3, {-1, -1, 4}}));
    TRM_TRY(trm_infer_require_dims(call, 1, "scores", (trm_dims){3, {call->dims[0]->d[0], -1, call->dims[0]->d[1]}}));
    int64_t most;
    bool known;
    if (trm_infer_has(call, 2)) {
        TRM_TRY(trm_infer_require_dtype(call, 2, "the limit per class", TRM_I64));
        TRM_TRY(trm_infer_values(call, 2, "the limit per class", 1, &most, &known));
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

/* Every box of every class. */
static int64_t most_boxes(const trm_layer_desc *desc, const trm_dims *const *input_dims)
{
    (void)desc;
    return trm_dims_count_known(input_dims[1]);
}

static void set_boxes(const trm_layer_desc *desc, int64_t count, trm_dims *output_dims)
{
    (void)desc;
    output_dims[0].d[0] = count;
}

const trm_kind trm_kind_non_max_suppression = {
    TRM_FIELDS(TRM_FIELD(BOOL, non_max_suppression, center_point)),
    .infer = infer_non_max_suppression,
    .n_outputs = 2,
    .value_inputs = 1u << 2,
    .largest_count = most_boxes,
    .set_count = set_boxes,
};

/* ---- recurrent --------------------------------------------------------------------------------- */

static trm_status infer_recurrent(const trm_infer_call *call)
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

static int32_t count_recurrent_outputs(const trm_layer_desc *desc)
{
    return desc->recurrent.cell == TRM_RECURRENT_LSTM ? 3 : 2;
}

/* (x [T, B, I], w, r, bias, lengths [B], h [D, B, H], c, peepholes) -> (y [T, D, B, H], h [D, B, H], c) */
static const int8_t recurrent_batch_inputs[] = {1, -1, -1, -1, 0, 1, 1, -1}, recurrent_batch_outputs[] = {2, 1, 1};

const trm_kind trm_kind_recurrent = {
    TRM_FIELDS(TRM_FIELD(ENUM, recurrent, cell, .always = true, .values = TRM_NAMES(TRM_RECURRENT_CELLS)),
               TRM_FIELD(ENUM, recurrent, direction, .values = TRM_NAMES(TRM_RECURRENT_DIRECTIONS)),
               TRM_FIELD(INT32, recurrent, hidden, .always = true), TRM_FIELD(BOOL, recurrent, linear_before_reset),
               TRM_FIELD(BOOL, recurrent, input_forget), TRM_FIELD(FLOAT, recurrent, clip),
               TRM_FIELD(ENUM, recurrent, activations, .values = TRM_NAMES(TRM_RECURRENT_ACTIVATIONS), .count = 6),
               TRM_FIELD(FLOAT, recurrent, alpha, .count = 6), TRM_FIELD(FLOAT, recurrent, beta, .count = 6)),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_recurrent,
    .output_count = count_recurrent_outputs,
    .batch_inputs = recurrent_batch_inputs,
    .batch_outputs = recurrent_batch_outputs,
};
