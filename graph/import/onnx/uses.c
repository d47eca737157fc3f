/* Which operators and functions a model uses. */
#include "graph/import/onnx/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/import/onnx/ops/ops.h"

const char *trm_onnx_domain(const char *domain)
{
    domain = trm_onnx_text(domain);
    return strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

int64_t trm_onnx_opset(Onnx__OperatorSetIdProto *const *opsets, size_t n, const char *domain)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(trm_onnx_domain(opsets[i]->domain), domain) == 0) {
            return opsets[i]->version;
        }
    }
    return -1;
}

/* What tells functions apart, one after the other with a character between that no name has. */
static size_t function_key(const char *domain, const char *name, const char *overload, char *key, size_t size)
{
    int length =
        snprintf(key, size, "%s\n%s\n%s", trm_onnx_domain(domain), trm_onnx_text(name), trm_onnx_text(overload));
    return (size_t)length < size ? (size_t)length : size - 1;
}
enum { LONGEST_KEY = 3 * (4096 + 1) };

trm_status trm_onnx_index_functions(trm_onnx *model)
{
    for (size_t i = 0; i < model->proto->n_functions; i++) {
        const Onnx__FunctionProto *function = model->proto->functions[i];
        char text[LONGEST_KEY];
        size_t length = function_key(function->domain, function->name, function->overload, text, sizeof(text));
        const char *key = trm_arena_strdup(&model->arena, text);
        bool existing;
        if (key == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        TRM_TRY(trm_map_add(&model->functions, key, length, (uint32_t)i, &existing));
        if (existing) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: two functions %s of domain \"%s\"", model->path,
                     trm_onnx_text(function->name), trm_onnx_domain(function->domain));
        }
    }
    return TRM_OK;
}

const Onnx__FunctionProto *trm_onnx_find_function(const trm_onnx *model, const Onnx__NodeProto *node)
{
    char key[LONGEST_KEY];
    uint32_t index;
    if (model->functions.count == 0) {
        return NULL;
    }
    size_t length = function_key(node->domain, node->op_type, node->overload, key, sizeof(key));
    return trm_map_find(&model->functions, key, length, &index) ? model->proto->functions[index] : NULL;
}

/* A list of nodes whose operators are counted, and the opsets they mean. */
typedef struct node_list {
    Onnx__NodeProto *const *nodes;
    size_t n_nodes;
    Onnx__OperatorSetIdProto *const *opsets;
    size_t n_opsets;
} node_list;

static trm_status add_use(trm_onnx *model, const Onnx__NodeProto *node, const char *key, int64_t opset)
{
    if (model->n_uses == model->use_capacity) {
        int32_t wanted = model->use_capacity * 2 + 32;
        trm_onnx_use *grown = realloc(model->uses, (size_t)wanted * sizeof(*grown));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d operators", wanted);
        }
        model->uses = grown;
        model->use_capacity = wanted;
    }
    bool existing;
    TRM_TRY(trm_map_add(&model->use_names, key, strlen(key), (uint32_t)model->n_uses, &existing));
    const char *domain = trm_onnx_domain(node->domain), *type = trm_onnx_text(node->op_type);
    bool known = trm_onnx_find_function(model, node) != NULL ||
                 trm_onnx_find_operator(domain, type, opset, NULL) != NULL ||
                 trm_onnx_find_plugin(domain, type, opset) != NULL;
    model->uses[model->n_uses++] = (trm_onnx_use){domain, type, opset < 0 ? 0 : opset, 0, known};
    return TRM_OK;
}

static trm_status count_node(trm_onnx *model, const Onnx__NodeProto *node, const node_list *list)
{
    const char *domain = trm_onnx_domain(node->domain);
    int64_t opset = trm_onnx_opset(list->opsets, list->n_opsets, domain);
    char text[256];
    snprintf(text, sizeof(text), "%s.%s %lld", domain, trm_onnx_text(node->op_type), (long long)opset);
    uint32_t index;
    if (!trm_map_find(&model->use_names, text, strlen(text), &index)) {
        const char *key = trm_arena_strdup(&model->arena, text);
        if (key == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        index = (uint32_t)model->n_uses;
        TRM_TRY(add_use(model, node, key, opset));
    }
    model->uses[index].nodes++;
    return TRM_OK;
}

/* Bodies are nested as deep as the pass over the file allows. */
static trm_status count_nodes(trm_onnx *model, const node_list *list)
{
    for (size_t i = 0; i < list->n_nodes; i++) {
        const Onnx__NodeProto *node = list->nodes[i];
        TRM_TRY(count_node(model, node, list));
        for (size_t k = 0; k < node->n_attribute; k++) {
            const Onnx__AttributeProto *attribute = node->attribute[k];
            node_list body = *list;
            if (attribute->g != NULL) {
                body.nodes = attribute->g->node;
                body.n_nodes = attribute->g->n_node;
                TRM_TRY(count_nodes(model, &body));
            }
        }
    }
    return TRM_OK;
}

trm_status trm_onnx_count_uses(trm_onnx *model)
{
    const Onnx__ModelProto *proto = model->proto;
    node_list list = {model->graph->node, model->graph->n_node, proto->opset_import, proto->n_opset_import};
    TRM_TRY(count_nodes(model, &list));
    for (size_t i = 0; i < proto->n_functions; i++) {
        const Onnx__FunctionProto *function = proto->functions[i];
        list = (node_list){function->node, function->n_node, function->opset_import, function->n_opset_import};
        TRM_TRY(count_nodes(model, &list));
    }
    return TRM_OK;
}

bool trm_onnx_get_use(const trm_onnx *model, int32_t index, trm_onnx_use *use)
{
    if (index < 0 || index >= model->n_uses) {
        return false;
    }
    *use = model->uses[index];
    return true;
}
