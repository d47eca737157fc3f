/*
 * Kinds with a state of fixed size for each sequence: short_convolution, gated_delta, selective_scan,
 * delta_net.
 *
 * Over ranks channels and heads are split, and the state with them.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"

/* What the rules of these kinds expect of an input. */
typedef struct wanted {
    const char *name;
    int32_t rank;
    trm_dtype dtype; /* NONE: that of the first input */
} wanted;

/* All but the last `n_optional` have to be there. */
static trm_status require(const trm_infer_call *call, const wanted *inputs, int32_t n, int32_t n_optional)
{
    TRM_TRY(trm_infer_require_inputs(call, n - n_optional, n));
    TRM_TRY(trm_infer_require_float(call, 0, inputs[0].name));
    for (int32_t i = 0; i < call->n_inputs; i++) {
        const trm_dtype dtype = inputs[i].dtype == TRM_DTYPE_NONE ? call->dtypes[0] : inputs[i].dtype;
        TRM_TRY(trm_infer_require_rank(call, i, inputs[i].name, inputs[i].rank));
        TRM_TRY(trm_infer_require_dtype(call, i, inputs[i].name, dtype));
    }
    return TRM_OK;
}

static trm_status require_all(const trm_infer_call *call, const wanted *inputs, const trm_dims *dims, int32_t n)
{
    for (int32_t i = 0; i < n && i < call->n_inputs; i++) {
        TRM_TRY(trm_infer_require_dims(call, i, inputs[i].name, dims[i]));
    }
    return TRM_OK;
}

/* Number of sequences by their starts; -1 if it is unknown. */
static trm_status count_sequences(const trm_infer_call *call, int32_t starts, int64_t *sequences)
{
    const int64_t n = call->dims[starts]->d[0];
    if (n == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "sequence_starts has no elements, expected at least 1");
    }
    *sequences = n == -1 ? -1 : n - 1;
    return TRM_OK;
}

/* ---- short convolution -------------------------------------------------------------------------- */

static trm_status infer_short_convolution(const trm_infer_call *call)
{
    static const wanted all[TRM_SHORT_CONVOLUTION_INPUT_COUNT] = {
        {"x", 2, TRM_DTYPE_NONE},         {"weight", 2, TRM_DTYPE_NONE},  {"sequence_starts", 1, TRM_I32},
        {"sequence_lengths", 1, TRM_I32}, {"sequence_slots", 2, TRM_I32}, {"cache", 3, TRM_DTYPE_NONE},
        {"bias", 1, TRM_DTYPE_NONE},
    };
    int64_t sequences = -1;
    TRM_TRY(require(call, all, TRM_SHORT_CONVOLUTION_INPUT_COUNT, 1));
    TRM_TRY(trm_infer_require_activation(call->desc->short_convolution.activation));
    TRM_TRY(count_sequences(call, TRM_SHORT_CONVOLUTION_SEQUENCE_STARTS, &sequences));
    const trm_dims *x = call->dims[TRM_SHORT_CONVOLUTION_X], *weight = call->dims[TRM_SHORT_CONVOLUTION_WEIGHT];
    const int64_t channels = trm_dim_known(x->d[1], weight->d[0]);
    const trm_dims dims[TRM_SHORT_CONVOLUTION_INPUT_COUNT] = {
        trm_dims2(-1, weight->d[0]), trm_dims2(channels, -1),     trm_dims1(-1),       trm_dims1(sequences),
        trm_dims2(sequences, 2),     trm_dims3(-1, -1, channels), trm_dims1(channels),
    };
    TRM_TRY(require_all(call, all, dims, TRM_SHORT_CONVOLUTION_INPUT_COUNT));
    const int64_t taps = weight->d[1], places = call->dims[TRM_SHORT_CONVOLUTION_CACHE]->d[1];
    if (taps == 0 || places == 0 || (taps != -1 && places != -1 && places < taps - 1)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId64 " taps of the weight and %" PRId64
                 " places in the cache, expected at least 1, and a place for each tap but one",
                 taps, places);
    }
    call->output_dims[0] = trm_dims2(x->d[0], channels);
    call->output_dtypes[0] = call->dtypes[TRM_SHORT_CONVOLUTION_X];
    return TRM_OK;
}

static void sizes_of_x(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_follow(walk, layer->outputs[0], layer->inputs[TRM_SHORT_CONVOLUTION_X], 2);
}

/* Channels. */
static trm_status shard_short_convolution(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    const int64_t channels = layer->outputs[0]->dims.d[1];
    if (taker->shares_rows || channels <= 0 || channels % parts != 0) {
        return TRM_OK;
    }
    trm_way way = trm_way_whole();
    way.in[TRM_SHORT_CONVOLUTION_X] = way.out[0] = trm_split(1, parts);
    way.in[TRM_SHORT_CONVOLUTION_WEIGHT] = way.in[TRM_SHORT_CONVOLUTION_BIAS] = trm_split(0, parts);
    way.in[TRM_SHORT_CONVOLUTION_CACHE] = trm_split(2, parts);
    return taker->take(taker, layer, &way);
}

static double taps_of(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    (void)layer;
    return trm_known_dim(in[TRM_SHORT_CONVOLUTION_WEIGHT].d[1], unknown);
}

const trm_kind trm_kind_short_convolution = {
    TRM_FIELDS(TRM_FIELD(ENUM, short_convolution, activation, .values = TRM_NAMES(TRM_ACTIVATIONS))),
    .infer = infer_short_convolution,
    .sizes = sizes_of_x,
    .shard = shard_short_convolution,
    .multiplications = taps_of,
};

/* ---- gated delta rule ---------------------------------------------------------------------------- */

static trm_status infer_gated_delta(const trm_infer_call *call)
{
    static const wanted all[TRM_GATED_DELTA_INPUT_COUNT] = {
        {"q", 3, TRM_DTYPE_NONE},       {"k", 3, TRM_DTYPE_NONE},        {"v", 3, TRM_DTYPE_NONE},
        {"a", 2, TRM_DTYPE_NONE},       {"b", 2, TRM_DTYPE_NONE},        {"a_log", 1, TRM_F32},
        {"a_bias", 1, TRM_F32},         {"sequence_starts", 1, TRM_I32}, {"sequence_lengths", 1, TRM_I32},
        {"sequence_slots", 2, TRM_I32}, {"state", 5, TRM_F32},
    };
    int64_t sequences = -1;
    TRM_TRY(require(call, all, TRM_GATED_DELTA_INPUT_COUNT, 0));
    TRM_TRY(count_sequences(call, TRM_GATED_DELTA_SEQUENCE_STARTS, &sequences));
    const trm_dims *q = call->dims[TRM_GATED_DELTA_Q], *v = call->dims[TRM_GATED_DELTA_V];
    const trm_dims *state = call->dims[TRM_GATED_DELTA_STATE];
    const int64_t tokens = q->d[0], heads = v->d[1];
    const trm_dims dims[TRM_GATED_DELTA_INPUT_COUNT] = {
        trm_dims3(-1, -1, state->d[3]),
        *q,
        trm_dims3(tokens, state->d[2], state->d[4]),
        trm_dims2(tokens, heads),
        trm_dims2(tokens, heads),
        trm_dims1(heads),
        trm_dims1(heads),
        trm_dims1(-1),
        trm_dims1(sequences),
        trm_dims2(sequences, 2),
        {5, {-1, -1, heads, q->d[2], v->d[2]}},
    };
    TRM_TRY(require_all(call, all, dims, TRM_GATED_DELTA_INPUT_COUNT));
    if (q->d[1] == 0 || (q->d[1] != -1 && heads != -1 && heads % q->d[1] != 0) || state->d[1] == 0 ||
        !(call->desc->gated_delta.eps >= 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId64 " key heads, %" PRId64 " value heads, %" PRId64
                 " places of the state and eps %g; expected key heads that divide the value heads, a place at least, "
                 "and eps of at least 0",
                 q->d[1], heads, state->d[1], (double)call->desc->gated_delta.eps);
    }
    call->output_dims[0] = trm_dims3(tokens, trm_dim_known(heads, state->d[2]), trm_dim_known(v->d[2], state->d[4]));
    call->output_dtypes[0] = call->dtypes[TRM_GATED_DELTA_Q];
    return TRM_OK;
}

static void sizes_of_v(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_follow(walk, layer->outputs[0], layer->inputs[TRM_GATED_DELTA_V], 3);
}

/* Value heads, and with them key heads, which several ranks have where there are fewer than parts. */
static trm_status shard_gated_delta(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    int32_t key_parts;
    if (taker->shares_rows || trm_attention_head_parts(layer, parts, &key_parts) != parts) {
        return TRM_OK;
    }
    trm_way way = trm_way_whole();
    way.in[TRM_GATED_DELTA_Q] = way.in[TRM_GATED_DELTA_K] = trm_split(1, key_parts);
    way.in[TRM_GATED_DELTA_V] = way.in[TRM_GATED_DELTA_A] = way.in[TRM_GATED_DELTA_B] = trm_split(1, parts);
    way.in[TRM_GATED_DELTA_A_LOG] = way.in[TRM_GATED_DELTA_A_BIAS] = trm_split(0, parts);
    way.in[TRM_GATED_DELTA_STATE] = trm_split(2, parts);
    way.out[0] = trm_split(1, parts);
    return taker->take(taker, layer, &way);
}

/* S^T k, k d^T and S^T q. */
static double delta_multiplications(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    (void)layer;
    return 3.0 * trm_known_dim(in[TRM_GATED_DELTA_K].d[2], unknown);
}

const trm_kind trm_kind_gated_delta = {
    TRM_FIELDS(TRM_FIELD(FLOAT, gated_delta, eps, .always = true)),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_gated_delta,
    .sizes = sizes_of_v,
    .shard = shard_gated_delta,
    .multiplications = delta_multiplications,
};

/* ---- selective scan -------------------------------------------------------------------------------- */

static trm_status infer_selective_scan(const trm_infer_call *call)
{
    static const wanted all[TRM_SELECTIVE_SCAN_INPUT_COUNT] = {
        {"x", 3, TRM_DTYPE_NONE},       {"b", 3, TRM_DTYPE_NONE},        {"c", 3, TRM_DTYPE_NONE},
        {"step", 2, TRM_DTYPE_NONE},    {"a_log", 1, TRM_F32},           {"step_bias", 1, TRM_F32},
        {"skip", 1, TRM_F32},           {"sequence_starts", 1, TRM_I32}, {"sequence_lengths", 1, TRM_I32},
        {"sequence_slots", 2, TRM_I32}, {"state", 5, TRM_F32},
    };
    const trm_selective_scan_params *p = &call->desc->selective_scan;
    int64_t sequences = -1;
    TRM_TRY(require(call, all, TRM_SELECTIVE_SCAN_INPUT_COUNT, 0));
    TRM_TRY(count_sequences(call, TRM_SELECTIVE_SCAN_SEQUENCE_STARTS, &sequences));
    const trm_dims *x = call->dims[TRM_SELECTIVE_SCAN_X], *b = call->dims[TRM_SELECTIVE_SCAN_B];
    const trm_dims *state = call->dims[TRM_SELECTIVE_SCAN_STATE];
    const int64_t tokens = x->d[0], heads = x->d[1];
    const trm_dims dims[TRM_SELECTIVE_SCAN_INPUT_COUNT] = {
        trm_dims3(-1, state->d[2], state->d[3]),
        trm_dims3(tokens, -1, state->d[4]),
        *b,
        trm_dims2(tokens, heads),
        trm_dims1(heads),
        trm_dims1(heads),
        trm_dims1(heads),
        trm_dims1(-1),
        trm_dims1(sequences),
        trm_dims2(sequences, 2),
        {5, {-1, -1, heads, x->d[2], b->d[2]}},
    };
    TRM_TRY(require_all(call, all, dims, TRM_SELECTIVE_SCAN_INPUT_COUNT));
    if (b->d[1] == 0 || (b->d[1] != -1 && heads != -1 && heads % b->d[1] != 0) || state->d[1] == 0 ||
        !(p->step_min >= 0.0f) || !(p->step_max == 0.0f || p->step_max >= p->step_min)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId64 " groups, %" PRId64 " heads, %" PRId64
                 " places of the state and steps of %g to %g; expected groups that divide the heads, a place at least, "
                 "and limits in order",
                 b->d[1], heads, state->d[1], (double)p->step_min, (double)p->step_max);
    }
    call->output_dims[0] = trm_dims3(tokens, trm_dim_known(heads, state->d[2]), trm_dim_known(x->d[2], state->d[3]));
    call->output_dtypes[0] = call->dtypes[TRM_SELECTIVE_SCAN_X];
    return TRM_OK;
}

static void sizes_of_heads(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_follow(walk, layer->outputs[0], layer->inputs[TRM_SELECTIVE_SCAN_X], 3);
}

/* Heads, and with them groups, which several ranks have where there are fewer than parts. */
static trm_status shard_selective_scan(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    int32_t group_parts;
    if (taker->shares_rows || trm_attention_head_parts(layer, parts, &group_parts) != parts) {
        return TRM_OK;
    }
    trm_way way = trm_way_whole();
    way.in[TRM_SELECTIVE_SCAN_B] = way.in[TRM_SELECTIVE_SCAN_C] = trm_split(1, group_parts);
    way.in[TRM_SELECTIVE_SCAN_X] = way.in[TRM_SELECTIVE_SCAN_STEP] = way.out[0] = trm_split(1, parts);
    for (int32_t i = TRM_SELECTIVE_SCAN_A_LOG; i <= TRM_SELECTIVE_SCAN_SKIP; i++) {
        way.in[i] = trm_split(0, parts);
    }
    way.in[TRM_SELECTIVE_SCAN_STATE] = trm_split(2, parts);
    return taker->take(taker, layer, &way);
}

/* x b^T and S c. */
static double scan_multiplications(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    (void)layer;
    return 2.0 * trm_known_dim(in[TRM_SELECTIVE_SCAN_B].d[2], unknown);
}

const trm_kind trm_kind_selective_scan = {
    TRM_FIELDS(TRM_FIELD(FLOAT, selective_scan, step_min), TRM_FIELD(FLOAT, selective_scan, step_max)),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_selective_scan,
    .sizes = sizes_of_heads,
    .shard = shard_selective_scan,
    .multiplications = scan_multiplications,
};

/* ---- from the joined product on ------------------------------------------------------------------ */

/* The inputs of the layers that this one stands for go through their rules. */
static trm_status infer_part(const trm_infer_call *call, const trm_layer_desc *desc, trm_infer_rule rule,
                             const trm_dims *const *dims, const trm_dtype *dtypes, int32_t n)
{
    trm_infer_call part = *call;
    part.desc = desc;
    part.n_inputs = n;
    part.dims = dims;
    part.dtypes = dtypes;
    part.values = NULL;
    return rule(&part);
}

static trm_status check_columns(const trm_infer_call *call)
{
    const trm_delta_net_params *p = &call->desc->delta_net;
    const int64_t keys = (int64_t)p->key_heads * p->key_dim, values = (int64_t)p->heads * p->value_dim;
    const int64_t x = call->dims[TRM_DELTA_NET_X]->d[1], gates = call->dims[TRM_DELTA_NET_GATES]->d[1];
    if (p->key_heads < 1 || p->heads < 1 || p->key_dim < 1 || p->value_dim < 1 || p->z < 2 * keys + values ||
        p->a < 0 || p->b < 0 || (x != -1 && p->z + values > x) ||
        (gates != -1 && (p->a + p->heads > gates || p->b + p->heads > gates))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId32 " key heads of %" PRId32 ", %" PRId32 " value heads of %" PRId32
                 ", z from column %" PRId32 " of %" PRId64 ", a and b from %" PRId32 " and %" PRId32 " of %" PRId64
                 "; expected heads, z behind q, k and v, and all columns there",
                 p->key_heads, p->key_dim, p->heads, p->value_dim, p->z, x, p->a, p->b, gates);
    }
    return TRM_OK;
}

static trm_status infer_delta_net(const trm_infer_call *call)
{
    const trm_delta_net_params *p = &call->desc->delta_net;
    TRM_TRY(trm_infer_require_inputs(call, TRM_DELTA_NET_INPUT_COUNT, TRM_DELTA_NET_INPUT_COUNT));
    for (int32_t i = TRM_DELTA_NET_X; i <= TRM_DELTA_NET_GATES; i++) {
        TRM_TRY(trm_infer_require_rank(call, i, i == TRM_DELTA_NET_X ? "x" : "gates", 2));
        TRM_TRY(trm_infer_require_dtype(call, i, i == TRM_DELTA_NET_X ? "x" : "gates", call->dtypes[0]));
    }
    TRM_TRY(check_columns(call));
    const int64_t tokens = call->dims[TRM_DELTA_NET_X]->d[0];
    const trm_dims keys = trm_dims3(tokens, p->key_heads, p->key_dim);
    const trm_dims values = trm_dims3(tokens, p->heads, p->value_dim), gates = trm_dims2(tokens, p->heads);
    const trm_dims *dims[TRM_GATED_DELTA_INPUT_COUNT] = {&keys, &keys, &values, &gates, &gates};
    trm_dtype dtypes[TRM_GATED_DELTA_INPUT_COUNT];
    for (int32_t i = 0; i < TRM_GATED_DELTA_INPUT_COUNT; i++) {
        const int32_t from = TRM_DELTA_NET_A_LOG + i - TRM_GATED_DELTA_A_LOG;
        dims[i] = i < TRM_GATED_DELTA_A_LOG ? dims[i] : call->dims[from];
        dtypes[i] = i < TRM_GATED_DELTA_A_LOG ? call->dtypes[0] : call->dtypes[from];
    }
    const trm_layer_desc delta = {.kind = TRM_LAYER_GATED_DELTA, .gated_delta = {.eps = p->eps}};
    TRM_TRY(infer_part(call, &delta, infer_gated_delta, dims, dtypes, TRM_GATED_DELTA_INPUT_COUNT));
    const trm_layer_desc convolution = {.kind = TRM_LAYER_SHORT_CONVOLUTION,
                                        .short_convolution = {.activation = p->activation}};
    for (int32_t i = 0; i < 3; i++) {
        const trm_dims *of = i < 2 ? &keys : &values, x = trm_dims2(tokens, of->d[1] * of->d[2]);
        const int32_t from[TRM_SHORT_CONVOLUTION_BIAS] = {
            TRM_DELTA_NET_X,
            TRM_DELTA_NET_Q_TAPS + i,
            TRM_DELTA_NET_SEQUENCE_STARTS,
            TRM_DELTA_NET_SEQUENCE_LENGTHS,
            TRM_DELTA_NET_SEQUENCE_SLOTS,
            TRM_DELTA_NET_Q_CACHE + i,
        };
        for (int32_t k = 0; k < TRM_SHORT_CONVOLUTION_BIAS; k++) {
            dims[k] = k == 0 ? &x : call->dims[from[k]];
            dtypes[k] = call->dtypes[from[k]];
        }
        TRM_TRY(infer_part(call, &convolution, infer_short_convolution, dims, dtypes, TRM_SHORT_CONVOLUTION_BIAS));
    }
    TRM_TRY(trm_infer_require_activation(p->gate));
    TRM_TRY(trm_infer_require_dims(call, TRM_DELTA_NET_NORM, "norm", trm_dims1(p->value_dim)));
    TRM_TRY(trm_infer_require_dtype(call, TRM_DELTA_NET_NORM, "norm", call->dtypes[0]));
    call->output_dims[0] = trm_dims2(tokens, (int64_t)p->heads * p->value_dim);
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

static void sizes_of_net(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_follow(walk, layer->outputs[0], layer->inputs[TRM_DELTA_NET_X], 1);
}

const trm_kind trm_kind_delta_net = {
    TRM_FIELDS(TRM_FIELD(INT32, delta_net, key_heads, .always = true),
               TRM_FIELD(INT32, delta_net, heads, .always = true), TRM_FIELD(INT32, delta_net, key_dim, .always = true),
               TRM_FIELD(INT32, delta_net, value_dim, .always = true), TRM_FIELD(INT32, delta_net, z, .always = true),
               TRM_FIELD(INT32, delta_net, a), TRM_FIELD(INT32, delta_net, b),
               TRM_FIELD(ENUM, delta_net, activation, .values = TRM_NAMES(TRM_ACTIVATIONS)),
               TRM_FIELD(ENUM, delta_net, gate, .values = TRM_NAMES(TRM_ACTIVATIONS)), TRM_FIELD(FLOAT, delta_net, eps),
               TRM_FIELD(FLOAT, delta_net, norm_eps), TRM_FIELD(FLOAT, delta_net, weight_offset)),
    .traits = TRM_KIND_TAKES_TIME,
    .infer = infer_delta_net,
    .sizes = sizes_of_net,
};
