/*
 * The source of a refit's weights, by the names of the model's author: an ONNX file, or a folder of safetensors.
 */
#ifndef TRM_DIST_PLAN_WEIGHT_SOURCE_H
#define TRM_DIST_PLAN_WEIGHT_SOURCE_H

#include "weight_stream/weight_form.h"

typedef struct trm_weight_source trm_weight_source;

trm_status trm_weight_source_open(const char *path, trm_weight_source **source);
void trm_weight_source_close(trm_weight_source *source); /* ignores NULL; its weights stay valid */
/* The weight of the whole tensor of this name; *weight is NULL if the source has no such tensor. */
trm_status trm_weight_source_find(trm_weight_source *source, const char *name, trm_weight **weight);
/* The same, to replace a stored weight of a plan's network: type and dims must match. */
trm_status trm_weight_source_replace(trm_weight_source *source, const trm_weight_form *stored, trm_weight **weight);
const char *trm_weight_source_path(const trm_weight_source *source);

/* INVALID_ARGUMENT unless the weight has the type and dims of the one that it replaces; errors mention its source
 * `from`. */
trm_status trm_weight_check_like(const trm_weight *weight, const trm_weight_form *stored, const char *from);

#endif
