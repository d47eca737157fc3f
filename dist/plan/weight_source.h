/*
 * Where a refit takes weights from, by the names that the model's author gave them: an ONNX file, or a folder of
 * safetensors.
 */
#ifndef TRM_DIST_PLAN_WEIGHT_SOURCE_H
#define TRM_DIST_PLAN_WEIGHT_SOURCE_H

#include "weight_stream/weight_form.h"

typedef struct trm_weight_source trm_weight_source;

trm_status trm_weight_source_open(const char *path, trm_weight_source **source);
void trm_weight_source_close(trm_weight_source *source); /* NULL is ignored; weights of it stay valid */
/* A weight of the whole tensor of this name; *weight is NULL where there is none. */
trm_status trm_weight_source_find(trm_weight_source *source, const char *name, trm_weight **weight);
/* The same, where what is stored in a plan's network is to be replaced: type and dims must be those of it. */
trm_status trm_weight_source_replace(trm_weight_source *source, const trm_weight_form *stored, trm_weight **weight);
const char *trm_weight_source_path(const trm_weight_source *source);

/* INVALID_ARGUMENT unless the weight has the type and dims of what it is to replace; `from` is where it comes from. */
trm_status trm_weight_check_like(const trm_weight *weight, const trm_weight_form *stored, const char *from);

#endif
