/* Placement of activations by lifetime. */
#include "graph/memory_plan.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "kernels/movement/slice.h"

typedef struct placement {
    int32_t tensor;
    int32_t first, last; /* first and last layer during which the memory is in use */
    size_t size, offset;
} placement;

trm_status trm_tensor_bytes(const trm_tensor *tensor, const trm_dims *dims, size_t *bytes)
{
    size_t size = trm_dtype_size(tensor->dtype);
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] < 0 || !trm_checked_mul(size, (size_t)dims->d[i], &size)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "tensor %s has dimension %lld at position %d, expected a known size",
                     tensor->name, (long long)dims->d[i], i);
        }
    }
    *bytes = size;
    return TRM_OK;
}

const trm_tensor *trm_tensor_storage(const trm_tensor *tensor)
{
    while (tensor->role == TRM_TENSOR_ACTIVATION && trm_layer_hands_on(tensor->producer)) {
        tensor = tensor->producer->inputs[0];
    }
    return tensor;
}

bool trm_layer_hands_on(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_RESHAPE || layer->desc.kind == TRM_LAYER_ENTER ||
           layer->desc.kind == TRM_LAYER_LOOP_OUTPUT;
}

bool trm_layer_is_view(const trm_layer *layer, const trm_dims *dims, int64_t *offset)
{
    const trm_slice_params *slice = &layer->desc.slice;
    if (layer->desc.kind != TRM_LAYER_SLICE || slice->step != 1 || layer->n_inputs > 1) {
        return false;
    }
    const trm_dims *in = &dims[layer->inputs[0]->index];
    int32_t axis = slice->axis < 0 ? slice->axis + in->n : slice->axis;
    for (int32_t i = 0; i < axis; i++) {
        if (in->d[i] != 1) {
            return false;
        }
    }
    trm_slice_range(slice, in->d[axis], offset);
    for (int32_t i = axis + 1; i < in->n; i++) {
        *offset *= in->d[i];
    }
    /* Kernels may rely on the alignment that every tensor's memory has. */
    return (size_t)*offset * trm_dtype_size(layer->outputs[0]->dtype) % TRM_TENSOR_ALIGNMENT == 0;
}

/* Larger first, then earlier, so that the plan does not depend on the sort algorithm. */
static int compare_placements(const void *a, const void *b)
{
    const placement *x = a, *y = b;
    if (x->size != y->size) {
        return x->size < y->size ? 1 : -1;
    }
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static int compare_offsets(const void *a, const void *b)
{
    const placement *x = *(const placement *const *)a, *y = *(const placement *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Writes the lifetimes of all tensors with memory of their own; returns their number. */
static void collect(const trm_network *network, const size_t *sizes, const int32_t *ends, placement *placements,
                    int32_t *slot_of, int32_t *count)
{
    *count = 0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        slot_of[i] = -1;
        if (tensor->role == TRM_TENSOR_ACTIVATION && trm_tensor_storage(tensor) == tensor &&
            sizes[i] < TRM_NO_PLACE - TRM_TENSOR_ALIGNMENT) {
            placement *p = &placements[*count];
            *p = (placement){.tensor = i, .first = tensor->producer->index, .last = tensor->producer->index};
            p->size = trm_align_up(sizes[i] == 0 ? 1 : sizes[i], TRM_TENSOR_ALIGNMENT);
            slot_of[i] = (*count)++;
        }
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            int32_t slot = layer->inputs[k] == NULL ? -1 : slot_of[trm_tensor_storage(layer->inputs[k])->index];
            if (slot >= 0 && placements[slot].last < i) {
                placements[slot].last = i;
            }
        }
    }
    for (int32_t i = 0; i < network->n_outputs; i++) {
        int32_t slot = slot_of[trm_tensor_storage(network->outputs[i])->index];
        if (slot >= 0) {
            placements[slot].last = network->n_layers;
        }
    }
    for (int32_t i = 0; ends != NULL && i < *count; i++) {
        placement *p = &placements[i];
        p->last = ends[p->tensor] > p->last ? ends[p->tensor] : p->last;
    }
    for (int32_t i = network->n_layers - 1; i >= 0; i--) { /* backwards, for slices of slices */
        const trm_layer *layer = network->layers[i];
        if (layer->desc.kind != TRM_LAYER_SLICE) {
            continue;
        }
        int32_t from = slot_of[trm_tensor_storage(layer->inputs[0])->index];
        int32_t to = slot_of[trm_tensor_storage(layer->outputs[0])->index];
        if (from >= 0 && to >= 0 && placements[from].last < placements[to].last) {
            placements[from].last = placements[to].last;
        }
    }
}

trm_status trm_memory_plan_place(const trm_network *network, const size_t *sizes, const int32_t *ends, size_t *offsets,
                                 size_t *total)
{
    size_t n = (size_t)network->n_tensors;
    placement *placements = calloc(n + 1, sizeof(*placements));
    placement **beside =
        calloc(n + 1, sizeof(placement *)); /* already placed and alive at the same time, sorted by offset */
    int32_t *slot_of = calloc(n + 1, sizeof(*slot_of));
    trm_status status = TRM_OK;
    if (placements == NULL || beside == NULL || slot_of == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the memory plan of %zu tensors", n);
        goto free_tables;
    }
    int32_t count;
    collect(network, sizes, ends, placements, slot_of, &count);
    qsort(placements, (size_t)count, sizeof(*placements), compare_placements);
    for (size_t i = 0; i < n; i++) {
        offsets[i] = SIZE_MAX;
    }
    *total = 0;
    for (int32_t i = 0; i < count; i++) {
        placement *p = &placements[i];
        int32_t n_beside = 0;
        for (int32_t k = 0; k < i; k++) {
            if (placements[k].first <= p->last && p->first <= placements[k].last) {
                beside[n_beside++] = &placements[k];
            }
        }
        qsort(beside, (size_t)n_beside, sizeof(placement *), compare_offsets);
        size_t at = 0, end;
        bool fits = trm_checked_add(at, p->size, &end);
        for (int32_t k = 0; fits && k < n_beside && beside[k]->offset < end; k++) {
            size_t next = beside[k]->offset + beside[k]->size;
            at = next > at ? next : at;
            fits = trm_checked_add(at, p->size, &end);
        }
        if (!fits) {
            status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "the activations exceed the address space at tensor %s",
                              network->tensors[p->tensor]->name);
            goto free_tables;
        }
        p->offset = at;
        offsets[p->tensor] = at;
        *total = end > *total ? end : *total;
    }
free_tables:
    free(placements);
    free(beside);
    free(slot_of);
    return status;
}
