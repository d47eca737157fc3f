/* Select, rotate, and sums and products along an axis. What they do is in headers of the kind. */
#include "kernels/reduce/cumulative.h"
#include "kernels/movement/rotate.h"
#include "kernels/pointwise/select.h"
#include "kernels/host/element.h"

TRM_HOST_ELEMENTS(cumulative, trm_cumulative_args)

TRM_HOST_PLACED_ELEMENT_KERNEL(select, 4)
TRM_HOST_PLACED_ELEMENT_KERNEL(rotate, 8)

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
