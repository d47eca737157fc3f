/*
 * NORM_MATMUL as the layers it stands for, one after the other, on any backend.
 */
#ifndef TRM_KERNELS_MATMUL_FUSED_NORM_MATMUL_H
#define TRM_KERNELS_MATMUL_FUSED_NORM_MATMUL_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

bool trm_norm_matmul_accepts(const trm_kernel_call *call, trm_backend backend);
size_t trm_norm_matmul_workspace(const trm_kernel_call *call, trm_backend backend);
trm_status trm_norm_matmul_run(const trm_kernel_call *call, trm_backend backend);
trm_status trm_norm_matmul_tune(const trm_kernel_call *call, trm_backend backend, struct trm_tuner *tuner);

#ifdef __cplusplus
}
#endif
#endif
