/* Weights for a refit, by name: from an ONNX file or a folder of safetensors. */
#include "dist/plan/weight_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/import/onnx/model.h"

struct trm_weight_source {
    char *path;
    trm_onnx *onnx; /* one of the two */
    trm_safetensors *safetensors;
};

trm_status trm_weight_source_open(const char *path, trm_weight_source **source)
{
    trm_weight_source *made = calloc(1, sizeof(*made));
    char *copy = strdup(path);
    if (made == NULL || copy == NULL) {
        free(made);
        free(copy);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a source of weights");
    }
    made->path = copy;
    size_t length = strlen(path);
    bool is_onnx = length > 5 && strcmp(path + length - 5, ".onnx") == 0;
    trm_status status = is_onnx ? trm_onnx_open(path, &made->onnx) : trm_safetensors_open(path, &made->safetensors);
    if (status != TRM_OK) {
        trm_weight_source_close(made);
        return status;
    }
    *source = made;
    return TRM_OK;
}

void trm_weight_source_close(trm_weight_source *source)
{
    if (source != NULL) {
        trm_onnx_close(source->onnx);
        if (source->safetensors != NULL) {
            trm_safetensors_close(source->safetensors);
        }
        free(source->path);
        free(source);
    }
}

trm_status trm_weight_source_find(trm_weight_source *source, const char *name, trm_weight **weight)
{
    *weight = NULL;
    if (source->onnx != NULL) {
        return trm_onnx_find_weight(source->onnx, name, weight);
    }
    return trm_safetensors_has(source->safetensors, name) ? trm_safetensors_weight(source->safetensors, name, weight)
                                                          : TRM_OK;
}

trm_status trm_weight_check_like(const trm_weight *weight, const trm_weight_form *stored, const char *from)
{
    char found[TRM_DIMS_TEXT_SIZE], expected[TRM_DIMS_TEXT_SIZE];
    trm_dims dims = trm_weight_dims(weight);
    if (trm_weight_dtype(weight) != stored->dtype || !trm_dims_equal(&dims, &stored->dims)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight %s of %s is %s %s, expected %s %s", stored->name, from,
                 trm_dtype_name(trm_weight_dtype(weight)), trm_dims_format(&dims, found), trm_dtype_name(stored->dtype),
                 trm_dims_format(&stored->dims, expected));
    }
    return TRM_OK;
}

trm_status trm_weight_source_replace(trm_weight_source *source, const trm_weight_form *stored, trm_weight **weight)
{
    TRM_TRY(trm_weight_source_find(source, stored->name, weight));
    if (*weight == NULL) {
        return TRM_OK;
    }
    trm_status status = trm_weight_check_like(*weight, stored, source->path);
    if (status != TRM_OK) {
        trm_weight_destroy(*weight);
        *weight = NULL;
    }
    return status;
}

const char *trm_weight_source_path(const trm_weight_source *source)
{
    return source->path;
}
