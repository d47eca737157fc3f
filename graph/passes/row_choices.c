/*
 * Rows read from choices, and choices written for rows.
 */
#include "graph/passes/row_choices.h"

#include <stdlib.h>

#include "base/error.h"
#include "kernels/index/gather.h"
#include "kernels/movement/slice.h"

/* ---- what a layer takes ------------------------------------------------------------------------ */

/* Below 0 if it is out of range, or counts from the end of an axis of unknown size. */
static int64_t row_at(const trm_row_choice *choice, int64_t i)
{
    const trm_tensor *indices = choice->indices;
    return indices == NULL     ? choice->first + i * choice->step
           : choice->size >= 0 ? trm_element_index(indices->dtype, indices->value, i, choice->size)
                               : trm_element_load_i64(indices->dtype, indices->value, i);
}

static bool read_gather(trm_row_choice *choice)
{
    const trm_tensor *indices = choice->layer->inputs[1];
    choice->axis = choice->layer->desc.gather.axis;
    choice->size = choice->layer->inputs[0]->dims.d[choice->axis];
    choice->indices = indices;
    if (indices->value == NULL || indices->dims.n > 1) {
        return false;
    }
    choice->count = indices->dims.n == 0 ? 1 : indices->dims.d[0];
    choice->drops_axis = indices->dims.n == 0;
    bool there = choice->count > 0 && (choice->size >= 0 || choice->count == 1);
    for (int64_t i = 0; there && choice->size >= 0 && i < choice->count; i++) {
        there = row_at(choice, i) >= 0;
    }
    return there;
}

static bool read_slice(trm_row_choice *choice)
{
    const trm_slice_params *slice = &choice->layer->desc.slice;
    choice->axis = slice->axis;
    choice->size = choice->layer->inputs[0]->dims.d[choice->axis];
    if (choice->layer->n_inputs > 1 || choice->size < 0) {
        return false;
    }
    choice->count = trm_slice_range(slice, choice->size, &choice->first);
    choice->step = choice->count > 1 ? slice->step : 1;
    return choice->count > 0;
}

bool trm_row_choice_read(trm_layer *layer, trm_row_choice *choice)
{
    *choice = (trm_row_choice){.layer = layer};
    return (layer->desc.kind == TRM_LAYER_GATHER && read_gather(choice)) ||
           (layer->desc.kind == TRM_LAYER_SLICE && read_slice(choice));
}

/* ---- rows -------------------------------------------------------------------------------------- */

static trm_status make_list(trm_rows *rows, int64_t n)
{
    int64_t *index = calloc((size_t)n, sizeof(*index));
    if (index == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot list %lld rows", (long long)n);
    }
    *rows = (trm_rows){.n = n, .index = index};
    return TRM_OK;
}

/* Rows that are evenly spaced need no list. */
static void settle(trm_rows *rows)
{
    int64_t step = rows->n > 1 ? rows->index[1] - rows->index[0] : 1;
    for (int64_t i = 1; i < rows->n; i++) {
        if (step == 0 || rows->index[i] - rows->index[i - 1] != step) {
            return;
        }
    }
    rows->first = rows->index[0];
    rows->step = step;
    trm_rows_fini(rows);
}

/* In its own order. */
static trm_status rows_of_one(const trm_row_choice *choice, trm_rows *rows)
{
    if (choice->indices == NULL) {
        *rows = (trm_rows){.n = choice->count, .first = choice->first, .step = choice->step};
        return TRM_OK;
    }
    TRM_TRY(make_list(rows, choice->count));
    for (int64_t i = 0; i < choice->count; i++) {
        rows->index[i] = row_at(choice, i);
    }
    settle(rows);
    return TRM_OK;
}

/* Of an axis of known size, in ascending order. */
static trm_status rows_of_several(const trm_row_choice *choices, trm_rows *rows)
{
    const int64_t size = choices->size;
    int64_t n = 0;
    bool *taken = calloc((size_t)size, sizeof(*taken));
    if (taken == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot mark which of %lld rows are taken", (long long)size);
    }
    for (const trm_row_choice *choice = choices; choice != NULL; choice = choice->next) {
        for (int64_t i = 0; i < choice->count && n <= size / 2; i++) {
            bool *row = &taken[row_at(choice, i)];
            n += !*row;
            *row = true;
        }
    }
    trm_status status = n <= size / 2 ? make_list(rows, n) : TRM_OK;
    for (int64_t i = 0, k = 0; k < rows->n; i++) {
        if (taken[i]) {
            rows->index[k++] = i;
        }
    }
    if (rows->n > 0) {
        settle(rows);
    }
    free(taken);
    return status;
}

static bool take_the_same_one(const trm_row_choice *choices)
{
    bool same = true;
    for (const trm_row_choice *choice = choices->next; choice != NULL; choice = choice->next) {
        same = same && row_at(choice, 0) == row_at(choices, 0);
    }
    return same;
}

trm_status trm_rows_find(const trm_row_choice *choices, trm_rows *rows)
{
    *rows = (trm_rows){0};
    if (choices->size < 0) {
        return take_the_same_one(choices) ? rows_of_one(choices, rows) : TRM_OK;
    }
    if (choices->next != NULL) {
        return rows_of_several(choices, rows);
    }
    return choices->count <= choices->size / 2 ? rows_of_one(choices, rows) : TRM_OK;
}

void trm_rows_fini(trm_rows *rows)
{
    free(rows->index);
    rows->index = NULL;
}

static trm_layer_desc slice_of(const trm_rows *rows, int64_t size, int32_t axis)
{
    const int64_t last = rows->first + (rows->n - 1) * rows->step;
    const bool is_end = size < 0 ? last == -1 || last == INT64_MAX : last == size - 1;
    const int64_t end = rows->step > 0 ? (is_end ? INT64_MAX : last + 1) : last > 0 ? last - 1 : INT64_MIN;
    return (trm_layer_desc){.kind = TRM_LAYER_SLICE,
                            .slice = {.axis = axis, .start = rows->first, .end = end, .step = rows->step}};
}

trm_layer_desc trm_rows_desc(const trm_rows *rows, int64_t size, int32_t axis)
{
    return rows->index == NULL ? slice_of(rows, size, axis)
                               : (trm_layer_desc){.kind = TRM_LAYER_GATHER, .gather = {.axis = axis}};
}

trm_status trm_rows_indices(trm_network *network, const trm_rows *rows, trm_tensor **indices)
{
    *indices = NULL;
    return rows->index == NULL
               ? TRM_OK
               : trm_network_add_constant(network, "rows", TRM_I64, trm_dims1(rows->n), rows->index, indices);
}

/* ---- what is left of a choice ------------------------------------------------------------------ */

/* The dims of a scalar's choice, once one entry is left, as those of a reshape, in which an unknown axis before the one
 * that goes is copied, and one behind it inferred. False where there are more of them. */
static bool dims_without(const trm_dims *dims, int32_t axis, trm_dims *wanted)
{
    int32_t n_inferred = 0;
    *wanted = *dims;
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] == 0) {
            return false;
        }
        wanted->d[i] = dims->d[i] < 0 && i < axis ? 0 : dims->d[i];
        n_inferred += wanted->d[i] < 0;
    }
    return n_inferred <= 1;
}

/* Where a row stands among ascending ones, or one alone. */
static int64_t position_of(const trm_rows *rows, int64_t row)
{
    int64_t low = 0, high = rows->n;
    if (rows->index == NULL) {
        return (row - rows->first) / rows->step;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        *(rows->index[middle] <= row ? &low : &high) = middle;
    }
    return low;
}

static bool takes_all(const trm_row_choice *choice, const trm_rows *rows)
{
    bool all = choice->count == rows->n;
    for (int64_t i = 0; all && i < rows->n; i++) {
        all = row_at(choice, i) == (rows->index == NULL ? rows->first + i * rows->step : rows->index[i]);
    }
    return all;
}

static trm_status find_positions(const trm_row_choice *choice, const trm_rows *rows, trm_rows *positions)
{
    *positions = (trm_rows){.n = rows->n, .step = 1};
    if (takes_all(choice, rows)) {
        return TRM_OK;
    }
    TRM_TRY(make_list(positions, choice->count));
    for (int64_t i = 0; i < choice->count; i++) {
        positions->index[i] = position_of(rows, row_at(choice, i));
    }
    settle(positions);
    return TRM_OK;
}

static void rewrite(trm_layer *layer, trm_layer_desc desc, trm_tensor *indices)
{
    layer->desc = desc;
    layer->inputs[1] = indices;
    layer->n_inputs = indices == NULL ? 1 : 2;
}

/* A GATHER of one row stays one: its axis goes, or is of unknown size, and may have no entry, which gives zeros. */
static trm_status narrow_one(trm_network *network, const trm_row_choice *choice, const trm_rows *rows)
{
    const int64_t position = position_of(rows, row_at(choice, 0));
    trm_layer *layer = choice->layer;
    trm_dims dims;
    if (choice->size >= 0 && rows->n == 1 && dims_without(&layer->outputs[0]->dims, choice->axis, &dims)) {
        rewrite(layer, (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = dims}}, NULL);
        return TRM_OK;
    }
    return trm_network_add_constant(network, "rows", TRM_I64, layer->inputs[1]->dims, &position, &layer->inputs[1]);
}

trm_status trm_row_choice_narrow(trm_network *network, const trm_row_choice *choice, const trm_rows *rows)
{
    trm_rows positions;
    trm_tensor *indices;
    if (choice->drops_axis || choice->size < 0) {
        return narrow_one(network, choice, rows);
    }
    TRM_TRY(find_positions(choice, rows, &positions));
    trm_status status = trm_rows_indices(network, &positions, &indices);
    if (status == TRM_OK) {
        rewrite(choice->layer, trm_rows_desc(&positions, rows->n, choice->axis), indices);
    }
    trm_rows_fini(&positions);
    return status;
}
