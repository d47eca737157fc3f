/*
 * Block transpose for collectives along an inner axis: makes the blocks of a rank contiguous, and back.
 */
#ifndef TRM_COLLECTIVES_PACK_H
#define TRM_COLLECTIVES_PACK_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* from [a, b, block] bytes -> to [b, a, block], not overlapping, on a CUDA stream. */
trm_status trm_cuda_swap_blocks(const void *from, void *to, int64_t a, int64_t b, size_t block, void *cuda_stream);

#ifdef __cplusplus
}
#endif
#endif
