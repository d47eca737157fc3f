/*
 * What kernels for Hopper GPUs share on the host: whether the device is one, and maps for tensor copies.
 */
#ifndef TRM_KERNELS_CUDA_HOPPER_H
#define TRM_KERNELS_CUDA_HOPPER_H

#include <cuda.h>

#include "kernels/call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Multiprocessors of the current device if it is a Hopper, else 0. */
int trm_cuda_hopper_processors(void);
/* Whether the current device is a Hopper and the driver can describe tensors for copies. */
bool trm_cuda_hopper_ready(void);

/* The map of a tensor of `rank` dimensions of f16 or bf16 elements, the contiguous one first; strides [rank - 1] are
 * the bytes from one entry of the others to the next. Elements outside it are copied as zeros. */
trm_status trm_cuda_tensor_map(CUtensorMap *map, const void *data, uint32_t rank, const cuuint64_t *dims,
                               const cuuint64_t *strides, const cuuint32_t *box, CUtensorMapSwizzle swizzle,
                               trm_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
