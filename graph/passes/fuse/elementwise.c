/*
 * Fuses chains of elementwise layers into one, so that tensors between them are neither written nor read. A group grows
 * from its last layer backwards: over layers whose result only the group reads, of which a few may have smaller dims
 * and are recomputed where they repeat; and over layers of the same dims whose other readers come after the group,
 * which become additional outputs.
 *
 * Values that decide dims are left alone: the host computes them (graph/inference.h).
 */
#include "graph/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/passes/pattern.h"
#include "kernels/fused/fused.h"
#include "kernels/kernel.h"

#define MOST_INPUTS 12 /* of a layer; its kernel reads all of them in one go */
#define MOST_SMALL  4  /* layers of smaller dims in a group */

typedef struct fuser {
    trm_network *network;
    trm_analysis analysis;
    bool *of_values; /* [n_tensors] dims are computed from it */
    bool *remove;    /* [n_layers] */
    int32_t *group;  /* [n_layers] number of the group that last considered the layer */
    int32_t groups;
    int32_t *readers;      /* layers that read a tensor, once for each input that it is, in their order; those of
                              tensor i are first_reader[i] .. first_reader[i + 1] - 1 */
    int32_t *first_reader; /* [n_tensors + 1] */
} fuser;

/* One group, layers in falling order. */
typedef struct group {
    trm_layer *layers[TRM_MAX_FUSED_STEPS];
    int32_t n, n_small;
} group;

/* ---- which layers ------------------------------------------------------------------------------ */

static void mark_values(fuser *self)
{
    for (int32_t i = self->network->n_layers; i-- > 0;) {
        const trm_layer *layer = self->network->layers[i];
        const uint32_t wanted = trm_layer_value_inputs(&layer->desc);
        bool is_wanted = false;
        for (int32_t k = 0; k < layer->n_outputs; k++) {
            is_wanted = is_wanted || self->of_values[layer->outputs[k]->index];
        }
        is_wanted = is_wanted && layer->desc.kind != TRM_LAYER_SHAPE; /* which needs dims only */
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            if (layer->inputs[k] != NULL && (is_wanted || (wanted >> k & 1) != 0)) {
                self->of_values[layer->inputs[k]->index] = true;
            }
        }
    }
}

/* Whether steps can express a layer. */
static bool can_be_step(const fuser *self, const trm_layer *layer)
{
    if (layer->n_outputs != 1 || self->of_values[layer->outputs[0]->index] ||
        !trm_fused_can_hold(layer->outputs[0]->dtype)) {
        return false;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] == NULL || layer->inputs[i]->role == TRM_TENSOR_STATE ||
            !trm_fused_can_hold(layer->inputs[i]->dtype)) {
            return false;
        }
    }
    switch (layer->desc.kind) {
    case TRM_LAYER_ELEMENTWISE:
    case TRM_LAYER_SELECT:
    case TRM_LAYER_UNARY:
        return true;
    case TRM_LAYER_GLU:
        return layer->n_inputs == 2;
    case TRM_LAYER_CAST:
        return !layer->desc.cast.bits && trm_fused_can_cast(layer->inputs[0]->dtype, layer->desc.cast.to);
    default:
        return false;
    }
}

static bool is_in(const fuser *self, const trm_layer *layer)
{
    return self->group[layer->index] == self->groups;
}

/* Whether all that reads a tensor besides the group stands after the group's last layer. */
static bool others_come_later(const fuser *self, const trm_tensor *tensor, const trm_layer *last, bool *has_others)
{
    int32_t outside = self->analysis.use_count[tensor->index];
    for (int32_t i = self->first_reader[tensor->index]; i < self->first_reader[tensor->index + 1]; i++) {
        const trm_layer *layer = self->network->layers[self->readers[i]];
        if (is_in(self, layer)) {
            outside--;
        } else if (layer->index < last->index) {
            return false;
        } else {
            break;
        }
    }
    *has_others = outside > 0 || tensor->pin != NULL;
    return true;
}

/* ---- the steps of a group ---------------------------------------------------------------------- */

typedef struct program {
    trm_fused_elementwise_params params;
    trm_tensor *inputs[TRM_MAX_LAYER_INPUTS], *outputs[TRM_MAX_LAYER_OUTPUTS];
    int32_t n_inputs;
    const trm_tensor *made[TRM_MAX_FUSED_STEPS]; /* the tensor that a step was */
    bool fits;
} program;

static int32_t add_step(program *p, trm_fused_step step, const trm_tensor *made)
{
    if (p->params.n_steps == TRM_MAX_FUSED_STEPS) {
        p->fits = false;
        return 0;
    }
    p->made[p->params.n_steps] = made;
    p->params.steps[p->params.n_steps] = step;
    return TRM_MAX_LAYER_INPUTS + p->params.n_steps++;
}

/* The step or input that a tensor is; constants of one element that a step can hold become one. */
static int32_t operand(program *p, trm_tensor *tensor)
{
    double number;
    for (int32_t i = 0; i < p->params.n_steps; i++) {
        if (p->made[i] == tensor) {
            return TRM_MAX_LAYER_INPUTS + i;
        }
    }
    for (int32_t i = 0; i < p->n_inputs; i++) {
        if (p->inputs[i] == tensor) {
            return i;
        }
    }
    if (trm_dtype_is_float(tensor->dtype) && trm_pattern_scalar(tensor, &number) && (double)(float)number == number) {
        return add_step(p, (trm_fused_step){.op = TRM_FUSED_VALUE, .type = tensor->dtype, .alpha = (float)number},
                        tensor);
    }
    if (p->n_inputs == MOST_INPUTS) {
        p->fits = false;
        return 0;
    }
    p->inputs[p->n_inputs] = tensor;
    return p->n_inputs++;
}

static void add_layer(program *p, const trm_layer *layer)
{
    const trm_layer_desc *desc = &layer->desc;
    const trm_tensor *y = layer->outputs[0];
    trm_fused_step step = {.type = y->dtype};
    int32_t *const read[3] = {&step.a, &step.b, &step.c};
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        *read[i] = operand(p, layer->inputs[i]);
    }
    switch (desc->kind) {
    case TRM_LAYER_ELEMENTWISE:
        step.op = (trm_fused_op)(TRM_FUSED_ELEMENTWISE + desc->elementwise.op);
        break;
    case TRM_LAYER_UNARY:
        step.op = (trm_fused_op)(desc->unary.op == TRM_UNARY_ACTIVATION ? TRM_FUSED_ACTIVATION + desc->unary.activation
                                                                        : TRM_FUSED_UNARY + desc->unary.op);
        step.alpha = desc->unary.op == TRM_UNARY_ACTIVATION ? 0 : desc->unary.alpha;
        step.beta = desc->unary.op == TRM_UNARY_ACTIVATION ? 0 : desc->unary.beta;
        break;
    case TRM_LAYER_GLU: {
        trm_fused_step gate = {.op = (trm_fused_op)(TRM_FUSED_ACTIVATION + desc->glu.activation), .type = y->dtype};
        gate.a = step.a;
        step.a = add_step(p, gate, NULL);
        step.op = (trm_fused_op)(TRM_FUSED_ELEMENTWISE + TRM_ELEMENTWISE_MUL);
        break;
    }
    case TRM_LAYER_CAST:
        step.op = TRM_FUSED_CAST;
        break;
    default:
        step.op = TRM_FUSED_SELECT;
        break;
    }
    (void)add_step(p, step, y);
}

/* Whether an input has all axes of y: a number of dims [1, 1, 1] that became a step may have been what gave them. */
static bool has_rank_of(const program *p, const trm_tensor *y)
{
    bool has = false;
    for (int32_t i = 0; i < p->n_inputs; i++) {
        has = has || p->inputs[i]->dims.n == y->dims.n;
    }
    return has;
}

/* Whether the group's layers fit into one layer. */
static bool write_program(const fuser *self, const group *g, program *p)
{
    *p = (program){.fits = true};
    for (int32_t i = g->n; i-- > 0;) {
        add_layer(p, g->layers[i]);
    }
    for (int32_t i = 0; p->fits && i < p->params.n_steps; i++) {
        const trm_tensor *made = p->made[i];
        bool has_others = false;
        if (made == NULL || made->role != TRM_TENSOR_ACTIVATION) {
            continue;
        }
        bool apart = others_come_later(self, made, g->layers[0], &has_others);
        if (made->producer != g->layers[0] && !has_others) {
            continue;
        }
        bool whole = trm_analysis_same_dims(&self->analysis, made, g->layers[0]->outputs[0]);
        if (!apart || !whole || p->params.n_outputs == TRM_MAX_LAYER_OUTPUTS) {
            return false;
        }
        p->outputs[p->params.n_outputs] = made->producer->outputs[0];
        p->params.outputs[p->params.n_outputs++] = i;
    }
    return p->fits && has_rank_of(p, g->layers[0]->outputs[0]);
}

/* ---- groups ------------------------------------------------------------------------------------ */

/* The last layer before `before` that makes something the group reads, or -1. */
static int32_t next_read(const group *g, int32_t before)
{
    int32_t at = -1;
    for (int32_t i = 0; i < g->n; i++) {
        for (int32_t k = 0; k < g->layers[i]->n_inputs; k++) {
            const trm_layer *layer = g->layers[i]->inputs[k]->producer;
            at = layer != NULL && layer->index < before && layer->index > at ? layer->index : at;
        }
    }
    return at;
}

/* Adds the layers that the group reads, nearest first, as long as they fit: the latest of them in the network's order,
 * so that all readers of a layer are considered before it. */
static void grow(fuser *self, group *g)
{
    const trm_tensor *last = g->layers[0]->outputs[0];
    for (int32_t at = next_read(g, g->layers[0]->index); at >= 0 && g->n < TRM_MAX_FUSED_STEPS; at = next_read(g, at)) {
        trm_layer *layer = self->network->layers[at];
        bool has_others;
        if (self->remove[at] || self->analysis.touched[at] || !can_be_step(self, layer)) {
            continue;
        }
        bool small = !trm_analysis_same_dims(&self->analysis, layer->outputs[0], last);
        if ((small && g->n_small == MOST_SMALL) ||
            !others_come_later(self, layer->outputs[0], g->layers[0], &has_others)) {
            continue;
        }
        program p;
        g->layers[g->n++] = layer;
        self->group[at] = self->groups;
        if (!write_program(self, g, &p)) {
            g->n--;
            self->group[at] = 0;
        } else {
            g->n_small += small;
        }
    }
}

static void replace_group(fuser *self, const group *g, const program *p)
{
    trm_layer *layer = g->layers[0];
    trm_layer_desc desc = {.kind = TRM_LAYER_FUSED_ELEMENTWISE, .fused_elementwise = p->params};
    trm_pattern_rewrite(&self->analysis, layer, &desc, p->n_inputs, p->inputs);
    for (int32_t i = 1; i < g->n; i++) {
        g->layers[i]->n_outputs = 0;
        self->remove[g->layers[i]->index] = true;
        self->analysis.touched[g->layers[i]->index] = true;
    }
    layer->n_outputs = p->params.n_outputs;
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        layer->outputs[i] = p->outputs[i];
        p->outputs[i]->producer = layer;
    }
}

static int32_t fuse_groups(fuser *self)
{
    int32_t fused = 0;
    for (int32_t i = self->network->n_layers; i-- > 0;) {
        trm_layer *layer = self->network->layers[i];
        program p;
        if (self->remove[i] || self->analysis.touched[i] || !can_be_step(self, layer)) {
            continue;
        }
        group g = {.layers = {layer}, .n = 1};
        self->group[i] = ++self->groups;
        grow(self, &g);
        if (g.n > 1 && write_program(self, &g, &p)) {
            replace_group(self, &g, &p);
            fused += g.n;
        }
    }
    return fused;
}

/* Builds the lists of readers for the current network. */
static void find_readers(fuser *self)
{
    const trm_network *network = self->network;
    int32_t *end = self->first_reader + 1; /* [n_tensors] of each list so far */
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < network->n_layers; i++) {
            const trm_layer *layer = network->layers[i];
            for (int32_t k = 0; k < layer->n_inputs; k++) {
                if (layer->inputs[k] != NULL && pass == 0) {
                    end[layer->inputs[k]->index + 1]++;
                } else if (layer->inputs[k] != NULL) {
                    self->readers[end[layer->inputs[k]->index]++] = i;
                }
            }
        }
        for (int32_t i = 0; i < network->n_tensors && pass == 0; i++) { /* counts become places */
            end[i + 1] += end[i];
        }
    }
}

trm_status trm_pass_fuse_elementwise(trm_network *network, int32_t *changes)
{
    fuser self = {.network = network};
    TRM_TRY(trm_analysis_init(network, &self.analysis));
    const size_t layers = (size_t)network->n_layers + 1, tensors = (size_t)network->n_tensors + 1;
    size_t reads = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        reads += (size_t)network->layers[i]->n_inputs;
    }
    self.of_values = calloc(tensors, sizeof(*self.of_values));
    self.remove = calloc(layers, sizeof(*self.remove));
    self.group = calloc(layers, sizeof(*self.group));
    self.readers = calloc(reads + 1, sizeof(*self.readers));
    self.first_reader = calloc(tensors + 1, sizeof(*self.first_reader));
    trm_status status = TRM_OK;
    if (self.of_values == NULL || self.remove == NULL || self.group == NULL || self.readers == NULL ||
        self.first_reader == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot fuse a network of %d layers", network->n_layers);
    } else {
        mark_values(&self);
        find_readers(&self);
        int32_t fused = fuse_groups(&self);
        if (changes != NULL) {
            *changes += fused;
        }
        if (fused > 0) {
            trm_network_remove_layers(network, self.remove);
        }
    }
    free(self.of_values);
    free(self.remove);
    free(self.group);
    free(self.readers);
    free(self.first_reader);
    trm_analysis_fini(&self.analysis);
    return status;
}
