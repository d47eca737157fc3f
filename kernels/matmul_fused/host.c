/* The fused products of the host, each as the layers that it stands for. */
#include "kernels/host/host.h"
#include "kernels/matmul_fused/dequant.h"
#include "kernels/matmul_fused/matmul_glu.h"
#include "kernels/matmul_fused/norm_matmul.h"

TRM_KERNEL_OF_PARTS(, trm_host_matmul_glu, TRM_BACKEND_HOST, trm_matmul_glu_parts)
TRM_KERNEL_OF_PARTS(, trm_host_norm_matmul, TRM_BACKEND_HOST, trm_norm_matmul_parts)
TRM_KERNEL_OF_PARTS(, trm_host_norm_dequant_matmul, TRM_BACKEND_HOST, trm_norm_dequant_matmul_parts)
TRM_KERNEL_OF_PARTS(, trm_host_glu_dequant_matmul, TRM_BACKEND_HOST, trm_glu_dequant_matmul_parts)
