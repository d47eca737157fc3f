/*
 * NORM_DEQUANT_MATMUL and GLU_DEQUANT_MATMUL as the layers they stand for: a norm or a GLU into the workspace, and a
 * product. The host's reference, and CUDA's way where the product does not quantize x.
 */
#ifndef TRM_KERNELS_MATMUL_FUSED_DEQUANT_H
#define TRM_KERNELS_MATMUL_FUSED_DEQUANT_H

#include "kernels/parts.h"

#ifdef __cplusplus
extern "C" {
#endif

bool trm_norm_dequant_matmul_parts(const trm_kernel_call *call, trm_kernel_parts *parts);
bool trm_glu_dequant_matmul_parts(const trm_kernel_call *call, trm_kernel_parts *parts);

#ifdef __cplusplus
}
#endif
#endif
