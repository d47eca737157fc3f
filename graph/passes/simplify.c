/*
 * Algebraic simplification: removes layers without effect, joins pairs that undo each other or equal one layer,
 * replaces shapes that follow from the structure of the network by numbers, and moves transposes and reshapes past
 * elementwise layers so that they meet.
 */
#include "graph/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "graph/infer.h"
#include "graph/params.h"
#include "graph/passes/pattern.h"
#include "graph/shape_elements.h"
#include "kernels/kernel.h"

typedef struct simplifier {
    trm_network *network;
    trm_analysis analysis;
    bool *remove; /* [n_layers] */
    int32_t changes;
    bool unsorted; /* a layer may read a later one */
} simplifier;

static bool may_vanish(const trm_tensor *tensor)
{
    return !tensor->is_output && tensor->pin == NULL;
}

static bool is_touched(const simplifier *self, const trm_layer *layer)
{
    return self->analysis.touched[layer->index];
}

static void touch(simplifier *self, const trm_layer *layer)
{
    self->analysis.touched[layer->index] = true;
    self->changes++;
}

/* ---- dims that are known by now ---------------------------------------------------------------- */

/* Runs the rule again: values may have become constants, and dims known. */
static trm_status refine_dims(simplifier *self, trm_layer *layer)
{
    const trm_dims *input_dims[TRM_MAX_LAYER_INPUTS];
    const void *values[TRM_MAX_LAYER_INPUTS];
    trm_dtype input_types[TRM_MAX_LAYER_INPUTS], types[TRM_MAX_LAYER_OUTPUTS];
    trm_dims dims[TRM_MAX_LAYER_OUTPUTS];
    bool open = false;
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        for (int32_t k = 0; k < layer->outputs[i]->dims.n; k++) {
            open = open || (layer->outputs[i]->dims.d[k] < 0 && !layer->outputs[i]->is_output);
        }
    }
    if (!open) {
        return TRM_OK;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        input_dims[i] = layer->inputs[i] == NULL ? NULL : &layer->inputs[i]->dims;
        values[i] = layer->inputs[i] == NULL ? NULL : layer->inputs[i]->value;
        input_types[i] = layer->inputs[i] == NULL ? TRM_DTYPE_NONE : layer->inputs[i]->dtype;
    }
    trm_status status =
        trm_infer_layer(&layer->desc, layer->n_inputs, input_dims, input_types, values, layer->n_outputs, dims, types);
    if (status != TRM_OK) {
        return trm_fail_in(status, "%s %s", trm_layer_kind_name(layer->desc.kind), layer->name);
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        trm_tensor *output = layer->outputs[i];
        for (int32_t k = 0; !output->is_output && k < output->dims.n; k++) {
            if (output->dims.d[k] < 0 && dims[i].d[k] >= 0) {
                output->dims.d[k] = dims[i].d[k];
                self->changes++;
            }
        }
    }
    return TRM_OK;
}

/* ---- shapes as numbers ------------------------------------------------------------------------- */

/* A shape computation whose elements are all known becomes a constant. */
static trm_status find_elements(simplifier *self, trm_layer *layer)
{
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    trm_tensor *tensor = layer->outputs[0];
    if (layer->n_outputs != 1 || tensor->dtype != TRM_I64 || !may_vanish(tensor) || trm_layer_has_effects(layer)) {
        return TRM_OK;
    }
    int32_t n = trm_shape_elements(tensor, elements);
    bool known = n > 0;
    for (int32_t i = 0; i < n; i++) {
        known = known && elements[i].known;
    }
    if (!known) {
        return TRM_OK;
    }
    int64_t *value = trm_arena_array(&self->network->arena, (size_t)n, sizeof(*value));
    if (value == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < n; i++) {
        value[i] = elements[i].value;
    }
    tensor->role = TRM_TENSOR_CONSTANT;
    tensor->producer = NULL;
    tensor->value = value;
    touch(self, layer);
    layer->n_outputs = 0;
    self->remove[layer->index] = true;
    return TRM_OK;
}

static bool same_size(const simplifier *self, const trm_tensor *a, int32_t i, const trm_tensor *b, int32_t k)
{
    if (i >= a->dims.n || k >= b->dims.n) {
        return false;
    }
    return a->dims.d[i] >= 0
               ? a->dims.d[i] == b->dims.d[k]
               : b->dims.d[k] < 0 && self->analysis.dim_class[a->index][i] == self->analysis.dim_class[b->index][k];
}

/* RESHAPE by a tensor: needs no tensor if all sizes but one are known or equal its input's at the same position. */
static void take_reshape_sizes(simplifier *self, trm_layer *layer)
{
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    const trm_tensor *x = layer->inputs[0];
    trm_dims dims = {0};
    int32_t n = layer->n_inputs > 1 ? trm_shape_elements(layer->inputs[1], elements) : -1, open = 0;
    bool zero_is_zero = layer->desc.reshape.zero_is_zero, zero = false;
    if (n < 0 || n > TRM_MAX_DIMS) {
        return;
    }
    dims.n = n;
    for (int32_t i = 0; i < n; i++) {
        const trm_shape_element *e = &elements[i];
        dims.d[i] = e->known ? e->value : -1;
        zero = zero || (e->known && e->value == 0);
        if (!e->known && e->of != NULL && same_size(self, e->of, e->axis, x, i)) {
            dims.d[i] = 0;
        }
        open += dims.d[i] == -1;
    }
    bool copies = false;
    for (int32_t i = 0; i < n; i++) {
        copies = copies || (dims.d[i] == 0 && !elements[i].known);
    }
    if (open > 1 || (zero_is_zero && zero && (copies || open > 0))) {
        return;
    }
    /* Where no size is given as 0, a 0 is free to mean a copy. */
    layer->desc.reshape.zero_is_zero = zero_is_zero && zero;
    layer->desc.reshape.dims = dims;
    layer->n_inputs = 1;
    touch(self, layer);
}

/* EXPAND and SLICE whose other inputs are constant need no inputs for them. */
static void take_expand_sizes(simplifier *self, trm_layer *layer)
{
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    int32_t n = layer->n_inputs > 1 ? trm_shape_elements(layer->inputs[1], elements) : -1;
    for (int32_t i = 0; i < n; i++) {
        n = elements[i].known && n <= TRM_MAX_DIMS ? n : -1;
    }
    if (n < 0) {
        return;
    }
    layer->desc.expand.dims.n = n;
    for (int32_t i = 0; i < n; i++) {
        layer->desc.expand.dims.d[i] = elements[i].value;
    }
    layer->n_inputs = 1;
    touch(self, layer);
}

static void take_slice_values(simplifier *self, trm_layer *layer)
{
    int64_t *fields[] = {&layer->desc.slice.start, &layer->desc.slice.end, &layer->desc.slice.step}, values[3];
    if (layer->n_inputs < 2) {
        return;
    }
    for (int32_t i = 1; i < layer->n_inputs; i++) {
        trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
        values[i - 1] = *fields[i - 1];
        if (layer->inputs[i] != NULL) {
            if (trm_shape_elements(layer->inputs[i], elements) != 1 || !elements[0].known) {
                return;
            }
            values[i - 1] = elements[0].value;
        }
    }
    for (int32_t i = 1; i < layer->n_inputs; i++) {
        *fields[i - 1] = values[i - 1];
    }
    layer->n_inputs = 1;
    touch(self, layer);
}

/* ---- layers that change nothing ---------------------------------------------------------------- */

/* x + 0, x - 0, x * 1, x / 1 and so on: the input that equals the result, or -1. */
static int32_t neutral_input(const trm_layer *layer)
{
    double value;
    for (int32_t other = 0; other < 2; other++) {
        if (!trm_pattern_scalar(layer->inputs[other], &value)) {
            continue;
        }
        bool second = other == 1;
        switch (layer->desc.elementwise.op) {
        case TRM_ELEMENTWISE_ADD:
            return value == 0 ? 1 - other : -1;
        case TRM_ELEMENTWISE_SUB:
            return second && value == 0 ? 0 : -1;
        case TRM_ELEMENTWISE_MUL:
            return value == 1 ? 1 - other : -1;
        case TRM_ELEMENTWISE_DIV:
        case TRM_ELEMENTWISE_POW:
            return second && value == 1 ? 0 : -1;
        default:
            return -1;
        }
    }
    return -1;
}

static bool pads_nothing(const trm_layer *layer)
{
    bool nothing = layer->n_inputs < 2 || layer->inputs[1] == NULL;
    for (int32_t i = 0; nothing && i < layer->inputs[0]->dims.n; i++) {
        nothing = layer->desc.pad.before[i] == 0 && layer->desc.pad.after[i] == 0;
    }
    return nothing;
}

static bool tiles_once(const trm_layer *layer)
{
    const int64_t *repeats = layer->inputs[1]->value;
    bool once = repeats != NULL && layer->inputs[1]->dtype == TRM_I64;
    for (int32_t i = 0; once && i < layer->inputs[0]->dims.n; i++) {
        once = repeats[i] == 1;
    }
    return once;
}

static bool takes_all(const trm_layer *layer)
{
    const trm_slice_params *slice = &layer->desc.slice;
    int64_t size = layer->inputs[0]->dims.d[slice->axis];
    return layer->n_inputs == 1 && slice->step == 1 && slice->start == 0 &&
           (slice->end == INT64_MAX || (size >= 0 && slice->end >= size));
}

/* The input that a layer returns unchanged, or -1. */
static int32_t same_as_input(const simplifier *self, const trm_layer *layer)
{
    const trm_tensor *x = layer->inputs[0], *y = layer->outputs[0];
    int32_t input = -1;
    switch (layer->desc.kind) {
    case TRM_LAYER_CAST:
        input = x->dtype == layer->desc.cast.to ? 0 : -1;
        break;
    case TRM_LAYER_TRANSPOSE:
        input = 0;
        for (int32_t i = 0; i < x->dims.n; i++) {
            input = layer->desc.transpose.perm[i] == i ? input : -1;
        }
        break;
    case TRM_LAYER_SLICE:
        return takes_all(layer) ? 0 : -1; /* the same dims, even if unknown */
    case TRM_LAYER_CONCAT:
        input = layer->n_inputs == 1 ? 0 : -1;
        break;
    case TRM_LAYER_PAD:
        return pads_nothing(layer) ? 0 : -1;
    case TRM_LAYER_TILE:
        return tiles_once(layer) ? 0 : -1;
    case TRM_LAYER_RESHAPE:
    case TRM_LAYER_EXPAND:
        input = 0;
        break;
    case TRM_LAYER_ELEMENTWISE:
        input = neutral_input(layer);
        break;
    default:
        break;
    }
    bool same = input >= 0 && layer->inputs[input]->dtype == y->dtype &&
                trm_analysis_same_dims(&self->analysis, layer->inputs[input], y);
    return same ? input : -1;
}

/* ---- pairs ------------------------------------------------------------------------------------- */

/* The unchanged layer of a kind that writes `tensor`, which may have other readers. */
static trm_layer *producer_of(const simplifier *self, const trm_tensor *tensor, trm_layer_kind kind)
{
    trm_layer *producer = tensor == NULL ? NULL : tensor->producer;
    bool fits = producer != NULL && producer->desc.kind == kind && !is_touched(self, producer) && tensor->pin == NULL &&
                producer->inputs[0]->pin == NULL;
    return fits ? producer : NULL;
}

/* The tensor that a layer restores by undoing another; NULL: none. */
static trm_tensor *undone(const simplifier *self, const trm_layer *layer)
{
    const trm_unary_op op = layer->desc.unary.op;
    if (layer->desc.kind != TRM_LAYER_UNARY || (op != TRM_UNARY_NEG && op != TRM_UNARY_NOT)) {
        return NULL;
    }
    const trm_layer *first = producer_of(self, layer->inputs[0], TRM_LAYER_UNARY);
    return first != NULL && first->desc.unary.op == op ? first->inputs[0] : NULL;
}

/* An output of the network that is another tensor: the layer that makes that makes the output. It keeps its name, which
 * errors of a run have. */
static bool make_output(simplifier *self, trm_layer *layer, trm_tensor *x)
{
    trm_tensor *y = layer->outputs[0];
    trm_layer *producer = x->role == TRM_TENSOR_ACTIVATION ? x->producer : NULL;
    if (y->pin != NULL || x->pin != NULL || x->is_output || producer == NULL || is_touched(self, producer) ||
        !trm_analysis_same_dims(&self->analysis, x, y)) {
        return false;
    }
    trm_network_replace_uses(self->network, x, y);
    for (int32_t i = 0; i < producer->n_outputs; i++) {
        producer->outputs[i] = producer->outputs[i] == x ? y : producer->outputs[i];
    }
    y->producer = producer;
    x->producer = NULL;
    layer->n_outputs = 0;
    touch(self, producer);
    return true;
}

static bool drop_layer(simplifier *self, trm_layer *layer)
{
    if (layer->n_outputs != 1 || layer->n_inputs == 0 || layer->inputs[0] == NULL) {
        return false;
    }
    const int32_t input = same_as_input(self, layer);
    trm_tensor *x = input >= 0 ? layer->inputs[input] : undone(self, layer);
    if (x == NULL || (!may_vanish(layer->outputs[0]) && !make_output(self, layer, x))) {
        return false;
    }
    if (layer->n_outputs == 1) {
        trm_network_replace_uses(self->network, layer->outputs[0], x);
    }
    touch(self, layer);
    self->remove[layer->index] = true;
    return true;
}

static void join_transposes(simplifier *self, trm_layer *layer)
{
    const trm_layer *first = producer_of(self, layer->inputs[0], TRM_LAYER_TRANSPOSE);
    if (first == NULL) {
        return;
    }
    for (int32_t i = 0; i < layer->inputs[0]->dims.n; i++) {
        layer->desc.transpose.perm[i] = first->desc.transpose.perm[layer->desc.transpose.perm[i]];
    }
    layer->inputs[0] = first->inputs[0];
    touch(self, layer);
}

/* The dims of the second reshape must not depend on those between. */
static void join_reshapes(simplifier *self, trm_layer *layer)
{
    const trm_layer *first = producer_of(self, layer->inputs[0], TRM_LAYER_RESHAPE);
    const trm_tensor *y = layer->outputs[0];
    trm_dims dims = y->dims;
    int32_t open = 0;
    if (first == NULL || layer->n_inputs > 1) {
        return;
    }
    for (int32_t i = 0; i < dims.n; i++) {
        bool copies = dims.d[i] < 0 && same_size(self, first->inputs[0], i, y, i);
        if (dims.d[i] == 0) {
            return; /* of nothing */
        }
        dims.d[i] = copies ? 0 : dims.d[i];
        open += dims.d[i] == -1;
    }
    if (open > 1) {
        return;
    }
    layer->desc.reshape = (trm_reshape_params){.dims = dims};
    layer->inputs[0] = first->inputs[0];
    touch(self, layer);
}

/* Whether every number of one type is one of the other. */
static bool holds(trm_dtype to, trm_dtype from)
{
    switch (to) {
    case TRM_F64:
        return from == TRM_F32 || from == TRM_F16 || from == TRM_BF16 || from == TRM_I32 || from == TRM_I16 ||
               from == TRM_I8 || from == TRM_U8 || from == TRM_BOOL;
    case TRM_F32:
        return from == TRM_F16 || from == TRM_BF16 || from == TRM_I16 || from == TRM_I8 || from == TRM_U8 ||
               from == TRM_BOOL;
    case TRM_I64:
        return from == TRM_I32 || from == TRM_I16 || from == TRM_I8 || from == TRM_U8 || from == TRM_BOOL;
    case TRM_I32:
        return from == TRM_I16 || from == TRM_I8 || from == TRM_U8 || from == TRM_BOOL;
    default:
        return false;
    }
}

static void join_casts(simplifier *self, trm_layer *layer)
{
    const trm_layer *first = producer_of(self, layer->inputs[0], TRM_LAYER_CAST);
    if (first == NULL || !holds(first->desc.cast.to, first->inputs[0]->dtype)) {
        return;
    }
    /* Rounding once equals rounding twice if the intermediate is exact, which it is. */
    layer->inputs[0] = first->inputs[0];
    touch(self, layer);
}

/* The input of a product or quotient that is not a constant of one element, or -1; *factor is what it is multiplied by.
 */
static int32_t scaled_input(const trm_layer *layer, double *factor)
{
    double value;
    const bool divides = trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_DIV);
    if (!divides && !trm_pattern_is_elementwise(layer, TRM_ELEMENTWISE_MUL)) {
        return -1;
    }
    const int32_t at = !divides && trm_pattern_scalar(layer->inputs[0], &value) ? 1 : 0;
    const trm_tensor *other = layer->inputs[1 - at];
    if (!trm_pattern_scalar(other, &value) || !trm_dtype_is_float(other->dtype) || value == 0 ||
        other->dims.n > layer->inputs[at]->dims.n) {
        return -1;
    }
    *factor *= divides ? 1 / value : value;
    return at;
}

/* (x * a) * b is x * (a b), where a number of the type is near that. */
static trm_status join_factors(simplifier *self, trm_layer *layer)
{
    double factor = 1;
    const int32_t at = scaled_input(layer, &factor);
    trm_layer *first =
        at < 0 ? NULL : trm_analysis_private_producer(&self->analysis, layer->inputs[at], TRM_LAYER_ELEMENTWISE);
    const int32_t from = first == NULL ? -1 : scaled_input(first, &factor);
    const trm_dtype dtype = layer->outputs[0]->dtype;
    if (from < 0) {
        return TRM_OK;
    }
    uint8_t value[sizeof(double)] = {0};
    (void)trm_element_set_double(dtype, value, 0, factor);
    const double rounded = trm_element_as_double(dtype, value, 0);
    if (!(fabs(rounded - factor) <= fabs(factor) / 256)) { /* too small, too large */
        return TRM_OK;
    }
    trm_tensor *constant = NULL;
    TRM_TRY(trm_network_add_constant(self->network, layer->name, dtype, (trm_dims){0}, value, &constant));
    layer->desc.elementwise.op = TRM_ELEMENTWISE_MUL;
    layer->inputs[0] = first->inputs[from];
    layer->inputs[1] = constant;
    touch(self, layer);
    touch(self, first);
    return TRM_OK;
}

/* The input of an elementwise layer with the same dims, or -1. */
static int32_t pointwise_input(const trm_layer *layer)
{
    double value;
    if (layer->desc.kind == TRM_LAYER_UNARY || layer->desc.kind == TRM_LAYER_CAST) {
        return 0;
    }
    if (layer->desc.kind != TRM_LAYER_ELEMENTWISE) {
        return -1;
    }
    int32_t at = trm_pattern_scalar(layer->inputs[0], &value) ? 1 : 0;
    const trm_tensor *other = layer->inputs[1 - at];
    return trm_pattern_scalar(other, &value) && other->dims.n <= layer->inputs[at]->dims.n ? at : -1;
}

/* The axis that a layer works along, which keeps the number of dimensions; NULL: it does not. */
static int32_t *axis_of(trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_SOFTMAX                                  ? &layer->desc.softmax.axis
           : layer->desc.kind == TRM_LAYER_REDUCE && layer->desc.reduce.keep_dims ? &layer->desc.reduce.axis
                                                                                  : NULL;
}

/* The input of a layer that may as well take it transposed, or -1. */
static int32_t transposable_input(trm_layer *layer)
{
    return axis_of(layer) != NULL ? 0 : pointwise_input(layer);
}

/* The layer of `kind` that a chain of layers from `layer` on ends in, each making what the next alone reads; they take
 * elements one by one, or, before a transpose, work along an axis.
 */
static trm_layer *layer_behind(const simplifier *self, const trm_layer *layer, trm_layer_kind kind)
{
    const trm_tensor *output = layer->outputs[0];
    while (may_vanish(output)) {
        trm_layer *next = trm_analysis_only_user(&self->analysis, output);
        if (next == NULL || is_touched(self, next) || next->desc.kind == kind) {
            return next == NULL || is_touched(self, next) ? NULL : next;
        }
        const int32_t at = kind == TRM_LAYER_TRANSPOSE ? transposable_input(next) : pointwise_input(next);
        if (at < 0 || next->inputs[at] != output) {
            return NULL;
        }
        output = next->outputs[0];
    }
    return NULL;
}

/* The tensor's elements or their order have changed, so it is no longer a part of the named tensor. */
static void forget_part(trm_tensor *tensor)
{
    tensor->part = (trm_tensor_part){0};
}

/* Dims, and the axis it works along, of a layer that is to come before a transpose, not behind it. */
static void come_before(trm_layer *layer, const int32_t *perm)
{
    trm_dims *dims = &layer->outputs[0]->dims;
    const trm_dims behind = *dims;
    int32_t *axis = axis_of(layer);
    for (int32_t i = 0; i < behind.n; i++) {
        dims->d[perm[i]] = behind.d[i];
    }
    if (axis != NULL) {
        *axis = perm[*axis < 0 ? *axis + behind.n : *axis];
    }
}

/* The layers from `layer` on to `second` read what `first` did, in its dims; `reordered`: and in another order. */
static void take_dims_before(simplifier *self, trm_layer *layer, int32_t at, trm_layer *first, trm_layer *second,
                             bool reordered)
{
    layer->inputs[at] = first->inputs[0];
    for (trm_layer *step = layer; step != second; step = trm_analysis_only_user(&self->analysis, step->outputs[0])) {
        if (reordered) {
            come_before(step, first->desc.transpose.perm);
        } else {
            step->outputs[0]->dims = first->inputs[0]->dims;
        }
        if (reordered || step->outputs[0]->part.kind == TRM_PART_SPLIT) {
            forget_part(step->outputs[0]);
        }
        self->changes++;
    }
    for (trm_layer *step = layer, *next; step != second; step = next) { /* users of touched layers cannot be asked */
        next = self->analysis.user[step->outputs[0]->index];
        self->analysis.touched[step->index] = true;
    }
    touch(self, second);
    touch(self, first);
}

/* f(x^T)^T, f taking elements one by one or working along an axis, is f(x) where the second transpose undoes the first:
 * f reads what the first did, and the second does both. */
static void move_transpose(simplifier *self, trm_layer *layer)
{
    int32_t at = transposable_input(layer);
    trm_layer *first =
        at < 0 ? NULL : trm_analysis_private_producer(&self->analysis, layer->inputs[at], TRM_LAYER_TRANSPOSE);
    trm_layer *second = first == NULL ? NULL : layer_behind(self, layer, TRM_LAYER_TRANSPOSE);
    if (second == NULL) {
        return;
    }
    for (int32_t i = 0; i < second->inputs[0]->dims.n; i++) {
        second->desc.transpose.perm[i] = first->desc.transpose.perm[second->desc.transpose.perm[i]];
    }
    take_dims_before(self, layer, at, first, second, true);
}

/* The same for reshapes: what is taken one by one between x and the dims of x again needs none. */
static void move_reshape(simplifier *self, trm_layer *layer)
{
    int32_t at = pointwise_input(layer);
    trm_layer *first =
        at < 0 ? NULL : trm_analysis_private_producer(&self->analysis, layer->inputs[at], TRM_LAYER_RESHAPE);
    trm_layer *second = first == NULL ? NULL : layer_behind(self, layer, TRM_LAYER_RESHAPE);
    if (second == NULL || second->n_inputs > 1 || layer->inputs[at]->dims.n > first->inputs[0]->dims.n ||
        first->inputs[0]->dims.n == 0 ||
        !trm_analysis_same_dims(&self->analysis, first->inputs[0], second->outputs[0])) {
        return;
    }
    second->desc.reshape = (trm_reshape_params){.dims = {.n = second->outputs[0]->dims.n}}; /* copies all of them */
    take_dims_before(self, layer, at, first, second, false);
}

/* ---- transposes of both inputs ----------------------------------------------------------------- */

/* f(a^T, b^T) is f(a, b)^T: the first transpose becomes f, and f the transpose. */
static void join_twins(simplifier *self, trm_layer *layer)
{
    if (layer->desc.kind != TRM_LAYER_ELEMENTWISE) {
        return;
    }
    trm_layer *a = trm_analysis_private_producer(&self->analysis, layer->inputs[0], TRM_LAYER_TRANSPOSE);
    trm_layer *b = trm_analysis_private_producer(&self->analysis, layer->inputs[1], TRM_LAYER_TRANSPOSE);
    if (a == NULL || b == NULL || !trm_layer_desc_equal(&a->desc, &b->desc, a->inputs[0]->dims.n) ||
        !trm_analysis_same_dims(&self->analysis, a->inputs[0], b->inputs[0])) {
        return;
    }
    trm_layer_desc transpose = a->desc;
    trm_tensor *between = a->outputs[0];
    between->dims = a->inputs[0]->dims;
    between->dtype = layer->outputs[0]->dtype;
    forget_part(between);
    a->desc = layer->desc;
    a->inputs[1] = b->inputs[0];
    a->n_inputs = 2;
    layer->desc = transpose;
    layer->inputs[0] = between;
    layer->inputs[1] = NULL;
    layer->n_inputs = 1;
    touch(self, layer);
    touch(self, a);
    touch(self, b);
    self->unsorted = true;
}

/* ---- transposes before what can do without ------------------------------------------------------ */

/* A transpose that `layer` alone reads, of what is not constant: that becomes a view. NULL: none. */
static const trm_layer *own_transpose(const simplifier *self, const trm_layer *layer, int32_t input)
{
    const trm_layer *transpose =
        trm_analysis_private_producer(&self->analysis, layer->inputs[input], TRM_LAYER_TRANSPOSE);
    bool fits =
        transpose != NULL && transpose->inputs[0]->role != TRM_TENSOR_CONSTANT && transpose->inputs[0]->pin == NULL;
    return fits ? transpose : NULL;
}

/* Products also accept transposed inputs. Except outputs of softmax, so that attention can still be recognized. */
static void turn_product(simplifier *self, trm_layer *layer)
{
    bool *turned[] = {&layer->desc.matmul.transpose_a, &layer->desc.matmul.transpose_b};
    for (int32_t i = 0; i < 2 && layer->desc.kind == TRM_LAYER_MATMUL; i++) {
        const trm_layer *transpose = own_transpose(self, layer, i);
        const trm_layer *weights = i == 1 ? layer->inputs[0]->producer : NULL;
        const int32_t rank = transpose == NULL ? 0 : transpose->inputs[0]->dims.n;
        bool swaps = rank >= 2 && (weights == NULL || weights->desc.kind != TRM_LAYER_SOFTMAX);
        for (int32_t k = 0; swaps && k < rank; k++) {
            const int32_t from = k == rank - 2 ? rank - 1 : k == rank - 1 ? rank - 2 : k;
            swaps = transpose->desc.transpose.perm[k] == from;
        }
        if (swaps) {
            layer->inputs[i] = transpose->inputs[0];
            *turned[i] = !*turned[i];
            touch(self, layer);
        }
    }
}

/* A reduction that leaves the other axes in the order they had before a transpose. */
static void reduce_as_it_was(simplifier *self, trm_layer *layer)
{
    const trm_layer *transpose =
        layer->desc.kind == TRM_LAYER_REDUCE && !layer->desc.reduce.keep_dims ? own_transpose(self, layer, 0) : NULL;
    if (transpose == NULL) {
        return;
    }
    const int32_t rank = transpose->inputs[0]->dims.n, *perm = transpose->desc.transpose.perm;
    const int32_t axis = layer->desc.reduce.axis < 0 ? layer->desc.reduce.axis + rank : layer->desc.reduce.axis;
    for (int32_t i = 0, last = -1; i < rank; i++) {
        if (i != axis && perm[i] < last) {
            return;
        }
        last = i == axis ? last : perm[i];
    }
    layer->desc.reduce.axis = perm[axis];
    layer->inputs[0] = transpose->inputs[0];
    touch(self, layer);
}

/* ---- the pass ---------------------------------------------------------------------------------- */

static trm_status simplify_layer(simplifier *self, trm_layer *layer)
{
    TRM_TRY(refine_dims(self, layer));
    TRM_TRY(find_elements(self, layer));
    if (is_touched(self, layer)) {
        return TRM_OK;
    }
    switch (layer->desc.kind) {
    case TRM_LAYER_RESHAPE:
        take_reshape_sizes(self, layer);
        break;
    case TRM_LAYER_EXPAND:
        take_expand_sizes(self, layer);
        break;
    case TRM_LAYER_SLICE:
        take_slice_values(self, layer);
        break;
    default:
        break;
    }
    if (is_touched(self, layer) || drop_layer(self, layer)) {
        return TRM_OK;
    }
    switch (layer->desc.kind) {
    case TRM_LAYER_TRANSPOSE:
        join_transposes(self, layer);
        break;
    case TRM_LAYER_RESHAPE:
        join_reshapes(self, layer);
        break;
    case TRM_LAYER_CAST:
        join_casts(self, layer);
        break;
    default:
        break;
    }
    void (*const moves[])(simplifier *, trm_layer *) = {move_transpose, move_reshape, join_twins, turn_product,
                                                        reduce_as_it_was};
    for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]) && !is_touched(self, layer); i++) {
        moves[i](self, layer);
    }
    return is_touched(self, layer) ? TRM_OK : join_factors(self, layer);
}

trm_status trm_pass_simplify(trm_network *network, int32_t *changes)
{
    simplifier self = {.network = network};
    TRM_TRY(trm_analysis_init(network, &self.analysis));
    self.remove = calloc((size_t)network->n_layers + 1, sizeof(*self.remove));
    trm_status status = TRM_OK;
    if (self.remove == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot simplify a network of %d layers", network->n_layers);
    }
    for (int32_t i = 0; status == TRM_OK && i < network->n_layers; i++) {
        status = simplify_layer(&self, network->layers[i]);
    }
    if (self.remove != NULL && self.changes > 0) {
        trm_network_remove_layers(network, self.remove);
    }
    if (status == TRM_OK && self.unsorted) {
        status = trm_network_sort(network);
    }
    if (changes != NULL) {
        *changes += self.changes;
    }
    free(self.remove);
    trm_analysis_fini(&self.analysis);
    return status;
}
