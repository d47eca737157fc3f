/* Arithmetic of strided views. */
#include "weight_stream/weight_view.h"

#include <string.h>

/* Appends a step, or makes it one with the last if that lies at or after position `from`. */
static bool push_step(trm_weight_step *steps, int32_t from, int32_t *n, trm_weight_step step)
{
    if (step.size == 1) {
        return true;
    }
    if (*n > from && steps[*n - 1].stride == step.stride * step.size) {
        steps[*n - 1].size *= step.size;
        steps[*n - 1].stride = step.stride;
        return true;
    }
    if (*n == TRM_WEIGHT_MAX_STEPS) {
        return false;
    }
    steps[(*n)++] = step;
    return true;
}

void trm_weight_view_whole(const trm_dims *dims, trm_weight_view *view)
{
    *view = (trm_weight_view){.dims = *dims};
    int64_t strides[TRM_MAX_DIMS], stride = 1;
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] == 0) {
            return; /* nothing to walk; the strides could overflow */
        }
    }
    for (int32_t i = dims->n - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims->d[i];
    }
    int32_t n = 0;
    for (int32_t i = 0; i < dims->n; i++) {
        view->first[i] = n;
        push_step(view->steps, n, &n, (trm_weight_step){dims->d[i], strides[i]});
    }
    view->first[dims->n] = n;
}

void trm_weight_view_runs(const trm_weight_view *view, trm_weight_runs *runs)
{
    runs->n = 0;
    for (int32_t i = 0; i < view->first[view->dims.n]; i++) {
        push_step(runs->steps, 0, &runs->n, view->steps[i]);
    }
}

bool trm_weight_view_equal(const trm_weight_view *a, const trm_weight_view *b)
{
    size_t dims = (size_t)a->dims.n, steps = (size_t)a->first[a->dims.n];
    return a->dims.n == b->dims.n && a->offset == b->offset &&
           memcmp(a->dims.d, b->dims.d, dims * sizeof(a->dims.d[0])) == 0 &&
           memcmp(a->first, b->first, (dims + 1) * sizeof(a->first[0])) == 0 &&
           memcmp(a->steps, b->steps, steps * sizeof(a->steps[0])) == 0;
}

bool trm_weight_view_reshape(const trm_weight_view *view, const trm_dims *dims, trm_weight_view *result)
{
    trm_weight_runs runs;
    trm_weight_view_runs(view, &runs);
    trm_weight_view cut = {.dims = *dims, .offset = view->offset};
    int32_t run = 0, n = 0;
    int64_t left = runs.n > 0 ? runs.steps[0].size : 1; /* of this run, inwards from where we are */
    for (int32_t i = 0; i < dims->n; i++) {
        cut.first[i] = n;
        for (int64_t need = dims->d[i]; need > 1;) {
            int64_t taken = need % left == 0 ? left : need;
            if (left % taken != 0) {
                return false;
            }
            left /= taken;
            need /= taken;
            if (!push_step(cut.steps, cut.first[i], &n, (trm_weight_step){taken, runs.steps[run].stride * left})) {
                return false;
            }
            if (left == 1 && ++run < runs.n) {
                left = runs.steps[run].size;
            }
        }
    }
    cut.first[dims->n] = n;
    *result = cut;
    return true;
}

void trm_weight_view_transpose(const trm_weight_view *view, const int32_t *perm, trm_weight_view *result)
{
    trm_weight_view turned = {.dims = {.n = view->dims.n}, .offset = view->offset};
    int32_t n = 0;
    for (int32_t i = 0; i < view->dims.n; i++) {
        turned.dims.d[i] = view->dims.d[perm[i]];
        turned.first[i] = n;
        for (int32_t k = view->first[perm[i]]; k < view->first[perm[i] + 1]; k++) {
            turned.steps[n++] = view->steps[k];
        }
    }
    turned.first[view->dims.n] = n;
    *result = turned;
}

bool trm_weight_view_slice(const trm_weight_view *view, int32_t axis, int64_t start, int64_t length,
                           trm_weight_view *result)
{
    trm_weight_view cut = {.dims = view->dims, .offset = view->offset};
    cut.dims.d[axis] = length;
    int32_t n = 0;
    for (int32_t i = 0; i < view->dims.n; i++) {
        cut.first[i] = n;
        int64_t inner = view->dims.d[i];
        for (int32_t k = view->first[i]; k < view->first[i + 1]; k++) {
            trm_weight_step step = view->steps[k];
            inner /= step.size;
            if (i == axis) {
                cut.offset += start / inner * step.stride;
                if (start % inner == 0 && length % inner == 0) { /* whole blocks of this step */
                    step.size = length / inner;
                    start = 0;
                    length = inner;
                } else if (start / inner == (start + length - 1) / inner) { /* inside one block */
                    step.size = 1;
                    start %= inner;
                } else {
                    return false;
                }
            }
            push_step(cut.steps, cut.first[i], &n, step);
        }
    }
    cut.first[view->dims.n] = n;
    *result = cut;
    return true;
}

bool trm_weight_view_join(const trm_weight_view *a, const trm_weight_view *b, int32_t axis, trm_weight_view *result)
{
    int32_t k = a->first[axis];
    if (a->first[axis + 1] - k != 1) {
        return false;
    }
    trm_weight_view longer = *a, again;
    longer.dims.d[axis] += b->dims.d[axis];
    longer.steps[k].size = longer.dims.d[axis];
    /* b must be what a slice of the joined view gives. */
    if (!trm_weight_view_slice(&longer, axis, a->dims.d[axis], b->dims.d[axis], &again) ||
        !trm_weight_view_equal(&again, b)) {
        return false;
    }
    *result = longer;
    return true;
}
