/*
 * NORM_MATMUL as the layers it stands for: a norm into the workspace and a product, with its GLU or without. The host's
 * reference, and CUDA's way for many rows.
 */
#ifndef TRM_KERNELS_MATMUL_FUSED_NORM_MATMUL_H
#define TRM_KERNELS_MATMUL_FUSED_NORM_MATMUL_H

#include "kernels/parts.h"

#ifdef __cplusplus
extern "C" {
#endif

bool trm_norm_matmul_parts(const trm_kernel_call *call, trm_kernel_parts *parts);

#ifdef __cplusplus
}
#endif
#endif
