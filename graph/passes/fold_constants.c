/*
 * Constant folding: a layer whose inputs are all constants becomes a constant.
 *
 * If elements only move, the result is a view of the weight and nothing is read. Otherwise the layer runs here, on the
 * host's reference kernels, if its inputs and outputs are small. Simple arithmetic on refittable weights becomes a
 * weight that is computed when read.
 */
#include "graph/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/evaluate.h"
#include "graph/passes/analysis.h"
#include "graph/passes/weight_math.h"
#include "graph/regions.h"

#define LARGEST_WEIGHT_READ ((size_t)64 << 10)
#define LARGEST_RESULT      ((size_t)1 << 20)

/* Makes the output a constant; the layer is left without outputs. */
static void become_constant(trm_layer *layer, int32_t output, const void *value, trm_weight *weight)
{
    trm_tensor *tensor = layer->outputs[output];
    tensor->role = TRM_TENSOR_CONSTANT;
    tensor->producer = NULL;
    tensor->value = value;
    tensor->weight = weight;
}

/* Whether the dims that a SHAPE layer reads are known. */
static bool shape_is_known(const trm_layer *layer)
{
    int64_t n = layer->inputs[0]->dims.n, start = layer->desc.shape.start;
    start = start < 0 ? start + n : start;
    start = start < 0 ? 0 : start;
    for (int64_t i = 0; i < layer->outputs[0]->dims.d[0]; i++) {
        if (layer->inputs[0]->dims.d[start + i] < 0) {
            return false;
        }
    }
    return true;
}

/* Whether the layer makes floats of a quantized weight, which products may multiply as it is. */
static bool is_dequantized_weight(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_DEQUANTIZE && layer->inputs[0]->dtype == TRM_I8 &&
           layer->inputs[0]->dims.n >= 2;
}

static bool is_foldable(const trm_layer *layer)
{
    if (layer->n_inputs == 0 || layer->n_outputs == 0 || trm_layer_collective(&layer->desc) != NULL ||
        layer->desc.kind == TRM_LAYER_ATTENTION || layer->desc.kind == TRM_LAYER_QKV_ATTENTION ||
        layer->desc.kind == TRM_LAYER_LATENT_ATTENTION || layer->desc.kind == TRM_LAYER_RANDOM ||
        is_dequantized_weight(layer) ||
        (trm_kind_is_control(layer->desc.kind) && layer->desc.kind != TRM_LAYER_ENTER)) {
        return false;
    }
    bool is_shape = layer->desc.kind == TRM_LAYER_SHAPE && shape_is_known(layer);
    for (int32_t i = 0; !is_shape && i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL && layer->inputs[i]->role != TRM_TENSOR_CONSTANT) {
            return false;
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        if (layer->outputs[i]->is_output || layer->outputs[i]->pin != NULL) {
            return false;
        }
    }
    return true;
}

/* ---- views ------------------------------------------------------------------------------------- */

/* Whether the layer's only output comes from one weight without other readers: a second copy of a large weight in
 * device memory costs more than the layer. */
static bool may_view(const trm_analysis *analysis, const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        if (input == NULL || input->weight == NULL || trm_analysis_only_user(analysis, input) != layer) {
            return false;
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        if (!trm_dims_are_known(&layer->outputs[i]->dims)) {
            return false;
        }
    }
    return true;
}

static trm_status view_slice(const trm_layer *layer, trm_weight **view)
{
    const trm_slice_params *slice = &layer->desc.slice;
    int64_t size = layer->inputs[0]->dims.d[slice->axis];
    int64_t start = slice->start < 0 ? slice->start + size : slice->start;
    start = start < 0 ? 0 : start > size ? size : start;
    return trm_weight_slice(layer->inputs[0]->weight, slice->axis, start, layer->outputs[0]->dims.d[slice->axis], view);
}

static trm_status view_concat(const trm_layer *layer, trm_weight **view)
{
    const trm_weight *parts[TRM_MAX_LAYER_INPUTS];
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        parts[i] = layer->inputs[i]->weight;
        if (trm_weight_dtype(parts[i]) != trm_weight_dtype(parts[0])) {
            return TRM_OK;
        }
    }
    return trm_weight_concat(parts, layer->n_inputs, layer->desc.concat.axis, view);
}

/* Makes the view that equals a layer; *view stays NULL if no view does. */
static trm_status make_view(const trm_layer *layer, trm_weight **view)
{
    const trm_tensor *input = layer->inputs[0];
    switch (layer->desc.kind) {
    case TRM_LAYER_RESHAPE:
        return trm_weight_reshape(input->weight, &layer->outputs[0]->dims, view);
    case TRM_LAYER_TRANSPOSE:
        return trm_weight_transpose(input->weight, layer->desc.transpose.perm, view);
    case TRM_LAYER_SLICE:
        return layer->desc.slice.step == 1 ? view_slice(layer, view) : TRM_OK;
    case TRM_LAYER_CONCAT:
        return view_concat(layer, view);
    case TRM_LAYER_CAST: {
        /* Only if the weight is not rounded on its way into the layer. */
        bool exact = trm_weight_dtype(input->weight) == input->dtype;
        bool floats = trm_dtype_is_float(input->dtype) && trm_dtype_is_float(layer->desc.cast.to);
        return exact && floats ? trm_weight_clone(input->weight, view) : TRM_OK;
    }
    default:
        return TRM_OK;
    }
}

/* ---- weights that may change -------------------------------------------------------------------- */

/* Whether the result is small, or replaces its input. */
static bool may_compute(const trm_analysis *analysis, const trm_layer *layer)
{
    bool takes_place = true, small = true;
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        if (!trm_dims_are_known(&layer->outputs[i]->dims)) {
            return false;
        }
        small = small && trm_dims_bytes(&layer->outputs[i]->dims, layer->outputs[i]->dtype) <= LARGEST_WEIGHT_READ;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        takes_place =
            takes_place && (input == NULL || input->weight == NULL || trm_analysis_only_user(analysis, input) == layer);
    }
    return small || takes_place;
}

/* ---- running ----------------------------------------------------------------------------------- */

typedef struct folder {
    trm_network *network;
    trm_evaluator evaluator;
} folder;

/* Not a large weight, nor a refittable one. */
static bool reads_little(const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        if (input != NULL && input->weight != NULL &&
            (input->network->refittable || trm_dims_bytes(&input->dims, input->dtype) > LARGEST_WEIGHT_READ)) {
            return false;
        }
    }
    return true;
}

/* Elements of an input: those of the arena, or a copy to free in `copy`. */
static trm_status load_input(const trm_tensor *input, void **data, void **copy)
{
    if (input->weight == NULL) {
        *data = (void *)(uintptr_t)input->value; /* kernels do not write inputs */
        return TRM_OK;
    }
    size_t bytes = trm_dims_bytes(&input->dims, input->dtype);
    *copy = malloc(bytes > 0 ? bytes : 1);
    if (*copy == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory", bytes);
    }
    *data = *copy;
    return trm_weight_read(input->weight, input->dtype, 0, (size_t)trm_dims_count(&input->dims), *copy);
}

/* A layer being folded: its call, and elements to free. */
typedef struct folding {
    trm_kernel_call call;
    trm_dtype dtypes[TRM_MAX_LAYER_OUTPUTS];
    trm_dims dims[TRM_MAX_LAYER_OUTPUTS];
    void *copies[TRM_MAX_LAYER_INPUTS], *results[TRM_MAX_LAYER_OUTPUTS];
} folding;

/* The views of inputs with their elements, except for SHAPE, which does not read them. */
static trm_status load_inputs(folding *f, const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        if (input == NULL) {
            continue;
        }
        f->call.inputs[i] = (trm_view){NULL, input->dtype, input->dims};
        if (layer->desc.kind != TRM_LAYER_SHAPE) {
            TRM_TRY(load_input(input, &f->call.inputs[i].data, &f->copies[i]));
            f->call.values[i] = f->call.inputs[i].data;
        }
    }
    return TRM_OK;
}

/* Dims of the outputs from the inputs' elements; the largest for data-dependent layers. *known is false if some are
 * unknown, or not small. */
static trm_status infer_outputs(folding *f, const trm_layer *layer, bool *known)
{
    const trm_dims *input_dims[TRM_MAX_LAYER_INPUTS];
    trm_dtype input_types[TRM_MAX_LAYER_INPUTS];
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        input_dims[i] = layer->inputs[i] == NULL ? NULL : &layer->inputs[i]->dims;
        input_types[i] = layer->inputs[i] == NULL ? TRM_DTYPE_NONE : layer->inputs[i]->dtype;
    }
    TRM_TRY(trm_infer_layer(&layer->desc, layer->n_inputs, input_dims, input_types, f->call.values, layer->n_outputs,
                            f->dims, f->dtypes));
    if (trm_layer_is_data_dependent(&layer->desc)) {
        trm_layer_set_count(&layer->desc, trm_layer_largest_count(&layer->desc, input_dims), f->dims);
    }
    *known = true;
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        *known =
            *known && trm_dims_are_known(&f->dims[i]) && trm_dims_bytes(&f->dims[i], f->dtypes[i]) <= LARGEST_RESULT;
    }
    return TRM_OK;
}

static trm_status allocate_outputs(folding *f, const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        size_t bytes = trm_dims_bytes(&f->dims[i], f->dtypes[i]);
        f->results[i] = malloc(bytes > 0 ? bytes : 1);
        if (f->results[i] == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory", bytes);
        }
        f->call.outputs[i] = (trm_view){f->results[i], f->dtypes[i], f->dims[i]};
    }
    return TRM_OK;
}

/* Copies the results into the arena, with their actual dims. */
static trm_status keep_outputs(folder *self, folding *f, trm_layer *layer)
{
    const void *values[TRM_MAX_LAYER_OUTPUTS];
    if (trm_layer_is_data_dependent(&layer->desc)) {
        trm_layer_set_count(&layer->desc, *(const int64_t *)f->results[layer->n_outputs - 1], f->dims);
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        size_t bytes = trm_dims_bytes(&f->dims[i], f->dtypes[i]);
        void *value = trm_arena_alloc(&self->network->arena, bytes > 0 ? bytes : 1);
        if (value == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        values[i] = memcpy(value, f->results[i], bytes);
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        layer->outputs[i]->dims = f->dims[i];
        become_constant(layer, i, values[i], NULL);
    }
    return TRM_OK;
}

/* Runs a layer of constants. *folded stays false if no kernel accepts it, or its outputs are large. */
static trm_status run_layer(folder *self, trm_layer *layer, bool *folded)
{
    folding f = {.call = {.layer = &layer->desc, .n_inputs = layer->n_inputs, .n_outputs = layer->n_outputs}};
    trm_status status;
    bool known, ran = false;
    TRM_TRY_GOTO(status, load_inputs(&f, layer), free_copies);
    TRM_TRY_GOTO(status, infer_outputs(&f, layer, &known), free_copies);
    if (known) {
        TRM_TRY_GOTO(status, allocate_outputs(&f, layer), free_copies);
        TRM_TRY_GOTO(status, trm_evaluator_run(&self->evaluator, &f.call, &ran), free_copies);
    }
    if (ran) {
        TRM_TRY_GOTO(status, keep_outputs(self, &f, layer), free_copies);
        *folded = true;
    }
free_copies:
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        free(f.copies[i]);
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        free(f.results[i]);
    }
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "folding layer %s", layer->name);
}

/* ---- the pass ---------------------------------------------------------------------------------- */

static trm_status fold_layer(folder *self, const trm_analysis *analysis, trm_layer *layer, bool *folded)
{
    if (may_view(analysis, layer)) {
        trm_weight *view = NULL;
        trm_status status = make_view(layer, &view);
        if (status != TRM_OK) {
            return trm_fail_in(status, "folding layer %s", layer->name);
        }
        if (view != NULL) {
            become_constant(layer, 0, NULL, view);
            *folded = true;
            return TRM_OK;
        }
    }
    if (self->network->refittable && may_compute(analysis, layer)) {
        trm_weight *computed;
        const trm_status status = trm_weight_math_of_layer(layer, &computed);
        if (status != TRM_OK) {
            return trm_fail_in(status, "folding layer %s", layer->name);
        }
        if (computed != NULL) {
            become_constant(layer, 0, NULL, computed);
            *folded = true;
            return TRM_OK;
        }
    }
    return reads_little(layer) ? run_layer(self, layer, folded) : TRM_OK;
}

trm_status trm_fold_last_layer(trm_network *network, trm_device *device, trm_stream *stream, bool *folded)
{
    trm_layer *layer = network->layers[network->n_layers - 1];
    folder self = {.network = network, .evaluator = {.device = device, .stream = stream}};
    *folded = false;
    if (!is_foldable(layer) || !reads_little(layer)) {
        return TRM_OK;
    }
    trm_status status = run_layer(&self, layer, folded);
    trm_device_free(device, self.evaluator.workspace);
    if (*folded) { /* its tensors stay where they are, as constants */
        network->n_layers--;
    }
    return status;
}

trm_status trm_pass_fold_constants(trm_network *network, int32_t *changes)
{
    folder self = {.network = network};
    trm_analysis analysis;
    TRM_TRY(trm_analysis_init(network, &analysis));
    bool *remove = calloc((size_t)network->n_layers + 1, sizeof(*remove));
    trm_status status = TRM_OK;
    int32_t n_folded = 0;
    if (remove == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot fold a network of %d layers", network->n_layers);
    }
    for (int32_t i = 0; status == TRM_OK && i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        bool folded = false;
        if (is_foldable(layer)) {
            status = fold_layer(&self, &analysis, layer, &folded);
        }
        if (folded) {
            layer->n_outputs = 0;
            remove[i] = true;
            n_folded++;
        }
    }
    if (n_folded > 0) { /* also after a failure: layers without outputs must not stay */
        trm_network_remove_layers(network, remove);
    }
    if (changes != NULL) {
        *changes += n_folded;
    }
    free(remove);
    trm_evaluator_fini(&self.evaluator);
    trm_analysis_fini(&analysis);
    return status;
}
