/*
 * Kernels that take or place elements by position: pad. Bound by device memory; the functions of one element are in
 * kernels/element.
 */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/element/pad.h"

bool trm_cuda_pad_accepts(const trm_kernel_call *call)
{
    trm_pad_args args;
    return trm_pad_args_of(call, &args);
}

trm_status trm_cuda_pad_run(const trm_kernel_call *call)
{
    trm_pad_args args;
    if (!trm_pad_args_of(call, &args)) {
        return TRM_OK;
    }
    return launch_placed_elements<trm_pad_args, trm_element_pad>(call, args, trm_dims_count(&args.dims), "cuda.pad");
}
