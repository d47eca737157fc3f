/*
 * Experts of a few tokens on the CPU, at the speed of memory: every expert that some token chose is read once. For what
 * a GPU leaves to the CPU in decode steps; host.c defines the layer.
 */
#ifndef TRM_KERNELS_MOE_HOST_FEW_H
#define TRM_KERNELS_MOE_HOST_FEW_H

#include "base/pool.h"
#include "kernels/moe/moe.h"

#define TRM_MOE_FEW_TOKENS 8 /* at most */

/* Bytes that a run of up to `tokens` tokens needs, aligned to 64. */
size_t trm_moe_few_workspace(const trm_moe_experts *experts, int64_t tokens);

/*
 * y [tokens, hidden] = the sums of the layer in f32, without the residual, in the order of the slots. The same bits on
 * any number of threads. x and h of bf16 meet the weights as pairs of bf16 where the processor has such products, which
 * count denormal numbers as zero.
 */
void trm_moe_few_run(trm_pool *pool, const trm_moe_experts *experts, void *workspace, float *y);

#endif
