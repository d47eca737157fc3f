/* Quantize and dequantize. One element is in kernels/pointwise/quantize.h. */
#include "kernels/pointwise/quantize.h"
#include "kernels/host/element.h"

TRM_HOST_ELEMENTS(quantize, trm_quantize_args)
TRM_HOST_ELEMENTS(dequantize, trm_quantize_args)

bool trm_host_quantize_accepts(const trm_kernel_call *call)
{
    trm_quantize_args args;
    return trm_quantize_args_of(call, &args);
}

trm_status trm_host_quantize_run(const trm_kernel_call *call)
{
    trm_quantize_args args;
    if (trm_quantize_args_of(call, &args)) {
        const bool quantize = call->layer->kind == TRM_LAYER_QUANTIZE;
        trm_host_for_each(call, trm_dims_count(&call->outputs[0].dims), 8, quantize ? quantize_range : dequantize_range,
                          &args);
    }
    return TRM_OK;
}
