/* Select, rotate, and sums and products along an axis. What they do is in kernels/element. */
#include "kernels/element/cumulative.h"
#include "kernels/element/rotate.h"
#include "kernels/element/select.h"
#include "kernels/host/element.h"

TRM_HOST_PLACED_ELEMENTS(select, trm_select_args)
TRM_HOST_PLACED_ELEMENTS(rotate, trm_rotate_args)
TRM_HOST_ELEMENTS(cumulative, trm_cumulative_args)

bool trm_host_select_accepts(const trm_kernel_call *call)
{
    trm_select_args args;
    return trm_select_args_of(call, &args);
}

trm_status trm_host_select_run(const trm_kernel_call *call)
{
    trm_select_args args;
    if (trm_select_args_of(call, &args)) {
        trm_host_for_each(call, trm_dims_count(&args.dims), 4, select_range, &args);
    }
    return TRM_OK;
}

bool trm_host_rotate_accepts(const trm_kernel_call *call)
{
    trm_rotate_args args;
    return trm_rotate_args_of(call, &args);
}

trm_status trm_host_rotate_run(const trm_kernel_call *call)
{
    trm_rotate_args args;
    if (trm_rotate_args_of(call, &args)) {
        trm_host_for_each(call, trm_dims_count(&call->outputs[0].dims), 8, rotate_range, &args);
    }
    return TRM_OK;
}

bool trm_host_cumulative_accepts(const trm_kernel_call *call)
{
    trm_cumulative_args args;
    return trm_cumulative_args_of(call, &args);
}

trm_status trm_host_cumulative_run(const trm_kernel_call *call)
{
    trm_cumulative_args args;
    if (trm_cumulative_args_of(call, &args)) {
        trm_host_for_each(call, args.lines, 2 * args.n, cumulative_range, &args);
    }
    return TRM_OK;
}
