/*
 * Removes computation of unused rows: if a GATHER or SLICE takes some entries of an axis, such as the first token of a
 * classifier, and layers before it compute each entry from the same entry, it moves before them. If several take
 * entries of one tensor, their union moves, and each takes its own entries from it.
 *
 * A walk goes back from the tensor over layers, the last first, and keeps the tensors to select from, with the axis in
 * each. It passes a layer if each entry of its outputs follows one of its inputs (graph/axis_links.h) and its outputs
 * have no other readers. Where one or two tensors are left, such as a residual stream and the output of attention, the
 * selection can be placed there. It moves only as far as it skips another product: patterns of other passes stay whole,
 * and the rest would gain little.
 */
#include "graph/network.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/axis_links.h"
#include "graph/kinds/kind.h"
#include "graph/passes/analysis.h"
#include "graph/passes/row_choices.h"
#include "graph/regions.h"
#include "kernels/movement/slice.h"

#define MOST_PLACES 2

typedef struct selector {
    trm_network *network;
    trm_analysis analysis;
    bool *varies;                /* [n_tensors] made from more than constants */
    bool *is_one;                /* [analysis.n_classes] sizes of at most one */
    trm_row_choice *choices;     /* [n_layers] */
    trm_row_choice **choices_of; /* [n_tensors] the first of a tensor, or NULL */
    int32_t *axis;               /* [n_tensors] that is chosen from, or -1: not met on the walk */
    int32_t *reads;              /* [n_tensors] places met on the walk that read the tensor entry by entry */
    trm_tensor **marked;         /* [n_tensors] those with an axis */
    trm_tensor **frontier;       /* [n_tensors] met and not walked over */
    trm_layer **walked;          /* [n_layers] */
    int32_t n_marked, n_frontier, n_walked;
    trm_tensor *places[MOST_PLACES]; /* to choose from instead */
    int32_t n_places;
} selector;

/* ---- the analysis ------------------------------------------------------------------------------ */

static void find_varying(const selector *self)
{
    for (int32_t i = 0; i < self->network->n_tensors; i++) {
        trm_tensor_role role = self->network->tensors[i]->role;
        self->varies[i] = role == TRM_TENSOR_INPUT || role == TRM_TENSOR_STATE;
    }
    for (int32_t i = 0; i < self->network->n_layers; i++) {
        const trm_layer *layer = self->network->layers[i];
        bool varies = false;
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            varies = varies || (layer->inputs[j] != NULL && self->varies[layer->inputs[j]->index]);
        }
        for (int32_t j = 0; j < layer->n_outputs; j++) {
            self->varies[layer->outputs[j]->index] = varies;
        }
    }
}

/* The classes of sizes that a SLICE has left at most one entry of. */
static void find_ones(const selector *self)
{
    for (int32_t i = 0; i < self->network->n_layers; i++) {
        const trm_layer *layer = self->network->layers[i];
        const trm_slice_params *slice = &layer->desc.slice;
        int64_t first;
        if (layer->desc.kind == TRM_LAYER_SLICE && layer->n_inputs == 1 && layer->outputs[0]->dims.d[slice->axis] < 0 &&
            trm_slice_range(slice, INT64_MAX, &first) == 1) {
            self->is_one[self->analysis.dim_class[layer->outputs[0]->index][slice->axis]] = true;
        }
    }
}

static void find_choices(const selector *self)
{
    for (int32_t i = self->network->n_layers; i-- > 0;) {
        trm_row_choice *choice = &self->choices[i];
        if (trm_row_choice_read(self->network->layers[i], choice)) {
            trm_row_choice **first = &self->choices_of[choice->layer->inputs[0]->index];
            choice->next = *first;
            *first = choice;
        }
    }
}

static void selector_fini(selector *self)
{
    trm_analysis_fini(&self->analysis);
    free(self->varies);
    free(self->is_one);
    free(self->choices);
    free(self->choices_of);
    free(self->axis);
    free(self->reads);
    free(self->marked);
    free(self->frontier);
    free(self->walked);
}

static trm_status selector_init(trm_network *network, selector *self)
{
    size_t tensors = (size_t)network->n_tensors + 1, layers = (size_t)network->n_layers + 1;
    *self = (selector){.network = network};
    TRM_TRY(trm_analysis_init(network, &self->analysis));
    self->varies = calloc(tensors, sizeof(*self->varies));
    self->is_one = calloc((size_t)self->analysis.n_classes + 1, sizeof(*self->is_one));
    self->choices = calloc(layers, sizeof(*self->choices));
    self->choices_of = calloc(tensors, sizeof(trm_row_choice *));
    self->axis = calloc(tensors, sizeof(*self->axis));
    self->reads = calloc(tensors, sizeof(*self->reads));
    self->marked = calloc(tensors, sizeof(trm_tensor *));
    self->frontier = calloc(tensors, sizeof(trm_tensor *));
    self->walked = calloc(layers, sizeof(trm_layer *));
    if (self->varies == NULL || self->is_one == NULL || self->choices == NULL || self->choices_of == NULL ||
        self->axis == NULL || self->reads == NULL || self->marked == NULL || self->frontier == NULL ||
        self->walked == NULL) {
        selector_fini(self);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the rows in use of %zu tensors", tensors);
    }
    for (size_t i = 0; i < tensors; i++) {
        self->axis[i] = -1;
    }
    find_varying(self);
    find_ones(self);
    find_choices(self);
    return TRM_OK;
}

/* ---- the walk ---------------------------------------------------------------------------------- */

/* Whether nothing was chosen from in the tensor as yet. */
static bool mark(selector *self, trm_tensor *tensor, int32_t axis)
{
    if (self->axis[tensor->index] >= 0) {
        return false;
    }
    self->axis[tensor->index] = axis;
    self->marked[self->n_marked++] = tensor;
    return true;
}

static void meet(selector *self, trm_tensor *tensor, int32_t axis)
{
    if (mark(self, tensor, axis)) {
        self->frontier[self->n_frontier++] = tensor;
    }
    self->reads[tensor->index]++;
}

static void start_walk(selector *self)
{
    for (int32_t i = 0; i < self->n_marked; i++) {
        self->axis[self->marked[i]->index] = -1;
        self->reads[self->marked[i]->index] = 0;
    }
    self->n_marked = self->n_frontier = self->n_walked = self->n_places = 0;
}

/* The tensor of the frontier that is made last. Whatever reads it stands behind it, so it is met or never will be. */
static const trm_tensor *latest(const selector *self)
{
    const trm_tensor *found = self->frontier[0];
    for (int32_t i = 1; i < self->n_frontier; i++) {
        const trm_layer *producer = self->frontier[i]->producer;
        if (producer != NULL && (found->producer == NULL || producer->index > found->producer->index)) {
            found = self->frontier[i];
        }
    }
    return found;
}

/* Whether all outputs of a layer that are read are read entry by entry along `axis` on the walk, and may vanish. */
static bool is_private(const selector *self, const trm_layer *layer, int32_t axis)
{
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        const trm_tensor *output = layer->outputs[i];
        int32_t uses = self->analysis.use_count[output->index];
        if (output->pin != NULL || self->reads[output->index] != uses ||
            (uses > 0 && self->axis[output->index] != axis)) {
            return false;
        }
    }
    return true;
}

/* Whether a reshape whose input has fewer entries along axis `from`, which its output's axis `k` follows, stays valid:
 * a known size becomes a number (set_size); otherwise no other axis may copy it, and `k` may not copy another. */
static bool reshape_follows(const trm_layer *layer, int32_t from, int32_t k)
{
    const trm_dims *out = &layer->outputs[0]->dims, *wanted = &layer->desc.reshape.dims;
    bool follows = true;
    for (int32_t i = 0; out->d[k] < 0 && i < out->n; i++) {
        follows = follows && (wanted->d[i] != 0 || (i == from) == (i == k));
    }
    return follows;
}

/* Whether the entries of input `i` along axis `from` are those of the outputs along `k`, one for one. */
static bool carries(const selector *self, const trm_layer *layer, int32_t i, int32_t from, int32_t k)
{
    const trm_tensor *input = layer->inputs[i], *output = layer->outputs[0];
    bool same = input->dims.d[from] == output->dims.d[k] &&
                (output->dims.d[k] >= 0 ||
                 self->analysis.dim_class[input->index][from] == self->analysis.dim_class[output->index][k]);
    bool met = self->axis[input->index] >= 0 && self->axis[input->index] != from; /* with another axis */
    return same && !met && input->role != TRM_TENSOR_CONSTANT &&
           (layer->desc.kind != TRM_LAYER_RESHAPE || reshape_follows(layer, from, k));
}

/* Puts the inputs that a layer makes its entries along axis `k` from in the place of its outputs. False, and the walk
 * ends there, if entries are not made one by one. The walk does not pass products of two activations, as in attention,
 * whose patterns must stay whole. */
static bool walk_over(selector *self, trm_layer *layer, int32_t k)
{
    int32_t n_met = 0;
    if (layer->desc.kind == TRM_LAYER_EXPAND || trm_layer_has_effects(layer) || !is_private(self, layer, k)) {
        return false;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] == NULL) {
            continue;
        }
        int32_t from = trm_layer_axis_link(layer, k, i);
        if (from == TRM_LINK_WHOLE &&
            !(trm_kind_is(layer, TRM_KIND_PRODUCT) && self->varies[layer->inputs[i]->index])) {
            continue;
        }
        if (from < 0 || !carries(self, layer, i, from, k)) {
            return false;
        }
        meet(self, layer->inputs[i], from);
        n_met++;
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        mark(self, layer->outputs[i], k);
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < self->n_frontier; i++) {
        if (self->frontier[i]->producer != layer) {
            self->frontier[kept++] = self->frontier[i];
        }
    }
    self->n_frontier = kept;
    self->walked[self->n_walked++] = layer;
    return n_met > 0;
}

/* Fills in the places that are to be chosen from instead, none if the choices are to stay, and the layers between. */
static void find_places(selector *self, const trm_row_choice *choices)
{
    /* Sizes of two choices of unknown axes would not be known to be equal. */
    const int32_t most_places = choices->size < 0 ? 1 : MOST_PLACES;
    int32_t n_between = 0, n_products = 0, most_products = 0;
    start_walk(self);
    for (const trm_row_choice *choice = choices; choice != NULL; choice = choice->next) {
        meet(self, choice->layer->inputs[0], choice->axis);
    }
    while (true) {
        bool fewer = n_products == most_products && self->n_frontier < self->n_places;
        if (self->n_frontier <= most_places && (n_products > most_products || fewer)) {
            memcpy(self->places, self->frontier, (size_t)self->n_frontier * sizeof(trm_tensor *));
            self->n_places = self->n_frontier;
            most_products = n_products;
            n_between = self->n_walked;
        }
        const trm_tensor *tensor = latest(self);
        if (tensor->producer == NULL || !walk_over(self, tensor->producer, self->axis[tensor->index])) {
            break;
        }
        n_products += trm_kind_is(self->walked[self->n_walked - 1], TRM_KIND_PRODUCT);
    }
    self->n_walked = n_between;
}

/* ---- the move ---------------------------------------------------------------------------------- */

/* Lets a layer read, and make, `count` entries of the axis that was chosen from; an unknown size stays unknown. */
static void set_size(const selector *self, trm_layer *layer, int64_t count)
{
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        trm_tensor *output = layer->outputs[i];
        int64_t *size = &output->dims.d[self->axis[layer->outputs[i]->index]];
        *size = *size < 0 ? -1 : count;
        output->part = (trm_tensor_part){0}; /* other elements than those of the whole network's tensor of its name */
    }
    for (int32_t i = 0; layer->desc.kind == TRM_LAYER_RESHAPE && i < layer->outputs[0]->dims.n; i++) {
        int64_t size = layer->outputs[0]->dims.d[i];
        layer->desc.reshape.dims.d[i] = size > 0 ? size : layer->desc.reshape.dims.d[i];
    }
}

/* Makes the choice of `place`, right behind it: fusion takes what is made last for the branch that comes back to a
 * residual stream. */
static trm_status choose_from(selector *self, const trm_rows *rows, trm_tensor *indices, trm_tensor *place)
{
    int32_t axis = self->axis[place->index];
    const trm_layer_desc desc = trm_rows_desc(rows, place->dims.d[axis], axis);
    trm_tensor *inputs[] = {place, indices}, *chosen;
    TRM_TRY(trm_network_add_layer(self->network, place->name, &desc, inputs, 2, &chosen));
    for (int32_t i = 0; i < self->n_walked; i++) {
        trm_layer *layer = self->walked[i];
        for (int32_t j = 0; j < layer->n_inputs; j++) {
            if (layer->inputs[j] == place &&
                trm_layer_axis_link(layer, self->axis[layer->outputs[0]->index], j) == axis) {
                layer->inputs[j] = chosen;
            }
        }
    }
    assert(chosen->dims.d[axis] == (place->dims.d[axis] < 0 ? -1 : rows->n));
    trm_network_move_layer(self->network, chosen->producer, place->producer == NULL ? 0 : place->producer->index + 1);
    return TRM_OK;
}

static trm_status move_choices(selector *self, const trm_row_choice *choices, const trm_rows *rows)
{
    trm_tensor *indices;
    TRM_TRY(trm_rows_indices(self->network, rows, &indices));
    for (int32_t i = 0; i < self->n_places; i++) {
        TRM_TRY(choose_from(self, rows, indices, self->places[i]));
    }
    for (int32_t i = 0; i < self->n_walked; i++) {
        set_size(self, self->walked[i], rows->n);
    }
    for (const trm_row_choice *choice = choices; choice != NULL; choice = choice->next) {
        TRM_TRY(trm_row_choice_narrow(self->network, choice, rows));
    }
    return TRM_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------- */

/* Moves the selection from a tensor, if that gains anything and the tensor has no other reader. Copying more than half
 * of the entries, from two places, may take longer than it saves. */
static trm_status try_choices(selector *self, const trm_tensor *data, bool *moved)
{
    const trm_row_choice *choices = self->choices_of[data->index];
    int32_t n = 0;
    for (const trm_row_choice *choice = choices; choice != NULL; choice = choice->next) {
        n += choice->axis == choices->axis;
    }
    if (n == 0 || n < self->analysis.use_count[data->index] ||
        (choices->size < 0 && self->is_one[self->analysis.dim_class[data->index][choices->axis]])) {
        return TRM_OK;
    }
    find_places(self, choices);
    if (self->n_places == 0) {
        return TRM_OK;
    }
    trm_rows rows;
    trm_status status = trm_rows_find(choices, &rows);
    *moved = status == TRM_OK && rows.n > 0;
    status = *moved ? move_choices(self, choices, &rows) : status;
    trm_rows_fini(&rows);
    return status;
}

/* Moves the choices of one tensor, if there are any to be moved. */
static trm_status move_once(trm_network *network, bool *moved)
{
    selector self;
    TRM_TRY(selector_init(network, &self));
    trm_status status = TRM_OK;
    *moved = false;
    for (int32_t i = 0; status == TRM_OK && !*moved && i < network->n_tensors; i++) {
        status = try_choices(&self, network->tensors[i], moved);
    }
    selector_fini(&self);
    return status;
}

trm_status trm_pass_select_rows(trm_network *network, int32_t *changes)
{
    bool moved = !trm_network_has_regions(network); /* what enters or leaves a region is none to move over */
    while (moved) { /* ends: each time fewer products lie between a choice and what its entries are made from */
        TRM_TRY(move_once(network, &moved));
        if (changes != NULL) {
            *changes += moved;
        }
    }
    return TRM_OK;
}
