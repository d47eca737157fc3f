/*
 * Kernels whose dims follow from values or from data: shape, expand, tile, range, non_zero, unique.
 */
#include "kernels/shape/element.h"

#include <string.h>

#include "kernels/shape/unique.h"
#include "kernels/host/element.h"

bool trm_host_shape_accepts(const trm_kernel_call *call)
{
    trm_shape_args args;
    return trm_shape_args_of(call, &args);
}

trm_status trm_host_shape_run(const trm_kernel_call *call)
{
    trm_shape_args args;
    if (trm_shape_args_of(call, &args)) {
        for (int32_t i = 0; i < args.sizes.n; i++) {
            trm_element_shape(&args, i);
        }
    }
    return TRM_OK;
}

TRM_HOST_PLACED_ELEMENT_KERNEL(repeat, 2 * args.dims.n)
TRM_HOST_ELEMENT_KERNEL(range, 1)

/* ---- non_zero ---------------------------------------------------------------------------------- */

bool trm_host_non_zero_accepts(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    return call->n_inputs == 1 && call->n_outputs == 2 && trm_dtype_size(x->dtype) > 0 && y->dtype == TRM_I64 &&
           y->dims.n == 2 && y->dims.d[0] == x->dims.n && call->outputs[1].dtype == TRM_I64;
}

trm_status trm_host_non_zero_run(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0];
    const int64_t n = trm_dims_count(&x->dims);
    int64_t *y = call->outputs[0].data, count = 0, written = 0, at[TRM_MAX_DIMS] = {0};
    for (int64_t i = 0; i < n; i++) {
        count += !trm_element_is_zero(x->dtype, x->data, i);
    }
    for (int64_t i = 0; i < n; i++) {
        if (!trm_element_is_zero(x->dtype, x->data, i)) {
            for (int32_t axis = 0; axis < x->dims.n; axis++) {
                y[axis * count + written] = at[axis];
            }
            written++;
        }
        trm_element_next(&x->dims, at);
    }
    *(int64_t *)call->outputs[1].data = count;
    return TRM_OK;
}

/* ---- unique ------------------------------------------------------------------------------------ */

bool trm_host_unique_accepts(const trm_kernel_call *call)
{
    trm_unique_args args;
    return trm_unique_args_of(call, &args);
}

/* Positions in order, and room to merge them. */
size_t trm_host_unique_workspace(const trm_kernel_call *call)
{
    trm_unique_args args;
    return trm_unique_args_of(call, &args) ? 2 * (size_t)args.n * sizeof(int64_t) : 0;
}

/* Sorts order [n] by slice, equal ones as they are; `spare` [n]. Returns which of the two has the result. */
static int64_t *merge_sort(const trm_unique_args *args, int64_t *order, int64_t *spare)
{
    const int64_t n = args->n;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * width) {
            const int64_t middle = trm_host_min(begin + width, n), end = trm_host_min(begin + 2 * width, n);
            int64_t a = begin, b = middle;
            for (int64_t to = begin; to < end; to++) {
                const bool left = b == end || (a < middle && trm_unique_compare(args, order[a], order[b]) <= 0);
                spare[to] = left ? order[a++] : order[b++];
            }
        }
        int64_t *sorted = spare;
        spare = order;
        order = sorted;
    }
    return order;
}

trm_status trm_host_unique_run(const trm_kernel_call *call)
{
    trm_unique_args args;
    if (!trm_unique_args_of(call, &args)) {
        return TRM_OK;
    }
    int64_t *order = call->workspace, *spare = order + args.n, count = 0;
    for (int64_t i = 0; i < args.n; i++) {
        order[i] = i;
    }
    int64_t *sorted = merge_sort(&args, order, spare);
    /* The first slice of each run of equal ones is where it occurs first; all of them point to it. */
    for (int64_t i = 0, head = 0; i < args.n; i++) {
        const bool is_new = i == 0 || trm_unique_compare(&args, sorted[i - 1], sorted[i]) != 0;
        head = is_new ? sorted[i] : head;
        count += is_new;
        args.inverse[sorted[i]] = head;
    }
    int64_t *number = sorted == order ? spare : order; /* of each first slice */
    for (int64_t i = 0, next = 0; i < args.n; i++) {
        const int64_t slice = args.sorted ? sorted[i] : i;
        if (args.inverse[slice] == slice) {
            args.indices[next] = slice;
            args.counts[next] = 0;
            number[slice] = next++;
        }
    }
    for (int64_t i = 0; i < args.n; i++) {
        args.inverse[i] = number[args.inverse[i]];
        args.counts[args.inverse[i]]++;
    }
    for (int64_t u = 0; u < count; u++) {
        for (int64_t e = 0; e < args.outer * args.inner; e++) {
            trm_unique_copy(&args, count, u, args.indices[u], e);
        }
    }
    *args.count = count;
    return TRM_OK;
}
