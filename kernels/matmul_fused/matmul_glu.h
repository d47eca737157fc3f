/*
 * MATMUL_GLU as the two layers it stands for, on any backend.
 */
#ifndef TRM_KERNELS_MATMUL_FUSED_MATMUL_GLU_H
#define TRM_KERNELS_MATMUL_FUSED_MATMUL_GLU_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

bool trm_matmul_glu_accepts(const trm_kernel_call *call, trm_backend backend);
size_t trm_matmul_glu_workspace(const trm_kernel_call *call, trm_backend backend);
trm_status trm_matmul_glu_run(const trm_kernel_call *call, trm_backend backend);
trm_status trm_matmul_glu_tune(const trm_kernel_call *call, trm_backend backend, struct trm_tuner *tuner);

#ifdef __cplusplus
}
#endif
#endif
