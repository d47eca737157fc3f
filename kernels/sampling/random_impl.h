/*
 * The backends' random fill, behind trm_random_fill(): the type is f32, f16 or bf16 and there is at least one element.
 */
#ifndef TRM_KERNELS_SAMPLING_RANDOM_IMPL_H
#define TRM_KERNELS_SAMPLING_RANDOM_IMPL_H

#include "kernels/sampling/random.h"

#ifdef __cplusplus
extern "C" {
#endif

trm_status trm_host_random_fill(trm_stream *stream, const trm_random_fill_args *args);
#if TRM_HAVE_CUDA
trm_status trm_cuda_random_fill(trm_stream *stream, const trm_random_fill_args *args);
#endif

#ifdef __cplusplus
}
#endif
#endif
