/* Sizes of states by sequence. */
#include "dist/llm/sequence_states.h"

bool trm_network_has_sequence_states(const trm_network *network)
{
    bool has = false;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        has = has || trm_tensor_is_by_sequence(network->tensors[i]);
    }
    return has;
}

/* Tokens before a step's first that a layer reads of a state. */
static int64_t tokens_read(const trm_network *network, const trm_tensor *state)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        if (layer->desc.kind == TRM_LAYER_SHORT_CONVOLUTION && layer->inputs[TRM_SHORT_CONVOLUTION_CACHE] == state) {
            return layer->inputs[TRM_SHORT_CONVOLUTION_WEIGHT]->dims.d[1] - 1;
        }
    }
    return 1;
}

trm_dims trm_sequence_state_dims(const trm_network *network, const trm_tensor *state, int32_t slots, int32_t versions)
{
    const int64_t read = tokens_read(network, state);
    trm_dims dims = state->dims;
    dims.d[0] = slots;
    dims.d[1] = (read > 1 ? read : 1) + versions - 1;
    return dims;
}
