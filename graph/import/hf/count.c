/* Counts the weights of a decoder's network that a step reads in part: experts, and tables that it takes rows from. */
#include "graph/import/hf/count.h"

#include "kernels/kernel.h"

static int64_t weight_bytes(const trm_tensor *tensor)
{
    return trm_dims_count(&tensor->dims) * (int64_t)trm_dtype_size(trm_weight_dtype(tensor->weight));
}

static bool is_scale(int32_t input)
{
    return input == TRM_EXPERTS_GATE_UP_SCALE || input == TRM_EXPERTS_DOWN_SCALE ||
           input == TRM_EXPERTS_GATE_UP_ZERO_POINT || input == TRM_EXPERTS_DOWN_ZERO_POINT;
}

static void count_experts(const trm_layer *layer, trm_hf_counts *counts)
{
    counts->expert_layers++;
    for (int32_t k = TRM_EXPERTS_GATE_UP; k < layer->n_inputs; k++) {
        const trm_tensor *tensor = layer->inputs[k];
        if (tensor == NULL || tensor->weight == NULL) {
            continue;
        }
        counts->expert_bytes += weight_bytes(tensor);
        if (!is_scale(k)) {
            counts->expert_parameters += trm_dims_count(&tensor->dims) * (tensor->dtype == TRM_U8 ? 2 : 1);
        }
    }
}

/* Whether a layer other than `reader` has the tensor, too: a tied output projection. */
static bool has_other_reader(const trm_network *network, const trm_tensor *tensor, const trm_layer *reader)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        for (int32_t k = 0; layer != reader && k < layer->n_inputs; k++) {
            if (layer->inputs[k] == tensor) {
                return true;
            }
        }
    }
    return false;
}

void trm_hf_count(const trm_network *network, trm_hf_counts *counts)
{
    *counts = (trm_hf_counts){0};
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        if (layer->desc.kind == TRM_LAYER_EXPERTS) {
            count_experts(layer, counts);
        } else if (layer->desc.kind == TRM_LAYER_EMBEDDING && layer->inputs[0]->weight != NULL &&
                   !has_other_reader(network, layer->inputs[0], layer)) {
            counts->table_bytes += weight_bytes(layer->inputs[0]);
            counts->row_bytes += weight_bytes(layer->inputs[0]) / layer->inputs[0]->dims.d[0];
        }
    }
}
