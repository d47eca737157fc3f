/* QUANTIZE and DEQUANTIZE: a thread per element, bound by device memory. */
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_list.h"
#include "kernels/pointwise/quantize.h"

bool trm_cuda_quantize_accepts(const trm_kernel_call *call)
{
    trm_quantize_args args;
    return trm_quantize_args_of(call, &args);
}

trm_status trm_cuda_quantize_run(const trm_kernel_call *call)
{
    trm_quantize_args args;
    int64_t count = trm_dims_count(&call->outputs[0].dims);
    if (!trm_quantize_args_of(call, &args)) {
        return TRM_OK;
    }
    if (call->layer->kind == TRM_LAYER_QUANTIZE) {
        return launch_elements<trm_quantize_args, trm_element_quantize>(call, args, count, "cuda.quantize");
    }
    return launch_elements<trm_quantize_args, trm_element_dequantize>(call, args, count, "cuda.dequantize");
}
