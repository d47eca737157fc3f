/*
 * Matrix products through cuBLASLt, which is loaded when first used. Thread safe; one handle per device, kept for the
 * life of the process.
 */
#ifndef TRM_KERNELS_MATMUL_CUDA_CUBLASLT_H
#define TRM_KERNELS_MATMUL_CUDA_CUBLASLT_H

#include <cuda_runtime_api.h>

#include "kernels/matmul/cuda_gemm.h"
#include "kernels/tuner/tuner.h"

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

/* Asks the library what the first such product would, unless another thread does; whether it has answered. Any thread.
 * UNSUPPORTED as above. */
trm_status trm_cublaslt_prepare(const trm_gemm *gemm, size_t workspace_size);
bool trm_cublaslt_is_prepared(const trm_gemm *gemm, size_t workspace_size);

/* Times up to `proposals` algorithms of the library on the product and appends them to tactics [TRM_MOST_TACTICS]. None
 * are UNSUPPORTED. Not while capturing; waits for the stream; overwrites the output. */
trm_status trm_cublaslt_time(const trm_gemm *gemm, void *workspace, size_t workspace_size, cudaStream_t stream,
                             int32_t proposals, trm_tactic *tactics, int32_t *n_tactics);

/* Remembers an algorithm, by its name in a tactic, for products of these dims, types and alignments. UNSUPPORTED if
 * the name is none of this library's, or it does not run such products. */
trm_status trm_cublaslt_use(const trm_gemm *gemm, size_t workspace_size, const char *tactic);

/* Whether an algorithm was chosen for such products by timing. */
bool trm_cublaslt_is_tuned(const trm_gemm *gemm, size_t workspace_size);

#ifdef __cplusplus
}
#endif
#endif
