/*
 * Attention over a paged cache whose results do not depend on what else is in a step: entry points for attention.c.
 */
#ifndef TRM_ATTENTION_CUDA_INVARIANT_H
#define TRM_ATTENTION_CUDA_INVARIANT_H

#include "attention/cuda/attention.h"
#include "attention/cuda/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sequences of up to this many queries are spread over splits of their keys. */
#define TRM_ATTENTION_FEW_QUERIES 16

/* Partial results of that many queries at most are kept for each split. */
TRM_ATTENTION_INLINE int64_t trm_attention_few_slots(int64_t tokens, int64_t sequences)
{
    return tokens <= sequences ? tokens : sequences * TRM_ATTENTION_FEW_QUERIES;
}

/* Splits of the longest sequence that the table has room for. */
int64_t trm_cuda_attention_invariant_splits(const trm_attention_shape *shape);

/* invariant.cu: packed with a cache in which the step's keys are, 16-bit floats, dim == value_dim a multiple of 8 up to
 * 256, addresses aligned to 16 bytes. splits: as above, with `partial` [splits, few slots, query_heads, dim + 2]; or 1,
 * without. */
trm_status trm_cuda_attention_invariant(const trm_cuda_attention *attention, cudaStream_t stream);
/* Of that, sequences of up to TRM_ATTENTION_FEW_QUERIES queries alone. */
trm_status trm_cuda_attention_few(const trm_cuda_attention *attention, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
