/*
 * Convolutions on CUDA: our own kernels, and cuDNN, which is loaded when first used. Both take a call laid out as
 * kernels/element/convolution.h does; f64 is ours alone.
 */
#ifndef TRM_KERNELS_CUDA_CONVOLUTION_H
#define TRM_KERNELS_CUDA_CONVOLUTION_H

#include <cuda_runtime_api.h>

#include "kernels/element/convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

/* convolution.cu: any case. */
trm_status trm_cuda_convolution_own(const trm_convolution_args *args, cudaStream_t stream);
/* y = activation(y + bias + residual), where a library left y at the sums. */
trm_status trm_cuda_convolution_finish(const trm_convolution_args *args, cudaStream_t stream);
/* cudnn.c: f32, f16, bf16. Thread safe. UNSUPPORTED where there is no library, it has no engine for the problem within
 * the workspace, or tuning found another way faster. Engines are remembered per problem; without tuning it is the first
 * that the library proposes. Capturable. */
trm_status trm_cudnn_convolution_run(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                                     cudaStream_t stream);
/* Times the library's engines on the problem, and remembers the best, or that it is slower than `other` milliseconds
 * (0: there is no other way). Not while capturing; overwrites y. */
trm_status trm_cudnn_convolution_tune(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                                      cudaStream_t stream, float other);

/* Whether f32 convolutions may round their factors to TF32. Off at first; for problems met after it is set. */
void trm_cudnn_allow_tf32(bool allow);

#ifdef __cplusplus
}
#endif
#endif
