/*
 * Kernels that take or place elements by position: pad. The functions of one element are in kernels/element.
 */
#include "kernels/element/pad.h"
#include "kernels/host/element.h"

TRM_HOST_PLACED_ELEMENTS(pad, trm_pad_args)

bool trm_host_pad_accepts(const trm_kernel_call *call)
{
    trm_pad_args args;
    return trm_pad_args_of(call, &args);
}

trm_status trm_host_pad_run(const trm_kernel_call *call)
{
    trm_pad_args args;
    if (trm_pad_args_of(call, &args)) {
        trm_host_for_each(call, trm_dims_count(&args.dims), 4 * args.dims.n, pad_range, &args);
    }
    return TRM_OK;
}
