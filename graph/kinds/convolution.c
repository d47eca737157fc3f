/*
 * Windows that slide over images: convolution, deconvolution, deformable_convolution, pool, col2im.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "kernels/convolution/window.h"

/* An image [N, C, d1 .. dk], k = 1 to 3; its spatial sizes leave room for windows to be counted in 64 bits. */
static trm_status require_image(const trm_infer_call *call, int32_t input, const char *what)
{
    const trm_dims *x = call->dims[input];
    if (x->n < 3 || x->n > 2 + TRM_MAX_SPATIAL) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has dims %s, expected a batch, channels and 1 to %d spatial dims",
                 what, trm_dims_format(x, text), TRM_MAX_SPATIAL);
    }
    return TRM_OK;
}

/* Parameters of the window along one axis, in range. */
static trm_status require_window(int32_t axis, int64_t kernel, int32_t stride, int32_t dilation, int32_t before,
                                 int32_t after)
{
    if ((kernel != -1 && kernel < 1) || kernel > INT32_MAX || stride < 1 || dilation < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "the window along spatial axis %" PRId32 " has kernel %" PRId64 ", stride %" PRId32
                 ", dilation %" PRId32 ", expected 1 or more of each",
                 axis, kernel, stride, dilation);
    }
    if (before < 0 || after < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "padding %" PRId32 " before and %" PRId32 " after spatial axis %" PRId32 ", expected at least 0",
                 before, after, axis);
    }
    return TRM_OK;
}

static trm_status require_auto_pad(trm_auto_pad auto_pad)
{
    if ((unsigned)auto_pad > TRM_AUTO_PAD_SAME_LOWER) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found automatic padding %d, expected 0 to %d", (int)auto_pad,
                 (int)TRM_AUTO_PAD_SAME_LOWER);
    }
    return TRM_OK;
}

/* Places of a window on an axis of `in`, which may be -1 as may be the kernel. */
static trm_status window_out(int32_t axis, int64_t in, const trm_window *w, trm_auto_pad auto_pad, bool ceil,
                             int64_t *out)
{
    *out = -1;
    if (in == -1 || (w->kernel == -1 && auto_pad == TRM_AUTO_PAD_NONE)) {
        return TRM_OK;
    }
    *out = trm_window_places(in, w, auto_pad, ceil);
    if (*out < 1 && in > 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "the window along spatial axis %" PRId32 " covers %" PRId64 ", but the padded input has only %" PRId64,
                 axis, trm_window_extent(w->kernel, w->dilation), in + w->before + w->after);
    }
    *out = *out < 0 ? 0 : *out;
    return TRM_OK;
}

/* Groups divide the channels; each group's weight sees its share of them. */
static trm_status require_groups(int64_t groups, int64_t channels, int64_t share, const char *what)
{
    if (groups < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %" PRId64 " groups, expected at least 1", groups);
    }
    if (channels != -1 && (channels % groups != 0 || (share != -1 && share != channels / groups))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%" PRId64 " %s in %" PRId64 " groups do not fit a weight for %" PRId64 " of them in each", channels,
                 what, groups, share);
    }
    return TRM_OK;
}

/* x, a weight of as many dims, and a bias, of one float type. */
static trm_status require_operands(const trm_infer_call *call, int32_t bias)
{
    TRM_TRY(require_image(call, 0, "x"));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    TRM_TRY(trm_infer_require_rank(call, 1, "weight", call->dims[0]->n));
    TRM_TRY(trm_infer_require_dtype(call, 1, "weight", call->dtypes[0]));
    if (trm_infer_has(call, bias)) {
        TRM_TRY(trm_infer_require_dtype(call, bias, "bias", call->dtypes[0]));
    }
    return TRM_OK;
}

enum { X, W, BIAS, RESIDUAL }; /* inputs of convolutions; that of a deconvolution after BIAS is a value input */

static trm_status infer_convolution(const trm_infer_call *call)
{
    const trm_convolution_params *p = &call->desc->convolution;
    TRM_TRY(trm_infer_require_inputs(call, 2, 4));
    TRM_TRY(require_operands(call, 2));
    TRM_TRY(require_auto_pad(p->auto_pad));
    TRM_TRY(trm_infer_require_activation(p->activation));
    const trm_dims x = trm_channels_first(call->dims[0], p->channels_last);
    const trm_dims w = trm_channels_first(call->dims[1], p->channels_last);
    trm_dims out = {.n = x.n, .d = {x.d[0], w.d[0]}};
    TRM_TRY(require_groups(p->groups, x.d[1], w.d[1], "channels"));
    TRM_TRY(require_groups(p->groups, w.d[0], -1, "output channels"));
    if (trm_infer_has(call, 2)) {
        TRM_TRY(trm_infer_require_dims(call, 2, "bias", (trm_dims){1, {w.d[0]}}));
        out.d[1] = trm_dim_known(w.d[0], call->dims[2]->d[0]);
    }
    for (int32_t i = 0; i < x.n - 2; i++) {
        const trm_window axis = {w.d[2 + i], p->stride[i], p->dilation[i], p->before[i], p->after[i]};
        TRM_TRY(require_window(i, axis.kernel, p->stride[i], p->dilation[i], p->before[i], p->after[i]));
        TRM_TRY(window_out(i, x.d[2 + i], &axis, p->auto_pad, false, &out.d[2 + i]));
    }
    out = trm_channels_last(&out, p->channels_last);
    call->output_dims[0] = out;
    if (trm_infer_has(call, 3)) {
        TRM_TRY(trm_infer_require_dtype(call, 3, "residual", call->dtypes[0]));
        TRM_TRY(trm_infer_require_dims(call, 3, "residual", out));
    }
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

static trm_status require_optional(const trm_infer_call *call, int32_t input, const char *what, trm_dims dims)
{
    return trm_infer_has(call, input) ? trm_infer_require_dims(call, input, what, dims) : TRM_OK;
}

/* Dims of the output of a product or a convolution of numbers in i8. */
static trm_status int8_dims(const trm_infer_call *call, trm_dims *out)
{
    const trm_int8_product_params *p = &call->desc->int8_product;
    const trm_dims *x = call->dims[TRM_INT8_PRODUCT_X], *w = call->dims[TRM_INT8_PRODUCT_WEIGHT];
    *out = *x;
    if (w->n != 2) {
        TRM_TRY(require_image(call, TRM_INT8_PRODUCT_X, "x"));
        TRM_TRY(trm_infer_require_rank(call, TRM_INT8_PRODUCT_WEIGHT, "weight", x->n));
    }
    if (x->n < 1 || (x->d[x->n - 1] != -1 && w->d[w->n - 1] != -1 && x->d[x->n - 1] != w->d[w->n - 1])) {
        char a[TRM_DIMS_TEXT_SIZE], b[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x %s and weight %s differ in their last size, expected the same",
                 trm_dims_format(x, a), trm_dims_format(w, b));
    }
    for (int32_t i = 0; i < w->n - 2; i++) {
        const trm_window axis = {w->d[1 + i], p->stride[i], p->dilation[i], p->before[i], p->after[i]};
        TRM_TRY(require_window(i, axis.kernel, p->stride[i], p->dilation[i], p->before[i], p->after[i]));
        TRM_TRY(window_out(i, x->d[1 + i], &axis, TRM_AUTO_PAD_NONE, false, &out->d[1 + i]));
    }
    out->d[out->n - 1] = w->d[0];
    return TRM_OK;
}

/* The output in parts. */
static trm_status divide_int8(const trm_infer_call *call, trm_dims *out)
{
    const int32_t parts = call->desc->int8_product.parts, n = out->n;
    if (parts == 0) {
        return TRM_OK;
    }
    if (parts < 0 || call->dims[TRM_INT8_PRODUCT_WEIGHT]->n != 2 || n >= TRM_MAX_DIMS ||
        trm_infer_has(call, TRM_INT8_PRODUCT_RESIDUAL) || (out->d[n - 1] >= 0 && out->d[n - 1] % parts != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%" PRId64 " columns in %" PRId32 " parts, expected a product without a "
                 "residual whose columns are a multiple",
                 out->d[n - 1], parts);
    }
    const int64_t columns = out->d[n - 1];
    memmove(out->d + 1, out->d, (size_t)n * sizeof(out->d[0]));
    out->d[0] = parts;
    out->d[n] = columns < 0 ? -1 : columns / parts;
    out->n++;
    return TRM_OK;
}

static trm_status infer_int8_product(const trm_infer_call *call)
{
    const trm_int8_product_params *p = &call->desc->int8_product;
    trm_dims *out = &call->output_dims[0];
    TRM_TRY(trm_infer_require_inputs(call, 3, TRM_INT8_PRODUCT_INPUT_COUNT));
    TRM_TRY(trm_infer_require_dtype(call, TRM_INT8_PRODUCT_X, "x", TRM_I8));
    TRM_TRY(trm_infer_require_dtype(call, TRM_INT8_PRODUCT_WEIGHT, "weight", TRM_I8));
    TRM_TRY(trm_infer_require_dtype(call, TRM_INT8_PRODUCT_SCALE, "scale", TRM_F32));
    TRM_TRY(trm_infer_require_activation(p->activation));
    TRM_TRY(int8_dims(call, out));
    const trm_dims row = {1, {out->d[out->n - 1]}}, *scale = call->dims[TRM_INT8_PRODUCT_SCALE];
    if (scale->n != 1 || scale->d[0] != 1) {
        TRM_TRY(trm_infer_require_dims(call, TRM_INT8_PRODUCT_SCALE, "scale", row));
    }
    if (trm_infer_has(call, TRM_INT8_PRODUCT_BIAS)) {
        TRM_TRY(trm_infer_require_dtype(call, TRM_INT8_PRODUCT_BIAS, "bias", TRM_F32));
    }
    TRM_TRY(require_optional(call, TRM_INT8_PRODUCT_BIAS, "bias", row));
    TRM_TRY(require_optional(call, TRM_INT8_PRODUCT_RESIDUAL, "residual", *out));
    TRM_TRY(divide_int8(call, out));
    if (p->out != TRM_I8 && p->out != TRM_F32 && p->out != TRM_F16 && p->out != TRM_BF16) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "out is %s, expected i8, f32, f16 or bf16", trm_dtype_name(p->out));
    }
    const bool i8 = trm_infer_has(call, TRM_INT8_PRODUCT_RESIDUAL) && call->dtypes[TRM_INT8_PRODUCT_RESIDUAL] == TRM_I8;
    if ((p->out == TRM_I8 && !(p->out_scale > 0)) || (i8 && !(p->residual_scale > 0)) || !(p->product_scale >= 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "scales are %g of the product, %g of the residual, %g of the output, expected positive ones",
                 (double)p->product_scale, (double)p->residual_scale, (double)p->out_scale);
    }
    call->output_dtypes[0] = p->out;
    return TRM_OK;
}

/* Spatial dims of a transposed convolution, from given sizes (or NULL) or the parameters. */
static trm_status spread_dims(const trm_infer_call *call, const int64_t *sizes, bool sizes_given, trm_dims *out)
{
    const trm_convolution_params *p = &call->desc->convolution;
    const trm_dims *x = call->dims[0], *w = call->dims[1];
    for (int32_t i = 0; i < x->n - 2; i++) {
        const int64_t in = x->d[2 + i], kernel = w->d[2 + i];
        const trm_window axis = {kernel, p->stride[i], p->dilation[i], p->before[i], p->after[i]};
        TRM_TRY(require_window(i, kernel, p->stride[i], p->dilation[i], p->before[i], p->after[i]));
        if (p->output_padding[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found output padding %" PRId32 ", expected at least 0",
                     p->output_padding[i]);
        }
        out->d[2 + i] = -1;
        if (sizes_given) {
            out->d[2 + i] = sizes != NULL ? sizes[i] : -1;
        } else if (in != -1 && (kernel != -1 || p->auto_pad != TRM_AUTO_PAD_NONE)) {
            out->d[2 + i] = in == 0 ? 0 : trm_window_spread(in, &axis, p->output_padding[i], p->auto_pad);
        } else {
            continue;
        }
        if (out->d[2 + i] < (in == 0 || (sizes_given && sizes == NULL) ? -1 : 1)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "the output along spatial axis %" PRId32 " has %" PRId64 " positions, expected at least 1", i,
                     out->d[2 + i]);
        }
    }
    return TRM_OK;
}

static trm_status infer_deconvolution(const trm_infer_call *call)
{
    const trm_convolution_params *p = &call->desc->convolution;
    TRM_TRY(trm_infer_require_inputs(call, 2, 4));
    if (p->channels_last) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "a transposed convolution has channels last, expected them before positions");
    }
    TRM_TRY(require_operands(call, 2));
    TRM_TRY(require_auto_pad(p->auto_pad));
    TRM_TRY(trm_infer_require_activation(p->activation));
    const trm_dims *x = call->dims[0], *w = call->dims[1];
    trm_dims *out = &call->output_dims[0];
    TRM_TRY(require_groups(p->groups, x->d[1], -1, "channels"));
    if (!trm_dim_fits(x->d[1], w->d[0])) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has %" PRId64 " channels, but the weight is for %" PRId64, x->d[1],
                 w->d[0]);
    }
    *out = (trm_dims){.n = x->n, .d = {x->d[0], w->d[1] == -1 ? -1 : w->d[1] * p->groups}};
    if (trm_infer_has(call, 2)) {
        TRM_TRY(trm_infer_require_dims(call, 2, "bias", (trm_dims){1, {out->d[1]}}));
        out->d[1] = trm_dim_known(out->d[1], call->dims[2]->d[0]);
    }
    int64_t sizes[TRM_MAX_SPATIAL];
    bool given = trm_infer_has(call, 3), known = false;
    if (given) {
        TRM_TRY(trm_infer_values(call, 3, "output sizes", x->n - 2, sizes, &known));
    }
    TRM_TRY(spread_dims(call, known ? sizes : NULL, given, out));
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

/* (x [N, C, ..], w, bias [M], residual): batch, and the output's channels. Those of several groups are dealt with
 * apart. */
static int32_t link_convolution(const trm_layer *layer, int32_t k, int32_t i)
{
    bool transposed = layer->desc.kind == TRM_LAYER_DECONVOLUTION;
    const int32_t channels = layer->desc.convolution.channels_last ? layer->outputs[0]->dims.n - 1 : 1;
    if (k == 0) {
        return i == X || (i == RESIDUAL && !transposed) ? 0 : TRM_LINK_WHOLE;
    }
    if (k != channels || layer->desc.convolution.groups > 1) {
        return TRM_LINK_NEVER;
    }
    return i == W ? (transposed ? 1 : 0) : i == BIAS ? 0 : i == RESIDUAL && !transposed ? channels : TRM_LINK_WHOLE;
}

/* Windows over images: the batch stays, and axes whose padding makes up for the window. */
static void sizes_of_window(trm_size_walk *walk, const trm_layer *layer)
{
    const bool pool = layer->desc.kind == TRM_LAYER_POOL;
    const trm_convolution_params *c = &layer->desc.convolution;
    const trm_pool_params *p = &layer->desc.pool;
    const bool last = pool ? p->channels_last : c->channels_last;
    for (int32_t o = 0; o < layer->n_outputs; o++) {
        const trm_tensor *out = layer->outputs[o];
        for (int32_t i = 0; i < out->dims.n; i++) {
            const int32_t k = i - (last ? 1 : 2), channels = last ? out->dims.n - 1 : 1;
            bool stays = i == 0 || (i == channels && pool);
            if (k >= 0 && k < TRM_MAX_SPATIAL && i != channels) {
                const int64_t kernel = pool ? p->kernel[k] : layer->inputs[1]->dims.d[i];
                const int64_t gaps = (pool ? p->dilation[k] : c->dilation[k]) * (kernel - 1);
                const int64_t pads = pool ? (int64_t)p->before[k] + p->after[k] : (int64_t)c->before[k] + c->after[k];
                const bool same = (pool ? p->auto_pad : c->auto_pad) != TRM_AUTO_PAD_NONE;
                stays = (pool ? p->stride[k] : c->stride[k]) == 1 && (same || (kernel != -1 && pads == gaps));
            }
            trm_size_set(walk, out, i, stays ? layer->inputs[0] : NULL, i);
        }
    }
}
/* Rows of zeros among the weights, zeros in bias and residual. */
static bool convolution_keeps_zero(const trm_layer *layer, uint32_t split)
{
    (void)split;
    return trm_activation_keeps_zero(layer->desc.convolution.activation);
}

/* A convolution over a part of the input's channels is a summand. Bias and residual go into the first. */
static trm_status shard_channels(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    const trm_convolution_params *p = &layer->desc.convolution;
    bool transposed = layer->desc.kind == TRM_LAYER_DECONVOLUTION, has_residual = !transposed && layer->n_inputs > 3;
    const int32_t axis = p->channels_last ? layer->inputs[X]->dims.n - 1 : 1;
    trm_way way = trm_way_whole();
    way.in[X] = trm_split(axis, parts);
    if (p->groups == 1) {
        way.in[W] = trm_split(transposed ? 0 : axis, parts);
        way.out[0] = trm_partial(parts);
        bool fits = p->activation == TRM_ACTIVATION_NONE && layer->inputs[X]->dims.d[axis] % parts == 0;
        return fits ? taker->take(taker, layer, &way) : TRM_OK;
    }
    if (p->groups % parts != 0) {
        return TRM_OK;
    }
    way.in[W] = way.in[BIAS] = trm_split(0, parts);
    way.in[RESIDUAL] = has_residual ? trm_split(axis, parts) : trm_replicated();
    way.out[0] = trm_split(axis, parts);
    return taker->take(taker, layer, &way);
}

static void localize_groups(const trm_layer *layer, const trm_sharding *out, int64_t first_row, trm_layer_desc *desc)
{
    (void)layer;
    (void)first_row;
    bool by_groups = out->kind == TRM_SPLIT && out->axis > 0 && desc->convolution.groups > 1;
    desc->convolution.groups /= by_groups ? out->parts : 1;
}

static double count_taps(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    double count = 1.0;
    for (int32_t i = 0; i < in[W].n; i++) {
        count *= trm_known_dim(in[W].d[i], unknown);
    }
    return count / trm_known_dim(in[W].d[layer->desc.kind == TRM_LAYER_DECONVOLUTION ? 1 : 0], unknown);
}

static const trm_field convolution_fields[] = {
    TRM_FIELD(INT32, convolution, groups, .normal = 1),
    TRM_FIELD(INT32, convolution, stride, .normal = 1, .count = TRM_MAX_SPATIAL),
    TRM_FIELD(INT32, convolution, dilation, .normal = 1, .count = TRM_MAX_SPATIAL),
    TRM_FIELD(INT32, convolution, before, .count = TRM_MAX_SPATIAL),
    TRM_FIELD(INT32, convolution, after, .count = TRM_MAX_SPATIAL),
    TRM_FIELD(INT32, convolution, output_padding, .count = TRM_MAX_SPATIAL),
    TRM_FIELD(ENUM, convolution, auto_pad, .values = TRM_NAMES(TRM_AUTO_PADS)),
    TRM_FIELD(ENUM, convolution, activation, .values = TRM_NAMES(TRM_ACTIVATIONS)),
    TRM_FIELD(BOOL, convolution, channels_last),
    TRM_FIELD(BOOL, convolution, whole_numbers),
};
const trm_kind trm_kind_convolution = {
    TRM_FIELDS_OF(convolution_fields),
    .traits = TRM_KIND_PRODUCT | TRM_KIND_TAKES_TIME,
    .infer = infer_convolution,
    .link = link_convolution,
    .sizes = sizes_of_window,
    .linear = {1u << X, 1u << W},
    .linear_if = {TRM_AT(convolution.activation), 1u << TRM_ACTIVATION_NONE},
    .added = 1u << BIAS | 1u << RESIDUAL,
    .keeps_zero = convolution_keeps_zero,
    .shard = shard_channels,
    .localize = localize_groups,
    .multiplications = count_taps,
};
const trm_kind trm_kind_deconvolution = {
    TRM_FIELDS_OF(convolution_fields),
    .traits = TRM_KIND_PRODUCT | TRM_KIND_TAKES_TIME,
    .infer = infer_deconvolution,
    .value_inputs = 1u << 3,
    .link = link_convolution,
    .sizes = trm_sizes_of_first,
    .linear = {1u << X, 1u << W},
    .linear_if = {TRM_AT(convolution.activation), 1u << TRM_ACTIVATION_NONE},
    .added = 1u << BIAS,
    .shard = shard_channels,
    .localize = localize_groups,
    .multiplications = count_taps,
};

static void sizes_of_int8_product(trm_size_walk *walk, const trm_layer *layer)
{
    const trm_int8_product_params *p = &layer->desc.int8_product;
    const trm_dims *w = &layer->inputs[TRM_INT8_PRODUCT_WEIGHT]->dims;
    const int32_t n = layer->outputs[0]->dims.n, first = p->parts > 0 ? 1 : 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t k = i - 1;
        bool stays = i >= first && i < n - 1;
        if (stays && i > 0 && w->n > 2) {
            const int64_t gaps = w->d[i] == -1 ? -1 : p->dilation[k] * (w->d[i] - 1);
            stays = p->stride[k] == 1 && (int64_t)p->before[k] + p->after[k] == gaps;
        }
        trm_size_set(walk, layer->outputs[0], i, stays ? layer->inputs[TRM_INT8_PRODUCT_X] : NULL, i - first);
    }
}

const trm_kind trm_kind_int8_product = {
    TRM_FIELDS(TRM_FIELD(INT32, int8_product, stride, .normal = 1, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, int8_product, dilation, .normal = 1, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, int8_product, before, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, int8_product, after, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(ENUM, int8_product, activation, .values = TRM_NAMES(TRM_ACTIVATIONS)),
               TRM_FIELD(FLOAT, int8_product, product_scale), TRM_FIELD(FLOAT, int8_product, residual_scale),
               TRM_FIELD(FLOAT, int8_product, out_scale), TRM_FIELD(DTYPE, int8_product, out, .always = true),
               TRM_FIELD(INT32, int8_product, parts)),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_int8_product,
    .sizes = sizes_of_int8_product,
    .weight = TRM_INT8_PRODUCT_WEIGHT,
};

static trm_status infer_deformable_convolution(const trm_infer_call *call)
{
    const trm_deformable_convolution_params *p = &call->desc->deformable_convolution;
    TRM_TRY(trm_infer_require_inputs(call, 3, 5));
    TRM_TRY(require_operands(call, 3));
    TRM_TRY(trm_infer_require_rank(call, 0, "x", 4));
    const trm_dims *x = call->dims[0], *w = call->dims[1];
    trm_dims *out = &call->output_dims[0];
    TRM_TRY(require_groups(p->groups, x->d[1], w->d[1], "channels"));
    TRM_TRY(require_groups(p->groups, w->d[0], -1, "output channels"));
    TRM_TRY(require_groups(p->offset_groups, x->d[1], -1, "channels"));
    *out = (trm_dims){.n = 4, .d = {x->d[0], w->d[0]}};
    for (int32_t i = 0; i < 2; i++) {
        const trm_window axis = {w->d[2 + i], p->stride[i], p->dilation[i], p->before[i], p->after[i]};
        TRM_TRY(require_window(i, axis.kernel, p->stride[i], p->dilation[i], p->before[i], p->after[i]));
        TRM_TRY(window_out(i, x->d[2 + i], &axis, TRM_AUTO_PAD_NONE, false, &out->d[2 + i]));
    }
    const int64_t taps = w->d[2] == -1 || w->d[3] == -1 ? -1 : w->d[2] * w->d[3] * p->offset_groups;
    TRM_TRY(trm_infer_require_dtype(call, 2, "offset", call->dtypes[0]));
    TRM_TRY(trm_infer_require_dims(call, 2, "offset",
                                   (trm_dims){4, {x->d[0], taps == -1 ? -1 : 2 * taps, out->d[2], out->d[3]}}));
    if (trm_infer_has(call, 3)) {
        TRM_TRY(trm_infer_require_dims(call, 3, "bias", (trm_dims){1, {w->d[0]}}));
    }
    if (trm_infer_has(call, 4)) {
        TRM_TRY(trm_infer_require_dtype(call, 4, "mask", call->dtypes[0]));
        TRM_TRY(trm_infer_require_dims(call, 4, "mask", (trm_dims){4, {x->d[0], taps, out->d[2], out->d[3]}}));
    }
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

/* (x, w, offset, bias, mask) */
static int32_t link_deformable(const trm_layer *layer, int32_t k, int32_t i)
{
    bool is_weight = i == 1 || i == 3;
    if (k == 0) {
        return is_weight ? TRM_LINK_WHOLE : 0;
    }
    return k > 1 || layer->desc.deformable_convolution.groups > 1 ? TRM_LINK_NEVER : is_weight ? 0 : TRM_LINK_WHOLE;
}

const trm_kind trm_kind_deformable_convolution = {
    TRM_FIELDS(TRM_FIELD(INT32, deformable_convolution, groups, .normal = 1),
               TRM_FIELD(INT32, deformable_convolution, offset_groups, .normal = 1),
               TRM_FIELD(INT32, deformable_convolution, stride, .normal = 1, .count = 2),
               TRM_FIELD(INT32, deformable_convolution, dilation, .normal = 1, .count = 2),
               TRM_FIELD(INT32, deformable_convolution, before, .count = 2),
               TRM_FIELD(INT32, deformable_convolution, after, .count = 2)),
    .infer = infer_deformable_convolution,
    .link = link_deformable,
    .sizes = trm_sizes_of_first,
};

static trm_status infer_pool(const trm_infer_call *call)
{
    const trm_pool_params *p = &call->desc->pool;
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    TRM_TRY(require_image(call, 0, "x"));
    TRM_TRY(require_auto_pad(p->auto_pad));
    if ((unsigned)p->op > TRM_POOL_LP) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found pool %d, expected 0 to %d", (int)p->op, (int)TRM_POOL_LP);
    }
    if (p->op != TRM_POOL_MAX) {
        TRM_TRY(trm_infer_require_float(call, 0, "x"));
    } else if (call->dtypes[0] == TRM_BOOL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has type bool, expected numbers");
    }
    if (p->indices && p->op != TRM_POOL_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "only the largest elements have indices");
    }
    if (p->op == TRM_POOL_LP && !(p->p > 0.0f)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found p %g, expected more than 0", (double)p->p);
    }
    if (p->channels_last && p->indices) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a pool with indices has channels last, expected them before positions");
    }
    const trm_dims x = trm_channels_first(call->dims[0], p->channels_last);
    trm_dims out = x;
    for (int32_t i = 0; i < x.n - 2; i++) {
        const trm_window axis = {p->kernel[i], p->stride[i], p->dilation[i], p->before[i], p->after[i]};
        TRM_TRY(require_window(i, axis.kernel, p->stride[i], p->dilation[i], p->before[i], p->after[i]));
        TRM_TRY(window_out(i, x.d[2 + i], &axis, p->auto_pad, p->ceil, &out.d[2 + i]));
    }
    call->output_dims[0] = trm_channels_last(&out, p->channels_last);
    call->output_dtypes[0] = call->dtypes[0];
    if (p->indices) {
        call->output_dims[1] = out;
        call->output_dtypes[1] = TRM_I64;
    }
    return TRM_OK;
}

/* Positions are those in the whole tensor. */
static int32_t link_pool(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_pool_params *p = &layer->desc.pool;
    if (p->channels_last) {
        return k > 0 && k < layer->inputs[i]->dims.n - 1 ? TRM_LINK_NEVER : k;
    }
    return k > 1 || p->indices ? TRM_LINK_NEVER : k;
}

const trm_kind trm_kind_pool = {
    TRM_FIELDS(TRM_FIELD(ENUM, pool, op, .always = true, .values = TRM_NAMES(TRM_POOL_OPS)),
               TRM_FIELD(INT32, pool, kernel, .always = true, .normal = 1, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, pool, stride, .normal = 1, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, pool, dilation, .normal = 1, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, pool, before, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, pool, after, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(ENUM, pool, auto_pad, .values = TRM_NAMES(TRM_AUTO_PADS)), TRM_FIELD(BOOL, pool, ceil),
               TRM_FIELD(BOOL, pool, count_padding), TRM_FIELD(BOOL, pool, indices),
               TRM_FIELD(BOOL, pool, indices_by_column), TRM_FIELD(FLOAT, pool, p),
               TRM_FIELD(BOOL, pool, channels_last)),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_pool,
    .second_output = TRM_AT(pool.indices),
    .link = link_pool,
    .sizes = sizes_of_window,
    .linear = {1},
    .linear_if = {TRM_AT(pool.op), 1u << TRM_POOL_AVERAGE},
};

static trm_status infer_col2im(const trm_infer_call *call)
{
    const trm_col2im_params *p = &call->desc->col2im;
    const int32_t n = p->image.n;
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    TRM_TRY(trm_infer_require_rank(call, 0, "x", 3));
    if (n < 1 || n > TRM_MAX_SPATIAL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the image has %" PRId32 " spatial dims, expected 1 to %d", n,
                 TRM_MAX_SPATIAL);
    }
    const trm_dims *x = call->dims[0];
    int64_t taps = 1, places = 1;
    trm_dims *out = &call->output_dims[0];
    *out = (trm_dims){.n = 2 + n, .d = {x->d[0]}};
    for (int32_t i = 0; i < n; i++) {
        const trm_window axis = {p->kernel[i], p->stride[i], p->dilation[i], p->before[i], p->after[i]};
        int64_t at = 0;
        TRM_TRY(require_window(i, axis.kernel, p->stride[i], p->dilation[i], p->before[i], p->after[i]));
        if (p->image.d[i] < 1 || p->image.d[i] > INT32_MAX) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found image size %" PRId64 ", expected 1 to %d", p->image.d[i],
                     INT32_MAX);
        }
        TRM_TRY(window_out(i, p->image.d[i], &axis, TRM_AUTO_PAD_NONE, false, &at));
        if (__builtin_mul_overflow(taps, p->kernel[i], &taps) || __builtin_mul_overflow(places, at, &places)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the number of columns overflows");
        }
        out->d[2 + i] = p->image.d[i];
    }
    if ((x->d[1] != -1 && x->d[1] % taps != 0) || !trm_dim_fits(x->d[2], places)) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "x has dims %s, expected a multiple of %" PRId64 " rows and %" PRId64 " columns",
                 trm_dims_format(x, text), taps, places);
    }
    out->d[1] = x->d[1] == -1 ? -1 : x->d[1] / taps;
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

static int32_t link_col2im(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)layer;
    (void)i;
    return k == 0 ? 0 : TRM_LINK_NEVER;
}

const trm_kind trm_kind_col2im = {
    TRM_FIELDS(TRM_FIELD(DIMS, col2im, image, .always = true),
               TRM_FIELD(INT32, col2im, kernel, .always = true, .normal = 1, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, col2im, stride, .normal = 1, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, col2im, dilation, .normal = 1, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, col2im, before, .count = TRM_MAX_SPATIAL),
               TRM_FIELD(INT32, col2im, after, .count = TRM_MAX_SPATIAL)),
    .infer = infer_col2im,
    .link = link_col2im,
    .sizes = trm_sizes_of_first,
    .linear = {1},
};
