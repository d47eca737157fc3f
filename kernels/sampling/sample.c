/* Sampling: checks, then the backend's kernels. */
#include "kernels/sampling/sample.h"

#include <inttypes.h>

#include "base/error.h"
#include "kernels/device/device_impl.h"

size_t trm_sample_workspace(const trm_stream *stream, int64_t rows, int64_t vocab)
{
    return stream->ops->sample_workspace(stream, rows, vocab);
}

trm_status trm_sample(trm_stream *stream, const trm_sample_args *args)
{
    if (args->vocab < 1 || args->vocab > INT32_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "sampling from %" PRId64 " tokens, expected 1 to %" PRId32, args->vocab,
                 INT32_MAX);
    }
    if (args->rows <= 0) {
        return TRM_OK;
    }
    return stream->ops->sample(stream, args);
}

trm_status trm_sample_advance(trm_stream *stream, const trm_sample_advance_args *args)
{
    if (args->rows <= 0) {
        return TRM_OK;
    }
    return stream->ops->sample_advance(stream, args);
}
