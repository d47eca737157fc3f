/* INT8_PRODUCT: the reference, element by element. */
#include "kernels/int8/element.h"

#include "kernels/host/element.h"
#include "kernels/kernel_list.h"

TRM_HOST_PLACED_ELEMENTS(int8_product, trm_int8_product_args)

bool trm_host_int8_product_accepts(const trm_kernel_call *call)
{
    trm_int8_product_args args;
    return trm_int8_product_args_of(call, &args) && trm_host_activation_is_known(args.activation);
}

trm_status trm_host_int8_product_run(const trm_kernel_call *call)
{
    trm_int8_product_args args;
    if (trm_int8_product_args_of(call, &args)) {
        trm_host_for_each(call, trm_dims_count(&args.dims), args.w.channels_in * args.w.kernel_size, int8_product_range,
                          &args);
    }
    return TRM_OK;
}
