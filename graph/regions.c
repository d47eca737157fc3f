/* Finds and checks the regions of a network, and extends lifetimes of memory by them. */
#include "graph/regions.h"

#include <stdlib.h>

#include "base/error.h"
#include "graph/memory_plan.h"

bool trm_kind_begins_region(trm_layer_kind kind)
{
    return kind == TRM_LAYER_IF || kind == TRM_LAYER_LOOP;
}

bool trm_kind_ends_region(trm_layer_kind kind)
{
    return kind == TRM_LAYER_END_IF || kind == TRM_LAYER_END_LOOP;
}

bool trm_kind_is_control(trm_layer_kind kind)
{
    return trm_kind_begins_region(kind) || trm_kind_ends_region(kind) || kind == TRM_LAYER_ENTER ||
           kind == TRM_LAYER_RECURRENCE || kind == TRM_LAYER_NEXT || kind == TRM_LAYER_LOOP_OUTPUT ||
           kind == TRM_LAYER_MERGE;
}

bool trm_network_has_regions(const trm_network *network)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        if (trm_kind_begins_region(network->layers[i]->desc.kind)) {
            return true;
        }
    }
    return false;
}

void trm_regions_fini(trm_regions *regions)
{
    free(regions->inside);
    free(regions->other);
    *regions = (trm_regions){0};
}

bool trm_regions_enters(const trm_regions *regions, const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_ENTER && regions->other[layer->index] < 0;
}

/* Fills in `inside` and `other`. */
static trm_status nest(const trm_network *network, trm_regions *regions)
{
    int32_t innermost = -1;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        regions->other[i] = -1;
        if (trm_kind_ends_region(layer->desc.kind)) {
            const trm_layer *begin = innermost < 0 ? NULL : network->layers[innermost];
            bool is_loop = layer->desc.kind == TRM_LAYER_END_LOOP;
            if (begin == NULL || (begin->desc.kind == TRM_LAYER_LOOP) != is_loop ||
                layer->inputs[is_loop ? 1 : 0]->producer != begin) {
                TRM_FAIL(TRM_ERROR_INVALID_MODEL, "layer %s (%s) does not end its region", layer->name,
                         trm_layer_kind_name(layer->desc.kind));
            }
            regions->other[i] = innermost;
            regions->other[innermost] = i;
            innermost = regions->inside[innermost];
        }
        regions->inside[i] = innermost;
        for (int32_t k = 1; k < 3 && layer->desc.kind == TRM_LAYER_MERGE; k++) {
            const trm_layer *from = layer->inputs[k]->producer;
            if (from != NULL && from->desc.kind == TRM_LAYER_ENTER) {
                regions->other[from->index] = i;
            }
        }
        if (trm_kind_begins_region(layer->desc.kind)) {
            innermost = i;
            regions->n++;
        }
    }
    if (innermost >= 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "the region of layer %s does not end", network->layers[innermost]->name);
    }
    return TRM_OK;
}

/* Whether a layer may read a tensor written in `region`, or outside regions if that is -1. */
static bool may_read(const trm_regions *regions, const trm_layer *layer, const trm_layer *from, int32_t region)
{
    int32_t own = regions->inside[layer->index], around = own < 0 ? -1 : regions->inside[own];
    bool is_carried = from != NULL && from->desc.kind == TRM_LAYER_RECURRENCE; /* it precedes its loop */
    switch (layer->desc.kind) {
    case TRM_LAYER_MERGE: /* from sibling regions */
        return region == own ||
               (region >= 0 && regions->inside[region] == own && regions->other[region] < layer->index);
    case TRM_LAYER_END_LOOP:
        return region == own || (region >= 0 && regions->other[region] == layer->index);
    case TRM_LAYER_ENTER:
        if (own < 0 || !trm_regions_enters(regions, layer)) {
            return region == own || (is_carried && own >= 0 && region == around);
        }
        return region == around || (is_carried && around >= 0 && region == regions->inside[around]);
    default:
        return region == own || (is_carried && own >= 0 && region == around);
    }
}

static trm_status check_inputs(const trm_network *network, const trm_regions *regions, const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        if (input == NULL || input->role == TRM_TENSOR_CONSTANT) {
            continue;
        }
        int32_t region = input->producer == NULL ? -1 : regions->inside[input->producer->index];
        if (!may_read(regions, layer, input->producer, region)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                     "layer %s reads %s, which is made %s%s, without entering or leaving the region", layer->name,
                     input->name, region < 0 ? "outside regions" : "in the region of layer ",
                     region < 0 ? "" : network->layers[region]->name);
        }
    }
    return TRM_OK;
}

/* Pairs a NEXT with its RECURRENCE. */
static trm_status pair(const trm_network *network, trm_regions *regions, const trm_layer *next, bool *is_carried)
{
    int32_t loop = regions->inside[next->index];
    const trm_layer *from = next->inputs[1]->producer;
    if (loop < 0 || network->layers[loop]->desc.kind != TRM_LAYER_LOOP || from == NULL ||
        from->desc.kind != TRM_LAYER_RECURRENCE || regions->inside[from->index] != regions->inside[loop] ||
        from->index > loop || is_carried[from->index]) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "layer %s carries on %s, expected the one of a loop's region for a recurrence before the loop",
                 next->name, next->inputs[1]->name);
    }
    is_carried[from->index] = true;
    regions->other[next->index] = from->index;
    return TRM_OK;
}

static trm_status check(const trm_network *network, trm_regions *regions, bool *is_carried)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        TRM_TRY(check_inputs(network, regions, layer));
        if (layer->desc.kind == TRM_LAYER_NEXT) {
            TRM_TRY(pair(network, regions, layer, is_carried));
        }
    }
    for (int32_t i = 0; i < network->n_outputs; i++) {
        const trm_layer *from = network->outputs[i]->producer;
        if (from != NULL && regions->inside[from->index] >= 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "output %s is made inside the region of layer %s",
                     network->outputs[i]->name, network->layers[regions->inside[from->index]]->name);
        }
    }
    return TRM_OK;
}

trm_status trm_regions_find(const trm_network *network, trm_regions *regions)
{
    *regions = (trm_regions){0};
    bool any = false;
    for (int32_t i = 0; i < network->n_layers; i++) {
        any = any || trm_kind_is_control(network->layers[i]->desc.kind);
    }
    if (!any) {
        return TRM_OK;
    }
    size_t n = (size_t)network->n_layers + 1;
    regions->inside = calloc(n, sizeof(*regions->inside));
    regions->other = calloc(n, sizeof(*regions->other));
    trm_status status;
    if (regions->inside == NULL || regions->other == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the regions of %d layers", network->n_layers);
    } else {
        status = nest(network, regions);
    }
    if (status != TRM_OK) {
        trm_regions_fini(regions);
    }
    return status;
}

trm_status trm_regions_init(const trm_network *network, trm_regions *regions)
{
    TRM_TRY(trm_regions_find(network, regions));
    if (regions->inside == NULL) {
        return TRM_OK;
    }
    bool *is_carried = calloc((size_t)network->n_layers + 1, sizeof(*is_carried));
    trm_status status = is_carried == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the loops of %d layers",
                                                      network->n_layers)
                                           : check(network, regions, is_carried);
    free(is_carried);
    if (status != TRM_OK) {
        trm_regions_fini(regions);
    }
    return status;
}

void trm_regions_extend_lives(const trm_network *network, const trm_regions *regions, int32_t *ends)
{
    for (int32_t i = 0; regions->n > 0 && i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        for (int32_t at = regions->inside[i]; at >= 0; at = regions->inside[at]) {
            int32_t end = regions->other[at];
            if (network->layers[at]->desc.kind != TRM_LAYER_LOOP) {
                continue;
            }
            for (int32_t k = 0; k < layer->n_inputs; k++) {
                const trm_tensor *storage = layer->inputs[k] == NULL ? NULL : trm_tensor_storage(layer->inputs[k]);
                bool is_older = storage != NULL && storage->producer != NULL && storage->producer->index < at;
                if (is_older && ends[storage->index] < end) {
                    ends[storage->index] = end;
                }
            }
            for (int32_t k = 0; layer->desc.kind == TRM_LAYER_NEXT && at == regions->inside[i] && k < layer->n_outputs;
                 k++) {
                int32_t *own = &ends[layer->outputs[k]->index];
                *own = end > *own ? end : *own;
            }
        }
    }
}
