/* Converts weights to forms and back. */
#include "weight_stream/weight_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "weight_stream/weight_internal.h"

void trm_weight_get_form(const trm_weight *weight, trm_weight_form *form)
{
    const trm_weight_base *base = weight->base;
    *form = (trm_weight_form){.kind = base->kind, .dtype = base->dtype, .dims = base->dims, .view = weight->view};
    switch (base->kind) {
    case TRM_WEIGHT_STORED:
        form->file = base->file;
        form->begin = (size_t)(base->bytes - base->file->mapping.bytes);
        form->name = base->name;
        break;
    case TRM_WEIGHT_RANDOM:
        form->seed = base->seed;
        form->mean = base->mean;
        form->spread = base->spread;
        break;
    case TRM_WEIGHT_ZEROS:
        break;
    case TRM_WEIGHT_JOINED:
    case TRM_WEIGHT_RECODED:
    case TRM_WEIGHT_COMPUTED:
        form->axis = base->axis;
        form->code = base->code;
        form->op = base->op;
        form->times = base->times;
        form->n_parts = base->n_parts;
        form->parts = (const trm_weight *const *)base->parts;
        break;
    }
}

/* The steps of one dimension make up its size; adds the distance to its last element. */
static bool dimension_holds(const trm_weight_view *view, int32_t i, size_t *last)
{
    int64_t size = 1;
    for (int32_t k = view->first[i]; k < view->first[i + 1]; k++) {
        const trm_weight_step *step = &view->steps[k];
        size_t distance;
        if (step->size < 2 || step->stride < 1 || __builtin_mul_overflow(size, step->size, &size) ||
            !trm_checked_mul((size_t)step->size - 1, (size_t)step->stride, &distance) ||
            !trm_checked_add(*last, distance, last)) {
            return false;
        }
    }
    return size == view->dims.d[i];
}

/* Whether a view is valid for a base of `count` elements. */
static bool view_holds(const trm_weight_view *view, size_t count)
{
    int32_t n = view->dims.n;
    bool holds = n >= 0 && n <= TRM_MAX_DIMS && view->first[0] == 0 && view->offset >= 0;
    for (int32_t i = 0; holds && i < n; i++) {
        holds =
            view->dims.d[i] > 0 && view->first[i + 1] >= view->first[i] && view->first[i + 1] <= TRM_WEIGHT_MAX_STEPS;
    }
    size_t last = holds ? (size_t)view->offset : 0;
    for (int32_t i = 0; holds && i < n; i++) {
        holds = dimension_holds(view, i, &last);
    }
    return holds && last < count;
}

static trm_status refuse_view(const char *what)
{
    return trm_fail(TRM_ERROR_INVALID_MODEL, "weight %s: its view does not fit its base", what);
}

/* A view of a whole weight. */
static trm_status view_of(trm_weight *whole, const trm_weight_view *view, const char *what, trm_weight **weight)
{
    trm_status status = view_holds(view, whole->count) ? trm_weight_of_view(whole, view, weight) : refuse_view(what);
    trm_weight_destroy(whole);
    return status;
}

static trm_status from_join(const trm_weight_form *form, trm_weight **weight)
{
    size_t count = 0;
    TRM_TRY(trm_weight_check_concat(form->parts, form->n_parts, form->axis));
    for (int32_t i = 0; i < form->n_parts; i++) {
        if (form->parts[i]->count == 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "a join has a part without elements");
        }
        count += form->parts[i]->count; /* checked with the dims of the join */
    }
    return view_holds(&form->view, count)
               ? trm_weight_of_join(form->parts, form->n_parts, form->axis, &form->view, weight)
               : refuse_view("of several parts");
}

static trm_status from_recoded(const trm_weight_form *form, trm_weight **weight)
{
    trm_weight *whole;
    if (form->n_parts != 1) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "a recoded weight has %d parts, expected 1", form->n_parts);
    }
    const bool repeats = form->code == TRM_WEIGHT_CODE_REPEAT;
    if ((repeats ? trm_weight_repeat(form->parts[0], form->times, &whole)
                 : trm_weight_recode(form->parts[0], form->code, &whole)) != TRM_OK) {
        return trm_fail_in(TRM_ERROR_INVALID_MODEL, "a recoded weight");
    }
    return view_of(whole, &form->view, "of another code", weight);
}

static trm_status from_computed(const trm_weight_form *form, trm_weight **weight)
{
    trm_weight *whole;
    if (form->n_parts != 1 && form->n_parts != 2) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "a computed weight has %d parts, expected 1 or 2", form->n_parts);
    }
    const trm_weight *second = form->n_parts == 2 ? form->parts[1] : NULL;
    if (trm_weight_compute(form->op, form->dtype, form->parts[0], second, &whole) != TRM_OK) {
        return trm_fail_in(TRM_ERROR_INVALID_MODEL, "a computed weight");
    }
    return view_of(whole, &form->view, "that is computed", weight);
}

trm_status trm_weight_from_form(const trm_weight_form *form, trm_weight **weight)
{
    size_t count, bytes;
    trm_weight *whole;
    if (trm_dtype_size(form->dtype) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight of type %s", trm_dtype_name(form->dtype));
    }
    switch (form->kind) {
    case TRM_WEIGHT_STORED:
        TRM_TRY(trm_weight_count_elements(form->dtype, &form->dims, &count));
        bytes = count * trm_dtype_size(form->dtype);
        if (form->begin > form->file->mapping.size || bytes > form->file->mapping.size - form->begin) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s lies at bytes %zu to %zu of %s, which has %zu", form->name,
                     form->begin, form->begin + bytes, form->file->name, form->file->mapping.size);
        }
        TRM_TRY(trm_weight_from_file(form->file, form->begin, form->name, form->dtype, &form->dims, &whole));
        return view_of(whole, &form->view, form->name, weight);
    case TRM_WEIGHT_RANDOM:
        TRM_TRY(trm_weight_random(form->dtype, &form->dims, form->seed, form->mean, form->spread, &whole));
        return view_of(whole, &form->view, "of random numbers", weight);
    case TRM_WEIGHT_ZEROS:
        return trm_weight_zeros(form->dtype, &form->view.dims, weight);
    case TRM_WEIGHT_JOINED:
        return from_join(form, weight);
    case TRM_WEIGHT_RECODED:
        return from_recoded(form, weight);
    case TRM_WEIGHT_COMPUTED:
        return from_computed(form, weight);
    }
    return trm_fail(TRM_ERROR_INVALID_MODEL, "weight of unknown kind");
}

static trm_status rebase_stored(trm_weight_form *form, trm_weight_find_fn find, void *user, trm_weight **rebased)
{
    trm_weight *found = NULL;
    trm_weight_form base;
    TRM_TRY(find(user, form, &found));
    if (found == NULL) {
        return TRM_OK;
    }
    trm_weight_get_form(found, &base);
    form->file = base.file;
    form->begin = base.begin;
    form->name = base.name;
    trm_status status = trm_weight_from_form(form, rebased);
    trm_weight_destroy(found);
    return status;
}

static trm_status rebase_parts(trm_weight_form *form, trm_weight_find_fn find, void *user, trm_weight **rebased)
{
    const size_t n = (size_t)form->n_parts;
    const trm_weight **parts = calloc(n, sizeof(*parts));
    trm_weight **made = calloc(n, sizeof(*made));
    trm_status status = TRM_OK;
    bool changed = false;
    if (parts == NULL || made == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a weight of %zu parts", n);
    }
    for (size_t i = 0; status == TRM_OK && i < n; i++) {
        status = trm_weight_rebase(form->parts[i], find, user, &made[i]);
        parts[i] = made[i] != NULL ? made[i] : form->parts[i];
        changed = changed || made[i] != NULL;
    }
    if (status == TRM_OK && changed) {
        form->parts = parts;
        status = trm_weight_from_form(form, rebased);
    }
    for (size_t i = 0; made != NULL && i < n; i++) {
        trm_weight_destroy(made[i]);
    }
    free(parts);
    free(made);
    return status;
}

trm_status trm_weight_rebase(const trm_weight *weight, trm_weight_find_fn find, void *user, trm_weight **rebased)
{
    trm_weight_form form;
    *rebased = NULL;
    trm_weight_get_form(weight, &form);
    switch (form.kind) {
    case TRM_WEIGHT_STORED:
        return rebase_stored(&form, find, user, rebased);
    case TRM_WEIGHT_JOINED:
    case TRM_WEIGHT_RECODED:
    case TRM_WEIGHT_COMPUTED:
        return rebase_parts(&form, find, user, rebased);
    case TRM_WEIGHT_RANDOM:
    case TRM_WEIGHT_ZEROS:
        break;
    }
    return TRM_OK;
}
