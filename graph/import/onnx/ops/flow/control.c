/*
 * Control flow. Known conditions decide at build time which branch is taken and how often a body repeats. With unknown
 * conditions branches and loops become regions (region.h). Branches of a few layers both run, and the result is
 * selected per element. With max_trips a body repeats that often, and passes after the last one change nothing, so that
 * a run waits for nothing.
 */
#include "graph/import/onnx/control.h"
#include "graph/import/onnx/open_sequence.h"

#include <string.h>

#include "kernels/kernel.h"

/* Whether a condition is known, and what it is. */
static bool known_condition(trm_onnx_node *node, const trm_onnx_value *value, bool *condition)
{
    int64_t number = 0;
    int32_t count = 0;
    bool known = value != NULL && value->kind == TRM_ONNX_VALUE_TENSOR &&
                 trm_onnx_known_ints(node, value->tensor, &number, 1, &count) && count == 1;
    *condition = number != 0;
    return known;
}

/* ---- If ------------------------------------------------------------------------------------------------ */

static void select_outputs(trm_onnx_node *node, trm_onnx_value *const *yes, trm_onnx_value *const *no)
{
    trm_tensor *condition = trm_onnx_reshape(node, node->inputs[0], NULL, 0);
    for (int32_t i = 0; i < node->n_outputs && !trm_onnx_failed(node); i++) {
        trm_tensor *a = trm_onnx_body_tensor(node, yes[i], "an output of a branch with an unknown condition");
        trm_tensor *b = trm_onnx_body_tensor(node, no[i], "an output of a branch with an unknown condition");
        if (!trm_onnx_failed(node) && a->dims.n != b->dims.n) {
            char then_dims[TRM_DIMS_TEXT_SIZE], else_dims[TRM_DIMS_TEXT_SIZE];
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                          "its branches give dims %s and %s, and input 0 of the node, its condition, is not known when "
                          "the network is built: set its value",
                          trm_dims_format(&a->dims, then_dims), trm_dims_format(&b->dims, else_dims));
        }
        if (trm_onnx_failed(node)) {
            return;
        }
        const bool same_dims = trm_dims_equal(&a->dims, &b->dims) && trm_dims_are_known(&a->dims);
        trm_onnx_set(node, i,
                     a == b      ? a
                     : same_dims ? trm_onnx_select(node, condition, a, b)
                                 : trm_onnx_either(node, condition, a, b));
    }
}

/* Operators that take less time than a wait for what a condition is. */
static bool is_quick(const char *op)
{
    static const char *const quick[] = {
        "Abs",    "Add",     "And",      "Cast", "Concat", "Constant", "Div", "Equal",     "Expand",    "Flatten",
        "Gather", "Greater", "Identity", "Less", "Max",    "Min",      "Mod", "Mul",       "Neg",       "Not",
        "Or",     "Reshape", "Shape",    "Size", "Slice",  "Squeeze",  "Sub", "Transpose", "Unsqueeze", "Where"};
    for (size_t i = 0; i < sizeof(quick) / sizeof(quick[0]); i++) {
        if (strcmp(op, quick[i]) == 0) {
            return true;
        }
    }
    return false;
}

#define MOST_QUICK_NODES 8

/* Whether a branch had better run in every run than be waited for. */
static bool is_short(const Onnx__GraphProto *graph)
{
    bool is = graph->n_node <= MOST_QUICK_NODES;
    for (size_t i = 0; is && i < graph->n_node; i++) {
        is = trm_onnx_domain(graph->node[i]->domain)[0] == '\0' && is_quick(trm_onnx_text(graph->node[i]->op_type));
    }
    return is;
}

static void import_if(trm_onnx_node *node)
{
    const Onnx__GraphProto *then_branch = trm_onnx_graph(node, "then_branch");
    const Onnx__GraphProto *else_branch = trm_onnx_graph(node, "else_branch");
    trm_onnx_value **yes = trm_onnx_new_values(node, (size_t)node->n_outputs);
    trm_onnx_value **no = trm_onnx_new_values(node, (size_t)node->n_outputs);
    bool condition, known = known_condition(node, node->input_values[0], &condition);
    if (trm_onnx_failed(node)) {
        return;
    }
    if (!known && !(is_short(then_branch) && is_short(else_branch))) {
        trm_onnx_branch(node, then_branch, else_branch);
        return;
    }
    if (!known || condition) {
        trm_onnx_run_body(node, then_branch, "then_branch", NULL, 0, yes, node->n_outputs);
    }
    if (!known || !condition) {
        trm_onnx_run_body(node, else_branch, "else_branch", NULL, 0, no, node->n_outputs);
    }
    if (!known) {
        select_outputs(node, yes, no);
        return;
    }
    for (int32_t i = 0; i < node->n_outputs; i++) {
        trm_onnx_set_value(node, i, condition ? yes[i] : no[i]);
    }
}

/* A trip count of at least this is nominal: the condition ends the loop. */
#define NO_TRIP_COUNT INT32_MAX

/* ---- Loop ---------------------------------------------------------------------------------------------- */

/* Conditions are scalars; NULL stands for one that is known to hold. */
typedef struct loop {
    const Onnx__GraphProto *body;
    int32_t n_carried, n_scanned;
    trm_tensor *trips;      /* input 0 where its value is not known, else NULL */
    int64_t known_trips;    /* its value otherwise */
    int64_t limit;          /* of passes when it is not known whether they run; 0: they are a region */
    trm_tensor *runs;       /* whether the next pass runs */
    bool over;              /* it is known that it does not */
    bool unrolls;           /* the body cannot be a region */
    int64_t sure;           /* passes made that are known to run */
    trm_tensor *count;      /* i64 [1] of others that ran, or NULL */
    trm_onnx_value **state; /* [2 + n_carried] inputs of the body */
    trm_onnx_value **made;  /* [1 + outputs of the node] its outputs */
    trm_onnx_list *scanned; /* [n_scanned] */
    /* [n_carried] of a region: what elements of a sequence are; it is two tensors of the region. */
    trm_onnx_element_type *types;
    bool retyped; /* the body put other elements into a sequence than were expected */
} loop;

/* Both conditions. */
static trm_tensor *both(trm_onnx_node *node, trm_tensor *a, trm_tensor *b)
{
    return a == NULL ? b : b == NULL ? a : trm_onnx_elementwise(node, TRM_ELEMENTWISE_AND, a, b);
}

/* The next pass runs if this holds, too. */
static void require(trm_onnx_node *node, loop *self, trm_tensor *condition)
{
    int64_t number = 0;
    int32_t count = 0;
    condition = trm_onnx_reshape(node, condition, NULL, 0);
    if (trm_onnx_failed(node)) {
        return;
    }
    if (trm_onnx_known_ints(node, condition, &number, 1, &count) && count == 1) {
        self->over = self->over || number == 0;
    } else {
        self->runs = both(node, self->runs, condition);
    }
}

/* The next pass is not beyond the trip count. */
static void require_trip(trm_onnx_node *node, loop *self, int64_t pass)
{
    if (self->trips == NULL) {
        self->over = self->over || pass >= self->known_trips;
    } else if (!self->over) {
        require(node, self, trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS, trm_onnx_i64(node, pass), self->trips));
    }
}

static bool loop_begin(trm_onnx_node *node, loop *self)
{
    int32_t count = 0;
    self->known_trips = INT64_MAX;
    if (node->inputs[0] != NULL &&
        (!trm_onnx_known_ints(node, node->inputs[0], &self->known_trips, 1, &count) || count != 1)) {
        self->trips = trm_onnx_reshape(node, node->inputs[0], NULL, 0);
        self->known_trips = INT64_MAX;
    }
    self->limit = node->import->options->max_trips;
    if (node->inputs[1] != NULL) {
        require(node, self, node->inputs[1]);
    }
    require_trip(node, self, 0);
    return !trm_onnx_failed(node);
}

static void loop_pass(trm_onnx_node *node, loop *self, int64_t pass)
{
    trm_tensor *runs = self->runs;
    self->state[0] = trm_onnx_value_tensor(node, trm_onnx_i64(node, pass));
    self->state[1] = trm_onnx_value_tensor(node, trm_onnx_scalar(node, TRM_BOOL, 1));
    trm_onnx_run_body(node, self->body, "body", self->state, self->n_carried + 2, self->made, node->n_outputs + 1);
    if (trm_onnx_failed(node)) {
        return;
    }
    for (int32_t i = 0; i < self->n_carried; i++) {
        self->state[2 + i] =
            runs == NULL ? self->made[1 + i] : trm_onnx_choose(node, runs, self->made[1 + i], self->state[2 + i]);
    }
    for (int32_t i = 0; i < self->n_scanned; i++) {
        trm_onnx_list_add(node, &self->scanned[i], self->made[1 + self->n_carried + i]);
    }
    if (runs == NULL) {
        self->sure++;
    } else {
        static const int64_t one[1] = {1};
        trm_tensor *ran = trm_onnx_reshape(node, trm_onnx_cast(node, runs, TRM_I64), one, 1);
        self->count = self->count == NULL ? ran : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, self->count, ran);
    }
    require(node, self, trm_onnx_body_tensor(node, self->made[0], "the condition that a body computes"));
    require_trip(node, self, pass + 1);
}

/* That of those that ran. */
static void cut_scanned(trm_onnx_node *node, loop *self, int32_t output)
{
    static const int64_t zero[1] = {0};
    if (self->count != NULL && !trm_onnx_failed(node)) {
        trm_onnx_cut_output(
            node, output, 0, trm_onnx_i64s(node, zero, 1),
            trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, self->count, trm_onnx_i64s(node, &self->sure, 1)));
    }
}

static bool loop_open(trm_onnx_node *node, loop *self)
{
    self->body = trm_onnx_graph(node, "body");
    self->n_carried = node->n_inputs > 2 ? node->n_inputs - 2 : 0;
    self->n_scanned = node->n_outputs - self->n_carried;
    if (self->body == NULL) {
        return false;
    }
    if (self->n_scanned < 0 || self->body->n_output != (size_t)node->n_outputs + 1) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has %d outputs, its body %zu, expected one more",
                      (int)node->n_outputs, self->body->n_output);
        return false;
    }
    self->state = trm_onnx_new_values(node, (size_t)self->n_carried + 2);
    self->made = trm_onnx_new_values(node, (size_t)node->n_outputs + 1);
    self->scanned = trm_arena_array(&node->import->arena, (size_t)self->n_scanned + 1, sizeof(*self->scanned));
    self->types = trm_arena_array(&node->import->arena, (size_t)self->n_carried + 1, sizeof(*self->types));
    if (self->state == NULL || self->made == NULL || self->scanned == NULL || self->types == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return false;
    }
    for (int32_t i = 0; i < self->n_carried; i++) {
        self->state[2 + i] = node->input_values[2 + i];
    }
    return loop_begin(node, self);
}

/* What a pass made of a sequence, as the two tensors that are carried on. Where its elements are not of the type that
 * was expected, they stay what they were: the loop is written once more. */
static void carry_sequence(trm_onnx_node *node, loop *self, int32_t i, trm_tensor *const *states, trm_tensor **next)
{
    const trm_onnx_value *made = trm_onnx_failed(node) ? NULL : self->made[1 + i];
    next[0] = states[0];
    next[1] = states[1];
    if (trm_onnx_failed(node) || !trm_onnx_is_sequence(made)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its body turns a sequence into something else");
        return;
    }
    const trm_onnx_element_type own = trm_onnx_element_type_of(node, made);
    const trm_onnx_element_type both = trm_onnx_join_element_types(node, &self->types[i], &own);
    if (!trm_onnx_same_element_types(&both, &self->types[i])) {
        self->types[i] = both;
        self->retyped = true;
    } else if (both.dtype != TRM_DTYPE_NONE) {
        made = trm_onnx_as_open(node, made, &both);
        next[0] = trm_onnx_failed(node) ? next[0] : made->elements;
        next[1] = trm_onnx_failed(node) ? next[1] : made->shapes;
    }
}

/* A pass of a loop that is a region. */
static void region_pass(trm_onnx_node *node, void *user, trm_tensor *number, trm_tensor *const *states,
                        trm_tensor **next, trm_tensor **entries, trm_tensor **again)
{
    loop *self = user;
    int64_t known = 0;
    int32_t count = 0;
    self->state[0] = trm_onnx_value_tensor(node, number);
    self->state[1] = trm_onnx_value_tensor(node, trm_onnx_scalar(node, TRM_BOOL, 1));
    for (int32_t i = 0, k = 0; i < self->n_carried; i++) {
        const bool sequence = trm_onnx_is_sequence(self->state[2 + i]);
        self->state[2 + i] = sequence ? trm_onnx_open_sequence(node, self->types[i], states[k], states[k + 1])
                                      : trm_onnx_value_tensor(node, states[k]);
        k += 1 + sequence;
    }
    trm_onnx_run_body(node, self->body, "body", self->state, self->n_carried + 2, self->made, node->n_outputs + 1);
    for (int32_t i = 0, k = 0; i < self->n_carried; i++) {
        if (trm_onnx_is_sequence(self->state[2 + i])) {
            carry_sequence(node, self, i, states + k, next + k);
            k += 2;
        } else {
            next[k++] =
                trm_onnx_body_tensor(node, self->made[1 + i], "a loop-carried value of a body that may not run");
        }
    }
    for (int32_t i = 0; i < self->n_scanned; i++) {
        entries[i] = trm_onnx_body_tensor(node, self->made[1 + self->n_carried + i], "a stacked output of the body");
    }
    *again = trm_onnx_reshape(node, trm_onnx_body_tensor(node, self->made[0], "the condition that a body computes"),
                              NULL, 0);
    if (trm_onnx_failed(node) || !trm_onnx_known_ints(node, *again, &known, 1, &count) || known == 0) {
        return;
    }
    *again = NULL; /* the trip count alone decides */
    if (self->trips == NULL && self->known_trips >= NO_TRIP_COUNT) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                      "the condition of its body is always true, and the loop does not end within %lld passes",
                      (long long)self->known_trips);
    }
}

/* What a region carries on, from the values [n_carried] before it; a sequence is two tensors. */
static void set_states(trm_onnx_node *node, loop *self, trm_onnx_value *const *values, trm_onnx_loop *region)
{
    region->n_states = 0;
    for (int32_t i = 0; i < self->n_carried && !trm_onnx_failed(node); i++) {
        trm_tensor **to = region->states + region->n_states;
        if (trm_onnx_is_sequence(values[i])) {
            const trm_onnx_element_type own = trm_onnx_element_type_of(node, values[i]);
            self->types[i] = trm_onnx_join_element_types(node, &self->types[i], &own);
            const trm_onnx_value *open = trm_onnx_as_open(node, values[i], &self->types[i]);
            to[0] = open == NULL ? node->import->nothing : open->elements;
            to[1] = open == NULL ? node->import->nothing : open->shapes;
            region->n_states += 2;
        } else {
            to[0] = trm_onnx_body_tensor(node, values[i], "a loop-carried value of a body that may not run");
            region->n_states++;
        }
        self->state[2 + i] = values[i];
    }
}

/* Passes from `pass` on as a region. */
static void loop_region(trm_onnx_node *node, loop *self, int64_t pass)
{
    trm_arena *arena = &node->import->arena;
    const size_t most = 2 * (size_t)self->n_carried + 1;
    trm_onnx_loop region = {.n_stacked = self->n_scanned,
                            .states = trm_arena_array(arena, most, sizeof(trm_tensor *)),
                            .stacked = trm_arena_array(arena, (size_t)self->n_scanned + 1, sizeof(trm_tensor *)),
                            .first = pass,
                            .runs = self->runs,
                            .trips = self->trips,
                            .pass = region_pass,
                            .user = self};
    trm_onnx_value **values = trm_onnx_new_values(node, (size_t)self->n_carried);
    if (region.states == NULL || region.stacked == NULL || values == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    if (region.trips == NULL && self->known_trips < INT64_MAX) {
        region.trips = trm_onnx_i64(node, self->known_trips);
    }
    for (int32_t i = 0; i < self->n_carried; i++) {
        values[i] = self->state[2 + i];
        self->types[i] = (trm_onnx_element_type){TRM_DTYPE_NONE, {0}};
    }
    do {
        const int32_t first = node->network->n_layers;
        self->retyped = false;
        set_states(node, self, values, &region);
        for (int32_t i = 0; i < self->n_scanned; i++) {
            region.stacked[i] = self->scanned[i].n == 0 ? NULL : trm_onnx_stack(node, &self->scanned[i], 0, false);
        }
        trm_onnx_add_loop(node, &region);
        if (self->retyped) {
            trm_onnx_discard(node->import, first);
        }
    } while (self->retyped && !trm_onnx_failed(node));
    for (int32_t i = 0, k = 0; i < self->n_carried && !trm_onnx_failed(node); i++) {
        if (trm_onnx_is_sequence(values[i])) {
            trm_onnx_set_value(node, i,
                               trm_onnx_open_sequence(node, self->types[i], region.states[k], region.states[k + 1]));
            k += 2;
        } else {
            trm_onnx_set(node, i, region.states[k++]);
        }
    }
    for (int32_t i = 0; i < self->n_scanned; i++) {
        trm_onnx_set(node, self->n_carried + i, region.stacked[i]);
    }
}

/* Whether sequences are carried on, which stay lists of tensors where a loop is unrolled. */
static bool carries_sequences(const loop *self)
{
    bool has = false;
    for (int32_t i = 0; i < self->n_carried; i++) {
        has = has || trm_onnx_is_sequence(self->state[2 + i]);
    }
    return has;
}

/* Passes from `pass` on, which are known to run, as a region where they are too many to be unrolled; the node's outputs
 * are set then. */
static bool rest_as_region(trm_onnx_node *node, loop *self, int64_t pass, const trm_onnx_passes *passes)
{
    const int64_t rest = self->known_trips >= NO_TRIP_COUNT ? 1 : self->known_trips - pass;
    const int32_t n_issues = node->import->model->n_issues;
    bool must;
    if (trm_onnx_failed(node) || self->over || self->runs != NULL ||
        !trm_onnx_wants_region(node, passes, rest, &must) ||
        (!must && (self->unrolls || self->known_trips <= self->limit || carries_sequences(self)))) {
        return false;
    }
    trm_onnx_value **state = trm_onnx_new_values(node, (size_t)self->n_carried);
    for (int32_t i = 0; state != NULL && i < self->n_carried; i++) {
        state[i] = self->state[2 + i];
    }
    loop_region(node, self, pass);
    if (must || !trm_onnx_failed(node) || !trm_onnx_forget_failure(node, n_issues)) {
        return true;
    }
    for (int32_t i = 0; i < self->n_carried; i++) {
        self->state[2 + i] = state[i];
    }
    self->unrolls = true;
    return false;
}

static void import_loop(trm_onnx_node *node)
{
    loop self = {0};
    int64_t pass = 0;
    trm_onnx_passes passes = {.first = node->network->n_layers};
    if (!loop_open(node, &self)) {
        return;
    }
    for (; !self.over && !trm_onnx_failed(node) && (self.runs == NULL || pass < self.limit); pass++) {
        trm_onnx_begin_pass(node, &passes);
        loop_pass(node, &self, pass);
        if (rest_as_region(node, &self, pass + 1, &passes)) {
            return;
        }
    }
    if (!self.over && !trm_onnx_failed(node) && self.limit == 0) {
        loop_region(node, &self, pass);
        return;
    }
    for (int32_t i = 0; i < self.n_carried; i++) {
        trm_onnx_set_value(node, i, self.state[2 + i]);
    }
    for (int32_t i = 0; i < self.n_scanned; i++) {
        trm_onnx_set_stacked(node, self.n_carried + i, &self.scanned[i], 0, false,
                             self.body->output[1 + self.n_carried + i]);
        cut_scanned(node, &self, self.n_carried + i);
    }
    if (!self.over) {
        trm_onnx_check_passes(node, self.runs, self.limit);
    }
}

/* ---- SequenceMap --------------------------------------------------------------------------------------- */

static void import_sequence_map(trm_onnx_node *node)
{
    const Onnx__GraphProto *body = trm_onnx_graph(node, "body");
    const trm_onnx_value *sequence = node->n_inputs > 0 ? node->input_values[0] : NULL;
    if (trm_onnx_failed(node)) {
        return;
    }
    if (sequence == NULL || sequence->kind != TRM_ONNX_VALUE_SEQUENCE) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its input 0 is not a sequence");
        return;
    }
    trm_onnx_value **inputs = trm_onnx_new_values(node, (size_t)node->n_inputs);
    trm_onnx_value **outputs = trm_onnx_new_values(node, (size_t)node->n_outputs);
    trm_onnx_list *made = trm_arena_array(&node->import->arena, (size_t)node->n_outputs + 1, sizeof(*made));
    if (inputs == NULL || outputs == NULL || made == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    for (int32_t k = 0; k < sequence->n_items && !trm_onnx_failed(node); k++) {
        for (int32_t i = 0; i < node->n_inputs; i++) {
            trm_onnx_value *value = node->input_values[i];
            bool list = value != NULL && value->kind == TRM_ONNX_VALUE_SEQUENCE;
            if (list && value->n_items != sequence->n_items) {
                trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its sequences have %d and %d elements, expected the same",
                              (int)sequence->n_items, (int)value->n_items);
                return;
            }
            inputs[i] = list ? value->items[k] : value;
        }
        trm_onnx_run_body(node, body, "body", inputs, node->n_inputs, outputs, node->n_outputs);
        for (int32_t i = 0; i < node->n_outputs; i++) {
            trm_onnx_body_tensor(node, outputs[i], "an output of the body");
            trm_onnx_list_add(node, &made[i], outputs[i]);
        }
    }
    for (int32_t i = 0; i < node->n_outputs; i++) {
        trm_onnx_set_value(node, i, trm_onnx_value_sequence(node, made[i].items, made[i].n));
    }
}

const trm_onnx_operator trm_onnx_ops_control[] = {
    {"", "If", 1, 1, import_if, 0},
    {"", "Loop", 1, 0, import_loop, 0},
    {"", "SequenceMap", 17, 0, import_sequence_map, 0},
    {0},
};
