/*
 * Layouts that kernels are faster on: convolutions and pools with channels last, attention with a row's heads together.
 *
 * A convolution whose windows lie side by side becomes a matrix product of patches.
 *
 * Products whose activation is no epilogue of cuBLASLt get their weight transposed for cuDNN, which has kernels with
 * any activation.
 *
 * Each such layer gets transposes of its inputs and outputs; between two such layers they cancel (simplify.c), those of
 * constants are done when weights are read, and one is left at each end of a chain.
 */
#include "graph/network.h"

#include "base/error.h"
#include "graph/passes/analysis.h"

static trm_layer_desc transpose_of(const int32_t *perm, int32_t n)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_TRANSPOSE};
    for (int32_t i = 0; i < n; i++) {
        desc.transpose.perm[i] = perm[i];
    }
    return desc;
}

/* [N, C, d1 ..] to [N, d1 .., C], or back. */
static trm_layer_desc move_channels(int32_t n, bool to_last)
{
    int32_t perm[TRM_MAX_DIMS] = {0};
    for (int32_t i = 1; i < n; i++) {
        perm[i] = to_last ? (i == n - 1 ? 1 : i + 1) : (i == 1 ? n - 1 : i - 1);
    }
    return transpose_of(perm, n);
}

static bool moves_channels(const trm_layer *layer, bool to_last)
{
    if (layer == NULL || layer->desc.kind != TRM_LAYER_TRANSPOSE) {
        return false;
    }
    const int32_t n = layer->inputs[0]->dims.n;
    const trm_layer_desc expected = move_channels(n, to_last);
    bool same = n > 2;
    for (int32_t i = 0; i < n; i++) {
        same = same && layer->desc.transpose.perm[i] == expected.transpose.perm[i];
    }
    return same;
}

/* Puts `desc`, of transposed inputs, in the layer's place, which becomes the transpose back. Inputs of `as_they_are`
 * (bit i for input i) are not transposed. */
static trm_status put_between(trm_network *network, trm_layer *layer, const trm_layer_desc *desc,
                              const trm_layer_desc *there, const trm_layer_desc *back, uint32_t as_they_are)
{
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS] = {NULL}, *output;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        inputs[i] = layer->inputs[i];
        if (inputs[i] != NULL && (as_they_are >> i & 1) == 0) {
            TRM_TRY(trm_network_add_layer(network, inputs[i]->name, there, &layer->inputs[i], 1, &inputs[i]));
        }
    }
    TRM_TRY(trm_network_add_layer(network, layer->name, desc, inputs, layer->n_inputs, &output));
    layer->desc = *back;
    for (int32_t i = 1; i < layer->n_inputs; i++) {
        layer->inputs[i] = NULL;
    }
    layer->inputs[0] = output;
    layer->n_inputs = 1;
    return TRM_OK;
}

/* ---- channels last ------------------------------------------------------------------------------ */

static bool wants_channels_last(const trm_layer *layer, bool tf32)
{
    const trm_dtype dtype = layer->outputs[0]->dtype;
    return layer->desc.kind == TRM_LAYER_CONVOLUTION && !layer->desc.convolution.channels_last &&
           (dtype == TRM_F16 || dtype == TRM_BF16 || (dtype == TRM_F32 && tf32));
}

/* Pools follow what they read. */
static bool follows_channels(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_POOL && !layer->desc.pool.channels_last && !layer->desc.pool.indices &&
           moves_channels(layer->inputs[0]->producer, false);
}

/* A reduction of [N, C, d1 * ..] made of a transpose back: of [N, d1 * .., C] instead. */
static trm_status reduce_before(trm_network *network, trm_layer *layer, int32_t *changes)
{
    const trm_layer *reshape = layer->desc.kind == TRM_LAYER_REDUCE ? layer->inputs[0]->producer : NULL;
    const trm_tensor *joined = layer->n_inputs > 0 ? layer->inputs[0] : NULL;
    if (reshape == NULL || reshape->desc.kind != TRM_LAYER_RESHAPE || reshape->n_inputs != 1 || joined->dims.n != 3 ||
        (layer->desc.reduce.axis != 2 && layer->desc.reduce.axis != -1) || joined->pin != NULL ||
        !moves_channels(reshape->inputs[0]->producer, false)) {
        return TRM_OK;
    }
    trm_tensor *last = reshape->inputs[0]->producer->inputs[0], *rows, *reduced;
    const int64_t channels = last->dims.d[last->dims.n - 1];
    if (channels < 1 || joined->dims.d[1] != channels ||
        (last->dims.d[0] != joined->dims.d[0] && joined->dims.d[0] != -1)) {
        return TRM_OK;
    }
    const trm_layer_desc to_rows = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {3, {0, -1, channels}}}};
    trm_layer_desc reduce = layer->desc;
    reduce.reduce.axis = 1;
    reduce.reduce.keep_dims = false;
    TRM_TRY(trm_network_add_layer(network, reshape->name, &to_rows, &last, 1, &rows));
    TRM_TRY(trm_network_add_layer(network, layer->name, &reduce, &rows, 1, &reduced));
    layer->desc = (trm_layer_desc){.kind = TRM_LAYER_RESHAPE,
                                   .reshape = {.dims = {layer->desc.reduce.keep_dims ? 3 : 2, {0, channels, 1}}}};
    layer->inputs[0] = reduced;
    (*changes)++;
    return TRM_OK;
}

/* The transpose [N, C, P] to [N, P, C] of a reshape of a transpose back: only a reshape. */
static void undo_before(trm_layer *layer, int32_t *changes)
{
    const trm_layer *reshape = layer->desc.kind == TRM_LAYER_TRANSPOSE ? layer->inputs[0]->producer : NULL;
    const int32_t *perm = layer->desc.transpose.perm;
    if (reshape == NULL || reshape->desc.kind != TRM_LAYER_RESHAPE || reshape->n_inputs != 1 ||
        layer->inputs[0]->dims.n != 3 || perm[0] != 0 || perm[1] != 2 || layer->inputs[0]->pin != NULL ||
        !moves_channels(reshape->inputs[0]->producer, false)) {
        return;
    }
    trm_tensor *last = reshape->inputs[0]->producer->inputs[0];
    const int64_t channels = last->dims.d[last->dims.n - 1];
    const int64_t batch = layer->inputs[0]->dims.d[0];
    if (channels < 1 || layer->inputs[0]->dims.d[1] != channels || (batch != -1 && batch != last->dims.d[0])) {
        return;
    }
    layer->desc = (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {3, {0, -1, channels}}}};
    layer->inputs[0] = last;
    (*changes)++;
}

/* A convolution whose windows lie side by side, as matrix product of patches: *patches is false if it is not one. */
static trm_status use_patches(trm_network *network, trm_layer *layer, bool *patches, int32_t *changes)
{
    enum { X, W, BIAS, RESIDUAL, N = 4 };
    const trm_convolution_params *p = &layer->desc.convolution;
    const trm_layer *back = layer->inputs[X]->producer;
    const bool last = moves_channels(back, false);
    const trm_dims *x = &layer->inputs[X]->dims, *w = &layer->inputs[W]->dims;
    *patches = x->n == N && p->groups == 1 && p->auto_pad == TRM_AUTO_PAD_NONE && layer->n_inputs <= RESIDUAL &&
               w->d[0] > 0 && w->d[1] > 0 && w->d[2] > 0 && w->d[3] > 0 && w->d[2] * w->d[3] > 1;
    for (int32_t i = 0; *patches && i < N - 2; i++) {
        *patches = p->stride[i] == w->d[2 + i] && p->dilation[i] == 1 && p->before[i] == 0 && p->after[i] == 0 &&
                   x->d[2 + i] > 0 && x->d[2 + i] % w->d[2 + i] == 0;
    }
    if (!*patches) {
        return TRM_OK;
    }
    const int64_t c = w->d[1], h = w->d[2], v = w->d[3], rows = x->d[2] / h, columns = x->d[3] / v;
    const trm_layer_desc cut = {.kind = TRM_LAYER_RESHAPE,
                                .reshape = {.dims = last ? (trm_dims){6, {0, rows, h, columns, v, c}}
                                                         : (trm_dims){6, {0, c, rows, h, columns, v}}}};
    const int32_t perm[2][6] = {{0, 2, 4, 1, 3, 5}, {0, 1, 3, 2, 4, 5}};
    const trm_layer_desc gather = transpose_of(perm[last], 6);
    const trm_layer_desc join = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {4, {0, rows, columns, c * h * v}}}};
    const trm_layer_desc flat = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = {2, {w->d[0], c * h * v}}}};
    const trm_layer_desc product = {.kind = TRM_LAYER_MATMUL,
                                    .matmul = {.transpose_b = true, .activation = p->activation}};
    const trm_layer_desc to_last = move_channels(N, true), to_first = move_channels(N, false);
    trm_tensor *inputs[3] = {last ? back->inputs[0] : layer->inputs[X], layer->inputs[W],
                             layer->n_inputs > BIAS ? layer->inputs[BIAS] : NULL};
    const char *name = layer->name;
    TRM_TRY(trm_network_add_layer(network, name, &cut, &inputs[X], 1, &inputs[X]));
    TRM_TRY(trm_network_add_layer(network, name, &gather, &inputs[X], 1, &inputs[X]));
    TRM_TRY(trm_network_add_layer(network, name, &join, &inputs[X], 1, &inputs[X]));
    if (last) {
        TRM_TRY(trm_network_add_layer(network, inputs[W]->name, &to_last, &inputs[W], 1, &inputs[W]));
    }
    TRM_TRY(trm_network_add_layer(network, inputs[W]->name, &flat, &inputs[W], 1, &inputs[W]));
    TRM_TRY(trm_network_add_layer(network, name, &product, inputs, inputs[BIAS] != NULL ? 3 : 2, &layer->inputs[X]));
    layer->desc = to_first;
    layer->inputs[W] = layer->inputs[BIAS] = NULL;
    layer->n_inputs = 1;
    (*changes)++;
    return TRM_OK;
}

static trm_status use_channels_last(trm_network *network, trm_layer *layer, bool tf32, int32_t *changes)
{
    enum { BIAS = 2 };
    trm_layer_desc desc = layer->desc;
    if (wants_channels_last(layer, tf32)) {
        bool patches;
        TRM_TRY(use_patches(network, layer, &patches, changes));
        if (patches) {
            return TRM_OK;
        }
        desc.convolution.channels_last = true;
    } else if (follows_channels(layer)) {
        desc.pool.channels_last = true;
    } else {
        undo_before(layer, changes);
        return reduce_before(network, layer, changes);
    }
    const int32_t n = layer->outputs[0]->dims.n;
    const trm_layer_desc there = move_channels(n, true), back = move_channels(n, false);
    (*changes)++;
    return put_between(network, layer, &desc, &there, &back, 1u << BIAS);
}

/* ---- attention ---------------------------------------------------------------------------------- */

static bool swaps_heads(const trm_layer *layer)
{
    return layer != NULL && layer->desc.kind == TRM_LAYER_TRANSPOSE && layer->inputs[0]->dims.n == 4 &&
           layer->desc.transpose.perm[0] == 0 && layer->desc.transpose.perm[1] == 2 &&
           layer->desc.transpose.perm[2] == 1 && layer->desc.transpose.perm[3] == 3;
}

/* Whether a mask is a constant that lets everything through, or one expanded. */
static bool lets_all_through(const trm_tensor *mask)
{
    const trm_layer *expand = mask->producer;
    if (expand != NULL && expand->desc.kind == TRM_LAYER_EXPAND) {
        return lets_all_through(expand->inputs[0]);
    }
    bool all = mask->role == TRM_TENSOR_CONSTANT && mask->dtype == TRM_BOOL && mask->value != NULL;
    const size_t count = all ? trm_dims_bytes(&mask->dims, TRM_BOOL) : 0;
    for (size_t i = 0; all && i < count; i++) {
        all = ((const uint8_t *)mask->value)[i] != 0;
    }
    return all;
}

/* A mask that masks nothing goes, and of "all and x" x is left: masks broadcast by themselves. */
static void drop_mask(trm_layer *layer, int32_t *changes)
{
    trm_tensor **mask = &layer->inputs[TRM_ATTENTION_MASK];
    if (layer->desc.kind != TRM_LAYER_ATTENTION || layer->n_inputs <= TRM_ATTENTION_MASK || *mask == NULL) {
        return;
    }
    const trm_layer *both = (*mask)->producer;
    if (lets_all_through(*mask)) {
        *mask = NULL;
        layer->n_inputs = layer->n_inputs > TRM_ATTENTION_SINKS ? layer->n_inputs : TRM_ATTENTION_V + 1;
        (*changes)++;
    } else if (both != NULL && both->desc.kind == TRM_LAYER_ELEMENTWISE &&
               both->desc.elementwise.op == TRM_ELEMENTWISE_AND && (*mask)->dtype == TRM_BOOL && (*mask)->pin == NULL) {
        for (int32_t i = 0; i < 2; i++) {
            if (lets_all_through(both->inputs[i]) && both->inputs[1 - i]->dims.n == (*mask)->dims.n) {
                *mask = both->inputs[1 - i];
                (*changes)++;
                return;
            }
        }
    }
}

/* Attention whose q was brought heads first. */
static trm_status use_rows_first(trm_network *network, trm_layer *layer, int32_t *changes)
{
    if (layer->desc.kind != TRM_LAYER_ATTENTION || layer->desc.attention.form != TRM_ATTENTION_PADDED_BHND ||
        !swaps_heads(layer->inputs[TRM_ATTENTION_Q]->producer)) {
        return TRM_OK;
    }
    const int32_t perm[] = {0, 2, 1, 3};
    const trm_layer_desc swap = transpose_of(perm, 4);
    trm_layer_desc desc = layer->desc;
    desc.attention.form = TRM_ATTENTION_PADDED_BNHD;
    (*changes)++;
    return put_between(network, layer, &desc, &swap, &swap, 1u << TRM_ATTENTION_MASK | 1u << TRM_ATTENTION_SINKS);
}

/* A product with such an activation of a weight that is stored as it multiplies. */
static trm_status turn_weight(trm_network *network, trm_layer *layer, bool tf32, int32_t *changes)
{
    trm_matmul_params *p = &layer->desc.matmul;
    const trm_tensor *b = layer->inputs[1];
    const bool epilogue = p->activation == TRM_ACTIVATION_NONE || p->activation == TRM_ACTIVATION_RELU ||
                          p->activation == TRM_ACTIVATION_GELU_TANH;
    const bool fits = b->dtype == TRM_F16 || b->dtype == TRM_BF16 || (b->dtype == TRM_F32 && tf32);
    if (epilogue || !fits || p->transpose_a || p->transpose_b || b->role != TRM_TENSOR_CONSTANT || b->weight == NULL ||
        b->dims.n != 2 || (p->out != TRM_DTYPE_NONE && p->out != b->dtype)) {
        return TRM_OK;
    }
    const trm_layer_desc turn = transpose_of((const int32_t[]){1, 0}, 2);
    TRM_TRY(trm_network_add_layer(network, b->name, &turn, &layer->inputs[1], 1, &layer->inputs[1]));
    p->transpose_b = true;
    (*changes)++;
    return TRM_OK;
}

trm_status trm_pass_layouts(trm_network *network, bool tf32, int32_t *changes)
{
    int32_t made = 0;
    const int32_t n = network->n_layers; /* those added are as they should be */
    for (int32_t i = 0; i < n; i++) {
        TRM_TRY(use_channels_last(network, network->layers[i], tf32, &made));
        drop_mask(network->layers[i], &made);
        TRM_TRY(use_rows_first(network, network->layers[i], &made));
        if (network->layers[i]->desc.kind == TRM_LAYER_MATMUL) {
            TRM_TRY(turn_weight(network, network->layers[i], tf32, &made));
        }
    }
    if (made > 0) {
        TRM_TRY(trm_network_sort(network));
        TRM_TRY(trm_pass_dead_code(network, NULL));
    }
    if (changes != NULL) {
        *changes += made;
    }
    return TRM_OK;
}
