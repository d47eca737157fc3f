/*
 * Common subexpressions: a layer or constant that equals an earlier one is replaced by it.
 */
#include "graph/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "graph/params.h"
#include "graph/passes/analysis.h"
#include "graph/regions.h"

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

/* Equal constants have equal hashes; weights, whose elements are not read, hash by their dims. */
static uint64_t hash_constant(const trm_tensor *tensor)
{
    uint64_t hash = trm_hash_bytes(TRM_HASH_START, &tensor->dtype, sizeof(tensor->dtype));
    hash = trm_hash_bytes(hash, tensor->dims.d, (size_t)tensor->dims.n * sizeof(tensor->dims.d[0]));
    if (tensor->weight == NULL) {
        hash = trm_hash_bytes(hash, tensor->value, trm_dims_bytes(&tensor->dims, tensor->dtype));
    }
    return hash ^ (hash >> 32);
}

/* Positions in chains by a key below the number of chains; the latest first. */
typedef struct chains {
    int32_t *latest;   /* [n_chains], or -1 */
    int32_t *previous; /* [n_items], or -1 */
} chains;

static void chains_fini(chains *self)
{
    free(self->latest);
    free(self->previous);
}

static trm_status chains_init(chains *self, size_t n_chains, size_t n_items)
{
    self->latest = malloc((n_chains + 1) * sizeof(int32_t));
    self->previous = malloc((n_items + 1) * sizeof(int32_t));
    if (self->latest == NULL || self->previous == NULL) {
        chains_fini(self);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot compare %zu layers or constants", n_items);
    }
    memset(self->latest, 0xff, (n_chains + 1) * sizeof(int32_t));
    return TRM_OK;
}

static void chains_add(chains *self, size_t chain, int32_t item)
{
    self->previous[item] = self->latest[chain];
    self->latest[chain] = item;
}

static trm_tensor *find_same_constant(const trm_network *network, const chains *seen, size_t chain,
                                      const trm_tensor *tensor)
{
    for (int32_t i = seen->latest[chain]; i >= 0; i = seen->previous[i]) {
        if (same_constant(network->tensors[i], tensor)) {
            return network->tensors[i];
        }
    }
    return NULL;
}

static trm_status merge_constants(trm_network *network, int32_t *changes)
{
    size_t n = (size_t)network->n_tensors;
    chains seen;
    TRM_TRY(chains_init(&seen, n, n));
    for (int32_t i = 0; i < network->n_tensors; i++) {
        trm_tensor *tensor = network->tensors[i];
        if (tensor->role != TRM_TENSOR_CONSTANT) {
            continue;
        }
        size_t chain = (size_t)(hash_constant(tensor) % n);
        trm_tensor *same = tensor->is_output ? NULL : find_same_constant(network, &seen, chain, tensor);
        if (same == NULL) {
            chains_add(&seen, chain, i);
        } else if (trm_network_consumers(network, tensor, NULL, 0) > 0) { /* an unused copy waits for dead code */
            trm_network_replace_uses(network, tensor, same);
            (*changes)++;
        }
    }
    chains_fini(&seen);
    return TRM_OK;
}

/* ---- layers ------------------------------------------------------------------------------------ */

/*
 * Whether running the layer once equals running it twice. Exchanges between ranks are never merged: shards of two
 * constants may be equal on one rank and differ on the next, and every rank must make the same exchanges. Layers of
 * control flow are where they are for a reason, and two layers of constants may lie in different regions.
 */
static bool may_be_merged(const trm_layer *layer, bool has_regions)
{
    bool is_computed = !has_regions;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        is_computed = is_computed || (layer->inputs[i] != NULL && layer->inputs[i]->role != TRM_TENSOR_CONSTANT);
    }
    return layer->n_inputs > 0 && layer->inputs[0] != NULL && is_computed && !trm_kind_is_control(layer->desc.kind) &&
           !trm_layer_has_effects(layer);
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

/* `seen` has the layers kept so far by the tensor they read first. */
static trm_layer *find_same_layer(const trm_network *network, const chains *seen, const trm_layer *layer)
{
    for (int32_t i = seen->latest[layer->inputs[0]->index]; i >= 0; i = seen->previous[i]) {
        if (same_layer(network->layers[i], layer)) {
            return network->layers[i];
        }
    }
    return NULL;
}

/* Marks the layers merged in `remove`. */
static trm_status merge_layers(trm_network *network, bool *remove, int32_t *changes)
{
    chains seen;
    bool has_regions = trm_network_has_regions(network);
    TRM_TRY(chains_init(&seen, (size_t)network->n_tensors, (size_t)network->n_layers));
    for (int32_t i = 0; i < network->n_layers; i++) {
        trm_layer *layer = network->layers[i];
        if (!may_be_merged(layer, has_regions)) {
            continue;
        }
        trm_layer *same = has_network_output(layer) ? NULL : find_same_layer(network, &seen, layer);
        if (same == NULL) {
            chains_add(&seen, (size_t)layer->inputs[0]->index, i);
            continue;
        }
        for (int32_t j = 0; j < layer->n_outputs; j++) {
            trm_network_replace_uses(network, layer->outputs[j], same->outputs[j]);
        }
        remove[i] = true;
        (*changes)++;
    }
    chains_fini(&seen);
    return TRM_OK;
}

trm_status trm_pass_common_subexpressions(trm_network *network, int32_t *changes)
{
    bool *remove = calloc((size_t)network->n_layers + 1, sizeof(*remove));
    if (remove == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot compare %d layers", network->n_layers);
    }
    int32_t merged = 0;
    trm_status status = merge_constants(network, &merged);
    if (status == TRM_OK) {
        status = merge_layers(network, remove, &merged);
    }
    if (merged > 0) {
        trm_network_remove_layers(network, remove);
    }
    if (changes != NULL) {
        *changes += merged;
    }
    free(remove);
    return status;
}
