/*
 * Kinds of a mixture of experts: router, norm_router, experts.
 *
 * Over ranks the router is whole, or its tokens are split. The experts' layer has two ways besides: each rank has a
 * part of every expert, or some of the experts as a whole; either gives a summand of the output. Which is taken is a
 * matter of cost.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"

#define BLOCK  128 /* rows and columns of F8E4M3 that share a scale */
#define COLUMN 32  /* columns of e2m1 that do */

/* ---- router ------------------------------------------------------------------------------------- */

static trm_status check_router(const trm_router_params *p, int64_t experts)
{
    if ((unsigned)p->scoring >= TRM_ROUTER_SCORING_COUNT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "scoring is %d, expected 0 to %d", (int)p->scoring,
                 TRM_ROUTER_SCORING_COUNT - 1);
    }
    if (p->k < 1 || p->k > experts) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "k is %" PRId32 ", expected 1 to %" PRId64 ", the number of experts", p->k,
                 experts);
    }
    if (p->groups > 1 && (experts % p->groups != 0 || p->top_groups < 1 || p->top_groups > p->groups ||
                          experts / p->groups * p->top_groups < p->k)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%" PRId32 " of %" PRId32 " groups are chosen, expected groups that divide %" PRId64
                 " experts and have at least %" PRId32 " in those chosen",
                 p->top_groups, p->groups, experts, p->k);
    }
    return TRM_OK;
}

static trm_status infer_router(const trm_infer_call *call)
{
    static const char *const names[] = {"x", "weight", "bias", "correction", "expert_scale"};
    const trm_router_params *p = &call->desc->router;
    TRM_TRY(trm_infer_require_inputs(call, 2, TRM_ROUTER_INPUT_COUNT));
    TRM_TRY(trm_infer_require_rank(call, TRM_ROUTER_X, "x", 2));
    TRM_TRY(trm_infer_require_float(call, TRM_ROUTER_X, "x"));
    TRM_TRY(trm_infer_require_rank(call, TRM_ROUTER_WEIGHT, "weight", 2));
    TRM_TRY(trm_infer_require_float(call, TRM_ROUTER_WEIGHT, "weight"));
    const trm_dims *x = call->dims[TRM_ROUTER_X], *weight = call->dims[TRM_ROUTER_WEIGHT];
    TRM_TRY(trm_infer_require_dims(call, TRM_ROUTER_WEIGHT, "weight", trm_dims2(-1, x->d[1])));
    TRM_TRY(check_router(p, weight->d[0]));
    if (p->scoring == TRM_ROUTER_SPARSE_MIXER &&
        (p->groups > 1 || p->renormalize || trm_infer_has(call, TRM_ROUTER_CORRECTION))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "scoring is sparse_mixer, expected no groups, no correction and no renormalize");
    }
    for (int32_t i = TRM_ROUTER_BIAS; i < call->n_inputs; i++) {
        if (trm_infer_has(call, i)) {
            TRM_TRY(trm_infer_require_dtype(call, i, names[i], TRM_F32));
            TRM_TRY(trm_infer_require_dims(call, i, names[i], trm_dims1(weight->d[0])));
        }
    }
    call->output_dims[0] = call->output_dims[1] = trm_dims2(x->d[0], p->k);
    call->output_dtypes[0] = TRM_I32;
    call->output_dtypes[1] = TRM_F32;
    return TRM_OK;
}

/* Tokens. */
static int32_t link_router(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)layer;
    return k == 1 ? TRM_LINK_NEVER : i == TRM_ROUTER_X ? 0 : TRM_LINK_WHOLE;
}

static void sizes_of_tokens(trm_size_walk *walk, const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        trm_sizes_follow(walk, layer->outputs[i], layer->inputs[0], 1);
    }
}

static double router_depth(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    return trm_known_dim(in[TRM_ROUTER_X].d[1], unknown) * trm_known_dim(in[TRM_ROUTER_WEIGHT].d[0], unknown) /
           (double)layer->desc.router.k;
}

/* Of the parameters of a router, which are a layer's or part of them. */
#define ROUTER_FIELDS(params)                                                                                          \
    TRM_FIELD(INT32, params, k, .always = true),                                                                       \
        TRM_FIELD(ENUM, params, scoring, .always = true, .values = TRM_NAMES(TRM_ROUTER_SCORINGS)),                    \
        TRM_FIELD(INT32, params, groups), TRM_FIELD(INT32, params, top_groups), TRM_FIELD(BOOL, params, group_sum),    \
        TRM_FIELD(BOOL, params, renormalize), TRM_FIELD(FLOAT, params, epsilon), TRM_FIELD(FLOAT, params, scale)

const trm_kind trm_kind_router = {
    TRM_FIELDS(ROUTER_FIELDS(router)), .infer = infer_router,           .n_outputs = 2, .link = link_router,
    .sizes = sizes_of_tokens,          .multiplications = router_depth,
};

/* The rule of a norm, then that of a router. */
static trm_status infer_norm_router(const trm_infer_call *call)
{
    const trm_norm_router_params *p = &call->desc->norm_router;
    TRM_TRY(trm_infer_require_inputs(call, 2, TRM_NORM_ROUTER_INPUT_COUNT - (p->residual ? 0 : 1)));
    if (p->residual && !trm_infer_has(call, TRM_NORM_ROUTER_RESIDUAL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "residual is not given");
    }
    const trm_norm_params norm = {.residual = p->residual, .eps = p->eps, .weight_offset = p->weight_offset};
    TRM_TRY(trm_kind_infer_norm(call, &norm, TRM_NORM_ROUTER_RESIDUAL, TRM_NORM_ROUTER_NORM_WEIGHT,
                                call->output_dims + TRM_NORM_ROUTER_NORM, call->output_dtypes + TRM_NORM_ROUTER_NORM));
    const trm_dims *dims[TRM_ROUTER_INPUT_COUNT];
    trm_dtype dtypes[TRM_ROUTER_INPUT_COUNT];
    for (int32_t i = 0; i < TRM_ROUTER_INPUT_COUNT; i++) {
        const bool given = trm_infer_has(call, i);
        dims[i] = i == TRM_ROUTER_X ? &call->output_dims[TRM_NORM_ROUTER_NORM] : given ? call->dims[i] : NULL;
        dtypes[i] = given ? call->dtypes[i] : TRM_DTYPE_NONE;
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_ROUTER, .router = p->router};
    trm_infer_call inner = *call;
    inner.desc = &desc;
    inner.values = NULL;
    inner.dims = dims;
    inner.dtypes = dtypes;
    inner.n_inputs = call->n_inputs < TRM_ROUTER_INPUT_COUNT ? call->n_inputs : TRM_ROUTER_INPUT_COUNT;
    return infer_router(&inner);
}

static int32_t norm_router_outputs(const trm_layer_desc *desc)
{
    return (desc->norm_router.residual ? TRM_NORM_ROUTER_SUM : TRM_NORM_ROUTER_NORM) + 1;
}

const trm_kind trm_kind_norm_router = {
    TRM_FIELDS(ROUTER_FIELDS(norm_router.router), TRM_FIELD(BOOL, norm_router, residual),
               TRM_FIELD(FLOAT, norm_router, eps, .always = true), TRM_FIELD(FLOAT, norm_router, weight_offset)),
    .infer = infer_norm_router,
    .output_count = norm_router_outputs,
    .sizes = sizes_of_tokens,
};

/* ---- experts ------------------------------------------------------------------------------------ */

static int64_t blocks_of(int64_t size, int64_t block)
{
    return size < 0 ? -1 : (size + block - 1) / block;
}

/* Along which axis of gate_up, its scale and its bias the width of an expert lies. */
static int32_t width_axis(const trm_layer_desc *desc)
{
    return desc->experts.interleaved ? 1 : 2;
}

static trm_dims with_halves(const trm_layer_desc *desc, int64_t experts, int64_t width, int64_t columns)
{
    const int64_t halves = desc->experts.activation == TRM_EXPERT_RELU2 ? 1 : 2;
    return desc->experts.interleaved ? (trm_dims){4, {experts, width, halves, columns}}
                                     : (trm_dims){4, {experts, halves, width, columns}};
}

/* How weights are stored. */
typedef enum storage { PLAIN, F8_ROWS, F8_BLOCKS, MXFP4, GROUPS } storage;

/* By `down` [E, H, I] and its scale, whose rank is known. */
static storage storage_of(trm_dtype type, const trm_dims *down, const trm_dims *scale, trm_dtype scale_type)
{
    switch (type) {
    case TRM_F8E4M3:
        return scale->d[1] == down->d[1] && scale->d[2] == 1 ? F8_ROWS : F8_BLOCKS;
    case TRM_U8:
        return scale_type == TRM_U8 ? MXFP4 : GROUPS;
    case TRM_I8:
        return GROUPS;
    default:
        return PLAIN;
    }
}

/* Zero points are for numbers of 4 bits in groups, of both weights or of none. */
static trm_status infer_zero_points(const trm_infer_call *call, bool allowed)
{
    static const struct {
        const char *name;
        int32_t zero_point, scale, other;
    } inputs[] = {
        {"gate_up_zero_point", TRM_EXPERTS_GATE_UP_ZERO_POINT, TRM_EXPERTS_GATE_UP_SCALE, TRM_EXPERTS_DOWN_ZERO_POINT},
        {"down_zero_point", TRM_EXPERTS_DOWN_ZERO_POINT, TRM_EXPERTS_DOWN_SCALE, TRM_EXPERTS_GATE_UP_ZERO_POINT},
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        if (!trm_infer_has(call, inputs[i].zero_point)) {
            continue;
        }
        if (!allowed || !trm_infer_has(call, inputs[i].other)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "%s is given, expected zero points of both weights, of 4 bits in groups", inputs[i].name);
        }
        TRM_TRY(trm_infer_require_dtype(call, inputs[i].zero_point, inputs[i].name, TRM_U8));
        TRM_TRY(trm_infer_require_dims(call, inputs[i].zero_point, inputs[i].name, *call->dims[inputs[i].scale]));
    }
    return TRM_OK;
}

/* Scales f32, f16 or bf16 that divide `columns` into groups; packed numbers in whole bytes. */
static trm_status infer_groups(const trm_infer_call *call, int32_t i, const char *what, int64_t columns)
{
    const trm_dims *scale = call->dims[i];
    const int64_t groups = scale->d[scale->n - 1];
    TRM_TRY(trm_infer_require_float(call, i, what));
    TRM_TRY(trm_infer_require_dtype(call, i, what, call->dtypes[TRM_EXPERTS_DOWN_SCALE]));
    if (columns >= 0 && groups >= 0 &&
        (groups == 0 || columns % groups != 0 ||
         (call->dtypes[TRM_EXPERTS_GATE_UP] == TRM_U8 && columns / groups % 2 != 0))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%s has %" PRId64 " groups of %" PRId64 " columns, expected groups of equal size%s", what, groups,
                 columns, call->dtypes[TRM_EXPERTS_GATE_UP] == TRM_U8 ? " in whole bytes" : "");
    }
    return TRM_OK;
}

static trm_status infer_scales(const trm_infer_call *call, int64_t experts, int64_t width, int64_t hidden)
{
    const trm_dtype type = call->dtypes[TRM_EXPERTS_GATE_UP];
    const bool quantized = type == TRM_U8 || type == TRM_F8E4M3 || type == TRM_I8;
    for (int32_t i = TRM_EXPERTS_GATE_UP_SCALE; i <= TRM_EXPERTS_DOWN_SCALE; i++) {
        const bool up = i == TRM_EXPERTS_GATE_UP_SCALE;
        const char *what = up ? "gate_up_scale" : "down_scale";
        if (trm_infer_has(call, i) != quantized) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is%s given, weights of type %s %s one", what,
                     quantized ? " not" : "", trm_dtype_name(type), quantized ? "need" : "have no");
        }
        if (quantized) {
            TRM_TRY(trm_infer_require_rank(call, i, what, up ? 4 : 3));
        }
    }
    const storage stored = quantized
                               ? storage_of(type, call->dims[TRM_EXPERTS_DOWN], call->dims[TRM_EXPERTS_DOWN_SCALE],
                                            call->dtypes[TRM_EXPERTS_DOWN_SCALE])
                               : PLAIN;
    for (int32_t i = TRM_EXPERTS_GATE_UP_SCALE; i <= TRM_EXPERTS_DOWN_SCALE && stored != PLAIN; i++) {
        const bool up = i == TRM_EXPERTS_GATE_UP_SCALE;
        const char *what = up ? "gate_up_scale" : "down_scale";
        const int64_t columns = up ? hidden : width, down = stored == F8_BLOCKS ? BLOCK : 1;
        int64_t across = 1;
        if (stored == GROUPS) {
            TRM_TRY(infer_groups(call, i, what, columns));
            across = -1;
        } else {
            TRM_TRY(trm_infer_require_dtype(call, i, what, stored == MXFP4 ? TRM_U8 : TRM_F32));
            across = stored == F8_ROWS ? 1 : blocks_of(columns, stored == MXFP4 ? COLUMN : BLOCK);
        }
        TRM_TRY(trm_infer_require_dims(call, i, what,
                                       up ? with_halves(call->desc, experts, blocks_of(width, down), across)
                                          : trm_dims3(experts, blocks_of(hidden, down), across)));
    }
    if (stored == F8_BLOCKS && width > 0 && width % BLOCK != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "experts are %" PRId64 " wide, expected a multiple of %d, as blocks of weights have a scale each",
                 width, BLOCK);
    }
    if (stored == MXFP4 && (width % COLUMN != 0 || hidden % COLUMN != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "experts are %" PRId64 " wide, of %" PRId64 " columns, expected multiples of %d, which have a scale",
                 width, hidden, COLUMN);
    }
    return infer_zero_points(call, stored == GROUPS && type == TRM_U8);
}

static trm_status infer_experts(const trm_infer_call *call)
{
    const trm_experts_params *p = &call->desc->experts;
    TRM_TRY(trm_infer_require_inputs(call, 5, TRM_EXPERTS_INPUT_COUNT));
    TRM_TRY(trm_infer_require_rank(call, TRM_EXPERTS_X, "x", 2));
    TRM_TRY(trm_infer_require_float(call, TRM_EXPERTS_X, "x"));
    TRM_TRY(trm_infer_require_rank(call, TRM_EXPERTS_IDS, "ids", 2));
    TRM_TRY(trm_infer_require_dtype(call, TRM_EXPERTS_IDS, "ids", TRM_I32));
    TRM_TRY(trm_infer_require_dtype(call, TRM_EXPERTS_WEIGHTS, "weights", TRM_F32));
    TRM_TRY(trm_infer_require_rank(call, TRM_EXPERTS_GATE_UP, "gate_up", 4));
    TRM_TRY(trm_infer_require_rank(call, TRM_EXPERTS_DOWN, "down", 3));
    if ((unsigned)p->activation >= TRM_EXPERT_ACTIVATION_COUNT || !(p->limit >= 0) || p->first < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "activation is %d, limit %g and first %" PRId64 ", expected an activation of 0 to %d and no negative "
                 "numbers",
                 (int)p->activation, (double)p->limit, p->first, TRM_EXPERT_ACTIVATION_COUNT - 1);
    }
    const trm_dims *x = call->dims[TRM_EXPERTS_X], *ids = call->dims[TRM_EXPERTS_IDS];
    const trm_dims *gate_up = call->dims[TRM_EXPERTS_GATE_UP];
    const trm_dtype type = call->dtypes[TRM_EXPERTS_GATE_UP];
    const int64_t packed = type == TRM_U8 ? 2 : 1; /* columns of a byte */
    const int64_t experts = gate_up->d[0], width = gate_up->d[width_axis(call->desc)];
    const int64_t hidden = gate_up->d[3] < 0 ? x->d[1] : gate_up->d[3] * packed;
    if (type != call->dtypes[TRM_EXPERTS_X] && type != TRM_U8 && type != TRM_I8 && type != TRM_F8E4M3) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "gate_up is of type %s, expected %s like x, f8e4m3, i8 or u8",
                 trm_dtype_name(type), trm_dtype_name(call->dtypes[TRM_EXPERTS_X]));
    }
    TRM_TRY(trm_infer_require_dtype(call, TRM_EXPERTS_DOWN, "down", type));
    TRM_TRY(trm_infer_require_dims(call, TRM_EXPERTS_X, "x", trm_dims2(-1, hidden)));
    TRM_TRY(trm_infer_require_dims(call, TRM_EXPERTS_IDS, "ids", trm_dims2(x->d[0], -1)));
    TRM_TRY(trm_infer_require_dims(call, TRM_EXPERTS_WEIGHTS, "weights", *ids));
    TRM_TRY(trm_infer_require_dims(call, TRM_EXPERTS_GATE_UP, "gate_up",
                                   with_halves(call->desc, experts, width, gate_up->d[3])));
    TRM_TRY(trm_infer_require_dims(call, TRM_EXPERTS_DOWN, "down", trm_dims3(experts, hidden, width / packed)));
    TRM_TRY(infer_scales(call, experts, width, hidden));
    trm_dims bias = with_halves(call->desc, experts, width, 0);
    bias.n = 3;
    for (int32_t i = TRM_EXPERTS_GATE_UP_BIAS; i <= TRM_EXPERTS_DOWN_BIAS; i++) {
        const bool up = i == TRM_EXPERTS_GATE_UP_BIAS;
        if (trm_infer_has(call, i)) {
            const char *what = up ? "gate_up_bias" : "down_bias";
            TRM_TRY(trm_infer_require_dtype(call, i, what, call->dtypes[TRM_EXPERTS_X]));
            TRM_TRY(trm_infer_require_dims(call, i, what, up ? bias : trm_dims2(experts, hidden)));
        }
    }
    return trm_infer_same(call, TRM_EXPERTS_X);
}

static int32_t link_experts(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)layer;
    return k == 1 ? TRM_LINK_NEVER : i <= TRM_EXPERTS_WEIGHTS ? 0 : TRM_LINK_WHOLE;
}

/* The scale of `down`; NULL where weights have none. */
static const trm_tensor *down_scale_of(const trm_layer *layer)
{
    return layer->n_inputs > TRM_EXPERTS_DOWN_SCALE ? layer->inputs[TRM_EXPERTS_DOWN_SCALE] : NULL;
}

/* The width that is cut in one piece: numbers that share a scale stay together, unless all of a row do. */
static int64_t grain_of(const trm_layer *layer)
{
    const trm_tensor *down = layer->inputs[TRM_EXPERTS_DOWN], *scale = down_scale_of(layer);
    const int64_t byte = down->dtype == TRM_U8 ? 2 : 1; /* columns of one */
    if (scale == NULL) {
        return 1;
    }
    switch (storage_of(down->dtype, &down->dims, &scale->dims, scale->dtype)) {
    case F8_BLOCKS:
        return BLOCK;
    case MXFP4:
        return COLUMN;
    case GROUPS:
        return scale->dims.d[2] == 1 ? byte : down->dims.d[2] * byte / scale->dims.d[2];
    default:
        return 1;
    }
}

static trm_status shard_experts(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    const trm_tensor *gate_up = layer->inputs[TRM_EXPERTS_GATE_UP];
    const int32_t axis = width_axis(&layer->desc);
    trm_way way = trm_way_whole();
    way.out[0] = trm_partial(parts);
    if (gate_up->dims.d[axis] % (parts * grain_of(layer)) == 0) { /* a part of every expert */
        way.in[TRM_EXPERTS_GATE_UP] = way.in[TRM_EXPERTS_GATE_UP_BIAS] = trm_split(axis, parts);
        way.in[TRM_EXPERTS_GATE_UP_SCALE] = way.in[TRM_EXPERTS_GATE_UP_ZERO_POINT] = trm_split(axis, parts);
        way.in[TRM_EXPERTS_DOWN] = trm_split(2, parts);
        const trm_tensor *scale = down_scale_of(layer);
        const bool shared = scale != NULL && scale->dims.d[2] == 1; /* by all of a row */
        way.in[TRM_EXPERTS_DOWN_SCALE] = way.in[TRM_EXPERTS_DOWN_ZERO_POINT] =
            shared ? trm_replicated() : trm_split(2, parts);
        TRM_TRY(taker->take(taker, layer, &way));
    }
    if (gate_up->dims.d[0] % parts == 0) { /* some experts */
        for (int32_t i = TRM_EXPERTS_GATE_UP; i < TRM_EXPERTS_INPUT_COUNT; i++) {
            way.in[i] = trm_split(0, parts);
        }
        TRM_TRY(taker->take(taker, layer, &way));
    }
    return TRM_OK;
}

static void localize_experts(const trm_layer *layer, const trm_sharding *out, int64_t first_row, trm_layer_desc *desc)
{
    (void)layer;
    (void)out;
    desc->experts.first += first_row;
}

/* A rank with some of the experts has, on average, this part of those of a token. */
static double experts_depth(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    const double held = trm_known_dim(in[TRM_EXPERTS_GATE_UP].d[0], unknown);
    const double all = trm_known_dim(layer->inputs[TRM_EXPERTS_GATE_UP]->dims.d[0], unknown);
    const int32_t axis = width_axis(&layer->desc);
    const double halves = (double)in[TRM_EXPERTS_GATE_UP].d[axis == 1 ? 2 : 1];
    return held / all * trm_known_dim(in[TRM_EXPERTS_IDS].d[1], unknown) *
           trm_known_dim(in[TRM_EXPERTS_GATE_UP].d[axis], unknown) * (1.0 + halves);
}

const trm_kind trm_kind_experts = {
    TRM_FIELDS(TRM_FIELD(ENUM, experts, activation, .always = true, .values = TRM_NAMES(TRM_EXPERT_ACTIVATIONS)),
               TRM_FIELD(BOOL, experts, interleaved), TRM_FIELD(BOOL, experts, weighted_input),
               TRM_FIELD(FLOAT, experts, limit), TRM_FIELD(FLOAT, experts, alpha), TRM_FIELD(INT64, experts, first)),
    .traits = TRM_KIND_PRODUCT | TRM_KIND_TAKES_TIME,
    .infer = infer_experts,
    .link = link_experts,
    .sizes = trm_sizes_of_first,
    .added = 1u << TRM_EXPERTS_DOWN_BIAS,
    .shard = shard_experts,
    .rows_of = TRM_EXPERTS_DOWN,
    .localize = localize_experts,
    .multiplications = experts_depth,
};
