/* Edits of passes: replace uses, rename tensors, remove, move and sort layers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/network.h"
#include "graph/regions.h"

void trm_network_replace_uses(trm_network *network, trm_tensor *from, trm_tensor *to)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            if (layer->inputs[j] == from) {
                layer->inputs[j] = to;
            }
        }
    }
    for (int32_t i = 0; i < network->n_outputs; i++) {
        if (network->outputs[i] == from) {
            network->outputs[i] = to;
            to->is_output = true;
        }
    }
    from->is_output = false;
}

trm_status trm_network_rename_tensor(trm_network *network, trm_tensor *tensor, const char *name)
{
    if (trm_network_find_tensor(network, name) != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot rename %s to %s: a tensor has that name", tensor->name, name);
    }
    const char *copy = trm_arena_strdup(&network->arena, name);
    if (copy == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    /* The old name stays taken: the layer keeps it. */
    if (network->names_known &&
        (trm_map_set(&network->names, tensor->name, strlen(tensor->name), TRM_NO_TENSOR) != TRM_OK ||
         trm_map_set(&network->names, copy, strlen(copy), (uint32_t)tensor->index) != TRM_OK)) {
        network->names_known = false;
    }
    tensor->name = copy;
    return TRM_OK;
}

/* Marks tensors in use with index 0, the others with -1, before they are renumbered. */
static void mark_used_tensors(trm_network *network)
{
    for (int32_t i = 0; i < network->n_tensors; i++) {
        trm_tensor *tensor = network->tensors[i];
        tensor->index = tensor->role == TRM_TENSOR_INPUT || tensor->is_output ? 0 : -1;
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            if (layer->inputs[j] != NULL) {
                layer->inputs[j]->index = 0;
            }
        }
        for (int32_t j = 0; j < layer->n_outputs; j++) {
            layer->outputs[j]->index = 0;
        }
    }
}

void trm_network_remove_layers(trm_network *network, const bool *remove)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        if (remove[i]) {
            for (int32_t j = 0; j < layer->n_outputs; j++) {
                layer->outputs[j]->producer = NULL;
            }
            continue;
        }
        layer->index = kept;
        network->layers[kept++] = layer;
    }
    network->n_layers = kept;
    mark_used_tensors(network);
    kept = 0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        trm_tensor *tensor = network->tensors[i];
        if (tensor->index < 0) {
            trm_weight_destroy(tensor->weight);
            tensor->weight = NULL;
            continue;
        }
        assert(tensor->role != TRM_TENSOR_ACTIVATION || tensor->producer != NULL);
        tensor->index = kept;
        network->tensors[kept++] = tensor;
    }
    network->n_tensors = kept;
    trm_network_index_names(network);
}

void trm_network_move_layer(trm_network *network, trm_layer *layer, int32_t index)
{
    assert(index >= 0 && index <= layer->index && network->layers[layer->index] == layer);
    for (int32_t i = layer->index; i > index; i--) {
        network->layers[i] = network->layers[i - 1];
        network->layers[i]->index = i;
    }
    network->layers[index] = layer;
    layer->index = index;
}

/* State of the sort for a layer, by its index. */
enum { SORT_UNSEEN, SORT_OPEN, SORT_DONE };

/* The first producer that `layer` reads and that is not yet placed, or NULL. */
static trm_layer *unplaced_producer(const trm_layer *layer, const unsigned char *marks)
{
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        trm_layer *producer = layer->inputs[i] == NULL ? NULL : layer->inputs[i]->producer;
        if (producer != NULL && marks[producer->index] != SORT_DONE) {
            return producer;
        }
    }
    return NULL;
}

/*
 * The first layer that must precede `layer` and is not yet placed, or NULL: what it reads; what enters its region, if
 * it begins one, so that no outside layer is drawn into the region; its region, if it ends one.
 */
static trm_layer *next_unplaced(const trm_network *network, const trm_regions *regions, const trm_layer *layer,
                                const unsigned char *marks)
{
    bool begins = regions->n > 0 && trm_kind_begins_region(layer->desc.kind);
    bool ends = regions->n > 0 && trm_kind_ends_region(layer->desc.kind);
    int32_t from = begins ? layer->index : ends ? regions->other[layer->index] : 0;
    int32_t to = begins ? regions->other[layer->index] : ends ? layer->index : 0;
    for (int32_t i = from + 1; i < to; i++) {
        trm_layer *inner = network->layers[i];
        if (ends && marks[i] != SORT_DONE) {
            return inner;
        }
        bool is_own = begins && regions->inside[i] == layer->index;
        trm_layer *outer = is_own && trm_regions_enters(regions, inner)   ? inner->inputs[0]->producer
                           : is_own && inner->desc.kind == TRM_LAYER_NEXT ? inner->inputs[1]->producer
                                                                          : NULL;
        if (outer != NULL && marks[outer->index] != SORT_DONE) {
            return outer;
        }
    }
    return unplaced_producer(layer, marks);
}

trm_status trm_network_sort(trm_network *network)
{
    size_t n = (size_t)network->n_layers;
    trm_layer **sorted = calloc(n + 1, sizeof(trm_layer *));
    trm_layer **stack = calloc(n + 1, sizeof(trm_layer *));
    unsigned char *marks = calloc(n + 1, 1);
    trm_regions regions = {0};
    trm_status status = TRM_OK;
    int32_t n_sorted = 0;
    if (sorted == NULL || stack == NULL || marks == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot sort a network of %zu layers", n);
        goto done;
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        network->layers[i]->index = i;
    }
    TRM_TRY_GOTO(status, trm_regions_find(network, &regions), done);
    for (int32_t i = 0; i < network->n_layers; i++) {
        int32_t depth = 0;
        if (marks[i] == SORT_UNSEEN) {
            stack[depth++] = network->layers[i];
        }
        while (depth > 0) {
            trm_layer *layer = stack[depth - 1];
            marks[layer->index] = SORT_OPEN;
            trm_layer *producer = next_unplaced(network, &regions, layer, marks);
            if (producer == NULL) {
                marks[layer->index] = SORT_DONE;
                sorted[n_sorted++] = layer;
                depth--;
            } else if (marks[producer->index] == SORT_OPEN) {
                status = trm_fail(TRM_ERROR_INVALID_MODEL, "the network has a cycle through layers %s and %s",
                                  producer->name, layer->name);
                goto done;
            } else {
                stack[depth++] = producer;
            }
        }
    }
    for (int32_t i = 0; i < n_sorted; i++) {
        network->layers[i] = sorted[i];
        sorted[i]->index = i;
    }
done:
    trm_regions_fini(&regions);
    free(sorted);
    free(stack);
    free(marks);
    return status;
}
