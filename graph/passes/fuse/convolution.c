/*
 * Fusion around convolutions: a multiply and an add by channel (what batch normalization is at inference) go into the
 * weight and the bias, and a residual sum and an activation into the layer.
 *
 * The last layer of a pattern is rewritten in place, as in fuse.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/half.h"
#include "graph/network.h"
#include "graph/passes/analysis.h"
#include "graph/passes/weight_math.h"

#define LARGEST_WEIGHT ((size_t)256 << 20) /* most bytes of f32 that a pass computes */

/* Tries to end a pattern at `layer`; *done tells whether it did. */
typedef trm_status (*fusion)(trm_analysis *analysis, trm_layer *layer, bool *done);

static void rewrite(trm_analysis *analysis, trm_layer *layer, trm_layer *convolution, const trm_layer_desc *desc,
                    trm_tensor *const *inputs, int32_t n_inputs)
{
    layer->desc = *desc;
    for (int32_t i = 0; i < TRM_MAX_LAYER_INPUTS; i++) {
        layer->inputs[i] = i < n_inputs ? inputs[i] : NULL;
    }
    while (n_inputs > 0 && inputs[n_inputs - 1] == NULL) {
        n_inputs--;
    }
    layer->n_inputs = n_inputs;
    analysis->touched[layer->index] = analysis->touched[convolution->index] = true;
}

static bool is_elementwise(const trm_layer *layer, trm_elementwise_op op)
{
    return layer->desc.kind == TRM_LAYER_ELEMENTWISE && layer->desc.elementwise.op == op;
}

/* Input i, NULL where it is not given. */
static trm_tensor *input_of(const trm_layer *layer, int32_t i)
{
    return i < layer->n_inputs ? layer->inputs[i] : NULL;
}

/* The private convolution that makes `tensor` and has nothing behind its bias, or NULL. */
static trm_layer *plain_convolution(const trm_analysis *analysis, const trm_tensor *tensor)
{
    trm_layer *layer = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_CONVOLUTION);
    return layer != NULL && input_of(layer, 3) == NULL && !layer->desc.convolution.whole_numbers &&
                   layer->desc.convolution.activation == TRM_ACTIVATION_NONE
               ? layer
               : NULL;
}

/* A constant that has one number for each channel of `like` [N, M, ...], or one for all. */
static bool is_by_channel(const trm_tensor *tensor, const trm_tensor *like)
{
    if (tensor == NULL || tensor->role != TRM_TENSOR_CONSTANT || tensor->dtype != like->dtype ||
        tensor->dims.n > like->dims.n) {
        return false;
    }
    for (int32_t i = 0; i < tensor->dims.n; i++) {
        const int32_t axis = i + like->dims.n - tensor->dims.n;
        if (tensor->dims.d[i] != 1 && (axis != 1 || tensor->dims.d[i] != like->dims.d[1])) {
            return false;
        }
    }
    return true;
}

/* ---- constants --------------------------------------------------------------------------------- */

/* Elements of a constant of f32, f16 or bf16 as f32; the caller's to free. NULL in *values: not one of those, or one
 * that may change. */
static trm_status read_constant(const trm_tensor *tensor, float **values)
{
    const size_t count = trm_dims_bytes(&tensor->dims, TRM_F32) / sizeof(float);
    *values = NULL;
    if ((tensor->dtype != TRM_F32 && tensor->dtype != TRM_F16 && tensor->dtype != TRM_BF16) ||
        count * sizeof(float) > LARGEST_WEIGHT || (tensor->weight != NULL && tensor->network->refittable)) {
        return TRM_OK;
    }
    float *to = malloc((count + 1) * sizeof(float));
    if (to == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "out of memory for the elements of %s", tensor->name);
    }
    if (tensor->value == NULL) {
        trm_status status = trm_weight_read(tensor->weight, TRM_F32, 0, count, to);
        if (status != TRM_OK) {
            free(to);
            return status;
        }
    }
    for (size_t i = 0; tensor->value != NULL && i < count; i++) {
        to[i] = tensor->dtype == TRM_F32   ? ((const float *)tensor->value)[i]
                : tensor->dtype == TRM_F16 ? trm_f16_to_f32(((const uint16_t *)tensor->value)[i])
                                           : trm_bf16_to_f32(((const uint16_t *)tensor->value)[i]);
    }
    *values = to;
    return TRM_OK;
}

/* A new constant, "<base>.<what>", of f32 numbers rounded to `dtype`. */
static trm_status add_constant(trm_network *network, const char *base, const char *what, trm_dtype dtype, trm_dims dims,
                               const float *values, trm_tensor **tensor)
{
    const size_t count = trm_dims_bytes(&dims, TRM_F32) / sizeof(float);
    char name[512];
    snprintf(name, sizeof(name), "%.400s.%s", base, what);
    if (dtype == TRM_F32) {
        return trm_network_add_constant(network, name, dtype, dims, values, tensor);
    }
    uint16_t *narrow = malloc((count + 1) * sizeof(uint16_t));
    if (narrow == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "out of memory for the elements of %s", name);
    }
    for (size_t i = 0; i < count; i++) {
        narrow[i] = dtype == TRM_F16 ? trm_f32_to_f16(values[i]) : trm_f32_to_bf16(values[i]);
    }
    trm_status status = trm_network_add_constant(network, name, dtype, dims, narrow, tensor);
    free(narrow);
    return status;
}

/* ---- multiply and add by channel --------------------------------------------------------------- */

/* bias * factor + offset, where a bias or either of them may be missing; `by`: [1] or [channels]. */
static void combine_bias(float *bias, int64_t channels, const float *factor, const float *offset, int64_t by)
{
    for (int64_t m = 0; m < channels; m++) {
        const int64_t at = by == 1 ? 0 : m;
        bias[m] = (factor != NULL ? (float)((double)bias[m] * (double)factor[at]) : bias[m]) +
                  (offset != NULL ? offset[at] : 0.0f);
    }
}

/* The constants of convolution * factor (or + offset): *weight and *bias stay as they are where nothing changes. */
static trm_status scaled_constants(trm_network *network, const trm_layer *convolution, const trm_tensor *factor,
                                   const trm_tensor *offset, trm_tensor **weight, trm_tensor **bias, bool *done)
{
    const trm_tensor *by = factor != NULL ? factor : offset;
    const int64_t channels = (*weight)->dims.d[0];
    const int64_t count = (int64_t)(trm_dims_bytes(&by->dims, TRM_F32) / sizeof(float));
    const int64_t elements = (int64_t)(trm_dims_bytes(&(*weight)->dims, TRM_F32) / sizeof(float));
    const int64_t each = channels > 0 ? elements / channels : 0;
    float *numbers = NULL, *weights = NULL, *sums = NULL;
    trm_status status = read_constant(by, &numbers);
    if (status == TRM_OK && numbers != NULL && *bias != NULL) {
        status = read_constant(*bias, &sums);
    } else if (status == TRM_OK && numbers != NULL) {
        sums = calloc((size_t)channels + 1, sizeof(float));
        status = sums == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "out of memory for a bias") : TRM_OK;
    }
    if (status == TRM_OK && sums != NULL && factor != NULL) {
        status = read_constant(*weight, &weights);
    }
    const bool ready = status == TRM_OK && sums != NULL && (factor == NULL || weights != NULL);
    if (ready && factor != NULL) {
        for (int64_t m = 0; m < channels; m++) {
            for (int64_t i = 0; i < each; i++) {
                weights[m * each + i] *= numbers[count == 1 ? 0 : m];
            }
        }
        status = add_constant(network, convolution->name, "weight", (*weight)->dtype, (*weight)->dims, weights, weight);
    }
    if (ready && status == TRM_OK && (*bias != NULL || offset != NULL)) {
        combine_bias(sums, channels, factor != NULL ? numbers : NULL, offset != NULL ? numbers : NULL, count);
        status =
            add_constant(network, convolution->name, "bias", (*weight)->dtype, (trm_dims){1, {channels}}, sums, bias);
    }
    free(numbers);
    free(sums);
    free(weights);
    *done = ready && status == TRM_OK;
    return status;
}

/* A new constant, "<base>.<what>", of a weight, which is taken over. */
static trm_status add_weight(trm_network *network, const char *base, const char *what, trm_dtype dtype,
                             trm_weight **weight, trm_tensor **tensor)
{
    trm_weight *given = *weight;
    char name[512];
    snprintf(name, sizeof(name), "%.400s.%s", base, what);
    *weight = NULL;
    return trm_network_add_weight(network, name, given, dtype, tensor);
}

/* a op b of two constants, `b` with other dims; *computed stays NULL if it is not a weight. */
static trm_status compute(trm_weight_op op, const trm_tensor *a, const trm_tensor *b, const trm_dims *dims,
                          trm_weight **computed)
{
    trm_weight *left = NULL, *right = NULL;
    trm_status status = trm_weight_math_operand(a, NULL, &left);
    if (status == TRM_OK && left != NULL) {
        status = trm_weight_math_operand(b, dims, &right);
    }
    if (status == TRM_OK && right != NULL) {
        status = trm_weight_math_compute(op, a->dtype, left, right, computed);
    }
    trm_weight_destroy(left);
    trm_weight_destroy(right);
    return status;
}

/* scaled_constants of weights that may change. */
static trm_status computed_constants(trm_network *network, const trm_layer *convolution, const trm_tensor *by,
                                     bool multiply, trm_tensor **weight, trm_tensor **bias, bool *done)
{
    const trm_dtype dtype = (*weight)->dtype;
    const trm_dims channels = {1, {(*weight)->dims.d[0]}};
    const int64_t factors = trm_dims_bytes(&by->dims, dtype) == trm_dtype_size(dtype) ? 1 : channels.d[0];
    const trm_dims row = {1, {factors}};
    trm_dims column = {.n = (*weight)->dims.n};
    for (int32_t i = 0; i < column.n; i++) {
        column.d[i] = i == 0 ? factors : 1;
    }
    trm_weight *scaled = NULL, *sum = NULL, *offset = NULL, *zeros = NULL;
    trm_status status = TRM_OK;
    if (multiply) {
        status = compute(TRM_WEIGHT_MULTIPLY, *weight, by, &column, &scaled);
    }
    if (status == TRM_OK && *bias != NULL) {
        status = compute(multiply ? TRM_WEIGHT_MULTIPLY : TRM_WEIGHT_ADD, *bias, by, &row, &sum);
    } else if (status == TRM_OK && !multiply) {
        TRM_TRY_GOTO(status, trm_weight_math_operand(by, &row, &offset), destroy);
        TRM_TRY_GOTO(status, trm_weight_random(dtype, &channels, 0, 0, 0, &zeros), destroy);
        if (offset != NULL) {
            status = trm_weight_math_compute(TRM_WEIGHT_ADD, dtype, zeros, offset, &sum);
        }
    }
    const bool has_bias = *bias != NULL || !multiply;
    if (status == TRM_OK && (!multiply || scaled != NULL) && (!has_bias || sum != NULL)) {
        *done = true;
        if (multiply) {
            TRM_TRY_GOTO(status, add_weight(network, convolution->name, "weight", dtype, &scaled, weight), destroy);
        }
        if (has_bias) {
            TRM_TRY_GOTO(status, add_weight(network, convolution->name, "bias", dtype, &sum, bias), destroy);
        }
    }
destroy:
    trm_weight_destroy(scaled);
    trm_weight_destroy(sum);
    trm_weight_destroy(offset);
    trm_weight_destroy(zeros);
    return status;
}

static bool may_change(const trm_tensor *tensor)
{
    return tensor != NULL && tensor->weight != NULL && tensor->network->refittable;
}

/* convolution(x) * c, convolution(x) + c -> convolution with other constants */
static trm_status fuse_channels(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    const bool multiply = is_elementwise(layer, TRM_ELEMENTWISE_MUL);
    for (int32_t i = 0; (multiply || is_elementwise(layer, TRM_ELEMENTWISE_ADD)) && i < 2; i++) {
        trm_layer *convolution = plain_convolution(analysis, layer->inputs[i]);
        const trm_tensor *other = layer->inputs[1 - i];
        if (convolution == NULL || convolution->desc.convolution.channels_last ||
            !is_by_channel(other, convolution->outputs[0]) || convolution->inputs[1]->role != TRM_TENSOR_CONSTANT ||
            (input_of(convolution, 2) != NULL && convolution->inputs[2]->role != TRM_TENSOR_CONSTANT)) {
            continue;
        }
        trm_tensor *inputs[3] = {convolution->inputs[0], convolution->inputs[1], input_of(convolution, 2)};
        trm_network *network = layer->outputs[0]->network;
        const bool computed = may_change(other) || may_change(inputs[2]) || (multiply && may_change(inputs[1]));
        TRM_TRY(computed ? computed_constants(network, convolution, other, multiply, &inputs[1], &inputs[2], done)
                         : scaled_constants(network, convolution, multiply ? other : NULL, multiply ? NULL : other,
                                            &inputs[1], &inputs[2], done));
        if (*done) {
            const trm_layer_desc desc = convolution->desc;
            rewrite(analysis, layer, convolution, &desc, inputs, 3);
            return TRM_OK;
        }
    }
    return TRM_OK;
}

/* ---- residual and activation ------------------------------------------------------------------- */

/* convolution(x) + y -> convolution with residual; of two the later, which can wait for the other */
static trm_status fuse_residual(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    trm_layer *best = NULL;
    for (int32_t i = 0; is_elementwise(layer, TRM_ELEMENTWISE_ADD) && i < 2; i++) {
        trm_layer *convolution = plain_convolution(analysis, layer->inputs[i]);
        if (convolution != NULL && layer->inputs[0] != layer->inputs[1] &&
            layer->inputs[0]->dtype == layer->inputs[1]->dtype &&
            trm_analysis_same_dims(analysis, layer->inputs[0], layer->inputs[1]) &&
            (best == NULL || convolution->index > best->index)) {
            best = convolution;
        }
    }
    if (best != NULL) {
        trm_tensor *residual = layer->inputs[0] == best->outputs[0] ? layer->inputs[1] : layer->inputs[0];
        trm_tensor *inputs[4] = {best->inputs[0], best->inputs[1], input_of(best, 2), residual};
        const trm_layer_desc desc = best->desc;
        rewrite(analysis, layer, best, &desc, inputs, 4);
        *done = true;
    }
    return TRM_OK;
}

/* activation(convolution(x)), also of a transposed one and of a norm by channel -> an epilogue */
static trm_status fuse_activation(trm_analysis *analysis, trm_layer *layer, bool *done)
{
    static const trm_layer_kind kinds[] = {TRM_LAYER_CONVOLUTION, TRM_LAYER_DECONVOLUTION, TRM_LAYER_GROUP_NORM};
    if (layer->desc.kind != TRM_LAYER_UNARY || layer->desc.unary.op != TRM_UNARY_ACTIVATION) {
        return TRM_OK;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        trm_layer *producer = trm_analysis_private_producer(analysis, layer->inputs[0], kinds[i]);
        if (producer == NULL) {
            continue;
        }
        trm_layer_desc desc = producer->desc;
        trm_activation *activation =
            kinds[i] == TRM_LAYER_GROUP_NORM ? &desc.group_norm.activation : &desc.convolution.activation;
        if (*activation == TRM_ACTIVATION_NONE) {
            *activation = layer->desc.unary.activation;
            rewrite(analysis, layer, producer, &desc, producer->inputs, producer->n_inputs);
            *done = true;
            return TRM_OK;
        }
    }
    return TRM_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------- */

/* One walk over the network; stale layers wait for the next. */
static trm_status sweep(trm_network *network, fusion fuse, int32_t *n_fused)
{
    trm_analysis analysis;
    TRM_TRY(trm_analysis_init(network, &analysis));
    trm_status status = TRM_OK;
    *n_fused = 0;
    for (int32_t i = 0; status == TRM_OK && i < network->n_layers; i++) {
        bool done = false;
        if (!analysis.touched[i]) {
            status = fuse(&analysis, network->layers[i], &done);
        }
        *n_fused += done;
    }
    trm_analysis_fini(&analysis);
    if (status == TRM_OK && *n_fused > 0) {
        status = trm_pass_dead_code(network, NULL);
    }
    return status;
}

trm_status trm_pass_fuse_convolutions(trm_network *network, int32_t *changes)
{
    static const fusion fusions[] = {fuse_channels, fuse_residual, fuse_activation};
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
