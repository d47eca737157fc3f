/* Sequences and optionals: lists of tensors that are known when the network is built, so that nothing of them is left
 * in it; or sequences whose length only a run knows. */
#include "graph/import/onnx/open_sequence.h"

#include <string.h>

/* Input `index` as a sequence; NULL, and the node fails, if it is none. */
static const trm_onnx_value *input_sequence(trm_onnx_node *node, int32_t index)
{
    const trm_onnx_value *value = index < node->n_inputs ? node->input_values[index] : NULL;
    if (!trm_onnx_is_sequence(value)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its input %d is not a sequence", (int)index);
        return NULL;
    }
    return value;
}

/* Whether the operator works on a sequence whose length only a run knows; one of known length becomes such a sequence
 * where the position of input `index` is not known. */
static bool is_open(trm_onnx_node *node, const trm_onnx_value **sequence, int32_t index)
{
    const trm_tensor *at = index >= 0 && index < node->n_inputs ? node->inputs[index] : NULL;
    int64_t known;
    if (trm_onnx_failed(node) || *sequence == NULL) {
        return false;
    }
    if ((*sequence)->kind == TRM_ONNX_VALUE_OPEN_SEQUENCE || at == NULL ||
        trm_onnx_known_ints(node, at, &known, 1, NULL)) {
        return (*sequence)->kind == TRM_ONNX_VALUE_OPEN_SEQUENCE;
    }
    const trm_onnx_element_type type = trm_onnx_element_type_of(node, *sequence);
    *sequence = trm_onnx_as_open(node, *sequence, &type);
    return !trm_onnx_failed(node);
}

/* The position of input `index`, or NULL. */
static trm_tensor *position_tensor(const trm_onnx_node *node, int32_t index)
{
    return index < node->n_inputs ? node->inputs[index] : NULL;
}

static void import_sequence_empty(trm_onnx_node *node)
{
    trm_onnx_set_value(node, 0, trm_onnx_value_sequence(node, NULL, 0));
}

static void import_sequence_construct(trm_onnx_node *node)
{
    for (int32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] == NULL) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its input %d is not a tensor", (int)i);
        }
    }
    trm_onnx_set_value(node, 0, trm_onnx_value_sequence(node, node->input_values, node->n_inputs));
}

/* The position that input `index` says, of `size`; `normal` if it is absent. */
static int32_t position(trm_onnx_node *node, int32_t index, int32_t size, int32_t normal)
{
    int64_t at = trm_onnx_input_int(node, index, normal);
    at = at < 0 ? at + size : at;
    if (at < 0 || at > size) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "position %lld of a sequence of %d elements", (long long)at,
                      (int)size);
        return 0;
    }
    return (int32_t)at;
}

static void import_sequence_at(trm_onnx_node *node)
{
    const trm_onnx_value *sequence = input_sequence(node, 0);
    if (is_open(node, &sequence, 1)) {
        trm_tensor *at = position_tensor(node, 1);
        trm_onnx_set(node, 0, trm_onnx_open_at(node, sequence, at == NULL ? trm_onnx_i64(node, 0) : at));
        return;
    }
    if (sequence == NULL || trm_onnx_failed(node)) {
        return;
    }
    int32_t at = position(node, 1, sequence->n_items, 0);
    if (!trm_onnx_failed(node) && at == sequence->n_items) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "position %d of a sequence of %d elements", (int)at,
                      (int)sequence->n_items);
    }
    if (!trm_onnx_failed(node)) {
        trm_onnx_set_value(node, 0, sequence->items[at]);
    }
}

/* The sequence without its element `at`, or with `added` put before it. */
static void set_changed(trm_onnx_node *node, const trm_onnx_value *sequence, int32_t at, trm_onnx_value *added)
{
    int32_t n = sequence->n_items + (added != NULL ? 1 : -1);
    if (!trm_onnx_spend(node, 1 + n / 16)) {
        return;
    }
    trm_onnx_value *changed = trm_onnx_value_sequence(node, NULL, 0);
    trm_onnx_value **items = trm_arena_array(&node->import->arena, (size_t)n + 1, sizeof(trm_onnx_value *));
    if (changed == NULL || items == NULL) {
        node->status = node->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : node->status;
        return;
    }
    for (int32_t i = 0, from = 0; i < n; i++) {
        from += added == NULL && from == at;
        items[i] = added != NULL && i == at ? added : sequence->items[from++];
    }
    changed->items = items;
    changed->n_items = n;
    trm_onnx_set_value(node, 0, changed);
}

static void import_sequence_insert(trm_onnx_node *node)
{
    const trm_onnx_value *sequence = input_sequence(node, 0);
    if (sequence != NULL && (node->n_inputs < 2 || node->inputs[1] == NULL)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its input 1 is not a tensor");
    }
    if (is_open(node, &sequence, 2)) {
        trm_onnx_set_value(node, 0, trm_onnx_open_insert(node, sequence, node->inputs[1], position_tensor(node, 2)));
        return;
    }
    if (sequence == NULL || trm_onnx_failed(node)) {
        return;
    }
    int32_t at = position(node, 2, sequence->n_items, sequence->n_items);
    if (!trm_onnx_failed(node)) {
        set_changed(node, sequence, at, node->input_values[1]);
    }
}

static void import_sequence_erase(trm_onnx_node *node)
{
    const trm_onnx_value *sequence = input_sequence(node, 0);
    if (is_open(node, &sequence, 1)) {
        trm_onnx_set_value(node, 0, trm_onnx_open_erase(node, sequence, position_tensor(node, 1)));
        return;
    }
    if (sequence == NULL || trm_onnx_failed(node)) {
        return;
    }
    int32_t at = position(node, 1, sequence->n_items, sequence->n_items - 1);
    if (!trm_onnx_failed(node) && at >= sequence->n_items) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "position %d of a sequence of %d elements", (int)at,
                      (int)sequence->n_items);
    }
    if (!trm_onnx_failed(node)) {
        set_changed(node, sequence, at, NULL);
    }
}

static void import_sequence_length(trm_onnx_node *node)
{
    const trm_onnx_value *sequence = input_sequence(node, 0);
    if (is_open(node, &sequence, -1)) {
        trm_onnx_set(node, 0, trm_onnx_reshape(node, trm_onnx_open_length(node, sequence), NULL, 0));
    } else if (sequence != NULL) {
        trm_onnx_set(node, 0, trm_onnx_i64(node, sequence->n_items));
    }
}

/* ---- between sequences and tensors --------------------------------------------------------------------- */

/* How long the parts are that an axis of `size` is split into: lengths [*n], in the import's memory. */
static int64_t *split_lengths(trm_onnx_node *node, int64_t size, int32_t *n)
{
    const trm_tensor *split = node->inputs[1];
    int64_t chunk = 1;
    bool listed = split != NULL && split->dims.n == 1;
    if (split != NULL && !listed) {
        chunk = trm_onnx_input_int(node, 1, 1);
    }
    if (!trm_onnx_failed(node) && chunk < 1) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "parts have %lld elements, expected at least 1", (long long)chunk);
    }
    int64_t count = trm_onnx_failed(node) ? 0 : listed ? split->dims.d[0] : (size + chunk - 1) / chunk;
    int64_t *lengths = count < 0 || count > (1 << 20)
                           ? NULL
                           : trm_arena_array(&node->import->arena, (size_t)count + 1, sizeof(*lengths));
    if (lengths == NULL) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the sequence has %lld elements", (long long)count);
        return NULL;
    }
    *n = (int32_t)count;
    for (int32_t i = 0; i < *n; i++) {
        lengths[i] = size - i * chunk < chunk ? size - i * chunk : chunk;
    }
    if (listed) {
        trm_onnx_input_ints(node, 1, lengths, *n);
    }
    int64_t total = 0;
    for (int32_t i = 0; i < *n; i++) {
        if (lengths[i] < 0 || lengths[i] > size - total) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "the parts of a split do not fit an axis of %lld",
                          (long long)size);
            return NULL;
        }
        total += lengths[i];
    }
    return lengths;
}

static void import_split_to_sequence(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), x->dims.n), n = 0;
    bool keep = node->inputs[1] != NULL || trm_onnx_flag(node, "keepdims", true);
    if (trm_onnx_failed(node)) {
        return;
    }
    int64_t chunk = 1;
    if (x->dims.d[axis] < 0 &&
        (node->inputs[1] == NULL ||
         (node->inputs[1]->dims.n == 0 && trm_onnx_known_ints(node, node->inputs[1], &chunk, 1, NULL) && chunk == 1))) {
        trm_onnx_set_value(node, 0, trm_onnx_open_split(node, x, axis, keep));
        return;
    }
    if (x->dims.d[axis] < 0) {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED,
                      "dimension %d of input 0 of the node must be known when the network is built: set its dims",
                      (int)axis);
        return;
    }
    int64_t *lengths = split_lengths(node, x->dims.d[axis], &n);
    trm_onnx_spend(node, n);
    trm_onnx_value *made = trm_onnx_value_sequence(node, NULL, 0);
    trm_onnx_value **items = trm_arena_array(&node->import->arena, (size_t)n + 1, sizeof(trm_onnx_value *));
    if (trm_onnx_failed(node) || made == NULL || items == NULL || lengths == NULL) {
        node->status = node->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : node->status;
        return;
    }
    int64_t start = 0;
    for (int32_t i = 0; i < n; i++) {
        trm_tensor *part = trm_onnx_slice(node, x, axis, start, start + lengths[i], 1);
        part = keep ? part : trm_onnx_squeeze(node, part, &axis, 1);
        items[i] = trm_onnx_value_tensor(node, part);
        start += lengths[i];
    }
    made->items = items;
    made->n_items = n;
    trm_onnx_set_value(node, 0, made);
}

static void import_concat_from_sequence(trm_onnx_node *node)
{
    const trm_onnx_value *sequence = input_sequence(node, 0);
    bool new_axis = trm_onnx_flag(node, "new_axis", false);
    if (sequence == NULL || trm_onnx_failed(node)) {
        return;
    }
    const bool open = is_open(node, &sequence, -1);
    if ((!open && sequence->n_items == 0) || !trm_onnx_has(node, "axis")) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its sequence is empty, or it has no attribute axis");
        return;
    }
    if (open) {
        trm_onnx_set(node, 0, trm_onnx_open_concat(node, sequence, trm_onnx_int(node, "axis", 0), new_axis));
        return;
    }
    trm_tensor **parts = trm_arena_array(&node->import->arena, (size_t)sequence->n_items, sizeof(trm_tensor *));
    if (parts == NULL) {
        node->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    int32_t rank = sequence->items[0]->tensor->dims.n + new_axis;
    int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), rank);
    for (int32_t i = 0; i < sequence->n_items && !trm_onnx_failed(node); i++) {
        trm_tensor *part = sequence->items[i]->tensor;
        if (part->dims.n + new_axis != rank) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                          "elements of its sequence have different numbers of dimensions");
            return;
        }
        parts[i] = new_axis ? trm_onnx_unsqueeze(node, part, &axis, 1) : part;
    }
    if (!trm_onnx_failed(node)) {
        trm_onnx_set(node, 0, trm_onnx_concat(node, parts, sequence->n_items, axis));
    }
}

/* ---- optionals ----------------------------------------------------------------------------------------- */

static void import_optional(trm_onnx_node *node)
{
    trm_onnx_value *value = node->n_inputs > 0 ? node->input_values[0] : NULL;
    trm_onnx_set_value(node, 0, value != NULL ? value : trm_onnx_value_none(node));
}

static void import_optional_get_element(trm_onnx_node *node)
{
    trm_onnx_value *value = node->n_inputs > 0 ? node->input_values[0] : NULL;
    if (value == NULL || value->kind == TRM_ONNX_VALUE_NONE) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "its optional is empty");
        return;
    }
    trm_onnx_set_value(node, 0, value);
}

static void import_optional_has_element(trm_onnx_node *node)
{
    const trm_onnx_value *value = node->n_inputs > 0 ? node->input_values[0] : NULL;
    bool has = value != NULL && value->kind != TRM_ONNX_VALUE_NONE;
    trm_onnx_set(node, 0, trm_onnx_scalar(node, TRM_BOOL, has));
}

const trm_onnx_operator trm_onnx_ops_sequence[] = {
    {"", "SequenceEmpty", 11, 0, import_sequence_empty, 0},
    {"", "SequenceConstruct", 11, 0, import_sequence_construct, 0},
    {"", "SequenceAt", 11, 0, import_sequence_at, 0},
    {"", "SequenceInsert", 11, 0, import_sequence_insert, 0},
    {"", "SequenceErase", 11, 0, import_sequence_erase, 0},
    {"", "SequenceLength", 11, 0, import_sequence_length, 0},
    {"", "SplitToSequence", 11, 1, import_split_to_sequence, 0},
    {"", "ConcatFromSequence", 11, 0, import_concat_from_sequence, 0},
    {"", "Optional", 15, 0, import_optional, 0},
    {"", "OptionalGetElement", 15, 0, import_optional_get_element, 0},
    {"", "OptionalHasElement", 15, 0, import_optional_has_element, 0},
    {0},
};
