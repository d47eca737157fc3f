/* Logits before and after sampling: the backend's kernels. */
#include "kernels/sampling/logits.h"

trm_status trm_logits_adjust(trm_stream *stream, const trm_logits_adjust_args *args)
{
    if (args->rows <= 0) {
        return TRM_OK;
    }
#if TRM_HAVE_CUDA
    if (trm_device_backend(trm_stream_device(stream)) == TRM_BACKEND_CUDA) {
        return trm_cuda_logits_adjust(stream, args);
    }
#endif
    return trm_host_logits_adjust(stream, args);
}

trm_status trm_logits_report(trm_stream *stream, const trm_logits_report_args *args)
{
    if (args->rows <= 0) {
        return TRM_OK;
    }
#if TRM_HAVE_CUDA
    if (trm_device_backend(trm_stream_device(stream)) == TRM_BACKEND_CUDA) {
        return trm_cuda_logits_report(stream, args);
    }
#endif
    return trm_host_logits_report(stream, args);
}
