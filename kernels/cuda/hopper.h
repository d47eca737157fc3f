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

/* The map of a tensor of `rank` dimensions of i8, f16 or bf16 elements, the contiguous one first; strides [rank - 1]
 * are the bytes from one entry of the others to the next. Elements outside it are copied as zeros. */
trm_status trm_cuda_tensor_map(CUtensorMap *map, const void *data, uint32_t rank, const cuuint64_t *dims,
                               const cuuint64_t *strides, const cuuint32_t *box, CUtensorMapSwizzle swizzle,
                               trm_dtype dtype);

/* The windows of an image, i8 [images, in[0], in[1], channels], as rows of channels: `strides` are the bytes from one
 * position, row and image to the next, a copy takes `rows` windows of `out` by `channels_taken`. */
typedef struct trm_window_map {
    const void *data;
    int64_t channels, images;
    int64_t in[2], out[2], step[2], before[2]; /* rows, columns */
    cuuint64_t strides[3];
    int32_t channels_taken, rows;
} trm_window_map;
/* Whether copies can take such windows: steps up to 8, margins up to 128, taps up to 255 apart (`reach`). */
bool trm_cuda_window_map_fits(const trm_window_map *w, const int64_t reach[2]);
trm_status trm_cuda_window_map(CUtensorMap *map, const trm_window_map *w, CUtensorMapSwizzle swizzle);

#ifdef __cplusplus
}
#endif
#endif
