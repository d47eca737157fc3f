/* Inputs and outputs of the network: their types and dims, values that the caller fixed, and the names of outputs. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "graph/import/onnx/import.h"

/* The values a caller fixed for an input: how many, *first being where they begin; -1: none. */
static int32_t find_fixed(const trm_onnx_options *options, const char *name, int32_t *first)
{
    int32_t count = -1;
    for (int32_t i = options->n_values; i-- > 0;) {
        if (strcmp(options->values[i].input, name) == 0) {
            *first = i;
            count = (count < 0 ? 0 : count) + (options->values[i].dtype != TRM_DTYPE_NONE);
        }
    }
    return count;
}

static trm_status add_fixed(trm_onnx_import *import, const trm_onnx_fixed_value *fixed, trm_onnx_value **value)
{
    *value = trm_onnx_import_value(import, TRM_ONNX_VALUE_TENSOR);
    if (*value == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    return trm_network_add_constant(import->network, fixed->input, fixed->dtype, fixed->dims, fixed->data,
                                    &(*value)->tensor);
}

static trm_status make_fixed(trm_onnx_import *import, const Onnx__ValueInfoProto *info, int32_t first, int32_t count,
                             trm_onnx_value **value)
{
    const trm_onnx_options *options = import->options;
    const Onnx__TypeProto *type = info->type;
    while (type != NULL && type->optional_type != NULL) {
        type = type->optional_type->elem_type;
        if (count == 0 && (type == NULL || type->sequence_type == NULL)) {
            *value = trm_onnx_import_value(import, TRM_ONNX_VALUE_NONE);
            return *value == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
        }
    }
    if (type == NULL || type->sequence_type == NULL) {
        if (count != 1) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s is given %d values, expected one", info->name, (int)count);
        }
        return add_fixed(import, &options->values[first], value);
    }
    *value = trm_onnx_import_value(import, TRM_ONNX_VALUE_SEQUENCE);
    if (*value == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    (*value)->items = trm_arena_array(&import->arena, (size_t)count, sizeof(trm_onnx_value *));
    if ((*value)->items == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = first; i < options->n_values && (*value)->n_items < count; i++) {
        if (strcmp(options->values[i].input, info->name) == 0 && options->values[i].dtype != TRM_DTYPE_NONE) {
            TRM_TRY(add_fixed(import, &options->values[i], &(*value)->items[(*value)->n_items]));
            (*value)->n_items++;
        }
    }
    return TRM_OK;
}

static int64_t dim_value(const trm_onnx_options *options, const Onnx__TensorShapeProto__Dimension *dim)
{
    if (dim->has_dim_value) {
        return dim->dim_value;
    }
    for (int32_t i = 0; i < options->n_dims; i++) {
        if (strcmp(options->dims[i].name, trm_onnx_text(dim->dim_param)) == 0) {
            return options->dims[i].value;
        }
    }
    return -1;
}

/* The dims that the file declares, with their names: "[batch, 4]"; text [TRM_DIMS_TEXT_SIZE]. */
static const char *declared_dims(const trm_onnx_options *options, const Onnx__TensorShapeProto *shape, char *text)
{
    size_t used = (size_t)snprintf(text, TRM_DIMS_TEXT_SIZE, "[");
    for (size_t i = 0; i < shape->n_dim && used < TRM_DIMS_TEXT_SIZE; i++) {
        const int64_t value = dim_value(options, shape->dim[i]);
        const char *gap = i == 0 ? "" : ", ", *name = trm_onnx_text(shape->dim[i]->dim_param);
        used += value >= 0 ? (size_t)snprintf(text + used, TRM_DIMS_TEXT_SIZE - used, "%s%lld", gap, (long long)value)
                           : (size_t)snprintf(text + used, TRM_DIMS_TEXT_SIZE - used, "%s%s", gap,
                                              name[0] == '\0' ? "?" : name);
    }
    if (used < TRM_DIMS_TEXT_SIZE) {
        snprintf(text + used, TRM_DIMS_TEXT_SIZE - used, "]");
    }
    return text;
}

/* Dims of an input: those the caller gives, else those the file declares. */
static trm_status input_dims(const trm_onnx_options *options, const char *name, const Onnx__TypeProto__Tensor *type,
                             trm_dims *dims)
{
    const Onnx__TensorShapeProto *shape = type->shape;
    for (int32_t i = 0; i < options->n_inputs; i++) {
        if (strcmp(options->inputs[i].input, name) == 0) {
            const trm_dims *given = &options->inputs[i].dims;
            bool fits = shape == NULL || shape->n_dim == (size_t)given->n;
            for (int32_t k = 0; fits && shape != NULL && k < given->n; k++) {
                int64_t declared = dim_value(options, shape->dim[k]);
                if (shape->dim[k]->has_dim_value && declared >= 0 && given->d[k] < 0) {
                    /* the file may count on it anywhere */
                    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                             "dimension %d of input %s is %lld in the model and cannot differ from run to run: export "
                             "the model with this dimension open",
                             (int)k, name, (long long)declared);
                }
                fits = declared < 0 || given->d[k] < 0 || declared == given->d[k];
            }
            if (!fits) {
                char found[TRM_DIMS_TEXT_SIZE], expected[TRM_DIMS_TEXT_SIZE];
                TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s is given dims %s, expected %s as in the model", name,
                         trm_dims_format(given, found), declared_dims(options, shape, expected));
            }
            *dims = *given;
            return TRM_OK;
        }
    }
    if (shape == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the model does not say how many dimensions input %s has: set its dims", name);
    }
    if (shape->n_dim > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "input %s has %zu dimensions, at most %d are supported", name, shape->n_dim,
                 TRM_MAX_DIMS);
    }
    *dims = (trm_dims){.n = (int32_t)shape->n_dim};
    for (int32_t i = 0; i < dims->n; i++) {
        dims->d[i] = dim_value(options, shape->dim[i]);
        if (dims->d[i] < -1) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "input %s has dimension %lld, expected none below 0", name,
                     (long long)dims->d[i]);
        }
    }
    return TRM_OK;
}

/* The type that the caller gives a port, or the model's. */
static trm_dtype port_type(const trm_onnx_options *options, const char *name, trm_dtype dtype)
{
    for (int32_t i = 0; i < options->n_types; i++) {
        dtype = strcmp(options->types[i].port, name) == 0 ? options->types[i].dtype : dtype;
    }
    return dtype;
}

/* The tensor in another type, by a layer whose name is free. */
static trm_status add_cast(trm_onnx_import *import, const char *port, trm_dtype dtype, trm_tensor **tensor)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_CAST, .cast = {dtype}};
    const char *name = NULL;
    for (int32_t i = 0; name == NULL || trm_network_find_tensor(import->network, name) != NULL; i++) {
        name = trm_arena_printf(&import->arena, "%s/%s%d", port, trm_dtype_name(dtype), (int)i);
        if (name == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
    }
    trm_status status = trm_network_add_layer(import->network, name, &desc, tensor, 1, tensor);
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "type of %s", port);
}

static trm_status make_input(trm_onnx_import *import, const Onnx__ValueInfoProto *info, trm_onnx_value **value)
{
    const char *name = trm_onnx_text(info->name);
    int32_t first = 0, count = find_fixed(import->options, name, &first);
    if (count >= 0) {
        return make_fixed(import, info, first, count, value);
    }
    const Onnx__TypeProto__Tensor *type = info->type == NULL ? NULL : info->type->tensor_type;
    char text[256];
    trm_onnx_type_format(info->type, text, sizeof(text));
    trm_dtype dtype = type == NULL ? TRM_DTYPE_NONE : trm_onnx_dtype(type->elem_type);
    if (dtype == TRM_DTYPE_NONE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "input %s has type %s, %s", name, text[0] == '\0' ? "unknown" : text,
                 type == NULL && text[0] != '\0' ? "whose value must be known when the network is built: set it"
                                                 : "which is not supported");
    }
    trm_dims dims;
    TRM_TRY(input_dims(import->options, name, type, &dims));
    *value = trm_onnx_import_value(import, TRM_ONNX_VALUE_TENSOR);
    if (*value == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    const trm_dtype given = port_type(import->options, name, dtype);
    TRM_TRY(trm_network_add_input(import->network, name, given, dims, &(*value)->tensor));
    for (int32_t i = 0; type->shape != NULL && i < dims.n; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = type->shape->dim[i];
        if (!dim->has_dim_value && trm_onnx_text(dim->dim_param)[0] != '\0') {
            TRM_TRY(trm_network_name_dim(import->network, (*value)->tensor, i, dim->dim_param));
        }
    }
    return given == dtype ? TRM_OK : add_cast(import, name, dtype, &(*value)->tensor);
}

/* Whether the caller sets an input that has an initializer, too. Before IR version 4 every initializer is an input. */
static bool replaces_default(const trm_onnx_import *import, const char *name)
{
    const trm_onnx_options *options = import->options;
    int32_t first = 0;
    bool given = find_fixed(options, name, &first) >= 0;
    for (int32_t i = 0; i < options->n_inputs; i++) {
        given = given || strcmp(options->inputs[i].input, name) == 0;
    }
    return given && import->model->proto->ir_version >= TRM_ONNX_IR_OF_DEFAULTS;
}

trm_status trm_onnx_define_inputs(trm_onnx_import *import, trm_onnx_scope *scope)
{
    const Onnx__GraphProto *graph = import->model->graph;
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = trm_onnx_text(graph->input[i]->name);
        trm_onnx_value *value = NULL, *stored = trm_onnx_find(scope, name);
        const bool has_default = stored != NULL && stored->kind == TRM_ONNX_VALUE_STORED;
        if (has_default && !replaces_default(import, name)) {
            continue;
        }
        trm_status status = make_input(import, graph->input[i], &value);
        if (status != TRM_OK) {
            TRM_TRY(trm_onnx_record_graph_issue(import, scope, status));
            value = trm_onnx_import_value(import, TRM_ONNX_VALUE_FAILED);
            if (value == NULL) {
                return TRM_ERROR_OUT_OF_MEMORY;
            }
        }
        if (has_default) {
            *stored = *value;
            continue;
        }
        status = trm_onnx_define(import, scope, name, value);
        if (status != TRM_OK) {
            TRM_TRY(trm_onnx_record_graph_issue(import, scope, status));
        }
    }
    trm_network_check_named_dims(import->network, NULL, false, "");
    return TRM_OK;
}

/* Gives the tensor the name of an output and marks it; a copy of it if it has another name to keep. */
static trm_status mark_output(trm_onnx_import *import, trm_tensor *tensor, const char *name)
{
    trm_network *network = import->network;
    const trm_dtype dtype = port_type(import->options, name, tensor->dtype);
    TRM_TRY(dtype == tensor->dtype ? TRM_OK : add_cast(import, name, dtype, &tensor));
    if (strcmp(tensor->name, name) != 0) {
        trm_tensor *other = trm_network_find_tensor(network, name);
        if (other != NULL) { /* names inside the network give way to those of its outputs */
            const char *free_name = trm_arena_printf(&import->arena, "%s/inner%d", name, (int)other->index);
            if (free_name == NULL) {
                return TRM_ERROR_OUT_OF_MEMORY;
            }
            TRM_TRY(trm_network_rename_tensor(network, other, free_name));
            if (other->producer != NULL && strcmp(other->producer->name, name) == 0) {
                other->producer->name = other->name; /* ranks name what they make by layers */
            }
        }
        if (tensor->is_output || tensor->role == TRM_TENSOR_INPUT) {
            trm_layer_desc copy = {.kind = TRM_LAYER_CAST, .cast = {tensor->dtype}};
            TRM_TRY(trm_network_add_layer(network, name, &copy, &tensor, 1, &tensor));
        }
        if (strcmp(tensor->name, name) != 0) {
            TRM_TRY(trm_network_rename_tensor(network, tensor, name));
        }
    }
    return trm_network_mark_output(network, tensor);
}

static trm_status mark_value(trm_onnx_import *import, trm_onnx_value *value, const char *name)
{
    if (value->kind == TRM_ONNX_VALUE_TENSOR) {
        return mark_output(import, value->tensor, name);
    }
    if (value->kind == TRM_ONNX_VALUE_OPEN_SEQUENCE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "output %s is a sequence whose length only a run knows", name);
    }
    for (int32_t i = 0; value->kind == TRM_ONNX_VALUE_SEQUENCE && i < value->n_items; i++) {
        const char *item = trm_arena_printf(&import->arena, "%s.%d", name, (int)i);
        if (item == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        TRM_TRY(mark_value(import, value->items[i], item));
    }
    return TRM_OK;
}

trm_status trm_onnx_mark_outputs(trm_onnx_import *import, trm_onnx_scope *scope)
{
    const Onnx__GraphProto *graph = import->model->graph;
    trm_map names = {0};
    trm_status status = TRM_OK;
    for (size_t i = 0; i < graph->n_output && status == TRM_OK; i++) {
        const char *name = trm_onnx_text(graph->output[i]->name);
        bool again;
        trm_onnx_value *value = trm_onnx_find(scope, name);
        status = trm_map_add(&names, name, strlen(name), 0, &again);
        if (status == TRM_OK && again) {
            status = trm_fail(TRM_ERROR_INVALID_MODEL, "output \"%s\" is listed twice", name);
        } else if (status == TRM_OK) {
            status = value == NULL ? trm_fail(TRM_ERROR_INVALID_MODEL, "output \"%s\" is not defined", name)
                                   : trm_onnx_load(import, value, name);
        }
        if (status == TRM_OK) {
            status = mark_value(import, value, name);
        }
        if (status != TRM_OK) {
            status = trm_onnx_record_graph_issue(import, scope, status);
        }
    }
    trm_map_fini(&names);
    return status;
}

/* ---- types ----------------------------------------------------------------------------------------------- */

/* Whether there is a port of that name; sequences have no type of elements that could be another. */
static bool has_port(Onnx__ValueInfoProto *const *ports, size_t n, const char *name)
{
    bool has = false;
    for (size_t i = 0; i < n; i++) {
        has = has || (strcmp(trm_onnx_text(ports[i]->name), name) == 0 &&
                      (ports[i]->type == NULL || ports[i]->type->sequence_type == NULL));
    }
    return has;
}

/* An input that has one is a constant, unless the caller sets it. */
static bool has_initializer(const Onnx__GraphProto *graph, const char *name)
{
    bool has = false;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        has = has || strcmp(trm_onnx_text(graph->initializer[i]->name), name) == 0;
    }
    return has;
}

trm_status trm_onnx_check_types(const trm_onnx_import *import)
{
    const Onnx__GraphProto *graph = import->model->graph;
    for (int32_t i = 0; i < import->options->n_types; i++) {
        const trm_onnx_port_type *type = &import->options->types[i];
        const char *name = type->port == NULL ? "" : type->port;
        int32_t first = 0;
        const bool is_input = has_port(graph->input, graph->n_input, name) &&
                              (!has_initializer(graph, name) || replaces_default(import, name)) &&
                              find_fixed(import->options, name, &first) < 0;
        const bool is_output = has_port(graph->output, graph->n_output, name);
        if (trm_dtype_size(type->dtype) == 0 || is_input == is_output) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s cannot have type %s: %s", name, trm_dtype_name(type->dtype),
                     is_input && is_output ? "it is an input and an output" : "the model has no such input or output");
        }
    }
    return TRM_OK;
}
