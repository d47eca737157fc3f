/* What holds of every network that was read from a file. */
#ifndef TESTS_FUZZ_NETWORK_H
#define TESTS_FUZZ_NETWORK_H

#include "fuzz.h"
#include "graph/network.h"

/* Layers read tensors of the network that come before them, and constants have values. */
static inline void fuzz_require_links(const trm_network *network)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            const trm_tensor *input = layer->inputs[k];
            FUZZ_REQUIRE(input == NULL || network->tensors[input->index] == input);
            FUZZ_REQUIRE(input == NULL || input->producer == NULL || input->producer->index < i);
        }
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        FUZZ_REQUIRE(tensor->role != TRM_TENSOR_CONSTANT || tensor->value != NULL || tensor->weight != NULL);
    }
}

#endif
