/* Logits before and after sampling: the backend's kernels. */
#include "kernels/sampling/logits.h"

#include "kernels/device/device_impl.h"

trm_status trm_logits_adjust(trm_stream *stream, const trm_logits_adjust_args *args)
{
    if (args->rows <= 0) {
        return TRM_OK;
    }
    return stream->ops->logits_adjust(stream, args);
}

trm_status trm_logits_report(trm_stream *stream, const trm_logits_report_args *args)
{
    if (args->rows <= 0) {
        return TRM_OK;
    }
    return stream->ops->logits_report(stream, args);
}
