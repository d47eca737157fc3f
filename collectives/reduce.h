/*
 * The arithmetic of reductions in host memory.
 */
#ifndef TRM_COLLECTIVES_REDUCE_H
#define TRM_COLLECTIVES_REDUCE_H

#include <trireme/layers/common.h>

/* Whether elements of `dtype` can be reduced with `op`: bool only with max and min. */
bool trm_reduce_supported(trm_dtype dtype, trm_reduce_op op);

/* to[i] = blocks[0][i] op blocks[1][i] op ... for n >= 1 blocks of `count` elements, in this order. f16 and bf16
 * accumulate in f32 and are rounded once; integers wrap; avg of integers divides the wrapped sum, toward zero. `to` may
 * be one of the blocks. */
void trm_reduce_blocks(trm_dtype dtype, trm_reduce_op op, const void *const *blocks, int32_t n, void *to, size_t count);

#endif
