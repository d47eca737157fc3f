/*
 * The backends' sampling, behind trm_sample(): rows >= 1 and 1 <= vocab <= INT32_MAX.
 */
#ifndef TRM_KERNELS_SAMPLING_SAMPLE_IMPL_H
#define TRM_KERNELS_SAMPLING_SAMPLE_IMPL_H

#include "kernels/sampling/sample.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t trm_host_sample_workspace(const trm_stream *stream, int64_t rows, int64_t vocab);
trm_status trm_host_sample(trm_stream *stream, const trm_sample_args *args);
trm_status trm_host_sample_advance(trm_stream *stream, const trm_sample_advance_args *args);
#if TRM_HAVE_CUDA
size_t trm_cuda_sample_workspace(const trm_stream *stream, int64_t rows, int64_t vocab);
trm_status trm_cuda_sample(trm_stream *stream, const trm_sample_args *args);
trm_status trm_cuda_sample_advance(trm_stream *stream, const trm_sample_advance_args *args);
#endif

#ifdef __cplusplus
}
#endif
#endif
