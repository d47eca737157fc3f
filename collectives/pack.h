/*
 * The copy around collectives along an axis that is not the outermost: blocks of a rank to one place and back.
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
