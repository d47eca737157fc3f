/*
 * Kernels that take or place elements by position: pad, gather by element and by rows of indices, scatter, one-hot,
 * reversed sequences. The functions of one element are in headers of the kind.
 */
#include <string.h>

#include "kernels/index/gather.h"
#include "kernels/index/one_hot.h"
#include "kernels/index/pad.h"
#include "kernels/index/scatter.h"
#include "kernels/host/element.h"

TRM_HOST_PLACED_ELEMENT_KERNEL(pad, 4 * args.dims.n)
TRM_HOST_PLACED_ELEMENT_KERNEL(gather_elements, 4 * args.dims.n)
TRM_HOST_ELEMENT_KERNEL(gather_nd, 2 + args.rows.k)
TRM_HOST_ELEMENT_KERNEL(one_hot, 4)
TRM_HOST_ELEMENT_KERNEL(reverse_sequence, 4)

/* ---- scatter ----------------------------------------------------------------------------------- */

/* Updates of one place are applied in their order: the last one wins. So a thread takes whole columns along the axis
 * (ELEMENTS), or a part of every slice (ND). */
static void scatter_columns(void *user, int64_t begin, int64_t end)
{
    const trm_scatter_args args = *(const trm_scatter_args *)user;
    const int64_t n = args.dims.d[args.axis], inner = trm_host_span(&args.dims, args.axis + 1, args.dims.n);
    int64_t at[TRM_MAX_DIMS];
    for (int64_t column = begin; column < end; column++) {
        const int64_t outer = column / inner, first = outer * n * inner + (column - outer * inner);
        trm_element_place(&args.dims, first, at);
        for (int64_t k = 0; k < n; k++) {
            const int64_t i = first + k * inner;
            at[args.axis] = k;
            const int64_t to = trm_scatter_target(&args, at, i);
            if (to >= 0 && args.reduction == TRM_SCATTER_REPLACE) {
                trm_element_move(args.size, args.y, to, args.updates, i);
            } else if (to >= 0) {
                trm_scatter_combine(args.reduction, args.dtype, args.y, to, args.updates, i);
            }
        }
    }
}

static void scatter_slices(void *user, int64_t begin, int64_t end)
{
    const trm_scatter_args args = *(const trm_scatter_args *)user;
    const int64_t slice = args.rows.slice;
    for (int64_t row = 0; row < args.rows.rows_per_batch; row++) {
        const int64_t to = trm_index_rows_start(&args.rows, row);
        if (to >= 0 && args.reduction == TRM_SCATTER_REPLACE) {
            memcpy((char *)args.y + (to + begin) * args.size,
                   (const char *)args.updates + (row * slice + begin) * args.size, (size_t)((end - begin) * args.size));
        }
        for (int64_t i = begin; i < end && to >= 0 && args.reduction != TRM_SCATTER_REPLACE; i++) {
            trm_scatter_combine(args.reduction, args.dtype, args.y, to + i, args.updates, row * slice + i);
        }
    }
}

bool trm_host_scatter_accepts(const trm_kernel_call *call)
{
    trm_scatter_args args;
    return trm_scatter_args_of(call, &args);
}

trm_status trm_host_scatter_run(const trm_kernel_call *call)
{
    trm_scatter_args args;
    if (!trm_scatter_args_of(call, &args)) {
        return TRM_OK;
    }
    const int64_t size = trm_dims_count(&call->inputs[0].dims) * args.size;
    if (size > 0) {
        memcpy(args.y, args.x, (size_t)size);
    }
    const int64_t updates = trm_dims_count(&args.dims);
    if (size == 0 || updates == 0) {
        return TRM_OK;
    }
    if (args.form == TRM_SCATTER_ELEMENTS) {
        const int64_t n = args.dims.d[args.axis];
        trm_host_for(call, updates / n, trm_host_row_grain(8 * n), scatter_columns, &args);
    } else {
        trm_host_for(call, args.rows.slice, trm_host_row_grain(2 * args.rows.rows_per_batch), scatter_slices, &args);
    }
    return TRM_OK;
}
