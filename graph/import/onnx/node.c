/* Attributes, known inputs, failures and outputs of a node, for import functions. */
#include "graph/import/onnx/import.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/element.h"
#include "kernels/kernel.h"

#define LARGEST_KNOWN ((size_t)64 << 10)

/* Values of AttributeProto.type */
enum {
    A_NONE,
    A_FLOAT,
    A_INT,
    A_STRING,
    A_TENSOR,
    A_GRAPH,
    A_FLOATS,
    A_INTS,
    A_STRINGS,
    A_TENSORS,
    A_GRAPHS,
    A_SPARSE
};
static const char *const attribute_types[] = {"undefined", "float", "int",     "string",  "tensor", "graph",
                                              "floats",    "ints",  "strings", "tensors", "graphs", "sparse tensor"};

/* ---- failures ------------------------------------------------------------------------------------------ */

void trm_onnx_fail(trm_onnx_node *node, trm_status status, const char *format, ...)
{
    if (node->status == TRM_OK) {
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        node->status = trm_fail(status, "%s", text);
    }
}

bool trm_onnx_failed(const trm_onnx_node *node)
{
    return node->status != TRM_OK;
}

/* ---- attributes ---------------------------------------------------------------------------------------- */

static const Onnx__AttributeProto *find_attribute(Onnx__AttributeProto *const *attributes, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(trm_onnx_text(attributes[i]->name), name) == 0) {
            return attributes[i];
        }
    }
    return NULL;
}

const Onnx__AttributeProto *trm_onnx_attribute(trm_onnx_node *node, const char *name)
{
    const Onnx__AttributeProto *found = find_attribute(node->proto->attribute, node->proto->n_attribute, name);
    const trm_onnx_scope *scope = node->scope;
    /* Bodies within a function refer to the function's attributes as well; so may the caller's attribute to those of
     * the function around it. */
    while (found != NULL && trm_onnx_text(found->ref_attr_name)[0] != '\0') {
        while (scope != NULL && !scope->is_function) {
            scope = scope->around;
        }
        if (scope == NULL) {
            return NULL;
        }
        const char *reference = found->ref_attr_name;
        const Onnx__NodeProto *caller = scope->caller->proto;
        found = find_attribute(caller->attribute, caller->n_attribute, reference);
        if (found == NULL) {
            const Onnx__FunctionProto *function = scope->function;
            return find_attribute(function->attribute_proto, function->n_attribute_proto, reference);
        }
        scope = scope->caller->scope;
    }
    return found;
}

/* Files from before attributes had a type say it by the field alone. */
static int type_of(const Onnx__AttributeProto *attribute)
{
    if (attribute->has_type && attribute->type != A_NONE) {
        return attribute->type;
    }
    return attribute->has_f       ? A_FLOAT
           : attribute->has_i     ? A_INT
           : attribute->has_s     ? A_STRING
           : attribute->t != NULL ? A_TENSOR
           : attribute->g != NULL ? A_GRAPH
           : attribute->n_floats  ? A_FLOATS
           : attribute->n_ints    ? A_INTS
           : attribute->n_strings ? A_STRINGS
                                  : A_NONE;
}

/* The attribute, if it is there; fails if it has another type. */
static const Onnx__AttributeProto *typed(trm_onnx_node *node, const char *name, int type)
{
    const Onnx__AttributeProto *attribute = trm_onnx_failed(node) ? NULL : trm_onnx_attribute(node, name);
    if (attribute == NULL) {
        return NULL;
    }
    int found = type_of(attribute);
    bool empty_list = found == A_NONE && (type == A_FLOATS || type == A_INTS || type == A_STRINGS);
    if (found != type && !empty_list) {
        bool named = found >= 0 && found < (int)(sizeof(attribute_types) / sizeof(attribute_types[0]));
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute %s has type %s, expected %s", name,
                      named ? attribute_types[found] : "unknown", attribute_types[type]);
        return NULL;
    }
    return attribute;
}

bool trm_onnx_has(trm_onnx_node *node, const char *name)
{
    return trm_onnx_attribute(node, name) != NULL;
}

int64_t trm_onnx_int(trm_onnx_node *node, const char *name, int64_t normal)
{
    const Onnx__AttributeProto *attribute = typed(node, name, A_INT);
    return attribute == NULL ? normal : attribute->i;
}

bool trm_onnx_flag(trm_onnx_node *node, const char *name, bool normal)
{
    return trm_onnx_int(node, name, normal) != 0;
}

float trm_onnx_float(trm_onnx_node *node, const char *name, float normal)
{
    const Onnx__AttributeProto *attribute = typed(node, name, A_FLOAT);
    return attribute == NULL ? normal : attribute->f;
}

/* A copy with a NUL behind it; without control characters, which would spoil a message. */
static const char *copy_text(trm_onnx_node *node, ProtobufCBinaryData data)
{
    char *text = trm_arena_alloc(&node->import->arena, data.len + 1);
    if (text == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return "";
    }
    for (size_t i = 0; i < data.len; i++) {
        text[i] = (char)(data.data[i] < 0x20 || data.data[i] == 0x7f ? '?' : data.data[i]);
    }
    return text;
}

const char *trm_onnx_string(trm_onnx_node *node, const char *name, const char *normal)
{
    const Onnx__AttributeProto *attribute = typed(node, name, A_STRING);
    return attribute == NULL ? normal : copy_text(node, attribute->s);
}

int32_t trm_onnx_choice(trm_onnx_node *node, const char *name, const char *normal, const char *const *names)
{
    const char *text = trm_onnx_string(node, name, normal);
    for (int32_t i = 0; names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            return i;
        }
    }
    trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "attribute %s is \"%.64s\", expected \"%s\" or another of its values",
                  name, text, names[0]);
    return 0;
}

static bool check_count(trm_onnx_node *node, const char *name, size_t count, int32_t capacity)
{
    if (count > (size_t)capacity) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "attribute %s has %zu values, at most %d are supported", name, count,
                      (int)capacity);
        return false;
    }
    return true;
}

int32_t trm_onnx_ints(trm_onnx_node *node, const char *name, int64_t *values, int32_t capacity)
{
    const Onnx__AttributeProto *attribute = typed(node, name, A_INTS);
    if (attribute == NULL || !check_count(node, name, attribute->n_ints, capacity)) {
        return -1;
    }
    for (size_t i = 0; i < attribute->n_ints; i++) {
        values[i] = attribute->ints[i];
    }
    return (int32_t)attribute->n_ints;
}

int32_t trm_onnx_floats(trm_onnx_node *node, const char *name, float *values, int32_t capacity)
{
    const Onnx__AttributeProto *attribute = typed(node, name, A_FLOATS);
    if (attribute == NULL || !check_count(node, name, attribute->n_floats, capacity)) {
        return -1;
    }
    for (size_t i = 0; i < attribute->n_floats; i++) {
        values[i] = attribute->floats[i];
    }
    return (int32_t)attribute->n_floats;
}

int32_t trm_onnx_string_count(trm_onnx_node *node, const char *name)
{
    const Onnx__AttributeProto *attribute = typed(node, name, A_STRINGS);
    return attribute == NULL || !check_count(node, name, attribute->n_strings, INT32_MAX)
               ? -1
               : (int32_t)attribute->n_strings;
}

const char *trm_onnx_string_at(trm_onnx_node *node, const char *name, int32_t index)
{
    const Onnx__AttributeProto *attribute = typed(node, name, A_STRINGS);
    bool there = attribute != NULL && index >= 0 && (size_t)index < attribute->n_strings;
    return there ? copy_text(node, attribute->strings[index]) : "";
}

void trm_onnx_ints32(trm_onnx_node *node, const char *name, int32_t count, int32_t normal, int32_t *values)
{
    for (int32_t i = 0; i < count; i++) {
        values[i] = normal;
    }
    const Onnx__AttributeProto *attribute = typed(node, name, A_INTS);
    if (attribute == NULL) {
        return;
    }
    if (attribute->n_ints != (size_t)count) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute %s has %zu values, expected %d", name,
                      attribute->n_ints, (int)count);
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        if (attribute->ints[i] < INT32_MIN || attribute->ints[i] > INT32_MAX) {
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "attribute %s has value %lld, which is too large", name,
                          (long long)attribute->ints[i]);
            return;
        }
        values[i] = (int32_t)attribute->ints[i];
    }
}

trm_dtype trm_onnx_type(trm_onnx_node *node, const char *name, trm_dtype normal)
{
    if (trm_onnx_attribute(node, name) == NULL) {
        return normal;
    }
    int64_t number = trm_onnx_int(node, name, 0);
    trm_dtype dtype = trm_onnx_dtype(number);
    if (dtype == TRM_DTYPE_NONE) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "attribute %s is element type %s (%lld), which is not supported",
                      name, trm_onnx_dtype_name(number), (long long)number);
        return TRM_F32;
    }
    return dtype;
}

trm_tensor *trm_onnx_tensor(trm_onnx_node *node, const char *name)
{
    const Onnx__AttributeProto *attribute = typed(node, name, A_TENSOR);
    if (attribute == NULL || attribute->t == NULL) {
        return NULL;
    }
    trm_tensor *tensor = NULL;
    const char *label = trm_arena_printf(&node->import->arena, "%s/%s", node->label, name);
    if (label == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return node->import->nothing;
    }
    node->status = trm_onnx_add_stored(node->import, &attribute->t, label, &tensor);
    return node->status == TRM_OK ? tensor : node->import->nothing;
}

const Onnx__GraphProto *trm_onnx_graph(trm_onnx_node *node, const char *name)
{
    const Onnx__AttributeProto *attribute = typed(node, name, A_GRAPH);
    if (attribute == NULL || attribute->g == NULL) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has no graph %s", name);
        return NULL;
    }
    return attribute->g;
}

/* ---- what is known ------------------------------------------------------------------------------------- */

const void *trm_onnx_data(trm_onnx_node *node, const trm_tensor *tensor)
{
    if (trm_onnx_failed(node) || tensor == NULL || tensor->role != TRM_TENSOR_CONSTANT) {
        return NULL;
    }
    size_t bytes = trm_dims_bytes(&tensor->dims, tensor->dtype);
    if (bytes > LARGEST_KNOWN) {
        return NULL;
    }
    if (tensor->value != NULL || tensor->weight == NULL) {
        return tensor->value;
    }
    void *copy = trm_arena_alloc(&node->import->arena, bytes + 8);
    if (copy == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    node->status = trm_weight_read(tensor->weight, tensor->dtype, 0, (size_t)trm_dims_count(&tensor->dims), copy);
    return node->status == TRM_OK ? copy : NULL;
}

/* A float as the integer next to it towards zero; the ends of the range stand for all beyond them. */
static int64_t double_to_int(double value)
{
    return isnan(value) ? 0 : value >= 0x1p63 ? INT64_MAX : value < -0x1p63 ? INT64_MIN : (int64_t)value;
}

bool trm_onnx_known_ints(trm_onnx_node *node, const trm_tensor *tensor, int64_t *values, int32_t capacity,
                         int32_t *count)
{
    const void *data = trm_onnx_data(node, tensor);
    if (data == NULL) {
        return false;
    }
    int64_t n = trm_dims_count(&tensor->dims); /* at most 64 Ki */
    for (int64_t i = 0; i < n && i < capacity; i++) {
        values[i] = tensor->dtype == TRM_I64   ? ((const int64_t *)data)[i]
                    : tensor->dtype == TRM_U64 ? (int64_t)((const uint64_t *)data)[i]
                                               : double_to_int(trm_element_as_double(tensor->dtype, data, i));
    }
    if (count != NULL) {
        *count = (int32_t)n;
    }
    return true;
}

bool trm_onnx_known_float(trm_onnx_node *node, const trm_tensor *tensor, double *value)
{
    const void *data = trm_onnx_data(node, tensor);
    if (data == NULL || trm_dims_count(&tensor->dims) != 1) {
        return false;
    }
    *value = trm_element_as_double(tensor->dtype, data, 0);
    return true;
}

static trm_tensor *given_input(const trm_onnx_node *node, int32_t index)
{
    return index >= 0 && index < node->n_inputs ? node->inputs[index] : NULL;
}

static void fail_unknown(trm_onnx_node *node, int32_t index)
{
    trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                  "input %d of the node must be known when the network is built: set its value", (int)index);
}

int32_t trm_onnx_input_ints(trm_onnx_node *node, int32_t index, int64_t *values, int32_t capacity)
{
    const trm_tensor *input = given_input(node, index);
    int32_t count = 0;
    if (input == NULL || trm_onnx_failed(node)) {
        return -1;
    }
    if (!trm_onnx_known_ints(node, input, values, capacity, &count)) {
        fail_unknown(node, index);
        return -1;
    }
    if (count > capacity) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "input %d of the node has %d elements, at most %d are supported",
                      (int)index, (int)count, (int)capacity);
        return -1;
    }
    return count;
}

int64_t trm_onnx_input_int(trm_onnx_node *node, int32_t index, int64_t normal)
{
    int64_t value = normal;
    int32_t count = trm_onnx_input_ints(node, index, &value, 1);
    if (count == 0) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "input %d of the node is empty, expected one element", (int)index);
    }
    return trm_onnx_failed(node) ? normal : value;
}

double trm_onnx_input_float(trm_onnx_node *node, int32_t index, double normal)
{
    const trm_tensor *input = given_input(node, index);
    double value = normal;
    if (input != NULL && !trm_onnx_failed(node) && !trm_onnx_known_float(node, input, &value)) {
        fail_unknown(node, index);
    }
    return trm_onnx_failed(node) ? normal : value;
}

int32_t trm_onnx_axis(trm_onnx_node *node, int64_t axis, int32_t rank)
{
    if (axis < -rank || axis >= rank) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %lld, expected one of %d dimensions", (long long)axis,
                      (int)rank);
        return 0;
    }
    return (int32_t)(axis < 0 ? axis + rank : axis);
}

int32_t trm_onnx_axes(trm_onnx_node *node, const char *attribute, int32_t index, int32_t rank,
                      int32_t axes[TRM_MAX_DIMS])
{
    int64_t values[TRM_MAX_DIMS];
    int32_t count = given_input(node, index) != NULL ? trm_onnx_input_ints(node, index, values, TRM_MAX_DIMS)
                    : attribute != NULL              ? trm_onnx_ints(node, attribute, values, TRM_MAX_DIMS)
                                                     : -1;
    for (int32_t i = 0; i < count; i++) {
        axes[i] = trm_onnx_axis(node, values[i], rank);
        for (int32_t j = 0; j < i; j++) {
            if (axes[j] == axes[i]) {
                trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %lld is given twice", (long long)values[i]);
            }
        }
    }
    return trm_onnx_failed(node) ? -1 : count;
}

/* ---- outputs ------------------------------------------------------------------------------------------- */

static void *allocate(trm_onnx_node *node, size_t size)
{
    void *memory = trm_arena_alloc(&node->import->arena, size);
    if (memory == NULL && node->status == TRM_OK) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
    }
    return memory;
}

trm_onnx_value *trm_onnx_value_tensor(trm_onnx_node *node, trm_tensor *tensor)
{
    trm_onnx_value *value = trm_onnx_failed(node) ? NULL : allocate(node, sizeof(*value));
    if (value != NULL) {
        value->kind = TRM_ONNX_VALUE_TENSOR;
        value->tensor = tensor;
    }
    return value;
}

trm_onnx_value *trm_onnx_value_sequence(trm_onnx_node *node, trm_onnx_value *const *items, int32_t n)
{
    trm_onnx_value *value = trm_onnx_failed(node) ? NULL : allocate(node, sizeof(*value));
    if (value != NULL) {
        value->kind = TRM_ONNX_VALUE_SEQUENCE;
        value->n_items = n;
        value->items = trm_arena_array(&node->import->arena, (size_t)n, sizeof(trm_onnx_value *));
        if (value->items == NULL) {
            node->status = TRM_ERROR_OUT_OF_MEMORY;
            return NULL;
        }
        if (n > 0) {
            memcpy(value->items, items, (size_t)n * sizeof(trm_onnx_value *));
        }
    }
    return value;
}

trm_onnx_value *trm_onnx_value_none(trm_onnx_node *node)
{
    trm_onnx_value *value = trm_onnx_failed(node) ? NULL : allocate(node, sizeof(*value));
    if (value != NULL) {
        value->kind = TRM_ONNX_VALUE_NONE;
    }
    return value;
}

bool trm_onnx_wants(const trm_onnx_node *node, int32_t index)
{
    return index >= 0 && index < node->n_outputs && trm_onnx_text(node->proto->output[index])[0] != '\0';
}

void trm_onnx_set_value(trm_onnx_node *node, int32_t index, trm_onnx_value *value)
{
    if (!trm_onnx_failed(node) && trm_onnx_wants(node, index)) {
        node->outputs[index] = value;
    }
}

void trm_onnx_set(trm_onnx_node *node, int32_t index, trm_tensor *tensor)
{
    if (trm_onnx_failed(node) || !trm_onnx_wants(node, index)) {
        return;
    }
    node->outputs[index] = trm_onnx_value_tensor(node, tensor);
}
