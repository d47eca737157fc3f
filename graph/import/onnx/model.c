/* trm_onnx: a file, its messages, and what they declare. */
#include "graph/import/onnx/model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"
#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/protobuf_scan.h"

/* ---- opening ------------------------------------------------------------------------------------------- */

static trm_status unpack(trm_onnx *model)
{
    trm_mapping bytes = trm_weight_file_bytes(model->file);
    uint8_t *compact = NULL;
    size_t size = 0;
    if (bytes.size == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the file is empty", model->path);
    }
    TRM_TRY(trm_onnx_compact(model->path, TRM_ONNX_MODEL, bytes.bytes, bytes.size, &compact, &size));
    model->proto = onnx__model_proto__unpack(NULL, size, compact);
    free(compact);
    if (model->proto == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: a field has another wire type than in the ONNX format", model->path);
    }
    model->graph = model->proto->graph;
    if (model->graph == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: no graph, expected an ONNX model", model->path);
    }
    const char *name = trm_onnx_text(model->proto->producer_name);
    const char *version = trm_onnx_text(model->proto->producer_version);
    model->producer =
        trm_arena_printf(&model->arena, "%s%s%s", name, name[0] != '\0' && version[0] != '\0' ? " " : "", version);
    return model->producer == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

static trm_status index_initializers(trm_onnx *model)
{
    const Onnx__GraphProto *graph = model->graph;
    bool existing;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const char *name = trm_onnx_text(graph->initializer[i]->name);
        TRM_TRY(trm_map_add(&model->initializers, name, strlen(name), 0, &existing));
    }
    for (size_t i = 0; i < graph->n_sparse_initializer; i++) {
        const Onnx__TensorProto *values = graph->sparse_initializer[i]->values;
        const char *name = values == NULL ? "" : trm_onnx_text(values->name);
        TRM_TRY(trm_map_add(&model->initializers, name, strlen(name), 0, &existing));
    }
    return TRM_OK;
}

trm_status trm_onnx_open_file(trm_weight_file *file, const char *path, const char *folder, trm_onnx **model)
{
    trm_onnx *opened = calloc(1, sizeof(*opened));
    if (opened == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the record of %s", path);
    }
    trm_weight_file_retain(file);
    opened->file = file;
    opened->path = trm_arena_strdup(&opened->arena, path);
    opened->folder = folder == NULL ? NULL : trm_arena_strdup(&opened->arena, folder);
    trm_status status =
        opened->path == NULL || (folder != NULL && opened->folder == NULL) ? TRM_ERROR_OUT_OF_MEMORY : unpack(opened);
    if (status == TRM_OK) {
        status = index_initializers(opened);
    }
    if (status == TRM_OK) {
        status = trm_onnx_index_functions(opened);
    }
    if (status == TRM_OK) {
        status = trm_onnx_sort_nodes(opened);
    }
    if (status == TRM_OK) {
        status = trm_onnx_count_uses(opened);
    }
    if (status != TRM_OK) {
        trm_onnx_close(opened);
        return status;
    }
    *model = opened;
    return TRM_OK;
}

TRM_CALL(NULL, trm_onnx_open, (const char *path, trm_onnx **model), (path, model))
{
    if (path == NULL || model == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot open an ONNX model: path or model is NULL");
    }
    const char *slash = strrchr(path, '/');
    trm_weight_file *file;
    TRM_TRY(trm_weight_file_open(path, slash == NULL ? path : slash + 1, &file));
    char resolved[PATH_MAX];
    bool found = realpath(path, resolved) != NULL;
    char *end = found ? strrchr(resolved, '/') : NULL;
    if (end != NULL) {
        end[end == resolved] = '\0'; /* the folder; "/" stays */
    }
    trm_status status = trm_onnx_open_file(file, path, end == NULL ? NULL : resolved, model);
    trm_weight_file_release(file);
    return status;
}

void trm_onnx_close(trm_onnx *model)
{
    if (model == NULL) {
        return;
    }
    if (model->proto != NULL) {
        onnx__model_proto__free_unpacked(model->proto, NULL);
    }
    for (int32_t i = 0; i < model->n_external; i++) {
        trm_weight_file_release(model->external[i]);
    }
    free(model->external);
    free(model->ranges);
    trm_map_fini(&model->external_names);
    trm_map_fini(&model->initializers);
    trm_map_fini(&model->functions);
    trm_map_fini(&model->use_names);
    free(model->uses);
    trm_weight_file_release(model->file);
    free(model->issues);
    trm_arena_fini(&model->issue_arena);
    trm_arena_fini(&model->arena);
    free(model);
}

/* ---- what it declares ---------------------------------------------------------------------------------- */

void trm_onnx_get_info(const trm_onnx *model, trm_onnx_info *info)
{
    *info = (trm_onnx_info){.path = model->path,
                            .producer = model->producer,
                            .ir_version = model->proto->ir_version,
                            .nodes = (int32_t)model->graph->n_node,
                            .functions = (int32_t)model->proto->n_functions};
    int64_t opset = trm_onnx_opset(model->proto->opset_import, model->proto->n_opset_import, "");
    info->opset = opset < 0 ? 0 : opset;
    for (size_t i = 0; i < model->proto->n_functions; i++) {
        const Onnx__FunctionProto *function = model->proto->functions[i];
        const int64_t own = trm_onnx_opset(function->opset_import, function->n_opset_import, "");
        opset = own > opset ? own : opset;
    }
    info->newer_opset = opset > TRM_ONNX_NEWEST_OPSET ? opset : 0;
    for (size_t i = 0; i < model->graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = model->graph->initializer[i];
        trm_onnx_elements elements;
        if (trm_onnx_tensor_check(tensor, "", &elements) == TRM_OK) {
            info->parameters += (int64_t)elements.count;
            info->weight_bytes += elements.bytes;
        }
    }
}

static bool is_initializer(const trm_onnx *model, const char *name)
{
    return trm_map_find(&model->initializers, name, strlen(name), NULL);
}

/* Among the inputs that have an initializer, or those that have none. */
static const Onnx__ValueInfoProto *find_input(const trm_onnx *model, bool stored, int32_t index, int32_t *count)
{
    *count = 0;
    for (size_t i = 0; i < model->graph->n_input; i++) {
        if (is_initializer(model, trm_onnx_text(model->graph->input[i]->name)) == stored && (*count)++ == index) {
            return model->graph->input[i];
        }
    }
    return NULL;
}

int32_t trm_onnx_input_count(const trm_onnx *model)
{
    int32_t count;
    find_input(model, false, -1, &count);
    return count;
}

int32_t trm_onnx_output_count(const trm_onnx *model)
{
    return (int32_t)model->graph->n_output;
}

static bool describe(trm_onnx *model, const Onnx__ValueInfoProto *info, trm_onnx_port *port)
{
    if (info == NULL || port == NULL) {
        return false;
    }
    char type[256];
    trm_onnx_type_format(info->type, type, sizeof(type));
    *port = (trm_onnx_port){.name = trm_onnx_text(info->name), .type = trm_arena_strdup(&model->arena, type)};
    if (port->type == NULL) {
        return false;
    }
    const Onnx__TypeProto__Tensor *tensor = info->type == NULL ? NULL : info->type->tensor_type;
    if (tensor == NULL) {
        return true;
    }
    port->dtype = trm_onnx_dtype(tensor->elem_type);
    port->has_dims = tensor->shape != NULL && tensor->shape->n_dim <= TRM_MAX_DIMS;
    port->dims.n = port->has_dims ? (int32_t)tensor->shape->n_dim : 0;
    for (int32_t i = 0; i < port->dims.n; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = tensor->shape->dim[i];
        port->dims.d[i] = dim->has_dim_value ? dim->dim_value : -1;
        port->dim_names[i] = trm_onnx_text(dim->dim_param)[0] != '\0' ? dim->dim_param : NULL;
    }
    return true;
}

bool trm_onnx_get_input(trm_onnx *model, int32_t index, trm_onnx_port *port)
{
    int32_t count;
    return index >= 0 && describe(model, find_input(model, false, index, &count), port);
}

bool trm_onnx_get_default(trm_onnx *model, int32_t index, trm_onnx_port *port)
{
    int32_t count;
    return index >= 0 && model->proto->ir_version >= TRM_ONNX_IR_OF_DEFAULTS &&
           describe(model, find_input(model, true, index, &count), port);
}

bool trm_onnx_get_output(trm_onnx *model, int32_t index, trm_onnx_port *port)
{
    bool there = index >= 0 && (size_t)index < model->graph->n_output;
    return there && describe(model, model->graph->output[index], port);
}

int32_t trm_onnx_issue_count(const trm_onnx *model)
{
    return model->n_issues;
}

bool trm_onnx_get_issue(const trm_onnx *model, int32_t index, trm_onnx_issue *issue)
{
    if (index < 0 || index >= model->n_issues) {
        return false;
    }
    *issue = model->issues[index];
    return true;
}
