/*
 * Products of tens to thousands of rows with a quantized weight, on Hopper: those that cuda_rows.cu takes, of bf16,
 * except F4E2M1 and blocks of k of less than 64.
 */
#ifndef TRM_KERNELS_DEQUANT_CUDA_TILES_H
#define TRM_KERNELS_DEQUANT_CUDA_TILES_H

#include "kernels/dequant/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

bool trm_cuda_dequant_tiles_accepts(const trm_dequant_gemm *gemm);
trm_status trm_cuda_dequant_tiles_run(const trm_dequant_gemm *gemm, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
