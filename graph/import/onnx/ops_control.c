/*
 * Control flow. A network has none: what is known when it is built decides which branch is taken and how often a body
 * is repeated. Where a condition is not known, both branches run and the result is chosen element by element, and a
 * body is repeated as often as it may be at most, passes after the last one leaving everything as it is.
 */
#include "graph/import/onnx/import.h"

#include <string.h>

#include "kernels/kernel.h"

/* A list that grows, in the memory of the import. */
typedef struct value_list {
    trm_onnx_value **items;
    int32_t n, capacity;
} value_list;

static void append(trm_onnx_node *node, value_list *list, trm_onnx_value *value)
{
    if (trm_onnx_failed(node)) {
        return;
    }
    if (list->n == list->capacity) {
        int32_t wanted = list->capacity * 2 + 8;
        trm_onnx_value **grown = trm_arena_array(&node->import->arena, (size_t)wanted, sizeof(trm_onnx_value *));
        if (grown == NULL) {
            node->status = TRM_ERROR_OUT_OF_MEMORY;
            return;
        }
        if (list->n > 0) {
            memcpy(grown, list->items, (size_t)list->n * sizeof(trm_onnx_value *));
        }
        list->items = grown;
        list->capacity = wanted;
    }
    list->items[list->n++] = value;
}

static trm_onnx_value **new_values(trm_onnx_node *node, size_t n)
{
    trm_onnx_value **values = trm_arena_array(&node->import->arena, n + 1, sizeof(trm_onnx_value *));
    if (values == NULL && node->status == TRM_OK) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
    }
    return values;
}

/* The tensor of a value that a body made; fails for a sequence or an optional. */
static trm_tensor *tensor_of(trm_onnx_node *node, const trm_onnx_value *value, const char *what)
{
    if (trm_onnx_failed(node)) {
        return node->import->nothing;
    }
    if (value == NULL || value->kind != TRM_ONNX_VALUE_TENSOR) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "%s is a sequence or an optional, expected a tensor", what);
        return node->import->nothing;
    }
    return value->tensor;
}

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

/* Tensors of every pass through a body, joined along a new axis. */
static void set_stacked(trm_onnx_node *node, int32_t output, const value_list *list, int32_t axis, bool backwards,
                        const Onnx__ValueInfoProto *declared)
{
    if (trm_onnx_failed(node) || !trm_onnx_wants(node, output)) {
        return;
    }
    if (list->n == 0) { /* nothing ran: the dims can only be those the body declares */
        const Onnx__TypeProto__Tensor *type = declared->type == NULL ? NULL : declared->type->tensor_type;
        trm_dtype dtype = type == NULL ? TRM_DTYPE_NONE : trm_onnx_dtype(type->elem_type);
        trm_dims dims = {.n = 1};
        for (size_t i = 0; dtype != TRM_DTYPE_NONE && type->shape != NULL && i < type->shape->n_dim; i++) {
            int64_t size = type->shape->dim[i]->has_dim_value ? type->shape->dim[i]->dim_value : -1;
            dtype = size < 0 || dims.n == TRM_MAX_DIMS ? TRM_DTYPE_NONE : dtype;
            dims.d[dims.n < TRM_MAX_DIMS ? dims.n++ : 0] = size;
        }
        if (dtype == TRM_DTYPE_NONE || type->shape == NULL || axis != 0) {
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                          "its body never runs, and does not declare the dims of output %d", (int)output);
            return;
        }
        dims.d[0] = 0;
        trm_onnx_set(node, output, trm_onnx_constant(node, dtype, dims, ""));
        return;
    }
    trm_tensor **parts = trm_arena_array(&node->import->arena, (size_t)list->n, sizeof(trm_tensor *));
    if (parts == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    for (int32_t i = 0; i < list->n; i++) {
        trm_tensor *tensor = tensor_of(node, list->items[i], "an output of the body that is to be stacked");
        int32_t at = axis < 0 ? axis + tensor->dims.n + 1 : axis;
        if (at < 0 || at > tensor->dims.n) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "axis %d of a stacked output, which has %d dimensions",
                          (int)axis, (int)tensor->dims.n + 1);
            return;
        }
        parts[backwards ? list->n - 1 - i : i] = trm_onnx_unsqueeze(node, tensor, &at, 1);
    }
    int32_t rank = parts[0]->dims.n;
    trm_onnx_set(node, output, trm_onnx_concat(node, parts, list->n, axis < 0 ? axis + rank : axis));
}

/* ---- If ------------------------------------------------------------------------------------------------ */

static bool has_unknown(const trm_tensor *x)
{
    bool unknown = false;
    for (int32_t i = 0; i < x->dims.n; i++) {
        unknown = unknown || x->dims.d[i] < 0;
    }
    return unknown;
}

static trm_onnx_dim either_dim(trm_onnx_node *node, trm_tensor *condition, trm_onnx_dim a, trm_onnx_dim b)
{
    if (a.tensor == NULL && b.tensor == NULL && a.value == b.value) {
        return a;
    }
    return (trm_onnx_dim){-1,
                          trm_onnx_select(node, condition, trm_onnx_shape(node, &a, 1), trm_onnx_shape(node, &b, 1))};
}

/* a or b, whose dims may differ: a part of the elements of both, laid out as the condition says. */
static trm_tensor *either(trm_onnx_node *node, trm_tensor *condition, trm_tensor *a, trm_tensor *b)
{
    static const int64_t flat[1] = {-1};
    const trm_onnx_dim none = trm_onnx_dim_known(0), n_a = trm_onnx_dim_product(node, a, 0, a->dims.n);
    const trm_onnx_dim all =
        trm_onnx_dim_combine(node, TRM_ELEMENTWISE_ADD, n_a, trm_onnx_dim_product(node, b, 0, b->dims.n));
    trm_onnx_dim start = either_dim(node, condition, none, n_a), end = either_dim(node, condition, n_a, all);
    trm_onnx_dim dims[TRM_MAX_DIMS];
    for (int32_t i = 0; i < a->dims.n; i++) {
        dims[i] = either_dim(node, condition, trm_onnx_dim_of(node, a, i), trm_onnx_dim_of(node, b, i));
    }
    trm_tensor *parts[2] = {trm_onnx_reshape(node, a, flat, 1), trm_onnx_reshape(node, b, flat, 1)};
    const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {.step = 1}};
    trm_tensor *part = trm_onnx_add(node, &slice, trm_onnx_concat(node, parts, 2, 0), trm_onnx_shape(node, &start, 1),
                                    trm_onnx_shape(node, &end, 1), NULL);
    return trm_onnx_reshape_to(node, part, dims, a->dims.n);
}

static void select_outputs(trm_onnx_node *node, trm_onnx_value *const *yes, trm_onnx_value *const *no)
{
    trm_tensor *condition = trm_onnx_reshape(node, node->inputs[0], NULL, 0);
    for (int32_t i = 0; i < node->n_outputs && !trm_onnx_failed(node); i++) {
        trm_tensor *a = tensor_of(node, yes[i], "an output of a branch, with a condition that is not known,");
        trm_tensor *b = tensor_of(node, no[i], "an output of a branch, with a condition that is not known,");
        if (!trm_onnx_failed(node) && a->dims.n != b->dims.n) {
            char then_dims[TRM_DIMS_TEXT_SIZE], else_dims[TRM_DIMS_TEXT_SIZE];
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                          "its branches give dims %s and %s, and input 0 of the node, which decides, is not known when "
                          "the network is built: give its value",
                          trm_dims_format(&a->dims, then_dims), trm_dims_format(&b->dims, else_dims));
        }
        if (trm_onnx_failed(node)) {
            return;
        }
        const bool same_dims = trm_dims_equal(&a->dims, &b->dims) && !has_unknown(a);
        trm_onnx_set(node, i,
                     a == b      ? a
                     : same_dims ? trm_onnx_select(node, condition, a, b)
                                 : either(node, condition, a, b));
    }
}

static void import_if(trm_onnx_node *node)
{
    const Onnx__GraphProto *then_branch = trm_onnx_graph(node, "then_branch");
    const Onnx__GraphProto *else_branch = trm_onnx_graph(node, "else_branch");
    trm_onnx_value **yes = new_values(node, (size_t)node->n_outputs);
    trm_onnx_value **no = new_values(node, (size_t)node->n_outputs);
    bool condition, known = known_condition(node, node->input_values[0], &condition);
    if (trm_onnx_failed(node)) {
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

/* ---- Loop ---------------------------------------------------------------------------------------------- */

/* Passes that are made although it is not known whether they run, where the model alone says how many there may be. */
#define MOST_GUARDED 128

/* Conditions are scalars; NULL stands for one that is known to hold. */
typedef struct loop {
    const Onnx__GraphProto *body;
    int32_t n_carried, n_scanned;
    trm_tensor *trips;      /* input 0 where its value is not known, else NULL */
    int64_t known_trips;    /* its value otherwise */
    int64_t limit;          /* of passes when it is not known whether they run; 0: nobody says */
    trm_tensor *runs;       /* whether the next pass runs */
    bool over;              /* it is known that it does not */
    int64_t sure;           /* passes made that are known to run */
    trm_tensor *count;      /* i64 [1] of others that ran, or NULL */
    trm_onnx_value **state; /* [2 + n_carried] inputs of the body */
    trm_onnx_value **made;  /* [1 + outputs of the node] its outputs */
    value_list *scanned;    /* [n_scanned] */
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
    if (self->limit == 0 && self->trips == NULL && self->known_trips <= MOST_GUARDED) {
        self->limit = self->known_trips;
    }
    if (node->inputs[1] != NULL) {
        require(node, self, node->inputs[1]);
    }
    require_trip(node, self, 0);
    return !trm_onnx_failed(node);
}

/* new where the pass runs, old otherwise. */
static trm_onnx_value *choose(trm_onnx_node *node, trm_tensor *runs, const trm_onnx_value *made, trm_onnx_value *old)
{
    trm_tensor *a = tensor_of(node, made, "what a body carries on, which may run or not,");
    trm_tensor *b = tensor_of(node, old, "what a body carries on, which may run or not,");
    if (trm_onnx_failed(node) || a == b) {
        return old;
    }
    if (a->dims.n != b->dims.n || a->dtype != b->dtype) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "its body makes %s of %d dimensions from %s of %d, and whether it runs is not known when the "
                      "network is built",
                      trm_dtype_name(a->dtype), (int)a->dims.n, trm_dtype_name(b->dtype), (int)b->dims.n);
        return old;
    }
    const bool same_dims = trm_dims_equal(&a->dims, &b->dims) && !has_unknown(a);
    return trm_onnx_value_tensor(node, same_dims ? trm_onnx_select(node, runs, a, b) : either(node, runs, a, b));
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
            runs == NULL ? self->made[1 + i] : choose(node, runs, self->made[1 + i], self->state[2 + i]);
    }
    for (int32_t i = 0; i < self->n_scanned; i++) {
        append(node, &self->scanned[i], self->made[1 + self->n_carried + i]);
    }
    if (runs == NULL) {
        self->sure++;
    } else {
        static const int64_t one[1] = {1};
        trm_tensor *ran = trm_onnx_reshape(node, trm_onnx_cast(node, runs, TRM_I64), one, 1);
        self->count = self->count == NULL ? ran : trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, self->count, ran);
    }
    require(node, self, tensor_of(node, self->made[0], "the condition that a body makes"));
    require_trip(node, self, pass + 1);
}

/* Of what passes made, elements start .. end - 1 of an axis, i64 [1] each. */
static void cut_output(trm_onnx_node *node, int32_t output, int32_t axis, trm_tensor *start, trm_tensor *end)
{
    const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {.axis = axis, .step = 1}};
    trm_onnx_value *value = node->outputs[output];
    if (!trm_onnx_failed(node) && trm_onnx_wants(node, output) && value != NULL) {
        trm_onnx_set(node, output, trm_onnx_add(node, &slice, value->tensor, start, end, NULL));
    }
}

/* That of those that ran. */
static void cut_scanned(trm_onnx_node *node, loop *self, int32_t output)
{
    static const int64_t zero[1] = {0};
    if (self->count != NULL && !trm_onnx_failed(node)) {
        cut_output(node, output, 0, trm_onnx_i64s(node, zero, 1),
                   trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, self->count, trm_onnx_i64s(node, &self->sure, 1)));
    }
}

/* The tensor as it is, in a run in which no pass is missing; others fail, as -1 copies of an axis are refused. */
static trm_tensor *refuse_missing(trm_onnx_node *node, trm_tensor *missing, trm_tensor *x)
{
    static const int64_t flat[1] = {-1}, refused[1] = {-1}, once[1] = {1};
    const trm_layer_desc tile = {.kind = TRM_LAYER_TILE};
    trm_onnx_dim dims[TRM_MAX_DIMS];
    for (int32_t i = 0; i < x->dims.n; i++) {
        dims[i] = trm_onnx_dim_of(node, x, i);
    }
    trm_tensor *copies = trm_onnx_select(node, missing, trm_onnx_i64s(node, refused, 1), trm_onnx_i64s(node, once, 1));
    trm_tensor *checked = trm_onnx_add(node, &tile, trm_onnx_reshape(node, x, flat, 1), copies, NULL, NULL);
    return trm_onnx_reshape_to(node, checked, dims, x->dims.n);
}

/* Where more passes may be wanted than were made, a run that wants them fails, with this in the name of the layer. */
static void check_passes(trm_onnx_node *node, trm_tensor *missing, int64_t made)
{
    const char *label = node->label;
    if (trm_onnx_failed(node)) {
        return;
    }
    node->label = trm_arena_printf(&node->import->arena, "%s/more_than_%lld_trips", label, (long long)made);
    if (node->label == NULL) {
        node->label = label;
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    for (int32_t i = 0; i < node->n_outputs && !trm_onnx_failed(node); i++) {
        trm_onnx_value *value = node->outputs[i];
        if (trm_onnx_wants(node, i) && value != NULL && value->kind == TRM_ONNX_VALUE_TENSOR) {
            trm_onnx_set(node, i, refuse_missing(node, missing, value->tensor));
        }
    }
    node->label = label;
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
    self->state = new_values(node, (size_t)self->n_carried + 2);
    self->made = new_values(node, (size_t)node->n_outputs + 1);
    self->scanned = trm_arena_array(&node->import->arena, (size_t)self->n_scanned + 1, sizeof(*self->scanned));
    if (self->state == NULL || self->made == NULL || self->scanned == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return false;
    }
    for (int32_t i = 0; i < self->n_carried; i++) {
        self->state[2 + i] = node->input_values[2 + i];
    }
    return loop_begin(node, self);
}

static void import_loop(trm_onnx_node *node)
{
    loop self = {0};
    if (!loop_open(node, &self)) {
        return;
    }
    for (int64_t pass = 0; !self.over && !trm_onnx_failed(node) && (self.runs == NULL || pass < self.limit); pass++) {
        loop_pass(node, &self, pass);
    }
    if (!self.over && !trm_onnx_failed(node) && self.limit == 0) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "%s not known when the network is built: give the most there can be (max_trips)",
                      self.trips != NULL ? "input 0 of the node, how often its body runs at most, is"
                                         : "whether its body runs again is");
        return;
    }
    for (int32_t i = 0; i < self.n_carried; i++) {
        trm_onnx_set_value(node, i, self.state[2 + i]);
    }
    for (int32_t i = 0; i < self.n_scanned; i++) {
        set_stacked(node, self.n_carried + i, &self.scanned[i], 0, false, self.body->output[1 + self.n_carried + i]);
        cut_scanned(node, &self, self.n_carried + i);
    }
    if (!self.over) {
        check_passes(node, self.runs, self.limit);
    }
}

/* ---- Scan ---------------------------------------------------------------------------------------------- */

typedef struct scan {
    const Onnx__GraphProto *body;
    int32_t n_states, n_inputs, n_outputs; /* scanned inputs and outputs */
    int32_t first;                         /* input of the node that is the first state */
    int64_t length;                        /* of what is scanned, or passes to make where it is not known */
    trm_tensor *count;                     /* i64 [1] that length where it is not known, else NULL */
    trm_tensor **scanned;                  /* [n_inputs] */
    int32_t *axes;                         /* [n_inputs] */
    int64_t *backwards;                    /* [n_inputs] */
    trm_onnx_value **from;                 /* [n_states + n_inputs] inputs of the body */
    trm_onnx_value **to;                   /* [n_states + n_outputs] its outputs */
    value_list *stacked;                   /* [n_outputs] */
} scan;

/* Entry `index` of a list attribute whose length must be `count`, or 0 where it is not there. */
static int64_t list_entry(trm_onnx_node *node, const char *name, int32_t index, int32_t count)
{
    const Onnx__AttributeProto *list = trm_onnx_attribute(node, name);
    if (list == NULL) {
        return 0;
    }
    if (list->n_ints != (size_t)count) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute %s has %zu values, expected %d", name, list->n_ints,
                      (int)count);
        return 0;
    }
    return list->ints[index];
}

static bool scan_arrays(trm_onnx_node *node, scan *self)
{
    trm_arena *arena = &node->import->arena;
    size_t n = (size_t)self->n_inputs + 1;
    self->scanned = trm_arena_array(arena, n, sizeof(trm_tensor *));
    self->axes = trm_arena_array(arena, n, sizeof(int32_t));
    self->backwards = trm_arena_array(arena, n, sizeof(int64_t));
    self->from = new_values(node, (size_t)self->n_states + (size_t)self->n_inputs);
    self->to = new_values(node, (size_t)self->n_states + (size_t)self->n_outputs);
    self->stacked = trm_arena_array(arena, (size_t)self->n_outputs + 1, sizeof(value_list));
    bool made = self->scanned != NULL && self->axes != NULL && self->backwards != NULL && self->stacked != NULL;
    if (!made && node->status == TRM_OK) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
    }
    return !trm_onnx_failed(node);
}

/* What is scanned: the tensors, their axes and directions, and how long they are. */
static void scan_inputs(trm_onnx_node *node, scan *self, const char *directions)
{
    self->length = -1;
    for (int32_t i = 0; i < self->n_inputs && !trm_onnx_failed(node); i++) {
        int32_t input = self->first + self->n_states + i;
        trm_tensor *x = node->inputs[input];
        if (x == NULL) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its input %d is no tensor", (int)input);
            return;
        }
        self->scanned[i] = x;
        self->axes[i] = trm_onnx_axis(node, list_entry(node, "scan_input_axes", i, self->n_inputs), x->dims.n);
        self->backwards[i] = list_entry(node, directions, i, self->n_inputs);
        int64_t size = x->dims.d[self->axes[i]];
        if (size < 0 && node->import->options->max_trips == 0) {
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                          "dimension %d of input %d of the node must be known when the network is built: give its "
                          "dims, or the most there can be (max_trips)",
                          (int)self->axes[i], (int)input);
        } else if (size >= 0 && self->length >= 0 && size != self->length) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it scans inputs of lengths %lld and %lld, expected the same",
                          (long long)self->length, (long long)size);
        }
        self->length = size >= 0 ? size : self->length;
    }
    if (self->length < 0 && !trm_onnx_failed(node)) {
        const trm_onnx_dim size = trm_onnx_dim_of(node, self->scanned[0], self->axes[0]);
        self->count = trm_onnx_shape(node, &size, 1);
        self->length = node->import->options->max_trips;
    }
}

/* Entry `step` of what is scanned; of one whose length is not known, zeros past the end, or another entry. */
static trm_tensor *scan_entry(trm_onnx_node *node, const scan *self, int32_t input, int64_t step)
{
    trm_tensor *x = self->scanned[input];
    if (self->count == NULL) {
        int64_t at = self->backwards[input] != 0 ? self->length - 1 - step : step;
        return trm_onnx_squeeze(node, trm_onnx_slice(node, x, self->axes[input], at, at + 1, 1), &self->axes[input], 1);
    }
    const int64_t from_end = step + 1;
    trm_tensor *at = self->backwards[input] == 0 ? trm_onnx_i64s(node, &step, 1)
                                                 : trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, self->count,
                                                                        trm_onnx_i64s(node, &from_end, 1));
    return trm_onnx_gather(node, x, trm_onnx_reshape(node, at, NULL, 0), self->axes[input]);
}

/* Whether a pass runs, as a scalar. */
static trm_tensor *scan_runs(trm_onnx_node *node, const scan *self, int64_t step)
{
    trm_tensor *runs = trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS, trm_onnx_i64s(node, &step, 1), self->count);
    return trm_onnx_reshape(node, runs, NULL, 0);
}

static void scan_step(trm_onnx_node *node, scan *self, int64_t step)
{
    for (int32_t i = 0; i < self->n_inputs; i++) {
        self->from[self->n_states + i] = trm_onnx_value_tensor(node, scan_entry(node, self, i, step));
    }
    trm_onnx_run_body(node, self->body, "body", self->from, self->n_states + self->n_inputs, self->to,
                      self->n_states + self->n_outputs);
    trm_tensor *runs = self->count == NULL ? NULL : scan_runs(node, self, step);
    for (int32_t i = 0; i < self->n_states; i++) {
        self->from[i] = runs == NULL ? self->to[i] : choose(node, runs, self->to[i], self->from[i]);
    }
    for (int32_t i = 0; i < self->n_outputs; i++) {
        append(node, &self->stacked[i], self->to[self->n_states + i]);
    }
}

/* Outputs of as many passes as there are entries: the first of them, or of a stack from behind the last. */
static void cut_scan(trm_onnx_node *node, const scan *self, int32_t output, int32_t axis, bool backwards)
{
    static const int64_t zero[1] = {0};
    const trm_onnx_value *value = node->outputs[output];
    if (trm_onnx_failed(node) || value == NULL || value->kind != TRM_ONNX_VALUE_TENSOR) {
        return;
    }
    trm_tensor *all = trm_onnx_i64s(node, &self->length, 1);
    trm_tensor *start =
        backwards ? trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, all, self->count) : trm_onnx_i64s(node, zero, 1);
    if (backwards) { /* a run with more entries fails, but not here */
        start = trm_onnx_elementwise(node, TRM_ELEMENTWISE_MAX, start, trm_onnx_i64s(node, zero, 1));
    }
    cut_output(node, output, axis < 0 ? axis + value->tensor->dims.n : axis, start, backwards ? all : self->count);
}

static void import_scan(trm_onnx_node *node)
{
    scan self = {.body = trm_onnx_graph(node, "body")};
    int64_t n_scanned = trm_onnx_int(node, "num_scan_inputs", 0);
    if (n_scanned < 1 || n_scanned > node->n_inputs) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute num_scan_inputs is %lld, expected 1 to %d",
                      (long long)n_scanned, (int)node->n_inputs);
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    self.n_inputs = (int32_t)n_scanned;
    self.n_states = node->n_inputs - self.n_inputs;
    self.n_outputs = node->n_outputs - self.n_states;
    if (self.n_outputs < 0) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has %d outputs, expected at least %d", (int)node->n_outputs,
                      (int)self.n_states);
    }
    if (trm_onnx_failed(node) || !scan_arrays(node, &self)) {
        return;
    }
    scan_inputs(node, &self, "scan_input_directions");
    for (int32_t i = 0; i < self.n_states; i++) {
        self.from[i] = node->input_values[i];
    }
    for (int64_t step = 0; step < self.length && !trm_onnx_failed(node); step++) {
        scan_step(node, &self, step);
    }
    for (int32_t i = 0; i < self.n_states; i++) {
        trm_onnx_set_value(node, i, self.from[i]);
    }
    for (int32_t i = 0; i < self.n_outputs && !trm_onnx_failed(node); i++) {
        int64_t axis = list_entry(node, "scan_output_axes", i, self.n_outputs);
        bool backwards = list_entry(node, "scan_output_directions", i, self.n_outputs) != 0;
        if (axis < -TRM_MAX_DIMS || axis > TRM_MAX_DIMS) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute scan_output_axes has %lld", (long long)axis);
            return;
        }
        set_stacked(node, self.n_states + i, &self.stacked[i], (int32_t)axis, backwards,
                    self.body->output[self.n_states + i]);
        if (self.count != NULL) {
            cut_scan(node, &self, self.n_states + i, (int32_t)axis, backwards);
        }
    }
    if (self.count != NULL && !trm_onnx_failed(node)) {
        trm_tensor *most = trm_onnx_i64s(node, &self.length, 1);
        check_passes(
            node, trm_onnx_reshape(node, trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS, most, self.count), NULL, 0),
            self.length);
    }
}

/* Scan of opset 8: every input has a batch axis first, the scanned ones their time axis second; lengths are not
 * supported. It is the same for every entry of the batch. */
static void import_scan_8(trm_onnx_node *node)
{
    scan self = {.body = trm_onnx_graph(node, "body"), .first = 1};
    int64_t n_scanned = trm_onnx_int(node, "num_scan_inputs", 0);
    if (node->n_inputs > 0 && node->input_values[0] != NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "it has lengths of sequences, which are not supported");
    }
    if (n_scanned < 1 || n_scanned > node->n_inputs - 1) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute num_scan_inputs is %lld, expected 1 to %d",
                      (long long)n_scanned, (int)node->n_inputs - 1);
    }
    if (trm_onnx_failed(node)) {
        return;
    }
    self.n_inputs = (int32_t)n_scanned;
    self.n_states = node->n_inputs - 1 - self.n_inputs;
    self.n_outputs = node->n_outputs - self.n_states;
    if (self.n_outputs < 0 || !scan_arrays(node, &self)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has %d outputs, expected at least %d", (int)node->n_outputs,
                      (int)self.n_states);
        return;
    }
    trm_tensor *first = node->inputs[1 + self.n_states];
    int64_t batch = first == NULL || first->dims.n < 2 ? -1 : first->dims.d[0];
    value_list *results = trm_arena_array(&node->import->arena, (size_t)node->n_outputs + 1, sizeof(*results));
    if (results == NULL || batch < 0) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the size of its batch must be known when the network is built");
        return;
    }
    static const int32_t front = 0;
    for (int64_t entry = 0; entry < batch && !trm_onnx_failed(node); entry++) {
        for (int32_t i = 0; i < self.n_states + self.n_inputs; i++) {
            trm_tensor *x = tensor_of(node, node->input_values[1 + i], "an input");
            trm_tensor *own = trm_onnx_squeeze(node, trm_onnx_slice(node, x, 0, entry, entry + 1, 1), &front, 1);
            if (i < self.n_states) {
                self.from[i] = trm_onnx_value_tensor(node, own);
            } else {
                self.scanned[i - self.n_states] = own;
                self.backwards[i - self.n_states] = list_entry(node, "directions", i - self.n_states, self.n_inputs);
                self.length = own->dims.d[0];
            }
            if (!trm_onnx_failed(node) && self.length < 0 && i >= self.n_states) {
                trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                              "dimension 1 of input %d of the node must be known when the network is built: give its "
                              "dims",
                              (int)i + 1);
            }
        }
        for (int64_t step = 0; step < self.length && !trm_onnx_failed(node); step++) {
            scan_step(node, &self, step);
        }
        for (int32_t i = 0; i < self.n_states; i++) {
            append(node, &results[i], self.from[i]);
        }
        for (int32_t i = 0; i < self.n_outputs; i++) {
            trm_onnx_node part = *node; /* its stacked output becomes one entry of the node's */
            set_stacked(&part, self.n_states + i, &self.stacked[i], 0, false, self.body->output[self.n_states + i]);
            node->status = part.status;
            append(node, &results[self.n_states + i], node->outputs[self.n_states + i]);
            self.stacked[i].n = 0;
        }
    }
    for (int32_t i = 0; i < node->n_outputs; i++) {
        set_stacked(node, i, &results[i], 0, false, self.body->output[i]);
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
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its input 0 is no sequence");
        return;
    }
    trm_onnx_value **inputs = new_values(node, (size_t)node->n_inputs);
    trm_onnx_value **outputs = new_values(node, (size_t)node->n_outputs);
    value_list *made = trm_arena_array(&node->import->arena, (size_t)node->n_outputs + 1, sizeof(*made));
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
            tensor_of(node, outputs[i], "an output of the body");
            append(node, &made[i], outputs[i]);
        }
    }
    for (int32_t i = 0; i < node->n_outputs; i++) {
        trm_onnx_set_value(node, i, trm_onnx_value_sequence(node, made[i].items, made[i].n));
    }
}

const trm_onnx_operator trm_onnx_ops_control[] = {
    {"", "If", 1, 1, import_if, 0},
    {"", "Loop", 1, 0, import_loop, 0},
    {"", "Scan", 8, 0, import_scan_8, 0},
    {"", "Scan", 9, 0, import_scan, 0},
    {"", "SequenceMap", 17, 0, import_sequence_map, 0},
    {0},
};
