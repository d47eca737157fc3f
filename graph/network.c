/*
 * The network: tensors and layers in one arena, and their names.
 *
 * Edits by passes are in network_edit.c, shape and type rules in infer*.c, text in dump.c, calls that only fill in a
 * desc in layers.c.
 */
#include "graph/network.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"
#include "graph/params.h"
#include "graph/infer.h"

/* ---- growing ----------------------------------------------------------------------------------- */

/* Makes room for one more pointer in an array of the arena. */
static trm_status reserve(trm_arena *arena, void ***items, int32_t n, int32_t *capacity, int32_t more)
{
    if (n > INT32_MAX / 2 - more) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "a network has at most %d tensors or layers", INT32_MAX / 2);
    }
    if (n + more <= *capacity) {
        return TRM_OK;
    }
    int32_t wanted = *capacity == 0 ? 16 : *capacity * 2;
    wanted = wanted < n + more ? n + more : wanted;
    void **grown = trm_arena_array(arena, (size_t)wanted, sizeof(*grown));
    if (grown == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (n > 0) {
        memcpy(grown, *items, (size_t)n * sizeof(*grown));
    }
    *items = grown;
    *capacity = wanted;
    return TRM_OK;
}

static trm_status reserve_tensors(trm_network *network, int32_t more)
{
    return reserve(&network->arena, (void ***)&network->tensors, network->n_tensors, &network->tensor_capacity, more);
}

static trm_status reserve_layers(trm_network *network)
{
    return reserve(&network->arena, (void ***)&network->layers, network->n_layers, &network->layer_capacity, 1);
}

static trm_status reserve_outputs(trm_network *network)
{
    return reserve(&network->arena, (void ***)&network->outputs, network->n_outputs, &network->output_capacity, 1);
}

/* ---- names ------------------------------------------------------------------------------------- */

/* Adds a name unless it exists. If memory is out, names are from then on looked up one by one. */
static void index_name(trm_network *network, const char *name, uint32_t value)
{
    bool existing;
    if (network->names_known && trm_map_add(&network->names, name, strlen(name), value, &existing) != TRM_OK) {
        network->names_known = false;
    }
}

void trm_network_index_names(trm_network *network)
{
    trm_map_fini(&network->names);
    network->names_known = true; /* tensors come before the layers that share their names */
    for (int32_t i = 0; i < network->n_tensors; i++) {
        index_name(network, network->tensors[i]->name, (uint32_t)i);
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        index_name(network, network->layers[i]->name, TRM_NO_TENSOR);
    }
}

static trm_tensor *find_tensor(const trm_network *network, const char *name)
{
    if (network->names_known) {
        uint32_t index;
        bool found = trm_map_find(&network->names, name, strlen(name), &index) && index != TRM_NO_TENSOR;
        return found ? network->tensors[index] : NULL;
    }
    for (int32_t i = network->n_tensors; i-- > 0;) {
        if (strcmp(network->tensors[i]->name, name) == 0) {
            return network->tensors[i];
        }
    }
    return NULL;
}

static bool name_is_taken(const trm_network *network, const char *name)
{
    if (network->names_known) {
        return trm_map_find(&network->names, name, strlen(name), NULL);
    }
    bool taken = find_tensor(network, name) != NULL;
    for (int32_t i = 0; i < network->n_layers; i++) {
        taken = taken || strcmp(network->layers[i]->name, name) == 0;
    }
    return taken;
}

/* Returns a copy of `name` in the arena, with ".1", ".2", ... if a tensor or layer has it; NULL if memory is out. */
static const char *unique_name(trm_network *network, const char *name)
{
    if (!name_is_taken(network, name)) {
        return trm_arena_strdup(&network->arena, name);
    }
    size_t size = strlen(name) + 16;
    char *candidate = trm_arena_alloc(&network->arena, size);
    if (candidate == NULL) {
        return NULL;
    }
    /* Numbers are used in order, so doubling and bisection find the first free one. */
    int32_t taken = 0, step = 1;
    for (bool doubling = true; step > 0; step = doubling ? step * 2 : step / 2) {
        snprintf(candidate, size, "%s.%" PRId32, name, taken + step);
        if (name_is_taken(network, candidate)) {
            taken += step;
        } else {
            doubling = false;
        }
    }
    snprintf(candidate, size, "%s.%" PRId32, name, taken + 1);
    return candidate;
}

/* ---- tensors ----------------------------------------------------------------------------------- */

/* A tensor that is not in the network yet. */
static trm_tensor *new_tensor(trm_network *network, const char *name, trm_tensor_role role, trm_dtype dtype,
                              trm_dims dims)
{
    trm_tensor *tensor = trm_arena_alloc(&network->arena, sizeof(*tensor));
    if (tensor == NULL) {
        return NULL;
    }
    for (int32_t i = dims.n; i < TRM_MAX_DIMS; i++) {
        dims.d[i] = 0;
    }
    *tensor = (trm_tensor){.network = network, .role = role, .dtype = dtype, .dims = dims};
    tensor->name = unique_name(network, name);
    if (tensor->name == NULL) {
        return NULL;
    }
    return tensor;
}

/* Room for it was reserved. */
static void append_tensor(trm_network *network, trm_tensor *tensor)
{
    tensor->index = network->n_tensors;
    network->tensors[network->n_tensors++] = tensor;
    index_name(network, tensor->name, (uint32_t)tensor->index);
}

static trm_status check_new_tensor(const char *what, const char *name, trm_dtype dtype, const trm_dims *dims,
                                   bool unknown_allowed)
{
    if (trm_dtype_size(dtype) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s %s has type %s (%d), expected an element type", what, name,
                 trm_dtype_name(dtype), (int)dtype);
    }
    trm_status status = trm_dims_check(dims, dtype, unknown_allowed);
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "%s %s", what, name);
}

static trm_status add_tensor(trm_network *network, const char *what, const char *name, trm_tensor_role role,
                             trm_dtype dtype, trm_dims dims, trm_tensor **tensor)
{
    if (network == NULL || tensor == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot add %s: network or tensor is NULL", what);
    }
    name = name == NULL || name[0] == '\0' ? what : name;
    TRM_TRY(check_new_tensor(what, name, dtype, &dims, role != TRM_TENSOR_CONSTANT));
    TRM_TRY(reserve_tensors(network, 1));
    trm_tensor *added = new_tensor(network, name, role, dtype, dims);
    if (added == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    append_tensor(network, added);
    *tensor = added;
    return TRM_OK;
}

TRM_CALL(NULL, trm_network_add_input,
         (trm_network *network, const char *name, trm_dtype dtype, trm_dims dims, trm_tensor **tensor),
         (network, name, dtype, dims, tensor))
{
    return add_tensor(network, "input", name, TRM_TENSOR_INPUT, dtype, dims, tensor);
}

TRM_CALL(NULL, trm_network_add_state,
         (trm_network *network, const char *name, trm_dtype dtype, trm_dims dims, trm_tensor **tensor),
         (network, name, dtype, dims, tensor))
{
    return add_tensor(network, "state", name, TRM_TENSOR_STATE, dtype, dims, tensor);
}

TRM_CALL(NULL, trm_network_add_constant,
         (trm_network *network, const char *name, trm_dtype dtype, trm_dims dims, const void *data,
          trm_tensor **tensor),
         (network, name, dtype, dims, data, tensor))
{
    if (network == NULL || tensor == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot add constant: network or tensor is NULL");
    }
    TRM_TRY(check_new_tensor("constant", name == NULL ? "" : name, dtype, &dims, false));
    size_t bytes = trm_dims_bytes(&dims, dtype);
    if (data == NULL && bytes > 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "constant %s has no data, expected %zu bytes", name == NULL ? "" : name,
                 bytes);
    }
    void *value = trm_arena_alloc(&network->arena, bytes);
    if (value == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (bytes > 0) {
        memcpy(value, data, bytes);
    }
    trm_tensor *added;
    TRM_TRY(add_tensor(network, "constant", name, TRM_TENSOR_CONSTANT, dtype, dims, &added));
    added->value = value;
    *tensor = added;
    return TRM_OK;
}

trm_status trm_network_add_weight(trm_network *network, const char *name, trm_weight *weight, trm_dtype dtype,
                                  trm_tensor **tensor)
{
    if (weight == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "constant %s has no weight", name == NULL ? "" : name);
    }
    trm_status status = TRM_OK;
    trm_dtype stored = trm_weight_dtype(weight);
    if (stored != dtype && !(trm_dtype_is_float(stored) && trm_dtype_is_float(dtype))) {
        status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "constant %s is stored as %s, cannot be read as %s",
                          name == NULL ? "" : name, trm_dtype_name(stored), trm_dtype_name(dtype));
    }
    trm_tensor *added = NULL;
    if (status == TRM_OK) {
        status = add_tensor(network, "constant", name, TRM_TENSOR_CONSTANT, dtype, trm_weight_dims(weight), &added);
    }
    if (status != TRM_OK) {
        trm_weight_destroy(weight);
        return status;
    }
    added->weight = weight;
    *tensor = added;
    return TRM_OK;
}

/* ---- layers ------------------------------------------------------------------------------------ */

static trm_status check_layer_inputs(const trm_network *network, const char *name, trm_tensor *const *inputs,
                                     int32_t n_inputs)
{
    if (n_inputs < 0 || n_inputs > TRM_MAX_LAYER_INPUTS || (n_inputs > 0 && inputs == NULL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "layer %s has %" PRId32 " inputs, expected 1 to %d", name, n_inputs,
                 TRM_MAX_LAYER_INPUTS);
    }
    for (int32_t i = 0; i < n_inputs; i++) {
        if (inputs[i] != NULL && inputs[i]->network != network) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "layer %s reads tensor %s, which belongs to another network", name,
                     inputs[i]->name);
        }
    }
    return TRM_OK;
}

/* Runs the rule of a layer on its inputs' dims in the network. */
static trm_status infer_declared(const char *name, const trm_layer_desc *desc, trm_tensor *const *inputs,
                                 int32_t n_inputs, int32_t n_outputs, trm_dims *dims, trm_dtype *dtypes)
{
    const trm_dims *input_dims[TRM_MAX_LAYER_INPUTS];
    trm_dtype input_types[TRM_MAX_LAYER_INPUTS];
    const void *input_values[TRM_MAX_LAYER_INPUTS];
    for (int32_t i = 0; i < n_inputs; i++) {
        input_dims[i] = inputs[i] == NULL ? NULL : &inputs[i]->dims;
        input_values[i] = inputs[i] == NULL ? NULL : inputs[i]->value;
        input_types[i] = inputs[i] == NULL ? TRM_DTYPE_NONE : inputs[i]->dtype;
    }
    trm_status status = trm_infer_layer(desc, n_inputs, input_dims, input_types, input_values, n_outputs, dims, dtypes);
    if (status == TRM_OK) {
        status = trm_layer_check_fields(desc);
    }
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "%s %s", trm_layer_kind_name(desc->kind), name);
}

/* A layer and its outputs, none of them in the network yet. */
static trm_layer *new_layer(trm_network *network, const char *name, const trm_layer_desc *desc, int32_t n_outputs,
                            const trm_dims *dims, const trm_dtype *dtypes)
{
    trm_layer *layer = trm_arena_alloc(&network->arena, sizeof(*layer));
    if (layer == NULL) {
        return NULL;
    }
    layer->desc = *desc;
    layer->n_outputs = n_outputs;
    for (int32_t i = 0; i < n_outputs; i++) {
        const char *output_name =
            i == 0 ? name : trm_arena_printf(&network->arena, "%s:%" PRId32, layer->outputs[0]->name, i);
        trm_tensor *output =
            output_name == NULL ? NULL : new_tensor(network, output_name, TRM_TENSOR_ACTIVATION, dtypes[i], dims[i]);
        if (output == NULL) {
            return NULL;
        }
        output->producer = layer;
        layer->outputs[i] = output;
    }
    layer->name = layer->outputs[0]->name; /* no layer has it either: unique_name() checked both */
    return layer;
}

TRM_CALL(NULL, trm_network_add_layer,
         (trm_network *network, const char *name, const trm_layer_desc *desc, trm_tensor *const *inputs,
          int32_t n_inputs, trm_tensor **outputs),
         (network, name, desc, inputs, n_inputs, outputs))
{
    if (network == NULL || desc == NULL || outputs == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot add a layer: network, desc or outputs is NULL");
    }
    name = name == NULL || name[0] == '\0' ? trm_layer_kind_name(desc->kind) : name;
    TRM_TRY(check_layer_inputs(network, name, inputs, n_inputs));
    while (n_inputs > 0 && inputs[n_inputs - 1] == NULL) {
        n_inputs--;
    }
    int32_t n_outputs = trm_layer_output_count(desc);
    trm_dims dims[TRM_MAX_LAYER_OUTPUTS];
    trm_dtype dtypes[TRM_MAX_LAYER_OUTPUTS];
    TRM_TRY(infer_declared(name, desc, inputs, n_inputs, n_outputs, dims, dtypes));
    TRM_TRY(reserve_tensors(network, n_outputs));
    TRM_TRY(reserve_layers(network));
    trm_layer *layer = new_layer(network, name, desc, n_outputs, dims, dtypes);
    if (layer == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    layer->n_inputs = n_inputs;
    for (int32_t i = 0; i < n_inputs; i++) {
        layer->inputs[i] = inputs[i];
    }
    if (n_inputs > 0) {
        trm_layer_normalize(&layer->desc, &inputs[0]->dims);
    }
    layer->index = network->n_layers;
    network->layers[network->n_layers++] = layer;
    for (int32_t i = 0; i < n_outputs; i++) {
        append_tensor(network, layer->outputs[i]);
        outputs[i] = layer->outputs[i];
    }
    return TRM_OK;
}

trm_status trm_network_restore_output(trm_network *network, const char *name, trm_dtype dtype, trm_dims dims,
                                      trm_tensor **tensor)
{
    return add_tensor(network, "tensor", name, TRM_TENSOR_ACTIVATION, dtype, dims, tensor);
}

/* Checks outputs against the layer's rule: dims that both know must be equal. */
static trm_status check_outputs(const char *name, trm_tensor *const *outputs, int32_t n, const trm_dims *dims,
                                const trm_dtype *dtypes)
{
    for (int32_t i = 0; i < n; i++) {
        const trm_tensor *output = outputs[i];
        bool fits = output->role == TRM_TENSOR_ACTIVATION && output->producer == NULL && output->dtype == dtypes[i] &&
                    output->dims.n == dims[i].n;
        for (int32_t k = 0; k < i; k++) {
            fits = fits && outputs[k] != output;
        }
        for (int32_t k = 0; fits && k < dims[i].n; k++) {
            fits = trm_dim_fits(output->dims.d[k], dims[i].d[k]);
        }
        if (!fits) {
            char found[TRM_DIMS_TEXT_SIZE], expected[TRM_DIMS_TEXT_SIZE];
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "output %s of layer %s is %s %s, expected a new tensor, %s %s",
                     output->name, name, trm_dtype_name(output->dtype), trm_dims_format(&output->dims, found),
                     trm_dtype_name(dtypes[i]), trm_dims_format(&dims[i], expected));
        }
    }
    return TRM_OK;
}

trm_status trm_network_restore_layer(trm_network *network, const char *name, const trm_layer_desc *desc,
                                     trm_tensor *const *inputs, int32_t n_inputs, trm_tensor *const *outputs,
                                     int32_t n_outputs)
{
    trm_dims dims[TRM_MAX_LAYER_OUTPUTS];
    trm_dtype dtypes[TRM_MAX_LAYER_OUTPUTS];
    TRM_TRY(check_layer_inputs(network, name, inputs, n_inputs));
    if ((n_inputs > 0 && inputs[n_inputs - 1] == NULL) || n_outputs != trm_layer_output_count(desc)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "layer %s has %" PRId32 " outputs, expected %" PRId32, name, n_outputs,
                 trm_layer_output_count(desc));
    }
    for (int32_t i = 0; i < n_inputs; i++) {
        if (inputs[i] != NULL && inputs[i]->role == TRM_TENSOR_ACTIVATION && inputs[i]->producer == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "layer %s reads %s before a layer makes it", name, inputs[i]->name);
        }
    }
    TRM_TRY(infer_declared(name, desc, inputs, n_inputs, n_outputs, dims, dtypes));
    TRM_TRY(check_outputs(name, outputs, n_outputs, dims, dtypes));
    TRM_TRY(reserve_layers(network));
    trm_layer *layer = trm_arena_alloc(&network->arena, sizeof(*layer));
    const char *copy = trm_arena_strdup(&network->arena, name);
    if (layer == NULL || copy == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *layer = (trm_layer){.name = copy, .desc = *desc, .n_inputs = n_inputs, .n_outputs = n_outputs};
    for (int32_t i = 0; i < n_inputs; i++) {
        layer->inputs[i] = inputs[i];
    }
    if (n_inputs > 0 && inputs[0] != NULL) {
        trm_layer_normalize(&layer->desc, &inputs[0]->dims);
    }
    for (int32_t i = 0; i < n_outputs; i++) {
        layer->outputs[i] = outputs[i];
        outputs[i]->producer = layer;
    }
    layer->index = network->n_layers;
    network->layers[network->n_layers++] = layer;
    index_name(network, layer->name, TRM_NO_TENSOR);
    return TRM_OK;
}

/* ---- marks ------------------------------------------------------------------------------------- */

static trm_status check_member(const trm_network *network, const trm_tensor *tensor, const char *what)
{
    if (network == NULL || tensor == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot %s: network or tensor is NULL", what);
    }
    if (tensor->network != network) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot %s %s: it belongs to another network", what, tensor->name);
    }
    return TRM_OK;
}

TRM_CALL(NULL, trm_network_mark_output, (trm_network *network, trm_tensor *tensor), (network, tensor))
{
    TRM_TRY(check_member(network, tensor, "mark output"));
    if (tensor->role == TRM_TENSOR_STATE) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot mark output %s: it is a state, expected another tensor",
                 tensor->name);
    }
    if (tensor->is_output) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot mark output %s: it is already an output", tensor->name);
    }
    TRM_TRY(reserve_outputs(network));
    tensor->is_output = true;
    network->outputs[network->n_outputs++] = tensor;
    return TRM_OK;
}

TRM_CALL(NULL, trm_network_pin, (trm_network *network, trm_tensor *tensor, const char *sharding),
         (network, tensor, sharding))
{
    TRM_TRY(check_member(network, tensor, "pin"));
    if (sharding == NULL) {
        tensor->pin = NULL;
        return TRM_OK;
    }
    if (strcmp(sharding, "replicate") == 0) {
        tensor->pin = "replicate";
        return TRM_OK;
    }
    int axis, used = 0;
    if (sscanf(sharding, "split %d%n", &axis, &used) != 1 || sharding[used] != '\0') {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "pin of %s is \"%s\", expected \"replicate\" or \"split <axis>\"",
                 tensor->name, sharding);
    }
    int32_t rank = tensor->dims.n;
    if (axis < -rank || axis >= rank) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "pin of %s splits axis %d, expected an axis of %" PRId32 " dimensions",
                 tensor->name, axis, rank);
    }
    const char *pin = trm_arena_printf(&network->arena, "split %d", axis < 0 ? axis + rank : axis);
    if (pin == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    tensor->pin = pin;
    return TRM_OK;
}

/* ---- reading ----------------------------------------------------------------------------------- */

trm_tensor *trm_network_find_tensor(const trm_network *network, const char *name)
{
    return network == NULL || name == NULL ? NULL : find_tensor(network, name);
}

int32_t trm_network_input_count(const trm_network *network)
{
    int32_t count = 0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        count += network->tensors[i]->role == TRM_TENSOR_INPUT;
    }
    return count;
}

trm_tensor *trm_network_input(const trm_network *network, int32_t index)
{
    for (int32_t i = 0; i < network->n_tensors; i++) {
        if (network->tensors[i]->role == TRM_TENSOR_INPUT && index-- == 0) {
            return network->tensors[i];
        }
    }
    return NULL;
}

int32_t trm_network_output_count(const trm_network *network)
{
    return network->n_outputs;
}

trm_tensor *trm_network_output(const trm_network *network, int32_t index)
{
    return index >= 0 && index < network->n_outputs ? network->outputs[index] : NULL;
}

int32_t trm_network_layer_count(const trm_network *network)
{
    return network->n_layers;
}

const char *trm_tensor_name(const trm_tensor *tensor)
{
    return tensor->name;
}

trm_dtype trm_tensor_dtype(const trm_tensor *tensor)
{
    return tensor->dtype;
}

trm_dims trm_tensor_dims(const trm_tensor *tensor)
{
    return tensor->dims;
}

int32_t trm_network_consumers(const trm_network *network, const trm_tensor *tensor, trm_layer **layers,
                              int32_t capacity)
{
    int32_t count = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        bool reads = false;
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            reads = reads || layer->inputs[j] == tensor;
        }
        if (reads) {
            if (count < capacity) {
                layers[count] = layer;
            }
            count++;
        }
    }
    return count;
}

/* ---- life -------------------------------------------------------------------------------------- */

TRM_CALL(NULL, trm_network_create, (trm_network **network), (network))
{
    if (network == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot create a network: network is NULL");
    }
    trm_network *created = calloc(1, sizeof(*created));
    if (created == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory", sizeof(*created));
    }
    created->names_known = true;
    *network = created;
    return TRM_OK;
}

void trm_network_destroy(trm_network *network)
{
    if (network == NULL) {
        return;
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        trm_weight_destroy(network->tensors[i]->weight);
    }
    for (int32_t i = 0; i < network->n_deciding; i++) {
        trm_weight_destroy(network->deciding[i]);
    }
    free(network->deciding);
    trm_map_fini(&network->names);
    trm_map_fini(&network->dim_names);
    trm_arena_fini(&network->arena);
    free(network);
}

trm_status trm_network_note_deciding(trm_network *network, const trm_weight *weight)
{
    if (network->n_deciding == network->deciding_capacity) {
        const int32_t capacity = 2 * network->deciding_capacity + 8;
        trm_weight **grown = realloc(network->deciding, (size_t)capacity * sizeof(*grown));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d weights", capacity);
        }
        network->deciding = grown;
        network->deciding_capacity = capacity;
    }
    TRM_TRY(trm_weight_clone(weight, &network->deciding[network->n_deciding]));
    network->n_deciding++;
    return TRM_OK;
}

trm_status trm_network_copy_deciding(trm_network *network, const trm_network *from)
{
    for (int32_t i = 0; i < from->n_deciding; i++) {
        TRM_TRY(trm_network_note_deciding(network, from->deciding[i]));
    }
    return TRM_OK;
}

static trm_status clone_tensor(trm_network *copy, const trm_tensor *from)
{
    TRM_TRY(reserve_tensors(copy, 1));
    trm_tensor *tensor = trm_arena_alloc(&copy->arena, sizeof(*tensor));
    const char *name = trm_arena_strdup(&copy->arena, from->name);
    const char *pin = from->pin == NULL ? NULL : trm_arena_strdup(&copy->arena, from->pin);
    const char *of = from->part.of == NULL ? NULL : trm_arena_strdup(&copy->arena, from->part.of);
    if (tensor == NULL || name == NULL || (from->pin != NULL && pin == NULL) || (from->part.of != NULL && of == NULL)) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *tensor = *from;
    tensor->network = copy;
    tensor->name = name;
    tensor->dim_names = NULL;
    tensor->pin = pin;
    tensor->part.of = of;
    tensor->producer = NULL;
    tensor->value = NULL;
    tensor->weight = NULL;
    if (from->value != NULL) {
        size_t bytes = trm_dims_bytes(&from->dims, from->dtype);
        void *value = trm_arena_alloc(&copy->arena, bytes);
        if (value == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        tensor->value = memcpy(value, from->value, bytes);
    }
    if (from->weight != NULL) {
        TRM_TRY(trm_weight_clone(from->weight, &tensor->weight));
    }
    append_tensor(copy, tensor);
    return TRM_OK;
}

static trm_status clone_layer(trm_network *copy, const trm_layer *from)
{
    TRM_TRY(reserve_layers(copy));
    trm_layer *layer = trm_arena_alloc(&copy->arena, sizeof(*layer));
    const char *name = trm_arena_strdup(&copy->arena, from->name);
    if (layer == NULL || name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *layer = *from;
    layer->name = name;
    for (int32_t i = 0; i < from->n_inputs; i++) {
        layer->inputs[i] = from->inputs[i] == NULL ? NULL : copy->tensors[from->inputs[i]->index];
    }
    for (int32_t i = 0; i < from->n_outputs; i++) {
        layer->outputs[i] = copy->tensors[from->outputs[i]->index];
        layer->outputs[i]->producer = layer;
    }
    copy->layers[copy->n_layers++] = layer;
    index_name(copy, layer->name, TRM_NO_TENSOR);
    return TRM_OK;
}

trm_status trm_network_clone(const trm_network *network, trm_network **copy)
{
    trm_network *made;
    TRM_TRY(trm_network_create(&made));
    made->refittable = network->refittable;
    trm_status status = trm_network_copy_deciding(made, network);
    for (int32_t i = 0; i < network->n_tensors && status == TRM_OK; i++) {
        status = clone_tensor(made, network->tensors[i]);
    }
    for (int32_t i = 0; i < network->n_named_dims && status == TRM_OK; i++) {
        const trm_named_dim *dim = &network->named_dims[i];
        status = trm_network_name_dim(made, made->tensors[dim->input->index], dim->axis, dim->name);
    }
    for (int32_t i = 0; i < network->n_layers && status == TRM_OK; i++) {
        status = clone_layer(made, network->layers[i]);
    }
    for (int32_t i = 0; i < network->n_outputs && status == TRM_OK; i++) {
        status = reserve_outputs(made);
        if (status == TRM_OK) {
            made->outputs[made->n_outputs++] = made->tensors[network->outputs[i]->index];
        }
    }
    if (status != TRM_OK) {
        trm_network_destroy(made);
        return status;
    }
    *copy = made;
    return TRM_OK;
}

bool trm_network_get_layer(const trm_network *network, int32_t index, trm_layer_info *info)
{
    if (network == NULL || info == NULL || index < 0 || index >= network->n_layers) {
        return false;
    }
    const trm_layer *layer = network->layers[index];
    *info = (trm_layer_info){
        .name = layer->name, .desc = &layer->desc, .n_inputs = layer->n_inputs, .n_outputs = layer->n_outputs};
    memcpy(info->inputs, layer->inputs, sizeof(info->inputs));
    memcpy(info->outputs, layer->outputs, sizeof(info->outputs));
    return true;
}

const char *trm_part_kind_name(trm_part_kind kind)
{
    static const char *const names[] = {"unknown", "whole", "split", "summand"};
    return (unsigned)kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "invalid";
}

void trm_free(void *memory)
{
    free(memory);
}
