/*
 * Shape and type rules of the kinds of a neural network: embedding, matrix product, GLU, norm, rotary
 * positions, attention.
 */
#include "graph/infer.h"

#include <inttypes.h>

#include "base/error.h"

trm_status trm_infer_embedding(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    TRM_TRY(trm_infer_require_rank(call, 0, "table", 2));
    TRM_TRY(trm_infer_require_rank(call, 1, "ids", 1));
    TRM_TRY(trm_infer_require_dtype(call, 1, "ids", TRM_I32));
    call->output_dims[0] = trm_dims2(call->dims[1]->d[0], call->dims[0]->d[1]);
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

trm_status trm_infer_matmul(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 3));
    const trm_matmul_params *matmul = &call->desc->matmul;
    const trm_dims *a = call->dims[0], *b = call->dims[1];
    char text_a[TRM_DIMS_TEXT_SIZE], text_b[TRM_DIMS_TEXT_SIZE];
    if (a->n < 2 || b->n < 2) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a has dims %s and b %s, expected at least 2 dimensions each",
                 trm_dims_format(a, text_a), trm_dims_format(b, text_b));
    }
    const trm_dtype type = call->dtypes[0];
    const bool narrow = type == TRM_F32 || type == TRM_F16 || type == TRM_BF16;
    if (type == TRM_DTYPE_NONE || type >= TRM_BOOL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a has type %s, expected numbers", trm_dtype_name(type));
    }
    TRM_TRY(trm_infer_require_dtype(call, 1, "b", type));
    TRM_TRY(trm_infer_require_activation(matmul->activation));
    if (!trm_dtype_is_float(type) && matmul->activation != TRM_ACTIVATION_NONE) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a has type %s and the product an activation, expected a float type",
                 trm_dtype_name(type));
    }
    if (!narrow && matmul->out != TRM_DTYPE_NONE && matmul->out != type) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "out is %s, expected %s", trm_dtype_name(matmul->out),
                 trm_dtype_name(type));
    }
    if (narrow && matmul->out != TRM_DTYPE_NONE && !trm_dtype_is_float(matmul->out)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "out is %s, expected a float type", trm_dtype_name(matmul->out));
    }
    int64_t rows = a->d[a->n - (matmul->transpose_a ? 1 : 2)], depth_a = a->d[a->n - (matmul->transpose_a ? 2 : 1)];
    int64_t depth_b = b->d[b->n - (matmul->transpose_b ? 1 : 2)], columns = b->d[b->n - (matmul->transpose_b ? 2 : 1)];
    if (!trm_dim_fits(depth_a, depth_b)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a %s%s has K %" PRId64 ", b %s%s has K %" PRId64 ", expected the same",
                 trm_dims_format(a, text_a), matmul->transpose_a ? " transposed" : "", depth_a,
                 trm_dims_format(b, text_b), matmul->transpose_b ? " transposed" : "", depth_b);
    }
    trm_dims *out = &call->output_dims[0];
    TRM_TRY(trm_infer_broadcast(a, b, 2, out));
    out->d[out->n++] = rows;
    out->d[out->n++] = columns;
    if (trm_infer_has(call, 2)) {
        const trm_dims *bias = call->dims[2];
        trm_dims expected = bias->n > 1 ? *b : trm_dims1(columns);
        if (bias->n > 1) {
            expected.d[expected.n - 2] = 1;
            expected.d[expected.n - 1] = columns;
        }
        TRM_TRY(trm_infer_require_dims(call, 2, "bias", expected));
        TRM_TRY(trm_infer_require_dtype(call, 2, "bias", call->dtypes[0]));
        out->d[out->n - 1] = trm_dim_known(columns, bias->d[bias->n - 1]);
    }
    call->output_dtypes[0] = matmul->out == TRM_DTYPE_NONE ? call->dtypes[0] : matmul->out;
    return TRM_OK;
}

trm_status trm_infer_glu(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 2));
    TRM_TRY(trm_infer_require_float(call, 0, "gate"));
    TRM_TRY(trm_infer_require_activation(call->desc->glu.activation));
    const trm_dims *gate = call->dims[0];
    trm_dims *out = &call->output_dims[0];
    *out = *gate;
    call->output_dtypes[0] = call->dtypes[0];
    if (call->n_inputs == 2) {
        TRM_TRY(trm_infer_require_dims(call, 1, "up", *gate));
        TRM_TRY(trm_infer_require_dtype(call, 1, "up", call->dtypes[0]));
        for (int32_t i = 0; i < gate->n; i++) {
            out->d[i] = trm_dim_known(gate->d[i], call->dims[1]->d[i]);
        }
        return TRM_OK;
    }
    char text[TRM_DIMS_TEXT_SIZE];
    if (gate->n < 1 || (gate->d[gate->n - 1] != -1 && gate->d[gate->n - 1] % 2 != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "gate_up has dims %s, expected an even last dimension",
                 trm_dims_format(gate, text));
    }
    if (gate->d[gate->n - 1] != -1) {
        out->d[gate->n - 1] /= 2;
    }
    return TRM_OK;
}

/* A product, then a GLU of it. */
trm_status trm_infer_matmul_glu(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    TRM_TRY(trm_infer_require_rank(call, 1, "weight", 2));
    trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_infer_call inner = *call;
    inner.desc = &desc;
    TRM_TRY(trm_infer_matmul(&inner));
    const trm_dims product = call->output_dims[0], *given = &product;
    desc = (trm_layer_desc){.kind = TRM_LAYER_GLU, .glu = call->desc->glu};
    inner.dims = &given;
    inner.dtypes = call->dtypes;
    inner.values = NULL;
    inner.n_inputs = 1;
    return trm_infer_glu(&inner);
}

trm_status trm_infer_norm(const trm_infer_call *call)
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

/* The rule of a norm, then that of a product or of one with its GLU. */
trm_status trm_infer_norm_matmul(const trm_infer_call *call)
{
    const trm_norm_matmul_params *p = &call->desc->norm_matmul;
    TRM_TRY(
        trm_infer_require_inputs(call, 2, p->residual ? TRM_NORM_MATMUL_INPUT_COUNT : TRM_NORM_MATMUL_INPUT_COUNT - 1));
    if (p->residual && !trm_infer_has(call, TRM_NORM_MATMUL_RESIDUAL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "residual is not given");
    }
    TRM_TRY(trm_infer_require_rank(call, TRM_NORM_MATMUL_WEIGHT, "weight", 2));
    const bool has_bias = trm_infer_has(call, TRM_NORM_MATMUL_BIAS);
    if (p->gated && (has_bias || (p->out != TRM_DTYPE_NONE && p->out != call->dtypes[0]))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a gated product has %s, expected none",
                 has_bias ? "a bias" : "another type of output");
    }
    const int32_t norm_inputs[] = {TRM_NORM_MATMUL_X,
                                   p->residual ? TRM_NORM_MATMUL_RESIDUAL : TRM_NORM_MATMUL_NORM_WEIGHT,
                                   TRM_NORM_MATMUL_NORM_WEIGHT};
    const trm_dims *dims[3];
    trm_dtype dtypes[3], norm_dtypes[2];
    trm_dims norm_dims[2];
    for (int32_t i = 0; i < 3; i++) {
        const bool given = trm_infer_has(call, norm_inputs[i]);
        dims[i] = given ? call->dims[norm_inputs[i]] : NULL;
        dtypes[i] = given ? call->dtypes[norm_inputs[i]] : TRM_DTYPE_NONE;
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_NORM,
                           .norm = {.residual = p->residual, .eps = p->eps, .weight_offset = p->weight_offset}};
    trm_infer_call inner = *call;
    inner.desc = &desc;
    inner.values = NULL;
    inner.dims = dims;
    inner.dtypes = dtypes;
    inner.n_inputs = p->residual ? 3 : 2;
    inner.output_dims = norm_dims;
    inner.output_dtypes = norm_dtypes;
    TRM_TRY(trm_infer_norm(&inner));
    const trm_dims *product_dims[] = {&norm_dims[0], call->dims[1], has_bias ? call->dims[2] : NULL};
    const trm_dtype product_dtypes[] = {norm_dtypes[0], call->dtypes[1], has_bias ? call->dtypes[2] : TRM_DTYPE_NONE};
    inner = *call;
    inner.desc = &desc;
    inner.values = NULL;
    inner.dims = product_dims;
    inner.dtypes = product_dtypes;
    inner.n_inputs = has_bias ? 3 : 2;
    desc = p->gated ? (trm_layer_desc){.kind = TRM_LAYER_MATMUL_GLU, .glu = {p->activation}}
                    : (trm_layer_desc){.kind = TRM_LAYER_MATMUL,
                                       .matmul = {.transpose_b = true, .activation = p->activation, .out = p->out}};
    TRM_TRY(p->gated ? trm_infer_matmul_glu(&inner) : trm_infer_matmul(&inner));
    if (p->residual) {
        call->output_dims[1] = norm_dims[1];
        call->output_dtypes[1] = norm_dtypes[1];
    }
    return TRM_OK;
}

/* Positive, and even where numbers have 4 bits: a block begins with a byte. */
static trm_status check_blocks(const trm_dequant_matmul_params *p, bool packed)
{
    if (p->block_n < 1 || p->block_k < 0 || (packed && p->block_k % 2 != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "block_n is %" PRId32 " and block_k %" PRId32 ", expected at least 1 and 0%s", p->block_n, p->block_k,
                 packed ? ", block_k even" : "");
    }
    return TRM_OK;
}

static int64_t blocks_of(int64_t size, int32_t block)
{
    return size < 0 ? -1 : block == 0 ? 1 : (size + block - 1) / block;
}

trm_status trm_infer_dequant_matmul(const trm_infer_call *call)
{
    enum {
        X = TRM_DEQUANT_MATMUL_X,
        WEIGHT = TRM_DEQUANT_MATMUL_WEIGHT,
        SCALE = TRM_DEQUANT_MATMUL_SCALE,
        BIAS = TRM_DEQUANT_MATMUL_BIAS,
        ZERO_POINT = TRM_DEQUANT_MATMUL_ZERO_POINT
    };
    const trm_dequant_matmul_params *p = &call->desc->dequant_matmul;
    TRM_TRY(trm_infer_require_inputs(call, 3, TRM_DEQUANT_MATMUL_INPUT_COUNT));
    TRM_TRY(trm_infer_require_float(call, X, "x"));
    TRM_TRY(trm_infer_require_float(call, SCALE, "scale"));
    TRM_TRY(trm_infer_require_rank(call, WEIGHT, "weight", 2));
    const trm_dtype type = call->dtypes[WEIGHT];
    const bool packed = type == TRM_U8;
    if ((!packed && type != TRM_I8 && type != TRM_F8E4M3) || call->dtypes[X] == TRM_F64 ||
        call->dtypes[SCALE] == TRM_F64 || p->out == TRM_F64) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "x is of type %s, weight %s, scale %s, expected f32, f16 or bf16, and f8e4m3, i8 or u8 for the weight",
                 trm_dtype_name(call->dtypes[X]), trm_dtype_name(type), trm_dtype_name(call->dtypes[SCALE]));
    }
    if (p->out != TRM_DTYPE_NONE && !trm_dtype_is_float(p->out)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "out is %s, expected f32, f16 or bf16", trm_dtype_name(p->out));
    }
    TRM_TRY(check_blocks(p, packed));
    const trm_dims *x = call->dims[X], *weight = call->dims[WEIGHT];
    trm_dims *out = &call->output_dims[0];
    const int64_t stored = weight->d[1], columns = packed && stored > 0 ? 2 * stored : stored;
    char text[TRM_DIMS_TEXT_SIZE];
    if (x->n < 1 || !trm_dim_fits(x->d[x->n - 1], columns)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "x has dims %s, expected [..., %" PRId64 "], what the weight has columns",
                 trm_dims_format(x, text), columns);
    }
    const trm_dims blocks = {2, {blocks_of(weight->d[0], p->block_n), blocks_of(columns, p->block_k)}};
    TRM_TRY(trm_infer_require_dims(call, SCALE, "scale", blocks));
    *out = *x;
    out->d[out->n - 1] = weight->d[0];
    if (trm_infer_has(call, BIAS)) {
        TRM_TRY(trm_infer_require_dims(call, BIAS, "bias", trm_dims1(weight->d[0])));
        TRM_TRY(trm_infer_require_dtype(call, BIAS, "bias", call->dtypes[X]));
    }
    if (trm_infer_has(call, ZERO_POINT)) {
        TRM_TRY(trm_infer_require_dims(call, ZERO_POINT, "zero_point", blocks));
        TRM_TRY(trm_infer_require_dtype(call, ZERO_POINT, "zero_point", TRM_U8));
        if (!packed) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a weight of type %s has zero points, expected none",
                     trm_dtype_name(type));
        }
    }
    call->output_dtypes[0] = p->out == TRM_DTYPE_NONE ? call->dtypes[X] : p->out;
    return TRM_OK;
}

static trm_status check_rope_params(const trm_rope_params *rope, int64_t head_dim)
{
    if ((unsigned)rope->scaling > TRM_ROPE_LONG) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found rope scaling %d, expected 0 to %d", (int)rope->scaling,
                 (int)TRM_ROPE_LONG);
    }
    if (rope->rotary_dim <= 0 || rope->rotary_dim % 2 != 0 || (head_dim != -1 && rope->rotary_dim > head_dim)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "rotary_dim is %" PRId32 ", expected an even number of 2 to the head dimension %" PRId64,
                 rope->rotary_dim, head_dim);
    }
    if (rope->scaling != TRM_ROPE_PLAIN && rope->original_length < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "original_length is %" PRId64 ", expected at least 1",
                 rope->original_length);
    }
    if (rope->scaling == TRM_ROPE_DYNAMIC && !(rope->base > 0 && rope->factor >= 1)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "base is %g and factor %g, expected more than 0 and at least 1",
                 (double)rope->base, (double)rope->factor);
    }
    return TRM_OK;
}

trm_status trm_infer_rope(const trm_infer_call *call)
{
    const trm_rope_params *rope = &call->desc->rope;
    TRM_TRY(trm_infer_require_inputs(call, rope->scaling == TRM_ROPE_PLAIN ? 3 : 4, 4));
    TRM_TRY(trm_infer_require_rank(call, 0, "x", 3));
    TRM_TRY(trm_infer_require_float(call, 0, "x"));
    const trm_dims *x = call->dims[0];
    TRM_TRY(check_rope_params(rope, x->d[2]));
    TRM_TRY(trm_infer_require_dims(call, 1, "positions", trm_dims1(x->d[0])));
    TRM_TRY(trm_infer_require_dtype(call, 1, "positions", TRM_I32));
    int64_t pairs = rope->rotary_dim / 2;
    TRM_TRY(trm_infer_require_dims(call, 2, "inv_freq",
                                   rope->scaling == TRM_ROPE_LONG ? trm_dims2(2, pairs) : trm_dims1(pairs)));
    TRM_TRY(trm_infer_require_dtype(call, 2, "inv_freq", TRM_F32));
    if (trm_infer_has(call, 3)) {
        TRM_TRY(trm_infer_require_dims(call, 3, "lengths", trm_dims1(x->d[0])));
        TRM_TRY(trm_infer_require_dtype(call, 3, "lengths", TRM_I32));
    }
    call->output_dims[0] = *x;
    call->output_dims[0].d[0] = trm_dim_known(x->d[0], call->dims[1]->d[0]);
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

/* ---- attention --------------------------------------------------------------------------------- */

/* A normal number, so that its reciprocal is one, too. */
static bool is_cache_scale(float scale)
{
    return scale == 0 || (scale >= 0x1p-126f && scale <= 0x1p126f);
}

static trm_status check_attention_params(const trm_attention_params *attention)
{
    if ((unsigned)attention->form > TRM_ATTENTION_PADDED_BNHD) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found attention form %d, expected 0 to %d", (int)attention->form,
                 (int)TRM_ATTENTION_PADDED_BNHD);
    }
    if ((unsigned)attention->causal > TRM_CAUSAL_LOWER_RIGHT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found causal kind %d, expected 0 to %d", (int)attention->causal,
                 (int)TRM_CAUSAL_LOWER_RIGHT);
    }
    if (attention->window < 0 || (attention->window > 0 && attention->causal == TRM_CAUSAL_NONE)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "window is %" PRId32 ", expected 0, or more with a causal kind",
                 attention->window);
    }
    if (!(attention->softcap >= 0) || !(attention->scale == attention->scale)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "softcap is %g and scale %g, expected numbers of at least 0",
                 (double)attention->softcap, (double)attention->scale);
    }
    if (!is_cache_scale(attention->k_scale) || !is_cache_scale(attention->v_scale)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "k_scale is %g and v_scale %g, expected positive numbers, or 0 for 1",
                 (double)attention->k_scale, (double)attention->v_scale);
    }
    if (attention->n_ranks < 0 || attention->n_ranks > TRM_MAX_RANKS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "n_ranks is %" PRId32 ", expected 0 to %d", attention->n_ranks,
                 TRM_MAX_RANKS);
    }
    if (attention->n_ranks > 1 && attention->form == TRM_ATTENTION_PACKED_NHD) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "n_ranks is %" PRId32 " in the packed form, expected 1: rows of packed sequences, and of a cache, are "
                 "not cut over ranks; the padded forms can be",
                 attention->n_ranks);
    }
    return TRM_OK;
}

static trm_status check_head_counts(int64_t queries, int64_t keys)
{
    if (queries != -1 && keys != -1 && (keys == 0 || queries % keys != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId64 " query heads and %" PRId64 " key-value heads, expected a multiple of them", queries,
                 keys);
    }
    return TRM_OK;
}

static trm_status check_not_given(const trm_infer_call *call, int32_t first, int32_t last, const char *why)
{
    static const char *const names[TRM_ATTENTION_INPUT_COUNT] = {
        "q", "k", "v", "sequence_starts", "sequence_lengths", "block_table", "key_cache", "value_cache", "mask",
    };
    for (int32_t i = first; i <= last; i++) {
        if (trm_infer_has(call, i)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is given, expected none %s", names[i], why);
        }
    }
    return TRM_OK;
}

/* The cache and what names its blocks: all four or none. */
static trm_status check_cache(const trm_infer_call *call, int64_t sequences)
{
    const trm_dims *k = call->dims[TRM_ATTENTION_K], *v = call->dims[TRM_ATTENTION_V];
    if (!trm_infer_has(call, TRM_ATTENTION_KEY_CACHE)) {
        return check_not_given(call, TRM_ATTENTION_SEQUENCE_LENGTHS, TRM_ATTENTION_VALUE_CACHE, "without a key_cache");
    }
    if (!trm_infer_has(call, TRM_ATTENTION_SEQUENCE_LENGTHS) || !trm_infer_has(call, TRM_ATTENTION_BLOCK_TABLE) ||
        !trm_infer_has(call, TRM_ATTENTION_VALUE_CACHE)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "a key_cache is given, expected sequence_lengths, block_table and value_cache with it");
    }
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_SEQUENCE_LENGTHS, "sequence_lengths", trm_dims1(sequences)));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_SEQUENCE_LENGTHS, "sequence_lengths", TRM_I32));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_BLOCK_TABLE, "block_table", trm_dims2(sequences, -1)));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_BLOCK_TABLE, "block_table", TRM_I32));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_KEY_CACHE, "key_cache", trm_dims4(-1, -1, k->d[1], k->d[2])));
    const bool is_f8 = call->dtypes[TRM_ATTENTION_KEY_CACHE] == TRM_F8E4M3;
    const trm_dtype dtype = is_f8 ? TRM_F8E4M3 : call->dtypes[TRM_ATTENTION_K];
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_KEY_CACHE, "key_cache", dtype));
    const trm_dims *cache = call->dims[TRM_ATTENTION_KEY_CACHE];
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_VALUE_CACHE, "value_cache",
                                   trm_dims4(cache->d[0], cache->d[1], v->d[1], v->d[2])));
    return trm_infer_require_dtype(call, TRM_ATTENTION_VALUE_CACHE, "value_cache", dtype);
}

static trm_status infer_packed(const trm_infer_call *call)
{
    const trm_dims *q = call->dims[TRM_ATTENTION_Q], *k = call->dims[TRM_ATTENTION_K];
    TRM_TRY(trm_infer_require_rank(call, TRM_ATTENTION_Q, "q", 3));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_K, "k", trm_dims3(q->d[0], -1, q->d[2])));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_V, "v", trm_dims3(q->d[0], k->d[1], -1)));
    TRM_TRY(check_head_counts(q->d[1], k->d[1]));
    TRM_TRY(check_not_given(call, TRM_ATTENTION_MASK, TRM_ATTENTION_MASK, "in the packed form"));
    if (!trm_infer_has(call, TRM_ATTENTION_SEQUENCE_STARTS)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "sequence_starts is not given");
    }
    TRM_TRY(trm_infer_require_rank(call, TRM_ATTENTION_SEQUENCE_STARTS, "sequence_starts", 1));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_SEQUENCE_STARTS, "sequence_starts", TRM_I32));
    int64_t starts = call->dims[TRM_ATTENTION_SEQUENCE_STARTS]->d[0];
    if (starts == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "sequence_starts has dims [0], expected one more than sequences");
    }
    TRM_TRY(check_cache(call, starts == -1 ? -1 : starts - 1));
    call->output_dims[0] = trm_dims3(q->d[0], q->d[1], call->dims[TRM_ATTENTION_V]->d[2]);
    return TRM_OK;
}

static trm_status check_mask(const trm_infer_call *call, trm_dims scores)
{
    if (call->dtypes[TRM_ATTENTION_MASK] != TRM_BOOL) {
        TRM_TRY(trm_infer_require_float(call, TRM_ATTENTION_MASK, "mask"));
    }
    const trm_dims *mask = call->dims[TRM_ATTENTION_MASK];
    bool fits = mask->n <= scores.n;
    for (int32_t i = 0; fits && i < mask->n; i++) {
        fits = mask->d[i] == 1 || trm_dim_fits(mask->d[i], scores.d[scores.n - mask->n + i]);
    }
    if (!fits) {
        char found[TRM_DIMS_TEXT_SIZE], expected[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "mask has dims %s, expected dims that broadcast to %s",
                 trm_dims_format(mask, found), trm_dims_format(&scores, expected));
    }
    return TRM_OK;
}

static trm_status infer_padded(const trm_infer_call *call)
{
    const trm_dims *q = call->dims[TRM_ATTENTION_Q], *k = call->dims[TRM_ATTENTION_K];
    const int32_t heads = call->desc->attention.form == TRM_ATTENTION_PADDED_BNHD ? 2 : 1, rows = 3 - heads;
    TRM_TRY(trm_infer_require_rank(call, TRM_ATTENTION_Q, "q", 4));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_K, "k", trm_dims4(q->d[0], -1, -1, q->d[3])));
    TRM_TRY(trm_infer_require_dims(call, TRM_ATTENTION_V, "v", trm_dims4(q->d[0], k->d[1], k->d[2], -1)));
    TRM_TRY(check_head_counts(q->d[heads], k->d[heads]));
    TRM_TRY(check_not_given(call, TRM_ATTENTION_SEQUENCE_STARTS, TRM_ATTENTION_VALUE_CACHE, "in the padded form"));
    if (trm_infer_has(call, TRM_ATTENTION_MASK)) {
        const int64_t ranks = call->desc->attention.n_ranks > 1 ? call->desc->attention.n_ranks : 1;
        int64_t keys = k->d[rows];
        if (keys != -1 && __builtin_mul_overflow(keys, ranks, &keys)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the keys of %" PRId64 " ranks overflow", ranks);
        }
        TRM_TRY(check_mask(call, trm_dims4(q->d[0], q->d[heads], q->d[rows], keys)));
    }
    call->output_dims[0] = trm_dims4(q->d[0], q->d[1], q->d[2], call->dims[TRM_ATTENTION_V]->d[3]);
    return TRM_OK;
}

trm_status trm_infer_attention(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 3, TRM_ATTENTION_INPUT_COUNT));
    const trm_attention_params *attention = &call->desc->attention;
    TRM_TRY(check_attention_params(attention));
    TRM_TRY(trm_infer_require_float(call, TRM_ATTENTION_Q, "q"));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_K, "k", call->dtypes[TRM_ATTENTION_Q]));
    TRM_TRY(trm_infer_require_dtype(call, TRM_ATTENTION_V, "v", call->dtypes[TRM_ATTENTION_Q]));
    TRM_TRY(attention->form == TRM_ATTENTION_PACKED_NHD ? infer_packed(call) : infer_padded(call));
    call->output_dtypes[0] = call->dtypes[TRM_ATTENTION_Q];
    return TRM_OK;
}

/* Checks what only this kind has; gives the dims of a head. */
static trm_status check_qkv(const trm_infer_call *call, int64_t *dim)
{
    const trm_qkv_attention_params *params = &call->desc->qkv_attention;
    const trm_dtype dtype = call->dtypes[TRM_QKV_ATTENTION_QKV];
    TRM_TRY(trm_infer_require_rank(call, TRM_QKV_ATTENTION_QKV, "qkv", 2));
    if (params->query_heads < 1 || params->kv_heads < 1 || params->attention.form != TRM_ATTENTION_PACKED_NHD ||
        params->attention.n_ranks > 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "found %" PRId32 " query heads, %" PRId32 " key-value heads, form %d and n_ranks %" PRId32
                 ", expected heads, the packed form and one rank",
                 params->query_heads, params->kv_heads, (int)params->attention.form, params->attention.n_ranks);
    }
    int64_t heads = (int64_t)params->query_heads + 2 * (int64_t)params->kv_heads, width = call->dims[0]->d[1];
    if (width != -1 && (width == 0 || width % heads != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "qkv has %" PRId64 " elements per token, expected a multiple of %" PRId64,
                 width, heads);
    }
    *dim = width == -1 ? -1 : width / heads;
    if (params->rope.scaling != TRM_ROPE_PLAIN && !trm_infer_has(call, TRM_QKV_ATTENTION_LENGTHS)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "lengths is not given, expected it with a scaling that depends on it");
    }
    bool normed = trm_infer_has(call, TRM_QKV_ATTENTION_Q_NORM);
    if (normed != trm_infer_has(call, TRM_QKV_ATTENTION_K_NORM)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "one of q_norm and k_norm is given, expected both or neither");
    }
    for (int32_t i = TRM_QKV_ATTENTION_Q_NORM; normed && i <= TRM_QKV_ATTENTION_K_NORM; i++) {
        const char *name = i == TRM_QKV_ATTENTION_Q_NORM ? "q_norm" : "k_norm";
        TRM_TRY(trm_infer_require_dims(call, i, name, trm_dims1(*dim)));
        TRM_TRY(trm_infer_require_dtype(call, i, name, dtype));
    }
    return TRM_OK;
}

/* What is cut out of qkv goes through the rules of the layers that this one stands for. */
trm_status trm_infer_qkv_attention(const trm_infer_call *call)
{
    const trm_qkv_attention_params *params = &call->desc->qkv_attention;
    int64_t dim = -1;
    TRM_TRY(trm_infer_require_inputs(call, TRM_QKV_ATTENTION_INV_FREQ + 1, TRM_QKV_ATTENTION_INPUT_COUNT));
    TRM_TRY(check_qkv(call, &dim));
    const trm_dims q = trm_dims3(call->dims[0]->d[0], params->query_heads, dim);
    const trm_dims k = trm_dims3(call->dims[0]->d[0], params->kv_heads, dim);
    const trm_dims *dims[TRM_ATTENTION_INPUT_COUNT] = {&q};
    trm_dtype dtypes[TRM_ATTENTION_INPUT_COUNT] = {call->dtypes[TRM_QKV_ATTENTION_QKV]};
    const int32_t lengths = trm_infer_has(call, TRM_QKV_ATTENTION_LENGTHS) ? 1 : 0;
    for (int32_t i = 0; i < 2 + lengths; i++) { /* of ROPE: positions, inv_freq, lengths */
        dims[1 + i] = call->dims[TRM_QKV_ATTENTION_POSITIONS + i];
        dtypes[1 + i] = call->dtypes[TRM_QKV_ATTENTION_POSITIONS + i];
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_ROPE, .rope = params->rope};
    trm_infer_call inner = *call;
    inner.desc = &desc;
    inner.dims = dims;
    inner.dtypes = dtypes;
    inner.values = NULL;
    inner.n_inputs = 3 + lengths;
    TRM_TRY(trm_infer_rope(&inner));
    dims[TRM_ATTENTION_K] = dims[TRM_ATTENTION_V] = &k;
    dtypes[TRM_ATTENTION_K] = dtypes[TRM_ATTENTION_V] = dtypes[TRM_ATTENTION_Q];
    for (int32_t i = 0; i < 5; i++) { /* of ATTENTION: starts, lengths, table, caches */
        dims[TRM_ATTENTION_SEQUENCE_STARTS + i] = call->dims[TRM_QKV_ATTENTION_SEQUENCE_STARTS + i];
        dtypes[TRM_ATTENTION_SEQUENCE_STARTS + i] = call->dtypes[TRM_QKV_ATTENTION_SEQUENCE_STARTS + i];
    }
    desc = (trm_layer_desc){.kind = TRM_LAYER_ATTENTION, .attention = params->attention};
    inner.n_inputs = TRM_ATTENTION_VALUE_CACHE + 1;
    return trm_infer_attention(&inner);
}
