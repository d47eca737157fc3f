/*
 * Common subexpressions: a layer or constant that is the same as an earlier one is replaced by it.
 */
#include "graph/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/params.h"
#include "graph/passes/analysis.h"

static bool same_pin(const trm_tensor *a, const trm_tensor *b)
{
    return a->pin == NULL || b->pin == NULL ? a->pin == b->pin : strcmp(a->pin, b->pin) == 0;
}

/* ---- constants --------------------------------------------------------------------------------- */

static bool same_constant(const trm_tensor *a, const trm_tensor *b)
{
    if (a->dtype != b->dtype || !trm_dims_equal(&a->dims, &b->dims) || !same_pin(a, b)) {
        return false;
    }
    if (a->weight != NULL || b->weight != NULL) {
        return a->weight != NULL && b->weight != NULL && trm_weight_equal(a->weight, b->weight);
    }
    return memcmp(a->value, b->value, trm_dims_bytes(&a->dims, a->dtype)) == 0;
}

static int32_t merge_constants(trm_network *network)
{
    int32_t changes = 0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        trm_tensor *later = network->tensors[i];
        if (later->role != TRM_TENSOR_CONSTANT || later->is_output) {
            continue;
        }
        for (int32_t j = 0; j < i; j++) {
            trm_tensor *earlier = network->tensors[j];
            if (earlier->role == TRM_TENSOR_CONSTANT && same_constant(earlier, later)) {
                /* Only what is read counts as a change: an unused copy waits for dead code. */
                changes += trm_network_consumers(network, later, NULL, 0) > 0;
                trm_network_replace_uses(network, later, earlier);
                break;
            }
        }
    }
    return changes;
}

/* ---- layers ------------------------------------------------------------------------------------ */

/*
 * Whether running the layer once is the same as running it twice. Exchanges between ranks are never merged: shards of
 * two constants may be equal on one rank and differ on the next, and every rank must make the same exchanges.
 */
static bool may_be_merged(const trm_layer *layer)
{
    return layer->n_inputs > 0 && layer->inputs[0] != NULL && !trm_layer_has_effects(layer);
}

static bool same_layer(const trm_layer *a, const trm_layer *b)
{
    if (a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs ||
        !trm_layer_desc_equal(&a->desc, &b->desc, a->inputs[0]->dims.n)) {
        return false;
    }
    for (int32_t i = 0; i < a->n_inputs; i++) {
        if (a->inputs[i] != b->inputs[i]) {
            return false;
        }
    }
    for (int32_t i = 0; i < a->n_outputs; i++) {
        if (!same_pin(a->outputs[i], b->outputs[i])) {
            return false;
        }
    }
    return true;
}

static bool has_network_output(const trm_layer *layer)
{
    bool has = false;
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        has = has || layer->outputs[i]->is_output;
    }
    return has;
}

/* Layers kept so far that read a tensor first, as chains from the latest. */
typedef struct first_readers {
    int32_t *latest;   /* [n_tensors] index of a layer, or -1 */
    int32_t *previous; /* [n_layers] index of a layer, or -1 */
} first_readers;

static trm_layer *find_same(const trm_network *network, const first_readers *readers, const trm_layer *layer)
{
    for (int32_t i = readers->latest[layer->inputs[0]->index]; i >= 0; i = readers->previous[i]) {
        if (same_layer(network->layers[i], layer)) {
            return network->layers[i];
        }
    }
    return NULL;
}

static int32_t merge_layers(trm_network *network, first_readers *readers, bool *remove)
{
    int32_t changes = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        if (!may_be_merged(layer)) {
            continue;
        }
        trm_layer *same = has_network_output(layer) ? NULL : find_same(network, readers, layer);
        if (same == NULL) {
            int32_t *latest = &readers->latest[layer->inputs[0]->index];
            readers->previous[i] = *latest;
            *latest = i;
            continue;
        }
        for (int32_t j = 0; j < layer->n_outputs; j++) {
            trm_network_replace_uses(network, layer->outputs[j], same->outputs[j]);
        }
        remove[i] = true;
        changes++;
    }
    return changes;
}

trm_status trm_pass_common_subexpressions(trm_network *network, int32_t *changes)
{
    size_t tensors = (size_t)network->n_tensors + 1, layers = (size_t)network->n_layers + 1;
    first_readers readers = {malloc(tensors * sizeof(int32_t)), malloc(layers * sizeof(int32_t))};
    bool *remove = calloc(layers, sizeof(*remove));
    trm_status status = TRM_OK;
    if (readers.latest == NULL || readers.previous == NULL || remove == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot compare a network of %zu layers", layers);
        goto done;
    }
    memset(readers.latest, 0xff, tensors * sizeof(int32_t));
    memset(readers.previous, 0xff, layers * sizeof(int32_t));
    int32_t merged = merge_constants(network);
    merged += merge_layers(network, &readers, remove);
    if (merged > 0) {
        trm_network_remove_layers(network, remove);
    }
    if (changes != NULL) {
        *changes += merged;
    }
done:
    free(readers.latest);
    free(readers.previous);
    free(remove);
    return status;
}
