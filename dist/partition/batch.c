/*
 * The batch axis of each tensor, for ranks along dp that split the batch, or along cp the tokens of packed sequences.
 *
 * It starts as the first axis of inputs and follows the layers by the rules for splits (graph/axis_links.h) and some
 * more for unknown sizes: reshapes with a computed shape, and tensors made as long as the batch. Whether ranks divide
 * an unknown size cannot be tested. So every unknown size along a batch axis is by construction a multiple of n if
 * those of the inputs are, which is checked when their dims are set. If a layer mixes entries, or may do so, its
 * outputs have no batch.
 *
 * Tokens begin as the inputs that embeddings are looked up with; an input that a layer takes token by token beside them
 * has them, too. Attention over a cache takes all of a step's queries, keys and values and gives a rank its own rows.
 *
 * Slicing a rank's batch out of a whole tensor is cheap. So positions, masks and the like that are computed from the
 * batch size stay whole, and are sliced where they meet the batch.
 */
#include "dist/partition/problem.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "dist/partition/shape_bounds.h"
#include "graph/kinds/kind.h"
#include "graph/passes/analysis.h"
#include "graph/shape_elements.h"

typedef struct batch_walk {
    trm_partitioner *partitioner;
    trm_analysis analysis;
} batch_walk;

static int32_t axis_of(const batch_walk *w, const trm_tensor *tensor)
{
    return w->partitioner->tensors[tensor->index].batch_axis;
}

static int32_t class_of(const batch_walk *w, const trm_tensor *tensor, int32_t axis)
{
    return w->analysis.dim_class[tensor->index][axis];
}

static void mark(batch_walk *w, const trm_tensor *tensor, int32_t axis)
{
    w->partitioner->tensors[tensor->index].batch_axis = axis;
}

/* Elements that decide dims are not batch entries. */
static bool may_have_batch(const trm_partitioner *partitioner, const trm_tensor *tensor)
{
    return tensor->role == TRM_TENSOR_INPUT && tensor->dims.n > 0 &&
           !trm_inference_wants(partitioner->inference, tensor);
}

/* Whether ranks can split a tensor along an axis: its batch axis, or one of a known size that they divide. */
static bool can_be_cut(const batch_walk *w, const trm_tensor *tensor, int32_t axis)
{
    const int64_t length = tensor->dims.d[axis];
    if (w->partitioner->shares_tokens && axis == 0 && length < 0 && axis_of(w, tensor) < 0 &&
        may_have_batch(w->partitioner, tensor)) {
        return true;
    }
    if (tensor->role == TRM_TENSOR_STATE || length == 0 || (length > 0 && length % w->partitioner->n != 0)) {
        return false;
    }
    const int32_t known = axis_of(w, tensor);
    return tensor->role == TRM_TENSOR_CONSTANT ? length > 0 : known == axis || (known < 0 && length > 0);
}

/* ---- inputs ------------------------------------------------------------------------------------ */

static const trm_shape_bound *find_bound(const trm_partitioner *partitioner, const char *name, int32_t profile)
{
    return trm_shape_bound_find(partitioner->bounds, partitioner->n_bounds, name, profile);
}

/* Whether the bounds of two inputs allow that their first dimensions are equal in every run. */
static bool may_agree(const trm_partitioner *partitioner, const trm_tensor *a, const trm_tensor *b)
{
    bool may = true;
    for (int32_t profile = 0; profile < TRM_MAX_PROFILES; profile++) {
        const trm_shape_bound *of_a = find_bound(partitioner, a->name, profile);
        const trm_shape_bound *of_b = find_bound(partitioner, b->name, profile);
        for (int32_t i = 0; i < TRM_POINT_COUNT && of_a != NULL && of_b != NULL; i++) {
            const trm_plan_point point = (trm_plan_point)i;
            may = may && trm_shape_bound_dims(of_a, point)->d[0] == trm_shape_bound_dims(of_b, point)->d[0];
        }
    }
    return may;
}

/* The input whose first dimension is the batch: the first input of several dimensions, or else the first input; NULL if
 * that dimension is 1 or there is no input. */
static const trm_tensor *find_first(const trm_partitioner *partitioner)
{
    const trm_network *network = partitioner->network;
    const trm_tensor *first = NULL;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (may_have_batch(partitioner, tensor) && (first == NULL || (first->dims.n == 1 && tensor->dims.n > 1))) {
            first = tensor;
        }
    }
    return first != NULL && first->dims.d[0] == 1 ? NULL : first;
}

/* The axis of an input with the name of the batch, and so its size in every run, or -1. */
static int32_t find_named(const trm_tensor *tensor, const trm_tensor *first)
{
    const char *batch = trm_tensor_dim_name(first, 0);
    int32_t axis = batch == NULL ? -1 : tensor->dims.n - 1;
    while (axis >= 0 &&
           (trm_tensor_dim_name(tensor, axis) == NULL || strcmp(trm_tensor_dim_name(tensor, axis), batch) != 0 ||
            tensor->dims.d[axis] != first->dims.d[0])) {
        axis--;
    }
    return axis;
}

/* Inputs of unknown size that embeddings are looked up with. */
static void mark_tokens(batch_walk *w, bool *found)
{
    const trm_network *network = w->partitioner->network;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        const trm_tensor *ids = layer->desc.kind == TRM_LAYER_EMBEDDING ? layer->inputs[1] : NULL;
        if (ids != NULL && may_have_batch(w->partitioner, ids) && ids->dims.n == 1 && ids->dims.d[0] < 0) {
            mark(w, ids, 0);
            *found = true;
        }
    }
}

static trm_status mark_inputs(batch_walk *w, bool *found)
{
    const trm_network *network = w->partitioner->network;
    const trm_tensor *first = find_first(w->partitioner);
    const int32_t n = w->partitioner->n;
    *found = first != NULL;
    if (first != NULL && first->dims.d[0] >= 0 && (first->dims.d[0] == 0 || first->dims.d[0] % n != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "input %s has a batch of %" PRId64 ", expected a multiple of %" PRId32
                 ", the ranks of mesh axis dp that share it",
                 first->name, first->dims.d[0], n);
    }
    for (int32_t i = 0; first != NULL && i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (may_have_batch(w->partitioner, tensor)) {
            const bool agrees = tensor->dims.d[0] == first->dims.d[0] && may_agree(w->partitioner, tensor, first);
            mark(w, tensor, agrees ? 0 : find_named(tensor, first));
        }
    }
    return TRM_OK;
}

trm_status trm_partition_check_batch(const trm_tensor *input, const trm_dims *dims)
{
    if (input->batch_ranks > 0 && dims->d[0] % input->batch_ranks != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "input %s has a batch of %" PRId64 ", expected a multiple of %" PRId32
                 ", the ranks of mesh axis dp that share it",
                 input->name, dims->d[0], input->batch_ranks);
    }
    return TRM_OK;
}

/* ---- sizes ------------------------------------------------------------------------------------- */

/* A dimension that a layer reads or requests. */
typedef struct size {
    enum { SIZE_NUMBER, SIZE_CLASS, SIZE_INFERRED, SIZE_OPAQUE } kind;
    int64_t number;
    int32_t dim_class;
    bool is_batch; /* a multiple of the ranks */
} size;

static size number(const batch_walk *w, int64_t value)
{
    return (size){SIZE_NUMBER, value, -1, value > 0 && value % w->partitioner->n == 0};
}

static size size_of(const batch_walk *w, const trm_tensor *tensor, int32_t axis)
{
    if (tensor->dims.d[axis] >= 0) {
        return number(w, tensor->dims.d[axis]);
    }
    return (size){SIZE_CLASS, -1, class_of(w, tensor, axis), axis_of(w, tensor) == axis};
}

static size size_of_element(const batch_walk *w, const trm_shape_element *element)
{
    if (element->known) {
        return number(w, element->value);
    }
    return element->of == NULL ? (size){SIZE_OPAQUE, -1, -1, false} : size_of(w, element->of, element->axis);
}

static bool same_size(const size *a, const size *b)
{
    return a->kind == b->kind &&
           (a->kind == SIZE_NUMBER ? a->number == b->number : a->kind == SIZE_CLASS && a->dim_class == b->dim_class);
}

static bool is_one(const size *s)
{
    return s->kind == SIZE_NUMBER && s->number == 1;
}

/* ---- reshapes and what has a shape for an input ------------------------------------------------ */

typedef struct shape {
    size in[TRM_MAX_DIMS], out[TRM_MAX_DIMS];
    bool copies[TRM_MAX_DIMS]; /* copied from the input's dimension at that position */
    int32_t n_in, n_out;
} shape;

/* The dims that a reshape requests. */
static bool read_shape(const batch_walk *w, const trm_layer *layer, shape *s)
{
    const trm_tensor *in = layer->inputs[0], *out = layer->outputs[0];
    const trm_reshape_params *p = &layer->desc.reshape;
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    s->n_in = in->dims.n;
    s->n_out = out->dims.n;
    if (layer->n_inputs > 1 &&
        (layer->inputs[1]->dtype != TRM_I64 || trm_shape_elements(layer->inputs[1], elements) != out->dims.n)) {
        return false;
    }
    for (int32_t i = 0; i < s->n_in; i++) {
        s->in[i] = size_of(w, in, i);
    }
    for (int32_t k = 0; k < s->n_out; k++) {
        const bool given = layer->n_inputs > 1;
        const int64_t asked = given ? (elements[k].known ? elements[k].value : 1) : p->dims.d[k];
        s->copies[k] = asked == 0 && !p->zero_is_zero;
        s->out[k] = s->copies[k] && k < s->n_in ? s->in[k]
                    : out->dims.d[k] >= 0       ? number(w, out->dims.d[k])
                    : asked == -1               ? (size){SIZE_INFERRED, -1, -1, false}
                    : given                     ? size_of_element(w, &elements[k])
                                                : number(w, asked);
    }
    return true;
}

/* Whether the elements after axis `k` of the output divide those after axis `a` of the input, for all sizes: then the
 * output's axis is a whole multiple of the input's. */
static bool rest_divides(const shape *s, int32_t a, int32_t k)
{
    bool used[TRM_MAX_DIMS] = {false};
    int64_t from = 1, to = 1;
    for (int32_t i = a + 1; i < s->n_in; i++) {
        if (s->in[i].kind == SIZE_NUMBER && __builtin_mul_overflow(from, s->in[i].number, &from)) {
            return false;
        }
    }
    for (int32_t j = k + 1; j < s->n_out; j++) {
        bool met = s->out[j].kind == SIZE_NUMBER && !__builtin_mul_overflow(to, s->out[j].number, &to);
        for (int32_t i = a + 1; !met && s->out[j].kind == SIZE_CLASS && i < s->n_in; i++) {
            met = !used[i] && same_size(&s->in[i], &s->out[j]);
            used[i] = used[i] || met;
        }
        if (!met) {
            return false;
        }
    }
    return to > 0 && from % to == 0;
}

/*
 * Whether entries of axis `a` stay together: the same elements precede both axes, and both split into the same blocks,
 * since both are multiples of the number of ranks.
 */
static bool follow_reshape(batch_walk *w, const trm_layer *layer, trm_batch_axes *axes)
{
    const int32_t a = axis_of(w, layer->inputs[0]);
    shape s;
    int32_t i = 0, k = 0;
    if (a < 0 || !read_shape(w, layer, &s)) {
        return false;
    }
    for (;; i++, k++) {
        while (i < a && is_one(&s.in[i])) {
            i++;
        }
        while (k < s.n_out && is_one(&s.out[k])) {
            k++;
        }
        if (i == a || k == s.n_out || !same_size(&s.in[i], &s.out[k])) {
            break;
        }
    }
    if (i != a || k == s.n_out || s.out[k].kind == SIZE_OPAQUE) {
        return false;
    }
    for (int32_t j = 0; j < s.n_out; j++) {
        if (s.copies[j] && (j == a) != (j == k)) { /* a part would have another size */
            return false;
        }
    }
    const bool is_multiple = s.out[k].is_batch || same_size(&s.in[a], &s.out[k]) || rest_divides(&s, a, k);
    if (!is_multiple || (s.out[k].kind == SIZE_NUMBER && !s.out[k].is_batch)) {
        return false;
    }
    axes->inputs[0] = (int8_t)a;
    axes->outputs[0] = (int8_t)k;
    return true;
}

/* EXPAND to a shape from an input. */
static bool follow_expand(batch_walk *w, const trm_layer *layer, trm_batch_axes *axes)
{
    const trm_tensor *in = layer->inputs[0], *out = layer->outputs[0];
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    const int32_t n = layer->inputs[1]->dtype == TRM_I64 ? trm_shape_elements(layer->inputs[1], elements) : -1;
    for (int32_t k = 0; n >= 0 && k < out->dims.n; k++) {
        const int32_t own = k - (out->dims.n - in->dims.n), at = k - (out->dims.n - n);
        const bool is_batch = own >= 0 && axis_of(w, in) == own;
        const bool repeats = own < 0 || in->dims.d[own] == 1;
        const size asked = at < 0 ? number(w, 1) : size_of_element(w, &elements[at]);
        const bool fits = asked.is_batch || (is_batch && is_one(&asked));
        if (fits && (is_batch || (repeats && asked.kind == SIZE_CLASS))) {
            axes->inputs[0] = (int8_t)(is_batch ? own : -1);
            axes->outputs[0] = (int8_t)k;
            return true;
        }
    }
    return false;
}

int32_t trm_partition_shape_divides(const trm_layer *layer, int32_t k)
{
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    const bool is_reshape = layer->desc.kind == TRM_LAYER_RESHAPE;
    if ((!is_reshape && layer->desc.kind != TRM_LAYER_EXPAND) || layer->n_inputs < 2) {
        return -1;
    }
    const int32_t n = trm_shape_elements(layer->inputs[1], elements);
    const int32_t at = k - (is_reshape ? 0 : layer->outputs[0]->dims.n - n);
    const bool asks = at >= 0 && (!elements[at].known || elements[at].value > (is_reshape ? 0 : 1));
    return asks ? at : -1;
}

/* RANGE from 0 to the size of a batch. */
static void mark_range(batch_walk *w, const trm_layer *layer)
{
    trm_shape_element start, limit, step, *const found[] = {&start, &limit, &step};
    for (int32_t i = 0; i < 3; i++) {
        trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
        if (trm_shape_elements(layer->inputs[i], elements) != 1) {
            return;
        }
        *found[i] = elements[0];
    }
    const bool counts = start.known && start.value == 0 && step.known && step.value == 1;
    if (counts && !limit.known && limit.of != NULL && axis_of(w, limit.of) == limit.axis) {
        mark(w, layer->outputs[0], 0);
    }
}

/* ---- other layers ------------------------------------------------------------------------------ */

/* Axes by the kind's row. */
static bool follow_row(batch_walk *w, const trm_layer *layer, trm_batch_axes *axes)
{
    const trm_kind *kind = trm_kind_of(layer);
    if (axis_of(w, layer->inputs[0]) != kind->batch_inputs[0]) {
        return false;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const int8_t axis = kind->batch_inputs[i];
        const bool is_cut = layer->inputs[i] != NULL && axis >= 0;
        if (is_cut && !can_be_cut(w, layer->inputs[i], axis)) {
            return false;
        }
        axes->inputs[i] = (int8_t)(is_cut ? axis : -1);
    }
    memcpy(axes->outputs, kind->batch_outputs, (size_t)layer->n_outputs);
    return true;
}

/* Kinds whose inputs may differ in size along an axis that follows all of them: unknown sizes must be known to be
 * equal. */
static bool sizes_agree(const batch_walk *w, const trm_layer *layer, int32_t i, int32_t axis, int32_t k)
{
    const trm_tensor *in = layer->inputs[i], *out = layer->outputs[0];
    const bool is_loose = trm_kind_is(layer, TRM_KIND_LOOSE_SIZES);
    if (layer->desc.kind == TRM_LAYER_RESHAPE || (w->partitioner->shares_tokens && axis_of(w, in) == axis)) {
        return true; /* all tokens of a step */
    }
    return in->dims.d[axis] == out->dims.d[k] &&
           (!is_loose || out->dims.d[k] >= 0 || class_of(w, in, axis) == class_of(w, out, k));
}

/* Tries axis `k` of the outputs as batch axis. `strict`: no input with a batch is whole. */
static bool follow_axis(batch_walk *w, const trm_layer *layer, int32_t k, bool strict, trm_batch_axes *axes)
{
    const int64_t length = layer->outputs[0]->dims.d[k];
    bool found = false;
    if (length == 0 || (length > 0 && length % w->partitioner->n != 0)) {
        return false;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *in = layer->inputs[i];
        axes->inputs[i] = -1;
        if (in == NULL) {
            continue;
        }
        const int32_t axis = trm_layer_axis_link(layer, k, i);
        if (axis == TRM_LINK_NEVER || (axis == TRM_LINK_WHOLE && strict && axis_of(w, in) >= 0)) {
            return false;
        }
        if (axis != TRM_LINK_WHOLE) {
            if (!can_be_cut(w, in, axis) || !sizes_agree(w, layer, i, axis, k)) {
                return false;
            }
            found = found || (in->role != TRM_TENSOR_CONSTANT && axis_of(w, in) == axis);
            axes->inputs[i] = (int8_t)axis;
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        axes->outputs[i] = (int8_t)k;
    }
    return found;
}

static bool follow_layer(batch_walk *w, const trm_layer *layer, trm_batch_axes *axes)
{
    const trm_layer_kind kind = layer->desc.kind;
    if (w->partitioner->shares_tokens && trm_partition_has_cache(layer)) {
        axes->outputs[0] = 0;
        return true;
    }
    if (kind == TRM_LAYER_RESHAPE && (layer->n_inputs > 1 || !trm_dims_are_known(&layer->inputs[0]->dims))) {
        return follow_reshape(w, layer, axes);
    }
    if (kind == TRM_LAYER_EXPAND && layer->n_inputs > 1) {
        return follow_expand(w, layer, axes);
    }
    if (trm_kind_of(layer)->batch_inputs != NULL) {
        return follow_row(w, layer, axes);
    }
    for (int32_t k = 0; k < layer->outputs[0]->dims.n; k++) {
        if (follow_axis(w, layer, k, true, axes)) {
            return true;
        }
    }
    for (int32_t k = 0; k < layer->outputs[0]->dims.n; k++) {
        if (follow_axis(w, layer, k, false, axes)) {
            return true;
        }
    }
    return false;
}

/* Layers of states by sequence take all tokens and are whole; a rank's tokens are sliced out of what they give. */
static void mark_whole(batch_walk *w, const trm_layer *layer)
{
    const trm_tensor *x = layer->n_inputs > 0 ? layer->inputs[0] : NULL;
    for (int32_t i = 0; x != NULL && axis_of(w, x) == 0 && i < layer->n_outputs; i++) {
        const trm_tensor *out = layer->outputs[i];
        if (out->dims.n > 0 && out->dims.d[0] < 0 && class_of(w, out, 0) == class_of(w, x, 0)) {
            mark(w, out, 0);
        }
    }
}

static void mark_layer(batch_walk *w, const trm_layer *layer)
{
    trm_batch_axes axes = {.can = true};
    memset(axes.inputs, -1, sizeof(axes.inputs));
    memset(axes.outputs, -1, sizeof(axes.outputs));
    if (layer->desc.kind == TRM_LAYER_RANGE) {
        mark_range(w, layer);
    } else if (layer->n_inputs > 0 && follow_layer(w, layer, &axes)) {
        for (int32_t i = 0; i < layer->n_inputs; i++) { /* it has a known size and may be split here first */
            if (axes.inputs[i] >= 0 && layer->inputs[i]->role != TRM_TENSOR_CONSTANT) {
                mark(w, layer->inputs[i], axes.inputs[i]);
            }
        }
        for (int32_t i = 0; i < layer->n_outputs; i++) {
            mark(w, layer->outputs[i], axes.outputs[i]);
        }
        w->partitioner->layers[layer->index].batch = axes;
    } else if (w->partitioner->shares_tokens) {
        mark_whole(w, layer);
    }
}

trm_status trm_partition_find_batch(trm_partitioner *partitioner, bool *found)
{
    const trm_network *network = partitioner->network;
    batch_walk w = {.partitioner = partitioner};
    TRM_TRY(trm_analysis_init(network, &w.analysis));
    *found = false;
    trm_status status = TRM_OK;
    if (partitioner->shares_tokens) {
        mark_tokens(&w, found);
    } else {
        status = mark_inputs(&w, found);
    }
    for (int32_t i = 0; status == TRM_OK && *found && i < network->n_layers; i++) {
        mark_layer(&w, network->layers[i]);
    }
    trm_analysis_fini(&w.analysis);
    return status;
}
