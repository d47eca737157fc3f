/* The kernels that the CUDA device itself launches. */
#ifndef TRM_KERNELS_DEVICE_CUDA_H
#define TRM_KERNELS_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "kernels/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the device current on this thread can run this build's kernels: cudaSuccess, or why not. */
cudaError_t trm_cuda_probe(void);

/* trm_stream_copy_small() of 1 to TRM_MAX_SMALL_COPIES copies. */
trm_status trm_cuda_copy_small(trm_stream *stream, const trm_small_copy *copies, int32_t n);

#ifdef __cplusplus
}
#endif
#endif
