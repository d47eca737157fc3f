/*
 * Products of one input with several weights, joined into one product.
 *
 * Weights stored transposed, as in linear layers, are concatenated by rows. Gate and up of a GLU join at no cost: the
 * GLU reads both halves. Others, such as q, k and v, need a SLICE each, which copies unless a step has one token: then
 * it is a view. Weights of equal dims that are stored untransposed, as in ONNX, become a batch: products come out one
 * after the other, and each SLICE is a view for any number of rows.
 *
 * Where products have a LORA each, these become one that reads the joined product; slices, or the GLU, read its output.
 */
#include "graph/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/params.h"
#include "graph/passes/analysis.h"

#define MOST_JOINED 8

enum { A = 0, B = 1, BIAS = 2 };
#define MOST_INPUTS TRM_DEQUANT_MATMUL_INPUT_COUNT

/* Whether a constant is read here alone and from a weight, so that a joined one can take its place. */
static bool is_private_weight(const trm_analysis *analysis, const trm_tensor *tensor)
{
    return tensor->role == TRM_TENSOR_CONSTANT && tensor->weight != NULL &&
           trm_analysis_only_user(analysis, tensor) != NULL;
}

/* transposed: as a linear layer's weight. */
static bool is_candidate(const trm_analysis *analysis, const trm_layer *layer, bool transposed)
{
    if (layer->desc.kind != TRM_LAYER_MATMUL || layer->desc.matmul.transpose_b != transposed ||
        layer->desc.matmul.transpose_a || analysis->touched[layer->index] || layer->inputs[B]->dims.n != 2 ||
        !is_private_weight(analysis, layer->inputs[B])) {
        return false;
    }
    if (layer->n_inputs > BIAS) {
        const trm_tensor *bias = layer->inputs[BIAS];
        return bias->role == TRM_TENSOR_CONSTANT && bias->pin == NULL && bias->dims.n == 1;
    }
    return true;
}

/* The same of a product with a quantized weight, whose scales are in whole blocks. */
static bool is_quantized_candidate(const trm_analysis *analysis, const trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_DEQUANT_MATMUL || analysis->touched[layer->index] ||
        layer->inputs[B]->dims.d[0] % layer->desc.dequant_matmul.block_n != 0) {
        return false;
    }
    for (int32_t i = B; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        const bool is_bias = i == TRM_DEQUANT_MATMUL_BIAS;
        if (input != NULL && !(is_bias ? input->role == TRM_TENSOR_CONSTANT && input->pin == NULL
                                       : is_private_weight(analysis, input))) {
            return false;
        }
    }
    return true;
}

/* Whether the layer is a product with one constant below the other: as linear layers have them. */
static bool joins_rows(const trm_analysis *analysis, const trm_layer *layer)
{
    return is_candidate(analysis, layer, true) || is_quantized_candidate(analysis, layer);
}

/* Whether two constants can stand in one. */
static bool constants_join(const trm_tensor *a, const trm_tensor *b)
{
    if (a->dtype != b->dtype || (a->weight == NULL) != (b->weight == NULL)) {
        return false;
    }
    return a->weight == NULL || trm_weight_dtype(a->weight) == trm_weight_dtype(b->weight);
}

static bool layers_join(const trm_layer *a, const trm_layer *b)
{
    if (a == b || a->inputs[A] != b->inputs[A] || a->n_inputs != b->n_inputs ||
        !trm_layer_desc_equal(&a->desc, &b->desc, a->inputs[A]->dims.n)) {
        return false;
    }
    for (int32_t i = B; i < a->n_inputs; i++) {
        if ((a->inputs[i] == NULL) != (b->inputs[i] == NULL) ||
            (a->inputs[i] != NULL && !constants_join(a->inputs[i], b->inputs[i]))) {
            return false;
        }
    }
    return true;
}

/* ---- making the joined layer ------------------------------------------------------------------- */

/* "a+b+c" in the arena. */
static const char *joined_name(trm_network *network, const char *const *names, int32_t n)
{
    size_t size = 1;
    for (int32_t i = 0; i < n; i++) {
        size += strlen(names[i]) + 1;
    }
    char *name = trm_arena_alloc(&network->arena, size);
    for (int32_t i = 0; name != NULL && i < n; i++) {
        strcat(strcat(name, i == 0 ? "" : "+"), names[i]);
    }
    return name;
}

/* Elements of several constants one after the other. part: dims of one, or 1 and then its dims; the first grows. */
static trm_status join_values(trm_network *network, const char *name, trm_tensor *const *parts, int32_t n,
                              const trm_dims *part, trm_tensor **joined)
{
    size_t bytes = 0, at = 0;
    trm_dims dims = *part;
    dims.d[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        bytes += trm_dims_bytes(&parts[i]->dims, parts[i]->dtype);
        dims.d[0] += parts[i]->dims.n == dims.n ? parts[i]->dims.d[0] : 1;
    }
    unsigned char *value = malloc(bytes > 0 ? bytes : 1);
    if (value == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory", bytes);
    }
    for (int32_t i = 0; i < n; i++) {
        size_t size = trm_dims_bytes(&parts[i]->dims, parts[i]->dtype);
        memcpy(value + at, parts[i]->value, size);
        at += size;
    }
    trm_status status = trm_network_add_constant(network, name, parts[0]->dtype, dims, value, joined);
    free(value);
    return status;
}

/* The constants of one input of the layers, joined along axis 0. */
static trm_status join_constants(trm_network *network, trm_layer *const *layers, int32_t n, int32_t input,
                                 trm_tensor **joined)
{
    trm_tensor *parts[MOST_JOINED];
    const char *names[MOST_JOINED];
    const trm_weight *weights[MOST_JOINED];
    for (int32_t i = 0; i < n; i++) {
        parts[i] = layers[i]->inputs[input];
        names[i] = parts[i]->name;
        weights[i] = parts[i]->weight;
    }
    const char *name = joined_name(network, names, n);
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (weights[0] == NULL) {
        return join_values(network, name, parts, n, &parts[0]->dims, joined);
    }
    trm_weight *weight;
    TRM_TRY(trm_weight_concat(weights, n, 0, &weight));
    return trm_network_add_weight(network, name, weight, parts[0]->dtype, joined);
}

static trm_status join_layers(trm_network *network, trm_layer *const *layers, int32_t n, trm_tensor **output)
{
    trm_tensor *inputs[MOST_INPUTS] = {layers[0]->inputs[A]};
    const char *names[MOST_JOINED];
    for (int32_t i = 0; i < n; i++) {
        names[i] = layers[i]->name;
    }
    for (int32_t i = B; i < layers[0]->n_inputs; i++) {
        if (layers[0]->inputs[i] != NULL) {
            TRM_TRY(join_constants(network, layers, n, i, &inputs[i]));
        }
    }
    const char *name = joined_name(network, names, n);
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    return trm_network_add_layer(network, name, &layers[0]->desc, inputs, layers[0]->n_inputs, output);
}

/* ---- adapters beside products ------------------------------------------------------------------- */

/* The LORAs that alone read the products; false unless each has one, and all can be one. */
static bool find_loras(const trm_analysis *analysis, trm_layer *const *products, int32_t n, trm_layer **loras)
{
    int32_t n_inputs = TRM_LORA_A;
    for (int32_t i = 0; i < n; i++) {
        loras[i] = trm_analysis_only_user(analysis, products[i]->outputs[0]);
        if (loras[i] == NULL || loras[i]->desc.kind != TRM_LAYER_LORA ||
            loras[i]->inputs[TRM_LORA_Y] != products[i]->outputs[0] ||
            loras[i]->inputs[TRM_LORA_X] != products[i]->inputs[A] ||
            loras[i]->inputs[TRM_LORA_SLOTS] != loras[0]->inputs[TRM_LORA_SLOTS]) {
            return false;
        }
        n_inputs += loras[i]->n_inputs - TRM_LORA_A;
    }
    return n_inputs <= TRM_LORA_A + 2 * TRM_LORA_MAX_PAIRS;
}

/* One LORA of the joined product `y`. */
static trm_status join_loras(trm_network *network, trm_layer *const *loras, int32_t n, trm_tensor *y,
                             trm_tensor **output)
{
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS] = {loras[0]->inputs[TRM_LORA_X], loras[0]->inputs[TRM_LORA_SLOTS], y};
    const char *names[MOST_JOINED];
    int32_t n_inputs = TRM_LORA_A;
    for (int32_t i = 0; i < n; i++) {
        names[i] = loras[i]->name;
        for (int32_t k = TRM_LORA_A; k < loras[i]->n_inputs; k++) {
            inputs[n_inputs++] = loras[i]->inputs[k];
        }
    }
    const char *name = joined_name(network, names, n);
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    return trm_network_add_layer(network, name, &loras[0]->desc, inputs, n_inputs, output);
}

/* ---- where to join ----------------------------------------------------------------------------- */

/* Gate and up of a GLU. */
static trm_status join_glu(trm_network *network, trm_analysis *analysis, trm_layer *glu, int32_t *n_joined)
{
    if (glu->desc.kind != TRM_LAYER_GLU || glu->n_inputs != 2) {
        return TRM_OK;
    }
    trm_layer *pair[2], *loras[2];
    for (int32_t i = 0; i < 2; i++) {
        loras[i] = trm_analysis_private_producer(analysis, glu->inputs[i], TRM_LAYER_LORA);
        const trm_tensor *from = loras[i] != NULL ? loras[i]->inputs[TRM_LORA_Y] : glu->inputs[i];
        pair[i] = trm_analysis_private_producer(analysis, from, TRM_LAYER_MATMUL);
        if (pair[i] == NULL) {
            pair[i] = trm_analysis_private_producer(analysis, from, TRM_LAYER_DEQUANT_MATMUL);
        }
        if (pair[i] == NULL || !joins_rows(analysis, pair[i])) {
            return TRM_OK;
        }
    }
    const bool has_loras = loras[0] != NULL || loras[1] != NULL;
    if (!layers_join(pair[0], pair[1]) || (has_loras && !find_loras(analysis, pair, 2, loras))) {
        return TRM_OK;
    }
    trm_tensor *output;
    TRM_TRY(join_layers(network, pair, 2, &output));
    if (has_loras) {
        TRM_TRY(join_loras(network, loras, 2, output, &output));
        analysis->touched[loras[0]->index] = analysis->touched[loras[1]->index] = true;
    }
    glu->inputs[0] = output;
    glu->inputs[1] = NULL;
    glu->n_inputs = 1;
    analysis->touched[pair[0]->index] = analysis->touched[pair[1]->index] = analysis->touched[glu->index] = true;
    (*n_joined)++;
    return TRM_OK;
}

/* Products that join with `first`, in order, followed by a slice for each. */
static trm_status join_sliced(trm_network *network, trm_analysis *analysis, trm_layer *first, int32_t *n_joined)
{
    trm_layer *layers[MOST_JOINED] = {first}, *loras[MOST_JOINED];
    int32_t n = 1;
    if (!joins_rows(analysis, first)) {
        return TRM_OK;
    }
    for (int32_t i = first->index + 1; i < analysis->n_layers && n < MOST_JOINED; i++) {
        trm_layer *layer = network->layers[i];
        if (joins_rows(analysis, layer) && layers_join(first, layer)) {
            layers[n++] = layer;
        }
    }
    if (n == 1) {
        return TRM_OK;
    }
    trm_tensor *joined;
    const bool has_loras = find_loras(analysis, layers, n, loras);
    TRM_TRY(join_layers(network, layers, n, &joined));
    if (has_loras) {
        TRM_TRY(join_loras(network, loras, n, joined, &joined));
    }
    int64_t start = 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t width = layers[i]->inputs[B]->dims.d[0];
        trm_layer *slice = has_loras ? loras[i] : layers[i];
        slice->desc = (trm_layer_desc){
            .kind = TRM_LAYER_SLICE,
            .slice = {.axis = joined->dims.n - 1, .start = start, .end = start + width, .step = 1},
        };
        slice->inputs[A] = joined;
        for (int32_t k = B; k < slice->n_inputs; k++) {
            slice->inputs[k] = NULL;
        }
        slice->n_inputs = 1;
        analysis->touched[layers[i]->index] = analysis->touched[slice->index] = true;
        start += width;
    }
    (*n_joined)++;
    return TRM_OK;
}

/* ---- batches ------------------------------------------------------------------------------------- */

/* The constants of one input of the layers as one more leading dimension; those of one dimension become rows. */
static trm_status stack_constants(trm_network *network, trm_layer *const *layers, int32_t n, int32_t input,
                                  trm_tensor **stacked)
{
    trm_tensor *parts[MOST_JOINED] = {NULL};
    const char *names[MOST_JOINED];
    trm_weight *views[MOST_JOINED] = {NULL}, *weight = NULL;
    trm_dims dims = {.n = 3, .d = {1, 1, 1}};
    for (int32_t i = 0; i < n; i++) {
        parts[i] = layers[i]->inputs[input];
        names[i] = parts[i]->name;
    }
    const trm_dims *own = &layers[0]->inputs[input]->dims;
    for (int32_t i = 0; i < own->n; i++) {
        dims.d[3 - own->n + i] = own->d[i];
    }
    const char *name = joined_name(network, names, n);
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (parts[0]->weight == NULL) {
        return join_values(network, name, parts, n, &dims, stacked);
    }
    trm_status status = TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < n; i++) {
        status = trm_weight_reshape(parts[i]->weight, &dims, &views[i]);
    }
    if (status == TRM_OK) {
        status = trm_weight_concat((const trm_weight *const *)views, n, 0, &weight);
    }
    for (int32_t i = 0; i < n; i++) {
        trm_weight_destroy(views[i]);
    }
    TRM_TRY(status);
    return trm_network_add_weight(network, name, weight, parts[0]->dtype, stacked);
}

/* `dims` as the target of a reshape; false if more than one of them is unknown. */
static bool reshape_to(const trm_dims *dims, trm_layer_desc *desc)
{
    int32_t unknown = 0;
    for (int32_t i = 0; i < dims->n; i++) {
        unknown += dims->d[i] < 0 ? 1 : 0;
    }
    *desc = (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = *dims, .zero_is_zero = true}};
    return unknown <= 1;
}

/* The layers' inputs as one: rows, weights, biases. */
static trm_status stack_inputs(trm_network *network, trm_layer *const *layers, int32_t n, const char *name,
                               trm_tensor *inputs[3])
{
    inputs[A] = layers[0]->inputs[A];
    if (inputs[A]->dims.n > 2) {
        const char *parts[] = {name, "rows"};
        const char *rows = joined_name(network, parts, 2);
        trm_layer_desc desc;
        const trm_dims dims = {.n = 2, .d = {-1, layers[0]->inputs[B]->dims.d[0]}};
        (void)reshape_to(&dims, &desc);
        if (rows == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        TRM_TRY(trm_network_add_layer(network, rows, &desc, inputs, 1, &inputs[A]));
    }
    TRM_TRY(stack_constants(network, layers, n, B, &inputs[B]));
    return layers[0]->n_inputs > BIAS ? stack_constants(network, layers, n, BIAS, &inputs[BIAS]) : TRM_OK;
}

/* The layers become reshapes of slices of one product. */
static trm_status stack_layers(trm_network *network, trm_layer *const *layers, int32_t n)
{
    trm_tensor *inputs[3] = {NULL}, *stacked, *part;
    const char *names[MOST_JOINED];
    for (int32_t i = 0; i < n; i++) {
        names[i] = layers[i]->name;
    }
    const char *name = joined_name(network, names, n);
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(stack_inputs(network, layers, n, name, inputs));
    TRM_TRY(trm_network_add_layer(network, name, &layers[0]->desc, inputs, layers[0]->n_inputs, &stacked));
    for (int32_t i = 0; i < n; i++) {
        const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE,
                                      .slice = {.axis = 0, .start = i, .end = i + 1, .step = 1}};
        const char *words[] = {name, layers[i]->name};
        const char *part_name = joined_name(network, words, 2);
        if (part_name == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        TRM_TRY(trm_network_add_layer(network, part_name, &slice, &stacked, 1, &part));
        (void)reshape_to(&layers[i]->outputs[0]->dims, &layers[i]->desc);
        layers[i]->inputs[A] = part;
        layers[i]->inputs[B] = layers[i]->inputs[BIAS] = NULL;
        layers[i]->n_inputs = 1;
    }
    return TRM_OK;
}

/* Whether a product can be one of a batch with `first`. */
static bool stacks_with(const trm_layer *first, const trm_layer *layer)
{
    return layers_join(first, layer) && first->inputs[B]->dims.d[0] == layer->inputs[B]->dims.d[0] &&
           first->inputs[B]->dims.d[1] == layer->inputs[B]->dims.d[1];
}

/* Products that are one batch with `first`, in order. */
static trm_status join_stacked(trm_network *network, trm_analysis *analysis, trm_layer *first, int32_t *n_joined)
{
    trm_layer *layers[MOST_JOINED] = {first};
    trm_layer_desc desc;
    int32_t n = 1;
    if (!is_candidate(analysis, first, false) || !reshape_to(&first->outputs[0]->dims, &desc)) {
        return TRM_OK;
    }
    for (int32_t i = first->index + 1; i < analysis->n_layers && n < MOST_JOINED; i++) {
        trm_layer *layer = network->layers[i];
        if (is_candidate(analysis, layer, false) && stacks_with(first, layer)) {
            layers[n++] = layer;
        }
    }
    if (n == 1) {
        return TRM_OK;
    }
    TRM_TRY(stack_layers(network, layers, n));
    for (int32_t i = 0; i < n; i++) {
        analysis->touched[layers[i]->index] = true;
    }
    (*n_joined)++;
    return TRM_OK;
}

trm_status trm_pass_join_matmuls(trm_network *network, int32_t *changes)
{
    trm_analysis analysis;
    TRM_TRY(trm_analysis_init(network, &analysis));
    int32_t n_joined = 0;
    trm_status status = TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < analysis.n_layers; i++) {
        status = join_glu(network, &analysis, network->layers[i], &n_joined);
    }
    for (int32_t i = 0; status == TRM_OK && i < analysis.n_layers; i++) {
        status = join_sliced(network, &analysis, network->layers[i], &n_joined);
    }
    for (int32_t i = 0; status == TRM_OK && i < analysis.n_layers; i++) {
        status = join_stacked(network, &analysis, network->layers[i], &n_joined);
    }
    trm_analysis_fini(&analysis);
    if (status == TRM_OK && n_joined > 0) {
        TRM_TRY(trm_network_sort(network));
        TRM_TRY(trm_pass_dead_code(network, NULL));
    }
    if (changes != NULL) {
        *changes += n_joined;
    }
    return status;
}
