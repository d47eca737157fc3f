/*
 * Dead code: removes layers and tensors that no output of the network needs.
 */
#include "graph/network.h"

#include <stdlib.h>

#include "base/error.h"
#include "graph/passes/analysis.h"

trm_status trm_pass_dead_code(trm_network *network, int32_t *changes)
{
    int32_t n_layers = network->n_layers, n_tensors = network->n_tensors;
    bool *needed = calloc((size_t)n_tensors + 1, sizeof(*needed));
    bool *remove = calloc((size_t)n_layers + 1, sizeof(*remove));
    if (needed == NULL || remove == NULL) {
        free(needed);
        free(remove);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot remove dead code from a network of %d layers", n_layers);
    }
    for (int32_t i = 0; i < network->n_outputs; i++) {
        needed[network->outputs[i]->index] = true;
    }
    for (int32_t i = n_layers; i-- > 0;) {
        const trm_layer *layer = network->layers[i];
        remove[i] = !trm_layer_has_effects(layer);
        for (int32_t j = 0; j < layer->n_outputs; j++) {
            remove[i] = remove[i] && !needed[layer->outputs[j]->index];
        }
        for (int32_t j = 0; !remove[i] && j < layer->n_inputs; j++) {
            if (layer->inputs[j] != NULL) {
                needed[layer->inputs[j]->index] = true;
            }
        }
    }
    trm_network_remove_layers(network, remove);
    free(needed);
    free(remove);
    if (changes != NULL) {
        *changes += n_layers - network->n_layers + n_tensors - network->n_tensors;
    }
    return TRM_OK;
}
