/* The convolution layer on CUDA: by cuDNN, or our own kernels where tuning found them faster or it does nothing. */
#include "kernels/cuda/convolution.h"

#include "base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"

#define LEAST_WORKSPACE ((size_t)16 << 20)
#define MOST_WORKSPACE  ((size_t)512 << 20)

bool trm_cuda_convolution_accepts(const trm_kernel_call *call)
{
    trm_convolution_args args;
    return trm_convolution_args_of(call, &args);
}

/* Room for operands in another layout, twice; grows with dims. */
size_t trm_cuda_convolution_workspace(const trm_kernel_call *call)
{
    const size_t element = trm_dtype_size(call->inputs[0].dtype);
    size_t bytes = LEAST_WORKSPACE;
    if (call->inputs[0].dtype == TRM_F64) {
        return 0;
    }
    bytes += 2 * element * (size_t)trm_dims_count(&call->inputs[0].dims);
    bytes += 2 * element * (size_t)trm_dims_count(&call->inputs[1].dims);
    bytes += 2 * element * (size_t)trm_dims_count(&call->outputs[0].dims);
    return bytes < MOST_WORKSPACE ? bytes : MOST_WORKSPACE;
}

trm_status trm_cuda_convolution_run(const trm_kernel_call *call)
{
    trm_convolution_args args;
    if (!trm_convolution_args_of(call, &args) || trm_dims_count(&args.dims) == 0) {
        return TRM_OK;
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    trm_status status = trm_cudnn_convolution_run(&args, call->workspace, call->workspace_size, stream);
    return status == TRM_ERROR_UNSUPPORTED ? trm_cuda_convolution_own(&args, stream) : status;
}

typedef struct own_run {
    const trm_convolution_args *args;
    cudaStream_t stream;
} own_run;

static trm_status own_enqueue(void *user)
{
    const own_run *run = user;
    return trm_cuda_convolution_own(run->args, run->stream);
}

trm_status trm_cuda_convolution_tune(const trm_kernel_call *call)
{
    trm_convolution_args args;
    if (!trm_convolution_args_of(call, &args) || trm_dims_count(&args.dims) == 0 || args.dtype == TRM_F64) {
        return TRM_OK;
    }
    own_run run = {&args, trm_cuda_stream(call->stream)};
    float own = 0.0f;
    if (args.outputs < 8) { /* ours has no chance where the library uses matrix products */
        TRM_TRY(trm_cuda_time(run.stream, own_enqueue, &run, &own));
    }
    trm_status status = trm_cudnn_convolution_tune(&args, call->workspace, call->workspace_size, run.stream, own);
    return status == TRM_ERROR_UNSUPPORTED ? TRM_OK : status;
}

trm_status trm_cuda_convolution_plain_run(const trm_kernel_call *call)
{
    trm_convolution_args args;
    return trm_convolution_args_of(call, &args) ? trm_cuda_convolution_own(&args, trm_cuda_stream(call->stream))
                                                : TRM_OK;
}
