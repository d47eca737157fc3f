/*
 * Rows read from choices, and choices written for rows.
 */
#include "graph/passes/row_choices.h"

#include <stdlib.h>

#include "base/error.h"
#include "kernels/element/slice.h"

/* ---- what a layer takes ------------------------------------------------------------------------ */

static int64_t index_at(const trm_row_choice *choice, int64_t i)
{
    const trm_tensor *indices = choice->layer->inputs[1];
    int64_t index =
        indices->dtype == TRM_I64 ? ((const int64_t *)indices->value)[i] : ((const int32_t *)indices->value)[i];
    return index < 0 && choice->size >= 0 ? index + choice->size : index;
}

static bool read_gather(trm_row_choice *choice)
{
    const trm_tensor *indices = choice->layer->inputs[1];
    choice->axis = choice->layer->desc.gather.axis;
    choice->size = choice->layer->inputs[0]->dims.d[choice->axis];
    if (indices->value == NULL || indices->dims.n > 1) {
        return false;
    }
    choice->count = indices->dims.n == 0 ? 1 : indices->dims.d[0];
    choice->drops_axis = indices->dims.n == 0;
    bool there = choice->count > 0 && (choice->size >= 0 || choice->count == 1);
    for (int64_t i = 0; there && choice->size >= 0 && i < choice->count; i++) {
        there = index_at(choice, i) >= 0 && index_at(choice, i) < choice->size;
    }
    return there;
}

static bool read_slice(trm_row_choice *choice)
{
    int64_t first;
    choice->axis = choice->layer->desc.slice.axis;
    choice->size = choice->layer->inputs[0]->dims.d[choice->axis];
    if (choice->layer->n_inputs > 1 || choice->size < 0) {
        return false;
    }
    choice->count = trm_slice_range(&choice->layer->desc.slice, choice->size, &first);
    return choice->count > 0;
}

bool trm_row_choice_read(trm_layer *layer, trm_row_choice *choice)
{
    *choice = (trm_row_choice){.layer = layer};
    return (layer->desc.kind == TRM_LAYER_GATHER && read_gather(choice)) ||
           (layer->desc.kind == TRM_LAYER_SLICE && read_slice(choice));
}

/* ---- rows -------------------------------------------------------------------------------------- */

/* Drops indices that are evenly spaced. */
static void drop_even_index(trm_rows *rows)
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

static trm_status list_rows(const trm_row_choice *choice, trm_rows *rows)
{
    *rows = (trm_rows){.n = choice->count, .index = calloc((size_t)choice->count, sizeof(*rows->index))};
    if (rows->index == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot list the %lld rows that %s takes", (long long)choice->count,
                 choice->layer->name);
    }
    for (int64_t i = 0; i < choice->count; i++) {
        rows->index[i] = index_at(choice, i);
    }
    drop_even_index(rows);
    return TRM_OK;
}

trm_status trm_rows_find(const trm_row_choice *choice, trm_rows *rows)
{
    *rows = (trm_rows){0};
    if (choice->size >= 0 && choice->count > choice->size / 2) {
        return TRM_OK;
    }
    if (choice->layer->desc.kind == TRM_LAYER_GATHER) {
        return list_rows(choice, rows);
    }
    const trm_slice_params *slice = &choice->layer->desc.slice;
    rows->n = trm_slice_range(slice, choice->size, &rows->first);
    rows->step = rows->n > 1 ? slice->step : 1;
    return TRM_OK;
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

static void rewrite(trm_layer *layer, trm_layer_desc desc, trm_tensor *indices)
{
    layer->desc = desc;
    layer->inputs[1] = indices;
    layer->n_inputs = indices == NULL ? 1 : 2;
}

/* A row that takes the place of its axis, or of an axis that may have none, which gives zeros: a GATHER as before. */
static trm_status narrow_one(trm_network *network, const trm_row_choice *choice, int64_t position)
{
    return trm_network_add_constant(network, "rows", TRM_I64, choice->layer->inputs[1]->dims, &position,
                                    &choice->layer->inputs[1]);
}

trm_status trm_row_choice_narrow(trm_network *network, const trm_row_choice *choice, const trm_rows *rows)
{
    trm_layer *layer = choice->layer;
    const trm_rows all = {.n = rows->n, .step = 1};
    trm_dims dims;
    if (choice->size < 0) {
        return narrow_one(network, choice, 0);
    }
    if (choice->drops_axis) {
        if (!dims_without(&layer->outputs[0]->dims, choice->axis, &dims)) {
            return narrow_one(network, choice, 0);
        }
        rewrite(layer, (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = dims}}, NULL);
        return TRM_OK;
    }
    rewrite(layer, trm_rows_desc(&all, rows->n, choice->axis), NULL);
    return TRM_OK;
}
