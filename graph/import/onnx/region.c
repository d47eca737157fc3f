/* Regions: what comes into them, branches, loops. */
#include "graph/import/onnx/region.h"
#include "graph/import/onnx/open_sequence.h"

#include <string.h>

#include "kernels/kernel.h"

#define MOST_UNROLLED 8192 /* layers of a loop */
#define MOST_ATTEMPTS 4    /* to write its body down as a region, for which steps are kept */

/* ---- what comes in --------------------------------------------------------------------------------------- */

static bool remember(trm_onnx_node *node, trm_onnx_region *region, trm_tensor *outside, trm_tensor *entered)
{
    trm_arena *arena = &node->import->arena;
    if (region->n_entered == region->capacity) {
        int32_t wanted = region->capacity * 2 + 8;
        trm_tensor **outsides = trm_arena_array(arena, (size_t)wanted, sizeof(trm_tensor *));
        trm_tensor **entereds = trm_arena_array(arena, (size_t)wanted, sizeof(trm_tensor *));
        if (outsides == NULL || entereds == NULL) {
            node->status = TRM_ERROR_OUT_OF_MEMORY;
            return false;
        }
        if (region->n_entered > 0) {
            memcpy(outsides, region->outside, (size_t)region->n_entered * sizeof(trm_tensor *));
            memcpy(entereds, region->entered, (size_t)region->n_entered * sizeof(trm_tensor *));
        }
        region->outside = outsides;
        region->entered = entereds;
        region->capacity = wanted;
    }
    region->outside[region->n_entered] = outside;
    region->entered[region->n_entered++] = entered;
    return true;
}

/* A tensor of region `from` in `region`, which lies in it; a layer for that stands before `inner`, the region of
 * `region` in which layers are being added, if there is one. */
static trm_tensor *enter(trm_onnx_node *node, trm_onnx_region *region, const trm_onnx_region *from,
                         const trm_onnx_region *inner, trm_tensor *tensor)
{
    if (region == from || trm_onnx_failed(node) || tensor->role == TRM_TENSOR_CONSTANT) {
        return tensor;
    }
    tensor = enter(node, region->around, from, region, tensor);
    for (int32_t i = 0; i < region->n_entered; i++) {
        if (region->outside[i] == tensor) {
            return region->entered[i];
        }
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_ENTER};
    trm_tensor *entered = trm_onnx_add(node, &desc, tensor, NULL, NULL, NULL);
    if (trm_onnx_failed(node) || !remember(node, region, tensor, entered)) {
        return node->import->nothing;
    }
    if (inner != NULL) {
        trm_network_move_layer(node->network, entered->producer, inner->first->index);
    }
    return entered;
}

trm_tensor *trm_onnx_enter(trm_onnx_node *node, trm_tensor *tensor)
{
    trm_onnx_region *region = node->import->region;
    return region == NULL ? tensor : enter(node, region, region->around, NULL, tensor);
}

trm_onnx_value *trm_onnx_enter_value(trm_onnx_node *node, const trm_onnx_region *from, trm_onnx_value *value)
{
    trm_onnx_region *region = node->import->region;
    if (region == from || value == NULL || trm_onnx_failed(node)) {
        return value;
    }
    if (value->kind == TRM_ONNX_VALUE_TENSOR && value->tensor->role != TRM_TENSOR_CONSTANT) {
        return trm_onnx_value_tensor(node, enter(node, region, from, NULL, value->tensor));
    }
    if (value->kind == TRM_ONNX_VALUE_OPEN_SEQUENCE) {
        trm_tensor *elements = enter(node, region, from, NULL, value->elements);
        trm_tensor *shapes = enter(node, region, from, NULL, value->shapes);
        return trm_onnx_open_sequence(node, (trm_onnx_element_type){value->dtype, value->dims}, elements, shapes);
    }
    if (value->kind != TRM_ONNX_VALUE_SEQUENCE) {
        return value;
    }
    trm_onnx_value *list = trm_onnx_value_sequence(node, value->items, value->n_items);
    for (int32_t i = 0; list != NULL && i < list->n_items; i++) {
        list->items[i] = trm_onnx_enter_value(node, from, list->items[i]);
    }
    return list;
}

/* Opens a region whose layers begin with the one added last. */
static void open_region(trm_onnx_node *node, trm_onnx_region *region, trm_layer *first)
{
    *region = (trm_onnx_region){.around = node->import->region, .first = first};
    node->import->region = region;
}

static void close_region(trm_onnx_node *node, const trm_onnx_region *region)
{
    node->import->region = region->around;
}

static trm_layer *last_layer(const trm_onnx_node *node)
{
    return node->network->layers[node->network->n_layers - 1];
}

static trm_tensor *tensor_of(trm_onnx_node *node, const trm_onnx_value *value, const char *what)
{
    if (trm_onnx_failed(node)) {
        return node->import->nothing;
    }
    if (value == NULL || value->kind != TRM_ONNX_VALUE_TENSOR) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "%s with an unknown condition is an optional, or a sequence in one branch only", what);
        return node->import->nothing;
    }
    return value->tensor;
}

/* ---- branches -------------------------------------------------------------------------------------------- */

/* What both branches give for an output. */
typedef struct choice {
    bool sequence;              /* two tensors stand for it */
    trm_onnx_element_type type; /* sequence: of elements of both */
    trm_tensor *made[2][2];     /* by the first branch and the second */
} choice;

/* One branch: its outputs [n_outputs of the node], as they leave the region, and its end. */
static trm_tensor *add_branch(trm_onnx_node *node, trm_tensor *condition, bool negated, const Onnx__GraphProto *graph,
                              choice *outputs)
{
    const trm_layer_desc begin = {.kind = TRM_LAYER_IF, .branch = {negated}}, end = {.kind = TRM_LAYER_END_IF};
    const trm_layer_desc leave = {.kind = TRM_LAYER_ENTER};
    trm_onnx_value **values =
        trm_arena_array(&node->import->arena, (size_t)node->n_outputs + 1, sizeof(trm_onnx_value *));
    trm_tensor *begun = trm_onnx_add(node, &begin, condition, NULL, NULL, NULL);
    trm_onnx_region region;
    if (values == NULL && node->status == TRM_OK) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
    }
    if (trm_onnx_failed(node)) {
        return node->import->nothing;
    }
    open_region(node, &region, last_layer(node));
    trm_onnx_run_body(node, graph, negated ? "else_branch" : "then_branch", NULL, 0, values, node->n_outputs);
    for (int32_t i = 0; i < node->n_outputs; i++) { /* whatever form ranks have it in, it is whole when it leaves */
        choice *to = &outputs[i];
        const trm_onnx_value *value = trm_onnx_failed(node) ? NULL : values[i];
        to->sequence = negated ? to->sequence : trm_onnx_is_sequence(value);
        if (to->sequence && trm_onnx_is_sequence(value)) {
            const trm_onnx_element_type own = trm_onnx_element_type_of(node, value);
            to->type = trm_onnx_join_element_types(node, &to->type, &own);
            value = trm_onnx_as_open(node, value, &to->type);
        }
        const bool open = value != NULL && value->kind == TRM_ONNX_VALUE_OPEN_SEQUENCE;
        to->made[negated][0] = trm_onnx_add(
            node, &leave, open ? value->elements : tensor_of(node, value, "an output of a branch"), NULL, NULL, NULL);
        to->made[negated][1] = open ? trm_onnx_add(node, &leave, value->shapes, NULL, NULL, NULL) : NULL;
    }
    close_region(node, &region);
    return trm_onnx_add(node, &end, begun, NULL, NULL, NULL);
}

/* Writes both branches down. */
static void add_branches(trm_onnx_node *node, const Onnx__GraphProto *then_branch, const Onnx__GraphProto *else_branch,
                         choice *outputs, trm_tensor **ends)
{
    ends[0] = trm_onnx_reshape(node, node->inputs[0], NULL, 0);
    ends[1] = add_branch(node, ends[0], false, then_branch, outputs);
    ends[2] = add_branch(node, ends[0], true, else_branch, outputs);
}

/* Whether a branch gives a sequence of nothing, whose type the other branch knows. */
static bool learned(const trm_onnx_node *node, const choice *outputs)
{
    bool has = false;
    for (int32_t i = 0; i < node->n_outputs && !trm_onnx_failed(node); i++) {
        const choice *to = &outputs[i];
        for (int32_t k = 0; k < 2; k++) {
            has = has || (to->sequence && (to->made[k][0]->dtype != to->made[1 - k][0]->dtype ||
                                           to->made[k][1]->dims.d[1] != to->made[1 - k][1]->dims.d[1]));
        }
    }
    return has;
}

static trm_tensor *merge(trm_onnx_node *node, trm_tensor *const *ends, trm_tensor *a, trm_tensor *b)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_MERGE};
    trm_tensor *inputs[] = {ends[0], a, b, ends[1], ends[2]}, *merged[TRM_MAX_LAYER_OUTPUTS];
    if (!trm_onnx_failed(node) && (a->dims.n != b->dims.n || a->dtype != b->dtype)) {
        char then_dims[TRM_DIMS_TEXT_SIZE], else_dims[TRM_DIMS_TEXT_SIZE];
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "its branches give %s %s and %s %s, and input 0 of the node, its condition, is not known when "
                      "the network is built: set its value",
                      trm_dtype_name(a->dtype), trm_dims_format(&a->dims, then_dims), trm_dtype_name(b->dtype),
                      trm_dims_format(&b->dims, else_dims));
    }
    trm_onnx_layer(node, &desc, inputs, 5, merged);
    return merged[0];
}

void trm_onnx_branch(trm_onnx_node *node, const Onnx__GraphProto *then_branch, const Onnx__GraphProto *else_branch)
{
    choice *outputs = trm_arena_array(&node->import->arena, (size_t)node->n_outputs + 1, sizeof(*outputs));
    trm_tensor *ends[3];
    if (outputs == NULL) {
        node->status = node->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : node->status;
        return;
    }
    const int32_t first = node->network->n_layers;
    add_branches(node, then_branch, else_branch, outputs, ends);
    if (learned(node, outputs)) { /* once more, now that the types are known */
        trm_onnx_discard(node->import, first);
        add_branches(node, then_branch, else_branch, outputs, ends);
    }
    for (int32_t i = 0; i < node->n_outputs && !trm_onnx_failed(node); i++) {
        const choice *to = &outputs[i];
        trm_tensor *merged = merge(node, ends, to->made[0][0], to->made[1][0]);
        if (to->sequence) {
            trm_tensor *shapes = merge(node, ends, to->made[0][1], to->made[1][1]);
            trm_onnx_set_value(node, i, trm_onnx_open_sequence(node, to->type, merged, shapes));
        } else {
            trm_onnx_set(node, i, merged);
        }
    }
}

/* ---- loops ----------------------------------------------------------------------------------------------- */

/* What one attempt to write a loop down works with. */
typedef struct attempt {
    trm_onnx_loop *loop;
    const trm_layer *first; /* of its layers */
    int32_t *open;          /* [n_states] axes that may change */
    trm_tensor *number;     /* recurrences: the number of the pass, */
    trm_tensor **states;    /* [n_states] what is carried on, */
    trm_tensor **stacks;    /* [n_stacked] entries, by dims or flat, */
    trm_tensor **shapes;    /* [n_stacked] and then the dims of one, else NULL */
    trm_tensor **before;    /* [n_stacked] the dims of entries made before the loop, NULL: none */
    trm_tensor **next;      /* [n_states] */
    trm_tensor **entries;   /* [n_stacked] */
} attempt;

static trm_tensor *add_recurrence(trm_onnx_node *node, trm_tensor *initial, int32_t open)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_RECURRENCE, .recurrence = {open}};
    return trm_onnx_add(node, &desc, initial, NULL, NULL, NULL);
}

static void add_next(trm_onnx_node *node, trm_tensor *value, trm_tensor *recurrence)
{
    if (!trm_onnx_failed(node)) {
        trm_layer_desc desc = {.kind = TRM_LAYER_NEXT, .recurrence = recurrence->producer->desc.recurrence};
        trm_onnx_add(node, &desc, value, recurrence, NULL, NULL);
    }
}

/* A recurrence that turned out to be wanted in the loop's region. */
static trm_tensor *add_recurrence_before(trm_onnx_node *node, const trm_onnx_region *region, trm_tensor *initial,
                                         int32_t open)
{
    trm_tensor *recurrence = add_recurrence(node, initial, open);
    if (!trm_onnx_failed(node)) {
        trm_network_move_layer(node->network, recurrence->producer, region->first->index + 1);
    }
    return recurrence;
}

static trm_tensor *join(trm_onnx_node *node, trm_tensor *before, trm_tensor *entry, bool backwards)
{
    trm_tensor *parts[] = {backwards ? entry : before, backwards ? before : entry};
    return trm_onnx_concat(node, parts, 2, 0);
}

/*
 * Adds the entry of a pass to those of earlier ones, [passes, entry's dims]. Entries whose dims are not known are kept
 * flat, with the dims of one, as before the first pass there are none that could be added to. Where it is the last,
 * too, these dims are those of entries made before the loop.
 */
static void stack_entry(trm_onnx_node *node, attempt *self, const trm_onnx_region *region, int32_t i)
{
    static const int32_t front = 0;
    static const int64_t flat[1] = {-1};
    const trm_onnx_loop *loop = self->loop;
    trm_tensor *entry = self->entries[i], *before = loop->stacked[i];
    bool backwards = loop->backwards != NULL && loop->backwards[i];
    if (trm_onnx_failed(node)) {
        return;
    }
    if (entry->dims.n == TRM_MAX_DIMS) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "stacked entries have %d dimensions, expected fewer", TRM_MAX_DIMS);
        return;
    }
    trm_dims none = {.n = 1};
    if (trm_dims_are_known(&entry->dims)) {
        none.n += entry->dims.n;
        memcpy(none.d + 1, entry->dims.d, (size_t)entry->dims.n * sizeof(none.d[0]));
        before = before != NULL ? before : trm_onnx_constant(node, entry->dtype, none, "");
        self->stacks[i] = add_recurrence_before(node, region, before, 1);
        add_next(node, join(node, self->stacks[i], trm_onnx_unsqueeze(node, entry, &front, 1), backwards),
                 self->stacks[i]);
        return;
    }
    trm_dims rank = {.n = 1, .d = {entry->dims.n}};
    const int64_t zeros[TRM_MAX_DIMS] = {0};
    trm_onnx_dim dims[TRM_MAX_DIMS];
    int32_t n = trm_onnx_dims_of(node, entry, dims);
    trm_tensor *shape = self->before[i] != NULL ? self->before[i] : trm_onnx_constant(node, TRM_I64, rank, zeros);
    self->shapes[i] = add_recurrence_before(node, region, shape, 0);
    self->stacks[i] = add_recurrence_before(node, region, trm_onnx_constant(node, entry->dtype, none, ""), 1);
    add_next(node, trm_onnx_shape(node, dims, n), self->shapes[i]);
    add_next(node, join(node, self->stacks[i], trm_onnx_reshape(node, entry, flat, 1), backwards), self->stacks[i]);
}

/* Opens axes of states that the body changes, or may; whether there are more than before. */
static bool open_axes(trm_onnx_node *node, attempt *self)
{
    bool more = false;
    for (int32_t i = 0; i < self->loop->n_states && !trm_onnx_failed(node); i++) {
        const trm_tensor *before = self->loop->states[i], *next = self->next[i];
        if (before->dims.n != next->dims.n || before->dtype != next->dtype) {
            char of_before[TRM_DIMS_TEXT_SIZE], of_next[TRM_DIMS_TEXT_SIZE];
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                          "its body turns %s %s into %s %s, expected the same type and number of dimensions",
                          trm_dtype_name(next->dtype), trm_dims_format(&next->dims, of_next),
                          trm_dtype_name(before->dtype), trm_dims_format(&before->dims, of_before));
            return false;
        }
        for (int32_t k = 0; k < before->dims.n; k++) {
            bool same = before->dims.d[k] >= 0 && before->dims.d[k] == next->dims.d[k];
            if (!same && (self->open[i] >> k & 1) == 0) {
                self->open[i] |= (int32_t)(1u << k);
                more = true;
            }
        }
    }
    return more;
}

/* One pass, in the loop's region; what it carries on is not noted yet. Returns whether there is another. */
static trm_tensor *add_pass(trm_onnx_node *node, attempt *self)
{
    const trm_onnx_loop *loop = self->loop;
    trm_tensor *again = NULL;
    loop->pass(node, loop->user, self->number, self->states, self->next, self->entries, &again);
    trm_tensor *number = trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, self->number, trm_onnx_i64(node, 1));
    add_next(node, number, self->number);
    if (loop->trips != NULL) {
        trm_tensor *more = trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS, number, trm_onnx_enter(node, loop->trips));
        again = again == NULL ? more : trm_onnx_elementwise(node, TRM_ELEMENTWISE_AND, again, more);
    }
    return again == NULL ? trm_onnx_scalar(node, TRM_BOOL, 1) : again;
}

/* Behind the loop: what was carried on, and entries under their dims. */
static void take_outputs(trm_onnx_node *node, attempt *self, trm_tensor *end)
{
    static const int64_t one[1] = {1};
    const trm_layer_desc output = {.kind = TRM_LAYER_LOOP_OUTPUT};
    trm_onnx_loop *loop = self->loop;
    for (int32_t i = 0; i < loop->n_states; i++) {
        loop->states[i] = trm_onnx_add(node, &output, self->states[i], end, NULL, NULL);
    }
    for (int32_t i = 0; i < loop->n_stacked && !trm_onnx_failed(node); i++) {
        trm_tensor *stack = trm_onnx_add(node, &output, self->stacks[i], end, NULL, NULL);
        if (self->shapes[i] != NULL && !trm_onnx_failed(node)) {
            trm_tensor *passes = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB,
                                                      trm_onnx_add(node, &output, self->number, end, NULL, NULL),
                                                      trm_onnx_i64(node, loop->first));
            trm_tensor *parts[] = {trm_onnx_reshape(node, passes, one, 1),
                                   trm_onnx_add(node, &output, self->shapes[i], end, NULL, NULL)};
            trm_layer_desc reshape = {.kind = TRM_LAYER_RESHAPE, .reshape = {.zero_is_zero = true}};
            trm_tensor *all = trm_onnx_add(node, &reshape, stack, trm_onnx_concat(node, parts, 2, 0), NULL, NULL);
            const bool backwards = loop->backwards != NULL && loop->backwards[i];
            trm_tensor *both[] = {backwards ? all : loop->stacked[i], backwards ? loop->stacked[i] : all};
            stack = loop->stacked[i] == NULL ? all : trm_onnx_concat(node, both, 2, 0);
        }
        loop->stacked[i] = stack;
    }
}

/* Writes the loop down; false if it has to be written again, with more open axes. */
static bool write_loop(trm_onnx_node *node, attempt *self)
{
    const trm_layer_desc begin = {.kind = TRM_LAYER_LOOP}, end = {.kind = TRM_LAYER_END_LOOP};
    trm_onnx_loop *loop = self->loop;
    trm_onnx_region region;
    self->number = add_recurrence(node, trm_onnx_i64(node, loop->first), 0);
    if (trm_onnx_failed(node)) {
        return true;
    }
    trm_layer *first = self->number->producer;
    self->first = first;
    for (int32_t i = 0; i < loop->n_states; i++) {
        self->states[i] = add_recurrence(node, loop->states[i], self->open[i]);
    }
    trm_tensor *runs = loop->runs == NULL ? trm_onnx_scalar(node, TRM_BOOL, 1) : loop->runs;
    trm_tensor *begun = trm_onnx_add(node, &begin, runs, NULL, NULL, NULL);
    open_region(node, &region, first);
    trm_tensor *again = add_pass(node, self);
    bool more = open_axes(node, self);
    for (int32_t i = 0; i < loop->n_states && !more; i++) {
        add_next(node, self->next[i], self->states[i]);
    }
    for (int32_t i = 0; i < loop->n_stacked && !more; i++) {
        stack_entry(node, self, &region, i);
    }
    close_region(node, &region);
    if (more && !trm_onnx_failed(node)) {
        trm_onnx_discard(node->import, first->index);
        return false;
    }
    take_outputs(node, self, trm_onnx_add(node, &end, again, begun, NULL, NULL));
    return true;
}

void trm_onnx_add_loop(trm_onnx_node *node, trm_onnx_loop *loop)
{
    trm_arena *arena = &node->import->arena;
    size_t states = (size_t)loop->n_states + 1, stacks = (size_t)loop->n_stacked + 1;
    attempt self = {.loop = loop,
                    .open = trm_arena_array(arena, states, sizeof(int32_t)),
                    .states = trm_arena_array(arena, states, sizeof(trm_tensor *)),
                    .next = trm_arena_array(arena, states, sizeof(trm_tensor *)),
                    .stacks = trm_arena_array(arena, stacks, sizeof(trm_tensor *)),
                    .shapes = trm_arena_array(arena, stacks, sizeof(trm_tensor *)),
                    .before = trm_arena_array(arena, stacks, sizeof(trm_tensor *)),
                    .entries = trm_arena_array(arena, stacks, sizeof(trm_tensor *))};
    if (self.open == NULL || self.states == NULL || self.next == NULL || self.stacks == NULL || self.shapes == NULL ||
        self.before == NULL || self.entries == NULL) {
        node->status = node->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : node->status;
        return;
    }
    for (int32_t i = 0; i < loop->n_states; i++) {
        for (int32_t k = 0; k < loop->states[i]->dims.n; k++) {
            self.open[i] |= loop->states[i]->dims.d[k] < 0 ? (int32_t)(1u << k) : 0;
        }
    }
    for (int32_t i = 0; i < loop->n_stacked && !trm_onnx_failed(node); i++) {
        trm_onnx_dim dims[TRM_MAX_DIMS];
        if (loop->stacked[i] != NULL) {
            int32_t n = trm_onnx_dims_of(node, loop->stacked[i], dims);
            self.before[i] = trm_onnx_shape(node, dims + 1, n - 1);
        }
    }
    while (!trm_onnx_failed(node) && !write_loop(node, &self)) {
    }
    if (trm_onnx_failed(node) && self.first != NULL) {
        trm_onnx_discard(node->import, self.first->index);
    }
}

void trm_onnx_begin_pass(const trm_onnx_node *node, trm_onnx_passes *passes)
{
    passes->layers = node->network->n_layers;
    passes->steps = node->import->steps;
}

bool trm_onnx_wants_region(const trm_onnx_node *node, const trm_onnx_passes *passes, int64_t rest, bool *must)
{
    const trm_onnx_import *import = node->import;
    const int64_t layers = import->network->n_layers - passes->layers, steps = import->steps - passes->steps;
    const int64_t made = import->network->n_layers - passes->first;
    *must = steps > 0 && rest > (TRM_ONNX_MOST_STEPS - import->steps) / steps - MOST_ATTEMPTS;
    return *must || (layers > 0 && rest > (MOST_UNROLLED - made) / layers);
}

bool trm_onnx_forget_failure(trm_onnx_node *node, int32_t n_issues)
{
    if (node->status == TRM_ERROR_OUT_OF_MEMORY || node->status == TRM_ERROR_INTERNAL) {
        return false;
    }
    node->status = TRM_OK;
    node->import->model->n_issues = n_issues;
    return true;
}
