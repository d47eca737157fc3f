/*
 * Derived weights: reshaped, transposed, sliced, joined, padded. Strided views stay strided if strides can express the
 * result; views of a join become joins of views; the rest uses a base that stands for the old weight.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "weight_stream/weight_internal.h"

static trm_status fail_view(const trm_weight *weight, const char *what)
{
    char source[256];
    trm_weight_describe(weight, source, sizeof(source));
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT, "weight %s: %s", source, what);
}

/* ---- reshape --------------------------------------------------------------------------------------- */

/* If the reshape keeps the axis of a join apart, the dims of the parts follow from the new dims. */
static bool find_joined_axis(const trm_weight_base *base, const trm_dims *dims, int32_t *axis)
{
    size_t outer = trm_weight_extent(&base->dims, 0, base->axis);
    for (int32_t i = 0; i < dims->n; i++) {
        size_t inner = trm_weight_extent(dims, i + 1, dims->n);
        bool fits = trm_weight_extent(dims, 0, i) == outer;
        for (int32_t k = 1; fits && k <= base->n_parts; k++) {
            fits = base->part_starts[k] % inner == 0;
        }
        if (fits) {
            *axis = i;
            return true;
        }
    }
    return false;
}

static trm_status reshape_parts(const trm_weight_base *base, const trm_dims *dims, int32_t axis, trm_weight **view)
{
    trm_weight **parts = trm_weight_parts_create(base->n_parts);
    if (parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_status status = TRM_OK;
    size_t inner = trm_weight_extent(dims, axis + 1, dims->n);
    for (int32_t i = 0; i < base->n_parts && status == TRM_OK; i++) {
        trm_dims part_dims = *dims;
        part_dims.d[axis] = (int64_t)((base->part_starts[i + 1] - base->part_starts[i]) / inner);
        status = trm_weight_reshape(base->parts[i], &part_dims, &parts[i]);
    }
    if (status == TRM_OK) {
        status = trm_weight_concat((const trm_weight *const *)parts, base->n_parts, axis, view);
    }
    trm_weight_parts_destroy(parts, base->n_parts);
    return status;
}

trm_status trm_weight_reshape(const trm_weight *weight, const trm_dims *dims, trm_weight **view)
{
    size_t count;
    TRM_TRY(trm_weight_count_elements(weight->base->dtype, dims, &count));
    if (count != weight->count) {
        char from[160], to[160], what[400];
        trm_weight_print_dims(&weight->view.dims, from);
        trm_weight_print_dims(dims, to);
        snprintf(what, sizeof(what), "cannot reshape %s to %s", from, to);
        return fail_view(weight, what);
    }
    if (trm_weight_is_zeros(weight)) {
        return trm_weight_zeros(weight->base->dtype, dims, view);
    }
    int32_t axis;
    if (trm_weight_is_join(weight) && weight->base->n_parts > 1 && find_joined_axis(weight->base, dims, &axis)) {
        return reshape_parts(weight->base, dims, axis, view);
    }
    trm_weight_view result;
    if (trm_weight_view_reshape(&weight->view, dims, &result)) {
        return trm_weight_of_view(weight, &result, view);
    }
    trm_weight_view_whole(dims, &result);
    return trm_weight_nest(weight, &result, view);
}

/* ---- transpose ------------------------------------------------------------------------------------- */

static trm_status check_permutation(const trm_weight *weight, const int32_t *perm)
{
    unsigned seen = 0;
    for (int32_t i = 0; i < weight->view.dims.n; i++) {
        if (perm[i] < 0 || perm[i] >= weight->view.dims.n || (seen >> perm[i] & 1) != 0) {
            char what[128];
            snprintf(what, sizeof(what), "position %d of the permutation is %d, expected each of 0 to %d once", i,
                     perm[i], weight->view.dims.n - 1);
            return fail_view(weight, what);
        }
        seen |= 1u << perm[i];
    }
    return TRM_OK;
}

static trm_status transpose_parts(const trm_weight_base *base, const int32_t *perm, trm_weight **view)
{
    trm_weight **parts = trm_weight_parts_create(base->n_parts);
    if (parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    int32_t axis = 0;
    while (perm[axis] != base->axis) {
        axis++;
    }
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < base->n_parts && status == TRM_OK; i++) {
        status = trm_weight_transpose(base->parts[i], perm, &parts[i]);
    }
    if (status == TRM_OK) {
        status = trm_weight_concat((const trm_weight *const *)parts, base->n_parts, axis, view);
    }
    trm_weight_parts_destroy(parts, base->n_parts);
    return status;
}

trm_status trm_weight_transpose(const trm_weight *weight, const int32_t *perm, trm_weight **view)
{
    TRM_TRY(check_permutation(weight, perm));
    if (trm_weight_is_join(weight) && weight->base->n_parts > 1) {
        return transpose_parts(weight->base, perm, view);
    }
    trm_weight_view result;
    trm_weight_view_transpose(&weight->view, perm, &result);
    if (trm_weight_is_zeros(weight)) {
        return trm_weight_zeros(weight->base->dtype, &result.dims, view);
    }
    return trm_weight_of_view(weight, &result, view);
}

/* ---- slice ----------------------------------------------------------------------------------------- */

static trm_status slice_parts(const trm_weight_base *base, int32_t axis, int64_t start, int64_t length,
                              trm_weight **view)
{
    trm_weight **parts = trm_weight_parts_create(base->n_parts);
    if (parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_status status = TRM_OK;
    int32_t n = 0;
    int64_t end = start + length, before = 0;
    for (int32_t i = 0; i < base->n_parts && status == TRM_OK; i++) {
        const trm_weight *part = base->parts[i];
        int64_t from = start, to = end;
        if (axis == base->axis) {
            int64_t size = part->view.dims.d[axis];
            from = start > before ? start - before : 0;
            to = end - before < size ? end - before : size;
            before += size;
        }
        if (from < to) {
            status = trm_weight_slice(part, axis, from, to - from, &parts[n]);
            n += status == TRM_OK;
        }
    }
    if (status == TRM_OK) {
        status = trm_weight_concat((const trm_weight *const *)parts, n, base->axis, view);
    }
    trm_weight_parts_destroy(parts, n);
    return status;
}

trm_status trm_weight_slice(const trm_weight *weight, int32_t axis, int64_t start, int64_t length, trm_weight **view)
{
    const trm_dims *dims = &weight->view.dims;
    if (axis < 0 || axis >= dims->n || start < 0 || length < 0 || start > dims->d[axis] ||
        length > dims->d[axis] - start) {
        char text[160], what[320];
        trm_weight_print_dims(dims, text);
        snprintf(what, sizeof(what), "cannot take %lld elements from offset %lld of axis %d of %s", (long long)length,
                 (long long)start, axis, text);
        return fail_view(weight, what);
    }
    trm_weight_view result = weight->view;
    if (trm_weight_is_zeros(weight) || length == 0) {
        result.dims.d[axis] = length;
        return trm_weight_zeros(weight->base->dtype, &result.dims, view);
    }
    if (trm_weight_is_join(weight) && weight->base->n_parts > 1) {
        return slice_parts(weight->base, axis, start, length, view);
    }
    if (trm_weight_view_slice(&weight->view, axis, start, length, &result)) {
        return trm_weight_of_view(weight, &result, view);
    }
    trm_weight_view_whole(dims, &result);
    bool sliced = trm_weight_view_slice(&result, axis, start, length, &result); /* one step a dimension */
    assert(sliced);
    (void)sliced;
    return trm_weight_nest(weight, &result, view);
}

/* ---- concat ---------------------------------------------------------------------------------------- */

trm_status trm_weight_check_concat(const trm_weight *const *weights, int32_t n, int32_t axis)
{
    if (n < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot join %d weights, expected at least one", n);
    }
    const trm_dims *dims = &weights[0]->view.dims;
    if (axis < 0 || axis >= dims->n) {
        char what[96];
        snprintf(what, sizeof(what), "cannot join along axis %d of %d dimensions", axis, dims->n);
        return fail_view(weights[0], what);
    }
    trm_dims joined = *dims;
    for (int32_t i = 1; i < n; i++) {
        trm_dims expected = *dims;
        const trm_weight *weight = weights[i];
        char have[160], want[160], what[420];
        if (weight->base->dtype != weights[0]->base->dtype) {
            snprintf(what, sizeof(what), "has type %s, expected %s as the weight it is joined to",
                     trm_dtype_name(weight->base->dtype), trm_dtype_name(weights[0]->base->dtype));
            return fail_view(weight, what);
        }
        expected.d[axis] = weight->view.dims.n == dims->n ? weight->view.dims.d[axis] : dims->d[axis];
        if (!trm_weight_same_dims(&weight->view.dims, &expected)) {
            trm_weight_print_dims(&weight->view.dims, have);
            trm_weight_print_dims(dims, want);
            snprintf(what, sizeof(what), "has dims %s, cannot be joined to %s along axis %d", have, want, axis);
            return fail_view(weight, what);
        }
        if (__builtin_add_overflow(joined.d[axis], expected.d[axis], &joined.d[axis])) {
            return fail_view(weight, "cannot be joined: the sum of the dimensions overflows");
        }
    }
    size_t count;
    return trm_weight_count_elements(weights[0]->base->dtype, &joined, &count);
}

static bool can_be_one(const trm_weight *a, const trm_weight *b)
{
    return a->base->kind != TRM_WEIGHT_JOINED && trm_weight_same_base(a->base, b->base);
}

/* Appends a part to the list, joined to the last one if the two are one view. Takes the part over. */
static trm_status append_part(trm_weight **parts, int32_t *n, int32_t axis, trm_weight *part)
{
    trm_weight_view view;
    trm_weight *last = *n > 0 ? parts[*n - 1] : NULL;
    trm_weight *longer = NULL;
    trm_status status = TRM_OK;
    if (last != NULL && trm_weight_is_zeros(last) && trm_weight_is_zeros(part)) {
        trm_dims dims = last->view.dims;
        dims.d[axis] += part->view.dims.d[axis];
        status = trm_weight_zeros(last->base->dtype, &dims, &longer);
    } else if (last != NULL && can_be_one(last, part) && trm_weight_view_join(&last->view, &part->view, axis, &view)) {
        status = trm_weight_of_view(last, &view, &longer);
    } else {
        parts[(*n)++] = part;
        return TRM_OK;
    }
    trm_weight_destroy(part);
    if (status == TRM_OK) {
        trm_weight_destroy(last);
        parts[*n - 1] = longer;
    }
    return status;
}

trm_status trm_weight_concat(const trm_weight *const *weights, int32_t n, int32_t axis, trm_weight **joined)
{
    TRM_TRY(trm_weight_check_concat(weights, n, axis));
    int32_t capacity = 0;
    for (int32_t i = 0; i < n; i++) {
        capacity += trm_weight_is_join(weights[i]) ? weights[i]->base->n_parts : 1;
    }
    trm_weight **parts = trm_weight_parts_create(capacity);
    if (parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_status status = TRM_OK;
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        const trm_weight *weight = weights[i];
        bool flat = trm_weight_is_join(weight) && weight->base->axis == axis;
        int32_t n_inner = weight->count == 0 ? 0 : flat ? weight->base->n_parts : 1;
        for (int32_t k = 0; k < n_inner; k++) {
            trm_weight *part;
            TRM_TRY_GOTO(status, trm_weight_clone(flat ? weight->base->parts[k] : weight, &part), fail);
            TRM_TRY_GOTO(status, append_part(parts, &count, axis, part), fail);
        }
    }
    if (count < 2) {
        trm_dims empty = weights[0]->view.dims;
        if (count == 0) { /* with other dims empty, the axis may still add up */
            for (int32_t i = 1; i < n; i++) {
                empty.d[axis] += weights[i]->view.dims.d[axis];
            }
            status = trm_weight_zeros(weights[0]->base->dtype, &empty, joined);
        } else {
            *joined = parts[0];
        }
        free(parts);
        return status;
    }
    return trm_weight_join(parts, count, axis, joined);
fail:
    trm_weight_parts_destroy(parts, count);
    return status;
}

trm_status trm_weight_pad(const trm_weight *weight, int32_t axis, int64_t length, trm_weight **padded)
{
    trm_dims dims = weight->view.dims;
    if (axis < 0 || axis >= dims.n || length < dims.d[axis]) {
        char text[160], what[256];
        trm_weight_print_dims(&dims, text);
        snprintf(what, sizeof(what), "cannot pad axis %d of %s to %lld", axis, text, (long long)length);
        return fail_view(weight, what);
    }
    size_t count;
    int64_t have = dims.d[axis];
    dims.d[axis] = length;
    TRM_TRY(trm_weight_count_elements(weight->base->dtype, &dims, &count));
    if (length == have) {
        return trm_weight_clone(weight, padded);
    }
    dims.d[axis] = length - have;
    trm_weight *zeros;
    TRM_TRY(trm_weight_zeros(weight->base->dtype, &dims, &zeros));
    const trm_weight *both[] = {weight, zeros};
    trm_status status = trm_weight_concat(both, 2, axis, padded);
    trm_weight_destroy(zeros);
    return status;
}
