/*
 * MATMUL_GLU as the two layers it stands for: a product into the workspace and a GLU of it. The host's reference, and
 * CUDA's way for many rows.
 */
#ifndef TRM_KERNELS_MATMUL_FUSED_MATMUL_GLU_H
#define TRM_KERNELS_MATMUL_FUSED_MATMUL_GLU_H

#include "kernels/parts.h"

#ifdef __cplusplus
extern "C" {
#endif

bool trm_matmul_glu_parts(const trm_kernel_call *call, trm_kernel_parts *parts);

#ifdef __cplusplus
}
#endif
#endif
