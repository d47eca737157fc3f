/* CUMULATIVE: a line along the axis at a time, as kernels/reduce/cumulative.h walks it. */
#include "kernels/reduce/cumulative.h"

#include "kernels/host/element.h"

TRM_HOST_ELEMENTS(cumulative, trm_cumulative_args)

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
