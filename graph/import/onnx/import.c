/*
 * Imports a model's main graph to a network.
 *
 * Nodes are imported in an executable order. A node that cannot be imported is recorded as an issue; its outputs count
 * as failed, and nodes that need them are skipped silently.
 */
#include "graph/import/onnx/import.h"
#include "graph/import/onnx/region.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "base/recorder.h"

#define MOST_ISSUES  1000
#define DEEPEST_CALL 32 /* functions and bodies within each other */

/* ---- issues -------------------------------------------------------------------------------------------- */

/* "then_branch of node 3 (If)" parts in front, then the node, then the cause. */
static const char *issue_text(trm_onnx *model, const trm_onnx_issue *issue)
{
    const char *place = issue->place, *gap = place[0] == '\0' ? "" : ", ";
    if (issue->node < 0) {
        return trm_arena_printf(&model->issue_arena, "%s: %s%s%s", model->path, place, gap, issue->cause);
    }
    bool named = issue->name[0] != '\0', own = issue->domain[0] == '\0';
    return trm_arena_printf(&model->issue_arena, "%s: %s%snode %d%s%s%s (%s%s%s, opset %lld): %s", model->path, place,
                            gap, (int)issue->node, named ? " \"" : "", issue->name, named ? "\"" : "", issue->domain,
                            own ? "" : ".", issue->op, (long long)issue->opset, issue->cause);
}

/* Records the error as an issue; returns only OUT_OF_MEMORY. */
static trm_status record_issue(trm_onnx_import *import, trm_status status, trm_onnx_issue issue)
{
    trm_onnx *model = import->model;
    if (status == TRM_ERROR_OUT_OF_MEMORY || status == TRM_ERROR_INTERNAL) {
        return status;
    }
    if (model->n_issues >= MOST_ISSUES) {
        return TRM_OK;
    }
    if (model->n_issues == model->issue_capacity) {
        int32_t wanted = model->issue_capacity * 2 + 16;
        trm_onnx_issue *grown = realloc(model->issues, (size_t)wanted * sizeof(*grown));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d issues", wanted);
        }
        model->issues = grown;
        model->issue_capacity = wanted;
    }
    issue.status = status;
    issue.cause = trm_arena_strdup(&model->issue_arena, trm_last_error());
    issue.place = trm_arena_strdup(&model->issue_arena, issue.place);
    issue.text = issue.cause == NULL || issue.place == NULL ? NULL : issue_text(model, &issue);
    if (issue.text == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    model->issues[model->n_issues++] = issue;
    return TRM_OK;
}

trm_status trm_onnx_record_graph_issue(trm_onnx_import *import, const trm_onnx_scope *scope, trm_status status)
{
    return record_issue(import, status,
                        (trm_onnx_issue){.place = scope->place, .node = -1, .name = "", .domain = "", .op = ""});
}

/* ---- scopes -------------------------------------------------------------------------------------------- */

void trm_onnx_scope_fini(trm_onnx_scope *scope)
{
    trm_map_fini(&scope->names);
}

trm_status trm_onnx_define(trm_onnx_import *import, trm_onnx_scope *scope, const char *name, trm_onnx_value *value)
{
    if (scope->n_values == scope->capacity) {
        int32_t wanted = scope->capacity * 2 + 16;
        trm_onnx_value **grown = trm_arena_array(&import->arena, (size_t)wanted, sizeof(trm_onnx_value *));
        if (grown == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        if (scope->n_values > 0) {
            memcpy(grown, scope->values, (size_t)scope->n_values * sizeof(trm_onnx_value *));
        }
        scope->values = grown;
        scope->capacity = wanted;
    }
    bool existing;
    TRM_TRY(trm_map_add(&scope->names, name, strlen(name), (uint32_t)scope->n_values, &existing));
    if (existing) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "the name \"%s\" is defined twice", name);
    }
    scope->values[scope->n_values++] = value;
    return TRM_OK;
}

/* With the scope that has it. */
static trm_onnx_value *find_with_scope(const trm_onnx_scope **scope, const char *name)
{
    for (; *scope != NULL; *scope = (*scope)->around) {
        uint32_t index;
        if (trm_map_find(&(*scope)->names, name, strlen(name), &index)) {
            return (*scope)->values[index];
        }
    }
    return NULL;
}

trm_onnx_value *trm_onnx_find(const trm_onnx_scope *scope, const char *name)
{
    return find_with_scope(&scope, name);
}

trm_onnx_value *trm_onnx_import_value(trm_onnx_import *import, trm_onnx_value_kind kind)
{
    trm_onnx_value *value = trm_arena_alloc(&import->arena, sizeof(*value));
    if (value != NULL) {
        value->kind = kind;
    }
    return value;
}

trm_status trm_onnx_define_initializers(trm_onnx_import *import, trm_onnx_scope *scope, const Onnx__GraphProto *graph)
{
    size_t n = graph->n_initializer + graph->n_sparse_initializer;
    for (size_t i = 0; i < n; i++) {
        trm_onnx_value *value = trm_onnx_import_value(import, TRM_ONNX_VALUE_STORED);
        if (value == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        const char *name;
        if (i < graph->n_initializer) {
            value->stored = graph->initializer[i];
            name = trm_onnx_text(value->stored->name);
        } else {
            value->stored_sparse = graph->sparse_initializer[i - graph->n_initializer];
            const Onnx__TensorProto *values = value->stored_sparse->values;
            name = values == NULL ? "" : trm_onnx_text(values->name);
        }
        trm_status status = name[0] == '\0' ? trm_fail(TRM_ERROR_INVALID_MODEL, "initializer %zu has no name", i)
                                            : trm_onnx_define(import, scope, name, value);
        if (status != TRM_OK) {
            TRM_TRY(trm_onnx_record_graph_issue(import, scope, status));
        }
    }
    return TRM_OK;
}

trm_status trm_onnx_add_stored(trm_onnx_import *import, Onnx__TensorProto *const *key, const char *name,
                               trm_tensor **tensor)
{
    const char *address = (const char *)(const void *)key;
    uint32_t index;
    if (trm_map_find(&import->constants, address, sizeof(*key), &index)) {
        *tensor = import->network->tensors[index];
        return TRM_OK;
    }
    bool existing;
    TRM_TRY(trm_onnx_tensor_add(import->model, *key, name, import->network, tensor));
    return trm_map_add(&import->constants, address, sizeof(*key), (uint32_t)(*tensor)->index, &existing);
}

void trm_onnx_discard(trm_onnx_import *import, int32_t first)
{
    const trm_network *network = import->network;
    int32_t n = import->n_discarded + network->n_layers - first;
    if (n > import->discarded_capacity) {
        trm_layer **grown = trm_arena_array(&import->arena, (size_t)n * 2, sizeof(trm_layer *));
        if (grown == NULL) {
            return; /* they stay, and run without effect */
        }
        if (import->n_discarded > 0) {
            memcpy(grown, import->discarded, (size_t)import->n_discarded * sizeof(trm_layer *));
        }
        import->discarded = grown;
        import->discarded_capacity = n * 2;
    }
    for (int32_t i = first; i < network->n_layers; i++) {
        import->discarded[import->n_discarded++] = network->layers[i];
    }
}

static trm_status remove_discarded(trm_onnx_import *import)
{
    if (import->n_discarded == 0) {
        return TRM_OK;
    }
    bool *remove = trm_arena_array(&import->arena, (size_t)import->network->n_layers + 1, sizeof(*remove));
    if (remove == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < import->n_discarded; i++) {
        remove[import->discarded[i]->index] = true;
    }
    trm_network_remove_layers(import->network, remove);
    return TRM_OK;
}

bool trm_onnx_spend(trm_onnx_node *node, int64_t steps)
{
    node->import->steps += steps;
    if (node->import->steps > TRM_ONNX_MOST_STEPS) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "the import takes more than %lld steps, counting every pass of loops",
                      (long long)TRM_ONNX_MOST_STEPS);
        return false;
    }
    return true;
}

trm_status trm_onnx_load(trm_onnx_import *import, trm_onnx_value *value, const char *name)
{
    if (value->kind != TRM_ONNX_VALUE_STORED) {
        return TRM_OK;
    }
    trm_tensor *tensor = NULL;
    trm_status status = value->stored != NULL ? trm_onnx_add_stored(import, &value->stored, name, &tensor)
                                              : trm_onnx_sparse_tensor_add(import->model, value->stored_sparse, name,
                                                                           import->network, &tensor);
    value->kind = status == TRM_OK ? TRM_ONNX_VALUE_TENSOR : TRM_ONNX_VALUE_FAILED;
    value->tensor = tensor;
    return status;
}

/* ---- nodes --------------------------------------------------------------------------------------------- */

/* Looks up the inputs of a node. *ready is false if one of them failed. */
static trm_status find_inputs(trm_onnx_node *node, bool *ready)
{
    *ready = true;
    for (int32_t i = 0; i < node->n_inputs; i++) {
        const char *name = trm_onnx_text(node->proto->input[i]);
        if (name[0] == '\0') {
            continue;
        }
        const trm_onnx_scope *scope = node->scope;
        trm_onnx_value *value = find_with_scope(&scope, name);
        if (value == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "its input \"%s\" is not defined (missing, or part of a cycle)", name);
        }
        TRM_TRY(trm_onnx_load(node->import, value, name));
        value = trm_onnx_enter_value(node, scope->region, value);
        TRM_TRY(node->status);
        if (value->kind == TRM_ONNX_VALUE_FAILED) {
            *ready = false;
        } else if (value->kind != TRM_ONNX_VALUE_ABSENT) {
            node->input_values[i] = value;
            node->inputs[i] = value->kind == TRM_ONNX_VALUE_TENSOR ? value->tensor : NULL;
        }
    }
    return TRM_OK;
}

static trm_status check_least_inputs(const trm_onnx_node *node)
{
    for (int32_t i = 0; i < node->row->least; i++) {
        if (i >= node->n_inputs || node->input_values[i] == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "it has no input %d, expected at least %d", (int)i,
                     (int)node->row->least);
        }
        if (node->inputs[i] == NULL) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "its input %d is a sequence or an empty optional, expected a tensor",
                     (int)i);
        }
    }
    return TRM_OK;
}

/* The tensor takes the name of the output if the node made it, and so does the layer that it comes from. */
static void name_output(trm_onnx_node *node, trm_tensor *tensor, const char *output)
{
    size_t length = strlen(node->label);
    if (strncmp(tensor->name, node->label, length) != 0 || tensor->name[length] != '/') {
        return;
    }
    const char *name = node->scope->prefix[0] == '\0'
                           ? output
                           : trm_arena_printf(&node->import->arena, "%s%s", node->scope->prefix, output);
    if (name == NULL || trm_map_find(&node->network->names, name, strlen(name), NULL) ||
        trm_network_rename_tensor(node->network, tensor, name) != TRM_OK) {
        return; /* another tensor has it; names inside a network are for people only */
    }
    if (tensor->producer != NULL && tensor->producer->outputs[0] == tensor) {
        tensor->producer->name = tensor->name;
    }
}

static trm_status define_outputs(trm_onnx_node *node, trm_onnx_scope *scope, bool failed)
{
    trm_status first = TRM_OK;
    for (int32_t i = 0; i < node->n_outputs; i++) {
        const char *name = trm_onnx_text(node->proto->output[i]);
        if (name[0] == '\0') {
            continue;
        }
        trm_onnx_value *value = failed ? NULL : node->outputs[i];
        if (!failed && value == NULL && first == TRM_OK) {
            first = trm_fail(TRM_ERROR_UNSUPPORTED, "its output %d is not supported", (int)i);
        }
        if (value == NULL) {
            value = trm_onnx_import_value(node->import, TRM_ONNX_VALUE_FAILED);
            if (value == NULL) {
                return TRM_ERROR_OUT_OF_MEMORY;
            }
        } else if (value->kind == TRM_ONNX_VALUE_TENSOR) {
            name_output(node, value->tensor, name);
        }
        trm_status status = trm_onnx_define(node->import, scope, name, value);
        first = first == TRM_OK ? status : first;
    }
    return first;
}

static void call_function(trm_onnx_node *node, const Onnx__FunctionProto *function);

/* Imports a node whose record is filled in. *failed: its outputs do not exist. */
static trm_status run_node(trm_onnx_node *node, const char *domain, bool *failed)
{
    const char *type = trm_onnx_text(node->proto->op_type);
    const Onnx__FunctionProto *function = trm_onnx_find_function(node->import->model, node->proto);
    bool ready, known = false;
    *failed = true;
    if (function == NULL && node->opset < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "the model does not say which opset of domain \"%s\" it uses", domain);
    }
    if (function == NULL) {
        node->row = trm_onnx_find_operator(domain, type, node->opset, &known);
        if (node->row == NULL && !known) {
            node->row = trm_onnx_find_plugin(domain, type, node->opset);
        }
        if (node->row == NULL) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "operator %s%s%s is not supported%s%s", domain,
                     domain[0] == '\0' ? "" : ".", type, known ? " at this opset" : "",
                     known || domain[0] == '\0' ? "" : ", and no plugin of this name and version is loaded");
        }
    }
    TRM_TRY(find_inputs(node, &ready));
    if (!ready) {
        return TRM_OK;
    }
    if (function != NULL) {
        call_function(node, function);
    } else {
        TRM_TRY(check_least_inputs(node));
        node->row->import(node);
    }
    *failed = node->status != TRM_OK;
    return node->status;
}

static const char *node_label(trm_onnx_import *import, const trm_onnx_scope *scope, const Onnx__NodeProto *proto)
{
    const char *name = "";
    for (size_t i = 0; i < proto->n_output && name[0] == '\0'; i++) {
        name = trm_onnx_text(proto->output[i]);
    }
    name = name[0] == '\0' ? trm_onnx_text(proto->op_type) : name;
    return trm_arena_printf(&import->arena, "%.512s%.512s", scope->prefix, name);
}

/* A failure that was recorded where it happened, in a body or function. */
#define RECORDED TRM_ERROR_CANCELLED

static trm_status import_node(trm_onnx_import *import, trm_onnx_scope *scope, const Onnx__NodeProto *proto,
                              size_t index)
{
    const char *domain = trm_onnx_domain(proto->domain);
    if (++import->steps > TRM_ONNX_MOST_STEPS || proto->n_input > INT32_MAX / 2 || proto->n_output > INT32_MAX / 2) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: the import takes more than %lld steps, counting every pass of loops",
                 import->model->path, (long long)TRM_ONNX_MOST_STEPS);
    }
    int64_t opset = trm_onnx_opset(scope->opsets, scope->n_opsets, domain);
    trm_onnx_node node = {.network = import->network,
                          .opset = (int32_t)(opset > INT32_MAX ? INT32_MAX : opset),
                          .n_inputs = (int32_t)proto->n_input,
                          .n_outputs = (int32_t)proto->n_output,
                          .scope = scope,
                          .import = import,
                          .proto = proto,
                          .label = node_label(import, scope, proto)};
    size_t slots = proto->n_input > TRM_ONNX_FIXED_INPUTS ? proto->n_input : TRM_ONNX_FIXED_INPUTS;
    node.inputs = trm_arena_array(&import->arena, slots, sizeof(trm_tensor *));
    node.input_values = trm_arena_array(&import->arena, slots, sizeof(trm_onnx_value *));
    node.outputs = trm_arena_array(&import->arena, proto->n_output + 1, sizeof(trm_onnx_value *));
    if (node.label == NULL || node.inputs == NULL || node.input_values == NULL || node.outputs == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_onnx_issue issue = {.place = scope->place,
                            .node = (int32_t)index,
                            .name = trm_onnx_text(proto->name),
                            .domain = domain,
                            .op = trm_onnx_text(proto->op_type),
                            .opset = opset < 0 ? 0 : opset};
    bool failed;
    trm_status status = run_node(&node, domain, &failed);
    status = status == TRM_ERROR_INVALID_ARGUMENT ? TRM_ERROR_INVALID_MODEL : status; /* the model's, to a layer */
    if (status != TRM_OK && status != RECORDED) {
        TRM_TRY(record_issue(import, status, issue));
    }
    status = define_outputs(&node, scope, failed);
    return status == TRM_OK ? TRM_OK : record_issue(import, status, issue);
}

trm_status trm_onnx_import_nodes(trm_onnx_import *import, trm_onnx_scope *scope, Onnx__NodeProto *const *nodes,
                                 size_t n)
{
    for (size_t i = 0; i < n; i++) {
        TRM_TRY(import_node(import, scope, nodes[i], i));
    }
    return TRM_OK;
}

/* ---- bodies and functions ------------------------------------------------------------------------------ */

/* A scope inside a node's. */
static bool open_scope(trm_onnx_node *node, const char *part, trm_onnx_scope *scope)
{
    trm_onnx_import *import = node->import;
    const trm_onnx_scope *around = node->scope;
    const char *gap = around->place[0] == '\0' ? "" : ", ";
    *scope = (trm_onnx_scope){.caller = node, .depth = around->depth + 1, .region = import->region};
    if (scope->depth > DEEPEST_CALL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "functions and bodies are nested more than %d deep", DEEPEST_CALL);
        return false;
    }
    bool deep = strlen(around->place) > 200; /* the innermost says most */
    scope->place =
        trm_arena_printf(&import->arena, "%s%s%s of \"%s\"", deep ? "..." : around->place, gap, part, node->label);
    int32_t number = ++node->n_bodies;
    scope->prefix = number == 1 ? trm_arena_printf(&import->arena, "%s/", node->label)
                                : trm_arena_printf(&import->arena, "%s.%d/", node->label, (int)number);
    if (scope->place == NULL || scope->prefix == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return false;
    }
    return true;
}

/* Takes an output of a body or function; a failed one makes the node fail without another issue. */
static trm_onnx_value *take_output(trm_onnx_node *node, const trm_onnx_scope *scope, const char *name)
{
    const trm_onnx_scope *home = scope;
    trm_onnx_value *value = find_with_scope(&home, name);
    if (value == NULL) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "output \"%s\" of %s is not defined in it", name, scope->place);
        return NULL;
    }
    trm_status status = trm_onnx_load(node->import, value, name);
    if (status != TRM_OK && node->status == TRM_OK) {
        node->status = status;
    } else if (value->kind == TRM_ONNX_VALUE_FAILED && node->status == TRM_OK) {
        node->status = RECORDED;
    }
    return trm_onnx_enter_value(node, home->region, value);
}

static trm_status define_all(trm_onnx_import *import, trm_onnx_scope *scope, char *const *names, size_t n_names,
                             trm_onnx_value *const *values, int32_t n_values)
{
    for (size_t i = 0; i < n_names; i++) {
        trm_onnx_value *value = i < (size_t)n_values ? values[i] : NULL;
        if (value == NULL) {
            value = trm_onnx_import_value(import, TRM_ONNX_VALUE_ABSENT);
        }
        if (value == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        TRM_TRY(trm_onnx_define(import, scope, trm_onnx_text(names[i]), value));
    }
    return TRM_OK;
}

static void call_function(trm_onnx_node *node, const Onnx__FunctionProto *function)
{
    trm_onnx_scope scope;
    if (!open_scope(node, "the function", &scope)) {
        return;
    }
    scope.is_function = true;
    scope.function = function;
    scope.opsets = function->opset_import;
    scope.n_opsets = function->n_opset_import;
    if ((size_t)node->n_inputs > function->n_input || (size_t)node->n_outputs > function->n_output) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has %d inputs and %d outputs, its function %zu and %zu",
                      (int)node->n_inputs, (int)node->n_outputs, function->n_input, function->n_output);
        return;
    }
    trm_status status =
        define_all(node->import, &scope, function->input, function->n_input, node->input_values, node->n_inputs);
    if (status == TRM_OK) {
        status = trm_onnx_import_nodes(node->import, &scope, function->node, function->n_node);
    }
    node->status = status;
    for (int32_t i = 0; i < node->n_outputs && node->status == TRM_OK; i++) {
        if (trm_onnx_wants(node, i)) {
            node->outputs[i] = take_output(node, &scope, trm_onnx_text(function->output[i]));
        }
    }
    trm_onnx_scope_fini(&scope);
}

bool trm_onnx_body_fits(trm_onnx_node *node, const Onnx__GraphProto *graph, const char *part, int32_t n_inputs,
                        int32_t n_outputs)
{
    if (graph->n_input != (size_t)n_inputs || graph->n_output < (size_t)n_outputs) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "%s has %zu inputs and %zu outputs, expected %d and %d", part,
                      graph->n_input, graph->n_output, (int)n_inputs, (int)n_outputs);
        return false;
    }
    return true;
}

void trm_onnx_run_body(trm_onnx_node *node, const Onnx__GraphProto *graph, const char *part,
                       trm_onnx_value *const *inputs, int32_t n_inputs, trm_onnx_value **outputs, int32_t n_outputs)
{
    trm_onnx_scope scope;
    if (trm_onnx_failed(node) || !trm_onnx_spend(node, 1) ||
        !trm_onnx_body_fits(node, graph, part, n_inputs, n_outputs) || !open_scope(node, part, &scope)) {
        return;
    }
    scope.around = node->scope;
    scope.opsets = node->scope->opsets;
    scope.n_opsets = node->scope->n_opsets;
    trm_status status = TRM_OK;
    for (size_t i = 0; i < graph->n_input && status == TRM_OK; i++) {
        char *name = graph->input[i]->name;
        status = define_all(node->import, &scope, &name, 1, inputs + i, 1);
    }
    if (status == TRM_OK) {
        status = trm_onnx_define_initializers(node->import, &scope, graph);
    }
    if (status == TRM_OK) {
        status = trm_onnx_import_nodes(node->import, &scope, graph->node, graph->n_node);
    }
    node->status = status;
    for (int32_t i = 0; i < n_outputs && node->status == TRM_OK; i++) {
        outputs[i] = take_output(node, &scope, trm_onnx_text(graph->output[i]->name));
    }
    trm_onnx_scope_fini(&scope);
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static trm_status check_options(const trm_onnx_options *options)
{
    bool lists =
        (options->n_values == 0 || options->values != NULL) && (options->n_dims == 0 || options->dims != NULL) &&
        (options->n_inputs == 0 || options->inputs != NULL) && (options->n_types == 0 || options->types != NULL);
    if (!lists || options->n_types < 0 || options->n_values < 0 || options->n_dims < 0 || options->n_inputs < 0 ||
        options->n_ranks < 0 || options->max_trips < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "a list of the options is NULL or of negative length, or a number of them is negative");
    }
    return TRM_OK;
}

static trm_status import_graph(trm_onnx_import *import)
{
    trm_onnx *model = import->model;
    trm_onnx_scope scope = {
        .place = "", .prefix = "", .opsets = model->proto->opset_import, .n_opsets = model->proto->n_opset_import};
    TRM_TRY(trm_onnx_check_types(import));
    trm_status status = trm_onnx_define_initializers(import, &scope, model->graph);
    if (status == TRM_OK) {
        status = trm_onnx_define_inputs(import, &scope);
    }
    if (status == TRM_OK) {
        status = trm_onnx_import_nodes(import, &scope, model->graph->node, model->graph->n_node);
    }
    if (status == TRM_OK) {
        status = trm_onnx_mark_outputs(import, &scope);
    }
    if (status == TRM_OK) {
        const trm_status overlap = trm_onnx_check_ranges(model);
        status = overlap == TRM_OK ? TRM_OK : trm_onnx_record_graph_issue(import, &scope, overlap);
    }
    trm_onnx_scope_fini(&scope);
    return status;
}

/* Fails if there are issues, with the first of them. */
static trm_status check_issues(const trm_onnx *model)
{
    if (model->n_issues == 0) {
        return TRM_OK;
    }
    char more[48] = "";
    if (model->n_issues > 1) {
        snprintf(more, sizeof(more), " (and %d more)", (int)model->n_issues - 1);
    }
    return trm_fail(model->issues[0].status, "%s%s", model->issues[0].text, more);
}

TRM_CALL(NULL, trm_onnx_build_network, (trm_onnx *model, const trm_onnx_options *options, trm_network **network),
         (model, options, network))
{
    trm_onnx_options own = TRM_ONNX_OPTIONS_INIT;
    if (model == NULL || network == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot build a network: model or network is NULL");
    }
    TRM_TRY(trm_options_read("onnx options", options, &own));
    options = &own;
    TRM_TRY(check_options(options));
    trm_arena_fini(&model->issue_arena);
    model->n_issues = 0;
    model->n_ranges = 0;
    trm_tensor nothing = {.name = "", .role = TRM_TENSOR_ACTIVATION, .dtype = TRM_F32};
    trm_onnx_import import = {.model = model, .options = options, .nothing = &nothing};
    TRM_TRY(trm_network_create(&import.network));
    import.network->refittable = options->refittable;
    trm_status status = import_graph(&import);
    if (status == TRM_OK) {
        status = check_issues(model);
    }
    if (status == TRM_OK) {
        status = remove_discarded(&import);
    }
    if (import.stream != NULL) {
        trm_stream_destroy(import.stream);
    }
    if (import.device != NULL) {
        trm_device_close(import.device);
    }
    trm_map_fini(&import.constants);
    trm_arena_fini(&import.arena);
    if (status != TRM_OK) {
        trm_network_destroy(import.network);
        return status;
    }
    *network = import.network;
    return TRM_OK;
}
