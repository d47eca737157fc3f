/* What convolutions and products ask cuDNN and cuBLASLt before they first run a problem; see kernels/prepare.h. */
#ifndef TRM_KERNELS_CUDA_PREPARE_H
#define TRM_KERNELS_CUDA_PREPARE_H

#include "kernels/convolution/element.h"

/* convolution/cuda.c */
bool trm_cuda_convolution_is_prepared(const trm_kernel_call *call);
trm_status trm_cuda_convolution_prepare(const trm_kernel_call *call);

/* matmul/cuda.c */
bool trm_cuda_matmul_is_prepared(const trm_kernel_call *call);
trm_status trm_cuda_matmul_prepare(const trm_kernel_call *call);

/* convolution/cuda_cudnn.c: chooses an engine for the problem as trm_cudnn_convolution_run does, unless another thread
 * is about to; whether that is done. UNSUPPORTED where there is no library or no engine. */
trm_status trm_cudnn_convolution_prepare(const trm_convolution_args *args, size_t workspace_size);
bool trm_cudnn_convolution_is_prepared(const trm_convolution_args *args, size_t workspace_size);

#endif
