/* Random fill: checks, then the backend's kernel. */
#include "kernels/sampling/random.h"

#include "base/error.h"
#include "kernels/sampling/random_impl.h"

trm_status trm_random_fill(trm_stream *stream, const trm_random_fill_args *args)
{
    const trm_dtype dtype = args->to.dtype;
    if (dtype != TRM_F32 && dtype != TRM_F16 && dtype != TRM_BF16) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "random fill of type %s, expected f32, f16 or bf16", trm_dtype_name(dtype));
    }
    if (trm_dims_count(&args->to.dims) == 0) {
        return TRM_OK;
    }
#if TRM_HAVE_CUDA
    if (trm_device_backend(trm_stream_device(stream)) == TRM_BACKEND_CUDA) {
        return trm_cuda_random_fill(stream, args);
    }
#endif
    return trm_host_random_fill(stream, args);
}
