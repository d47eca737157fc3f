/* Random fill: checks, then the backend's kernel. */
#include "kernels/sampling/random.h"

#include "base/error.h"
#include "kernels/device/device_impl.h"

trm_status trm_random_fill(trm_stream *stream, const trm_random_fill_args *args)
{
    const trm_dtype dtype = args->to.dtype;
    if (dtype != TRM_F32 && dtype != TRM_F16 && dtype != TRM_BF16) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "random fill of type %s, expected f32, f16 or bf16", trm_dtype_name(dtype));
    }
    if (trm_dims_count(&args->to.dims) == 0) {
        return TRM_OK;
    }
    return stream->ops->random_fill(stream, args);
}
