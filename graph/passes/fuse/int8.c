/*
 * Products and convolutions between DEQUANTIZE and QUANTIZE, as INT8_PRODUCT; and what moves DEQUANTIZE to where one
 * follows: behind layers that only move elements or take the largest, and away before a QUANTIZE with the same scale. A
 * ReLU behind both goes before them, and a QUANTIZE before a pool. The QUANTIZE of a norm becomes the norm's, products
 * of one input become one.
 *
 * Numbers are of i8 with zero points of 0, by one scale, those of weights also by one scale for each output. The last
 * layer of a pattern is rewritten in place, as in fuse.c; a convolution's becomes the transpose of channels back.
 */
#include "graph/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/params.h"
#include "graph/passes/pattern.h"
#include "kernels/kernel.h"

#define MOST_K          131071 /* products of two i8 that surely add up in 31 bits */
#define MOST_ZEROS      ((size_t)64 << 10)
#define FEWEST_CHANNELS 16 /* of a convolution, with a multiple of which kernels do it */
#define MOST_FEW        4  /* or strides are 2 and there are at most these */
#define MOST_JOINED     8
#define MULTIPLE_JOINED 32 /* columns of products worth joining: kernels take these in order */

/* Tries to end a pattern at `layer`; *done tells whether it did. */
typedef trm_status (*fusion)(trm_analysis *analysis, trm_layer *layer, bool *done);

static bool is_layer(const trm_analysis *analysis, const trm_layer *layer, trm_layer_kind kind)
{
    return layer != NULL && layer->index < analysis->n_layers && !analysis->touched[layer->index] &&
           layer->desc.kind == kind;
}

static trm_tensor *input_of(const trm_layer *layer, int32_t i)
{
    return i < layer->n_inputs ? layer->inputs[i] : NULL;
}

/* ---- scales -------------------------------------------------------------------------------------- */

/* Whether a zero point is not given or 0. */
static trm_status is_zero(const trm_tensor *zero, bool *is)
{
    *is = zero == NULL;
    if (zero == NULL || zero->role != TRM_TENSOR_CONSTANT) {
        return TRM_OK;
    }
    const size_t size = trm_dims_bytes(&zero->dims, zero->dtype);
    const uint8_t *bytes = zero->value;
    uint8_t *read = NULL;
    trm_status status = TRM_OK;
    if (bytes == NULL && !zero->network->refittable && size <= MOST_ZEROS) {
        read = malloc(size + 1);
        if (read == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "out of memory for the zero points %s", zero->name);
        }
        status = trm_weight_read(zero->weight, zero->dtype, 0, (size_t)trm_dims_count(&zero->dims), read);
        bytes = read;
    }
    *is = bytes != NULL && status == TRM_OK;
    for (size_t i = 0; *is && i < size; i++) {
        *is = bytes[i] == 0;
    }
    free(read);
    return status;
}

/* Whether a QUANTIZE or DEQUANTIZE is of i8 with one scale, *scale, and a zero point of 0. */
static trm_status has_one_scale(const trm_layer *layer, bool *has, float *scale)
{
    const bool to = layer->desc.kind == TRM_LAYER_QUANTIZE;
    const trm_dtype number = to ? layer->outputs[0]->dtype : layer->inputs[0]->dtype;
    double value;
    *has = number == TRM_I8 && layer->desc.quantize.block_size == 0 && layer->inputs[0]->dims.n > 0 &&
           trm_pattern_scalar(layer->inputs[1], &value) && value > 0 && (double)(float)value == value;
    if (!*has) {
        return TRM_OK;
    }
    *scale = (float)value;
    return is_zero(input_of(layer, 2), has);
}

/* The numbers that `tensor` stands for, by one scale; NULL in *numbers if it stands for none. */
static trm_status numbers_of(const trm_analysis *analysis, const trm_tensor *tensor, trm_tensor **numbers, float *scale)
{
    bool has = false;
    *numbers = NULL;
    if (tensor != NULL && is_layer(analysis, tensor->producer, TRM_LAYER_DEQUANTIZE)) {
        TRM_TRY(has_one_scale(tensor->producer, &has, scale));
        *numbers = has ? tensor->producer->inputs[0] : NULL;
    }
    return TRM_OK;
}

/* ---- moving -------------------------------------------------------------------------------------- */

/* Whether a layer gives of numbers what it gives of those that they stand for. */
static bool only_moves(const trm_layer *layer)
{
    switch (layer->desc.kind) {
    case TRM_LAYER_POOL:
        return layer->desc.pool.op == TRM_POOL_MAX && !layer->desc.pool.indices;
    case TRM_LAYER_RESHAPE:
    case TRM_LAYER_TRANSPOSE:
    case TRM_LAYER_SLICE:
        return true;
    default:
        return false;
    }
}

/* layer(dequantize(x)) -> dequantize(layer(x)) */
static trm_status move_behind(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    trm_tensor *numbers, *moved, *inputs[TRM_MAX_LAYER_INPUTS];
    float scale;
    if (!only_moves(layer) || layer->n_outputs != 1 || layer->inputs[0]->pin != NULL) {
        return TRM_OK;
    }
    TRM_TRY(numbers_of(analysis, layer->inputs[0], &numbers, &scale));
    if (numbers == NULL || numbers->role == TRM_TENSOR_CONSTANT) {
        return TRM_OK;
    }
    const trm_layer *dequantize = layer->inputs[0]->producer;
    memcpy(inputs, layer->inputs, sizeof(inputs));
    inputs[0] = numbers;
    TRM_TRY(
        trm_network_add_layer(layer->outputs[0]->network, layer->name, &layer->desc, inputs, layer->n_inputs, &moved));
    memcpy(inputs, dequantize->inputs, sizeof(inputs));
    inputs[0] = moved;
    trm_pattern_rewrite(analysis, layer, &dequantize->desc, dequantize->n_inputs, inputs);
    *done = true;
    return TRM_OK;
}

/* quantize(largest of x) -> largest of quantize(x) */
static trm_status move_before(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    float scale;
    bool has;
    if (layer->desc.kind != TRM_LAYER_QUANTIZE) {
        return TRM_OK;
    }
    const trm_layer *pool = trm_analysis_private_producer(analysis, layer->inputs[0], TRM_LAYER_POOL);
    if (pool == NULL || !only_moves(pool)) {
        return TRM_OK;
    }
    TRM_TRY(has_one_scale(layer, &has, &scale));
    if (has) {
        trm_tensor *inputs[TRM_MAX_LAYER_INPUTS];
        const trm_layer_desc desc = pool->desc;
        memcpy(inputs, layer->inputs, sizeof(inputs));
        inputs[0] = pool->inputs[0];
        TRM_TRY(trm_network_add_layer(layer->outputs[0]->network, layer->name, &layer->desc, inputs, layer->n_inputs,
                                      &inputs[0]));
        trm_pattern_rewrite(analysis, layer, &desc, 1, inputs);
        *done = true;
    }
    return TRM_OK;
}

/* relu(dequantize(quantize(x))) -> dequantize(quantize(relu(x))), where a product may take it */
static trm_status move_relu(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    bool both = false;
    float scale, other;
    if (layer->desc.kind != TRM_LAYER_UNARY || layer->desc.unary.op != TRM_UNARY_ACTIVATION ||
        layer->desc.unary.activation != TRM_ACTIVATION_RELU) {
        return TRM_OK;
    }
    const trm_layer *back = trm_analysis_private_producer(analysis, layer->inputs[0], TRM_LAYER_DEQUANTIZE);
    const trm_layer *to =
        back == NULL ? NULL : trm_analysis_private_producer(analysis, back->inputs[0], TRM_LAYER_QUANTIZE);
    if (to != NULL && to->inputs[0]->dtype == layer->outputs[0]->dtype) {
        TRM_TRY(has_one_scale(back, &both, &scale));
    }
    if (both) {
        TRM_TRY(has_one_scale(to, &both, &other));
    }
    if (!both || scale != other) {
        return TRM_OK;
    }
    trm_network *network = layer->outputs[0]->network;
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS];
    memcpy(inputs, to->inputs, sizeof(inputs));
    TRM_TRY(trm_network_add_layer(network, layer->name, &layer->desc, inputs, 1, &inputs[0]));
    TRM_TRY(trm_network_add_layer(network, to->name, &to->desc, inputs, to->n_inputs, &inputs[0]));
    memcpy(inputs + 1, back->inputs + 1, sizeof(inputs) - sizeof(inputs[0]));
    const trm_layer_desc desc = back->desc;
    trm_pattern_rewrite(analysis, layer, &desc, back->n_inputs, inputs);
    *done = true;
    return TRM_OK;
}

/* quantize(dequantize(x)) with one scale -> x */
static trm_status drop_pair(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    trm_tensor *numbers;
    float scale, other;
    bool has;
    if (layer->desc.kind != TRM_LAYER_QUANTIZE || layer->outputs[0]->is_output || layer->outputs[0]->pin != NULL) {
        return TRM_OK;
    }
    TRM_TRY(has_one_scale(layer, &has, &scale));
    if (!has) {
        return TRM_OK;
    }
    TRM_TRY(numbers_of(analysis, layer->inputs[0], &numbers, &other));
    if (numbers == NULL || scale != other) {
        return TRM_OK;
    }
    trm_network_replace_uses(numbers->network, layer->outputs[0], numbers);
    analysis->touched[layer->index] = true;
    *done = true;
    return TRM_OK;
}

/* ---- what follows a product ---------------------------------------------------------------------- */

typedef struct chain {
    trm_layer *last;
    trm_tensor *end; /* made by it */
    trm_int8_product_params params;
    trm_tensor *residual;
} chain;

static void append(trm_analysis *analysis, chain *c, trm_layer *layer)
{
    analysis->touched[c->last->index] = true;
    c->last = layer;
    c->end = layer->outputs[0];
}

static trm_status set_residual(const trm_analysis *analysis, chain *c, trm_tensor *residual)
{
    float scale = 0.0f;
    TRM_TRY(numbers_of(analysis, residual, &c->residual, &scale));
    c->params.residual_scale = c->residual != NULL ? scale : 0.0f;
    c->residual = c->residual != NULL ? c->residual : residual;
    return TRM_OK;
}

/* Takes the sum with a tensor of the same dims. */
static trm_status take_residual(trm_analysis *analysis, chain *c, trm_layer *add, bool *taken)
{
    trm_tensor *other = add->inputs[add->inputs[0] == c->end ? 1 : 0];
    *taken = c->residual == NULL && c->params.activation == TRM_ACTIVATION_NONE && other != c->end &&
             trm_analysis_same_dims(analysis, c->end, other);
    if (*taken) {
        TRM_TRY(set_residual(analysis, c, other));
        append(analysis, c, add);
    }
    return TRM_OK;
}

static bool is_activation(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_UNARY && layer->desc.unary.op == TRM_UNARY_ACTIVATION;
}

/* Takes rounding to i8 numbers and back before a residual sum or an activation. */
static trm_status take_rounding(trm_analysis *analysis, chain *c, trm_layer *quantize, float scale, bool *taken)
{
    trm_layer *back = trm_analysis_only_user(analysis, quantize->outputs[0]);
    bool has;
    float other;
    *taken = false;
    if (back == NULL || back->desc.kind != TRM_LAYER_DEQUANTIZE || c->residual != NULL ||
        c->params.activation != TRM_ACTIVATION_NONE || c->params.product_scale > 0.0f) {
        return TRM_OK;
    }
    TRM_TRY(has_one_scale(back, &has, &other));
    const trm_layer *next = trm_analysis_only_user(analysis, back->outputs[0]);
    if (has && other == scale && next != NULL && back->outputs[0]->dtype == c->end->dtype &&
        (trm_pattern_is_elementwise(next, TRM_ELEMENTWISE_ADD) || is_activation(next))) {
        c->params.product_scale = scale;
        append(analysis, c, quantize);
        append(analysis, c, back);
        *taken = true;
    }
    return TRM_OK;
}

/* Takes layers as far as they go. */
static trm_status follow(trm_analysis *analysis, chain *c)
{
    bool taken = true;
    while (taken) {
        trm_layer *user = trm_analysis_only_user(analysis, c->end);
        float scale;
        taken = false;
        if (user == NULL) {
            return TRM_OK;
        }
        if (user->desc.kind == TRM_LAYER_QUANTIZE && user->inputs[0] == c->end) {
            bool has;
            TRM_TRY(has_one_scale(user, &has, &scale));
            if (has) {
                TRM_TRY(take_rounding(analysis, c, user, scale, &taken));
            }
            if (has && !taken) {
                c->params.out_scale = scale;
                append(analysis, c, user);
                return TRM_OK;
            }
        } else if (trm_pattern_is_elementwise(user, TRM_ELEMENTWISE_ADD)) {
            TRM_TRY(take_residual(analysis, c, user, &taken));
        } else if (is_activation(user) && c->params.activation == TRM_ACTIVATION_NONE) {
            c->params.activation = user->desc.unary.activation;
            append(analysis, c, user);
            taken = true;
        }
    }
    return TRM_OK;
}

/* ---- operands ------------------------------------------------------------------------------------ */

typedef struct operands {
    trm_tensor *x, *weight, *weight_scale, *bias;
    float x_scale;
} operands;

static trm_status transpose(trm_network *network, const char *name, const int32_t *perm, int32_t n, trm_tensor **tensor)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_TRANSPOSE};
    memcpy(desc.transpose.perm, perm, (size_t)n * sizeof(*perm));
    return trm_network_add_layer(network, name, &desc, tensor, 1, tensor);
}

/* [N, C, d1 ..] to [N, d1 .., C]. */
static void channels_last(int32_t n, int32_t *perm)
{
    for (int32_t i = 0; i < n; i++) {
        perm[i] = i == 0 ? 0 : i == n - 1 ? 1 : i + 1;
    }
}

/* Whether the weight is a constant of numbers, by one scale or one for each entry of `axis`. */
static trm_status take_weight(const trm_analysis *analysis, const trm_tensor *weight, int32_t axis, operands *o,
                              bool *taken)
{
    const trm_layer *layer = weight->producer;
    *taken = false;
    if (!is_layer(analysis, layer, TRM_LAYER_DEQUANTIZE)) {
        return TRM_OK;
    }
    const trm_tensor *numbers = layer->inputs[0], *scale = layer->inputs[1];
    const int32_t of =
        layer->desc.quantize.axis < 0 ? layer->desc.quantize.axis + numbers->dims.n : layer->desc.quantize.axis;
    const bool one = trm_dims_count(&scale->dims) == 1;
    if (numbers->dtype != TRM_I8 || numbers->role != TRM_TENSOR_CONSTANT || scale->role != TRM_TENSOR_CONSTANT ||
        layer->desc.quantize.block_size != 0 || scale->dims.n > 1 || (!one && of != axis) ||
        (scale->dtype != TRM_F32 && scale->dtype != TRM_F16 && scale->dtype != TRM_BF16)) {
        return TRM_OK;
    }
    o->weight = layer->inputs[0];
    o->weight_scale = layer->inputs[1];
    return is_zero(input_of(layer, 2), taken);
}

/* x and weight of a product or a convolution that kernels do; *taken is false if it is none. */
static trm_status take_operands(const trm_analysis *analysis, const trm_layer *layer, operands *o, bool *taken)
{
    const bool convolution = layer->desc.kind == TRM_LAYER_CONVOLUTION;
    const trm_convolution_params *p = &layer->desc.convolution;
    const trm_tensor *weight = layer->inputs[1];
    const trm_dims *w = &weight->dims;
    const bool turned = !convolution && !layer->desc.matmul.transpose_b;
    const trm_dtype type = layer->outputs[0]->dtype;
    *taken = false;
    o->bias = input_of(layer, 2);
    if (!trm_dims_are_known(w) || (type != TRM_F32 && type != TRM_F16 && type != TRM_BF16) ||
        (o->bias != NULL && o->bias->dims.n != 1)) {
        return TRM_OK;
    }
    if (convolution) {
        const bool few = w->n == 4 && w->d[1] <= MOST_FEW && p->stride[0] == 2 && p->stride[1] == 2 &&
                         p->dilation[0] == 1 && p->dilation[1] == 1;
        if (w->n > 4 || p->groups != 1 || p->auto_pad != TRM_AUTO_PAD_NONE || p->channels_last ||
            (w->d[1] % FEWEST_CHANNELS != 0 && !few) || trm_dims_count(w) > MOST_K * w->d[0]) {
            return TRM_OK;
        }
    } else if (layer->desc.matmul.transpose_a || w->n != 2 || layer->inputs[0]->dims.n < 2 ||
               w->d[turned ? 0 : 1] % FEWEST_CHANNELS != 0 || w->d[turned ? 0 : 1] > MOST_K) {
        return TRM_OK;
    }
    TRM_TRY(numbers_of(analysis, layer->inputs[0], &o->x, &o->x_scale));
    return o->x == NULL ? TRM_OK : take_weight(analysis, weight, turned ? 1 : 0, o, taken);
}

static trm_status cast(trm_network *network, const char *name, trm_tensor **tensor)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_CAST, .cast = {.to = TRM_F32}};
    return (*tensor)->dtype == TRM_F32 ? TRM_OK : trm_network_add_layer(network, name, &desc, tensor, 1, tensor);
}

/* The scale of sums: that of x times those of the weight. */
static trm_status join_scales(trm_network *network, const char *name, const operands *o, trm_tensor **scale)
{
    char text[512];
    double value;
    snprintf(text, sizeof(text), "%.400s.scale", name);
    const float joined = o->x_scale * (float)(trm_pattern_scalar(o->weight_scale, &value) ? value : 1.0);
    TRM_TRY(trm_network_add_constant(network, text, TRM_F32, trm_dims1(1), &joined, scale));
    if (trm_pattern_scalar(o->weight_scale, &value)) {
        return TRM_OK;
    }
    const trm_layer_desc multiply = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {.op = TRM_ELEMENTWISE_MUL}};
    trm_tensor *both[] = {o->weight_scale, *scale};
    TRM_TRY(cast(network, text, &both[0]));
    return trm_network_add_layer(network, text, &multiply, both, 2, scale);
}

/* ---- products ------------------------------------------------------------------------------------ */

/* The layer in the place of the chain's last. */
static trm_status put_product(chain *c, const operands *o, bool convolution, bool turned)
{
    static const int32_t turn[] = {1, 0};
    trm_network *network = c->end->network;
    trm_layer_desc desc = {.kind = TRM_LAYER_INT8_PRODUCT, .int8_product = c->params};
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS] = {o->x, o->weight, NULL, o->bias, c->residual};
    const char *name = c->last->name;
    int32_t n_inputs = c->residual != NULL ? 5 : o->bias != NULL ? 4 : 3, perm[TRM_MAX_DIMS], back[TRM_MAX_DIMS] = {0};
    const int32_t n = o->weight->dims.n;
    desc.int8_product.out = c->end->dtype;
    TRM_TRY(join_scales(network, name, o, &inputs[TRM_INT8_PRODUCT_SCALE]));
    if (o->bias != NULL) {
        TRM_TRY(cast(network, o->bias->name, &inputs[TRM_INT8_PRODUCT_BIAS]));
    }
    if (turned) {
        TRM_TRY(transpose(network, o->weight->name, turn, 2, &inputs[TRM_INT8_PRODUCT_WEIGHT]));
    }
    if (convolution) {
        channels_last(n, perm);
        TRM_TRY(transpose(network, o->x->name, perm, n, &inputs[TRM_INT8_PRODUCT_X]));
        TRM_TRY(transpose(network, o->weight->name, perm, n, &inputs[TRM_INT8_PRODUCT_WEIGHT]));
        if (c->residual != NULL) {
            TRM_TRY(transpose(network, c->residual->name, perm, n, &inputs[TRM_INT8_PRODUCT_RESIDUAL]));
        }
        trm_tensor *last;
        TRM_TRY(trm_network_add_layer(network, name, &desc, inputs, n_inputs, &last));
        for (int32_t i = 0; i < n; i++) {
            back[perm[i]] = i;
        }
        desc = (trm_layer_desc){.kind = TRM_LAYER_TRANSPOSE};
        memcpy(desc.transpose.perm, back, sizeof(desc.transpose.perm));
        memset(inputs, 0, sizeof(inputs));
        inputs[0] = last;
        n_inputs = 1;
    }
    c->last->desc = desc;
    memcpy(c->last->inputs, inputs, sizeof(inputs));
    c->last->n_inputs = n_inputs;
    return TRM_OK;
}

static trm_status fuse_product(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    const bool convolution = layer->desc.kind == TRM_LAYER_CONVOLUTION;
    operands o;
    if (!convolution && layer->desc.kind != TRM_LAYER_MATMUL) {
        return TRM_OK;
    }
    TRM_TRY(take_operands(analysis, layer, &o, done));
    if (!*done) {
        return TRM_OK;
    }
    const bool turned = !convolution && !layer->desc.matmul.transpose_b;
    chain c = {.last = layer, .end = layer->outputs[0]};
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        c.params.stride[i] = convolution ? layer->desc.convolution.stride[i] : 1;
        c.params.dilation[i] = convolution ? layer->desc.convolution.dilation[i] : 1;
        c.params.before[i] = convolution ? layer->desc.convolution.before[i] : 0;
        c.params.after[i] = convolution ? layer->desc.convolution.after[i] : 0;
    }
    c.params.activation = convolution ? layer->desc.convolution.activation : layer->desc.matmul.activation;
    if (convolution && input_of(layer, 3) != NULL) {
        TRM_TRY(set_residual(analysis, &c, layer->inputs[3]));
    }
    TRM_TRY(follow(analysis, &c));
    analysis->touched[c.last->index] = true;
    return put_product(&c, &o, convolution, turned);
}

/* ---- norms --------------------------------------------------------------------------------------- */

/* Whether a sum over ranks and the norm will be one layer (exchanges.c). */
static bool follows_exchange(const trm_analysis *analysis, const trm_layer *norm)
{
    return is_layer(analysis, norm->inputs[0]->producer, TRM_LAYER_DIST_COLLECTIVE) ||
           (norm->desc.norm.residual && is_layer(analysis, norm->inputs[1]->producer, TRM_LAYER_DIST_COLLECTIVE));
}

/* quantize(norm(x)) -> one layer that makes both */
static trm_status quantize_norm(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    trm_layer *norm = layer->desc.kind == TRM_LAYER_QUANTIZE ? layer->inputs[0]->producer : NULL;
    float scale;
    bool has;
    if (!is_layer(analysis, norm, TRM_LAYER_NORM) || layer->inputs[0] != norm->outputs[0] ||
        norm->outputs[0]->dtype == TRM_F64 || follows_exchange(analysis, norm)) {
        return TRM_OK;
    }
    TRM_TRY(has_one_scale(layer, &has, &scale));
    if (has) {
        norm->desc = (trm_layer_desc){.kind = TRM_LAYER_NORM_QUANTIZE,
                                      .norm_quantize = {.norm = norm->desc.norm, .scale = scale}};
        norm->outputs[norm->n_outputs++] = layer->outputs[0];
        layer->outputs[0]->producer = norm;
        layer->n_outputs = 0; /* for dead code */
        analysis->touched[norm->index] = analysis->touched[layer->index] = true;
        *done = true;
    }
    return TRM_OK;
}

/* ---- products of one input ----------------------------------------------------------------------- */

/* Whether a product's output may be a part of a larger one's. */
static bool can_join(const trm_analysis *analysis, const trm_layer *layer)
{
    const trm_tensor *y = layer->outputs[0];
    int32_t unknown = 0;
    for (int32_t i = 0; i < y->dims.n; i++) {
        unknown += y->dims.d[i] < 0;
    }
    return is_layer(analysis, layer, TRM_LAYER_INT8_PRODUCT) && layer->inputs[TRM_INT8_PRODUCT_WEIGHT]->dims.n == 2 &&
           layer->desc.int8_product.parts == 0 && input_of(layer, TRM_INT8_PRODUCT_RESIDUAL) == NULL &&
           y->dims.n < TRM_MAX_DIMS && unknown <= 1 && y->dims.d[y->dims.n - 1] % MULTIPLE_JOINED == 0;
}

static bool joins_with(const trm_layer *a, const trm_layer *b)
{
    bool joins = a->inputs[0] == b->inputs[0] && trm_layer_desc_equal(&a->desc, &b->desc, a->inputs[0]->dims.n);
    for (int32_t i = TRM_INT8_PRODUCT_WEIGHT; joins && i <= TRM_INT8_PRODUCT_BIAS; i++) {
        const trm_tensor *of_a = input_of(a, i), *of_b = input_of(b, i);
        joins = (of_a == NULL) == (of_b == NULL) && (of_a == NULL || trm_dims_equal(&of_a->dims, &of_b->dims));
    }
    const trm_dims *scale = &a->inputs[TRM_INT8_PRODUCT_SCALE]->dims;
    return joins && scale->d[0] == a->inputs[TRM_INT8_PRODUCT_WEIGHT]->dims.d[0];
}

/* Layers become reshapes of slices of one product, whose output has one part for each. */
static trm_status put_joined(trm_network *network, trm_layer *const *layers, int32_t n)
{
    const trm_layer_desc concat = {.kind = TRM_LAYER_CONCAT, .concat = {.axis = 0}};
    trm_layer_desc desc = layers[0]->desc;
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS] = {layers[0]->inputs[0]}, *joined;
    desc.int8_product.parts = n;
    for (int32_t i = TRM_INT8_PRODUCT_WEIGHT; i < layers[0]->n_inputs; i++) {
        trm_tensor *parts[MOST_JOINED];
        for (int32_t k = 0; k < n; k++) {
            parts[k] = layers[k]->inputs[i];
        }
        if (parts[0] != NULL) {
            TRM_TRY(trm_network_add_layer(network, parts[0]->name, &concat, parts, n, &inputs[i]));
        }
    }
    TRM_TRY(trm_network_add_layer(network, layers[0]->name, &desc, inputs, layers[0]->n_inputs, &joined));
    for (int32_t k = 0; k < n; k++) {
        const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE,
                                      .slice = {.axis = 0, .start = k, .end = k + 1, .step = 1}};
        trm_tensor *part;
        TRM_TRY(trm_network_add_layer(network, layers[k]->name, &slice, &joined, 1, &part));
        layers[k]->desc = (trm_layer_desc){.kind = TRM_LAYER_RESHAPE,
                                           .reshape = {.dims = layers[k]->outputs[0]->dims, .zero_is_zero = true}};
        memset(layers[k]->inputs, 0, sizeof(layers[k]->inputs));
        layers[k]->inputs[0] = part;
        layers[k]->n_inputs = 1;
    }
    return TRM_OK;
}

static trm_status join_products(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    trm_network *network = layer->outputs[0]->network;
    trm_layer *layers[MOST_JOINED] = {layer};
    int32_t n = 1;
    if (!can_join(analysis, layer)) {
        return TRM_OK;
    }
    for (int32_t i = layer->index + 1; i < analysis->n_layers && n < MOST_JOINED; i++) {
        if (can_join(analysis, network->layers[i]) && joins_with(layer, network->layers[i])) {
            layers[n++] = network->layers[i];
        }
    }
    if (n > 1) {
        TRM_TRY(put_joined(network, layers, n));
        for (int32_t k = 0; k < n; k++) {
            analysis->touched[layers[k]->index] = true;
        }
        *done = true;
    }
    return TRM_OK;
}

/* ---- attention ----------------------------------------------------------------------------------- */

/* quantize(reshape(attention)) -> reshape(one layer) */
static trm_status quantize_attention(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    float scale;
    bool has;
    if (layer->desc.kind != TRM_LAYER_QUANTIZE) {
        return TRM_OK;
    }
    trm_layer *reshape = trm_analysis_private_producer(analysis, layer->inputs[0], TRM_LAYER_RESHAPE);
    const trm_layer *attention = reshape == NULL || reshape->n_inputs != 1
                                     ? NULL
                                     : trm_analysis_private_producer(analysis, reshape->inputs[0], TRM_LAYER_ATTENTION);
    if (attention == NULL || attention->n_outputs != 1 || attention->desc.attention.n_ranks > 1 ||
        attention->desc.attention.form == TRM_ATTENTION_PACKED_NHD) {
        return TRM_OK;
    }
    TRM_TRY(has_one_scale(layer, &has, &scale));
    if (has) {
        trm_tensor *inputs[TRM_MAX_LAYER_INPUTS], *numbers;
        trm_layer_desc desc = attention->desc;
        memcpy(inputs, attention->inputs, sizeof(inputs));
        inputs[TRM_ATTENTION_QUANTIZE_SCALE] = layer->inputs[1];
        desc.kind = TRM_LAYER_ATTENTION_QUANTIZE;
        TRM_TRY(trm_network_add_layer(layer->outputs[0]->network, attention->name, &desc, inputs,
                                      TRM_ATTENTION_QUANTIZE_INPUT_COUNT, &numbers));
        memset(inputs, 0, sizeof(inputs));
        inputs[0] = numbers;
        desc = reshape->desc;
        trm_pattern_rewrite(analysis, layer, &desc, 1, inputs);
        *done = true;
    }
    return TRM_OK;
}

/* ---- the pass ------------------------------------------------------------------------------------ */

/* One walk over the network; stale layers wait for the next. */
static trm_status sweep(trm_network *network, fusion fuse, int32_t *n_fused)
{
    trm_analysis analysis;
    TRM_TRY(trm_analysis_init(network, &analysis));
    const int32_t n = network->n_layers; /* those added are as they should be */
    trm_status status = TRM_OK;
    *n_fused = 0;
    for (int32_t i = 0; status == TRM_OK && i < n; i++) {
        bool done = false;
        if (!analysis.touched[i]) {
            status = fuse(&analysis, network->layers[i], &done);
        }
        *n_fused += done;
    }
    trm_analysis_fini(&analysis);
    if (status == TRM_OK && *n_fused > 0) {
        TRM_TRY(trm_network_sort(network));
        status = trm_pass_dead_code(network, NULL);
    }
    return status;
}

trm_status trm_pass_quantize_attention(trm_network *network, int32_t *changes)
{
    int32_t n_fused;
    TRM_TRY(sweep(network, quantize_attention, &n_fused));
    if (changes != NULL) {
        *changes += n_fused;
    }
    return TRM_OK;
}

trm_status trm_pass_fuse_int8(trm_network *network, int32_t *changes)
{
    static const fusion fusions[] = {move_relu,    move_behind,   drop_pair,    move_before,
                                     fuse_product, quantize_norm, join_products};
    for (size_t i = 0; i < sizeof(fusions) / sizeof(fusions[0]); i++) {
        int32_t n_fused;
        do {
            TRM_TRY(sweep(network, fusions[i], &n_fused));
            if (changes != NULL) {
                *changes += n_fused;
            }
        } while (n_fused > 0);
    }
    return TRM_OK;
}
