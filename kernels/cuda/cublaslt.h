/*
 * Matrix products through cuBLASLt, which is loaded when first used. Thread safe; one handle per device, kept for the
 * life of the process.
 */
#ifndef TRM_KERNELS_CUDA_CUBLASLT_H
#define TRM_KERNELS_CUDA_CUBLASLT_H

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library found, as 130100, and its path; 0 if none, with the reason in `path`. */
size_t trm_cublaslt_version(char *path, size_t size);

/* Whether the product can be asked for at all; cuBLASLt may still find no algorithm for unusual alignments. */
bool trm_cublaslt_accepts(const trm_gemm *gemm);

/* Enqueues the product with the algorithm chosen for it, the library's first proposal if none was tuned. `workspace` is
 * device memory. TRM_ERROR_UNSUPPORTED if the library has no algorithm. Capturable. */
trm_status trm_cublaslt_run(const trm_gemm *gemm, void *workspace, size_t workspace_size, cudaStream_t stream);

/* Times the library's proposals on the product, remembers the best for products of these dims, types and alignments,
 * and gives its time. At once if they were tuned before.
 * Not while capturing; waits for the stream; overwrites the output. */
trm_status trm_cublaslt_tune(const trm_gemm *gemm, void *workspace, size_t workspace_size, cudaStream_t stream,
                             float *milliseconds);

#ifdef __cplusplus
}
#endif
#endif
