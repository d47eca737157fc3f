/* Axis rules that several kinds share. */
#include "graph/axis_links.h"

#include "graph/kinds/kind.h"

int32_t trm_broadcast_axis_link(const trm_dims *in, const trm_dims *out, int32_t k)
{
    int32_t axis = k - (out->n - in->n);
    return axis < 0 || (in->d[axis] == 1 && out->d[k] != 1) ? TRM_LINK_WHOLE : axis;
}

int32_t trm_layer_axis_link(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_kind *kind = trm_kind_of(layer);
    return kind->link == NULL ? TRM_LINK_NEVER : kind->link(layer, k, i);
}

int32_t trm_link_same(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)layer;
    (void)i;
    return k;
}

int32_t trm_link_broadcast(const trm_layer *layer, int32_t k, int32_t i)
{
    return trm_broadcast_axis_link(&layer->inputs[i]->dims, &layer->outputs[0]->dims, k);
}

int32_t trm_link_but_axis(const trm_layer *layer, int32_t k, int32_t i)
{
    (void)i;
    return k == trm_kind_value(layer, trm_kind_of(layer)->axis) ? TRM_LINK_NEVER : k;
}

int32_t trm_link_first_but_axis(const trm_layer *layer, int32_t k, int32_t i)
{
    const int32_t own = trm_link_but_axis(layer, k, i);
    return i == 0 || own == TRM_LINK_NEVER ? own : TRM_LINK_WHOLE;
}

/* ---- unknown sizes ----------------------------------------------------------------------------- */

void trm_size_set(trm_size_walk *walk, const trm_tensor *out, int32_t to, const trm_tensor *in, int32_t from)
{
    bool follows = in != NULL && in->dims.d[from] == -1;
    walk->dim_class[out->index][to] = follows ? walk->dim_class[in->index][from] : walk->next++;
}

void trm_sizes_follow(trm_size_walk *walk, const trm_tensor *out, const trm_tensor *in, int32_t rank)
{
    for (int32_t i = 0; i < out->dims.n; i++) {
        trm_size_set(walk, out, i, i < rank ? in : NULL, i);
    }
}

void trm_sizes_same(trm_size_walk *walk, const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        trm_sizes_follow(walk, layer->outputs[i], layer->inputs[0], layer->inputs[0]->dims.n);
    }
}

void trm_sizes_linked_to(trm_size_walk *walk, const trm_layer *layer, trm_axis_link link, int32_t n)
{
    const trm_tensor *out = layer->outputs[0];
    for (int32_t k = 0; k < out->dims.n; k++) {
        const trm_tensor *from = NULL;
        int32_t from_axis = 0;
        bool agree = true;
        for (int32_t i = 0; i < n; i++) {
            const trm_tensor *in = layer->inputs[i];
            const int32_t axis = in == NULL ? TRM_LINK_WHOLE : link(layer, k, i);
            if (axis < 0 || in->dims.d[axis] != -1) {
                continue;
            }
            agree =
                agree && (from == NULL || walk->dim_class[from->index][from_axis] == walk->dim_class[in->index][axis]);
            from = in;
            from_axis = axis;
        }
        trm_size_set(walk, out, k, agree ? from : NULL, from_axis);
    }
}

void trm_sizes_of_first(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_linked_to(walk, layer, trm_layer_axis_link, 1);
}

void trm_sizes_linked(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_linked_to(walk, layer, trm_layer_axis_link, layer->n_inputs);
}
