/*
 * Nodes of plugins: inputs and outputs as they are, attributes as the plugin's fields say.
 *
 * A node is of the newest loaded plugin of its domain and type whose version is at most the domain's opset, so that a
 * newer version of a plugin takes over only where a model asks for it. The attributes plugin_version and
 * plugin_namespace, which TensorRT's tools write, must agree if they are there.
 */
#include "graph/import/onnx/import.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/plugin/plugin.h"

/* Memory for the values of a list; NULL fails the node. */
static void *values_of(trm_onnx_node *node, size_t n, size_t size)
{
    void *values = trm_arena_array(&node->import->arena, n + 1, size);
    if (values == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
    }
    return values;
}

static void read_ints(trm_onnx_node *node, trm_plugin_setting *to)
{
    const size_t n = to->type == TRM_PLUGIN_INT ? 1 : trm_onnx_attribute(node, to->name)->n_ints;
    int64_t *values = values_of(node, n, sizeof(*values));
    if (values == NULL) {
        return;
    }
    to->count = 1;
    if (to->type == TRM_PLUGIN_INT) {
        values[0] = trm_onnx_int(node, to->name, 0);
    } else {
        to->count = trm_onnx_ints(node, to->name, values, (int32_t)n);
    }
    to->ints = values;
}

static void read_floats(trm_onnx_node *node, trm_plugin_setting *to)
{
    const size_t n = to->type == TRM_PLUGIN_FLOAT ? 1 : trm_onnx_attribute(node, to->name)->n_floats;
    float *values = values_of(node, n, sizeof(*values));
    if (values == NULL) {
        return;
    }
    to->count = 1;
    if (to->type == TRM_PLUGIN_FLOAT) {
        values[0] = trm_onnx_float(node, to->name, 0.0f);
    } else {
        to->count = trm_onnx_floats(node, to->name, values, (int32_t)n);
    }
    to->floats = values;
}

static void read_strings(trm_onnx_node *node, trm_plugin_setting *to)
{
    to->count = to->type == TRM_PLUGIN_STRING ? 1 : trm_onnx_string_count(node, to->name);
    const char **values = trm_onnx_failed(node) ? NULL : values_of(node, (size_t)to->count, sizeof(*values));
    for (int32_t i = 0; values != NULL && i < to->count; i++) {
        values[i] =
            to->type == TRM_PLUGIN_STRING ? trm_onnx_string(node, to->name, "") : trm_onnx_string_at(node, to->name, i);
    }
    to->strings = values;
}

/* The elements of a tensor; the constant that it makes on the way is read by nothing and goes. */
static void read_tensor(trm_onnx_node *node, trm_plugin_setting *to)
{
    const trm_tensor *tensor = trm_onnx_tensor(node, to->name);
    to->data = trm_onnx_data(node, tensor);
    if (to->data == NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "attribute %s is larger than 64 KiB: give it as an input", to->name);
        return;
    }
    to->dtype = tensor->dtype;
    to->dims = tensor->dims;
}

static void read_setting(trm_onnx_node *node, trm_plugin_setting *to)
{
    switch (to->type) {
    case TRM_PLUGIN_INT:
    case TRM_PLUGIN_INTS:
        read_ints(node, to);
        break;
    case TRM_PLUGIN_FLOAT:
    case TRM_PLUGIN_FLOATS:
        read_floats(node, to);
        break;
    case TRM_PLUGIN_STRING:
    case TRM_PLUGIN_STRINGS:
        read_strings(node, to);
        break;
    case TRM_PLUGIN_TENSOR:
        read_tensor(node, to);
        break;
    }
}

/* Whether every attribute is a field. */
static void check_attributes(trm_onnx_node *node, const trm_plugin_entry *plugin)
{
    for (size_t i = 0; i < node->proto->n_attribute; i++) {
        const char *name = trm_onnx_text(node->proto->attribute[i]->name);
        bool known = strcmp(name, "plugin_version") == 0 || strcmp(name, "plugin_namespace") == 0;
        for (int32_t k = 0; k < plugin->table.n_fields; k++) {
            known = known || strcmp(plugin->table.fields[k].name, name) == 0;
        }
        if (!known) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "plugin %s has no setting %.64s", plugin->label, name);
        }
    }
    const char *version = trm_onnx_string(node, "plugin_version", NULL);
    const char *domain = trm_onnx_string(node, "plugin_namespace", NULL);
    if ((version != NULL && strtol(version, NULL, 10) != plugin->table.version) ||
        (domain != NULL && strcmp(domain, plugin->table.domain) != 0)) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "its attributes ask for version %.32s of the plugin in %.64s, found %s",
                      version == NULL ? "any" : version, domain == NULL ? plugin->table.domain : domain, plugin->label);
    }
}

static void import_plugin(trm_onnx_node *node)
{
    const char *domain = trm_onnx_domain(node->proto->domain), *type = trm_onnx_text(node->proto->op_type);
    const trm_plugin_entry *plugin = trm_plugin_find(domain, type, node->opset, NULL);
    trm_plugin_setting settings[TRM_PLUGIN_MOST_FIELDS];
    trm_layer_desc desc = {.kind = TRM_LAYER_PLUGIN};
    trm_tensor *outputs[TRM_MAX_LAYER_OUTPUTS];
    int32_t n = 0;
    check_attributes(node, plugin);
    for (int32_t i = 0; i < plugin->table.n_fields && !trm_onnx_failed(node); i++) {
        const trm_plugin_field *field = &plugin->table.fields[i];
        if (trm_onnx_has(node, field->name)) {
            settings[n] = (trm_plugin_setting){.name = field->name, .type = field->type};
            read_setting(node, &settings[n++]);
        }
    }
    if (!trm_onnx_failed(node)) {
        node->status = trm_plugin_add_layer(plugin, settings, n, NULL, 0, &desc.plugin.layer);
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    if (node->n_outputs > plugin->table.n_outputs) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has %d outputs, plugin %s has %d", (int)node->n_outputs,
                      plugin->label, (int)plugin->table.n_outputs);
        return;
    }
    trm_onnx_layer(node, &desc, node->inputs, node->n_inputs, outputs);
    for (int32_t i = 0; i < node->n_outputs; i++) {
        trm_onnx_set(node, i, outputs[i]);
    }
}

const trm_onnx_operator *trm_onnx_find_plugin(const char *domain, const char *name, int64_t opset)
{
    static const trm_onnx_operator row = {.import = import_plugin};
    const int32_t version = (int32_t)(opset > INT32_MAX ? INT32_MAX : opset);
    return trm_plugin_find(domain, name, version, NULL) == NULL ? NULL : &row;
}
