/*
 * Kernels over images that are one function per output element (kernels/element): pool.
 */
#include "kernels/element/pool.h"
#include "kernels/host/element.h"

TRM_HOST_PLACED_ELEMENTS(pool, trm_pool_args)

bool trm_host_pool_accepts(const trm_kernel_call *call)
{
    trm_pool_args args;
    return trm_pool_args_of(call, &args);
}

trm_status trm_host_pool_run(const trm_kernel_call *call)
{
    trm_pool_args args;
    if (trm_pool_args_of(call, &args)) {
        trm_host_for_each(call, trm_dims_count(&args.dims), 4 * args.w.kernel_size, pool_range, &args);
    }
    return TRM_OK;
}
