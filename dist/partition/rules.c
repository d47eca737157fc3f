/*
 * The strategies of every layer kind: in which forms of its inputs a layer can run on its own on each rank, and in
 * which form its outputs then are.
 *
 * Three observations give nearly all of them, for any kind:
 *   - everything whole on every rank, always;
 *   - an axis of the output that follows an axis of the inputs may be split (graph/axis_links.h);
 *   - a layer that is linear in some inputs maps their partial sums to a partial sum (linear_inputs).
 * What is left is particular to a kind: a product over a split inner axis, an embedding table cut by rows, a sum over a
 * split axis, attention heads.
 */
#include "dist/partition/problem.h"

#include <string.h>

#include "base/error.h"
#include "graph/axis_links.h"

/* ---- forms ------------------------------------------------------------------------------------- */

trm_dims trm_sharding_local_dims(const trm_dims *dims, const trm_sharding *sharding)
{
    trm_dims local = *dims;
    if (sharding->kind == TRM_SPLIT && dims->d[sharding->axis] >= 0) {
        local.d[sharding->axis] = trm_ceil_div(dims->d[sharding->axis], sharding->parts);
    }
    return local;
}

bool trm_sharding_is_even(const trm_dims *dims, const trm_sharding *sharding)
{
    return sharding->kind != TRM_SPLIT || dims->d[sharding->axis] < 0 || dims->d[sharding->axis] % sharding->parts == 0;
}

int32_t trm_partition_form(trm_partition_tensor *tensor, const trm_sharding *sharding)
{
    for (int32_t i = 0; i < tensor->n_forms; i++) {
        const trm_sharding *form = &tensor->forms[i];
        if (form->kind == sharding->kind &&
            (form->kind == TRM_REPLICATED ||
             (form->parts == sharding->parts && (form->kind == TRM_PARTIAL || form->axis == sharding->axis)))) {
            return i;
        }
    }
    if (tensor->n_forms == TRM_MAX_FORMS) {
        return -1;
    }
    tensor->forms[tensor->n_forms] = *sharding;
    return tensor->n_forms++;
}

/* ---- one strategy in the making ---------------------------------------------------------------- */

typedef struct draft {
    trm_partitioner *partitioner;
    const trm_layer *layer;
    trm_sharding in[TRM_MAX_LAYER_INPUTS], out[TRM_MAX_LAYER_OUTPUTS];
} draft;

static const trm_sharding replicated = {TRM_REPLICATED, 0, 1};

static trm_sharding split(int32_t axis, int32_t parts)
{
    return parts == 1 ? replicated : (trm_sharding){TRM_SPLIT, axis, parts};
}

static trm_sharding partial(int32_t parts)
{
    return (trm_sharding){TRM_PARTIAL, 0, parts};
}

static draft begin(trm_partitioner *partitioner, const trm_layer *layer)
{
    draft d = {.partitioner = partitioner, .layer = layer};
    for (int32_t i = 0; i < TRM_MAX_LAYER_INPUTS; i++) {
        d.in[i] = replicated;
    }
    for (int32_t i = 0; i < TRM_MAX_LAYER_OUTPUTS; i++) {
        d.out[i] = replicated;
    }
    return d;
}

bool trm_sharding_is_possible(const trm_tensor *tensor, const trm_sharding *form)
{
    if (form->kind == TRM_PARTIAL) {
        return tensor->role == TRM_TENSOR_ACTIVATION && trm_dtype_is_float(tensor->dtype);
    }
    if (form->kind == TRM_REPLICATED) {
        return true;
    }
    int64_t size = tensor->dims.d[form->axis];
    if (size < form->parts || trm_ceil_div(size, form->parts) * (form->parts - 1) >= size) {
        return false; /* unknown sizes are -1 */
    }
    return trm_sharding_is_even(&tensor->dims, form) || tensor->role == TRM_TENSOR_ACTIVATION ||
           tensor->role == TRM_TENSOR_CONSTANT;
}

/* The same where the batch is shared: nothing is split but along that. */
static bool batch_is_possible(const trm_partition_tensor *t, const trm_sharding *form)
{
    const trm_tensor *tensor = t->tensor;
    if (form->kind != TRM_SPLIT) {
        return trm_sharding_is_possible(tensor, form);
    }
    const bool is_constant = tensor->role == TRM_TENSOR_CONSTANT;
    return tensor->dims.d[form->axis] != 0 && trm_sharding_is_even(&tensor->dims, form) &&
           (is_constant || t->batch_axis == form->axis);
}

/* Adds a form to a tensor; false if it cannot have it or is pinned to another. */
static bool admit(draft *d, const trm_tensor *tensor, const trm_sharding *form, uint8_t *index)
{
    trm_partition_tensor *t = &d->partitioner->tensors[tensor->index];
    bool decides_dims = form->kind != TRM_REPLICATED && trm_inference_wants(d->partitioner->inference, tensor);
    const bool shares = d->partitioner->shares_batch;
    if (decides_dims || !(shares ? batch_is_possible(t, form) : trm_sharding_is_possible(tensor, form))) {
        return false;
    }
    int32_t found = trm_partition_form(t, form);
    bool fixed = tensor->role == TRM_TENSOR_CONSTANT || tensor->role == TRM_TENSOR_STATE;
    if (found < 0 || (fixed && t->pin >= 0 && t->pin != found)) {
        return false;
    }
    *index = (uint8_t)found;
    return true;
}

static trm_status offer(draft *d)
{
    trm_partition_layer *layer = &d->partitioner->layers[d->layer->index];
    trm_strategy strategy = {{0}, {0}, 0.0};
    for (int32_t i = 0; i < d->layer->n_inputs; i++) {
        if (d->layer->inputs[i] != NULL && !admit(d, d->layer->inputs[i], &d->in[i], &strategy.inputs[i])) {
            return TRM_OK;
        }
    }
    for (int32_t i = 0; i < d->layer->n_outputs; i++) {
        if (!admit(d, d->layer->outputs[i], &d->out[i], &strategy.outputs[i])) {
            return TRM_OK;
        }
    }
    if (layer->n_strategies == layer->capacity) {
        int32_t capacity = layer->capacity == 0 ? 8 : layer->capacity * 2;
        trm_strategy *grown = trm_arena_array(&d->partitioner->arena, (size_t)capacity, sizeof(*grown));
        if (grown == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        if (layer->n_strategies > 0) {
            memcpy(grown, layer->strategies, (size_t)layer->n_strategies * sizeof(*grown));
        }
        layer->strategies = grown;
        layer->capacity = capacity;
    }
    layer->strategies[layer->n_strategies++] = strategy;
    return TRM_OK;
}

static bool activation_keeps_zero(trm_activation activation)
{
    return activation != TRM_ACTIVATION_SIGMOID && activation != TRM_ACTIVATION_SOFTPLUS;
}

static bool unary_keeps_zero(const trm_unary_params *unary)
{
    switch (unary->op) {
    case TRM_UNARY_ACTIVATION:
        return activation_keeps_zero(unary->activation);
    case TRM_UNARY_LINEAR:
        return unary->beta == 0.0f;
    case TRM_UNARY_EXP:
    case TRM_UNARY_LOG:
    case TRM_UNARY_RECIPROCAL:
    case TRM_UNARY_COS:
    case TRM_UNARY_COSH:
    case TRM_UNARY_ACOS:
    case TRM_UNARY_ACOSH:
    case TRM_UNARY_NOT:
    case TRM_UNARY_HARD_SIGMOID:
        return false;
    case TRM_UNARY_CLIP:
        return unary->alpha <= 0.0f && unary->beta >= 0.0f;
    case TRM_UNARY_CELU:
        return unary->alpha != 0.0f;
    case TRM_UNARY_SHRINK:
        return unary->alpha >= 0.0f;
    default:
        return true;
    }
}

/* Where the inputs that are split end in zeros. */
static bool elementwise_keeps_zero(trm_elementwise_op op, bool a_is_zero, bool b_is_zero)
{
    switch (op) {
    case TRM_ELEMENTWISE_DIV: /* 0 / 0 */
    case TRM_ELEMENTWISE_MOD:
    case TRM_ELEMENTWISE_FMOD:
    case TRM_ELEMENTWISE_POW: /* 0 ^ 0 */
    case TRM_ELEMENTWISE_EQUAL:
    case TRM_ELEMENTWISE_LESS_EQUAL:
    case TRM_ELEMENTWISE_GREATER_EQUAL:
        return false;
    case TRM_ELEMENTWISE_MUL:
    case TRM_ELEMENTWISE_AND:
        return true;
    case TRM_ELEMENTWISE_SHIFT_LEFT:
    case TRM_ELEMENTWISE_SHIFT_RIGHT:
    case TRM_ELEMENTWISE_PRELU:
        return a_is_zero;
    default:
        return a_is_zero && b_is_zero;
    }
}

/* Whether zeros behind the end of the split inputs become zeros behind the end of the output. */
static bool keeps_zero(const draft *d)
{
    const trm_layer_desc *desc = &d->layer->desc;
    switch (desc->kind) {
    case TRM_LAYER_CAST:
    case TRM_LAYER_GLU:
    case TRM_LAYER_TRANSPOSE:
    case TRM_LAYER_RESHAPE:
    case TRM_LAYER_SLICE:
    case TRM_LAYER_CONCAT:
    case TRM_LAYER_REDUCE:
    case TRM_LAYER_ROPE:
        return true;
    case TRM_LAYER_UNARY:
        return unary_keeps_zero(&desc->unary);
    case TRM_LAYER_ELEMENTWISE:
        return elementwise_keeps_zero(desc->elementwise.op, d->in[0].kind == TRM_SPLIT, d->in[1].kind == TRM_SPLIT);
    case TRM_LAYER_CONVOLUTION: /* rows of zeros among the weights, zeros in bias and residual */
        return activation_keeps_zero(desc->convolution.activation);
    case TRM_LAYER_GATHER:
        return d->in[0].kind == TRM_SPLIT;
    case TRM_LAYER_EMBEDDING:
        return d->in[0].kind == TRM_SPLIT;
    case TRM_LAYER_MATMUL:
        return activation_keeps_zero(desc->matmul.activation) && (d->layer->n_inputs < 3 || d->in[2].kind == TRM_SPLIT);
    default:
        return false;
    }
}

/* Every axis of the outputs that can be split, with the inputs' axes that it follows. */
static trm_status offer_axis(trm_partitioner *partitioner, const trm_layer *layer, int32_t k, int32_t parts)
{
    draft d = begin(partitioner, layer);
    int64_t size = layer->outputs[0]->dims.d[k];
    bool is_even = size % parts == 0;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] == NULL) {
            continue;
        }
        int32_t axis = trm_layer_axis_link(layer, k, i);
        if (axis == TRM_LINK_NEVER) {
            return TRM_OK;
        }
        if (axis == TRM_LINK_WHOLE) {
            continue;
        }
        int64_t linked = layer->inputs[i]->dims.d[axis];
        if (linked != size && (layer->desc.kind != TRM_LAYER_RESHAPE || linked % parts != 0 || !is_even)) {
            return TRM_OK;
        }
        d.in[i] = split(axis, parts);
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        d.out[i] = split(k, parts);
    }
    return is_even || keeps_zero(&d) ? offer(&d) : TRM_OK;
}

/* ---- partial sums ------------------------------------------------------------------------------ */

/* The sets of inputs, as bit masks, in which the layer is linear when the others are held: f(sum of x) is the sum of
 * f(x). Returns how many there are. Of the kinds of general networks: */
static int32_t general_linear_inputs(const trm_layer *layer, uint32_t sets[2])
{
    const trm_layer_desc *desc = &layer->desc;
    sets[0] = 1;
    switch (desc->kind) {
    case TRM_LAYER_EXPAND:
    case TRM_LAYER_ROTATE:
    case TRM_LAYER_TILE:
    case TRM_LAYER_GATHER_ELEMENTS:
    case TRM_LAYER_GATHER_ND:
    case TRM_LAYER_REVERSE_SEQUENCE:
    case TRM_LAYER_COL2IM:
    case TRM_LAYER_GRID_SAMPLE:
        return 1;
    case TRM_LAYER_PAD:
        return layer->n_inputs < 3 || layer->inputs[2] == NULL || desc->pad.mode != TRM_PAD_CONSTANT;
    case TRM_LAYER_SELECT:
        sets[0] = 6;
        return 1;
    case TRM_LAYER_SCATTER:
        sets[0] = 5;
        return desc->scatter.reduction == TRM_SCATTER_REPLACE || desc->scatter.reduction == TRM_SCATTER_ADD;
    case TRM_LAYER_CUMULATIVE:
        return desc->cumulative.op == TRM_CUMULATIVE_SUM;
    case TRM_LAYER_POOL:
        return desc->pool.op == TRM_POOL_AVERAGE;
    case TRM_LAYER_RESIZE:
        return desc->resize.coordinates != TRM_RESIZE_CROP;
    case TRM_LAYER_CONVOLUTION:
    case TRM_LAYER_DECONVOLUTION:
        sets[1] = 2;
        return desc->convolution.activation == TRM_ACTIVATION_NONE ? 2 : 0;
    default:
        return 0;
    }
}

static int32_t linear_inputs(const trm_layer *layer, uint32_t sets[2])
{
    const trm_layer_desc *desc = &layer->desc;
    sets[0] = 1;
    switch (desc->kind) {
    case TRM_LAYER_CAST:
    case TRM_LAYER_RESHAPE:
    case TRM_LAYER_TRANSPOSE:
    case TRM_LAYER_SLICE:
    case TRM_LAYER_GATHER:
        return 1;
    case TRM_LAYER_UNARY:
        return desc->unary.op == TRM_UNARY_NEG || (desc->unary.op == TRM_UNARY_LINEAR && desc->unary.beta == 0.0f);
    case TRM_LAYER_REDUCE:
        return desc->reduce.op == TRM_REDUCE_SUM || desc->reduce.op == TRM_REDUCE_AVG;
    case TRM_LAYER_CONCAT:
        sets[0] = (1u << layer->n_inputs) - 1;
        return 1;
    case TRM_LAYER_GLU:
        sets[0] = 2;
        return layer->n_inputs == 2;
    case TRM_LAYER_DEQUANT_MATMUL:
        return 1;
    case TRM_LAYER_MATMUL:
        sets[1] = 2;
        return desc->matmul.activation == TRM_ACTIVATION_NONE ? 2 : 0;
    case TRM_LAYER_ELEMENTWISE:
        switch (desc->elementwise.op) {
        case TRM_ELEMENTWISE_ADD:
        case TRM_ELEMENTWISE_SUB:
            sets[0] = 3;
            return 1;
        case TRM_ELEMENTWISE_MUL:
            sets[1] = 2;
            return 2;
        default:
            return desc->elementwise.op == TRM_ELEMENTWISE_DIV;
        }
    default:
        return general_linear_inputs(layer, sets);
    }
}

static trm_status offer_partial(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    uint32_t sets[2];
    int32_t n = linear_inputs(layer, sets);
    for (int32_t s = 0; s < n; s++) {
        draft d = begin(partitioner, layer);
        for (int32_t i = 0; i < layer->n_inputs; i++) {
            d.in[i] = (sets[s] >> i & 1) != 0 ? partial(parts) : replicated;
        }
        d.out[0] = partial(parts);
        TRM_TRY(offer(&d));
    }
    return TRM_OK;
}

/* ---- what is particular to a kind -------------------------------------------------------------- */

/* The inner axis split on both sides: every rank has a summand of the product. A bias goes into the first. */
static trm_status offer_inner(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    const trm_matmul_params *matmul = &layer->desc.matmul;
    int32_t axis_a = layer->inputs[0]->dims.n - (matmul->transpose_a ? 2 : 1);
    int32_t axis_b = layer->inputs[1]->dims.n - (matmul->transpose_b ? 1 : 2);
    if (matmul->activation != TRM_ACTIVATION_NONE ||
        layer->inputs[0]->dims.d[axis_a] != layer->inputs[1]->dims.d[axis_b]) {
        return TRM_OK;
    }
    draft d = begin(partitioner, layer);
    d.in[0] = split(axis_a, parts);
    d.in[1] = split(axis_b, parts);
    d.out[0] = partial(parts);
    return offer(&d);
}

/* How scales, and zero points, lie when an axis of `size` is cut into parts: whole where they are one along it, else
 * cut like it, in whole blocks. False where a part would have a piece of a block, and where what lies behind the end
 * would be no zeros: numbers of 4 bits stand for zero by their scale alone, which a whole one is not there. */
static bool cut_blocks(const trm_layer *layer, int32_t axis, int64_t size, int64_t block, int32_t parts,
                       trm_sharding *scales)
{
    const int64_t blocks = layer->inputs[TRM_DEQUANT_MATMUL_SCALE]->dims.d[axis];
    const bool packed = layer->inputs[TRM_DEQUANT_MATMUL_WEIGHT]->dtype == TRM_U8;
    *scales = blocks == 1 ? replicated : split(axis, parts);
    return blocks == 1 ? !packed || size % parts == 0 : block == 1 || size % (block * parts) == 0;
}

/* A quantized weight by rows, and by columns, where every rank has a summand of the product. */
static trm_status offer_dequant_matmul(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    const trm_dequant_matmul_params *p = &layer->desc.dequant_matmul;
    const trm_tensor *x = layer->inputs[TRM_DEQUANT_MATMUL_X], *weight = layer->inputs[TRM_DEQUANT_MATMUL_WEIGHT];
    const int32_t last = x->dims.n - 1;
    const int64_t k = weight->dims.d[1] * (weight->dtype == TRM_U8 ? 2 : 1);
    trm_sharding scales;
    if (cut_blocks(layer, 0, weight->dims.d[0], p->block_n, parts, &scales)) {
        draft d = begin(partitioner, layer);
        d.in[TRM_DEQUANT_MATMUL_WEIGHT] = d.in[TRM_DEQUANT_MATMUL_BIAS] = split(0, parts);
        d.in[TRM_DEQUANT_MATMUL_SCALE] = d.in[TRM_DEQUANT_MATMUL_ZERO_POINT] = scales;
        d.out[0] = split(last, parts);
        TRM_TRY(offer(&d));
    }
    if (x->dims.d[last] == k && weight->dims.d[1] % parts == 0 && cut_blocks(layer, 1, k, p->block_k, parts, &scales)) {
        draft d = begin(partitioner, layer);
        d.in[TRM_DEQUANT_MATMUL_X] = split(last, parts);
        d.in[TRM_DEQUANT_MATMUL_WEIGHT] = split(1, parts);
        d.in[TRM_DEQUANT_MATMUL_SCALE] = d.in[TRM_DEQUANT_MATMUL_ZERO_POINT] = scales;
        d.out[0] = partial(parts);
        TRM_TRY(offer(&d));
    }
    return TRM_OK;
}

/* Rows that a rank does not have come out as zeros, so the ranks' results add up. */
static trm_status offer_rows(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    draft d = begin(partitioner, layer);
    d.in[0] = split(0, parts);
    d.out[0] = partial(parts);
    return offer(&d);
}

static trm_status offer_sum(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    if (layer->desc.reduce.op != TRM_REDUCE_SUM) {
        return TRM_OK;
    }
    draft d = begin(partitioner, layer);
    d.in[0] = split(layer->desc.reduce.axis, parts);
    d.out[0] = partial(parts);
    return offer(&d);
}

/* Axis of the heads in q, k, v and the output. */
static int32_t heads_axis(const trm_layer *attention)
{
    return attention->desc.attention.form == TRM_ATTENTION_PADDED_BNHD ? 2 : 1;
}

/* Whether the query heads can be cut into `parts`, and into how many parts the kv heads then are: as many if they
 * divide, one head each where several ranks' queries share it. */
static bool cut_heads(int64_t query_heads, int64_t kv_heads, int32_t parts, int32_t *kv_parts)
{
    if (query_heads <= 0 || kv_heads <= 0 || query_heads % parts != 0) {
        return false;
    }
    if (kv_heads % parts == 0) {
        *kv_parts = parts;
        return true;
    }
    *kv_parts = (int32_t)kv_heads;
    return kv_heads < parts && parts % kv_heads == 0;
}

int32_t trm_partition_head_parts(const trm_layer *attention, int32_t n, int32_t *kv_parts)
{
    for (int32_t parts = n; parts > 1; parts--) {
        const int32_t heads = heads_axis(attention);
        if (n % parts == 0 && cut_heads(attention->inputs[TRM_ATTENTION_Q]->dims.d[heads],
                                        attention->inputs[TRM_ATTENTION_K]->dims.d[heads], parts, kv_parts)) {
            return parts;
        }
    }
    *kv_parts = 1;
    return 1;
}

/* Axis of the rows in q, k, v and the output. */
static int32_t rows_axis(const trm_layer *attention)
{
    return 3 - heads_axis(attention);
}

bool trm_partition_rows_divide(const trm_layer *attention, int32_t n)
{
    const trm_attention_params *p = &attention->desc.attention;
    if (p->form == TRM_ATTENTION_PACKED_NHD) {
        return false;
    }
    const int64_t queries = attention->inputs[TRM_ATTENTION_Q]->dims.d[rows_axis(attention)];
    const int64_t keys = attention->inputs[TRM_ATTENTION_K]->dims.d[rows_axis(attention)];
    bool sees_known = p->causal == TRM_CAUSAL_NONE || (p->causal == TRM_CAUSAL_LOWER_RIGHT && keys >= 0) ||
                      (p->causal == TRM_CAUSAL_UPPER_LEFT && keys >= queries);
    return queries > 0 && queries % n == 0 && sees_known;
}

/* Rows of queries against all keys. */
static trm_status offer_query_rows(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    const int32_t rows = rows_axis(layer);
    if (!trm_partition_rows_divide(layer, parts)) {
        return TRM_OK;
    }
    const int64_t queries = layer->inputs[TRM_ATTENTION_Q]->dims.d[rows];
    draft d = begin(partitioner, layer);
    d.in[TRM_ATTENTION_Q] = d.out[0] = split(rows, parts);
    if (layer->n_inputs > TRM_ATTENTION_MASK) {
        const trm_dims scores = {4, {-1, -1, queries, -1}}, *mask = &layer->inputs[TRM_ATTENTION_MASK]->dims;
        const int32_t axis = trm_broadcast_axis_link(mask, &scores, 2);
        if (axis != TRM_LINK_WHOLE && mask->d[axis] != queries) {
            return TRM_OK;
        }
        d.in[TRM_ATTENTION_MASK] = axis == TRM_LINK_WHOLE ? replicated : split(axis, parts);
    }
    return offer(&d);
}

static trm_status offer_heads(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    int32_t kv_parts, heads = heads_axis(layer);
    if (!cut_heads(layer->inputs[TRM_ATTENTION_Q]->dims.d[heads], layer->inputs[TRM_ATTENTION_K]->dims.d[heads], parts,
                   &kv_parts)) {
        return TRM_OK;
    }
    draft d = begin(partitioner, layer);
    d.in[TRM_ATTENTION_Q] = split(heads, parts);
    d.in[TRM_ATTENTION_K] = d.in[TRM_ATTENTION_V] = split(heads, kv_parts);
    d.in[TRM_ATTENTION_KEY_CACHE] = d.in[TRM_ATTENTION_VALUE_CACHE] = split(2, kv_parts);
    d.out[0] = split(heads, parts);
    if (layer->n_inputs > TRM_ATTENTION_MASK) {
        const trm_dims scores = {4,
                                 {-1, layer->outputs[0]->dims.d[heads], -1, -1}}; /* the mask is always heads first */
        int32_t axis = trm_broadcast_axis_link(&layer->inputs[TRM_ATTENTION_MASK]->dims, &scores, 1);
        d.in[TRM_ATTENTION_MASK] = axis == TRM_LINK_WHOLE ? replicated : split(axis, parts);
    }
    return offer(&d);
}

/* A convolution over a part of the input's channels is a summand. Bias and residual go into the first. */
static trm_status offer_channels(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    const trm_convolution_params *p = &layer->desc.convolution;
    bool transposed = layer->desc.kind == TRM_LAYER_DECONVOLUTION, has_residual = !transposed && layer->n_inputs > 3;
    const int32_t axis = p->channels_last ? layer->inputs[0]->dims.n - 1 : 1;
    draft d = begin(partitioner, layer);
    d.in[0] = split(axis, parts);
    if (p->groups == 1) {
        d.in[1] = split(transposed ? 0 : axis, parts);
        d.out[0] = partial(parts);
        bool fits = p->activation == TRM_ACTIVATION_NONE && layer->inputs[0]->dims.d[axis] % parts == 0;
        return fits ? offer(&d) : TRM_OK;
    }
    if (p->groups % parts != 0) {
        return TRM_OK;
    }
    d.in[1] = d.in[2] = split(0, parts);
    d.in[3] = has_residual ? split(axis, parts) : replicated;
    d.out[0] = split(axis, parts);
    return offer(&d);
}

/* Groups of channels are normalized each by itself. */
static trm_status offer_norm_groups(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    int32_t groups = layer->desc.group_norm.groups;
    if (groups == 0 || groups % parts != 0) {
        return TRM_OK;
    }
    draft d = begin(partitioner, layer);
    d.in[0] = d.out[0] = split(1, parts);
    d.in[1] = d.in[2] = split(0, parts);
    return offer(&d);
}

/* Dims are known on every rank wherever they are not split, whatever the elements are. */
static trm_status offer_shape(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    int32_t n = layer->inputs[0]->dims.n, start = layer->desc.shape.start, end = layer->desc.shape.end;
    start = start < 0 ? start + n : start;
    end = end < 0 ? end + n : end;
    draft d = begin(partitioner, layer);
    for (int32_t k = 0; k < n; k++) {
        if (k < start || k >= end) {
            d.in[0] = split(k, parts);
            TRM_TRY(offer(&d));
        }
    }
    d.in[0] = partial(parts);
    return offer(&d);
}

static trm_status offer_particular(trm_partitioner *partitioner, const trm_layer *layer, int32_t parts)
{
    switch (layer->desc.kind) {
    case TRM_LAYER_MATMUL:
        return offer_inner(partitioner, layer, parts);
    case TRM_LAYER_DEQUANT_MATMUL:
        return offer_dequant_matmul(partitioner, layer, parts);
    case TRM_LAYER_EMBEDDING:
        return offer_rows(partitioner, layer, parts);
    case TRM_LAYER_REDUCE:
        return offer_sum(partitioner, layer, parts);
    case TRM_LAYER_ATTENTION:
        return partitioner->shares_rows ? offer_query_rows(partitioner, layer, parts)
                                        : offer_heads(partitioner, layer, parts);
    case TRM_LAYER_CONVOLUTION:
    case TRM_LAYER_DECONVOLUTION:
        return offer_channels(partitioner, layer, parts);
    case TRM_LAYER_GROUP_NORM:
        return offer_norm_groups(partitioner, layer, parts);
    case TRM_LAYER_SHAPE:
        return offer_shape(partitioner, layer, parts);
    default:
        return TRM_OK;
    }
}

/* ---- all layers -------------------------------------------------------------------------------- */

static void add_parts(trm_partitioner *partitioner, int32_t parts)
{
    for (int32_t i = 0; i < partitioner->n_parts; i++) {
        if (partitioner->parts[i] == parts) {
            return;
        }
    }
    if (parts > 1 && partitioner->n_parts < (int32_t)(sizeof(partitioner->parts) / sizeof(partitioner->parts[0]))) {
        partitioner->parts[partitioner->n_parts++] = parts;
    }
}

/* Entries of the batch by themselves, and sums over them. */
static trm_status offer_batch(trm_partitioner *partitioner, const trm_layer *layer)
{
    const trm_batch_axes *axes = &partitioner->layers[layer->index].batch;
    const int32_t n = partitioner->n;
    draft d = begin(partitioner, layer);
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        d.in[i] = axes->inputs[i] < 0 ? replicated : split(axes->inputs[i], n);
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        d.out[i] = axes->outputs[i] < 0 ? replicated : split(axes->outputs[i], n);
    }
    TRM_TRY(axes->can ? offer(&d) : TRM_OK);
    TRM_TRY(offer_partial(partitioner, layer, n));
    switch (layer->desc.kind) {
    case TRM_LAYER_MATMUL:
        return offer_inner(partitioner, layer, n);
    case TRM_LAYER_REDUCE:
        return offer_sum(partitioner, layer, n);
    case TRM_LAYER_SHAPE: { /* where it asks for the batch, that of a part is multiplied */
        const int32_t axis = partitioner->tensors[layer->inputs[0]->index].batch_axis;
        draft of_part = begin(partitioner, layer);
        of_part.in[0] = axis < 0 ? partial(n) : split(axis, n);
        return offer(&of_part);
    }
    default:
        return TRM_OK;
    }
}

static trm_status enumerate_layer(trm_partitioner *partitioner, const trm_layer *layer)
{
    draft whole = begin(partitioner, layer);
    TRM_TRY(offer(&whole));
    if (partitioner->shares_batch) {
        return offer_batch(partitioner, layer);
    }
    for (int32_t i = 0; i < partitioner->n_parts; i++) {
        int32_t parts = partitioner->parts[i];
        for (int32_t k = 0; k < layer->outputs[0]->dims.n; k++) {
            TRM_TRY(offer_axis(partitioner, layer, k, parts));
        }
        TRM_TRY(offer_partial(partitioner, layer, parts));
        TRM_TRY(offer_particular(partitioner, layer, parts));
    }
    if (partitioner->layers[layer->index].n_strategies == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "layer %s cannot run over %d ranks with its constants and states pinned as they are", layer->name,
                 partitioner->n);
    }
    return TRM_OK;
}

static trm_status enumerate_layers(trm_partitioner *partitioner)
{
    for (int32_t i = 0; i < partitioner->network->n_layers; i++) {
        TRM_TRY(enumerate_layer(partitioner, partitioner->network->layers[i]));
    }
    return TRM_OK;
}

trm_status trm_partition_enumerate(trm_partitioner *partitioner)
{
    const trm_network *network = partitioner->network;
    add_parts(partitioner, partitioner->n);
    for (int32_t i = 0; i < network->n_layers; i++) {
        const bool by_heads = !partitioner->shares_rows && !partitioner->shares_batch;
        if (network->layers[i]->desc.kind == TRM_LAYER_ATTENTION && by_heads) {
            int32_t kv_parts;
            add_parts(partitioner, trm_partition_head_parts(network->layers[i], partitioner->n, &kv_parts));
            add_parts(partitioner, kv_parts);
        }
    }
    TRM_TRY(trm_inference_create(network, &partitioner->inference));
    trm_status status = TRM_OK;
    if (partitioner->shares_batch) {
        status = trm_partition_find_batch(partitioner, &partitioner->has_batch);
    }
    status = status == TRM_OK ? enumerate_layers(partitioner) : status;
    trm_inference_destroy(partitioner->inference);
    partitioner->inference = NULL;
    return status;
}
