/* Scan: unrolled where its length is known, or max_trips says how long it may be; otherwise a region. */
#include "graph/import/onnx/control.h"

#include "kernels/kernel.h"

typedef struct scan {
    const Onnx__GraphProto *body;
    int32_t n_states, n_inputs, n_outputs; /* scanned inputs and outputs */
    int32_t first;                         /* input of the node that is the first state */
    int64_t length;                        /* of what is scanned, or passes to make if it is unknown */
    trm_tensor *count;                     /* i64 [1] that length if it is unknown, else NULL */
    trm_tensor **scanned;                  /* [n_inputs] */
    int32_t *axes;                         /* [n_inputs] */
    int64_t *backwards;                    /* [n_inputs] */
    trm_onnx_value **from;                 /* [n_states + n_inputs] inputs of the body */
    trm_onnx_value **to;                   /* [n_states + n_outputs] its outputs */
    trm_onnx_list *stacked;                /* [n_outputs] */
    bool unrolls;                          /* the body cannot be a region */
} scan;

/* Entry `index` of a list attribute whose length must be `count`, or 0 if it is missing. */
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
    self->from = trm_onnx_new_values(node, (size_t)self->n_states + (size_t)self->n_inputs);
    self->to = trm_onnx_new_values(node, (size_t)self->n_states + (size_t)self->n_outputs);
    self->stacked = trm_arena_array(arena, (size_t)self->n_outputs + 1, sizeof(trm_onnx_list));
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
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its input %d is not a tensor", (int)input);
            return;
        }
        self->scanned[i] = x;
        self->axes[i] = trm_onnx_axis(node, list_entry(node, "scan_input_axes", i, self->n_inputs), x->dims.n);
        self->backwards[i] = list_entry(node, directions, i, self->n_inputs);
        int64_t size = x->dims.d[self->axes[i]];
        if (size >= 0 && self->length >= 0 && size != self->length) {
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
        self->from[i] = runs == NULL ? self->to[i] : trm_onnx_choose(node, runs, self->to[i], self->from[i]);
    }
    for (int32_t i = 0; i < self->n_outputs; i++) {
        trm_onnx_list_add(node, &self->stacked[i], self->to[self->n_states + i]);
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
    trm_onnx_cut_output(node, output, axis < 0 ? axis + value->tensor->dims.n : axis, start,
                        backwards ? all : self->count);
}

/* A pass of a scan that is a region. */
static void scan_region_pass(trm_onnx_node *node, void *user, trm_tensor *number, trm_tensor *const *states,
                             trm_tensor **next, trm_tensor **entries, trm_tensor **again)
{
    scan *self = user;
    *again = NULL;
    for (int32_t i = 0; i < self->n_states; i++) {
        self->from[i] = trm_onnx_value_tensor(node, states[i]);
    }
    for (int32_t i = 0; i < self->n_inputs; i++) {
        trm_tensor *at = number;
        if (self->backwards[i] != 0) {
            trm_tensor *count = trm_onnx_enter(node, self->count);
            at = trm_onnx_elementwise(node, TRM_ELEMENTWISE_SUB, count,
                                      trm_onnx_elementwise(node, TRM_ELEMENTWISE_ADD, number, trm_onnx_i64(node, 1)));
        }
        trm_tensor *x = trm_onnx_enter(node, self->scanned[i]);
        self->from[self->n_states + i] = trm_onnx_value_tensor(node, trm_onnx_gather(node, x, at, self->axes[i]));
    }
    trm_onnx_run_body(node, self->body, "body", self->from, self->n_states + self->n_inputs, self->to,
                      self->n_states + self->n_outputs);
    for (int32_t i = 0; i < self->n_states; i++) {
        next[i] = trm_onnx_body_tensor(node, self->to[i], "a loop-carried value of a body");
    }
    for (int32_t i = 0; i < self->n_outputs; i++) {
        entries[i] = trm_onnx_body_tensor(node, self->to[self->n_states + i], "a stacked output of the body");
    }
}

/* Axis 0 is moved to `axis`. */
static trm_tensor *move_front(trm_onnx_node *node, trm_tensor *x, int32_t axis)
{
    int32_t perm[TRM_MAX_DIMS];
    for (int32_t i = 0; i < x->dims.n; i++) {
        perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    }
    return axis == 0 ? x : trm_onnx_transpose(node, x, perm);
}

/* A scan from entry `pass` on, over as many as a run has. */
static void scan_region(trm_onnx_node *node, scan *self, int64_t pass)
{
    trm_arena *arena = &node->import->arena;
    trm_onnx_loop region = {.n_states = self->n_states,
                            .n_stacked = self->n_outputs,
                            .states = trm_arena_array(arena, (size_t)self->n_states + 1, sizeof(trm_tensor *)),
                            .stacked = trm_arena_array(arena, (size_t)self->n_outputs + 1, sizeof(trm_tensor *)),
                            .backwards = trm_arena_array(arena, (size_t)self->n_outputs + 1, sizeof(bool)),
                            .first = pass,
                            .pass = scan_region_pass,
                            .user = self};
    if (region.states == NULL || region.stacked == NULL || region.backwards == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    self->count = self->count == NULL ? trm_onnx_i64(node, self->length) : trm_onnx_reshape(node, self->count, NULL, 0);
    region.trips = self->count;
    region.runs = trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS, trm_onnx_i64(node, pass), self->count);
    for (int32_t i = 0; i < self->n_states; i++) {
        region.states[i] = trm_onnx_body_tensor(node, self->from[i], "a loop-carried value of a body");
    }
    for (int32_t i = 0; i < self->n_outputs; i++) {
        region.backwards[i] = list_entry(node, "scan_output_directions", i, self->n_outputs) != 0;
        region.stacked[i] =
            self->stacked[i].n == 0 ? NULL : trm_onnx_stack(node, &self->stacked[i], 0, region.backwards[i]);
    }
    trm_onnx_add_loop(node, &region);
    for (int32_t i = 0; i < self->n_states && !trm_onnx_failed(node); i++) {
        trm_onnx_set(node, i, region.states[i]);
    }
    for (int32_t i = 0; i < self->n_outputs && !trm_onnx_failed(node); i++) {
        trm_tensor *all = region.stacked[i];
        int32_t axis = trm_onnx_axis(node, list_entry(node, "scan_output_axes", i, self->n_outputs), all->dims.n);
        trm_onnx_set(node, self->n_states + i, trm_onnx_failed(node) ? all : move_front(node, all, axis));
    }
}

/* Entries from `step` on, of which it is known how many there are, as a region where they are too many to be unrolled;
 * the node's outputs are set then. */
static bool rest_as_region(trm_onnx_node *node, scan *self, int64_t step, const trm_onnx_passes *passes)
{
    const int32_t n_issues = node->import->model->n_issues;
    bool must;
    if (trm_onnx_failed(node) || self->count != NULL || step == self->length ||
        !trm_onnx_wants_region(node, passes, self->length - step, &must) ||
        (!must && (self->unrolls || self->length <= node->import->options->max_trips))) {
        return false;
    }
    trm_onnx_value **from = trm_onnx_new_values(node, (size_t)self->n_states);
    for (int32_t i = 0; from != NULL && i < self->n_states; i++) {
        from[i] = self->from[i];
    }
    scan_region(node, self, step);
    if (must || !trm_onnx_failed(node) || !trm_onnx_forget_failure(node, n_issues)) {
        return true;
    }
    for (int32_t i = 0; i < self->n_states; i++) {
        self->from[i] = from[i];
    }
    self->count = NULL;
    self->unrolls = true;
    return false;
}

static void import_scan(trm_onnx_node *node)
{
    scan self = {.body = trm_onnx_graph(node, "body")};
    trm_onnx_passes passes = {.first = node->network->n_layers};
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
    if (trm_onnx_failed(node) ||
        !trm_onnx_body_fits(node, self.body, "body", node->n_inputs, self.n_states + self.n_outputs) ||
        !scan_arrays(node, &self)) {
        return;
    }
    scan_inputs(node, &self, "scan_input_directions");
    for (int32_t i = 0; i < self.n_states; i++) {
        self.from[i] = node->input_values[i];
    }
    if (self.count != NULL && self.length == 0 && !trm_onnx_failed(node)) {
        scan_region(node, &self, 0);
        return;
    }
    for (int64_t step = 0; step < self.length && !trm_onnx_failed(node); step++) {
        trm_onnx_begin_pass(node, &passes);
        scan_step(node, &self, step);
        if (rest_as_region(node, &self, step + 1, &passes)) {
            return;
        }
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
        trm_onnx_set_stacked(node, self.n_states + i, &self.stacked[i], (int32_t)axis, backwards,
                             self.body->output[self.n_states + i]);
        if (self.count != NULL) {
            cut_scan(node, &self, self.n_states + i, (int32_t)axis, backwards);
        }
    }
    if (self.count != NULL && !trm_onnx_failed(node)) {
        trm_tensor *most = trm_onnx_i64s(node, &self.length, 1);
        trm_onnx_check_passes(
            node, trm_onnx_reshape(node, trm_onnx_elementwise(node, TRM_ELEMENTWISE_LESS, most, self.count), NULL, 0),
            self.length);
    }
}

/* Scan of opset 8: the inputs of one entry of the batch. */
static void take_entry(trm_onnx_node *node, scan *self, int64_t batch, int64_t entry)
{
    static const int32_t front = 0;
    for (int32_t i = 0; i < self->n_states + self->n_inputs && !trm_onnx_failed(node); i++) {
        const bool is_state = i < self->n_states;
        trm_tensor *x = trm_onnx_body_tensor(node, node->input_values[1 + i], "an input");
        const int32_t least = is_state ? 1 : 2;
        if (!trm_onnx_failed(node) && (x->dims.n < least || (x->dims.d[0] >= 0 && x->dims.d[0] != batch))) {
            char dims[TRM_DIMS_TEXT_SIZE];
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                          "its input %d has dims %s, expected %d or more, the first of them %lld", (int)i + 1,
                          trm_dims_format(&x->dims, dims), (int)least, (long long)batch);
        }
        trm_tensor *own = trm_onnx_squeeze(node, trm_onnx_slice(node, x, 0, entry, entry + 1, 1), &front, 1);
        if (is_state) {
            self->from[i] = trm_onnx_value_tensor(node, own);
        }
        if (is_state || trm_onnx_failed(node)) {
            continue;
        }
        if (own->dims.d[0] < 0) {
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                          "dimension 1 of input %d of the node must be known when the network is built: set its dims",
                          (int)i + 1);
        } else if (i > self->n_states && own->dims.d[0] != self->length) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it scans inputs of lengths %lld and %lld, expected the same",
                          (long long)self->length, (long long)own->dims.d[0]);
        }
        self->scanned[i - self->n_states] = own;
        self->backwards[i - self->n_states] = list_entry(node, "directions", i - self->n_states, self->n_inputs);
        self->length = own->dims.d[0];
    }
}

/* Scan of opset 8: every input has a batch axis first, the scanned ones their time axis second; lengths are not
 * supported. It is the same for every entry of the batch. */
static void import_scan_8(trm_onnx_node *node)
{
    scan self = {.body = trm_onnx_graph(node, "body"), .first = 1};
    int64_t n_scanned = trm_onnx_int(node, "num_scan_inputs", 0);
    if (node->n_inputs > 0 && node->input_values[0] != NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "lengths of sequences are not supported");
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
    if (self.n_outputs < 0) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has %d outputs, expected at least %d", (int)node->n_outputs,
                      (int)self.n_states);
        return;
    }
    if (!trm_onnx_body_fits(node, self.body, "body", node->n_inputs - 1, self.n_states + self.n_outputs) ||
        !scan_arrays(node, &self)) {
        return;
    }
    trm_tensor *first = node->inputs[1 + self.n_states];
    int64_t batch = first == NULL || first->dims.n < 2 ? -1 : first->dims.d[0];
    trm_onnx_list *results = trm_arena_array(&node->import->arena, (size_t)node->n_outputs + 1, sizeof(*results));
    if (results == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    if (batch < 1) { /* what is stacked of none could be of any length */
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "%s",
                      batch == 0 ? "its batch is 0, expected 1 or more"
                                 : "the size of its batch must be known when the network is built");
        return;
    }
    for (int64_t entry = 0; entry < batch && trm_onnx_spend(node, 1) && !trm_onnx_failed(node); entry++) {
        take_entry(node, &self, batch, entry);
        for (int64_t step = 0; step < self.length && !trm_onnx_failed(node); step++) {
            scan_step(node, &self, step);
        }
        for (int32_t i = 0; i < self.n_states; i++) {
            trm_onnx_list_add(node, &results[i], self.from[i]);
        }
        for (int32_t i = 0; i < self.n_outputs; i++) {
            trm_onnx_node part = *node; /* its stacked output becomes one entry of the node's */
            trm_onnx_set_stacked(&part, self.n_states + i, &self.stacked[i], 0, false,
                                 self.body->output[self.n_states + i]);
            node->status = part.status;
            trm_onnx_list_add(node, &results[self.n_states + i], node->outputs[self.n_states + i]);
            self.stacked[i].n = 0;
        }
    }
    for (int32_t i = 0; i < node->n_outputs; i++) {
        trm_onnx_set_stacked(node, i, &results[i], 0, false, self.body->output[i]);
    }
}

const trm_onnx_operator trm_onnx_ops_scan[] = {
    {"", "Scan", 8, 0, import_scan_8, 0},
    {"", "Scan", 9, 0, import_scan, 0},
    {0},
};
