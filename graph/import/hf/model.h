/*
 * Models with what only the importer gives: ways to quantize that have no name, and their weights.
 */
#ifndef TRM_GRAPH_IMPORT_HF_MODEL_H
#define TRM_GRAPH_IMPORT_HF_MODEL_H

#include <trireme/model.h>

#include "graph/import/hf/checkpoint.h"
#include "graph/import/hf/quantization.h"

/* trm_model_open, with the linear layers quantized as `how` says, if it is not NULL; its patterns must live on. */
trm_status trm_hf_open(const char *path, const trm_hf_quantization *how, trm_model **model);
trm_hf_checkpoint *trm_hf_model_checkpoint(trm_model *model);

#endif
