/* Uses and classes of dims. */
#include "graph/passes/analysis.h"

#include <stdlib.h>

#include "base/error.h"
#include "graph/kinds/kind.h"
#include "graph/regions.h"

/* ---- classes of dims --------------------------------------------------------------------------- */

static void find_classes(const trm_network *network, trm_analysis *analysis)
{
    trm_size_walk walk = {analysis->dim_class, 0};
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        for (int32_t j = 0; tensor->role != TRM_TENSOR_ACTIVATION && j < tensor->dims.n; j++) {
            trm_size_set(&walk, tensor, j, NULL, 0);
        }
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        const trm_kind *kind = trm_kind_of(layer);
        for (int32_t k = 0; kind->sizes == NULL && k < layer->n_outputs; k++) {
            trm_sizes_follow(&walk, layer->outputs[k], NULL, 0);
        }
        if (kind->sizes != NULL) {
            kind->sizes(&walk, layer);
        }
    }
    analysis->n_classes = walk.next;
}

bool trm_analysis_same_dims(const trm_analysis *analysis, const trm_tensor *a, const trm_tensor *b)
{
    bool same = trm_dims_equal(&a->dims, &b->dims);
    for (int32_t i = 0; same && i < a->dims.n; i++) {
        same = a->dims.d[i] != -1 || analysis->dim_class[a->index][i] == analysis->dim_class[b->index][i];
    }
    return same;
}

/* ---- uses -------------------------------------------------------------------------------------- */

static void count_uses(const trm_network *network, trm_analysis *analysis)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            if (layer->inputs[j] != NULL) {
                int32_t index = layer->inputs[j]->index;
                analysis->user[index] = analysis->use_count[index]++ == 0 ? layer : NULL;
            }
        }
    }
    for (int32_t i = 0; i < network->n_outputs; i++) {
        int32_t index = network->outputs[i]->index;
        analysis->use_count[index]++;
        analysis->user[index] = NULL;
    }
}

trm_layer *trm_analysis_only_user(const trm_analysis *analysis, const trm_tensor *tensor)
{
    trm_layer *user = tensor->pin == NULL ? analysis->user[tensor->index] : NULL;
    return user != NULL && !analysis->touched[user->index] ? user : NULL;
}

trm_layer *trm_analysis_private_producer(const trm_analysis *analysis, const trm_tensor *tensor, trm_layer_kind kind)
{
    trm_layer *producer = tensor == NULL ? NULL : tensor->producer;
    bool is_private = producer != NULL && producer->desc.kind == kind && !analysis->touched[producer->index] &&
                      trm_analysis_only_user(analysis, tensor) != NULL;
    return is_private ? producer : NULL;
}

bool trm_layer_has_effects(const trm_layer *layer)
{
    if (trm_layer_collective(&layer->desc) != NULL) {
        return true;
    }
    if (trm_kind_is_control(layer->desc.kind)) { /* layers follow these links */
        return layer->desc.kind != TRM_LAYER_ENTER && layer->desc.kind != TRM_LAYER_MERGE &&
               layer->desc.kind != TRM_LAYER_LOOP_OUTPUT;
    }
    for (int32_t i = 0; i < layer->n_inputs && !trm_kind_is(layer, TRM_KIND_READS_STATES); i++) {
        if (layer->inputs[i] != NULL && layer->inputs[i]->role == TRM_TENSOR_STATE) {
            return true;
        }
    }
    return layer->desc.kind == TRM_LAYER_ATTENTION && layer->desc.attention.n_ranks > 1;
}

/* ---- life -------------------------------------------------------------------------------------- */

trm_status trm_analysis_init(const trm_network *network, trm_analysis *analysis)
{
    size_t tensors = (size_t)network->n_tensors + 1, layers = (size_t)network->n_layers + 1;
    *analysis = (trm_analysis){.n_tensors = network->n_tensors, .n_layers = network->n_layers};
    analysis->use_count = calloc(tensors, sizeof(*analysis->use_count));
    analysis->user = calloc(tensors, sizeof(trm_layer *));
    analysis->dim_class = calloc(tensors, sizeof(*analysis->dim_class));
    analysis->touched = calloc(layers, sizeof(*analysis->touched));
    if (analysis->use_count == NULL || analysis->user == NULL || analysis->dim_class == NULL ||
        analysis->touched == NULL) {
        trm_analysis_fini(analysis);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot analyze a network of %zu tensors", tensors);
    }
    count_uses(network, analysis);
    find_classes(network, analysis);
    return TRM_OK;
}

void trm_analysis_fini(trm_analysis *analysis)
{
    free(analysis->use_count);
    free(analysis->user);
    free(analysis->dim_class);
    free(analysis->touched);
    *analysis = (trm_analysis){0};
}
